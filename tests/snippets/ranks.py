"""Snippets for several processes, run on two ranks that meet over Gloo: `python ranks.py RANK FOLDER`.

Each function gives (before, after) of one or several fixes: lists of tensors that must agree. `main` writes how far apart they
are, over the largest value, to FOLDER/rankN.json.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from snippets.harness import part, ran, snippet

Pair = tuple[list[Any], list[Any]]
RANKS = 2


class Net(torch.nn.Module):
    """Two layers; with `norm` buffers of a batch norm, with `unused` a layer that never runs."""

    def __init__(self, norm: bool = False, unused: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(6, 6), torch.nn.Linear(6, 6), torch.nn.Linear(6, 2)])
        self.norm = torch.nn.BatchNorm1d(6) if norm else torch.nn.Identity()
        self.unused = torch.nn.Linear(3, 3) if unused else None

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = torch.tanh(layer(x if x.shape[-1] != 6 else self.norm(x)))
        return x.square().mean()


def data(rank: int, count: int = 3) -> list[Any]:
    generator = torch.Generator().manual_seed(10 + rank)
    return [torch.randn(4, 6, generator=generator) for _ in range(count)]


def whole(tensor: Any) -> Any:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def trained(model: Any, rank: int, after_backward: Callable[[Any], None] = lambda model: None) -> list[Any]:
    """Parameters after three steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in data(rank):
        optimizer.zero_grad()
        model(x).backward()
        after_backward(model)
        optimizer.step()
    return [whole(p).detach().clone() for p in model.parameters()]


def reduced_one_by_one(model: Any) -> None:
    """A loop over the gradients after the backward pass, as the rules find it."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= RANKS


NAMES: dict[str, Any] = {"torch": torch, "DistributedDataParallel": DistributedDataParallel, "local_rank": 0}


def wrapped(fix: str, rank: int, net: Any = None, until: str = "", **names: Any) -> list[Any]:
    code = snippet(fix)
    model = ran(part(code, before=until) if until else code, **NAMES, model=net or Net(), **names)["model"]
    return trained(model, rank)


def exposed_communication_ddp(rank: int) -> Pair:
    before = trained(Net(), rank, reduced_one_by_one)
    return before * 3, [
        *wrapped("exposed-communication/ddp", rank, until="loss ="),
        *wrapped("small-collectives/ddp", rank, until="loss ="),
        *wrapped("exposed-communication/ddp-buckets", rank),
    ]


def rest_of_a_step(rank: int) -> Pair:
    """The lines after the wrapping, which train one step."""
    x, lists = data(rank)[0], []
    for fix in (None, "exposed-communication/ddp", "small-collectives/ddp"):
        model: Any = Net()
        if fix is None:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(x).backward()
            reduced_one_by_one(model)
            optimizer.step()
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            ran(snippet(fix), **NAMES, model=model, batch=x, optimizer=optimizer)
        lists.append([p.detach() for p in model.parameters()])
    return lists[0] * 2, lists[1] + lists[2]


def other_buckets(rank: int) -> Pair:
    before = trained(DistributedDataParallel(Net(), bucket_cap_mb=0.0001), rank)
    return before, wrapped("small-collectives/ddp-buckets", rank)


def gradients_in_one_message(rank: int) -> Pair:
    def flat(model: Any) -> None:
        # Gloo has no average: the sum by the number of ranks is the same.
        code = snippet("small-collectives/flat-buffer").replace("ReduceOp.AVG", "ReduceOp.SUM")
        ran(code.replace("\ntorch._foreach_copy_", f"\nflat /= {RANKS}\ntorch._foreach_copy_"), torch=torch, model=model)

    return trained(Net(), rank, reduced_one_by_one), trained(Net(), rank, flat)


def collective_started_early(rank: int) -> Pair:
    tensor, other = torch.full((4,), rank + 1.0), torch.full((4,), rank + 1.0)
    dist.all_reduce(other)
    ran(snippet("exposed-communication/async-op"), tensor=tensor, independent_compute=lambda: None)
    return [other], [tensor]


def buffers_of_one_rank(rank: int) -> Pair:
    """Weights agree without the broadcast of each step; before evaluation the buffers are those of rank 0 too."""
    models = [DistributedDataParallel(Net(norm=True), broadcast_buffers=True)]
    models.append(ran(snippet("broadcast-buffers/switch-off"), **NAMES, model=Net(norm=True))["model"])
    weights = [trained(model, rank) for model in models]
    for model in models:
        ran(snippet("broadcast-buffers/before-evaluation"), model=model)
    return [*weights[0], *models[0].buffers()], [*weights[1], *models[1].buffers()]


def parameters_without_gradient(rank: int) -> Pair:
    before = trained(DistributedDataParallel(Net(unused=True), find_unused_parameters=True), rank)
    net = Net(unused=True)
    net(data(rank)[0]).backward()
    after = wrapped("find-unused-parameters/switch-off", rank, net)
    assert [name for name, parameter in net.named_parameters() if not parameter.requires_grad] == ["unused.weight", "unused.bias"]
    used = trained(DistributedDataParallel(Net(), find_unused_parameters=True), rank)
    return before + used, after + wrapped("find-unused-parameters/static-graph", rank)


def gradients_of_the_last_pass(rank: int) -> Pair:
    lists = []
    for fixed in (False, True):
        model = DistributedDataParallel(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            if fixed:
                names = {"model": model, "optimizer": optimizer, "micro_batches": data(rank, 4), "loss_of": lambda loss: loss}
                ran(snippet("sync-every-microstep/ddp", passes=4), **names)
                continue
            for x in data(rank, 4):
                (model(x) / 4).backward()
            optimizer.step()
            optimizer.zero_grad()
        lists.append([p.detach() for p in model.parameters()])
    return lists[0], lists[1]


def sharded_gradients_of_the_last_pass(rank: int) -> Pair:
    lists = []
    for fixed in (False, True):
        model: Any = Net()
        fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if fixed:
            names = {"model": model, "optimizer": optimizer, "micro_batches": data(rank, 4), "loss_of": lambda loss: loss}
            ran(snippet("sync-every-microstep/fsdp2", passes=4), **names)
        else:
            for x in data(rank, 4):
                (model(x) / 4).backward()
            optimizer.step()
        lists.append([whole(p).detach() for p in model.parameters()])
    return lists[0], lists[1]


def shards_of_whole_blocks(rank: int) -> Pair:
    """One unit for the whole model, one a block, and with prefetching."""
    plain: Any = Net()
    fully_shard(plain)
    before, after = trained(plain, rank), []
    for fix in ("small-collectives/fsdp2-units", "exposed-communication/fsdp2-prefetch"):
        model = Net()
        ran(snippet(fix), model=model)
        after += trained(model, rank)
    return before * 2, after


def narrow_parameters(rank: int) -> Pair:
    """Casts in the module against casts of the shards: bfloat16 both ways, so 1 % apart."""
    plain: Any = Net()
    fully_shard(plain)
    lists = [trained(plain, rank), []]
    for fix in ("dtype-cast-churn/narrow-parameters", "tf32-instead-of-16bit/bf16-fsdp2"):
        model = Net()
        ran(snippet(fix), torch=torch, model=model)
        lists[1] += trained(model, rank)
    return lists[0] * 2, lists[1]


class Part(torch.nn.Module):
    """One of `count` parts of a chain of four layers."""

    def __init__(self, number: int, count: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh()) for _ in range(4)]
        each = 4 // count
        self.layers = torch.nn.Sequential(*layers[number * each : (number + 1) * each])

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def finer_schedules(rank: int) -> Pair:
    """GPipe with two micro-batches; then four by 1F1B, and by two parts a rank: the same gradients of the mean loss."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    x, target = torch.cat(data(0, 2)), torch.zeros(8, 6)
    names = {"loss_fn": torch.nn.functional.mse_loss, "torch": torch}
    lists: list[list[Any]] = []

    def stage(number: int, count: int) -> Any:
        return PipelineStage(Part(number, count), number, count, torch.device("cpu"))

    for fix in (None, "pipeline-bubble/more-micro-batches", "pipeline-bubble/interleave"):
        parts = [stage(rank, 2)] if fix != "pipeline-bubble/interleave" else [stage(rank, 4), stage(rank + 2, 4)]
        if fix is None:
            schedule: Any = ScheduleGPipe(parts[0], n_microbatches=2, loss_fn=names["loss_fn"])
        else:
            ends = {"first_part": parts[0], "second_part": parts[-1], "stage": parts[0]}
            schedule = ran(snippet(fix, more_micro_batches=4), **names, **ends)["schedule"]
        schedule.step(*([x] if rank == 0 else []), **({"target": target} if rank == 1 else {}))
        mine = [[parameter.grad for parameter in part.submod.parameters()] for part in parts]
        everyone: list[Any] = [None, None]
        dist.all_gather_object(everyone, mine)
        # By layers: with two parts a rank, those of both ranks in turn.
        in_order = [part for parts in zip(*everyone, strict=True) for part in parts]
        lists.append([grad for part in in_order for grad in part])
    return lists[0] * 2, lists[1] + lists[2]


def a_model_cut_elsewhere(rank: int) -> Pair:
    """The parts of a model, one after another, give what the whole gives."""

    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(4))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = torch.tanh(layer(x))
            return x

    model, x = Layers(), data(0)[0]
    names = {"model": model, "first_layers": [1], "example_micro_batch": x}
    parts = ran(snippet("pipeline-bubble/even-stages"), **names)["parts"]
    assert parts.num_stages == 2 and len(list(parts.get_stage_module(1).parameters())) == 6
    return [model(x).detach()], [parts.get_stage_module(1)(parts.get_stage_module(0)(x)).detach()]


SCENARIOS = (
    exposed_communication_ddp, rest_of_a_step, other_buckets, gradients_in_one_message, collective_started_early,
    buffers_of_one_rank, parameters_without_gradient, gradients_of_the_last_pass, sharded_gradients_of_the_last_pass,
    shards_of_whole_blocks, narrow_parameters,
    finer_schedules, a_model_cut_elsewhere,
)  # fmt: skip


def apart(pair: Pair) -> float:
    """Largest difference of two lists of tensors over the largest value."""
    before, after = pair
    assert len(before) == len(after) > 0
    most = max(float(a.abs().max()) for a in before)
    return max(float((a - b).abs().max()) for a, b in zip(before, after, strict=True)) / most


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    found: dict[str, Any] = {}
    for scenario in SCENARIOS:
        try:
            found[scenario.__name__] = apart(scenario(rank))
        except Exception:
            found[scenario.__name__] = traceback.format_exc()
        (folder / f"rank{rank}.json").write_text(json.dumps(found))
        if isinstance(found[scenario.__name__], str):
            break  # the other rank waits
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
