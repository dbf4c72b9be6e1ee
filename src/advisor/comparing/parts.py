"""What got slower or faster: the parts of the step, and its kernels."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from advisor.comparing.recordings import GPU_VARIES, HOST_VARIES, Repeats
from advisor.comparing.statistics import t_quantile
from advisor.model import Breakdown
from advisor.model.comparison import CategoryChange, KernelChange, KernelChanges

LEAST_SHARE = 0.01  # of the base step: smaller changes of a part are not told
LEAST_KERNEL_SHARE = 0.005  # of all kernel time of the base step
LISTED = 20

_BUSY: dict[str, Callable[[Breakdown], int]] = {
    "compute": lambda part: part.compute_ns,
    "communication": lambda part: max(part.exposed_communication_ns - part.exposed_communication_wait_ns, 0),
    "communication_wait": lambda part: part.exposed_communication_wait_ns,
    "copy": lambda part: part.exposed_copy_ns,
}


def categories(base: Repeats, head: Repeats) -> list[CategoryChange]:
    """Every part that takes time on a side, in the order of the report. Empty if a side has no breakdown."""
    before, after = base.breakdowns(), head.breakdowns()
    if not before or not after:
        return []
    causes = dict.fromkeys(cause for each in (*before, *after) for part in each for cause in part.idle_by_cause)
    parts: list[tuple[str, Literal["busy", "idle"], Callable[[Breakdown], int]]] = [
        *((name, "busy", amount) for name, amount in _BUSY.items()),
        *((cause, "idle", lambda part, cause=cause: part.idle_by_cause.get(cause, 0)) for cause in causes),
    ]
    step = float(np.mean([_mean(each, lambda part: part.step_ns) for each in before]))
    found = []
    for name, group, amount in parts:
        first, second = ([_mean(each, amount) for each in side] for side in (before, after))
        one, other = float(np.mean(first)), float(np.mean(second))
        least = max(LEAST_SHARE * step, _tolerance(first, second, GPU_VARIES if name == "compute" else HOST_VARIES))
        if one or other:
            found.append(CategoryChange(name, group, round(one), round(other), abs(other - one) > least))
    return found


def _mean(parts: list[Breakdown], amount: Callable[[Breakdown], int]) -> float:
    return sum(amount(part) for part in parts) / len(parts)


def _tolerance(first: list[float], second: list[float], varies: float) -> float:
    """What the mean of a part may differ by: from the spread of repeats, else from what runs differ by."""
    normal = t_quantile(math.inf)
    if len(first) > 1 and len(second) > 1:
        freedom = len(first) + len(second) - 2
        return t_quantile(freedom) * math.sqrt(sum(np.var(one, ddof=1) / len(one) for one in (first, second)))
    return normal * math.sqrt(2) * varies * max(*first, *second)


def kernels(base: Repeats, head: Repeats) -> KernelChanges | None:
    """Kernels of the repeats in the middle. None if a report has no kernels listed."""
    before, after = (side.middle.report.extra.get("kernels") for side in (base, head))
    if not before or not after:
        return None
    matched = _matched(before, after)
    least = LEAST_KERNEL_SHARE * before["total_ns"]
    told = [_judged(one, least, before, after) for one in matched]
    real = [one for one in told if one.changed and one.known]
    both = [one for one in real if one.base_ns is not None and one.head_ns is not None]
    kinds = _pairs(before["kinds"], after["kinds"], "kind", "class")
    return KernelChanges(
        kernels=sorted((one for one in told if one.changed), key=_largest)[:LISTED],
        classes=sorted((_judged(one, least) for one in kinds), key=_largest),
        new=sum(one.base_ns is None and one.known for one in told),
        gone=sum(one.head_ns is None and one.known for one in told),
        slower=sum(one.change_ns > 0 for one in both),
        faster=sum(one.change_ns < 0 for one in both),
    )


def _largest(one: KernelChange) -> tuple[int, str]:
    return -abs(one.change_ns), one.name


def _pairs(
    before: Iterable[dict[str, Any]], after: Iterable[dict[str, Any]], key: str, matched: Literal["exact", "normalised", "class"]
) -> list[KernelChange]:
    """Entries of both lists by the same key; one side None where there is no counterpart."""
    first, second = ({one[key]: one for one in side} for side in (before, after))
    return [
        KernelChange(
            name,
            (first.get(name) or second[name])["kind"],
            first[name]["ns"] if name in first else None,
            second[name]["ns"] if name in second else None,
            first[name]["calls"] if name in first else None,
            second[name]["calls"] if name in second else None,
            matched,
        )
        for name in dict.fromkeys([*first, *second])
    ]


def _matched(before: dict[str, Any], after: dict[str, Any]) -> list[KernelChange]:
    """By name; what is left over by name without template arguments, hashes and numbers."""
    exact = _pairs(before["listed"], after["listed"], "name", "exact")
    both = [one for one in exact if one.base_ns is not None and one.head_ns is not None]
    left = [_grouped(one for one in exact if (one.base_ns is None) is missing and one not in both) for missing in (False, True)]
    return both + _pairs(left[0], left[1], "name", "normalised")


def _grouped(found: Iterable[KernelChange]) -> list[dict[str, Any]]:
    """Kernels of one side, those of the same normalised name as one."""
    groups: dict[str, dict[str, Any]] = {}
    for one in found:
        name = normalised(one.name)
        group = groups.setdefault(name, {"name": name, "kind": one.kind, "ns": 0, "calls": 0.0})
        group["ns"] += one.base_ns if one.base_ns is not None else one.head_ns
        group["calls"] = round(group["calls"] + (one.base_calls if one.base_calls is not None else one.head_calls or 0.0), 3)
    return list(groups.values())


def _judged(one: KernelChange, least: float, before: Any = None, after: Any = None) -> KernelChange:
    """Whether it changed beyond noise, and whether a missing one is known not to have run."""
    # A collective waits for its peers while it runs: it varies as the hosts do.
    varies = HOST_VARIES if one.kind == "communication" else GPU_VARIES
    noise = t_quantile(math.inf) * math.sqrt(2) * varies * max(one.base_ns or 0, one.head_ns or 0)
    cut = 0
    if before is not None:
        cut = before["least_ns"] if one.base_ns is None else after["least_ns"] if one.head_ns is None else 0
    known = max(one.base_ns or 0, one.head_ns or 0) >= cut
    changed = abs(one.change_ns) > max(least, noise)
    return KernelChange(one.name, one.kind, one.base_ns, one.head_ns, one.base_calls, one.head_calls, one.matched, changed, known)


_HASH = re.compile(r"(?<![a-zA-Z0-9])(?=[0-9a-f]*\d)[0-9a-f]{6,}(?![a-zA-Z0-9])")
_NUMBER = re.compile(r"\d+")


def normalised(name: str) -> str:
    """A kernel's name without what changes from build to build: template arguments, parameters, hashes, numbers.

    >>> normalised("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int, float)")
    'at::native::vectorized_elementwise_kernel'
    >>> normalised("triton_poi_fused_add_mul_12"), normalised("triton_poi_fused_add_mul_3d")
    ('triton_poi_fused_add_mul', 'triton_poi_fused_add_mul')
    >>> normalised("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT")
    'nvjet_tst_#x#_#x#_#x#_v_bz_coopA_NNT'
    """
    text = name.strip().removeprefix("void ").replace("(anonymous namespace)", "{anonymous}")
    kept, depth = [], 0
    for character in text:
        if character == "<":
            depth += 1
        elif character == ">" and depth:
            depth -= 1
        elif character == "(" and not depth:
            break
        elif not depth:
            kept.append(character)
    text = re.sub(r"_\d+(d|de)?$", "", "".join(kept).strip()) if text.startswith("triton_") else "".join(kept).strip()
    text = _NUMBER.sub("#", _HASH.sub("#", text))
    return text.replace("{anonymous}", "(anonymous namespace)") or name[:80]
