"""`attach`: one line in a training script; the report comes when training ends."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from advisor.hook import after, job
from advisor.hook.allocator import Allocator
from advisor.hook.bundle import Bundle, prune
from advisor.hook.clock import OUTSIDE, RECORDED, StepClock
from advisor.hook.companions import Companion, companions
from advisor.hook.guard import Hook, guarded, log, quietly
from advisor.hook.plan import Plan, Schedule, Trigger
from advisor.hook.presence import profiled_already, watch_profilers
from advisor.hook.settings import Settings
from advisor.hook.surroundings import surroundings
from advisor.hook.window import Window

F = TypeVar("F", bound=Callable[..., Any])
_alive: weakref.WeakSet[Attachment] = weakref.WeakSet()


def attached() -> bool:
    """Does an attachment of this process record, or wait to?"""
    return any(each.active for each in _alive)


class Attachment:
    """Watches one process of a training run. Nothing is created before the first step ends.

    Steps are counted by the first optimizer that was given, until `step()` is called: from then on by those calls alone.
    """

    def __init__(self, optimizers: Sequence[Any], models: Sequence[Any], settings: Settings) -> None:
        self.settings = settings
        self.active = settings.enabled and not job.is_worker()
        self.folder: Path | None = None
        self.report: Path | None = None
        self._plan = Plan(settings.schedule, list(settings.triggers))
        self._clock = StepClock()
        self._pid = os.getpid()
        self._bundle: Bundle | None = None
        self._job = job.Job()
        self._companions: list[Companion] = []
        self._models, self._optimizers = [_weakly(model) for model in models], [_weakly(each) for each in optimizers]
        self._window: Window | None = None
        self._queue: list[tuple[Any, int]] = []
        self._reason = ""
        self._recordings = 0
        self._windows: list[dict[str, Any]] = []
        self._notices: list[dict[str, str]] = []
        self._spent_ns = self._most_ns = 0  # the hook's own time in steps outside windows
        self._ended = self._stopped = False
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._hooks: list[Any] = []
        if self.active:
            self._watch()

    @guarded
    def _watch(self) -> None:
        first = self._optimizers[0]() if self._optimizers else None
        if first is not None:
            self._hooks.append(first.register_step_post_hook(Hook(self._step)))
        watch_profilers()
        self._clock.begin()
        _alive.add(self)
        atexit.register(self.close)

    def step(self) -> None:
        """A step of the training loop ended here. Call it once a step, after the optimizer."""
        if self._hooks:
            self._unhook()
            if self._clock.count:
                return  # the optimizer's own step, just before, was this one
        self._step()

    @guarded
    def _step(self) -> None:
        if not self.active:
            return
        began = time.perf_counter_ns()
        if self._pid != os.getpid():
            self.active = False  # a forked worker inherited the object; the run belongs to its parent
            return
        with self._lock:
            if not self.active or not self._my_thread():
                return
            try:
                self._count(began)
            except (KeyboardInterrupt, SystemExit):
                self._cut("interrupted inside a recording window, which is left out")
                raise

    def _my_thread(self) -> bool:
        """Steps of one thread count, the first that steps: a profiler that meets several at its ends crashes the program."""
        here = threading.current_thread()
        if self._thread is not here:
            if self._thread is not None and self._thread.is_alive():
                return False
            self._cut("the thread that trained ended inside a recording window, which is left out")
            self._thread = here
        return True

    def _count(self, began: int) -> None:
        first = self._clock.count == 0
        window = self._window
        recording = window is not None or bool(self._queue)
        taken = self._clock.end(began, RECORDED if window is not None else OUTSIDE)
        if first:
            self._begin()
        if not recording and not first:
            self._plan.durations.add(taken)
        for companion in self._companions:
            companion.end_step(self._clock.count, window.kind if window is not None else None)
        if window is not None:
            if window.abandoned:
                self._gave_way()
            elif window.step():
                self._finished(window)
        elif not self._queue:
            reason = self._plan.due(self._clock.count)
            if reason:
                self._start(reason)
        if self._queue and self._window is None:
            self._open()
        for companion in self._companions:
            companion.begin_step(self._clock.count, self._window.kind if self._window is not None else None)
        if recording or self._window is not None or first:
            self._clock.disturb()
            return
        spent = time.perf_counter_ns() - began
        self._spent_ns += spent
        self._most_ns = max(self._most_ns, spent)

    def _begin(self) -> None:
        """The first step is over: the job is known and the device is in use."""
        self._job = job.find_job()
        root = job.run_folder(self.settings.output)
        self._bundle = Bundle(root, self._job.rank, self.settings.most_bytes)
        self.folder = root
        if self._job.rank == 0:
            quietly(lambda: prune(root.parent, self.settings.keep, root), "removing old recordings")
        models, optimizers = ([each for ref in refs if (each := ref()) is not None] for refs in (self._models, self._optimizers))
        self._companions = companions(self.settings, self._bundle, self._job, models, optimizers)
        for companion in self._companions:
            companion.begin()
        self._manifest(finished=False)

    def _start(self, reason: str) -> None:
        bundle = self._bundle
        other = profiled_already()
        if other or bundle is None:
            self._plan.recorded(self._clock.count, reason)
            if other:
                self._notice("profiler-runs", f"{other} was recording at step {self._clock.count}: no window of our own")
            return
        if not bundle.room():
            self._plan.recorded(self._clock.count, reason)
            self._notice("bundle-full", f"the recording reached {self.settings.most_bytes >> 20} MiB: no further windows")
            return
        self._reason = reason
        self._queue = list(self.settings.schedule.windows())

    def _open(self) -> None:
        if _capturing():
            return  # a profiler cannot start inside a CUDA graph's capture; the next step will do
        if profiled_already():
            self._queue = []
            self._gave_way()
            return
        kind, active = self._queue.pop(0)
        assert self._bundle is not None
        file = self._bundle.folder / f"window-{len(self._windows)}-{kind}.json"
        self._window = Window(kind, self.settings.schedule.warmup, active, file, self._clock.count)
        self._window.open()

    def _gave_way(self) -> None:
        """The program's own profiler ended the window: the rest of this recording is left out."""
        self._window, self._queue = None, []
        self._plan.recorded(self._clock.count, self._reason)
        self._notice("profiler-runs", f"the program started a profiler at step {self._clock.count}: our window gave way")

    def _finished(self, window: Window) -> None:
        assert self._bundle is not None
        self._windows.append({**window.document(), "recording": self._recordings, "reason": self._reason})
        self._window = None
        self._clock.disturb(seconds=window.after_s)
        self._bundle.pack(window.file)
        if not self._queue:
            self._plan.recorded(self._clock.count, self._reason)
            self._recordings += 1
        self._manifest(finished=False)

    def _notice(self, code: str, message: str) -> None:
        if all(notice["message"] != message for notice in self._notices):
            self._notices.append({"code": code, "message": message})

    def _manifest(self, finished: bool) -> None:
        if self._bundle is None:
            return
        steps = max(1, self._clock.count - 1)
        document = {
            "finished": finished,
            "rank": self._job.rank,
            "world_size": self._job.world_size,
            "local_rank": self._job.local_rank,
            "process": self._pid,
            "start_epoch_ns": self._clock.start_epoch_ns,
            "surroundings": quietly(surroundings, "describing the run") or {},
            "windows": self._windows,
            "steps": self._clock.kept(),
            "hook": {"mean_ns": self._spent_ns // steps, "most_ns": self._most_ns},
            "companions": {each.name: about for each in self._companions if (about := quietly(each.about, each.name))},
            "notices": self._notices,
        }
        self._bundle.manifest(document, hashes=finished)

    @guarded
    def close(self) -> None:
        """Write what is left, and on rank 0 print the short report. Called once, at the latest when Python ends."""
        if self._pid != os.getpid():
            return
        with self._lock:
            if self._ended:
                return
            self._ended = True
            atexit.unregister(self.close)
            self._stop()
        if self._bundle is None or not self.settings.enabled:
            return
        self._bundle.packed(seconds=30)
        self._manifest(finished=True)
        if self._job.rank != 0 or not self.settings.analyze:
            return
        if self._windows:
            self.report = after.analyse(self._bundle.root, self._job.world_size, self.settings)
        elif self.settings.schedule.repeat or self.settings.schedule.at:
            why = self._notices[0]["message"] if self._notices else f"training ended after step {self._clock.count}"
            first = min(self.settings.schedule.at, default=self.settings.schedule.wait)
            log.warning("advisor: no report: %s; the first recording begins after step %d (advisor.Schedule)", why, first)

    def _stop(self) -> None:
        """Everything that still runs ends; the files stay."""
        self.active = False
        if self._stopped:
            return  # turned off before: what the program set up since is its own
        self._stopped = True
        self._cut("training ended inside a recording window, which is left out")
        for companion in self._companions:
            quietly(companion.end, f"ending {companion.name}")
        quietly(self._plan.close, "taking the triggers back")
        self._unhook()

    def _cut(self, why: str) -> None:
        """No window from now on, until the plan asks for the next recording."""
        window, self._window, self._queue = self._window, None, []
        if window is not None:
            quietly(window.abandon, "stopping the profiler")
            self._plan.recorded(self._clock.count, self._reason)
            if self.settings.enabled:
                self._notice("window-cut", why)

    def _unhook(self) -> None:
        for hook in self._hooks:
            quietly(hook.remove, "removing a hook")
        self._hooks = []

    def disable(self, reason: str) -> None:
        """Turn the hook off for the rest of the run and say why, once."""
        if self.active or not self._ended:
            log.warning("advisor is off for the rest of this run, training goes on: %s", reason)
        self._notice("hook-off", reason)
        self.settings.enabled = False
        quietly(self._stop, "stopping")
        bundle = self._bundle
        if bundle is not None:
            quietly(lambda: bundle.packed(seconds=1), "waiting for files")
            quietly(lambda: self._manifest(finished=True), "writing the manifest")

    def record(self, reason: str = "asked") -> None:
        """Start a recording at the end of this step, whatever the schedule says."""
        self._plan.ask(reason)

    @guarded
    def snapshot(self, name: str = "snapshot") -> Path | None:
        """Write a snapshot of the CUDA allocator into the recording. None where there is no GPU or no step has ended yet.

        With `memory_history=True` it tells who holds the memory. It waits for nothing but takes a while: not every step.
        """
        for companion in self._companions:
            if isinstance(companion, Allocator) and self._bundle is not None:
                return companion.snapshot(name, {"reason": "asked"})
        return None

    def each_step(self, function: F) -> F:
        """Decorator: every call of the function is a step."""
        from functools import wraps

        @wraps(function)
        def counted(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            self.step()
            return result

        return counted  # type: ignore[return-value]

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            for companion in self._companions:
                quietly(lambda each=companion: each.failed(error), companion.name)  # type: ignore[misc]
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, of an object that holds this one say, records nothing."""
        return Attachment, ((), (), Settings(enabled=False))


def _weakly(target: Any) -> Callable[[], Any]:
    """The target as long as it lives: the program frees its memory when it wants to."""
    try:
        return weakref.ref(target)
    except TypeError:
        return lambda: target


def _capturing() -> bool:
    import torch

    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def attach(
    *targets: Any,
    model: Any = None,
    optimizer: Any = None,
    schedule: Schedule | None = None,
    triggers: Iterable[Trigger] = (),
    **settings: Any,
) -> Attachment:
    """Record a few steps of this training run and print what holds it back when it ends.

    targets: models and optimizers, in any order; `model=` and `optimizer=` say it by name. With an optimizer steps are
    counted by themselves; else call `step()` on what is returned. schedule, triggers: which steps are recorded.
    Further settings by name: see `Settings`. TypeError for a target or setting that is neither; nothing else is raised,
    now or later: a failure inside turns the hook off.
    """
    optimizers, models = [], []
    for target in [*targets, *_listed(optimizer), *_listed(model)]:
        if hasattr(target, "register_step_post_hook") or hasattr(target, "param_groups"):
            optimizers.append(_stepping(target))
        elif hasattr(target, "register_forward_pre_hook"):
            models.append(target)
        else:
            raise TypeError(f"attach() takes models and optimizers of torch, not a {type(target).__name__}")
    try:
        chosen = Settings(schedule=schedule or Schedule(), triggers=tuple(triggers), **settings)
    except TypeError as error:  # a name that is no setting
        raise TypeError(str(error).replace("Settings.__init__", "attach")) from None
    return Attachment(optimizers, models, chosen)


def _stepping(optimizer: Any) -> Any:
    """The optimizer whose step runs: Accelerate and DeepSpeed hand out wrappers, whose own hooks nobody calls."""
    for _ in range(4):
        inner = getattr(optimizer, "optimizer", None)
        if inner is None or not hasattr(inner, "register_step_post_hook"):
            return optimizer
        optimizer = inner
    return optimizer


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
