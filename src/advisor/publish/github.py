"""GitHub's REST API as far as one comment needs it: patient with limits and outages, and never with the token elsewhere.

https://docs.github.com/rest/issues/comments and https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
"""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

TIMEOUT = 30.0  # seconds until an answer has to begin
ATTEMPTS = 6  # of one request
_FIRST_WAIT, _LIMIT_WAIT = 0.5, 60.0  # seconds, doubled with every attempt: after an outage; at a limit that names no time
_LARGEST_ANSWER = 32 << 20
_MOST_REDIRECTS = 3
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class NotPosted(Exception):
    """The request was not carried out; the message is one line and holds no secret. status: the last answer's, if any.

    denied: the token does not allow it, or must not know of it; nobody can retry that away.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def denied(self) -> bool:
        return self.status in (401, 403, 404)


class Outage(NotPosted):
    """No answer, or one that says that the server failed: whether the request was carried out is unknown."""


@dataclass(frozen=True)
class Answer:
    """headers: names in lower case. text: the body."""

    status: int
    headers: Mapping[str, str]
    text: str

    def data(self) -> Any:
        """The JSON in the body; None if it is none."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    @property
    def message(self) -> str:
        """What an error says for itself."""
        data = self.data()
        told = data.get("message") if isinstance(data, dict) else None
        return told if isinstance(told, str) else ""


def wait_before_retry(answer: Answer | None, attempt: int, now: float) -> float | None:
    """Seconds to wait before the request is sent again, or None if the same request would fare no better.

    answer: None if there was none. attempt: how often it was sent before, from 0. now: seconds since 1970.
    """
    if answer is None or answer.status >= 500:
        return _number(answer, "retry-after") or _FIRST_WAIT * 2**attempt
    if answer.status not in (403, 429):
        return None
    named = _number(answer, "retry-after")
    if named is not None:
        return named
    reset = _number(answer, "x-ratelimit-reset")
    if answer.headers.get("x-ratelimit-remaining") == "0" and reset is not None:
        return max(reset - now, 0.0) + 1.0
    limited = answer.status == 429 or re.search(r"rate limit|abuse detection", answer.message, re.IGNORECASE)
    return _LIMIT_WAIT * 2**attempt if limited else None


def _number(answer: Answer | None, header: str) -> float | None:
    text = answer.headers.get(header, "") if answer else ""
    return float(text) if re.fullmatch(r"\d{1,12}(\.\d{1,6})?", text) else None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Redirects are looked at before they are followed: the token belongs to one server."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class GitHub:
    """The API at `url` with a token. patience: seconds that all waiting together may take. say: told of each wait.

    Raises ValueError for an address without encryption (but on this machine), and for a token that no header can carry.
    """

    def __init__(
        self,
        url: str,
        token: str,
        patience: float = 300.0,
        say: Callable[[str], None] = lambda _: None,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            raise ValueError("the address of the API has to begin with https://")
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            raise ValueError("the token holds characters that no token holds")
        self._url, self._token = url.rstrip("/"), token
        self._left, self._say, self._sleep, self._now = patience, say, sleep, now
        self._opener = urllib.request.build_opener(_NoRedirect)

    def call(self, method: str, path: str, body: Any = None, repeatable: bool = True) -> Any:
        """The JSON of the answer. repeatable: sending the request twice does no harm, so outages are waited for as well.

        Raises NotPosted if the server refuses or patience ends, Outage where it is unknown whether it was carried out.
        """
        for attempt in range(ATTEMPTS):
            answer, trouble = self._send(method, self._url + path, body)
            if answer is not None and answer.status < 300:
                return answer.data()
            said = f"HTTP {answer.status}{f': {self._clean(answer.message)}' if answer.message else ''}" if answer else trouble
            outage = answer is None or answer.status >= 500
            error = (Outage if outage else NotPosted)(said, answer.status if answer else None)
            wait = wait_before_retry(answer, attempt, self._now())
            if wait is None or attempt == ATTEMPTS - 1 or (outage and not repeatable):
                raise error
            self.wait(wait, error)
        raise AssertionError("the last attempt returns or raises")

    def wait(self, seconds: float, error: NotPosted) -> None:
        """Wait, or raise the error if that would take longer than patience lasts."""
        if seconds > self._left:
            raise type(error)(f"{error}; asked to wait {seconds:.0f} s, longer than is waited here", error.status) from error
        self._left -= seconds
        self._say(f"{error}; trying again in {seconds:.0f} s")
        self._sleep(seconds)

    def _send(self, method: str, url: str, body: Any) -> tuple[Answer | None, str]:
        """(the answer, ""), or (None, why there is none)."""
        for _ in range(_MOST_REDIRECTS + 1):
            try:
                answer = self._once(method, url, body)
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = getattr(error, "reason", error)
                return None, f"no answer from the server: {self._clean(str(reason) or type(error).__name__)}"
            target = urllib.parse.urljoin(url, answer.headers.get("location", ""))
            if answer.status not in (301, 302, 307, 308) or _origin(target) != _origin(self._url):
                break
            url = target
        return answer, ""

    def _once(self, method: str, url: str, body: Any) -> Answer:
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
            "User-Agent": "gpu-advisor",
        }
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=TIMEOUT) as reply:
                return _answer(reply.status, reply.headers, reply.read(_LARGEST_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                return _answer(error.code, error.headers, error.read(_LARGEST_ANSWER))

    def _clean(self, text: str) -> str:
        line = "".join(character if character.isprintable() else " " for character in text)
        return line.replace(self._token, "***")[:300]


def _answer(status: int, headers: Any, body: bytes) -> Answer:
    return Answer(status, {name.lower(): value for name, value in headers.items()}, body.decode("utf-8", "replace"))


def _origin(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.netloc
