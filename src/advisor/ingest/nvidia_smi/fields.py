"""What every field of nvidia-smi means: query field, dmon or pmon column, path in -q and -q -x, own names of scripts -> column.

This is the only home of these facts. Columns are those of `device_samples` and `device_processes`; besides them there
are keys that say whose row it is and when it was (`date`, `stamp`, `index`, `uuid`, `bus`), and what the log states about the
machine (`capability`, `driver`, `cuda`) or what stands in for another column (`free` memory).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from advisor.ingest.nvidia_smi.values import UNITS
from advisor.model import ThrottleReason

_TEXT_KINDS = ("text", "uuid", "bus", "command")


@dataclass(frozen=True)
class Meaning:
    """Where one column comes from. Names are tried in order: the first that a row knows is taken.

    `kind` is the unit the value is turned into, see `values.number`, or one of text, uuid, bus, command, stamp, date. `query`
    holds the names of --query-gpu and --query-compute-apps, `monitor` the columns of dmon and pmon, `paths` those of -q (words)
    and -q -x (elements), `own` names that scripts write, in normal form. `sum` adds several paths up instead.
    """

    column: str
    kind: str
    query: tuple[str, ...] = ()
    monitor: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    sum: bool = False
    bit: int = 0

    @property
    def is_text(self) -> bool:
        return self.kind in _TEXT_KINDS


def _m(column: str, kind: str, query: str = "", monitor: str = "", paths: str = "", own: str = "", sum: bool = False) -> Meaning:
    return Meaning(
        column,
        kind,
        tuple(query.split()),
        tuple(monitor.split()),
        tuple(p.strip() for p in paths.split("|") if p.strip()),
        tuple(own.split()),
        sum,
    )


SAMPLES = (
    _m("date", "date", monitor="date", own="date"),
    _m("stamp", "stamp", "timestamp", "time", own="time datetime date_time ts time_stamp timestamp_utc epoch unix_time elapsed"),
    _m("index", "index", "index", "gpu", own="gpu gpu_index gpu_id gpu_idx gpuid device device_index device_id idx gpu_num"),
    _m("uuid", "uuid", "uuid gpu_uuid", paths="gpu uuid | uuid", own="gpu_uuid device_uuid"),
    _m("bus", "bus", "pci.bus_id gpu_bus_id", paths="pci/bus id | pci/pci_bus_id", own="pci_bus_id bus_id"),
    _m("name", "text", "name gpu_name", paths="product name | product_name", own="gpu_name device_name product_name gpu_model"),
    _m("capability", "text", "compute_cap", own="compute_capability compute_cap"),
    _m("driver", "text", "driver_version", paths="driver version | driver_version", own="driver_version"),
    _m("cuda", "text", paths="cuda version | cuda_version", own="cuda_version"),
    _m(
        "utilization",
        "%",
        "utilization.gpu",
        "sm",
        "utilization/gpu | utilization/gpu_util",
        "gpu_util gpu_utilization utilization_gpu util_gpu gpu_usage gpu_load util utilization util_percent gpu_percent sm_util",
    ),
    _m(
        "memory_utilization",
        "%",
        "utilization.memory",
        "mem",
        "utilization/memory | utilization/memory_util",
        "mem_util memory_util memory_utilization mem_utilization utilization_memory util_mem gpu_mem_util gpu_memory_util",
    ),
    _m(
        "memory_used",
        "bytes",
        "memory.used",
        "fb",
        "fb memory usage/used | memory usage/used | fb_memory_usage/used",
        "mem_used memory_used used_mem used_memory gpu_mem_used gpu_memory_used vram_used vram gpu_mem gpu_memory",
    ),
    _m(
        "memory_total",
        "bytes",
        "memory.total",
        paths="fb memory usage/total | memory usage/total | fb_memory_usage/total",
        own="mem_total memory_total total_mem total_memory gpu_mem_total gpu_memory_total vram_total",
    ),
    _m("free", "bytes", "memory.free", own="mem_free memory_free free_mem gpu_mem_free gpu_memory_free vram_free"),
    _m(
        "power",
        "W",
        "power.draw power.draw.average gpu.power.draw.average power.draw.instant gpu.power.draw.instant",
        "pwr",
        "power readings/power draw | gpu power readings/power draw | gpu power readings/average power draw"
        "| gpu power readings/instantaneous power draw | power_readings/power_draw | gpu_power_readings/power_draw"
        "| gpu_power_readings/average_power_draw | gpu_power_readings/instant_power_draw",
        "power power_draw gpu_power power_usage gpu_power_draw pwr",
    ),
    _m(
        "power_limit",
        "W",
        "enforced.power.limit gpu.power.current_limit power.limit gpu.power.requested_limit",
        paths="power readings/enforced power limit | gpu power readings/current power limit | power readings/power limit"
        "| gpu power readings/requested power limit | power_readings/enforced_power_limit"
        "| gpu_power_readings/current_power_limit | power_readings/power_limit | gpu_power_readings/requested_power_limit",
        own="power_limit power_cap gpu_power_limit enforced_power_limit",
    ),
    _m(
        "temperature",
        "C",
        "temperature.gpu",
        "gtemp temp",
        "temperature/gpu current temp | temperature/gpu_temp | temperature/gpu",
        "temp temperature gpu_temp temperature_gpu temp_gpu gpu_temperature gtemp",
    ),
    _m(
        "memory_temperature",
        "C",
        "temperature.memory",
        "mtemp",
        "temperature/memory current temp | temperature/memory_temp",
        "mem_temp memory_temp temperature_memory memory_temperature mtemp",
    ),
    _m(
        "sm_clock",
        "MHz",
        "clocks.current.sm clocks.sm clocks.current.graphics clocks.gr",
        "pclk",
        "clocks/sm | clocks/sm_clock | clocks/graphics | clocks/graphics_clock",
        "sm_clock clock_sm clocks_sm clocks_current_sm gpu_clock clock_gpu graphics_clock core_clock clock_graphics",
    ),
    _m(
        "memory_clock",
        "MHz",
        "clocks.current.memory clocks.mem",
        "mclk",
        "clocks/memory | clocks/mem_clock",
        "mem_clock memory_clock clock_mem clocks_mem clocks_current_memory clock_memory",
    ),
    _m(
        "sm_clock_max",
        "MHz",
        "clocks.max.sm clocks.max.graphics clocks.max.gr",
        paths="max clocks/sm | max_clocks/sm_clock | max clocks/graphics | max_clocks/graphics_clock",
        own="max_sm_clock sm_clock_max clocks_max_sm",
    ),
    _m(
        "memory_clock_max",
        "MHz",
        "clocks.max.memory clocks.max.mem",
        paths="max clocks/memory | max_clocks/mem_clock",
        own="max_mem_clock mem_clock_max clocks_max_mem clocks_max_memory",
    ),
    _m("throttle_reasons", "mask", "clocks_event_reasons.active clocks_throttle_reasons.active"),
    _m("power_violation", "%", monitor="pviol"),
    _m("thermal_violation", "%", monitor="tviol"),
    _m("performance_state", "state", "pstate", paths="performance state | performance_state", own="perf_state performance_state"),
    _m("fan", "%", "fan.speed", paths="fan speed | fan_speed", own="fan fan_speed"),
    _m("encoder", "%", "utilization.encoder", "enc", "utilization/encoder | utilization/encoder_util", "encoder_util enc_util"),
    _m("decoder", "%", "utilization.decoder", "dec", "utilization/decoder | utilization/decoder_util", "decoder_util dec_util"),
    _m(
        "pcie_generation",
        "generation",
        "pcie.link.gen.current pcie.link.gen.gpucurrent",
        paths="pci/gpu link info/pcie generation/current | pci/pci_gpu_link_info/pcie_gen/current_link_gen",
        own="pcie_gen pcie_link_gen pcie_link_gen_current pcie_gen_current",
    ),
    _m(
        "pcie_generation_max",
        "generation",
        "pcie.link.gen.max pcie.link.gen.gpumax",
        paths="pci/gpu link info/pcie generation/max | pci/pci_gpu_link_info/pcie_gen/max_link_gen",
        own="pcie_gen_max pcie_link_gen_max",
    ),
    _m(
        "pcie_width",
        "lanes",
        "pcie.link.width.current",
        paths="pci/gpu link info/link width/current | pci/pci_gpu_link_info/link_widths/current_link_width",
        own="pcie_width pcie_link_width pcie_link_width_current pcie_width_current",
    ),
    _m(
        "pcie_width_max",
        "lanes",
        "pcie.link.width.max",
        paths="pci/gpu link info/link width/max | pci/pci_gpu_link_info/link_widths/max_link_width",
        own="pcie_width_max pcie_link_width_max",
    ),
    _m("pcie_receive", "bytes/s", "pcie.rx", monitor="rxpci", paths="pci/rx throughput | pci/rx_util"),
    _m("pcie_transmit", "bytes/s", "pcie.tx", monitor="txpci", paths="pci/tx throughput | pci/tx_util"),
    _m(
        "ecc_corrected",
        "errors",
        "ecc.errors.corrected.volatile.total",
        "sbecc",
        "ecc errors/volatile/sram correctable | ecc errors/volatile/dram correctable | ecc errors/volatile/single bit/total"
        "| ecc_errors/volatile/sram_correctable | ecc_errors/volatile/dram_correctable"
        "| ecc_errors/volatile/single_bit/total",
        sum=True,
    ),
    _m(
        "ecc_uncorrected",
        "errors",
        "ecc.errors.uncorrected.volatile.total",
        "dbecc",
        "ecc errors/volatile/sram uncorrectable | ecc errors/volatile/sram uncorrectable parity"
        "| ecc errors/volatile/sram uncorrectable sec-ded | ecc errors/volatile/dram uncorrectable"
        "| ecc errors/volatile/double bit/total | ecc_errors/volatile/sram_uncorrectable"
        "| ecc_errors/volatile/sram_uncorrectable_parity | ecc_errors/volatile/sram_uncorrectable_secded"
        "| ecc_errors/volatile/dram_uncorrectable | ecc_errors/volatile/double_bit/total",
        sum=True,
    ),
)

PROCESSES = (
    *SAMPLES[:5],
    _m("process", "count", "pid", "pid", "process id | pid"),
    _m("type", "text", monitor="type", paths="type"),
    _m("sm", "%", monitor="sm"),
    _m("memory", "%", monitor="mem"),
    _m(
        "memory_used",
        "bytes",
        "used_gpu_memory used_memory",
        "fb",
        "used gpu memory | used_memory",
        "used_gpu_memory used_memory",
    ),
    _m("command", "command", "process_name name", "command", "name | process_name"),
)

# Single reasons: name in --query-gpu (after clocks_event_reasons.), in -q and in -q -x (after ..._reason_).
_REASONS = {
    "gpu_idle": ("idle", ThrottleReason.IDLE),
    "applications_clocks_setting": ("applications clocks setting", ThrottleReason.APPLICATION_CLOCKS),
    "sw_power_cap": ("sw power cap", ThrottleReason.SW_POWER_CAP),
    "hw_slowdown": ("hw slowdown", ThrottleReason.HW_SLOWDOWN),
    "sync_boost": ("sync boost", ThrottleReason.SYNC_BOOST),
    "sw_thermal_slowdown": ("sw thermal slowdown", ThrottleReason.SW_THERMAL),
    "hw_thermal_slowdown": ("hw slowdown/hw thermal slowdown", ThrottleReason.HW_THERMAL),
    "hw_power_brake_slowdown": ("hw slowdown/hw power brake slowdown", ThrottleReason.HW_POWER_BRAKE),
    "display_clocks_setting": ("display clock setting", ThrottleReason.DISPLAY_CLOCKS),
}
REASONS = tuple(
    Meaning(
        "throttle_reasons",
        "flag",
        tuple(f"clocks_{age}_reasons.{field}" for age in ("event", "throttle")),
        paths=tuple(f"clocks {age} reasons/{words}" for age in ("event", "throttle"))
        + tuple(f"clocks_{age}_reasons/clocks_{age}_reason_{field}" for age in ("event", "throttle")),
        bit=int(bit),
    )
    for field, (words, bit) in _REASONS.items()
)


@dataclass(frozen=True)
class Field:
    """One field of a header, or one path: which meaning it has, at which place of preference, in which unit by its header."""

    meaning: Meaning
    place: int = 0
    unit: str = ""


def _lookup(meanings: tuple[Meaning, ...], where: str) -> dict[str, Field]:
    found: dict[str, Field] = {}
    for meaning in meanings:
        for place, key in enumerate(getattr(meaning, where)):
            found.setdefault(key, Field(meaning, place))
    return found


_QUERY = _lookup((*SAMPLES, *REASONS), "query")
_OWN = _lookup(SAMPLES, "own")
_PROCESS_QUERY = _lookup(PROCESSES, "query") | {k: _QUERY[k] for k in ("uuid", "pci.bus_id", "index")}
_MONITOR = {False: _lookup(SAMPLES, "monitor"), True: _lookup(PROCESSES, "monitor")}
PATHS = _lookup((*SAMPLES, *REASONS), "paths")
PROCESS_PATHS = _lookup(PROCESSES[5:], "paths")

_UNIT_WORDS = {"pct": "%", "perc": "%", "percent": "%", "mb": "MiB", "mib": "MiB", "gb": "GiB", "gib": "GiB", "kb": "KiB"}
_UNIT_WORDS |= {
    "bytes": "b",
    "w": "W",
    "watt": "W",
    "watts": "W",
    "mw": "mW",
    "c": "C",
    "celsius": "C",
    "mhz": "MHz",
    "ghz": "GHz",
}
_UNIT_WORDS |= dict.fromkeys(("s", "sec", "secs", "seconds", "ms", "us", "ns"), "")
_HEADER = re.compile(r"\s*([A-Za-z][\w. /-]*?)\s*(?:[\[(]\s*([^\])]*?)\s*[\])])?\s*")


def normal(text: str) -> tuple[str, str]:
    """A header cell -> (name in lower case, unit as written in brackets)."""
    part = _HEADER.fullmatch(text.strip().strip('"')) if len(text) < 100 else None
    return ("", "") if part is None else (part[1].lower(), part[2] or "")


def query_field(text: str, processes: bool = False) -> Field | None:
    """The field of a --query-gpu (or --query-compute-apps) header cell, by nvidia-smi's own names."""
    key, unit = normal(text)
    found = (_PROCESS_QUERY if processes else _QUERY).get(key)
    return None if found is None else Field(found.meaning, found.place, unit if unit.lower() in UNITS else "")


def own_field(text: str) -> Field | None:
    """The field that a script's own column name means (gpu_util_percent, mem_used_mb, power_w)."""
    key, unit = normal(text)
    words = [word for word in re.split(r"[^a-z0-9]+", key) if word]
    unit = unit if unit.lower() in UNITS else ""
    found = _OWN.get("_".join(words))
    if found is None and len(words) > 1 and words[-1] in _UNIT_WORDS:
        unit = unit or _UNIT_WORDS[words[-1]]
        found = _OWN.get("_".join(words[:-1]))
    return None if found is None else Field(found.meaning, 100 + found.place, unit)


def monitor_field(column: str, unit: str, processes: bool) -> Field | None:
    """The field of a dmon or pmon column with the unit that its second header line states."""
    found = _MONITOR[processes].get(column.lower())
    return None if found is None else Field(found.meaning, found.place, unit if unit.lower() in UNITS else "")


# Fields of --query-gpu that fill no column: a header may consist of them.
_FAMILIES = re.compile(
    r"(?:clocks(?:_event_reasons|_throttle_reasons|_event_reasons_counters)?|ecc|encoder|enforced|fabric|fan|gom|gsp|inforom|memory|mig|"
    r"module|pci|pcie|platform|power|power_smoothing|protected_memory|remapped_rows|retired_pages|temperature|utilization|"
    r"accounting|driver_model|c2c|gpu|vgpu_\w+|gpu_operation_mode)\.[a-z0-9_.]+",
    re.I,
)
_SINGLE = {
    *("count", "serial", "gpu_serial", "vbios_version", "compute_mode", "persistence_mode", "display_mode", "display_active"),
    *("display_attached", "addressing_mode", "gpu_recovery_action", "hostname"),
}


def is_query_name(text: str) -> bool:
    """True for a header cell that only nvidia-smi writes."""
    key, _ = normal(text)
    return key in _QUERY or key in _PROCESS_QUERY or key in _SINGLE or _FAMILIES.fullmatch(key) is not None
