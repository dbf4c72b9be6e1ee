"""The text of one cell -> a number in the schema's unit. What nvidia-smi writes for "no value" is NaN, never 0."""

from __future__ import annotations

import re

NAN = float("nan")

_NUMBER = re.compile(r"([-+]?)(\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE]([-+]?\d{1,2}))?\s*(\S*)")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_MEMORY: dict[str, float] = {"": 1 << 20, "b": 1, "byte": 1, "bytes": 1}
for _power, _letter in enumerate("kmgt", 1):
    # nvidia-smi counts in 1024s where it writes MB, too (dmon, drivers before 2013)
    _MEMORY |= dict.fromkeys((f"{_letter}ib", f"{_letter}b", _letter), 1 << 10 * _power)

_SCALES: dict[str, dict[str, float]] = {
    "%": {"": 1, "%": 1, "percent": 1, "bool": 100},
    "bytes": _MEMORY,
    "W": {"": 1, "w": 1, "watt": 1, "watts": 1, "mw": 1e-3, "kw": 1e3},
    "C": {"": 1, "c": 1, "°c": 1, "celsius": 1, "degc": 1},
    "MHz": {"": 1, "mhz": 1, "ghz": 1e3, "khz": 1e-3, "hz": 1e-6},
    "bytes/s": {"": 1e6, "b/s": 1, "kb/s": 1e3, "mb/s": 1e6, "gb/s": 1e9, "kib/s": 1024, "mib/s": 1 << 20, "gib/s": 1 << 30},
    "errors": {"": 1, "errs": 1},
    "count": {"": 1, "#": 1},
    "lanes": {"": 1, "x": 1},
    "generation": {"": 1},
    "index": {"": 1},
}
# Larger numbers are damage; device indices stay small enough to be counted, everything else inside its column's dtype.
_LARGEST = {"%": 1e6, "lanes": 65, "generation": 16, "count": 2**31, "index": 4096}
UNITS = {unit for scale in _SCALES.values() for unit in scale if unit}

_ON, _OFF = {"active", "yes", "true", "1"}, {"not active", "no", "false", "0", "inactive"}
_MASK_BITS = (1 << 52) - 1  # exact in a float64; NVML uses the lowest nine
_STATE = re.compile(r"[Pp]?(\d{1,2})")


def number(text: str, kind: str, unit: str = "") -> float:
    """The value of `text` in the unit `kind`; a unit in the text itself goes before `unit`, which the header states.

    NaN for every text that is no plain number of that kind, and for a negative one other than a temperature.
    """
    text = text.strip()
    if kind == "state":
        state = _STATE.fullmatch(text)
        return float(state[1]) if state and int(state[1]) < 32 else NAN
    if kind == "mask":
        return mask(text)
    if kind == "flag":
        lowered = text.lower()
        return 1.0 if lowered in _ON else 0.0 if lowered in _OFF else NAN
    scales, most = _SCALES[kind], _LARGEST.get(kind, 2.0**52)
    digits, _, suffix = text.partition(" ")
    scale = scales.get((suffix or unit).lower())
    if scale is not None and digits.isascii() and digits.replace(".", "", 1).isdecimal():  # as nearly every cell is
        value = float(digits) * scale
        return value if value < most else NAN
    if kind == "lanes":
        text = text.lower().strip("x")
    if _THOUSANDS.match(text):
        text = text.replace(",", "")
    part = _NUMBER.fullmatch(text)
    if part is None:
        return NAN
    scale = scales.get(part[4].lower() or unit.lower())
    if scale is None or (part[1] == "-" and kind != "C"):
        return NAN
    value = float(part[1] + part[2].replace(",", ".")) * 10.0 ** int(part[3] or 0) * scale
    return value if abs(value) < most else NAN


def mask(text: str) -> float:
    """A bit mask as nvidia-smi prints it (0x0000000000000004), or as a plain number."""
    try:
        value = int(text, 16) if text[:2].lower() == "0x" else int(text) if text.isascii() and text.isdigit() else -1
    except ValueError:
        return NAN
    return float(value & _MASK_BITS) if 0 <= value < 1 << 64 else NAN


_NO_TEXT = re.compile(r"\[.*|n/?a|err!?|-*|unknown( error)?|none|not supported|insufficient permissions|gpu is lost.*", re.I)


def name(text: str) -> str | None:
    """A text cell, None where it states no value."""
    text = " ".join(text.split())
    return None if _NO_TEXT.fullmatch(text) or len(text) > 200 else text


_BUS = re.compile(r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-9A-Fa-f])")


def bus_id(text: str) -> str | None:
    """A PCI address in one writing: 00000000:01:00.0."""
    part = _BUS.fullmatch(text.strip())
    return None if part is None else f"{(part[1] or '').zfill(8)}:{part[2]}:{part[3]}.{part[4]}".upper()


_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{8,80}")


def uuid(text: str) -> str | None:
    text = text.strip()
    return text if _UUID.fullmatch(text) else None


_ARGUMENT = re.compile(r"-.*|.*[/\\=@:].*|.*\.py")


def command(text: str) -> str | None:
    """The name of a program from its path or command line, without folders and arguments, which may be private."""
    text = text.strip().strip('"')
    if re.match(r"[A-Za-z]:\\|\\\\", text) or ("\\" in text and "/" not in text):
        last = text.rsplit("\\", 1)
        words, folder = last[-1].split(), last[0].rsplit("\\", 1)[-1]
    else:
        words = text.split()
        path = words[0].split("/") if words else [""]
        words[:1] = [path[-1]] if path[-1] else []
        folder = path[-2] if len(path) > 1 else ""
    if folder.lower() in ("home", "users"):  # a path cut after the user's name
        return None
    kept = words[:1]
    for word in words[1:]:
        if _ARGUMENT.fullmatch(word):
            break
        kept.append(word)
    return name(" ".join(kept)) if kept else None
