"""Find other threads that are running the user's code."""

from __future__ import annotations

import sys
import threading
import traceback
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING

from jupyter_graphbreak.records.package_paths import OWN_FOLDER, is_library

if TYPE_CHECKING:
    from collections.abc import Container


def busy_thread_name(filenames: Container[str] = ()) -> str | None:
    """Return the name of another thread that is running the user's code, ``None`` if there is none.

    Threads that only wait for work, such as those of a kernel or of an idle pool, are ignored. A pending timer is
    included, because it will call the user's code.

    Parameters
    ----------
    filenames : container of str
        Library files whose code is treated as the user's.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - there is no public way
        files = (outer.f_code.co_filename for outer, _ in traceback.walk_stack(frame))
        if ident != get_ident() and any(_is_user_code(file, filenames) for file in files):
            return names.get(ident, "unknown")
    for thread in threading.enumerate():
        code = getattr(getattr(thread, "function", None), "__code__", None)
        if isinstance(thread, threading.Timer) and code is not None and _is_user_code(code.co_filename, filenames):
            return thread.name
    return None


def _is_user_code(filename: str, filenames: Container[str]) -> bool:
    if filename in filenames:
        return True
    path = Path(filename)
    starts_program = path.parent.name == Path(sys.executable).parent.name  # a kernel, or a test runner
    may_be_user_file = not filename.startswith((OWN_FOLDER, "<frozen")) and not is_library(filename)
    return may_be_user_file and path.suffix in {".py", ""} and not starts_program
