"""What kind of work a kernel does, and which arithmetic path a matrix kernel takes, read from its name.

A name that no pattern knows stays `UNKNOWN`: absence of a known name means unknown, never "compute" and never "no tensor
cores". Patterns were checked against names that CUDA libraries 10 to 13, PyTorch 1.8 to 2.11 and ROCm 6 print.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from advisor.model import Run


class KernelClass(IntEnum):
    UNKNOWN = 0
    GEMM = 1
    CONVOLUTION = 2
    ATTENTION = 3
    NORMALIZATION = 4
    SOFTMAX = 5
    ELEMENTWISE = 6
    REDUCTION = 7
    OPTIMIZER = 8
    COPY = 9
    INDEXING = 10
    LAYOUT = 11
    FUSED = 12
    COMMUNICATION = 13
    LIBRARY = 14

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS = {
    KernelClass.UNKNOWN: "unknown",
    KernelClass.GEMM: "matrix multiply",
    KernelClass.CONVOLUTION: "convolution",
    KernelClass.ATTENTION: "attention",
    KernelClass.NORMALIZATION: "normalisation",
    KernelClass.SOFTMAX: "softmax",
    KernelClass.ELEMENTWISE: "elementwise",
    KernelClass.REDUCTION: "reduction",
    KernelClass.OPTIMIZER: "optimizer",
    KernelClass.COPY: "copy or cast",
    KernelClass.INDEXING: "indexing and sorting",
    KernelClass.LAYOUT: "layout conversion",
    KernelClass.FUSED: "fused (compiled)",
    KernelClass.COMMUNICATION: "communication",
    KernelClass.LIBRARY: "library helper",
}


class Precision(IntEnum):
    """Arithmetic path of a matrix kernel. FP32 and FP64 here mean: without tensor cores."""

    UNKNOWN = 0
    FP64 = 1
    FP32 = 2
    TF32 = 3
    FP16 = 4
    BF16 = 5
    FP8 = 6
    INT8 = 7


# The first pattern that matches decides; the order goes from the specific to the general.
_CLASS_PATTERNS: tuple[tuple[KernelClass, tuple[str, ...]], ...] = (
    (
        KernelClass.COMMUNICATION,
        (
            r"nccl(dev)?kernel|^rccl|\bnccl\w*_(all|reduce|broadcast|send)|nvshmem|deep_?ep::|cross_device_reduce|multimem_",
            r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)_?kernel",
        ),
    ),
    (KernelClass.GEMM, (r"^triton_tem_fused\w*mm",)),
    (KernelClass.ATTENTION, (r"^triton_tem_fused\w*attention",)),
    (KernelClass.FUSED, (r"^triton_",)),
    (KernelClass.LIBRARY, (r"\bdali::|nvjpeg|cvcuda|\bnpp[a-z]*::",)),  # the input pipeline's own kernels
    (KernelClass.COPY, (r"reshape_and_cache|init_device_workspace",)),
    (
        KernelClass.ATTENTION,
        (r"flash|fmha|sdpa|attn_fwd|attn_bwd|attention|compute_dot_do_o|convert_dq_to_16|mha_(fwd|bwd)",),
    ),
    (
        KernelClass.OPTIMIZER,
        (
            r"fusedoptimizer|fused_?(adam|lamb|sgd)|adam\w*functor|lambstage|sgdfunctor|adam_?mode",
            r"multi_tensor_apply.*(adam|sgd|lamb|lerp|addcmul|addcdiv|l2norm)",
        ),
    ),
    (KernelClass.LAYOUT, (r"nchwtonhwc|nhwctonchw|nchw2nhwc|nhwc2nchw|nhwcaddpadding|tensortransform|transpose_readwrite",)),
    (KernelClass.ELEMENTWISE, (r"rotary_?embedding|elementwise_kernel_with_index|triu_tril",)),
    (KernelClass.INDEXING, (r"embedding|permute_(2d|indices|pooled)|bounds_check_indices",)),
    (
        KernelClass.LIBRARY,
        (r"splitk\w*reduce|reducesplitk|compute\w*offsets|scalepackedtensor|epilogue::impl|cublaslt::(?!.*gemm)",),
    ),
    (
        KernelClass.CONVOLUTION,
        (
            r"fprop|dgrad|wgrad|implicit_?gemm|implicit\w*conv|convolve|winograd|scudnn|h884cudnn|conv2d|conv3d|depthwise",
            r"conv::kernel|naive_conv|igemm|miopen.*conv|cudnn::cnn|gridwise_conv|grouped_conv|fft2d_r2c.*cudnn",
        ),
    ),
    (
        KernelClass.GEMM,
        (r"(?<!fb)gemm|nvjet|^cijk_|cutlass.*(simt|tensorop)|xmma_|gemv|dot_kernel|matmul|\bmm_kernel|trsm|syrk|_mma_|wgmma",),
    ),
    (
        KernelClass.NORMALIZATION,
        (r"(layer|rms|batch|group|instance)_?norm|cudnn::bn_|bn_fw|bn_bw|gammabeta|rowwisemoments|welford",),
    ),
    (KernelClass.SOFTMAX, (r"softmax",)),
    (
        KernelClass.INDEXING,
        (
            r"index|gather|scatter|sort|cub::|thrust|topk|nonzero|unique|scan_?kernel|scan_by|histogram|searchsorted",
            r"masked_select|take_put|segment|bucketize|bitmatrix",
        ),
    ),
    (
        KernelClass.COPY,
        (r"copy_?(kernel|device|out|batched|async)|batchedcopy|_copy\b|fillfunctor|fill_kernel|memset|chunk_cat",),
    ),
    (KernelClass.REDUCTION, (r"reduce|::sum|reduction|norm_kernel|lpnorm|l2norm|argmax|nll|cross_entropy|kl_div|cleanup",)),
    (
        KernelClass.ELEMENTWISE,
        (
            r"elementwise|foreach|multi_tensor_apply|pointwise|dropout|activation|gelu|relu|silu|swiglu|rope|threshold",
            r"max_?pool|avg_?pool|upsample|distribution_|bernoulli|philox|random|clamp",
        ),
    ),
)

# Letters after nvjet's architecture name the types of A, B and C: h fp16, t bf16, s fp32 (run as TF32), o/e/q fp8.
# AMD's Cijk names carry them after the layouts: S fp32, H fp16, B bf16.
_PRECISION_PATTERNS: tuple[tuple[Precision, str], ...] = (
    (Precision.TF32, r"tf32|tensorop_s1688(gemm|fprop|dgrad|wgrad)_(?!.*(bf16|f16))|nvjet_\w*?_sss|s1688gemm_\d"),
    (Precision.FP8, r"e4m3|e5m2|fp8|float8|nvjet_\w*?_[oeq]{2}|mxfp8"),
    (Precision.INT8, r"i8816|i16832|imma|int8gemm|s8s8|i8i8"),
    (Precision.BF16, r"bf16|bfloat16|nvjet_\w*?_t[st]t|^cijk_\w{4}_\w{4}_b"),
    (Precision.FP32, r"fmha_cutlass\w_f32|simt_sgemm|^cijk_\w{4}_\w{4}_s"),
    (
        Precision.FP16,
        r"fp16|f16|h884|h16816|h1688|hmma|884gemm|s884|s16816|half|nvjet_\w*?_h[sh]h|hgemm|^cijk_\w{4}_\w{4}_h",
    ),
    (Precision.FP64, r"dgemm|f64|dmma|d884|double"),
    (
        Precision.FP32,
        r"sgemm|f32f32_f32f32|simt|ffma|scudnn|winograd|implicit_convolve|_engine<float|gemmsn|gemv\w*<float|float, float",
    ),
)

_CLASSES = tuple((kind, re.compile("|".join(parts), re.IGNORECASE)) for kind, parts in _CLASS_PATTERNS)
_PRECISIONS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PRECISION_PATTERNS)

MATRIX_CLASSES = (KernelClass.GEMM, KernelClass.CONVOLUTION, KernelClass.ATTENTION)
# Work that a compiler can merge with its neighbours: each element is read, changed and written.
POINTWISE_CLASSES = (KernelClass.ELEMENTWISE, KernelClass.COPY)


def classify(name: str) -> KernelClass:
    """Class of one kernel name."""
    for kind, pattern in _CLASSES:
        if pattern.search(name):
            return kind
    return KernelClass.UNKNOWN


def precision(name: str) -> Precision:
    """Arithmetic path of one matrix kernel's name; UNKNOWN when the name does not tell."""
    for kind, pattern in _PRECISIONS:
        if pattern.search(name):
            return kind
    return Precision.UNKNOWN


@dataclass(frozen=True)
class KernelKinds:
    """For each row of `kernels`: its KernelClass and, for matrix kernels, its Precision."""

    kind: npt.NDArray[np.int8]
    precision: npt.NDArray[np.int8]

    def of(self, *kinds: KernelClass) -> npt.NDArray[np.bool_]:
        """True for rows of any of these classes."""
        return np.isin(self.kind, [int(kind) for kind in kinds])


def kernel_kinds(run: Run) -> KernelKinds:
    """Classes of all kernels of the run; each distinct name is looked at once."""
    return run.derived(_kernel_kinds)


def _kernel_kinds(run: Run) -> KernelKinds:
    names = run.table("kernels")["name"]
    codes, inverse = np.unique(names, return_inverse=True)
    kinds = np.zeros(len(codes), np.int8)
    paths = np.zeros(len(codes), np.int8)
    for i, code in enumerate(codes):
        text = run.strings[int(code)][:2000]
        kinds[i] = classify(text)
        if kinds[i] in MATRIX_CLASSES:
            paths[i] = precision(text)
    return KernelKinds(kinds[inverse], paths[inverse])
