"""What a command imports: asked by names, not by time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from build.recordings import write_kineto

HEAVY = {"numpy", "pandas", "rich", "msgspec", "torch", "sqlite3", "jsonschema"}


def imported(*arguments: str | Path) -> set[str]:
    """Top-level modules that `advisor ARGUMENTS` leaves loaded."""
    program = (
        "import sys, advisor.cli\n"
        "try:\n"
        f"    advisor.cli.main({[str(a) for a in arguments]!r})\n"
        "finally:\n"
        "    print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    assert imported(*arguments) & HEAVY == set()


@pytest.mark.parametrize("command", ["analyze", "comment", "compare", "explain", "export", "info", "monitor", "record", "rules"])
def test_help_of_a_command_imports_no_numbers(command: str) -> None:
    assert imported(command, "--help") & (HEAVY - {"msgspec"}) == set()


def test_info_needs_neither_pandas_nor_rich(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "t.json")
    loaded = imported("info", path)
    assert "numpy" in loaded and loaded & {"pandas", "rich", "torch"} == set()


def test_import_of_the_package_is_light() -> None:
    program = "import sys, advisor; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert set(done.stdout.split()) & (HEAVY | {"click"}) == set()
