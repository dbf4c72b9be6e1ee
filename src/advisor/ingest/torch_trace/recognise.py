"""Is a text a Chrome trace, by its first bytes, and if it is not, what is it?"""

from __future__ import annotations

import re

_BLANK = b"\xef\xbb\xbf \t\r\n\0"
_EVENTS = re.compile(rb'"traceEvents"\s*:')
_KINETO = re.compile(rb'"(?:schemaVersion|deviceProperties|baseTimeNanoseconds|distributedInfo)"\s*:')
_PHASE = re.compile(rb'"ph"\s*:\s*"')
_LIST_OF_LISTS = re.compile(rb"\[\s*\[")

# What else such text can be: pattern in its first bytes, and what to tell.
_OTHERS = (
    (re.compile(rb'"schema"\s*:.*"nodes"\s*:', re.DOTALL), "a PyTorch execution trace, which holds no times"),
    (re.compile(rb'"rocprofiler-sdk-tool"\s*:'), "JSON output of rocprof"),
    (re.compile(rb'"workload_graph"\s*:'), "a Chakra execution trace"),
    (re.compile(rb'"Communication Time Info"\s*:'), "communication statistics of an Ascend profile"),
    (re.compile(rb'"NEGOTIATE_[A-Z]+"|"HOROVOD_'), "a Horovod timeline"),
)
_WANTED = "what is read is a trace that torch.profiler exported (export_chrome_trace, or its TensorBoard handler)"


def claims(head: bytes) -> bool:
    """True if `head`, the first decompressed bytes (64 KB suffice), begins a Chrome trace: events, or Kineto's metadata."""
    text = head.lstrip(_BLANK)
    if text[:1] == b"{":
        return refusal(head) is None and bool(_EVENTS.search(text) or _KINETO.search(text))
    return text[:1] == b"[" and refusal(head) is None and bool(_PHASE.search(text))


def refusal(head: bytes) -> str | None:
    """One line that names what `head` begins when it is JSON of another kind that we know, else None."""
    text = head.lstrip(_BLANK)
    if text[:1] not in (b"{", b"["):
        return None
    if _KINETO.search(text):
        return None
    for pattern, what in _OTHERS:
        if pattern.search(text):
            return f"{what}; {_WANTED}"
    if _LIST_OF_LISTS.match(text):
        return f"a list of lists, such as a memory timeline of torch.profiler; {_WANTED}"
    if text[:1] == b"{" and len(head) < 1 << 16 and not _EVENTS.search(text):
        return f"JSON without trace events; {_WANTED}"
    return None
