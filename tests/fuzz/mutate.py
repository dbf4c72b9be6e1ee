"""Damage done to recordings: bytes, gzip streams, numbers and tokens of JSON and csv text, cells and tables of SQLite."""

from __future__ import annotations

import gzip
import re
import sqlite3
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

GZIP = b"\x1f\x8b"
SQLITE = b"SQLite format 3\0"

NUMBERS = [
    *("0", "-1", "1", "-0.0", "1e400", "-1e400", "1e-320", "NaN", "Infinity", "-Infinity", "null", "true", "false", "{}", "[]"),
    *('""', '"7"', "0x10", "1.2.3", "00012", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "3.5", "-5"),
    *("18446744073709551616", "4294967295", "2147483648", "123456789012345678901234567890", "1e18", "1e308", "0.0000000001"),
]
TOKENS = [
    *(
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\n",
        b"\r\n",
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\\u0000",
        b"\\ud800",
    ),
    *(b"/*", b"//", b"'", b"%", b"[N/A]", b"N/A", b"-", b" MiB", b"ERR!", b"#", b"|", b"\t", b"\x1b[4m", b"<gpu>", b"&x;"),
    *(
        b'"ph": "X"',
        b'"traceEvents": [',
        b'"args": {}',
        b'"cat": "kernel"',
        b'"dur": -3',
        b'"ts": "x"',
        b'"pid": null',
        b'"name": 5',
    ),
]
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_SCAN = 1 << 20  # how much text is looked at for a number


def mutate(data: bytes, random: Random) -> bytes:
    """One to four damages, chosen by the kind of content. Depends on nothing but the arguments."""
    for _ in range(random.choice((1, 1, 2, 4))):
        if data.startswith(SQLITE) and random.random() < 0.7:
            data = _sqlite(data, random)
        elif data.startswith(GZIP) and random.random() < 0.7:
            data = _inside_gzip(data, random)
        elif data:
            kinds = BYTES if b"\0" in data[:1024] else [*BYTES, *TEXT, *TEXT]
            data = random.choice(kinds)(data, random)
    return data


def _place(data: bytes, random: Random) -> int:
    """Positions near the ends come as often as all others: heads and tails decide what a file is."""
    where = random.random()
    if where < 0.25:
        return random.randrange(min(len(data), 4096))
    if where < 0.5:
        return len(data) - 1 - random.randrange(min(len(data), 4096))
    return random.randrange(len(data))


def _piece(data: bytes, random: Random) -> tuple[int, int]:
    start = _place(data, random)
    return start, min(len(data), start + 1 + int(random.paretovariate(0.5)))


def _flip(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 3, 40))):
        changed[_place(data, random)] ^= 1 << random.randrange(8)
    return bytes(changed)


def _overwrite(data: bytes, random: Random) -> bytes:
    start, end = _piece(data, random)
    end = min(end, start + 4096)
    filler = random.choice((b"\0", b"\xff", b" ", b"0", b"9", b'"', random.randbytes(1)))
    return data[:start] + filler * (end - start) + data[end:]


def _truncate(data: bytes, random: Random) -> bytes:
    return data[: _place(data, random)]


def _cut_head(data: bytes, random: Random) -> bytes:
    return data[_place(data, random) :]


def _delete(data: bytes, random: Random) -> bytes:
    start, end = _piece(data, random)
    return data[:start] + data[end:]


def _duplicate(data: bytes, random: Random) -> bytes:
    start, end = _piece(data, random)
    return data[:end] + data[start:end] * random.choice((1, 1, 20)) + data[end:]


def _splice(data: bytes, random: Random) -> bytes:
    start, end = _piece(data, random)
    target = _place(data, random)
    return data[:target] + data[start:end] + data[target:]


def _whole_again(data: bytes, random: Random) -> bytes:
    return data + data[: _place(data, random)]


def _insert_token(data: bytes, random: Random) -> bytes:
    for _ in range(random.choice((1, 1, 5))):
        place = _place(data, random)
        data = data[:place] + random.choice(TOKENS) + data[place:]
    return data


def _numbers(data: bytes, random: Random) -> bytes:
    for _ in range(random.choice((1, 3, 30))):
        start = _place(data, random)
        found = _NUMBER.search(data, start, start + _SCAN)
        if found:
            data = data[: found.start()] + random.choice(NUMBERS).encode() + data[found.end() :]
    return data


def _same_number_everywhere(data: bytes, random: Random) -> bytes:
    """All values of one key become the same: equal times, equal ids, negative durations."""
    keys = re.findall(rb'"[A-Za-z ]{1,24}": ?-?\d', data[:_SCAN])
    if not keys:
        return _numbers(data, random)
    key = random.choice(sorted({key[: key.index(b":")] for key in keys}))
    value = random.choice(NUMBERS).encode()
    return re.sub(re.escape(key) + rb": ?-?[\d.]+", key + b": " + value, data)


def _drop_key(data: bytes, random: Random) -> bytes:
    keys = sorted(set(re.findall(rb'"[A-Za-z ]{1,24}":', data[:_SCAN])))
    return data.replace(random.choice(keys), b'"zz":') if keys else _delete(data, random)


def _shuffle_lines(data: bytes, random: Random) -> bytes:
    lines = data.split(b"\n")
    start = random.randrange(len(lines))
    part = lines[start : start + 200]
    random.shuffle(part)
    return b"\n".join(lines[:start] + part + lines[start + 200 :])


def _nest(data: bytes, random: Random) -> bytes:
    place, opening = _place(data, random), random.choice((b"[", b'{"a":', b"("))
    return data[:place] + opening * random.choice((50, 100_000)) + data[place:]


def _recode(data: bytes, random: Random) -> bytes:
    return data[:200_000].decode("latin-1").encode(random.choice(("utf-16-le", "utf-16", "utf-8-sig", "utf-32")))


def _inside_gzip(data: bytes, random: Random) -> bytes:
    try:
        inner = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return _flip(data, random)
    packed = gzip.compress(mutate(inner, random), 1)
    tail = random.choice((b"", b"", b"\0" * 20, b"garbage", packed[: len(packed) // 2], gzip.compress(b"[]")))
    return packed + tail


def _sqlite(data: bytes, random: Random) -> bytes:
    """Changes made by SQL, so that the file stays a database; falls back to bytes where SQLite gives up."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.sqlite"
        path.write_bytes(data)
        database = sqlite3.connect(path)
        try:
            _change(database, random)
            database.commit()
        except (sqlite3.Error, OverflowError, UnicodeError):
            return _flip(data, random)
        finally:
            database.close()
        return path.read_bytes()


def _change(database: sqlite3.Connection, random: Random) -> None:
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    tables = [name for name in tables if not name.startswith("ENUM_")] or tables
    table = random.choice(tables)
    columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
    column = random.choice(columns)
    rows = f"WHERE rowid % {random.choice((1, 2, 7))} = 0"
    value = random.choice(
        (
            None,
            "",
            "text",
            b"\0\xff",
            0,
            -1,
            2**63 - 1,
            -(2**63),
            2**40,
            1.5,
            float("inf"),
            1e300,
            "12",
            "x" * 5000,
            "\0",
            4294967295,
        )
    )
    act = random.randrange(9)
    if act == 0:
        database.execute(f'DROP TABLE "{table}"')
    elif act == 1:
        database.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    elif act == 2:
        database.execute(f'ALTER TABLE "{table}" RENAME TO "{table}{random.choice(("_V2", "x", "_v3"))}"')
    elif act == 3:
        database.execute(f'DELETE FROM "{table}" {rows}')
    elif act == 4:
        database.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}"')
    elif act == 5:  # the schema without NOT NULL, then the value
        database.execute(f'CREATE TABLE zz AS SELECT * FROM "{table}"')
        database.execute(f'DROP TABLE "{table}"')
        database.execute(f'ALTER TABLE zz RENAME TO "{table}"')
        database.execute(f'UPDATE "{table}" SET "{column}" = ? {rows}', (value,))
    elif act == 6 and len(columns) > 1:
        other = random.choice(columns)
        database.execute(f'UPDATE "{table}" SET "{column}" = "{other}" {rows}')
    elif act == 7:
        database.execute(f'CREATE VIEW zz AS SELECT * FROM "{table}"')
        database.execute(f'ALTER TABLE "{table}" ADD COLUMN "{random.choice(("end2", "zz", "text2"))}"')
    else:
        database.execute(f'UPDATE "{table}" SET "{column}" = ? {rows}', (value,))


Damage = Callable[[bytes, Random], bytes]
BYTES: list[Damage] = [_flip, _overwrite, _truncate, _truncate, _cut_head, _delete, _duplicate, _splice, _whole_again]
TEXT: list[Damage] = [_insert_token, _numbers, _numbers, _same_number_everywhere, _drop_key, _shuffle_lines, _nest, _recode]
