"""A real browser: Chromium, headless. Without one these tests are skipped, unless ADVISOR_REQUIRE_BROWSER is set."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.model import Report
from advisor.report import render

CHROMIUM = os.environ.get("ADVISOR_CHROMIUM") or next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    lacking = None
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        lacking = "the package playwright (pip install '.[test]')"
    if CHROMIUM is None:
        lacking = "chromium on the PATH (ADVISOR_CHROMIUM names another place)"
    if lacking:
        (pytest.fail if os.environ.get("ADVISOR_REQUIRE_BROWSER") else pytest.skip)(f"needs {lacking}")
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield opened
        opened.close()


class Watched:
    """A page opened from disk, and everything on it that must not happen."""

    def __init__(self, page: Any, file: Path) -> None:
        self.page, self.file = page, file
        self.bad: list[str] = []
        page.on("console", lambda message: self.bad.append(f"console: {message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.bad.append(f"error: {error}"))
        page.on("dialog", self._dialog)
        page.on("request", self._request)
        page.on("popup", lambda _: self.bad.append("a window was opened"))
        page.add_init_script(
            "document.addEventListener('securitypolicyviolation', e => console.error('policy: ' + e.violatedDirective))"
        )

    def _dialog(self, dialog: Any) -> None:
        self.bad.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Any) -> None:
        if request.url != self.file.as_uri() and not request.url.startswith("data:"):
            self.bad.append(f"request: {request.url[:200]}")


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """opened(report, **options of the browser's context) -> the page. Fails afterwards if the page did what none may do."""
    contexts, watched = [], []

    def open_page(report: Report | str, width: int = 1360, height: int = 900, **options: Any) -> Any:
        file = tmp_path / f"report{len(watched)}.html"
        file.write_text(report if isinstance(report, str) else render(report, "html"), "utf-8")
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        context.set_default_timeout(20_000)
        contexts.append(context)
        watched.append(Watched(context.new_page(), file))
        page = watched[-1].page
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [bad for one in watched for bad in one.bad] == []
