"""Large collectives that move their data at a fraction of what the links between the GPUs carry."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.derive.bounds import two_sided
from advisor.derive.collectives import KINDS
from advisor.derive.gpus import device_of
from advisor.derive.nesting import mixed_key
from advisor.detectors.communication.link_rate import LinkRate, link_rate
from advisor.detectors.communication.transfers import Transfers, known_words, rates, spread, transfers, work_of
from advisor.detectors.words import size_text
from advisor.model import Evidence, Run
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable

# Each takes a path away from NCCL; NCCL_P2P_LEVEL and its kin are not among the variables that are recorded.
_SWITCHES = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE")
_SIZES = 12  # a model has few kinds of large messages; the rare ones need no replay edit of their own
ALL_RANKS = "record every rank, so that waiting for peers and transfer can be told apart"


def detect(ctx: Context) -> Draft | None:
    run, pace = ctx.run, two_sided(ctx.run)
    found = transfers(run, pace) if pace is not None else None
    if pace is None or found is None:
        raise NotApplicable("no collective was recorded in the steady steps", ctx.rule.capture)
    if not (found.bytes > 0).any():
        raise NotApplicable("the sizes of the collectives were not recorded", ctx.rule.capture)
    rate = rates(run, found)
    large = (found.bytes >= ctx.threshold("least_bytes")) & np.isfinite(rate)
    if not large.any():
        return None
    ranks = int(
        np.where(found.found.group_size[found.at] > 0, found.found.group_size[found.at], run.world_size or 2)[large].max()
    )
    link = link_rate(run, device_of(run, found.activity.gpu), ranks)
    reached = float(np.average(rate[large], weights=found.length[large]))
    if reached >= ctx.threshold("low_share") * link.bytes_per_s:
        return None
    _check_known(ctx, found, rate, large)
    aim = np.maximum(ctx.threshold("expected_share") * link.bytes_per_s, _best_alike(run, found))
    most = np.maximum(ctx.threshold("best_share") * link.bytes_per_s, aim)
    switches = [name for name in _SWITCHES if run.environment.get(name, "").strip() not in ("", "0")]
    return Draft(
        title=_title(reached, link, switches),
        confidence="medium" if found.complete[large].all() else "low",
        edits=_edits(run, found, rate, aim, most, large),
        change=Change(gpu_ns=_gain(found, rate, aim, large, found.held), limit_ns=_gain(found, rate, most, large, found.exposed)),
        facts={
            "bus_bandwidth_gb_per_s": round(reached / 1e9, 1),
            "link_gb_per_s": round(link.bytes_per_s / 1e9, 1),
            "link": link.what,
            "share_of_link_frac": round(reached / link.bytes_per_s, 4),
            "transfer_ns": found.per_step(found.length[large]),
            "exposed_ns": found.per_step(found.exposed[large]),
            "switches": " ".join(switches) or " ".join(_SWITCHES),
        },
        evidence=[_by_size(found, rate, large, link)],
        fixes=["unset-switches", "look-at-the-path", "container-memory"],
        caveats=_caveats(found, link, switches),
        subject=["bus bandwidth", link.what],
        scope={"ranks": [pace.rank] if pace.rank >= 0 else []},
    )  # fmt: skip


def _check_known(ctx: Context, found: Transfers, rate: npt.NDArray[np.float64], large: npt.NDArray[np.bool_]) -> None:
    """A low rate means something only where the length is that of the transfer, not of waiting."""
    alone = large & ~found.complete
    if not alone.any():
        return
    apart = spread(found, rate, alone)
    if not found.estimated[alone].all() or apart is None or apart > ctx.threshold("most_spread"):
        raise NotApplicable("large collectives take long, but may have waited for ranks that were not recorded", ALL_RANKS)


def _best_alike(run: Run, found: Transfers) -> npt.NDArray[np.float64]:
    """For each kernel: the best bus bandwidth that any recorded collective of its kind and size reaches, else 0."""
    everything = found.found
    rate = np.nan_to_num(everything.bus_bandwidth(run.world_size), nan=0.0)
    _, group = np.unique(mixed_key(everything.kind, everything.bytes), return_inverse=True)
    best = np.zeros(len(rate))
    np.maximum.at(best, group, rate)
    return best[group[found.at]]


def _gain(
    found: Transfers,
    rate: npt.NDArray[np.float64],
    aim: npt.NDArray[np.float64],
    large: npt.NDArray[np.bool_],
    beside_nothing: npt.NDArray[np.int64],
) -> int:
    """What a step gets shorter when the large transfers run at `aim`, ns.

    All transfers of a step follow each other, so what they all gain comes off the part that compute does not hide; of the
    collective that ends the step its own share stays.
    """
    shorter = np.where(large, np.clip(1 - rate / aim, 0, 1), 0.0)
    gained = int((found.length * shorter).sum()) // max(found.steps, 1)
    last = found.last_of_step()
    stays = int((beside_nothing * (1 - shorter))[last].sum()) // max(found.steps, 1)
    whole = found.covered_per_step(found.held_set if beside_nothing is found.held else found.exposed_set)
    return min(gained, max(whole - stays, 0))


def _edits(
    run: Run,
    found: Transfers,
    rate: npt.NDArray[np.float64],
    aim: npt.NDArray[np.float64],
    most: npt.NDArray[np.float64],
    large: npt.NDArray[np.bool_],
) -> list[Edit]:
    """On every rank, the large collectives run at the rate aimed at: by kind and size, the rare sizes together."""
    everything = found.found
    key = mixed_key(everything.kind, everything.bytes)
    sizes, index = np.unique(key[found.at][large], return_inverse=True)
    spent = np.bincount(index, weights=found.length[large])
    order = sizes[np.argsort(-spent, kind="stable")]
    edits = []
    for alike in [*order[:_SIZES, None], order[_SIZES:]]:
        mine = large & np.isin(key[found.at], alike)
        if not mine.any():
            continue
        weight = found.length[mine]
        expected, best = (float(np.average(np.minimum(rate[mine] / to[mine], 1.0), weights=weight)) for to in (aim, most))
        factors = [found.left(mine, part) for part in (expected, expected, best)]
        edits.append(Edit(work=work_of(run, everything.kernel[np.isin(key, alike)]), gpu=Factor(*factors)))
    return edits


def _title(reached: float, link: LinkRate, switches: list[str]) -> str:
    share, most = reached / link.bytes_per_s, size_text(link.bytes_per_s)
    text = f"large collectives move {size_text(reached)}/s, {share:.0%} of the {most}/s that {link.what} carries"
    return f"{text}; {', '.join(switches)} is set" if switches else text


def _caveats(found: Transfers, link: LinkRate, switches: list[str]) -> list[str]:
    words = known_words(found)
    if not link.stated:
        words.append(
            f"Judged against the {link.what} links of the data sheet. Where the ranks are in different machines, or without "
            "those links, that network is the measure; the output of nvidia-smi topo -m tells."
        )
    if switches:
        words.append(f"The environment of the recording has {', '.join(switches)} set.")
    return words


def _by_size(found: Transfers, rate: npt.NDArray[np.float64], large: npt.NDArray[np.bool_], link: LinkRate) -> Evidence:
    rows: list[list[Any]] = []
    pairs, index = np.unique(np.stack([found.kind.astype(np.int64), found.bytes]), axis=1, return_inverse=True)
    index = index.reshape(-1)
    spent = np.bincount(index[large], weights=found.length[large], minlength=pairs.shape[1])
    for i in np.argsort(-spent, kind="stable")[:8]:
        mine = large & (index == i)
        if not mine.any():
            continue
        median = float(np.median(rate[mine]))
        kind, size = (int(value) for value in pairs[:, i])
        rows.append(
            [KINDS[kind], size, round(int(mine.sum()) / found.steps, 1), int(np.median(found.length[mine])),
             round(median / 1e9, 1), round(median / link.bytes_per_s, 4)]
        )  # fmt: skip
    return Evidence(
        "Large collectives by kind and size, per step",
        ["collective", "message_bytes", "calls", "median_transfer_ns", "bus_gb_per_s", "of_link_frac"],
        rows,
    )
