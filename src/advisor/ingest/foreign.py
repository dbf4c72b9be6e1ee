"""Files that no reader takes, recognised by content so that the refusal can say what they are and what to give instead.

Each entry pairs what the first bytes hold with a phrase that completes "PATH: this is ...".
"""

from __future__ import annotations

import codecs
import re

_RECORD = "record the run with torch.profiler or Nsight Systems"
_LATER = "which is not read"
_NOT_ASCEND = "Ascend profiles are not read"

# The file starts with these bytes.
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a zip archive (or a PyTorch checkpoint): unpack it and give the recordings in it"),
    (b"BZh", "a bzip2 file: unpack it first"),
    (b"\xfd7zXZ\0", "an xz file: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd file: unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it first"),
    (b"\x1f\x8b", "a file compressed twice: unpack it once"),
    (b"NVR\0", f"an Nsight Compute report, which times single kernels apart from the run: {_RECORD}"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
    (b"RIFF", "a picture, sound or film"),
    (b"%PDF", "a PDF document"),
    (b"\x7fELF", "a program"),
    (b"MZ\x90", "a program"),
    (b"\x89HDF", "an HDF5 file"),
    (b"PAR1", "a Parquet file: export the report with 'nsys export --type sqlite'"),
    (b"ARROW1", "an Arrow file: export the report with 'nsys export --type sqlite'"),
)

# Every one of the patterns is found in the first bytes. `.` crosses lines, `^` is the begin of any line.
_Entry = tuple[tuple[str, ...], str]

_BINARY: tuple[_Entry, ...] = (
    ((r"\A.{8,60}brain\.Event:",), "a TensorBoard event file; traces lie beside it as .pt.trace.json"),
    ((r"\A\n.{0,60}/(host|device):",), "an XLA profile (xplane); traces of JAX and TensorFlow are not read"),
    ((r"\A.{0,8}\n\x06schema.{0,12}\d\.\d",), f"a Chakra execution trace, which holds no GPU times: {_RECORD}"),
)

# The neighbours of a Chrome trace (execution traces, memory time lines) are known to its reader.
OUR_OWN = "what advisor wrote itself, not a recording; `advisor compare` reads its reports"
_JSON: tuple[_Entry, ...] = (
    ((r'\A\s*\{\s*"schema"\s*:\s*"advisor\.(?!bundle)',), OUR_OWN),
    ((r'"\$schema"\s*:\s*"[^"\n]{0,99}speedscope',), f"a speedscope profile of the CPU: {_RECORD}"),
    ((r'"gpus"\s*:', r'"utilization\.gpu"'), "a gpustat log; give nvidia-smi --query-gpu CSV"),
)

_TEXT: tuple[_Entry, ...] = (
    ((r"<session version=", r"<timelineoptions"), f"an nvprof session without any events: {_RECORD}"),
    ((r'^==\d+== (NVPROF|Profil)|^"?(Type"?,"?)?Time\(%\)"?,',), f"an nvprof summary, which holds no time line: {_RECORD}"),
    ((r'^==PROF== |^"ID","Process ID",|Section: GPU Speed Of Light',), f"Nsight Compute output, {_LATER}"),
    ((r"^# *Entity\s|^# TYPE DCGM_FI_|^DCGM_FI_\w+\{|^GPUId,TimeStampUs,Field",), f"a DCGM log, {_LATER}"),
    ((r"\A[^\n]*\bTask ID,", r"\A[^\n]*\b(Accelerator Core|aicore_time)"), f"an Ascend kernel table; {_NOT_ASCEND}"),
    ((r"^# *nThread \d+ nGpus",), f"nccl-tests output, {_LATER}"),
    ((r"\bNCCL (INFO|WARN|TRACE) ",), f"an NCCL log, {_LATER}"),
    ((r"^\[\d+\] [^|\n]{1,80}\|[^|\n]{0,40}%[^|\n]{0,40}\|[^|\n]{1,40}MB\b",), "a gpustat log; give nvidia-smi --query-gpu CSV"),
    ((r"\Atimestamp,project_name,run_id",), "a CodeCarbon log; give nvidia-smi --query-gpu CSV"),
    ((r"\bSelf CPU %\s+Self CPU\b",), "the printed table of torch.profiler; export_chrome_trace writes the trace needed here"),
    ((r"^ ?\*\* [\w/ ]+ (Summary|Trace) \(\w+\):",), "printed statistics of Nsight Systems; give the .sqlite beside the report"),
    ((r"(?i)\A\s*(<!doctype html|<html)",), "a web page"),
)


def recognise(head: bytes) -> str | None:
    """What the file with these first (decompressed) bytes is, if it is a known kind that no reader takes; else None."""
    if not head:
        return "empty"
    for magic, what in _MAGIC:
        if head.startswith(magic):
            return what
    text = as_text(head)
    if text is None:
        return _first(_BINARY, head.decode("latin-1"))
    return _first(_JSON if is_json(text) else _TEXT, text)


def describe_unknown(head: bytes) -> str:
    """The phrase for a file that nobody knows."""
    if not head.strip(b"\0"):
        return "nothing but zero bytes"
    text = as_text(head)
    if text is None:
        return "a file of unknown binary kind"
    if not text.strip():
        return "blank"
    if is_json(text):
        return "JSON without traceEvents, not a trace"
    return "text of no known kind"


def as_text(head: bytes) -> str | None:
    """The bytes as text, or None if they are none. Runs of NUL, which several writers leave in one log, are no objection."""
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"), (codecs.BOM_UTF8, "utf-8-sig")):
        if head.startswith(mark):
            return head.decode(encoding, "replace")
    control = sum(head.count(bytes([code])) for code in (*range(1, 7), *range(14, 27), 28, 29, 30, 31))
    return None if head[:1] == b"\0" or control > len(head) // 100 else head.decode("utf-8", "replace")


def is_json(text: str) -> bool:
    """True if the text begins like a JSON object or list, and not like a log line such as "[INFO] ..."."""
    return re.match(r'\s*(\{\s*["}]|\[\s*([\[{\]"]|-?\d+(\.\d+)?\s*,))', text) is not None


def _first(entries: tuple[_Entry, ...], text: str) -> str | None:
    for patterns, what in entries:
        if all(re.search(pattern, text, re.MULTILINE | re.DOTALL) for pattern in patterns):
            return what
    return None
