"""`advisor comment` against a stand-in for GitHub: what is posted, how limits, outages and refusals are met."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.cli import main
from advisor.publish.github import ATTEMPTS, Answer, GitHub, NotPosted, Outage, wait_before_retry
from advisor.publish.sticky import LONGEST, post
from advisor.report.comment import marked
from build.github_api import BOT, MEMBER, STRANGER, TOKEN, Api, serving

Command = Callable[..., tuple[int, str, str]]
BODY = marked("### Verdict\n\nText.\n")


@pytest.fixture
def api() -> Iterator[Api]:
    with serving(Api()) as running:
        yield running
    assert running.faults == []


@pytest.fixture
def slept() -> list[float]:
    return []


def client(api: Api, slept: list[float], patience: float = 300, now: float = 1000) -> GitHub:
    return GitHub(api.url, TOKEN, patience, sleep=slept.append, now=lambda: now)


def test_a_comment_is_created_then_updated_then_left_alone(api: Api, slept: list[float]) -> None:
    github = client(api, slept)
    assert post(github, "owner/repo", 7, BODY).outcome == "created"
    changed = BODY.replace("Text", "Other text")
    done = post(github, "owner/repo", 7, changed)
    assert (done.outcome, done.url) == ("updated", api.comments[0]["html_url"])
    assert post(github, "owner/repo", 7, changed).outcome == "unchanged"
    assert [comment["body"] for comment in api.comments] == [changed]
    assert [method for method, _ in api.writes] == ["POST", "PATCH"] and slept == []


def test_line_ends_of_the_site_make_no_change(api: Api, slept: list[float]) -> None:
    api.add(BODY.replace("\n", "\r\n"), BOT)
    assert post(client(api, slept), "owner/repo", 7, BODY).outcome == "unchanged"


@pytest.mark.parametrize("before", [99, 100, 101, 250])
def test_it_is_found_on_any_page(api: Api, slept: list[float], before: int) -> None:
    for i in range(before):
        api.add(f"comment {i}")
    ours = api.add(marked("old"), BOT)
    assert post(client(api, slept), "owner/repo", 7, BODY).outcome == "updated"
    assert ours["body"] == BODY and len(api.comments) == before + 1
    assert len([1 for method, _ in api.requests if method == "GET"]) == before // 100 + 1


@pytest.mark.parametrize(
    ("body", "author", "outcome"),
    [
        (marked("old"), BOT, "updated"),
        (marked("old"), MEMBER, "updated"),  # posted with the token of a person
        (marked("old"), STRANGER, "created"),  # anybody can copy the marker
        (marked("old", "nightly"), BOT, "created"),
        ("See " + marked("old"), BOT, "created"),
        ("> " + marked("old"), BOT, "created"),
        (None, BOT, "created"),
    ],
)
def test_what_counts_as_ours(api: Api, slept: list[float], body: Any, author: Any, outcome: str) -> None:
    api.add(body, author)
    assert post(client(api, slept), "owner/repo", 7, BODY).outcome == outcome


@pytest.mark.parametrize(
    ("status", "headers", "message", "attempt", "wait"),
    [
        (429, {"retry-after": "7"}, "", 0, 7),
        (403, {"retry-after": "7"}, "secondary rate limit", 3, 7),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1030"}, "", 0, 31),
        (429, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "900"}, "", 0, 1),  # clocks differ
        (403, {"x-ratelimit-remaining": "5", "x-ratelimit-reset": "1030"}, "forbidden", 0, None),
        (403, {}, "You have exceeded a secondary rate limit.", 0, 60),
        (403, {}, "You have exceeded a secondary rate limit.", 2, 240),
        (403, {}, "You have triggered an abuse detection mechanism", 0, 60),
        (403, {}, "Resource not accessible by integration", 0, None),
        (429, {"retry-after": "soon"}, "", 0, 60),
        (401, {}, "Bad credentials", 0, None),
        (404, {}, "Not Found", 0, None),
        (422, {"retry-after": "9"}, "", 0, None),
        (500, {}, "", 0, 0.5),
        (502, {}, "", 3, 4),
        (503, {"retry-after": "20"}, "", 0, 20),
    ],
)
def test_when_to_try_again(status: int, headers: dict[str, str], message: str, attempt: int, wait: float | None) -> None:
    answer = Answer(status, headers, json.dumps({"message": message}))
    assert wait_before_retry(answer, attempt, 1000) == wait


def test_without_an_answer_it_is_tried_again() -> None:
    assert [wait_before_retry(None, attempt, 0) for attempt in range(3)] == [0.5, 1, 2]


def test_limits_are_waited_for(api: Api, slept: list[float]) -> None:
    api.fail(403, {"Retry-After": "3"}, "secondary rate limit")
    api.fail(403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1010"}, "API rate limit exceeded")
    assert post(client(api, slept), "owner/repo", 7, BODY).outcome == "created"
    assert slept == [3, 11]


def test_patience_ends(api: Api, slept: list[float]) -> None:
    api.fail(403, {"Retry-After": "3000"}, "secondary rate limit")
    with pytest.raises(NotPosted, match="asked to wait 3000 s, longer than is waited here"):
        post(client(api, slept), "owner/repo", 7, BODY)
    assert slept == [] and api.writes == []


def test_outages_are_waited_for_and_end(api: Api, slept: list[float]) -> None:
    for _ in range(ATTEMPTS):
        api.fail(502, message="Server Error")
    with pytest.raises(Outage, match="HTTP 502: Server Error"):
        post(client(api, slept), "owner/repo", 7, BODY)
    assert slept == [0.5, 1, 2, 4, 8] and api.comments == []


@pytest.mark.parametrize("carried_out", [False, True])
def test_an_outage_while_creating_makes_no_second_comment(api: Api, slept: list[float], carried_out: bool) -> None:
    github = client(api, slept)
    api.plan.append((200, {}, "[]", False))  # the first look finds nothing
    api.fail(502, carried_out=carried_out)
    assert post(github, "owner/repo", 7, BODY).outcome == ("unchanged" if carried_out else "created")
    assert len(api.comments) == 1 and slept == [0.5]


def test_a_comment_deleted_meanwhile_is_created_anew(api: Api, slept: list[float]) -> None:
    api.plan.append((200, {}, json.dumps([{"id": 1, "body": marked("old"), **BOT}]), False))
    assert post(client(api, slept), "owner/repo", 7, BODY).outcome == "created"
    assert [method for method, _ in api.writes] == ["PATCH", "POST"]


def test_a_list_that_is_none_makes_no_comment(api: Api, slept: list[float]) -> None:
    api.plan.append((200, {}, "<html>maintenance</html>", False))
    with pytest.raises(NotPosted, match="no list"):
        post(client(api, slept), "owner/repo", 7, BODY)
    assert api.comments == []


def test_redirects_stay_with_the_server(api: Api, slept: list[float]) -> None:
    api.plan.append((301, {"Location": "/repos/owner/repo/issues/7/comments?per_page=100&page=1"}, "{}", False))
    assert post(client(api, slept), "owner/repo", 7, BODY).outcome == "created"
    with serving(Api()) as other:
        api.plan.append((302, {"Location": f"{other.url}/steal"}, "{}", False))
        with pytest.raises(NotPosted, match="HTTP 302"):
            post(client(api, slept), "owner/repo", 7, BODY)
        assert other.requests == []  # the token went nowhere else


@pytest.mark.parametrize(
    "url", ["http://api.github.example", "ftp://127.0.0.1", "api.github.com", "http://127.0.0.1.evil.example"]
)
def test_no_token_without_encryption(url: str) -> None:
    with pytest.raises(ValueError, match="https"):
        GitHub(url, TOKEN)


@pytest.mark.parametrize("repository", ["", "x", "a/b/c", "a b/c", "../x", "a/..", "a/b?x=1"])
def test_no_repository(api: Api, slept: list[float], repository: str) -> None:
    with pytest.raises(ValueError, match="no repository"):
        post(client(api, slept), repository, 7, BODY)
    assert api.requests == []


def test_too_long(api: Api, slept: list[float]) -> None:
    with pytest.raises(ValueError, match="at most 65,536"):
        post(client(api, slept), "owner/repo", 7, BODY + "\N{FIRE}" * (LONGEST // 2))


@pytest.fixture
def comment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, api: Api
) -> Callable[..., tuple[int, str, str]]:
    """comment(arguments..., event=...) -> (status, standard output, standard error), in a job's environment."""
    for name in ("GITHUB_REPOSITORY", "GITHUB_EVENT_PATH", "GITHUB_STEP_SUMMARY", "GITHUB_TOKEN", "GITHUB_API_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "comment.md").write_text(BODY, "utf-8")

    def run(*arguments: str, event: Any = None, token: str = TOKEN) -> tuple[int, str, str]:
        monkeypatch.setenv("GITHUB_TOKEN", token)
        monkeypatch.setenv("GITHUB_REPOSITORY", "owner/repo")
        monkeypatch.setenv("GITHUB_API_URL", api.url)
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
        (tmp_path / "event.json").write_text(json.dumps(event) if not isinstance(event, str) else event)
        monkeypatch.setenv("GITHUB_EVENT_PATH", str(tmp_path / "event.json"))
        with pytest.raises(SystemExit) as left:
            main(["comment", str(tmp_path / "comment.md"), *arguments])
        out, err = capsys.readouterr()
        assert TOKEN not in out + err and "Traceback" not in err
        return int(left.value.code or 0), out, err

    return run


def summary(tmp_path: Path) -> str:
    place = tmp_path / "summary.md"
    return place.read_text("utf-8") if place.exists() else ""


@pytest.mark.parametrize(
    "event",
    [
        {"pull_request": {"number": 7}},
        {"issue": {"number": 7, "pull_request": {"url": "x"}}, "comment": {}},
        {"workflow_run": {"pull_requests": [{"number": 7}]}},
    ],
)
def test_the_event_names_the_pull_request(comment: Command, api: Api, tmp_path: Path, event: Any) -> None:
    code, out, err = comment(event=event)
    assert code == 0 and "comment created on owner/repo#7" in err
    assert out.strip() == api.comments[0]["html_url"] and api.comments[0]["body"] == BODY
    assert summary(tmp_path) == ""


@pytest.mark.parametrize(
    "event",
    [
        {"ref": "refs/heads/main"},
        {"issue": {"number": 7}},
        {"workflow_run": {"pull_requests": []}},
        {"pull_request": {"number": True}},
        {"pull_request": {"number": "7; rm"}},
        [],
        None,
        "not json {",
    ],
)
def test_no_pull_request(comment: Command, api: Api, tmp_path: Path, event: Any) -> None:
    code, _, err = comment(event=event)
    assert code == 0 and "no comment: this event belongs to no pull request" in err and api.requests == []
    assert "### Verdict" in summary(tmp_path) and "gpu-advisor:" not in summary(tmp_path)
    assert comment("--require", event=event)[0] == 1


def test_a_token_that_may_only_read(comment: Command, api: Api, tmp_path: Path) -> None:
    api.may_write = False
    code, _, err = comment("--pr", "7")
    assert code == 0 and "HTTP 403: Resource not accessible by integration (pull requests from forks" in err
    assert "the report is in the job summary instead" in err and "### Verdict" in summary(tmp_path)
    assert api.comments == [] and len(api.writes) == 1  # refused once, not asked again
    assert comment("--pr", "7", "--require", "--no-summary")[0] == 1
    assert summary(tmp_path).count("### Verdict") == 1


@pytest.mark.parametrize("status", [401, 404])
def test_a_repository_that_the_token_must_not_know(comment: Command, api: Api, status: int) -> None:
    api.fail(status, message="Not Found")
    code, _, err = comment("--pr", "7")
    assert code == 0 and f"HTTP {status}: Not Found" in err and api.writes == []


def test_an_answer_that_repeats_the_token(comment: Command, api: Api) -> None:
    api.fail(422, message=f"bad {TOKEN}\nand more")
    code, _, err = comment("--pr", "7")
    assert code == 0 and "bad *** and more" in err


def test_no_token(comment: Command, api: Api, tmp_path: Path) -> None:
    code, _, err = comment("--pr", "7", token="")
    assert code == 0 and "GITHUB_TOKEN is empty" in err and api.requests == [] and summary(tmp_path)


@pytest.mark.parametrize("token", ["a\nb", "ä", "x y"])
def test_a_token_that_no_header_carries(comment: Command, api: Api, token: str) -> None:
    code, out, err = comment("--pr", "7", token=token)
    assert code == 0 and "no comment: the token holds characters" in err and token not in out + err and api.requests == []


def test_no_server(comment: Command) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        code, _, err = comment("--pr", "7", "--api-url", f"http://127.0.0.1:{taken.getsockname()[1]}", "--patience", "0")
    assert code == 0 and "no comment: no answer from the server" in err and "Connection refused" in err


def test_a_wait_is_told_and_ends_well(comment: Command, api: Api) -> None:
    api.fail(503, {"Retry-After": "0"}, "unavailable")
    code, _, err = comment("--pr", "7")
    assert code == 0 and "HTTP 503: unavailable; trying again in" in err and len(api.comments) == 1


@pytest.mark.parametrize(
    "arguments", [["--pr", "0"], ["--pr", "x"], ["--key", "a b"], ["--key", "-->"], ["--patience", "-1"], ["--repo"]]
)
def test_wrong_usage(comment: Command, api: Api, arguments: list[str]) -> None:
    code, _, err = comment(*arguments)
    assert code == 2 and err.startswith("error: ") and api.requests == []


def test_two_keys_are_two_comments(comment: Command, api: Api) -> None:
    comment("--pr", "7", "--key", "train")
    comment("--pr", "7", "--key", "eval")
    comment("--pr", "7", "--key", "train")
    assert [one["body"].split("\n")[0] for one in api.comments] == ["<!-- gpu-advisor: train -->", "<!-- gpu-advisor: eval -->"]
