"""A world of liblockstep that is opened through a store of torch.distributed, and its groups, as Python objects.

torch may call from several threads, for which the library's collectives have a lock of their own. Messages with tags belong to one thread at a
time: they hold the lock here."""

import atexit
import ctypes
import os
import threading
import weakref

from . import _library as ls
from ._carrier import GlooCarrier
from ._library import lib
from ._shared import SharedStorages

_opened = 0  # worlds, of this process; every rank counts the same, and a store may outlive a world
_newest = None  # weak reference to the world that was opened last
_worlds = weakref.WeakSet()


def _after_fork():
    """In a child, which must not touch what its parent goes on using: it has no world and no groups."""
    for world in _worlds:
        world.handle = ctypes.c_void_p()
        for group in world.groups:
            group.forget("lockstep: a process group cannot be used in a child of fork(); use it in the process that made it, or spawn")


os.register_at_fork(after_in_child=_after_fork)


class _Store:
    """Callbacks of lockstep/comm.h's ls_store around a torch store. An exception of the store is kept, and raised by check()."""

    def __init__(self, store):
        self._store = store
        self.error = None
        self._own = []  # keys that this rank has set
        self._set, self._get = ls.StoreSet(self.set), ls.StoreGet(self.get)
        self.struct = ls.Store(None, self._set, self._get)

    def set(self, _, key, value, size):
        try:
            self._store.set(key.decode(), ctypes.string_at(value, size).hex())
            self._own.append(key.decode())
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

    def check(self, status, carrier=None):
        """After the call that used it. The callbacks refer to this object: without them it goes when nobody needs it any more, and the store with it."""
        self._set = self._get = self.struct = None
        try:
            ls.check(status)
        except ls.LockstepError as error:
            raise error from self.error or (carrier and carrier.error)

    def clean(self, group):
        """When all members have read them, takes the keys out again: torchrun's store outlives a job that it restarts."""
        ls.check(lib.ls_barrier(group))
        for key in self._own:
            try:
                self._store.delete_key(key)
            except Exception:  # not every kind of store can
                return


class World:
    def __init__(self, store, rank, size, timeout_ms):
        global _newest, _opened
        from torch.distributed import PrefixStore

        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # which may have left keys if it failed at its start
        store = PrefixStore(f"lockstep/{attempt}/{_opened}", store)
        _opened += 1
        self.rank, self.size = rank, size
        self.lock = threading.Lock()  # of messages
        self._thread = threading.get_ident()
        self._one_thread = True
        self.handle = ctypes.c_void_p()
        self.timeout_ms = timeout_ms
        via = _Store(store)
        self._carrier = GlooCarrier(store, rank, size)
        options = ls.WorldOptions(
            timeout_ms=timeout_ms,
            store=ctypes.pointer(via.struct),
            rank=rank,
            size=size,
            carrier=ctypes.addressof(self._carrier.struct),
        )
        via.check(lib.ls_world_open(self.handle, options), self._carrier)
        if self._carrier.is_open:
            reference = weakref.ref(self)
            atexit.register(lambda: reference() and reference().close())
        self.all = lib.ls_world_group(self.handle)
        self.shared = SharedStorages(self)
        self.groups = weakref.WeakSet()  # process groups, as torch has them
        via.clean(self.all)
        _newest = weakref.ref(self)
        _worlds.add(self)

    def open_group(self, ranks, store, key):
        """A group of these ranks, of which only they make this call."""
        group = ctypes.c_void_p()
        via = _Store(store)
        members = (ctypes.c_int * len(ranks))(*ranks)
        via.check(lib.ls_group_open(self.handle, members, len(ranks), via.struct, key.encode(), group))
        via.clean(group)
        return group

    def one_thread(self):
        """Whether messages were only sent and received by the thread that opened the world."""
        if self._one_thread and threading.get_ident() != self._thread:
            self._one_thread = False
        return self._one_thread

    @property
    def record(self):
        return lib.ls_world_record(self.handle)

    def close(self):
        if self.handle:
            lib.ls_world_free(self.handle)
            self.handle = ctypes.c_void_p()
            self._carrier.forget_callbacks()

    def __del__(self):
        if getattr(self, "handle", None) and lib is not None:  # None: Python ends
            self.close()


def newest():
    """The world that this process opened last, or None."""
    world = _newest() if _newest else None
    return world if world is not None and world.handle else None
