"""Amounts with units, as the configuration and `--fail-on` write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.gates.amounts import EXAMPLES, SCHEMAS, Quantity, parse, told


@pytest.mark.parametrize(
    ("quantity", "value", "expected"),
    [
        ("duration", "120 ms", 120_000_000),
        ("duration", "120ms", 120_000_000),
        ("duration", "0.1 us", 100),
        ("duration", " 1.5 s ", 1_500_000_000),
        ("duration", "3 µs", 3_000),
        ("duration", "2min", 120_000_000_000),
        ("duration", "16777217.000001 ms", 16_777_217_000_001),  # exact where float64 of seconds is not
        ("bytes", "70 GiB", 70 << 30),
        ("bytes", "80 GB", 80_000_000_000),
        ("bytes", "512B", 512),
        ("bytes", "0.5 KiB", 512),
        ("share", "20 %", 0.2),
        ("share", "20%", 0.2),
        ("share", "150 %", 1.5),
        ("share", "0.2", 0.2),
        ("share", 0.2, 0.2),
        ("share", 1, 1),
        ("share", 0, 0),
        ("count", 4, 4),
        ("count", "4.5", 4.5),
    ],
)
def test_amounts(quantity: Quantity, value: object, expected: float) -> None:
    assert parse(quantity, value) == expected


@pytest.mark.parametrize(
    ("quantity", "value", "words"),
    [
        ("duration", 120, ["120", "no unit", "120 ms"]),
        ("duration", "120", ["no unit", "ms"]),
        ("duration", "120 GiB", ["'GiB'", "ms"]),
        ("duration", "1e3 ms", ["no amount"]),
        ("duration", "-1 ms", ["no amount"]),
        ("duration", "99999999999999 h", ["out of range"]),
        ("bytes", "70 gib", ["'gib'", "GiB"]),
        ("bytes", 5.5, ["no unit"]),
        ("share", 20, ["20 %"]),
        ("share", "20", ["20 %"]),
        ("share", "20 ms", ["'ms'", "20 %"]),
        ("share", float("nan"), ["finite"]),
        ("share", -0.1, ["from 0"]),
        ("count", float("inf"), ["finite"]),
        ("count", "4 ms", ["'ms'"]),
        ("count", True, ["not True"]),
        ("count", None, ["not None"]),
        ("count", [], ["not []"]),
        ("count", 10**400, ["finite"]),
        ("share", "x" * 10_000, ["no amount"]),
    ],
)
def test_what_is_no_amount(quantity: Quantity, value: object, words: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        parse(quantity, value)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


@pytest.mark.parametrize("quantity", list(EXAMPLES))
@given(text=st.text(max_size=12) | st.from_regex(r"[0-9.]{1,5} ?[a-zA-Z%]{0,3}", fullmatch=True))
def test_any_text_is_an_amount_or_a_value_error(quantity: Quantity, text: str) -> None:
    try:
        amount = parse(quantity, text)
    except ValueError:
        return
    assert 0 <= amount <= 10**18
    assert not (quantity in ("duration", "bytes") and not isinstance(amount, int))
    # What is read, the pattern for editors lets pass.
    schema = SCHEMAS[quantity]
    patterns = [one["pattern"] for one in schema.get("anyOf", [schema]) if "pattern" in one]
    if patterns and text.isascii() and amount <= 1:
        assert any(re.search(pattern, text) for pattern in patterns) or quantity == "share"


@given(st.integers(1, 10**15))
def test_what_is_told_can_be_read_again(ns: int) -> None:
    assert parse("duration", told("duration", ns)) == pytest.approx(ns, rel=1e-3)
    assert parse("bytes", told("bytes", ns)) == pytest.approx(ns, rel=1e-3)


@given(st.floats(1e-6, 1))
def test_shares_that_are_told_can_be_read_again(share: float) -> None:
    assert parse("share", told("share", share)) == pytest.approx(share, rel=1e-2, abs=1e-8)


def test_told() -> None:
    assert told("duration", 120_000_000) == "120 ms"
    assert told("duration", 120_490_000) == "120.5 ms"
    assert told("bytes", 70 << 30) == "70 GiB"
    assert told("share", 0.0314) == "3.14 %"
    assert told("count", 0) == "0"
