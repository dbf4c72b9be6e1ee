"""The training loop behind the generated recordings: a transformer on one GPU, simulated in integer ns."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

PROCESS, MAIN, BACKWARD, STREAM = 4242, 4242, 4290, 7

_LINEAR = ("aten::t", "aten::transpose", "aten::as_strided", "aten::addmm")
FORWARD = [  # operator, its inner operators, the kernel it launches
    ("aten::layer_norm", ("aten::native_layer_norm", "aten::empty"), "layer_norm"),
    ("aten::linear", _LINEAR, "gemm_qkv"),
    ("aten::scaled_dot_product_attention", ("aten::_flash_attention_forward", "aten::empty_like"), "flash_fwd"),
    ("aten::linear", _LINEAR, "gemm_out"),
    ("aten::add", (), "add"),
    ("aten::linear", _LINEAR, "gemm_up"),
    ("aten::gelu", (), "gelu"),
    ("aten::linear", _LINEAR, "gemm_down"),
    ("aten::dropout", ("aten::native_dropout", "aten::empty_like"), "dropout"),
]
_AT = "void at::native::"
_ANONYMOUS = f"{_AT}(anonymous namespace)::"
_FLASH = "void pytorch_flash::"
_POINTWISE = f"{_AT}vectorized_elementwise_kernel<4, at::native::"
KERNELS = {  # name, typical duration in microseconds, block size, registers
    "layer_norm": (f"{_ANONYMOUS}vectorized_layer_norm_kernel<float, float, false>(int, float, float const*)", 9, 128, 40),
    "gemm_qkv": ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_bias_TNT", 61, 384, 168),
    "flash_fwd": (f"{_FLASH}flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(Flash_fwd_params)", 84, 128, 255),
    "gemm_out": ("nvjet_tst_128x128_64x6_1x2_h_bz_TNT", 24, 384, 168),
    "add": (f"{_POINTWISE}CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>>(int)", 7, 128, 32),
    "gemm_up": ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNT", 88, 384, 168),
    "gelu": (f"{_POINTWISE}GeluCUDAKernelImpl(at::TensorIteratorBase&)::lambda(c10::BFloat16)>(int)", 11, 128, 32),
    "gemm_down": ("nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNT", 86, 384, 168),
    "dropout": (f"{_ANONYMOUS}fused_dropout_kernel_vec<c10::BFloat16, float, unsigned int, 1, 8>(int)", 10, 256, 38),
    "layer_norm_bwd": (f"{_ANONYMOUS}layer_norm_grad_input_kernel_vectorized<float, float>(float const*)", 21, 256, 48),
    "flash_bwd_dot": (f"{_FLASH}flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64>>(Flash_bwd_params)", 12, 256, 56),
    "flash_bwd": (f"{_FLASH}flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<traits<64>>(Flash_bwd_params)", 190, 256, 255),
    "adam": (f"{_ANONYMOUS}multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>>", 170, 512, 60),
}


class Row(NamedTuple):
    """One event, times in ns. What a kind lacks is 0 or None."""

    kind: str  # op, call, kernel, memcpy, memset, range, frame; forward and backward: the ends of a link
    name: str
    thread: int
    start: int
    duration: int
    op: int = 0
    correlation: int = 0
    detail: Any = None


class Loop:
    """`steps()` yields the rows of one training step after another, without end."""

    def __init__(self, layers: int = 12, seed: int = 0, stacks: bool = False) -> None:
        self.layers, self.stacks = layers, stacks
        self.random = random.Random(seed)
        self.now = 1_000_000  # the host; both threads take turns
        self.gpu_free = 0
        self.ops = self.correlations = self.sequence = self.frames = 0
        self.rows: list[Row] = []

    def steps(self) -> Iterator[list[Row]]:
        number = 0
        while True:
            self.rows = []
            self._step(number)
            yield self.rows
            number += 1

    def _step(self, number: int) -> None:
        begin = self.now
        self._range("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", begin, begin + 30_000)
        self.now += 31_000
        self._copy("HtoD", 8 << 20)
        saved = []
        for layer in range(self.layers):
            entered = self.now
            for name, inner, kernel in FORWARD:
                self.sequence += 1
                saved.append((self.sequence, kernel))
                self._op(MAIN, name, inner, (kernel,), self.sequence)
            self._frames(f"model.py({40 + layer}): forward", entered)
        self._wait()
        self.now += 20_000
        for sequence, kernel in reversed(saved):
            name = f"autograd::engine::evaluate_function: Backward{sequence % len(FORWARD)}"
            self._op(BACKWARD, name, ("aten::mm",), _backward(kernel), sequence)
        entered = self.now
        for _ in range(4):
            self._op(MAIN, "aten::_fused_adamw_", ("aten::empty",), ("adam",), 0)
        self._range("Optimizer.step#AdamW.step", entered, self.now)
        self._copy("DtoH", 4)
        self._wait()
        self.now += 15_000
        self._range(f"ProfilerStep#{number}", begin, self.now)
        self._frames("train.py(88): train_step", begin)

    def _between(self, low: int, high: int) -> int:
        return low + int(self.random.random() * (high - low))

    def _range(self, name: str, start: int, end: int) -> None:
        self.rows.append(Row("range", name, MAIN, start, end - start))

    def _frames(self, name: str, entered: int) -> None:
        if not self.stacks:
            return
        for depth, label in enumerate((name, "torch/nn/modules/module.py(1775): _call_impl", "<built-in function linear>")):
            self.frames += 1
            parent = self.frames - 1 if depth else 0
            duration = self.now - entered - 2 * depth
            self.rows.append(Row("frame", label, MAIN, entered + depth, duration, self.frames, parent))

    def _op(self, thread: int, name: str, inner: tuple[str, ...], kernels: tuple[str, ...], sequence: int) -> None:
        self.ops += 1
        outer, begin = self.ops, self.now
        self.now += self._between(2_000, 4_000)
        for child in inner:
            self.ops += 1
            self.rows.append(Row("op", child, thread, self.now, self._between(900, 1_900), self.ops))
            self.now += 2_000
        for kernel in kernels:
            self.correlations += 1
            text, microseconds, block, registers = KERNELS[kernel]
            api = "cuLaunchKernelEx" if text.startswith("nvjet") else "cudaLaunchKernel"
            call = self._between(3_000, 6_000)
            self.rows.append(Row("call", api, thread, self.now, call, self.ops, self.correlations))
            self.now += call
            duration = microseconds * self._between(950, 1_050)
            self._gpu("kernel", text, duration, (self._between(64, 4096), block, registers))
        self.now += self._between(500, 1_500)
        detail = (sequence, thread == BACKWARD)
        self.rows.append(Row("op", name, thread, begin, self.now - begin, outer, 0, detail))
        if sequence:
            end = "backward" if thread == BACKWARD else "forward"
            self.rows.append(Row(end, "fwdbwd", thread, begin, 0, 0, sequence))
        self.now += 500

    def _gpu(self, kind: str, name: str, duration: int, detail: Any) -> None:
        start = max(self.gpu_free, self.now + 3_500)
        self.gpu_free = start + duration
        self.rows.append(Row(kind, name, STREAM, start, duration, self.ops, self.correlations, detail))

    def _copy(self, direction: str, size: int) -> None:
        self.ops += 1
        self.correlations += 1
        self.rows.append(Row("op", "aten::copy_", MAIN, self.now, 9_000, self.ops))
        self.rows.append(Row("call", "cudaMemcpyAsync", MAIN, self.now + 1_000, 7_000, self.ops, self.correlations))
        self.now += 9_500
        self._gpu("memcpy", direction, 1_500 + size // 50, size)
        self.correlations += 1
        self.rows.append(Row("call", "cudaMemsetAsync", MAIN, self.now, 4_000, 0, self.correlations))
        self.now += 5_000
        self._gpu("memset", "Memset (Device)", 900, 4096)

    def _wait(self) -> None:
        self.correlations += 1
        until = max(self.now + 5_000, self.gpu_free + 6_000)
        self.rows.append(Row("call", "cudaStreamSynchronize", MAIN, self.now, until - self.now, 0, self.correlations))
        self.now = until


def _backward(kernel: str) -> tuple[str, ...]:
    if kernel.startswith("gemm"):
        return (kernel, kernel)  # gradient of the input, gradient of the weight
    return {"layer_norm": ("layer_norm_bwd",), "flash_fwd": ("flash_bwd_dot", "flash_bwd")}.get(kernel, (kernel,))
