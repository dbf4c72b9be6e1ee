"""From paths to a run, through the real readers."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from advisor.ingest import NothingRead, load, sniff
from advisor.model import InputError, Options, Trace
from build.recordings import as_bytes, kineto, write_kineto, write_smi, write_tar

MS = 1_000_000
SHARED = Path(__file__).resolve().parents[1] / "../shared"
# 2026-01-05 10:00:02 UTC, in microseconds, as a trace without a base time states it.
AT_US = 1_767_607_202_000_000


def test_ranks_and_a_log_become_one_run(tmp_path: Path) -> None:
    write_kineto(tmp_path / "x.json.gz", rank=1, device=1, at_us=AT_US + 2_000)
    write_kineto(tmp_path / "y.json.gz", rank=0, at_us=AT_US)
    write_smi(tmp_path / "smi.csv", begin="2026/01/05 11:00:0", rows=5)  # an hour east of UTC
    run = load([tmp_path])
    assert run.ranks == [0, 1] and run.world_size == 2 and run.fuller is None
    kernels = run.table("kernels")
    assert {(int(r), int(d)) for r, d in zip(kernels["rank"], kernels["device"], strict=True)} == {(0, 0), (1, 1)}
    first = [int(kernels["start"][kernels["rank"] == rank].min()) for rank in (0, 1)]
    assert first[1] - first[0] == 2 * MS
    assert run.table("device_samples")["time"].tolist() == [1000 * MS * i for i in range(-2, 3)]
    assert run.epoch_ns == AT_US * 1000
    assert [notice.code for notice in run.notices] == ["clock-zone-guessed"] and "UTC+1:00" in run.notices[0].message


def test_an_archive_and_its_unpacked_copy_are_the_same_run(tmp_path: Path) -> None:
    members = {f"r/rank{i}.json": as_bytes(kineto(rank=i)) for i in range(2)}
    packed = load([write_tar(tmp_path / "a.tgz", members, "w:gz")])
    for name, data in members.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    plain = load([tmp_path / "r"])
    assert packed.ranks == plain.ranks == [0, 1]
    for name in ("kernels", "host_ops", "runtime_calls", "ranges"):
        a, b = packed.frame(name), plain.frame(name)
        assert len(a) and a.equals(b)


def test_what_cannot_be_used_is_called_out_and_noted(tmp_path: Path) -> None:
    write_kineto(tmp_path / "t.json")
    (tmp_path / "w.txt").write_text("words")
    told: list[tuple[str, str]] = []
    run = load([tmp_path / "t.json", tmp_path / "w.txt"], problem=lambda path, reason: told.append((path, reason)))
    assert told == [(str(tmp_path / "w.txt"), "this is text of no known kind")]
    assert [(n.code, n.message) for n in run.notices] == [("input-unused", f"{tmp_path}/w.txt: this is text of no known kind")]
    with pytest.raises(NothingRead) as nothing:
        load([tmp_path / "w.txt", tmp_path / "absent"])
    assert len(nothing.value.problems) == 2 and "(and 1 more)" in str(nothing.value)


def test_the_rank_of_the_options(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_kineto(tmp_path / f"{rank}.json", rank=rank)
    assert load([tmp_path], Options(rank=1)).ranks == [1]
    with pytest.raises(InputError, match="no recording of rank 5"):
        load([tmp_path], Options(rank=5))


def test_a_failing_reader_takes_nothing_else_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import advisor.ingest.nvidia_smi as reader

    def fails(*_: object, **__: object) -> Trace:
        raise ZeroDivisionError("x")

    monkeypatch.setattr(reader, "read", fails)
    write_kineto(tmp_path / "t.json")
    write_smi(tmp_path / "smi.csv")
    run = load([tmp_path])
    (notice,) = run.notices
    assert notice.code == "input-unused" and "the nvidia_smi reader failed on it (ZeroDivisionError: x)" in notice.message


@pytest.fixture
def plug_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = ModuleType("vendor_reader")
    module.claims = lambda head: head.startswith(b"VENDOR")  # type: ignore[attr-defined]
    module.read = lambda source, processes=None: Trace(source.path, "vendor")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vendor_reader", module)
    entries = [
        importlib.metadata.EntryPoint(name, value, "advisor.readers")
        for name, value in (("vendor", "vendor_reader"), ("broken", "no_such_module_at_all"))
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries)
    sniff.plug_ins.cache_clear()
    yield
    sniff.plug_ins.cache_clear()


@pytest.mark.usefixtures("plug_ins")
def test_third_parties_register_readers(tmp_path: Path) -> None:
    (tmp_path / "v.bin").write_bytes(b"VENDOR file")
    run = load([tmp_path / "v.bin"])
    assert [trace.format for trace in run.traces] == ["vendor"]
    (notice,) = run.notices
    assert notice.code == "plug-in-broken" and "no_such_module_at_all" in notice.message


@pytest.mark.shared
def test_two_recordings_of_two_ranks() -> None:
    folder = SHARED / "corpus" / "ddp_healthy" / "before"
    if not folder.exists():
        pytest.skip("the shared recordings are not here")
    run = load([folder])
    assert run.ranks == [0, 1] and run.fuller is not None and run.fuller.ranks == [0, 1]
    assert not len(run.table("python_frames")) and len(run.fuller.table("python_frames"))
    assert not run.table("host_ops").has("shapes") and run.fuller.table("host_ops").has("shapes")
    assert len(run.table("device_samples")) == 26 + 6
    # The collectives of both ranks end together: their clocks are one.
    kernels = run.table("kernels")
    nccl = [code for code, name in enumerate(run.strings.values) if name.startswith("ncclDevKernel_AllReduce")]
    ends = [kernels["end"][(kernels["rank"] == rank) & [int(c) in nccl for c in kernels["name"]]] for rank in (0, 1)]
    assert min(abs(int(ends[0][-1]) - int(end)) for end in ends[1][-20:]) < 1 * MS
