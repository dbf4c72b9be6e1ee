"""What nvidia-smi prints, for made-up samples.

    log = samples(seconds=60, devices=2, values={"utilization.gpu": 97, "power.draw": lambda second, gpu: 690.0 + gpu})
    text = query_csv(log, ["timestamp", "index", "utilization.gpu", "power.draw"])

A sample is a dict of --query-gpu names with numbers in nvidia-smi's own units (MiB, W, MHz, %), `timestamp` a datetime; None, or
a name that is not there, is printed as "no value".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

Sample = Mapping[str, Any]

START = datetime(2026, 3, 2, 9, 30, 0)
FIELDS = ("timestamp", "index", "name", "utilization.gpu", "utilization.memory", "memory.used", "memory.total", "power.draw")
FULL_LOAD: dict[str, Any] = {
    "name": "NVIDIA H200",
    "utilization.gpu": 100,
    "utilization.memory": 55,
    "memory.used": 90_000,
    "memory.total": 143_771,
    "power.draw": 650.0,
    "enforced.power.limit": 700.0,
    "power.limit": 700.0,
    "temperature.gpu": 60,
    "temperature.memory": 52,
    "clocks.current.sm": 1980,
    "clocks.current.memory": 3201,
    "clocks.max.sm": 1980,
    "clocks.max.memory": 3201,
    "clocks_event_reasons.active": 0,
    "pstate": 0,
    "pcie.link.gen.current": 5,
    "pcie.link.gen.max": 5,
    "pcie.link.width.current": 16,
    "pcie.link.width.max": 16,
}
UNITS = {
    **dict.fromkeys(("utilization.gpu", "utilization.memory", "utilization.encoder", "utilization.decoder", "fan.speed"), "%"),
    **dict.fromkeys(("memory.used", "memory.total", "memory.free", "used_gpu_memory"), "MiB"),
    **dict.fromkeys(("power.draw", "power.draw.average", "power.draw.instant", "power.limit", "enforced.power.limit"), "W"),
    **dict.fromkeys(("clocks.current.sm", "clocks.sm", "clocks.current.memory", "clocks.mem"), "MHz"),
    **dict.fromkeys(("clocks.max.sm", "clocks.max.memory", "clocks.current.graphics"), "MHz"),
}
REASONS = {0x1: "gpu_idle", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x20: "sw_thermal_slowdown", 0x40: "hw_thermal_slowdown"}
_REASON_LINES = (
    (2, "Idle", 0x1),
    (2, "SW Power Cap", 0x4),
    (2, "HW Slowdown", 0x8),
    (3, "HW Thermal Slowdown", 0x40),
    (2, "SW Thermal Slowdown", 0x20),
)


def samples(
    seconds: float,
    devices: int = 1,
    interval: float = 1.0,
    values: Mapping[str, Any | Callable[[float, int], Any]] | None = None,
    start: datetime = START,
) -> list[dict[str, Any]]:
    """Samples of GPUs at full load, one row a GPU every `interval`, the rows of one sample 2 ms apart.

    `values` overrides fields: a constant, or a function of (seconds since start, GPU).
    """
    rows = []
    for step in range(round(seconds / interval)):
        second = step * interval
        for gpu in range(devices):
            row: dict[str, Any] = {
                "timestamp": start + timedelta(seconds=second, milliseconds=2 * gpu),
                "index": gpu,
                **FULL_LOAD,
            }
            row |= {key: value(second, gpu) if callable(value) else value for key, value in (values or {}).items()}
            rows.append(row)
    return rows


def uuid(gpu: int) -> str:
    return f"GPU-{gpu:08x}-1111-2222-3333-{gpu:012x}"


def bus_id(gpu: int) -> str:
    return f"00000000:{gpu + 0x18:02X}:00.0"


def _number(field: str, value: Any) -> str:
    if "power" in field and not isinstance(value, str):
        return f"{value:.2f}"
    return str(value)


def cell(sample: Sample, field: str, units: bool = True, missing: str = "[N/A]") -> str:
    """One cell as --query-gpu prints it."""
    value = sample.get(field)
    if field == "timestamp" and isinstance(value, datetime):
        return f"{value:%Y/%m/%d %H:%M:%S}.{value.microsecond // 1000:03d}"
    if field == "uuid":
        return uuid(sample["index"])
    if field == "pci.bus_id":
        return bus_id(sample["index"])
    if value is None:
        return missing
    if field.endswith("_reasons.active"):
        return f"0x{value:016x}"
    if field == "pstate":
        return f"P{value}"
    unit = UNITS.get(field)
    return f"{_number(field, value)} {unit}" if unit and units and not isinstance(value, str) else _number(field, value)


def query_csv(
    samples: Iterable[Sample], fields: Sequence[str] = FIELDS, units: bool = True, header: bool = True, missing: str = "[N/A]"
) -> str:
    """As --query-gpu=... --format=csv prints it; `units` false is nounits, `header` false noheader."""
    lines = [", ".join(f"{field} [{UNITS[field]}]" if field in UNITS else field for field in fields)] if header else []
    lines += [", ".join(cell(sample, field, units, missing) for field in fields) for sample in samples]
    return "".join(line + "\n" for line in lines)


# dmon column: unit, query field
DMON = {
    "pwr": ("W", "power.draw"),
    "gtemp": ("C", "temperature.gpu"),
    "mtemp": ("C", "temperature.memory"),
    "sm": ("%", "utilization.gpu"),
    "mem": ("%", "utilization.memory"),
    "mclk": ("MHz", "clocks.current.memory"),
    "pclk": ("MHz", "clocks.current.sm"),
    "pviol": ("%", "pviol"),
    "tviol": ("bool", "tviol"),
    "fb": ("MB", "memory.used"),
    "rxpci": ("MB/s", "rxpci"),
    "txpci": ("MB/s", "txpci"),
}


def dmon(samples: Iterable[Sample], columns: Sequence[str] = tuple(DMON), dated: bool = True, page: int = 10) -> str:
    """As `dmon` prints it (`dated`: with -o DT), the header again after every `page` rows."""
    stamp = ["#Date", "Time"] if dated else []
    names = [*stamp, "gpu" if dated else "# gpu", *columns]
    units = [*(["#YYYYMMDD", "HH:MM:SS"] if dated else []), "Idx" if dated else "# Idx", *(DMON[c][0] for c in columns)]
    lines = []
    for i, sample in enumerate(samples):
        if i % page == 0:
            lines += ["  ".join(f"{name:>6}" for name in row).lstrip() for row in (names, units)]
        values = [sample.get(DMON[c][1]) for c in columns]
        cells = ["-" if value is None else str(round(value)) for value in values]
        moment = [f"{sample['timestamp']:%Y%m%d}", f"{sample['timestamp']:%H:%M:%S}"] if dated else []
        lines.append(" " + "  ".join(f"{text:>6}" for text in [*moment, str(sample["index"]), *cells]))
    return "".join(line + " \n" for line in lines)


def pmon(rows: Iterable[tuple[int, int | None, str, float | None, float | None, float | None, str]]) -> str:
    """As `pmon -s um` prints it: (gpu, pid, type, sm, mem, fb, command); None is '-'."""
    lines = ["# gpu         pid   type     sm    mem     fb    command", "# Idx           #    C/G      %      %     MB    name"]
    for row in rows:
        cells = ["-" if value is None else str(value) for value in row]
        lines.append("    " + "    ".join(cells) + "        ")
    return "".join(line + "\n" for line in lines)


def table(
    samples: Iterable[Sample], processes: Sequence[tuple[int, int, str, str, int]] | None = (), dated: bool = True, wide: int = 41
) -> str:
    """The table of plain `nvidia-smi` for each moment; `processes` are (gpu, pid, type, name, MiB), None leaves the list out.

    `wide` is the width of the first box, which grew over the years.
    """
    boxes = (wide, 24, 22)
    rule = "+" + "+".join("-" * width for width in boxes) + "+"
    whole = sum(boxes) + 2
    lines = []
    for moment, rows in groupby(samples, key=lambda s: s["timestamp"].replace(microsecond=0)):
        lines += [f"{moment:%a %b} {moment.day:2d} {moment:%H:%M:%S %Y}       "] if dated else []
        lines += [
            "+" + "-" * whole + "+",
            f"| {'NVIDIA-SMI 580.95.05  Driver Version: 580.95.05  CUDA Version: 13.0':<{whole - 1}}|",
            rule,
        ]
        for s in rows:
            power = _watts(s, "power.draw"), _watts(s, "power.limit")
            load = f"{s['utilization.gpu']}%" if s.get("utilization.gpu") is not None else "N/A"
            name = s["name"] if len(s["name"]) <= wide - 20 else s["name"][: wide - 23] + "..."
            body = [
                (f"{s['index']:4d}  {name:<{wide - 14}} On  ", f"{bus_id(s['index'])} Off", "0"),
                (f" N/A   {_or(s, 'temperature.gpu')}C    P{s['pstate']}  {power[0]} / {power[1]} ",
                 f"{_or(s, 'memory.used')}MiB / {s['memory.total']}MiB", f"{load}      Default"),
                ("", "", "Disabled"),
            ]  # fmt: skip
            lines += [f"|{a:<{boxes[0]}}|{b:>{boxes[1] - 1}} |{c:>{boxes[2] - 1}} |" for a, b, c in body] + [rule]
        lines += [] if processes is None else ["", *_process_table(processes, whole)]
    return "".join(line + "\n" for line in lines)


def _or(sample: Sample, field: str) -> Any:
    return "N/A" if sample.get(field) is None else sample[field]


def _watts(sample: Sample, field: str) -> str:
    return "N/A" if sample.get(field) is None else f"{round(sample[field])}W"


def _process_table(processes: Sequence[tuple[int, int, str, str, int]], whole: int) -> list[str]:
    lines = ["Processes:", " GPU   GI   CI              PID   Type   Process name       GPU Memory"]
    lines += [f"{gpu:5d}   N/A  N/A  {pid:12d}   {kind:>4}   {name}   {used}MiB" for gpu, pid, kind, name, used in processes]
    lines += [] if processes else ["  No running processes found"]
    frame = "+" + "-" * whole + "+"
    return [frame, *(f"|{line:<{whole}}|" for line in lines), frame]


def _documents(samples: Iterable[Sample]) -> list[tuple[datetime, list[Sample]]]:
    return [(moment, list(rows)) for moment, rows in groupby(samples, key=lambda s: s["timestamp"].replace(microsecond=0))]


def query_text(samples: Iterable[Sample], reasons: str = "Clocks Event Reasons") -> str:
    """As -q prints it, one document a moment. `reasons` is the block's name, which changed with driver 535."""
    lines = []
    for moment, rows in _documents(samples):
        lines += ["", "==============NVSMI LOG==============", "", _pair(0, "Timestamp", f"{moment:%a %b %d %H:%M:%S %Y}")]
        lines += [_pair(0, "Driver Version", "580.95.05"), _pair(0, "CUDA Version", "13.0"), ""]
        lines += [_pair(0, "Attached GPUs", len(rows))]
        for s in rows:
            mask = s.get("clocks_event_reasons.active") or 0
            lines += [f"GPU {bus_id(s['index'])}", _pair(1, "Product Name", s["name"]), _pair(1, "GPU UUID", uuid(s["index"]))]
            lines += ["    PCI", "        GPU Link Info", "            PCIe Generation", _pair(4, "Max", s["pcie.link.gen.max"])]
            lines += [_pair(4, "Current", s["pcie.link.gen.current"]), _pair(1, "Fan Speed", "N/A")]
            lines += [_pair(1, "Performance State", f"P{s['pstate']}"), f"    {reasons}"]
            for level, word, bit in _REASON_LINES:
                lines.append(_pair(level, word, "Active" if mask & bit else "Not Active"))
            lines += ["    FB Memory Usage", _pair(2, "Total", cell(s, "memory.total")), _pair(2, "Used", cell(s, "memory.used"))]
            lines += ["    BAR1 Memory Usage", _pair(2, "Total", "131072 MiB"), _pair(2, "Used", "1 MiB"), "    Utilization"]
            lines += [
                _pair(2, "Gpu", cell(s, "utilization.gpu")),
                _pair(2, "Memory", cell(s, "utilization.memory")),
                "    Temperature",
            ]
            lines += [_pair(2, "GPU Current Temp", f"{s['temperature.gpu']} C"), "    GPU Power Readings"]
            lines += [
                _pair(2, "Average Power Draw", cell(s, "power.draw")),
                _pair(2, "Current Power Limit", cell(s, "power.limit")),
            ]
            lines += ["    Module Power Readings", _pair(2, "Average Power Draw", "N/A"), "    Clocks"]
            lines += [_pair(2, "SM", cell(s, "clocks.current.sm")), _pair(2, "Memory", cell(s, "clocks.current.memory"))]
            lines += ["    Max Clocks", _pair(2, "SM", cell(s, "clocks.max.sm")), _pair(1, "Processes", "None"), ""]
    return "".join(line + "\n" for line in lines)


def _pair(level: int, key: str, value: Any) -> str:
    return f"{'    ' * level + key:<42}: {value}"


def query_xml(samples: Iterable[Sample], reasons: str = "event", processes: Sequence[tuple[int, str, str, int]] = ()) -> str:
    """As -q -x prints it, a document a moment. `reasons` was "throttle" before driver 535; `processes`: pid, type, name, MiB."""
    parts = []
    for moment, rows in _documents(samples):
        parts += ['<?xml version="1.0" ?>', '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">', "<nvidia_smi_log>"]
        parts += [f"<timestamp>{moment:%a %b %d %H:%M:%S %Y}</timestamp>", "<driver_version>580.95.05</driver_version>"]
        parts += [f"<attached_gpus>{len(rows)}</attached_gpus>"]
        for s in rows:
            mask = s.get("clocks_event_reasons.active") or 0
            flags = {name: "Active" if mask & bit else "Not Active" for bit, name in REASONS.items()}
            inner = "".join(f"<clocks_{reasons}_reason_{n}>{v}</clocks_{reasons}_reason_{n}>" for n, v in flags.items())
            listed = "".join(
                f"<process_info><pid>{pid}</pid><type>{kind}</type><process_name>{name}</process_name>"
                f"<used_memory>{used} MiB</used_memory></process_info>"
                for pid, kind, name, used in processes
            )
            parts += [
                f'<gpu id="{bus_id(s["index"])}">',
                f"<product_name>{s['name']}</product_name><uuid>{uuid(s['index'])}</uuid><mig_devices>None</mig_devices>",
                f"<clocks_{reasons}_reasons>{inner}</clocks_{reasons}_reasons>",
                f"<fb_memory_usage><total>{cell(s, 'memory.total')}</total>",
                f"<used>{cell(s, 'memory.used')}</used></fb_memory_usage>",
                f"<utilization><gpu_util>{cell(s, 'utilization.gpu')}</gpu_util></utilization>",
                f"<gpu_power_readings><power_draw>{cell(s, 'power.draw')}</power_draw></gpu_power_readings>",
                "<module_power_readings><power_draw>1.00 W</power_draw></module_power_readings>",
                f"<clocks><sm_clock>{cell(s, 'clocks.current.sm')}</sm_clock></clocks>",
                f"<processes>{listed}</processes></gpu>",
            ]
        parts.append("</nvidia_smi_log>")
    return "".join(part + "\n" for part in parts)


def topology(matrix: Mapping[str, Sequence[str]], escapes: bool = True) -> str:
    """As `topo -m` prints it: device -> cells ("X" for itself)."""
    begin, end = ("\x1b[4m", "\x1b[0m") if escapes else ("", "")
    lines = ["\t" + begin + "\t".join([*matrix, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + end]
    for device, cells in matrix.items():
        tail = ["0-63,128-191", "0", "", "N/A"] if device.startswith("GPU") else ["", "", "", ""]
        lines.append("\t".join([device, *(" X " if c == "X" else c for c in cells), *tail]))
    lines += ["", "Legend:", "", "  X    = Self", "  NV#  = Connection traversing a bonded set of # NVLinks", ""]
    return "".join(line + "\n" for line in lines)
