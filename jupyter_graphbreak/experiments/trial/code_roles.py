"""Distinguish the user's files from libraries' files, and find the line of the user's code that leads to an effect."""

from __future__ import annotations

import functools
import inspect
import os
import sysconfig
from pathlib import PurePath
from typing import TYPE_CHECKING

import torch

from jupyter_graphbreak._torch_compat.hooks.stacks_and_code_objects import frames_outward, stack_frame_of
from jupyter_graphbreak.records.package_paths import OWN_FOLDER, is_library

if TYPE_CHECKING:
    from types import FrameType
    from typing import Literal

    from jupyter_graphbreak.records.records import StackFrame

    #: The owner of the code in a file. An effect in "neutral" code belongs to the code that called it. Effects of
    #: "exempt" code are ignored. "Internal" code is this package's own.
    Role = Literal["user", "library", "neutral", "exempt", "internal"]

_STDLIB_FOLDERS = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib"))
_TORCH_FOLDER = os.path.join(os.path.dirname(inspect.getfile(torch)), "")  # noqa: PTH118, PTH120 - compared with the file names of code objects
#: The folders of PyTorch's compilers, whose caches, locks, threads and processes are not treated as effects.
_COMPILER_FOLDERS = tuple(
    os.path.join(_TORCH_FOLDER, name, "")  # noqa: PTH118
    for name in ("_inductor", "_dynamo", "_functorch", "_subclasses", "_logging")
)
#: Files of the compilers that call user code in each run.
_COMPILER_RUNTIME_FILES = tuple(
    os.path.join(_TORCH_FOLDER, "_dynamo", name)  # noqa: PTH118
    for name in ("eval_frame.py", "external_utils.py", "decorators.py")
)
#: Packages of other compilers.
_COMPILER_PACKAGES = {"triton"}
#: Packages that compilers use.
_HELPER_PACKAGES = {"filelock", "mpmath", "networkx", "sympy"}
#: Prefixes of the file names of code that Python or PyTorch generated.
_GENERATED_PREFIXES = ("<frozen ", "<eval_with_key>", "<lambda", "<attrs ", "<__array_function__", "<torch")
#: The functions that pass a log record to the handlers. A trial captures the records, so handlers have no effect.
_RECORD_PASSING_FUNCTIONS = {"callHandlers", "handle", "emit"}
_MAX_FRAMES = 2000
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")
_LOGGING_FILE = os.path.join("logging", "__init__.py")  # noqa: PTH118 - compared with the file names of code objects
#: The file of the thread that checks whether progress bars are refreshed often enough.
_MONITOR_FILE = os.path.join("tqdm", "_monitor.py")  # noqa: PTH118
#: The function that creates the lock of all progress bars; Python's resource tracker registers this lock.
_LOCK_CONSTRUCTOR = "create_mp_lock"


@functools.lru_cache(maxsize=4096)
def _role_of_file(filename: str) -> Role:
    """Return whose code a file contains, for the attribution of effects."""
    if filename.startswith("<frozen importlib"):
        return "exempt"
    if filename.startswith(_GENERATED_PREFIXES):
        return "neutral"
    if filename.startswith(OWN_FOLDER):
        return "internal"
    if filename.startswith(_TORCH_FOLDER):
        is_compiler = filename.startswith(_COMPILER_FOLDERS) and not filename.startswith(_COMPILER_RUNTIME_FILES)
        return "exempt" if is_compiler else "neutral"
    if filename.startswith("<") or not is_library(filename):
        return "user"
    if filename.startswith(_STDLIB_FOLDERS) and not any(
        f"{os.sep}{name}{os.sep}" in filename for name in _PACKAGE_FOLDERS
    ):
        return "neutral"
    parts = {*PurePath(filename).parts}
    if parts & _COMPILER_PACKAGES:
        return "exempt"
    return "neutral" if parts & _HELPER_PACKAGES else "library"


def is_user_code(filename: str) -> bool:
    """Return whether a file contains user code."""
    return _role_of_file(filename) == "user"


def is_called_by_user(frame: FrameType) -> bool:
    """Return whether a call made in a frame comes from user code, directly or through Dynamo's wrapper."""
    caller: FrameType | None = frame
    while caller is not None and caller.f_code.co_filename.startswith(_COMPILER_RUNTIME_FILES):
        caller = caller.f_back
    return caller is not None and is_user_code(caller.f_code.co_filename)


def origin_of_effect(frame: FrameType | None) -> tuple[bool, StackFrame | None]:
    """Return whether an event in a frame is an effect of the user's program. Also return the line that leads to it.

    The line is in user code or, if no user code is on the stack, in an installed package. Effects of PyTorch's
    compilers, of imports, of log handlers, and of the monitor and the lock of a progress bar, such as the bar that
    ``torch.fx.Interpreter`` shows, are ignored.
    """
    library_frame: FrameType | None = None
    while frame is not None and _role_of_file(frame.f_code.co_filename) == "internal":  # a stand-in, or a hook
        frame = frame.f_back
    for outer in frames_outward(frame, _MAX_FRAMES):
        code = outer.f_code
        role = _role_of_file(code.co_filename)
        if role == "user":
            return True, stack_frame_of(outer)
        if role == "exempt" or (code.co_name in _RECORD_PASSING_FUNCTIONS and code.co_filename.endswith(_LOGGING_FILE)):
            return False, None
        if role == "internal":
            break
        if role == "library" and library_frame is None:
            if code.co_filename.endswith(_MONITOR_FILE) or code.co_name == _LOCK_CONSTRUCTOR:
                return False, None
            library_frame = outer
    if library_frame is None:
        return False, None
    return True, stack_frame_of(library_frame)
