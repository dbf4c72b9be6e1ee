"""Comparisons of recorded loops with and without a fault, and of recordings with themselves: which verdicts come out.

    python benchmarks/compare.py FOLDER [FOLDER ...] [--markdown docs/compare.md] [--only NAME]

Each FOLDER holds one folder a loop as `benchmarks/accuracy.py` reads them. Each loop is compared before against after and
swapped, in light and in full recordings, and the steps of each light recording are split in halves, which must show no change.
The page's table is written between its marks; the exit status is 1 if a verdict contradicts what was measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.api import Options, analyze, load
from advisor.comparing import Recording, compare
from advisor.model import Report, Run
from advisor.model.comparison import Comparison
from advisor.rules.promise import promised_together

BEGIN, END = "<!-- generated: begin -->\n", "<!-- generated: end -->\n"
KINDS = {"light": "trace_light*.json.gz", "full": "trace_full*.json.gz"}
PLAIN = {"faster": "faster", "slower": "slower", "no-measurable-change": "no change", "cannot-tell": "cannot tell"}
CERTAIN = 0.45  # measured gain in every repeat from which on single recordings must tell it


@dataclass(frozen=True)
class Pair:
    """One loop in one kind of recording. gains: measured shares saved; there, back: before against after, and swapped.

    halves: the verdict on the halves of each side's own steps, where there are enough.
    """

    loop: str
    kind: str
    planted: list[str]
    gains: list[float]
    per_item: bool
    there: Comparison
    back: Comparison
    halves: list[str]

    def state(self, comparison: Comparison) -> str:
        """What became of the planted finding: that of its rules which moved most."""
        found = {one.status for one in comparison.findings if one.finding.rule in self.planted}
        order = ("gone", "new", "better", "worse", "faded", "uncovered", "not-judged", "first-judged", "same", "folded")
        return next((status for status in order if status in found), "-")

    @property
    def wrong(self) -> list[str]:
        """Contradictions to what was measured."""
        found = []
        if self.per_item:
            return found
        low, high = (min(self.gains), max(self.gains)) if self.gains else (0.0, 0.0)
        if self.there.step.verdict == "slower" or self.back.step.verdict == "faster":
            found.append("the sign is wrong")
        # Stacks and shapes slow the host up to five times: what such a recording cannot tell, a light one must.
        if low >= CERTAIN and self.kind == "light" and self.there.step.verdict != "faster":
            found.append("a certain gain is not seen")
        if high < 0.03 and self.there.step.verdict == "faster":
            found.append("a gain where none was measured")
        if any(verdict in ("faster", "slower") for verdict in self.halves):
            found.append("halves of one recording differ")
        return found


def pairs(folder: Path, only: str | None) -> Iterator[Pair]:
    for truth_file in sorted(folder.glob("*/truth.json")):
        truth = json.loads(truth_file.read_text())
        if only and truth["scenario"] != only:
            continue
        for kind, pattern in KINDS.items():
            before, after = (sorted((truth_file.parent / side).glob(pattern)) for side in ("before", "after"))
            if before and after:
                print(f"{truth['scenario']} {kind}", file=sys.stderr)
                yield _pair(truth, kind, before, after)


def _pair(truth: dict[str, Any], kind: str, before: list[Path], after: list[Path]) -> Pair:
    first, second = load(before), load(after)
    one, other = analyze(first), analyze(second)
    per_item = truth.get("before_items", [1])[0] != truth.get("after_items", [1])[0]
    if per_item:
        for report, items in ((one, truth["before_items"][0]), (other, truth["after_items"][0])):
            report.extra["throughput"] = {"items_per_step": items}
    halves = [verdict for paths in (before, after) for verdict in _halves(paths)] if kind == "light" else []
    return Pair(
        truth["scenario"],
        kind,
        truth["rules"],
        truth["measured_gain_frac"],
        per_item,
        _compared(first, one, other),
        _compared(second, other, one),
        halves,
    )


def _compared(run: Run, base: Report, head: Report) -> Comparison:
    """With the replay of several promises, as the command makes it."""
    found = compare([Recording("base", base)], [Recording("head", head)])
    if found.promises is None or len(found.promises.findings) < 2:
        return found
    together = promised_together(run, base, {one.fingerprint for one in found.promises.findings})
    return compare([Recording("base", base, together)], [Recording("head", head)])


def _halves(paths: list[Path]) -> list[str]:
    count = ((analyze(load(paths)).run.get("steps") or {}).get("count")) or 0
    if count < 8:
        return []
    middle = (count + 1) // 2
    sides = [analyze(load(paths, Options(steps=part))) for part in ((1, middle), (middle, count))]
    return [compare([Recording("first", sides[0])], [Recording("second", sides[1])]).step.verdict]


COLUMNS = (
    "loop",
    "recording",
    "measured gain",
    "verdict",
    "ratio (95 %)",
    "planted finding",
    "promised",
    "obtained",
    "promise",
    "swapped",
    "halves",
)


def page(found: list[Pair]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}", *map(_row, found)]
    halves = [verdict for one in found for verdict in one.halves]
    moved = sum(verdict in ("faster", "slower") for verdict in halves)
    wrong = [f"{one.loop} {one.kind}: {', '.join(one.wrong)}" for one in found if one.wrong]
    told = f"{moved} of {len(halves)} recordings are called faster or slower in one half of their steps than in the other."
    return "\n".join([*lines, "", told, f"Contradictions to what was measured: {'; '.join(wrong) or 'none'}."]) + "\n"


def _row(one: Pair) -> str:
    step, promises = one.there.step, one.there.promises
    promised = obtained = kept = ""
    if promises is not None:
        whole, kept = promises.step_ns, promises.kept
        promised = f"{promises.together.low_ns / whole:.0%} to {promises.together.high_ns / whole:.0%}"
        if promises.obtained_low_ns is not None and promises.obtained_high_ns is not None:
            obtained = f"{promises.obtained_low_ns / whole:.0%} to {promises.obtained_high_ns / whole:.0%}"
    gains = f"{min(one.gains):.0%} to {max(one.gains):.0%}" if one.gains else "none"
    cells = [
        one.loop,
        one.kind,
        gains + (" an item" if one.per_item else ""),
        PLAIN[step.verdict],
        "" if step.ratio is None else f"{step.ratio:.2f} ({step.low:.2f} to {step.high:.2f})",
        one.state(one.there),
        promised,
        obtained,
        kept,
        f"{PLAIN[one.back.step.verdict]}, {one.state(one.back)}",
        ", ".join(PLAIN[verdict] for verdict in one.halves),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    found = [pair for folder in arguments.folders for pair in pairs(folder, arguments.only)]
    text = page(found)
    print(text)
    if arguments.markdown:
        before, _, rest = arguments.markdown.read_text("utf-8").partition(BEGIN)
        arguments.markdown.write_text(before + BEGIN + text + END + rest.partition(END)[2], "utf-8")
    return 1 if any(pair.wrong for pair in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
