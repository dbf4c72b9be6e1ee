"""The device table against the arithmetic of the chips and against mistakes that are common in such tables."""

from __future__ import annotations

import pytest

from advisor.model import Device
from advisor.model.device_table import devices, find, similar, spec_of, tensor_core_types

T = 1e12

# Dense operations of one SM (AMD: compute unit) in one clock, by compute capability: the architecture whitepapers.
# (7, 5) to (12, 0) outside data centres halve the floating-point tensor rates when they accumulate in FP32.
PER_CLOCK = {
    (7, 0): {"fp64": 64, "fp32": 128, "fp16": 1024},
    (7, 5): {"fp64": 4, "fp32": 128, "fp16": 1024, "int8": 2048},
    (8, 0): {"fp64": 128, "fp32": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    (8, 6): {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048},
    (8, 9): {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048},
    (9, 0): {"fp64": 256, "fp32": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192},
    (10, 0): {"fp64": 128, "fp32": 256, "tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "int8": 16384, "fp4": 32768},
    (10, 3): {"fp64": 4, "fp32": 256, "tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "fp4": 49152},
    (12, 0): {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048, "fp4": 4096},
}
AMD_PER_CLOCK = {
    "MI2": {"fp64": 256, "fp32": 256, "fp16": 1024, "bf16": 1024, "int8": 1024},
    "MI3": {"fp64": 256, "fp32": 256, "tf32": 1024, "fp16": 2048, "bf16": 2048, "fp8": 4096, "int8": 4096},
}
HALVED = {"tf32", "fp16", "bf16", "fp8"}
NOT_BY_CLOCK = {  # limited for export, or a figure that its data sheet rounds to the nearest 10 for eight GPUs
    "NVIDIA H20": {"fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"},
    "NVIDIA H800 SXM": {"fp64"},
    "NVIDIA B300": {"fp64"},
}
HALVED_INTEGERS = {"NVIDIA A10G", "NVIDIA L20", "NVIDIA L40"}  # whole tensor core at half rate, not only FP32 accumulation


@pytest.mark.parametrize("spec", devices(), ids=lambda spec: spec.name)
def test_peaks_are_units_times_clock(spec):
    rates = PER_CLOCK[spec.capability] if spec.capability else AMD_PER_CLOCK[spec.name.split()[2][:3]]
    for dtype, peak in spec.peaks.items():
        if dtype in NOT_BY_CLOCK.get(spec.name, ()):
            continue
        rate = rates[dtype]
        if (spec.half_rate and dtype in HALVED) or (spec.name in HALVED_INTEGERS and dtype == "int8"):
            rate /= 2
        # Tensor-core peaks of large chips are stated at a lower clock than the maximum boost: at most 14 % lower.
        assert 0.855 <= peak / (spec.sm_count * spec.boost_clock * rate) <= 1.025, dtype


@pytest.mark.parametrize("spec", devices(), ids=lambda spec: spec.name)
def test_every_row_is_plausible(spec):
    assert spec.source
    assert spec.memory_bandwidth > 4 * spec.host_bandwidth or spec.c2c_bandwidth
    assert spec.memory_bytes is None or 6 << 30 <= spec.memory_bytes <= 288 << 30
    assert 1e9 < spec.boost_clock < 3e9
    assert spec.pcie_lanes in (8, 16)
    fp4_over_fp8 = 3 if spec.capability == (10, 3) else 4 if spec.half_rate else 2
    for lower, higher, ratio in (("tf32", "bf16", 2), ("fp16", "fp8", 2), ("fp8", "fp4", fp4_over_fp8)):
        if spec.peak(lower) and spec.peak(higher):
            assert spec.peak(higher) / spec.peak(lower) == pytest.approx(ratio, rel=0.03)
    if spec.peak("bf16"):
        assert spec.peak("bf16") == spec.peak("fp16")
    if spec.capability:
        recorded = set(spec.peaks) - {"fp32", "fp64"}
        assert recorded == tensor_core_types(spec.capability) - ({"int8"} if spec.capability == (10, 3) else set())


# Left: what the data sheet says without sparsity. Each of these is often quoted twice as large.
@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989),
        ("NVIDIA H100 80GB HBM3", "fp8", 1979),
        ("NVIDIA H100 80GB HBM3", "tf32", 495),
        ("NVIDIA H100 80GB HBM3", "fp32", 67),
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("NVIDIA H200", "fp16", 989),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156),
        ("NVIDIA A100-SXM4-80GB", "int8", 624),
        ("NVIDIA L40S", "bf16", 362),
        ("NVIDIA L40", "bf16", 181),
        ("NVIDIA L4", "fp16", 121),
        ("NVIDIA A10", "bf16", 125),
        ("NVIDIA A10G", "bf16", 70),
        ("NVIDIA A30", "bf16", 165),
        ("NVIDIA B200", "fp4", 9000),
        ("NVIDIA B200", "bf16", 2250),
        ("Tesla V100-SXM2-32GB", "fp16", 125),
        ("Tesla T4", "fp16", 65),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2),
        ("NVIDIA GeForce RTX 3090", "fp16", 71.2),
        ("NVIDIA GeForce RTX 5090", "fp4", 1676),
        ("NVIDIA RTX A6000", "bf16", 154.8),
        ("AMD Instinct MI300X", "bf16", 1307.4),
        ("AMD Instinct MI250X", "bf16", 191.5),
        ("AMD Instinct MI300X", "fp8", 2614.9),
        ("AMD Instinct MI210", "fp16", 181),
        ("NVIDIA H100 NVL", "bf16", 835.5),
        ("NVIDIA H200 NVL", "fp8", 1670.5),
        ("NVIDIA H200", "fp8", 1978.9),
        ("NVIDIA GH200 480GB", "bf16", 989.4),
        ("NVIDIA GB200", "bf16", 2500),
        ("NVIDIA GB200", "fp8", 5000),
        ("NVIDIA B200", "fp8", 4500),
        ("NVIDIA L40S", "fp8", 733),
        ("NVIDIA L4", "fp8", 242.5),
        ("NVIDIA A40", "bf16", 149.7),
        ("NVIDIA GeForce RTX 4090", "fp8", 330.3),
        ("NVIDIA GeForce RTX 5090", "bf16", 209.5),
        ("NVIDIA GeForce RTX 5080", "fp8", 225.1),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "fp4", 2015.2),
    ],
)
def test_dense_peak(name, dtype, tflops):
    assert find(name).peak(dtype) == pytest.approx(tflops * T, rel=0.005)


@pytest.mark.parametrize(
    ("name", "terabytes"),
    [
        ("H200", 4.8),
        ("H100 80GB HBM3", 3.35),
        ("H100 PCIe", 2.0),
        ("A100-SXM4-40GB", 1.555),
        ("A100-PCIE-80GB", 1.935),
        ("V100-SXM2-16GB", 0.9),
    ],
)
def test_memory_bandwidth(name, terabytes):
    assert find(name).memory_bandwidth == pytest.approx(terabytes * T)


def test_links_are_per_direction():
    assert find("H100").link_bandwidth == 450e9
    assert find("A100-SXM4-80GB").link_bandwidth == 300e9
    assert find("RTX 4090").link_bandwidth is None
    assert find("H100").host_bandwidth == pytest.approx(63e9, rel=0.01)
    assert find("A10").host_bandwidth == pytest.approx(31.5e9, rel=0.01)
    assert find("T4").host_bandwidth == pytest.approx(15.75e9, rel=0.01)
    assert find("NVIDIA GH200 480GB").host_bandwidth == 450e9


@pytest.mark.parametrize(
    ("capability", "types"),
    [
        ((6, 1), ""),
        ((7, 0), "fp16"),
        ((7, 5), "fp16 int8"),
        ((8, 0), "fp16 int8 bf16 tf32"),
        ((8, 6), "fp16 int8 bf16 tf32"),
        ((8, 7), "fp16 int8 bf16 tf32"),
        ((8, 9), "fp16 int8 bf16 tf32 fp8"),
        ((9, 0), "fp16 int8 bf16 tf32 fp8"),
        ((10, 0), "fp16 int8 bf16 tf32 fp8 fp4"),
        ((10, 3), "fp16 int8 bf16 tf32 fp8 fp4"),
        ((12, 0), "fp16 int8 bf16 tf32 fp8 fp4"),
        (None, ""),
    ],
)
def test_tensor_core_types(capability, types):
    assert tensor_core_types(capability) == set(types.split())


def test_support_follows_the_chip():
    assert not find("V100-32GB").supports("tf32")
    assert not find("T4").supports("bf16")
    assert not find("A100-80GB").supports("fp8")
    assert find("RTX 4090").supports("fp8") and not find("RTX 4090").supports("fp4")
    assert find("MI300X").supports("fp8") and not find("MI250X").supports("fp8")
    assert find("MI250X").supports("bf16") and not find("MI250X").supports("tf32")
    with pytest.raises(KeyError):
        find("T4").peak("float16")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("h100", "NVIDIA H100 SXM"),
        ("H100-SXM", "NVIDIA H100 SXM"),
        ("a100-80gb", "NVIDIA A100 SXM 80GB"),
        ("rtx 4090", "NVIDIA GeForce RTX 4090"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"),
        ("GeForce RTX 2080 Ti", "NVIDIA GeForce RTX 2080 Ti"),
        ("NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX 6000 Ada"),
        ("Quadro RTX 6000", "NVIDIA Quadro RTX 6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "NVIDIA RTX PRO 6000 Blackwell Workstation"),
        ("AMD Instinct MI300X", "AMD Instinct MI300X"),
        ("mi300x", "AMD Instinct MI300X"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 PCIe 80GB"),
        ("A100-SXM4-40GB", "NVIDIA A100 SXM 40GB"),
    ],
)
def test_names(typed, name):
    assert find(typed).name == name


@pytest.mark.parametrize(
    "typed",
    [
        None,
        "",
        "NVIDIA",
        "a100",
        "v100",
        "RTX 6000",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 3080 Laptop GPU",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "GRID A100-10C",
        "NVIDIA H1000",
        "NVIDIA GeForce GTX 1660 Ti",
        "L400",
        "Quadro P4000",
    ],
)
def test_nothing_is_guessed(typed):
    assert find(typed) is None


def test_names_are_unique():
    seen: dict[str, str] = {}
    for spec in devices():
        for name in (spec.name, *spec.names):
            assert find(name) is spec, name
            assert seen.setdefault(name, spec.name) == spec.name


def test_similar_names_what_the_user_may_mean():
    assert similar("a100") == ["NVIDIA A100 PCIe 40GB", "NVIDIA A100 PCIe 80GB", "NVIDIA A100 SXM 40GB", "NVIDIA A100 SXM 80GB"]
    assert similar("no such gpu") == []
    assert similar("") == []


def test_a_slice_or_variant_is_not_the_whole_gpu():
    whole = Device(0, name="NVIDIA H100 80GB HBM3", sm_count=132, compute_capability=(9, 0))
    assert spec_of(whole).name == "NVIDIA H100 SXM"
    assert spec_of(Device(0, name="NVIDIA H100 80GB HBM3")).name == "NVIDIA H100 SXM"
    assert spec_of(Device(0, name="NVIDIA H100 80GB HBM3", sm_count=16)) is None
    assert spec_of(Device(0, name="NVIDIA GeForce RTX 3080", sm_count=70)) is None
    assert spec_of(Device(0, name="NVIDIA H100 80GB HBM3", compute_capability=(8, 0))) is None
    assert spec_of(Device(0)) is None
    # AMD's tools fill the capability fields with the graphics core version.
    assert spec_of(Device(0, name="AMD Instinct MI300X", compute_capability=(9, 4), sm_count=304)).supports("fp8")


def test_links_that_need_a_bridge_are_marked() -> None:
    """Whether such a card has links at all only the topology of the machine tells."""
    optional = {spec.name for spec in devices() if spec.link_optional}
    assert all(spec.link_bandwidth for spec in devices() if spec.name in optional)
    assert {"NVIDIA A100 PCIe 80GB", "NVIDIA H100 NVL", "NVIDIA GeForce RTX 3090"} <= optional
    assert not {"NVIDIA A100 SXM 80GB", "NVIDIA H200 SXM", "NVIDIA B200"} & optional
