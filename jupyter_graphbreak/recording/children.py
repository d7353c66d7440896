"""Have the processes that some code starts write their traces into one folder, while the code runs.

A process that is started anew finds ``TORCH_TRACE`` in its environment; one that is forked off goes on with the torch
that is loaded here, and gets the same writer by hand. One that is given another environment cannot be watched.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_graphbreak._torch_compat.structured_trace import trace_logger, trace_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_VARIABLE = "TORCH_TRACE"
#: Commands that may run Python; others compile nothing.
_PYTHON = re.compile(r"python|torchrun|accelerate|deepspeed", re.IGNORECASE)
_MOST_CHARACTERS = 100
# Of the code that runs now; what is to be done after a fork or before a process is started cannot be taken back.
_folder: str | None = None
# A process that outlives the code which started it makes its folder anew when it compiles something.
_left: set[str] = set()
_tell: Callable[[str], None] | None = None
_is_hooked = False


@contextlib.contextmanager
def watched_children(tell: Callable[[str], None]) -> Iterator[Path]:
    """Yield the folder into which processes that the ``with`` block starts write their traces; it is gone after it.

    A ``TORCH_TRACE`` of the user's own stays in force: the folder is empty then, and the traces are in the user's.

    Parameters
    ----------
    tell : callable
        Told in a sentence where traces are that are not in the folder, or which process cannot be watched, as far as
        this process starts it itself.
    """
    global _folder, _tell, _is_hooked  # noqa: PLW0603 - see there
    if _VARIABLE in os.environ:
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
    if not _is_hooked:
        sys.addaudithook(_name_unwatched)
        atexit.register(_remove_left)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_write_after_fork)
        _is_hooked = True
    try:
        _tell = tell
        _folder = os.environ[_VARIABLE] = folder
        yield Path(folder)
    finally:
        _folder = _tell = None
        if os.environ.get(_VARIABLE) == folder:
            del os.environ[_VARIABLE]
        for handler in list(trace_logger().handlers):  # made by torch, if the block set up its logs anew
            if handler not in before and getattr(handler, "root_dir", None) == folder:
                trace_logger().removeHandler(handler)
                handler.close()
        _remove_left()


def _remove_left() -> None:
    for folder in _left:
        shutil.rmtree(folder, ignore_errors=True)


def _write_after_fork() -> None:
    _left.clear()  # they are its parent's to remove
    if _folder is not None:
        with contextlib.suppress(Exception):  # the user's program must not notice us
            logger = trace_logger()
            logger.handlers = [trace_writer(_folder)]


def _name_unwatched(event: str, arguments: tuple[object, ...]) -> None:
    """Say of a process that is about to start that it has an environment in which torch writes no trace for us."""
    if event != "subprocess.Popen" or _folder is None or _tell is None:
        return
    with contextlib.suppress(Exception):  # the user's program must not notice us
        _, command, _, environment = arguments
        if not isinstance(environment, dict):  # then it has that of this process
            return
        given = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
        words = [command] if isinstance(command, str | bytes) else command
        text = shlex.join(os.fsdecode(word) for word in words)  # type: ignore[attr-defined]
        if given.get(_VARIABLE) != _folder and _PYTHON.search(text):
            shown = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
            what = "another" if _VARIABLE in given else "no"
            _tell(f"A process is not here, because it was started with {what} {_VARIABLE} in its environment: {shown}")
