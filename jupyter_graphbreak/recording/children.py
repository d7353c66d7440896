"""Have the processes that some code starts write their traces into one folder, while the code runs.

A process that is started anew finds ``TORCH_TRACE`` in its environment; one that is forked off goes on with the torch
that is loaded here, and gets the same writer by hand.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_graphbreak._torch_compat.structured_trace import trace_logger, trace_writer

if TYPE_CHECKING:
    from collections.abc import Iterator

_VARIABLE = "TORCH_TRACE"
_folder: str | None = None  # of the code that runs now; what is to be done after a fork cannot be taken back
_is_hooked = False


@contextlib.contextmanager
def watched_children() -> Iterator[Path]:
    """Yield the folder into which processes that the ``with`` block starts write their traces; it is gone after it.

    A ``TORCH_TRACE`` of the user's own stays in force: the folder is empty then, and the traces are in the user's.
    """
    global _folder, _is_hooked  # noqa: PLW0603 - see there
    if _VARIABLE in os.environ:
        with tempfile.TemporaryDirectory(prefix="graphbreak-") as empty:
            yield Path(empty)
        return
    folder = tempfile.mkdtemp(prefix="graphbreak-")
    before = list(trace_logger().handlers)
    if not _is_hooked and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_write_after_fork)
        _is_hooked = True
    try:
        _folder = os.environ[_VARIABLE] = folder
        yield Path(folder)
    finally:
        _folder = None
        if os.environ.get(_VARIABLE) == folder:
            del os.environ[_VARIABLE]
        for handler in list(trace_logger().handlers):  # made by torch, if the block set up its logs anew
            if handler not in before and getattr(handler, "root_dir", None) == folder:
                trace_logger().removeHandler(handler)
                handler.close()
        shutil.rmtree(folder, ignore_errors=True)


def _write_after_fork() -> None:
    if _folder is not None:
        with contextlib.suppress(Exception):  # the user's program must not notice us
            logger = trace_logger()
            logger.handlers = [trace_writer(_folder)]
