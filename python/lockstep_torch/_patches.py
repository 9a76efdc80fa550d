"""What the recorder hooks into. Each function here knows one place of torch; install() returns how to undo all of them."""

import os
import sys
import weakref

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from . import _compiler
from . import _library as ls


def _replace(owner, name, make):
    """Sets owner.name to make(original). Returns what undoes it."""
    original = getattr(owner, name)
    inherited = name not in vars(owner)
    before = vars(owner).get(name)  # as it is in the class: what getattr() returns would no longer become a method
    replacement = make(original)
    replacement.__name__ = getattr(original, "__name__", name)
    replacement.__doc__ = getattr(original, "__doc__", None)
    setattr(owner, name, replacement)

    def undo():
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    return undo


def _bytes(tensors):
    if isinstance(tensors, torch.Tensor):
        return tensors.numel() * tensors.element_size()
    if isinstance(tensors, (list, tuple)):
        return sum(_bytes(t) for t in tensors)
    return 0


# Method of ProcessGroup: kind, which argument is this rank's data.
_METHODS = {
    "allreduce": (ls.COLLECTIVE_ALLREDUCE, 0),
    "allreduce_coalesced": (ls.COLLECTIVE_ALLREDUCE, 0),
    "broadcast": (ls.COLLECTIVE_BROADCAST, 0),
    "reduce": (ls.COLLECTIVE_REDUCE, 0),
    "allgather": (ls.COLLECTIVE_ALLGATHER, 1),
    "allgather_coalesced": (ls.COLLECTIVE_ALLGATHER, 1),
    "_allgather_base": (ls.COLLECTIVE_ALLGATHER, 1),
    "all_gather_single": (ls.COLLECTIVE_ALLGATHER, 1),
    "allgather_into_tensor_coalesced": (ls.COLLECTIVE_ALLGATHER, 1),
    "all_gather_single_coalesced": (ls.COLLECTIVE_ALLGATHER, 1),
    "gather": (ls.COLLECTIVE_GATHER, 1),
    "scatter": (ls.COLLECTIVE_SCATTER, 0),
    "reduce_scatter": (ls.COLLECTIVE_REDUCE_SCATTER, 1),
    "_reduce_scatter_base": (ls.COLLECTIVE_REDUCE_SCATTER, 1),
    "reduce_scatter_single": (ls.COLLECTIVE_REDUCE_SCATTER, 1),
    "reduce_scatter_tensor_coalesced": (ls.COLLECTIVE_REDUCE_SCATTER, 1),
    "reduce_scatter_single_coalesced": (ls.COLLECTIVE_REDUCE_SCATTER, 1),
    "alltoall": (ls.COLLECTIVE_ALLTOALL, 1),
    "alltoall_base": (ls.COLLECTIVE_ALLTOALL, 1),
    "all_to_all_single": (ls.COLLECTIVE_ALLTOALL, 1),
    "barrier": (ls.COLLECTIVE_BARRIER, None),
}


def _watch_collectives(recorder):
    undo = []

    def method(kind, place):
        def make(original):
            def call(group, *args, **kwargs):
                size = _bytes(args[place]) if place is not None and len(args) > place else 0
                if recorder.synchrony:
                    recorder.synchrony.reduced(kind, size)
                return recorder.call(kind, group, size, original, args, kwargs)

            return call

        return make

    for name, (kind, place) in _METHODS.items():
        if hasattr(c10d.ProcessGroup, name):
            undo.append(_replace(c10d.ProcessGroup, name, method(kind, place)))

    def make_wait(original):
        def wait(work, *args, **kwargs):
            return recorder.wait(original, work, args, kwargs)

        return wait

    undo.append(_replace(c10d.Work, "wait", make_wait))

    # What DDP does at its start and, for buffers, before forward; in C++.
    def make_coalesced(original):
        def broadcast(group, tensors, *args, **kwargs):
            return recorder.blocking_call(
                ls.COLLECTIVE_BROADCAST, group, _bytes(tensors), original, (group, tensors, *args), kwargs
            )

        return broadcast

    undo.append(_replace(dist, "_broadcast_coalesced", make_coalesced))
    return undo


class _ForwardingGroup(c10d.ProcessGroup):
    """What DDP's reducer gets instead of its group: its calls go through Python, where they are seen, to the group itself."""

    def __init__(self, group, recorder):
        super().__init__(group.rank(), group.size())
        self._group, self._recorder = group, weakref.ref(recorder)

    def allreduce(self, tensors, opts):
        work = self._group.allreduce(tensors, opts)
        recorder = self._recorder()
        if recorder is not None:
            recorder.bucket_starts()
            if recorder.synchrony:
                recorder.synchrony.bucket_reduced(self)
        return work

    def broadcast(self, tensors, opts):
        return self._group.broadcast(tensors, opts)

    def allgather(self, outputs, inputs, opts):
        return self._group.allgather(outputs, inputs, opts)

    def barrier(self, opts):
        return self._group.barrier(opts)

    def getBackendName(self):
        return "forwarding"  # with the name of a backend of torch's, DDP's logger would ask for that backend itself

    def getGroupName(self):
        return self._group.group_name

    def getGroupDesc(self):
        return self._group.group_desc


def _watch_reducers(recorder):
    def make(original):
        def reducer(params, bucket_indices, sizes, process_group, *args, **kwargs):
            if type(process_group) is c10d.ProcessGroup and not recorder._borrowed:
                process_group = _ForwardingGroup(process_group, recorder)
            elif hasattr(process_group, "on_bucket"):  # backend lockstep
                process_group.on_bucket = weakref.WeakMethod(recorder.bucket_reduced)
            if recorder.synchrony:
                recorder.synchrony.add_reducer(process_group, params)
            return original(params, bucket_indices, sizes, process_group, *args, **kwargs)

        return reducer

    return [_replace(dist, "Reducer", make)]


def _watch_loop(recorder):
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    def make_next(original):
        def __next__(iterator):
            return recorder.next_batch(original, iterator)

        return __next__

    def make_backward(original):
        def backward(*args, **kwargs):
            return recorder.backward(original, args, kwargs)

        return backward

    before = optimizer.register_optimizer_step_pre_hook(lambda opt, args, kwargs: recorder.update_begins(opt))
    after = optimizer.register_optimizer_step_post_hook(lambda opt, args, kwargs: recorder.update_ends(opt))
    return [
        _replace(dataloader._BaseDataLoaderIter, "__next__", make_next),
        _replace(torch.autograd, "backward", make_backward),
        before.remove,
        after.remove,
    ]


def _forward_hooks(recorder):
    """They do nothing where torch.compile makes a graph of them: it could not, and a program may have told it to fail then."""

    def before(module, args):
        if not torch.compiler.is_compiling():
            recorder.forward_begins(module)

    def after(module, args, output):
        if not torch.compiler.is_compiling():
            recorder.forward_ends(module)

    return before, after


def _watch_modules(recorder):
    """Global hooks, until watch_roots() knows which modules the loop calls itself."""
    module, (begins, ends) = torch.nn.modules.module, _forward_hooks(recorder)
    before = module.register_module_forward_pre_hook(begins)
    after = module.register_module_forward_hook(ends, always_call=True)
    recorder._discovery = [before, after]

    def make_compile(original):
        def compile(module, *args, **kwargs):
            """A module that is compiled in place has its hooks compiled with it: the call is watched from outside."""
            original(module, *args, **kwargs)
            compiled = module._compiled_call_impl

            def call(*args, **kwargs):
                if recorder.closed or torch.compiler.is_compiling():
                    return compiled(*args, **kwargs)
                recorder.forward_begins(module)
                try:
                    return compiled(*args, **kwargs)
                finally:
                    recorder.forward_ends(module)

            module._compiled_call_impl = call

        return compile

    return [before.remove, after.remove, _replace(torch.nn.Module, "compile", make_compile)]


def watch_roots(recorder):
    """From now on only the modules that were called from outside of any module have hooks: a hook for all costs at every layer."""
    for handle in recorder._discovery:
        handle.remove()
    recorder._discovery = []
    begins, ends = _forward_hooks(recorder)
    for root in recorder._roots:
        before = root.register_forward_pre_hook(begins, prepend=True)
        after = root.register_forward_hook(ends, always_call=True)
        recorder._undo += [before.remove, after.remove]


def batches_ready(iterator):
    """How many batches of a DataLoader with workers are there already."""
    try:
        arrived = sum(len(info) > 1 for info in iterator._task_info.values())
        return arrived + iterator._data_queue.qsize()
    except (AttributeError, NotImplementedError):
        return 0


def open_world():
    """The world that backend "lockstep" opened, or None."""
    worlds = sys.modules.get("lockstep_torch._world")
    return worlds.newest() if worlds else None


def install(recorder):
    _compiler.hide(_ForwardingGroup)
    undo = _watch_loop(recorder) + _watch_modules(recorder)
    if dist.is_available():
        undo += _watch_collectives(recorder) + _watch_reducers(recorder)
    reference = weakref.ref(recorder)

    def after_fork():
        alive = reference()
        if alive is not None:
            alive.after_fork()

    os.register_at_fork(after_in_child=after_fork)
    return undo
