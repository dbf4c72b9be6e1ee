"""The event model: every table and column that readers fill and rules read.

Conventions, valid for every table:

* Times are int64 nanoseconds. Inside a `Trace` they count from the trace's own zero, inside a `Run` from the run's start.
* Text is an int32 code into the interned string list of the trace or run (`Strings`), declared with unit ``text``.
* A value that was not recorded holds the column's declared `missing` value. Ask `Table.known(column)`; never compare with
  a number by hand. A column whose `missing` is None is present in every row.
* `rank` and `process` together with `correlation` or `op` form a join key; none of those ids is unique on its own.

This module and `schema_memory` are the only home of these facts: docs/event-model.md is generated from them.
"""

from __future__ import annotations

from enum import IntEnum

from advisor.model.columns import (
    CONTEXT as _CONTEXT,
)
from advisor.model.columns import CORRELATION as _CORRELATION
from advisor.model.columns import DEVICE as _DEVICE
from advisor.model.columns import END as _END
from advisor.model.columns import GPU as _GPU
from advisor.model.columns import GRAPH_NODE as _GRAPH_NODE
from advisor.model.columns import HOST as _HOST
from advisor.model.columns import OP as _OP
from advisor.model.columns import PROCESS as _PROCESS
from advisor.model.columns import RANK as _RANK
from advisor.model.columns import START as _START
from advisor.model.columns import STREAM as _STREAM
from advisor.model.columns import THREAD as _THREAD
from advisor.model.columns import TIME as _TIME
from advisor.model.columns import Column, TableSpec
from advisor.model.columns import text as _text
from advisor.model.columns import value as _u
from advisor.model.schema_memory import ALLOCATOR_TABLES


class CopyKind(IntEnum):
    """What a row of `copies` does. Values 1 to 13 are CUPTI's."""

    UNKNOWN = 0
    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    HOST_TO_ARRAY = 3
    ARRAY_TO_HOST = 4
    ARRAY_TO_ARRAY = 5
    ARRAY_TO_DEVICE = 6
    DEVICE_TO_ARRAY = 7
    DEVICE_TO_DEVICE = 8
    HOST_TO_HOST = 9
    PEER_TO_PEER = 10
    MANAGED_HOST_TO_DEVICE = 11
    MANAGED_DEVICE_TO_HOST = 12
    MANAGED_DEVICE_TO_DEVICE = 13
    MEMSET = 100


class MemoryKind(IntEnum):
    """Where one end of a copy lives. Values are CUPTI's as Nsight Systems exports them."""

    PAGEABLE = 0
    PINNED = 1
    DEVICE = 2
    ARRAY = 3
    MANAGED = 4
    DEVICE_STATIC = 5
    MANAGED_STATIC = 6
    UNKNOWN = 7


class SyncKind(IntEnum):
    """What a row of `sync_events` waits for."""

    UNKNOWN = 0
    DEVICE = 1
    STREAM = 2
    EVENT = 3
    STREAM_WAIT_EVENT = 4
    EVENT_QUERY = 5


class RangeKind(IntEnum):
    """How a row of `ranges` was made."""

    PUSH_POP = 0
    START_END = 1
    RECORD_FUNCTION = 2
    MARK = 3


class MemorySource(IntEnum):
    """Who reported a row of `memory_events`."""

    FRAMEWORK = 0
    DRIVER = 1


class StepState(IntEnum):
    """What was done to a row of `step_times` by whoever timed it."""

    OUTSIDE = 0
    TOUCHED = 1
    RECORDED = 2


class ThrottleReason(IntEnum):
    """Bits of `device_samples.throttle_reasons`, as NVML defines clocks_event_reasons."""

    IDLE = 0x1
    APPLICATION_CLOCKS = 0x2
    SW_POWER_CAP = 0x4
    HW_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SW_THERMAL = 0x20
    HW_THERMAL = 0x40
    HW_POWER_BRAKE = 0x80
    DISPLAY_CLOCKS = 0x100


# What holds the clocks back, in the order in which it is worth knowing.
THROTTLE_WORDS = {
    ThrottleReason.SW_POWER_CAP: "power limit",
    ThrottleReason.HW_SLOWDOWN: "hardware slow-down",
    ThrottleReason.SW_THERMAL: "heat (driver)",
    ThrottleReason.HW_THERMAL: "heat (hardware)",
    ThrottleReason.HW_POWER_BRAKE: "power brake",
    ThrottleReason.SYNC_BOOST: "another GPU's clock (sync boost)",
    ThrottleReason.APPLICATION_CLOCKS: "application clocks",
    ThrottleReason.DISPLAY_CLOCKS: "display clocks",
    ThrottleReason.IDLE: "nothing to do",
}


TABLES: dict[str, TableSpec] = {
    spec.name: spec
    for spec in (
        TableSpec(
            "kernels",
            "one execution of a kernel on the GPU",
            (
                *_GPU,
                Column("name", "int32", "text", "kernel name as recorded (demangled where the file holds it)"),
                _OP,
                _GRAPH_NODE,
                _u("grid_x", "int32", "blocks", "grid size, x"),
                _u("grid_y", "int32", "blocks", "grid size, y"),
                _u("grid_z", "int32", "blocks", "grid size, z"),
                _u("block_x", "int32", "threads", "block size, x"),
                _u("block_y", "int32", "threads", "block size, y"),
                _u("block_z", "int32", "threads", "block size, z"),
                _u("registers", "int32", "registers/thread", "registers per thread"),
                _u("shared_memory", "int32", "bytes/block", "static plus dynamic shared memory per block"),
                _u("occupancy", "float32", "%", "occupancy that the file estimates; not a measurement"),
            ),
        ),
        TableSpec(
            "copies",
            "one memory copy or memory set on the GPU",
            (
                *_GPU,
                _OP,
                _GRAPH_NODE,
                Column("kind", "int8", "CopyKind", "direction, or memset", int(CopyKind.UNKNOWN)),
                Column("source", "int8", "MemoryKind", "memory kind of the source", int(MemoryKind.UNKNOWN)),
                Column("target", "int8", "MemoryKind", "memory kind of the destination", int(MemoryKind.UNKNOWN)),
                _u("bytes", "int64", "bytes", "bytes moved or set"),
            ),
        ),
        TableSpec(
            "graph_executions",
            "one execution of a whole CUDA graph whose kernels were not recorded one by one",
            (*_GPU, _u("graph", "int64", "", "graph id")),
        ),
        TableSpec(
            "runtime_calls",
            "one CUDA or HIP runtime or driver API call on a host thread",
            (
                *_HOST,
                _CORRELATION,
                Column("name", "int32", "text", "API name without version suffix (cudaLaunchKernel, cuLaunchKernelEx)"),
                _OP,
            ),
        ),
        TableSpec(
            "host_ops",
            "one framework operator on a host thread",
            (
                *_HOST,
                Column("name", "int32", "text", "operator name (aten::mm)"),
                _OP,
                _u("sequence", "int64", "", "autograd sequence number; joins forward and backward"),
                _u("forward_thread", "int64", "", "framework's number of the thread that ran the forward part"),
                _text("shapes", "input shapes, as the file's JSON text"),
                _text("types", "input element types, as the file's JSON text"),
                _text("strides", "input strides, as the file's JSON text"),
                _text("inputs", "concrete scalar inputs, as the file's JSON text"),
                _text("stack", "call stack, frames joined by ';', innermost first"),
            ),
        ),
        TableSpec(
            "python_frames",
            "one call of a Python function on a host thread",
            (
                *_HOST,
                Column("name", "int32", "text", "'file.py(line): function', or a built-in's name"),
                _u("frame", "int64", "", "id of the frame in its file"),
                _u("parent", "int64", "", "id of the calling frame"),
                _u("module", "int64", "", "id of the nn.Module instance the frame belongs to"),
            ),
        ),
        TableSpec(
            "ranges",
            "one annotated host range with an end: NVTX range, record_function, ProfilerStep",
            (
                *_HOST,
                _text("name", "label of the range"),
                _text("domain", "NVTX domain"),
                _text("category", "NVTX category"),
                Column("kind", "int8", "RangeKind", "how the range was made"),
                _u("end_thread", "int64", "", "thread that ended it, when another"),
                _u("payload", "float64", "", "numeric NVTX payload"),
            ),
        ),
        TableSpec(
            "sync_events",
            "one synchronisation as the profiler saw it; a host wait or a wait of one stream for another, never GPU work",
            (
                *_GPU,
                Column("kind", "int8", "SyncKind", "what was waited for", int(SyncKind.UNKNOWN)),
                _u("event", "int64", "", "CUDA event id"),
                _u("wait_stream", "int64", "", "stream waited for"),
                _u("wait_correlation", "int64", "", "correlation of the event record waited for"),
            ),
        ),
        TableSpec(
            "event_records",
            "one cudaEventRecord, without a time of its own: its call is found by correlation",
            (_RANK, _PROCESS, _DEVICE, _CONTEXT, _STREAM, _CORRELATION, _u("event", "int64", "", "CUDA event id")),
            order="correlation",
        ),
        TableSpec(
            "collective_calls",
            "arguments of one collective, as recorded with its kernel (correlation known) or its operator (op known)",
            (
                _START,
                _RANK,
                _PROCESS,
                _CORRELATION,
                _OP,
                _text("collective", "kind as recorded (allreduce, _allgather_base, ncclAllReduce)"),
                _text("dtype", "element type as recorded"),
                _u("elements_in", "int64", "", "input elements of this rank"),
                _u("elements_out", "int64", "", "output elements of this rank"),
                _u("bytes", "int64", "bytes", "message size, where the file states it in bytes"),
                _u("group_size", "int32", "ranks", "size of the process group"),
                _text("group", "name of the process group"),
                _text("group_ranks", "members of the group, as the file's text"),
            ),
        ),
        TableSpec(
            "memory_events",
            "one allocation or release",
            (
                _TIME,
                _RANK,
                _PROCESS,
                _THREAD,
                Column("device", "int32", "", "CUDA ordinal; -1 is the CPU"),
                Column("source", "int8", "MemorySource", "framework's allocator or the driver"),
                Column("bytes", "int64", "bytes", "allocated (positive) or released (negative)"),
                _u("address", "int64", "", "address, as a signed 64-bit number"),
                _u("allocated", "int64", "bytes", "bytes in use on the device after the event"),
                _u("reserved", "int64", "bytes", "bytes the allocator holds on the device after the event"),
            ),
            order="time",
        ),
        TableSpec(
            "device_samples",
            "the state of one GPU at one moment (nvidia-smi, NVML)",
            (
                _TIME,
                _RANK,
                Column("device", "int32", "", "index of the GPU in its machine", -1),
                _text("uuid", "UUID or PCI address that tells GPUs apart"),
                _text("name", "product name"),
                _u("utilization", "float32", "%", "share of the sample period in which any kernel ran; not busy SMs"),
                _u("memory_utilization", "float32", "%", "share of the sample period in which the memory controller was active"),
                _u("memory_used", "int64", "bytes", "device memory in use"),
                _u("memory_total", "int64", "bytes", "device memory"),
                _u("power", "float32", "W", "power draw"),
                _u("power_limit", "float32", "W", "enforced power limit"),
                _u("temperature", "float32", "C", "GPU temperature"),
                _u("memory_temperature", "float32", "C", "memory temperature"),
                _u("sm_clock", "float32", "MHz", "SM clock"),
                _u("memory_clock", "float32", "MHz", "memory clock"),
                _u("sm_clock_max", "float32", "MHz", "maximum SM clock"),
                _u("memory_clock_max", "float32", "MHz", "maximum memory clock"),
                _u("throttle_reasons", "int64", "ThrottleReason bits", "why the clocks are what they are"),
                _u("power_violation", "float32", "%", "time below the asked clock because of power (dmon pviol)"),
                _u("thermal_violation", "float32", "%", "time below the asked clock because of heat (dmon tviol)"),
                _u("performance_state", "int8", "", "P-state, 0 is the fastest"),
                _u("fan", "float32", "%", "fan speed"),
                _u("encoder", "float32", "%", "encoder utilisation"),
                _u("decoder", "float32", "%", "decoder utilisation"),
                _u("pcie_generation", "int8", "", "PCIe generation in use"),
                _u("pcie_generation_max", "int8", "", "PCIe generation possible"),
                _u("pcie_width", "int8", "lanes", "PCIe lanes in use"),
                _u("pcie_width_max", "int8", "lanes", "PCIe lanes possible"),
                _u("pcie_receive", "float64", "bytes/s", "PCIe traffic to the GPU"),
                _u("pcie_transmit", "float64", "bytes/s", "PCIe traffic from the GPU"),
                _u("ecc_corrected", "int64", "errors", "corrected ECC errors"),
                _u("ecc_uncorrected", "int64", "errors", "uncorrected ECC errors"),
                _u("processes", "int32", "", "processes using the GPU"),
            ),
            order="time",
        ),
        TableSpec(
            "device_processes",
            "one process on one GPU at one moment (nvidia-smi pmon and process tables)",
            (
                _TIME,
                _RANK,
                Column("device", "int32", "", "index of the GPU in its machine", -1),
                _PROCESS,
                _text("type", "C, G or C+G"),
                _u("sm", "float32", "%", "share of the sample period in which the process ran kernels"),
                _u("memory", "float32", "%", "share of the sample period in which it used the memory controller"),
                _u("memory_used", "int64", "bytes", "device memory of the process"),
                _text("command", "name of the program, without its path"),
            ),
            order="time",
        ),
        TableSpec(
            "hardware_metrics",
            "one sampled hardware metric of one GPU at one moment (Nsight Systems GPU metrics)",
            (
                _TIME,
                _RANK,
                Column("device", "int32", "", "index of the GPU", -1),
                Column("metric", "int32", "text", "name of the metric"),
                Column("value", "float64", "as the metric says", "value; shares are 0..100"),
            ),
            order="time",
        ),
        TableSpec(
            "overheads",
            "one piece of time that the profiler itself, or the CUDA start-up, took",
            (*_HOST, Column("name", "int32", "text", "what took the time (Buffer Flush, Command Buffer Full)"), _CORRELATION),
        ),
        TableSpec(
            "step_times",
            "one training step as the program's own hook timed it, recorded by a profiler or not",
            (
                _START,
                _END,
                _RANK,
                _PROCESS,
                Column("number", "int64", "", "number of the step, the first of the run is 0"),
                Column("state", "int8", "StepState", "nothing disturbed it, a window began or ended in it, or a profiler ran"),
            ),
        ),
        TableSpec(
            "forward_backward",
            "one link from a forward operator to its backward operator",
            (
                _START,
                _RANK,
                _PROCESS,
                _u("forward_thread", "int64", "", "thread of the forward operator, which is open at `start`"),
                Column("backward_start", "int64", "ns", "moment inside the backward operator"),
                _u("backward_thread", "int64", "", "thread of the backward operator"),
            ),
        ),
        TableSpec(
            "links",
            "one connection between two devices of a machine, as nvidia-smi topo states it",
            (
                Column("a", "int32", "text", "first device (GPU0, NIC1)"),
                Column("b", "int32", "text", "second device"),
                Column("link", "int32", "text", "kind (NV18, PIX, SYS)"),
            ),
            order="a",
        ),
        *ALLOCATOR_TABLES,
    )
}
