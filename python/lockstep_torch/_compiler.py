"""What is not to be compiled, where a program uses torch.compile."""

import inspect


def hide(*classes):
    """C++ calls methods of these classes in the middle of a model that torch.compile runs: they are not to be compiled, nor what they call."""
    try:
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
    except ImportError:
        return
    for kind in classes:
        for method in vars(kind).values():
            if inspect.isfunction(method):
                set_code_exec_strategy(method.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
