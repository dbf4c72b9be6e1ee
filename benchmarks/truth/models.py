"""The small models of the measured loops. Nothing here is tuned for speed or made slow: the faults are in `pairs_*.py`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def new_gelu(x: Tensor) -> Tensor:
    """GELU by its tanh formula, written out operator by operator."""
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))


def fast_gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


class Attention(nn.Module):
    """Self-attention; `manual` writes the softmax out. `mask`: True where a token may be looked at, (batch, 1, 1, tokens)."""

    def __init__(self, width: int, heads: int, causal: bool = True, manual: bool = False) -> None:
        super().__init__()
        self.heads, self.causal, self.manual = heads, causal, manual
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if self.manual:
            scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5)
            y = F.softmax(scores, dim=-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal and mask is None)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, ff: nn.Module | None = None, activation=fast_gelu, **attention) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, **attention)
        self.up, self.down, self.activation = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), activation
        self.ff = ff

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.norm1(x), mask)
        h = self.norm2(x)
        return x + (self.ff(h) if self.ff is not None else self.down(self.activation(self.up(h))))


class Transformer(nn.Module):
    """Tokens in, logits out. `recompute` drops the activations of each block and computes them again in the backward pass."""

    def __init__(
        self, vocabulary: int, width: int, layers: int, heads: int, length: int, recompute: bool = False, **block
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, **block) for _ in range(layers))
        self.norm, self.head, self.recompute = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False), recompute

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, mask, use_reentrant=False) if self.recompute else block(x, mask)
        return self.head(self.norm(x))


class VisionTransformer(nn.Module):
    def __init__(self, image: int, patch: int, width: int, layers: int, heads: int, classes: int, manual: bool) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.positions = nn.Parameter(torch.randn(1, (image // patch) ** 2, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads, causal=False, manual=manual) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class MaskedExperts(nn.Module):
    """A mixture of experts that picks each expert's tokens with a boolean mask."""

    def __init__(self, width: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * hidden**-0.5)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(expert, weight) of each token; the expert is drawn by position so that the load is the same in every run."""
        gate = self.router(x).float().softmax(-1)
        chosen = (torch.arange(len(x), device=x.device) * 7919) % gate.shape[1]
        return chosen, gate.gather(1, chosen[:, None]).to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        chosen, weight = self.route(flat)
        y = torch.zeros_like(flat)
        for expert in range(len(self.up)):
            mask = chosen == expert
            mine = fast_gelu(flat[mask] @ self.up[expert].to(x.dtype)) @ self.down[expert].to(x.dtype)
            y[mask] = mine.to(y.dtype)
        return (y * weight).view_as(x)


class BatchedExperts(MaskedExperts):
    """The same with a fixed number of places an expert and one batched product for all of them: no shape depends on data."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        chosen, weight = self.route(flat)
        experts = len(self.up)
        places = -(-len(flat) * 5 // (4 * experts))
        rank = F.one_hot(chosen, experts).cumsum(0).gather(1, chosen[:, None]).squeeze(1) - 1
        slot = torch.where(rank < places, chosen * places + rank, experts * places)
        packed = flat.new_zeros(experts * places + 1, flat.shape[-1]).index_copy(0, slot, flat)
        packed = packed[:-1].view(experts, places, -1)
        done = torch.bmm(fast_gelu(torch.bmm(packed, self.up.to(x.dtype))), self.down.to(x.dtype))
        done = torch.cat([done.reshape(experts * places, -1), done.new_zeros(1, flat.shape[-1])])
        return (done[slot] * weight).view_as(x)


def _norm(kind: str, channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels) if kind == "batch" else nn.GroupNorm(min(32, channels // 4), channels)


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, norm: str, embedding: int = 0) -> None:
        super().__init__()
        self.norm1, self.conv1 = _norm(norm, inside), nn.Conv2d(inside, outside, 3, padding=1)
        self.norm2, self.conv2 = _norm(norm, outside), nn.Conv2d(outside, outside, 3, padding=1)
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()
        self.embed = nn.Linear(embedding, outside) if embedding else None

    def forward(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        if self.embed is not None:
            h = h + self.embed(time)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    """Predicts the noise in an image, as a diffusion model does: two levels, skip connections, an embedding of the time."""

    def __init__(self, width: int, norm: str) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(64, 256), nn.SiLU(), nn.Linear(256, 256))
        self.enter, self.leave = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.down = nn.ModuleList([Residual(width, width, norm, 256), Residual(width, 2 * width, norm, 256)])
        self.shrink = nn.Conv2d(2 * width, 2 * width, 3, stride=2, padding=1)
        self.middle = Residual(2 * width, 2 * width, norm, 256)
        self.up = nn.ModuleList([Residual(4 * width, width, norm, 256), Residual(2 * width, width, norm, 256)])

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        angles = t[:, None] * torch.exp(-torch.arange(32, device=t.device) * 0.288)
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        first = self.down[0](self.enter(x), time)
        second = self.down[1](first, time)
        x = self.middle(self.shrink(second), time)
        x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        x = self.up[0](torch.cat([x, second], 1), time)
        return self.leave(self.up[1](torch.cat([x, first], 1), time))


def conv_net(width: int, blocks: int, classes: int, norm: str = "batch") -> nn.Module:
    """A classifier of images."""
    body = [Residual(width, width, norm) for _ in range(blocks)]
    return nn.Sequential(
        nn.Conv2d(3, width, 4, stride=4), *body, nn.Conv2d(width, 2 * width, 2, stride=2), Residual(2 * width, 2 * width, norm),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, classes),
    )  # fmt: skip


def generator(latent: int, width: int) -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(latent, 4 * width, 4), nn.BatchNorm2d(4 * width), nn.ReLU(),
        nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
        Residual(width, width, "batch"), nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip


def discriminator(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2), Residual(width, width, "batch"),
        nn.Conv2d(width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2),
        nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.BatchNorm2d(4 * width), nn.LeakyReLU(0.2),
        nn.Conv2d(4 * width, 1, 4), nn.Flatten(),
    )  # fmt: skip


class CellLoop(nn.Module):
    """A recurrent layer as a Python loop over time, or (`fused`) as the library's layer."""

    def __init__(self, inside: int, hidden: int, fused: bool) -> None:
        super().__init__()
        self.layer = nn.LSTM(inside, hidden, batch_first=True) if fused else None
        self.cell = None if fused else nn.LSTMCell(inside, hidden)
        self.head = nn.Linear(hidden, 16)

    def forward(self, x: Tensor) -> Tensor:
        if self.layer is not None:
            return self.head(self.layer(x)[0])
        h = c = x.new_zeros(x.shape[0], self.cell.hidden_size)
        outputs = []
        for moment in range(x.shape[1]):
            h, c = self.cell(x[:, moment], (h, c))
            outputs.append(h)
        return self.head(torch.stack(outputs, 1))


class LowRank(nn.Module):
    """A frozen linear layer with a trained product of two narrow ones beside it."""

    def __init__(self, base: nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2.0 * self.up(self.down(x))
