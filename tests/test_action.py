"""The composite action, step by step in a shell, against a stand-in for GitHub's API."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from build.github_api import TOKEN, Api, serving
from build.runner import ACTION, Job, yaml
from build.workload import Workload

REVIEW = ("Report", "Upload to code scanning", "Comment on the pull request", "Verdict")
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording with launch blocking."""
    w = Workload()
    for _ in w.steps(6):
        for _ in range(40):
            with w.op("aten::mm", us=60):
                w.launch("gemm", gpu_us=100, blocking=True)
    return w.write_kineto(tmp_path_factory.mktemp("blocking"))[0]


@pytest.fixture
def api() -> Iterator[Api]:
    with serving(Api()) as running:
        yield running
    assert running.faults == []


@pytest.fixture
def job(tmp_path: Path, api: Api) -> Callable[..., Job]:
    """job(**inputs): a job started by pull request 7, in which the program is installed."""
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7}}))

    def make(event: Any = {"pull_request": {"number": 7}}, **inputs: str) -> Job:  # noqa: B006
        (tmp_path / "event.json").write_text(json.dumps(event))
        environment = {
            "GITHUB_REPOSITORY": "owner/repo",
            "GITHUB_API_URL": api.url,
            "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
            "GITHUB_JOB": "review",
        }
        made = Job(tmp_path / "job", {name.replace("_", "-"): value for name, value in inputs.items()}, environment, TOKEN)
        made.installed()
        return made

    return make


def test_the_file_is_an_action() -> None:
    import check_jsonschema

    schema = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor" / "github-actions.json"
    jsonschema.Draft7Validator(json.loads(schema.read_text("utf-8"))).validate(yaml(ACTION))


def test_scripts_hold_no_expressions_and_actions_are_pinned() -> None:
    for step in yaml(ACTION)["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert "uses" not in step or PINNED.fullmatch(step["uses"]), step
    for line in ACTION.read_text("utf-8").splitlines():
        assert "uses:" not in line or re.search(r"# v\d+\.\d+\.\d+$", line), f"{line} says no version"


def test_every_input_is_used_and_every_output_comes_from_a_step() -> None:
    text, action = ACTION.read_text("utf-8"), yaml(ACTION)
    for name in action["inputs"]:
        assert f"inputs.{name} " in text, name
    ids = {step.get("id") for step in action["runs"]["steps"]}
    for output in action["outputs"].values():
        assert output["value"].split(".")[1] in ids


def test_a_recording_is_judged_and_commented(job: Callable[..., Job], api: Api, recording: Path) -> None:
    one = job(paths=str(recording), sarif="true", note="Recorded on an H200.")
    assert one.run(*REVIEW) == 0
    assert one.ran == list(REVIEW)
    assert "::warning title=Launch" in one.log or "::warning " in one.log
    assert [comment["body"].split("\n")[0] for comment in api.comments] == ["<!-- gpu-advisor: report -->"]
    assert "Recorded on an H200." in api.comments[0]["body"] and "Recorded on an H200." in one.summary
    assert one.result("verdict") == "passed" and int(one.result("step-time")) > 0 and one.result("change") == ""
    assert json.loads(Path(one.result("report")).read_text())["schema"] == "advisor.report/1"
    assert json.loads(Path(one.result("sarif")).read_text())["version"] == "2.1.0"
    assert TOKEN not in one.log
    assert one.run(*REVIEW) == 0 and len(api.comments) == 1
    assert [method for method, _ in api.writes] == ["POST"]  # the second time nothing had changed


def test_a_condition_fails_the_job_after_everything_is_said(job: Callable[..., Job], api: Api, recording: Path) -> None:
    one = job(paths=str(recording), fail_on="launch-blocking\nhigh\n")
    assert one.run(*REVIEW) == 1
    assert one.ran[-1] == "Verdict" and len(api.comments) == 1 and one.result("verdict") == "failed"
    assert one.summary.startswith("\n### ")


def test_no_recording_is_neutral(job: Callable[..., Job], api: Api) -> None:
    one = job(paths="traces/\nnothing*.json", sarif="true", fail_on="high")
    assert one.run(*REVIEW) == 0
    assert one.ran == ["Report", "Comment on the pull request", "Verdict"]  # no SARIF: an empty one would close all alerts
    assert one.result("verdict") == "no-recording" and one.result("report") == "" == one.result("step-time")
    assert "No recording was found" in one.summary and "No recording was found" in api.comments[0]["body"]
    assert job(paths="traces/", require_recording="true").run(*REVIEW) == 2


def test_a_broken_recording_fails_and_replaces_the_comment(
    job: Callable[..., Job], api: Api, recording: Path, tmp_path: Path
) -> None:
    assert job(paths=str(recording)).run(*REVIEW) == 0
    (tmp_path / "broken.json").write_text("{}")
    one = job(paths=str(tmp_path / "broken.json"))
    assert one.run(*REVIEW) == 2
    assert one.result("verdict") == "error" and one.result("report") == ""
    assert len(api.comments) == 1 and "There is no report" in api.comments[0]["body"] and "`review`" in one.summary


def test_a_read_only_token_leaves_the_job_summary(job: Callable[..., Job], api: Api, recording: Path) -> None:
    api.may_write = False
    one = job(paths=str(recording))
    assert one.run(*REVIEW) == 0
    assert api.comments == [] and "no comment: HTTP 403" in one.log and "pull requests from forks" in one.log
    assert "### " in one.summary
    assert job(paths=str(recording), require_comment="true").run(*REVIEW) == 1


def test_an_event_without_a_pull_request(job: Callable[..., Job], api: Api, recording: Path) -> None:
    one = job({"ref": "refs/heads/main"}, paths=str(recording))
    assert one.run(*REVIEW) == 0 and "belongs to no pull request" in one.log and api.requests == []


def test_an_outage_does_not_fail_the_job(job: Callable[..., Job], api: Api, recording: Path) -> None:
    api.fail(502)
    api.fail(429, {"Retry-After": "0"})
    assert job(paths=str(recording)).run(*REVIEW) == 0 and len(api.comments) == 1


@pytest.mark.parametrize(
    "text",
    ["$(touch hacked)", "`touch hacked`", "; touch hacked #", "' && touch hacked '", '" && touch hacked "', "a\n::error::x"],
)
def test_no_input_becomes_a_command(job: Callable[..., Job], api: Api, tmp_path: Path, text: str) -> None:
    one = job(paths=text, note=text, comment_key="key", fail_on="")
    assert one.run(*REVIEW) == 0
    assert not list(tmp_path.rglob("hacked")) and "\n::error" not in one.log
    assert job(paths="x", comment_key=text).run(*REVIEW) == 2  # wrong usage
    assert not list(tmp_path.rglob("hacked"))


@pytest.mark.parametrize("inputs", [{}, {"paths": "a", "head": "b"}, {"base": "a"}, {"paths": " \n "}])
def test_inputs_that_contradict_one_another(job: Callable[..., Job], inputs: dict[str, str]) -> None:
    one = job(**inputs)
    assert one.run(*REVIEW) == 2 and "the action needs `paths`, or `head`" in one.log


def test_without_a_base_the_head_is_analysed(job: Callable[..., Job], api: Api, recording: Path) -> None:
    one = job(base="base", head=f"{recording}\nmissing.json\n{recording}", note="First run.", fail_on="regression>3%, error")
    assert one.run(*REVIEW) == 0
    assert "There is no base to compare with. First run." in api.comments[0]["body"] and one.result("change") == ""
    reports = Path(one.result("reports"))
    assert sorted(file.name for file in reports.iterdir()) == ["1.json", "2.json"]  # one a repeat, as a later base
    assert one.result("report") == str(reports / "1.json")
    assert one.log.count("::notice title=GPU advisor::") == 1


def test_the_checkout_is_installed_as_a_runner_does_it(job: Callable[..., Job], recording: Path) -> None:
    """Into an environment of its own, without a package index: what pip would fetch lies on PYTHONPATH."""
    one = job(paths=str(recording), python_version="")
    one.outputs.clear()
    # Of this one option pip takes the value as its opposite.
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_DEPS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    libraries = sysconfig.get_path("purelib")
    binaries = os.path.dirname(sys.executable)
    one.environment |= {**offline, "PYTHONPATH": libraries, "PATH": f"{binaries}:{os.environ['PATH']}"}
    assert one.run("Install gpu-advisor", *REVIEW) == 0, one.log
    python = one.outputs["install"]["python"]
    where = [python, "-c", "import advisor; print(advisor.__file__)"]
    place = subprocess.run(where, capture_output=True, text=True, check=True, cwd="/", env={"PATH": "/usr/bin"}).stdout
    assert "gpu-advisor-environment" in place and one.result("verdict") == "passed"


@pytest.mark.parametrize("version", ["0.0.0.dev999", "$(touch hacked)"])
def test_a_version_is_asked_of_the_index(job: Callable[..., Job], version: str) -> None:
    one = job(paths="x", version=version, python_version="")
    one.outputs.clear()
    one.environment |= {"PIP_NO_INDEX": "1", "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    assert one.run("Install gpu-advisor") != 0
    assert "touch" in version or f"gpu-advisor=={version}" in one.log
    assert not list(one.folder.rglob("hacked"))


def slower_recording(folder: Path, seed: int) -> Path:
    """The recording of before, and in each step a wait more."""
    w = Workload()
    for _ in w.steps(8):
        for i in range(40):
            with w.op("aten::mm", us=60 + (seed * 7 + i) % 3):
                w.launch("gemm", gpu_us=140, blocking=True)
    return w.write_kineto(folder)[0]


def test_two_sides_are_compared(job: Callable[..., Job], api: Api, recording: Path, tmp_path: Path) -> None:
    first = job(head=f"{recording}\n{recording}")
    assert first.run(*REVIEW) == 0 and first.result("reports")
    base = tmp_path / "base"
    shutil.copytree(first.result("reports"), base)
    heads = [slower_recording(tmp_path / f"head{i}", i) for i in range(2)]
    (tmp_path / "second").mkdir()
    second = job(
        base=str(base), head="\n".join(map(str, [*heads, "missing.json"])), note="Base: main.", fail_on="regression>3%\nnew:high"
    )
    assert second.run(*REVIEW) == 1, second.log
    assert (second.result("verdict"), second.result("change")) == ("failed", "slower"), second.log
    assert "no recording: 'missing.json'" in second.log and "::error " in second.log
    document = json.loads(Path(second.result("report")).read_text())
    assert document["schema"] == "advisor.compare/1" and second.result("step-time") == str(document["head"]["step_ns"])
    assert second.result("reports") == "" and second.outputs["report"]["category"] == "gpu-advisor-changes"
    assert len(api.comments) == 1 and "Slower" in api.comments[0]["body"] and "Base: main." in api.comments[0]["body"]
    assert "Slower" in second.summary
