"""Separate the code that only carries a program from the program: what runs a cell, what runs Dynamo, and ourselves."""

from __future__ import annotations

from jupyter_graphbreak.recording.records import hands_on

# Frames that only carry the program: what runs a cell, what runs Dynamo, and ourselves.
_PARTS = (
    "/IPython/", "/ipykernel/", "/ipykernel_launcher", "/asyncio/", "/tornado/", "/traitlets/", "/zmq/",
    "/jupyter_client/", "/nest_asyncio", "/runpy", "<frozen ", "/threading.py", "/concurrent/futures/",
    "/contextlib.py", "/debugpy/", "/pydevd", "/torch/_dynamo/", "/torch/_compile.py", "/torch/_utils_internal.py",
    "/torch/_functorch/", "/torch/_inductor/", "/torch/compiler/", "/torch/fx/", "/jupyter_graphbreak/",
)  # fmt: skip
_FUNCTIONS = {("/torch/nn/modules/module.py", name) for name in ("_wrapped_call_impl", "_call_impl")}


def is_machinery(path: str, function: str) -> bool:
    """Return whether a frame only carries the program.

    Parameters
    ----------
    path : str
        The file's name, with slashes.
    function : str
        The name of the code object; the empty string where only the file is asked for.
    """
    if any(part in path for part in _PARTS) or hands_on(path, function):
        return True
    return any(path.endswith(end) and function == name for end, name in _FUNCTIONS)


def is_runpy(path: str) -> bool:
    """Return whether a file is what runs a program: what is outside it belongs to another one."""
    return path.endswith(("runpy.py", "<frozen runpy>", "/jupyter_graphbreak/compiling/programs.py"))
