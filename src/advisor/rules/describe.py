"""A rule as Markdown, for `advisor explain` and for the documentation."""

from __future__ import annotations

from collections.abc import Iterable

from advisor.model import RulePage
from advisor.rules.fixes import filled
from advisor.rules.rule import FixTemplate, Rule

_SAFETY = {
    "same-numerics": "does not change results",
    "changes-numerics": "changes numerics",
    "changes-memory": "changes memory use",
    "operational": "changes how the job is run",
}


def markdown(rule: Rule) -> str:
    """Summary, needs, thresholds with reasons, validity and fixes. Snippets show the fixes' example values."""
    parts = [f"# {rule.id}: {rule.title}", rule.summary]
    facts = [f"Family: {rule.family}."]
    if rule.informs:
        facts.append("It informs and never promises a saving.")
    if rule.needs:
        facts.append("Needs in the input: " + "; ".join(" or ".join(f"`{name}`" for name in group) for group in rule.needs) + ".")
    if rule.valid.conditions:
        facts.append(f"Valid for {', '.join(rule.valid.conditions)}.")
    if rule.subsumes:
        facts.append("Takes in the findings of " + ", ".join(f"`{name}`" for name in rule.subsumes) + " where it explains them.")
    parts.append("\n".join(f"- {text}" for text in facts))
    if rule.capture:
        parts.append(f"## How to record what it needs\n\n{rule.capture}")
    if rule.thresholds:
        lines = [f"- `{name}` = {one.value:g} {one.unit}. {one.reason}" for name, one in rule.thresholds.items()]
        parts.append("## Thresholds\n\n" + "\n".join(lines))
    if rule.fixes:
        parts.append("## Fixes\n\n" + "\n\n".join(map(_fix, rule.fixes)))
    return "\n\n".join(parts) + "\n"


def page(rule: Rule) -> RulePage:
    return RulePage(rule.id, rule.family, rule.title, rule.summary.strip(), markdown(rule))


def pages(rules: Iterable[Rule]) -> dict[str, RulePage]:
    """The pages of these rules by id."""
    return {rule.id: page(rule) for rule in rules}


def _fix(fix: FixTemplate) -> str:
    lines = [f"### {fix.title}", ""]
    about = [fix.framework, _SAFETY[fix.safety], f"takes {fix.effort}", *fix.valid.conditions]
    lines += ["; ".join(about) + ".", "", f"```{fix.language}", filled(fix, {}), "```"]
    notes = [*fix.caveats, *(f"<{link}>" if link.startswith("http") else link for link in fix.references)]
    if notes:
        lines += ["", *(f"- {note}" for note in notes)]
    return "\n".join(lines)
