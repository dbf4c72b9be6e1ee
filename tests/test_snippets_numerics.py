"""Snippets that change numerics run too, and stay as near to what they replace as the tolerance beside each says.

torch.compile traces for real; the code it makes runs eagerly, since this machine may have no C++ compiler.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from snippets.harness import covers, part, ran, snippet

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("error::FutureWarning")  # what torch will take away
BFLOAT16 = 0.02  # 8 bits of mantissa, over a few layers
ORDER = 1e-5  # the same terms in another order


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Compiles with the eager backend; gives the modes that were asked for."""
    modes: list[str | None] = []
    real = torch.compile

    def compile(model: Any = None, *, mode: str | None = None, **options: Any) -> Any:
        modes.append(mode)
        assert mode is None or mode in torch._inductor.list_mode_options()
        return real(model, backend="eager", **options)

    monkeypatch.setattr(torch, "compile", compile)
    yield modes
    torch._dynamo.reset()


def net() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def inputs(*size: int) -> Any:
    return torch.randn(*size, generator=torch.Generator().manual_seed(1))


def close(after: Any, before: Any, tolerance: float) -> None:
    torch.testing.assert_close(after.float(), before.float(), rtol=tolerance, atol=tolerance)


@covers(
    "launch-bound/compile", "graph-breaks/fullgraph", "contiguous-copies/compile", "dtype-cast-churn/compile",
    "unfused-elementwise/compile", "recompilation/mark-dynamic", "low-efficiency-gemm/fill-waves",
)  # fmt: skip
@pytest.mark.parametrize(
    "fix",
    ["launch-bound/compile", "graph-breaks/fullgraph", "contiguous-copies/compile", "dtype-cast-churn/compile",
     "unfused-elementwise/compile", "low-efficiency-gemm/fill-waves"],
)  # fmt: skip
def test_a_compiled_model(fix: str, compiled: list[str | None]) -> None:
    model, x = net(), inputs(5, 6)
    after = ran(snippet(fix), torch=torch, model=model)["model"]
    assert len(compiled) == 1
    close(after(x), model(x), ORDER)


def test_a_model_compiled_for_any_length(compiled: list[str | None]) -> None:
    model, tokens = torch.nn.Embedding(9, 4), torch.arange(8).view(2, 4)
    after = ran(snippet("recompilation/mark-dynamic"), torch=torch, model=model, tokens=tokens)["model"]
    for each in (tokens, torch.arange(6).view(2, 3)):
        assert torch.equal(after(each), model(each))


@covers(
    "unfused-elementwise/compile-function", "unfused-normalization/compile-norm", "unfused-rope/compile-rope",
    "unfused-swiglu/compile-swiglu", "unfused-normalization/library-norm",
)  # fmt: skip
def test_small_compiled_functions(compiled: list[str | None]) -> None:
    x, y, weight = inputs(2, 5, 8), 2 * inputs(2, 5, 8) + 1, inputs(8)
    silu = torch.nn.functional.silu
    close(ran(snippet("unfused-elementwise/compile-function"), torch=torch)["gated"](x, y, weight), silu(y) * (x + weight), ORDER)
    close(ran(snippet("unfused-swiglu/compile-swiglu"))["swiglu"](x, y), silu(x) * y, ORDER)
    root = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    close(ran(snippet("unfused-normalization/compile-norm"), torch=torch)["rms_norm"](x, weight), root * weight, ORDER)
    cos, sin = y.cos(), y.sin()
    half = torch.cat((-x[..., 4:], x[..., :4]), -1)
    close(ran(snippet("unfused-rope/compile-rope"))["apply_rotary"](x, y, cos, sin)[0], x * cos + half * sin, ORDER)
    code = snippet("unfused-normalization/library-norm")
    close(ran(part(code, before="LayerNorm"), hidden=8)["norm"](x), root, ORDER)
    centred = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)
    close(ran(code, hidden=8)["norm"](x), centred, ORDER)


@covers(
    "fp32-matmul/bf16-autocast", "tf32-instead-of-16bit/bf16-autocast", "gradient-scaler-sync/bf16",
    "fp32-on-fp16-tensor-cores/fp16-autocast", "memory-bound-kernel/fewer-bytes",
)  # fmt: skip
@pytest.mark.parametrize(
    "fix",
    ["fp32-matmul/bf16-autocast", "tf32-instead-of-16bit/bf16-autocast", "gradient-scaler-sync/bf16",
     "fp32-on-fp16-tensor-cores/fp16-autocast", "memory-bound-kernel/fewer-bytes"],
)  # fmt: skip
def test_losses_in_16_bit(fix: str, compiled: list[str | None]) -> None:
    model, x, target = net(), inputs(5, 6), torch.tensor([0, 1, 2, 0, 1])
    criterion = torch.nn.functional.cross_entropy
    before = criterion(model(x), target)
    whole = torch.nn.Sequential(model, torch.nn.LogSoftmax(-1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = {"torch": torch, "target": target, "optimizer": optimizer, "batch": x, "criterion": criterion, "model": model}
    if fix == "fp32-matmul/bf16-autocast":  # the model gives its loss
        names["model"] = lambda batch: criterion(model(batch), target)
    names["compute_loss"] = lambda model, batch: criterion(model(batch), target)
    code = snippet(fix)
    after = ran(code, **names)
    close(after["loss"].detach(), before.detach(), BFLOAT16)
    assert all(p.dtype == torch.float32 for p in whole.parameters())


@covers(
    "sdpa-math-fallback/fit-the-inputs", "unfused-attention/sdpa", "recompilation/other-attention",
    "sdpa-math-fallback/flex-attention",
)  # fmt: skip
def test_attention_by_other_kernels(compiled: list[str | None]) -> None:
    q, k, v = inputs(3, 2, 4, 128, 16)
    causal = torch.ones(128, 128, dtype=torch.bool).tril()
    scores = q @ k.transpose(-2, -1) / 16**0.5
    before = scores.masked_fill(~causal, float("-inf")).softmax(-1) @ v
    close(ran(snippet("sdpa-math-fallback/fit-the-inputs"), q=q, k=k, v=v)["out"], before, BFLOAT16)
    names = {"q": q, "k": k, "v": v, "mask": None, "p": 0.1, "training": False}
    close(ran(snippet("unfused-attention/sdpa"), **names)["out"], scores.softmax(-1) @ v, ORDER)
    model = partial(torch.nn.functional.scaled_dot_product_attention, q, k)
    close(ran(snippet("recompilation/other-attention"), model=model, batch=v)["output"], scores.softmax(-1) @ v, ORDER)
    code = snippet("sdpa-math-fallback/flex-attention").replace("KV_LEN=length)", 'KV_LEN=length, device="cpu")')
    close(ran(code, q=q, k=k, v=v, length=128)["out"], before, ORDER)


@covers("boolean-mask-sync/where", "boolean-mask-sync/static-nonzero", "python-gap/on-gpu-or-vectorised")
def test_masks_and_loops_as_operators() -> None:
    x, mask = inputs(4, 5), inputs(4, 5) > 0
    code = snippet("boolean-mask-sync/where")
    wanted = x.clone()
    wanted[mask] = 3 * wanted[mask]
    assert torch.equal(ran(part(code, before="# before: loss"), torch=torch, x=x, mask=mask, scale=3.0)["x"], wanted)
    after = ran(part(code, "torch.where", "# before: x[mask] = 0"), loss_per_token=x, mask=mask)["loss"]
    close(after, x[mask].mean(), ORDER)
    assert torch.equal(ran(part(code, "clamp(min=1)"), x=x, mask=mask)["x"], x * ~mask)
    indices = ran(snippet("boolean-mask-sync/static-nonzero"), torch=torch, mask=mask, capacity=20)["indices"]
    assert torch.equal(indices[: int(mask.sum())], mask.flatten().nonzero()) and len(indices) == 20
    after = ran(snippet("python-gap/on-gpu-or-vectorised"), weight=x, scores=x)["total"]
    close(after, sum((w * s for w, s in zip(x.flatten(), x.flatten(), strict=True)), torch.zeros(())), ORDER)


@covers("straggler-rank/balance-tokens", "waiting-in-collective/even-batches", "recompilation/pad-shapes")
def test_batches_of_equal_work() -> None:
    lengths = [900, 100, 120, 80, 500, 400, 60, 40]
    parts = ran(snippet("straggler-rank/balance-tokens"))["balanced"](lengths, 2)
    assert sorted(i for one in parts for i in one) == list(range(8)) and [sum(lengths[i] for i in one) for one in parts] == [
        1120,
        1080,
    ]
    steps = ran(snippet("waiting-in-collective/even-batches"))["spread"](list(range(100, 116)), 2, 4)
    assert [[len(rank) for rank in step] for step in steps] == [[4, 4], [4, 4]]
    assert sorted(i for step in steps for rank in step for i in rank) == list(range(16))
    assert all(abs(sum(a) - sum(b)) <= 4 for a, b in steps)
    samples = [torch.ones(n) for n in (5, 130, 300, 260)]
    loader = ran(snippet("recompilation/pad-shapes"), torch=torch, dataset=samples, batch_size=2)["loader"]
    assert [(batch.shape[1], float(batch.sum())) for batch in loader] == [(256, 135.0), (512, 560.0)]


@covers("expert-imbalance/balance-loss", "expert-imbalance/router-bias")
def test_routers_that_balance(tmp_path: Path) -> None:
    """The loss is its coefficient where all experts have the same load, and more where they have not; the bias moves to even."""
    import torch.distributed as dist

    loss = ran(snippet("expert-imbalance/balance-loss"))["balance_loss"]
    even, chosen = torch.full((8, 4), 0.25), torch.arange(8).view(8, 1) % 4
    assert float(loss(even, chosen)) == pytest.approx(0.01)
    skewed = torch.tensor([[0.7, 0.1, 0.1, 0.1]]).repeat(8, 1)
    assert float(loss(skewed, torch.zeros(8, 1, dtype=torch.int64))) == pytest.approx(0.01 * 4 * 0.7)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        bias = ran(snippet("expert-imbalance/router-bias"), bias=torch.zeros(4), chosen=torch.tensor([[0], [0], [1], [2]]))[
            "bias"
        ]
    finally:
        dist.destroy_process_group()
    assert bias.tolist() == pytest.approx([-0.001, 0, 0, 0.001])


@covers("layout-conversion/channels-last", "layout-conversion/channels-last-3d")
def test_layouts_of_convolutions() -> None:
    torch.manual_seed(0)
    model, images = torch.nn.Conv2d(3, 4, 3), inputs(2, 3, 8, 8)
    before = model(images)
    code = snippet("layout-conversion/channels-last")
    after = ran(code, model=model, loader=[(images, None)])
    assert after["images"].is_contiguous(memory_format=torch.channels_last)
    close(after["model"](after["images"]), before, ORDER)
    model, volume = torch.nn.Conv3d(3, 4, 3), inputs(2, 3, 6, 6, 6)
    before = model(volume)
    after = ran(snippet("layout-conversion/channels-last-3d"), torch=torch, model=model, volume=volume)
    close(after["model"](after["volume"]), before, ORDER)


@covers("unaligned-gemm/pad-sizes", "low-efficiency-gemm/larger-products", "unfused-cross-entropy/keep-16-bit")
def test_padded_and_merged_products() -> None:
    torch.manual_seed(0)
    after = ran(snippet("unaligned-gemm/pad-sizes", size=100, multiple=64), hidden=8)
    assert after["padded"] % 64 == 0 and after["padded"] >= 100
    head, x = after["head"], inputs(5, 8)
    close(head(x)[..., :100], x @ head.weight[:100].T, ORDER)
    after = ran(snippet("low-efficiency-gemm/larger-products"), hidden=8, inner=16)
    whole = after["qkv"](x).chunk(3, -1)
    for each, weight, bias in zip(whole, after["qkv"].weight.chunk(3), after["qkv"].bias.chunk(3), strict=True):
        close(each, torch.nn.functional.linear(x, weight, bias), ORDER)
    logits, labels = inputs(2, 5, 12).bfloat16(), torch.arange(10).view(2, 5) % 12
    code = snippet("unfused-cross-entropy/keep-16-bit", columns=12, vocabulary=12).replace("32768", "12")
    close(
        ran(code, logits=logits, labels=labels)["loss"],
        torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten()),
        BFLOAT16,
    )


@covers(
    "recompute-with-free-memory/switch-off",
    "recompute-with-free-memory/every-second-layer",
    "recompute-with-free-memory/selective",
)
def test_recomputation_changes_no_gradient() -> None:
    x = inputs(5, 6).requires_grad_()
    block = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh())
    blocks = torch.nn.ModuleList([block, block, block])
    torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False).sum().backward()
    before = x.grad.clone()
    for fix in ("recompute-with-free-memory/switch-off", "recompute-with-free-memory/selective"):
        x.grad = None
        ran(snippet(fix), torch=torch, block=block, x=x)["x"].sum().backward()
        close(x.grad, before, ORDER)
    holder = torch.nn.Module()
    holder.blocks = blocks
    after = ran(snippet("recompute-with-free-memory/every-second-layer"), self=holder, x=x)["x"]
    assert torch.equal(after, block(block(block(x))))


@covers(
    "fp32-matmul/allow-tf32",
    "cudnn-benchmark-off/benchmark",
    "recompilation/no-benchmark",
    "debug-setting-left-on/deterministic-off",
    "fp64-kernel/find-doubles",
    "memory-growth/collect-on-host",
    "garbage-collection-pause/collect-seldom",
)
def test_switches_and_small_programs(capsys: pytest.CaptureFixture[str]) -> None:
    import gc

    cudnn, precision = torch.backends.cudnn, torch.get_float32_matmul_precision()
    try:
        ran(snippet("cudnn-benchmark-off/benchmark"))
        assert cudnn.benchmark
        ran(snippet("recompilation/no-benchmark"), torch=torch)
        ran(snippet("debug-setting-left-on/deterministic-off"), torch=torch)
        assert not cudnn.benchmark and not cudnn.deterministic and not torch.are_deterministic_algorithms_enabled()
        ran(snippet("fp32-matmul/allow-tf32"))
        assert torch.get_float32_matmul_precision() == "high" and cudnn.allow_tf32
    finally:
        torch.set_float32_matmul_precision(precision)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).double())
    after = ran(snippet("fp64-kernel/find-doubles"), model=model, array=inputs(3).double().numpy())
    assert after["x"].dtype == torch.float32 and capsys.readouterr().out.split() == ["1.weight", "1.bias"]
    outputs = inputs(3).requires_grad_()
    assert torch.equal(ran(snippet("memory-growth/collect-on-host"), outputs=outputs)["recent"][-1], outputs.detach())
    seen: list[int] = []
    try:
        ran(snippet("garbage-collection-pause/collect-seldom"), loader=range(1000), train_step=seen.append)
        assert len(seen) == 1000 and not gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()
