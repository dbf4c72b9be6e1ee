"""The generated recordings are what they claim to be: both formats hold the same loop, the seed decides every byte."""

from __future__ import annotations

import gzip
import json
import sqlite3
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def generate():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import generate

        yield generate
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_trace_has_kinetos_layout(generate, tmp_path):
    path = tmp_path / "trace.json"
    written = generate.write_trace(path, 0.5, layers=2, stacks=True, shapes=True)
    assert written == path.stat().st_size >= 500_000
    document = json.loads(path.read_bytes())
    events = document["traceEvents"]
    kinds = Counter(event.get("cat") for event in events)
    assert {"cpu_op", "kernel", "cuda_runtime", "cuda_driver", "gpu_memcpy", "gpu_memset", "user_annotation"} <= set(kinds)
    assert kinds["python_function"] and kinds["fwdbwd"] and kinds["ac2g"]
    launches = {event["args"]["correlation"]: event for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")}
    for event in events:
        if event.get("cat") == "kernel":
            assert event["ts"] > launches[event["args"]["correlation"]]["ts"]
    steps = [event for event in events if event["name"].startswith("ProfilerStep#")]
    assert len(steps) >= 2
    assert all(later["ts"] >= earlier["ts"] + earlier["dur"] for earlier, later in pairwise(steps))
    assert all("Input Dims" in event["args"] for event in events if event.get("cat") == "cpu_op")


def test_kernels_of_a_stream_do_not_overlap(generate, tmp_path):
    path = tmp_path / "export.sqlite"
    generate.write_export(path, 2_000, layers=3)
    with sqlite3.connect(path) as database:
        kernels = database.execute('SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start').fetchall()
    assert all(later[0] >= earlier[1] for earlier, later in pairwise(kernels))


def test_both_formats_hold_the_same_loop(generate, tmp_path):
    trace, export = tmp_path / "trace.json", tmp_path / "export.sqlite"
    generate.write_trace(trace, 0, layers=3, seed=5)  # the least: two steps
    generate.write_export(export, 0, layers=3, seed=5)
    events = json.loads(trace.read_bytes())["traceEvents"]
    durations = [round(event["dur"] * 1000) for event in events if event.get("cat") == "kernel"]
    with sqlite3.connect(export) as database:
        rows = database.execute(
            'SELECT k."end" - k.start, r.start FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r'
            " USING (correlationId) JOIN StringIds s ON s.id = k.demangledName ORDER BY k.start"
        ).fetchall()
        steps = database.execute("SELECT COUNT(*) FROM NVTX_EVENTS WHERE text GLOB 'step *'").fetchone()[0]
    assert [row[0] for row in rows] == durations
    assert steps == sum(event["name"].startswith("ProfilerStep#") for event in events) == 2


def test_the_seed_decides_every_byte(generate, tmp_path):
    files = [tmp_path / f"{number}.json.gz" for number in range(3)]
    for path, seed in zip(files, (1, 1, 2), strict=True):
        generate.write_trace(path, 0, layers=1, seed=seed)
    texts = [gzip.decompress(path.read_bytes()) for path in files]
    assert texts[0] == texts[1] != texts[2]


def test_smi_log(generate, tmp_path):
    path = tmp_path / "smi.csv"
    assert generate.write_smi(path, 0.01, gpus=3) == 36 * 3
    lines = path.read_text().splitlines()
    assert len(lines) == 1 + 36 * 3
    assert {line.count(", ") for line in lines} == {11}
