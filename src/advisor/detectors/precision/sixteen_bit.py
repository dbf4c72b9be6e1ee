"""What a step gains when its FP32 and TF32 matrix kernels run in 16 bit under autocast: two rules ask, for BF16 and for FP16."""

from __future__ import annotations

import numpy as np

from advisor.derive.bounds import two_sided
from advisor.derive.kernel_classes import KernelClass, Precision
from advisor.derive.phases import optimizer_calls
from advisor.derive.sequence import Sequence, costliest, on_gpu, sequence, source_lines
from advisor.detectors.words import counted, name_text
from advisor.model import Evidence, Run
from advisor.model.device_table import DeviceSpec, spec_of
from advisor.model.tables import Array
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable

_POINTWISE = (KernelClass.ELEMENTWISE, KernelClass.COPY, KernelClass.REDUCTION)
_PRODUCTS = (KernelClass.GEMM, KernelClass.CONVOLUTION)


def sixteen_bit(ctx: Context, dtype: str) -> Draft | None:
    """`dtype`: "bf16" or "fp16". NotApplicable where the GPU's peaks are not known."""
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None:
        return None
    wide = np.isin(found.precision, (Precision.FP32, Precision.TF32)) & (found.kind != KernelClass.COMMUNICATION)
    spent = found.per_step(found.gpu_ns, wide)
    if spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    spec = spec_of(ctx.device) if ctx.device else None
    if spec is None or not spec.peak(dtype):
        raise NotApplicable("the peak rates of this GPU are not in the device table", "name the nearest model: --gpu NAME")
    groups = _groups(ctx, spec, dtype, found, wide)
    pointwise = np.isin(found.kind, _POINTWISE) & ~_optimizer(run, found)
    left = _pointwise(ctx, found, wide)
    calls = np.zeros(len(run.table("runtime_calls")), bool)
    calls[found.call[wide & (found.call >= 0)]] = True
    casts = Factor(ctx.threshold("host_with_casts_at_worst"), ctx.threshold("host_with_casts"), 1.0)
    edits = [Edit(work=on_gpu(run, found, mask), gpu=factor) for mask, factor in groups if mask.any()]
    edits += [Edit(work=on_gpu(run, found, pointwise), gpu=left), Edit(calls=calls, host=casts)]
    gone = sum(round(found.per_step(found.gpu_ns, mask) * (1 - factor.expected)) for mask, factor in groups)
    gone += round(found.per_step(found.gpu_ns, pointwise) * (1 - left.expected))
    tf32 = found.per_step(found.gpu_ns, wide & (found.precision == Precision.TF32))
    kinds = "TF32" if tf32 == spent else "FP32" if not tf32 else "FP32 and TF32"
    count = found.count(wide)
    return Draft(
        title=f"{counted(count, 'matrix kernel', 'run')} in {kinds}, {spent / pace.step_ns:.0%} of the step; 16 bit is faster",
        confidence="medium",
        edits=edits,
        change=Change(
            host_ns=-round(found.per_step(found.host_ns, wide) * (casts.expected - 1)), gpu_ns=max(gone, 0), limit_ns=spent
        ),
        facts={
            "kernels_per_step": count,
            "time_per_step_ns": spent,
            "time_share_frac": round(spent / pace.step_ns, 4),
            "tf32_ns": tf32,
            f"peak_{dtype}_tflops": round((spec.peak(dtype) or 0) / 1e12, 1),
            "peak_tf32_tflops": round((spec.peak("tf32") or 0) / 1e12, 1) or None,
            "peak_fp32_tflops": round((spec.peak("fp32") or 0) / 1e12, 1) or None,
        },
        evidence=[_evidence(run, found, wide)],
        locations=source_lines(run, found, wide),
        subject=["matrix", dtype],
        # Where the products do not use tensor cores at all, TF32 is the smaller step and stands first.
        alternative_to="fp32-matmul" if 2 * tf32 < spent else None,
    )


def _groups(ctx: Context, spec: DeviceSpec, dtype: str, found: Sequence, wide: Array) -> list[tuple[Array, Factor]]:
    """Kernels that get faster alike, and what is left of their time."""
    wanted, tf32, fp32 = spec.peak(dtype), spec.peak("tf32"), spec.peak("fp32")
    assert wanted is not None
    groups = []
    products = wide & np.isin(found.kind, _PRODUCTS)
    if tf32:
        ratio = tf32 / wanted
        worst, likely, best = (ctx.threshold(f"of_peak_ratio{end}") for end in ("_at_worst", "", "_at_best"))
        factor = Factor(min(ratio * worst, 1.0), min(ratio * likely, 1.0), min(ratio * best, 1.0))
        groups.append((products & (found.precision == Precision.TF32), factor))
    if fp32:
        beyond = max(wanted / fp32 - 1, 0.0)
        worst, likely, best = (1 / (1 + beyond * ctx.threshold(f"efficiency{end}")) for end in ("_at_worst", "", "_at_best"))
        plain = wide & (found.precision == Precision.FP32)
        groups.append((plain, Factor(worst, likely, best)))
    return groups


def _pointwise(ctx: Context, found: Sequence, wide: Array) -> Factor:
    """What is left of the pointwise time: convolution nets keep their activations in 16 bit, transformers cast to and fro."""
    convolutions = wide & (found.kind == KernelClass.CONVOLUTION)
    if found.gpu_ns[convolutions].sum() * 2 > found.gpu_ns[wide].sum():
        return Factor(1.0, ctx.threshold("pointwise_left_convolution"), 0.5)
    return Factor(*(ctx.threshold(f"pointwise_left{end}") for end in ("_at_worst", "", "_at_best")))


def _optimizer(run: Run, found: Sequence) -> Array:
    """Kernels of the optimizer: its states stay in FP32."""
    calls = optimizer_calls(run)
    if calls is None:
        return np.zeros(len(found), bool)
    return np.asarray((found.call >= 0) & calls[np.maximum(found.call, 0)], bool)


def _evidence(run: Run, found: Sequence, wide: Array) -> Evidence:
    rows = [[name_text(name), calls, gpu] for name, calls, gpu in costliest(run, found, wide)]
    return Evidence("Matrix kernels in FP32 or TF32, per step", ["kernel", "calls", "gpu_ns"], rows)
