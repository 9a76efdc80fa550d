"""Between machines: a Gloo group of torch's moves the bytes (ls_carrier in lockstep/comm.h); the library sums them, in its own order.

A message is two of Gloo's: its size, and what is in it. Gloo cannot be asked whether something has come, so a thread for each other rank waits for
what that rank sends, and one more thread for what was sent. A size of 0 is the last message."""

import ctypes
import queue
import threading
import time
from datetime import timedelta

import torch
from torch._C import _distributed_c10d as c10d

from . import _library as ls
from ._library import lib

_FOREVER = timedelta(days=20)
_SIZE, _DATA = 0, 1  # tags


class GlooCarrier:
    """One world's. Nothing is connected unless its ranks are on several machines."""

    def __init__(self, store, rank, size):
        self._store, self._rank, self._size = store, rank, size
        self._open, self._send, self._close = ls.CarrierOpen(self.open), ls.CarrierSend(self.send), ls.CarrierClose(self.close)
        self.struct = ls.Carrier(name=b"gloo", open=self._open, send=self._send, close=self._close)
        self.error = None
        self._group = self._network = None
        self._lock = threading.RLock()  # held in calls of the library that bring something; after close() there are none
        self._sent = queue.SimpleQueue()
        self._last = threading.Semaphore(0)  # counts ranks that send no more

    def forget_callbacks(self):
        """When the library has ended: they refer to this object, which refers to the store."""
        self._open = self._send = self._close = self.struct = None

    @property
    def is_open(self):
        return self._network is not None

    def open(self, _, network):
        try:
            store = c10d.PrefixStore("gloo", self._store)
            self._group = c10d.ProcessGroupGloo(store, self._rank, self._size, timeout=_FOREVER)
            self._network = ctypes.c_void_p(network)
            for peer in range(self._size):
                if peer != self._rank:
                    threading.Thread(target=self._receive, args=(peer,), name=f"lockstep from {peer}", daemon=True).start()
            self._sender = threading.Thread(target=self._await_sent, name="lockstep sent", daemon=True)
            self._sender.start()
            return ls.OK
        except Exception as error:
            self.error = error
            return ls.EIO

    def _put(self, peer, data, message):
        """Sends `data`, a tensor of bytes."""
        size = torch.tensor([data.numel()])
        works = [self._group.send([size], peer, _SIZE)]
        if data.numel():
            works.append(self._group.send([data], peer, _DATA))
        self._sent.put((peer, works, (size, data), message))

    def send(self, _, to, data, size, message):
        try:
            self._put(to, torch.frombuffer((ctypes.c_char * size).from_address(data), dtype=torch.uint8), message)
            return ls.OK
        except Exception as error:
            self._fail(to, error)
            return ls.EIO

    def _await_sent(self):
        while True:
            item = self._sent.get()
            if item is None:
                return
            peer, works, _, message = item
            try:
                for work in works:
                    work.wait(_FOREVER)
            except Exception as error:
                if message is not None:
                    self._fail(peer, error)
            else:
                self._tell(lib.ls_network_sent, message)

    def _receive(self, peer):
        size = torch.zeros(1, dtype=torch.int64)
        room = torch.empty(1 << 16, dtype=torch.uint8)
        try:
            while True:
                self._group.recv([size], peer, _SIZE).wait(_FOREVER)
                n = size.item()
                if not n:
                    break
                if n > room.numel():
                    room = torch.empty(n, dtype=torch.uint8)
                self._group.recv([room[:n]], peer, _DATA).wait(_FOREVER)
                self._tell(lib.ls_network_received, peer, ctypes.c_void_p(room.data_ptr()), n)
        except Exception as error:
            self._fail(peer, error)
        self._last.release()

    def _tell(self, function, *arguments):
        with self._lock:
            if self._network is not None and arguments[0] is not None:
                function(self._network, *arguments)

    def _fail(self, peer, error):
        self._tell(lib.ls_network_failed, peer, str(error).split("\n")[0].encode())

    def close(self, _, healthy):
        if healthy:
            for peer in range(self._size):
                if peer != self._rank:
                    try:
                        self._put(peer, torch.empty(0, dtype=torch.uint8), None)
                    except Exception:  # it has ended
                        self._last.release()
            self._sent.put(None)
            deadline = time.monotonic() + 5
            self._sender.join(5)
            for _ in range(self._size - 1):  # a connection that ends too early is an error for the other rank
                self._last.acquire(timeout=max(0.0, deadline - time.monotonic()))
        with self._lock:
            self._network = None
        self._group = None
