"""Where the time of one analysis goes: reading, each rule the first time (with the derived facts it is the first to ask for)
and again (alone, every fact known), the rest of the report.

    python benchmarks/rules.py export.sqlite
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

from advisor.ingest import load
from advisor.rules import engine
from advisor.rules.catalogue import catalogue

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    begin = time.perf_counter()
    return work(), time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--least", type=float, default=0.005, help="rules that take less than so many seconds are summed up")
    options = parser.parse_args()
    run, seconds = timed(lambda: load(options.paths))
    print(f"{seconds:8.3f} s  reading ({sum(map(len, run.tables.values())):,} rows)")
    entries, _ = catalogue(())
    rows = []
    for entry in entries:
        judged, first = timed(lambda entry=entry: engine.judge(run, entry))
        _, again = timed(lambda entry=entry: engine.judge(run, entry))
        rows.append((first, again, entry.rule.id, judged.outcome))
    print("   first     again")
    for first, again, name, outcome in sorted(rows, reverse=True):
        if first >= options.least:
            print(f"{first:8.3f}  {again:8.3f}  {name} ({outcome})")
    rest = [row for row in rows if row[0] < options.least]
    print(f"{sum(r[0] for r in rest):8.3f}  {sum(r[1] for r in rest):8.3f}  {len(rest)} others")
    _, seconds = timed(lambda: engine.analyze(run))
    print(f"{seconds:8.3f} s  the whole analysis once more, every fact known")


if __name__ == "__main__":
    main()
