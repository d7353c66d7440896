"""Compute what depends only on varying values before the call, and pass the results to the compiled function."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from jupyter_graphbreak.experiments.families.hoisting import TIME_DEPENDENT_FUNCTIONS
from jupyter_graphbreak.experiments.families.parsed_source import first_line, fresh_name
from jupyter_graphbreak.experiments.families.proposal import MAX_TITLE_EXPRESSION_LENGTH
from jupyter_graphbreak.experiments.families.protection import is_protected
from jupyter_graphbreak.experiments.families.site import (
    Site,
    arguments_of,
    dotted_name,
    name_bound_by,
    names_bound,
    names_read,
    parse_source,
    torch_name_and_imports,
)
from jupyter_graphbreak.experiments.families.wrapping import RETURN, inner_name, wrap_function

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from jupyter_graphbreak.experiments.families.parsed_source import ParsedSource, Splice

#: Expressions that are computed from their parts alone.
_COMPOSITE_EXPRESSIONS = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.JoinedStr, ast.FormattedValue, ast.Tuple, ast.List,
    ast.Dict, ast.Set, ast.Subscript, ast.Slice, ast.Starred,
)  # fmt: skip
#: Attributes of tensors that do not depend on the tensors' values.
_SIZE_ATTRIBUTES = {"shape", "ndim"}
_SIZE_METHODS = {"size", "dim", "numel"}
_PURE_BUILTINS = {
    "abs", "bool", "dict", "divmod", "float", "format", "hex", "int", "len", "list", "max", "min", "pow", "range",
    "repr", "round", "sorted", "str", "sum", "tuple",
}  # fmt: skip
_EXIT_NODES = (ast.Return, ast.Raise, ast.Assert, ast.Yield, ast.YieldFrom, ast.Try)
_SIMPLE_STATEMENTS = (ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.If)
#: Packages whose functions compute tensors, or return something different each time.
_EXCLUDED_PACKAGES = {"torch", "random", "time"}


class ReadExpressions(NamedTuple):
    """The expressions that a function reads, such as ``self.step``, by the kind of their values.

    ``plain_values`` are those that neither are nor contain tensors or other objects. ``varied_values`` are the sizes,
    numbers, flags, strings and lists of numbers that varied between the calls.
    """

    plain_values: Collection[str]
    tensors: Collection[str]
    varied_values: Collection[str]


class PrecomputingChange(NamedTuple):
    """A change that computes values before the call."""

    title: str
    texts: Mapping[str, str]
    compiled_name: str
    passes_tensors: bool


def propose_precomputing(
    source_id: str, line: int, texts: Mapping[str, str], read_expressions: ReadExpressions
) -> Iterator[PrecomputingChange]:
    """Yield changes that move, out of a compiled function, the expressions that depend only on the varied values."""
    source = parse_source(texts[source_id])
    function = _function_at(source, line) if source is not None else None
    if source is None or function is None:
        return
    parts = _Partition(source, function, read_expressions)
    if not parts.is_worthwhile():
        return
    site = Site(source_id, source, function.body[0], function.body[0], texts)
    torch_name, _ = torch_name_and_imports(source, function)
    names = parts.needed_names()
    values_text = " and ".join(f"`{parts.text_in_title(name)}`" for name in names)
    for passes_tensors, dtype in ((True, f", dtype={torch_name}.float64"), (True, ""), (False, "")):
        conversions = [f"{name} = {torch_name}.as_tensor({name}{dtype})" for name in names if passes_tensors]
        new_texts = wrap_function(site, function, ", ".join(names), [*parts.lines, *conversions, RETURN], parts.splices)
        if new_texts is not None:
            passing_text = f", and pass {'tensors' if len(names) > 1 else 'a tensor'}" if passes_tensors else ""
            dtype_text = f" of `{torch_name}.float64`" if dtype else ""
            yield PrecomputingChange(
                f"Compute {values_text} before the call{passing_text}{dtype_text}",
                new_texts,
                inner_name(source, function),
                passes_tensors,
            )


def _function_at(source: ParsedSource, line: int) -> ast.FunctionDef | None:
    """Return the function that begins on a line, if it can be wrapped."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef) and line == first_line(node):
            unsupported_nodes = ast.Yield | ast.YieldFrom | ast.Nonlocal
            return None if any(isinstance(part, unsupported_nodes) for part in ast.walk(node)) else node
    return None


@dataclass
class _Partition:
    """A function in two parts: the part that can be computed before the call, and the rest.

    ``lines`` compute the values, and ``splices`` make the rest use them.
    """

    source: ParsedSource
    function: ast.FunctionDef
    read_expressions: ReadExpressions
    lines: list[str] = field(default_factory=list)
    splices: list[Splice | None] = field(default_factory=list)
    #: The statements that move before the call.
    _moved_statements: list[ast.stmt] = field(default_factory=list)
    #: The new names of the expressions that move before the call.
    _names_of_moved_expressions: dict[ast.expr, str] = field(default_factory=dict)
    #: The variables that can be computed before the call.
    _available_names: set[str] = field(default_factory=set)
    #: The variables that depend on varied values.
    _dependent_names: dict[str, None] = field(default_factory=dict)
    #: The statements that set all other available variables, by the names of the variables.
    _copied_statements: dict[str, ast.stmt] = field(default_factory=dict)

    def __post_init__(self) -> None:
        accesses = [
            node for node in ast.walk(self.function) if isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
        ]
        self._assigned_names = {
            dotted_name(_changed_object(node)) for node in accesses if isinstance(node.ctx, ast.Store | ast.Del)
        }
        global_statements = [node for node in ast.walk(self.function) if isinstance(node, ast.Global)]
        self._assigned_names |= {name for node in global_statements for name in node.names}
        for statement in self.function.body:
            self._move(statement)
            if any(isinstance(part, _EXIT_NODES) for part in ast.walk(statement)):
                break
        self.splices = [
            *(self.source.deletion(statement) for statement in self._moved_statements),
            *(self.source.replacement(node, name) for node, name in self._names_of_moved_expressions.items()),
        ]

    def is_worthwhile(self) -> bool:
        """Return whether anything besides the varied values is computed before the call."""
        return bool(self.needed_names()) and (
            bool(self._moved_statements) or any(not self._only_reads(node) for node in self._names_of_moved_expressions)
        )

    def needed_names(self) -> list[str]:
        """Return the names of the values that the rest of the function needs."""
        moved_nodes = {
            id(part) for node in (*self._moved_statements, *self._names_of_moved_expressions) for part in ast.walk(node)
        }
        remaining_names = [
            node for node in ast.walk(self.function) if isinstance(node, ast.Name) and id(node) not in moved_nodes
        ]
        read_names = {node.id for node in remaining_names}
        return [
            *(name for name in self._dependent_names if name in read_names),
            *dict.fromkeys(self._names_of_moved_expressions.values()),
        ]

    def text_in_title(self, name: str) -> str:
        """Return the text for a value in a title: its expression if that is short, or else its name."""
        node = next((node for node, given in self._names_of_moved_expressions.items() if given == name), None)
        text = self.source.text_of(node) if node is not None else name
        return text if len(text) <= MAX_TITLE_EXPRESSION_LENGTH and "\n" not in text else name

    def _move(self, statement: ast.stmt) -> None:
        """Move a statement, or expressions in it, if they can be computed before the call."""
        if self._is_movable(statement):
            bound_names = sorted(names_bound(statement))
            if self._depends_on_varied_values(statement):
                self._copy_definitions_for(statement)
                self._add_statement(statement)
                self._moved_statements.append(statement)
                self._dependent_names |= dict.fromkeys(bound_names)
            else:
                self._copied_statements |= dict.fromkeys(bound_names, statement)
            self._available_names.update(bound_names)
        elif isinstance(statement, _SIMPLE_STATEMENTS):
            parts = [statement.test] if isinstance(statement, ast.If) else list(ast.iter_child_nodes(statement))
            for node in [node for part in parts for node in self._largest_movable_expressions(part)]:
                self._move_expression(node)

    def _move_expression(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name) and node.id in self._dependent_names:
            return
        text, names = self.source.text_of(node), self._names_of_moved_expressions
        name = next((names[earlier] for earlier in names if self.source.text_of(earlier) == text), None)
        if name is None:
            self._copy_definitions_for(node)
            desired_name = f"given_{node.attr}" if isinstance(node, ast.Attribute) else "given"
            name = fresh_name(self.source, desired_name, names.values())
            self.lines.append(f"{name} = {text}")
        names[node] = name

    def _copy_definitions_for(self, node: ast.AST) -> None:
        """Copy the statements that set the variables of a piece of code, so that they also run before the call."""
        for name in sorted(names_read(node) & self._copied_statements.keys()):
            statement = self._copied_statements.pop(name, None)
            if statement is not None:
                self._copy_definitions_for(statement)
                self._add_statement(statement)
                self._copied_statements = {
                    key: other for key, other in self._copied_statements.items() if other is not statement
                }

    def _add_statement(self, statement: ast.stmt) -> None:
        indent = self.source.indent_of(statement) or ""
        self.lines += [line.removeprefix(indent) for line in self.source.text_of(statement).split("\n")]

    def _is_movable(self, statement: ast.stmt) -> bool:
        """Return whether a statement only binds names to values known before the call, and nothing else binds them."""
        names, own_nodes = names_bound(statement), set(ast.walk(statement))
        other_nodes = (node for node in ast.walk(self.function) if node not in own_nodes)
        return self._only_assigns(statement) and not any(
            (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in names)
            or (isinstance(node, ast.arg) and node.arg in names)
            for node in other_nodes
        )

    def _only_assigns(self, statement: ast.stmt) -> bool:
        match statement:
            case ast.Assign(targets=[ast.Name()], value=value):
                return self._is_available(value)
            case ast.If(test=test, body=body, orelse=orelse):
                return self._is_available(test) and all(map(self._only_assigns, [*body, *orelse]))
        return False

    def _largest_movable_expressions(self, node: ast.AST) -> Iterator[ast.expr]:
        """Yield the largest expressions that depend on varied values and can be computed before the call."""
        if isinstance(node, ast.Lambda | ast.JoinedStr | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            if isinstance(node, ast.JoinedStr) and self._is_available(node) and self._depends_on_varied_values(node):
                yield node
            return
        is_read = not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
        if isinstance(node, ast.expr) and is_read and self._is_available(node) and self._depends_on_varied_values(node):
            if not is_protected(self.source, node) and not isinstance(node, ast.Starred | ast.Slice):
                yield node
            return
        for child in ast.iter_child_nodes(node):
            if is_read or not isinstance(child, ast.Name):
                yield from self._largest_movable_expressions(child)

    def _only_reads(self, node: ast.expr) -> bool:
        """Return whether an expression only reads a varied value or a size."""
        return ast.unparse(node) in self.read_expressions.varied_values or self._is_size(node)

    def _is_size(self, node: ast.expr) -> bool:
        """Return whether an expression reads a size of a tensor."""
        match node:
            case ast.Attribute(value=tensor, attr=attr):
                return attr in _SIZE_ATTRIBUTES and self._is_tensor(tensor)
            case ast.Call(func=ast.Attribute(value=tensor, attr=attr)):
                return attr in _SIZE_METHODS and self._is_tensor(tensor)
            case ast.Call(func=ast.Name(id="len"), args=[tensor]):
                return self._is_tensor(tensor)
            case ast.Subscript(value=value, slice=ast.Constant()):
                return self._is_size(value)
        return False

    def _is_tensor(self, node: ast.expr) -> bool:
        return ast.unparse(node) in self.read_expressions.tensors and not self._is_assigned(node)

    def _is_assigned(self, node: ast.expr) -> bool:
        """Return whether the function assigns to an expression, or to an object that contains it."""
        while True:
            if dotted_name(node) in self._assigned_names:
                return True
            if not isinstance(node, ast.Attribute | ast.Subscript):
                return False
            node = node.value

    def _is_available(self, node: ast.AST) -> bool:
        """Return whether an expression can be computed before the call."""
        if isinstance(node, ast.Constant | ast.expr_context | ast.operator | ast.unaryop | ast.cmpop | ast.boolop):
            return True
        if isinstance(node, ast.expr) and self._is_size(node):
            return True
        if isinstance(node, ast.Name) and node.id in self._available_names:
            return True
        if (
            isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
            and ast.unparse(node) in self.read_expressions.plain_values
        ):
            return not self._is_assigned(node)
        if isinstance(node, ast.Call):
            arguments = arguments_of(node)
            return self._can_run_before_call(node.func) and all(map(self._is_available, arguments))
        if isinstance(node, ast.Attribute):
            return self._is_imported(node)
        return isinstance(node, _COMPOSITE_EXPRESSIONS) and all(map(self._is_available, ast.iter_child_nodes(node)))

    def _can_run_before_call(self, function: ast.expr) -> bool:
        """Return whether a builtin, a part of a module or a method of a value can run before the call."""
        name = dotted_name(function)
        if name.rpartition(".")[2] in TIME_DEPENDENT_FUNCTIONS:
            return False
        if isinstance(function, ast.Name):
            return name in _PURE_BUILTINS and name not in self._assigned_names
        return isinstance(function, ast.Attribute) and (
            self._is_imported(function) or self._is_available(function.value)
        )

    def _is_imported(self, node: ast.Attribute) -> bool:
        """Return whether an expression refers to a part of a Python module whose functions may run before the call."""
        root = dotted_name(node).partition(".")[0]
        imports = [part for part in ast.walk(self.source.tree) if isinstance(part, ast.Import)]
        aliases = [alias for part in imports for alias in part.names]
        names = {name_bound_by(alias) for alias in aliases if alias.name.partition(".")[0] not in _EXCLUDED_PACKAGES}
        return root in names and root not in self._assigned_names

    def _depends_on_varied_values(self, node: ast.AST) -> bool:
        """Return whether a piece of code depends on varied values."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in self._dependent_names:
                return True
            if (
                isinstance(part, ast.Name | ast.Attribute | ast.Subscript)
                and ast.unparse(part) in self.read_expressions.varied_values
            ):
                return True
        return False


def _changed_object(node: ast.Name | ast.Attribute | ast.Subscript) -> ast.expr:
    """Return the object that an assignment to an expression changes: for an item, its container."""
    return node.value if isinstance(node, ast.Subscript) else node
