"""Data-parallel training loops for the rules on communication, told by the length of their parts in microseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from build.cases import GEMM
from build.workload import Workload

OWN_STREAM = 17
COMPUTE_STREAM = 7


def data_parallel(
    *,
    ranks: int = 2,
    steps: int = 5,
    forward_us: float = 500,
    backward_us: float = 1000,
    layers: int = 4,
    reduce_us: float = 500,
    elements: int = 1 << 24,
    serial: bool = False,
    host_us: float = 5,
    kind: str = "allreduce",
    late_us: float = 0,
    waits: tuple[float, ...] = (0,),
    **given: Any,
) -> Workload:
    """`layers` kernels forward, as many backward, a collective for each, one optimizer kernel; all ranks in lock step.

    serial: the collectives come after the backward pass on the compute stream; else each runs beside the next layer's
    backward kernel. late_us: host work of rank 1 before its first collective of a step; waits: added to the collectives of
    each step in turn, as if a rank that was not recorded came late.
    """
    w = Workload(ranks=ranks, **given)

    def reduce(step: int) -> None:
        stream = COMPUTE_STREAM if serial else OWN_STREAM
        for rank in w.ranks:
            if not serial:
                rank.stream_wait(OWN_STREAM, on=COMPUTE_STREAM)
        w.collective(kind, elements, reduce_us, stream=stream, wait_us=waits[step % len(waits)])

    for number in range(steps):
        with all_steps(w):
            for rank in w.ranks:
                for _ in range(layers):
                    with rank.op("aten::linear", us=host_us):
                        rank.launch("gemm_forward", forward_us)
            w.ranks[-1].host(late_us)
            for _ in range(layers):
                for rank in w.ranks:
                    with rank.backward(), rank.op("autograd::engine::evaluate_function: Linear", us=host_us):
                        rank.launch("gemm_backward", backward_us)
                if not serial:
                    reduce(number)
            if serial:
                for _ in range(layers):
                    reduce(number)
            for rank in w.ranks:
                rank.stream_wait(COMPUTE_STREAM, on=OWN_STREAM)
                with rank.op("optimizer", us=host_us):
                    rank.launch("fused_adam_kernel", 200)
    return w


@contextmanager
def together(spans: Iterable[AbstractContextManager[Any]]) -> Iterator[None]:
    """Open on several ranks what is inside, in lock step."""
    with ExitStack() as stack:
        for span in spans:
            stack.enter_context(span)
        yield


def all_steps(w: Workload) -> AbstractContextManager[None]:
    """One marked step on every rank."""
    return together(rank.step() for rank in w.ranks)


def pipelined(
    stages: int, micro_batches: int, *, steps: int = 6, forward_us: float = 1000, factors: tuple[float, ...] = (),
    named: bool = True, **given: Any,
) -> Workload:  # fmt: skip
    """A pipeline in the order of GPipe: all micro-batches forward, then all backward at twice the time, then the optimizer.

    factors: of the work of each stage, 1 where none is given.
    """
    w = Workload(ranks=stages, **given)
    factor = [*factors, *[1.0] * (stages - len(factors))]

    def work(number: int, us: float, op: str) -> None:
        rank = w.ranks[number]
        rank.stream_wait(COMPUTE_STREAM, on=OWN_STREAM)
        with rank.op(op, us=5):
            for _ in range(4):
                rank.launch("gemm", us * factor[number] / 4)
        rank.stream_wait(OWN_STREAM, on=COMPUTE_STREAM)

    for _ in range(steps):
        with all_steps(w):
            for _ in range(micro_batches):
                for stage in range(stages):
                    work(stage, forward_us, "aten::linear")
                    if stage < stages - 1:
                        w.hand_on(stage, stage + 1, named=named)
            for _ in range(micro_batches):
                for stage in reversed(range(stages)):
                    work(stage, 2 * forward_us, "autograd::engine::evaluate_function: AddmmBackward0")
                    if stage:
                        w.hand_on(stage, stage - 1, named=named)
            for rank in w.ranks:
                rank.stream_wait(COMPUTE_STREAM, on=OWN_STREAM)
                with rank.optimizer():
                    rank.launch("fused_adam_kernel", 100)
    return w


def experts(
    loads: tuple[tuple[float, ...], ...], *, steps: int = 6, dense_us: float = 600, expert_us: float = 1000,
    exchange_us: float = 100, kind: str = "all_to_allv", product: str = GEMM, named: bool = True, **given: Any,
) -> Workload:  # fmt: skip
    """Layers of attention, exchange, experts, exchange. `loads`: for each layer, the load of each rank (1: expert_us)."""
    w = Workload(ranks=len(loads[0]), **given)

    def exchange() -> None:
        for rank in w.ranks:
            rank.stream_wait(OWN_STREAM, on=COMPUTE_STREAM)
        w.collective(kind, 1 << 20, exchange_us, kernel="ncclDevKernel_SendRecv(T)")
        for rank in w.ranks:
            if not named:
                rank.rows["collective_calls"].clear()
            rank.stream_wait(COMPUTE_STREAM, on=OWN_STREAM)

    for _ in range(steps):
        with all_steps(w):
            for layer in loads:
                for rank in w.ranks:
                    with rank.op("aten::linear", us=5):
                        rank.launch(GEMM, dense_us)
                exchange()
                for rank, load in zip(w.ranks, layer, strict=True):
                    shapes = [[int(512 * load), 256], [256, 1024]]
                    with rank.op("aten::mm", us=5, shapes=shapes, types=["c10::BFloat16"] * 2):
                        rank.launch(product, expert_us * load)
                exchange()
            for rank in w.ranks:
                with rank.optimizer():
                    rank.launch("fused_adam_kernel", 100)
    return w
