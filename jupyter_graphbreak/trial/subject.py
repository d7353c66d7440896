"""A function together with what it may change, copied, so that every run starts from the same state."""

from __future__ import annotations

import contextlib
import copy
import dis
import functools
import sys
import types
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.separate_cache import copy_fx_wraps, forget_fx_wraps, is_allowed_in_graph
from jupyter_graphbreak.recording.library import library_roots
from jupyter_graphbreak.recording.targets import is_own

if TYPE_CHECKING:
    from collections.abc import Callable

_MISSING = object()


def clone(value: Any, memo: dict[int, Any] | None = None) -> Any:
    """Return a copy that shares nothing which can change; what cannot be copied is returned as it is."""
    memo = {} if memo is None else memo
    if id(value) in memo:
        return memo[id(value)]
    made: Any
    match value:
        case torch.nn.Parameter():
            made = torch.nn.Parameter(value.detach().clone(), value.requires_grad)
        case torch.Tensor():
            made = _clone_tensor(value)
        case dict() if type(value) is dict:
            made = memo[id(value)] = {}
            made.update((key, clone(item, memo)) for key, item in value.items())
        case list() if type(value) is list:
            made = memo[id(value)] = []
            made.extend(clone(item, memo) for item in value)
        case tuple():
            parts = [clone(item, memo) for item in value]
            made = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        case _ if is_code(value):
            made = value
        case _:
            try:
                made = copy.deepcopy(value, memo)
            except Exception:  # noqa: BLE001 - locks, open files, whatever the user's __deepcopy__ does
                made = value
    memo[id(value)] = made
    memo.setdefault(id(memo), []).append(value)  # keep the object alive: its id would go to another one
    return made


def _clone_tensor(value: torch.Tensor) -> torch.Tensor:
    made = value.detach().clone()
    return made.requires_grad_() if value.requires_grad else made


def is_code(value: Any) -> bool:
    """Whether an object is a function, a class or a package: nothing that a call changes."""
    return isinstance(
        value, type | types.ModuleType | types.FunctionType | types.MethodType | types.BuiltinFunctionType
    )


@dataclass(frozen=True)
class _Place:
    """A name that the function reads or writes: a global, or a variable of an outer function."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], None]


class Subject:
    """A callable that leaves no trace when it runs: the functions, closures, globals and modules behind it are copies.

    Its code objects are new, too, so Dynamo has compiled none of them. The methods of classes are not copied.

    Parameters
    ----------
    fn : callable
        A function, a method, a module or another object that can be called.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._memo: dict[int, Any] = {}
        self._globals: dict[int, dict[str, Any]] = {}
        self._places: list[_Place] = []
        self._library = tuple(library_roots())
        self.call: Any = self._fresh(fn)
        self.owner: Any = None
        if not isinstance(self.call, types.FunctionType | types.BuiltinFunctionType | type):
            self.owner = getattr(self.call, "__self__", self.call)

    def state(self) -> dict[str, Any]:
        """Return a copy of everything that a call may have changed, by name."""
        memo: dict[int, Any] = {}
        held = {"self": self.owner} if self.owner is not None else {}
        held |= {place.name: value for place in self._places if (value := place.read()) is not _MISSING}
        return {name: clone(value, memo) for name, value in held.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a state; the objects stay the same, because captured programs hold them."""
        seen: set[int] = set()
        if self.owner is not None:
            _put_back(self.owner, state["self"], seen)
        for place in self._places:
            place.write(_put_back(place.read(), state[place.name], seen) if place.name in state else _MISSING)

    def _fresh(self, value: Any) -> Any:
        if id(value) in self._memo:
            return self._memo[id(value)]
        if isinstance(value, types.FunctionType):
            return self._fresh_function(value)
        if isinstance(value, types.MethodType):
            return types.MethodType(value.__func__, self._fresh(value.__self__))
        if isinstance(value, functools.partial):
            arguments = [self._fresh(argument) for argument in value.args]
            return functools.partial(
                self._fresh(value.func), *arguments, **{k: self._fresh(v) for k, v in value.keywords.items()}
            )
        return clone(value, self._memo) if _is_data(value) else value

    def _fresh_function(self, function: types.FunctionType) -> types.FunctionType:
        library = function.__code__.co_filename.startswith(self._library)
        if library and not (function.__closure__ and is_own(function)):
            return function  # front ends know some of PyTorch's functions by identity
        if is_allowed_in_graph(function):
            return function
        scope = function.__globals__ if library else self._own_globals(function.__globals__)
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        made = types.FunctionType(
            function.__code__.replace(), scope, function.__name__, function.__defaults__, cells or None
        )
        self._memo[id(function)] = made  # it may refer to itself
        made.__kwdefaults__ = function.__kwdefaults__
        made.__annotations__ = function.__annotations__
        made.__qualname__ = function.__qualname__
        made.__module__ = function.__module__
        made.__doc__ = function.__doc__
        vars(made).update(vars(function))
        names = function.__code__.co_freevars
        for name, cell, old in zip(names, cells, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # an empty cell
                cell.cell_contents = self._fresh(old.cell_contents)
                if not library:
                    self._places.append(_Place(name, *_cell_access(cell)))
        if not library:
            for name in sorted(_global_names(function.__code__)):
                self._fresh_global(name, scope)
        return made

    def _own_globals(self, scope: dict[str, Any]) -> dict[str, Any]:
        if id(scope) not in self._globals:
            self._globals[id(scope)] = made = dict(scope)
            copy_fx_wraps(scope, made)
            weakref.finalize(self, forget_fx_wraps, made)
        return self._globals[id(scope)]

    def _fresh_global(self, name: str, scope: dict[str, Any]) -> None:
        value = scope.get(name, _MISSING)
        if isinstance(value, types.ModuleType | types.BuiltinFunctionType | type):
            return
        if value is not _MISSING:
            scope[name] = self._fresh(value)
        if not any(place.name == name for place in self._places):
            self._places.append(_Place(name, *_item_access(scope, name)))


def _global_names(code: types.CodeType) -> set[str]:
    """Return the names of the globals that a function, or one inside it, reads or writes."""
    names = {instr.argval for instr in dis.get_instructions(code) if instr.opname.endswith("_GLOBAL")}
    inner = [_global_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return names.union(*inner)


def _cell_access(cell: types.CellType) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def write(value: Any) -> None:
        if value is not _MISSING:
            cell.cell_contents = value

    return lambda: cell.cell_contents, write


def _item_access(scope: dict[str, Any], name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def write(value: Any) -> None:
        if value is _MISSING:
            scope.pop(name, None)
        else:
            scope[name] = value

    return lambda: scope.get(name, _MISSING), write


def _is_data(value: Any) -> bool:
    """Whether a call may change an object: tensors, modules, optimizers, containers, the user's instances."""
    if isinstance(value, torch.Tensor | torch.nn.Module | torch.optim.Optimizer | list | dict | set | tuple):
        return True
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return True
    return not is_code(value) and hasattr(value, "__dict__") and is_own(type(value))


def _put_back(now: Any, saved: Any, seen: set[int]) -> Any:
    """Give an object the content that it had; return it, or what was in its place."""
    if now is saved or id(now) in seen:
        return now
    if type(now) is not type(saved):
        return clone(saved)
    seen.add(id(now))
    match now:
        case torch.Tensor():
            if now.shape != saved.shape or now.dtype != saved.dtype:
                return clone(saved)
            now.detach().copy_(saved.detach())
        case torch.optim.Optimizer():
            now.load_state_dict(clone(saved.state_dict()))  # its keys are parameters, and a copy has others
        case dict():
            for key in [key for key in now if key not in saved]:
                del now[key]
            for key, value in saved.items():
                now[key] = _put_back(now[key], value, seen) if key in now else clone(value)
        case list():
            old = list(now)
            now[:] = [
                _put_back(old[index], value, seen) if index < len(old) else clone(value)
                for index, value in enumerate(saved)
            ]
        case set():
            now.clear()
            now.update(saved)
        case _ if _is_data(now) and hasattr(now, "__dict__"):
            _put_back(vars(now), vars(saved), seen)
        case _:
            return saved
    return now
