"""The conditions of `--fail-on`: a small language, read once.

conditions  = condition { "," condition }
condition   = "error" | "budget" | "never"
            | finding                                severity, rule or family: such a finding stands
            | "new" [ ":" finding ]                  a finding that the baseline (compare: the base) does not hold
            | "regression" [ ":" figure ] [ ">" share ]
            | figure ( ">" | "<" ) amount            a budget of this call: step-time>120ms, mfu<40%
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from advisor.gates.amounts import parse
from advisor.gates.measures import MEASURES, limit
from advisor.model import InputError
from advisor.rules.rule import nearest

LEVELS = ("high", "medium", "low")
WORDS = ("error", "budget", "new", "regression", "never")
_TERM = re.compile(r"([A-Za-z][\w.-]*)(?:\s*:\s*([\w.-]+))?(?:\s*([<>=!]=?)\s*(.*))?", re.DOTALL)


class ExpressionError(InputError):
    """A condition that cannot be read. One line that quotes it and says what would be valid."""


@dataclass(frozen=True)
class Finding:
    """A finding of this severity or above, of this rule, or of this family; `name` is as written."""

    name: str


@dataclass(frozen=True)
class Errors:
    """A finding of a rule whose level is `error`."""


@dataclass(frozen=True)
class Budgets:
    """Any budget of the configuration."""


@dataclass(frozen=True)
class New:
    """A finding that was not there before; `only` as in `Finding`, empty: any that promises a saving or warns."""

    only: str = ""


@dataclass(frozen=True)
class Regression:
    """`what` got worse by more than `limit` (a share) as far as that can be told from noise; None: as configured."""

    what: str = "step-time"
    limit: float | None = None


@dataclass(frozen=True)
class Limit:
    """The measure of this name beyond `limit`, in its base unit."""

    measure: str
    limit: float


@dataclass(frozen=True)
class Never:
    """Nothing fails; the states are told."""


Term = Finding | Errors | Budgets | New | Regression | Limit | Never


def parse_conditions(texts: Iterable[str], findings: Collection[str], parts: Collection[str]) -> list[tuple[str, Term]]:
    """(as written, condition) of each, once, in order.

    findings: names of rules and families that may be asked for; parts: what regressions may name. ExpressionError for
    anything else.
    """
    terms = dict[str, Term]()
    for text in texts:
        for piece in text.split(","):
            if piece.strip():
                terms[piece.strip()] = _term(piece.strip(), findings, parts)
    if any(isinstance(term, Never) for term in terms.values()) and len(terms) > 1:
        raise ExpressionError("'never' stands alone: it goes with no other condition")
    return list(terms.items())


def _term(text: str, findings: Collection[str], parts: Collection[str]) -> Term:
    found = _TERM.fullmatch(text)
    shown = repr(text) if len(text) <= 60 else repr(text[:57]) + "..."
    if not found:
        raise ExpressionError(f"{shown} is no condition; write for example high, new, or step-time>120ms")
    name, only, sign, amount = found.groups()
    if sign not in (None, "<", ">"):
        raise ExpressionError(f"{shown}: {sign!r} is no comparison here; write > for more than, < for less than")
    try:
        if name == "regression":
            return _regression(only, sign, amount, parts)
        if sign:
            return _limit(name, only, sign, amount)
        return _plain(name, only, findings)
    except ValueError as error:
        raise ExpressionError(f"{shown}: {error}") from error


def _regression(what: str | None, sign: str | None, amount: str | None, parts: Collection[str]) -> Regression:
    what = what or "step-time"
    if what not in parts:
        raise ValueError(f"nothing called {what!r} is compared{nearest(what, parts)}")
    if sign is None:
        return Regression(what, None)
    if sign == "<":
        raise ValueError("a regression is limited from above: write >")
    return Regression(what, float(parse("share", amount)))


def _limit(name: str, only: str | None, sign: str, amount: str) -> Limit:
    measure = MEASURES.get(name)
    if measure is None:
        raise ValueError(f"no figure {name!r} to limit{nearest(name, [*MEASURES, 'regression'])}")
    if only:
        raise ValueError(f"{name} has no parts; leave out ':{only}'")
    if measure.least != (sign == "<"):
        better = "more" if measure.least else "less"
        raise ValueError(f"of {name} {better} is better: write {name}{'<' if measure.least else '>'}{amount}")
    return Limit(name, limit(name, amount))


def _plain(name: str, only: str | None, findings: Collection[str]) -> Term:
    known = [*LEVELS, *findings]
    if name == "new":
        if only and only not in known:
            raise ValueError(f"{only!r} is neither a severity nor a selected rule or family{nearest(only, known)}")
        return New(only or "")
    if only:
        raise ValueError(f"only 'new' and 'regression' take a ':', not {name!r}")
    if name in MEASURES:
        raise ValueError(f"needs a limit, as in {name}{'<' if MEASURES[name].least else '>'}{MEASURES[name].example}")
    words: dict[str, Term] = {"error": Errors(), "budget": Budgets(), "never": Never()}
    if name in words:
        return words[name]
    if name not in known:
        raise ValueError(f"is neither a severity nor a selected rule{nearest(name, [*known, *WORDS, *MEASURES])}")
    return Finding(name)
