"""Find the Python functions that implement operators; often only PyTorch's dispatcher refers to them."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.records.package_paths import is_library

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The number of registered kernels during the last search, and the functions that the search returned.
_last_search: tuple[int, list[weakref.ref[types.FunctionType]]] = 0, []


def python_kernels() -> Iterator[types.FunctionType]:
    """Yield the user's functions that C++ code refers to, such as those that ``torch.library.Library.impl`` registers.

    The dispatcher does not tell which functions it calls. These functions have more references than Python's objects
    account for.
    """
    global _last_search  # noqa: PLW0603 - a search looks at all objects
    registered_count = len(getattr(sys.modules.get("torch.library"), "_impls", ()))
    if registered_count != _last_search[0]:
        _last_search = registered_count, [weakref.ref(function) for function in _functions_referenced_outside_python()]
    yield from (function for reference in _last_search[1] if (function := reference()) is not None)


def _functions_referenced_outside_python() -> list[types.FunctionType]:
    """Return the user's functions that have more references outside Python's objects than functions usually have."""
    functions = {id(item): item for item in gc.get_objects() if _is_user_function(item)}
    reference_counts = Counter(id(item) for item in gc.get_referents(*gc.get_objects()) if id(item) in functions)
    outside_counts = [
        (sys.getrefcount(function) - reference_counts[number], function) for number, function in functions.items()
    ]
    frequencies = Counter(count for count, _ in outside_counts)
    usual_count = max(frequencies, key=lambda count: frequencies[count], default=0)
    return [function for count, function in outside_counts if count > usual_count]


def _is_user_function(value: Any) -> bool:
    return type(value) is types.FunctionType and not is_library(value.__code__.co_filename)
