"""Snippets for the training loop give what the loop gave before: host waits, metrics, scalers, checkpoints.

Equal means equal bits, unless a test states a tolerance.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snippets.harness import covers, no_gpu, part, ran, snippet

torch = pytest.importorskip("torch")
CPU = "cpu"
__all__ = ["no_gpu"]  # a fixture


def model_and_optimizer(**options: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01, **options)


def batches(count: int = 4) -> list[tuple[Any, Any]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(5, 6, generator=generator), torch.randint(0, 3, (5,), generator=generator)) for _ in range(count)]


def train_step(model: Any, optimizer: Any) -> Callable[..., Any]:
    def step(batch: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss

    return step


def same(model: Any, other: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@covers("host-sync-in-step/keep-on-device")
def test_the_mean_loss_without_a_wait_in_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    model, optimizer = model_and_optimizer()
    before = [train_step(model, optimizer)(batch).item() for batch in batches(100)]
    other, optimizer = model_and_optimizer()
    ran(
        snippet("host-sync-in-step/keep-on-device"),
        torch=torch,
        device=CPU,
        loader=batches(100),
        train_step=train_step(other, optimizer),
    )
    printed = [float(line.split()[1]) for line in capsys.readouterr().out.splitlines()]
    assert printed == pytest.approx([sum(before[:50]) / 50, sum(before[50:]) / 50], rel=1e-5)  # summed in float32
    assert same(model, other)


@covers("host-sync-in-step/no-data-dependence")
@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_selecting_and_clipping_without_a_wait(limit: float) -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(4, 5), torch.randn(20)
    mask, norm = x > 0.3, grad.norm()
    wanted = x.clone()
    wanted[mask] = 0
    clipped = grad * (limit / norm) if norm > limit else grad.clone()
    after = ran(snippet("host-sync-in-step/no-data-dependence"), torch=torch, x=x, mask=mask, limit=limit, norm=norm, grad=grad)
    assert torch.equal(after["x"], wanted)
    torch.testing.assert_close(after["grad"], clipped, rtol=1e-5, atol=0)  # the small number beside the norm


@covers("device-to-host-in-step/metrics-on-gpu")
def test_the_accuracy_without_a_copy_in_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    model, _ = model_and_optimizer()
    loader = batches(100)
    hits = [(model(x).argmax(-1).cpu() == y.cpu()).sum().item() for x, y in loader]
    ran(
        snippet("device-to-host-in-step/metrics-on-gpu"), torch=torch, device=CPU, loader=loader, train_step=lambda x, y: model(x)
    )
    printed = [float(line.split()[1]) for line in capsys.readouterr().out.splitlines()]
    assert printed == [sum(hits[:50]) / 250, sum(hits[50:]) / 250]


@covers("device-to-host-in-step/read-later", "pageable-copy/pinned-target", "unoverlapped-copy/offload-aside")
@pytest.mark.usefixtures("no_gpu")
def test_outputs_read_a_step_later() -> None:
    read: list[Any] = []
    outputs = torch.randn(3, 4, requires_grad=True)
    ran(
        snippet("device-to-host-in-step/read-later"),
        torch=torch,
        outputs=outputs,
        record=lambda values: read.append(values.copy()),
    )
    assert torch.equal(torch.from_numpy(read[0]), outputs.detach().cpu())
    for fix in ("pageable-copy/pinned-target", "unoverlapped-copy/offload-aside"):
        result = torch.randn(5)
        assert torch.equal(ran(snippet(fix), torch=torch, result=result)["buffer"], result.cpu())


@covers("device-synchronize-in-step/time-with-events")
@pytest.mark.usefixtures("no_gpu")
def test_events_time_a_step_and_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    model, _ = model_and_optimizer()
    x = batches(1)[0][0]
    after = ran(snippet("device-synchronize-in-step/time-with-events"), torch=torch, model=model, batch=x)
    assert torch.equal(after["output"], model(x)) and capsys.readouterr().out == "1.0 ms\n"


@covers("memory-growth/detach")
def test_the_sum_of_losses_without_their_graphs() -> None:
    model, _ = model_and_optimizer()
    batch = batches(1)[0]

    def compute_loss(model: Any, batch: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])

    after = ran(snippet("memory-growth/detach"), torch=torch, device=CPU, model=model, batch=batch, compute_loss=compute_loss)
    assert torch.equal(after["losses"], compute_loss(model, batch).detach()) and not after["losses"].requires_grad


@covers("boolean-mask-sync/ignore-index", "boolean-mask-sync/indices-on-host")
def test_masked_loss_without_masks_on_the_gpu() -> None:
    torch.manual_seed(0)
    logits, targets, mask = torch.randn(2, 7, 5), torch.randint(0, 5, (2, 7)), torch.rand(2, 7) > 0.4
    before = torch.nn.functional.cross_entropy(logits[mask], targets[mask])
    after = ran(snippet("boolean-mask-sync/ignore-index"), torch=torch, targets=targets, mask=mask, logits=logits)["loss"]
    torch.testing.assert_close(after, before, rtol=1e-6, atol=0)  # the same terms in another order
    hidden = torch.randn(2, 7, 4)
    batch: dict[str, Any] = {}
    code = snippet("boolean-mask-sync/indices-on-host")
    ran(part(code, before="# In the step"), batch=batch, mask=mask)
    after = ran(part(code, after="# In the step"), hidden=hidden, positions=batch["positions"])["selected"]
    assert torch.equal(after, hidden[mask])


@covers("gradient-scaler-sync/fused-optimizer")
@pytest.mark.parametrize("overflow", [False, True])
def test_a_fused_optimizer_under_the_scaler(overflow: bool) -> None:
    """Two steps, in one of which a gradient overflows: rounding apart (1e-6) the same weights, and the same scale."""
    results = []
    for fused in (False, True):
        model, optimizer = model_and_optimizer()
        scaler = torch.amp.GradScaler(CPU, init_scale=2.0**10, growth_interval=1000)
        for number, batch in enumerate(batches(2)):
            loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
            if overflow and number == 1:
                loss = loss * 1e37
            optimizer.zero_grad()
            if not fused:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                continue
            code = snippet("gradient-scaler-sync/fused-optimizer")
            head, _, rest = code.partition("\n")
            names = {"torch": torch, "model": model, "learning_rate": 0.01, "scaler": scaler, "loss": loss}
            if number == 0:
                optimizer = ran(head, **names)["optimizer"]
            ran(rest, **names, optimizer=optimizer)
        results.append((model, scaler.get_scale()))
    (model, scale), (other, fused_scale) = results
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-6, atol=1e-7)
    assert scale == fused_scale == (512 if overflow else 1024)


@covers("gradient-scaler-sync/clip-without-reading")
def test_clipping_without_reading_the_norm() -> None:
    norms = []
    for fixed in (False, True):
        model, _ = model_and_optimizer()
        x, y = batches(1)[0]
        (100 * torch.nn.functional.cross_entropy(model(x), y)).backward()
        if fixed:
            norms.append(ran(snippet("gradient-scaler-sync/clip-without-reading"), torch=torch, model=model)["norm"])
        else:
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0, foreach=False))
        norms.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(norms[2:], norms[:2], rtol=1e-6, atol=1e-8)  # sums in another order


@covers("unfused-optimizer/foreach", "zero-grad-memset/set-to-none")
def test_optimizers_over_all_parameters_at_once() -> None:
    model, optimizer = model_and_optimizer(foreach=False)
    other, _ = model_and_optimizer()
    code = snippet("zero-grad-memset/set-to-none")
    fast = ran(snippet("unfused-optimizer/foreach"), torch=torch, model=other, lr=0.01)["optimizer"]
    for batch in batches():
        for each, one in ((model, optimizer), (other, fast)):
            torch.nn.functional.cross_entropy(each(batch[0]), batch[1]).backward()
            one.step()
        optimizer.zero_grad(set_to_none=False)
        ran(code, optimizer=fast)
    assert same(model, other) and all(p.grad is None for p in other.parameters())


@covers("debug-setting-left-on/anomaly-mode-off", "debug-setting-left-on/fill-off")
def test_without_checks_the_values_stay() -> None:
    def losses() -> list[float]:
        model, optimizer = model_and_optimizer()
        return [train_step(model, optimizer)(batch).item() for batch in batches()]

    code = snippet("debug-setting-left-on/anomaly-mode-off")
    try:
        torch.autograd.set_detect_anomaly(True)
        torch.use_deterministic_algorithms(True)
        before = losses()
        ran(code, torch=torch, step=7, loss=torch.tensor(1.0))
        assert not torch.is_anomaly_enabled()
        with pytest.raises(RuntimeError, match="loss is nan at step 100"):
            ran(code, torch=torch, step=100, loss=torch.tensor(float("nan")))
        ran(snippet("debug-setting-left-on/fill-off"), torch=torch)
        assert torch.are_deterministic_algorithms_enabled() and losses() == before
    finally:
        torch.autograd.set_detect_anomaly(False)
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = True


@covers("checkpoint-stall/async-save")
def test_a_checkpoint_in_the_background_holds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    monkeypatch.chdir(tmp_path)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        model, optimizer = model_and_optimizer()
        train_step(model, optimizer)(batches(1)[0])
        after = ran(snippet("checkpoint-stall/async-save"), torch=torch)
        after["save"](model, optimizer, 1)
        saved = copy.deepcopy(model)
        train_step(model, optimizer)(batches(1)[0])  # training goes on meanwhile
        after["save"](model, optimizer, 2)
        after["saving"].result()
        state = {"model": {name: torch.zeros_like(value) for name, value in model.state_dict().items()}}
        for number, wanted in ((1, saved), (2, model)):
            dcp.load(state, checkpoint_id=f"checkpoints/{number}")
            assert all(torch.equal(state["model"][name], value) for name, value in wanted.state_dict().items())
    finally:
        dist.destroy_process_group()


@covers("python-gap/every-n-steps", "waiting-in-collective/same-work-on-all-ranks", "straggler-rank/keep-extra-work-off-the-step")
def test_work_off_the_step_is_still_done() -> None:
    done: list[Any] = []
    written = threading.Event()

    def write_log(step: int, metrics: dict[str, float]) -> None:
        done.append((step, metrics))

    code = snippet("python-gap/every-n-steps")
    for step in (49, 50):
        metrics = {"loss": 0.5}
        after = ran(code, step=step, metrics=metrics, write_log=write_log)
        metrics["loss"] = 9.0  # what the next step writes does not reach the background
        after["background"].shutdown(wait=True)
    assert done == [(50, {"loss": 0.5})]

    loss = torch.tensor(2.0, requires_grad=True)
    logged: list[Any] = []
    names = {
        "log": logged.append,
        "loss": loss,
        "snapshot": 7,
        "write_files": lambda snapshot: (done.append(snapshot), written.set()),
    }
    for rank, step in ((0, 100), (0, 101), (1, 100)):
        ran(snippet("waiting-in-collective/same-work-on-all-ranks"), rank=rank, step=step, **names)
    assert written.wait(10) and logged == [loss.detach()] and not logged[0].requires_grad

    model, _ = model_and_optimizer()
    x = batches(1)[0][0]
    code = snippet("straggler-rank/keep-extra-work-off-the-step")
    kept = ran(code, torch=torch, step=10, log_every=10, model=model, evaluate_small=lambda model: model(x))
    assert torch.equal(kept["metrics"], model(x)) and not kept["metrics"].requires_grad
    assert "metrics" not in ran(code, torch=torch, step=11, log_every=10, model=model)


@covers("gradient-accumulation-copies/larger-micro-batch")
def test_fewer_and_larger_micro_batches_give_the_same_gradient() -> None:
    """Means over parts of equal size: the same sums in another order."""
    after = ran(snippet("gradient-accumulation-copies/larger-micro-batch"), batch_size=16)
    torch.manual_seed(2)
    x, y = torch.randn(16, 6), torch.randint(0, 3, (16,))
    gradients = []
    for size in (4, after["micro_batch_size"]):
        model, _ = model_and_optimizer()
        for inputs, targets in zip(x.split(size), y.split(size), strict=True):
            (torch.nn.functional.cross_entropy(model(inputs), targets) / (16 // size)).backward()
        gradients.append([p.grad for p in model.parameters()])
    assert after["micro_batches"] * after["micro_batch_size"] == 16
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-5, atol=1e-7)


@covers("dtype-cast-churn/one-autocast")
def test_one_autocast_around_all_parts() -> None:
    model, _ = model_and_optimizer()
    parts = [x for x, _ in batches(3)]
    before = []
    for inputs in parts:
        with torch.autocast(CPU, dtype=torch.bfloat16):
            before.append(model(inputs))
    after = ran(snippet("dtype-cast-churn/one-autocast"), torch=torch, model=model, micro_batches=parts, dtype=torch.bfloat16)[
        "outputs"
    ]
    assert all(torch.equal(a, b) and a.dtype == torch.bfloat16 for a, b in zip(after, before, strict=True))


@covers("launch-bound/cuda-graphs")
def test_graphed_callables_stand_in_for_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Needs a GPU to run: here only that the call fits and the sample has the shape and gradient that the function asks for."""
    calls: list[Any] = []

    def graphed(callables: Any, sample_args: Any) -> Any:
        assert isinstance(sample_args, tuple) and all(isinstance(one, torch.Tensor) for one in sample_args)
        calls.append(callables(*sample_args))
        return callables

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", graphed)
    model, _ = model_and_optimizer()
    after = ran(snippet("launch-bound/cuda-graphs"), torch=torch, model=model, batch_shape=(5, 6))
    assert after["model"] is model and after["sample"].shape == (5, 6) and calls[0].requires_grad


@covers("graph-breaks/move-out", "graph-breaks/capture-scalars")
def test_a_compiled_model_in_one_piece() -> None:
    logged: list[Any] = []

    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.embed, self.head = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9)
            self.blocks = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

    def logging_forward(self: Any, tokens: Any) -> Any:
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        logged.append(hidden.detach().norm().item())
        return self.head(hidden)

    tokens = torch.arange(6)
    model = Layers()
    wanted = logging_forward(model, tokens)
    definition, use = snippet("graph-breaks/move-out").split("\n\n", 1)
    Layers.forward = ran(definition)["forward"]
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(model, backend=backend)
    for step in (0, 1):
        after = ran(use, model=compiled, tokens=tokens, step=step, log=lambda step, value: logged.append(value))
        torch.testing.assert_close(after["logits"], wanted)
    assert len(graphs) == 1 and len(logged) == 2 and logged[1] == pytest.approx(logged[0])

    config = torch._dynamo.config
    before = config.capture_scalar_outputs, config.capture_dynamic_output_shape_ops
    try:
        ran(snippet("graph-breaks/capture-scalars"), torch=torch)

        def scaled(x: Any) -> Any:
            return x * x.sum().item() + x.nonzero().sum()

        graphs.clear()
        x = torch.tensor([1.0, 0.0, 2.0])
        assert torch.equal(torch.compile(scaled, backend=backend, fullgraph=True)(x), scaled(x)) and len(graphs) == 1
    finally:
        config.capture_scalar_outputs, config.capture_dynamic_output_shape_ops = before
        torch._dynamo.reset()


@covers("gloo-backend/nccl")
def test_the_name_of_two_backends() -> None:
    from torch.distributed.distributed_c10d import BackendConfig

    code = snippet("gloo-backend/nccl")
    assert '"cpu:gloo,cuda:nccl"' in code
    assert BackendConfig("cpu:gloo,cuda:nccl").get_device_backend_map() == {"cpu": "gloo", "cuda": "nccl"}
