"""Which of torch's element types and reductions the library has. Complex numbers are reduced as pairs."""

import ctypes

import torch
from torch.distributed import ReduceOp

from . import _library as ls

TYPES = {
    torch.float32: ls.F32,
    torch.float64: ls.F64,
    torch.bfloat16: ls.BF16,
    torch.int32: ls.I32,
    torch.int64: ls.I64,
    torch.uint8: ls.U8,
    torch.float16: ls.F16,
    torch.int8: ls.I8,
    torch.int16: ls.I16,
    torch.bool: ls.BOOL,
}
OPERATIONS = {
    ReduceOp.SUM: ls.SUM,
    ReduceOp.AVG: ls.MEAN,
    ReduceOp.MIN: ls.MIN,
    ReduceOp.MAX: ls.MAX,
    ReduceOp.PRODUCT: ls.PROD,
    ReduceOp.BAND: ls.AND,
    ReduceOp.BOR: ls.OR,
    ReduceOp.BXOR: ls.XOR,
}
_BITWISE = (ls.AND, ls.OR, ls.XOR)

def operation(op):
    """The library's reduction for what torch hands over, and the factor of PREMUL_SUM."""
    for kind in OPERATIONS:
        if op == kind:
            return OPERATIONS[kind], None
    if op == ReduceOp.PREMUL_SUM:
        return ls.SUM, op.__getstate__()[1]
    raise RuntimeError(f"lockstep: unsupported reduction {op}")


def check(call, tensors):
    """Refuses what the library cannot move, in torch's terms."""
    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise RuntimeError(
                f"lockstep: {call} of a sparse tensor ({tensor.layout}) is not supported; use .to_dense(), or the backend gloo for this group"
            )
        if tensor.device.type != "cpu":
            raise RuntimeError(
                f"lockstep: {call} of a tensor on {tensor.device}: this backend moves CPU tensors; make a group for that device with "
                'dist.new_group(backend=...), since torch takes lockstep for the whole group also in "cpu:lockstep,cuda:nccl"'
            )


def _multiply(data, factor):
    """A copy of `data`, multiplied."""
    if isinstance(factor, torch.Tensor) and factor.numel() != 1:
        raise RuntimeError(f"lockstep: the factor of PREMUL_SUM has {factor.numel()} elements; one is supported")
    out = torch.empty_like(data, memory_format=torch.contiguous_format)
    data = data.contiguous()
    ls.check(
        ls.lib.ls_premultiply(
            ctypes.c_void_p(out.data_ptr()), ctypes.c_void_p(data.data_ptr()), data.numel(), TYPES[data.dtype], float(factor)
        )
    )
    return out


def prepare(call, tensor, op):
    """(buffer, type, operation, finish) to reduce `tensor`: the buffer is the tensor's memory, or a copy that finish(result) turns into values
    of its dtype."""
    kind, factor = operation(op)
    dtype = tensor.dtype
    data = tensor.detach()
    finish = lambda r: r  # noqa: E731
    if dtype.is_complex:
        if kind not in (ls.SUM, ls.MEAN):
            raise RuntimeError(f"lockstep: {call}: {op} of {dtype} is not supported; complex numbers can be added only")
        data = torch.view_as_real(data.resolve_conj())
        finish = lambda r: torch.view_as_complex(r.reshape(*r.shape[:-1], 2))  # noqa: E731
    if data.dtype not in TYPES:
        raise RuntimeError(f"lockstep: {call} of {dtype} is not supported; use one of {', '.join(str(t)[6:] for t in TYPES)}")
    if kind in _BITWISE and data.dtype.is_floating_point:
        raise RuntimeError(f"lockstep: {call}: {op} of {dtype} is not supported; bitwise reductions are for integers and bool")
    if kind == ls.MEAN and dtype == torch.bool:
        raise RuntimeError(f"lockstep: {call}: {op} of bool is not supported; use another dtype")
    if factor is not None:
        data = _multiply(data, factor)
    return data.contiguous(), TYPES[data.dtype], kind, finish
