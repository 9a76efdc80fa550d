"""send and recv with tags, over the library's sends and receives, which arrive in order.

A message is a header (tag, bytes) and its data. A header that comes for another tag than the one that is waited for has its data put aside.
Receives of the same source and tag are served in the order in which they were posted."""

import collections
import ctypes
import time

import torch
from torch._C import _distributed_c10d as c10d

from . import _library as ls
from ._library import lib


class _Header(ctypes.Structure):
    _fields_ = [("tag", ctypes.c_int64), ("bytes", ctypes.c_int64)]


class _Sending(c10d.Work):
    def __init__(self, messages, handles, keep):
        super().__init__()
        self._messages, self._handles, self._keep = messages, handles, keep

    def wait(self, timeout=None):
        messages, pauses = self._messages, 0
        while self._handles:
            if not messages.has_posted():
                messages.world.wait(self._handles.pop(0))
            elif messages.world.test(self._handles[0]):
                self._handles.pop(0)
            elif not messages.pump_posted():  # the other rank may wait until what it sends to us is received
                time.sleep(0 if pauses < 100 else 50e-6)
                pauses += 1
        self._keep = None
        return True

    def __del__(self):
        # Nobody waits for it, but its memory is in use until it is done.
        if getattr(self, "_handles", None):
            self._messages.keep(self._handles, self._keep)

    def is_completed(self):
        while self._handles and self._messages.world.test(self._handles[0]):
            self._handles.pop(0)
        return not self._handles

    def is_success(self):
        return self.is_completed()


class _Receiving(c10d.Work):
    def __init__(self, messages, tensor, source, tag):
        super().__init__()
        self.messages, self.tensor, self.source, self.tag = messages, tensor, source, tag
        self.done = False
        self.came_from = -1

    def wait(self, timeout=None):
        pauses = 0
        while not self.done:
            if not self.messages.pump(self, self.source is not None):
                time.sleep(0 if pauses < 100 else 50e-6)
                pauses += 1
        return True

    def is_completed(self):
        if not self.done:
            self.messages.pump(self, False)
        return self.done

    def wait_until(self, deadline):
        """Waits until time.monotonic() is `deadline`. Whether the message came; if not, it is not waited for any more."""
        while not self.is_completed():
            if time.monotonic() >= deadline:
                self.messages.withdraw(self)
                return False
            time.sleep(200e-6)
        return True

    def is_success(self):
        return self.done

    def source_rank(self):
        return self.came_from

    _source_rank = source_rank

    def fill(self, data, source):
        size = self.tensor.numel() * self.tensor.element_size()
        if data.numel() != size:
            raise RuntimeError(
                f"lockstep: recv from rank {source}: the message has {data.numel()} bytes, but the tensor {size}"
            )
        if size:
            self.tensor.detach().copy_(data.view(self.tensor.dtype).reshape(self.tensor.shape))
        self.done, self.came_from = True, source


class Messages:
    def __init__(self, group):
        self._group_of = lambda: group._handle
        self.world, self._rank, self._size = group._world, group._rank, group._size
        self._headers = {}  # source: (header, handle) of the receive that is under way
        self._posted = []
        self._kept = []
        self._aside = collections.defaultdict(collections.deque)  # (source, tag): data that nobody has asked for yet

    def _check(self, call, tensor, other):
        from . import _reductions

        _reductions.check(call, [tensor])
        if other is not None and not 0 <= other < self._size:
            raise RuntimeError(f"lockstep: {call}: there is no rank {other}; the group has {self._size}")

    def send(self, tensor, to, tag):
        self._check("send", tensor, to)
        data = tensor.detach().resolve_conj().contiguous()
        header = _Header(tag, data.numel() * data.element_size())
        handles = []
        with self.world:
            for memory, size in (ctypes.byref(header), ctypes.sizeof(header)), (ctypes.c_void_p(data.data_ptr()), header.bytes):
                if size:
                    handle = ctypes.c_void_p()
                    ls.check(lib.ls_send_start(self._group_of(), ctypes.cast(memory, ctypes.c_void_p), size, ls.U8, to, handle))
                    handles.append(handle)
        return _Sending(self, handles, (header, data))

    def receive(self, tensor, source, tag):
        self._check("recv", tensor, source)
        work = _Receiving(self, tensor, source, tag)
        self._posted.append(work)
        return work

    def keep(self, handles, memory):
        """Sends that nobody waits for. Those that are done are let go."""
        self._kept = [(h, m) for h, m in self._kept if not all(not x or self.world.test(x) for x in h)]
        self._kept.append((handles, memory))

    def withdraw(self, work):
        self._posted.remove(work)

    def has_posted(self):
        return bool(self._posted)

    def pump_posted(self):
        """Moves all receives on that were posted. Whether anything came."""
        return any([self.pump(work, False) for work in list(self._posted) if not work.done])

    def pump(self, work, wait):
        """Moves the receive `work` on. Whether anything came."""
        for source in [work.source] if work.source is not None else range(self._size):
            queue = self._aside.get((source, work.tag))
            if queue:
                self._give(source, work.tag, queue.popleft())
                return True
        came = False
        for source in [work.source] if work.source is not None else [r for r in range(self._size) if r != self._rank]:
            header = self._header(source, wait)
            if header is None:
                continue
            data = torch.empty(header.bytes, dtype=torch.uint8)
            if header.bytes:
                handle = ctypes.c_void_p()
                with self.world:
                    ls.check(
                        lib.ls_recv_start(self._group_of(), ctypes.c_void_p(data.data_ptr()), header.bytes, ls.U8, source, handle)
                    )
                self.world.wait(handle)
            self._give(source, header.tag, data)
            came = True
            if work.done:
                break
        return came

    def _header(self, source, wait):
        """The header of the next message of a rank, or None."""
        if source not in self._headers:
            header, handle = _Header(), ctypes.c_void_p()
            with self.world:
                ls.check(
                    lib.ls_recv_start(
                        self._group_of(),
                        ctypes.cast(ctypes.byref(header), ctypes.c_void_p),
                        ctypes.sizeof(header),
                        ls.U8,
                        source,
                        handle,
                    )
                )
            self._headers[source] = header, handle
        header, handle = self._headers[source]
        if wait:
            self.world.wait(handle)
        elif not self.world.test(handle):
            return None
        del self._headers[source]
        return header

    def _give(self, source, tag, data):
        """Hands a message to the first receive that was posted for it."""
        for work in self._posted:
            if work.tag == tag and work.source in (None, source):
                self._posted.remove(work)
                work.fill(data, source)
                return
        self._aside[source, tag].append(data)
