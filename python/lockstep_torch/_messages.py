"""send and recv with tags: the library's messages (lockstep/comm.h) as torch's works."""

import ctypes
import time
import weakref

from torch._C import _distributed_c10d as c10d

from . import _library as ls
from . import _reductions
from ._library import lib

_ANY_RANK = -1


class Message(c10d.Work):
    """A send or receive. `finish` is called once when it is done."""

    def __init__(self, messages, handle, keep, finish=None):
        super().__init__()
        self._messages, self._handle, self._keep, self._finish = messages, handle, keep, finish
        self._group = messages.group()  # whose memory the handle is in
        self._from = ctypes.c_int(-1)
        self._error = None

    def _end(self, status):
        if status == ls.PENDING:
            return False
        self._handle = None
        try:
            ls.check(status)
            if self._finish is not None:
                self._finish()
        except Exception as error:
            self._error = error
            raise
        finally:
            self._keep = self._finish = None
        return True

    def _check(self):
        if self._error is None and self._handle is not None and self._group._handle is None:
            self._handle, self._error = None, RuntimeError(self._group.gone)
        if self._error is not None:
            raise self._error

    def _test(self):
        self._check()
        with self._messages.lock:
            return self._handle is None or self._end(lib.ls_p2p_test(self._handle, self._from))

    def wait(self, timeout=None):
        self._check()
        if self._handle is None:
            return True
        if self._group._world.one_thread():
            self._end(lib.ls_p2p_wait(self._handle, self._from))
        else:  # another thread may have to make the call that this one waits for
            while not self._test():
                time.sleep(50e-6)
        return True

    def is_completed(self):
        return self._test()

    def is_success(self):
        return self._handle is None and self._error is None

    def wait_until(self, deadline):
        """Waits until time.monotonic() is `deadline`. Whether the message came; if not, it is not waited for any more."""
        while not self._test():
            if time.monotonic() >= deadline:
                with self._messages.lock:
                    lib.ls_p2p_cancel(self._handle)
                self._handle = None
                return False
            time.sleep(200e-6)
        return True

    def source_rank(self):
        return self._from.value

    _source_rank = source_rank

    def __del__(self):
        # Nobody waits for it, but its memory is in use until it is done.
        if getattr(self, "_handle", None) is not None and self._group._handle is not None:
            self._messages.orphans.append(Message(self._messages, self._handle, self._keep, self._finish))


class Messages:
    """The messages of one group, which belong to one thread at a time."""

    def __init__(self, group):
        self.group = weakref.ref(group)
        self.lock = group._world.lock
        self._size = group._size
        self.orphans = []

    def _check(self, call, tensor, other):
        _reductions.check(call, [tensor])
        if other is not None and not 0 <= other < self._size:
            raise RuntimeError(f"lockstep: {call}: there is no rank {other}; the group has {self._size}")
        if self.group()._handle is None:
            raise RuntimeError(self.group().gone)
        self.orphans = [work for work in self.orphans if not work.is_completed()]

    def _start(self, function, data, other, tag, finish):
        handle = ctypes.c_void_p()
        memory = ctypes.c_void_p(data.data_ptr())
        with self.lock:
            ls.check(function(self.group()._handle, memory, data.numel() * data.element_size(), other, tag, handle))
        return Message(self, handle, data, finish)

    def send(self, tensor, to, tag):
        self._check("send", tensor, to)
        return self._start(lib.ls_send_tagged, tensor.detach().resolve_conj().contiguous(), to, tag, None)

    def receive(self, tensor, source, tag):
        self._check("recv", tensor, source)
        whole = tensor.detach()
        room = whole if whole.is_contiguous() else whole.new_empty(whole.shape)
        finish = None if room is whole else lambda: whole.copy_(room)
        return self._start(lib.ls_recv_tagged, room, _ANY_RANK if source is None else source, tag, finish)
