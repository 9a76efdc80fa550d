"""DataParallel: gradients that are reduced by liblockstep's reducer (lockstep/ddp.h), with the same bits on any number of ranks.

Each micro-batch's backward writes fresh gradients; a hook hands each one to the reducer as it becomes ready, which adds micro-batches and ranks
in one fixed order. DistributedDataParallel cannot do that: it adds micro-batches in .grad, from left to right, and divides before it adds."""

import ctypes
import math

import torch
import torch.distributed as dist
from torch import nn

from . import _backend, _sampler, _world
from . import _library as ls
from ._library import lib


def _world_of_this_process():
    if dist.is_available() and dist.is_initialized():
        group = dist.group.WORLD
        if isinstance(group, _backend.LockstepProcessGroup):
            return group._world
        if group.size() > 1:
            raise RuntimeError(
                f'lockstep_torch.DataParallel needs init_process_group("lockstep"); the backend is {dist.get_backend()}'
            )
    return _world.World(dist.HashStore(), 0, 1, 30 * 60 * 1000)


class DataParallel(nn.Module):
    """Trains `module` on all ranks, with a step of `slots` micro-batches.

        model = lockstep_torch.DataParallel(model, slots=4)       # 4 on one rank, 2 on each of two, 1 on each of four
        for x, y in my_micro_batches:
            loss = cross_entropy(model(x), y)                      # the mean over the micro-batch
            if model.backward(loss, weight=len(x)):                # True: it was the last one of the step, .grad is the mean over all
                optimizer.step()
                optimizer.zero_grad()

    After the last micro-batch of a step, .grad is the mean over all samples of all micro-batches and ranks, weighted exactly. There is no no_sync():
    the number of micro-batches decides. Weights have the same bits on any number of ranks from 1 to the slots, of which each rank has a run, as
    even as possible: from first_slot on, slots_of_rank of them. What must be the same for that: the micro-batches (lockstep_torch.Sampler),
    torch.get_num_threads() and the machine.

    slots         micro-batches of a step over all ranks; default: one per rank
    loss_is       "mean" (over the micro-batch) or "sum"
    any_order     add up each rank's micro-batches first: less memory where slots are not spread evenly; bits depend on the number of ranks
    bucket_bytes  a bucket is reduced when it has this much; default: what the library chooses

    Parameters and buffers are rank 0's at the start. Buffers (running statistics of batch norms) are rank 0's after each step: of those bits depend on
    the number of ranks."""

    def __init__(self, module, slots=None, *, loss_is="mean", any_order=False, bucket_bytes=0):
        super().__init__()
        if loss_is not in ("mean", "sum"):
            raise ValueError(f'lockstep_torch.DataParallel: loss_is is {loss_is!r}; use "mean" or "sum"')
        self.module = module
        self._world = _world_of_this_process()
        ranks = self._world.size
        self.slots = ranks if slots is None else slots
        if self.slots < ranks:
            raise ValueError(f"lockstep_torch.DataParallel: {self.slots} slots cannot be spread over {ranks} ranks; each needs at least one")
        self.first_slot, self.slots_of_rank = _sampler.slots_of_rank(self.slots, ranks, self._world.rank)
        self._names, self._trained = [], []
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                continue
            if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
                raise ValueError(
                    f"lockstep_torch.DataParallel: {name} is {parameter.dtype} on {parameter.device}; parameters must be float32 on the CPU"
                )
            self._names.append(name)
            self._trained.append(parameter)
        if not self._trained:
            raise ValueError("lockstep_torch.DataParallel: no parameter of the module requires a gradient")
        self._open(any_order, loss_is == "mean", bucket_bytes)
        self._slot = 0
        self._under_way = False
        self._error = None
        self._hooks = [p.register_post_accumulate_grad_hook(self._hook(i)) for i, p in enumerate(self._order)]
        self._make_equal(list(module.parameters()) + list(module.buffers()))

    def _open(self, any_order, averaged, bucket_bytes):
        # Backward is expected to finish the last parameters first.
        self._order = self._trained[::-1]
        names = self._names[::-1]
        spans = (ls.Span * len(self._order))(*[ls.Span(n.encode(), None, p.numel()) for n, p in zip(names, self._order)])
        options = ls.DdpOptions(
            bucket_bytes=bucket_bytes,
            slots=self.slots,
            sum_order=ls.SUM_ORDER_ANY if any_order else ls.SUM_ORDER_CANONICAL,
            grads_averaged=averaged,
            fixed_order=True,
        )
        self._ddp = ctypes.c_void_p()
        ls.check(lib.ls_ddp_open(self._ddp, self._world.handle, spans, len(self._order), options))
        places = [lib.ls_ddp_grad(self._ddp, i) for i in range(len(self._order))]
        self._grads = [
            torch.frombuffer((ctypes.c_float * p.numel()).from_address(place), dtype=torch.float32).view(p.shape)
            if p.numel()
            else torch.empty_like(p)
            for p, place in zip(self._order, places)
        ]

    def _make_equal(self, tensors):
        if self._world.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), 0)

    def _hook(self, index):
        def ready(parameter):
            if not self._under_way:
                return  # a backward of the program's own
            self._grads[index].copy_(parameter.grad)
            parameter.grad = None
            ls.check(lib.ls_ddp_ready(self._ddp, index))

        return ready

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def backward(self, loss, weight=1.0):
        """Backward of one micro-batch, which counts `weight` (samples, tokens). loss None: this rank has no data for it.

        Returns whether it was the last one of the step: .grad of all parameters is then the mean over all micro-batches of all ranks, and
        whatever was in .grad before is gone."""
        if self._error is not None:
            raise RuntimeError(f"lockstep_torch.DataParallel: an earlier step failed: {self._error}")
        if loss is None:
            weight = 0.0
        elif not (weight > 0 and math.isfinite(weight)):
            raise ValueError(f"lockstep_torch.DataParallel: weight is {weight}; must be a positive number")
        last = self._slot == self.slots_of_rank - 1
        mode = ls.DDP_SYNC if last else ls.DDP_ACCUMULATE
        for parameter in self._order:
            parameter.grad = None
        result = ls.DdpResult()
        try:
            ls.check(lib.ls_ddp_begin(self._ddp, mode, weight))
            self._under_way = True
            try:
                if loss is not None:
                    loss.backward()
            finally:
                self._under_way = False
            ls.check(lib.ls_ddp_finish(self._ddp, result))
        except BaseException as error:
            self._error = error
            if not isinstance(error, ls.LockstepError):  # the others wait for this rank
                lib.ls_group_abort(self._world.all, f"backward failed: {error}".encode()[:300])
            raise
        self._slot = 0 if last else self._slot + 1
        if last:
            for index, parameter in enumerate(self._order):
                parameter.grad = None if lib.ls_ddp_unused(self._ddp, index) else self._grads[index]
            self._make_equal(list(self.module.buffers()))
        self.weight = result.weight if last else None
        return last

    def __del__(self):
        if getattr(self, "_ddp", None) and lib is not None and self._world.handle:  # None: Python ends
            for parameter in self._order:
                parameter.grad = None  # it is memory of the world
            lib.ls_ddp_free(self._ddp)
