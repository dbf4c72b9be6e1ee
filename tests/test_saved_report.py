"""Saved reports read back: the same bytes, or one clear line."""

from __future__ import annotations

import copy
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import advisor
from advisor.ingest.saved_report import LARGEST, is_saved_report, parse, read
from advisor.ingest.source import Source
from advisor.model import InputError, Options, Report
from advisor.report.json_document import render
from build import reports
from build.any_report import REPORTS

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"


def consistent(report: Report) -> Report:
    """A report as the engine makes them: its step is that of the run."""
    steps = report.run.get("steps")
    return replace(report, step_ns=steps["median_ns"] if steps else None, gates=None)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(REPORTS)
def test_round_trip_gives_the_same_bytes(report: Report) -> None:
    text = render(consistent(report))
    assert render(parse(text.encode())) == text


@pytest.mark.parametrize("name", ["starved_loader", "two_ranks", "healthy", "samples_only"])
def test_round_trip_of_examples(name: str) -> None:
    text = render(getattr(reports, name)())
    assert render(parse(text.encode())) == text


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(render(reports.starved_loader()))
    return found


def refused(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    with pytest.raises(InputError) as raised:
        parse(data)
    message = str(raised.value)
    assert "\n" not in message and message.isprintable() and len(message) < 300
    return message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "no report of schema"),
        (b"null", "no report of schema"),
        (b'{"schema": 1}', "no report of schema"),
        (b'{"schema": "advisor.report/2"}', "this program reads advisor.report/1"),
        (b'{"schema": "advisor.compare/1"}', "no report"),
        (b'{"schema": "advisor.report/1"}', "missing required field"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b'{"schema": "advisor.report/1", "run": NaN}', "not valid JSON"),
        (b'{"schema": "advisor.report/1", "run": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"schema": "advisor.report/1", "x": ' + b"9" * 100_000 + b"}", "digits"),
        (b'{"schema": "advisor.report/1", "advisor_version": "\xed\xa0\x80"}', "not valid JSON"),
    ],
)
def test_refusals(data: bytes, words: str) -> None:
    assert words in refused(data)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["run"], []),
        (["run", "steps", "median_ns"], -1),
        (["run", "steps", "median_ns"], 1.5),
        (["run", "steps", "median_ns"], "16"),
        (["run", "steps", "median_ns"], True),
        (["run", "steps", "median_ns"], 10**30),
        (["run", "steps", "source"], "guessed"),
        (["run", "ranks"], [-1]),
        (["breakdown", 0, "compute_ns"], None),
        (["findings", 0, "severity"], "terrible"),
        (["findings", 0, "saving", "low_ns"], None),
        (["findings", 0, "saving", "low_ns"], 2**61),
        (["findings", 0, "title"], None),
        (["findings", 0, "evidence", 0, "rows"], [[1]]),
        (["combined_saving", "low_frac"], "much"),
        (["combined_saving", "low_frac"], 0.99),
        (["rules", 0, "outcome"], "fine"),
        (["notices"], {}),
        (["kernels"], {"distinct": 1}),
        (["kernels"], 7),
        (["throughput"], {"items_per_step": -1}),
    ],
)
def test_wrong_values_are_named(path: list[Any], value: Any) -> None:
    wrong = document()
    place: Any = wrong
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert refused(wrong).startswith("not a valid report: ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_report_is_read_or_refused(data: Any) -> None:
    wrong = copy.deepcopy(document())
    place: Any = wrong
    for _ in range(data.draw(st.integers(1, 6))):
        keys = list(place) if isinstance(place, dict) else list(range(len(place))) if isinstance(place, list) else []
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], (dict, list)) and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = data.draw(JSON)
        break
    try:
        found = parse(json.dumps(wrong).encode())
    except InputError as error:
        assert "\n" not in str(error)
        return
    render(found)


def test_files(tmp_path: Path) -> None:
    text = render(reports.starved_loader())
    plain, packed, cut, huge = (tmp_path / name for name in ("a.json", "b.json.gz", "c.json.gz", "d.json.gz"))
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    cut.write_bytes(gzip.compress(text.encode())[:-200])
    huge.write_bytes(gzip.compress(b'{"schema": "advisor.report/1", "x": "' + b"y" * LARGEST))
    assert render(read(Source(plain))) == render(read(Source(packed))) == text
    assert is_saved_report(plain) and is_saved_report(packed)
    for path, words in ((cut, "cut short"), (huge, "larger than")):
        with pytest.raises(InputError, match=words):
            read(Source(path))
    assert not is_saved_report(SAMPLES / "healthy.torch.json.gz")
    assert not is_saved_report(tmp_path) and not is_saved_report(tmp_path / "none")


@pytest.mark.parametrize(
    "name", ["loader-starved.torch.json.gz", "loader-starved.smi.csv", "varying-lengths.memory-snapshot.pickle.gz"]
)
def test_what_recordings_give_is_read_back(name: str) -> None:
    """With everything that only recordings bring: samples of GPUs, figures for budgets, limits, prices."""
    run = advisor.load([SAMPLES / name], Options(gpu_hour_cost=2.5, items_per_step=64))
    text = render(advisor.analyze(run))
    assert '"cost"' in text and '"measured"' in text
    assert render(parse(text.encode())) == text
