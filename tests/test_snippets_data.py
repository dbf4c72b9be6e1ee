"""Snippets for loading and for tensors give the batches and tensors that were there before, bit by bit or as a tolerance says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from snippets.harness import covers, no_gpu, part, ran, snippet

torch = pytest.importorskip("torch")
__all__ = ["no_gpu"]  # a fixture

# Pinning needs a GPU; torch says so and leaves it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork"),
]


class Samples:
    """Twelve samples with labels, of a different value each."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return torch.arange(3) * (index + 1.0), index % 4


def epoch(loader: Any, seed: int = 0) -> list[Any]:
    torch.manual_seed(seed)
    return list(loader)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))


@covers(
    "dataloader-bound/more-workers", "dataloader-workers-starved/more-workers", "epoch-start-stall/persistent-workers",
    "single-process-dataloader/workers",
)  # fmt: skip
@pytest.mark.parametrize(
    ("fix", "shuffle"),
    [
        ("dataloader-bound/more-workers", True),
        ("dataloader-workers-starved/more-workers", False),
        ("epoch-start-stall/persistent-workers", True),
        ("single-process-dataloader/workers", True),
    ],
)
def test_workers_hand_out_the_same_batches(fix: str, shuffle: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a loader in the training process has them; later epochs of persistent workers hold the same samples in another order."""
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 2})
    before = torch.utils.data.DataLoader(Samples(), batch_size=5, shuffle=shuffle)
    after = ran(snippet(fix), torch=torch, dataset=Samples(), batch_size=5)["loader"]
    assert after.num_workers == 2 and after.persistent_workers
    assert equal(epoch(after), epoch(before))
    later = [torch.cat([x for x, _ in epoch(loader, 1)])[:, 1].tolist() for loader in (after, before)]
    assert sorted(later[0]) == sorted(later[1]) and (shuffle or later[0] == later[1])


@covers("python-gap/in-workers", "pageable-copy/pin-memory", "straggler-rank/balance-loading")
def test_loaders_with_work_in_the_workers() -> None:
    def collate_and_prepare(samples: list[Any]) -> Any:
        return torch.stack([x for x, _ in samples]) / 2

    before = [x / 2 for x, _ in torch.utils.data.DataLoader(Samples(), batch_size=5)]
    names = {"torch": torch, "dataset": Samples(), "batch_size": 5}
    assert equal(list(ran(snippet("python-gap/in-workers"), **names, collate_and_prepare=collate_and_prepare)["loader"]), before)

    plain = torch.utils.data.DataLoader(Samples(), batch_size=5)
    after = ran(snippet("pageable-copy/pin-memory"), **names, device="cpu")
    assert equal(list(after["loader"]), list(plain)) and equal(after["inputs"], list(plain)[-1][0])

    sampler = torch.utils.data.SequentialSampler(Samples())
    code = snippet("straggler-rank/balance-loading")
    after = ran(code, DataLoader=torch.utils.data.DataLoader, dataset=Samples(), batch=5, sampler=sampler)
    assert equal(list(after["loader"]), list(plain))


@covers("dataloader-bound/mark-the-loader")
def test_a_marked_loader_trains_on_the_same_batches() -> None:
    loader, seen = torch.utils.data.DataLoader(Samples(), batch_size=5), []  # type: Any, list[Any]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        ran(snippet("dataloader-bound/mark-the-loader"), torch=torch, loader=loader, steps=3, train_step=seen.append)
    assert equal(seen, list(loader))
    assert {one.key: one.count for one in recorded.key_averages()}["dataloader"] == 3


@covers("epoch-start-stall/endless-sampler")
def test_epochs_without_an_end() -> None:
    """Three epochs from one iterator: each sample once in each; batches may hold the end of one and the begin of the next."""
    batches = ran(snippet("epoch-start-stall/endless-sampler"), torch=torch, dataset=Samples())["batches"]
    first = [int(next(batches)[0][0, 1]) for _ in range(36)]
    del batches
    assert [sorted(first[i : i + 12]) for i in (0, 12, 24)] == [list(range(1, 13))] * 3 and first[:12] != first[12:24]


@covers("dataloader-workers-starved/cheaper-samples")
def test_prepared_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def prepare(sample: Any) -> Any:
        return sample[0].numpy().astype("int32") + sample[1]

    dataset = [Samples()[i] for i in range(12)]
    for index in (0, 7):
        after = ran(
            snippet("dataloader-workers-starved/cheaper-samples"), torch=torch, dataset=dataset, length=3, prepare=prepare
        )
        use = part(snippet("dataloader-workers-starved/cheaper-samples"), after="# In training")
        after = ran(use, torch=torch, np=after["np"], index=index)
        assert torch.equal(after["tokens"], torch.from_numpy(prepare(dataset[index])).long())


@covers("tensor-made-on-host/device-argument", "tensor-made-on-host/make-once", "tensor-made-on-host/fill-in-place")
def test_tensors_made_where_they_are_used() -> None:
    hidden = torch.randn(2, 5)
    after = ran(snippet("tensor-made-on-host/device-argument"), torch=torch, length=5, hidden=hidden)
    assert torch.equal(after["positions"], torch.arange(5).to(hidden.device))
    assert torch.equal(after["mask"], torch.ones(5, 5, dtype=torch.bool).tril().to(hidden.device))
    model = ran(snippet("tensor-made-on-host/make-once"), torch=torch)["Model"](5, [0.5, 2.0])
    assert torch.equal(model.positions, torch.arange(5)) and torch.equal(model.class_weights, torch.tensor([0.5, 2.0]))
    assert model.state_dict() == {} and model.to(torch.float64).class_weights.dtype == torch.float64
    after = ran(snippet("tensor-made-on-host/fill-in-place"), torch=torch, device="cpu", schedule=lambda step: 0.1 * step, step=7)
    assert torch.equal(after["temperature"], torch.tensor(0.1 * 7))


@covers("contiguous-copies/use-strides")
def test_strides_in_place_of_copies() -> None:
    """The product adds the same terms; 1e-5 for their order."""
    torch.manual_seed(0)
    q, k = torch.randn(2, 6, 3, 4), torch.randn(2, 6, 3, 4)
    x, sizes = torch.randn(2, 6, 12), {"batch": 2, "length": 6, "heads": 3, "size": 4}
    code = snippet("contiguous-copies/use-strides")
    scores, flattened, viewed = part(code, before="y ="), part(code, "scores =", "x ="), part(code, "y =")
    before = q.transpose(1, 2).contiguous() @ k.transpose(1, 2).contiguous().transpose(-2, -1)
    torch.testing.assert_close(ran(scores, q=q, k=k)["scores"], before, rtol=1e-5, atol=1e-5)
    assert torch.equal(ran(flattened, x=q)["y"], q.transpose(1, 2).contiguous().reshape(2, 3, 24))
    assert torch.equal(ran(viewed, x=x, **sizes)["x"], x.contiguous().reshape(2, 6, 3, 4))


@covers("underfilled-gpu/merge-small-operations")
def test_one_operation_in_place_of_many() -> None:
    torch.manual_seed(0)
    lefts, rights = [torch.randn(3, 4) for _ in range(5)], [torch.randn(4, 2) for _ in range(5)]
    tensors = [torch.randn(3) for _ in range(4)]
    wanted = [tensor * 0.5 for tensor in tensors]
    names = {"lefts": lefts, "rights": rights, "tensors": tensors, "factor": 0.5}
    after = ran(snippet("underfilled-gpu/merge-small-operations"), **names)
    products = torch.stack([torch.mm(a, b) for a, b in zip(lefts, rights, strict=True)])
    torch.testing.assert_close(after["out"], products, rtol=1e-6, atol=1e-6)
    assert equal(tensors, wanted)


@covers("sdpa-math-fallback/find-the-reason")
def test_attention_without_the_math_backend() -> None:
    """On the CPU the flash kernel takes it; 1e-5 for the order of sums."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 8, 16) for _ in range(3))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        before = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    after = ran(snippet("sdpa-math-fallback/find-the-reason"), q=q, k=k, v=v)["out"]
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5)


@covers("cuda-malloc-in-step/largest-first")
def test_padded_lengths_are_few() -> None:
    padded = ran(snippet("cuda-malloc-in-step/largest-first"))["padded_length"]
    assert [padded(n) for n in (1, 127, 128, 129, 1000)] == [128, 128, 128, 256, 1024]
    torch.manual_seed(0)
    embed, tokens = torch.nn.Embedding(9, 4, padding_idx=0), torch.randint(1, 9, (130,))
    longer = torch.nn.functional.pad(tokens, (0, padded(130) - 130))
    assert torch.equal(embed(longer).sum(0), embed(torch.nn.functional.pad(tokens, (0, 126))).sum(0))
    assert torch.equal(embed(longer)[:130], embed(tokens)) and len({padded(n) for n in range(1, 513)}) == 4


@covers("pageable-copy/prefetch", "unoverlapped-copy/prefetch")
@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("fix", ["pageable-copy/prefetch", "unoverlapped-copy/prefetch"])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_prefetched_batches_come_in_order(fix: str, count: int) -> None:
    batches = [(torch.full((2,), float(i)), torch.tensor([i])) for i in range(count)]
    after = ran(snippet(fix), torch=torch)
    assert equal([tuple(batch) for batch in after["prefetched"](batches)], batches)
    assert len(torch.cuda.current_stream().waited) == count  # each batch is waited for before it is handed out
