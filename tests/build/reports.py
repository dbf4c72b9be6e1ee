"""Made-up reports, rich enough to judge how each format looks. Numbers are consistent with one another, not measured."""

from __future__ import annotations

from typing import Any

from advisor.model import Breakdown, Evidence, Finding, Fix, Location, Notice, Report, RuleOutcome, Saving

MS = 1_000_000
H200 = {"index": 0, "name": "NVIDIA H200", "compute_capability": "9.0", "sm_count": 132, "memory_bytes": 150_109_880_320}

ALL_RANKS = "give the traces of all ranks in one call"
A100 = {"name": "NVIDIA A100-SXM4-80GB", "compute_capability": None, "sm_count": None, "memory_bytes": 85_899_345_920}
STORAGE = "ncclDevKernelArgsStorage<4096ul>"
LOADER = """
loader = DataLoader(
    dataset,
    batch_size=64,
    num_workers=8,          # at most cores / GPUs
    persistent_workers=True,
    prefetch_factor=4,
    pin_memory=True,
)
"""


def run_facts(step: float | None, **changes: Any) -> dict[str, Any]:
    """The "run" object of a single-rank torch trace of 8 steps of `step` milliseconds."""
    ns = None if step is None else round(step * MS)
    facts: dict[str, Any] = {
        "sources": [{"path": "trace.json.gz", "format": "torch-trace", "format_version": "kineto schema 1", "rank": 0}],
        "ranks": [0],
        "world_size": 1,
        "devices": [{"rank": 0, **H200}],
        "steps": None
        if ns is None
        else {
            "count": 8,
            "source": "profiler-step",
            "median_ns": ns,
            "recorded_median_ns": ns,
            "p10_ns": ns * 99 // 100,
            "p90_ns": ns * 103 // 100,
        },
        "replay": {"error_frac": 0.004, "basis": "replay"},
        "window_ns": None if ns is None else 8 * ns,
        "profiler_overhead": {"stacks": False, "shapes": False, "memory": False, "estimated_frac": 0.0},
    }
    return facts | changes


def part(
    step: float,
    compute: float,
    communication: float = 0,
    wait: float = 0,
    copy: float = 0,
    rank: int | None = 0,
    device: int = 0,
    **idle: float,
) -> Breakdown:
    """A breakdown in milliseconds. What no named part takes is idle without a known cause."""
    causes = {name.replace("_", "-"): round(value * MS) for name, value in idle.items()}
    causes = dict.fromkeys(("dataloader", "host-sync", "launch", "python", "memory-management", "unexplained"), 0) | causes
    gone = round(step * MS) - round(compute * MS) - round(communication * MS) - round(copy * MS)
    causes["unexplained"] = gone - sum(causes.values())
    whole, busy = round(step * MS), (round(ms * MS) for ms in (compute, communication, wait, copy))
    return Breakdown(rank, device, whole, whole - gone, *busy, idle_ns=gone, idle_by_cause=causes)


def fix(id: str, title: str, snippet: str, **changes: Any) -> Fix:
    defaults = {"framework": "pytorch", "language": "python", "safety": "same-numerics", "effort": "minutes"}
    return Fix(id=id, title=title, snippet=snippet, **defaults | changes)


def saving(low: float, expected: float, high: float, basis: Any = "replay") -> Saving:
    return Saving(round(low * MS), round(expected * MS), round(high * MS), basis)


def clean(*ids: str) -> list[RuleOutcome]:
    return [RuleOutcome(name, "clean") for name in ids]


def starved_loader() -> Report:
    """One GPU that waits for its input; two smaller findings, one hint, one notice."""
    loader = Finding(
        rule="single-process-dataloader",
        family="input",
        title="The GPU waits 38.2 ms in each step for data that one process loads",
        severity="high",
        confidence="high",
        saving=saving(29, 36.4, 38.2),
        scope={"ranks": [0], "steps": [0, 7], "devices": [0]},
        facts={"workers": 0, "wait_ns_per_step": 38_200_000, "cores": 32},
        evidence=[
            Evidence(
                "Where the main thread spends its time between steps",
                ["range", "calls", "mean_ns", "step_frac"],
                [
                    ["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 8, 39_400_000, 0.672],
                    ["ProfilerStep, rest", 8, 19_200_000, 0.328],
                ],
            )
        ],
        locations=[Location("train.py", 148, "main", 1.0)],
        fixes=[
            fix(
                "loader-workers",
                "Load in 8 worker processes that stay alive and fetch ahead",
                LOADER,
                caveats=["Random augmentation draws other numbers: seed the workers with `worker_init_fn` where that matters."],
                references=["https://docs.pytorch.org/docs/stable/data.html"],
            ),
            fix(
                "cheaper-decode",
                "Decode images on the GPU",
                'images = torchvision.io.decode_jpeg(encoded, device="cuda")',
                safety="changes-numerics",
                effort="hours",
            ),
        ],
        fingerprint="single-process-dataloader:3f9c1a2b",
    )
    copies = Finding(
        rule="pageable-copy",
        family="transfer",
        title="154 MB of input is copied from pageable memory in each step",
        severity="medium",
        confidence="medium",
        saving=saving(0, 1.9, 5.1, "bound"),
        facts={"bytes_per_step": 154_140_672},
        evidence=[
            Evidence(
                "Copies to the GPU in the steps",
                ["direction", "source", "copies", "total_bytes", "mean_ns", "rate"],
                [["host to device", "pageable", 8, 1_233_125_376, 7_100_000, "21.7 GB/s"]],
            )
        ],
        locations=[Location("train.py", 152, "main", 0.94), Location("data/collate.py", 31, "to_device", 0.06)],
        fixes=[
            fix(
                "pin-memory",
                "Pin the batch and copy without blocking",
                'loader = DataLoader(..., pin_memory=True)\nbatch = batch.to("cuda", non_blocking=True)\n',
            )
        ],
        fingerprint="pageable-copy:90c0ffee",
    )
    optimizer = Finding(
        rule="unfused-optimizer",
        family="kernel",
        title="The optimizer runs 412 small kernels in each step",
        severity="low",
        confidence="high",
        saving=saving(0.4, 0.8, 1.1),
        fixes=[fix("fused", "Use the fused implementation", "optimizer = torch.optim.AdamW(model.parameters(), fused=True)")],
        fingerprint="unfused-optimizer:11aa22bb",
    )
    precision = Finding(
        rule="tf32-instead-of-16bit",
        family="precision",
        title="Matrix products run in TF32; bfloat16 would halve them",
        severity="info",
        confidence="low",
        saving=saving(0, 0.3, 4.0, "bound"),
        caveats=["Today the GPU waits for data: faster kernels save nothing before that is mended."],
        fingerprint="tf32-instead-of-16bit:5e5e5e5e",
    )
    headroom = Finding(
        rule="memory-headroom",
        family="memory",
        title="Peak memory is 21 of 140 GiB",
        severity="info",
        confidence="high",
        facts={"peak_bytes": 22_548_578_304},
        fingerprint="memory-headroom:00000001",
    )
    report = Report(
        version="0.1.0",
        run=run_facts(
            57.2,
            sources=[
                {"path": "runs/trace.json.gz", "format": "torch-trace", "format_version": "kineto schema 1", "rank": 0},
                {"path": "runs/smi.csv", "format": "nvidia-smi-csv", "format_version": None, "rank": None},
            ],
            profiler_overhead={"stacks": False, "shapes": True, "memory": False, "estimated_frac": 0.024},
        ),
        step_ns=57_200_000,
        breakdown=[part(58.6, 17.3, copy=1.2, dataloader=38.2, launch=1.1, python=0.5)],
        findings=[loader, copies, optimizer, precision, headroom],
        combined=saving(29.4, 38.9, 43.1),
        rules=[
            *(RuleOutcome(finding.rule, "found") for finding in (loader, copies, optimizer, precision, headroom)),
            *clean("host-sync-in-step", "device-synchronize-in-step", "launch-bound", "cuda-malloc-in-step", "fp64-kernel"),
            RuleOutcome("straggler-rank", "not-applicable", "needs at least two ranks", ALL_RANKS),
            RuleOutcome("waiting-in-collective", "not-applicable", "needs at least two ranks", ALL_RANKS),
            RuleOutcome("python-gap", "not-applicable", "needs Python call stacks", "torch.profiler.profile(with_stack=True)"),
            RuleOutcome("memory-growth", "not-applicable", "needs at least 20 steps of memory events"),
            RuleOutcome("graph-breaks", "error", "division by zero"),
        ],
        notices=[
            Notice("profiler-slows-host", "The profiler slowed the host by about 2.4 %; times are corrected for it."),
            Notice("first-step-left-out", "The first marked step is left out: it holds start-up work."),
        ],
        extra={"throughput": {"items_per_step": 64, "items_per_second": 1118.9}},
    )
    report.run["steps"]["recorded_median_ns"] = 58_600_000
    return report


def two_ranks() -> Report:
    """Data-parallel training on two GPUs: one rank is late, and the reduction does not overlap with backward."""
    straggler = Finding(
        rule="straggler-rank",
        family="communication",
        title="Rank 1 reaches the all-reduce 9.1 ms later than rank 0 in 8 of 8 steps",
        severity="high",
        confidence="high",
        saving=saving(6.8, 8.6, 9.1),
        scope={"ranks": [1], "steps": [0, 7], "devices": [1]},
        evidence=[
            Evidence(
                "Own work and waiting of each rank, per step",
                ["rank", "host", "gpu_work_ns", "wait_ns", "last_to_arrive_frac"],
                [[0, "42.0 ms", 52_300_000, 9_400_000, 0.0], [1, "43.1 ms", 61_500_000, 300_000, 1.0]],
            )
        ],
        locations=[Location("data/sampler.py", 77, "__iter__", 0.8)],
        fixes=[
            fix(
                "balance",
                "Give each rank the same number of tokens",
                "batches = pack_by_tokens(samples, ranks=dist.get_world_size())\n",
                safety="changes-numerics",
                effort="hours",
                caveats=["The order of the samples changes."],
            )
        ],
        fingerprint="straggler-rank:1c1c1c1c",
    )
    exposed = Finding(
        rule="exposed-communication",
        family="communication",
        title="12.4 ms of all-reduce in each step run while the GPU computes nothing",
        severity="medium",
        confidence="medium",
        saving=saving(0, 6.9, 12.4, "bound"),
        scope={"ranks": [0, 1], "steps": [0, 7], "devices": [0, 1]},
        evidence=[
            Evidence(
                "Communication by collective, slowest rank, per step",
                ["collective", "calls", "message_bytes", "total_ns", "exposed_ns"],
                [
                    [
                        f"ncclDevKernel_AllReduce_Sum_f32_RING_LL({STORAGE})",
                        6,
                        620_756_992,
                        14_900_000,
                        12_400_000,
                    ],
                    [f"ncclDevKernel_Broadcast_RING_LL({STORAGE})", 1, 4096, 21_000, 0],
                ],
            )
        ],
        fixes=[
            fix(
                "bucket-size",
                "Start the reduction earlier with smaller buckets",
                "model = DistributedDataParallel(model, bucket_cap_mb=25, gradient_as_bucket_view=True)",
                references=["https://docs.pytorch.org/docs/stable/notes/ddp.html"],
            )
        ],
        caveats=["Waiting for the late rank is not counted here."],
        fingerprint="exposed-communication:2d2d2d2d",
    )
    sources = [
        {"path": f"trace_rank{rank}.json.gz", "format": "torch-trace", "format_version": "kineto schema 1", "rank": rank}
        for rank in (0, 1)
    ]
    run = run_facts(
        84.1, sources=sources, ranks=[0, 1], world_size=2, devices=[{"rank": 0, **H200}, {"rank": 1, **H200, "index": 1}]
    )
    return Report(
        version="0.1.0",
        run=run,
        step_ns=84_100_000,
        breakdown=[
            part(84.1, 52.3, communication=21.8, wait=9.4, rank=0, launch=6.0, host_sync=2.1),
            part(84.1, 61.5, communication=12.7, wait=0.3, rank=1, device=1, launch=5.8, host_sync=2.4),
        ],
        findings=[straggler, exposed],
        combined=saving(7.0, 14.9, 21.0, "bound"),
        rules=[
            RuleOutcome("straggler-rank", "found"),
            RuleOutcome("exposed-communication", "found"),
            *clean("small-collectives"),
        ],
    )


def healthy() -> Report:
    """Nothing to mend."""
    return Report(
        version="0.1.0",
        run=run_facts(16.52),
        step_ns=16_520_000,
        breakdown=[part(16.52, 16.1, copy=0.08, launch=0.2)],
        combined=None,
        rules=[
            *clean("host-sync-in-step", "launch-bound", "dataloader-bound", "unfused-optimizer", "pageable-copy"),
            RuleOutcome("clock-throttle", "not-applicable", "needs samples of the clocks", "nvidia-smi --query-gpu=clocks.sm"),
        ],
        extra={"good_news": ["Matrix products run on tensor cores in bfloat16.", "Attention runs as one fused kernel."]},
    )


def samples_only() -> Report:
    """A log of nvidia-smi without any trace: no steps, no savings, but a danger and a hint."""
    hot = Finding(
        rule="clock-throttle",
        family="hardware",
        title="GPU 3 is throttled by heat in 61 % of the samples under load",
        severity="high",
        confidence="high",
        scope={"devices": [3]},
        facts={"throttled_frac": 0.61},
        evidence=[
            Evidence(
                "Samples under load, by GPU",
                ["gpu", "samples", "temperature_c", "sm_clock_mhz", "thermal_frac"],
                [[0, 240, 64.5, 1980, 0.0], [3, 240, 91.2, 1245.5, 0.61]],
            )
        ],
        fixes=[
            fix(
                "cooling",
                "Check the cooling of GPU 3",
                "nvidia-smi -i 3 -q -d TEMPERATURE,PERFORMANCE",
                language="bash",
                safety="operational",
                effort="hours",
                framework="system",
            )
        ],
        fingerprint="clock-throttle:0000beef",
    )
    idle = Finding(
        rule="idle-gpu",
        family="kernel",
        title="The GPUs are busy in 54 % of the samples",
        severity="info",
        confidence="medium",
        fixes=[
            fix(
                "record",
                "Record a trace, which tells the cause",
                "nsys profile -t cuda,nvtx -o run python train.py",
                language="bash",
                safety="operational",
            )
        ],
        fingerprint="idle-gpu:0000cafe",
    )
    run = run_facts(
        None,
        sources=[{"path": "smi.csv", "format": "nvidia-smi-csv", "format_version": None, "rank": None}],
        ranks=[None],
        world_size=None,
        devices=[{"rank": None, "index": index, **A100} for index in range(4)],
        replay=None,
        profiler_overhead=None,
    )
    return Report(
        version="0.1.0",
        run=run,
        step_ns=None,
        findings=[hot, idle],
        rules=[
            RuleOutcome("clock-throttle", "found"),
            RuleOutcome("idle-gpu", "found"),
            *(
                RuleOutcome(name, "not-applicable", "needs a trace", "torch.profiler or nsys: docs/how-to-capture.md")
                for name in ("launch-bound", "host-sync-in-step", "dataloader-bound", "exposed-communication", "pageable-copy")
            ),
        ],
        notices=[Notice("no-trace", "There is no trace in the input: where time goes inside a step cannot be seen.")],
    )


ALL = {"starved_loader": starved_loader, "two_ranks": two_ranks, "healthy": healthy, "samples_only": samples_only}
