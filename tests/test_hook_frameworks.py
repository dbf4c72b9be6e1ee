"""The hook in real frameworks, on the CPU: steps are those of the optimizer, and training ends with a closed recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import advisor  # noqa: E402

SHORT = advisor.Schedule(wait=3, warmup=1, active=2, evidence=1)


def settings(tmp_path: Path) -> dict[str, Any]:
    return {"schedule": SHORT, "output": str(tmp_path / "runs"), "analyze": False}


def manifest(attachment: Any) -> dict[str, Any]:
    assert attachment.folder is not None
    found = json.loads((attachment.folder / "rank-0" / "manifest.json").read_text())
    assert found["finished"] is True and found["notices"] == []
    assert [window["kind"] for window in found["windows"]] == ["timing", "evidence"]
    return found


class Numbers(torch.utils.data.Dataset):  # type: ignore[name-defined,misc]
    def __len__(self) -> int:
        return 48

    def __getitem__(self, i: int) -> Any:
        return {"x": torch.full((4,), float(i)), "labels": torch.tensor([1.0])}


def test_transformers_trainer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from advisor.hook.frameworks.transformers import AdvisorCallback

    class Model(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            out = self.layer(x)
            return {"loss": (out - labels).pow(2).mean(), "logits": out}

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=1,
        learning_rate=1e-6,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    callback = AdvisorCallback(**settings(tmp_path))
    transformers.Trainer(Model(), arguments, train_dataset=Numbers(), callbacks=[callback]).train()
    assert callback.attachment is not None and manifest(callback.attachment)["steps"]["count"] == 12


def lightning_module(pl: Any) -> Any:
    class Module(pl.LightningModule):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return (self.layer(batch["x"]) - batch["labels"]).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-6)

    return Module()


def lightning_trainer(pl: Any, tmp_path: Path, **more: Any) -> Any:
    return pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        **more,
    )


def test_lightning_callback_counts_optimizer_steps(tmp_path: Path) -> None:
    pl = pytest.importorskip("lightning.pytorch")
    from advisor.hook.frameworks.lightning import AdvisorCallback

    callback = AdvisorCallback(**settings(tmp_path))
    trainer = lightning_trainer(pl, tmp_path, callbacks=[callback], accumulate_grad_batches=2)
    trainer.fit(lightning_module(pl), torch.utils.data.DataLoader(Numbers(), batch_size=2))
    assert callback.attachment is not None and manifest(callback.attachment)["steps"]["count"] == 12


def test_lightning_callback_closes_when_training_fails(tmp_path: Path) -> None:
    pl = pytest.importorskip("lightning.pytorch")
    from advisor.hook.frameworks.lightning import AdvisorCallback

    class Failing(pl.Callback):  # type: ignore[name-defined,misc]
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
            if index == 15:
                raise RuntimeError("lost")

    callback = AdvisorCallback(**settings(tmp_path))
    trainer = lightning_trainer(pl, tmp_path, callbacks=[callback, Failing()])
    with pytest.raises(RuntimeError, match="lost"):
        trainer.fit(lightning_module(pl), torch.utils.data.DataLoader(Numbers(), batch_size=2))
    assert callback.attachment is not None and manifest(callback.attachment)["steps"]["count"] == 15


def test_lightning_profiler(tmp_path: Path) -> None:
    pl = pytest.importorskip("lightning.pytorch")
    from advisor.hook.frameworks.lightning import AdvisorProfiler

    profiler = AdvisorProfiler(**settings(tmp_path))
    trainer = lightning_trainer(pl, tmp_path, profiler=profiler)
    trainer.fit(lightning_module(pl), torch.utils.data.DataLoader(Numbers(), batch_size=2))
    (run,) = (tmp_path / "runs").iterdir()
    found = json.loads((run / "rank-0" / "manifest.json").read_text())
    assert found["finished"] is True and found["steps"]["count"] == 24 and len(found["windows"]) == 2


def test_accelerate_counts_the_optimizer_inside(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=3)
    model = torch.nn.Linear(4, 1)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=1e-6), torch.utils.data.DataLoader(Numbers(), batch_size=1)
    )
    with advisor.attach(optimizer, **settings(tmp_path)) as attachment:
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward((model(batch["x"]) - batch["labels"]).pow(2).mean())
                optimizer.step()
                optimizer.zero_grad()
    assert manifest(attachment)["steps"]["count"] == 16


def test_a_profiler_of_the_program_s_own(tmp_path: Path) -> None:
    handler = advisor.on_trace_ready(output=str(tmp_path / "runs"), analyze=False)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, schedule=schedule, on_trace_ready=handler) as profile:
        for _ in range(10):
            torch.ones(8).sum()
            profile.step()
    handler.close()
    assert handler.folder is not None
    found = json.loads((handler.folder / "rank-0" / "manifest.json").read_text())
    assert found["finished"] is True and sorted(found["files"]) == ["window-0-given.json.gz", "window-1-given.json.gz"]
    traces = advisor.load([handler.folder / "rank-0"]).traces
    assert {trace.format for trace in traces} == {"torch-trace", "advisor-bundle"}
