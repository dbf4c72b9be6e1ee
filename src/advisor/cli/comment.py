"""`advisor comment`: one comment on a pull request, updated in place. It never fails a build unless asked to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from advisor.cli import console

TOKEN, API = "GITHUB_TOKEN", "https://api.github.com"
_FORK = "pull requests from forks get a token that may only read, and so does a job without `pull-requests: write`"


@click.command("comment")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--repo", metavar="OWNER/NAME", envvar="GITHUB_REPOSITORY", help="Default: $GITHUB_REPOSITORY.")
@click.option("--pr", type=click.IntRange(1), metavar="N", help="Default: the pull request of the event that started the job.")
@click.option("--key", default="report", metavar="KEY", help="Tells several comments apart; default: report.")
@click.option("--api-url", metavar="URL", envvar="GITHUB_API_URL", default=API, help=f"Default: $GITHUB_API_URL, or {API}.")
@click.option("--summary/--no-summary", default=True, help="Where it cannot comment, add FILE to the job summary. On by default.")
@click.option("--patience", type=click.FloatRange(0), default=300.0, metavar="S", help="Seconds to wait in all; default: 300.")
@click.option("--require", is_flag=True, help="End with status 1 if there is no comment in the end.")
def command(
    file: Path,
    repo: str | None,
    pr: int | None,
    key: str,
    api_url: str,
    summary: bool,
    patience: float,
    require: bool,
) -> int:
    """Post FILE (`--format comment`) as a comment on a pull request on GitHub, or update the one posted before.

    The token is read from the environment variable GITHUB_TOKEN; it needs `pull-requests: write`. Limits and outages are
    waited for. Where a comment is not possible (no pull request, a read-only token), the report goes to the job summary.
    """
    from advisor.report.comment import marked, marker, unmarked

    try:
        marker(key)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--key") from error
    text = file.read_text("utf-8", "replace")
    number = pr or _pull_request(os.environ.get("GITHUB_EVENT_PATH"))
    token = os.environ.get(TOKEN, "").strip()
    reason = _missing(repo, number, token)
    if reason is None and repo and number:
        reason = _post(repo, number, token, api_url, patience, marked(text, key))
    if reason is None:
        return 0
    console.message(f"no comment: {reason}")
    if summary and os.environ.get("GITHUB_STEP_SUMMARY"):
        from advisor.cli.output import append_summary

        append_summary(unmarked(text))
        console.message("the report is in the job summary instead")
    return 1 if require else 0


def _missing(repo: str | None, number: int | None, token: str) -> str | None:
    if number is None:
        return "this event belongs to no pull request (--pr names one)"
    if not repo:
        return "the repository is unknown (--repo OWNER/NAME)"
    return None if token else f"the environment variable {TOKEN} is empty"


def _post(repo: str, number: int, token: str, api_url: str, patience: float, body: str) -> str | None:
    """None once it is posted, else why it is not."""
    from advisor.publish.github import GitHub, NotPosted
    from advisor.publish.sticky import post

    try:
        done = post(GitHub(api_url, token, patience, console.message), repo, number, body)
    except NotPosted as error:
        return f"{error} ({_FORK})" if error.denied else str(error)
    except ValueError as error:
        return str(error)
    console.message(f"comment {done.outcome} on {repo}#{number}")
    if done.url:
        console.write(console.one_line(done.url))
    return None


def _pull_request(event: str | None) -> int | None:
    """The number in the event's description: of the pull request itself, of a comment on one, of the run that it started."""
    try:
        described: Any = json.loads(Path(event).read_text("utf-8")) if event else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(described, dict):
        return None
    issue, run = described.get("issue"), described.get("workflow_run")
    of_run = run.get("pull_requests") if isinstance(run, dict) else None
    for place in (
        described.get("pull_request"),
        issue if isinstance(issue, dict) and issue.get("pull_request") else None,
        of_run[0] if isinstance(of_run, list) and of_run else None,
    ):
        number = place.get("number") if isinstance(place, dict) else None
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            return number
    return None
