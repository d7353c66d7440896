"""Find what the code of a cell mentions: objects of the notebook, ``torch.compile``, and parameters that it saves."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import types
from typing import TYPE_CHECKING, Any, Literal

from jupyter_graphbreak._torch_compat.compiled import compiled_callable
from jupyter_graphbreak.analysis.notes import REPAIR_ADVICE
from jupyter_graphbreak.analysis.python_text import parse_python
from jupyter_graphbreak.records.additions import ORIG_MOD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: The names of IPython's history in a namespace: _, __, _3, _i, _i3, _ih, _oh, _dh.
_HISTORY = re.compile(r"_+|_+\d+|_i+|_i\d+|_[iod]h")
#: The way to avoid the prefix that the wrapper of ``torch.compile(model)`` adds to parameter names.
_COMPILE_IN_PLACE_ADVICE = "compile the model in place with `model.compile()`"
#: The maximum number of keys to examine in a dict, and in each dict among its values.
_MAX_KEYS = 1000


def mentioned_objects(tree: ast.AST, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the objects to which code refers at any depth, by name, except for IPython's history."""
    names = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
    return {name: namespace[name] for name in names if name in namespace and not _HISTORY.fullmatch(name)}


def mentions_compile(tree: ast.AST, namespace: Mapping[str, Any]) -> bool:
    """Return whether code mentions a ``compile`` that may be torch's, such as ``torch.compile`` or ``model.compile()``.

    ``re.compile`` and the like are recognized by the object or the import that their name refers to.
    """
    modules = {
        alias.asname or alias.name.partition(".")[0]: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            if any(alias.name == "compile" for alias in node.names):
                return True
        elif isinstance(node, ast.Attribute) and node.attr in {"compile", "optimize"}:
            base = node.value.id if isinstance(node.value, ast.Name) else None
            value = namespace.get(base) if base is not None else None
            module = modules.get(base or "") or (
                getattr(value, "__name__", None) if hasattr(value, "__spec__") else None
            )
            if node.attr == "optimize":
                if ast.unparse(node).endswith("_dynamo.optimize"):
                    return True
            elif not isinstance(module, str) or module.partition(".")[0] == "torch":
                return True
    return False


def notes_on_saving(tree: ast.AST, namespace: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the expression of each state with ``_orig_mod.`` in its names that a cell has saved, and a note on it.

    The namespace is that after the cell has run. No attribute is read in a way that runs the user's code.
    """
    if "torch" not in sys.modules:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_saving_function(node.func):
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                yield from _notes_on_argument(argument, namespace)


def note_on_methods(tree: ast.AST, namespace: Mapping[str, Any]) -> str | None:
    """Return a note if a cell calls a compiled module in a way that runs eagerly, for example one of its methods.

    A stance that the cell sets has the same effect, and is no longer known if the cell also resets it.
    """
    if "torch" not in sys.modules:
        return None
    module_class = sys.modules["torch"].nn.Module
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name("set_stance") | ast.Attribute(attr="set_stance"), [ast.Constant("force_eager"), *_]):
                return (
                    'Nothing was compiled: the cell sets the stance "force_eager" (`torch.compiler.set_stance`), with '
                    "which compiled functions run eagerly."
                )
            case ast.Call(ast.Name(id=name)):
                method = "__call__"
            case ast.Call(ast.Attribute(ast.Name(id=name), attr=method)):
                pass
            case _:
                continue
        value = namespace.get(name)
        module = compiled_callable(value)
        if not isinstance(module, module_class):
            continue
        is_own_method = isinstance(inspect.getattr_static(type(module), method, None), types.FunctionType)
        if is_own_method and not hasattr(module_class, method):
            advice = f"Compile the method: `torch.compile({name}.{method})`."
            if module is not value and _calls_module(inspect.getattr_static(type(module), method)):
                advice = f"`{method}` calls the module: compile the module in place, with its method `compile()`."
            return (
                f"Nothing was compiled: the cell calls `{name}.{method}`, and compiling a module compiles only "
                f"calls to the module itself. {advice}"
            )
        if module is not value:
            continue
        if method == "forward":
            return (
                f"Nothing was compiled: the cell calls `{name}.forward`, and `{name}.compile()` compiles only calls to "
                f"the module itself. Call `{name}(...)`."
            )
        if method == "__call__" and getattr(type(module), method) is not getattr(module_class, method):
            return (
                f"Nothing was compiled: the class of `{name}` defines `__call__` itself, so `{name}.compile()` has no "
                f"effect. Use `torch.compile({name})`."
            )
    return None


def _calls_module(method: types.FunctionType) -> bool:
    """Return whether a method calls its own module, ``self(x)``, as the loop of a ``generate`` method does."""
    function = inspect.unwrap(method)
    try:
        tree = parse_python(inspect.getsource(function))
    except (OSError, TypeError):
        return False
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree is not None else ()
    return any(
        isinstance(called_function, ast.Name) and called_function.id in arguments[:1] for called_function in calls
    )


def _is_saving_function(function: ast.expr) -> bool:
    name = ast.unparse(function).rpartition(".")[2]
    return name == "dump" or "save" in name


def _notes_on_argument(argument: ast.expr, namespace: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield notes on saved parameter names that contain ``_orig_mod.``."""
    for node in ast.walk(argument):
        match node:
            case ast.Call(ast.Attribute(owner, "state_dict")) if wrapped_part := _wrapping_of(owner, namespace):
                way_out = f"save `{ast.unparse(owner)}._orig_mod.state_dict()`, or {_COMPILE_IN_PLACE_ADVICE}"
                if wrapped_part == "parts":
                    way_out = "compile each part in place with `part.compile()`"
            case ast.Name(id=name) if _contains_orig_mod(namespace.get(name)):
                way_out = f"save the state of the original model, or {_COMPILE_IN_PLACE_ADVICE}"
            case _:
                continue
        saved_code = ast.unparse(node)
        note = (
            f"Line {node.lineno} saves `{saved_code}`, in which parameter names contain `{ORIG_MOD}`, so the "
            f"model itself cannot load them: {way_out}. {REPAIR_ADVICE}"
        )
        yield saved_code, note


def _value_of(expression: ast.expr, namespace: Mapping[str, Any]) -> Any:
    """Return the value of a name or of an attribute that is stored in an object; otherwise ``None``."""
    match expression:
        case ast.Name(id=name):
            return namespace.get(name)
        case ast.Attribute(value=owner, attr=name):
            fields = getattr(_value_of(owner, namespace), "__dict__", None)
            if not isinstance(fields, dict):
                return None
            modules = fields.get("_modules")
            return fields.get(name, modules.get(name) if isinstance(modules, dict) else None)
    return None


def _wrapping_of(owner: ast.expr, namespace: Mapping[str, Any]) -> Literal["whole", "parts"] | None:
    """Return whether a module is wrapped as a whole or in parts; ``None`` if it is not wrapped."""
    pending = [_value_of(owner, namespace)]
    visited_ids: set[int] = set()
    while pending:
        value = pending.pop()
        if not isinstance(value, sys.modules["torch"].nn.Module) or id(value) in visited_ids:
            continue
        if compiled_callable(value) not in (None, value):
            return "parts" if visited_ids else "whole"
        visited_ids.add(id(value))
        modules = vars(value).get("_modules")
        pending += list(modules.values()) if isinstance(modules, dict) else []
    return None


def _contains_orig_mod(value: Any, depth: int = 2) -> bool:
    """Return whether a key of a dict, or of a dict among its values, contains ``_orig_mod.``."""
    if not isinstance(value, dict) or not depth:
        return False
    items = list(value.items())[:_MAX_KEYS]
    return any(
        (isinstance(key, str) and ORIG_MOD in key) or _contains_orig_mod(inner, depth - 1) for key, inner in items
    )
