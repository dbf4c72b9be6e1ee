"""Pairs whose fault is on the host: launches, waits, copies, data, compilation."""

from __future__ import annotations

import random

import numpy as np
import torch
import torch.nn.functional as F
from models import CellLoop, LowRank, Transformer, conv_net, discriminator, generator
from pair import EAGER, HOST, Loop, Pair, Place, Trainer, class_loss, image_batches, next_token_loss, token_batches
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


def rnn_cell(place: Place, faulty: bool) -> Loop:
    hidden, batch, length = place.pick((512, 64, 40), (8, 2, 4))
    batches = [
        (torch.randn(batch, length, 64, device=place.device), torch.randint(16, (batch, length), device=place.device))
        for _ in range(4)
    ]

    def loss(net: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(net(x).flatten(0, 1), labels.flatten())

    return Loop(Trainer(place, CellLoop(64, hidden, fused=not faulty), loss, batches, sixteen_bit=False).step, batch)


def gan_optimizers(place: Place, faulty: bool) -> Loop:
    latent, width, batch = place.pick((128, 64, 128), (8, 4, 2))
    make, judge = generator(latent, width).to(place.device), discriminator(width).to(place.device)
    kind = {"foreach": False, "fused": False} if faulty else {"fused": True}
    for_make, for_judge = (torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999), **kind) for m in (make, judge))
    real = torch.randn(batch, 3, 32, 32, device=place.device)
    ones, zeros = torch.ones(batch, 1, device=place.device), torch.zeros(batch, 1, device=place.device)

    def step() -> None:
        with place.autocast():
            fake = make(torch.randn(batch, latent, 1, 1, device=place.device))
            logits = judge(real), judge(fake.detach())
            judged = sum(F.binary_cross_entropy_with_logits(x.float(), y) for x, y in zip(logits, (ones, zeros), strict=True))
        judged.backward()
        for_judge.step()
        for_judge.zero_grad(set_to_none=True)
        with place.autocast():
            fooled = F.binary_cross_entropy_with_logits(judge(fake).float(), ones)
        fooled.backward()
        for_make.step()
        for_make.zero_grad(set_to_none=True)
        for_judge.zero_grad(set_to_none=True)

    return Loop(step, batch)


def lora_item(place: Place, faulty: bool) -> Loop:
    from transformers import LlamaConfig, LlamaForCausalLM

    width, layers, batch, length = place.pick((1024, 3, 8, 512), (16, 1, 1, 8))
    shape = LlamaConfig(
        vocab_size=4096, hidden_size=width, intermediate_size=width * 11 // 4, num_hidden_layers=layers,
        num_attention_heads=place.pick(16, 2), max_position_embeddings=length, use_cache=False,
    )  # fmt: skip
    model = LlamaForCausalLM(shape).to(torch.bfloat16).requires_grad_(False)
    for layer in model.model.layers:
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, LowRank(getattr(layer.self_attn, name)).to(torch.bfloat16))
    for name, weight in model.named_parameters():
        weight.requires_grad_((".down." in name and "mlp" not in name) or ".up." in name)

    def loss(net: nn.Module, ids: Tensor) -> Tensor:
        logits = net(input_ids=ids[:, :-1]).logits
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    trainer = Trainer(place, model, loss, token_batches(place, 4096, batch, length), sixteen_bit=False)
    trained = [p for p in model.parameters() if p.requires_grad]
    history: list[float] = []
    total = torch.zeros((), device=place.device)

    def step() -> None:
        value = trainer.forward()
        value.backward()
        norm = nn.utils.clip_grad_norm_(trained, 1.0)
        if faulty:
            history[:] = [value.item(), norm.item()]
        else:
            total.add_(value.detach())
        trainer.update()

    return Loop(step, batch)


def accumulation(place: Place, faulty: bool) -> Loop:
    """Six sequences a step, one at a time or together."""
    width, length, together = place.pick((512, 256, 6), (16, 8, 2))
    pieces = together if faulty else 1
    model = Transformer(1024, width, 2, place.pick(8, 2), length)
    trainer = Trainer(place, model, next_token_loss, token_batches(place, 1024, together // pieces, length, 6))

    def step() -> None:
        for _ in range(pieces):
            (trainer.forward() / pieces).backward()
        trainer.update()

    return Loop(step, together)


def compiled_shapes(place: Place, faulty: bool) -> Loop:
    """A compiled network whose input has another length in every step: compiled anew each time, or once for all lengths."""
    width, batch, shortest = place.pick((512, 16, 128), (8, 2, 16))
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 10_000
    net = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.LayerNorm(4 * width), nn.Linear(4 * width, width)).to(
        place.device
    )
    compiled = torch.compile(net, dynamic=not faulty, backend=place.pick("inductor", "aot_eager"))
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    pool = torch.randn(batch, shortest + 4096, width, device=place.device)
    state = {"length": shortest}

    def step() -> None:
        state["length"] += 1
        with place.autocast():
            y = compiled(pool[:, : shortest + state["length"] % 4096])
        y.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return Loop(step, batch)


class Photos(IterableDataset):
    """Endless pictures; each takes `work` passes of blurring in NumPy, as decoding and augmenting would."""

    def __init__(self, size: int, work: int) -> None:
        super().__init__()
        self.size, self.work = size, work

    def __iter__(self):
        info = get_worker_info()
        draw = np.random.default_rng(info.id if info else 0)
        while True:
            yield self.picture(draw), int(draw.integers(10))

    def picture(self, draw: np.random.Generator) -> Tensor:
        image = draw.standard_normal((3, self.size, self.size), dtype=np.float32)
        for _ in range(self.work):
            image = (image + np.roll(image, 1, 1) + np.roll(image, 1, 2) + np.roll(image, -1, 1)) * 0.25
        return torch.from_numpy(image[:, :, ::-1].copy() if draw.random() < 0.5 else image)


def augment_workers(place: Place, faulty: bool) -> Loop:
    size, batch, work = place.pick((128, 32, 10), (16, 2, 1))
    workers = place.pick(2 if faulty else 12, 1 if faulty else 2)
    loader = DataLoader(Photos(size, work), batch, num_workers=workers, pin_memory=place.device.type == "cuda", prefetch_factor=2)

    def batches():
        for images, labels in loader:
            yield images.to(place.device, non_blocking=True), labels.to(place.device, non_blocking=True)

    trainer = Trainer(place, conv_net(place.pick(64, 8), 2, 10), class_loss, batches())
    return Loop(trainer.step, batch)


def inline_loader(place: Place, faulty: bool) -> Loop:
    """Pictures made by the DataLoader in the training process, or by eight workers."""
    size, batch, work = place.pick((128, 16, 1), (16, 2, 1))
    pinned = place.device.type == "cuda"
    how = {"num_workers": 0} if faulty else {"num_workers": place.pick(8, 1), "prefetch_factor": 2}
    loader = DataLoader(Photos(size, work), batch, pin_memory=pinned, **how)

    def batches():
        for images, labels in loader:
            yield images.to(place.device, non_blocking=True), labels.to(place.device, non_blocking=True)

    trainer = Trainer(place, conv_net(place.pick(64, 8), 2, 10), class_loss, batches())
    return Loop(trainer.step, batch)


def _augmented(place: Place, faulty: bool, on_host) -> Loop:
    """Pictures augmented between the steps by `on_host`, or on the GPU."""
    size, batch = place.pick((160, 32), (16, 2))
    pictures = torch.randint(256, (4 * batch, 3, size, size), dtype=torch.uint8)
    labels = torch.randint(10, (batch,), device=place.device)
    near = pictures.to(place.device)
    draw = random.Random(0)
    edge = size * 7 // 8

    def batches():
        while True:
            first = draw.randrange(3 * batch)
            x, y, flip, bright = (
                draw.randrange(size - edge),
                draw.randrange(size - edge),
                draw.random() < 0.5,
                0.8 + 0.4 * draw.random(),
            )
            source = (pictures if faulty else near)[first : first + batch, :, y : y + edge, x : x + edge]
            if faulty:
                yield on_host(source, flip, bright).to(place.device), labels
            else:
                image = source.flip(3) if flip else source
                yield (image.float() * (bright / 255) - 0.45) / 0.225, labels

    trainer = Trainer(place, conv_net(place.pick(64, 8), 2, 10), class_loss, batches())
    return Loop(trainer.step, batch)


def _in_numpy(source: Tensor, flip: bool, bright: float) -> Tensor:
    out = []
    for image in source.numpy():
        image = image[:, :, ::-1] if flip else image
        out.append((image.astype(np.float32) * (bright / 255) - 0.45) / 0.225)
    return torch.from_numpy(np.stack(out))


def _in_torch(source: Tensor, flip: bool, bright: float) -> Tensor:
    out = []
    for image in source:
        image = image.flip(2) if flip else image
        out.append(image.float().mul(bright / 255).sub(0.45).div(0.225))
    return torch.stack(out)


def numpy_augment(place: Place, faulty: bool) -> Loop:
    return _augmented(place, faulty, _in_numpy)


def torch_augment(place: Place, faulty: bool) -> Loop:
    return _augmented(place, faulty, _in_torch)


def unpinned_copy(place: Place, faulty: bool) -> Loop:
    size, batch = place.pick((224, 96), (16, 2))
    model = conv_net(place.pick(64, 8), 2, 10).to(memory_format=torch.channels_last)
    on_host = [images.cpu() for images, _ in image_batches(place, batch, size)]
    if not faulty and place.device.type == "cuda":
        on_host = [images.pin_memory() for images in on_host]
    labels = torch.randint(10, (batch,), device=place.device)

    def batches():
        while True:
            for images in on_host:
                yield images.to(place.device, non_blocking=True), labels

    return Loop(Trainer(place, model, class_loss, batches()).step, batch)


def emptied_cache(place: Place, faulty: bool) -> Loop:
    width, batch, length = place.pick((1024, 8, 512), (16, 2, 8))
    trainer = Trainer(
        place, Transformer(8192, width, 3, place.pick(16, 2), length), next_token_loss, token_batches(place, 8192, batch, length)
    )

    def step() -> None:
        trainer.step()
        if faulty:
            torch.cuda.empty_cache()

    return Loop(step, batch)


UNEVEN = "Work on the CPU beside the steps: single steps of the same loop differ by a factor of two and more."

PAIRS = (
    Pair(
        "rnn_cell", "a recurrent network as a Python loop over time: tiny kernels", "the library's layer (cuDNN)",
        ("launch-bound",), rnn_cell, also=(*HOST, "tf32-instead-of-16bit", "fp32-matmul"),
        after=("launch-bound", "small-batch"), extra=True,
    ),
    Pair(
        "gan_optimizers", "two optimizers that update parameter by parameter (foreach=False)", "fused=True",
        ("unfused-optimizer",), gan_optimizers, also=(*HOST, "layout-conversion"),
    ),
    Pair(
        "lora_item", "loss.item() and norm.item() in every step of a LoRA fine-tuning", "keep both on the GPU",
        ("host-sync-in-step", "gradient-scaler-sync"), lora_item, also=(*HOST, "device-to-host-in-step"), extra=True,
    ),
    Pair(
        "accumulation", "six micro-batches of one sequence", "one micro-batch of six", ("small-batch",), accumulation,
        also=(*HOST, "gradient-accumulation-copies", "memory-headroom", "low-efficiency-gemm"),
        after=("small-batch", "launch-bound"), bound_only=True,
    ),
    Pair(
        "compiled_shapes", "torch.compile(dynamic=False) on inputs of ever new lengths", "dynamic=True",
        ("recompilation",), compiled_shapes, also=HOST, steady=False, block=2, warm=0, full=False,
    ),
    Pair(
        "augment_workers", "two DataLoader workers that augment in NumPy", "twelve workers",
        ("dataloader-workers-starved", "dataloader-bound"), augment_workers, also=(*EAGER, "layout-conversion", "idle-gpu"),
        steady=False, block=24, warm=8, device_log=True,
    ),
    Pair(
        "inline_loader", "the DataLoader makes the batches in the training process", "eight workers",
        ("single-process-dataloader", "dataloader-bound"), inline_loader, also=(*HOST, "layout-conversion"), block=24, warm=8,
    ),
    Pair(
        "numpy_augment", "pictures augmented in NumPy between the steps", "augment on the GPU",
        ("python-gap", "dataloader-bound", "idle-gpu"), numpy_augment,
        also=(*HOST, "layout-conversion", "pageable-copy", "tensor-made-on-host"),
        steady=False, note=UNEVEN,
    ),
    Pair(
        "torch_augment", "pictures augmented with torch operators on the CPU between the steps", "augment on the GPU",
        ("python-gap", "dataloader-bound", "idle-gpu", "tensor-made-on-host"), torch_augment,
        also=(*HOST, "layout-conversion", "pageable-copy"),
        steady=False, note=UNEVEN,
    ),
    Pair(
        "unpinned_copy", "non_blocking copies from memory that is not pinned", "pin the memory",
        ("pageable-copy",), unpinned_copy, also=(*EAGER, "unoverlapped-copy"), after=("unoverlapped-copy",),
    ),
    Pair(
        "emptied_cache", "torch.cuda.empty_cache() in every step", "leave the cache alone",
        ("cuda-malloc-in-step",), emptied_cache, also=(*EAGER, "device-synchronize-in-step"),
    ),
)  # fmt: skip
