"""Runs the steps of a composite action as a runner of GitHub Actions does: expressions, files for outputs, bash."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ACTION = Path(__file__).resolve().parents[2] / "action.yml"
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


def yaml(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path.read_text("utf-8"))


@dataclass
class Job:
    """A job whose steps are those of the action. environment: what the runner sets beside the step's own `env`."""

    folder: Path
    inputs: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)
    token: str = "ghs_stand-in-token"
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    log: str = ""
    summary: str = ""

    def __post_init__(self) -> None:
        self.action = yaml(ACTION)
        unknown = set(self.inputs) - set(self.action["inputs"])
        assert not unknown, unknown
        (self.folder / "temp").mkdir(parents=True, exist_ok=True)
        (self.folder / "work").mkdir(exist_ok=True)

    def value(self, expression: str) -> str:
        """Of `inputs.x`, `steps.x.outputs.y` or `github.token`."""
        kind, _, rest = expression.partition(".")
        if kind == "inputs":
            default = str(self.action["inputs"][rest].get("default", ""))
            return self.inputs[rest] if rest in self.inputs else self.filled(default)
        if kind == "steps":
            step, word, name = rest.split(".")
            assert word == "outputs"
            return self.outputs.get(step, {}).get(name, "")
        assert expression == "github.token", expression
        return self.token

    def filled(self, text: str) -> str:
        return _EXPRESSION.sub(lambda match: self.value(match[1]), text)

    def holds(self, condition: str) -> bool:
        """Comparisons with quoted text, joined by &&."""
        for part in condition.split("&&"):
            match = re.fullmatch(r"\s*([\w.-]+)\s*(==|!=)\s*'([^']*)'\s*", part)
            assert match, part
            if (self.value(match[1]) == match[3]) is not (match[2] == "=="):
                return False
        return True

    def run(self, *names: str) -> int:
        """All steps that run scripts (or those of these names), in order, until one fails; returns its status, or 0."""
        for step in self.action["runs"]["steps"]:
            if names and step["name"] not in names:
                continue
            if not self.holds(step.get("if", "github.token != ''")):
                continue
            self.ran.append(step["name"])
            if "run" in step and (status := self._step(step)):
                return status
        return 0

    def _step(self, step: dict[str, Any]) -> int:
        assert step["shell"] == "bash" and not _EXPRESSION.search(step["run"])
        script, told = self.folder / "script.sh", self.folder / "output.txt"
        summary = self.folder / "summary.md"
        script.write_text(step["run"])
        told.write_text("")
        summary.write_text("")
        environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH", "LANG") if name in os.environ},
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(told),
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_ACTION_PATH": str(ACTION.parent),
            "RUNNER_TEMP": str(self.folder / "temp"),
            "NO_PROXY": "127.0.0.1",
            **self.environment,
            **{name: self.filled(value) for name, value in step.get("env", {}).items()},
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            env=environment,
            cwd=self.folder / "work",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        self.log += done.stdout
        self.summary += summary.read_text("utf-8")
        if "id" in step:
            self.outputs[step["id"]] = dict(line.split("=", 1) for line in told.read_text("utf-8").splitlines())
        return done.returncode

    def installed(self) -> None:
        """As if the step that installs had put the program into this environment."""
        self.outputs["install"] = {"python": sys.executable}

    def result(self, name: str) -> str:
        """An output of the action."""
        return self.filled(self.action["outputs"][name]["value"])
