"""A world of liblockstep that is opened through a store of torch.distributed, and its groups, as Python objects.

A world belongs to one thread at a time, and torch may call from several: every call holds the world's lock. As long as one thread makes all
calls, waits are those of the library; once per second one is seen, waits test and let the lock go in between."""

import ctypes
import threading
import time
import weakref

from . import _library as ls
from ._library import lib

_opened = 0  # worlds, of this process; every rank counts the same, and a store may outlive a world
_newest = None  # weak reference to the world that was opened last


class _Store:
    """Callbacks of lockstep/comm.h's ls_store around a torch store. An exception of the store is kept, and raised by check()."""

    def __init__(self, store):
        self._store = store
        self.error = None
        self._set, self._get = ls.StoreSet(self.set), ls.StoreGet(self.get)
        self.struct = ls.Store(None, self._set, self._get)

    def set(self, _, key, value, size):
        try:
            self._store.set(key.decode(), ctypes.string_at(value, size).hex())
            return ls.OK
        except Exception as error:
            self.error = error
            return ls.EIO

    def get(self, _, key, value, size, timeout_ms):
        try:
            name = key.decode()
            if timeout_ms >= 0:
                from datetime import timedelta

                self._store.wait([name], timedelta(milliseconds=timeout_ms))
            data = bytes.fromhex(self._store.get(name).decode())
            if len(data) != size:
                self.error = RuntimeError(f"lockstep: the store's value of {name} has {len(data)} bytes instead of {size}")
                return ls.EFORMAT
            ctypes.memmove(value, data, size)
            return ls.OK
        except Exception as error:
            self.error = error
            return ls.ETIMEOUT if "imeout" in type(error).__name__ + str(error) else ls.EIO

    def check(self, status):
        try:
            ls.check(status)
        except ls.LockstepError as error:
            raise error from self.error


class World:
    def __init__(self, store, rank, size, timeout_ms):
        global _newest, _opened
        from torch.distributed import PrefixStore

        store = PrefixStore(f"lockstep/{_opened}", store)
        _opened += 1
        self.rank, self.size = rank, size
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self.shared = False
        self.handle = ctypes.c_void_p()
        self.timeout_ms = timeout_ms
        via = _Store(store)
        via.check(lib.ls_world_open_store(self.handle, via.struct, rank, size, ls.WorldOptions(timeout_ms=timeout_ms)))
        self.all = lib.ls_world_group(self.handle)
        _newest = weakref.ref(self)

    def open_group(self, ranks, store, key):
        """A group of these ranks, of which only they make this call."""
        group = ctypes.c_void_p()
        via = _Store(store)
        members = (ctypes.c_int * len(ranks))(*ranks)
        with self:
            via.check(lib.ls_group_open(self.handle, members, len(ranks), via.struct, key.encode(), group))
        return group

    def __enter__(self):
        if threading.get_ident() != self._thread:
            self.shared = True
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()

    def wait(self, work):
        """Waits for an ls_work. Raises what went wrong."""
        if not self.shared:
            with self:
                ls.check(lib.ls_work_wait(work))
            return
        while not self.test(work):
            time.sleep(50e-6)

    def test(self, work):
        """Whether an ls_work is done."""
        with self:
            return ls.check(lib.ls_work_test(work)) == ls.OK

    @property
    def record(self):
        return lib.ls_world_record(self.handle)

    def close(self):
        if self.handle:
            lib.ls_world_free(self.handle)
            self.handle = ctypes.c_void_p()

    def __del__(self):
        if getattr(self, "handle", None):
            self.close()


def newest():
    """The world that this process opened last, or None."""
    world = _newest() if _newest else None
    return world if world is not None and world.handle else None
