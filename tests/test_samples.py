"""The sample recordings: readable, free of private data, listed in their README, and small."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from advisor.ingest import load

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"
FILES = sorted(path for path in SAMPLES.rglob("*") if path.is_file() and path.name != "README.md")
PRIVATE = [
    rb"/home/\w",
    rb"/root/",
    rb"/Users/\w",
    rb"[A-Z]:\\\\?Users",
    rb'"?(user|host)_?name"?\s*[:=]',
    rb"\bHOSTNAME\b",
    rb"GPU-[0-9a-f]{8}-",
]


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_private_data(path):
    data = content(path)
    for pattern in PRIVATE:
        found = re.search(pattern, data, re.IGNORECASE)
        assert found is None, data[max(0, found.start() - 40) : found.end() + 40]


def test_each_is_described():
    text = (SAMPLES / "README.md").read_text("utf-8")
    assert FILES
    for path in FILES:
        assert f"`{path.name}`" in text or f"`{path.parent.name}/`" in text, path.name


def test_they_stay_small():
    assert sum(path.stat().st_size for path in FILES) < 4_000_000


@pytest.mark.parametrize(
    ("name", "kernels", "devices"),
    [
        ("healthy.torch.json.gz", 2710, 1),
        ("host-sync.torch-stacks.json.gz", 1157, 1),
        ("loader-starved.torch.json.gz", 3172, 1),
        ("loader-starved.nsys.sqlite.gz", 1173, 1),
        ("metrics-to-host.torch-stacks.json.gz", 381, 1),
        ("tiny-kernels.torch-cuda-only.json.gz", 4544, 1),
        ("two-ranks-p2p-disabled", 3700 + 3701, 2),
    ],
)
def test_they_are_read(name, kernels, devices):
    run = load([SAMPLES / name])
    assert len(run.table("kernels")) == kernels
    assert len(set(zip(run.table("kernels")["rank"], run.table("kernels")["device"], strict=True))) == devices
    assert {device.name for device in run.devices} == {"NVIDIA H200"}


@pytest.mark.parametrize(("name", "rows"), [("loader-starved.smi.csv", 58), ("loader-starved.dmon.txt", 12)])
def test_logs_are_read(name, rows):
    run = load([SAMPLES / name])
    samples = run.table("device_samples")
    assert len(samples) == rows
    assert samples["utilization"].min() < 10  # the starved GPU idles
    assert 0 < samples["power"].max() < 701


def test_work_launched_before_the_recording_lost_nothing():
    assert load([SAMPLES / "healthy.torch.json.gz"]).notices == []


def test_the_memory_samples_are_read():
    run = load(sorted(SAMPLES.glob("varying-lengths.*")))
    assert len(run.table("allocator_events")) == 6000 and len(run.table("memory_segments")) == 102
    assert run.table("allocator_summaries")["retries"].tolist() == [2]
