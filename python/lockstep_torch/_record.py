"""The recorder: what one rank of a PyTorch job does and when, as events of liblockstep's record (lockstep/record.h).

Marks come from hooks that PyTorch offers and from a few functions that are replaced while the recorder is open (_patches): nothing in the
training loop has to change. A step begins with its first batch or forward and ends after optimizer.step(). Forward lasts from the call of the
model until backward begins, so that it has the loss in it.

Collectives are seen in the Python methods of torch's ProcessGroup. DDP's reducer calls its group from C++; it is given a group that forwards
to the real one (_watch). Of a collective that runs in the background, `done` is stamped by its future, and how long the training thread
waited for it follows from when backward had nothing left to do.

Only the thread that trains makes marks. Its calls are cheap: 1 to 3 microseconds each."""

import atexit
import contextlib
import os
import threading
import weakref

import torch
import torch.distributed as dist

from . import _library as ls
from . import _patches, _synchrony
from ._library import lib

_active = None


class _Call:
    """A collective under way."""

    __slots__ = ("group", "number", "kind", "bytes", "arrived", "done", "blocked", "bucket", "__weakref__")

    def __init__(self, group, number, kind, size):
        self.group, self.number, self.kind, self.bytes = group, number, kind, size
        self.arrived = lib.ls_now()
        self.done = self.blocked = 0
        self.bucket = -1


def rank_and_size():
    """This process's rank and the number of ranks, or None if neither torch.distributed nor the environment knows it yet."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return None


def _group_number(group):
    """The same number on all members of a group; 0: the group of all ranks."""
    if group.size() == dist.get_world_size():
        if group is dist.group.WORLD:
            return 0
    name = str(group.group_name)
    hashed = 14695981039346656037  # FNV-1a: Python's own hash differs from process to process
    for byte in name.encode():
        hashed = (hashed ^ byte) * 1099511628211 % (1 << 64)
    return hashed or 1


class Recorder:
    """Records this process until close(). Made by record()."""

    def __init__(self, folder, *, gradients=True, check=True):
        self.folder = os.fspath(folder)
        if os.path.islink(self.folder):
            raise ValueError(
                f"lockstep_torch.record: {self.folder} is a link to another run ({os.readlink(self.folder)}); name a folder of its own"
            )
        self._gradients = gradients
        self._handle = None
        self._borrowed = None  # the world whose record the handle is; its collectives note themselves
        self._failed = False
        self._thread = None
        self._pid = os.getpid()
        self._forward_open = False
        self._forward_depth = self._backward_depth = 0
        self._updating = []  # ids of optimizers in whose step() the thread is
        self._in_step = False
        self._number = 0
        self._micro_batch = 0
        self._owner = None  # the optimizer that ends the steps: the first one that was seen
        self._roots = weakref.WeakSet()
        self._hooked = weakref.WeakSet()
        self._spans = {}  # id of a parameter: index of its name
        self._calls = []  # not written yet
        self._buckets = []  # of this backward
        self._pending = weakref.WeakKeyDictionary()  # Work: _Call
        self._numbers = {}
        self._wait_began = 0
        self._last_batch = 0
        self._noted = ls.Collective()
        self.synchrony = _synchrony.Checker(self) if check else None
        self._undo = _patches.install(self)
        atexit.register(self.close)

    # ---- Opening and closing.

    def _open(self, wait=False):
        """Whether marks can be made now. `wait`: a process that is not known to be one of several is not taken for rank 0 of 1 yet."""
        if self._handle:
            return True
        if self._failed or self._pid != os.getpid():
            return False
        place = rank_and_size()
        if place is None:
            if wait:
                return False
            place = 0, 1
        rank, ranks = place
        events = os.path.join(self.folder, "events")
        self._borrowed = _patches.open_world()
        try:
            if self._borrowed:
                self._handle = self._borrowed.record
                ls.check(lib.ls_record_start(self._handle, os.fsencode(events)))
            else:
                local = min(int(os.environ.get("LOCAL_RANK", rank)), ranks - 1)
                node = int(os.environ.get("GROUP_RANK", 0))
                backend = dist.get_backend() if dist.is_initialized() else "none"
                options = ls.RecordOptions(rank, ranks, node, local, str(backend)[:7].encode(), 0)
                handle = ls.c_void_p()
                ls.check(lib.ls_record_open(handle, os.fsencode(events), options))
                self._handle = handle
        except ls.LockstepError as error:
            self._handle, self._failed = None, True
            self.warn(f"nothing is recorded: {error}")
            return False
        self._thread = threading.get_ident()
        lib.ls_record_metadata(self._handle, ls.METADATA_TORCH, 1)
        lib.ls_record_metadata(self._handle, ls.METADATA_THREADS, torch.get_num_threads())
        return True

    def _mine(self):
        return self._handle and self._thread == threading.get_ident()

    @property
    def closed(self):
        return self._undo is None

    def close(self):
        """Writes what is left and takes the hooks out."""
        global _active
        if self._undo is None:
            return
        undo, self._undo = self._undo, None
        atexit.unregister(self.close)
        for remove in reversed(undo):
            remove()
        if _active is self:
            _active = None
        if self._pid != os.getpid() or not self._handle:
            return
        if self.synchrony:
            self.synchrony.close()
        self._write_calls(lib.ls_now())
        if self._in_step:  # it is not complete, and does not count
            lib.ls_record_event(self._handle, 0, ls.EVENT_LOST, 0, 0)
        if self._borrowed:
            lib.ls_record_stop(self._handle)
        else:
            lib.ls_record_free(self._handle)
        self._handle = self._borrowed = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def after_fork(self):
        """In a child of fork(): the record belongs to the parent."""
        self._handle, self._failed = None, True

    def warn(self, text):
        _synchrony.warn(self.folder, text)

    # ---- Steps and phases.

    def begin_step(self):
        if not self._in_step:
            self._in_step = True
            self._number += 1
            self._micro_batch = 0
            lib.ls_record_step(self._handle, self._number)

    def end_step(self):
        """The step is complete; the next mark begins another one."""
        if not self._in_step:
            return
        self._end_forward()
        self._in_step = False
        self._write_calls(0)
        if self._number == 2:
            _patches.watch_roots(self)
        if self.synchrony:
            self.synchrony.after_step(self._number)

    def _end_forward(self):
        if self._forward_open:
            self._forward_open = False
            lib.ls_record_end(self._handle, ls.PHASE_FORWARD)

    @contextlib.contextmanager
    def phase(self, phase):
        if not self._open() or not self._mine():
            yield
            return
        self.begin_step()
        lib.ls_record_begin(self._handle, phase)
        try:
            yield
        finally:
            if self._handle:
                lib.ls_record_end(self._handle, phase)

    @contextlib.contextmanager
    def own_work(self):
        """What the recorder does is not the program's, in which ranks are compared: it is recorded as communication, which it mostly is."""
        lib.ls_record_begin(self._handle, ls.PHASE_COMM)
        try:
            yield
        finally:
            lib.ls_record_end(self._handle, ls.PHASE_COMM)

    # ---- What the hooks call.

    def _is_eval(self):
        return bool(self._roots) and not any(root.training for root in self._roots)

    def next_batch(self, original, iterator):
        if not self._open(wait=True) or not self._mine() or self._backward_depth:
            return original(iterator)
        self._end_forward()
        self.begin_step()
        phase = ls.PHASE_EVAL if self._is_eval() else ls.PHASE_DATA
        workers = getattr(iterator, "_num_workers", 0)
        ready = _patches.batches_ready(iterator) if workers else 0
        lib.ls_record_begin(self._handle, phase)
        begin = lib.ls_now()
        try:
            batch = original(iterator)
        finally:
            end = lib.ls_now()
            lib.ls_record_end(self._handle, phase)
        if phase == ls.PHASE_DATA:
            # How long a worker built it is not known here. If none was ready, workers are what the loop waits for, and each of
            # them took as long as `workers` batches took to come.
            took = end - begin
            if workers and not ready and self._last_batch:
                took = workers * (end - self._last_batch)
            if not self._last_batch:
                self._describe_loader(iterator)
            self._last_batch = end
            lib.ls_record_event(self._handle, end, ls.EVENT_BATCH, took, (1 if workers else 0) << 16 | min(ready, 65535))
        return batch

    def _describe_loader(self, iterator):
        workers = getattr(iterator, "_num_workers", 0)
        lib.ls_record_metadata(self._handle, ls.METADATA_WORKERS, workers)
        lib.ls_record_metadata(self._handle, ls.METADATA_WORKERS_FIXED, 1)
        lib.ls_record_metadata(self._handle, ls.METADATA_PREFETCH, (getattr(iterator, "_prefetch_factor", 0) or 0) if workers else 0)

    def forward_begins(self, module):
        self._forward_depth += 1
        if self._forward_depth > 1 or self._backward_depth or self._updating or not self._open():
            return
        if not self._mine():
            return
        self._roots.add(module)
        self.begin_step()
        if torch.is_grad_enabled():
            if not self._forward_open:
                self._forward_open = True
                lib.ls_record_begin(self._handle, ls.PHASE_FORWARD)
            if self.synchrony:
                self.synchrony.before_forward(module)
        else:
            self._end_forward()
            lib.ls_record_begin(self._handle, ls.PHASE_EVAL)

    def forward_ends(self, module):
        self._forward_depth = max(0, self._forward_depth - 1)
        if self._forward_depth or self._backward_depth or self._updating or not self._mine():
            return
        if not torch.is_grad_enabled():
            lib.ls_record_end(self._handle, ls.PHASE_EVAL)
        elif module not in self._hooked:
            self._hooked.add(module)
            self._name_gradients(module)

    def _name_gradients(self, module):
        added = 0
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad or id(parameter) in self._spans:
                continue
            index = self._spans[id(parameter)] = len(self._spans)
            name = name.removeprefix("_orig_mod.").removeprefix("module.")  # of torch.compile, and DDP
            lib.ls_record_name(self._handle, ls.NAME_SPAN, index, name.encode())
            added += parameter.numel()
            if self.synchrony:
                self.synchrony.add(index, name, parameter)
            if not self._gradients:
                continue
            try:
                self._undo.append(parameter.register_post_accumulate_grad_hook(self._gradient_hook(index)).remove)
            except RuntimeError:
                pass  # not a leaf: some wrappers make parameters of other tensors
        if added:
            count = sum(p.numel() for root in self._hooked for p in root.parameters())
            lib.ls_record_metadata(self._handle, ls.METADATA_PARAMETERS, count)

    def _gradient_hook(self, index):
        event, kind, handle, synchrony = lib.ls_record_event, ls.EVENT_SPAN_READY, self._handle, self.synchrony

        def ready(_):
            if self._handle is not None:
                event(handle, 0, kind, index, self._micro_batch)
                if synchrony:
                    synchrony.local.add(index)

        return ready

    def backward(self, original, args, kwargs):
        if self._backward_depth or not self._open() or not self._mine():
            return original(*args, **kwargs)
        self._end_forward()
        self.begin_step()
        self._wait_began = 0
        self._backward_depth += 1
        lib.ls_record_begin(self._handle, ls.PHASE_BACKWARD)
        try:
            return original(*args, **kwargs)
        finally:
            self._backward_depth -= 1
            self._finish_buckets(lib.ls_now())
            lib.ls_record_end(self._handle, ls.PHASE_BACKWARD)
            self._micro_batch += 1
            if self.synchrony:
                self.synchrony.after_backward()

    def update_begins(self, optimizer):
        if id(optimizer) in self._updating:  # its last step() raised, and torch then calls no hook
            del self._updating[self._updating.index(id(optimizer)) :]
            if not self._updating and self._mine():
                lib.ls_record_end(self._handle, ls.PHASE_UPDATE)
        self._updating.append(id(optimizer))
        if len(self._updating) > 1 or not self._open() or not self._mine():
            return
        if self._owner is None or self._owner() is None:
            self._owner = weakref.ref(optimizer)
        self._end_forward()
        self.begin_step()
        if self.synchrony:
            self.synchrony.before_update(optimizer, self._number)
        lib.ls_record_begin(self._handle, ls.PHASE_UPDATE)

    def update_ends(self, optimizer):
        if id(optimizer) in self._updating:
            del self._updating[self._updating.index(id(optimizer)) :]
        if self._updating or not self._mine():
            return
        lib.ls_record_end(self._handle, ls.PHASE_UPDATE)
        if self._owner is not None and self._owner() is optimizer:
            self.end_step()

    # ---- Collectives.

    def call(self, kind, group, size, original, args, kwargs):
        """A collective of a torch group, which returns a Work."""
        if self._borrowed or not self._mine():
            return original(group, *args, **kwargs)
        call = self._note(kind, group, size)
        work = original(group, *args, **kwargs)
        if work is None:
            call.done = lib.ls_now()
            call.blocked = call.done - call.arrived
            return work
        try:
            work.get_future().add_done_callback(lambda _: setattr(call, "done", lib.ls_now()))
        except RuntimeError:
            pass  # a backend without futures: wait() stamps it
        self._pending[work] = call
        return work

    def blocking_call(self, kind, group, size, original, args, kwargs):
        """A collective that is done when it returns."""
        if self._borrowed or not self._mine():
            return original(*args, **kwargs)
        call = self._note(kind, group, size)
        try:
            return original(*args, **kwargs)
        finally:
            call.done = lib.ls_now()
            call.blocked = call.done - call.arrived

    def _note(self, kind, group, size):
        key = _group_number(group)
        number = self._numbers.get(key, 0)
        self._numbers[key] = number + 1
        call = _Call(key, number, kind, size)
        self._calls.append(call)
        return call

    def wait(self, original, work, args, kwargs):
        call = self._pending.get(work) if self._mine() else None
        if call is None:
            return original(work, *args, **kwargs)
        begin = lib.ls_now()
        try:
            return original(work, *args, **kwargs)
        finally:
            if not call.blocked:
                call.done = lib.ls_now()
                call.blocked = call.done - max(begin, call.arrived)

    def bucket_starts(self):
        """DDP's reducer made the last call, for a bucket that has just become full."""
        call = self._calls[-1] if self._calls else None
        if not self._mine() or not self._backward_depth or call is None:
            return
        if not self._buckets:
            # Runs when backward has computed all gradients, and before DDP waits for its buckets.
            torch.autograd.Variable._execution_engine.queue_callback(self._begin_wait)
        call.bucket = len(self._buckets)
        self._buckets.append(call)
        word = lib.ls_collective_id(call.group, call.number)
        lib.ls_record_event(self._handle, call.arrived, ls.EVENT_BUCKET_READY, call.bucket, call.bytes)
        lib.ls_record_event(self._handle, call.arrived, ls.EVENT_BUCKET_START, call.bucket, word)

    def bucket_reduced(self, group):
        """Backend lockstep has started a bucket of a group; its events are the library's."""
        if self.synchrony:
            self.synchrony.bucket_reduced(group)

    def _begin_wait(self):
        self._wait_began = lib.ls_now()

    def _finish_buckets(self, end):
        """Backward is over, and with it all of its buckets."""
        free = self._wait_began
        for call in self._buckets:
            if not call.done or call.done > end:
                call.done = end
            if free:
                begin = max(free, call.arrived)
                call.blocked = max(0, call.done - begin)
                free = max(free, call.done)
        if self._buckets and self._number <= 3:
            lib.ls_record_metadata(self._handle, ls.METADATA_BUCKETS, len(self._buckets))
            lib.ls_record_metadata(self._handle, ls.METADATA_BUCKET, max(call.bytes for call in self._buckets))
        self._buckets = []

    def _write_calls(self, now):
        """Writes collectives that are done. `now`: those that are not, too, as if they ended at that time."""
        left = []
        noted = self._noted
        for call in self._calls:
            done = call.done or now
            if not done:
                left.append(call)
                continue
            noted.group, noted.number, noted.kind, noted.bytes = call.group, call.number, call.kind, call.bytes
            noted.arrived, noted.done, noted.blocked = call.arrived, done, call.blocked
            lib.ls_record_collective(self._handle, noted)
        self._calls = left


def record(folder="runs/last", *, gradients=True, check=True):
    """Records this process from now on into `folder`: steps, data, forward, backward, when gradients become ready, collectives, optimizer.

    Call it once in every rank, before or after init_process_group; nothing else changes. `lockstep report FOLDER`, `lockstep top` and
    `lockstep trace` then work on the job. The environment variable LOCKSTEP_RECORD=FOLDER does the same without a line of code.

    gradients: note when each parameter's gradient is ready (about 2 microseconds each).
    check: warn (SynchronizationWarning) about optimizer steps on gradients that were never reduced, and about ranks whose parameters differ.

    Returns the Recorder; its close() ends the recording, as does the end of the process."""
    global _active
    if _active is not None:
        raise RuntimeError(f"lockstep_torch.record: this process is being recorded already, to {_active.folder}; close() that first")
    _active = Recorder(folder, gradients=gradients, check=check)
    return _active


@contextlib.contextmanager
def phase(name):
    """Counts the time within for the phase of that name: "eval", "checkpoint", "data" or "other". Does nothing if nothing is recorded."""
    phases = {"eval": ls.PHASE_EVAL, "checkpoint": ls.PHASE_CHECKPOINT, "data": ls.PHASE_DATA, "other": ls.PHASE_OTHER}
    if name not in phases:
        raise ValueError(f"lockstep_torch.phase: unknown phase {name!r}; use one of {', '.join(phases)}")
    if _active is None:
        yield
        return
    with _active.phase(phases[name]):
        yield


def step():
    """Ends the current step, for loops in which no torch.optim optimizer does so. Does nothing if nothing is recorded."""
    if _active is not None and _active._mine():
        _active.end_step()
