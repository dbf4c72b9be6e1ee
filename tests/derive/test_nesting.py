"""Nesting against a stack, on properly nested and on crooked intervals."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from advisor.derive.nesting import Nesting, distinct_rows, mixed_key, thread_keys
from advisor.model import Table


@st.composite
def forests(draw):
    """Properly nested intervals on up to three threads, with their parents, rows in random order."""
    rows = []  # (thread, start, end, parent position or None)

    def grow(thread, low, high, parent, depth):
        at = low
        while at < high - 1 and draw(st.booleans()):
            start = draw(st.integers(at, high - 2))
            end = draw(st.integers(start + 1, high - 1))
            rows.append((thread, start, end, parent))
            me = len(rows) - 1
            if depth < 4:
                grow(thread, start + 1, end, me, depth + 1)
            at = end

    for thread in range(draw(st.integers(1, 3))):
        grow(thread, 0, 60, None, 0)
    order = draw(st.permutations(range(len(rows))))
    return rows, list(order)


def table(rows):
    return Table(
        "host_ops",
        {
            "start": [r[1] for r in rows],
            "end": [r[2] for r in rows],
            "thread": [r[0] for r in rows],
            "name": [0] * len(rows),
        },
    )


@given(forests())
def test_parents_of_nested_intervals(case):
    rows, order = case
    shuffled = [rows[i] for i in order]
    where = {original: position for position, original in enumerate(order)}
    forest = Nesting(table(shuffled))
    expected = [-1 if r[3] is None else where[r[3]] for r in shuffled]
    assert forest.parent.tolist() == expected
    assert forest.roots().tolist() == [parent < 0 for parent in expected]


@given(forests(), st.integers(0, 60))
def test_innermost_is_the_shortest_open_interval(case, moment):
    rows, _ = case
    forest = Nesting(table(rows))
    for thread in {r[0] for r in rows}:
        key = thread_keys(table([(thread, 0, 1, None)]))
        found = int(forest.innermost(key, np.array([moment]))[0])
        open_rows = [i for i, r in enumerate(rows) if r[0] == thread and r[1] <= moment < r[2]]
        expected = min(open_rows, key=lambda i: rows[i][2] - rows[i][1], default=-1)
        assert found == expected


@given(forests(), st.data())
def test_nearest_walks_up_to_the_first_wanted(case, data):
    rows, _ = case
    wanted = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), bool)
    nearest = Nesting(table(rows)).nearest(wanted)
    for i, row in enumerate(rows):
        at = i
        while at is not None and not wanted[at]:
            at = rows[at][3]
        assert nearest[i] == (-1 if at is None else at), row


def test_a_child_that_ends_late_is_adopted_by_its_start():
    forest = Nesting(table([(1, 0, 100, None), (1, 50, 102, None), (1, 60, 70, None)]))
    assert forest.parent.tolist() == [-1, 0, 1]


def test_keys_tell_rows_apart():
    a = np.array([0, 0, 1, -1]), np.array([0, 1, 0, -1])
    assert len(set(mixed_key(*a).tolist())) == 4


@given(st.lists(st.tuples(st.integers(-2, 2), st.sampled_from([-1, 7, 2**40])), max_size=20))
def test_distinct_rows(rows):
    columns = [np.array([row[i] for row in rows], np.int64) for i in range(2)]
    found, index = distinct_rows(*columns)
    assert found == sorted(set(rows)) and [found[i] for i in index] == rows


def test_distinct_rows_of_columns_that_nobody_filled():
    missing = np.broadcast_to(np.int32(-1), (3,))
    assert distinct_rows(missing, np.array([4, 4, 4]))[0] == [(-1, 4)]
    assert distinct_rows(missing, np.array([4, 5, 4]))[1].tolist() == [0, 1, 0]
    assert distinct_rows(missing[:0], missing[:0])[0] == []
