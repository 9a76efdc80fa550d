"""DataParallel: gradients that are reduced by liblockstep's reducer (lockstep/ddp.h), with the same bits on any number of ranks.

Each micro-batch's backward writes fresh gradients; a hook hands each one to the reducer as it becomes ready, which adds micro-batches and ranks
in one fixed order. DistributedDataParallel cannot do that: it adds micro-batches in .grad, from left to right, and divides before it adds."""

import ctypes
import math
import sys

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


class _Buffers:
    """The buffers of a module as they were at the beginning of a step. Batch norms change theirs without counting it as a change, so that all are copied."""

    def __init__(self, module):
        self._module = module
        self._before = None  # by name
        self._of_slot_0 = {}

    def begin(self):
        """Before a forward; of those of a step, before the first one."""
        if self._before is None:
            self._before = {name: buffer.detach().clone() for name, buffer in self._module.named_buffers()}

    def end_micro_batch(self, slot):
        """After its backward: all are as before it."""
        if self._before is not None:
            if slot == 0:
                self._of_slot_0 = {name: buffer.detach().clone() for name, buffer in self._module.named_buffers()}
            self._set(self._before)

    def end_step(self):
        """On the rank that has slot 0: all are as it left them."""
        self._set(self._of_slot_0)
        self._before, self._of_slot_0 = None, {}

    def _set(self, values):
        with torch.no_grad():
            for name, buffer in self._module.named_buffers():
                if name in values and values[name].shape == buffer.shape:
                    buffer.copy_(values[name])


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

    Parameters and buffers are rank 0's at the start. Every micro-batch finds the buffers (running statistics of batch norms) as they were at the
    beginning of the step, and after the step all ranks have those that slot 0 left: as with DistributedDataParallel, statistics are of one
    micro-batch per step, and their bits do not depend on the number of ranks either."""

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
        self._buffers_of_step = _Buffers(module)
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

    def _check_parameters(self):
        known = set(map(id, self._order))
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad and id(parameter) not in known:
                raise RuntimeError(
                    f"lockstep_torch.DataParallel: {name} requires a gradient, but did not, or was not there, when the model was wrapped; wrap the "
                    "model again after such a change"
                )

    def _hook(self, index):
        def ready(parameter):
            if not self._under_way:
                return  # a backward of the program's own
            if index in self._handed_over:
                raise RuntimeError(
                    f"lockstep_torch.DataParallel: {self._names[-1 - index]} got another gradient after its last one, as with checkpoint(..., "
                    "use_reentrant=True) of a parameter that is also used elsewhere; use use_reentrant=False"
                )
            if index in self._deferred or torch._C._current_graph_task_id() != self._backward_task:
                self._deferred[index] = None  # a backward within the backward, of a checkpoint: another one may add to it
            else:
                self._hand_over(index)

        return ready

    def _hand_over(self, index):
        self._handed_over.add(index)
        parameter = self._order[index]
        self._grads[index].copy_(parameter.grad)
        parameter.grad = None
        ls.check(lib.ls_ddp_ready(self._ddp, index))

    def _run_backward(self, loss):
        def begins(_):
            self._backward_task = torch._C._current_graph_task_id()

        self._handed_over, self._deferred = set(), {}
        hook = loss.register_hook(begins) if loss.requires_grad else None
        self._under_way = True
        try:
            loss.backward()
        finally:
            self._under_way = False
            if hook is not None:
                hook.remove()
        for index in self._deferred:
            self._hand_over(index)

    def forward(self, *args, **kwargs):
        if self.slots_of_rank > 1 and self.training and torch.is_grad_enabled():
            self._buffers_of_step.begin()
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
        if self._slot == 0:
            self._check_parameters()
        last = self._slot == self.slots_of_rank - 1
        mode = ls.DDP_SYNC if last else ls.DDP_ACCUMULATE
        for parameter in self._order:
            parameter.grad = None
        result = ls.DdpResult()
        try:
            ls.check(lib.ls_ddp_begin(self._ddp, mode, weight))
            if loss is not None:
                self._run_backward(loss)
            ls.check(lib.ls_ddp_finish(self._ddp, result))
        except BaseException as error:
            self._error = error
            if not isinstance(error, ls.LockstepError):  # the others wait for this rank
                lib.ls_group_abort(self._world.all, f"backward failed: {error}".encode()[:300])
            raise
        self._buffers_of_step.end_micro_batch(self.first_slot + self._slot)
        self._slot = 0 if last else self._slot + 1
        if last:
            for index, parameter in enumerate(self._order):
                parameter.grad = None if lib.ls_ddp_unused(self._ddp, index) else self._grads[index]
            self._tell_recorder()
            self._buffers_of_step.end_step()
            self._make_equal(list(self.module.buffers()))
        self.weight = result.weight if last else None
        return last

    def _tell_recorder(self):
        record = sys.modules.get(f"{__package__}._record")
        recorder = record and record._active
        if recorder and recorder.synchrony:
            recorder.synchrony.parameters_reduced(self._order)

    def __del__(self):
        if getattr(self, "_ddp", None) and lib is not None and self._world.handle:  # None: Python ends
            for parameter in self._order:
                parameter.grad = None  # it is memory of the world
            lib.ls_ddp_free(self._ddp)
