"""Recognize machinery: code that only runs the user's program, such as IPython, Dynamo and this package."""

from __future__ import annotations

from jupyter_graphbreak.records.records import is_inserted_frame

#: Files and folders of machinery, as :meth:`.package_paths.PackagePaths.module_path` returns them.
_MACHINERY_FILES = (
    "IPython/", "ipykernel/", "ipykernel_launcher.py", "asyncio/", "tornado/", "traitlets/", "zmq/",
    "jupyter_client/", "nest_asyncio", "runpy.py", "<frozen ", "threading.py", "concurrent/futures/",
    "contextlib.py", "debugpy/", "pydevd", "_pydevd", "torch/_dynamo/", "torch/_compile.py",
    "torch/_utils_internal.py", "torch/_functorch/", "torch/_inductor/", "torch/compiler/", "torch/fx/",
    "jupyter_graphbreak/",
)  # fmt: skip
_MACHINERY_FUNCTIONS = {("torch/nn/modules/module.py", name) for name in ("_wrapped_call_impl", "_call_impl")}
#: Files that run a program; the stack outside them belongs to a different program.
_RUNNER_FILES = {"runpy.py", "<frozen runpy>", "jupyter_graphbreak/commands/script.py"}


def is_machinery(module_path: str | None, function: str) -> bool:
    """Return whether a frame is machinery.

    Parameters
    ----------
    module_path : str or None
        The file as Python imports it; ``None`` for the user's own files, which are never machinery.
    function : str
        The name of the code object; the empty string to check only the file.
    """
    if module_path is None:
        return False
    return (
        module_path.startswith(_MACHINERY_FILES)
        or is_inserted_frame(module_path, function)
        or (module_path, function) in _MACHINERY_FUNCTIONS
    )


def is_runner(module_path: str | None) -> bool:
    """Return whether a file runs programs, as Python's ``runpy`` does."""
    return module_path in _RUNNER_FILES
