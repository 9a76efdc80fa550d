"""What torch finds through entry points: nothing has to be imported by the program itself.

LOCKSTEP_RECORD=FOLDER   records the process (record())
LOCKSTEP_TORCH=1         groups of CPU tensors that ask for gloo, or for nothing, get the backend lockstep"""

import os
import warnings


def register():
    """Makes the backend known to torch.distributed. torch >= 2.14 calls it when "lockstep" is asked for by name."""
    from . import _backend

    _backend.register()


def use_instead_of_gloo():
    """From now on gloo on CPUs means lockstep, for programs that cannot be configured (Accelerate and Trainer accept gloo only)."""
    import torch
    from torch.distributed import distributed_c10d as c10d

    register()
    original = c10d._new_process_group_helper
    if getattr(original, "_lockstep", False):
        return

    def helper(size, rank, ranks, backend, *args, **kwargs):
        if str(backend).lower() in ("gloo", "cpu:gloo", "undefined", "none", "") and not torch.cuda.is_available():
            backend = c10d.Backend("lockstep")
        return original(size, rank, ranks, backend, *args, **kwargs)

    helper._lockstep = True
    c10d._new_process_group_helper = helper


def autoload():
    """Called when torch is imported. An exception here would make that import fail, so there is none."""
    try:
        import torch.distributed as dist

        if dist.is_available():
            register()
            if os.environ.get("LOCKSTEP_TORCH") == "1":
                use_instead_of_gloo()
        if os.environ.get("LOCKSTEP_RECORD"):
            from . import record

            record(os.environ["LOCKSTEP_RECORD"])
    except Exception as error:
        warnings.warn(f"lockstep_torch: {error}", stacklevel=2)
