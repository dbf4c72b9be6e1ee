"""The conditions of `--fail-on`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.gates.expression import (
    Budgets,
    Errors,
    ExpressionError,
    Finding,
    Limit,
    Never,
    New,
    Regression,
    Term,
    parse_conditions,
)
from advisor.gates.measures import MEASURES
from advisor.gates.regressions import PARTS

RULES = ["host-sync-in-step", "pageable-copy", "host"]


def one(text: str) -> Term:
    ((_, term),) = parse_conditions([text], RULES, PARTS)
    return term


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("high", Finding("high")),
        ("low", Finding("low")),
        ("host-sync-in-step", Finding("host-sync-in-step")),
        ("host", Finding("host")),
        ("error", Errors()),
        ("budget", Budgets()),
        ("never", Never()),
        ("new", New()),
        ("new:high", New("high")),
        ("new : pageable-copy", New("pageable-copy")),
        ("regression", Regression()),
        ("regression>3%", Regression("step-time", 0.03)),
        ("regression > 3 %", Regression("step-time", 0.03)),
        ("regression:memory-peak>0.05", Regression("memory-peak", 0.05)),
        ("step-time>120ms", Limit("step-time", 120_000_000)),
        ("step-time > 120 ms", Limit("step-time", 120_000_000)),
        ("mfu<40%", Limit("mfu", 0.4)),
        ("memory-peak>70GiB", Limit("memory-peak", 70 << 30)),
        ("host-syncs-per-step>1", Limit("host-syncs-per-step", 1)),
    ],
)
def test_conditions(text: str, term: Term) -> None:
    assert one(text) == term


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hihg", ["'hihg'", "neither a severity nor a selected rule", "'high'"]),
        ("pagable-copy", ["'pageable-copy'"]),
        ("regressoin>3%", ["'regression'"]),
        ("step-tme>120ms", ["'step-time'"]),
        ("step-time", ["needs a limit", "step-time>120 ms"]),
        ("step-time<120ms", ["less is better", "step-time>120ms"]),
        ("mfu>40%", ["more is better", "mfu<40%"]),
        ("mfu", ["mfu<40 %"]),
        ("step-time>120", ["no unit"]),
        ("step-time>", ["no amount"]),
        ("step-time>=120ms", ["'>='", "write >"]),
        ("step-time==1ms", ["'=='"]),
        ("regression<3%", ["write >"]),
        ("regression:kernls>3%", ["'kernls'"]),
        ("new:hgih", ["'hgih'", "'high'"]),
        ("high:new", ["only 'new' and 'regression'"]),
        ("step-time:x>1ms", ["no parts"]),
        ("info", ["'info'"]),
        ("never,high", ["stands alone"]),
        ("3%", ["no condition"]),
        ("x" * 500, ["..."]),
        ("\x1b[31m\n", ["no condition"]),
    ],
)
def test_what_is_no_condition(text: str, words: list[str]) -> None:
    with pytest.raises(ExpressionError) as error:
        parse_conditions([text], RULES, PARTS)
    message = str(error.value)
    assert all(word in message for word in words), message
    assert message.isprintable() and len(message) < 400


def test_lists_keep_their_order_and_say_each_once() -> None:
    found = parse_conditions(["new, high", "high", " ,budget"], RULES, PARTS)
    assert found == [("new", New()), ("high", Finding("high")), ("budget", Budgets())]
    assert parse_conditions(["", ","], RULES, PARTS) == []


@given(st.text(max_size=40) | st.from_regex(r"[a-z:-]{1,12}[<>=]{0,2}[0-9]{0,4}[%a-zA-Z]{0,3}", fullmatch=True))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        found = parse_conditions([text], RULES, PARTS)
    except ExpressionError as error:
        assert "\n" not in str(error)
        return
    for written, term in found:
        assert one(written) == term  # what was read reads the same alone


TERMS = (
    st.sampled_from([Finding(name) for name in ("high", "medium", *RULES)])
    | st.sampled_from([New(name) for name in ("", "high", *RULES)])
    | st.builds(Regression, st.sampled_from(sorted(PARTS)), st.none() | st.integers(0, 300).map(lambda p: p / 100))
    | st.builds(
        Limit, st.sampled_from(sorted(n for n, m in MEASURES.items() if m.quantity == "share")), st.sampled_from([0.25, 1.0])
    )
)


def written(term: Term) -> str:
    match term:
        case Finding(name):
            return name
        case New(only):
            return f"new:{only}" if only else "new"
        case Regression(what, limit):
            return f"regression:{what}" + ("" if limit is None else f">{limit * 100:g}%")
        case Limit(measure, limit):
            return f"{measure}{'<' if MEASURES[measure].least else '>'}{limit:g}"
    raise AssertionError


@given(st.lists(TERMS, max_size=6), st.sampled_from([",", " , ", ",,"]))
def test_what_is_written_is_read(terms: list[Term], comma: str) -> None:
    found = parse_conditions([comma.join(map(written, terms))], RULES, PARTS)
    assert [term for _, term in found] == list(dict.fromkeys(terms))
