"""Whether a report meets what was asked of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from advisor.gates import expression as x
from advisor.gates.amounts import UNITS, told
from advisor.gates.measures import MEASURES, Unknown
from advisor.model import BaselineVerdict, Condition, Finding, Report, Verdict
from advisor.model.report import REPORTED_UNDER

OPTION = "--fail-on"  # origin of a condition that was typed, as against one of a configuration


@dataclass(frozen=True)
class Budget:
    """The limit of a measure in its base unit, and where it was set."""

    measure: str
    limit: float
    origin: str | None = None


@dataclass(frozen=True)
class Asked:
    """terms: (as written, condition, where it was set). errors: rules whose level is `error` -> where that was set.

    families: names that stand for several rules, so that no rule of that name can be missing.
    """

    terms: Sequence[tuple[str, x.Term, str | None]] = ()
    budgets: Sequence[Budget] = ()
    errors: dict[str, str | None] = field(default_factory=dict)
    strict: bool = False
    families: Collection[str] = ()

    @property
    def advisory(self) -> bool:
        return any(isinstance(term, x.Never) for _, term, _ in self.terms)


def judge(report: Report, asked: Asked, baseline: BaselineVerdict | None = None) -> Verdict:
    """All conditions on one report, in the order: budgets, rules set to error, `--fail-on`.

    Regressions need two sides and are no part of it: `gates.regressions` judges them.
    """
    accepted = {entry.fingerprint for entry in baseline.of("accepted")} if baseline else set()
    conditions = [budget(report, one, one.measure) for one in asked.budgets]
    if asked.errors:
        conditions.append(_errors(report, asked, "error", accepted))
    for written, term, origin in asked.terms:
        match term:
            case x.Limit(name, limit):
                conditions.append(budget(report, Budget(name, limit, origin), written))
            case x.Finding():
                conditions.append(_finding(report, written, term, asked.families, accepted, origin))
            case x.New():
                conditions.append(_new(report, written, term, baseline, origin))
            case x.Errors() if not asked.errors:
                conditions.append(unset(written, "the level of no rule is error", origin))
            case x.Budgets() if not asked.budgets:
                conditions.append(unset(written, "no budget is set", origin))
    return Verdict(tuple(conditions), asked.strict, asked.advisory, baseline)


def budget(report: Report, one: Budget, name: str) -> Condition:
    """A measure against its limit; reaching the limit is within it."""
    measure = MEASURES[one.measure]
    limit, unit = told(measure.quantity, one.limit), UNITS[measure.quantity]
    bound, allowed = ("at-least", f"at least {limit}") if measure.least else ("at-most", f"at most {limit}")
    try:
        figure = measure.read(report)
    except Unknown as lack:
        return Condition(
            name,
            "budget",
            "not-judged",
            f"{measure.words} is to be {allowed}",
            one.limit,
            None,
            unit,
            bound,  # type: ignore[arg-type]
            reason=str(lack),
            origin=one.origin,
        )
    missed = figure.value < one.limit if measure.least else figure.value > one.limit
    actual = told(measure.quantity, figure.value)
    if missed and actual == limit:  # the digits hide the difference
        actual = f"just {'below' if measure.least else 'above'} {actual}"
    text = f"{measure.words} is {actual}, {allowed} {'is required' if measure.least else 'is allowed'}"
    return Condition(
        name,
        "budget",
        "failed" if missed else "passed",
        text,
        one.limit,
        figure.value,
        unit,
        bound,  # type: ignore[arg-type]
        source=figure.source,
        origin=one.origin,
    )


def counted(name: str, what: str, found: Sequence[Finding], origin: str | None) -> Condition:
    """A condition on the number of findings, which has to be 0."""
    rules = ", ".join(dict.fromkeys(one.rule for one in found))
    text = f"{_number(len(found))} {what}" + (f": {rules}" if found else "")
    return Condition(
        name,
        "finding",
        "failed" if found else "passed",
        text,
        0,
        len(found),
        "count",
        source="findings",
        findings=tuple(one.fingerprint for one in found),
        origin=origin,
    )


def _number(count: int) -> str:
    return "no finding" if not count else f"{count} finding{'' if count == 1 else 's'}"


def unset(name: str, reason: str, origin: str | None) -> Condition:
    return Condition(name, "finding", "not-judged", f"'{name}' was asked for", reason=reason, origin=origin)


def _severe(level: str) -> Callable[[Finding], bool]:
    levels = x.LEVELS[: x.LEVELS.index(level) + 1]
    return lambda finding: finding.severity in levels and finding.confidence != "low"


def matching(name: str) -> tuple[Callable[[Finding], bool], str]:
    if name in x.LEVELS:
        above = "" if name == "high" else " or above"
        return _severe(name), f"of severity {name}{above} with confidence medium at least"
    return lambda finding: name in (finding.rule, finding.family), f"of {name}"


def _finding(
    report: Report, written: str, term: x.Finding, families: Collection[str], accepted: Collection[str], origin: str | None
) -> Condition:
    matches, what = matching(term.name)
    found = [one for one in report.findings if matches(one) and one.fingerprint not in accepted]
    if term.name in x.LEVELS:
        return counted(written, what, found, origin)
    if term.name not in families and all(outcome.id != term.name for outcome in report.rules):
        text = f"there is to be no finding {what}"
        return Condition(written, "finding", "not-judged", text, reason="the rule is not selected", origin=origin)
    return _of_rules(report, written, what, {term.name}, found, accepted, origin)


def _errors(report: Report, asked: Asked, written: str, accepted: Collection[str]) -> Condition:
    found = [one for one in report.findings if one.rule in asked.errors and one.fingerprint not in accepted]
    origin = next(iter({asked.errors[one.rule] for one in found} or set(asked.errors.values())))
    several = len(set(asked.errors.values())) > 1
    what = "of rules whose level is error"
    return _of_rules(report, written, what, asked.errors, found, accepted, None if several and not found else origin)


def _of_rules(
    report: Report,
    written: str,
    what: str,
    rules: Collection[str],
    found: list[Finding],
    accepted: Collection[str],
    origin: str | None,
) -> Condition:
    """Findings of rules asked for by name: also those told under another, and rules that could not judge are no pass."""
    under = {
        (outcome.reason or "").removeprefix(REPORTED_UNDER).strip()
        for outcome in report.rules
        if outcome.id in rules and outcome.outcome == "found" and (outcome.reason or "").startswith(REPORTED_UNDER)
    }
    found = found + [one for one in report.findings if one.rule in under and one not in found and one.fingerprint not in accepted]
    asked = [outcome for outcome in report.rules if outcome.id in rules]
    blind = [outcome for outcome in asked if outcome.outcome in ("not-applicable", "error")]
    if asked and len(blind) == len(asked):
        more = f" and {len(blind) - 1} more rules" if len(blind) > 1 else ""
        reason = f"{blind[0].id}{more} could not judge ({blind[0].reason or blind[0].outcome})"
        return Condition(written, "finding", "not-judged", f"there is to be no finding {what}", reason=reason, origin=origin)
    return counted(written, what, found, origin)


def _new(report: Report, written: str, term: x.New, baseline: BaselineVerdict | None, origin: str | None) -> Condition:
    """Findings that the baseline does not hold, or that got worse since."""
    matches, what = matching(term.only or x.LEVELS[-1])
    what = f"{what} that the baseline does not hold as it stands"
    if baseline is None:
        text = f"there is to be no finding {what}"
        return Condition(written, "finding", "not-judged", text, reason="there is no baseline (--baseline FILE)", origin=origin)
    count = {*baseline.new, *(entry.fingerprint for entry in baseline.of("worse"))}
    return counted(written, what, [one for one in report.findings if one.fingerprint in count and matches(one)], origin)
