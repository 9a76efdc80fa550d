"""Synthetic traces as Kineto writes them, with all times known: data-parallel training on Gloo (CPU) or NCCL (GPU)."""
import gzip
import json
import random

BASE = 1790857026000000000  # what Kineto subtracts, ns
START = 3994260000000000    # of the job, ns from there


class Rank:
    """One rank's events; times are ns since the job began, on the true clock."""

    def __init__(self, rank, ranks, ahead=0, drift=0.0, host=None, gpu=False):
        self.rank, self.ranks, self.ahead, self.drift, self.gpu = rank, ranks, ahead, drift, gpu
        self.host = host or f"node{rank}"
        self.events = []
        self.arrivals = []  # of collectives, true

    def clock(self, ns):
        return int(START + ns + self.ahead + ns * self.drift)

    def add(self, cat, name, begin, end, tid=100, pid=100, args=None):
        b, e = self.clock(begin), self.clock(end)
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": b, "dur": max(0, e - b),
                            "args": args or {}})

    def text(self, indent=1, info=True):
        head = {"schemaVersion": 1, "deviceProperties": []}
        if info:
            head["distributedInfo"] = {
                "backend": "nccl" if self.gpu else "gloo", "rank": self.rank, "world_size": self.ranks, "pg_count": 1,
                "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": self.ranks,
                               "ranks": list(range(self.ranks))}]}
        head.update({"host_name": self.host, "displayTimeUnit": "ms", "baseTimeNanoseconds": BASE})
        out = ["{"]
        out += [f'  "{k}": {json.dumps(v)},' for k, v in head.items()]
        out.append('  "traceEvents": [')
        rows = []
        for e in sorted(self.events, key=lambda e: (e["ts"], -e["dur"])):
            e = dict(e)
            ts, dur = e.pop("ts"), e.pop("dur")
            body = json.dumps(e)[:-1]
            rows.append(f'  {body}, "ts": {ts // 1000}.{ts % 1000:03d}, "dur": {dur // 1000}.{dur % 1000:03d}}}')
        out.append(",\n".join(rows))
        out.append(f'  ], "traceName": "rank{self.rank}.json"\n}}\n')
        return "\n".join(out)

    def write(self, path, **options):
        data = self.text(**options).encode()
        if path.endswith(".gz"):
            data = gzip.compress(data, 1)
        with open(path, "wb") as f:
            f.write(data)
        return path


MS = 1000000
PHASES = {"data": 2 * MS, "forward": 5 * MS, "backward": 8 * MS, "update": 3 * MS}


def gloo_job(ranks=2, steps=12, delay=None, clocks=None, profiler_steps=True, accumulate=1, buckets=2, seed=1, shapes=True,
             hosts=None, noise=0.02, jitter=30000):
    """delay: (rank, phase, ns, every) adds to a phase. clocks: per rank (ns ahead, drift). jitter: ns by which ranks learn of a collective's
    end at different times. Returns the ranks."""
    random.seed(seed)
    jobs = [Rank(r, ranks, *(clocks[r] if clocks else (0, 0.0)), host=hosts[r] if hosts else None) for r in range(ranks)]
    now = [1000 * MS + random.randrange(100000) for _ in range(ranks)]

    def took(r, phase, step):
        ns = PHASES[phase] * (1 + noise * random.random())
        if delay and delay[0] == r and delay[1] == phase and step % delay[3] == 0:
            ns += delay[2]
        return int(ns)

    for step in range(steps):
        began = list(now)
        for micro in range(accumulate):
            calls = [[] for _ in range(ranks)]
            ends = [0] * ranks
            for r, job in enumerate(jobs):
                t = now[r]
                d = took(r, "data", step) if micro == 0 else PHASES["data"]
                job.add("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t, t + d)
                t += d + 20000
                f = took(r, "forward", step) if micro == 0 else PHASES["forward"]
                job.add("user_annotation", "DistributedDataParallel.forward", t, t + f)
                job.add("cpu_op", "aten::linear", t + 5000, t + f // 2)
                job.add("cpu_op", "aten::addmm", t + 6000, t + f // 3)
                job.add("cpu_op", "aten::gelu", t + f // 2 + 1000, t + f - 1000)
                t += f + 15000
                job.add("cpu_op", "aten::cross_entropy_loss", t, t + 40000)
                t += 60000
                b = took(r, "backward", step) if micro == 0 else PHASES["backward"]
                for k in range(buckets):
                    end = t + b * (k + 1) // buckets
                    begin = t + b * k // buckets
                    job.add("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", begin + 1000, end - 90000)
                    job.add("cpu_op", "AddmmBackward0", begin + 2000, end - 91000)
                    job.add("cpu_op", "aten::mm", begin + 3000, end - 92000)
                    if micro == accumulate - 1:
                        job.add("cpu_op", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", end - 85000,
                                end - 5000)
                        args = {"Input Dims": [[[250000]], [], []], "Input type": ["TensorList", "", ""]} if shapes else {}
                        job.add("cpu_op", "c10d::allreduce_", end - 50000, end - 10000, args=args)
                        calls[r].append(end - 50000)
                ends[r] = t + b
            if micro < accumulate - 1:
                now = [e + 10000 for e in ends]
                continue
            free = [0] * ranks
            for k in range(buckets):
                last = max(calls[r][k] for r in range(ranks))
                for r, job in enumerate(jobs):
                    done = max(last, free[r]) + 400000 + random.randrange(jitter)
                    job.add("user_annotation", "gloo:all_reduce", max(calls[r][k], free[r]) + 15000, done, tid=201 + k % 2)
                    job.arrivals.append(calls[r][k])
                    free[r] = done
            for r, job in enumerate(jobs):
                t = max(ends[r], free[r]) + 15000
                job.add("cpu_op", "torch.distributed.ddp.reducer::copy_bucket_to_grad", t, t + 12000)
                job.add("cpu_op", "aten::copy_", t + 1000, t + 11000)
                now[r] = t + 40000
        for r, job in enumerate(jobs):
            u = took(r, "update", step)
            job.add("user_annotation", "Optimizer.step#AdamW.step", now[r], now[r] + u)
            job.add("cpu_op", "aten::_fused_adamw_", now[r] + 1000, now[r] + u - 1000)
            job.add("user_annotation", "Optimizer.zero_grad#AdamW.zero_grad", now[r] + u + 10000, now[r] + u + 30000)
            now[r] += u + 50000
            if profiler_steps:
                job.add("user_annotation", f"ProfilerStep#{step + 3}", began[r], now[r])
            now[r] += 5000
    return jobs


def nccl_job(ranks=2, steps=6, delay=None, names="ncclDevKernel_AllReduce_Sum_f32_RING_LL", sequence=True, clocks=None):
    """A host that launches ahead, kernels after it, all-reduces on a stream of their own. delay: (rank, phase, ns, every)."""
    random.seed(3)
    jobs = [Rank(r, ranks, *(clocks[r] if clocks else (0, 0.0)), gpu=True) for r in range(ranks)]
    host = [1000 * MS] * ranks
    device = [0] * ranks
    seq = 0
    corr = 10
    for step in range(steps):
        began = list(host)
        arrive = [[] for _ in range(ranks)]
        for r, job in enumerate(jobs):
            t = host[r]
            late = {p: (delay[2] if delay and delay[0] == r and delay[1] == p and step % delay[3] == 0 else 0) for p in PHASES}
            job.add("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", t, t + MS + late["data"])
            t += MS + late["data"]
            f0 = t
            for phase, count, length in (("forward", 4, 700000), ("backward", 4, 1200000)):
                if phase == "backward":
                    job.add("user_annotation", "DistributedDataParallel.forward", f0, t)
                t += late[phase]
                for k in range(count):
                    corr += 1
                    if phase == "backward":
                        job.add("cpu_op", "autograd::engine::evaluate_function: MmBackward0", t, t + 60000, tid=101)
                    job.add("cuda_runtime", "cudaLaunchKernel", t + 10000, t + 15000, tid=101 if phase == "backward" else 100,
                            args={"correlation": corr})
                    begin = max(device[r], t + 20000)
                    job.add("kernel", "ampere_sgemm_128x64_nn", begin, begin + length, pid=0, tid=7,
                            args={"correlation": corr, "stream": 7, "device": 0})
                    device[r] = begin + length
                    if phase == "backward" and k % 2:
                        corr += 1
                        args = {"Collective name": "allreduce", "In msg nelems": 1000000, "Out msg nelems": 1000000,
                                "dtype": "Float", "Group size": ranks, "Process Group Name": "0",
                                "Process Group Ranks": str(list(range(ranks)))}
                        if sequence:
                            args["Seq"] = seq + k // 2
                        job.add("cpu_op", "record_param_comms", t + 30000, t + 50000, tid=101, args=args)
                        job.add("cuda_runtime", "cudaLaunchKernelExC", t + 35000, t + 40000, tid=101, args={"correlation": corr})
                        arrive[r].append((device[r] + 2000, corr, args))
                    t += 80000
            host[r] = t
        free = [0] * ranks
        for k in range(2):
            starts = [max(arrive[r][k][0], free[r]) for r in range(ranks)]
            for r, job in enumerate(jobs):
                done = max(starts) + 800000 + random.randrange(5000)
                job.add("kernel", names, starts[r], done, pid=0, tid=20,
                        args={"correlation": arrive[r][k][1], "stream": 20, **arrive[r][k][2]})
                job.arrivals.append(starts[r])
                free[r] = done
        seq += 2
        for r, job in enumerate(jobs):
            corr += 1
            t = max(host[r], free[r] - 300000)
            job.add("user_annotation", "Optimizer.step#AdamW.step", t, t + 200000)
            job.add("cuda_runtime", "cudaLaunchKernel", t + 10000, t + 15000, args={"correlation": corr})
            begin = max(device[r], free[r], t + 20000)
            job.add("kernel", "multi_tensor_apply_kernel<adam>", begin, begin + 500000, pid=0, tid=7,
                    args={"correlation": corr, "stream": 7})
            device[r] = begin + 500000
            host[r] = device[r] + 20000
            job.add("user_annotation", f"ProfilerStep#{step}", began[r], host[r])
            host[r] += 2000
    return jobs
