"""PyTorch on lockstep: see the package's README."""

from typing import TYPE_CHECKING

from ._library import LockstepError
from ._memory import keep_memory
from ._sampler import Sampler

if TYPE_CHECKING:
    from ._autoload import register, use_instead_of_gloo
    from ._data_parallel import DataParallel
    from ._record import Recorder, phase, record, step
    from ._shared import share_
    from ._synchrony import SynchronizationWarning

__all__ = [
    "DataParallel",
    "LockstepError",
    "Recorder",
    "Sampler",
    "SynchronizationWarning",
    "keep_memory",
    "phase",
    "record",
    "register",
    "share_",
    "step",
    "use_instead_of_gloo",
]
__version__ = "0.1.0"

_MODULES = {
    "Recorder": "_record",
    "phase": "_record",
    "record": "_record",
    "share_": "_shared",
    "step": "_record",
    "SynchronizationWarning": "_synchrony",
    "DataParallel": "_data_parallel",
    "register": "_autoload",
    "use_instead_of_gloo": "_autoload",
}


def __getattr__(name):
    # What needs torch is imported when it is used: torch itself imports this package while it is being imported (_autoload).
    if name not in _MODULES:
        raise AttributeError(f"module 'lockstep_torch' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module("." + _MODULES[name], __name__), name)
    globals()[name] = value
    return value
