"""`Trace`: one file as a reader leaves it. `Run`: all files of one call, joined on one time line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeVar

from advisor.model import display
from advisor.model.devices import Device
from advisor.model.schema import TABLES
from advisor.model.tables import Strings, Table

T = TypeVar("T")


class InputError(Exception):
    """An input that cannot be used. The message is one line, names the reason and says what to do, where something helps."""


@dataclass(frozen=True)
class Notice:
    """Something a reader of the report should know. `code` is stable, kebab-case."""

    code: str
    message: str


@dataclass
class Capture:
    """What the profiler was told to record. None: the file does not tell."""

    tool: str = ""
    stacks: bool | None = None
    shapes: bool | None = None
    memory: bool | None = None
    cuda: bool | None = None
    nvtx: bool | None = None
    gpu_metrics: bool | None = None
    graph_nodes: bool | None = None


@dataclass
class Trace:
    """What one file (or one member of an archive) holds.

    Times in `tables` count from `time zero`; `epoch_ns` is the wall clock (UTC) of that zero, None if unknown.
    `local_clock` says that epoch_ns was read from a clock without a time zone, as nvidia-smi prints it.
    `environment` holds only variables of the fixed list in `PERFORMANCE_VARIABLES`; `facts` what the file states about
    versions and the job (cuda_driver_version, cuda_runtime_version, nccl_version, backend, torch_version, driver_version).
    `recordings`, of a manifest: for each file beside it that holds a window, which recording of the run it belongs to.
    """

    path: str
    format: str
    format_version: str | None = None
    tables: dict[str, Table] = field(default_factory=dict)
    strings: Strings = field(default_factory=Strings)
    devices: list[Device] = field(default_factory=list)
    rank: int | None = None
    world_size: int | None = None
    epoch_ns: int | None = None
    local_clock: bool = False
    capture: Capture = field(default_factory=Capture)
    environment: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str | int | float] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    recordings: dict[str, int] = field(default_factory=dict)

    def table(self, name: str) -> Table:
        return self.tables.get(name) or Table(name)

    def notice(self, code: str, message: str) -> None:
        self.notices.append(Notice(code, message))


# The only environment variables that are ever kept or printed: each changes how fast training runs.
PERFORMANCE_VARIABLES = frozenset(
    """
    CUDA_LAUNCH_BLOCKING CUDA_DEVICE_MAX_CONNECTIONS CUDA_MODULE_LOADING CUDA_VISIBLE_DEVICES CUBLAS_WORKSPACE_CONFIG
    NCCL_P2P_DISABLE NCCL_SHM_DISABLE NCCL_IB_DISABLE NCCL_DEBUG NCCL_ALGO NCCL_PROTO NCCL_NVLS_ENABLE NCCL_MAX_NCHANNELS
    NCCL_BUFFSIZE OMP_NUM_THREADS MKL_NUM_THREADS PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF PYTORCH_NO_CUDA_MEMORY_CACHING
    NVIDIA_TF32_OVERRIDE TORCH_ALLOW_TF32_CUBLAS_OVERRIDE TORCHDYNAMO_DISABLE
    """.split()  # noqa: SIM905
)


@dataclass
class Options:
    """What the user told about the run beside the files. None or empty: nothing.

    `steps` is a half-open range of step positions (first recorded step is 0); `step_pattern` a regular expression that
    marks the ranges which are steps.
    """

    gpu: str | None = None
    torch_version: str | None = None
    framework: str | None = None
    items_per_step: float | None = None
    gpu_hour_cost: float | None = None
    rank: int | None = None
    steps: tuple[int | None, int | None] | None = None
    step_pattern: str | None = None


@dataclass(repr=False)
class Run:
    """All input of one call on one time line. Tables carry the rank of each row; times count from the run's start.

    `fuller` is a second run made of recordings of the same ranks that hold more evidence (shapes, stacks) but slow the
    program more; timing is judged on this run, evidence may come from that one.
    """

    traces: list[Trace] = field(default_factory=list)
    tables: dict[str, Table] = field(default_factory=dict)
    strings: Strings = field(default_factory=Strings)
    devices: list[Device] = field(default_factory=list)
    ranks: list[int | None] = field(default_factory=list)
    world_size: int | None = None
    epoch_ns: int | None = None
    capture: Capture = field(default_factory=Capture)
    environment: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str | int | float] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    options: Options = field(default_factory=Options)
    fuller: Run | None = None
    _cache: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        ranks = ", ".join("unknown" if rank is None else str(rank) for rank in self.ranks[:8]) + (
            ", ..." if len(self.ranks) > 8 else ""
        )
        rows = [f"{len(table):,} {name}" for name, table in self.tables.items() if len(table)]
        return f"<advisor run: {len(self.traces)} recordings, ranks {ranks or 'none'}; rows: {', '.join(rows) or 'none'}>"

    def _repr_html_(self) -> str | None:
        return display.page(self)

    def table(self, name: str) -> Table:
        """The table of that name, empty if nothing was recorded. KeyError for a name the schema does not know."""
        found = self.tables.get(name)
        if found is None and name not in TABLES:
            close = get_close_matches(name, TABLES, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "there are " + ", ".join(TABLES)
            raise KeyError(f"no table {name!r}; {hint}")
        return found if found is not None else Table(name)

    def frame(self, name: str) -> Any:
        """The table of that name as a pandas DataFrame with text in place of codes. KeyError as for `table`."""
        return self.table(name).to_pandas(self.strings)

    def derived(self, function: Callable[[Run], T]) -> T:
        """`function(self)`, computed once."""
        if function not in self._cache:
            self._cache[function] = function(self)
        result: T = self._cache[function]
        return result
