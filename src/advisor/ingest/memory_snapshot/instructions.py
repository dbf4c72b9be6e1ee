"""The instructions of pickles that build plain data, and those that do not: sizes, names, values in text."""

from __future__ import annotations

import codecs
import re

from advisor.model import InputError

STACK = re.compile(rb"\](\x94|q.|r.{4})?\(((?:h.|j.{4})++)e", re.DOTALL)
REFERENCE = re.compile(rb"h(.)|j(.{4})", re.DOTALL)

# What would run code, and how it is called in the refusal.
CALLS = {
    0x52: "REDUCE", 0x62: "BUILD", 0x6F: "OBJ", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX",
    0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 0x97: "NEXT_BUFFER",
}  # fmt: skip

# Instruction -> its length; and -> the width of the length of its argument.
FIXED = {
    0x4D: 3, 0x47: 9, 0x71: 2, 0x72: 5, 0x29: 1, 0x85: 1, 0x86: 1, 0x87: 1, 0x74: 1, 0x6C: 1, 0x64: 1, 0x61: 1, 0x73: 1, 0x30: 1,
    0x31: 1, 0x80: 2,
}  # fmt: skip
LENGTHS = {0x58: 4, 0x8D: 8, 0x54: 4, 0x55: 1, 0x42: 4, 0x43: 1, 0x8E: 8, 0x8B: 4}
SIZES = [1] * 256
for _op, _size in (*FIXED.items(), (0x68, 2), (0x6A, 5), (0x4B, 2), (0x4A, 5), (0x8A, 2), (0x8C, 2), (0x95, 9)):
    SIZES[_op] = _size
for _op, _size in LENGTHS.items():
    SIZES[_op] = 1 + _size

_LONGEST_NUMBER = 100  # digits of a number in text


class Damaged(InputError):
    """The bytes are no pickle that was written whole."""


def natural(line: bytes) -> int:
    """A place in the memo. Damaged if it is none."""
    if len(line) > _LONGEST_NUMBER or not line.isdigit():
        raise Damaged("the pickle is damaged (a value that is none)")
    return int(line)


def text_value(op: int, line: bytes) -> object:
    """The value that an instruction of protocol 0 states in text. Damaged if it is none."""
    try:
        if op == 0x56:  # UNICODE
            return str(line, "raw-unicode-escape")
        if op == 0x53:  # STRING
            return codecs.escape_decode(line.strip()[1:-1])[0].decode("latin-1")
        if len(line) > _LONGEST_NUMBER:
            raise Damaged("the pickle is damaged (a number without end)")
        if op == 0x49:  # INT
            return {b"00": False, b"01": True}.get(line, int(line))
        return int(line.rstrip(b"L")) if op == 0x4C else float(line)  # LONG, FLOAT
    except ValueError as error:
        raise Damaged("the pickle is damaged (a value that is none)") from error
