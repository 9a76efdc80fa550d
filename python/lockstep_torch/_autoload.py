"""What torch finds through entry points: nothing has to be imported by the program itself."""

import os
import warnings


def register(*_):
    """Makes the backend known to torch.distributed."""


def autoload():
    """Called when torch is imported. An exception here would make that import fail, so there is none."""
    try:
        if os.environ.get("LOCKSTEP_RECORD"):
            from . import record

            record(os.environ["LOCKSTEP_RECORD"])
    except Exception as error:
        warnings.warn(f"lockstep_torch: {error}", stacklevel=2)
