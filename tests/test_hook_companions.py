"""Failures of what is kept beside the windows, in each of its methods."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import advisor.hook.attachment as attachment_module  # noqa: E402
from advisor.hook import Schedule, attach  # noqa: E402
from advisor.hook.companions import Companion  # noqa: E402

METHODS = ("begin", "end_step", "begin_step", "failed", "end", "about")


class Broken:
    """Fails in one method; the others do nothing."""

    name = "broken"

    def __init__(self, method: str) -> None:
        self.calls: list[str] = []
        self._method = method

    def __getattr__(self, name: str) -> Any:
        def called(*_: Any) -> None:
            self.calls.append(name)
            if name == self._method:
                raise RuntimeError(f"broken {name}")

        if name in METHODS:
            return called
        raise AttributeError(name)


def test_these_are_all_methods() -> None:
    assert {name for name in vars(Companion) if not name.startswith("_")} == set(METHODS)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("error", [None, ValueError("the program's")])
def test_training_goes_on(
    method: str, error: Exception | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("ADVISOR_DEBUG", raising=False)
    broken, healthy = Broken(method), Broken("none")
    monkeypatch.setattr(attachment_module, "companions", lambda *_: [broken, healthy])
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings: Any = {"schedule": Schedule(wait=5, warmup=1, active=2, evidence=0), "output": str(tmp_path), "analyze": False}
    steps = 0
    try:
        with caplog.at_level(logging.WARNING, "advisor"), attach(optimizer, **settings) as attached:
            for _ in range(20):
                model(torch.randn(2, 4)).mean().backward()
                optimizer.step()
                steps += 1
            if error is not None:
                raise error
    except ValueError as raised:
        assert raised is error
    assert steps == 20 and attached.folder is not None
    found = json.loads((attached.folder / "rank-0" / "manifest.json").read_text())
    off = method in ("begin", "end_step", "begin_step")
    assert found["finished"] is True and len(found["windows"]) == (0 if off else 1)
    assert [record.message for record in caplog.records] == (
        [f"advisor is off for the rest of this run, training goes on: RuntimeError in _step: broken {method}"] if off else []
    )
    assert healthy.calls.count("end") == broken.calls.count("end") == 1
    assert broken.calls.count(method) == 1 or method in ("about", "failed")
    assert ("failed" in healthy.calls) is (error is not None)
