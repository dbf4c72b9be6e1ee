"""Reports that `advisor analyze --format json` wrote, read back. Strict: whatever is no such document is refused in one line.

`read(source)` gives the Report whose JSON has the same bytes as the file, as far as this version of the program wrote it.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from advisor.ingest.source import Source
from advisor.model import Breakdown, Evidence, Finding, Fix, InputError, Location, Notice, Report, RuleOutcome, Saving
from advisor.model.report import Basis, Confidence, Outcome, Severity

SCHEMA = "advisor.report/1"
LARGEST = 64 << 20  # bytes once decompressed: reports take some hundred thousand
_MOST_DIGITS = 400  # of one number: what is longer is no measurement, and costs time to read
_KEYS = ("schema", "advisor_version", "run", "breakdown", "findings", "combined_saving", "rules", "notices")
_MARK = re.compile(rb'"schema"\s*:\s*"(advisor\.\w{1,20}/\d{1,9})"')
_LONG_NUMBER = re.compile(rb"\d{%d}" % _MOST_DIGITS)

Ns = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Rank = Annotated[int, msgspec.Meta(ge=0, le=2**31)] | None
Number = Annotated[float, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(max_length=1000)]  # what the program names itself; texts of recordings may be longer


class _Source(msgspec.Struct):
    path: str
    format: str
    format_version: str | None
    rank: Rank


class _Device(msgspec.Struct):
    rank: Rank
    index: int
    name: str | None
    compute_capability: str | None
    sm_count: int | None
    memory_bytes: int | None


class _Stalls(msgspec.Struct):
    every: Count
    long_ns: Ns | None = None
    short_ns: Ns | None = None


class _Steps(msgspec.Struct):
    count: Count
    source: Literal["profiler-step", "nvtx", "user-pattern", "inferred", "none"]
    median_ns: Ns | None
    recorded_median_ns: Ns | None
    p10_ns: Ns | None
    p90_ns: Ns | None
    paced_by: Literal["gpu", "host"] | None = None
    samples_ns: list[Ns] = []
    steps_per_sample: Annotated[int, msgspec.Meta(ge=1)] = 1
    stalls: _Stalls | None = None


class _Replay(msgspec.Struct):
    error_frac: float | None
    basis: Basis


class _Overhead(msgspec.Struct):
    stacks: bool | None
    shapes: bool | None
    memory: bool | None
    estimated_frac: float | None


class _Program(msgspec.Struct):
    versions: dict[str, str] = {}
    variables: dict[str, str] = {}
    compiled: bool | None = None
    cuda_graphs: bool | None = None
    input_bytes: Ns | None = None
    matrix_flops: Annotated[int, msgspec.Meta(ge=0)] | None = None
    matrix_shapes: list[list[Number]] | None = None


class _Measured(msgspec.Struct):
    memory_peak_bytes: Count | None = None
    memory_peak_source: str | None = None
    host_syncs_per_step: Number | None = None
    kernels_per_step: Number | None = None


class _Run(msgspec.Struct):
    sources: list[_Source]
    ranks: list[Rank]
    world_size: Count | None
    devices: list[_Device]
    steps: _Steps | None
    replay: _Replay | None
    window_ns: Ns | None
    profiler_overhead: _Overhead | None
    program: _Program | None = None
    measured: _Measured | None = None


class _Breakdown(msgspec.Struct):
    rank: Rank
    device: int
    step_ns: Ns
    busy_ns: Ns
    compute_ns: Ns
    exposed_communication_ns: Ns
    exposed_communication_wait_ns: Ns
    exposed_copy_ns: Ns
    idle_ns: Ns
    idle_by_cause: dict[str, Ns]


class _Saving(msgspec.Struct):
    low_ns: Ns | None
    expected_ns: Ns | None
    high_ns: Ns | None
    basis: Basis


class _Evidence(msgspec.Struct):
    caption: str
    columns: list[str]
    rows: list[list[Any]]


class _Location(msgspec.Struct):
    file: str
    line: Count | None = None
    function: str | None = None
    share: float | None = None


class _Fix(msgspec.Struct):
    id: Name
    title: str
    framework: str
    language: str
    snippet: str
    safety: str
    effort: str
    caveats: list[str] = []
    references: list[str] = []


class _Finding(msgspec.Struct):
    rule: Name
    family: Name
    severity: Severity
    confidence: Confidence
    title: str
    saving: _Saving
    fingerprint: Name
    scope: dict[str, list[Any]] = {}
    facts: dict[str, Any] = {}
    evidence: list[_Evidence] = []
    locations: list[_Location] = []
    fixes: list[_Fix] = []
    caveats: list[str] = []
    alternative_to: str | None = None
    cost_per_day: float | None = None


class _Rule(msgspec.Struct):
    id: Name
    outcome: Outcome
    reason: str | None = None
    capture: str | None = None


class _Notice(msgspec.Struct):
    code: Name
    message: str


class _Combined(msgspec.Struct):
    low_frac: Number | None
    expected_frac: Number | None
    high_frac: Number | None


class _Kind(msgspec.Struct):
    kind: str
    ns: Ns
    calls: Number


class _Kernel(_Kind):
    name: str


class _Kernels(msgspec.Struct):
    distinct: Count
    total_ns: Ns
    rest_ns: Ns
    least_ns: Ns
    kinds: list[_Kind]
    listed: list[_Kernel]


class _Throughput(msgspec.Struct):
    items_per_step: Number
    items_per_second: Number | None = None


class _Cost(msgspec.Struct):
    gpu_hour: Number
    per_day: Number | None
    gpus: Count | None
    combined_per_day: Number | None


class _Limit(msgspec.Struct):
    text: str
    id: str = ""
    value: float | None = None
    limit: float | None = None


class _Samples(msgspec.Struct):
    device: int | str | None = None
    samples: Count = 0
    busy_samples: Count = 0
    utilization_percent: float | None = None
    memory_used_bytes: Count | None = None
    memory_total_bytes: Count | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_max_c: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None


class _Document(msgspec.Struct):
    schema: str
    advisor_version: Name
    run: _Run
    breakdown: list[_Breakdown]
    findings: list[_Finding]
    combined_saving: _Combined
    rules: list[_Rule]
    notices: list[_Notice]
    kernels: _Kernels | None = None
    throughput: _Throughput | None = None
    cost: _Cost | None = None
    limits: list[_Limit] = []
    gpu_samples: list[_Samples] = []


def written_by_us(head: bytes) -> str | None:
    """The schema that the first bytes of a document of this program name: "advisor.report/1". None for any other file."""
    found = _MARK.search(head[:4096]) if head.lstrip()[:1] == b"{" else None
    return found[1].decode() if found else None


def is_saved_report(path: Path, kind: str = "advisor.") -> bool:
    """True for a file that says of itself that it is a document of ours, of a schema that begins so; nothing is raised."""
    try:
        return path.is_file() and (written_by_us(Source(path).head(4096)) or "").startswith(kind)
    except (InputError, OSError, ValueError):
        return False


def read(source: Source) -> Report:
    """The report in a file, plain or gzip. InputError in one line for a file that is no report of this version."""
    with source.open() as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise InputError(f"larger than {LARGEST >> 20} MiB, as no report is")
    if source.damage:
        raise InputError(source.damage)
    return parse(data)


def parse(data: bytes) -> Report:
    """The report whose JSON this is. InputError as for `read`."""
    schema = written_by_us(data)
    if schema is not None and schema != SCHEMA:
        kind = schema.partition("/")[0]
        if kind == SCHEMA.partition("/")[0]:
            raise InputError(f"a report of schema {schema}; this program reads {SCHEMA}")
        raise InputError(f"a document of schema {schema}, no report: write one with `advisor analyze --format json`")
    if _LONG_NUMBER.search(data):
        raise InputError(f"not a valid report: a number of more than {_MOST_DIGITS} digits")
    try:
        plain = msgspec.json.decode(data)
    except RecursionError as error:
        raise InputError("not a valid report: nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"not valid JSON: {_one_line(error)}") from error
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
        raise InputError(f"no report of schema {SCHEMA}: write one with `advisor analyze --format json`")
    try:
        return _report(plain, msgspec.convert(plain, _Document))
    except (msgspec.ValidationError, ValueError, RecursionError, OverflowError) as error:
        raise InputError(f"not a valid report: {_one_line(error)}") from error


def _report(plain: dict[str, Any], found: _Document) -> Report:
    steps = found.run.steps
    step_ns = steps.median_ns if steps else None
    basis: Basis = found.run.replay.basis if found.run.replay else "bound"
    return Report(
        version=found.advisor_version,
        run=plain["run"],
        step_ns=step_ns,
        breakdown=[Breakdown(**msgspec.structs.asdict(part)) for part in found.breakdown],
        findings=[_finding(one) for one in found.findings],
        combined=_combined(found.combined_saving, step_ns, "bound" if basis == "none" else basis),
        rules=[RuleOutcome(one.id, one.outcome, one.reason, one.capture) for one in found.rules],
        notices=[Notice(one.code, one.message) for one in found.notices],
        extra={key: value for key, value in plain.items() if key not in _KEYS},
    )


def _finding(found: _Finding) -> Finding:
    fields = msgspec.structs.asdict(found)
    for table in found.evidence:
        if any(len(row) != len(table.columns) for row in table.rows):
            raise ValueError("a row of evidence has another length than its columns")
    fields |= {
        "saving": _saving(found.saving),
        "evidence": [Evidence(**msgspec.structs.asdict(table)) for table in found.evidence],
        "locations": [Location(**msgspec.structs.asdict(place)) for place in found.locations],
        "fixes": [Fix(**msgspec.structs.asdict(fix)) for fix in found.fixes],
    }
    return Finding(**fields)


def _saving(found: _Saving) -> Saving | None:
    """None for basis `none`. Saving itself refuses amounts that are not in order."""
    if found.basis == "none":
        return None
    if found.low_ns is None or found.expected_ns is None or found.high_ns is None:
        raise ValueError("a saving lacks its amounts")
    return Saving(found.low_ns, found.expected_ns, found.high_ns, found.basis)


def _combined(found: _Combined, step_ns: int | None, basis: Basis) -> Saving | None:
    """The document holds shares only, rounded to a millionth: that is what they give back."""
    shares = (found.low_frac, found.expected_frac, found.high_frac)
    if not step_ns or None in shares:
        return None
    low, expected, high = (round(share * step_ns) for share in shares if share is not None and math.isfinite(share))
    return Saving(low, expected, high, basis)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text[:200] if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text[:200])


__all__ = ["LARGEST", "SCHEMA", "is_saved_report", "parse", "read", "written_by_us"]
