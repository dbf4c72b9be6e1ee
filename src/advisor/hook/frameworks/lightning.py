"""Lightning: `Trainer(callbacks=[AdvisorCallback()])`, or `Trainer(profiler=AdvisorProfiler())`.

Works with the package `lightning` and with `pytorch_lightning`, whichever the program has imported.
"""

from __future__ import annotations

import sys
from typing import Any

from advisor.hook.attachment import Attachment, attach

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
    from pytorch_lightning.profilers import Profiler
else:
    try:
        from lightning.pytorch import Callback
        from lightning.pytorch.profilers import Profiler
    except ImportError:
        from pytorch_lightning import Callback
        from pytorch_lightning.profilers import Profiler


class AdvisorCallback(Callback):
    """Counts optimizer steps of `fit`: with accumulated gradients several batches make one. Settings as of `advisor.attach`."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._seen = 0
        self.attachment: Attachment | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._seen = trainer.global_step
        self.attachment = attach(model=pl_module, **self._settings)

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        if self.attachment is not None and trainer.global_step != self._seen:
            self._seen = trainer.global_step
            self.attachment.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        if self.attachment is not None:
            self.attachment.close()


class AdvisorProfiler(Profiler):
    """Takes the place of Lightning's profiler; every training batch is a step."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._settings = settings
        self.attachment: Attachment | None = None

    def start(self, action_name: str) -> None:
        if action_name == "run_training_batch" and self.attachment is None:
            self.attachment = attach(**self._settings)

    def stop(self, action_name: str) -> None:
        if action_name == "run_training_batch" and self.attachment is not None:
            self.attachment.step()

    def summary(self) -> str:
        return ""

    def teardown(self, stage: str | None) -> None:
        attachment, self.attachment = self.attachment, None
        if attachment is not None:
            attachment.close()
        super().teardown(stage)
