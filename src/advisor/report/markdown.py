"""The report as Markdown for a pull-request comment or an issue: a short first screen, everything else folded."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from advisor.model import Evidence, Finding, Fix, Report, Verdict
from advisor.report import gates
from advisor.report import text as t
from advisor.report.gpu_table import COLUMNS, MOST_ROWS, gpu_rows
from advisor.report.style import Style
from advisor.report.summary import alerts, limits, parts, run_facts, unjudged, verdict

LIMIT = 60_000  # characters; comments on common code hosts end at 65,536
_ROWS, _CELL, _TITLE, _SNIPPET = 20, 160, 400, 4000
_IN_TABLE = 30  # findings in the table on the first screen
_ESCAPED = re.compile(r"([\\`*_\[\]<>|~$&])")
_BLOCK_START = re.compile(r"^(?=[-+=#])|^\d+(?=[.)](?:\s|$))")


def render(report: Report, style: Style | None = None) -> str:
    """Below `LIMIT` characters; what does not fit is left out, and the text says so."""
    return document(report, style.note if style else None)


def document(report: Report, note: str | None = None, limit: int = LIMIT, in_table: int = _IN_TABLE) -> str:
    """The same below another limit, with at most `in_table` findings on the first screen. note: a line below the verdict."""
    main, also = t.sections(report)
    findings = gates.standing(report, main + also)
    first = [
        f"### {escape(verdict(report))}",
        *(f"**{escape(text)}**" for text in alerts(report)),
        *([escape(t.shorten(t.clean(note), _TITLE))] if note else []),
        *conditions(report.gates),
        *_overview(findings, report.step_ns, in_table, t.per_step(report)),
    ]
    folded = [
        *_baseline(report),
        *_breakdown(report),
        *(_finding(number, finding, report.step_ns, t.per_step(report)) for number, finding in enumerate(findings, 1)),
        *_good_news(report),
        *_gpus(report),
        *_limits(report),
        *_not_judged(report),
        *_notices(report),
        *_run(report),
    ]
    return joined([*first, *folded], limit)


def joined(blocks: Iterable[str], limit: int = LIMIT) -> str:
    """Blocks one after another as long as they fit; blocks are whole, so leaving one out breaks nothing."""
    parts, left_out = [], 0
    room = limit - 300  # for the sentence at the end
    for block in blocks:
        size = length(block) + 2
        if size > room:
            left_out += 1
        else:
            parts.append(block + "\n\n")
            room -= size
    text = "".join(parts)
    if left_out:
        text += f"_{t.count(left_out, 'part')} left out to keep this below {limit:,} characters. "
        text += "`advisor analyze` on the same files prints all of it._\n\n"
    return text.rstrip("\n") + "\n"


def length(text: str) -> int:
    """Characters as code hosts count them: of UTF-16, where an emoji is two."""
    return len(text) + sum(character > "\uffff" for character in text)


def escape(text: object) -> str:
    """One line that reads as the text. Only pairs of backticks keep their meaning; nobody is mentioned, nothing links."""
    pieces = re.split(r"(?<!`)`([^`]+)`(?!`)", t.clean(text).strip())
    escaped = [code(piece) if i % 2 else _escape(piece) for i, piece in enumerate(pieces)]
    return _BLOCK_START.sub(r"\g<0>\\", "".join(escaped))


def _escape(text: str) -> str:
    return _unlinked(_ESCAPED.sub(r"\\\1", text).replace("://", "\\://").replace("www.", "www\\."))


def _unlinked(text: str) -> str:
    """Code hosts turn @name and #12 into links to people and issues: an empty comment keeps the two apart."""
    return re.sub(r"([@#])(?=\w)", r"\1<!-- -->", text)


def code(text: object, limit: int = _CELL) -> str:
    """Inline code; also inside a table, where `|` would end the cell."""
    content = t.shorten(t.clean(text), limit).strip()
    if not content:
        return ""
    fence = "`" * (max(map(len, re.findall("`+", content)), default=0) + 1)
    padding = " " if content.startswith("`") or content.endswith("`") else ""
    return f"{fence}{padding}{content}{padding}{fence}".replace("|", "\\|")


def block(text: str, language: str) -> str:
    """A fenced block whose fence is longer than any inside."""
    lines = t.clean_block(text[:_SNIPPET])
    fence = "`" * max(max((len(run) for line in lines for run in re.findall("`+", line)), default=0) + 1, 3)
    name = language if re.fullmatch(r"[\w+-]{1,20}", language) else ""
    return "\n".join([fence + name, *lines, fence])


def table(columns: list[str], rows: list[list[str]], right: Iterable[int] = ()) -> str:
    """Cells are Markdown already."""
    right = set(right)
    rule = ["--:" if i in right else "---" for i in range(len(columns))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [columns, rule, *rows])


def details(summary: str, body: Iterable[str]) -> str:
    """A folded block. The summary is plain text."""
    text = _unlinked(html.escape(t.shorten(t.clean(summary), _TITLE)))
    return "\n\n".join([f"<details><summary>{text}</summary>", *body, "</details>"])


def conditions(verdict: Verdict | None) -> Iterator[str]:
    """What fails stands on the first screen, the other conditions are folded."""
    if not verdict or not verdict.conditions:
        return
    rows = gates.rows(verdict)
    lines = [[row.state, escape(row.text), escape(row.origin or "")] for row in rows[:_ROWS]]
    shown = sum(row.fails for row in rows[:_ROWS])
    columns = ["State", "Condition", "Set in"]
    headline = escape(t.sentence(gates.headline(verdict)))
    if shown:
        yield f"**{headline}**"
        yield table(columns, lines[:shown])
    if rest := lines[shown:]:
        more = [f"and {t.count(len(rows) - _ROWS, 'more condition')}."] if len(rows) > _ROWS else []
        yield details(t.sentence(gates.headline(verdict)) if not shown else "Other conditions", [table(columns, rest), *more])


def _baseline(report: Report) -> Iterator[str]:
    verdict = report.gates
    entries = gates.entries(verdict) if verdict else []
    if not verdict or not entries:
        return
    lines = [f"- {row.state}: {escape(row.text)}" for row in entries[:_IN_TABLE]]
    if len(entries) > _IN_TABLE:
        lines.append(f"- and {t.count(len(entries) - _IN_TABLE, 'more entry', 'more entries')}")
    advice = gates.advice(verdict)
    counted = t.count(len(entries), "accepted finding")
    yield details(f"Baseline: {counted}", ["\n".join(lines), *([escape(t.sentence(advice))] if advice else [])])


def _overview(findings: list[Finding], step_ns: int | None, most: int, per: str) -> Iterator[str]:
    if not findings:
        return
    rows = []
    for number, finding in enumerate(findings[:most], 1):
        title = escape(t.shorten(t.sentence(finding.title), _TITLE))
        saving = t.saving_short(finding.saving, step_ns).replace("<", "\\<")
        rows.append([str(number), title, saving, finding.severity, finding.confidence])
    yield table(["#", "Finding", t.saving_title(per), "Severity", "Confidence"], rows, right=[0])
    if len(findings) > most:
        yield f"and {t.count(len(findings) - most, 'more finding')} below."


def _finding(number: int, finding: Finding, step_ns: int | None, per: str) -> str:
    return details(f"{number}. {t.sentence(finding.title)}", _finding_body(finding, step_ns, per))


def _finding_body(finding: Finding, step_ns: int | None, per: str) -> Iterator[str]:
    saving = finding.saving
    promise = f"Saves **{t.saving_long(saving, step_ns, per)}**. ".replace("<", "\\<") if saving else ""
    worth = f"Worth **{t.money(finding.cost_per_day)} a day**. ".replace("<", "\\<") if finding.cost_per_day else ""
    yield f"{promise}{worth}{t.confidence(finding)}. Rule {code(finding.rule)}."
    if finding.alternative_to:
        yield f"Competes for the same time as {code(finding.alternative_to)}: mend one of them."
    for evidence in finding.evidence[:4]:
        if evidence.columns:
            yield from _evidence(evidence)
    if finding.locations:
        places = []
        for location in finding.locations[:_ROWS]:
            share = "" if location.share is None else f" ({t.percent(location.share)})".replace("<", "\\<")
            places.append(f"- {code(t.place(location.file, location.line, location.function))}{share}")
        yield "In your code:"
        yield "\n".join(places)
    for i, fix in enumerate(finding.fixes[:6]):
        yield from _fix(fix, "Fix" if i == 0 else "Or")
    if finding.caveats:
        yield "\n".join(f"- Note: {escape(caveat)}" for caveat in finding.caveats[:_ROWS])


def _evidence(evidence: Evidence) -> Iterator[str]:
    evidence = t.evidence_table(evidence)
    columns = evidence.columns[:12]
    rows, right = [], set(range(len(columns)))
    for row in evidence.rows[:_ROWS]:
        cells = []
        for i, (column, value) in enumerate(zip(columns, row, strict=False)):
            text = t.cell(column, value)
            if value is not None and not isinstance(value, (int, float)):
                right.discard(i)
                cells.append(code(text))
            else:
                cells.append(text.replace("<", "\\<"))
        rows.append(cells + [""] * (len(columns) - len(cells)))
    yield escape(t.sentence(evidence.caption))
    yield table([escape(t.heading(column)) for column in columns], rows, right)
    if len(evidence.rows) > _ROWS:
        yield f"and {t.count(len(evidence.rows) - _ROWS, 'more row')}."


def _fix(fix: Fix, label: str) -> Iterator[str]:
    kind = t.fix_kind(fix)
    yield f"**{label}:** {escape(t.shorten(t.clean(fix.title), _TITLE))}" + (f" ({escape(kind)})" if kind else "")
    if fix.snippet.strip():
        yield block(fix.snippet, fix.language)
    notes = [f"- Note: {escape(caveat)}" for caveat in fix.caveats[:_ROWS]]
    notes += [f"- See: {_link(reference)}" for reference in fix.references[:_ROWS]]
    if notes:
        yield "\n".join(notes)


def _link(reference: str) -> str:
    return f"<{reference}>" if re.fullmatch(r"https://[\w./#?=&%~+:-]+", reference) else escape(reference)


def _breakdown(report: Report) -> Iterator[str]:
    shown = [part for part in report.breakdown if part.step_ns > 0][:_ROWS]
    if not shown:
        return
    split = [parts(part) for part in shown]
    names = [name for name in {**t.BUSY_PARTS, **t.IDLE_CAUSES} if any(shares.get(name, 0) for shares in split)]
    rows = []
    for name in names:
        words = t.BUSY_PARTS.get(name) or f"idle: {t.IDLE_CAUSES[name]}"
        amounts = [shares.get(name, 0) for shares in split]
        texts = [f"{t.duration(ns)}, {t.percent(ns / part.step_ns)}" for ns, part in zip(amounts, shown, strict=True)]
        rows.append([words, *(text.replace("<", "\\<") for text in texts)])
    labels = ["GPU" if part.rank is None else f"rank {part.rank}, GPU" for part in shown]
    columns = ["Part", *(f"{label} {part.device}" for label, part in zip(labels, shown, strict=True))]
    body = [table(columns, rows, right=range(1, len(columns)))]
    if len(shown) < len(report.breakdown):
        body.append(f"and {t.count(len(report.breakdown) - len(shown), 'more GPU')}.")
    longest = max(part.step_ns for part in shown)
    yield details(f"{t.breakdown_title(t.per_step(report))} ({t.duration(longest, 3)} as recorded)", body)


def _good_news(report: Report) -> Iterator[str]:
    news = report.extra.get("good_news")
    if isinstance(news, (list, tuple)) and news:
        yield details("Already good", ["\n".join(f"- {escape(line)}" for line in news[:_ROWS])])


def _gpus(report: Report) -> Iterator[str]:
    rows = [[escape(cell) for cell in row] for row in gpu_rows(report)[:MOST_ROWS]]
    if rows:
        yield details("GPUs in the samples", [table(COLUMNS, rows, right=range(len(COLUMNS)))])


def _limits(report: Report) -> Iterator[str]:
    lines = [f"- {'good: ' if good else ''}{escape(line)}" for good, line in limits(report)[:_ROWS]]
    if lines:
        yield details("Against the limits of the GPU", ["\n".join(lines)])


def _not_judged(report: Report) -> Iterator[str]:
    groups = unjudged(report.rules)
    if not groups:
        return
    rows = [
        [", ".join(code(name) for name in names), escape(reason), "<br>".join(code(capture, 400) for capture in captures)]
        for reason, captures, names in groups
    ]
    number = sum(len(names) for _, _, names in groups)
    yield details(
        f"Not judged: {number} of {t.count(len(report.rules), 'rule')}",
        [table(["Rules", "Why not", "What would let them"], rows)],
    )


def _notices(report: Report) -> Iterator[str]:
    if report.notices:
        lines = [
            f"- {escape(t.shorten(t.sentence(notice.message), 1000))} ({code(notice.code)})" for notice in report.notices[:50]
        ]
        yield details(f"Notices: {len(report.notices)}", ["\n".join(lines)])


def _run(report: Report) -> Iterator[str]:
    rows = [[label, "<br>".join(escape(line) for line in lines)] for label, lines in run_facts(report)]
    rows.append(["advisor", escape(report.version)])
    yield details("What was read", [table(["", ""], rows)])
