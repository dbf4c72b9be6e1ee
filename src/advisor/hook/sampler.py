"""A thread that reads the GPU a few times a second and writes what nvidia-smi would."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TextIO

from advisor.hook import nvml
from advisor.hook.bundle import Bundle
from advisor.hook.guard import log, quietly

Listener = Callable[[float, float | None], None]
_TRAFFIC_EVERY = 10  # readings: NVML measures PCIe traffic over 20 ms for each direction
_MOST_ROWS = 400_000  # about 60 MB


class Sampler:
    """Reads the GPU of this process by NVML every `seconds`. The training thread only ever starts and ends it.

    listeners: called on the sampler's thread with each reading: monotonic seconds, and utilisation in percent or None.
    topology: also note once how the GPUs are linked, as `nvidia-smi topo -m` tells it.
    """

    name = "samples"

    def __init__(
        self,
        bundle: Bundle,
        seconds: float,
        listeners: Sequence[Callable[[float, float | None], None]] = (),
        topology: bool = False,
    ) -> None:
        self._file = bundle.folder / "smi.csv"
        self._seconds = seconds
        self._listeners = listeners
        self._bundle, self._topology = bundle, topology
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._why: str | None = None
        self._rows = 0

    def begin(self) -> None:
        import torch

        self._address = pci_address(torch, torch.cuda.current_device())
        self._thread = threading.Thread(target=self._run, name="advisor-samples", daemon=True)
        self._thread.start()

    def end_step(self, count: int, window: str | None) -> None:
        pass

    def begin_step(self, count: int, window: str | None) -> None:
        pass

    def failed(self, error: BaseException) -> None:
        pass

    def end(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)

    def about(self) -> Any:
        return {"rows": self._rows, "seconds": self._seconds, "why_none": self._why}

    def _run(self) -> None:
        if self._topology:
            quietly(self._write_topology, "asking for the topology")
        try:
            with nvml.nvml() as library:
                index = library.index_of(self._address) if self._address else 0
                with open(self._file, "w", encoding="utf-8") as file:
                    self._write(library, 0 if index is None else index, file)
        except Exception as error:  # another thread: nobody above would hear of it
            self._why = str(error)
            log.info("advisor: the GPU is not sampled: %s", error)

    def _write_topology(self) -> None:
        done = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, stdin=subprocess.DEVNULL, timeout=30, check=True)
        self._bundle.write("topology.txt", done.stdout)

    def _write(self, library: nvml.Nvml, index: int, file: TextIO) -> None:
        print(nvml.csv_header(traffic=True), file=file)
        readings = 0
        while self._rows < _MOST_ROWS or self._listeners:
            reading = library.read(index, traffic=readings % _TRAFFIC_EVERY == 0)
            readings += 1
            if self._rows < _MOST_ROWS:
                print(nvml.csv_row(datetime.now().astimezone(), reading, traffic=True), file=file, flush=True)
                self._rows += 1
            for listener in self._listeners:
                listener(time.monotonic(), reading.utilization)
            if self._stop.wait(self._seconds):
                return


def pci_address(torch: Any, device: int) -> str | None:
    """domain:bus:device.0 of a CUDA device, None where this torch does not tell."""
    seen = torch.cuda.get_device_properties(device)
    if not hasattr(seen, "pci_bus_id"):
        return None
    return f"{seen.pci_domain_id:08x}:{seen.pci_bus_id:02x}:{seen.pci_device_id:02x}.0"
