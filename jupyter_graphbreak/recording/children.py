"""Collect the traces of processes that some code starts in one folder, while the code runs.

A process that is started anew finds ``TORCH_TRACE`` in its environment. A forked process keeps the torch that is loaded
here, and gets the same writer from us. A process that is given another environment cannot be watched. Several blocks
may be watched at once: each thread starts its processes with the folder of its own block.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_graphbreak._torch_compat.patching import patched
from jupyter_graphbreak._torch_compat.structured_trace import trace_logger, trace_writer
from jupyter_graphbreak._torch_compat.threads import claimed, claims_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak._torch_compat.threads import Claim

_VARIABLE = "TORCH_TRACE"
#: Commands that may run Python; others compile nothing.
_PYTHON = re.compile(r"python|torchrun|accelerate|deepspeed", re.IGNORECASE)
_MOST_CHARACTERS = 100
#: The audit events that precede a process which inherits the environment.
_STARTS = frozenset({"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec"})
# A process that outlives the code which started it makes its folder anew when it compiles something.
_left: set[str] = set()
#: The blocks that are watched now, in the order in which they began.
_blocks: list[_Block] = []
#: Whether ``TORCH_TRACE`` is missing because a thread outside of all blocks started a process.
_taken_out = [False]
_one_start = threading.RLock()
#: Whether the hooks are in place: neither an audit hook nor a function that runs after a fork can be removed.
_hooked = [False]


class _Block(NamedTuple):
    """A block of code whose processes are watched.

    Parameters
    ----------
    claim : Claim
        Says which threads run the block.
    """

    folder: str
    claim: Claim
    tell: Callable[[str], None]


@contextlib.contextmanager
def watched_children(tell: Callable[[str], None]) -> Iterator[Path]:
    """Yield the folder into which processes that the ``with`` block starts write their traces; it is gone after it.

    A ``TORCH_TRACE`` of the user's own stays in force: the folder is empty then, and the traces are in the user's.

    Parameters
    ----------
    tell : callable
        Receives a sentence that says where traces are that are not in the folder, or which process cannot be watched,
        as far as this process starts it itself.
    """
    if _is_programs_own(os.environ.get(_VARIABLE)):
        tell(
            f"{_VARIABLE} was set before: processes wrote their logs to {os.environ[_VARIABLE]}, to be read from there."
        )
        with tempfile.TemporaryDirectory(prefix="graphbreak-") as empty:
            yield Path(empty)
        return
    _remove_left()
    folder = tempfile.mkdtemp(prefix="graphbreak-")
    _left.add(folder)
    before = list(trace_logger().handlers)
    _hook()
    outer = _block_here()
    with claimed() as claim, _starts_followed():
        block = _Block(folder, claim, tell)
        _blocks.append(block)
        try:
            os.environ[_VARIABLE] = folder
            yield Path(folder)
        finally:
            _blocks.remove(block)
            _leave(folder)
            for handler in list(trace_logger().handlers):  # made by torch, if the block set up its logs anew
                if handler not in before and getattr(handler, "root_dir", None) == folder:
                    trace_logger().removeHandler(handler)
                    handler.close()
            if outer is not None and outer in _blocks:  # the processes of a block belong to the block around it as well
                with contextlib.suppress(OSError):
                    for path in Path(folder).iterdir():
                        shutil.move(path, outer.folder)
            _remove_left()


def _is_programs_own(value: str | None) -> bool:
    return value is not None and all(block.folder != value for block in _blocks)


def _block_here() -> _Block | None:
    """Return the innermost block that this thread works for."""
    claims = claims_here()
    return next((block for block in reversed(_blocks) if block.claim in claims), None)


def _leave(folder: str) -> None:
    """Give the environment the folder of another block that is still watched, when a block ends."""
    if os.environ.get(_VARIABLE) == folder:
        _set(_blocks[-1].folder if _blocks else None)
    if not _blocks:
        _taken_out[0] = False


def _set(folder: str | None) -> None:
    if folder is None:
        os.environ.pop(_VARIABLE, None)
    else:
        os.environ[_VARIABLE] = folder


def _choose_folder() -> None:
    """Give the environment, which a process that starts now inherits, the folder of this thread's block."""
    now = os.environ.get(_VARIABLE)
    if not _blocks or _is_programs_own(now) or (now is None and not _taken_out[0]):
        return
    block = _block_here()
    _taken_out[0] = block is None
    _set(None if block is None else block.folder)


def _hook() -> None:
    if not _hooked[0]:
        sys.addaudithook(_before_start)
        atexit.register(_remove_left)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_write_after_fork)
        _hooked[0] = True


@contextlib.contextmanager
def _starts_followed() -> Iterator[None]:
    """Start processes one after the other, each with the folder of the thread that starts it.

    The environment belongs to the whole process, and ``multiprocessing`` spawns without an audit event.
    """
    util: Any = importlib.import_module("multiprocessing.util")
    with contextlib.ExitStack() as stack:
        for owner, name in ((subprocess.Popen, "__init__"), (util, "spawnv_passfds")):
            original = getattr(owner, name, None)
            if original is not None:  # not on every system
                stack.enter_context(patched(owner, name, _starting(original)))
        yield


def _starting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def start(*args: Any, **kwargs: Any) -> Any:
        with _one_start:
            with contextlib.suppress(Exception):  # the user's program must not notice us
                _choose_folder()
            return original(*args, **kwargs)

    return start


def _remove_left() -> None:
    for folder in _left - {block.folder for block in _blocks}:
        shutil.rmtree(folder, ignore_errors=True)


def _write_after_fork() -> None:
    _left.clear()  # they are its parent's to remove
    if not _blocks:
        return
    with contextlib.suppress(Exception):  # the user's program must not notice us
        _choose_folder()
        block = _block_here()
        if block is not None:
            trace_logger().handlers = [trace_writer(block.folder)]


def _before_start(event: str, arguments: tuple[Any, ...]) -> None:
    """Choose the folder for a process that is about to start; note if its own environment prevents that."""
    if not _blocks or event not in _STARTS:
        return
    with contextlib.suppress(Exception):  # the user's program must not notice us
        _choose_folder()
        block = _block_here()
        if event == "subprocess.Popen" and block is not None:
            _name_unwatched(block, arguments[1], arguments[3])


def _name_unwatched(block: _Block, command: Any, environment: Any) -> None:
    if not isinstance(environment, dict):  # then it has that of this process
        return
    given = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
    words = [command] if isinstance(command, str | bytes) else command
    text = shlex.join(os.fsdecode(word) for word in words)
    if given.get(_VARIABLE) != block.folder and _PYTHON.search(text):
        shown = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
        what = "another" if _VARIABLE in given else "no"
        block.tell(f"A process is not here, because it was started with {what} {_VARIABLE} in its environment: {shown}")
