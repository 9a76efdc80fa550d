"""The order of samples of liblockstep (lockstep/data.h) as a batch sampler for torch's DataLoader."""

import ctypes
import os

from . import _library as ls
from ._library import lib

ORDERS = {"shuffled": ls.ORDER_SHUFFLED, "sequential": ls.ORDER_SEQUENTIAL, "torch": ls.ORDER_TORCH}


def _place(rank, world_size):
    """Which rank of how many: as given, else as torch.distributed or the environment says, else alone."""
    if (rank is None) != (world_size is None):
        raise ValueError("lockstep_torch.Sampler: give both rank and world_size, or neither")
    if rank is None:
        from ._record import rank_and_size

        rank, world_size = rank_and_size() or (0, 1)
    if not 0 <= rank < world_size:
        raise ValueError(f"lockstep_torch.Sampler: rank is {rank}; must be between 0 and {world_size - 1}")
    return rank, world_size


def slots_of_rank(slots, ranks, rank):
    """The first slot of a rank, and how many it has."""
    first, count = ctypes.c_int(), ctypes.c_int()
    ls.check(lib.ls_slots_of_rank(slots, ranks, rank, first, count))
    return first.value, count.value


class Sampler:
    """Which samples come when: a function of seed, epoch and position alone, never of ranks or workers.

        sampler = Sampler(len(dataset), batch_size=8, slots=4, seed=1)
        loader = DataLoader(dataset, batch_sampler=sampler, num_workers=2)
        for epoch in range(3):
            for batch in sampler.batches(loader):
                ...

    An optimizer step has `slots` micro-batches of `batch_size` samples over all ranks, numbered 0, 1, ...; each rank gets a consecutive
    range of them, as even as possible. On any number of ranks from 1 to `slots`, a step has the same samples in the same micro-batches.

    samples     how many there are, or a dataset with a length
    batch_size  samples of a micro-batch
    slots       micro-batches of a step, over all ranks; default: one per rank
    order       "shuffled" (each epoch another keyed permutation, any position in constant time and memory), "sequential", or "torch"
                (what torch's DistributedSampler deals to world_size ranks, a number that must divide `slots`)
    drop_last   leave out the samples that do not fill a step; else the last step is short, its samples spread evenly
    rank, world_size   default: those of torch.distributed, or of the environment

    state_dict() is the same on every rank, and load_state_dict() takes it on any number of ranks."""

    def __init__(self, samples, batch_size, *, slots=None, seed=0, order="shuffled", drop_last=True, rank=None, world_size=None):
        if order not in ORDERS:
            raise ValueError(f"lockstep_torch.Sampler: unknown order {order!r}; use one of {', '.join(ORDERS)}")
        self.rank, self.world_size = _place(rank, world_size)
        self.samples = samples if isinstance(samples, int) else len(samples)
        self.slots = self.world_size if slots is None else slots
        self.batch_size, self.seed, self.order, self.drop_last = batch_size, seed, order, drop_last
        if self.samples < 1 or batch_size < 1 or self.slots < 1:
            raise ValueError(
                f"lockstep_torch.Sampler: samples is {self.samples}, batch_size {batch_size} and slots {self.slots}; all must be at least 1"
            )
        if self.slots < self.world_size:
            raise ValueError(f"lockstep_torch.Sampler: {self.slots} slots cannot be spread over {self.world_size} ranks")
        self._first, self._own = slots_of_rank(self.slots, self.world_size, self.rank)
        left = self.samples % (self.slots * batch_size)
        if not drop_last and order != "torch" and 0 < left < self.slots:
            raise ValueError(
                f"lockstep_torch.Sampler: the last step of an epoch has {left} samples for {self.slots} slots, so that some have none; "
                "use drop_last=True or another batch_size"
            )
        self._handle = None
        self._pid = None
        self._epoch = self._step = 0
        self._open()
        self._steps = lib.ls_sampler_steps(self._handle)
        if not self._steps:
            raise ValueError(
                f"lockstep_torch.Sampler: {self.samples} samples do not fill a step of {self.slots} x {batch_size}; use drop_last=False or "
                "smaller batches"
            )

    def _open(self):
        options = ls.SamplerOptions(
            samples=self.samples,
            order=ORDERS[self.order],
            seed=self.seed,
            batch_size=self.batch_size,
            slots=self.slots,
            world_size=self.world_size,
            drop_last=self.drop_last,
            drop_step=self.drop_last,
        )
        handle = ctypes.c_void_p()
        ls.check(lib.ls_sampler_open(handle, options))
        self._handle, self._pid = handle, os.getpid()
        self._room = (ctypes.c_uint64 * self.batch_size)()

    def __del__(self):
        if getattr(self, "_handle", None) and lib is not None and self._pid == os.getpid():  # None: Python ends
            lib.ls_sampler_free(self._handle)

    def __getstate__(self):  # DataLoader workers that are spawned get a copy
        state = self.__dict__.copy()
        state["_handle"] = state["_room"] = None
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._open()

    @property
    def steps(self):
        """Steps of an epoch."""
        return self._steps

    @property
    def epoch(self):
        return self._epoch

    def indices(self, epoch, step, slot):
        """The samples of one micro-batch. Any position takes the same time."""
        count = ctypes.c_size_t()
        ls.check(lib.ls_sampler_get_samples(self._handle, epoch, step, slot, self._room, count))
        return self._room[: count.value]

    def __len__(self):
        """Micro-batches that are left of this epoch on this rank."""
        return (self._steps - self._step) * self._own

    def __iter__(self):
        epoch, first = self._epoch, self._step
        for step in range(first, self._steps):
            for slot in range(self._first, self._first + self._own):
                yield self.indices(epoch, step, slot)
            self._at(epoch, step + 1)

    def batches(self, loader):
        """The batches of a DataLoader that has this sampler, from the current position to the end of the epoch. Unlike the DataLoader's own
        iterator, which may be several batches ahead, this counts a step when the loop asks for what comes after it."""
        epoch, first = self._epoch, self._step
        self._counted = True
        try:
            done = 0
            for batch in loader:
                yield batch
                done += 1
                self._epoch, self._step = epoch, first + done // self._own
            self._epoch, self._step = epoch + 1, 0
        finally:
            self._counted = False

    _counted = False

    def _at(self, epoch, step):
        if self._counted:  # batches() knows better
            return
        self._epoch, self._step = (epoch + 1, 0) if step >= self._steps else (epoch, step)

    def set_epoch(self, epoch):
        """As DistributedSampler's: the next iteration is of this epoch. One that was resumed within it continues where it was."""
        if epoch != self._epoch:
            self._epoch, self._step = epoch, 0

    def state_dict(self):
        """Where the training is in its data: the first step of which not all micro-batches were handed out (with batches(): were done)."""
        return {
            "epoch": self._epoch,
            "step": self._step,
            "samples": self.samples,
            "batch_size": self.batch_size,
            "slots": self.slots,
            "seed": self.seed,
            "order": self.order,
            "drop_last": self.drop_last,
        }

    def load_state_dict(self, state):
        """Goes to that position, in constant time. The data and the shape of a step must be those of the state; the ranks need not."""
        for name, ours in self.state_dict().items():
            if name not in ("epoch", "step") and state.get(name) != ours:
                raise ValueError(f"lockstep_torch.Sampler: the state has {name}={state.get(name)!r}, got {ours!r}")
        if not 0 <= state["step"] < self._steps:
            raise ValueError(f"lockstep_torch.Sampler: the state is at step {state['step']}, but an epoch has {self._steps}")
        self._epoch, self._step = state["epoch"], state["step"]
