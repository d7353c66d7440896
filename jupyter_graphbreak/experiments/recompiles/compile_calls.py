"""Find the calls in the user's code that compile a function."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from jupyter_graphbreak.analysis.functions import first_line
from jupyter_graphbreak.experiments.families.parsed_source import FunctionNode
from jupyter_graphbreak.experiments.families.site import dotted_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: How certain it is that a call compiles the function. ``certain``: the call compiles it; ``by name``: the call
#: compiles something with the name of the function or of the called module; ``unknown``: the call compiles something
#: unknown.
_Certainty = Literal["certain", "by name", "unknown"]
#: The maximum number of assignments that are followed to find the value of a name.
_MAX_ASSIGNMENTS = 3


class CompiledDefinition(NamedTuple):
    """The definition of the compiled function, or of the module's class, as far as it is known.

    ``source`` is ``None`` if a library contains the definition. ``line`` is its first line, or its first decorator's.
    """

    name: str
    source: str | None = None
    line: int = 0


class CompileCall(NamedTuple):
    """A call to ``torch.compile`` in a source, or its use as a decorator."""

    source: str
    node: ast.expr


def find_compile_calls(
    trees: Mapping[str, ast.Module], definition: CompiledDefinition, owner: str | None
) -> list[CompileCall]:
    """Return the calls that compile a function, or an empty list if they cannot be identified."""
    calls_by_certainty: dict[_Certainty, list[CompileCall]] = {"certain": [], "by name": [], "unknown": []}
    nodes = {source: list(ast.walk(tree)) for source, tree in trees.items()}
    for source in nodes:
        search = _CompileCallSearch(source, nodes, definition, owner)
        for node, certainty in search.calls():
            calls_by_certainty[certainty].append(CompileCall(source, node))
    if calls_by_certainty["certain"]:
        return calls_by_certainty["certain"]
    possible_calls = calls_by_certainty["by name"] or calls_by_certainty["unknown"]
    return possible_calls if len(possible_calls) == 1 else []


@dataclass
class _CompileCallSearch:
    """The search for compile calls in one source, given the nodes of all syntax trees."""

    source: str
    nodes: Mapping[str, list[ast.AST]]
    definition: CompiledDefinition
    owner: str | None
    _torch_names: set[str] = field(default_factory=lambda: {"torch"})
    _compile_names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for node in self.nodes[self.source]:
            if isinstance(node, ast.Import):
                self._torch_names |= {alias.asname for alias in node.names if alias.name == "torch" and alias.asname}
            elif isinstance(node, ast.ImportFrom) and node.module == "torch":
                self._compile_names |= {alias.asname or alias.name for alias in node.names if alias.name == "compile"}
        for node in self.nodes[self.source]:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and self._is_partial(node.value):
                self._compile_names |= {target.id for target in node.targets if isinstance(target, ast.Name)}

    def calls(self) -> Iterator[tuple[ast.expr, _Certainty]]:
        """Yield the calls that may compile the function."""
        decorators = [decorator for _, decorator in self._decorators()]
        for node, decorator in self._decorators():
            if self._is_definition(node):
                yield decorator, "certain"
            elif len(node.decorator_list) > 1:  # may compile the result of a different decorator
                yield decorator, "unknown"
        for call in self.nodes[self.source]:
            if not isinstance(call, ast.Call) or call in decorators:
                continue
            if self._is_torch_compile(call.func):
                certainty = self._certainty(call.args[0], call, _MAX_ASSIGNMENTS) if call.args else "unknown"
                if certainty is not None:
                    yield call, certainty
            elif self.owner is not None and dotted_name(call.func) == f"{self.owner}.compile":
                yield call, "by name"

    def _decorators(self) -> Iterator[tuple[FunctionNode | ast.ClassDef, ast.expr]]:
        """Yield the functions and classes that a decorator compiles, each with this decorator."""
        for node in (node for node in self.nodes[self.source] if isinstance(node, FunctionNode | ast.ClassDef)):
            for decorator in node.decorator_list:
                called_function = decorator.func if isinstance(decorator, ast.Call) else decorator
                if self._is_torch_compile(called_function) or (
                    isinstance(decorator, ast.Call) and self._is_partial(decorator)
                ):
                    yield node, decorator

    def _is_torch_compile(self, node: ast.expr) -> bool:
        name, _, attribute = dotted_name(node).rpartition(".")
        return (name in self._torch_names and attribute == "compile") or (not name and attribute in self._compile_names)

    def _is_partial(self, node: ast.Call) -> bool:
        """Return whether a call is ``functools.partial(torch.compile, ...)``."""
        is_partial = dotted_name(node.func).rpartition(".")[2] == "partial"
        return is_partial and bool(node.args) and self._is_torch_compile(node.args[0])

    def _is_definition(self, node: ast.AST, source: str | None = None) -> bool:
        """Return whether a node defines the function, or the module's class."""
        if isinstance(node, ast.ClassDef):
            return node.name == self._short_name
        if not isinstance(node, FunctionNode):
            return False
        if self.definition.source is None:
            return node.name == self._short_name
        return (source or self.source, first_line(node)) == (self.definition.source, self.definition.line)

    @property
    def _short_name(self) -> str:
        return self.definition.name.rpartition(".")[2]

    def _certainty(self, value: ast.expr, call: ast.Call, max_assignments: int) -> _Certainty | None:
        """Return how certain it is that an expression evaluates to the function; ``None`` if it certainly does not."""
        match value:
            case ast.Name():
                return self._certainty_of_name(value.id, call, max_assignments)
            case ast.Lambda():
                is_same_line = (self.source, value.lineno) == (self.definition.source, self.definition.line)
                return "certain" if is_same_line and self._short_name == "<lambda>" else None
            case ast.Call(func=function) if dotted_name(function).rpartition(".")[2] == "partial" and value.args:
                return self._certainty(value.args[0], call, max_assignments)
            case ast.Call(func=ast.Name(id=name)):
                return self._certainty_of_result(name)
            case ast.Attribute(attr=method):
                methods = self._methods(method)
                if any(self._is_definition(node, source) for source, node in methods):
                    return "certain" if len(methods) == 1 else "unknown"
                return "by name" if dotted_name(value.value) == self.owner else "unknown"
        return "unknown"

    def _certainty_of_name(self, name: str, call: ast.Call, max_assignments: int) -> _Certainty | None:
        earlier_nodes = [node for node in self.nodes[self.source] if getattr(node, "lineno", call.lineno) < call.lineno]
        bindings = [
            node
            for node in earlier_nodes
            if (isinstance(node, FunctionNode | ast.ClassDef) and node.name == name)
            or (isinstance(node, ast.Assign) and any(dotted_name(target) == name for target in node.targets))
        ]
        last_binding = max(bindings, key=lambda node: node.lineno, default=None)
        if isinstance(last_binding, ast.Assign) and max_assignments:
            certainty = self._certainty(last_binding.value, call, max_assignments - 1)
            return "by name" if certainty == "unknown" and name == self.owner else certainty
        if last_binding is not None and not isinstance(last_binding, ast.Assign):
            is_parameter = any(isinstance(node, ast.arg) and node.arg == name for node in earlier_nodes)
            return "certain" if self._is_definition(last_binding) else "unknown" if is_parameter else None
        if name == self.owner:
            return "by name"
        definitions = self._definitions(name)
        if len(definitions) == 1:
            source, node = definitions[0]
            return "certain" if self._is_definition(node, source) else None
        return "by name" if name == self._short_name and not definitions else "unknown"

    def _certainty_of_result(self, name: str) -> _Certainty | None:
        """Return how certain it is that calling a name returns the function; ``None`` if it creates another object."""
        definitions = self._definitions(name)
        for source, node in definitions:
            if isinstance(node, ast.ClassDef):
                if node.name == self._short_name:
                    return "certain"
            elif any(self._is_definition(inner, source) for inner in ast.walk(node)):
                return "certain"
        return None if any(isinstance(node, ast.ClassDef) for _, node in definitions) else "unknown"

    def _definitions(self, name: str) -> list[tuple[str, FunctionNode | ast.ClassDef]]:
        """Return the functions and classes with this name in all sources."""
        return [
            (source, node)
            for source, nodes in self.nodes.items()
            for node in nodes
            if isinstance(node, FunctionNode | ast.ClassDef) and node.name == name
        ]

    def _methods(self, name: str) -> list[tuple[str, FunctionNode]]:
        """Return the methods with this name in the classes of all sources."""
        return [
            (source, node)
            for source, nodes in self.nodes.items()
            for class_node in nodes
            if isinstance(class_node, ast.ClassDef)
            for node in class_node.body
            if isinstance(node, FunctionNode) and node.name == name
        ]
