"""Record which functions and modules a call runs, and how many operations each of them performs."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.operations import MODULE_CALLS, OPTIMIZERS, OperationCounter
from jupyter_graphbreak.records.package_paths import is_of_standard_library, package_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

_OWN_PACKAGE = __name__.partition(".")[0]


@dataclass(eq=False)
class CallNode:
    """The calls of one function, or of one module's ``forward``, by one caller.

    Parameters
    ----------
    code : CodeType or None
        The code of the function; ``None`` for the root.
    module : torch.nn.Module or None
        The module, if the function is its ``forward``.
    is_usual_call : bool
        Whether ``Module.compile`` affects the call: it goes through ``Module.__call__``, and the class is not one of
        PyTorch's, whose frames Dynamo skips (torch 2.13).
    own_ops : int
        The number of operations that the function performs itself.
    """

    code: CodeType | None = None
    module: torch.nn.Module | None = None
    is_usual_call: bool = False
    own_ops: int = 0
    children: dict[tuple[Any, ...], CallNode] = field(default_factory=dict)

    @property
    def ops(self) -> int:
        """The number of operations, with those of the functions that it calls."""
        return self.own_ops + sum(child.ops for child in self.children.values())

    def walk(self) -> Iterator[CallNode]:
        """Yield the node and all nodes below it."""
        yield self
        for child in self.children.values():
            yield from child.walk()


@contextlib.contextmanager
def record_calls(program: Callable[..., Any]) -> Iterator[tuple[Callable[..., Any], CallNode]]:
    """Yield a function that runs a program and records its calls on this thread, and the root of the record.

    Functions of PyTorch and Python count as parts of their callers, except modules.
    """
    root = CallNode()
    stack: list[CallNode] = []  # empty while the program does not run
    is_foreign: dict[CodeType, bool] = {}
    before = sys.getprofile()

    def note(frame: FrameType, event: str, _: object) -> None:
        if stack and event == "call":
            stack.append(_node_of(frame, stack[-1], is_foreign))
        elif event == "return" and len(stack) > 1:
            stack.pop()

    def count() -> None:
        if stack:
            stack[-1].own_ops += 1

    def run(*args: Any, **kwargs: Any) -> Any:
        with OperationCounter(count):
            stack.append(root)
            try:
                return program(*args, **kwargs)
            finally:
                stack.clear()

    sys.setprofile(note)
    try:
        yield run, root
    finally:
        sys.setprofile(before)


def _node_of(frame: FrameType, caller: CallNode, is_foreign: dict[CodeType, bool]) -> CallNode:
    """Return the node of a call that begins; the caller's own for functions that are part of it."""
    code = frame.f_code
    module = _module_of(frame)
    if code.co_filename == OPTIMIZERS:
        return CallNode()  # its operations do not count
    if code not in is_foreign:
        is_foreign[code] = is_foreign_file(code.co_filename)
    if module is None and is_foreign[code]:
        return caller
    key = code, id(module)
    if key not in caller.children:
        outer = frame.f_back
        is_usual = outer is not None and outer.f_code in MODULE_CALLS and not is_foreign[code]
        caller.children[key] = CallNode(code, module, is_usual)
    return caller.children[key]


def _module_of(frame: FrameType) -> torch.nn.Module | None:
    """Return the module whose ``forward`` a frame runs."""
    code = frame.f_code
    if code.co_name != "forward" or not code.co_argcount:
        return None
    first = frame.f_locals.get(code.co_varnames[0])
    return first if isinstance(first, torch.nn.Module) else None


def is_foreign_file(filename: str) -> bool:
    """Return whether a file belongs to PyTorch, Python or this package; other libraries may contain the model."""
    path = package_paths().module_path(filename)
    top = (path or "").partition("/")[0].removesuffix(".py")
    return path is not None and (top in {"torch", _OWN_PACKAGE} or is_of_standard_library(path))
