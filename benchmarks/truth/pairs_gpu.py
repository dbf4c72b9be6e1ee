"""Pairs whose fault is in what the GPU is given to do."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from models import (
    BatchedExperts,
    MaskedExperts,
    Residual,
    Transformer,
    UNet,
    VisionTransformer,
    conv_net,
    fast_gelu,
    new_gelu,
)
from pair import EAGER, HOST, Loop, Pair, Place, Trainer, class_loss, image_batches, next_token_loss, token_batches
from torch import Tensor, nn


def _unet(place: Place, faulty: bool, norm: str, full_batch: int) -> Loop:
    width, size, batch = place.pick((128, 64, full_batch), (8, 16, 2))
    layout = torch.contiguous_format if faulty else torch.channels_last
    model = UNet(width, norm).to(memory_format=layout)
    batches = [
        (
            torch.randn(batch, 3, size, size, device=place.device).to(memory_format=layout),
            torch.rand(batch, device=place.device) * 1000,
        )
        for _ in range(4)
    ]

    def loss(net: nn.Module, image: Tensor, time: Tensor) -> Tensor:
        noise = torch.randn_like(image)
        share = (time / 1000)[:, None, None, None]
        return F.mse_loss(net(image * (1 - share) + noise * share, time).float(), noise)

    return Loop(Trainer(place, model, loss, batches).step, batch)


def unet_layout(place: Place, faulty: bool) -> Loop:
    return _unet(place, faulty, "batch", 48)


def unet_group_norm(place: Place, faulty: bool) -> Loop:
    return _unet(place, faulty, "group", 24)


def moe_masks(place: Place, faulty: bool) -> Loop:
    width, hidden, batch, length = place.pick((1024, 2048, 16, 512), (16, 32, 2, 8))
    vocabulary, experts = 1024, place.pick(8, 2)
    model = Transformer(vocabulary, width, 2, place.pick(16, 2), length)
    for block in model.blocks:
        block.ff = (MaskedExperts if faulty else BatchedExperts)(width, hidden, experts)
        block.up = block.down = None
    return Loop(Trainer(place, model, next_token_loss, token_batches(place, vocabulary, batch, length)).step, batch)


def unaligned_vocabulary(place: Place, faulty: bool) -> Loop:
    vocabulary, width, batch, length = (50257 if faulty else 50304), *place.pick((768, 8, 512), (16, 1, 8))
    model = Transformer(vocabulary, width, 2, place.pick(12, 2), length)
    return Loop(Trainer(place, model, next_token_loss, token_batches(place, 50257, batch, length)).step, batch)


def conv_fp32(place: Place, faulty: bool) -> Loop:
    width, size, batch = place.pick((128, 224, 32), (8, 16, 2))

    def enter() -> None:
        torch.backends.cudnn.allow_tf32 = not faulty

    trainer = Trainer(place, conv_net(width, 3, 10), class_loss, image_batches(place, batch, size), sixteen_bit=False)
    return Loop(trainer.step, batch, enter)


def vit_attention(place: Place, faulty: bool) -> Loop:
    image, batch, width, layers = place.pick((224, 64, 512, 4), (16, 2, 16, 1))
    model = VisionTransformer(image, place.pick(14, 4), width, layers, place.pick(8, 2), 10, manual=faulty)
    return Loop(Trainer(place, model, class_loss, image_batches(place, batch, image)).step, batch)


def custom_activation(place: Place, faulty: bool) -> Loop:
    width, batch, length = place.pick((1024, 16, 512), (16, 2, 8))
    model = Transformer(1024, width, 3, place.pick(16, 2), length, activation=new_gelu if faulty else fast_gelu)
    return Loop(Trainer(place, model, next_token_loss, token_batches(place, 1024, batch, length)).step, batch)


def recomputation(place: Place, faulty: bool) -> Loop:
    width, batch, length, layers = place.pick((1024, 16, 512, 5), (16, 2, 8, 2))
    model = Transformer(1024, width, layers, place.pick(16, 2), length, recompute=faulty)
    return Loop(Trainer(place, model, next_token_loss, token_batches(place, 1024, batch, length)).step, batch)


def padded_batches(place: Place, faulty: bool) -> Loop:
    """Sequences of 32 to 512 tokens, grouped as they come or by length; each batch is padded to its longest."""
    width, batch, longest, layers = place.pick((768, 64, 512, 3), (16, 2, 16, 1))
    draw = random.Random(0)
    lengths = [min(longest, max(longest // 16, int(draw.lognormvariate(4.6, 0.7) * longest / 512))) for _ in range(16 * batch)]
    if not faulty:
        lengths.sort()
    groups = [lengths[i : i + batch] for i in range(0, len(lengths), batch)]
    draw.shuffle(groups)
    batches = []
    for group in groups:
        ids = torch.randint(1, 1024, (batch, max(group)), device=place.device)
        real = torch.arange(max(group), device=place.device)[None] < torch.tensor(group, device=place.device)[:, None]
        batches.append((ids, real))
    model = Transformer(1024, width, layers, place.pick(12, 2), longest)

    def loss(net: nn.Module, ids: Tensor, real: Tensor) -> Tensor:
        each = F.cross_entropy(net(ids, real[:, None, None, :]).flatten(0, 1), ids.flatten(), reduction="none")
        return (each * real.flatten()).sum() / real.sum()

    return Loop(Trainer(place, model, loss, batches).step, batch)


class Segmenter(nn.Sequential):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__(
            nn.Conv2d(3, width, 3, padding=1),
            Residual(width, width, "batch"),
            Residual(width, width, "batch"),
            nn.Conv2d(width, classes, 1),
        )


def metrics_to_host(place: Place, faulty: bool) -> Loop:
    """The predictions of every step go to the host, or are counted on the GPU."""
    width, size, batch, classes = place.pick((64, 256, 16, 16), (8, 16, 2, 4))
    model = Segmenter(width, classes).to(memory_format=torch.channels_last)
    batches = [
        (
            torch.randn(batch, 3, size, size, device=place.device).to(memory_format=torch.channels_last),
            torch.randint(classes, (batch, size, size), device=place.device),
        )
        for _ in range(4)
    ]
    right = torch.zeros((), device=place.device)
    kept: list[Tensor] = []

    def loss(net: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        logits = net(images)
        if faulty:
            kept[:] = [logits.detach().cpu(), labels.cpu()]
        else:
            right.add_((logits.detach().argmax(1) == labels).float().mean())
        return F.cross_entropy(logits, labels)

    return Loop(Trainer(place, model, loss, batches).step, batch)


PAIRS = (
    Pair(
        "unet_layout", "convolutions in NCHW: every one converts its input and output", "model and images in channels_last",
        ("layout-conversion",), unet_layout,
    ),
    Pair(
        "unet_group_norm", "convolutions in NCHW between group norms", "model and images in channels_last",
        ("layout-conversion",), unet_group_norm, also=(*EAGER, "contiguous-copies"), after=("layout-conversion",),
        note="Group norm works on NCHW: channels_last moves the conversions instead of removing them.",
    ),
    Pair(
        "moe_masks", "each expert picks its tokens with a boolean mask: many small products and a host sync an expert",
        "a fixed number of places an expert and one batched product", ("boolean-mask-sync",), moe_masks,
        also=(*HOST, "host-sync-in-step", "expert-imbalance"),
    ),
    Pair(
        "unaligned_vocabulary", "a vocabulary of 50257: products with an odd dimension", "pad the vocabulary to 50304",
        ("unaligned-gemm",), unaligned_vocabulary,
    ),
    Pair(
        "conv_fp32", "convolutions in float32 without tensor cores (cudnn.allow_tf32 = False)", "cudnn.allow_tf32 = True",
        ("fp32-matmul",), conv_fp32, also=(*EAGER, "tf32-instead-of-16bit", "layout-conversion"),
    ),
    Pair(
        "vit_attention", "a vision transformer's attention with its softmax written out", "scaled_dot_product_attention",
        ("unfused-attention",), vit_attention,
    ),
    Pair(
        "custom_activation", "an activation written out in eight operators", "the fused operator of the same formula",
        ("unfused-elementwise",), custom_activation, after=("unfused-elementwise",),
    ),
    Pair(
        "recomputation", "every block recomputed in the backward pass with memory free", "keep the activations",
        ("recompute-with-free-memory",), recomputation, also=(*EAGER, "memory-headroom"),
    ),
    Pair(
        "padded_batches", "sequences of 32 to 512 tokens grouped as they come and padded to the longest",
        "batches of similar length", (), padded_batches, also=(*HOST, "recompilation"), steady=False, block=16,
        note="No recording says which tokens are padding: nothing may be promised. The gain is in what is computed, not in how.",
    ),
    Pair(
        "metrics_to_host", "predictions copied to the host in every step", "metrics counted on the GPU",
        ("device-to-host-in-step", "pageable-copy"), metrics_to_host, also=(*EAGER, "host-sync-in-step"),
    ),
)  # fmt: skip
