"""Matrix products in FP32 outside the tensor cores, on a GPU whose tensor cores could take them as TF32."""

from __future__ import annotations

import numpy as np

from advisor.derive.bounds import two_sided
from advisor.derive.gpus import gpu_work
from advisor.derive.kernel_classes import KernelClass, Precision
from advisor.derive.sequence import Sequence, costliest, on_gpu, sequence, sequences, source_lines
from advisor.detectors.words import count_text, name_text
from advisor.model import Evidence
from advisor.model.device_table import spec_of, tensor_core_types
from advisor.model.tables import Array
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    found, pace, device = sequence(ctx.run), two_sided(ctx.run), ctx.device
    if pace is None:
        return None
    slow = _slow(found)
    spent = found.per_step(found.gpu_ns, slow)
    if spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    if device is None or device.compute_capability is None:
        raise NotApplicable("the GPU is unknown, so nothing tells whether it has TF32", "name it: --gpu 'NVIDIA A100-SXM4-80GB'")
    if "tf32" not in tensor_core_types(device.compute_capability):
        raise NotApplicable(f"TF32 needs compute capability 8.0; {device.name or 'this GPU'} has {device.capability_text}", "")
    spec = spec_of(device)
    fp32, tf32 = (spec.peak("fp32"), spec.peak("tf32")) if spec else (None, None)
    if not fp32 or not tf32:
        raise NotApplicable("the peak rates of this GPU are not in the device table", "name the nearest model: --gpu NAME")
    best = tf32 / fp32
    likely = 1 + (best - 1) * ctx.threshold("tensor_core_efficiency")
    unlikely = 1 + (best - 1) * ctx.threshold("least_efficiency")
    if best <= 1.0:
        return None
    gone, most = round(spent * (1 - 1 / likely)), round(spent * (1 - 1 / best))
    count = found.count(slow)
    both = bool((found.kind[slow] == KernelClass.CONVOLUTION).any())
    words = f"{count} matrix products and convolutions" if both else count_text(count, "matrix product")
    return Draft(
        title=f"{words} a step run in FP32 without tensor cores, {spent / pace.step_ns:.0%} of the step",
        confidence="medium",
        edits=[Edit(work=_on_all_ranks(ctx), gpu=Factor(1 / unlikely, 1 / likely, 1 / best))],
        change=Change(gpu_ns=gone, limit_ns=most),
        facts={
            "kernels_per_step": count,
            "time_per_step_ns": spent,
            "time_share_frac": round(spent / pace.step_ns, 4),
            "peak_fp32_tflops": round(fp32 / 1e12, 1),
            "peak_tf32_tflops": round(tf32 / 1e12, 1),
        },
        evidence=[
            Evidence(
                "Matrix kernels without tensor cores, per step",
                ["kernel", "calls", "gpu_ns"],
                [[name_text(name), calls, gpu] for name, calls, gpu in costliest(ctx.run, found, slow)],
            )
        ],
        locations=source_lines(ctx.run, found, slow),
        subject=["fp32", "matrix"],
    )


def _slow(found: Sequence) -> Array:
    """Matrix products in FP32, and convolutions unless others of the run use tensor cores.

    cuDNN takes TF32 by default; where only some convolutions run in FP32, their shapes decided that and no switch helps.
    """
    fp32 = found.precision == Precision.FP32
    tensor_cores = np.isin(found.precision, (Precision.TF32, Precision.FP16, Precision.BF16, Precision.FP8))
    convolution = found.kind == KernelClass.CONVOLUTION
    allowed = bool((convolution & tensor_cores).any())
    return np.asarray(fp32 & ((found.kind == KernelClass.GEMM) | (convolution & (not allowed))), bool)


def _on_all_ranks(ctx: Context) -> Array:
    slow = np.zeros(len(gpu_work(ctx.run)), bool)
    for found in sequences(ctx.run):
        slow |= on_gpu(ctx.run, found, _slow(found))
    return slow
