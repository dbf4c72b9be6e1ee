"""The whole circle on measured loops: record with the hook, mend what it names, record again, promised against obtained.

    python benchmarks/circle.py --out DIR                     # on a GPU; pairs of loops from benchmarks/truth
    python benchmarks/circle.py --out DIR --only rnn_cell,vit_attention
    python benchmarks/circle.py --out DIR --cpu --tiny        # does it run

Each side of a pair runs in a process of its own with nothing but `advisor.attach` around it. Promised is what the report of the
faulty side says; obtained is the difference of the step times that the hook took outside its windows, per item of work.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "truth"))

PAIRS = (
    "rnn_cell", "metrics_to_host", "unaligned_vocabulary", "custom_activation", "vit_attention", "unpinned_copy", "inline_loader",
    "conv_fp32", "gan_optimizers", "augment_workers", "torch_augment", "moe_masks",
)  # fmt: skip
STEPS = (120, 600)  # at least and at most
SECONDS = 5.0  # in between: for so long


def child(name: str, side: str, cpu: bool, tiny: bool) -> None:
    """Train one side of a pair with the hook attached."""
    import pairs_gpu
    import pairs_host
    import torch
    from pair import Place

    import advisor

    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    pair = next(pair for pair in (*pairs_gpu.PAIRS, *pairs_host.PAIRS) if pair.name == name)
    loop = pair.build(Place(torch.device("cpu" if cpu else "cuda"), tiny), side == "before")
    loop.enter()
    with advisor.attach(schedule=advisor.Schedule(wait=40)) as recording:
        began, done = time.perf_counter(), 0
        while done < STEPS[0] or (done < STEPS[1] and time.perf_counter() - began < SECONDS):
            loop.step()
            recording.step()
            done += 1
    loop.close()
    assert recording.folder is not None
    (recording.folder / "items.json").write_text(json.dumps({"items": loop.items, "rules": pair.rules}))


def run(name: str, side: str, out: Path, flags: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(report, items) of one side. SystemExit if it failed."""
    folder = out / name / side
    command = [sys.executable, "-W", "ignore", __file__, "--child", name, "--side", side, *flags]
    done = subprocess.run(
        command, env={**os.environ, "ADVISOR_RUN_FOLDER": str(folder)}, capture_output=True, text=True, timeout=180
    )
    if done.returncode or not (folder / "report.json").is_file():
        raise SystemExit(f"{name} {side}: {done.stderr[-2000:]}")
    return json.loads((folder / "report.json").read_text()), json.loads((folder / "items.json").read_text())


def judge(name: str, out: Path, flags: list[str]) -> dict[str, Any]:
    before, about = run(name, "before", out, flags)
    after, about_after = run(name, "after", out, flags)
    times = [r["run"]["steps"]["median_ns"] / a["items"] for r, a in ((before, about), (after, about_after))]
    places = {finding["rule"]: place for place, finding in reversed(list(enumerate(before["findings"], 1)))}
    found = next((f for f in before["findings"] if f["rule"] in about["rules"]), None)
    return {
        "pair": name,
        "rule": found["rule"] if found else None,
        "place": places.get(found["rule"]) if found else None,
        "promised": [found["saving"][key] for key in ("low_frac", "expected_frac", "high_frac")] if found else None,
        "obtained": 1 - times[1] / times[0],
        "before_ms": before["run"]["steps"]["median_ns"] / 1e6,
        "after_ms": after["run"]["steps"]["median_ns"] / 1e6,
        "timed": [bool(report["run"]["steps"].get("timed")) for report in (before, after)],
        "gone": not any(f["rule"] in about["rules"] and (f["saving"]["expected_frac"] or 0) >= 0.03 for f in after["findings"]),
        "first": [f["rule"] for f in before["findings"][:3]],
        "first_after": [f["rule"] for f in after["findings"][:3]],
    }


def line(one: dict[str, Any]) -> str:
    if one["promised"] is None:
        return f"| {one['pair']} | not found: {', '.join(one['first'])} | | {one['obtained']:.0%} | |"
    low, expected, high = ("?" if value is None else f"{value:.0%}" for value in one["promised"])
    gone = "yes" if one["gone"] else "no"
    return (
        f"| {one['pair']} | {one['rule']} ({one['place']}.) | {expected} ({low} to {high}) | {one['obtained']:.0%} "
        f"({one['before_ms']:.1f} to {one['after_ms']:.1f} ms) | {gone} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default=",".join(PAIRS))
    parser.add_argument("--seconds", type=float, default=1e9, help="start no further pair after so long")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--child")
    parser.add_argument("--side")
    a = parser.parse_args()
    if a.child:
        child(a.child, a.side, a.cpu, a.tiny)
        return
    flags = [flag for flag, on in (("--cpu", a.cpu), ("--tiny", a.tiny)) if on]
    began, results = time.perf_counter(), []
    print("| loop | finding (place in the report) | promised | obtained | gone afterwards |\n|---|---|---|---|---|", flush=True)
    for name in a.only.split(","):
        if time.perf_counter() - began > a.seconds:
            break
        try:
            results.append(judge(name, a.out, flags))
        except (SystemExit, subprocess.TimeoutExpired) as error:
            print(f"| {name} | failed: {str(error)[-300:]} | | | |", flush=True)
            continue
        print(line(results[-1]), flush=True)
        (a.out / "circle.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
