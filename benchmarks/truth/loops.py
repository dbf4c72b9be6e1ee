"""Training loops with one planted fault each, measured: step times with and without the fault, and what recording them costs.

    python benchmarks/truth/loops.py --out DIR                       # all pairs, on the GPU
    python benchmarks/truth/loops.py --out DIR --only rnn_cell,lora_item
    python benchmarks/truth/loops.py --out DIR --cpu --tiny          # does it run at all
    python benchmarks/truth/loops.py --out DIR --seconds 400 --pack  # no new pair after that time; results in archives

DIR gets one folder a pair: truth.json (fault, fix, gain of each repeat) and before/, after/ with measure.json and the recordings;
results.json grows with every pair, so that a run that ends early keeps what it has.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pairs_gpu
import pairs_host
import torch
from pair import Pair, Place
from record import measure, probe

ARCHIVE_BYTES = 14 << 20
FIRST = (  # the order matters where time may not suffice for all
    "rnn_cell", "torch_augment", "lora_item", "unet_layout", "moe_masks", "gan_optimizers", "numpy_augment", "metrics_to_host",
    "unaligned_vocabulary", "custom_activation", "vit_attention", "recomputation", "emptied_cache", "unpinned_copy", "conv_fp32",
    "augment_workers", "inline_loader", "accumulation", "unet_group_norm", "padded_batches", "compiled_shapes",
)  # fmt: skip
STARTED = time.perf_counter()


def say(text: str) -> None:
    print(f"[{time.perf_counter() - STARTED:6.1f}] {text}", flush=True)


def forked(work: Callable[[], None]) -> int:
    """Start `work` in a forked process, which finds torch loaded. -> its id"""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setpgid(0, 0)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return child


def ended(child: int, limit: float) -> str:
    """Wait for a process that leads a group of its own and end what is left of the group. -> '' or what went wrong."""
    deadline = time.perf_counter() + limit
    problem = ""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            problem = "" if status == 0 else f"ended with status {status}"
            break
        if time.perf_counter() > deadline:
            problem = f"not done within {limit:.0f} s"
            break
        time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if problem.startswith("not done"):
        os.waitpid(child, 0)
    return problem


def one(pair: Pair, a: argparse.Namespace, target: Path) -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = pair.name != "padded_batches"
    place = Place(torch.device("cpu" if a.cpu else "cuda"), a.tiny)
    short = measure(pair, place, target, say)
    if pair.extra:
        short["probe"] = probe(place)
    (target / "short.json").write_text(json.dumps(short))


def spawned(name: str, a: argparse.Namespace, target: Path) -> int:
    command = [
        sys.executable,
        __file__,
        "--out",
        str(target),
        "--child",
        name,
        *(["--cpu"] if a.cpu else []),
        *(["--tiny"] if a.tiny else []),
    ]
    return subprocess.Popen(command, start_new_session=True).pid


def _has_kernels(found: dict[str, Any]) -> bool:
    return bool(found.get("profiled", {}).get("before", {}).get("light", {}).get("counts", {}).get("kernel"))


def pack(target: Path, out: Path, number: int) -> int:
    """Add a pair's folder to the current archive, or to a new one if that grew too large. -> its number."""
    size = sum(f.stat().st_size for f in target.rglob("*") if f.is_file())
    archive = out / f"part{number}.tar"
    if archive.exists() and archive.stat().st_size + size > ARCHIVE_BYTES:
        archive = out / f"part{(number := number + 1)}.tar"
    with tarfile.open(archive, "a") as tar:
        tar.add(target, target.name)
    return number


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", type=Path, required=True)
    ap.add_argument("--only", default="", help="names of pairs, comma-separated")
    ap.add_argument("--seconds", type=float, default=1e9, help="no new pair is started after this time")
    ap.add_argument("--limit", type=float, default=90, help="seconds for one pair")
    ap.add_argument("--cpu", action="store_true")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--spawn", action="store_true", help="start each pair as a new process instead of forking")
    ap.add_argument("--child", default="", help=argparse.SUPPRESS)
    ap.add_argument("--pack", action="store_true", help="write archives into --out and keep the folders elsewhere")
    a = ap.parse_args()
    known = {p.name: p for p in (*pairs_gpu.PAIRS, *pairs_host.PAIRS)}
    if a.child:
        one(known[a.child], a, a.out)
        return
    names = [n for n in a.only.split(",") if n] or list(FIRST)
    a.out.mkdir(parents=True, exist_ok=True)
    place = Path("/tmp/measured-pairs") if a.pack else a.out
    results: dict[str, Any] = {"host": os.uname().release, "cores": os.cpu_count(), "load": os.getloadavg(), "pairs": {}}
    number = 0
    say(f"torch {torch.__version__} is loaded")
    for name in names:
        if time.perf_counter() - STARTED > a.seconds:
            say(f"{name}: no time left")
            results["pairs"][name] = {"error": "no time left"}
            continue
        target = place / name
        target.mkdir(parents=True, exist_ok=True)
        short = target / "short.json"
        for fork in (True, False) if not a.spawn else (False,):
            problem = ended(
                forked(lambda pair=known[name], at=target: one(pair, a, at)) if fork else spawned(name, a, target), a.limit
            )
            found = json.loads(short.read_text()) if short.exists() else {}
            if a.cpu or name != names[0] or _has_kernels(found):
                break
            say("no kernels were recorded in a forked process: each pair now starts its own")
            a.spawn = True
        results["pairs"][name] = found
        short.unlink(missing_ok=True)
        if problem:
            say(f"{name}: {problem}")
            results["pairs"][name]["error"] = problem
        for heavy in target.rglob("trace_*"):
            if heavy.suffix == ".json" or heavy.stat().st_size > 3 << 20:
                say(f"{name}: {heavy.name} of {heavy.stat().st_size >> 10} KiB left out")
                heavy.unlink()
        if a.pack:
            number = pack(target, a.out, number)
        (a.out / "results.json").write_text(json.dumps(results))
    say("end")


if __name__ == "__main__":
    main()
