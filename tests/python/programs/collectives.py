"""Every collective on lockstep and on Gloo, with the same values: the results must be equal. Prints what was compared."""
import sys

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("lockstep")
rank, size = dist.get_rank(), dist.get_world_size()
gloo = dist.new_group(backend="gloo")
part = dist.new_group([0, size - 1])  # of lockstep, with members that are not all
part_gloo = dist.new_group([0, size - 1], backend="gloo")
Op = dist.ReduceOp
compared = 0


def values(shape, dtype, seed):
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype, generator=generator)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    return torch.randint(0, 5, shape, generator=generator).to(dtype)


def same(what, ours, theirs):
    global compared
    compared += 1
    for a, b in zip(ours, theirs):
        assert a.dtype == b.dtype and torch.equal(a, b), f"rank {rank}: {what}: {a} instead of {b}"


def both(what, run, *tensors, groups=(None, gloo)):
    results = []
    for group in groups:
        copies = [t.clone() for t in tensors]
        results.append(run(group, *copies))
    same(what, *results)


def allreduce(op, async_op=False):
    def run(group, t):
        work = dist.all_reduce(t, op, group=group, async_op=async_op)
        if async_op:
            work.wait()
        return [t]

    return run


def reduce_to(root, op):
    def run(group, t):
        before = t.clone()
        dist.reduce(t, root, op, group=group)
        return [t if dist.get_rank(group) == root else before]

    return run


TYPES = [torch.float32, torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16]
for n in (0, 1, 7, 5000, 400000):
    for op in (Op.SUM, Op.MIN, Op.MAX, Op.PRODUCT):
        for dtype in TYPES if n == 7 else [torch.float32]:
            both(f"allreduce {n} {dtype} {op}", allreduce(op), values((n,), dtype, n))
both("allreduce of a transposed tensor", lambda g, t: allreduce(Op.SUM)(g, t.t()), values((5, 7), torch.float32, 1))
# A slice with gaps: only its elements are reduced. (Gloo reduces the memory that begins where the slice does.)
whole = values((4, 6), torch.float32, 1)
everyone = [torch.empty_like(whole) for _ in range(size)]
dist.all_gather(everyone, whole)
before, total = whole.clone(), torch.stack(everyone).sum(0)
dist.all_reduce(whole[:, ::2])
same("allreduce of a slice", [whole[:, ::2], whole[:, 1::2]], [total[:, ::2], before[:, 1::2]])
both("allreduce, async", allreduce(Op.SUM, True), values((70000,), torch.float32, 2))
for op in (Op.BAND, Op.BOR, Op.BXOR):
    both(f"allreduce {op}", allreduce(op), values((9,), torch.int32, 3))
both("allreduce of a part", allreduce(Op.SUM), values((5000,), torch.float32, 4), groups=(part, part_gloo)) if rank in (0, size - 1) else None
for root in (0, size - 1):
    both("reduce", reduce_to(root, Op.SUM), values((3000,), torch.float32, 5))
    for dtype in (*TYPES, torch.int16, torch.bfloat16, torch.bool, torch.complex64):
        t = values((33,), dtype, 6)
        dist.broadcast(t, root)
        l = [torch.empty_like(t) for _ in range(size)]
        dist.all_gather(l, t)
        assert all(torch.equal(x, l[0]) for x in l), (dtype, l)
for dtype in (torch.float32, torch.bool, torch.bfloat16, torch.complex128, torch.int16):
    mine = values((2, 3), dtype, 7)
    out = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(out, mine)
    assert torch.equal(out[rank], mine)
    joined = torch.empty(2 * size, 3, dtype=dtype)
    dist.group.WORLD._allgather_base(joined, mine).wait()
    assert torch.equal(joined, torch.cat(out)), dtype
    compared += 2
# Types that Gloo cannot add.
for dtype, wanted in (torch.bool, True), (torch.int16, size), (torch.complex64, size * (1 + 2j)), (torch.bfloat16, size):
    t = torch.full((5,), 1 + 2j if dtype.is_complex else 1, dtype=dtype)
    dist.all_reduce(t)
    assert t.tolist() == [wanted] * 5, (dtype, t)
t = torch.full((5,), float(rank))
dist.all_reduce(t, Op.AVG)
assert abs(t[0].item() - (size - 1) / 2) < 1e-6, t
t = torch.tensor([2.0])
dist.all_reduce(t, dist._make_nccl_premul_sum(0.5))
assert t.item() == size, t

blocks = [values((4,), torch.float32, 8 + r) for r in range(size)]
out = torch.empty(4)
dist.reduce_scatter(out, [b.clone() for b in blocks])
sums = torch.stack(blocks)
dist.all_reduce(sums)
same("reduce_scatter", [out], [sums[rank]])
half = torch.empty(4, dtype=torch.float16)
dist.group.WORLD._reduce_scatter_base(half, torch.ones(4 * size, dtype=torch.float16), dist.ReduceScatterOptions()).wait()
assert half.tolist() == [size] * 4
for root in range(size):
    both(
        "gather",
        lambda g, t: (lambda l: (dist.gather(t, l, root, group=g), l or [t])[1])([torch.empty(6) for _ in range(size)] if rank == root else None),
        values((6,), torch.float32, 9),
    )
    both(
        "scatter",
        lambda g, *ts: (lambda o: (dist.scatter(o, list(ts) if rank == root else None, root, group=g), [o])[1])(torch.empty(4)),
        *[torch.full((4,), 10.0 * root + r) for r in range(size)],
    )
both("alltoall", lambda g, t: (lambda o: (dist.all_to_all_single(o, t, group=g), [o])[1])(torch.empty(2 * size, 3)), values((2 * size, 3), torch.float32, 10))
# Rank r sends q + 1 rows to rank q, plus r.
rows_in, rows_out = [q + 1 + rank for q in range(size)], [rank + 1 + q for q in range(size)]
both(
    "alltoall, uneven",
    lambda g, t: (lambda o: (dist.all_to_all_single(o, t, rows_out, rows_in, group=g), [o])[1])(torch.empty(sum(rows_out), 2)),
    values((sum(rows_in), 2), torch.float32, 11),
)
taken = [torch.empty(rank + 1) for _ in range(size)]
dist.all_to_all(taken, [torch.full((q + 1,), float(rank)) for q in range(size)])
assert [t[0].item() for t in taken] == list(map(float, range(size)))

# Messages: tags out of order, any source, both directions at once.
if rank == 0:
    dist.send(torch.arange(300000.0), 1, tag=3)
    dist.send(torch.ones(2), 1, tag=5)
    got = torch.empty(1)
    sources = {dist.recv(got) for _ in range(size - 1)}
    assert sources == set(range(1, size)), sources
else:
    if rank == 1:
        small, large = torch.empty(2), torch.empty(300000)
        dist.recv(small, 0, tag=5)
        dist.recv(large, 0, tag=3)
        assert large[-1] == 299999 and small[0] == 1
    dist.send(torch.ones(1), 0)
dist.barrier()
right, left = (rank + 1) % size, (rank - 1) % size
came = torch.empty(200000)
works = dist.batch_isend_irecv(
    [dist.P2POp(dist.isend, torch.full((200000,), float(rank)), right), dist.P2POp(dist.irecv, came, left)]
)
for work in works:
    work.wait()
assert came[-1] == left, came

objects = [None] * size
dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
assert [o["rank"] for o in objects] == list(range(size))
box = [{"a": 1} if rank == 0 else None]
dist.broadcast_object_list(box, 0)
assert box[0] == {"a": 1}
import torch.distributed._functional_collectives as functional  # noqa: E402

total = functional.all_reduce(torch.ones(3) * (rank + 1), "sum", dist.group.WORLD)
assert total[0] == size * (size + 1) / 2
everything = functional.all_gather_tensor(torch.full((2,), float(rank)), 0, dist.group.WORLD)
assert everything.tolist() == [float(r) for r in range(size) for _ in range(2)]
dist.barrier()


def refused(words, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except (RuntimeError, ValueError) as error:
        assert words in str(error), f"{error} does not say {words!r}"
    else:
        raise AssertionError(f"not refused: {words}")


refused("sparse tensor", dist.all_reduce, torch.eye(2).to_sparse())
refused("CPU tensors", dist.all_reduce, torch.empty(2, device="meta"))
refused("uint16 is not supported", dist.all_reduce, torch.ones(2, dtype=torch.uint16))
refused("does not divide", dist.all_to_all_single, torch.empty(size + 1), torch.empty(size + 1))
dist.barrier()
# Works that nobody waits for.
for i in range(5):
    dist.all_reduce(torch.full((200000,), float(i)), async_op=True)
    if rank < 2:
        dist.isend(torch.full((1000,), float(i)), 1 - rank)
import gc  # noqa: E402

gc.collect()
for i in range(5):
    if rank < 2:
        t = torch.empty(1000)
        dist.recv(t, 1 - rank)
        assert t[-1] == i, (i, t)
for _ in range(3):
    dist.group.WORLD.monitored_barrier()
assert dist.get_backend() == "lockstep"
store = dist.distributed_c10d._get_default_store()
dist.destroy_process_group()
# Again, with a store that is still there from the first time.
dist.init_process_group("lockstep")
t = torch.ones(1)
dist.all_reduce(t)
assert t.item() == size
dist.destroy_process_group()
print("compared", compared)
sys.exit(0)
