"""Copies from or to pageable host memory: slow, and the host waits for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.attribution import locations
from advisor.derive.calls import CallKind, links
from advisor.derive.gpus import COPY, gpu_work, work_by_row
from advisor.derive.intervals import subtract, union
from advisor.derive.nesting import thread_keys
from advisor.derive.steady import Steady, steadies, steady
from advisor.detectors.words import size_text, time_text
from advisor.model import CopyKind, Device, Evidence, Location, MemoryKind, Run
from advisor.model.device_table import spec_of
from advisor.replay.changes import GONE, Edit
from advisor.rules.contract import Change, Context, Draft, NotApplicable

_DIRECTIONS = {
    CopyKind.HOST_TO_DEVICE: ("source", "from pageable memory to the GPU", ["pin-memory", "prefetch", "transformers"]),
    CopyKind.DEVICE_TO_HOST: ("target", "from the GPU to pageable memory", ["pinned-target"]),
}


@dataclass(frozen=True)
class Copies:
    """The pageable copies of one direction in ordinary steps: rows of `copies`, positions of their calls in `Steady.side`,
    and per step: bytes, time on the GPU, what of it no kernel covered, ns."""

    rows: npt.NDArray[np.int64]
    side: npt.NDArray[np.int64]
    bytes: int
    time_ns: int
    exposed_ns: int


def detect(ctx: Context) -> list[Draft]:
    copies = ctx.run.table("copies")
    judged = steady(ctx.run)
    if judged is None:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    over_link = copies.take(np.isin(copies["kind"], [int(kind) for kind in _DIRECTIONS]))
    if len(over_link) and not (over_link.has("source") or over_link.has("target")):
        raise NotApplicable("the input does not tell pinned from pageable memory")
    drafts = (_judge(ctx, judged, kind) for kind in _DIRECTIONS)
    return [draft for draft in drafts if draft is not None]


def _judge(ctx: Context, judged: Steady, kind: CopyKind) -> Draft | None:
    found = _found(ctx.run, judged, kind)
    if found is None or found.exposed_ns < ctx.threshold("exposed_share") * judged.step.step_ns:
        return None
    rate = found.bytes / max(found.time_ns, 1)
    reachable = _pinned_rate(ctx.run, ctx.device, ctx.threshold("pinned_share"))
    least = round(found.bytes / reachable) if reachable else 0
    _, words, fixes = _DIRECTIONS[kind]
    draft = Draft(
        title=f"{size_text(found.bytes)} {judged.per} copied {words} at {rate:.1f} GB/s, "
        f"{time_text(found.exposed_ns)} of it while no kernel runs",
        confidence="low" if judged.unmarked else "high",
        edits=_edits(ctx.run, judged, found, least, kind),
        change=_change(judged, found, least, kind),
        fixes=fixes,
        subject=[kind.name],
        facts={
            "bytes_per_step": found.bytes,
            "copy_ns": found.time_ns,
            "exposed_ns": found.exposed_ns,
            "rate_gb_per_s": round(rate, 2),
            "pinned_gb_per_s": round(reachable, 1) if reachable else None,
            "pinned_copy_ns": least if reachable else None,
        },
        evidence=[_evidence(ctx.run, judged, found)],
        locations=_places(ctx.run, judged, found),
        scope={"ranks": [judged.step.rank]} if judged.step.rank >= 0 else {},
    )
    if reachable and least > max(judged.step.gpu_ns - found.exposed_ns, judged.step.host_ns):
        draft.caveats.append(
            f"Even from pinned memory {size_text(found.bytes)} take {time_text(least)} at {reachable:.0f} GB/s: "
            "send less, or in a smaller type."
        )
    return draft


def _found(run: Run, judged: Steady, kind: CopyKind) -> Copies | None:
    copies, work, side = run.table("copies"), gpu_work(run), judged.side
    column = _DIRECTIONS[kind][0]
    last = links(run).last_work[side.call]
    rows = np.where((last >= 0) & (work.source[np.maximum(last, 0)] == COPY), work.row[np.maximum(last, 0)], -1)
    pageable = (copies["kind"] == int(kind)) & (copies[column] == int(MemoryKind.PAGEABLE))
    calls = np.flatnonzero((judged.at >= 0) & (rows >= 0) & pageable[np.maximum(rows, 0)])
    if not len(calls):
        return None
    rows = rows[calls]
    n = max(judged.count, 1)
    when = union(copies["start"][rows], copies["end"][rows])
    alone = subtract(when, judged.activity.compute)
    return Copies(
        rows=rows,
        side=calls,
        bytes=int(np.maximum(copies["bytes"][rows], 0).sum()) // n,
        time_ns=int((when[1] - when[0]).sum()) // n,
        exposed_ns=int((alone[1] - alone[0]).sum()) // n,
    )


def _change(judged: Steady, found: Copies, least_ns: int, kind: CopyKind) -> Change:
    """The copy leaves the compute stream and the host stops waiting for it; the link still needs its time.

    Input of a later step can be fetched ahead, so all of it can run beside kernels; what is read back, or needed at once, stays
    in its place and is only faster.
    """
    step, side, n = judged.step, judged.side, max(judged.count, 1)
    ahead = kind == CopyKind.HOST_TO_DEVICE and not judged.unmarked
    gone = found.exposed_ns if ahead else max(found.exposed_ns - least_ns, 0)
    calls = _with_syncs(judged, found)
    host = int(side.deflated_own[calls].sum()) // n
    if judged.unmarked:
        wait = 0
    else:
        wait = step.wait_ns if step.gpu_bound else judged.turns(int(side.wait[calls].sum()))
    # While the host waited for the copy it issued nothing: the queue behind it starts from empty.
    most = gone + wait + host
    return Change(host_ns=host, gpu_ns=gone, wait_ns=min(wait, most), limit_ns=min(most, max(step.step_ns - least_ns, 0)))


def _edits(run: Run, judged: Steady, found: Copies, least_ns: int, kind: CopyKind) -> list[Edit]:
    """Input fetched ahead runs beside the compute stream and nobody waits for it. Where the link itself would then set the
    pace, or the copy must stay in its place, the bound says more than a replay."""
    link_bound = least_ns > max(judged.step.gpu_ns - found.exposed_ns, judged.step.host_ns)
    if kind != CopyKind.HOST_TO_DEVICE or judged.unmarked or link_bound:
        return []
    copies = np.zeros(len(gpu_work(run)), bool)
    calls = np.zeros(len(run.table("runtime_calls")), bool)
    place = work_by_row(gpu_work(run), COPY, len(run.table("copies")))
    for one in steadies(run):
        same = _found(run, one, kind)
        if same is not None:
            copies[place[same.rows]] = True
            calls[one.side.call[_with_syncs(one, same)]] = True
    return [Edit(work=copies, aside=True), Edit(calls=calls, own=GONE, waits=False)]


def _with_syncs(judged: Steady, found: Copies) -> npt.NDArray[np.int64]:
    """Positions of the copies' calls and of the stream synchronisations that follow them at once."""
    side = judged.side
    after = np.minimum(found.side + 1, len(side) - 1)
    return np.concatenate([found.side, np.unique(after[(side.kind[after] == CallKind.SYNC_STREAM) & (judged.at[after] >= 0)])])


def _pinned_rate(run: Run, device: Device | None, share: float) -> float | None:
    """Bytes/ns that copies from pinned memory reach: the best large one of this recording, else by the device's host link."""
    copies = run.table("copies")
    pinned = (copies["source"] == int(MemoryKind.PINNED)) | (copies["target"] == int(MemoryKind.PINNED))
    large = pinned & (copies["bytes"] >= 8_000_000) & (copies["end"] > copies["start"])
    seen = float((copies["bytes"][large] / (copies["end"] - copies["start"])[large]).max()) if large.any() else 0.0
    spec = spec_of(device) if device else None
    stated = spec.host_bandwidth * share / 1e9 if spec else 0.0
    return max(seen, stated) or None


def _evidence(run: Run, judged: Steady, found: Copies) -> Evidence:
    copies, n = run.table("copies"), max(judged.count, 1)
    sizes, group = np.unique(copies["bytes"][found.rows], return_inverse=True)
    time = np.bincount(group, weights=(copies["end"] - copies["start"])[found.rows])
    held = np.bincount(group, weights=(judged.side.end - judged.side.start)[found.side])
    count = np.bincount(group)
    order = np.argsort(-time, kind="stable")[:8]
    rows = [
        [
            int(sizes[i]),
            round(count[i] / n, 2),
            int(time[i]) // n,
            int(held[i]) // n,
            round(float(sizes[i] * count[i] / max(time[i], 1)), 2),
        ]
        for i in order
    ]
    columns = ["size_bytes", "copies_per_step", "gpu_time_ns", "call_time_ns", "gb_per_s"]
    return Evidence("Copies with pageable memory, per steady step", columns, rows)


def _places(run: Run, judged: Steady, found: Copies) -> list[Location]:
    calls = run.table("runtime_calls")
    rows = judged.side.call[found.side]
    return locations(
        run, thread_keys(calls)[rows], calls["start"][rows], np.maximum(run.table("copies")["bytes"][found.rows], 1).astype(float)
    )
