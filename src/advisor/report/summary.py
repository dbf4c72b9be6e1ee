"""The report in a few sentences: what was read, and the verdict. The formats for people share these words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from advisor.model import Breakdown, Finding, Report, RuleOutcome
from advisor.report import text as t

LITTLE = 0.03  # expected share of the step below which a report speaks of little to gain
MUCH = 0.1  # high share from which on nobody can say that there is little to gain
WORTH = 0.01  # high share from which on a finding is worth a look
IDLE = 0.2  # share of idle time from which on a run without findings is not called healthy
_LEFT_OUT = ("rank-unknown", "recording-unused")  # notices about traces that are read and not used
_FILES_LISTED = 4
_CAPTURE_WORDS = {"stacks": "call stacks", "shapes": "input shapes", "memory": "memory events"}


def verdict(report: Report) -> str:
    """One sentence, or two: how much of a step could be saved and by what, or that nothing is worth it."""
    main, also = t.sections(report)
    promising = main or [finding for finding in also if finding.saving is not None]
    if not report.step_ns:
        sentence = "There is no step in this input, so no saving can be stated"
        sentence += f"; {t.count(len(also), 'thing')} stood out." if also else "; nothing stood out."
    elif promising:
        sentence = _promise(report, promising, report.step_ns)
    else:
        sentence = _nothing(report)
        if also:
            sentence += f" {t.count(len(also), 'hint')} below."
    if t.step_source(report) == "none":
        sentence = sentence.replace("of each step", "of the recording").replace("of each recorded step", "of the recording")
    if t.step_source(report) == "user-pattern":
        sentence = sentence.replace("of each recorded step", "of each step of the pattern given")
    return _cut_short(report) + sentence + _coverage(report, bool(main)) + _dangers(also)


def alerts(report: Report) -> list[str]:
    """What a reader must know before the verdict: recordings that were given and are not in it."""
    left_out = [notice.message for notice in report.notices if notice.code in _LEFT_OUT]
    return [f"Warning: {t.clean(message)}. These look like different runs: analyse one run at a time." for message in left_out]


def _cut_short(report: Report) -> str:
    """A file that ends early lacks records, often of one kind only: what is idle then may only be missing."""
    if not _is_cut(report):
        return ""
    return "The recording is cut short and lacks records: idle time and savings are unreliable; record it again. "


def _is_cut(report: Report) -> bool:
    return any(notice.code == "input-cut-short" for notice in report.notices)


def _promise(report: Report, promising: list[Finding], step_ns: int) -> str:
    """What all findings together save, and the first of them."""
    saving = report.combined or promising[0].saving
    assert saving is not None
    shares = saving.to_dict(step_ns)
    if shares["expected_frac"] < LITTLE:
        best = "Best lead" if shares["high_frac"] >= WORTH else "Largest"
        little = "There is little to gain" if shares["high_frac"] < MUCH else "No large gain is certain"
        sentence = f"{little}: at most {t.percent(shares['high_frac'])} of each step."
        if idle := _idle(report):
            sentence = f"What the rules found gains little, at most {t.percent(shares['high_frac'])} of each step, yet {idle}."
        return f"{sentence} {best}: {_lower_first(promising[0])}."
    spread = t.percent_range(shares["low_frac"], shares["high_frac"])
    change = f"{t.duration(step_ns, 3)} → {t.duration(max(step_ns - saving.expected_ns, 0), 3)}"
    share = t.percent(shares["expected_frac"])
    between = f" ({spread})" if spread != share else ""
    return f"{share} of each step could be saved{between}: {change}. {_causes(report, promising)}"


def _causes(report: Report, promising: list[Finding]) -> str:
    """What carries the figure, also where that is uncertain, and then what was seen directly."""
    paying = [finding for finding in report.findings if finding.saving is not None]
    first = max(paying, key=lambda finding: finding.saving.expected_ns if finding.saving else 0)
    biggest = "Biggest" if len(paying) > 1 else "Cause"
    if first.confidence != "low":
        return f"{biggest}: {_lower_first(first)}."
    seen = f" Seen directly: {_lower_first(promising[0])}." if promising[0].confidence != "low" else ""
    return f"{biggest}, but uncertain ({t.CONFIDENCE_MEANING['low']}): {_lower_first(first)}.{seen}"


def _nothing(report: Report) -> str:
    """Without a finding: healthy if the GPU is at work, else nobody knows."""
    if not report.breakdown and any(notice.code == "no-gpu-work" for notice in report.notices):
        return "No GPU work was recorded, so nothing can be said of the GPU."
    if idle := _idle(report):
        some = bool(report.extra.get("selected"))
        return f"{'None of the selected rules' if some else 'No rule'} names a fix, yet {idle}."
    whole = sum(max(part.step_ns, 0) for part in report.breakdown)
    by = " by the selected rules" if report.extra.get("selected") else ""
    if whole <= 0 or _is_cut(report):
        return f"Nothing worth fixing was found{by}."
    computing = sum(part.compute_ns for part in report.breakdown) / whole
    return f"Nothing worth fixing was found{by}: the GPU computes for {t.percent(computing)} of each step."


def _idle(report: Report) -> str:
    """'the GPU is idle for 60 % of each recorded step, ...' where that is much, else nothing."""
    whole = sum(max(part.step_ns, 0) for part in report.breakdown)
    causes = Counter[str]()
    for part in report.breakdown:
        causes.update({name: ns for name, ns in parts(part).items() if name in t.IDLE_CAUSES})
    if whole <= 0 or causes.total() < IDLE * whole or _is_cut(report):
        return ""
    cause = t.IDLE_CAUSES[causes.most_common(1)[0][0]]
    return f"the GPU is idle for {t.percent(causes.total() / whole)} of each recorded step, the largest part: {cause}"


def _lower_first(finding: Finding) -> str:
    """The title as it goes on inside a sentence; acronyms and names keep their capitals."""
    title = t.clean(finding.title).rstrip(".")
    first = title.split(" ", 1)[0]
    return title[0].lower() + title[1:] if first.isalpha() and (len(first) == 1 or first[1:].islower()) else title


def _coverage(report: Report, promised: bool) -> str:
    """Silence is no health: without a promise, say how many rules could not judge."""
    blind = sum(rule.outcome in ("not-applicable", "error") for rule in report.rules)
    if promised or not blind:
        return ""
    return f" {blind} of {t.count(len(report.rules), 'rule')} could not judge this recording."


def _dangers(also: list[Finding]) -> str:
    return "".join(
        f" Warning: {_lower_first(finding)}." for finding in also if finding.severity == "high" and finding.saving is None
    )


def parts(breakdown: Breakdown) -> dict[str, int]:
    """Nanoseconds of each part, disjoint: waiting is taken out of communication, idle time is split by cause."""
    wait = min(max(breakdown.exposed_communication_wait_ns, 0), max(breakdown.exposed_communication_ns, 0))
    causes = {cause: max(ns, 0) for cause, ns in breakdown.idle_by_cause.items()}
    explained = sum(causes.values())
    causes["unexplained"] = causes.get("unexplained", 0) + max(breakdown.idle_ns - explained, 0)
    return {
        "compute": max(breakdown.compute_ns, 0),
        "communication": max(breakdown.exposed_communication_ns, 0) - wait,
        "communication_wait": wait,
        "copy": max(breakdown.exposed_copy_ns, 0),
        **causes,
    }


def unjudged(rules: list[RuleOutcome]) -> list[tuple[str, list[str], list[str]]]:
    """Reason, what would help, and names of the rules that could not judge; the largest group first.

    What would help stands in the order of how many of the rules it lets judge, and the shorter first.
    """
    groups: dict[str, tuple[Counter[str], list[str]]] = {}
    for rule in rules:
        if rule.outcome in ("not-applicable", "error"):
            reason = t.clean(rule.reason or "no reason given")
            captures, names = groups.setdefault(f"failed: {reason}" if rule.outcome == "error" else reason, (Counter(), []))
            names.append(rule.id)
            if rule.capture:
                captures[t.clean(rule.capture)] += 1
    order = sorted(groups.items(), key=lambda item: (-len(item[1][1]), item[0]))
    return [
        (reason, sorted(captures, key=lambda text: (-captures[text], len(text), text)), names)
        for reason, (captures, names) in order
    ]


def run_facts(report: Report, full: bool = False, width: int = 80) -> list[tuple[str, list[str]]]:
    """Label and lines of what was read: files, GPUs, ranks, steps, and what the recording lacks.

    Paths are shortened so that a line fits `width` columns, unless `full`.
    """
    run = report.run
    facts = [
        ("files", _files(_distinct(_list(run, "sources")), full, width)),
        ("GPU", _devices(_list(run, "devices"))),
        ("ranks", _ranks(_list(run, "ranks"), run.get("world_size"))),
        ("steps", _steps(run, report.step_ns)),
        ("rate", _throughput(report.extra.get("throughput"))),
        ("cost", _cost(report.extra.get("cost"))),
        ("replay", _replay(run.get("replay")) if full else []),
        ("lacks", _lacks(report)),
    ]
    return [(label, lines) for label, lines in facts if lines]


def _list(run: Mapping[str, Any], key: str) -> list[Any]:
    value = run.get(key)
    return list(value) if isinstance(value, (list, tuple)) else []


def _distinct(sources: list[Any]) -> list[dict[str, Any]]:
    """A file that serves two recordings is named once."""
    return list({str(source.get("path")): source for source in sources if isinstance(source, Mapping)}.values())  # type: ignore


def _files(sources: list[dict[str, Any]], full: bool, width: int) -> list[str]:
    if len(sources) <= _FILES_LISTED or full:
        lines = []
        for source in sources:
            kind = t.FORMAT_NAMES.get(source.get("format", ""), t.clean(source.get("format", "unknown kind")))
            rank = source.get("rank")
            path = t.clean(source.get("path", "?"))
            about = f" ({kind}{'' if rank is None else f', rank {rank}'})"
            lines.append((path if full else t.short_path(path, width - 10 - len(about))) + about)
        return lines
    by_kind: dict[str, list[str]] = {}
    for source in sources:
        by_kind.setdefault(str(source.get("format", "unknown kind")), []).append(str(source.get("path", "?")))
    return [
        f"{t.count(len(paths), t.FORMAT_NAMES.get(kind, t.clean(kind)))}: {_first_last(list(map(t.file_name, paths)))}"
        for kind, paths in by_kind.items()
    ]


def _first_last(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]}"


def _devices(devices: list[dict[str, Any]]) -> list[str]:
    detailed = {device.get("name") for device in devices if device.get("compute_capability")}
    named = {device.get("index") for device in devices if device.get("name")}
    kinds = Counter(
        _device(device)
        for device in devices
        if device.get("compute_capability")  # a log beside a trace lists the same GPUs again, with less about them
        or (device.get("name") not in detailed if device.get("name") else device.get("index") not in named)
    )
    return [f"{number} x {kind}" for kind, number in kinds.items()]


def _device(device: dict[str, Any]) -> str:
    details = []
    if device.get("compute_capability"):
        details.append(f"compute capability {t.clean(device['compute_capability'])}")
    if device.get("sm_count"):
        details.append(f"{device['sm_count']} SMs")
    if device.get("memory_bytes"):
        details.append(t.size(device["memory_bytes"]))
    name = t.clean(device.get("name") or "unknown GPU")
    return f"{name} ({', '.join(details)})" if details else name


def _ranks(ranks: list[Any], world_size: Any) -> list[str]:
    known = sorted(rank for rank in ranks if isinstance(rank, int))
    if not known or (len(known) == 1 and world_size in (None, 1)):
        return []
    if len(known) == 1:
        text = f"rank {known[0]}"
    elif len(known) > 3 and known[-1] - known[0] == len(known) - 1:
        text = f"{known[0]} to {known[-1]}"
    else:
        text = t.join([str(rank) for rank in known[:12]] + (["more"] if len(known) > 12 else []))
    return [f"{text} of {world_size}" if isinstance(world_size, int) else text]


def _steps(run: Mapping[str, Any], step_ns: int | None) -> list[str]:
    steps = run.get("steps")
    if not isinstance(steps, Mapping):
        return []
    source = steps.get("source", "none")
    found = t.STEP_SOURCES.get(source, t.clean(source))
    median = steps.get("median_ns") or step_ns
    if source == "none":
        return [f"{found} ({t.duration(median, 3)})"]
    line = f"{steps.get('count', 0)} {found}, {t.duration(median, 3)} each"
    low, high = steps.get("p10_ns"), steps.get("p90_ns")
    if low is not None and high is not None:
        line += f" (p10 to p90: {t.duration_range(low, high, 3)})"
    lines, stalls = [line], steps.get("stalls")
    if isinstance(stalls, Mapping) and stalls.get("every"):
        long, short = (t.duration(stalls.get(key), 3) for key in ("long_ns", "short_ns"))
        lines.append(f"every {t.ordinal(stalls['every'])} step stalls: {long}, the others {short}")
    recorded = steps.get("recorded_median_ns")
    if median and recorded and abs(recorded - median) > 0.005 * median:
        without = "what steps outside the recording took" if steps.get("timed") else "the estimate without the profiler"
        return [*lines, f"recorded at {t.duration(recorded, 3)}; {t.duration(median, 3)} is {without}"]
    return lines


def _throughput(throughput: Any) -> list[str]:
    if not isinstance(throughput, Mapping) or not isinstance(throughput.get("items_per_second"), (int, float)):
        return []
    line = f"{t.significant(throughput['items_per_second'], 3)} items/s"
    per_step = throughput.get("items_per_step")
    return [f"{line} ({t.number(per_step)} items a step)" if isinstance(per_step, (int, float)) else line]


def _replay(replay: Any) -> list[str]:
    if not isinstance(replay, Mapping):
        return []
    error = replay.get("error_frac")
    if replay.get("basis") == "replay" and isinstance(error, (int, float)):
        return [f"replaying the unchanged step comes within {t.percent(abs(error))} of the recorded time"]
    return ["the step could not be replayed; savings are interval bounds"]


def _cost(cost: Any) -> list[str]:
    if not isinstance(cost, Mapping):
        return []
    price = f"{t.money(cost['gpu_hour'])} a GPU hour"
    if cost["per_day"] is None:
        return [f"{price}; the number of GPUs is unknown"]
    line = f"{t.money(cost['per_day'])} a day for {t.count(cost['gpus'], 'GPU')} at {price}"
    saved = cost["combined_per_day"]
    return [line + (f"; all fixes together are worth {t.money(saved)} a day" if saved else "")]


def _lacks(report: Report) -> list[str]:
    """Of the only recording; with a second, fuller one it is not known here what both lack."""
    overhead = report.run.get("profiler_overhead")
    if not isinstance(overhead, Mapping) or any(notice.code == "two-recordings" for notice in report.notices):
        return []
    words = [word for key, word in _CAPTURE_WORDS.items() if overhead.get(key) is False]
    return [t.join(words)] if words else []


def limits(report: Report) -> list[tuple[bool, str]]:
    """(good, text) of each entry of the report's `limits`, the good ones first."""
    entries = report.extra.get("limits")
    if not isinstance(entries, (list, tuple)):
        return []
    known = [one for one in entries if isinstance(one, Mapping) and isinstance(one.get("text"), str)]
    return sorted(((one.get("good") is True, t.sentence(one["text"])) for one in known), key=lambda pair: not pair[0])
