"""nvidia-smi --query-gpu as CSV, and what scripts make of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from advisor.ingest import nvidia_smi
from advisor.ingest.source import Source
from advisor.model import InputError, Trace
from build import smi

MIB = 1 << 20
Read = Callable[..., Trace]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def reader(text: str | bytes, name: str = "x.log") -> Trace:
        file = tmp_path / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        trace: Trace = nvidia_smi.read(Source(file))
        return trace

    return reader


def codes(trace: Trace) -> list[str]:
    return [notice.code for notice in trace.notices]


def column(trace: Trace, name: str) -> list[float]:
    values: list[float] = trace.table("device_samples")[name].tolist()
    return values


ALL = (*smi.FIELDS, "uuid", "pci.bus_id", "enforced.power.limit", "temperature.gpu", "temperature.memory", "clocks.current.sm")
ALL += ("clocks.max.sm", "clocks.current.memory", "clocks.max.memory", "clocks_event_reasons.active", "pstate")
ALL += ("pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max")


@pytest.mark.parametrize("units", [True, False])
def test_every_column_in_the_schemas_units(read: Read, units: bool) -> None:
    values = {"clocks_event_reasons.active": 0x24, "pstate": 2, "power.draw": lambda second, gpu: 600.25 + gpu}
    trace = read(smi.query_csv(smi.samples(3, 2, values=values), ALL, units=units))
    assert trace.format == "nvidia-smi-csv"
    assert codes(trace) == []
    first = {name: column(trace, name)[0] for name in trace.table("device_samples").column_names}
    expected = {
        "time": 0, "device": 0, "utilization": 100, "memory_utilization": 55, "memory_used": 90_000 * MIB,
        "memory_total": 143_771 * MIB, "power": 600.25, "power_limit": 700, "temperature": 60, "memory_temperature": 52,
        "sm_clock": 1980, "sm_clock_max": 1980, "memory_clock": 3201, "memory_clock_max": 3201, "throttle_reasons": 0x24,
        "performance_state": 2, "pcie_generation": 5, "pcie_generation_max": 5, "pcie_width": 16, "pcie_width_max": 16,
    }  # fmt: skip
    assert {name: first[name] for name in expected} == expected
    assert column(trace, "device") == [0, 1, 0, 1, 0, 1]
    assert column(trace, "time") == [0, 2_000_000, 1_000_000_000, 1_002_000_000, 2_000_000_000, 2_002_000_000]
    assert column(trace, "power") == [600.25, 601.25] * 3
    assert [(d.index, d.name, d.memory_bytes, d.uuid, d.max_clock) for d in trace.devices] == [
        (gpu, "NVIDIA H200", 143_771 * MIB, smi.uuid(gpu), 1980.0) for gpu in (0, 1)
    ]
    assert trace.strings[trace.table("device_samples")["uuid"][1]] == smi.uuid(1)
    assert trace.local_clock
    assert trace.epoch_ns == round(smi.START.replace(tzinfo=UTC).timestamp()) * 10**9


def test_missing_values_are_missing_and_never_zero(read: Read) -> None:
    for text in (
        "[N/A]",
        "N/A",
        "[Not Supported]",
        "[Unknown Error]",
        "-",
        "",
        "ERR!",
        "[GPU is lost]",
        "[Insufficient Permissions]",
    ):
        values = {
            "utilization.gpu": None,
            "memory.used": None,
            "power.draw": None,
            "clocks_event_reasons.active": None,
            "pstate": None,
        }
        fields = [*smi.FIELDS, "clocks_event_reasons.active", "pstate", "temperature.gpu"]
        table = read(smi.query_csv(smi.samples(4, values=values), fields, missing=text)).table("device_samples")
        for name in ("utilization", "memory_used", "power", "throttle_reasons", "performance_state"):
            assert not table.has(name), (text, name)
        assert table["temperature"].tolist() == [60] * 4


def test_some_missing_values_leave_the_others(read: Read) -> None:
    values = {"utilization.gpu": lambda second, gpu: None if second % 2 else 30 + second}
    table = read(smi.query_csv(smi.samples(40, values=values))).table("device_samples")
    assert table.known("utilization").tolist() == [True, False] * 20
    assert table["utilization"][::2].tolist() == [30 + s for s in range(0, 40, 2)]


@pytest.mark.parametrize(
    ("fields", "name", "expected"),
    [
        ("clocks.sm", "sm_clock", 1410), ("clocks.current.sm [MHz]", "sm_clock", 1410), ("clocks.gr [MHz]", "sm_clock", 1410),
        ("clocks.mem [MHz]", "memory_clock", 1410), ("clocks_throttle_reasons.active", "throttle_reasons", 1410),
        ("clocks_event_reasons.active", "throttle_reasons", 1410), ("power.draw.instant [W]", "power", 1410),
        ("power.draw.average [W]", "power", 1410), ("enforced.power.limit [W]", "power_limit", 1410),
        ("temperature.memory", "memory_temperature", 1410), ("memory.used [GiB]", "memory_used", 1410 << 30),
        ("ecc.errors.uncorrected.volatile.total", "ecc_uncorrected", 1410), ("fan.speed [%]", "fan", 1410),
    ],
)  # fmt: skip
def test_old_and_new_names(read: Read, fields: str, name: str, expected: float) -> None:
    table = read(f"timestamp, index, {fields}\n2026/03/02 09:30:00.000, 0, 1410\n").table("device_samples")
    assert table[name].tolist() == [expected]


def test_of_several_sources_the_better_one_is_taken(read: Read) -> None:
    head = "timestamp, index, power.draw.instant [W], power.draw [W], power.limit [W], enforced.power.limit [W]\n"
    table = read(head + "2026/03/02 09:30:00.000, 0, 10.00 W, 20.00 W, 400.00 W, 350.00 W\n"
                        "2026/03/02 09:30:01.000, 0, 11.00 W, [N/A], 400.00 W, [N/A]\n").table("device_samples")  # fmt: skip
    assert table["power"].tolist() == [20, 11]
    assert table["power_limit"].tolist() == [350, 400]


def test_throttle_reasons_from_single_fields(read: Read) -> None:
    names = ["sw_power_cap", "hw_thermal_slowdown", "gpu_idle"]
    for age in ("event", "throttle"):
        head = "timestamp, index, " + ", ".join(f"clocks_{age}_reasons.{name}" for name in names) + "\n"
        rows = [
            "Active, Not Active, Not Active",
            "Active, Active, Not Active",
            "Not Active, Not Active, Not Active",
            "[N/A], [N/A], [N/A]",
        ]
        lines = [f"2026/03/02 09:30:0{i}.000, 0, {row}\n" for i, row in enumerate(rows)]
        table = read(head + "".join(lines)).table("device_samples")
        assert table["throttle_reasons"].tolist() == [0x4, 0x44, 0, -1]


def test_own_names_of_scripts(read: Read) -> None:
    text = (
        "time,gpu_index,gpu_name,gpu_util_percent,mem_util_percent,mem_used_mb,mem_total_mb,temp_c,power_w\n"
        "2026-05-06 10:06:45,0,NVIDIA A10,7,5,410,8188,42,2.5\n"
        "2026-05-06 10:06:46,1,NVIDIA A10,9,6,420,8188,43,3.5\n"
    )
    table = read(text).table("device_samples")
    assert table["utilization"].tolist() == [7, 9]
    assert table["memory_used"].tolist() == [410 * MIB, 420 * MIB]
    assert table["temperature"].tolist() == [42, 43]
    assert table["power"].tolist() == [2.5, 3.5]
    assert table["device"].tolist() == [0, 1]


def test_rows_with_a_second_stamp(read: Read) -> None:
    text = "time,gpu_index,gpu_util_percent,mem_used_mb,power_w\r\n" + "".join(
        f"2026-05-06 10:06:4{i},2026/05/06 10:06:4{i}.521, 0, {50 + i}, 410, 2.5\r\n" for i in range(5)
    )
    trace = read(text)
    assert column(trace, "utilization") == [50, 51, 52, 53, 54]
    assert trace.epoch_ns is not None and trace.epoch_ns % 10**9 == 521_000_000
    assert codes(trace) == []


def test_pandas_excel_and_quotes(read: Read) -> None:
    log = smi.samples(3, 2)
    plain = read(smi.query_csv(log))
    quoted = "\n".join(",".join(f'"{cell}"' for cell in line.split(", ")) for line in smi.query_csv(log).splitlines())
    semicolons = smi.query_csv(log).replace(", ", ";")
    numbered = "\n".join(("" if i == 0 else str(i)) + "," + line for i, line in enumerate(smi.query_csv(log).splitlines()))
    for text in (quoted, semicolons, numbered):
        trace = read(text)
        for name in ("time", "device", "utilization", "memory_used", "power"):
            np.testing.assert_array_equal(trace.table("device_samples")[name], plain.table("device_samples")[name])


def test_gpus_folded_into_one_quoted_record(read: Read) -> None:
    text = 'timestamp,utilization.gpu,memory.used\n2026/03/02 09:30:00.000,"45\n50","1000\n1200"\n'
    text += '2026/03/02 09:30:01.000,"46, 1001\n51, 1201"\n'
    table = read(text).table("device_samples")
    assert table["device"].tolist() == [0, 1, 0, 1]
    assert table["utilization"].tolist() == [45, 50, 46, 51]
    assert (table["memory_used"] // MIB).tolist() == [1000, 1200, 1001, 1201]


def test_a_quote_that_nothing_closes_costs_one_row(read: Read) -> None:
    lines = smi.query_csv(smi.samples(300)).splitlines()
    lines[10] = lines[10].replace("NVIDIA", '"NVIDIA')
    trace = read("\n".join(lines) + "\n")
    assert len(trace.table("device_samples")) == 299
    assert "rows-skipped" in codes(trace)


def test_header_again_and_another_header(read: Read) -> None:
    first = smi.query_csv(smi.samples(5), ["timestamp", "index", "utilization.gpu"])
    later = smi.samples(5, start=datetime(2026, 3, 2, 9, 31))
    second = smi.query_csv(later, ["index", "timestamp", "power.draw"])
    trace = read(first + first.splitlines()[0] + "\n" + second)
    table = trace.table("device_samples")
    assert table.known("utilization").tolist() == [True] * 5 + [False] * 5
    assert table["power"][5:].tolist() == [650] * 5
    assert column(trace, "time")[5] == 60 * 10**9
    assert codes(trace) == []


def test_merged_and_short_rows_are_left_out_and_counted(read: Read) -> None:
    lines = smi.query_csv(smi.samples(50)).splitlines()
    lines[5] += lines[6]
    lines[9] = lines[9][:40]
    trace = read("\n".join(lines) + "\n")
    assert len(trace.table("device_samples")) == 48
    assert [n.message for n in trace.notices if n.code == "rows-skipped"] == ["2 rows do not fit their header and are left out"]


@pytest.mark.parametrize("units", [True, False])
def test_a_value_cut_by_the_end_of_the_file_is_not_read(read: Read, units: bool) -> None:
    text = smi.query_csv(smi.samples(5), ["timestamp", "index", "memory.used"], units=units)
    whole = read(text[:-1])  # only the line end is missing
    assert whole.table("device_samples")["memory_used"][-1] == 90_000 * MIB
    cut = read(text[: text.rindex("90000") + 3])
    assert cut.table("device_samples").known("memory_used").tolist() == [True] * 4 + [False]
    assert "value-cut" in codes(cut)


def test_a_cut_value_of_a_single_column(read: Read) -> None:
    table = read("utilization.gpu [%]\n45 %\n98 %\n1").table("device_samples")
    assert table["utilization"].tolist() == [45, 98]


def test_keys_of_gpus(read: Read) -> None:
    log = smi.samples(3, 2)
    for key in ("index", "uuid", "pci.bus_id"):
        trace = read(smi.query_csv(log, ["timestamp", key, "utilization.gpu"]))
        assert column(trace, "device") == [0, 1] * 3
        assert codes(trace) == ([] if key == "index" else ["gpu-index-unknown"])
    one = read(smi.query_csv(smi.samples(30), ["timestamp", "utilization.gpu"]))
    assert column(one, "device") == [0] * 30
    assert codes(one) == []
    assert len(one.devices) == 1


def test_several_gpus_without_a_key_are_not_guessed(read: Read) -> None:
    trace = read(smi.query_csv(smi.samples(20, 4), ["timestamp", "utilization.gpu"]))
    assert set(column(trace, "device")) == {-1}
    assert trace.devices == []
    assert "gpus-not-separable" in codes(trace)


def test_whole_seconds_repeat_for_one_gpu_that_is_asked_more_often(read: Read) -> None:
    fast = smi.query_csv(smi.samples(60, interval=0.7), ["timestamp", "utilization.gpu"])
    coarse = "\n".join(line.replace(line[19:23], "") if line[0] == "2" else line for line in fast.splitlines())
    assert set(column(read(coarse), "device")) == {0}
    four = smi.query_csv(smi.samples(20, 4), ["timestamp", "utilization.gpu"])
    coarse = "\n".join(line.replace(line[19:23], "") if line[0] == "2" else line for line in four.splitlines())
    assert set(column(read(coarse), "device")) == {-1}


def test_uneven_intervals_of_one_gpu_are_no_sign_of_several(read: Read) -> None:
    log = [row for i, row in enumerate(smi.samples(100)) if i % 10 == 0 or i > 50]
    assert set(column(read(smi.query_csv(log, ["timestamp", "power.draw"])), "device")) == {0}


def test_compute_processes(read: Read) -> None:
    head = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
    rows = "".join(f"2026/03/02 09:30:00.000, {smi.uuid(g)}, {40 + g}, /home/ada/env/bin/python, {100 + g} MiB\n" for g in (0, 1))
    trace = read(head + rows)
    table = trace.table("device_processes")
    assert table["process"].tolist() == [40, 41]
    assert table["device"].tolist() == [0, 1]
    assert (table["memory_used"] // MIB).tolist() == [100, 101]
    assert {trace.strings[code] for code in table["command"]} == {"python"}
    assert not any("ada" in text for text in trace.strings.values)


def test_without_a_header_nothing_is_guessed(read: Read) -> None:
    fields = ["timestamp", "index", "uuid", "utilization.gpu", "memory.used"]
    text = smi.query_csv(smi.samples(5), fields, header=False, units=False)
    assert nvidia_smi.claims(text.encode()) == "nvidia-smi-csv"
    with pytest.raises(InputError, match=r"without its header line.*--query-gpu="):
        read(text)
    # the documented way out: the list that was given to --query-gpu as first line
    table = read(",".join(fields) + "\n" + text).table("device_samples")
    assert table["memory_used"].tolist() == [90_000 * MIB] * 5


@pytest.mark.parametrize(
    ("text", "sense"),
    [
        ('Field "bogus.field" is not a valid field to query.\n\n', "bogus.field"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure ...\n", "couldn't communicate"),
        ("No devices were found\n", "no devices"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "mismatch"),
        ("bash: nvidia-smi: command not found\n", "not installed"),
    ],
)
def test_an_error_in_place_of_a_log(read: Read, text: str, sense: str) -> None:
    assert nvidia_smi.claims(text.encode()) is not None
    with pytest.raises(InputError) as raised:
        read(text)
    assert sense in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_error_inside_a_log_is_told(read: Read) -> None:
    error = "Unable to determine the device handle for GPU 0000:05:00.0: GPU is lost.  Reboot the system to recover this GPU\n"
    trace = read(smi.query_csv(smi.samples(5)) + error)
    assert len(trace.table("device_samples")) == 5
    assert "nvidia-smi-error" in codes(trace)


@pytest.mark.parametrize(
    "text",
    [
        "timestamp,project_name,run_id,duration,emissions,cpu_power,gpu_power,ram_power\n2026-01-01T00:00:00,x,1,2,3,4,5,6\n",
        "time,temperature,humidity\n2026-01-01 00:00:00,20,40\n",
        '"ID","Process ID","Kernel Name","Metric Value"\n"0","1","k","5"\n',
        "GPUId,TimeStampUs,Field,Values\n0,1718783836956328,power_usage_instant,71.20\n",
        "2026-01-01 12:00:00,123 - INFO - epoch 1, loss 0.5\n" * 20,
        '{"traceEvents": [{"name": "nvidia-smi", "args": "| NVIDIA-SMI 580"}]}',
        "epoch 1 loss 2.5\n" * 40 + smi.table(smi.samples(1)),
    ],
)
def test_other_files_are_not_claimed(text: str) -> None:
    assert nvidia_smi.claims(text.encode()) is None


def test_numbers_stay_inside_their_columns(read: Read) -> None:
    head = (
        "timestamp, index, utilization.gpu [%], memory.used [MiB], pstate, pcie.link.width.current, clocks_event_reasons.active\n"
    )
    rows = [
        "99999999999999999999, 99999999999999999999, P99, 4096, 0xffffffffffffffff",
        "-5 %, -5 MiB, P-1, -1, -1",
        "1e9 %, inf, P, x, 0x",
    ]
    table = read(head + "".join(f"2026/03/02 09:30:0{i}.000, 0, {row}\n" for i, row in enumerate(rows))).table("device_samples")
    for name in ("utilization", "memory_used", "performance_state", "pcie_width"):
        assert not table.has(name), name
    assert table["throttle_reasons"].tolist() == [(1 << 52) - 1, -1, -1]
