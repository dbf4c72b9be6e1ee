"""Diagnosed cases as files: written, read by the real readers, judged by all rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor import analyze, load
from advisor.model import Finding, Report
from build import smi
from build.workload import Workload

GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"  # BF16 on tensor cores
SGEMM = "ampere_sgemm_128x128_tn"  # FP32 without them


def pointwise(function: str) -> str:
    return f"void at::native::vectorized_elementwise_kernel<4, at::native::{function}, std::array<char*, 3ul> >(int, T, T)"


@dataclass(frozen=True)
class Told:
    """What the report tells of a case, by all rules."""

    report: Report

    @property
    def rules(self) -> list[str]:
        """Findings in the order of the report, without those that only inform."""
        return [finding.rule for finding in self.report.findings if finding.severity != "info"]

    @property
    def first(self) -> Finding:
        return self.report.findings[0]

    def of(self, rule: str) -> Finding:
        """The only finding of a rule."""
        (found,) = (finding for finding in self.report.findings if finding.rule == rule)
        return found

    def outcome(self, rule: str) -> str:
        return next(one.outcome for one in self.report.rules if one.id == rule)

    def part(self, finding: Finding | None = None, which: str = "expected") -> float:
        """Saving of a finding (None: the first) as a share of the step."""
        saving, step = (finding or self.first).saving, self.report.step_ns
        assert saving is not None and step
        return float(getattr(saving, f"{which}_ns")) / step

    @property
    def combined(self) -> float:
        """Expected saving of all findings together as a share of the step, 0 without any."""
        together, step = self.report.combined, self.report.step_ns
        return together.expected_ns / step if together and step else 0.0

    def words(self) -> str:
        """All that the findings say and print, lower case."""
        texts = [
            [f.title, *f.caveats, *(part for fix in f.fixes for part in (fix.title, fix.snippet))] for f in self.report.findings
        ]
        return "\n".join(text for parts in texts for text in parts).lower()


def told(w: Workload, folder: Path) -> Told:
    """As the files of the workload's tool tell it. No rule may fail on them."""
    files = w.write_nsys(folder / "report.sqlite") if w.tool == "nsys" else w.write_kineto(folder)
    return _judged(files)


def logged(folder: Path, devices: int = 1, seconds: float = 60, **values: float | Callable[[float, int], float]) -> Told:
    """As an nvidia-smi log of GPUs at full load tells it; `values` are fields with "__" for "."."""
    named = {name.replace("__", "."): value for name, value in values.items()}
    fields = tuple(dict.fromkeys(("timestamp", "index", "uuid", *smi.FULL_LOAD)))
    path = folder / "smi.csv"
    path.write_text(smi.query_csv(smi.samples(seconds, devices, values=named), fields))
    return _judged(path)


def _judged(files: Path | Sequence[Path]) -> Told:
    report = analyze(load(files))
    assert [one for one in report.rules if one.outcome == "error"] == []
    return Told(report)
