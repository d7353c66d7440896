"""Which functions a piece of code leads to, and what of it is compiled already."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import types
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat import compiled
from jupyter_graphbreak.recording.library import is_library

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: Packages whose functions are nobody's own; the search for functions stops there.
_FOREIGN = frozenset({"torch", "numpy", "builtins", "functools", "typing", "collections", "IPython", "ipykernel"})
_DEEPEST = 12
#: What ``functools.lru_cache`` makes of a function.
_CACHING = type(functools.lru_cache(len))
#: Of a container so many items are looked at.
_MOST_ITEMS = 100


def is_compiled(value: Any) -> bool:
    """Whether an object is a compiled function or module."""
    return compiled.compiled_callable(value) is not None


def leads_to_compiled(values: Iterable[Any]) -> bool:
    """Whether one of some objects is compiled, is ``torch.compile`` itself, or uses what is."""
    return any(
        compiled.is_torch_compile(value) or (is_compiled(value) and not compiled.is_left_alone(value))
        for value in _reach(values)
    )


def leads_to_torch(values: Iterable[Any]) -> bool:
    """Whether one of some objects is PyTorch's, or uses what is.

    Of a module that is neither Python's nor PyTorch's it is enough that a part of its package has imported torch.
    """
    given = list(values)
    return any(map(_is_of_torch, given)) or any(
        map(_is_of_torch, (part for value in _reach(given) for part in (value, *_at_hand(value))))
    )


def _at_hand(value: Any) -> Iterable[Any]:
    """Return what an object uses itself: the globals and the closure of a function, the attributes of an instance."""
    if isinstance(value, types.FunctionType):
        return () if _foreign(value) else _used(value)
    return getattr(value, "__dict__", {}).values()


def _is_of_torch(value: Any) -> bool:
    if isinstance(value, types.ModuleType):
        package = value.__name__.partition(".")[0]
        return package == "torch" or (package not in sys.stdlib_module_names and _has_imported_torch(package))
    if isinstance(value, list | tuple | set | dict):
        items = value.values() if isinstance(value, dict) else value
        return any(_home(type(item)) == "torch" for item in itertools.islice(items, _MOST_ITEMS))
    return _home(value) == "torch" or any(_home(base) == "torch" for base in type(value).__mro__)


def _has_imported_torch(package: str) -> bool:
    loaded = [(name, module) for name, module in list(sys.modules.items()) if name.partition(".")[0] == package]
    return any("torch" in getattr(module, "__dict__", {}) for _, module in loaded)


def forget(*values: Any) -> None:
    """Have the functions that some objects lead to compiled afresh: nothing they had compiled before is used.

    What torch itself shares between functions, such as the wrapper of ``@error_on_graph_break``, stays as it is, and so
    does what the user asked torch to leave alone.
    """
    compiled.forget(own_codes(*values))


def forget_everything() -> None:
    """Forget all that this process has compiled, so that everything is compiled as if for the first time.

    Code that a backend keeps in files, as inductor does, stays.
    """
    import torch

    torch.compiler.reset()


def reached(*values: Any) -> Iterator[Any]:
    """Yield the functions, modules and instances that some objects lead to."""
    yield from _reach(values)


def own_codes(*values: Any) -> Iterator[types.CodeType]:
    """Yield the code objects of the functions that some objects lead to, those of PyTorch and numpy aside."""
    yield from _codes(value for value in _reach(values) if not _foreign(value) and not compiled.is_left_alone(value))


def names_used(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return some named objects and the globals that functions among them use, directly or through others."""
    names = dict(values)
    for value in _reach(values.values()):
        if isinstance(value, types.FunctionType) and not _foreign(value):
            for name, used in _globals(value).items():
                names.setdefault(name, used)
    return names


def stale(values: Mapping[str, Any], started: Iterable[tuple[str, str, int]]) -> list[str]:
    """Return the names of compiled objects that ran, if at all, from what an earlier run had compiled.

    Parameters
    ----------
    values : mapping
        Objects by name.
    started : iterable of (str, str, int)
        Function, file and first line of each code object that was compiled now.
    """
    begun = set(started)
    names = []
    for name, value in values.items():
        inner = compiled.compiled_callable(value)
        codes = list(_codes(_reach([inner]))) if inner is not None else []
        fresh = any((code.co_name, code.co_filename, code.co_firstlineno) in begun for code in codes)
        if codes and not fresh and any(compiled.has_cached_code(code) for code in codes):
            names.append(name)
    return names


def _codes(values: Iterable[Any]) -> Iterator[types.CodeType]:
    """Yield the code objects of functions, and those of the functions that they define."""
    seen: set[types.CodeType] = set()
    for value in values:
        code = getattr(value, "__code__", None)
        pending = [code] if isinstance(code, types.CodeType) else []
        while pending:
            inner = pending.pop()
            if inner in seen:
                continue
            seen.add(inner)
            yield inner
            pending += [const for const in inner.co_consts if isinstance(const, types.CodeType)]


def _held(value: Any) -> Any:
    """Return the function inside of one that ``functools`` made, ``None`` for anything else."""
    if isinstance(value, functools.partial):
        return value.func
    return value.__wrapped__ if isinstance(value, _CACHING) else None


def _reach(values: Iterable[Any]) -> Iterator[Any]:
    """Yield functions, modules and instances that objects lead to: through closures, attributes and global names."""
    seen: set[int] = set()
    pending = [(value, 0) for value in values]
    while pending:
        value, depth = pending.pop()
        if id(value) in seen or depth > _DEEPEST:
            continue
        seen.add(id(value))
        held = (_held(value), compiled.compiled_callable(value))
        pending += [(inner, depth + 1) for inner in held if inner is not None and inner is not value]
        if isinstance(value, types.MethodType):
            pending += [(value.__func__, depth + 1), (value.__self__, depth + 1)]
        elif isinstance(value, types.FunctionType):
            yield value
            if _foreign(value):
                continue
            pending += [(used, depth + 1) for used in _used(value)]
        elif compiled.is_torch_compile(value):
            yield value
        elif isinstance(value, type):
            if not _foreign(value):
                bare = (getattr(m, "__func__", m) for m in vars(value).values())  # of static and class methods
                members = [inspect.unwrap(m) if inspect.isfunction(m) else m for m in bare]
                pending += [(m, depth + 1) for m in members if isinstance(m, types.FunctionType)]
        elif _is_object(value):
            yield value
            pending += [(kind, depth + 1) for kind in type(value).__mro__ if not _foreign(kind)]
            pending += [(part, depth + 1) for part in _parts(value)]


def _used(function: types.FunctionType) -> Iterator[Any]:
    """Yield what a function refers to: closure, defaults, wrapped function, globals that its code names."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # an empty cell
            continue
    yield from function.__defaults__ or ()
    if hasattr(function, "__wrapped__"):
        yield function.__wrapped__
    yield from _globals(function).values()


def _globals(function: types.FunctionType) -> dict[str, Any]:
    """Return the global objects that the code of a function names."""
    names: set[str] = set()
    pending = [function.__code__]
    while pending:
        code = pending.pop()
        names.update(code.co_names)
        pending += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return {name: function.__globals__[name] for name in sorted(names) if name in function.__globals__}


def _is_object(value: Any) -> bool:
    """Whether to look inside an instance: one of the user's classes or a torch module; not data, not packages."""
    if isinstance(value, types.ModuleType | str | bytes | int | float | list | tuple | dict | set):
        return False
    kind = type(value)
    return any(not _foreign(base) for base in kind.__mro__[:-1]) or hasattr(value, "_modules")


def _parts(value: Any) -> Iterator[Any]:
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict):
        return
    for part in attributes.values():
        if isinstance(part, types.FunctionType | types.MethodType) or (_is_object(part) and not isinstance(part, type)):
            yield part
    modules = attributes.get("_modules")
    if isinstance(modules, dict):
        yield from (module for module in modules.values() if module is not None)


def is_written_here(value: Any) -> bool:
    """Whether an object is a module, or a function, method or instance whose code is of no installed package."""
    inner = compiled.compiled_callable(value)
    value = value if inner is None else inner
    while isinstance(value, functools.partial):
        value = value.func
    if hasattr(value, "_modules"):
        return not isinstance(value, type)
    function = inspect.unwrap(getattr(value, "__func__", value))
    if not isinstance(function, types.FunctionType):
        function = vars(type(value)).get("__call__")
    code = getattr(function, "__code__", None)
    return code is not None and not is_library(code.co_filename)


def is_own(value: Any) -> bool:
    """Whether a function or a class is none of PyTorch's, numpy's or Python's."""
    return not _foreign(value)


def _foreign(value: Any) -> bool:
    """Whether a function or a class is PyTorch's, numpy's or Python's."""
    return _home(value) in {"", *_FOREIGN}


def _home(value: Any) -> str:
    """Return the package of a function or class.

    The globals of a function say so: ``functools.wraps`` gives torch's wrappers the ``__module__`` of what they wrap.
    """
    scope = getattr(value, "__globals__", None)
    home = scope.get("__name__") if isinstance(scope, dict) else getattr(value, "__module__", None)
    return home.partition(".")[0] if isinstance(home, str) else ""
