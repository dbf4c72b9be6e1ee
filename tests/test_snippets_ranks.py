"""Snippets for DDP and FSDP on two processes over Gloo give the weights of before. `snippets/ranks.py` holds the pairs.

They agree within 1e-6 of the largest weight: gradients are summed in another order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from snippets.harness import covers

pytest.importorskip("torch")
TESTS = Path(__file__).parent
ORDER_OF_SUMS = 1e-6
BFLOAT16 = 0.02  # 8 bits of mantissa


@covers(
    "exposed-communication/ddp", "exposed-communication/ddp-buckets", "exposed-communication/async-op",
    "exposed-communication/fsdp2-prefetch",
    "small-collectives/ddp", "small-collectives/ddp-buckets", "small-collectives/flat-buffer", "small-collectives/fsdp2-units",
    "broadcast-buffers/switch-off", "broadcast-buffers/before-evaluation",
    "find-unused-parameters/switch-off", "find-unused-parameters/static-graph", "sync-every-microstep/ddp",
    "sync-every-microstep/fsdp2", "pipeline-bubble/more-micro-batches", "pipeline-bubble/interleave",
    "pipeline-bubble/even-stages", "dtype-cast-churn/narrow-parameters", "tf32-instead-of-16bit/bf16-fsdp2",
)  # fmt: skip
def test_two_ranks_end_with_the_same_weights(tmp_path: Path) -> None:
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    ranks = [
        subprocess.Popen(
            [sys.executable, str(TESTS / "snippets" / "ranks.py"), str(rank), str(tmp_path)],
            env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [rank.communicate(timeout=300)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    results: list[dict[str, Any]] = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    for result in results:
        failed = {name: value for name, value in result.items() if isinstance(value, str)}
        assert not failed, "\n".join(failed.values())
        limits = dict.fromkeys(result, ORDER_OF_SUMS) | {"narrow_parameters": BFLOAT16}
        assert {name: value for name, value in result.items() if value > limits[name]} == {}
        assert len(result) == 13, said
