"""Write a change for recompiles into the user's sources, and find other code that the change would affect."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_graphbreak.experiments.families.parsed_source import FunctionNode
from jupyter_graphbreak.experiments.families.site import arguments_of
from jupyter_graphbreak.experiments.recompiles.candidates import expression, join_conditions
from jupyter_graphbreak.experiments.recompiles.compile_calls import find_compile_calls
from jupyter_graphbreak.experiments.trial.call_specs import Path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from jupyter_graphbreak.experiments.recompiles.candidates import CallPreparation
    from jupyter_graphbreak.experiments.recompiles.compile_calls import CompiledDefinition
    from jupyter_graphbreak.experiments.trial.call_specs import CallSite, Root

#: Statements before which code can be inserted.
_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.If, ast.With)
#: Nodes that always evaluate all their parts exactly once.
_TRANSPARENT_NODES = (
    ast.Call, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.Dict, ast.Subscript, ast.keyword,
    ast.Starred, ast.Await, ast.withitem, ast.FormattedValue, ast.JoinedStr,
)  # fmt: skip
#: Nodes that have their own variables.
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
_MAGIC = re.compile(r"^(\s*)[%!?].*", re.MULTILINE)


@dataclass(frozen=True)
class _Splice:
    """Replaces a range of source text. A position is a line, counted from 1, and a byte in the line, from 0."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


def insert_lines_before_calls(
    text: str,
    sites: Iterable[CallSite],
    callee: Callable[..., Any],
    preparations: Sequence[CallPreparation],
    settings_statements: Sequence[str] = (),
    reserved_names: Collection[str] = (),
) -> str | None:
    """Return source text with code inserted before the given calls; ``None`` if the code cannot be inserted.

    ``settings_statements`` change settings. They run once, before the loops around the first call of each function. No
    inserted line may assign to the reserved names at the top level.
    """
    tree = parse_source(text)
    if tree is None:
        return None
    splices: list[_Splice] = []
    seen_scopes: set[ast.AST] = set()
    for _, site in sorted({(site.line, site.column): site for site in sites}.items()):
        path = _path_to_call(tree, site)
        statement = _statement_of(path) if path is not None else None
        if path is None or statement is None:
            return None
        node: Any = path[-1]
        writer = _CallWriter(text, path, _argument_expressions(node, callee), _unpacked_mapping(node), reserved_names)
        if not all(writer.write(preparation, site) for preparation in preparations):
            return None
        scope, outermost = _scope_of(path)
        insertions: dict[ast.stmt, list[str]] = {}
        if scope not in seen_scopes:
            seen_scopes.add(scope)
            insertions[outermost] = [*writer.declarations, *settings_statements]
        insertions.setdefault(statement, []).extend(writer.lines)
        imports = [] if "torch" in site.visible_names else ["import torch"]
        for target, lines in insertions.items():
            insertion = _insertion(text, target, [*imports, *lines]) if lines else None
            if lines and insertion is None:
                return None
            splices += [insertion] if insertion is not None else []
            imports = []
        splices += writer.splices
    return _apply_splices(text, splices)


def parse_source(text: str) -> ast.Module | None:
    """Return the syntax tree of a cell or a file, without its magics; ``None`` if the syntax is invalid."""
    try:
        return ast.parse(_MAGIC.sub(r"\1pass", text))
    except SyntaxError:
        return None


def _scope_of(path: Sequence[ast.AST]) -> tuple[ast.AST, ast.stmt]:
    """Return the function around a call, or else the cell or file, and the statement in it that contains the call."""
    scope_index = max(index for index, part in enumerate(path) if isinstance(part, _SCOPES))
    statement = next(part for part in path[scope_index + 1 :] if isinstance(part, ast.stmt))
    return path[scope_index], statement


def _statement_of(path: Sequence[ast.AST]) -> ast.stmt | None:
    """Return the statement that contains a call, if it always evaluates the call exactly once."""
    statement = next((part for part in reversed(path) if isinstance(part, ast.stmt)), None)
    if not isinstance(statement, _STATEMENTS):
        return None
    if isinstance(statement, ast.If) and not _is_within(path[-1], statement.test):
        return None
    nodes_between = path[path.index(statement) + 1 : -1]
    return statement if all(isinstance(part, _TRANSPARENT_NODES) for part in nodes_between) else None


def module_of(root: Root, site: CallSite) -> str | None:
    """Return the name of a global variable's module in the code around a call; ``None`` if the module has none."""
    return dict(site.modules).get(root.defined_in) if root.kind == "global" else None


class _CallWriter:
    """Collects the lines to insert before a call, and the replacements in the call itself."""

    def __init__(
        self,
        text: str,
        path: Sequence[ast.AST],
        arguments_by_name: Mapping[str, ast.expr] | None,
        unpacked_mapping: ast.expr | None,
        reserved_names: Collection[str],
    ) -> None:
        self.splices: list[_Splice] = []
        self._text = text
        self._path = path
        #: Whether the arguments of the call are known.
        self._has_known_arguments = arguments_by_name is not None
        self._arguments_by_name = arguments_by_name or {}
        #: The mapping that the call unpacks.
        self._unpacked_mapping = unpacked_mapping
        self._reserved_names = reserved_names
        #: The statements that let a function assign global variables.
        self.declarations: list[str] = []
        self._evaluations: list[str] = []
        self._code_blocks: list[list[str]] = []
        #: The names of arguments that are evaluated before the call, by the positions of the arguments.
        self._hoisted_names: dict[tuple[int, int], str] = {}
        #: The positions of arguments that are replaced in the call itself.
        self._replaced_positions: set[tuple[int, int]] = set()

    @property
    def lines(self) -> list[str]:
        """The lines to insert: first those that evaluate arguments, in the order of the call."""
        return [*self._evaluations, *join_conditions(self._code_blocks)]

    def write(self, preparation: CallPreparation, site: CallSite) -> bool:
        """Write the code to run before the call, and return whether that is possible."""
        return (
            self._write_argument(preparation)
            if preparation.path.root.kind == "argument"
            else self._write_state(preparation, site)
        )

    def _write_state(self, preparation: CallPreparation, site: CallSite) -> bool:
        """Write the change to the called module or to a variable, and return whether that is possible."""
        root = preparation.path.root
        if root.name not in site.visible_names and (module := module_of(root, site)) is not None:
            self._code_blocks.append(preparation.lines(lambda path: f"{module}.{expression(path, '')}"))
            return True
        is_visible = site.owner_name is not None if root.kind == "module" else root.name in site.visible_names
        is_rebound = preparation.assigns and not preparation.path.steps
        if not is_visible or (is_rebound and not (root.kind == "global" and self._can_assign_global(root.name))):
            return False
        self._code_blocks.append(preparation.lines(lambda path: expression(path, site.owner_name or "")))
        return True

    def _can_assign_global(self, name: str) -> bool:
        """Add a ``global`` declaration if needed; return whether the code around the call can assign the variable."""
        scope, _ = _scope_of(self._path)
        if isinstance(scope, ast.Module):
            return True
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        if any(isinstance(part, ast.Global) and name in part.names for part in ast.walk(scope)):
            return True
        if name in _names_in(scope):  # a declaration must come before each use of the name
            return False
        self.declarations.append(f"global {name}")
        return True

    def _write_argument(self, preparation: CallPreparation) -> bool:
        """Write the code that changes an argument, and return whether that is possible."""
        preparation = self._for_variadic_argument(preparation)
        name = preparation.path.root.name
        argument = self._arguments_by_name.get(name)
        if not self._has_known_arguments:
            return False
        if argument is None and self._unpacked_mapping is not None:
            return self._write_unpacked(preparation, self._text_of(self._unpacked_mapping))
        if argument is None:
            return preparation.optional_path is not None  # this call leaves the argument out
        hoisted_name = self._hoisted_names.get(_start(argument))
        if preparation.assigns and not preparation.path.steps and hoisted_name is None:
            if preparation.code_after:
                return self._write_new_value(preparation, argument)
            argument_text = self._text_of(argument)
            self._replaced_positions.add(_start(argument))
            self.splices.append(_Splice(_start(argument), _end(argument), preparation.new_value(argument_text)))
            return True
        if not self._hoist(argument, name):
            return False
        argument_text = self._hoisted_names.get(_start(argument)) or self._text_of(argument)
        self._code_blocks.append(preparation.lines(lambda path: f"{argument_text}{''.join(map(str, path.steps))}"))
        return True

    def _for_variadic_argument(self, preparation: CallPreparation) -> CallPreparation:
        """Return a preparation whose root is the argument itself if it is an item of ``*args`` or ``**kwargs``."""
        root, steps = preparation.path
        name = _name_of_variadic_argument(root.name, steps[0].key) if steps else ""
        if name not in self._arguments_by_name or root.name in self._arguments_by_name:
            return preparation
        optional_path = preparation.optional_path
        if optional_path is not None:
            optional_path = Path(root._replace(name=name), optional_path.steps[1:])
        return replace(preparation, path=Path(root._replace(name=name), steps[1:]), optional_path=optional_path)

    def _write_unpacked(self, preparation: CallPreparation, mapping: str) -> bool:
        """Write the code that changes an item of the unpacked mapping, and return whether that is possible."""
        # The caller owns the mapping, and it may lack an optional item.
        if preparation.assigns or preparation.optional_path is not None:
            return False
        self._code_blocks.append(
            preparation.lines(lambda path: f"{mapping}[{path.root.name!r}]{''.join(map(str, path.steps))}")
        )
        return True

    def _write_new_value(self, preparation: CallPreparation, argument: ast.expr) -> bool:
        """Write code that evaluates the new value of an argument before the statement and then changes this value.

        Return whether that is possible.
        """
        name = preparation.path.root.name
        if not self._hoist(argument, name):
            return False
        argument_text = self._hoisted_names.get(_start(argument)) or self._text_of(argument)
        new_name = self._new_name(f"{name}_tensor")
        self._hoisted_names[_start(argument)] = new_name
        self._evaluations.append(f"{new_name} = {preparation.new_value(argument_text)}")
        self._code_blocks.append([preparation.code_after.replace("NAME", new_name)])
        self.splices = [splice for splice in self.splices if splice.start != _start(argument)]
        self.splices.append(_Splice(_start(argument), _end(argument), new_name))
        return True

    def _text_of(self, node: ast.expr) -> str:
        return ast.get_source_segment(self._text, node) or ""

    def _hoist(self, argument: ast.expr, name: str) -> bool:
        """Write code that evaluates, before the statement, the earlier arguments of the call and then an argument.

        Return whether that is possible. The expression that is called must only look up a value.
        """
        node: Any = self._path[-1]
        if _is_lookup(argument) or _start(argument) in self._hoisted_names:
            return True
        names = {id(value): parameter for parameter, value in self._arguments_by_name.items()}
        parts = arguments_of(node)
        earlier_arguments = sorted((part for part in parts if _start(part) <= _start(argument)), key=_start)
        if not _is_lookup(node.func):
            return False
        for part in earlier_arguments:
            if _start(part) in self._replaced_positions:
                return False
            if _is_lookup(part) or isinstance(part, ast.Constant) or _start(part) in self._hoisted_names:
                continue
            new_name = self._new_name(names.get(id(part), name))
            self._hoisted_names[_start(part)] = new_name
            self._evaluations.append(f"{new_name} = {self._text_of(part)}")
            self.splices.append(_Splice(_start(part), _end(part), new_name))
        return True

    def _new_name(self, name: str) -> str:
        """Return a name that is not used in the function around the call, or else in the cell or file."""
        scope, _ = _scope_of(self._path)
        used_names = _names_in(scope) | set(self._hoisted_names.values())
        if isinstance(scope, ast.Module):
            used_names |= set(self._reserved_names)
        while name in used_names:
            name += "_marked"
        return name


def _path_to_call(tree: ast.AST, site: CallSite) -> list[ast.AST] | None:
    """Return the nodes from the root of a tree to a call, the call last; ``None`` if the tree lacks the call."""
    call_range = (site.line, site.column), (site.end_line, site.end_column)
    path: list[ast.AST] = [tree]
    while True:
        inner = next(
            (
                child
                for child in _located_children(path[-1])
                if _start(child) <= call_range[0] and call_range[1] <= _end(child)
            ),
            None,
        )
        if inner is None:
            return None
        path.append(inner)
        if isinstance(inner, ast.Call) and (_start(inner), _end(inner)) == call_range:
            return path


def _located_children(node: ast.AST) -> list[Any]:
    children: list[Any] = []
    for child in ast.iter_child_nodes(node):
        children += [child] if hasattr(child, "lineno") else _located_children(child)
    return children


def _start(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: Any) -> tuple[int, int]:
    return node.end_lineno, node.end_col_offset


def _is_within(node: ast.AST, outer: ast.AST) -> bool:
    return _start(outer) <= _start(node) and _end(node) <= _end(outer)


def _argument_expressions(node: ast.Call, callee: Callable[..., Any]) -> Mapping[str, ast.expr] | None:
    """Return the expressions of a call's arguments by parameter name, except those in an unpacked mapping.

    Items of ``*args`` and ``**kwargs`` have the names of :func:`_name_of_variadic_argument`.
    The result is ``None`` if it is unknown which parameter an argument is for.
    """
    unpacks = any(keyword.arg is None for keyword in node.keywords)
    if any(isinstance(argument, ast.Starred) for argument in node.args) or (
        unpacks and _unpacked_mapping(node) is None
    ):
        return None
    try:
        signature = inspect.signature(getattr(callee, "forward", callee))
        keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
        # bind() would require all arguments, because a function that is known only from its frame has no defaults.
        arguments = signature.bind_partial(*node.args, **keywords).arguments
    except (TypeError, ValueError):
        return None
    expressions: dict[str, ast.expr] = {}
    for name, value in arguments.items():
        if isinstance(value, tuple | dict):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            expressions |= {_name_of_variadic_argument(name, key): item for key, item in items}
        else:
            expressions[name] = value
    return expressions


def _name_of_variadic_argument(parameter: str, key: object) -> str:
    """Return the name for an item of ``*args`` or ``**kwargs``, such as ``args_0``."""
    return f"{parameter}_{key}"


def _unpacked_mapping(node: ast.Call) -> ast.expr | None:
    """Return the mapping that a call unpacks, if the call unpacks only one and looking it up again is safe."""
    mappings = [keyword.value for keyword in node.keywords if keyword.arg is None]
    return mappings[0] if len(mappings) == 1 and _is_lookup(mappings[0]) else None


def _is_lookup(node: ast.expr) -> bool:
    """Return whether an expression only looks a value up, so it can be evaluated twice."""
    match node:
        case ast.Name():
            return True
        case ast.Attribute(value=value):
            return _is_lookup(value)
        case ast.Subscript(value=value, slice=key):
            return _is_lookup(value) and isinstance(key, ast.Constant | ast.Name)
    return False


def _names_in(scope: ast.AST) -> set[str]:
    """Return the names that a function, a cell or a file uses, without the names inside inner functions and classes."""
    names: set[str] = set()
    pending: list[ast.AST] = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)
    return names


def _insertion(text: str, statement: ast.stmt, lines: Sequence[str]) -> _Splice | None:
    """Return the splice that inserts lines before a statement, even after a colon or a semicolon on its line.

    The result is ``None`` if the lines cannot be inserted there.
    """
    source = text.split("\n")[statement.lineno - 1]
    text_before = source.encode()[: statement.col_offset].decode()
    code = "\n".join(lines).split("\n")
    if not text_before.strip():
        return _Splice((statement.lineno, 0), (statement.lineno, 0), "".join(f"{text_before}{line}\n" for line in code))
    indent = text_before[: len(text_before) - len(text_before.lstrip())]
    if text_before.rstrip().endswith(":"):
        code_before, indent = text_before.rstrip(), f"{indent}    "
        text_after = source.encode()[getattr(statement, "end_col_offset", 0) or 0 :].decode()
        if statement.end_lineno != statement.lineno or text_after.strip().startswith(";"):
            return None
    elif text_before.rstrip().endswith(";"):
        code_before = text_before.rstrip().rstrip(";").rstrip()
        if ":" in code_before:  # the body of a statement on the same line
            return None
    else:
        return None
    inserted_text = "".join(f"\n{indent}{line}" for line in code)
    return _Splice((statement.lineno, len(code_before.encode())), _start(statement), f"{inserted_text}\n{indent}")


def _apply_splices(text: str, splices: Iterable[_Splice]) -> str:
    lines = [line.encode() for line in text.split("\n")]
    for splice in sorted(splices, key=lambda splice: splice.start, reverse=True):
        (first, column), (last, end) = splice.start, splice.end
        joined_line = lines[first - 1][:column] + splice.text.encode() + lines[last - 1][end:]
        lines[first - 1 : last] = joined_line.split(b"\n")
    return "\n".join(line.decode() for line in lines)


def add_dynamic_argument(
    texts: Mapping[str, str], definition: CompiledDefinition, owner: str | None
) -> dict[str, str] | None:
    """Return the changed texts of the sources that compile a function, with ``dynamic=True``; ``None`` if none do."""
    trees = {source: tree for source, text in texts.items() if (tree := parse_source(text)) is not None}
    splices: dict[str, list[_Splice]] = {}
    for source, node in find_compile_calls(trees, definition, owner):
        splices.setdefault(source, []).append(_splice_for_dynamic_argument(texts[source], node))
    return {source: _apply_splices(texts[source], changes) for source, changes in splices.items()} or None


def _splice_for_dynamic_argument(text: str, node: ast.expr) -> _Splice:
    if not isinstance(node, ast.Call):
        return _Splice(_end(node), _end(node), "(dynamic=True)")
    dynamic_keyword = next((keyword for keyword in node.keywords if keyword.arg == "dynamic"), None)
    if dynamic_keyword is not None:
        return _Splice(_start(dynamic_keyword.value), _end(dynamic_keyword.value), "True")
    arguments = arguments_of(node)
    if not arguments:
        line, column = _end(node)
        return _Splice((line, column - 1), (line, column - 1), "dynamic=True")
    end = max(map(_end, arguments))
    rest_of_line = text.split("\n")[end[0] - 1].encode()[end[1] :].decode()
    if rest_of_line.lstrip().startswith(")") and (
        end[0],
        end[1] + len(rest_of_line) - len(rest_of_line.lstrip()) + 1,
    ) != _end(node):
        end = end[0], end[1] + rest_of_line.index(")") + 1  # an argument in parentheses
    return _Splice(end, end, ", dynamic=True")


class ReadingLine(NamedTuple):
    """A line that reads a number, and the path of the number."""

    line: int
    path: Path


def find_reading_line(paths: Collection[Path], tree: ast.Module, own_line: int | None) -> ReadingLine | None:
    """Return the first line outside a function that reads one of several numbers, except arguments.

    ``own_line`` is the first line of the function or its decorator; ``None`` if a different source defines it.
    """
    read_paths = [path for path in paths if path.steps or path.root.kind != "argument"]
    nodes = _expressions_outside_function(tree, own_line)
    readers = [ReadingLine(node.lineno, path) for node in nodes for path in read_paths if _reads(node, path)]
    return min(readers, key=lambda reader: reader.line, default=None)


def _expressions_outside_function(tree: ast.AST, own_line: int | None) -> Iterator[ast.expr]:
    """Yield the expressions in a tree, except those in one function and those that are called."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, FunctionNode) and own_line in {node.lineno, *(part.lineno for part in node.decorator_list)}:
            continue
        if isinstance(node, ast.expr):
            yield node
        # A called expression is not a number, but its parts may be.
        called_function = node.func if isinstance(node, ast.Call) else None
        pending += [child for child in ast.iter_child_nodes(node) if child is not called_function]
        pending += list(ast.iter_child_nodes(called_function)) if called_function is not None else []


def _reads(node: ast.expr, path: Path) -> bool:
    """Return whether an expression may read the value at a path, judging by the last step of the path."""
    step = path.steps[-1] if path.steps else None
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            return step is None and name == path.root.name
        case ast.Attribute(attr=name, ctx=ast.Load()):
            return step is not None and step.kind == "attribute" and name == step.key
        case ast.Subscript(slice=ast.Constant(value=key), ctx=ast.Load()):
            return step is not None and step.kind == "item" and key == step.key
    return False
