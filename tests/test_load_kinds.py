"""Kinds are told by content; what is no input of ours is named."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest

from advisor.ingest.foreign import as_text, describe_unknown, is_json, recognise
from advisor.ingest.sniff import identify, is_tar, read
from advisor.ingest.source import Source, UnknownKind
from build.recordings import as_bytes, kineto


def refusal(tmp_path: Path, data: bytes, name: str = "file.json") -> str:
    """What is said of a file with that content; its name must not matter."""
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(UnknownKind) as error:
        identify(Source(path))
    text = str(error.value)
    assert text.startswith("this is ") and "\n" not in text
    return text


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "empty"),
        (bytes(1000), "nothing but zero bytes"),
        (b" \n\n", "blank"),
        (b"PK\x03\x04" + bytes(40), "zip archive"),
        (b"\x28\xb5\x2f\xfd" + bytes(40), "zstd"),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), "picture"),
        (b"NVR\0" + bytes(40), "Nsight Compute report"),
        (b"\x7fELF" + bytes(40), "program"),
        (bytes([24, 0, 0, 0, 0, 0, 0, 0, 163, 127, 75, 34, 9, 0, 0, 0]) + b"\x1a\rbrain.Event:2", "TensorBoard event file"),
        (b"\n\x80\x02\x12\x0e/host:metadata" + bytes(40), "XLA profile"),
        (b"^\x12\x10\n\x06schema\xea\x01\x051.0.1\x12\x09\n\x03pidh" + bytes(30), "Chakra execution trace"),
        (b"\x01\x02\x03" + bytes(range(256)), "unknown binary kind"),
        (b'{"schema": "1.0.2", "pid": 1, "nodes": [{"id": 1, "name": "x"}]}', "execution trace"),
        (b'{"workload_graph": [{"Id": 1}]}', "Chakra execution trace"),
        (b'{"rocprofiler-sdk-tool": [{"metadata": {}}]}', "rocprof"),
        (b"[[-1, 1, 512, 7], [3, 1, 512, 7]]", "memory timeline"),
        (b'{"(0, 1)": {"step": {"x": {"0": {"Communication Time Info": {"Wait Time(ms)": 1.0}}}}}}', "Ascend"),
        (b'[\n{"name": "t", "ph": "M"},\n{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 1, "pid": 1},\n', "Horovod timeline"),
        (b'{"$schema": "https://www.speedscope.app/file-format-schema.json"}', "speedscope"),
        (b'{"hostname": "h", "gpus": [{"index": 0, "utilization.gpu": 3}]}', "gpustat"),
        (b'{"train_loss": [1, 2, 3]}', "JSON without trace"),
        (b"ID,Name\n1,x\n", "text of no known kind"),
        (b"2026-01-05 10:00:00 INFO epoch 1 loss 0.3\n" * 9, "text of no known kind"),
        (b'==PROF== Connected to process 1\n"ID","Process ID"\n', "Nsight Compute output"),
        (b"  Section: GPU Speed Of Light Throughput\n", "Nsight Compute output"),
        (b'==123== NVPROF is profiling process 123\n"Type","Time(%)","Time"\n', "nvprof summary"),
        (b"Time(%),Time,Calls,Avg,Min,Max,Name\n47.79%,5ms,1,5ms,5ms,5ms,k\n", "nvprof summary"),
        (b'<?xml version="1.0"?>\n<session version="2">\n<timelineoptions start="-1"/>\n', "nvprof session"),
        (b"#Entity   GPUTL   POWER\nID                W\nGPU 0     75      185\n", "DCGM log"),
        (b'# TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL{gpu="0"} 80\n', "DCGM log"),
        (b"GPUId,TimeStampUs,Field,Values\n0,1718783836956328,power_usage,71.2\n", "DCGM log"),
        (b"host:1:2 [0] NCCL INFO cudaDriverVersion 12020\n", "NCCL log"),
        (b"# nThread 1 nGpus 2 minBytes 8\n#  size count\n", "nccl-tests"),
        (b"host  Mon Jan  5 10:00:00 2026\n[0] Tesla T4 | 45'C,  99 % |  1000 / 15000 MB | u(900M)\n", "gpustat"),
        (b"timestamp,project_name,run_id,duration\n2026-01-05,a,b,1\n", "CodeCarbon"),
        (b"Step Id,Task ID,Name,Accelerator Core,aicore_time(us)\n0,1,MatMul,AI_CORE,3\n", "Ascend"),
        (b"Name    Self CPU %      Self CPU   CPU total %\naten::mm  10%  1ms 2%\n", "printed table"),
        (b" ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n Time (%)  Total\n", "printed statistics of Nsight Systems"),
        (b"<!DOCTYPE html><html><body></body></html>", "web page"),
    ],
)
def test_other_kinds_are_named(tmp_path: Path, data: bytes, what: str) -> None:
    assert what in refusal(tmp_path, data)
    if data:
        assert what in refusal(tmp_path, gzip.compress(data), "zipped.bin")


class Explosive:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("import pathlib; pathlib.Path('exploded').touch()",))


def test_pickles_are_refused_without_being_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    snapshot = {"segments": [], "device_traces": [[]], "payload": Explosive()}
    for value in (snapshot, [Explosive()]):
        (tmp_path / "file.json").write_bytes(pickle.dumps(value))
        with pytest.raises(UnknownKind, match=r"asks for builtins\.exec, which could run code"):
            read(Source(tmp_path / "file.json"))
    assert not (tmp_path / "exploded").exists()


def test_archive_in_archive_and_double_compression(tmp_path: Path) -> None:
    import io
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("x"))
    assert is_tar(out.getvalue()) and not is_tar(bytes(1024)) and not is_tar(b"{" * 1024)
    assert "archive inside an archive" in refusal(tmp_path, out.getvalue())
    assert "compressed twice" in refusal(tmp_path, gzip.compress(gzip.compress(b"{}")))


def test_trace_is_known_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(b"\n" + as_bytes(kineto()))
    assert identify(Source(path)).__name__ == "advisor.ingest.torch_trace"
    path.write_bytes(as_bytes(kineto(), compress=True))
    assert identify(Source(path)).__name__ == "advisor.ingest.torch_trace"


def test_trace_behind_very_long_metadata_is_known(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    groups = {"user": {f"group{i}": list(range(300)) for i in range(80)}}
    data = json.dumps({**groups, "traceEvents": kineto()["traceEvents"]}).encode()
    assert data.index(b"traceEvents") > 1 << 16
    path.write_bytes(data)
    assert identify(Source(path)).__name__ == "advisor.ingest.torch_trace"


def test_text_and_json() -> None:
    assert as_text("Zeit: 3 µs".encode("utf-16")) == "Zeit: 3 µs"
    assert as_text(b"\xef\xbb\xbfa") == "a"
    assert as_text(b"log\n" + bytes(2000) + b"more\n" * 20) is not None  # several writers on one file leave NULs
    assert as_text(bytes(range(32)) * 10) is None
    assert is_json('\n {"a": 1}') and is_json("[1, 2]") and is_json("[]") and is_json('[{"ph": "X"}') and is_json("{}")
    assert not is_json("[INFO] start") and not is_json("{name} is") and not is_json("[0] Tesla T4 |")
    assert recognise(b"plain words") is None and describe_unknown(b"plain words") == "text of no known kind"


def test_recognition_takes_no_time_on_hostile_text() -> None:
    import time

    begin = time.process_time()
    for part in (b'"ph"', b"[0] a|", b"[ [", b"<html", b"Time(%)", b"==1== ", b'"schema":', b"# ", b"  "):
        recognise(part * (65536 // len(part)))
        recognise(b"{" + part * (65536 // len(part)))
    assert time.process_time() - begin < 3
