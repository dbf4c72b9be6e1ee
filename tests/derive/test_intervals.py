"""Interval algebra against a model that counts every nanosecond."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from advisor.derive import intervals as iv

SPAN = 60
pairs = st.lists(st.tuples(st.integers(0, SPAN), st.integers(0, SPAN)), max_size=12)


def arrays(items):
    return np.array([a for a, _ in items], np.int64), np.array([b for _, b in items], np.int64)


def moments(items):
    """The set of nanoseconds that half-open intervals cover; reversed ones cover nothing."""
    return {t for a, b in items for t in range(a, b)}


def as_moments(s):
    return moments(list(zip(s[0].tolist(), s[1].tolist(), strict=True)))


def canonical(s):
    return bool((s[1] > s[0]).all()) and bool((s[0][1:] >= s[1][:-1]).all())


@given(pairs)
def test_union_covers_exactly_what_its_members_cover(items):
    s = iv.union(*arrays(items))
    assert as_moments(s) == moments(items)
    assert canonical(s) and bool((s[0][1:] > s[1][:-1]).all())
    assert iv.length(s) == iv.union_length(*arrays(items)) == len(moments(items))


@given(pairs, pairs)
def test_set_operations_agree_with_sets_of_moments(a, b):
    sa, sb = iv.union(*arrays(a)), iv.union(*arrays(b))
    ma, mb = moments(a), moments(b)
    for result, expected in (
        (iv.intersect(sa, sb), ma & mb),
        (iv.subtract(sa, sb), ma - mb),
        (iv.merge(sa, sb), ma | mb),
        (iv.clip(sa, 10, 40), ma & set(range(10, 40))),
        (iv.complement(sa, 5, 50), set(range(5, 50)) - ma),
    ):
        assert as_moments(result) == expected
        assert canonical(result)


@given(pairs, pairs, st.lists(st.integers(-5, SPAN + 5), max_size=10))
def test_covered_and_contains(items, queries, points):
    s, covered_moments = iv.union(*arrays(items)), moments(items)
    queries = [(min(q), max(q)) for q in queries]
    expected = [len(covered_moments & set(range(*q))) for q in queries]
    assert iv.covered(s, *arrays(queries)).tolist() == expected
    assert iv.contains(s, np.array(points, np.int64)).tolist() == [p in covered_moments for p in points]


def test_nothing_stays_nothing():
    assert iv.length(iv.EMPTY) == 0
    assert iv.length(iv.subtract(iv.EMPTY, iv.union(*arrays([(1, 5)])))) == 0
    assert as_moments(iv.subtract(iv.union(*arrays([(1, 5)])), iv.EMPTY)) == {1, 2, 3, 4}
    assert iv.complement(iv.EMPTY, 5, 5)[0].size == 0
