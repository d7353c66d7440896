"""How each front end captures a function, as a user does it by hand."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.compiled import has_cached_code
from jupyter_graphbreak._torch_compat.separate_cache import own_backend
from jupyter_graphbreak.trial.inputs import Arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    Program = Callable[..., Any]
    Capture = Callable[[Any, Arguments], Program]


def _as_module(call: Any) -> Any:
    """Return a module that calls a callable, as a user writes it by hand: ``torch.export`` takes modules only."""

    def forward(_: Any, *args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    scope = getattr(call, "__globals__", None)
    if scope is not None:
        # Otherwise Dynamo imports the function's module by name and writes to the globals of that module (torch 2.9).
        forward = types.FunctionType(forward.__code__, scope, "forward", None, forward.__closure__)
    module = type("AsModule", (torch.nn.Module,), {"forward": forward})()
    # The parameters of a method are those of its module.
    module.owner = call if isinstance(call, torch.nn.Module) else getattr(call, "__self__", None)
    return module


def _trace(call: Any, first: Arguments) -> Program:
    if not first.kwargs:
        program: Program = torch.jit.trace(call, first.args)
        return program
    named = first.named(call)
    traced = torch.jit.trace(call, example_kwarg_inputs=named)
    return lambda *args, **kwargs: traced(**Arguments(*args, **kwargs).named(call))


def _script(call: Any, _: Arguments) -> Program:
    program: Program = torch.jit.script(call)
    return program


def _symbolic_trace(call: Any, _: Arguments) -> Program:
    return torch.fx.symbolic_trace(call)


def _compile(call: Any, _: Arguments, *, backend: str, fullgraph: bool) -> Program:
    return torch.compile(call, backend=own_backend(backend), fullgraph=fullgraph)


def _export(call: Any, first: Arguments, *, strict: bool) -> Program:
    module = call if isinstance(call, torch.nn.Module) else _as_module(call)
    code = getattr(module.forward, "__code__", None)
    if strict and code is not None and has_cached_code(code):
        module = _as_module(call)  # strict export makes Dynamo forget the code of the module's own method
    return torch.export.export(module, first.args, first.kwargs or None, strict=strict).module()


def captures(backend: str) -> list[tuple[str, Capture]]:
    """Return the name of each front end, and the function that captures a callable with arguments.

    Parameters
    ----------
    backend : str
        The backend of ``torch.compile``.
    """
    return [
        ("torch.jit.trace", _trace),
        ("torch.jit.script", _script),
        ("torch.fx.symbolic_trace", _symbolic_trace),
        ("torch.compile", functools.partial(_compile, backend=backend, fullgraph=False)),
        ("torch.compile(fullgraph=True)", functools.partial(_compile, backend=backend, fullgraph=True)),
        ("torch.export.export", functools.partial(_export, strict=False)),
        ("torch.export.export(strict=True)", functools.partial(_export, strict=True)),
    ]
