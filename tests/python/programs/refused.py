"""What backend lockstep refuses, on 2 ranks: each case must be an exception with these words, and the group must still work afterwards."""
import os
import platform
import sys

import torch
import torch.distributed as dist

case = sys.argv[1]
rank = int(os.environ["RANK"])
if case == "another user" and rank == 1:
    os.setuid(65534)


def refused(words, call):
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{missing} not in: {error}"
    else:
        raise AssertionError(f"not refused: {words}")


if case == "another user":
    refused(["same user"], lambda: dist.init_process_group("lockstep"))
    os._exit(0)
if case == "kernels":
    os.environ["LOCKSTEP_KERNELS"] = "avx2" if platform.machine() == "aarch64" else "neon"
    refused(["LOCKSTEP_KERNELS: this CPU cannot run '", "its best is '"], lambda: dist.init_process_group("lockstep"))
    os._exit(0)
dist.init_process_group("lockstep")
if case == "arguments":
    sparse = torch.eye(3).to_sparse()
    refused(["sparse tensor", "to_dense()"], lambda: dist.distributed_c10d._get_default_group().allreduce([sparse]))
    elsewhere = torch.empty(3, device="meta")
    refused(["tensor on meta", "CPU tensors", "dist.new_group(backend=...)"], lambda: dist.distributed_c10d._get_default_group().allreduce([elsewhere]))
    refused(["float8_e5m2 is not supported", "use one of float32"], lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e5m2)))
    refused(["bitwise reductions are for integers"], lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BXOR))
    refused(["8 elements", "2 ranks x 3"], lambda: dist.all_gather_into_tensor(torch.empty(8), torch.empty(3)))
    refused(["7 elements", "2 ranks x 4"], lambda: dist.reduce_scatter_tensor(torch.empty(4), torch.empty(7)))
    refused(["splits", "2 numbers"], lambda: dist.all_to_all_single(torch.empty(4), torch.empty(4), [2, 2], [1, 2]))
    refused(["rank"], lambda: dist.new_group([0, 0]))
    refused(["rank"], lambda: dist.send(torch.ones(1), 5))
elif case == "shapes":  # of which one rank has another: all ranks learn of it
    refused(["allreduce", "3 of float32", "4 of float32"], lambda: dist.all_reduce(torch.ones(3 + rank)))
    os._exit(0)
elif case == "dtypes":
    refused(["allreduce", "float32", "int64"], lambda: dist.all_reduce(torch.ones(3, dtype=torch.int64 if rank else torch.float32)))
    os._exit(0)
elif case == "splits":
    sizes = [[1, 2], [1, 1]][rank]
    refused(["alltoallv", "elements", "expected"], lambda: dist.all_to_all_single(torch.empty(2), torch.empty(sum(sizes)), [1, 1], sizes))
    os._exit(0)
total = torch.ones(2)
dist.all_reduce(total)
assert total.tolist() == [2, 2]
dist.destroy_process_group()
