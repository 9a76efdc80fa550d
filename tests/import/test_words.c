/* What names mean: kernels, collectives and types, as public traces have them (NVIDIA, AMD, MTIA; HTA's and TraceLens's tests). */
#include "check.h"

#include <string.h>
#include "import/trace.h"

static ls__text text(const char *s)
{
    return (ls__text){ s, strlen(s) };
}

static void test_kernels(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        ls__kernel_kind kind;
    } cases[] = {
        { "ncclDevKernel_AllReduce_Sum_f32_RING_LL", LS__KERNEL_COMM },
        { "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", LS__KERNEL_COMM },
        { "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", LS__KERNEL_COMM },
        { "rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)", LS__KERNEL_COMM },
        { "hccl::allreduce", LS__KERNEL_COMM },
        { "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
          LS__KERNEL_COMM },
        { "two_shot_all_reduce_kernel_inplace", LS__KERNEL_COMM },
        { "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", LS__KERNEL_COMM },
        { "Memcpy HtoD (Pinned -> Device)", LS__KERNEL_COPY },
        { "Memset (Device)", LS__KERNEL_SET },
        { "dma_request", LS__KERNEL_COPY },
        { "ampere_sgemm_128x64_nn", LS__KERNEL_GEMM },
        { "Cijk_Ailk_Bljk_SB_MT64x64", LS__KERNEL_GEMM },
        { "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1", LS__KERNEL_GEMM },
        { "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3", LS__KERNEL_GEMM },
        { "void splitKreduce_kernel<float, float, float>(cublasSplitKParams<float>)", LS__KERNEL_GEMM },
        { "cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1", LS__KERNEL_CONVOLUTION },
        { "cudnn_train_volta_scudnn_128x128_stridedB_splitK_medium_nn_v1", LS__KERNEL_CONVOLUTION },
        { "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc", LS__KERNEL_CONVOLUTION },
        { "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1", LS__KERNEL_CONVOLUTION },
        { "vllm::_typeConvert<c10::BFloat16>::exists, void>::type vllm::fused_add_rms_norm_kernel", LS__KERNEL_NORM },
        { "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<float>", LS__KERNEL_NORM },
        { "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<normal>",
          LS__KERNEL_ELEMENTWISE },
        { "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernel", LS__KERNEL_ATTENTION },
        { "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", LS__KERNEL_REDUCE },
        { "reduce_sum-dtype_Float", LS__KERNEL_REDUCE },
        { "void split_embedding_codegen_forward_unweighted_kernel<float>(fbgemm_gpu::Tensor)", LS__KERNEL_EMBEDDING },
        { "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>", LS__KERNEL_EMBEDDING },
        { "triton_poi_fused_add_0", LS__KERNEL_TRITON },
        { "at::cuda::(anonymous namespace)::spin_kernel(long)", LS__KERNEL_OTHER },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls__kernel_kind kind = ls__kernel_kind_of(text(cases[i].name));
        if (kind != cases[i].kind)
            fail_msg("%s: %s, expected %s", cases[i].name, ls__kernel_kind_name(kind),
                     ls__kernel_kind_name(cases[i].kind));
    }
}

static void test_collectives(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int kind;
        bool sends;
    } cases[] = {
        { "allreduce", LS_COLLECTIVE_ALLREDUCE, false },
        { "_allgather_base", LS_COLLECTIVE_ALLGATHER, false },
        { "all_gather_into_tensor_coalesced", LS_COLLECTIVE_ALLGATHER, false },
        { "_reduce_scatter_base", LS_COLLECTIVE_REDUCE_SCATTER, false },
        { "c10d::reduce_", LS_COLLECTIVE_REDUCE, false },
        { "c10d::alltoall_base_", LS_COLLECTIVE_ALLTOALL, false },
        { "all_to_allv", LS_COLLECTIVE_ALLTOALL, false },
        { "broadcast", LS_COLLECTIVE_BROADCAST, false },
        { "c10d::barrier", LS_COLLECTIVE_BARRIER, false },
        { "c10d::recv_any_source_", LS_COLLECTIVE_RECEIVE, true },
        { "send", LS_COLLECTIVE_SEND, true },
        { "void vllm::cross_device_reduce_2stage<half, 4>", LS_COLLECTIVE_ALLREDUCE, false },
        { "wait", -1, false },
        { "init", -1, false },
        { "", -1, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool sends = false;
        int kind = ls__collective_of(text(cases[i].name), &sends);
        if (kind != cases[i].kind || sends != cases[i].sends)
            fail_msg("%s: kind %d, between two ranks: %d; expected %d, %d", cases[i].name, kind, sends, cases[i].kind,
                     cases[i].sends);
    }
}

static void test_types(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t bytes;
    } cases[] = { { "Float", 4 },         { "BFloat16", 2 },
                  { "c10::Half", 2 },     { "Double", 8 },
                  { "Long", 8 },          { "Int", 4 },
                  { "Byte", 1 },          { "Char", 1 },
                  { "Bool", 1 },          { "Short", 2 },
                  { "float64", 8 },       { "float32", 4 },
                  { "float16", 2 },       { "int64", 8 },
                  { "uint16", 2 },        { "int8", 1 },
                  { "Float8_e4m3fn", 1 }, { "ComplexFloat", 8 },
                  { "ComplexHalf", 4 },   { "long int", 8 },
                  { "unsigned char", 1 }, { "", 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t bytes = ls__dtype_bytes(text(cases[i].name));
        if (bytes != cases[i].bytes)
            fail_msg("%s: %d bytes, expected %d", cases[i].name, (int)bytes, (int)cases[i].bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_kernels), cmocka_unit_test(test_collectives),
                                        cmocka_unit_test(test_types) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
