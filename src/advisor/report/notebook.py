"""How a report and a run show in a notebook: a piece of HTML without script, readable on light and dark pages.

All text is escaped. Colours are of the middle, or half transparent, so that they stand on any background; everything that they
say is also said in words.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from advisor.model import Breakdown, Finding, Report, Run
from advisor.report import text as t
from advisor.report.colors import PARTS as COLORS
from advisor.report.summary import parts, run_facts, verdict

MOST_FINDINGS = 20
MOST_ROWS = 12
MOST_BARS = 8
_STYLE = (
    ".advisor{font-size:13px;line-height:1.45;max-width:64em;color:inherit}"
    ".advisor p{margin:.4em 0}"
    ".advisor table{border-collapse:collapse;margin:.4em 0;background:none;color:inherit;font-size:inherit}"
    ".advisor th,.advisor td{text-align:left;padding:.15em .8em .15em 0;border:0;border-bottom:1px solid rgba(128,128,128,.35);"
    "background:none;color:inherit;vertical-align:top}"
    ".advisor td.n{text-align:right;white-space:nowrap}"
    ".advisor pre{background:rgba(128,128,128,.14);color:inherit;padding:.5em;margin:.4em 0;white-space:pre-wrap}"
    ".advisor summary{cursor:pointer}"
    ".advisor .bar{display:flex;height:1.1em;width:100%;background:rgba(128,128,128,.14)}"
    ".advisor .bar span{display:block;height:100%}"
    ".advisor .key{display:inline-block;width:.8em;height:.8em;margin-right:.3em}"
    ".advisor .weak{opacity:.75}"
)


def report_page(report: Report) -> str:
    """The verdict, where the step goes, and the findings with their fixes folded."""
    shown = report.findings[:MOST_FINDINGS]
    blocks = [
        f"<p><strong>{escape(verdict(report))}</strong></p>",
        _facts(run_facts(report)),
        _bars(report.breakdown),
        *([_findings(shown, report.step_ns)] if shown else []),
    ]
    if len(report.findings) > len(shown):
        blocks.append(f"<p class='weak'>and {len(report.findings) - len(shown)} more: <code>report.frame()</code></p>")
    judged = sum(rule.outcome in ("found", "clean") for rule in report.rules)
    blocks.append(
        f"<p class='weak'>{judged} of {t.count(len(report.rules), 'rule')} judged: <code>report.frame('rules')</code></p>"
    )
    return _page(blocks)


def run_page(run: Run) -> str:
    """What was read: recordings, GPUs and tables, with how to get at them."""
    sources = [
        [t.clean(t.file_name(trace.path)), t.FORMAT_NAMES.get(trace.format, t.clean(trace.format)), _rank(trace.rank)]
        for trace in run.traces[:MOST_ROWS]
    ]
    tables = sorted(
        ((name, len(table)) for name, table in run.tables.items() if len(table)), key=lambda pair: (-pair[1], pair[0])
    )
    devices = list(dict.fromkeys(t.clean(device.name) for device in run.devices if device.name))
    blocks = [
        f"<p><strong>{t.count(len(run.traces), 'recording')}</strong>"
        + (f" on {escape(t.join(devices[:4]))}" if devices else "")
        + (f", ranks {escape(', '.join(_rank(rank) for rank in run.ranks[:MOST_ROWS]))}" if len(run.ranks) > 1 else "")
        + "</p>",
        _table(["file", "kind", "rank"], sources),
        *([f"<p class='weak'>and {len(run.traces) - MOST_ROWS} more files</p>"] if len(run.traces) > MOST_ROWS else []),
        _table(["table", "rows", "as a DataFrame"], [[name, f"{rows:,}", f"run.frame({name!r})"] for name, rows in tables], {1}),
        "".join(f"<p class='weak'>{escape(t.sentence(notice.message))}</p>" for notice in run.notices[:MOST_ROWS]),
    ]
    return _page(blocks)


def _page(blocks: Iterable[str]) -> str:
    return f"<style>{_STYLE}</style><div class='advisor'>{''.join(blocks)}</div>"


def _rank(rank: int | None) -> str:
    return "" if rank is None else str(rank)


def _facts(facts: list[tuple[str, list[str]]]) -> str:
    rows = [[label, "; ".join(lines)] for label, lines in facts]
    return f"<details><summary>What was read</summary>{_table(['', ''], rows)}</details>" if rows else ""


def _table(columns: list[str], rows: list[list[str]], right: Iterable[int] = ()) -> str:
    if not rows:
        return ""
    numbers = set(right)
    head = "".join(f"<th>{escape(column)}</th>" for column in columns) if any(columns) else ""
    body = "".join(
        "<tr>" + "".join(f"<td{' class=n' if i in numbers else ''}>{escape(value)}</td>" for i, value in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


def _bars(breakdown: list[Breakdown]) -> str:
    """One bar a GPU, the slowest where there are many, and what the colours mean."""
    usable = sorted((part for part in breakdown if part.step_ns > 0), key=lambda part: -part.step_ns)
    if not usable:
        return ""
    longest, names = usable[0].step_ns, t.BUSY_PARTS | t.IDLE_CAUSES
    shown = sorted(usable[:MOST_BARS], key=lambda part: (-1 if part.rank is None else part.rank, part.device))
    rows, used = [], dict.fromkeys(COLORS, 0)
    for part in shown:
        pieces = []
        for name, ns in parts(part).items():
            if ns > 0:
                used[name] = max(used.get(name, 0), ns)
                title = f"{names.get(name, name)} {t.duration(ns)}, {t.percent(ns / part.step_ns)}"
                color = COLORS.get(name, COLORS["unexplained"])
                pieces.append(f"<span title='{escape(title)}' style='width:{100 * ns / longest:.3f}%;background:{color}'></span>")
        label = ("" if part.rank is None else f"rank {part.rank} ") + f"GPU {part.device}"
        rows.append(
            f"<tr><td>{escape(label)}</td><td style='width:40em'><div class='bar'>{''.join(pieces)}</div></td>"
            f"<td class=n>{escape(t.duration(part.step_ns, 3))} as recorded</td></tr>"
        )
    key = " ".join(
        f"<span style='white-space:nowrap;margin-right:1em'><span class='key' style='background:{COLORS[name]}'></span>"
        f"{escape(names[name])} {escape(t.percent(ns / longest))}</span>"
        for name, ns in used.items()
        if ns > 0 and name in COLORS
    )
    more = f"<p class='weak'>the slowest {len(shown)} of {len(usable)} GPUs</p>" if len(usable) > len(shown) else ""
    return f"<table><tbody>{''.join(rows)}</tbody></table><p>{key}</p>{more}"


def _findings(findings: list[Finding], step_ns: int | None) -> str:
    rows = []
    for number, finding in enumerate(findings, 1):
        rows.append(
            f"<tr><td class=n>{number}</td><td>{escape(finding.severity)}</td>"
            f"<td class=n>{escape(t.saving_short(finding.saving, step_ns))}</td>"
            f"<td><details><summary>{escape(t.sentence(finding.title))}</summary>{_details(finding)}</details></td></tr>"
        )
    head = "<tr><th></th><th>severity</th><th>saves a step</th><th>finding</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def _details(finding: Finding) -> str:
    blocks = [f"<p class='weak'>{escape(t.confidence(finding))}; rule {escape(t.clean(finding.rule))}</p>"]
    for place in finding.locations[:3]:
        blocks.append(f"<p><code>{escape(t.place(place.file, place.line, place.function))}</code></p>")
    for table in map(t.evidence_table, finding.evidence[:2]):
        cells = [
            [t.shorten(t.cell(column, value), 120) for column, value in zip(table.columns, row, strict=True)]
            for row in table.rows[:MOST_ROWS]
        ]
        right = [i for i in range(len(table.columns)) if all(not isinstance(row[i], str) for row in table.rows)]
        blocks.append(f"<p>{escape(t.sentence(table.caption))}</p>" + _table([t.heading(c) for c in table.columns], cells, right))
    for fix in finding.fixes[:1]:
        kind = t.fix_kind(fix)
        blocks.append(f"<p><strong>Fix: {escape(t.clean(fix.title))}</strong>{f' ({escape(kind)})' if kind else ''}</p>")
        blocks.append(f"<pre>{escape(chr(10).join(t.clean_block(fix.snippet)))}</pre>")
    for caveat in finding.caveats[:3]:
        blocks.append(f"<p class='weak'>{escape(t.sentence(caveat))}</p>")
    return "".join(blocks)
