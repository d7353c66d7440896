"""Make the processes that some code starts write their traces into one folder while the code runs.

A new process finds ``TORCH_TRACE`` in its environment. A forked process continues with the loaded torch, so its trace
writer is set explicitly. A process with a different environment cannot be watched.
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
#: Commands that may run Python; all others compile nothing.
_PYTHON = re.compile(r"python|torchrun|accelerate|deepspeed", re.IGNORECASE)
_MAX_LENGTH = 100
# State of the watched code. It is global because hooks for forks and new processes cannot be removed.
_folder: str | None = None
# Folders to remove again later: a process that outlives the watched code recreates its folder when it compiles.
_folders_to_remove: set[str] = set()
_on_note: Callable[[str], None] | None = None
_is_hooked = False


@contextlib.contextmanager
def watched_children(on_note: Callable[[str], None]) -> Iterator[Path]:
    """Yield a temporary folder for the traces of the processes that the ``with`` block starts.

    If the user has set ``TORCH_TRACE``, it stays in force, and the yielded folder is empty.

    Parameters
    ----------
    on_note : callable
        Receives a sentence about traces that are elsewhere, and about each process that cannot be watched, if this
        process starts it directly.
    """
    global _folder, _on_note, _is_hooked  # noqa: PLW0603 - see above
    if _VARIABLE in os.environ:
        user_folder = os.environ[_VARIABLE]
        on_note(f"{_VARIABLE} was already set, so processes wrote their logs to {user_folder}; read them from there.")
        with tempfile.TemporaryDirectory(prefix="graphbreak-") as empty:
            yield Path(empty)
        return
    _remove_folders()
    folder = tempfile.mkdtemp(prefix="graphbreak-")
    _folders_to_remove.add(folder)
    before = list(trace_logger().handlers)
    if not _is_hooked:
        sys.addaudithook(_report_unwatched)
        atexit.register(_remove_folders)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_write_after_fork)
        _is_hooked = True
    try:
        _on_note = on_note
        _folder = os.environ[_VARIABLE] = folder
        yield Path(folder)
    finally:
        _folder = _on_note = None
        if os.environ.get(_VARIABLE) == folder:
            del os.environ[_VARIABLE]
        for handler in list(trace_logger().handlers):  # created by torch if the block reset its logs
            if handler not in before and getattr(handler, "root_dir", None) == folder:
                trace_logger().removeHandler(handler)
                handler.close()
        _remove_folders()


def _remove_folders() -> None:
    for folder in _folders_to_remove:
        shutil.rmtree(folder, ignore_errors=True)


def _write_after_fork() -> None:
    _folders_to_remove.clear()  # the parent removes them
    if _folder is not None:
        with contextlib.suppress(Exception):  # the user's program must not notice us
            logger = trace_logger()
            logger.handlers = [trace_writer(_folder)]


def _report_unwatched(event: str, arguments: tuple[object, ...]) -> None:
    """Report a process that is about to start with an environment in which torch writes no trace for us."""
    if event != "subprocess.Popen" or _folder is None or _on_note is None:
        return
    with contextlib.suppress(Exception):  # the user's program must not notice us
        _, command, _, environment = arguments
        if not isinstance(environment, dict):  # it inherits the environment of this process
            return
        given = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
        words = [command] if isinstance(command, str | bytes) else command
        text = shlex.join(os.fsdecode(word) for word in words)  # type: ignore[attr-defined]
        if given.get(_VARIABLE) != _folder and _PYTHON.search(text):
            shown = text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."
            what = "a different" if _VARIABLE in given else "no"
            _on_note(f"A process is missing because it was started with {what} {_VARIABLE} in its environment: {shown}")
