"""Write a change for recompiles into the user's sources, and find other code that the change would affect."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_graphbreak.experiments.families.parsed_source import FunctionNode, Splice
from jupyter_graphbreak.experiments.families.site import arguments_of, parse_source
from jupyter_graphbreak.experiments.recompiles.candidates import expression, join_conditions
from jupyter_graphbreak.experiments.recompiles.compile_calls import find_compile_calls
from jupyter_graphbreak.experiments.trial.call_specs import Path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from jupyter_graphbreak.experiments.families.parsed_source import ParsedSource
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
    source = parse_source(text)
    if source is None:
        return None
    splices: list[Splice | None] = []
    visited_scopes: set[ast.AST] = set()
    for _, site in sorted({(site.line, site.column): site for site in sites}.items()):
        call = _call_at(source, site)
        statement = _statement_of(source, call) if call is not None else None
        if call is None or statement is None:
            return None
        writer = _CallWriter(source, call, callee, reserved_names)
        if not all(writer.write(preparation, site) for preparation in preparations):
            return None
        scope, outermost = _scope_of(source, call)
        insertions: dict[ast.stmt, list[str]] = {}
        if scope not in visited_scopes:
            visited_scopes.add(scope)
            insertions[outermost] = [*writer.declarations, *settings_statements]
        insertions.setdefault(statement, []).extend(writer.lines)
        imports = [] if "torch" in site.visible_names else ["import torch"]
        for target, lines in insertions.items():
            if lines:
                splices.append(_insertion(source, target, [*imports, *lines]))
                imports = []
        splices += writer.splices
    return source.apply_splices(splices) if splices else text


def _call_at(source: ParsedSource, site: CallSite) -> ast.Call | None:
    """Return the call at a location; ``None`` if the source has a different text there."""
    call_range = site.line, site.column, site.end_line, site.end_column
    calls = (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    return next(
        (node for node in calls if (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset) == call_range),
        None,
    )


def _scope_of(source: ParsedSource, call: ast.Call) -> tuple[ast.AST, ast.stmt]:
    """Return the function around a call, or else the cell or file, and the statement in it that contains the call."""
    ancestors = list(source.ancestors(call))
    index = next(index for index, node in enumerate(ancestors) if isinstance(node, _SCOPES))
    return ancestors[index], next(node for node in reversed(ancestors[:index]) if isinstance(node, ast.stmt))


def _statement_of(source: ParsedSource, call: ast.Call) -> ast.stmt | None:
    """Return the statement that contains a call, if it always evaluates the call exactly once."""
    inner: ast.AST = call
    for node in source.ancestors(call):
        if isinstance(node, ast.stmt):
            is_in_block = isinstance(node, ast.If) and inner is not node.test
            return node if isinstance(node, _STATEMENTS) and not is_in_block else None
        if not isinstance(node, _TRANSPARENT_NODES):
            return None
        inner = node
    return None


def module_of(root: Root, site: CallSite) -> str | None:
    """Return the name of a global variable's module in the code around a call; ``None`` if the module has none."""
    return dict(site.modules).get(root.defined_in) if root.kind == "global" else None


class _CallWriter:
    """Collects the lines to insert before a call, and the replacements in the call itself."""

    def __init__(
        self, source: ParsedSource, call: ast.Call, callee: Callable[..., Any], reserved_names: Collection[str]
    ) -> None:
        self.splices: list[Splice] = []
        self._source = source
        self._call = call
        #: The expressions of the arguments by parameter name; ``None`` if they are unknown.
        self._arguments_by_name = _argument_expressions(call, callee)
        self._reserved_names = reserved_names
        #: The statements that let a function assign global variables.
        self.declarations: list[str] = []
        self._evaluations: list[str] = []
        self._code_blocks: list[list[str]] = []
        #: The names of the arguments that are evaluated before the call.
        self._hoisted_names: dict[ast.expr, str] = {}
        #: The arguments that are replaced in the call itself.
        self._replaced_arguments: set[ast.expr] = set()

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
        scope, _ = _scope_of(self._source, self._call)
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
        if self._arguments_by_name is None:
            return False
        preparation = _for_variadic_argument(preparation, self._arguments_by_name)
        name = preparation.path.root.name
        argument = self._arguments_by_name.get(name)
        mapping = _unpacked_mapping(self._call)
        if argument is None and mapping is not None:
            return self._write_unpacked(preparation, self._source.text_of(mapping))
        if argument is None:
            return preparation.optional_path is not None  # this call leaves the argument out
        if preparation.assigns and not preparation.path.steps and argument not in self._hoisted_names:
            if preparation.code_after:
                return self._write_new_value(preparation, argument)
            self._replaced_arguments.add(argument)
            self._replace(argument, preparation.new_value(self._source.text_of(argument)))
            return True
        if not self._hoist(argument, name):
            return False
        argument_text = self._hoisted_names.get(argument) or self._source.text_of(argument)
        self._code_blocks.append(preparation.lines(lambda path: f"{argument_text}{''.join(map(str, path.steps))}"))
        return True

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
        """Write code that evaluates and changes an argument before the statement; return whether that is possible."""
        name = preparation.path.root.name
        if not self._hoist(argument, name):
            return False
        argument_text = self._hoisted_names.get(argument) or self._source.text_of(argument)
        new_name = self._new_name(f"{name}_tensor")
        self._hoisted_names[argument] = new_name
        self._evaluations.append(f"{new_name} = {preparation.new_value(argument_text)}")
        self._code_blocks.append([preparation.code_after.replace("NAME", new_name)])
        self._replace(argument, new_name)
        return True

    def _replace(self, argument: ast.expr, new_text: str) -> None:
        """Replace an argument in the call, instead of an earlier replacement."""
        start = self._source.start_of(argument)
        self.splices = [
            *(splice for splice in self.splices if splice.start != start),
            self._source.replacement(argument, new_text),
        ]

    def _hoist(self, argument: ast.expr, name: str) -> bool:
        """Write code that evaluates, before the statement, the earlier arguments of the call and then an argument.

        Return whether that is possible. The expression that is called must only look up a value.
        """
        if _is_lookup(argument) or argument in self._hoisted_names:
            return True
        if not _is_lookup(self._call.func):
            return False
        names = {value: parameter for parameter, value in (self._arguments_by_name or {}).items()}
        for part in sorted(arguments_of(self._call), key=self._source.start_of):
            if part in self._replaced_arguments:
                return False
            if not (_is_lookup(part) or isinstance(part, ast.Constant) or part in self._hoisted_names):
                new_name = self._new_name(names.get(part, name))
                self._hoisted_names[part] = new_name
                self._evaluations.append(f"{new_name} = {self._source.text_of(part)}")
                self._replace(part, new_name)
            if part is argument:
                break
        return True

    def _new_name(self, name: str) -> str:
        """Return a name that is not used in the function around the call, or else in the cell or file."""
        scope, _ = _scope_of(self._source, self._call)
        used_names = _names_in(scope) | set(self._hoisted_names.values())
        if isinstance(scope, ast.Module):
            used_names |= set(self._reserved_names)
        while name in used_names:
            name += "_marked"
        return name


def _for_variadic_argument(preparation: CallPreparation, arguments_by_name: Mapping[str, ast.expr]) -> CallPreparation:
    """Return a preparation whose root is the argument itself if it is an item of ``*args`` or ``**kwargs``."""
    root, steps = preparation.path
    name = _name_of_variadic_argument(root.name, steps[0].key) if steps else ""
    if name not in arguments_by_name or root.name in arguments_by_name:
        return preparation
    optional_path = preparation.optional_path
    if optional_path is not None:
        optional_path = Path(root._replace(name=name), optional_path.steps[1:])
    return replace(preparation, path=Path(root._replace(name=name), steps[1:]), optional_path=optional_path)


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


def _insertion(source: ParsedSource, statement: ast.stmt, lines: Sequence[str]) -> Splice | None:
    """Return the splice that inserts lines before a statement, even behind a colon or semicolon, if possible."""
    code = "\n".join(lines).split("\n")
    if (insertion := source.insertion_before(statement, code)) is not None:
        return insertion
    line_start, start = source.line_start(statement.lineno), source.start_of(statement)
    code_before = source.text[line_start:start].rstrip()
    indent = code_before[: len(code_before) - len(code_before.lstrip())]
    if code_before.endswith(":"):
        indent += "    "
        text_after = source.text[source.end_of(statement) : source.line_end(statement.lineno)]
        if statement.end_lineno != statement.lineno or text_after.strip().startswith(";"):
            return None
    else:
        code_before = code_before.rstrip(";").rstrip()
        if ":" in code_before:  # the body of a statement on the same line
            return None
    inserted_text = "".join(f"\n{indent}{line}" for line in code)
    return Splice(line_start + len(code_before), start, f"{inserted_text}\n{indent}")


def add_dynamic_argument(
    texts: Mapping[str, str], definition: CompiledDefinition, owner: str | None
) -> dict[str, str] | None:
    """Return the changed texts of the sources that compile a function, with ``dynamic=True``; ``None`` if none do."""
    sources = {ident: source for ident, text in texts.items() if (source := parse_source(text)) is not None}
    trees = {ident: source.tree for ident, source in sources.items()}
    splices: dict[str, list[Splice]] = {}
    for ident, node in find_compile_calls(trees, definition, owner):
        splices.setdefault(ident, []).append(_splice_for_dynamic_argument(sources[ident], node))
    return {ident: sources[ident].apply_splices(changes) or texts[ident] for ident, changes in splices.items()} or None


def _splice_for_dynamic_argument(source: ParsedSource, node: ast.expr) -> Splice:
    end_of_call = source.end_of(node)
    if not isinstance(node, ast.Call):
        return Splice(end_of_call, end_of_call, "(dynamic=True)")
    dynamic_keyword = next((keyword for keyword in node.keywords if keyword.arg == "dynamic"), None)
    if dynamic_keyword is not None:
        return source.replacement(dynamic_keyword.value, "True")
    arguments = arguments_of(node)
    if not arguments:
        return Splice(end_of_call - 1, end_of_call - 1, "dynamic=True")
    end = max(map(source.end_of, arguments))
    parenthesis = source.text.index(")", end)
    if not source.text[end:parenthesis].strip() and parenthesis + 1 < end_of_call:
        end = parenthesis + 1  # an argument in parentheses
    return Splice(end, end, ", dynamic=True")


class ReadingLine(NamedTuple):
    """A line that reads a number, and the path of the number."""

    line: int
    path: Path


def find_reading_line(paths: Collection[Path], tree: ast.Module, own_line: int | None) -> ReadingLine | None:
    """Return the first line outside a function that reads one of several numbers, except arguments."""
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
