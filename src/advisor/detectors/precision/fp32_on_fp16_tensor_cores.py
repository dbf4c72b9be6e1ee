"""FP32 matrix kernels on Volta and Turing, whose tensor cores take FP16 and nothing wider."""

from __future__ import annotations

from advisor.detectors.precision.sixteen_bit import sixteen_bit
from advisor.rules.contract import Context, Draft


def detect(ctx: Context) -> Draft | None:
    return sixteen_bit(ctx, "fp16")
