"""The reader of SQLite pages against SQLite itself, on files of every shape, whole and damaged."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.ingest.nsys.database import NULL, Database
from advisor.ingest.nsys.ddl import layout
from advisor.model import InputError, Strings

_INTEGERS = st.one_of(st.integers(-3, 3), st.sampled_from([2**k + d for k in (7, 15, 23, 31, 47, 62) for d in (-1, 0)]))
_VALUES = st.one_of(
    st.none(),
    _INTEGERS,
    _INTEGERS.map(lambda number: -number),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    # SQLite itself replaces the first two in UTF-16.
    st.text(st.characters(codec="utf-8", exclude_characters="\ufffe\uffff\ufeff"), max_size=80),
    st.binary(max_size=70),
)


def create(path: Path, columns: list[str], rows: list[list[object]], *, page_size: int = 4096, encoding: str = "UTF-8") -> Path:
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA page_size = {page_size}")
    connection.execute(f"PRAGMA encoding = '{encoding}'")
    with connection:
        connection.execute(f"CREATE TABLE t ({', '.join(columns)})")
        connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(columns))})", rows)
    connection.close()
    return path


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.lists(_VALUES, min_size=4, max_size=4), max_size=40),
    repeats=st.sampled_from([1, 1, 30]),
    page_size=st.sampled_from([512, 1024, 4096, 65536]),
    encoding=st.sampled_from(["UTF-8", "UTF-8", "UTF-16le", "UTF-16be"]),
)
def test_columns_are_what_sqlite_says(
    tmp_path: Path, rows: list[list[object]], repeats: int, page_size: int, encoding: str
) -> None:
    # No declared types: SQLite stores each value as it is given.
    path = create(tmp_path / "t.sqlite", list("abcd"), rows * repeats, page_size=page_size, encoding=encoding)
    database, strings = Database(path), Strings()
    whole = database.read("t", dict.fromkeys("abcd", "int64"))
    real = database.read("t", dict.fromkeys("abcd", "real"))
    text = database.read("t", dict.fromkeys("abcd", "text"), strings)
    assert not database.damaged
    for place, name in enumerate("abcd"):
        expected = [row[place] for row in rows] * repeats
        assert whole[name].tolist() == [v if isinstance(v, int) else NULL for v in expected]
        np.testing.assert_array_equal(real[name], [_number(v) for v in expected])
        texts = [strings[code] if code >= 0 else None for code in text[name].tolist()]
        assert texts == [v if isinstance(v, str) else None for v in expected]
    assert database.has_rows("t") == bool(rows)
    database.close()


def _number(value: object) -> float:
    if isinstance(value, int):
        return float(value) if value != NULL else np.nan
    return value if isinstance(value, float) else np.nan


def test_long_rows_spill_into_overflow_pages_and_columns_behind_them_are_found(tmp_path: Path) -> None:
    rows: list[list[object]] = [[i, "x" * size, -i] for i, size in enumerate([0, 10, 400, 500, 4_000, 60_000, 300_000] * 3)]
    database, strings = Database(create(tmp_path / "t.sqlite", ["a", "b", "c"], rows, page_size=512)), Strings()
    found = database.read("t", {"a": "int64", "b": "text", "c": "int64"}, strings)
    assert found["a"].tolist() == [row[0] for row in rows]
    assert found["c"].tolist() == [row[2] for row in rows]
    assert [len(strings[code]) for code in found["b"].tolist()] == [min(len(str(row[1])), 1 << 16) for row in rows]
    assert not database.damaged


def test_a_table_of_many_pages_keeps_the_order_of_its_row_ids(tmp_path: Path) -> None:
    path = create(tmp_path / "t.sqlite", ["id INTEGER PRIMARY KEY", "b INTEGER"], [], page_size=512)
    connection = sqlite3.connect(path)
    ids = random.Random(1).sample(range(-(2**40), 2**40), 20_000)
    with connection:
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(i, i * 3) for i in ids])
        connection.execute("DELETE FROM t WHERE id % 5 = 0")
    connection.close()
    database = Database(path)
    found = database.read("t", {"b": "int64", "id": "int64"})
    kept = np.array(sorted(i for i in ids if i % 5))
    np.testing.assert_array_equal(found["id"], kept)
    np.testing.assert_array_equal(found["b"], kept * 3)
    wanted = kept[::1000]
    assert database.texts("t", "id", "b", wanted) == {}  # numbers are no text
    assert not database.damaged


def test_columns_added_later_are_missing_in_older_rows(tmp_path: Path) -> None:
    path = create(tmp_path / "t.sqlite", ["a INTEGER"], [[1], [2]])
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("ALTER TABLE t ADD COLUMN name TEXT")
        connection.execute("INSERT INTO t VALUES (3, 'new')")
    connection.close()
    strings = Strings()
    found = Database(path).read("t", {"a": "int32", "name": "text", "gone": "int32"}, strings)
    assert found["a"].tolist() == [1, 2, 3]
    assert [strings[code] for code in found["name"].tolist()] == ["", "", "new"]
    assert found["gone"].tolist() == [-1, -1, -1]


def test_narrow_kinds_turn_what_does_not_fit_into_missing(tmp_path: Path) -> None:
    rows: list[list[object]] = [[1], [-(2**31)], [2**31], [None], ["7"], [2.5]]
    database = Database(create(tmp_path / "t.sqlite", ["a"], rows))
    assert database.read("t", {"a": "int32"})["a"].tolist() == [1, -(2**31), -1, -1, -1, -1]
    assert database.read("t", {"a": "int8"})["a"].tolist() == [1, -1, -1, -1, -1, -1]
    assert database.read("t", {"a": "id"})["a"].tolist() == [1, -(2**31), 2**31, -1, -1, -1]


def test_texts_are_found_by_a_key_that_is_not_the_row_id(tmp_path: Path) -> None:
    path = create(tmp_path / "t.sqlite", ["id INT", "value TEXT"], [[i * 7, f"text {i}"] for i in range(3000)])
    found = Database(path).texts("t", "id", "value", np.array([7, 70, 700, 1]))
    assert found == {7: "text 1", 70: "text 10", 700: "text 100"}


def test_views_and_tables_stored_otherwise_are_not_read(tmp_path: Path) -> None:
    path = create(tmp_path / "t.sqlite", ["a INTEGER"], [[1]])
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE VIEW v AS SELECT a FROM t")
        connection.execute("CREATE TABLE w (a INTEGER PRIMARY KEY) WITHOUT ROWID")
        connection.execute("CREATE TABLE g (a INTEGER, b INTEGER GENERATED ALWAYS AS (a + 1))")
    connection.close()
    assert list(Database(path).tables) == ["t"]


@pytest.mark.parametrize(
    ("statement", "columns", "row_id"),
    [
        ("CREATE TABLE t (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)", ["id", "value"], "id"),
        ("CREATE TABLE t (\n -- a, (b\n a INT, /* , */ b REAL)", ["a", "b"], None),
        ('CREATE TABLE "t(" ("a ""b"", c" TEXT DEFAULT \'x,(\', [d e], `f`)', ['a "b", c', "d e", "f"], None),
        ("CREATE TABLE t (a DECIMAL(10, 2) CHECK (a IN (1, 2)), b, UNIQUE (a, b))", ["a", "b"], None),
        ("CREATE TABLE t (a INTEGER, b, PRIMARY KEY (a))", ["a", "b"], "a"),
        ("CREATE TABLE t (a INTEGER, b, PRIMARY KEY (a, b))", ["a", "b"], None),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY DESC)", ["a"], None),
        ("create table t(start integer,end integer)", ["start", "end"], None),
    ],
)
def test_layout(statement: str, columns: list[str], row_id: str | None) -> None:
    found = layout(statement)
    assert found is not None
    assert (found.columns, found.row_id) == (columns, row_id)


@pytest.mark.parametrize("statement", ["", "CREATE TABLE t", "CREATE TABLE t (((", "CREATE TABLE t (a) WITHOUT ROWID", "((()))"])
def test_no_layout(statement: str) -> None:
    found = layout(statement)
    assert found is None or found.columns


def test_every_cut_gives_rows_or_a_refusal(tmp_path: Path) -> None:
    rows: list[list[object]] = [[i, "some text " * (i % 9), i * 1.5] for i in range(400)]
    whole = create(tmp_path / "t.sqlite", ["a INTEGER", "b TEXT", "c REAL"], rows, page_size=512).read_bytes()
    cut = tmp_path / "cut.sqlite"
    fewer = 0
    for size in range(0, len(whole), 97):
        cut.write_bytes(whole[:size])
        try:
            database = Database(cut)
        except InputError as refused:
            assert len(str(refused).splitlines()) == 1
            continue
        found = database.read("t", {"a": "int64", "c": "real"}) if "t" in database.tables else {"a": np.empty(0)}
        assert set(found["a"].tolist()) <= set(range(400))
        assert database.damaged
        fewer += 0 < len(found["a"]) < 400
        database.close()
    assert fewer > 50  # what lies before the cut is read


def test_random_damage_never_raises_anything_else(tmp_path: Path) -> None:
    rows: list[list[object]] = [[i, "some text " * (i % 90), i * 1.5, None, b"xyz"] for i in range(300)]
    whole = create(tmp_path / "t.sqlite", ["a INTEGER", "b TEXT", "c REAL", "d", "e"], rows, page_size=1024).read_bytes()
    broken = tmp_path / "broken.sqlite"
    chance = random.Random(5)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 4, 40])):
            if chance.random() < 0.5:
                data[chance.randrange(len(data))] = chance.randrange(256)
            else:
                data[chance.randrange(len(data) // 1024) * 1024 + chance.randrange(16)] = chance.choice([0, 1, 5, 13, 127, 255])
        broken.write_bytes(data)
        try:
            database = Database(broken)
            for table in database.tables:
                found = database.read(table, {"a": "int64", "b": "text", "c": "real", "d": "int8", "e": "text"}, Strings())
                assert len({len(column) for column in found.values()}) == 1
                database.rows(table, ["a", "b", "c", "d", "e"])
                database.texts(table, "a", "b", np.arange(10))
            database.close()
        except InputError:
            continue


def test_a_tree_that_runs_in_circles_ends(tmp_path: Path) -> None:
    path = create(tmp_path / "t.sqlite", ["a INTEGER"], [[i] for i in range(3000)], page_size=512)
    data = bytearray(path.read_bytes())
    for page in range(1, len(data) // 512):
        if data[page * 512] == 5:  # an interior page: all children are the root of the table
            cells = int.from_bytes(data[page * 512 + 3 : page * 512 + 5], "big")
            for cell in range(cells):
                place = page * 512 + 12 + 2 * cell
                at = page * 512 + int.from_bytes(data[place : place + 2], "big")
                data[at : at + 4] = (2).to_bytes(4, "big")
    path.write_bytes(data)
    database = Database(path)
    assert len(database.read("t", {"a": "int64"})["a"]) < 3000
    assert database.damaged


def test_a_write_ahead_log_is_taken_in_and_the_folder_stays_as_it_was(tmp_path: Path) -> None:
    path = create(tmp_path / "t.sqlite", ["a INTEGER"], [[1]])
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("INSERT INTO t VALUES (2)")
    connection.commit()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith("-shm")}
    assert "t.sqlite-wal" in before
    database = Database(path)
    assert database.read("t", {"a": "int64"})["a"].tolist() == [1, 2]
    database.close()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith("-shm")} == before
    connection.close()


def test_odd_paths_and_read_only_folders(tmp_path: Path) -> None:
    folder = tmp_path / "what? #1 100% «ü»"
    folder.mkdir()
    path = create(folder / "a b?mode=rw#.sqlite", ["a INTEGER"], [[5]])
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        database = Database(path)
        assert database.read("t", {"a": "int64"})["a"].tolist() == [5]
        database.close()
        assert [file.name for file in folder.iterdir()] == [path.name]
    finally:
        folder.chmod(0o755)


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\0", b"SQLite format 3\0" + bytes(84), b"SQLite format 3\0" + b"\xff" * 200]
)
def test_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.sqlite"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not an SQLite database"):
        Database(path)


def test_rows_that_lie_over_one_another_do_not_multiply(tmp_path: Path) -> None:
    path = create(tmp_path / "t.sqlite", ["a INTEGER"], [[i] for i in range(5000)])
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 4096):  # every pointer of a page to the same short row
        begin = page * 4096
        if data[begin] == 13:
            data[begin + 3 : begin + 5] = (2000).to_bytes(2, "big")
            data[begin + 8 : begin + 4008] = (4090).to_bytes(2, "big") * 2000
            data[begin + 4090 : begin + 4093] = bytes([1, 5, 1])
    path.write_bytes(data)
    database = Database(path)
    assert len(database.read("t", {"a": "int64"})["a"]) < 5000
    assert database.damaged
