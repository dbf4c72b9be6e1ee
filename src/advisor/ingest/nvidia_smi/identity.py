"""Which GPU a row belongs to: its index, else its UUID, else its PCI address, else the only one there is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.model import Notice

Codes = npt.NDArray[np.int32]
_NOT_SEPARABLE = (
    "the log holds several GPUs but no column that tells them apart: which row is whose is unknown; "
    "query the index as well (--query-gpu=timestamp,index,...)"
)


def resolve(
    keys: tuple[Codes, Codes, Codes], declared: list[tuple[int, int, int]], several: bool, notices: list[Notice]
) -> Codes:
    """Device number of each row, -1 where it cannot be known.

    `keys` are index, UUID and PCI address of each row, the latter two as codes of text. `declared` are such triples from lists
    of GPUs, beside the rows. `several`: the rows look like those of more than one GPU, as far as one can tell without a key.
    """
    index, uuid, bus = keys
    rows = np.stack([index, uuid, bus]).astype(np.int64) + 1
    sizes = [int(part.max(initial=0)) + 1 for part in rows]
    packed = (rows[0] * sizes[1] + rows[1]) * sizes[2] + rows[2]
    _, first, back = np.unique(packed, return_index=True, return_inverse=True)
    triples = [(int(index[i]), int(uuid[i]), int(bus[i])) for i in first.tolist()]

    numbers: dict[tuple[str, int], int] = {}
    in_order = declared + [triples[k] for k in np.argsort(first, kind="stable").tolist()]
    for number, *codes in in_order:
        if number >= 0:
            _learn(numbers, codes, number)
    taken = {number for number, _, _ in in_order if number >= 0}
    free = max(taken, default=-1) + 1
    guessed = False
    for number, *codes in in_order:
        if number < 0 and max(codes) >= 0 and _find(numbers, codes) < 0:
            guessed = True
            taken.add(free)
            _learn(numbers, codes, free)
            free += 1
    if guessed and free > 1:
        notices.append(Notice("gpu-index-unknown", "the log names GPUs without their index: they are numbered as they appear"))

    keyless = any(max(triple) < 0 for triple in triples)
    alone = -1
    if len(taken) <= 1 and not several:
        alone = min(taken, default=0)
    elif keyless:
        notices.append(Notice("gpus-not-separable", _NOT_SEPARABLE))
    devices = [n if n >= 0 else _find(numbers, [u, b]) if max(u, b) >= 0 else alone for n, u, b in triples]
    return np.array(devices, np.int32).reshape(-1)[back]


def _learn(numbers: dict[tuple[str, int], int], codes: list[int], number: int) -> None:
    for kind, code in zip(("uuid", "bus"), codes, strict=True):
        if code >= 0:
            numbers.setdefault((kind, code), number)


def _find(numbers: dict[tuple[str, int], int], codes: list[int]) -> int:
    for kind, code in zip(("uuid", "bus"), codes, strict=True):
        if (kind, code) in numbers:
            return numbers[kind, code]
    return -1
