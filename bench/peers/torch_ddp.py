#!/usr/bin/env python3
"""torch's side of `lockstep bench ddp`: DistributedDataParallel over Gloo on the rows that lockstep measured.

  torch_ddp.py [CLUSTER] < rows.json > lines

Reads {"rows": [...], "layers": ..., "width": ..., "vocab_size": ..., "threads": ..., "steps": ...} and writes a line with its name, then one JSON object per
row that it can measure: "row", its number, and its figures under lockstep's names. Starts its ranks itself, as many as a row has: on this machine, or with
CLUSTER, the script that makes hosts, one on each of node0 and node1. Models are the same as those of cli/bench/ddp_model.c, of torch's own layers; one thread per
rank, denormals flushed, gradient_as_bucket_view, AdamW fused."""
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

PASSES = 3


def start(setup, rows, cluster):
    """Runs this file as ranks, with rows of one number of ranks."""
    ranks = rows[0][1]["ranks"]
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump({**setup, "rows": rows}, f)
        f.flush()
        jobs = []
        for rank in range(ranks):
            env = dict(os.environ, PYTHONWARNINGS="ignore", TORCH_CPP_LOG_LEVEL="ERROR", RANK=str(rank), LOCAL_RANK="0" if cluster else str(rank), WORLD_SIZE=str(ranks), OMP_NUM_THREADS=str(setup["threads"]),
                       MASTER_ADDR="10.77.0.1" if cluster else "127.0.0.1", MASTER_PORT="29500" if cluster else str(port),
                       **({"GLOO_SOCKET_IFNAME": "eth0"} if cluster else {}))
            on = [cluster, "on", f"node{rank}"] if cluster else []
            jobs.append(subprocess.Popen([*on, sys.executable, os.path.abspath(__file__), "--rows", f.name], env=env, stdin=subprocess.DEVNULL,
                                         stdout=None if rank == 0 else subprocess.DEVNULL, stderr=None if rank == 0 else subprocess.DEVNULL))
        return any([job.wait() for job in jobs])


def main():
    cluster = sys.argv[1] if len(sys.argv) > 1 else None
    setup = json.load(sys.stdin)
    rows = [(i, row) for i, row in enumerate(setup.pop("rows")) if row["part"] != "accuracy"]
    failed = False
    for ranks in sorted({row["ranks"] for _, row in rows}):
        failed |= start(setup, [r for r in rows if r[1]["ranks"] == ranks], cluster)
    sys.exit(failed)


if "--rows" not in sys.argv:
    main()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402

with open(sys.argv[2]) as f:
    setup = json.load(f)
torch.set_num_threads(setup["threads"])
torch.set_flush_denormal(True)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def say(**line):
    if rank == 0:
        print(json.dumps(line), flush=True)


class Block(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.down = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width)) if stride > 1 or before != width else None

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (self.down(x) if self.down else x))


class ResNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        sizes = [(width << max(i - 1, 0), width << i, 2 if i else 1) for i in range(4)]
        self.body = nn.Sequential(*(b for before, w, stride in sizes for b in (Block(before, w, stride), Block(w, w, 1))))
        self.fc = nn.Linear(8 * width, 10)

    def forward(self, x):
        return self.fc(self.body(self.stem(x)).mean((2, 3)))


class Bert(nn.Module):
    def __init__(self, layers, width, vocab, context):
        super().__init__()
        self.words, self.places, self.types = nn.Embedding(vocab, width), nn.Embedding(context, width), nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        heads = width // 64 if width % 64 == 0 else 1
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", layer_norm_eps=1e-12, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, tokens, types):
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]] + self.types(types)
        return self.classifier(torch.tanh(self.pooler(self.body(self.norm(x))[:, 0])))


def make(row):
    """The row's model, its inputs and targets."""
    torch.manual_seed(rank)
    n, width = row["batch_size"], setup["width"]
    if row["model"] == "resnet":
        inputs, targets, model = [torch.randn(n, 3, 64, 64)], torch.arange(n) % 10, ResNet(2 if width < 16 else width // 8)
    else:
        length = row["seq_len"]
        types = (torch.arange(length) >= length // 2).long().expand(n, length)
        inputs, targets = [torch.randint(0, setup["vocab_size"], (n, length)), types], torch.arange(n) % 2
        model = Bert(setup["layers"], width, setup["vocab_size"], length)
    return model, inputs, targets


done = []


def note_end(_):
    """Final callbacks run when all gradients are computed, before DDP waits for its buckets if they are queued before."""
    torch.autograd.Variable._execution_engine.queue_callback(lambda: done.append(time.perf_counter()))


class Way:
    """One row: a model under DDP, and how a step is made."""

    def __init__(self, row):
        self.row = row
        self.model, self.inputs, self.targets = make(row)
        size = row["bucket_bytes"]
        options = dict(bucket_cap_mb=0 if size == 1 else size / 2**20) if size else {}
        self.ddp = nn.parallel.DistributedDataParallel(self.model, gradient_as_bucket_view=True, broadcast_buffers=False, **options)
        if row["groups"]:
            groups = [dist.new_group(backend="gloo") for _ in range(row["groups"])]
            self.ddp.register_comm_hook(groups, self.next_group)
        self.optimizer = torch.optim.AdamW(self.ddp.parameters(), lr=1e-5, fused=True)
        self.accelerator = None
        self.samples = []
        if row.get("way") == "accumulate":
            self.use_accelerate()

    @staticmethod
    def next_group(groups, bucket):
        data = bucket.buffer()
        work = dist.all_reduce(data, group=groups[bucket.index() % len(groups)], async_op=True)
        return work.get_future().then(lambda f: f.value()[0].div_(world))

    def use_accelerate(self):
        os.environ["ACCELERATE_USE_CPU"] = "true"
        from accelerate import Accelerator

        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=self.row["micro_batches"])
        model = make(self.row)[0]  # the other one has DDP's hooks already
        self.ddp, self.optimizer = self.accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True))

    def micro_batch(self, sync, t):
        """Adds forward, backward and exposed communication to t."""
        improper = self.row.get("way") == "no_sync improperly"
        begin = time.perf_counter()
        if self.accelerator:
            whole = self.accelerator.accumulate(self.ddp)
        else:
            whole = contextlib.nullcontext() if sync or improper else self.ddp.no_sync()
        with whole:
            loss = nn.functional.cross_entropy(self.ddp(*self.inputs), self.targets)
            loss.register_hook(note_end)
            middle = time.perf_counter()
            with self.ddp.no_sync() if improper and not sync else contextlib.nullcontext():
                self.accelerator.backward(loss) if self.accelerator else loss.backward()
        end = time.perf_counter()
        t[0] += middle - begin
        t[1] += done[-1] - middle
        t[2] += end - done[-1]

    def without_overlap(self, t):
        begin = time.perf_counter()
        with self.ddp.no_sync():
            loss = nn.functional.cross_entropy(self.ddp(*self.inputs), self.targets)
            middle = time.perf_counter()
            loss.backward()
        end = time.perf_counter()
        works = [dist.all_reduce(p.grad, async_op=True) for p in self.model.parameters()]
        for work, p in zip(works, self.model.parameters()):
            work.wait()
            p.grad.div_(world)
        t[0] += middle - begin
        t[1] += end - middle
        t[2] += time.perf_counter() - end

    def step(self):
        t, row = [0.0] * 3, self.row
        begin = time.perf_counter()
        for i in range(row["micro_batches"]):
            if not row["overlap"]:
                self.without_overlap(t)
            else:
                self.micro_batch(row["sync_each"] or i + 1 == row["micro_batches"], t)
            if self.accelerator and i + 1 < row["micro_batches"]:
                self.optimizer.step()  # does nothing but in the last
        update = time.perf_counter()
        self.optimizer.step()
        self.optimizer.zero_grad()
        end = time.perf_counter()
        return [1e3 * x for x in (end - begin, *t, end - update)]

    def turn(self, steps, warm):
        for i in range(-warm, steps):
            sample = self.step()
            if i >= 0:
                self.samples.append(sample)

    def figures(self):
        n = len(self.samples)
        middle = sorted(self.samples)[n // 3:n - n // 3]
        step, forward, backward, exposed, update = (statistics.fmean(x) for x in zip(*middle))
        sd = statistics.stdev(s[0] for s in self.samples) if n > 1 else 0.0
        return dict(step_ms=step, step_sd_ms=sd, forward_ms=forward, backward_ms=backward, communication_ms=exposed, update_ms=update)


def measure_steps(rows):
    each = -(-setup["steps"] // PASSES)
    ways = []
    for number, row in rows:
        try:
            ways.append((number, Way(row)))
        except ImportError:
            pass  # accelerate is not installed
    for turn in range(PASSES):
        for _, way in ways:
            way.turn(each, 1 if turn else 3)  # buckets are rebuilt in the second step
    for number, way in ways:
        say(row=number, **way.figures())


def measure_allreduce(rows):
    total = rows[0][1]["elements"]
    data = torch.ones(total)
    times = {number: [] for number, _ in rows}
    for turn in range(4):
        for number, row in rows:
            data.fill_(1)
            dist.barrier()
            begin = time.perf_counter()
            for work in [dist.all_reduce(part, async_op=True) for part in data.split(row["elements_per_call"])]:
                work.wait()
            if turn:
                times[number].append((time.perf_counter() - begin) * 1e3)
    for number, _ in rows:
        low, middle, high = sorted(times[number])
        say(row=number, ms=middle, p25_ms=low, p75_ms=high)


def measure_ready(number, row, rounds=5):
    model, inputs, targets = make(row)
    order, times, begin = [], [], 0.0

    def note(p):
        order.append(p.numel())
        times[-1].append((time.perf_counter() - begin) * 1e3)

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(note)
    for _ in range(rounds + 1):
        loss = nn.functional.cross_entropy(model(*inputs), targets)
        order.clear()
        times.append([])
        begin = time.perf_counter()
        loss.backward()
        model.zero_grad()
    sums = [sum(order[: i + 1]) for i in range(len(order))]
    say(row=number, elements=sums, ms=[statistics.median(x) for x in zip(*times[1:])])


say(peer=f"torch {torch.__version__}")
rows = setup["rows"]
if any(r["part"] == "allreduce" for _, r in rows):
    measure_allreduce([r for r in rows if r[1]["part"] == "allreduce"])
for number, row in rows:
    if row["part"] == "ready":
        measure_ready(number, row)
for model in ("resnet", "bert"):
    mine = [r for r in rows if r[1].get("model") == model and r[1]["part"] != "ready"]
    if mine:
        measure_steps(mine)
dist.barrier()
dist.destroy_process_group()
