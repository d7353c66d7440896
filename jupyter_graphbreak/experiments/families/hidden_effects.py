"""Find code that may change objects in ways that its syntax does not show: calls, properties, special methods."""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from jupyter_graphbreak._torch_compat.operations import TENSOR_METHODS
from jupyter_graphbreak.experiments.families.drafting import FunctionNode
from jupyter_graphbreak.experiments.families.site import (
    arguments_of,
    dotted,
    name_bound_by,
    names_bound,
    names_read,
    parameters_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Builtin functions that change an object, or run code that the source does not show.
_CHANGING_BUILTINS = {
    "__import__", "anext", "breakpoint", "delattr", "eval", "exec", "input", "iter", "map", "next", "open", "print",
    "setattr",
}  # fmt: skip
#: Packages whose functions change no argument unless their names or arguments say so.
_PURE_PACKAGES = {"einops", "math", "numpy", "torch"}
#: The usual names of these packages, which another cell may import.
_USUAL_NAMES = {"F", "math", "np", "torch"}
#: Parts of the names of their functions that change the state of the process or an argument.
_CHANGING_NAMES = ("seed", "rand", "set_", "shuffle", "permutation", "choice", "copyto", "put", "fill")
#: Methods of containers and strings that change nothing.
_PURE_METHODS = {
    "copy", "count", "endswith", "format", "get", "index", "items", "join", "keys", "lower", "replace", "split",
    "startswith", "strip", "upper", "values",
}  # fmt: skip
#: Code that runs special methods of objects.
_OPERATIONS = (
    ast.BinOp, ast.BoolOp, ast.Compare, ast.For, ast.FormattedValue, ast.If, ast.IfExp, ast.Subscript, ast.UnaryOp,
    ast.While, ast.With, ast.comprehension,
)  # fmt: skip
#: Special methods that only a call or the creation of an object runs.
_METHODS_OF_CREATION = {"__init__", "__new__", "__post_init__"}
#: Stands for all other special methods among the names of functions.
_OPERATORS = "operators"


class HiddenEffects:
    """The effects of calls, properties and operators, as far as the user's sources show them.

    Parameters
    ----------
    trees : iterable of ast.Module
        The syntax trees of the user's sources.
    """

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        nodes = [node for tree in trees for node in ast.walk(tree)]
        self._functions: dict[str, list[FunctionNode]] = defaultdict(list)
        self._classes: dict[str, list[ast.ClassDef]] = defaultdict(list)
        self._packages = set(_USUAL_NAMES)
        for node in nodes:
            if isinstance(node, FunctionNode):
                self._functions[node.name].append(node)
            elif isinstance(node, ast.ClassDef):
                self._classes[node.name].append(node)
            elif isinstance(node, ast.Import):
                pure = [alias for alias in node.names if alias.name.partition(".")[0] in _PURE_PACKAGES]
                self._packages |= {name_bound_by(alias) for alias in pure}

    def may_occur(self, node: ast.AST) -> bool:
        """Return whether a node may change an object that it does not create; the nodes in it do not count."""
        return self._may_occur(node, frozenset())

    def _may_occur(self, node: ast.AST, inside: frozenset[str]) -> bool:
        if isinstance(node, ast.Call):
            return not self._is_harmless(node, inside)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            return self._may_change(self._functions.get(node.attr, ()), inside)
        if isinstance(node, _OPERATIONS):
            return _OPERATORS not in inside and self._operators_have_effects
        return isinstance(node, ast.Import | ast.ImportFrom | ast.Await | ast.Yield | ast.YieldFrom)

    @cached_property
    def _operators_have_effects(self) -> bool:
        methods = [
            function
            for name, functions in self._functions.items()
            if name.startswith("__") and name not in _METHODS_OF_CREATION | {"__call__"}
            for function in functions
        ]
        return self._may_change(methods, frozenset({_OPERATORS}))

    def _is_harmless(self, call: ast.Call, inside: frozenset[str]) -> bool:
        name = dotted(call.func).rpartition(".")[2]
        if name in self._functions:
            return not self._may_change(self._functions[name], inside)
        if name in self._classes:
            parts = (part for class_ in self._classes[name] for part in class_.body)
            created = [part for part in parts if isinstance(part, FunctionNode) and part.name in _METHODS_OF_CREATION]
            return not self._may_change(created, inside, creates=True)
        if isinstance(call.func, ast.Name):
            return hasattr(builtins, name) and name not in _CHANGING_BUILTINS
        in_place = name.endswith("_") or any(keyword.arg in {"inplace", "out"} for keyword in call.keywords)
        if in_place or not isinstance(call.func, ast.Attribute):
            return False
        if dotted(call.func).partition(".")[0] in self._packages:
            flags = (node.value for node in arguments_of(call) if isinstance(node, ast.Constant))
            is_flagged = any(flag is True for flag in flags)  # it may be the parameter ``inplace``
            return not is_flagged and not any(part in name for part in _CHANGING_NAMES)
        return name in _PURE_METHODS or name in TENSOR_METHODS

    def _may_change(self, functions: Iterable[FunctionNode], inside: frozenset[str], *, creates: bool = False) -> bool:
        """Return whether functions may change objects that they do not create.

        Parameters
        ----------
        inside : frozenset of str
            The names of the functions that are being read.
        creates : bool
            Whether the functions initialize the object that is their first parameter.
        """
        for function in functions:
            if function.name in inside:
                continue
            own = names_bound(function) - parameters_of(function)
            own |= {function.args.args[0].arg} if creates and function.args.args else set()
            within = inside | {function.name}
            for part in (part for statement in function.body for part in ast.walk(statement)):
                if isinstance(part, ast.Global | ast.Nonlocal) or self._may_occur(part, within):
                    return True
                changes = isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(part.ctx, ast.Load)
                target = part.target if isinstance(part, ast.AugAssign) else part if changes else None
                if target is not None and not names_read(target) <= own:
                    return True
        return False
