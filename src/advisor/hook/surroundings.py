"""What the run stands on: versions, devices, settings, and only those variables that change how fast training runs."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from advisor.hook.guard import quietly
from advisor.model.run import PERFORMANCE_VARIABLES

_LIBRARIES = ("lightning", "pytorch_lightning", "transformers", "accelerate", "deepspeed", "megatron", "triton", "flash_attn")


def surroundings() -> dict[str, Any]:
    """Plain data for the manifest. Nothing here makes the GPU wait; what a library cannot tell is left out."""
    import torch

    found: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "libraries": {name: str(version) for name in _LIBRARIES if (version := _version(name))},
        "variables": {name: os.environ[name] for name in sorted(PERFORMANCE_VARIABLES) if name in os.environ},
        "cpus": quietly(lambda: len(os.sched_getaffinity(0)), "counting CPUs") or os.cpu_count(),
        "threads": torch.get_num_threads(),
        "settings": quietly(lambda: _settings(torch), "reading torch's settings") or {},
        "devices": [],
    }
    if torch.cuda.is_available():
        found["cuda"] = torch.version.cuda
        found["hip"] = torch.version.hip
        found["cudnn"] = quietly(torch.backends.cudnn.version, "reading cuDNN's version")
        found["nccl"] = quietly(lambda: ".".join(map(str, torch.cuda.nccl.version())), "reading NCCL's version")
        found["devices"] = quietly(lambda: _devices(torch), "reading the devices") or []
    return found


def _version(name: str) -> str | None:
    return getattr(sys.modules.get(name), "__version__", None)


def _settings(torch: Any) -> dict[str, Any]:
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "anomaly_mode": torch.is_anomaly_enabled(),
    }


def _devices(torch: Any) -> list[dict[str, Any]]:
    """The device that this process trains on; with several visible ones and no choice, the current one."""
    index = torch.cuda.current_device()
    seen = torch.cuda.get_device_properties(index)
    return [
        {
            "index": index,
            "name": seen.name,
            "compute_capability": f"{seen.major}.{seen.minor}",
            "sm_count": seen.multi_processor_count,
            "memory_bytes": seen.total_memory,
        }
    ]
