"""Distinguish internal errors from errors that the user's code raises."""

from __future__ import annotations

import copy
import traceback

from jupyter_graphbreak.faults import collect_fault, internal_error_sentence
from jupyter_graphbreak.records.package_paths import OWN_FOLDER

#: The file of Python's module ``copy``.
_COPY_FILE = copy.__file__
#: The name of this package, which raises its own exceptions on purpose.
_PACKAGE = __name__.partition(".")[0]
#: The function that raises the original's error again. The traceback ends there if one of PyTorch's functions failed.
_RERAISING_FUNCTION = "Reference.__init__"


def is_internal(error: Exception) -> bool:
    """Return whether an exception was raised in this package or in ``copy``, rather than in the user's code."""
    code_objects = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    if (
        not code_objects
        or isinstance(error, OSError | ValueError)
        or code_objects[-1].co_qualname == _RERAISING_FUNCTION
    ):
        return False  # OSError and ValueError are usage errors, raised on purpose
    return code_objects[-1].co_filename.startswith((OWN_FOLDER, _COPY_FILE))


def note_if_internal(activity: str, error: BaseException) -> None:
    """Note an error for the report if it is internal and not raised on purpose. ``activity`` follows "while"."""
    is_on_purpose = isinstance(error, LookupError) or type(error).__module__.startswith(f"{_PACKAGE}.")
    if isinstance(error, Exception) and not is_on_purpose and is_internal(error):
        collect_fault(internal_error_sentence(activity, error))
