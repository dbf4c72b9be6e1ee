"""Snippets for Lightning, Transformers and Accelerate take effect in the real libraries, where they are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from snippets.harness import covers, ran, rules, snippet

torch = pytest.importorskip("torch")

ARGUMENTS = [
    f"{rule.id}/{fix.id}"
    for rule in rules().values()
    for fix in rule.fixes
    if fix.framework == "transformers" and "TrainingArguments(" in fix.snippet
]
TRAINERS = [
    f"{rule.id}/{fix.id}"
    for rule in rules().values()
    for fix in rule.fixes
    if fix.framework == "lightning" and "Trainer(" in fix.snippet and "scale_batch_size" not in fix.snippet
]


@covers(
    "host-sync-in-step/transformers-logging", "dataloader-workers-starved/transformers", "epoch-start-stall/transformers",
    "single-process-dataloader/workers-transformers", "gradient-accumulation-copies/transformers-accumulation",
    "pageable-copy/transformers",
)  # fmt: skip
@pytest.mark.parametrize("fix", ARGUMENTS)
def test_training_arguments_hold_what_is_asked(fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    # Precisions of a GPU are refused on a machine without one: there the arguments are only collected.
    asked: dict[str, Any] = {}

    def collected(**options: Any) -> None:
        asked.update(options)

    ran(snippet(fix), TrainingArguments=collected, output_dir="out")
    fields = transformers.TrainingArguments.__dataclass_fields__
    assert asked.keys() <= fields.keys()
    options = {key: value for key, value in asked.items() if key not in ("tf32", "fp16", "bf16", "use_liger_kernel")}
    arguments = transformers.TrainingArguments(**options, report_to=[])
    optimizer = options.pop("optim", None)
    assert optimizer in (None, arguments.optim)
    assert {key: getattr(arguments, key) for key in options} == options


@covers("find-unused-parameters/lightning", "single-process-dataloader/workers-lightning")
@pytest.mark.parametrize("fix", TRAINERS)
def test_trainers_can_be_made(fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lightning")
    import lightning as L

    monkeypatch.chdir(tmp_path)
    code = snippet(fix).replace('accelerator="gpu"', 'accelerator="cpu"')
    code = code.replace("16-mixed", "bf16-mixed") if "bf16-mixed" not in code else code  # FP16 is refused without a GPU
    before = torch.get_float32_matmul_precision()
    try:
        if 'process_group_backend="nccl"' in code:  # made, not run
            ran(code, L=L, Trainer=L.Trainer, torch=torch)
            return
        names = {"L": L, "Trainer": L.Trainer, "torch": torch}
        assert isinstance(ran(code, **names)["trainer"], L.Trainer)
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_data_module_with_workers_hands_out_the_same() -> None:
    L = pytest.importorskip("lightning")
    module = ran(snippet("single-process-dataloader/workers-lightning"), L=L, torch=torch)["Data"]()
    module.train_set, module.batch_size = torch.arange(12.0), 5
    torch.manual_seed(0)
    after = list(module.train_dataloader())
    torch.manual_seed(0)
    before = list(torch.utils.data.DataLoader(torch.arange(12.0), batch_size=5, shuffle=True))
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))


@covers("sync-every-microstep/accelerate")
def test_accumulation_by_accelerate() -> None:
    """Four passes give one update by the mean of their gradients, as the loop by hand does: within 1e-6."""
    pytest.importorskip("accelerate")
    torch.manual_seed(0)
    xs = [torch.randn(2, 3) for _ in range(8)]
    weights = []
    for fixed in (False, True):
        torch.manual_seed(1)
        model: Any = torch.nn.Linear(3, 1)
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        if fixed:
            loader = torch.utils.data.DataLoader(torch.cat(xs), batch_size=2)
            code = snippet("sync-every-microstep/accelerate", passes=4).replace("Accelerator(", "Accelerator(cpu=True, ")
            ran(code, model=model, optimizer=optimizer, loader=loader, loss_of=lambda out: out.square().mean())
        else:
            for number, x in enumerate(xs):
                (model(x).square().mean() / 4).backward()
                if number % 4 == 3:
                    optimizer.step()
                    optimizer.zero_grad()
        weights.append(model.weight.detach().clone())
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-6, atol=1e-7)
