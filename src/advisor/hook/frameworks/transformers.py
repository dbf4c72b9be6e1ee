"""Hugging Face Trainer: `Trainer(..., callbacks=[AdvisorCallback()])`."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from advisor.hook.attachment import Attachment, attach


class AdvisorCallback(TrainerCallback):
    """Counts the Trainer's optimizer steps. Settings are those of `advisor.attach`."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self.attachment: Attachment | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if self.attachment is not None:
            self.attachment.close()  # the same Trainer trains once more
        self.attachment = attach(model=model, **self._settings)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.attachment is not None:
            self.attachment.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.attachment is not None:
            self.attachment.close()
