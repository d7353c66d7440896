"""Call a construct uncompiled and compiled, twice each, and describe whether Dynamo traces it."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import random
import re
import sys
import types
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import jupyter_graphbreak

if TYPE_CHECKING:
    from collections.abc import Callable

    from notebooks.constructs import Construct

    Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]

_ID = re.compile(r"gb(\d{4})\.html")


@dataclass(frozen=True)
class _Result:
    """The results of two calls, or the error that one raises."""

    value: Any = None
    error: Exception | None = None


def outcome(construct: Construct) -> str:
    """Return "traced", the GB id of the first break, the name of an error, or "different result".

    If ``fullgraph=True`` captures the code of a break, ", captured by fullgraph" follows. If the backend ``aot_eager``
    raises for a traced construct or computes a different result, ", aot_eager fails" or ", aot_eager differs" follows.
    """
    eager_result = _run(construct, lambda function: function)
    if eager_result.error is not None:
        raise eager_result.error
    with jupyter_graphbreak.capture() as run:
        compiled_result = _run(construct, lambda function: torch.compile(function, backend="eager"))
    fullgraph_result = _run(construct, lambda function: torch.compile(function, backend="eager", fullgraph=True))
    if compiled_result.error is not None:
        return type(compiled_result.error).__name__
    if not _are_equal(compiled_result.value, eager_result.value):
        return "different result"
    if run.report.breaks:
        cause = run.report.breaks[0].gb_id or "break"
        return cause if fullgraph_result.error is not None else f"{cause}, captured by fullgraph"
    if fullgraph_result.error is not None:
        ident = _ID.search(str(fullgraph_result.error))
        return f"GB{ident[1]}" if ident else type(fullgraph_result.error).__name__
    if not _are_equal(fullgraph_result.value, eager_result.value):
        return "different result"
    aot_result = _run(construct, lambda function: torch.compile(function, backend="aot_eager", fullgraph=True))
    if aot_result.error is not None:
        return "traced, aot_eager fails"
    return "traced" if _are_equal(aot_result.value, eager_result.value) else "traced, aot_eager differs"


def _run(construct: Construct, compiler: Compiler) -> _Result:
    torch.compiler.reset()
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(0)
    module = types.ModuleType("construct")
    namespace = vars(module)
    sys.modules[module.__name__] = module  # a dataclass looks up the module of its class
    level = logging.root.level
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
            for code in construct.code_objects():
                exec(code, namespace)
            arguments = namespace.get("args") or (torch.tensor([0.5, 1.0, 2.0, 4.0]),)
            new_arguments = arguments if callable(arguments) else lambda: arguments
            function = compiler(namespace["f"])
            # The second call shows whether the first one turned a value, such as a random number, into a constant.
            results = [function(*new_arguments()) for _ in range(2)]
            return _Result([list(value) if inspect.isgenerator(value) else value for value in results])
    except Exception as error:  # noqa: BLE001 - any error is an outcome
        return _Result(error=error)
    finally:
        del sys.modules[module.__name__]
        logging.root.setLevel(level)
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)


def _are_equal(actual: Any, expected: Any) -> bool:
    if isinstance(actual, (list, tuple)):
        return (
            type(actual).__name__ == type(expected).__name__
            and len(actual) == len(expected)
            and all(map(_are_equal, actual, expected))
        )
    if isinstance(actual, dict):
        return list(map(str, actual)) == list(map(str, expected)) and all(
            map(_are_equal, actual.values(), expected.values())
        )
    if isinstance(actual, torch.Tensor):
        return isinstance(expected, torch.Tensor) and _are_equal_tensors(actual, expected)
    if isinstance(actual, np.ndarray):
        return bool(np.allclose(actual, expected))
    return type(actual).__name__ == type(expected).__name__ and (
        not isinstance(actual, (int, float, str)) or actual == expected
    )


def _are_equal_tensors(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    if (actual.shape, actual.dtype, actual.layout, actual.requires_grad) != (
        expected.shape,
        expected.dtype,
        expected.layout,
        expected.requires_grad,
    ):
        return False
    if actual.layout != torch.strided:
        actual, expected = actual.to_dense(), expected.to_dense()
    actual, expected = (tensor.detach().as_subclass(torch.Tensor) for tensor in (actual, expected))
    return torch.allclose(actual, expected, equal_nan=True)
