"""Which texts are taken for a trace, and what is said of those that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.ingest import torch_trace
from advisor.ingest.source import Source
from advisor.model import InputError
from build.kineto import LAYOUTS, TIMES, training

HOROVOD = b"""[
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad"}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 1, "pid": 1},
"""
OTHERS = {
    "PyTorch execution trace": b'{\n  "schema": "1.0.1", "pid": 5, "nodes": [ {"name": "aten::mm", "id": 2} ] }',
    "rocprof": b'{"rocprofiler-sdk-tool": [{"metadata": {}, "buffer_records": {}}]}',
    "Chakra": b'{\n "workload_graph": [ {"Id": 216, "Name": "aten::mm"} ] }',
    "Ascend": b'{"(0, 1)": {"step": {"hcom_broadcast__501_0@62": {"0": {"Communication Time Info": {"Elapse Time(ms)": 1.5}}}}}}',
    "Horovod": HOROVOD,
    "list of lists": b"[[-1, 1, 37888, 7], [-1, 1, 512, 7]]",
    "without trace events": b'{"aten::_softmax": {"trace1": {"kernels": ["f"]}}}',
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("times", TIMES)
def test_traces_are_claimed_in_every_layout(layout: str, times: str) -> None:
    text = training(1).text(layout, times)
    assert torch_trace.claims(text)
    assert torch_trace.refusal(text) is None


def test_metadata_longer_than_the_first_bytes() -> None:
    job = {"rank": 0, "pg_config": [{"ranks": list(range(300))}] * 100}
    assert torch_trace.claims(training(1, distributedInfo=job).text()[: 1 << 16])


@pytest.mark.parametrize("what", OTHERS)
def test_other_kinds_are_named(tmp_path: Path, what: str) -> None:
    text = OTHERS[what]
    assert not torch_trace.claims(text)
    reason = torch_trace.refusal(text)
    assert reason is not None and what.lower() in reason.lower() and "\n" not in reason
    file = tmp_path / "x.json"
    file.write_bytes(text)
    with pytest.raises(InputError, match=what):
        torch_trace.read(Source(file))


@pytest.mark.parametrize(
    "text", [b"", b"\n\n", b"SQLite format 3\0", b"timestamp, index\n", b"[0] NCCL INFO x", b"\x80\x04", b"[]", b"7"]
)
def test_no_json_is_nobodys_business_here(text: bytes) -> None:
    assert not torch_trace.claims(text)
    assert torch_trace.refusal(text) is None


def test_a_chrome_trace_of_another_tool(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "ipc", "name": "Blergh", "pid": 1, "tid": 1, "ts": 5, "dur": 3},
        {"ph": "C", "name": "c", "pid": 1, "ts": 3},
    ]
    file = tmp_path / "x.json"
    file.write_text(json.dumps({"traceEvents": events}))
    with pytest.raises(InputError, match="without GPU or host events"):
        torch_trace.read(Source(file))
