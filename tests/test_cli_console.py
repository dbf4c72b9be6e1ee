"""Messages, progress and exit codes that all commands share."""

from __future__ import annotations

import io
from pathlib import Path

import click
import pytest

from advisor import api, cli
from advisor.cli import console
from advisor.model import InputError
from build.recordings import write_kineto


def status(*arguments: str | Path) -> int | str | None:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    return stop.value.code


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (InputError("the rule x is unknown"), 2, "the rule x is unknown"),
        (MemoryError(), 2, "not enough memory"),
        (OSError(28, "No space left on device", "/out/r.json"), 2, "/out/r.json: No space left"),
        (ZeroDivisionError("a\nb"), 70, "internal error (ZeroDivisionError: a b)"),
    ],
)
def test_any_error_is_one_line(
    error: Exception, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.delenv("ADVISOR_DEBUG", raising=False)
    monkeypatch.setattr(api, "info", fails)
    assert status("info", "x") == code
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1 and words in captured.err


def test_debugging_shows_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setenv("ADVISOR_DEBUG", "1")
    monkeypatch.setattr(api, "info", fails)
    with pytest.raises(ZeroDivisionError):
        cli.main(["info", "x"])


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupts(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "info", interrupts)
    assert status("info", "x") == 130


@pytest.mark.parametrize("arguments", [["nosuch"], ["info"], ["info", "--format", "yaml", "x"], ["--nosuch"]])
def test_wrong_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.endswith(" --help)\n") and said.count("\n") == 1


def test_help_and_version_are_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("--version") == 0
    assert status("--help") == 0
    out = capsys.readouterr().out
    assert out.startswith("advisor 0.") and "Examples:" in out and "Exit status:" in out
    for name in cli.COMMANDS:
        assert f"\n  {name} " in out
        assert status(name, "--help") == 0
        assert "--no-color" in capsys.readouterr().out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("arguments", "variable", "expected"),
    [([], "", True), (["--no-color"], "", False), ([], "1", False), (["info", "--no-color"], "", False)],
)
def test_colour_is_for_terminals_that_want_it(
    arguments: list[str], variable: str, expected: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[bool] = []

    def look(*_: object) -> dict[str, object]:
        seen.append(console.color())
        raise InputError("enough")

    monkeypatch.setenv("NO_COLOR", variable)
    monkeypatch.setattr(api, "info", look)
    monkeypatch.setattr("sys.stdout", Terminal())
    command = arguments if "info" in arguments else [*arguments, "info"]
    assert status(*command, "x") == 2
    assert seen == [expected]
    monkeypatch.setattr("sys.stdout", io.StringIO())
    status(*command, "x")
    assert seen[1] is False


def test_progress_shows_on_a_terminal_once_time_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(after: float, stream: io.StringIO) -> str:
        monkeypatch.setattr(console, "_PROGRESS_AFTER", after)
        monkeypatch.setattr("sys.stderr", stream)
        with console.progress() as advance:
            advance(10, 100)
            advance(100, 100)
        return stream.getvalue()

    assert "Reading" in shown(0.0, Terminal())
    assert shown(60.0, Terminal()) == ""
    assert shown(0.0, io.StringIO()) == ""


def test_reading_reports_progress_up_to_the_end(tmp_path: Path) -> None:
    paths = [write_kineto(tmp_path / f"rank{i}.json.gz", rank=i, steps=50) for i in range(2)]
    calls: list[tuple[int, int]] = []
    api.load(paths, progress=lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls) and calls[-1] == (calls[-1][1],) * 2
    assert calls[-1][1] == sum(path.stat().st_size for path in paths)


def test_load_of_the_api(tmp_path: Path) -> None:
    good = write_kineto(tmp_path / "t.json")
    run = api.load(good)
    assert len(run.table("kernels")) == 6 and run.notices == []
    run = api.load([good, tmp_path / "absent"])
    assert [notice.code for notice in run.notices] == ["input-unused"]
    with pytest.raises(InputError, match="absent: no such file"):
        api.load(tmp_path / "absent")
    with pytest.raises(InputError, match="no input given"):
        api.load([])


def test_messages_are_one_line_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    console.problem("a\nb\x1b[31m", "bad\tthing")
    assert capsys.readouterr().err == "error: a b [31m: bad thing\n"


def test_load_of_the_console_ends_the_command_where_nothing_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(click.exceptions.Exit) as stop:
        console.load(["absent1", "absent2"])
    assert stop.value.exit_code == 2
    assert capsys.readouterr().err.splitlines() == [f"error: absent{i}: no such file or directory" for i in (1, 2)]


def test_output_ends_with_one_newline(capsys: pytest.CaptureFixture[str]) -> None:
    console.write("text\n\n\n")
    assert capsys.readouterr().out == "text\n"
