"""Pages to look at: a run that has every picture, and reports in which every text is a hostile name."""

from __future__ import annotations

from dataclasses import replace

import advisor
from advisor.model import Evidence, Finding, Fix, Location, Notice, Report, RuleOutcome, Saving
from build.workload import Workload

ATTACKS = {
    "script": "</script><script>alert(1)</script>",
    "image": "<img src=x onerror=alert(1)>",
    "quotes": "\"'` onmouseover=alert(1) x='",
    "style": "</style><style>*{display:none}</style>",
    "comment": "<!--<script>",
    "end of data": "]]>\u2028\u2029</SCRIPT >",
    "link": "javascript:alert(1)",
    "turned": "\u202eevil\u2066\u200f",
    "nul": "a\x00b\x1b[31mc\x07",
    "surrogate": "\udcff\ud800",
    "markup of charts": "{a|b} {marker|x} {b}: {c}",
    "template": "{{7*7}} ${alert(1)} %s",
    "long": "<b>" + "very_long_name_" * 70_000,
}


def full_run(name: str = "", ranks: int = 2) -> Workload:
    """Two ranks that compute, wait, copy, talk and log their sensors. `name` becomes part of every name."""
    w = Workload(ranks=ranks)
    for step in range(6):
        for number, rank in enumerate(w.ranks):
            with rank.step():
                rank.loader(900)
                with rank.range(f"forward {name}"):
                    rank.alloc(1 << 28)
                    for _ in range(8):
                        with (
                            rank.frame(f"train.py(12): forward {name}"),
                            rank.op(
                                f"aten::mm{name}" if name else "aten::mm",
                                us=6,
                                shapes=[[1024, 1024], [1024, 1024]],
                                types=["float", "float"],
                            ),
                        ):
                            rank.launch(f"sgemm_128x128{name}", gpu_us=300 + 100 * number)
                        with rank.op("aten::add", us=4, shapes=[[4096, 4096], [4096, 4096]], types=["float", "float"]):
                            rank.launch(f"vectorized_elementwise_kernel{name}", gpu_us=60)
                        rank.item()
                    rank.release(1 << 28)
                rank.copy("HtoD", 1 << 22)
                rank.sample(utilization=40 + step, sm_clock=1500 - step, power=300.0 + step, temperature=60 + step)
        w.collective(gpu_us=200)
    return w


def full_report(name: str = "") -> Report:
    return advisor.analyze(full_run(name).to_run(), pictures=True)


def hostile_report(name: str) -> Report:
    """A report with pictures in which every text that can come from a recording or a rule is or holds `name`."""
    report = full_report(name)
    first = report.findings[0]
    finding = Finding(
        rule=name,
        family=name,
        title=name,
        severity="high",
        confidence="high",
        saving=Saving(1_000, 2_000, 3_000, "replay"),
        evidence=[Evidence(name, [name, "wait_ns"], [[name, 5], [name, None]] * 12)],
        locations=[Location(name, 3, name, 0.5)],
        fixes=[Fix(name, name, name, name, name, name, name, [name], [name, "https://example.org/?a=1&b=2"])] * 2,
        caveats=[name],
        alternative_to=name,
        fingerprint=first.fingerprint,
    )
    report.run["sources"] = [{"path": name, "format": name, "format_version": name, "rank": None}]
    report.run["devices"] = [{**device, "name": name} for device in report.run["devices"]]
    return replace(
        report,
        version=name,
        findings=[finding, replace(finding, saving=None, severity="info", fingerprint=name)],
        rules=[RuleOutcome(name, "not-applicable", name, name), RuleOutcome(name, "error", name)],
        notices=[Notice(name, name)],
        extra={"good_news": [name], "limits": [{"good": False, "text": name}, {"good": True, "text": name}]},
    )
