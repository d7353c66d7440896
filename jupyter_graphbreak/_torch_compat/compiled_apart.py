"""Compile code that nobody asked to compile, and leave nothing of that behind in Dynamo."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING

from jupyter_graphbreak._torch_compat.separate_cache import (
    _drop,
    _entries,
    _fresh_profile,
    _kept_counters,
    _living,
    _reset,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def compiled_apart() -> Iterator[None]:
    """Have Dynamo forget, when the context ends, what it compiled in it; what it held before stays.

    What it counts, and the sizes that it has seen vary, are what they were, too. The globals that compiled code needs
    go with that code.
    """
    seen = importlib.import_module("torch._dynamo.convert_frame").input_codes.seen
    importlib.import_module("torch._C._dynamo.eval_frame").reset_code  # noqa: B018 - what is missing fails here
    held = {id(code): (code, {id(entry.guard_manager) for entry in _entries(code)}) for code in _living(seen)}
    with _kept_counters(), _fresh_profile():
        try:
            yield
        finally:
            for code in _living(seen):
                _, managers = held.get(id(code), (code, set()))
                if not managers:
                    _reset(code)
                for entry in _entries(code):
                    if id(entry.guard_manager) not in managers:
                        _drop(entry)
