"""How true are the promises: recordings of loops that were measured with and without a fault, judged and compared.

    python benchmarks/accuracy.py FOLDER [FOLDER ...] [--markdown docs/accuracy.md]

Each FOLDER holds one folder a loop with `truth.json` (planted rules, measured gains), `before/` and `after/` with
`trace_light*.json.gz`, `trace_full*.json.gz` or `nsys*.sqlite.gz` and `measure*.json` (unprofiled step time of the process
that was recorded). The page's table is written between its marks.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.api import analyze, load
from advisor.derive.profiler_cost import STRENGTH
from advisor.model import Run
from advisor.replay.changes import amounts
from advisor.replay.engine import replay
from advisor.replay.execute import step_ns

BEGIN, END = "<!-- generated: begin -->\n", "<!-- generated: end -->\n"
KINDS = {"light": "trace_light*.json.gz", "full": "trace_full*.json.gz", "nsys": "nsys*.sqlite.gz"}
# Strengths among which the leave-one-loop-out check chooses.
GRID = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3)


@dataclass(frozen=True)
class Case:
    """One recording. measured: shares of the step that the fix saved, one a repeat; low, expected, high: promised.

    own_ns: unprofiled step of the recorded process; told_ns: the report's; steps: replayed step by profiler strength.
    """

    loop: str
    side: str
    kind: str
    bound: str
    planted: list[str]
    found: str | None
    first: bool
    measured: list[float]
    low: float
    expected: float
    high: float
    own_ns: float | None
    told_ns: float | None
    replay_error: float | None
    steps: dict[float, float]

    @property
    def step_error(self) -> float | None:
        return abs(self.told_ns / self.own_ns - 1) if self.own_ns and self.told_ns else None

    @property
    def saving_error(self) -> float:
        """How far what is left of the step is from what was left: |ln(left promised / left measured)|."""
        left = max(1 - statistics.mean(self.measured), 0.02)
        return abs(math.log(max(1 - self.expected, 0.02) / left))


def cases(folder: Path) -> Iterator[Case]:
    for truth_file in sorted(folder.glob("*/truth.json")):
        truth = json.loads(truth_file.read_text())
        for side in ("before", "after"):
            for kind, pattern in KINDS.items():
                paths = sorted((truth_file.parent / side).glob(pattern))
                # Where the gain is one per item and not per step, no saving of a step compares with it.
                if paths and not truth.get("bound_only"):
                    print(f"{truth['scenario']} {side} {kind}", file=sys.stderr)
                    yield _case(truth_file.parent, truth, side, kind, paths)


def _case(folder: Path, truth: dict[str, Any], side: str, kind: str, paths: list[Path]) -> Case:
    run = load(paths)
    report = analyze(run)
    planted = [f for f in report.findings if f.rule in truth["rules"] and f.saving is not None]
    best = max(planted, key=lambda f: f.saving.expected_ns, default=None)
    shares = best.saving.to_dict(report.step_ns) if best else {}
    others = set(truth.get("also_true", [])) - set(truth["rules"])
    ranked = [f.rule for f in report.findings if f.rule not in others]
    own = next(iter(sorted((folder / side).glob("measure*.json"))), None)
    steady = truth.get("steady_step", True) and own is not None
    return Case(
        loop=truth["scenario"],
        side=side,
        kind=kind,
        bound=(truth.get("bound") or {}).get(side, "?"),
        planted=truth["rules"],
        found=best.rule if best else None,
        first=bool(ranked) and ranked[0] in truth["rules"],
        measured=truth["measured_gain_frac"],
        low=shares.get("low_frac") or 0.0,
        expected=shares.get("expected_frac") or 0.0,
        high=shares.get("high_frac") or 0.0,
        own_ns=json.loads(own.read_text())["step_ms_free"] * 1e6 if own is not None and steady else None,
        told_ns=report.step_ns if steady else None,
        replay_error=(report.run.get("replay") or {}).get("error_frac"),
        steps=_by_strength(run) if steady else {},
    )


def _by_strength(run: Run) -> dict[float, float]:
    again = replay(run)
    if again is None or not again.usable:
        return {}
    return {s: step_ns(again.graphs, [amounts(graph, s) for graph in again.graphs]) for s in GRID}


def page(found: list[Case]) -> str:
    """Tables of promised against measured savings, step times, replays, and what leaving a loop out changes."""
    gained = [c for c in found if c.side == "before" and c.measured and min(c.measured) >= 0.05 and c.planted]
    parts = ["### Savings\n", *_savings(gained), "\n### Step time without the profiler\n", *_steps(found)]
    parts += ["\n### Unchanged replay\n", *_replays(found)]
    return "\n".join(parts) + "\n"


def _savings(gained: list[Case]) -> list[str]:
    rows = ["| loop | recording | rule | measured | promised | range | off by | in range |", "|---|---|---|---|---|---|---|---|"]
    for c in gained:
        measured = " to ".join(dict.fromkeys(f"{share:.0%}" for share in (min(c.measured), max(c.measured))))
        held = c.low - 0.03 <= max(c.measured) and c.high + 0.03 >= min(c.measured)
        rows.append(
            f"| {c.loop} | {c.kind} | {c.found or 'not found: ' + c.planted[0]} | {measured} | {c.expected:.0%} "
            f"| {c.low:.0%} to {c.high:.0%} | {c.saving_error:.2f} | {'yes' if held else 'no'} |"
        )
    errors = [c.saving_error for c in gained]
    if errors:
        first = sum(c.first for c in gained)
        rows.append(
            f"\nPlanted cause first in {first} of {len(gained)} recordings. Median error {statistics.median(errors):.2f} "
            "(natural logarithm of what is left of the step, promised over measured)."
        )
    return rows


def _steps(found: list[Case]) -> list[str]:
    rows = [
        "| recording | the loop is bound by | recordings | median error | worst | leaving each loop out |",
        "|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for bound in ("gpu", "host"):
            some = [c for c in found if c.kind == kind and c.bound == bound and c.step_error is not None]
            if some:
                errors = [c.step_error for c in some if c.step_error is not None]
                left = _leave_one_out([c for c in found if c.kind == kind and c.steps and c.own_ns], bound)
                rows.append(
                    f"| {kind} | {bound} | {len(some)} | {statistics.median(errors):.1%} | {max(errors):.0%} | "
                    f"{'-' if left is None else f'{left:.1%}'} |"
                )
    rows.append(
        "\nThe last column chooses the strength of the profiler anew for each loop from all other loops, and gives the median "
        f"error on the loops left out; the program uses {STRENGTH} throughout."
    )
    return rows


def _leave_one_out(some: list[Case], bound: str) -> float | None:
    """Median step error where each loop is judged with the strength that suits the others best."""
    errors = []
    for loop in sorted({c.loop for c in some}):
        others = [c for c in some if c.loop != loop]
        if not others:
            return None
        best = min(GRID, key=lambda s: statistics.median(abs(c.steps[s] / (c.own_ns or 1) - 1) for c in others))
        errors += [abs(c.steps[best] / (c.own_ns or 1) - 1) for c in some if c.loop == loop and c.bound == bound]
    return statistics.median(errors) if errors else None


def _replays(found: list[Case]) -> list[str]:
    errors = sorted(c.replay_error for c in found if c.replay_error is not None)
    if not errors:
        return ["No recording could be replayed."]
    return [
        f"{len(errors)} recordings: median {statistics.median(errors):.2%}, 90th percentile "
        f"{errors[int(0.9 * (len(errors) - 1))]:.2%}, worst {errors[-1]:.1%}. Above 5 % savings are bounds."
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--markdown", type=Path, help="page to write the tables into")
    options = parser.parse_args()
    text = page([case for folder in options.folders for case in cases(folder)])
    if options.markdown is None:
        print(text)
        return
    whole = options.markdown.read_text("utf-8")
    before, _, rest = whole.partition(BEGIN)
    options.markdown.write_text(before + BEGIN + text + END + rest.partition(END)[2], "utf-8")


if __name__ == "__main__":
    main()
