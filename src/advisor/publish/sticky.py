"""One comment on a pull request that is updated in place, found again by the marker in its first line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from advisor.publish.github import ATTEMPTS, GitHub, NotPosted, Outage, wait_before_retry

LONGEST = 65_536  # characters that GitHub takes
_PAGE, _MOST_PAGES = 100, 100
_OURS = ("OWNER", "MEMBER", "COLLABORATOR")  # with whom a comment of a person may be ours; others could only pretend


@dataclass(frozen=True)
class Posted:
    """What became of the comment, and where it is."""

    outcome: Literal["created", "updated", "unchanged"]
    url: str


def post(api: GitHub, repository: str, pull_request: int, body: str) -> Posted:
    """Update the comment whose first line is that of `body`, or create it.

    repository: OWNER/NAME. Raises ValueError for what is no repository or too long, NotPosted if it could not be done.
    """
    if not re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", repository) or ".." in repository.split("/"):
        raise ValueError(f"{repository!r} is no repository: write OWNER/NAME")
    if len(body.encode("utf-16-le", "replace")) // 2 > LONGEST:
        raise ValueError(f"a comment holds at most {LONGEST:,} characters")
    comments = f"/repos/{repository}/issues/{pull_request}/comments"
    for attempt in range(ATTEMPTS):
        existing = _find(api, comments, body.split("\n", 1)[0])
        if existing is not None and _plain(existing.get("body")) == _plain(body):
            return Posted("unchanged", _url(existing))
        if existing is not None:
            changed = _update(api, f"/repos/{repository}/issues/comments/{existing['id']}", body)
            if changed is not None:
                return changed
        try:
            return Posted("created", _url(api.call("POST", comments, {"body": body}, repeatable=False)))
        except Outage as error:  # it may have been created all the same: look again before another try
            wait = wait_before_retry(None, attempt, 0)
            if wait is None or attempt == ATTEMPTS - 1:
                raise
            api.wait(wait, error)
    raise AssertionError("the last attempt returns or raises")


def _update(api: GitHub, path: str, body: str) -> Posted | None:
    """None if the comment was deleted a moment ago."""
    try:
        return Posted("updated", _url(api.call("PATCH", path, {"body": body})))
    except NotPosted as error:
        if error.status == 404:
            return None
        raise


def _find(api: GitHub, comments: str, marker: str) -> dict[str, Any] | None:
    """The oldest comment that begins with the marker and that we, or somebody who may write here, wrote."""
    for page in range(1, _MOST_PAGES + 1):
        listed = api.call("GET", f"{comments}?per_page={_PAGE}&page={page}")
        if not isinstance(listed, list):
            raise NotPosted("the server's list of comments is no list")
        entries = [one for one in listed if isinstance(one, dict)]
        for one in entries:
            if _plain(one.get("body")).split("\n", 1)[0] == marker and isinstance(one.get("id"), int) and _ours(one):
                return one
        if len(listed) < _PAGE:
            break
    return None


def _ours(comment: dict[str, Any]) -> bool:
    user = comment.get("user")
    kind = user.get("type") if isinstance(user, dict) else None
    return kind == "Bot" or comment.get("author_association") in _OURS


def _plain(body: Any) -> str:
    """As sent: the site may keep other line ends."""
    return str(body or "").replace("\r\n", "\n").strip()


def _url(comment: Any) -> str:
    url = comment.get("html_url") if isinstance(comment, dict) else None
    return url if isinstance(url, str) else ""
