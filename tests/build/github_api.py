"""A stand-in for GitHub's API on 127.0.0.1: comments of pull requests, in pages, with limits, outages and refusals."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "ghs_stand-in-token"
BOT = {"user": {"login": "github-actions[bot]", "type": "Bot"}, "author_association": "NONE"}
MEMBER = {"user": {"login": "maintainer", "type": "User"}, "author_association": "MEMBER"}
STRANGER = {"user": {"login": "stranger", "type": "User"}, "author_association": "NONE"}


@dataclass
class Api:
    """comments: of the one pull request, oldest first. may_write: what the token is allowed. plan: answers given before any
    request is looked at, (status, headers, body, whether the request is carried out all the same).
    """

    repository: str = "owner/repo"
    pull_request: int = 7
    comments: list[dict[str, Any]] = field(default_factory=list)
    may_write: bool = True
    plan: list[tuple[int, dict[str, str], str, bool]] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    url: str = ""

    def add(self, body: str, author: dict[str, Any] = MEMBER) -> dict[str, Any]:
        number = 1000 + len(self.comments)
        url = f"https://github.example/{self.repository}/pull/{self.pull_request}#issuecomment-{number}"
        self.comments.append({"id": number, "body": body, "html_url": url, **author})
        return self.comments[-1]

    def fail(self, status: int, headers: dict[str, str] | None = None, message: str = "", carried_out: bool = False) -> None:
        self.plan.append((status, headers or {}, json.dumps({"message": message}), carried_out))

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [one for one in self.requests if one[0] != "GET"]

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], str]:
        self.requests.append((method, target))
        self._check(headers)
        if self.plan:
            status, given, text, carried_out = self.plan.pop(0)
            if carried_out:
                self._carry_out(method, target, body)
            return status, given, text
        return self._carry_out(method, target, body)

    def _check(self, headers: Any) -> None:
        wanted = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28", "User-Agent": "gpu-advisor"}
        wanted["Authorization"] = f"Bearer {TOKEN}"
        self.faults += [f"{name}: {headers.get(name)}" for name, value in wanted.items() if headers.get(name) != value]

    def _carry_out(self, method: str, target: str, body: bytes) -> tuple[int, dict[str, str], str]:
        path, query = urlsplit(target).path, {key: int(one[0]) for key, one in parse_qs(urlsplit(target).query).items()}
        of_pull_request = f"/repos/{self.repository}/issues/{self.pull_request}/comments"
        one = re.fullmatch(rf"/repos/{re.escape(self.repository)}/issues/comments/(\d+)", path)
        if method == "GET" and path == of_pull_request:
            size, page = query.get("per_page", 30), query.get("page", 1)
            return 200, {}, json.dumps(self.comments[(page - 1) * size : page * size])
        if not self.may_write and (path == of_pull_request or one):
            return 403, {}, json.dumps({"message": "Resource not accessible by integration"})
        text = json.loads(body)["body"] if body else ""
        if len(text) > 65_536:
            return 422, {}, json.dumps({"message": "Validation Failed"})
        if method == "POST" and path == of_pull_request:
            return 201, {}, json.dumps(self.add(text, BOT))
        found = [comment for comment in self.comments if one and comment["id"] == int(one[1])]
        if method == "PATCH" and found:
            found[0]["body"] = text
            return 200, {}, json.dumps(found[0])
        return 404, {}, json.dumps({"message": "Not Found"})


@contextmanager
def serving(api: Api) -> Iterator[Api]:
    """`api` behind `api.url`, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, text = api.answer(self.command, self.path, self.headers, body)
            data = text.encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = respond

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
