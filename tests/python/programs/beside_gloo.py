"""Random calls on lockstep, on Gloo, and computed in this process: beside_gloo.py CASES SEED

A case is a collective with a dtype, an operation, a shape, memory layouts, a group, and whether it is asynchronous. All ranks draw the same cases,
and know the values of all ranks. Of lockstep, every element must be the expected one, and memory around the tensors must not change. Gloo is the
second oracle: where it makes a call and gets the expected result, lockstep must make it, too. Prints a line per case that is wrong, and how many there were."""

import random
import sys
import warnings

import torch
import torch.distributed as dist

cases, seed = int(sys.argv[1]), int(sys.argv[2])
warnings.simplefilter("ignore")
torch.set_num_threads(1)
dist.init_process_group("lockstep")
world_rank, world = dist.get_rank(), dist.get_world_size()
Op = dist.ReduceOp
DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.complex128,
]
SHAPES = [(), (0,), (1,), (2,), (3,), (7,), (31,), (33,), (1000,), (4097,), (65537,), (3, 0), (0, 5), (1, 1), (5, 7), (2, 3, 5), (2, 3, 4, 5), (64, 65), (300, 301)]
LAYOUTS = ["plain", "transposed", "strided", "offset", "channels last"]
REDUCTIONS = [Op.SUM, Op.MIN, Op.MAX, Op.PRODUCT, Op.BAND, Op.BOR, Op.BXOR, Op.AVG]
GUARD = 77

members = [list(range(world)), list(range(world - 1, world)), [0, world - 1]] + ([list(range(1, world))] if world > 2 else [])
members = [sorted(set(ranks)) for ranks in members]
groups = []  # (ranks, of lockstep, of Gloo)
for ranks in members:
    groups.append((ranks, dist.new_group(ranks), dist.new_group(ranks, backend="gloo")))


def values(shape, dtype, key):
    generator = torch.Generator().manual_seed(key)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    numbers = torch.randint(0, 4, shape, generator=generator)  # small, so that all sums are exact in all types
    if dtype.is_complex:
        return torch.complex(numbers.double(), torch.randint(-3, 4, shape, generator=generator).double()).to(dtype)
    return numbers.to(dtype)


class Placed:
    """A tensor with these values in memory of some layout, and all of that memory."""

    def __init__(self, data, layout):
        dims = data.dim()
        if layout == "transposed" and dims >= 2:
            self.base = data.transpose(0, 1).contiguous()
            self.tensor = self.base.transpose(0, 1)
        elif layout == "strided" and dims >= 1:
            self.base = torch.full((*data.shape[:-1], 2 * data.shape[-1] + 1), GUARD).to(data.dtype)
            self.tensor = self.base[..., : 2 * data.shape[-1] : 2]
            self.tensor.copy_(data)
        elif layout == "channels last" and dims == 4:
            self.base = data.to(memory_format=torch.channels_last)
            self.tensor = self.base
        elif layout == "offset":
            self.base = torch.full((data.numel() + 5,), GUARD).to(data.dtype)
            self.tensor = self.base[3 : 3 + data.numel()].view(data.shape)
            self.tensor.copy_(data)
        else:
            self.base = data.clone()
            self.tensor = self.base
        assert torch.equal(self.tensor, data)

    def expect(self, data):
        """The whole memory if the tensor were `data`."""
        memory = self.base.clone()
        strides, offset = self.tensor.stride(), self.tensor.storage_offset() - self.base.storage_offset()
        if memory.numel():
            memory.as_strided(self.tensor.shape, strides, offset).copy_(data)
        return memory


def reduced(op, parts):
    stack = torch.stack(parts)
    dtype = stack.dtype
    if op == Op.SUM:
        return stack.any(0) if dtype == torch.bool else stack.sum(0, dtype=dtype)
    if op == Op.AVG:
        if not dtype.is_floating_point and not dtype.is_complex:
            return torch.div(stack.sum(0), len(parts), rounding_mode="trunc").to(dtype)
        wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype  # the sum times 1/p, as lockstep/base.h says
        return (stack.sum(0, dtype=wide) * torch.tensor(1 / len(parts), dtype=wide)).to(dtype)
    if op == Op.PRODUCT:
        return stack.all(0) if dtype == torch.bool else stack.prod(0, dtype=dtype)
    if op in (Op.MIN, Op.BAND) and dtype == torch.bool:
        return stack.all(0)
    if op in (Op.MAX, Op.BOR) and dtype == torch.bool:
        return stack.any(0)
    if op == Op.MIN:
        return stack.amin(0)
    if op == Op.MAX:
        return stack.amax(0)
    out = stack[0]
    for part in stack[1:]:
        out = {Op.BAND: torch.bitwise_and, Op.BOR: torch.bitwise_or, Op.BXOR: torch.bitwise_xor}[op](out, part)
    return out


def makes_sense(op, dtype):
    if dtype.is_complex:
        return op in (Op.SUM, Op.AVG)
    if dtype == torch.bool:
        return op != Op.AVG
    return not (op in (Op.BAND, Op.BOR, Op.BXOR) and dtype.is_floating_point)


def finish(work, asynchronous, how):
    if not asynchronous:
        return
    if how == 0:
        work.wait()
    elif how == 1:
        for _ in range(200):
            if work.is_completed():
                break
        work.wait()
    else:
        work.get_future().wait()


def uneven(rng, n):
    """How many rows rank r sends to rank q."""
    return [[rng.choice([0, 0, 1, 2, 5, 17]) for _ in range(n)] for _ in range(n)]


def draw(rng):
    """(description, members, function(group) -> [(Placed, expected)], whether lockstep should refuse)"""
    ranks, ours, theirs = rng.choice(groups)
    n = len(ranks)
    me = ranks.index(world_rank) if world_rank in ranks else None
    call = rng.choice(CALLS)
    dtype, shape, op = rng.choice(DTYPES), rng.choice(SHAPES), rng.choice(REDUCTIONS)
    layouts = [rng.choice(LAYOUTS) for _ in range(2)]
    asynchronous, how, root, key = rng.random() < 0.5, rng.randrange(3), rng.randrange(n), rng.randrange(1 << 40)
    splits, table = rng.random() < 0.7, uneven(rng, n)
    text = f"{call.__name__} {dtype} {shape} {layouts} ranks {ranks}" + (" async" if asynchronous else "") + f" {op}" * (call in REDUCING) + f" root {root}"
    if me is None:
        return text, None, None, True
    refuse = call in REDUCING and not makes_sense(op, dtype)
    if call in (gather, scatter, all_to_all_single, all_to_all, messages) and not set(layouts) <= {"plain", "offset"}:
        theirs = None  # Gloo may refuse it on one rank, and wait on another
    if call is all_to_all and splits:
        theirs = None  # where all blocks of a rank have one size by chance, it waits for those that refuse

    def part(r, i=0, of=None):
        return values(shape if of is None else of, dtype, key + 1000 * r + i)

    context = dict(n=n, me=me, ranks=ranks, dtype=dtype, shape=shape, op=op, layouts=layouts, root=root, part=part, splits=splits, table=table)

    def run(group):
        tensors, start = call(context, group, asynchronous)
        finish(start(), asynchronous, how)
        return tensors

    return text, run, (ours, theirs), refuse


def all_reduce(c, group, asynchronous):
    mine = Placed(c["part"](c["me"]), c["layouts"][0])
    wanted = mine.expect(reduced(c["op"], [c["part"](r) for r in range(c["n"])])) if makes_sense(c["op"], c["dtype"]) else None
    return [(mine, wanted)], lambda: dist.all_reduce(mine.tensor, c["op"], group=group, async_op=asynchronous)


def reduce(c, group, asynchronous):
    mine = Placed(c["part"](c["me"]), c["layouts"][0])
    wanted = mine.base.clone()
    if c["me"] == c["root"]:
        wanted = mine.expect(reduced(c["op"], [c["part"](r) for r in range(c["n"])])) if makes_sense(c["op"], c["dtype"]) else None
    else:
        wanted = None  # what is left there is for nobody to use
    return [(mine, wanted)], lambda: dist.reduce(mine.tensor, c["ranks"][c["root"]], c["op"], group=group, async_op=asynchronous)


def broadcast(c, group, asynchronous):
    mine = Placed(c["part"](c["me"]), c["layouts"][0])
    return [(mine, mine.expect(c["part"](c["root"])))], lambda: dist.broadcast(mine.tensor, c["ranks"][c["root"]], group=group, async_op=asynchronous)


def all_gather(c, group, asynchronous):
    mine = Placed(c["part"](c["me"]), c["layouts"][0])
    outs = [Placed(c["part"](r, 9), c["layouts"][1]) for r in range(c["n"])]
    wanted = [(mine, mine.base.clone())] + [(out, out.expect(c["part"](r))) for r, out in enumerate(outs)]
    return wanted, lambda: dist.all_gather([out.tensor for out in outs], mine.tensor, group=group, async_op=asynchronous)


def all_gather_into_tensor(c, group, asynchronous):
    shape = c["shape"] or (1,)
    mine = Placed(c["part"](c["me"], 0, shape), c["layouts"][0])
    whole = torch.cat([c["part"](r, 0, shape) for r in range(c["n"])])
    out = Placed(torch.zeros_like(whole), c["layouts"][1])
    return [(mine, mine.base.clone()), (out, out.expect(whole))], lambda: dist.all_gather_into_tensor(out.tensor, mine.tensor, group=group, async_op=asynchronous)


def reduce_scatter(c, group, asynchronous):
    blocks = [Placed(c["part"](c["me"], q), c["layouts"][0]) for q in range(c["n"])]
    out = Placed(c["part"](99), c["layouts"][1])
    wanted = out.expect(reduced(c["op"], [c["part"](r, c["me"]) for r in range(c["n"])])) if makes_sense(c["op"], c["dtype"]) else None
    untouched = [(b, b.base.clone()) for b in blocks]
    return [(out, wanted), *untouched], lambda: dist.reduce_scatter(out.tensor, [b.tensor for b in blocks], c["op"], group=group, async_op=asynchronous)


def reduce_scatter_tensor(c, group, asynchronous):
    shape = c["shape"] or (1,)
    flat = Placed(torch.cat([c["part"](c["me"], q, shape) for q in range(c["n"])]), c["layouts"][0])
    out = Placed(c["part"](99, 0, shape), c["layouts"][1])
    wanted = out.expect(reduced(c["op"], [c["part"](r, c["me"], shape) for r in range(c["n"])])) if makes_sense(c["op"], c["dtype"]) else None
    return [(out, wanted), (flat, flat.base.clone())], lambda: dist.reduce_scatter_tensor(out.tensor, flat.tensor, c["op"], group=group, async_op=asynchronous)


def gather(c, group, asynchronous):
    mine = Placed(c["part"](c["me"]), c["layouts"][0])
    outs = [Placed(c["part"](r, 9), c["layouts"][1]) for r in range(c["n"])] if c["me"] == c["root"] else None
    wanted = [(mine, mine.base.clone())] + [(out, out.expect(c["part"](r))) for r, out in enumerate(outs or [])]
    return wanted, lambda: dist.gather(mine.tensor, outs and [o.tensor for o in outs], c["ranks"][c["root"]], group=group, async_op=asynchronous)


def scatter(c, group, asynchronous):
    out = Placed(c["part"](99), c["layouts"][1])
    blocks = [Placed(c["part"](c["root"], q), c["layouts"][0]) for q in range(c["n"])] if c["me"] == c["root"] else None
    return (
        [(out, out.expect(c["part"](c["root"], c["me"])))],
        lambda: dist.scatter(out.tensor, blocks and [b.tensor for b in blocks], c["ranks"][c["root"]], group=group, async_op=asynchronous),
    )


def all_to_all_single(c, group, asynchronous):
    row = c["shape"][1:]
    n, me = c["n"], c["me"]
    table = c["table"] if c["splits"] else [[c["shape"][0] if c["shape"] else 1] * n for _ in range(n)]
    rows = lambda r: torch.cat([c["part"](r, q, (table[r][q], *row)) for q in range(n)])  # noqa: E731
    flat = Placed(rows(me), c["layouts"][0])
    wanted = torch.cat([c["part"](r, me, (table[r][me], *row)) for r in range(n)])
    out = Placed(torch.zeros_like(wanted), c["layouts"][1])
    splits = ([table[r][me] for r in range(n)], list(table[me])) if c["splits"] else (None, None)
    return [(out, out.expect(wanted)), (flat, flat.base.clone())], lambda: dist.all_to_all_single(out.tensor, flat.tensor, *splits, group=group, async_op=asynchronous)


def all_to_all(c, group, asynchronous):
    n, me = c["n"], c["me"]
    sizes = lambda r, q: (c["table"][r][q], *c["shape"][1:]) if c["splits"] else c["shape"]  # noqa: E731
    sends = [Placed(c["part"](me, q, sizes(me, q)), c["layouts"][0]) for q in range(n)]
    takes = [Placed(c["part"](98, r, sizes(r, me)), c["layouts"][1]) for r in range(n)]
    wanted = [(take, take.expect(c["part"](r, me, sizes(r, me)))) for r, take in enumerate(takes)]
    return wanted + [(s, s.base.clone()) for s in sends], lambda: dist.all_to_all([t.tensor for t in takes], [s.tensor for s in sends], group=group, async_op=asynchronous)


def messages(c, group, asynchronous):
    """A ring: each rank sends to the next one, and to itself if it is alone, which torch refuses."""
    n, me = c["n"], c["me"]
    mine, came = Placed(c["part"](me), c["layouts"][0]), Placed(c["part"](99), c["layouts"][1])
    after, before = c["ranks"][(me + 1) % n], c["ranks"][(me - 1) % n]

    def start():
        if n == 1:
            return dist.barrier(group=group, async_op=True)
        if asynchronous:
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine.tensor, after, group), dist.P2POp(dist.irecv, came.tensor, before, group)])
            for work in works[:-1]:
                work.wait()
            works[-1].wait()
            return dist.barrier(group=group, async_op=True)
        if me % 2:
            dist.recv(came.tensor, before, group=group, tag=7)
            dist.send(mine.tensor, after, group=group, tag=7)
        else:
            sent = dist.isend(mine.tensor, after, group=group, tag=7)
            dist.recv(came.tensor, before, group=group, tag=7)
            sent.wait()
        return None

    wanted = came.base.clone() if n == 1 else came.expect(c["part"]((me - 1) % n))
    return [(came, wanted), (mine, mine.base.clone())], start


CALLS = [all_reduce, all_reduce, reduce, broadcast, all_gather, all_gather_into_tensor, reduce_scatter, reduce_scatter_tensor, gather, scatter]
CALLS += [all_to_all_single, all_to_all, messages]
REDUCING = (all_reduce, reduce, reduce_scatter, reduce_scatter_tensor)


def outcome(run, group):
    """What went wrong, or None, and whether it was refused."""
    try:
        tensors = run(group)
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        return " ".join(str(error).split())[:300], True
    for i, (placed, wanted) in enumerate(tensors):
        if wanted is not None and not torch.equal(placed.base, wanted):
            different = (placed.base != wanted).sum().item()
            return f"tensor {i}: {different} of {wanted.numel()} elements differ", False
    return None, False


rng = random.Random(seed)
only = int(sys.argv[3]) if sys.argv[3:4] and sys.argv[3] != "-v" else -1
bad = compared = agree = alone = 0
for number in range(cases):
    text, run, both, refuse = draw(rng)
    if run is None or only not in (-1, number):
        continue
    ours, refused = outcome(run, both[0])
    theirs, _ = outcome(run, both[1]) if both[1] else ("not asked", True)
    compared += 1
    if refuse:
        wrong = not refused
    else:
        wrong = ours is not None
        agree += ours is None and theirs is None
        alone += ours is None and theirs is not None
    if wrong or "-v" in sys.argv:
        bad += wrong
        print(f"case {number}, rank {world_rank}: {text}: lockstep: {ours}; gloo: {theirs}", flush=True)
dist.barrier()
print(f"{compared} cases, {bad} bad; Gloo agrees in {agree}, and refuses, or gets other results, in {alone} that are right here", flush=True)
dist.destroy_process_group()
sys.exit(bad > 0)
