"""Gradient buckets of DDP in shared memory, so that reducing them copies nothing.

A bucket is an ordinary storage that DDP makes for itself. The second time that a backward reduces a storage (DDP makes new buckets after the
first step), it is moved: torch replaces its memory by that of a descriptor (as Tensor.share_memory_() does; all tensors in it follow), and
the library replaces the pages behind it by job memory (ls_world_adopt), which the other ranks have mapped already.

A program's own tensors are moved only when it asks for that with share_(). Earlier numpy() arrays of it would point to freed
memory, and a from_numpy() tensor would part from its array. Replacing the pages where they are avoids that, but takes them from children of fork(),
such as the workers of a DataLoader. DDP's buckets are used by nobody else. They are told from what a program's own hooks reduce by who calls: DDP's
reducer is C++ inside the autograd engine, a hook is Python."""

import ctypes
import os
import sys
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from . import _library as ls
from ._library import lib

_SMALLEST = 64 << 10  # bytes; below, a copy costs next to nothing
_PAGE = 4096


def _room_for(size):
    """Whether /dev/shm, where torch makes the descriptor's memory, can hold it for a moment. Too little would be a bus error."""
    try:
        shm = os.statvfs("/dev/shm")
    except OSError:
        return False
    return shm.f_bavail * shm.f_frsize > size + (4 << 20)


def reduced_by_ddp():
    """Whether the caller's caller is the autograd engine itself (DDP's reducer within it), and no hook in Python. Asked in a backward."""
    frame = sys._getframe(1).f_back
    return frame is None or frame.f_globals.get("__name__", "").startswith("torch.autograd")


class SharedStorages:
    """The storages that backwards of one world have reduced, and which of them are in shared memory."""

    def __init__(self, world):
        self._world = weakref.proxy(world)
        self._seen = {}  # by a storage's identity: (weak reference, address in shared memory or None, whether moving was tried)
        self.moved = 0  # storages that are in shared memory

    def see(self, tensor):
        """Called for a tensor that is about to be all-reduced during a backward."""
        storage = tensor.untyped_storage()
        if storage.nbytes() < _SMALLEST:
            return
        key = storage._cdata
        known = self._seen.get(key)
        if known is None:
            self._forget_freed()
            self._seen[key] = StorageWeakRef(storage), None, False
        elif not known[2]:
            self._seen[key] = known[0], self._move(storage), True

    def _move(self, storage):
        """Its address in shared memory; None: it stays where it is, and is copied."""
        size = storage.nbytes()
        if storage.is_shared() or storage.device.type != "cpu" or not _room_for(size):
            return None
        try:
            descriptor, _ = storage._share_fd_cpu_()
        except RuntimeError:  # no descriptors left, or a storage of another kind
            return None
        address = storage.data_ptr()
        whole = (size + _PAGE - 1) // _PAGE * _PAGE
        if lib.ls_world_adopt(self._world.handle, ctypes.c_void_p(address), whole) != ls.OK:
            return None
        os.ftruncate(descriptor, 0)  # nothing is mapped from it any more
        self.moved += 1
        return address

    def share(self, tensor):
        """Moves a tensor's storage now. Whether it is in shared memory."""
        storage = tensor.untyped_storage()
        known = self._seen.get(storage._cdata)
        if known is None or not known[2]:
            self._forget_freed()
            self._seen[storage._cdata] = StorageWeakRef(storage), self._move(storage), True
        return self._seen[storage._cdata][1] is not None

    def _forget_freed(self):
        for key, (reference, address, _) in list(self._seen.items()):
            if reference.expired():
                del self._seen[key]
                if address is not None:
                    self.moved -= 1
                    if self._world.handle:
                        lib.ls_world_disown(self._world.handle, ctypes.c_void_p(address))


def share_(tensor):
    """Moves the storage of a CPU tensor, which stays the same tensor, into the memory that the ranks of this machine share: all_reduce on it then
    copies nothing (25 MiB between two ranks: less than half the time). All tensors with this storage move with it; pointers that were taken before
    (data_ptr(), numpy()) must not be used any more, and a child of fork(), such as a worker of a DataLoader, does not get it. Returns whether it is
    there now: without room in /dev/shm, and in a job of one rank, it stays where it is. Needs a process group of backend "lockstep"."""
    import torch.distributed as dist

    world = getattr(dist.group.WORLD, "_world", None)
    if world is None:
        raise RuntimeError('lockstep: share_() needs init_process_group("lockstep") first')
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise RuntimeError(f"lockstep: share_() of a tensor on {tensor.device}, {tensor.layout}: dense CPU tensors can be shared")
    return world.size > 1 and world.shared.share(tensor)
