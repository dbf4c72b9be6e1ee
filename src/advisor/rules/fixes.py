"""The fixes of a finding: those valid on this run, with the placeholders of their snippets filled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.model import Device, Fix
from advisor.rules.rule import PLACEHOLDER, FixTemplate, Rule
from advisor.rules.validity import Version, text_of

# Snippets are pasted into shells and programs, and facts come from files of strangers: only harmless characters pass.
# torch.compile without another backend, and libraries written in Triton. Its releases drop compute capability 7.0, then 7.5.
_TRITON = re.compile(r"torch\.compile\b|torch_compile=True|\bliger|use_liger_kernel|LigerKernel")
_TRITON_SURE = (8, 0)
_OLD_GPU = (
    "Recent releases of Triton generate no code for this GPU any more: check that it works with the torch that is installed; "
    "fused operators of libraries and CUDA graphs do without it."
)
_HARMLESS = {"bash": re.compile(r"[\w.,:/=+@%-]*"), "other": re.compile(r"[\w .,:/=+@%()\[\]-]*")}


def fixes_for(
    rule: Rule,
    ids: Sequence[str] | None,
    facts: Mapping[str, Any],
    device: Device | None,
    torch: Version | None,
    framework: str | None = None,
    newest: Version | None = None,
) -> list[Fix]:
    """The named fixes (None: all) in that order, those for the user's framework first.

    A fix that cannot hold on this device or version is left out; one that may, because the input does not tell, keeps
    the condition as a caveat. Fixes that need a torch after `newest`, the last when the run was recorded, stand behind
    those that hold as it was, and on GPUs before 8.0 those that need Triton. KeyError for an id that the rule lacks.
    """
    templates = _templates(rule, ids)

    def later(fix: FixTemplate) -> bool:
        least = fix.valid.min_torch
        return torch is None and newest is not None and least is not None and least > newest

    old = device is not None and device.compute_capability is not None and device.compute_capability < _TRITON_SURE
    templates.sort(
        key=lambda fix: (later(fix), old and needs_triton(fix), fix.framework != framework)
    )  # stable: the given order stays
    fixes = []
    for template in templates:
        failing, unknown = template.valid.judge(device, torch)
        if failing:
            continue
        if later(template):
            unknown = [text for text in unknown if not text.startswith("valid for torch")]
            unknown.append(f"needs torch {text_of(template.valid.min_torch or ())}, which is newer than the recording")
        fixes.append(
            Fix(
                id=template.id,
                title=template.title,
                framework=template.framework,
                language=template.language,
                snippet=filled(template, facts),
                safety=template.safety,
                effort=template.effort,
                caveats=[
                    *template.caveats,
                    *([_OLD_GPU] if old and needs_triton(template) else []),
                    *(text[0].upper() + text[1:] + "." for text in unknown),
                ],
                references=list(template.references),
            )
        )
    return fixes


def needs_triton(fix: FixTemplate) -> bool:
    """Whether Triton generates the kernels of a fix, as for torch.compile and Liger."""
    return _TRITON.search(fix.snippet) is not None


def no_fix(rule: Rule, ids: Sequence[str] | None, device: Device | None, torch: Version | None) -> list[str]:
    """Why none of the named fixes (None: all) holds here, in words."""
    failing = [text for template in _templates(rule, ids) for text in template.valid.judge(device, torch)[0]]
    return [f"No fix is printed: {text}." for text in dict.fromkeys(failing)]


def _templates(rule: Rule, ids: Sequence[str] | None) -> list[FixTemplate]:
    return list(rule.fixes) if ids is None else [rule.fix(name) for name in ids]


def filled(template: FixTemplate, facts: Mapping[str, Any]) -> str:
    """The snippet with each `<<name>>` replaced by the fact of that name, or by its example if there is none."""
    harmless = _HARMLESS.get(template.language, _HARMLESS["other"])

    def value(match: re.Match[str]) -> str:
        name = match[1]
        fact = facts.get(name)
        if isinstance(fact, float) and name.endswith("_per_step"):
            fact = f"{fact:.1f}".removesuffix(".0")  # a mean over steps: more digits say nothing
        text = _text(fact)
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
