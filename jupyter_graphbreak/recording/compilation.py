"""Compile a function that the reader did not compile, and call it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_graphbreak._torch_compat.compiled_apart import compiled_apart, generators_kept, warnings_kept
from jupyter_graphbreak._torch_compat.configuration import as_uncompiled, errors_suppressed, grad_mode_kept
from jupyter_graphbreak._torch_compat.new_globals import new_globals_readable
from jupyter_graphbreak.recording.steady import Opened, deferred_interrupts
from jupyter_graphbreak.recording.targets import is_compiled, own_codes

if TYPE_CHECKING:
    from collections.abc import Callable


class Options(msgspec.Struct, frozen=True):
    """Arguments for ``torch.compile``, as far as the reader gave them.

    Without a backend and a mode the backend is ``eager``: it captures the same graphs and breaks at the same places
    as any other, gives the same numbers as uncompiled code, and generates no code, so that a second look is quick.
    """

    backend: str | None = None
    mode: str | None = None
    fullgraph: bool = False
    dynamic: bool | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments for ``torch.compile``."""
        given: dict[str, Any] = {"fullgraph": self.fullgraph, "dynamic": self.dynamic}
        if self.mode is not None:
            given["mode"] = self.mode
        backend = self.backend or (None if self.mode else "eager")
        if backend is not None:
            given["backend"] = backend
        return given


def ensure_compiled(fn: Callable[..., Any], options: Options) -> Callable[..., Any]:
    """Return the function compiled; as it is, where it is compiled already."""
    import torch

    if is_compiled(fn):
        return fn
    compiled: Callable[..., Any] = torch.compile(fn, **options.arguments())
    return compiled


def run_compiled(function: Callable[[], Any], options: Options, on_fault: Callable[[str, Exception], None]) -> Any:
    """Compile a function that the reader did not ask to compile, and call it.

    What Dynamo cannot compile for a fault of its own runs eagerly, so that the code does what it does without us;
    with ``fullgraph`` the error is what was asked for. Nothing that was compiled is left in Dynamo.

    Parameters
    ----------
    function : callable
    options : Options
    on_fault : callable
        Told what failed on our side; the function then runs as it is.
    """
    opened = Opened(on_fault)
    call: Callable[[], Any] = function
    try:
        with deferred_interrupts():
            if not options.fullgraph:
                opened.enter("suppressing errors", errors_suppressed, None)
                opened.enter("keeping generators", generators_kept, None)
            opened.enter("acting as uncompiled", as_uncompiled, None)
            if not options.fullgraph:
                opened.enter("keeping warnings", warnings_kept, None)
            opened.enter("compiling apart", compiled_apart, None)
            readable = opened.enter("reading new globals", new_globals_readable, default=False)
            if opened.complete and readable:
                call = ensure_compiled(function, options)
            elif opened.complete:
                fault = RuntimeError("this torch does not let Dynamo read back a new global; the code ran uncompiled")
                on_fault("compiling the cell", fault)
        with contextlib.nullcontext() if _sets_grad_mode(function) else grad_mode_kept():
            return call()
    finally:
        with deferred_interrupts():
            try:
                opened.contexts.close()
            except Exception as fault:  # noqa: BLE001 - the call has ended, and its result stands
                on_fault("undoing what compiling the cell needed", fault)


def _sets_grad_mode(function: Callable[[], Any]) -> bool:
    """Whether code that a function leads to may set the grad mode otherwise than for a block, which is to stay.

    The function itself does not: no such code is compiled.
    """
    own = getattr(function, "__code__", None)
    return any(
        "set_grad_enabled" in code.co_names
        for code in own_codes(function)
        if own is None or code.co_filename != own.co_filename
    )
