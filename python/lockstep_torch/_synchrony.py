"""Broken synchronization, found while a job runs.

Two things are looked at, and neither asks anything of other ranks that they might not answer. Gradients: which parameters' gradients this
rank computed since they were last reduced; an optimizer step on such is a step on its own. Parameters: every so many steps each rank puts
a sum over the bits of its DDP parameters into the job's store, and compares the one of the rank before it when that has come. All ranks
do the same, so that none is late by it."""

import itertools
import json
import os
import struct
import time
import warnings

import torch
import torch.distributed as dist

from . import _library as ls


_sessions = itertools.count()  # a job may record several times, and has one store


class SynchronizationWarning(UserWarning):
    """Ranks no longer train one model."""


def warn(folder, text):
    """Keeps the warning with the run, and warns."""
    rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else int(os.environ.get("RANK", 0))
    try:
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"warnings-{rank}.jsonl"), "a") as file:
            file.write(json.dumps({"time": time.time(), "rank": rank, "warning": text}) + "\n")
    except OSError:
        pass  # a full disk must not end a training run
    warnings.warn(f"lockstep_torch: {text}", SynchronizationWarning, stacklevel=2)


def _is_plain(parameter):
    """Not a part of a parameter, as FSDP and tensor parallelism have them: those differ from rank to rank."""
    return type(parameter) in (torch.nn.Parameter, torch.Tensor) and parameter.device.type != "meta"


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def digest(parameter):
    """A sum over the bits of a parameter, the same if all values are."""
    data = parameter.detach().contiguous().reshape(-1)
    if data.is_complex():
        data = torch.view_as_real(data).reshape(-1)
    return int(data.view(_INTEGERS[data.element_size()]).sum(dtype=torch.int64))


class Checker:
    def __init__(self, recorder):
        self._recorder = recorder
        self.local = set()  # spans with a gradient that was not reduced since
        self._names, self._parameters = {}, {}
        self._reducers = {}  # id of its group: (group, ids of its parameters)
        self._synced = set()  # groups whose reducer ran in this backward
        self._unseen = set()  # ids of parameters that a DDP will reduce in the next backward, which was made before the recorder
        self._others_bytes = 0  # reduced in other ways since the last optimizer step
        self._no_sync = False  # the last forward was one under no_sync()
        self._ddp = []  # parameters of all DDP modules
        self._warned = set()
        self._waiting = []  # steps, and this rank's sums, that have not been compared
        self._steps = 0
        self._session = next(_sessions)

    # ---- Gradients.

    def add(self, index, name, parameter):
        self._names[index], self._parameters[index] = name, parameter

    def add_reducer(self, group, parameters):
        known = self._reducers.get(id(group), (group, set()))[1]
        self._reducers[id(group)] = group, known | {id(p) for p in parameters}
        known = {id(p) for p in self._ddp}
        self._ddp += [p for p in parameters if _is_plain(p) and id(p) not in known]

    def before_forward(self, module):
        module = getattr(module, "_orig_mod", module)  # what torch.compile makes has the module in it
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            self._no_sync = not module.require_backward_grad_sync
            if not self._no_sync:
                ids = {id(p) for p in module.parameters()}
                if not any(ids & known for _, known in self._reducers.values()):
                    self._unseen |= ids

    def bucket_reduced(self, group):
        self._synced.add(id(group))

    def reduced(self, kind, size):
        if kind in (ls.COLLECTIVE_ALLREDUCE, ls.COLLECTIVE_REDUCE_SCATTER, ls.COLLECTIVE_REDUCE):
            self._others_bytes += size

    def parameters_reduced(self, parameters):
        """By lockstep_torch.DataParallel."""
        ids = set(map(id, parameters))
        self.local = {i for i in self.local if id(self._parameters[i]) not in ids}

    def after_backward(self):
        if self._unseen:
            self.local = {i for i in self.local if id(self._parameters[i]) not in self._unseen}
            self._unseen = set()
        for key in self._synced:
            parameters = self._reducers[key][1] if key in self._reducers else ()
            self.local = {i for i in self.local if id(self._parameters[i]) not in parameters}
        if self._synced:
            self._others_bytes = 0  # it was the buckets
        self._synced.clear()

    def before_update(self, optimizer, step):
        local, self.local = self.local, set()
        others, self._others_bytes = self._others_bytes, 0
        if not local or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() < 2:
            return
        own = {id(p) for group in optimizer.param_groups for p in group["params"]}
        local = sorted(i for i in local if id(self._parameters[i]) in own and _is_plain(self._parameters[i]))
        size = sum(self._parameters[i].numel() * self._parameters[i].element_size() for i in local)
        if not local or 2 * others >= size:  # reduced by the program itself, as it seems
            return
        covered = any(id(self._parameters[i]) in ids for i in local for _, ids in self._reducers.values())
        if not covered:
            reason = "nothing reduces them; wrap the model in DistributedDataParallel, or reduce them before optimizer.step()"
        elif self._no_sync:
            reason = (
                "the forward before the last backward was under no_sync(); leave the last micro-batch of a step, its forward as well "
                "as its backward, outside of no_sync()"
            )
        else:
            reason = "the last forward did not go through DistributedDataParallel; call the wrapped model, not its .module"
        key = "gradients", reason
        if key in self._warned:
            return
        self._warned.add(key)
        more = f" and {len(local) - 1} more" if len(local) > 1 else ""
        self._recorder.warn(
            f"rank {dist.get_rank()}, step {step}: optimizer.step() uses gradients that this rank computed alone "
            f"({self._names[local[0]]}{more}): {reason}"
        )

    # ---- Parameters.

    def after_step(self, step):
        """Compares at steps 1, 2, 4, 8, 16, 32 and then every 50."""
        self._steps = step
        due = step % 50 == 0 or (step < 50 and step & (step - 1) == 0)
        if (not due and not self._waiting) or not self._ddp or not dist.is_initialized() or dist.get_world_size() < 2:
            return
        with self._recorder.own_work():
            self._compare()
            if due:
                self._publish(step)

    def close(self):
        try:
            if self._waiting and dist.is_initialized():
                self._compare()
        except Exception:  # the store may be gone by now, in whatever way its kind goes
            pass

    def _key(self, step, rank):
        return f"lockstep_torch/parameters/{self._session}/{step}/{rank}"

    def _publish(self, step):
        sums = struct.pack(f"<{len(self._ddp)}q", *[digest(p) for p in self._ddp])
        dist.distributed_c10d._get_default_store().set(self._key(step, dist.get_rank()), sums.hex())
        self._waiting.append((step, sums))

    def _compare(self):
        """Compares this rank's sums with those of the rank before it for steps in which they have come."""
        store, other = dist.distributed_c10d._get_default_store(), (dist.get_rank() or dist.get_world_size()) - 1
        while self._waiting:
            step, own = self._waiting[0]
            key = self._key(step, other)
            if not store.check([key]):
                del self._waiting[:-4]  # a rank that makes fewer steps than others never comes
                return
            self._waiting.pop(0)
            sums = bytes.fromhex(store.get(key).decode())
            store.delete_key(key)  # nobody else reads it
            if sums != own:
                self._report(step, other, sums, own)

    def _report(self, step, other, sums, own):
        if "parameters" in self._warned:
            return
        self._warned.add("parameters")
        rank = dist.get_rank()
        theirs, ours = (struct.unpack(f"<{len(s) // 8}q", s) for s in (sums, own))
        if len(ours) != len(theirs):
            text = f"rank {other} has {len(theirs)} parameters in DistributedDataParallel and rank {rank} {len(ours)}"
        else:
            differ = [i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b]
            by_id = {id(p): self._names[i] for i, p in self._parameters.items()}
            name = by_id.get(id(self._ddp[differ[0]]), f"parameter {differ[0]}")
            text = f"{len(differ)} of {len(ours)} parameters differ between rank {min(rank, other)} and rank {max(rank, other)}, the first is {name}"
        self._recorder.warn(
            f"after step {step} {text}: the ranks no longer train one model; look for a step in which not all of them reduced their gradients, "
            "or for a change to parameters on one rank alone"
        )
