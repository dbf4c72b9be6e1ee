"""dmon, pmon, tables, -q text, -q -x XML and topology."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.ingest import nvidia_smi
from advisor.ingest.source import Source
from advisor.model import InputError, Trace
from build import smi

MIB = 1 << 20
SECOND = 10**9
Read = Callable[..., Trace]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def reader(text: str | bytes, name: str = "x.log") -> Trace:
        file = tmp_path / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        trace: Trace = nvidia_smi.read(Source(file))
        assert nvidia_smi.claims(Source(file).head()) == trace.format
        return trace

    return reader


def codes(trace: Trace) -> list[str]:
    return [notice.code for notice in trace.notices]


def words(trace: Trace, table: str, column: str) -> list[str]:
    return [trace.strings[code] for code in trace.table(table)[column]]


def test_dmon(read: Read) -> None:
    values = {"rxpci": 12, "txpci": 3, "pviol": 40, "tviol": lambda second, gpu: gpu, "temperature.memory": None}
    trace = read(smi.dmon(smi.samples(25, 2, values=values)))
    table = trace.table("device_samples")
    assert trace.format == "nvidia-smi-dmon"
    assert len(table) == 50
    assert table["device"].tolist() == [0, 1] * 25
    assert (table["time"][::2] // SECOND).tolist() == list(range(25))
    first = {name: table[name][1].item() for name in table.column_names}
    expected = {
        "power": 650,
        "temperature": 60,
        "utilization": 100,
        "memory_utilization": 55,
        "memory_clock": 3201,
        "sm_clock": 1980,
    }
    expected |= {"power_violation": 40, "thermal_violation": 100, "memory_used": 90_000 * MIB}
    expected |= {"pcie_receive": 12e6, "pcie_transmit": 3e6}
    assert {name: first[name] for name in expected} == expected
    assert not table.has("memory_temperature")
    assert trace.local_clock and trace.epoch_ns is not None
    assert codes(trace) == []


def test_dmon_without_stamps_counts_seconds_and_says_so(read: Read) -> None:
    trace = read(smi.dmon(smi.samples(25, 2), dated=False))
    assert (trace.table("device_samples")["time"] // SECOND).tolist() == [i // 2 for i in range(50)]
    assert trace.epoch_ns is None
    assert codes(trace) == ["no-time-stamps"]


def test_dmon_with_the_time_alone_runs_over_midnight(read: Read) -> None:
    rows = [f" 23:59:{58 + i}    0    100    50\n" if i < 2 else f" 00:00:0{i - 2}    0    100    50\n" for i in range(4)]
    trace = read("#Time       gpu    pwr    sm \n#HH:MM:SS   Idx      W     % \n" + "".join(rows))
    assert (trace.table("device_samples")["time"] // SECOND).tolist() == [0, 1, 2, 3]
    assert trace.epoch_ns is None
    assert codes(trace) == ["no-date"]


def test_dmon_as_csv(read: Read) -> None:
    trace = read(
        "#gpu, pwr, gtemp, sm, mclk, pclk\n#Idx, W, C, %, MHz, MHz\n 0, 536, 55, 100, 3201, 1980\n 1, 540, -, 99, 3201, 1965\n"
    )
    table = trace.table("device_samples")
    assert trace.format == "nvidia-smi-dmon"
    assert table["power"].tolist() == [536, 540]
    assert table["sm_clock"].tolist() == [1980, 1965]
    assert table.known("temperature").tolist() == [True, False]
    with pytest.raises(InputError, match="header"):
        nvidia_smi.read(_file(read, " 20261130, 18:05:03, 0, 539, 55, 57\n 20261130, 18:05:04, 0, 539, 55, 57\n"))


def _file(read: Read, text: str) -> Source:
    closure = read.__closure__  # type: ignore[attr-defined]
    folder: Path = next(cell.cell_contents for cell in closure if isinstance(cell.cell_contents, Path))
    (folder / "y.log").write_text(text)
    return Source(folder / "y.log")


def test_pmon(read: Read) -> None:
    rows = [
        (0, 4711, "C", 97, 41, 8123, "python"),
        (1, 4711, "C", 95, 40, 8000, "python"),
        (1, 52, "G", None, None, 4, "GNOME Shell"),
    ]
    trace = read(smi.pmon([*rows, *rows, (0, None, "-", None, None, None, "-"), rows[1]]))
    table = trace.table("device_processes")
    assert trace.format == "nvidia-smi-pmon"
    assert table["process"].tolist() == [4711, 4711, 52] * 2 + [4711]
    assert table["device"].tolist() == [0, 1, 1, 0, 1, 1, 1]
    assert (table["time"] // SECOND).tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert table.known("sm").tolist() == [True, True, False] * 2 + [True]
    assert table["memory_used"][0] == 8123 * MIB
    assert words(trace, "device_processes", "command")[:3] == ["python", "python", "GNOME Shell"]
    assert words(trace, "device_processes", "type")[:3] == ["C", "C", "G"]
    assert [device.index for device in trace.devices] == [0, 1]


@pytest.mark.parametrize("wide", [31, 41, 60])
def test_tables_of_a_loop(read: Read, wide: int) -> None:
    log = smi.samples(180, 2, interval=60, values={"utilization.gpu": lambda second, gpu: second / 60 + gpu})
    log = [row | {"utilization.gpu": round(row["utilization.gpu"])} for row in log]
    processes = [(0, 77, "C", "/home/ada/anaconda3/bin/python", 500), (1, 78, "C+G", "...ada\\env\\python.exe", 600)]
    trace = read(smi.table(log, processes, wide=wide))
    table = trace.table("device_samples")
    assert trace.format == "nvidia-smi-table"
    assert table["utilization"].tolist() == [0, 1, 1, 2, 2, 3]
    assert (table["time"] // SECOND).tolist() == [0, 0, 60, 60, 120, 120]
    assert table["memory_used"].tolist() == [90_000 * MIB] * 6
    assert table["power"].tolist() == [650] * 6
    assert table["power_limit"].tolist() == [700] * 6
    assert table["temperature"].tolist() == [60] * 6
    assert table["processes"].tolist() == [1] * 6
    assert not table.has("fan")
    assert words(trace, "device_processes", "command") == ["python", "python.exe"] * 3
    assert trace.table("device_processes")["device"].tolist() == [0, 1] * 3
    assert (trace.table("device_processes")["time"] // SECOND).tolist() == [0, 0, 60, 60, 120, 120]
    assert trace.facts == {"driver_version": "580.95.05", "cuda_driver_version": "13.0"}
    assert not any("ada" in text for text in trace.strings.values)
    assert codes(trace) == []


def test_table_without_processes_and_with_errors(read: Read) -> None:
    text = smi.table(smi.samples(1, values={"power.draw": None, "utilization.gpu": None}), processes=(), dated=False)
    trace = read(text.replace("| N/A   60C", "|ERR!   60C"))
    table = trace.table("device_samples")
    assert table["processes"].tolist() == [0]
    assert not table.has("fan") and not table.has("power") and not table.has("utilization")
    assert table["temperature"].tolist() == [60]
    assert codes(trace) == ["no-time-stamps"]


def test_watch_draws_with_escapes_and_prints_the_host(read: Read) -> None:
    log = smi.samples(2)
    screens = []
    for i, row in enumerate(log):
        screen = smi.table([row], dated=False).replace("\n", "\r\n")
        screens.append(
            f"\x1b[H\x1b[2JEvery 1.0s: nvidia-smi      secrethost: Mon Mar  2 09:30:0{i} 2026\r\n\r\n\x1b[1m{screen}\x1b[0m"
        )
    trace = read("".join(screens))
    assert (trace.table("device_samples")["time"] // SECOND).tolist() == [0, 1]
    assert not any("secrethost" in text for text in trace.strings.values)


def test_a_table_then_csv_in_one_file(read: Read) -> None:
    log = smi.samples(5)
    trace = read(smi.table(log[:1], dated=True) + smi.query_csv(log, ["index", "name", "memory.used", "utilization.gpu"]))
    assert trace.format == "nvidia-smi-csv"
    assert len(trace.table("device_samples")) == 6
    assert (trace.table("device_samples")["time"] // SECOND).tolist() == [0, 1, 2, 3, 4, 5]
    assert codes(trace) == ["time-stamps-missing"]


@pytest.mark.parametrize("reasons", ["Clocks Event Reasons", "Clocks Throttle Reasons"])
def test_query_text(read: Read, reasons: str) -> None:
    values = {"clocks_event_reasons.active": lambda second, gpu: [0x1, 0x4 | 0x8 | 0x40][gpu], "pcie.link.gen.current": 1}
    trace = read(smi.query_text(smi.samples(3, 2, values=values), reasons))
    table = trace.table("device_samples")
    assert trace.format == "nvidia-smi-query"
    assert table["device"].tolist() == [0, 1] * 3
    assert table["throttle_reasons"].tolist() == [0x1, 0x4C] * 3
    assert (table["time"] // SECOND).tolist() == [0, 0, 1, 1, 2, 2]
    expected = {"utilization": 100, "memory_used": 90_000 * MIB, "memory_total": 143_771 * MIB, "power": 650, "power_limit": 700}
    expected |= {"sm_clock": 1980, "memory_clock": 3201, "sm_clock_max": 1980, "temperature": 60, "performance_state": 0}
    expected |= {"pcie_generation": 1, "pcie_generation_max": 5, "processes": 0}
    assert {name: table[name][0].item() for name in expected} == expected
    assert [device.uuid for device in trace.devices] == [smi.uuid(0), smi.uuid(1)]
    assert codes(trace) == []


def test_query_text_with_damaged_lines(read: Read) -> None:
    text = smi.query_text(smi.samples(1)).replace("        Sm ", "Sm").replace("SW Power Cap ", "Invalid SW Power Cap")
    text = text.replace("        Used     ", "   Used     ").replace("Temperature\n", "Temperature\n\x07garbage\n")
    table = read(text).table("device_samples")
    assert table["utilization"].tolist() == [100]
    assert table["throttle_reasons"].tolist() == [0]


@pytest.mark.parametrize("reasons", ["event", "throttle"])
def test_query_xml(read: Read, reasons: str) -> None:
    values = {"clocks_event_reasons.active": lambda second, gpu: 0x4 * gpu}
    text = smi.query_xml(smi.samples(3, 2, values=values), reasons, [(9, "C", "/home/ada/bin/python", 300)])
    trace = read(text)
    table = trace.table("device_samples")
    assert trace.format == "nvidia-smi-xml"
    assert table["device"].tolist() == [0, 1] * 3
    assert table["throttle_reasons"].tolist() == [0, 4] * 3
    assert table["power"].tolist() == [650] * 6
    assert table["processes"].tolist() == [1] * 6
    assert (table["time"] // SECOND).tolist() == [0, 0, 1, 1, 2, 2]
    assert set(words(trace, "device_processes", "command")) == {"python"}
    assert trace.facts["driver_version"] == "580.95.05"
    assert codes(trace) == []
    one_line = read(text.replace("\n", ""))
    assert len(one_line.table("device_samples")) == 6


def test_xml_of_mig_devices_keeps_the_whole_gpu(read: Read) -> None:
    mig = "<mig_device><index>0</index><fb_memory_usage><used>12 MiB</used></fb_memory_usage></mig_device>"
    text = smi.query_xml(smi.samples(1)).replace("<mig_devices>None<", f"<mig_devices>{mig}<")
    trace = read(text)
    assert trace.table("device_samples")["memory_used"].tolist() == [90_000 * MIB]
    assert codes(trace) == ["mig-devices"]


def test_xml_cut_before_the_next_document(read: Read) -> None:
    parts = [smi.query_xml([row]) for row in smi.samples(3)]
    trace = read(parts[0] + parts[1][:700] + "\n" + parts[2])
    assert (trace.table("device_samples")["time"] // SECOND).tolist() in ([0, 2], [0, 1, 2])
    assert trace.table("device_samples")["power"][-1] == 650


@pytest.mark.parametrize(
    "declaration",
    [
        '<!DOCTYPE nvidia_smi_log [<!ENTITY a "x"><!ENTITY b "&a;&a;&a;&a;">]>',
        '<!DOCTYPE nvidia_smi_log [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE nvidia_smi_log [<!ENTITY % p SYSTEM "http://localhost/x.dtd"> %p;]>',
    ],
)
def test_xml_entities_are_refused(read: Read, declaration: str) -> None:
    body = "<nvidia_smi_log><gpu id='a'><product_name>&a;</product_name></gpu></nvidia_smi_log>"
    text = f"<?xml version='1.0'?>\n{declaration}\n{body}\n"
    with pytest.raises(InputError, match="entities"):
        read(text)


def test_xml_of_something_else_is_not_claimed() -> None:
    assert nvidia_smi.claims(b"<?xml version='1.0'?>\n<session><gpu/></session>\n") is None


@pytest.mark.parametrize("escapes", [True, False])
def test_topology(read: Read, escapes: bool) -> None:
    matrix = {"GPU0": ["X", "NV18", "PIX"], "GPU1": ["NV18", "X", "SYS"], "NIC0": ["PIX", "SYS", "X"]}
    trace = read(smi.topology(matrix, escapes))
    links = trace.table("links")
    found = list(zip(*(words(trace, "links", name) for name in ("a", "b", "link")), strict=True))
    assert trace.format == "nvidia-smi-topology"
    assert sorted(found) == [("GPU0", "GPU1", "NV18"), ("GPU0", "NIC0", "PIX"), ("GPU1", "NIC0", "SYS")]
    assert len(links) == 3
    assert [device.index for device in trace.devices] == [0, 1]
    assert codes(trace) == []


def test_topology_with_blanks_and_one_gpu(read: Read) -> None:
    two = "      GPU0  GPU1  CPU Affinity  NUMA Affinity\nGPU0   X    NV12   0-23         0\nGPU1  NV12   X     0-23         0\n"
    assert words(read(two), "links", "link") == ["NV12"]
    one = read("\t\x1b[4mGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\nGPU0\t X \t0-15\t0\t\tN/A\n")
    assert len(one.table("links")) == 0
    assert [device.index for device in one.devices] == [0]


def test_list_of_gpus_gives_names_to_rows_by_uuid(read: Read) -> None:
    listing = f"GPU 3: NVIDIA A100-SXM4-80GB (UUID: {smi.uuid(0)})\n"
    trace = read(listing + smi.query_csv(smi.samples(5), ["timestamp", "uuid", "utilization.gpu"]))
    assert trace.table("device_samples")["device"].tolist() == [3] * 5
    assert [(device.index, device.name) for device in trace.devices] == [(3, "NVIDIA A100-SXM4-80GB")]
