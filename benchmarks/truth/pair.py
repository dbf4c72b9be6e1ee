"""What a measured pair of loops is: one planted fault, its fix, and how a step of either is built."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

EAGER = ("unfused-elementwise", "unfused-normalization", "unfused-cross-entropy", "dtype-cast-churn", "fp8-candidate")
HOST = (*EAGER, "launch-bound", "python-gap", "small-batch", "underfilled-gpu", "graph-breaks", "unfused-optimizer")


@dataclass(frozen=True)
class Place:
    """Where loops run. `tiny`: shapes for a check without a GPU. `pick(full, tiny)` chooses a size."""

    device: torch.device
    tiny: bool

    def pick(self, full: Any, tiny: Any) -> Any:
        return tiny if self.tiny else full

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def autocast(self) -> Any:
        return torch.autocast(self.device.type, torch.bfloat16)


@dataclass
class Loop:
    """One side of a pair. `step` runs a whole training step of `items` items; `enter` sets what is global to the process."""

    step: Callable[[], None]
    items: int
    enter: Callable[[], None] = lambda: None
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Pair:
    """`build(place, faulty)` makes a side. rules: the planted fault; also: true of both sides, without a measured gain;
    after: true of the mended side; steady: one step takes as long as the next; block: steps timed at once, 0 for as many as
    fill a third of a second; warm: steps before each block; full: whether to record with stacks and shapes; extra: whether
    to record in other ways too.
    """

    name: str
    cause: str
    fix: str
    rules: tuple[str, ...]
    build: Callable[[Place, bool], Loop]
    also: tuple[str, ...] = EAGER
    after: tuple[str, ...] = ()
    bound_only: bool = False
    cause_only: bool = False
    steady: bool = True
    note: str = ""
    block: int = 0
    warm: int = 2
    full: bool = True
    extra: bool = False
    device_log: bool = False


@dataclass
class Trainer:
    """Forward, backward and update in one call, with nothing left to mend."""

    place: Place
    model: nn.Module
    loss: Callable[..., Tensor]
    batches: Iterable[tuple[Any, ...]]
    sixteen_bit: bool = True
    optimizer: torch.optim.Optimizer = field(init=False)

    def __post_init__(self) -> None:
        self.model.to(self.place.device)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
        self._endless = itertools.cycle(self.batches) if isinstance(self.batches, list) else iter(self.batches)

    def forward(self) -> Tensor:
        with self.place.autocast() if self.sixteen_bit else nullcontext():
            return self.loss(self.model, *next(self._endless))

    def step(self) -> None:
        loss = self.forward()
        loss.backward()
        self.update()

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def next_token_loss(model: nn.Module, ids: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def class_loss(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(images), labels)


def token_batches(place: Place, vocabulary: int, batch: int, length: int, count: int = 4) -> list[tuple[Tensor]]:
    return [(torch.randint(vocabulary, (batch, length + 1), device=place.device),) for _ in range(count)]


def image_batches(place: Place, batch: int, size: int, classes: int = 10, count: int = 4) -> list[tuple[Tensor, Tensor]]:
    return [
        (torch.randn(batch, 3, size, size, device=place.device), torch.randint(classes, (batch,), device=place.device))
        for _ in range(count)
    ]
