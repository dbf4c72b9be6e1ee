"""Examples of docs/examples and the hooks for pre-commit: valid, safe, and doing what the page says."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import check_jsonschema
import jsonschema
import pytest

from advisor.cli import main
from build.runner import ACTION, yaml

ROOT = ACTION.parent
EXAMPLES = ROOT / "docs" / "examples"
SCHEMAS = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor"
PINNED = re.compile(r"[\w.-]+/[\w./-]+@([0-9a-f]{40}|COMMIT)")


def schema(name: str) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(json.loads((SCHEMAS / f"{name}.json").read_text("utf-8")))


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yml")) + sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_every_example_is_yaml_and_named_by_the_page(file: Path) -> None:
    assert isinstance(yaml(file), dict)
    assert f"examples/{file.name})" in (ROOT / "docs" / "ci.md").read_text("utf-8")


class TestWorkflow:
    workflow = yaml(EXAMPLES / "github-workflow.yml")

    def steps(self) -> list[dict[str, Any]]:
        return [step for job in self.workflow["jobs"].values() for step in job["steps"]]

    def test_it_is_a_workflow(self) -> None:
        schema("github-workflows").validate(self.workflow)

    def test_it_is_safe(self) -> None:
        assert self.workflow["permissions"] == {"contents": "read"}
        assert "pull_request_target" not in self.workflow["on"]
        assert "head.repo.full_name == github.repository" in self.workflow["jobs"]["record"]["if"]
        for step in self.steps():
            assert "${{" not in step.get("run", "")
            assert "uses" not in step or PINNED.fullmatch(step["uses"]), step
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False

    def test_it_gives_the_action_what_it_takes_and_takes_what_it_gives(self) -> None:
        action = yaml(ACTION)
        (used,) = [step for step in self.steps() if "gpu-advisor@" in step.get("uses", "")]
        assert set(used["with"]) <= set(action["inputs"])
        text = (EXAMPLES / "github-workflow.yml").read_text("utf-8")
        assert set(re.findall(r"steps\.advisor\.outputs\.([\w-]+)", text)) <= set(action["outputs"])

    def test_scripts_are_bash(self) -> None:
        for step in self.steps():
            if "run" in step:
                subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True)

    @pytest.mark.parametrize(("with_report", "note"), [("102", "1a2b3c4"), ("101", "9f8e7d6"), ("none", None)])
    def test_the_newest_run_with_a_report_is_the_base(self, tmp_path: Path, with_report: str, note: str | None) -> None:
        (script,) = [step["run"] for step in self.steps() if step.get("id") == "base"]
        (tmp_path / "gh").write_text(
            "#!/bin/sh\n"
            'if [ "$2" = list ]; then\n'
            '  printf "102\\t%s\\t1a2b3c4d5e\\n101\\t%s\\t9f8e7d6c5b\\n" "$NEW" "$OLD"\n'
            f'elif [ "$3" = {with_report} ]; then mkdir base && echo {{}} > base/1.json\n'
            'else echo "no artifact" >&2; exit 1; fi\n'
        )
        (tmp_path / "gh").chmod(0o755)
        (tmp_path / "work").mkdir()
        now = int(subprocess.run(["date", "+%s"], capture_output=True, text=True, check=True).stdout)
        environment = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "GITHUB_OUTPUT": str(tmp_path / "out"),
            "GITHUB_REPOSITORY": "owner/repo",
            "BRANCH": "main",
            "NEW": f"@{now - 2 * 86400 - 60}",
            "OLD": f"@{now - 9 * 86400 - 60}",
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        subprocess.run(command, env=environment, cwd=tmp_path / "work", check=True, capture_output=True)
        told = (tmp_path / "out").read_text() if (tmp_path / "out").exists() else ""
        days = {"1a2b3c4": 2, "9f8e7d6": 9}
        assert told == (f"note=Base: main at {note}, recorded {days[note]} days ago.\n" if note else "")


class TestGitlab:
    pipeline = yaml(EXAMPLES / "gitlab-ci.yml")

    def test_it_is_a_pipeline(self) -> None:
        schema("gitlab-ci").validate(self.pipeline)

    def test_the_review_writes_what_its_artifacts_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        job = self.pipeline["review"]
        (command,) = [shlex.split(line) for line in job["script"] if line.startswith("advisor ")]
        sample = ROOT / "sample_traces" / "loader-starved.torch.json.gz"
        (tmp_path / "recordings").mkdir()
        (tmp_path / "recordings" / "1.json.gz").write_bytes(sample.read_bytes())
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as left:
            main(command[1:])
        assert left.value.code == 1 and "Traceback" not in capsys.readouterr().err
        wanted = {*job["artifacts"]["paths"], *job["artifacts"]["reports"].values()}
        assert wanted == {file.name for file in tmp_path.iterdir() if file.is_file()}


class TestPreCommit:
    hooks = yaml(ROOT / ".pre-commit-hooks.yaml")

    def test_the_example_uses_hooks_that_there_are(self) -> None:
        (used,) = yaml(EXAMPLES / "pre-commit-config.yaml")["repos"]
        assert {hook["id"] for hook in used["hooks"]} == {hook["id"] for hook in self.hooks}
        for hook in self.hooks:
            assert {"id", "name", "entry", "language", "files"} <= set(hook) and hook["language"] == "python"

    def test_settings_are_checked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (hook,) = [one for one in self.hooks if one["id"] == "advisor-config"]
        assert re.search(hook["files"], "advisor.toml") and re.search(hook["files"], "sub/pyproject.toml")
        monkeypatch.chdir(tmp_path)
        for text, status in (("fail-on = ['high']\n", 0), ("fial-on = ['high']\n", 2)):
            (tmp_path / "advisor.toml").write_text(text)
            with pytest.raises(SystemExit) as left:
                main(hook["entry"].split()[1:])
            assert (left.value.code or 0) == status
        assert "fail-on" in capsys.readouterr().err

    @pytest.mark.parametrize(("sample", "status"), [("loader-starved.torch.json.gz", 1), ("healthy.torch.json.gz", 0)])
    def test_recordings_are_judged(
        self, tmp_path: Path, sample: str, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (hook,) = [one for one in self.hooks if one["id"] == "advisor-analyze"]
        file = tmp_path / "rank0.pt.trace.json.gz"
        file.write_bytes((ROOT / "sample_traces" / sample).read_bytes())
        assert re.search(hook["files"], file.name) and hook["require_serial"] is True
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as left:
            main([*hook["entry"].split()[1:], str(file)])
        capsys.readouterr()
        assert (left.value.code or 0) == status
