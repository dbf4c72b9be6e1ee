"""Data-parallel training loops for the rules on communication, told by the length of their parts in microseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

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
