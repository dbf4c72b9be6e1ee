"""What the user told about the run beside the files: is it possible, and was it of use?"""

from __future__ import annotations

from difflib import get_close_matches

from advisor.derive.marks import marked_steps
from advisor.derive.steps import every_step, steps
from advisor.model import InputError, Notice, Options, Run, device_table
from advisor.rules.validity import parse_version

_NAMED = 4  # GPUs named in a message


def check_options(options: Options) -> None:
    """InputError for a GPU that the device table does not know, and for a version that is none."""
    if options.gpu is not None and device_table.find(options.gpu) is None:
        raise InputError(_unknown_gpu(options.gpu))
    if options.torch_version is not None and parse_version(options.torch_version) is None:
        raise InputError(f"torch version {options.torch_version!r} is no version; write for example 2.4 or 2.4.1")


def _unknown_gpu(name: str) -> str:
    meant = device_table.similar(name)
    if not meant:
        names = {alias.lower(): spec.name for spec in device_table.devices() for alias in (spec.name, *spec.names)}
        close = get_close_matches(name.lower(), list(names), n=_NAMED, cutoff=0.5)
        meant = list(dict.fromkeys(names[one] for one in close))
    if not meant:
        return f"no known GPU {name!r}; write its product name, for example 'NVIDIA H100 SXM' or 'l40s'"
    more = f" or {len(meant) - _NAMED} more" if len(meant) > _NAMED else ""
    return f"no known GPU {name!r}; did you mean {', '.join(map(repr, meant[:_NAMED]))}{more}?"


def check_steps(run: Run) -> None:
    """InputError if the steps that the user asked for are none of the recorded ones."""
    if run.options.steps is None or len(steps(run)):
        return
    found = every_step(run)
    count = max((len(found.of(*member)) for member in found.members), default=0)
    if count:
        low, high = ("" if end is None else end for end in run.options.steps)
        held = f"none of the {count} steps (0 to {count - 1})" if count > 1 else "not the one step that there is"
        raise InputError(f"steps {low}:{high} selects {held}")


def told_notices(run: Run) -> list[Notice]:
    """What the user told and nothing came of."""
    options, notices = run.options, []
    if options.step_pattern and marked_steps(run).source != "user-pattern":
        text = f"no range matches the step pattern {options.step_pattern!r}: steps were found without it"
        notices.append(Notice("step-pattern-unmatched", text))
    if options.gpu and device_table.find(options.gpu) not in [device_table.find(device.name) for device in run.devices]:
        names = sorted({device.name for device in run.devices if device.name})
        text = f"the recording names the GPU {' and '.join(names)}: {options.gpu!r} was not used"
        notices.append(Notice("gpu-option-unused", text))
    return notices
