"""Kernel names as libraries print them, and what they are."""

import pytest

from advisor.derive.kernel_classes import KernelClass, Precision, classify, precision

K, P = KernelClass, Precision
NAMES = [
    ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN", K.GEMM, P.BF16),
    ("nvjet_sm90_hsh_64x8_64x16_1x2_h_bz_NNT", K.GEMM, P.FP16),
    ("ampere_sgemm_128x64_nn", K.GEMM, P.FP32),
    ("volta_sgemm_64x64_tn", K.GEMM, P.FP32),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(Params)", K.GEMM, P.FP32),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_ffma_execute", K.GEMM, P.FP32),
    ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_tensor16x8x8", K.GEMM, P.TF32),
    ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4>(Params)", K.GEMM, P.TF32),
    ("turing_fp16_s1688gemm_fp16_128x128_ldg8_nn", K.GEMM, P.FP16),
    ("volta_h884gemm_128x64_ldg8_nn", K.GEMM, P.FP16),
    ("ampere_fp16_s16816gemm_fp16_128x256_ldg8_f2f_stages_64x3_nn", K.GEMM, P.FP16),
    ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn", K.GEMM, P.BF16),
    ("void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_128x128_64x5_nt_align8>(Params)", K.GEMM, P.BF16),
    ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32", K.GEMM, P.FP32),
    ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x32x256", K.GEMM, P.BF16),
    ("matmul_k(float*, float*, float*, int, int, int)", K.GEMM, P.UNKNOWN),
    ("triton_tem_fused_addmm_3", K.GEMM, P.UNKNOWN),
    ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc", K.CONVOLUTION, P.BF16),
    ("volta_scudnn_128x64_relu_interior_nn_v1", K.CONVOLUTION, P.FP32),
    ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(Params)", K.CONVOLUTION, P.FP32),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64", K.ATTENTION, P.FP16),
    ("fmha_cutlassB_f32_aligned_64x64_k64_sm80(PyTorchMemEffAttention::Params)", K.ATTENTION, P.FP32),
    ("void pytorch_flash::flash_fwd_kernel<Traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>>", K.ATTENTION, P.BF16),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", K.COMMUNICATION, None),
    ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", K.COMMUNICATION, None),
    ("triton_poi_fused_gelu_view_10", K.FUSED, None),
    ("triton_per_fused__to_copy_native_layer_norm_backward_view_2", K.FUSED, None),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int)", K.NORMALIZATION, None),
    ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct)", K.NORMALIZATION, None),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*)", K.SOFTMAX, None),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)", K.ELEMENTWISE, None),
    # "nocast" in the name of the launcher is no cast.
    ("void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<CUDAFunctor_add> >", K.ELEMENTWISE, None),
    ("void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(&)>", K.COPY, None),
    ("void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, sum_functor>>", K.REDUCTION, None),
    ("void at::native::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor>", K.OPTIMIZER, None),
    ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>", K.LAYOUT, None),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(Params)", K.LIBRARY, None),
    ("void split_embedding_codegen_forward_weighted_kernel<c10::Half>(at::GenericPackedTensorAccessor<long>)", K.INDEXING, None),
    ("void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<Policy800, false, long>(int*)", K.INDEXING, None),
    ("my_secret_sauce(float*)", K.UNKNOWN, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "path"), NAMES)
def test_names(name, kind, path):
    assert classify(name) == kind
    if path is not None:
        assert precision(name) == path


def test_every_class_has_a_label():
    assert all(kind.label for kind in KernelClass)
