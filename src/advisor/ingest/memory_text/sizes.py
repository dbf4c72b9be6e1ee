"""Sizes as PyTorch prints them: '1.70 GiB', '0 bytes', '478869 KiB'; KB and MB of old releases are powers of two as well."""

from __future__ import annotations

SIZE = r"\d[\d.]{0,20} ?(?:bytes|[KMGT]i?B|B)"
_UNITS = {"bytes": 0, "B": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def size(text: str | None) -> int:
    """Bytes; -1 for what is no size."""
    if not text:
        return -1
    number = text.rstrip("bytesKMGTiB ").strip()
    unit = text[len(number) :].strip()
    try:
        value = float(number) * (1 << _UNITS.get(unit, _UNITS.get(unit[:1], 0)))
    except ValueError:
        return -1
    return round(value) if 0 <= value < 1 << 62 else -1
