"""The comparison as Markdown for a pull request: a short first screen, everything else folded."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.model.comparison import Comparison, FindingChange
from advisor.report import markdown as md
from advisor.report import text as t
from advisor.report.comparison import words as w
from advisor.report.style import Style

_FIRST = ("new", "worse", "gone")  # what the first screen lists
_ROWS, _KERNELS, _TITLE = 8, 20, 300


def render(comparison: Comparison, style: Style | None = None, all_findings: bool = False) -> str:
    """Below the limit of comments on code hosts; what does not fit is left out, and the text says so."""
    return document(comparison, style.note if style else None)


def document(comparison: Comparison, note: str | None = None, limit: int = md.LIMIT) -> str:
    """The same below another limit. note: a line below the verdict."""
    return md.joined([*_first(comparison, note), *_folded(comparison)], limit)


def _first(comparison: Comparison, note: str | None) -> Iterator[str]:
    told = w.differences(comparison)
    for text in [text for voids, text in told if voids][:4]:
        yield f"**Unfair:** {md.escape(text)}"
    yield f"### {md.escape(w.headline(comparison))}"
    if comparison.step.verdict != "cannot-tell":
        yield md.escape(t.sentence(comparison.step.reason)) + "."
    if note:
        yield md.escape(t.shorten(t.clean(note), _TITLE))
    yield from md.conditions(comparison.gates)
    if comparison.promises:
        yield md.escape(w.promise(comparison.promises))
    yield f"Findings: {md.escape(w.counted(comparison))}."
    first = [one for one in comparison.findings if one.status in _FIRST]
    if first:
        yield _table(first[:_ROWS])
    if len(first) > _ROWS:
        yield f"and {t.count(len(first) - _ROWS, 'more finding')} below."


def _table(findings: list[FindingChange]) -> str:
    rows = [
        [
            f"**{w.STATUS_WORDS[one.status]}**" if one.status in ("new", "worse") else w.STATUS_WORDS[one.status],
            md.escape(t.shorten(t.sentence(one.finding.title), _TITLE)),
            w.saving(one).replace("<", "\\<"),
            md.code(w.place(one.finding) or ""),
        ]
        for one in findings
    ]
    return md.table(["", "Finding", "Saving per step", "Where"], rows)


def _folded(comparison: Comparison) -> Iterator[str]:
    yield from _promises(comparison)
    for one in comparison.worsened:
        yield md.details(f"{w.STATUS_WORDS[one.status].capitalize()}: {t.sentence(one.finding.title)}", _advice(one))
    yield from _parts(comparison)
    yield from _kernels(comparison)
    yield from _findings(comparison)
    yield from _configuration(comparison)
    if comparison.notices:
        lines = [f"- {md.escape(t.sentence(one.message))} {md.code(one.code)}" for one in comparison.notices[:20]]
        yield md.details(f"Notices ({len(comparison.notices)})", ["\n".join(lines)])
    sides = [f"- {label}: {md.escape(w.side(side))}" for label, side in (("base", comparison.base), ("head", comparison.head))]
    yield md.details("What was compared", ["\n".join([*sides, f"- advisor {md.escape(comparison.version)}"])])


def _promises(comparison: Comparison) -> Iterator[str]:
    promises = comparison.promises
    if not promises:
        return
    lines = [
        f"- {md.escape(t.sentence(one.title))} ({md.code(one.rule)}): {md.escape(t.saving_short(one.saving, promises.step_ns))}"
        for one in promises.findings[:20]
    ]
    basis = w.promise_basis(promises)
    yield md.details("Promised and obtained", ["\n".join(lines), *([md.escape(basis)] if basis else [])])


def _advice(one: FindingChange) -> Iterator[str]:
    finding = one.finding
    yield f"Saves {w.saving(one)}. {t.confidence(finding)}. Rule {md.code(finding.rule)}.".replace("<", "\\<")
    if place := w.place(finding):
        yield f"In your code: {md.code(place)}"
    for fix in finding.fixes[:1]:
        yield f"**Fix:** {md.escape(t.shorten(t.clean(fix.title), _TITLE))}"
        if fix.snippet.strip():
            yield md.block(fix.snippet, fix.language)


def _parts(comparison: Comparison) -> Iterator[str]:
    parts = w.parts(comparison)
    if not parts:
        return
    rows = [
        [
            md.escape(w.part_name(one)),
            w.amount(one.base_ns),
            w.amount(one.head_ns),
            w.signed(one.head_ns - one.base_ns),
            "" if one.changed else "within noise",
        ]
        for one in parts[:30]
    ]
    table = md.table(["Part", "Base", "Head", "Change", ""], rows, right=[1, 2, 3])
    yield md.details("Where the step changed (as recorded, mean over GPUs)", [table])


def _kernels(comparison: Comparison) -> Iterator[str]:
    found = comparison.kernels
    if found is None:
        return
    listed = [*((f"all {one.name}", one) for one in found.classes if one.changed)]
    listed += [(w.kernel_name(one), one) for one in found.kernels[:_KERNELS]]
    rows = [[md.code(name, 90), w.amount(one.base_ns), w.amount(one.head_ns), w.kernel_state(one)] for name, one in listed]
    counts = f"{found.slower} slower, {found.faster} faster, {found.new} new, {found.gone} gone"
    body = md.table(["Kernel", "Base", "Head", "Change"], rows, right=[1, 2, 3]) if rows else "None changed beyond noise."
    yield md.details(f"Kernels: {counts}", [body])


def _findings(comparison: Comparison) -> Iterator[str]:
    listed = [one for one in comparison.findings if one.status in _FIRST][:_ROWS]
    rest = [one for one in comparison.findings if one.status not in ("new", "worse") and one not in listed]
    if not rest:
        return
    rows = [
        [
            w.STATUS_WORDS[one.status],
            md.escape(t.shorten(t.sentence(one.finding.title), _TITLE)),
            w.saving(one).replace("<", "\\<"),
            md.escape(t.shorten(w.why(one), 200)),
        ]
        for one in rest[:60]
    ]
    more = [f"and {t.count(len(rest) - 60, 'more finding')}."] if len(rest) > 60 else []
    yield md.details(f"Other findings ({len(rest)})", [md.table(["", "Finding", "Saving per step", ""], rows), *more])


def _configuration(comparison: Comparison) -> Iterator[str]:
    told = w.differences(comparison)
    if told:
        yield md.details(
            f"Differences of configuration ({len(told)})", ["\n".join(f"- {md.escape(text)}" for _, text in told[:40])]
        )
