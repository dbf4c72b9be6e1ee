"""Data flows one way: no module imports from a folder further down the stream, or beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "advisor"
ALL = {
    "comparing",
    "config",
    "gates",
    "model",
    "ingest",
    "derive",
    "replay",
    "pictures",
    "rules",
    "detectors",
    "report",
    "plot",
    "export",
    "cli",
    "hook",
    "monitor",
    "publish",
    "api",
}

# Folder (or module at the top) -> what of ours it may import beside itself.
MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "ingest": {"model"},
    "derive": {"model"},
    "replay": {"model", "derive"},
    "pictures": {"model", "derive", "replay"},
    "rules": {"model", "derive", "replay", "pictures"},
    "detectors": {"model", "derive", "replay", "rules.contract"},
    "report": {"model"},
    "publish": set(),
    "gates": {"model", "rules.rule"},
    "config": {"model", "rules.rule", "gates"},
    "plot": {"model", "report.colors", "report.text", "report.summary"},
    "export": {"model", "derive", "replay", "pictures"},
    "comparing": {"model"},
    "cli": ALL,
    "api": ALL,
    "hook": {"model", "ingest", "rules"},
    "monitor": {"model", "hook.nvml"},
    "annotate": set(),
    "__init__": {"api", "annotate", "hook", "plot"},
    "__main__": {"cli"},
}
EVERYBODY = {"", "__version__"}  # the package itself, for its version


def part_of(module: str) -> str:
    """The folder, or the module at the top of the package, that `module` (a path with dots) belongs to."""
    return module.split(".")[0]


def imports(source: str, module: str) -> Iterator[tuple[int, str]]:
    """(line, module of ours as a path with dots below the package) of every import, also inside functions."""
    package = ["advisor", *module.split(".")]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "advisor":
                    yield node.lineno, alias.name.removeprefix("advisor").lstrip(".")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level] if node.level else []
            path = ".".join([*base, *([node.module] if node.module else [])])
            if path.split(".")[0] == "advisor":
                below = path.removeprefix("advisor").lstrip(".")
                for alias in node.names:
                    yield node.lineno, f"{below}.{alias.name}".lstrip(".")


def violations(source: str, module: str) -> list[str]:
    part = part_of(module)
    allowed = MAY_IMPORT[part] | {part}
    found = []
    for line, target in imports(source, module):
        if target in EVERYBODY or part_of(target) in allowed:
            continue
        if any(target == name or target.startswith(name + ".") for name in allowed):
            continue
        found.append(f"{module}:{line} imports {target}")
    return found


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
        if parts[-1] == "__init__" and len(parts) > 1:
            parts[-1] = "__init__"
        found.append((".".join(parts), path))
    return found


@pytest.mark.parametrize(("module", "path"), modules(), ids=[name for name, _ in modules()])
def test_imports_flow_one_way(module: str, path: Path) -> None:
    assert part_of(module) in MAY_IMPORT, f"{module}: a folder that the design does not know"
    assert violations(path.read_text(encoding="utf-8"), module) == []


@pytest.mark.parametrize(
    ("module", "source", "bad"),
    [
        ("model.run", "from advisor.derive import steps", True),
        ("ingest.nsys.gpu", "import advisor.derive.intervals", True),
        ("ingest.nsys.gpu", "from advisor.ingest.source import Source", False),
        ("ingest.nsys.gpu", "from ..source import Source", False),
        ("ingest.nsys.gpu", "from ...derive import intervals", True),
        ("ingest.__init__", "from .align import join", False),
        ("ingest.__init__", "from ..derive import intervals", True),
        ("detectors.host.x", "from advisor.rules.contract import Context", False),
        ("detectors.host.x", "from advisor.rules import contract", False),
        ("detectors.host.x", "from advisor.rules.engine import analyze", True),
        ("rules.engine", "def f():\n    from advisor.report import text", True),
        ("report.text", "from advisor import __version__", False),
        ("report.text", "from advisor import ingest", True),
        ("report.text", "from advisor.model import Report", False),
        ("cli.info", "from advisor import api, ingest", False),
        ("derive.steps", "import numpy, advisors.other", False),
    ],
)
def test_the_test_itself(module: str, source: str, bad: bool) -> None:
    assert bool(violations(source, module)) is bad


def test_every_command_is_registered_where_it_lives() -> None:
    from advisor.cli import COMMANDS, cli

    for name, (place, _) in COMMANDS.items():
        assert place.startswith("advisor.cli.") and place.endswith(":command")
        command = cli.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None and command.name == name
