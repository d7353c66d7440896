"""Describe the callables that were compiled for a report: the program's names for them, and how to compile them."""

from __future__ import annotations

import ast
import linecache
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from jupyter_graphbreak._torch_compat.module_calls import has_skipped_forward, overrides_call
from jupyter_graphbreak.analysis.functions import first_line
from jupyter_graphbreak.analysis.python_text import hide_python_warnings, names_bound_by
from jupyter_graphbreak.records.additions import CompiledForReport
from jupyter_graphbreak.records.attributes import attribute_of, is_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


#: The maximum number of an object's attributes to search for a name.
_MAX_ATTRIBUTES = 200


class CompiledCallable(NamedTuple):
    """A module or function that was compiled although its caller does not compile it.

    The target is ``None`` if it no longer exists. The name is the class of the module, or the qualified name of the
    function. ``line`` is the line of the program's top level that was running during the first call. ``expression`` is
    the caller's expression for the target in that call; it is set only if the program's file is unknown.
    """

    get_target: Callable[[], Any]
    name: str
    module_type: str | None = None
    line: int | None = None
    expression: str | None = None


def describe_compiled_callables(
    callables: Iterable[CompiledCallable], namespace: Mapping[str, Any] | None = None, filename: str | None = None
) -> list[CompiledForReport]:
    """Return descriptions of the callables that were compiled, with their names in the program's globals after the run.

    Without these globals, the names in the first call are used.
    """
    statements = _statements(filename) if filename is not None else []
    descriptions: list[CompiledForReport] = []
    for callable_ in callables:
        target = callable_.get_target()
        name = callable_.expression if target is None or namespace is None else expression_for(target, namespace)
        module_type = type(target).__name__ if is_instance(target, torch.nn.Module) else callable_.module_type
        code = _compile_statement(name, target, namespace) if name is not None else None
        line = (
            _first_line_if_bound_before(statements, callable_.line, name or "")
            if code is not None and callable_.line is not None
            else None
        )
        descriptions.append(
            CompiledForReport(
                name=name or callable_.name, type=module_type, code=code, filename=filename if line else None, line=line
            )
        )
    return descriptions


def expression_for(target: Any, namespace: Mapping[str, Any]) -> str | None:
    """Return a program's expression for an object: ``model``, ``trainer.net``, ``trainer.loss``; ``None`` if none."""
    owner = getattr(target, "__self__", None) if is_instance(target, types.MethodType) else None
    if owner is not None:
        name = expression_for(owner, namespace)
        return f"{name}.{target.__name__}" if name is not None else None
    for name, value in namespace.items():
        if value is target and not name.startswith("_"):
            return name
    for name, value in namespace.items():
        if not name.startswith("_"):
            for attribute, part in _attributes(value):
                if part is target:
                    return f"{name}.{attribute}"
    return None


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    if is_instance(value, types.ModuleType | type | types.FunctionType):
        return
    attributes = attribute_of(value, "__dict__")
    if is_instance(attributes, dict):
        parts = [attributes, attributes["_modules"]] if is_instance(attributes.get("_modules"), dict) else [attributes]
        for part in parts:
            yield from list(part.items())[:_MAX_ATTRIBUTES]


def _compile_statement(name: str, target: Any, namespace: Mapping[str, Any] | None) -> str | None:
    is_module = is_instance(target, torch.nn.Module)
    if is_module and not overrides_call(target) and not has_skipped_forward(target):
        return f"{name}.compile()"
    if not is_module and not is_instance(target, types.FunctionType | types.MethodType):
        return None  # torch.compile turns an instance into a function without its attributes
    names = {"torch": torch} if namespace is None else namespace
    torch_name = next((name_of_torch for name_of_torch, value in names.items() if value is torch), None)
    code = f"{name} = {torch_name or 'torch'}.compile({name})"
    return code if torch_name is not None else f"import torch\n{code}"


@hide_python_warnings()
def _statements(filename: str) -> list[ast.stmt]:
    try:
        return ast.parse("".join(linecache.getlines(filename))).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _first_line_if_bound_before(statements: list[ast.stmt], line: int, name: str) -> int | None:
    """Return the first line of the statement on a line; ``None`` if that line or only later code binds a name."""
    root = name.partition(".")[0]
    for index, statement in enumerate(statements):
        if statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            start_line = first_line(statement)
            statements_on_line = [
                other for other in statements if other.lineno <= line and (other.end_lineno or 0) >= start_line
            ]
            later_bindings = [other for other in statements[index + 1 :] if _binds(other, root)]
            earlier_bindings = [other for other in statements[:index] if _binds(other, root)]
            is_bound_here = any(_binds(other, root) for other in statements_on_line)
            return None if is_bound_here or (later_bindings and not earlier_bindings) else start_line
    return None


def _binds(statement: ast.stmt, name: str) -> bool:
    nodes = (node for node in ast.walk(statement) if not isinstance(getattr(node, "ctx", None), ast.Del))
    return any(name in names_bound_by(node) for node in nodes)
