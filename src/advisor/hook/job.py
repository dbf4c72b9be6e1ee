"""Which process of the job this is."""

from __future__ import annotations

import itertools
import os
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from advisor.hook.bundle import PREFIX
from advisor.hook.guard import quietly

_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLDS = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_runs = itertools.count()  # of this process
_LOCALS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")


@dataclass(frozen=True)
class Job:
    """rank: 0 where the process is alone."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0


def distributed() -> Any | None:
    """torch.distributed, if the program initialised it. Importing it is left to the program."""
    module = sys.modules.get("torch.distributed")
    return module if module is not None and module.is_available() and module.is_initialized() else None


def find_job() -> Job:
    """From torch.distributed where it runs, else from what the usual launchers tell their processes."""
    dist = distributed()
    if dist is not None:
        return Job(dist.get_rank(), dist.get_world_size(), _number(_LOCALS, dist.get_rank()))
    world = _number(_WORLDS, 1)
    rank = _number(_RANKS, 0)
    return Job(rank, world, _number(_LOCALS, rank)) if 0 <= rank < world else Job()


def agreed(name: str, number: int) -> str:
    """Rank 0's `name` on every rank, by the store that torch.distributed already has: no collective, no GPU work.

    number: how many names were agreed on before; the store keeps them all.
    """
    dist = distributed()
    if dist is None or dist.get_world_size() == 1:
        return name

    key = f"advisor/run/{number}"

    def ask() -> str:
        store = dist.distributed_c10d._get_default_store()
        if dist.get_rank() == 0:
            store.set(key, name)
            return name
        store.wait([key], timedelta(seconds=30))
        return str(store.get(key).decode())

    return quietly(ask, "agreeing on a name of the run") or name


def run_folder(output: str) -> Path:
    """Where this run is recorded: as `advisor record` says, else a new folder inside `output`, the same for all ranks."""
    given = os.environ.get("ADVISOR_RUN_FOLDER")
    if given:
        return Path(given).absolute()
    number = next(_runs)
    again = f"-{number + 1}" if number else ""  # two in one second, in one process
    return (Path(output) / agreed(f"{PREFIX}{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}{again}", number)).absolute()


def is_worker() -> bool:
    """Is this a worker of a DataLoader, which must never record?"""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def _number(names: tuple[str, ...], otherwise: int) -> int:
    for name in names:
        text = os.environ.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 8:
            return int(text)
    return otherwise
