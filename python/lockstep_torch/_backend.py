"""Backend "lockstep" of torch.distributed: a ProcessGroup in Python over the library's collectives.

Works make progress in calls alone: wait() drives the library. Who takes a future instead, as DDP does, gets it completed at the end of backward:
the first bucket of a backward asks the autograd engine to call _drain(), which it does before DDP's own last step. Meanwhile each call made for
a later bucket moves the earlier ones on. Outside of a backward's nodes a future is complete when it is handed out. Buckets are moved to shared memory:
see _shared."""

import ctypes
import functools
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed.algorithms.join import Join

from . import _compiler
from . import _library as ls
from . import _reductions as reductions
from . import _world
from ._library import lib
from ._messages import Message, Messages
from ._shared import reduced_by_ddp

_DEFAULT_TIMEOUT = timedelta(minutes=30)


class Work(c10d.Work):
    """A collective under way, or done. `finish` is called once when it is done, with the library's part over."""

    def __init__(self, group, handle, result, finish=None, keep=None):
        super().__init__()
        self._group, self._handle, self._result, self._finish = group, handle, result, finish
        self._keep = keep  # memory that the library reads and writes
        self._error = None
        self._ended = self._future = None

    def __del__(self):
        # Nobody waits for it, but its memory is in use until it is done.
        if getattr(self, "_handle", None) is not None and self._group._handle is not None:
            self._group._orphans.append(Work(self._group, self._handle, self._result, self._finish, self._keep))
            self._handle = None

    def _complete(self):
        self._handle = self._keep = None
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()
        self._end_future()

    def _fail(self, error):
        self._handle, self._error = None, error
        self._end_future()

    def _end_future(self):
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _outcome(self, _):
        if self._error is not None:
            raise self._error
        return self._result

    def _check(self):
        if self._handle is not None and self._group._handle is None:
            self._fail(RuntimeError(self._group.gone))

    def wait(self, timeout=None):
        self._check()
        if self._error is not None:
            raise self._error
        if self._handle is not None:
            try:
                ls.check(lib.ls_work_wait(self._handle))
            except Exception as error:
                self._fail(error)
                raise
            self._complete()
        return True

    def is_completed(self):
        self._check()
        if self._handle is not None:
            try:
                if ls.check(lib.ls_work_test(self._handle)) == ls.PENDING:
                    return False
            except Exception as error:
                self._fail(error)
                return True
            self._complete()
        return True

    def is_success(self):
        return self._handle is None and self._error is None

    def exception(self):
        return self._error

    def result(self):
        return self._result

    def synchronize(self):
        self.wait()

    def get_future(self):
        if self._future is None:
            # An exception that is set in a future is a value to C++, which DDP would take for tensors. One of a callback is an error there, too.
            self._ended = torch.futures.Future()
            self._future = self._ended.then(self._outcome)
            # At the end of a backward, in a callback of the engine, another callback would come too late: DDP with static_graph reduces all buckets
            # of its first step there, and waits for them at once.
            if self._handle is not None and torch._C._current_autograd_node() is not None:
                self._group._finish_in_backward(self)
            else:
                try:
                    self.wait()
                except Exception:
                    pass  # the future has it
                self._end_future()
        return self._future


def _pointer(tensor):
    return tensor.data_ptr()


_SUM = dist.ReduceOp.SUM
_CALLS = {name[3:]: getattr(lib, name) for name in ls.FUNCTIONS}
_STARTS = {name[: -len("_start")]: function for name, function in _CALLS.items() if name.endswith("_start")}


def _is_async(opts):
    return getattr(opts, "asyncOp", True)


class LockstepProcessGroup(c10d.ProcessGroup):
    def __init__(self, world, handle, rank, size, owns_handle):
        super().__init__(rank, size)
        self._world, self._handle, self._rank, self._size = world, handle, rank, size
        self._owns_handle = owns_handle
        self._name = self._description = ""
        self._draining = []  # works whose futures are awaited at the end of a backward
        self._graph_task = -1
        self._orphans = []  # works that nobody waits for
        self._messages = Messages(self)
        self._sequence = self._monitored = 0
        self.on_bucket = None  # the recorder's: a weak method that is called for buckets of a backward
        self.gone = None  # why there is no handle any more
        world.groups.add(self)

    # ---- What torch asks of every group.

    def getBackendName(self):
        return "lockstep"

    name = getBackendName

    def getGroupName(self):
        return self._name

    def setGroupName(self, name):
        self._name = name

    def getGroupDesc(self):
        return self._description

    def setGroupDesc(self, description):
        self._description = description

    def getSize(self):
        return self._size

    def getRank(self):
        return self._rank

    def setSequenceNumberForGroup(self):
        pass

    def getSequenceNumberForGroup(self):
        return self._sequence

    _set_sequence_number_for_group = setSequenceNumberForGroup
    _get_sequence_number_for_group = getSequenceNumberForGroup

    supports_splitting = supports_coalescing = supports_time_estimate = supports_shrinking = False

    def _get_backend(self, device):
        """The group is its own backend."""
        if torch.device(device).type != "cpu":
            raise RuntimeError(f"lockstep: no backend for {device}: this group moves CPU tensors")
        return self

    def shutdown(self):
        """Leaves the group. Others that wait for this rank get an error that names it."""
        handle, world = self._handle, self._world
        self.forget("lockstep: the process group was destroyed")
        if handle is not None and self._owns_handle and world.handle:
            lib.ls_group_free(handle)

    def forget(self, why):
        """Calls fail with `why` from now on. The world ends with the last of its groups."""
        if self._handle is not None:
            self._handle, self._world, self.gone = None, None, why
        for work in (*self._draining, *self._orphans):
            work._check()
        self._draining, self._orphans = [], []

    def abort(self):
        if self._handle is not None:
            lib.ls_group_abort(self._handle, b"the process group was aborted")

    def __del__(self):
        if getattr(self, "_handle", None) is not None and lib is not None:  # None: Python ends
            self.shutdown()

    # ---- Starting collectives.

    def _call(self, name, arguments, result, opts, finish=None, keep=None):
        """Starts ls_NAME, or makes the call if nobody can do anything in between."""
        if self._handle is None:
            raise RuntimeError(self.gone)
        self._sequence += 1
        if self._orphans:
            self._orphans = [work for work in self._orphans if not work.is_completed()]
        if _is_async(opts):
            handle = ctypes.c_void_p()
            ls.check(_STARTS[name](self._handle, *arguments, handle))
            return Work(self, handle, result, finish, keep)
        ls.check(_CALLS[name](self._handle, *arguments))
        if finish is not None:
            finish()
        return Work(self, None, result)

    def _done(self, result):
        return Work(self, None, result)

    def _now(self, name, *arguments):
        """Makes a call and waits for it."""
        self._call(name, arguments, None, _SYNC)

    def _finish_in_backward(self, work):
        task = torch._C._current_graph_task_id()
        if task != self._graph_task or not self._draining:
            self._graph_task = task
            torch.autograd.Variable._execution_engine.queue_callback(self._drain)
        for earlier in self._draining:
            earlier.is_completed()  # makes progress; what is done is complete from now on
        self._draining.append(work)
        notify = self.on_bucket() if self.on_bucket is not None else None
        if notify is not None:
            notify(self)

    def _drain(self):
        works, self._draining = self._draining, []
        for work in works:
            try:
                work.wait()
            except Exception:
                pass  # its future has it

    # ---- Reductions.

    def _reduce(self, name, tensor, opts, more=()):
        """allreduce or reduce of one tensor, in place."""
        buffer, kind, op, back = reductions.prepare(name, tensor, opts.reduceOp)
        direct = buffer.data_ptr() == tensor.data_ptr()
        finish = None if direct else lambda: tensor.detach().copy_(back(buffer))
        if more and more[0] != self._rank:
            finish = None  # only the root gets the result
        return self._call(name, (_pointer(buffer), buffer.numel(), kind, op, *more), [tensor], opts, finish, buffer)

    def allreduce(self, tensors, opts=None):
        opts = c10d.AllreduceOptions() if opts is None else opts
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        if len(tensors) != 1:
            return self.allreduce_coalesced(tensors, opts)
        tensor = tensors[0]
        kind = reductions.TYPES.get(tensor.dtype)
        if kind is None or not tensor.is_cpu or tensor.layout is not torch.strided or not tensor.is_contiguous() or opts.reduceOp != _SUM:
            reductions.check("allreduce", tensors)
            return self._reduce("allreduce", tensor, opts)
        # Gradients, mostly: as fast as Python can.
        if _is_async(opts) and torch._C._current_graph_task_id() != -1 and self._handle is not None and reduced_by_ddp():
            self._world.shared.see(tensor)
        return self._call("allreduce", (tensor.data_ptr(), tensor.numel(), kind, ls.SUM), tensors, opts, None, tensor)

    def allreduce_coalesced(self, tensors, opts=None):
        opts = c10d.AllreduceCoalescedOptions() if opts is None else opts
        reductions.check("allreduce", tensors)
        for tensor in tensors:
            self._reduce("allreduce", tensor, opts).wait()
        return self._done(list(tensors))

    def reduce(self, tensors, opts):
        reductions.check("reduce", tensors)
        return self._reduce("reduce", tensors[0], opts, (opts.rootRank,))

    def _reduce_scatter(self, output, flat, opts):
        """`flat`: the blocks of all ranks, one after the other."""
        buffer, kind, op, back = reductions.prepare("reduce_scatter", flat, opts.reduceOp)
        block = buffer.numel() // self._size
        room = output.detach()
        if room.dtype != buffer.dtype or not room.is_contiguous():
            room = buffer.new_empty(block)
        if room.data_ptr() == output.data_ptr():
            finish = None
        else:
            shape = (*output.shape, 2) if output.dtype.is_complex else output.shape
            finish = lambda: output.detach().copy_(back(room.reshape(shape)))  # noqa: E731
        return self._call(
            "reduce_scatter", (_pointer(buffer), _pointer(room), block, kind, op), [output], opts, finish, (buffer, room)
        )

    def reduce_scatter(self, outputs, inputs, opts):
        reductions.check("reduce_scatter", [*outputs, *inputs[0]])
        self._same_sizes("reduce_scatter", [outputs[0], *inputs[0]])
        return self._reduce_scatter(outputs[0], torch.cat([t.detach().reshape(-1) for t in inputs[0]]), opts)

    def _reduce_scatter_base(self, output, flat, opts):
        reductions.check("reduce_scatter", [output, flat])
        if flat.numel() != output.numel() * self._size:
            raise RuntimeError(
                f"lockstep: reduce_scatter: the input has {flat.numel()} elements, but {self._size} ranks x {output.numel()} are needed"
            )
        return self._reduce_scatter(output, flat, opts)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts):
        for output, flat in zip(outputs, inputs):
            self._reduce_scatter_base(output, flat, opts).wait()
        return self._done(list(outputs))

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    # ---- Moving.

    @staticmethod
    def _same_sizes(call, tensors):
        for tensor in tensors:
            if tensor.numel() != tensors[0].numel() or tensor.dtype != tensors[0].dtype:
                raise RuntimeError(
                    f"lockstep: {call}: tensors differ: {list(tensors[0].shape)} of {tensors[0].dtype} and {list(tensor.shape)} of {tensor.dtype}"
                )

    @staticmethod
    def _unit(tensor):
        """(type, elements) to move a contiguous tensor as it is."""
        if tensor.dtype in reductions.TYPES:
            return tensor.numel(), reductions.TYPES[tensor.dtype]
        return tensor.numel() * tensor.element_size(), ls.U8

    def broadcast(self, tensors, opts):
        reductions.check("broadcast", tensors)
        tensor = tensors[0]
        buffer = tensor.detach().resolve_conj().contiguous()
        finish = None if buffer.data_ptr() == tensor.data_ptr() else lambda: tensor.detach().copy_(buffer)
        return self._call("broadcast", (_pointer(buffer), *self._unit(buffer), opts.rootRank), list(tensors), opts, finish, buffer)

    def _allgather(self, room, mine, opts, finish):
        return self._call("allgather", (_pointer(mine), _pointer(room), *self._unit(mine)), None, opts, finish, (room, mine))

    def allgather(self, outputs, inputs, opts=None):
        opts = c10d.AllgatherOptions() if opts is None else opts
        outs, mine = outputs[0], inputs[0]
        reductions.check("allgather", [*outs, mine])
        self._same_sizes("allgather", [mine, *outs])
        mine = mine.detach().resolve_conj().contiguous()
        room = mine.new_empty((self._size, *mine.shape))

        def finish():
            for rank, out in enumerate(outs):
                out.detach().copy_(room[rank].reshape(out.shape))

        work = self._allgather(room, mine, opts, finish)
        work._result = list(outs)
        return work

    def allgather_coalesced(self, outputs, inputs, opts=None):
        # outputs[r][i]: rank r's inputs[i]
        for i, mine in enumerate(inputs):
            self.allgather([[outs[i] for outs in outputs]], [mine], opts).wait()
        return self._done([t for outs in outputs for t in outs])

    def _allgather_base(self, output, mine, opts=None):
        opts = c10d.AllgatherOptions() if opts is None else opts
        reductions.check("allgather", [output, mine])
        if output.numel() != mine.numel() * self._size or output.dtype != mine.dtype:
            raise RuntimeError(
                f"lockstep: allgather: the output has {output.numel()} elements of {output.dtype}, but {self._size} ranks x {mine.numel()} of "
                f"{mine.dtype} are needed"
            )
        mine = mine.detach().resolve_conj().contiguous()
        room = output.detach()
        if not room.is_contiguous():
            room = mine.new_empty(output.shape)
        finish = None if room.data_ptr() == output.data_ptr() else lambda: output.detach().copy_(room)
        own = room.data_ptr() + self._rank * mine.numel() * mine.element_size()
        inside = room.data_ptr() <= mine.data_ptr() < room.data_ptr() + room.numel() * room.element_size()
        if inside and mine.data_ptr() != own:
            mine = mine.clone()
        work = self._allgather(room, mine, opts, finish)
        work._result = [output]
        return work

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, mine in zip(outputs, inputs):
            self._allgather_base(output, mine, opts).wait()
        return self._done(list(outputs))

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def gather(self, outputs, inputs, opts):
        mine = inputs[0].detach().resolve_conj().contiguous()
        reductions.check("gather", [mine])
        outs = outputs[0] if outputs and self._rank == opts.rootRank else []
        self._same_sizes("gather", [mine, *outs])
        room = mine.new_empty((self._size, *mine.shape)) if outs else None

        def finish():
            for rank, out in enumerate(outs):
                out.detach().copy_(room[rank].reshape(out.shape))

        arguments = _pointer(mine), _pointer(room) if outs else None, *self._unit(mine), opts.rootRank
        return self._call("gather", arguments, list(outs), opts, finish, (room, mine))

    def scatter(self, outputs, inputs, opts):
        output = outputs[0]
        blocks = inputs[0] if inputs and self._rank == opts.rootRank else []
        reductions.check("scatter", [output, *blocks])
        self._same_sizes("scatter", [output, *blocks])
        flat = torch.cat([b.detach().resolve_conj().reshape(-1) for b in blocks]) if blocks else None
        room = output.detach()
        if not room.is_contiguous():
            room = torch.empty(output.shape, dtype=output.dtype)
        finish = None if room.data_ptr() == output.data_ptr() else lambda: output.detach().copy_(room)
        arguments = _pointer(flat) if blocks else None, _pointer(room), *self._unit(room), opts.rootRank
        return self._call("scatter", arguments, [output], opts, finish, (flat, room))

    def alltoall_base(self, output, flat, output_splits, input_splits, opts=None):
        opts = c10d.AllToAllOptions() if opts is None else opts
        reductions.check("alltoall", [output, flat])
        if not output_splits and not input_splits:
            for name, tensor in ("input", flat), ("output", output):
                if tensor.dim() == 0 or tensor.size(0) % self._size:
                    raise RuntimeError(f"lockstep: alltoall: the {name}'s first dimension does not divide by {self._size} ranks; give splits")
        for name, splits, tensor in ("input", input_splits, flat), ("output", output_splits, output):
            if splits and (len(splits) != self._size or sum(splits) != tensor.size(0)):
                raise RuntimeError(
                    f"lockstep: alltoall: {name} splits {list(splits)} must be {self._size} numbers that sum up to {tensor.size(0)}"
                )
        blocks = flat.detach().resolve_conj().contiguous()
        sends = blocks.split(list(input_splits) or [flat.size(0) // self._size] * self._size)
        takes = output.detach().split(list(output_splits) or [output.size(0) // self._size] * self._size)
        return self._exchange(takes, sends, [output])

    all_to_all_single = alltoall_base

    def alltoall(self, outputs, inputs, opts=None):
        reductions.check("alltoall", [*outputs, *inputs])
        if len(outputs) != self._size or len(inputs) != self._size:
            raise RuntimeError(f"lockstep: alltoall: {len(inputs)} inputs and {len(outputs)} outputs; there must be {self._size} of each")
        return self._exchange([t.detach() for t in outputs], [t.detach().resolve_conj() for t in inputs], list(outputs))

    def _exchange(self, takes, sends, result):
        """Block q of `sends` goes to rank q. Blocks may differ in size."""
        size = sends[0].element_size()
        flat = torch.cat([block.contiguous().reshape(-1) for block in sends])
        room = flat.new_empty(sum(block.numel() for block in takes))
        counts = [(ctypes.c_size_t * self._size)(*[block.numel() * size for block in blocks]) for blocks in (sends, takes)]
        self._now("alltoallv", _pointer(flat), counts[0], _pointer(room), counts[1], ls.U8)
        for block, part in zip(takes, room.split([block.numel() for block in takes])):
            block.copy_(part.reshape(block.shape))
        return self._done(result)

    def barrier(self, opts=None):
        return self._call("barrier", (), [], c10d.BarrierOptions() if opts is None else opts)

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """As Gloo's, for those who call it on the group (torch's own function asks for gloo by name): rank 0 waits for a message of every other rank and names those that did not come in time."""
        self._monitored += 1
        tag = -1 - self._monitored  # not one of the program's
        timeout = _DEFAULT_TIMEOUT if timeout is None else timeout
        limit = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)  # in seconds, as for gloo
        deadline = time.monotonic() + limit
        word = torch.zeros(1, dtype=torch.uint8)
        if self._rank:
            self.send([word], 0, tag).wait()
            if not self._messages.receive(word, 0, tag).wait_until(deadline):
                raise RuntimeError(
                    f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. "
                    "Please check rank 0 logs for faulty rank."
                )
            return
        missing = []
        for rank in range(1, self._size):
            if time.monotonic() >= deadline and not wait_all_ranks:
                raise RuntimeError(f"Rank 0 timed out in monitoredBarrier after {1000 * limit:.0f} ms.")
            try:
                came = self._messages.receive(word, rank, tag).wait_until(deadline)
            except ls.LockstepError:
                came = False
            if not came:
                missing.append(rank)
                if not wait_all_ranks:
                    break
        if missing:
            names = ", ".join(map(str, missing))
            raise RuntimeError(f"Rank{'s' if len(missing) > 1 else ''} {names} failed to pass monitoredBarrier in {1000 * limit:.0f} ms")
        for rank in range(1, self._size):
            self.send([word], rank, tag).wait()

    def send(self, tensors, to, tag=0):
        return self._messages.send(tensors[0], to, tag)

    def recv(self, tensors, source, tag=0):
        return self._messages.receive(tensors[0], source, tag)

    def recv_anysource(self, tensors, tag=0):
        return self._messages.receive(tensors[0], None, tag)


class _Sync:
    asyncOp = False


_SYNC = _Sync()


def create(options, _=None):
    """Makes a group for torch: a world for the first one, and groups of that world for later ones."""
    rank, size = options.group_rank, options.group_size
    timeout = options.timeout or _DEFAULT_TIMEOUT
    milliseconds = max(1, min(int(timeout.total_seconds() * 1000), (1 << 31) - 1))
    ranks = list(options.global_ranks_in_group or [])
    default = dist.group.WORLD
    if ranks and isinstance(default, LockstepProcessGroup):
        if len(set(ranks)) != len(ranks):
            raise ValueError(f"lockstep: a group has a rank twice: {ranks}")
        world = default._world
        key = f"lockstep/group/{options.group_id}"
        return LockstepProcessGroup(world, world.open_group(ranks, options.store, key), rank, size, True)
    world = _world.World(options.store, rank, size, milliseconds)
    return LockstepProcessGroup(world, world.all, rank, size, False)


def _allow_monitored_barrier():
    """torch's function refuses all backends but gloo by their names; ours has the same on the group."""
    original = dist.monitored_barrier

    @functools.wraps(original)
    def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
        ours = dist.group.WORLD if group is None else group
        if isinstance(ours, LockstepProcessGroup):
            return ours.monitored_barrier(timeout, wait_all_ranks)
        return original(group, timeout, wait_all_ranks)

    dist.monitored_barrier = dist.distributed_c10d.monitored_barrier = monitored_barrier


def _keep_works_of_join():
    """Join hands DDP's reducer the work that counts the ranks which still have data. C++ holds on to its own half of a work only, so the module keeps the
    other one until its next forward."""
    original = Join.notify_join_context

    @functools.wraps(original)
    def notify_join_context(joinable):
        work = original(joinable)
        if isinstance(work, Work):
            joinable.__dict__["_lockstep_join_work"] = work
        return work

    Join.notify_join_context = staticmethod(notify_join_context)


def register():
    """Makes init_process_group("lockstep") known to torch."""
    if not hasattr(dist.Backend, "LOCKSTEP"):
        dist.Backend.register_backend("lockstep", create, extended_api=True, devices=["cpu"])
        _allow_monitored_barrier()
        _keep_works_of_join()
        _compiler.hide(LockstepProcessGroup, Work, Message)
