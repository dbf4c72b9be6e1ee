"""How torch.profiler spells what the event tables hold: arguments, categories, kinds of copies."""

from __future__ import annotations

from advisor.model import CopyKind, MemoryKind, SyncKind

_CATEGORY = {"python_frames": "python_function", "ranges": "user_annotation", "host_ops": "cpu_op"}
_DIRECTION = {
    CopyKind.HOST_TO_DEVICE: "HtoD",
    CopyKind.DEVICE_TO_HOST: "DtoH",
    CopyKind.DEVICE_TO_DEVICE: "DtoD",
    CopyKind.HOST_TO_HOST: "HtoH",
    CopyKind.PEER_TO_PEER: "PtoP",
}
SYNC = {
    SyncKind.DEVICE: "Context Sync",
    SyncKind.STREAM: "Stream Sync",
    SyncKind.EVENT: "Event Sync",
    SyncKind.STREAM_WAIT_EVENT: "Stream Wait Event",
}
# Arguments of each table: key in the file -> column. Texts in JSON are told by `JSON`.
ARGUMENTS = {
    "host_ops": {
        "External id": "op",
        "Sequence number": "sequence",
        "Fwd thread id": "forward_thread",
        "Input Dims": "shapes",
        "Input type": "types",
        "Input Strides": "strides",
        "Concrete Inputs": "inputs",
        "Call stack": "stack",
    },
    "python_frames": {"Python id": "frame", "Python parent id": "parent", "Python module id": "module"},
    "ranges": {"domain": "domain", "category": "category", "payload": "payload"},
    "runtime_calls": {"External id": "op", "correlation": "correlation"},
    "kernels": {
        "External id": "op",
        "device": "device",
        "context": "context",
        "stream": "stream",
        "correlation": "correlation",
        "registers per thread": "registers",
        "shared memory": "shared_memory",
        "graph node id": "graph_node",
        "est. achieved occupancy %": "occupancy",
    },
    "copies": {
        "External id": "op",
        "device": "device",
        "context": "context",
        "stream": "stream",
        "correlation": "correlation",
        "bytes": "bytes",
        "graph node id": "graph_node",
    },
    "graph_executions": {"device": "device", "context": "context", "stream": "stream", "correlation": "correlation"},
    "sync_events": {
        "device": "device",
        "context": "context",
        "stream": "stream",
        "correlation": "correlation",
        "wait_on_stream": "wait_stream",
        "wait_on_cuda_event_id": "event",
        "wait_on_cuda_event_record_corr_id": "wait_correlation",
    },
    "collective_calls": {
        "Collective name": "collective",
        "dtype": "dtype",
        "In msg nelems": "elements_in",
        "Out msg nelems": "elements_out",
        "Group size": "group_size",
        "Process Group Name": "group",
        "Process Group Ranks": "group_ranks",
    },
}
JSON = ("shapes", "types", "strides", "inputs")


def microseconds(ns: int) -> str:
    """Nanoseconds as a decimal of microseconds, exactly."""
    sign = "-" if ns < 0 else ""
    whole, rest = divmod(abs(ns), 1000)
    return f"{sign}{whole}.{rest:03}"


def category(table: str, name: str) -> str:
    if table == "runtime_calls":
        return "cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda_runtime"
    return _CATEGORY[table]


def copy_name(kind: int, source: int, target: int) -> str:
    """As torch.profiler spells it, from which readers take the kinds of memory."""
    if kind == int(CopyKind.MEMSET):
        return f"Memset ({_memory_word(target)})"
    direction = _DIRECTION.get(CopyKind(kind))
    return f"Memcpy {direction or 'Unknown'} ({_memory_word(source)} -> {_memory_word(target)})"


def _memory_word(kind: int) -> str:
    return MemoryKind(kind).name.replace("_", " ").capitalize()
