"""The fixes of a finding: those valid on this run, with the placeholders of their snippets filled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.model import Device, Fix
from advisor.rules.rule import PLACEHOLDER, FixTemplate, Rule
from advisor.rules.validity import Version

# Snippets are pasted into shells and programs, and facts come from files of strangers: only harmless characters pass.
_HARMLESS = {"bash": re.compile(r"[\w.,:/=+@%-]*"), "other": re.compile(r"[\w .,:/=+@%()\[\]-]*")}


def fixes_for(
    rule: Rule,
    ids: Sequence[str] | None,
    facts: Mapping[str, Any],
    device: Device | None,
    torch: Version | None,
    framework: str | None = None,
) -> list[Fix]:
    """The named fixes (None: all) in that order, those for the user's framework first.

    A fix that cannot hold on this device or version is left out; one that may, because the input does not tell, keeps
    the condition as a caveat. KeyError for an id that the rule lacks.
    """
    templates = list(rule.fixes) if ids is None else [rule.fix(name) for name in ids]
    templates.sort(key=lambda fix: fix.framework != framework)  # stable: the given order stays
    fixes = []
    for template in templates:
        failing, unknown = template.valid.judge(device, torch)
        if failing:
            continue
        fixes.append(
            Fix(
                id=template.id,
                title=template.title,
                framework=template.framework,
                language=template.language,
                snippet=filled(template, facts),
                safety=template.safety,
                effort=template.effort,
                caveats=[*template.caveats, *(text[0].upper() + text[1:] + "." for text in unknown)],
                references=list(template.references),
            )
        )
    return fixes


def filled(template: FixTemplate, facts: Mapping[str, Any]) -> str:
    """The snippet with each `<<name>>` replaced by the fact of that name, or by its example if there is none."""
    harmless = _HARMLESS.get(template.language, _HARMLESS["other"])

    def value(match: re.Match[str]) -> str:
        name = match[1]
        text = _text(facts.get(name))
        if text is None or not harmless.fullmatch(text):
            text = _text(template.example[name]) or ""
        return text

    return PLACEHOLDER.sub(value, template.snippet)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, (dict, list, tuple)):
        return None
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < float("inf") else None
    return str(value)
