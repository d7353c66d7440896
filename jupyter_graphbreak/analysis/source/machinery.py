"""Separate the code that only carries a program from the program: what runs a cell, what runs Dynamo, and ourselves."""

from __future__ import annotations

from jupyter_graphbreak.recording.records import is_torch_function_frame

#: Files and folders of such code, as Python finds them: :meth:`.package_paths.PackagePaths.module_path`.
_CARRIERS = (
    "IPython/", "ipykernel/", "ipykernel_launcher.py", "asyncio/", "tornado/", "traitlets/", "zmq/",
    "jupyter_client/", "nest_asyncio", "runpy.py", "<frozen ", "threading.py", "concurrent/futures/",
    "contextlib.py", "debugpy/", "pydevd", "_pydevd", "torch/_dynamo/", "torch/_compile.py",
    "torch/_utils_internal.py", "torch/_functorch/", "torch/_inductor/", "torch/compiler/", "torch/fx/",
    "jupyter_graphbreak/",
)  # fmt: skip
_FUNCTIONS = {("torch/nn/modules/module.py", name) for name in ("_wrapped_call_impl", "_call_impl")}
#: What runs a program: what is outside it belongs to another one.
_RUNNERS = {"runpy.py", "<frozen runpy>", "jupyter_graphbreak/compiling/programs.py"}


def is_machinery(module_path: str | None, function: str) -> bool:
    """Return whether a frame only carries the program.

    Parameters
    ----------
    module_path : str or None
        The file as Python finds it; ``None`` for the reader's own, which is never machinery.
    function : str
        The name of the code object; the empty string where only the file is asked for.
    """
    if module_path is None:
        return False
    return (
        module_path.startswith(_CARRIERS)
        or is_torch_function_frame(module_path, function)
        or (module_path, function) in _FUNCTIONS
    )


def is_runner(module_path: str | None) -> bool:
    """Return whether a file is what runs a program."""
    return module_path in _RUNNERS
