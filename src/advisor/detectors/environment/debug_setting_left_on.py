"""Settings for debugging that are still on: autograd's anomaly mode, deterministic filling, and environment variables."""

from __future__ import annotations

import numpy as np

from advisor.derive.attribution import matching_codes, op_above, op_forest, op_of_call, ops_named, work_of_calls
from advisor.derive.calls import links
from advisor.derive.gpus import gpu_work
from advisor.derive.intervals import IntervalSet, union
from advisor.derive.sequence import host_cost
from advisor.derive.steady import Steady, steadies, steady
from advisor.detectors.words import count_text, time_text
from advisor.model import Evidence, Run
from advisor.model.report import SEVERITIES, Severity
from advisor.model.tables import Array
from advisor.replay.changes import GONE, Edit, Factor
from advisor.rules.contract import Change, Context, Draft

_ENGINE = r"^autograd::engine::evaluate_function: (?!torch::autograd::AccumulateGrad)"
_CHECK = r"^aten::(isnan|ne|_is_any_true|any|item)$"
_NAN_CHECK = r"^aten::(isnan|_is_any_true)$"
_ALLOCATION = r"^aten::(empty|empty_strided|empty_like|resize_)$"
# Variable -> (values that switch it on; None: any but off), what it does, severity. Several GPUs only: names of NCCL.
_OFF = ("", "0", "false", "no", "off")
_VARIABLES: dict[str, tuple[tuple[str, ...] | None, str, Severity]] = {
    "NCCL_P2P_DISABLE": (None, "GPUs of a machine exchange data through host memory instead of NVLink or PCIe", "medium"),
    "NCCL_SHM_DISABLE": (None, "GPUs of a machine without direct links exchange data over the network", "medium"),
    "NCCL_IB_DISABLE": (None, "machines exchange data over sockets instead of InfiniBand or RoCE", "medium"),
    "NCCL_NVLS_ENABLE": (_OFF[1:], "reductions in the NVLink switch are off", "info"),
    "NCCL_DEBUG": (("info", "trace"), "NCCL writes a log line for each communicator, at TRACE for each call", "info"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": (
        None,
        "each tensor is allocated and released by the driver, which waits for the GPU",
        "high",
    ),
    "NVIDIA_TF32_OVERRIDE": (_OFF[1:], "libraries compute fp32 products without tensor cores", "medium"),
    "TORCHDYNAMO_DISABLE": (None, "torch.compile does nothing", "medium"),
    "CUBLAS_WORKSPACE_CONFIG": ((":4096:8", ":16:8"), "set for deterministic algorithms, which are slower", "info"),
}


def detect(ctx: Context) -> list[Draft]:
    judged = steady(ctx.run) if len(ctx.run.table("host_ops")) else None
    drafts = [_variables(ctx)]
    if judged is not None and not judged.unmarked:
        drafts += [_anomaly_mode(ctx, judged), _deterministic_fill(ctx, judged)]
    return [draft for draft in drafts if draft is not None]


def _variables(ctx: Context) -> Draft | None:
    run = ctx.run
    alone = (run.world_size or len(run.ranks) or 1) <= 1 and run.world_size is not None
    found = []
    for name, (values, effect, severity) in _VARIABLES.items():
        said = run.environment.get(name, "").strip().lower()
        on = said not in _OFF if values is None else name in run.environment and said in values
        if on and not (alone and name.startswith("NCCL_")):
            found.append((name, run.environment[name].strip(), effect, severity))
    if not found:
        return None
    names = [name for name, *_ in found]
    return Draft(
        title=f"Left on in the environment: {', '.join(f'{name}={value}' for name, value, *_ in found[:3])}"
        + (f" and {len(found) - 3} more" if len(found) > 3 else ""),
        confidence="high",
        severity=min((severity for *_, severity in found), key=SEVERITIES.index),
        facts={"variables": names, "unset": " ".join(names)},
        evidence=[
            Evidence("Variables of the recorded process", ["variable", "value", "effect"], [list(row[:3]) for row in found])
        ],
        fixes=["unset"],
        subject=names,
    )


def _anomaly_mode(ctx: Context, judged: Steady) -> Draft | None:
    """In anomaly mode autograd checks each gradient for NaN, and reads the answer on the host."""
    run = ctx.run
    forest, engine, checks = op_forest(run), ops_named(run, _ENGINE), ops_named(run, _CHECK)
    direct = (forest.parent >= 0) & engine[np.maximum(forest.parent, 0)]
    checked = np.unique(forest.parent[direct & ops_named(run, _NAN_CHECK)])
    if not engine.any() or len(checked) < ctx.threshold("checked_share") * int(engine.sum()):
        return None
    owner = forest.nearest(direct & checks)
    op = op_of_call(run)
    calls = np.asarray((op >= 0) & (owner[np.maximum(op, 0)] >= 0), bool)
    host, gpu, waited, operations = _cost(run, judged, calls)
    start = run.table("host_ops")["start"][checked]
    step = np.searchsorted(judged.start, start, side="right") - 1
    each = round(float(((step >= 0) & (start < judged.end[np.maximum(step, 0)])).sum()) / max(judged.count, 1), 1)
    turns = judged.turns(waited * judged.count)
    traces, stacks = _stack_traces(run, judged, calls)
    return Draft(
        title=f"Autograd's anomaly mode is on: {count_text(each, 'function')} a step are checked for NaN, each with a wait",
        confidence="high",
        edits=[Edit(calls=calls, host=GONE, waits=False), Edit(work=work_of_calls(run, calls), vanish=True), *traces],
        change=Change(host_ns=host + stacks, gpu_ns=gpu, wait_ns=turns, limit_ns=host + stacks + gpu + turns),
        facts={"checks_per_step": each, "host_ns": host, "gpu_ns": gpu, "wait_ns": waited, "stack_traces_ns": stacks},
        evidence=[_evidence("What the checks cost a step", operations, host, gpu)],
        fixes=["anomaly-mode-off"],
        subject=["anomaly mode"],
    )


def _stack_traces(run: Run, judged: Steady, checks: Array) -> tuple[list[Edit], int]:
    """Anomaly mode keeps a stack trace of each forward operator: what goes with them, and their host time a step, ns.

    Python frames show them. Without frames they are what a launch of the forward pass costs more than one of the backward
    pass without its checks: dispatching an operator costs about the same in both.
    """
    side, frames, ops = judged.side, run.table("python_frames"), run.table("host_ops")
    codes = matching_codes(run, frames["name"], r"traceback\.py\(\d+\): format_stack")
    if len(codes):

        def tracing(rank: Steady) -> IntervalSet:
            mine = (frames["rank"] == rank.side.rank) & (frames["process"] == rank.side.process)
            rows = np.flatnonzero(np.isin(frames["name"], codes) & mine)
            return union(frames["start"][rows], frames["end"][rows])

        edits = [Edit(intervals=tracing(one), of=(one.side.rank, one.side.process)) for one in steadies(run)]
        return edits, judged.host_within(tracing(judged))
    op, cost = op_of_call(run), host_cost(run)
    backward = op_above(run, op, r"^autograd::engine::") >= 0
    every = ~backward & (op >= 0) & (ops["sequence"][np.maximum(op, 0)] >= 0)
    inside = np.zeros(len(op), bool)
    inside[side.call[judged.at >= 0]] = True
    launching = inside & (links(run).count > 0)
    forward = launching & every
    backward &= launching & ~checks
    if not forward.any() or not backward.any():
        return [], 0
    left = min(float(cost[backward].mean()) / max(float(cost[forward].mean()), 1.0), 1.0)
    gone = int(cost[forward].sum() * (1 - left)) // max(judged.count, 1)
    return [Edit(calls=every, host=Factor(1.0, left, left))], gone


def _deterministic_fill(ctx: Context, judged: Steady) -> Draft | None:
    """With deterministic algorithms PyTorch fills fresh memory with NaN: a kernel for each new tensor."""
    run = ctx.run
    forest, fills, made = op_forest(run), ops_named(run, r"^aten::fill_$"), ops_named(run, _ALLOCATION)
    inside = fills & (forest.parent >= 0) & made[np.maximum(forest.parent, 0)]
    parents = np.unique(forest.parent[inside])
    if not made.any() or len(parents) < ctx.threshold("filled_share") * int(made.sum()):
        return None
    above = op_above(run, op_of_call(run), r"^aten::fill_$")
    calls = np.asarray((above >= 0) & inside[np.maximum(above, 0)], bool)
    host, gpu, _, each = _cost(run, judged, calls)
    if not each:
        return None
    return Draft(
        title=f"Deterministic algorithms fill {count_text(each, 'fresh tensor')} a step with NaN: {time_text(gpu)} on the GPU",
        confidence="medium",
        edits=[Edit(work=work_of_calls(run, calls), vanish=True)],
        change=Change(host_ns=host, gpu_ns=gpu, limit_ns=host + gpu),
        facts={"fills_per_step": each, "host_ns": host, "gpu_ns": gpu},
        evidence=[_evidence("What filling costs a step", each, host, gpu)],
        fixes=["fill-off", "deterministic-off"],
        caveats=["Deterministic kernels themselves can be slower too, which this saving does not include."],
        subject=["deterministic"],
    )


def _cost(run: Run, judged: Steady, calls: Array) -> tuple[int, int, int, float]:
    """(host ns, GPU ns, waits ns, operations on the GPU) of these calls in an ordinary step."""
    side, work, n = judged.side, gpu_work(run), max(judged.count, 1)
    mine = calls[side.call] & (judged.at >= 0)
    inside = np.zeros(len(calls), bool)
    inside[side.call[mine]] = True
    issued = work_of_calls(run, inside)
    host, gpu = int(host_cost(run)[inside].sum()) // n, int((work.end - work.start)[issued].sum()) // n
    return host, gpu, int(side.wait[mine].sum()) // n, round(float(issued.sum()) / n, 1)


def _evidence(caption: str, each: float, host: int, gpu: int) -> Evidence:
    return Evidence(caption, ["operations", "host_ns", "gpu_ns"], [[each, host, gpu]])
