"""Which of torch's element types and reductions the library has, and how the others are made of those.

float16 is summed in float32 and rounded once, as the library does with bfloat16; int8 and int16 in int32, of which the low bits are the same;
bool in uint8; complex numbers as pairs. Bitwise operations gather the values of all ranks and combine them in order."""

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
}
OPERATIONS = {ReduceOp.SUM: ls.SUM, ReduceOp.AVG: ls.MEAN, ReduceOp.MIN: ls.MIN, ReduceOp.MAX: ls.MAX, ReduceOp.PRODUCT: ls.PROD}
BITWISE = {
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}
_WIDER = {torch.float16: torch.float32, torch.int8: torch.int32, torch.int16: torch.int32}
# Of bool, as uint8: any or all. The parity of a sum that wraps at 256 is that of the sum.
_BOOL = {
    ReduceOp.SUM: ls.MAX,
    ReduceOp.MAX: ls.MAX,
    ReduceOp.BOR: ls.MAX,
    ReduceOp.PRODUCT: ls.MIN,
    ReduceOp.MIN: ls.MIN,
    ReduceOp.BAND: ls.MIN,
    ReduceOp.BXOR: ls.SUM,
}


def operation(op):
    """The RedOpType of what torch hands over, and the factor of PREMUL_SUM."""
    for kind in (*OPERATIONS, *BITWISE):
        if op == kind:
            return kind, None
    if op == ReduceOp.PREMUL_SUM:
        return ReduceOp.SUM, op.__getstate__()[1]
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
                f"lockstep: {call} of a tensor on {tensor.device}: this backend moves CPU tensors; use "
                '"cpu:lockstep,cuda:nccl" (torch >= 2.14), or another group for this device'
            )


def prepare(call, tensor, op):
    """(buffer, type, operation, finish) to reduce `tensor`: the buffer is the tensor's memory, or a copy that finish(result) turns into values
    of its dtype."""
    kind, factor = operation(op)
    dtype = tensor.dtype
    data = tensor.detach()
    if factor is not None:
        data = data * factor
    if dtype == torch.bool:
        if kind not in _BOOL:
            raise RuntimeError(f"lockstep: {call}: {kind} of bool is not supported; use another dtype")
        return data.to(torch.uint8).contiguous(), ls.U8, _BOOL[kind], lambda r: (r & 1).to(torch.bool)
    if dtype.is_complex:
        if kind not in (ReduceOp.SUM, ReduceOp.AVG):
            raise RuntimeError(f"lockstep: {call}: {kind} of {dtype} is not supported; complex numbers can be added only")
        pairs = torch.view_as_real(data.resolve_conj()).contiguous()
        return pairs, TYPES[pairs.dtype], OPERATIONS[kind], lambda r: torch.view_as_complex(r.reshape(*r.shape[:-1], 2))
    if kind in BITWISE:
        raise _Bitwise(BITWISE[kind])
    if dtype in _WIDER:
        wide = data.to(_WIDER[dtype]).contiguous()
        return wide, TYPES[wide.dtype], OPERATIONS[kind], lambda r: r.to(dtype)
    if dtype not in TYPES:
        raise RuntimeError(
            f"lockstep: {call} of {dtype} is not supported; use one of {', '.join(str(t)[6:] for t in (*TYPES, *_WIDER, torch.bool))}"
        )
    return data.contiguous(), TYPES[dtype], OPERATIONS[kind], lambda r: r


class _Bitwise(Exception):
    """The reduction is to be made of a gather."""

    def __init__(self, function):
        self.function = function


Bitwise = _Bitwise
