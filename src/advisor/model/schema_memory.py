"""The part of the schema that the caching allocator of PyTorch fills: memory snapshots, its summary, its errors."""

from __future__ import annotations

from enum import IntEnum

from advisor.model.columns import DEVICE, END, NEVER, PROCESS, RANK, START, STREAM, Column, TableSpec, text, value


class AllocatorAction(IntEnum):
    """What a row of `allocator_events` tells. A block is given up (FREE_REQUESTED) before all streams are done with it."""

    UNKNOWN = 0
    ALLOC = 1
    FREE_REQUESTED = 2
    FREE_COMPLETED = 3
    SEGMENT_ALLOC = 4
    SEGMENT_FREE = 5
    SEGMENT_MAP = 6
    SEGMENT_UNMAP = 7
    SNAPSHOT = 8
    OUT_OF_MEMORY = 9


class BlockState(IntEnum):
    """What a row of `memory_blocks` is at the moment of the snapshot."""

    UNKNOWN = 0
    ALLOCATED = 1
    PENDING_FREE = 2
    INACTIVE = 3


ALLOCATOR_TABLES: tuple[TableSpec, ...] = (
    TableSpec(
        "allocator_events",
        "one entry of the history that a memory snapshot keeps of the caching allocator",
        (
            Column("sequence", "int64", "", "position in the history of its device; the only order where times are lacking"),
            Column("time", "int64", "ns", "moment", NEVER),
            RANK,
            PROCESS,
            DEVICE,
            Column("action", "int8", "AllocatorAction", "what happened", int(AllocatorAction.UNKNOWN)),
            value("address", "int64", "", "address of the block or segment, as a signed 64-bit number"),
            value("bytes", "int64", "bytes", "asked for, given up, or of the segment; never negative"),
            STREAM,
            value("device_free", "int64", "bytes", "free on the device, of an OUT_OF_MEMORY"),
            text("stack", "frames 'file(line): function' and operators (aten::mm), joined by ';', innermost first"),
        ),
        order="sequence",
    ),
    TableSpec(
        "allocator_ranges",
        "one annotated range in a memory snapshot: record_function, Optimizer.step, ProfilerStep",
        (START, END, RANK, PROCESS, DEVICE, Column("name", "int32", "text", "label of the range")),
    ),
    TableSpec(
        "memory_segments",
        "one piece of memory that the caching allocator holds at the moment of the snapshot",
        (
            RANK,
            PROCESS,
            DEVICE,
            STREAM,
            Column("address", "int64", "", "first address, as a signed 64-bit number"),
            Column("bytes", "int64", "bytes", "size"),
            value("allocated", "int64", "bytes", "in blocks that are in use"),
            value("active", "int64", "bytes", "in blocks that are in use or wait for a stream"),
            value("requested", "int64", "bytes", "what was asked for, of the blocks in use"),
            value("large", "int8", "", "1: of the pool for blocks above 1 MiB; 0: of the small pool"),
            value("expandable", "int8", "", "1: grows in place (expandable_segments)"),
            value("private", "int8", "", "1: of a private pool, which only CUDA graphs or a user's pool draw from"),
            text("stack", "who caused it, as in allocator_events"),
        ),
        order="address",
    ),
    TableSpec(
        "memory_blocks",
        "one block of a segment at the moment of the snapshot, in use or free",
        (
            RANK,
            PROCESS,
            DEVICE,
            Column("segment", "int64", "", "address of its segment"),
            Column("address", "int64", "", "first address, as a signed 64-bit number"),
            Column("bytes", "int64", "bytes", "size"),
            value("requested", "int64", "bytes", "what was asked for, of a block in use"),
            Column("state", "int8", "BlockState", "in use or not", int(BlockState.UNKNOWN)),
            text("stack", "who allocated it, as in allocator_events"),
        ),
        order="address",
    ),
    TableSpec(
        "allocator_summaries",
        "the statistics of one device's caching allocator, as torch.cuda.memory_summary() prints them; rounded there",
        (
            RANK,
            Column("device", "int32", "", "CUDA ordinal", -1),
            value("ooms", "int64", "", "failed allocations so far"),
            value("retries", "int64", "", "times the whole cache was released to the driver to make an allocation succeed"),
            value("allocated", "int64", "bytes", "in use"),
            value("allocated_peak", "int64", "bytes", "highest in use"),
            value("requested", "int64", "bytes", "asked for, of what is in use"),
            value("reserved", "int64", "bytes", "held by the allocator"),
            value("reserved_peak", "int64", "bytes", "highest held by the allocator"),
            value("non_releasable", "int64", "bytes", "free inside segments that also hold blocks in use"),
            value("non_releasable_peak", "int64", "bytes", "highest of it; of another moment than the other peaks"),
            value("segments", "int64", "", "segments held"),
            value("segments_freed", "int64", "", "segments given back to the driver so far"),
        ),
        order="device",
    ),
    TableSpec(
        "out_of_memory",
        "one failed allocation, as an error message states it",
        (
            Column("sequence", "int64", "", "position in the file"),
            RANK,
            Column("device", "int32", "", "CUDA ordinal", -1),
            value("requested", "int64", "bytes", "the allocation that failed"),
            value("capacity", "int64", "bytes", "memory of the device"),
            value("free", "int64", "bytes", "free on the device, in the driver's view"),
            value("allocated", "int64", "bytes", "in use by this process's tensors"),
            value("reserved", "int64", "bytes", "held by this process's allocator, in use or not"),
            value("process_used", "int64", "bytes", "device memory of this process, with what is not the allocator's"),
            value("others_used", "int64", "bytes", "device memory of the other processes that the message lists"),
        ),
        order="sequence",
    ),
)
