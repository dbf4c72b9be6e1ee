"""What the composite action at the top of the repository runs: `python -m advisor.cli.action`.

Everything it is told comes from environment variables, so that no text of a pull request ever becomes a part of a script. It
writes the report in all formats that later steps need, tells them what there is, and leaves failing to the last step.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERDICTS = {0: "passed", 1: "failed"}
NO_RECORDING, ERROR = "no-recording", "error"
_NO_BASE = "There is no base to compare with."


@dataclass(frozen=True)
class Asked:
    """The inputs of the action. paths: one run to analyse; base and head: repeats of two sides to compare."""

    paths: list[str]
    base: list[str]
    head: list[str]
    conditions: list[str]
    options: list[str]
    note: str
    require_recording: bool

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Asked:
        """ValueError if the inputs contradict one another."""
        paths, base, head = (lines(environment.get(name, "")) for name in ("PATHS", "BASE", "HEAD"))
        if bool(paths) == bool(head) or (base and not head):
            raise ValueError("the action needs `paths`, or `head` and perhaps `base`")
        options: list[str] = []
        for name, option in (("CONFIG", "--config"), ("SOURCE_ROOT", "--source-root")):
            options += [option, environment[name]] if environment.get(name) else []
        options += lines(environment.get("ARGUMENTS", ""))
        conditions = [one.strip() for line in lines(environment.get("FAIL_ON", "")) for one in line.split(",") if one.strip()]
        note = environment.get("NOTE", "").strip()
        return cls(paths, base, head, conditions, options, note, environment.get("REQUIRE_RECORDING") == "true")

    @property
    def compares(self) -> bool:
        """Whether there are two sides; without recordings of the head there is nothing to say of the base either."""
        return any(map(_exists, self.base)) and any(map(_exists, self.head))

    def command(self, files: Mapping[str, Path]) -> list[str]:
        """The arguments of the program. files: format -> where it is to be written beside the annotations."""
        note, conditions = self.note, self.conditions
        if self.head and not self.compares:  # a regression is one against a base
            conditions = [one for one in conditions if not one.startswith("regression")]
            note = f"{_NO_BASE} {note}".strip() if self.base and not any(map(_exists, self.base)) else note
        options = [*self.options, "--format", "github", *(["--note", note] if note else [])]
        options += [part for condition in conditions for part in ("--fail-on", condition)]
        options += [part for form, file in files.items() for part in ("--also", f"{form}={file}")]
        if self.compares:
            sides = [part for path in self.base if _exists(path) for part in ("--base", path)]
            sides += [part for path in self.head if _exists(path) for part in ("--head", path)]
            return ["compare", *sides, *options]
        allowed = [] if self.require_recording else ["--allow-missing"]
        return ["analyze", *options, *allowed, "--", *(self.paths or self.head[:1])]

    def repeats(self, folder: Path) -> list[list[str]]:
        """Further commands where the head stands alone: each repeat has its report, with which a later head is compared."""
        rest = [] if self.compares else [path for path in self.head[1:] if _exists(path)]
        return [
            ["analyze", *self.options, "--format", "json", "--output", str(folder / f"{number}.json"), "--", path]
            for number, path in enumerate(rest, 2)
        ]


def lines(text: str) -> list[str]:
    """Lines that are not blank, without blanks at either end."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def _exists(path: str) -> bool:
    return os.path.lexists(path) or bool(glob.glob(path, recursive=True))


def outputs(status: int, command: str, files: Mapping[str, Path]) -> dict[str, str]:
    """What later steps and the user's workflow are told."""
    document = _document(files["json"])
    verdict = VERDICTS.get(status, ERROR) if document else NO_RECORDING if status == 0 else ERROR
    compared = command == "compare"
    step = document.get("head", {}).get("step_ns") if compared else (document.get("run", {}).get("steps") or {}).get("median_ns")
    return {
        "status": str(status),
        "verdict": verdict,
        "step-time": "" if step is None else str(step),
        "change": str(document.get("step", {}).get("verdict", "")) if compared else "",
        "category": "gpu-advisor-changes" if compared else "gpu-advisor",
        "reports": str(files["json"].parent) if document and not compared else "",
        **{form: str(file) if file.is_file() else "" for form, file in files.items()},
    }


def _document(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return document


def main() -> int:
    """Status 0 whatever the report says; 2 if the action was called wrongly."""
    from advisor.cli import run
    from advisor.cli.output import append_summary
    from advisor.report import missing
    from advisor.report.comment import marked

    try:
        asked = Asked.of(os.environ)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    folder = Path(os.environ["RUNNER_TEMP"]) / "gpu-advisor"
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier use in the same job
    reports = folder / "reports"
    reports.mkdir(parents=True)
    report = folder / "comparison.json" if asked.compares else reports / "1.json"
    files = {"json": report, "sarif": folder / "report.sarif", "comment": folder / "comment.md"}
    arguments = asked.command(files)
    status = run(arguments)
    for path in asked.head if any(map(_exists, asked.head)) else ():
        if not _exists(path):
            print(f"no recording: {path!r}", file=sys.stderr)
    for repeat in asked.repeats(reports):
        run(repeat)  # one that cannot be read is told in the log and missing from the base, no more
    if status not in VERDICTS:
        text = missing.failed(os.environ.get("GITHUB_JOB", ""))
        files["comment"].write_text(marked(text), "utf-8")
        if os.environ.get("GITHUB_STEP_SUMMARY"):
            append_summary(text)
    with open(os.environ["GITHUB_OUTPUT"], "a", encoding="utf-8") as told:
        told.writelines(f"{name}={value}\n" for name, value in outputs(status, arguments[0], files).items())
    return 0


if __name__ == "__main__":
    sys.exit(main())
