"""`advisor info`: the document, the text, the messages and the exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from advisor.derive.inventory import devices, gpu_totals, table_counts
from advisor.ingest import join
from advisor.model import Device
from build.recordings import as_bytes, kineto, program_trace, write_kineto, write_smi, write_tar

SCHEMA = json.loads(resources.files("advisor.report").joinpath("schemas/info-1.json").read_text())
SHARED = Path(__file__).resolve().parents[1] / "../shared"


def advisor(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The program as a user runs it."""
    return subprocess.run(
        [sys.executable, "-m", "advisor", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def info(*paths: str | Path, status: int = 0) -> tuple[dict[str, Any], list[str]]:
    """The document, checked against its schema, and the lines on standard error."""
    done = advisor("info", *paths, "--format", "json")
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout) if done.stdout else {}
    if document:
        jsonschema.validate(document, SCHEMA)
    return document, done.stderr.splitlines()


def test_a_trace(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "t.json.gz", rank=1, steps=2, kernels=3, device=1)
    document, errors = info(path)
    assert errors == [] and document["notices"] == []
    (entry,) = document["files"]
    assert (entry["path"], entry["format"], entry["rank"], entry["ranks"]) == (str(path), "torch-trace", 1, [1])
    assert entry["tables"] == {
        "kernels": 6,
        "copies": 0,
        "runtime_calls": 6,
        "host_ops": 6,
        "python_frames": 0,
        "ranges": 2,
        "memory_events": 0,
        "device_samples": 0,
        "collectives": 0,
        "steps": 2,
    }
    assert entry["steps"] == {"count": 2, "source": "profiler-step"}
    assert [(d["index"], d["name"], d["compute_capability"]) for d in entry["devices"]] == [(1, "NVIDIA H200", "9.0")]
    (gpu,) = entry["gpu"]
    assert gpu["device"] == 1 and gpu["last_ns"] - gpu["first_ns"] == 15_000_000
    assert (gpu["kernel_sum_ns"], gpu["kernel_busy_ns"], gpu["busy_ns"]) == (6_000_000,) * 3


def test_a_log(tmp_path: Path) -> None:
    document, _ = info(write_smi(tmp_path / "smi.csv", rows=5))
    (entry,) = document["files"]
    assert entry["format"] == "nvidia-smi-csv" and entry["tables"]["device_samples"] == 5
    assert (
        entry["rank"] is None and entry["ranks"] == [] and entry["gpu"] == [] and entry["steps"] == {"count": 0, "source": "none"}
    )
    assert [d["name"] for d in entry["devices"]] == ["NVIDIA H200"]


def test_a_folder_skips_other_files_with_a_notice(tmp_path: Path) -> None:
    write_kineto(tmp_path / "in" / "a b" / "rank0.json", rank=0)
    write_smi(tmp_path / "in" / "smi.csv")
    (tmp_path / "in" / "notes.txt").write_text("words\n")
    (tmp_path / "in" / "loss.json").write_text('{"loss": [1]}')
    (tmp_path / "in" / "._rank0.json").write_text("apple")
    document, errors = info(tmp_path / "in")
    assert errors == []
    assert [entry["format"] for entry in document["files"]] == ["nvidia-smi-csv", "torch-trace"]
    (notice,) = document["notices"]
    assert notice["code"] == "files-skipped" and "2 files" in notice["message"] and "loss.json, notes.txt" in notice["message"]


def test_the_file_is_named_as_everywhere(tmp_path: Path) -> None:
    trace = write_kineto(tmp_path / "rank0.json", rank=0)
    done = advisor("info", trace, "-o", tmp_path / "info.txt")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "torch-trace" in (tmp_path / "info.txt").read_text()


def test_an_archive_gives_one_entry_a_member(tmp_path: Path) -> None:
    members = {f"run/rank{i}.json": as_bytes(kineto(rank=i), compress=i == 1) for i in (1, 0)}
    archive = write_tar(tmp_path / "ranks.tar.gz", {**members, "run/README": b"words", "run/._rank0.json": b"x"}, "w:gz")
    document, errors = info(archive)
    assert errors == []
    assert [(entry["path"], entry["rank"]) for entry in document["files"]] == [
        (f"{archive}::run/rank0.json", 0),
        (f"{archive}::run/rank1.json", 1),
    ]
    assert [notice["code"] for notice in document["notices"]] == ["files-skipped"]


def test_one_line_for_each_file_that_cannot_be_used(tmp_path: Path) -> None:
    good = write_kineto(tmp_path / "good.json")
    bad = tmp_path / "bad\nname.json"
    bad.write_text('{"loss": 1}')
    (tmp_path / "empty").write_bytes(b"")
    document, errors = info(bad, good, tmp_path / "empty", tmp_path / "absent.json", "none*.csv")
    assert [entry["path"] for entry in document["files"]] == [str(good)]
    assert len(errors) == 4 and all(line.startswith("error: ") for line in errors)
    assert any("bad name.json: this is JSON without trace" in line for line in errors)
    assert any("empty: this is empty" in line for line in errors)
    assert any("absent.json: no such file" in line for line in errors)
    assert any("none*.csv: no file matches" in line for line in errors)


def test_status_2_and_one_line_where_nothing_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"schema": "1.0", "nodes": []}')
    (tmp_path / "b.txt").write_text("words")
    os.mkfifo(tmp_path / "fifo")
    for path in (
        tmp_path / "a.json",
        tmp_path,
        tmp_path / "fifo",
        tmp_path / "absent",
        write_tar(tmp_path / "t.tar", {"x": b"words"}),
    ):
        document, errors = info(path, status=2)
        assert document == {} and len(errors) == 1 and str(path) in errors[0]


def test_names_that_are_no_text_and_paths_with_dots(tmp_path: Path) -> None:
    trace = kineto()
    trace["deviceProperties"][0]["name"] = "GPU \ud800"
    odd = os.fsencode(tmp_path) + b"/./\xff.json"
    Path(os.fsdecode(odd)).write_bytes(as_bytes(trace))
    (tmp_path / "w.txt").write_text("w")
    for form in ("json", "text"):
        for variables in ({}, {"PYTHONIOENCODING": "ascii"}):
            done = advisor("info", os.fsdecode(odd), f"{tmp_path}/./w.txt", "--format", form, **variables)
            assert done.returncode == 0 and "kernels" in done.stdout
            assert done.stderr == f"error: {tmp_path}/w.txt: this is text of no known kind\n"


def test_a_broken_trace_inside_a_folder_is_told(tmp_path: Path) -> None:
    write_kineto(tmp_path / "rank0.json")
    (tmp_path / "rank1.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    document, errors = info(tmp_path)
    assert len(document["files"]) == 1 and len(errors) == 1 and "rank1.json: " in errors[0]


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    write_kineto(tmp_path / "rank0.json", rank=0)
    write_kineto(tmp_path / "rank1.json", rank=1)
    assert len({advisor("info", tmp_path, "--format", "json", PYTHONHASHSEED=seed).stdout for seed in ("1", "2")}) == 1


def test_text(tmp_path: Path) -> None:
    trace = kineto(rank=0)
    trace["deviceProperties"][0]["name"] = "NVIDIA\x1b[31m H200"
    (tmp_path / "t.json").write_bytes(as_bytes(trace))
    (tmp_path / "words").write_text("w")
    done = advisor("info", tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == str(tmp_path / "t.json")
    assert lines[1] == "  torch-trace (kineto schema 1), rank 0, 2 steps (profiler-step)"
    assert lines[2] == "  6 kernels, 6 runtime calls, 6 host ops, 2 ranges"
    assert "busy 6.00 ms (40.0 %) of 15.0 ms" in lines[3] and "\x1b" not in done.stdout
    assert "1 file of other kinds skipped: words" in " ".join(lines[4:])


def test_output_file_and_its_errors(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "t.json")
    assert advisor("info", path, "--format", "json", "--output", tmp_path / "o.json").stdout == ""
    jsonschema.validate(json.loads((tmp_path / "o.json").read_text()), SCHEMA)
    done = advisor("info", path, "--output", tmp_path / "no" / "o.json")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "t.json")
    command = f"{sys.executable} -m advisor info {path} --format json | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stdout == "{" and done.stderr == ""


def test_one_device_of_two_processes_is_two_entries() -> None:
    trace = program_trace(kernels=4)
    trace.tables["kernels"] = trace.tables["kernels"].replace(process=[7, 9, 7, 9])
    run = join([trace])
    assert [(w.device, w.process, w.kernel_sum) for w in gpu_totals(run)] == [(0, 7, 2_000_000), (0, 9, 2_000_000)]
    assert [w.process for w in gpu_totals(join([program_trace()]))] == [None]


def test_counts_of_overlapping_work_and_collectives() -> None:
    trace = program_trace(kernels=4, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)")
    kernels = trace.tables["kernels"]
    trace.tables["kernels"] = kernels.replace(start=kernels["start"] * 0, end=kernels["start"] * 0 + 10)
    (work,) = gpu_totals(join([trace]))
    assert (work.kernel_sum, work.kernel_busy, work.busy) == (40, 10, 10)
    assert table_counts(join([trace]))["collectives"] == 4


def test_used_devices_are_listed_even_if_the_file_does_not_list_them() -> None:
    assert devices(join([program_trace(device=2, devices=[Device(0, "A")])])) == [Device(0, "A"), Device(2)]


@pytest.mark.shared
@pytest.mark.parametrize("name", ["traces", "corpus"])
def test_recordings_hold_what_was_measured(name: str, tmp_path: Path) -> None:
    root = SHARED / name
    if not (root / "facts.json").exists():
        pytest.skip("the shared recordings are not here")
    facts = json.loads((root / "facts.json").read_text())
    chosen = {key: fact for i, (key, fact) in enumerate(facts.items()) if i % 9 == 0 and fact["format"] != "cuda-memory-snapshot"}
    (tmp_path / "facts.json").write_text(json.dumps(chosen))
    script = [sys.executable, SHARED / "score" / "check_facts.py", tmp_path / "facts.json", root]
    done = subprocess.run(
        [*map(str, script), "--advisor", f"{sys.executable} -m advisor", "--jobs", "2"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
