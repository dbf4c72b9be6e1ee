"""Stands in for nvidia-ml-py on a machine without NVIDIA's driver: this folder goes to the front of the path.

FAKE_NVML holds a list of GPUs as JSON, each a dict: utilization, memory (MiB), power and limit (W), clock, reasons, temperature,
pids, and `missing` for questions that it refuses. A list stands for one value a reading, the last for all that follow.
"""

import json
import os
from types import SimpleNamespace

NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_SUCCESS = 0, 1, 2, 0
NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0
NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 1, 2
_USUAL = {
    "utilization": 90,
    "memory": 10_000,
    "power": 600,
    "limit": 700,
    "clock": 1980,
    "reasons": 0,
    "temperature": 60,
    "pids": [],
}
_gpus = []


class NVMLError(Exception):
    pass


def nvmlInit():
    text = os.environ.get("FAKE_NVML")
    if text is None:
        raise NVMLError("Driver Not Loaded")
    _gpus[:] = [{**_USUAL, **gpu, "read": 0} for gpu in json.loads(text)]


def nvmlShutdown():
    pass


def _of(handle, what):
    value = _gpus[handle][what]
    if what in _gpus[handle].get("missing", ()):
        raise NVMLError("Not Supported")
    if isinstance(value, list) and what != "pids":
        value = value[min(max(_gpus[handle]["read"] - 1, 0), len(value) - 1)]
    if value is None:
        raise NVMLError("Not Supported")
    return value


def nvmlDeviceGetCount():
    return len(_gpus)


def nvmlDeviceGetHandleByIndex(index):
    if "handle" in _gpus[index].get("missing", ()):
        raise NVMLError("GPU is lost")
    return index


def nvmlDeviceGetUtilizationRates(handle):
    _gpus[handle]["read"] += 1
    return SimpleNamespace(gpu=_of(handle, "utilization"), memory=30)


def nvmlDeviceGetMemoryInfo(handle):
    return SimpleNamespace(used=_of(handle, "memory") << 20, total=143_771 << 20)


def nvmlDeviceGetPowerUsage(handle):
    return _of(handle, "power") * 1000


def nvmlDeviceGetEnforcedPowerLimit(handle):
    return _of(handle, "limit") * 1000


def nvmlDeviceGetName(handle):
    return _gpus[handle].get("name", "NVIDIA H200").encode()


def nvmlDeviceGetTemperature(handle, sensor):
    return _of(handle, "temperature")


def nvmlDeviceGetClockInfo(handle, kind):
    return _of(handle, "clock") if kind == NVML_CLOCK_SM else 3201


def nvmlDeviceGetMaxClockInfo(handle, kind):
    return 1980


def nvmlDeviceGetCurrentClocksThrottleReasons(handle):
    return _of(handle, "reasons")


def nvmlDeviceGetComputeRunningProcesses(handle):
    """`pids` is also a file that holds them, for processes that come and go."""
    pids = _of(handle, "pids")
    if isinstance(pids, str):
        try:
            with open(pids) as file:
                pids = json.load(file)
        except OSError:
            pids = []
    return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in pids]


def __getattr__(name):
    if name.startswith("nvml"):

        def refuse(*_):
            raise NVMLError("Not Supported")

        return refuse
    raise AttributeError(name)
