"""FP32 or TF32 matrix kernels on a GPU whose tensor cores take BF16."""

from __future__ import annotations

from advisor.detectors.precision.sixteen_bit import sixteen_bit
from advisor.rules.contract import Context, Draft


def detect(ctx: Context) -> Draft | None:
    return sixteen_bit(ctx, "bf16")
