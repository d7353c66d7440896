"""Let Dynamo read back a global that the code it traces has just stored, and that did not exist before."""

from __future__ import annotations

import contextlib
import functools
import importlib
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.patching import patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def new_globals_readable() -> Iterator[bool]:
    """Have Dynamo look among the globals that it has stored so far before it takes an unknown name for a builtin.

    ``InstructionTranslatorBase._load_global`` asks the real globals first, in which a name that the traced code stores
    appears only when that code runs.

    Yields
    ------
    bool
        Whether this torch lets us do so.
    """
    module = importlib.import_module("torch._dynamo.symbolic_convert")
    tracers = [getattr(module, name, None) for name in ("InstructionTranslatorBase", "InliningInstructionTranslator")]
    with contextlib.ExitStack() as stack:
        possible = False
        for tracer in tracers:
            original = vars(tracer).get("_load_global") if tracer is not None else None
            if original is not None:
                stack.enter_context(patched(tracer, "_load_global", _reading_back(original)))
                possible = True
        yield possible


def _reading_back(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _load_global(self: Any, inst: Any, *args: Any, **kwargs: Any) -> Any:
        stored = None
        with contextlib.suppress(AttributeError, KeyError, TypeError):  # another torch: then it is as torch does it
            stored = _stored_value(self, inst)
        if stored is None:
            return original(self, inst, *args, **kwargs)
        self.push(stored)
        return None

    return _load_global


def _stored_value(tracer: Any, inst: Any) -> Any:
    """Return the variable that a new global stands for, ``None`` for any other name."""
    name = getattr(inst, "argval", None)
    if name in tracer.f_globals or name not in getattr(tracer, "symbolic_globals", ()):
        return None
    if tracer.output.global_scope is not tracer.f_globals:
        return None
    effects = tracer.output.side_effects
    return effects.load_global(effects[tracer.symbolic_globals[name]], name)
