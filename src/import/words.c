/* What the names in a trace mean. They changed over the years, and differ between back ends. */
#include <ctype.h>
#include <string.h>
#include "import/trace.h"

/* Small letters and digits alone: "_reduce_scatter_base", "ReduceScatter" and "reduce_scatter_tensor_coalesced" begin with the same
 * letters. */
static size_t plain(ls__text name, char *out, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < name.bytes && n + 1 < bytes; i++)
        if (isalnum((unsigned char)name.at[i])) out[n++] = (char)tolower((unsigned char)name.at[i]);
    out[n] = 0;
    return n;
}

int ls__collective_of(ls__text name, bool *sends)
{
    static const struct {
        const char *word;
        int kind;
        bool sends;
    } words[] = {
        /* what contains another comes first */
        { "crossdevicereduce", LS_COLLECTIVE_ALLREDUCE, false }, /* a custom all-reduce's kernel */
        { "reducescatter", LS_COLLECTIVE_REDUCE_SCATTER, false },
        { "allreduce", LS_COLLECTIVE_ALLREDUCE, false },
        { "allgather", LS_COLLECTIVE_ALLGATHER, false },
        { "alltoall", LS_COLLECTIVE_ALLTOALL, false },
        { "broadcast", LS_COLLECTIVE_BROADCAST, false },
        { "barrier", LS_COLLECTIVE_BARRIER, false },
        { "sendrecv", LS_COLLECTIVE_ALLTOALL, false }, /* NCCL's kernel of an all-to-all */
        { "recvanysource", LS_COLLECTIVE_RECEIVE, true },
        { "recv", LS_COLLECTIVE_RECEIVE, true },
        { "send", LS_COLLECTIVE_SEND, true },
        { "gather", LS_COLLECTIVE_GATHER, false },
        { "scatter", LS_COLLECTIVE_SCATTER, false },
        { "reduce", LS_COLLECTIVE_REDUCE, false },
    };
    char text[64];
    if (!plain(name, text, sizeof text)) return -1;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(text, words[i].word)) {
            *sends = words[i].sends;
            return words[i].kind;
        }
    return -1;
}

int64_t ls__dtype_bytes(ls__text name)
{
    static const struct {
        const char *word;
        int bytes;
    } words[] = {
        /* what contains another comes first */
        { "complexdouble", 16 }, { "complexfloat", 8 }, { "complexhalf", 4 }, { "bfloat16", 2 }, { "float64", 8 },
        { "float16", 2 },        { "float8", 1 },       { "half", 2 },        { "double", 8 },   { "float", 4 },
        { "long", 8 },           { "int64", 8 },        { "int32", 4 },       { "short", 2 },    { "int16", 2 },
        { "int8", 1 },           { "int", 4 },          { "bool", 1 },        { "byte", 1 },     { "char", 1 },
    };
    char text[32];
    plain(name, text, sizeof text);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(text, words[i].word)) return words[i].bytes;
    return 0;
}

ls__kernel_kind ls__kernel_kind_of(ls__text name)
{
    static const struct {
        const char *word;
        ls__kernel_kind kind;
    } words[] = {
        { "Memcpy", LS__KERNEL_COPY },
        { "Memset", LS__KERNEL_SET },
        { "dma", LS__KERNEL_COPY },
        { "triton_", LS__KERNEL_TRITON },
        { "flash", LS__KERNEL_ATTENTION },
        { "fmha", LS__KERNEL_ATTENTION },
        { "Fmha", LS__KERNEL_ATTENTION },
        { "attention", LS__KERNEL_ATTENTION },
        { "attn", LS__KERNEL_ATTENTION },
        { "sage_fwd", LS__KERNEL_ATTENTION },
        { "multi_tensor_apply", LS__KERNEL_OPTIMIZER },
        { "adam", LS__KERNEL_OPTIMIZER },
        { "Adam", LS__KERNEL_OPTIMIZER },
        { "softmax", LS__KERNEL_SOFTMAX },
        { "SoftMax", LS__KERNEL_SOFTMAX },
        { "Softmax", LS__KERNEL_SOFTMAX },
        { "distribution_", LS__KERNEL_ELEMENTWISE }, /* of random numbers: "normal" */
        { "wgrad", LS__KERNEL_CONVOLUTION },
        { "dgrad", LS__KERNEL_CONVOLUTION },
        { "fprop", LS__KERNEL_CONVOLUTION },
        { "scudnn", LS__KERNEL_CONVOLUTION },
        { "conv_", LS__KERNEL_CONVOLUTION },
        { "conv2d", LS__KERNEL_CONVOLUTION },
        { "onvolution", LS__KERNEL_CONVOLUTION },
        { "AsmConv", LS__KERNEL_CONVOLUTION },
        { "winograd", LS__KERNEL_CONVOLUTION },
        { "m2d2Col", LS__KERNEL_CONVOLUTION },
        { "cutlass", LS__KERNEL_GEMM },
        { "embedding", LS__KERNEL_EMBEDDING },
        { "Embedding", LS__KERNEL_EMBEDDING },
        { "fbgemm_gpu", LS__KERNEL_EMBEDDING }, /* which is not about matrix products */
        { "gemm", LS__KERNEL_GEMM },
        { "gemv", LS__KERNEL_GEMM },
        { "Gemm", LS__KERNEL_GEMM },
        { "GEMM", LS__KERNEL_GEMM },
        { "matmul", LS__KERNEL_GEMM },
        { "bmm_", LS__KERNEL_GEMM },
        { "Cijk_", LS__KERNEL_GEMM },
        { "cublas", LS__KERNEL_GEMM },
        { "splitK", LS__KERNEL_GEMM },
        { "nvjet", LS__KERNEL_GEMM },
        { "norm", LS__KERNEL_NORM },
        { "Norm", LS__KERNEL_NORM },
        { "GammaBeta", LS__KERNEL_NORM },
        { "RowwiseMoments", LS__KERNEL_NORM },
        { "index", LS__KERNEL_EMBEDDING },
        { "gather", LS__KERNEL_EMBEDDING },
        { "scatter", LS__KERNEL_EMBEDDING },
        { "elementwise", LS__KERNEL_ELEMENTWISE },
        { "reduce", LS__KERNEL_REDUCE },
        { "Reduce", LS__KERNEL_REDUCE },
        { "dropout", LS__KERNEL_ELEMENTWISE },
    };
    /* NCCL, RCCL and other libraries; then kernels that communicate by themselves, through memory that GPUs share: torch's
     * symmetric memory, the custom all-reduces of vLLM, SGLang and TensorRT-LLM, NVSHMEM and DeepEP. */
    static const char *const comm[] = { "ncclKernel",
                                        "ncclDevKernel",
                                        "ncclDevFunc",
                                        "rcclGenericKernel",
                                        "rcclKernel",
                                        "ncclSymk",
                                        "msccl",
                                        "oneccl",
                                        "nccl:",
                                        "hccl",
                                        "all_reduce_kernel",
                                        "all_gather_kernel",
                                        "all_to_all",
                                        "alltoall_kernel",
                                        "cross_device_reduce",
                                        "quickreduce::",
                                        "allreduce_fusion",
                                        "nvshmem",
                                        "deep_ep::" };
    for (size_t i = 0; i < sizeof comm / sizeof *comm; i++)
        if (ls__text_contains(name, comm[i])) return LS__KERNEL_COMM;
    for (size_t i = 0; i < 3; i++)
        if (ls__text_begins(name, words[i].word)) return words[i].kind;
    for (size_t i = 3; i < sizeof words / sizeof *words; i++)
        if (ls__text_contains(name, words[i].word)) return words[i].kind;
    return LS__KERNEL_OTHER;
}

const char *ls__kernel_kind_name(ls__kernel_kind kind)
{
    static const char *const names[LS__KERNEL_KINDS] = {
        [LS__KERNEL_GEMM] = "matrix products",
        [LS__KERNEL_ATTENTION] = "attention",
        [LS__KERNEL_CONVOLUTION] = "convolution",
        [LS__KERNEL_NORM] = "normalization",
        [LS__KERNEL_SOFTMAX] = "softmax",
        [LS__KERNEL_OPTIMIZER] = "optimizer",
        [LS__KERNEL_EMBEDDING] = "embedding and indexing",
        [LS__KERNEL_REDUCE] = "reductions",
        [LS__KERNEL_ELEMENTWISE] = "elementwise",
        [LS__KERNEL_TRITON] = "Triton",
        [LS__KERNEL_OTHER] = "other kernels",
        [LS__KERNEL_COPY] = "memory copies",
        [LS__KERNEL_SET] = "memory sets",
        [LS__KERNEL_COMM] = "communication",
    };
    return kind < LS__KERNEL_KINDS ? names[kind] : "other kernels";
}
