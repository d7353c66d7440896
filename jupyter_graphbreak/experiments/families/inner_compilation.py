"""Compile functions and modules inside an entry instead of the entry itself."""

from __future__ import annotations

import ast
import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from jupyter_graphbreak.experiments.families.parsed_source import FunctionNode, Splice, first_line, fresh_name
from jupyter_graphbreak.experiments.families.proposal import Proposal
from jupyter_graphbreak.experiments.families.site import (
    called_name,
    compile_options,
    dotted_name,
    has_constant_options,
    is_torch_compile,
    name_of_torch,
    names_read,
    parse_source,
)
from jupyter_graphbreak.report.remedies import INNER_FAMILY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from jupyter_graphbreak.experiments.families.parsed_source import ParsedSource
    from jupyter_graphbreak.experiments.families.proposal import InnerCall

#: A path that can be written as an expression: names, attributes and indices.
_PATH_PATTERN = re.compile(r"[A-Za-z_]\w*(?:\.\w+|\[(?:\d+|'\w+')\])*")
#: The maximum number of modules in a change that lists each of them.
_MAX_LISTED_MODULES = 24
#: The title says that the parts run all layers if they perform a smaller share of the operations than this.
_SMALL_SHARE = 0.5
#: Code that creates shallow copies of modules. Such a copy keeps the compiled method of the original.
_SHALLOW_COPIES = re.compile(r"\bcopy\.copy\(|\b(?:nn\.|parallel\.)?DataParallel\(")
#: Code that may compile something, in any form.
_COMPILE_CALL = re.compile(r"(?<![%\w.])compile\s*[(,]|\.compile\b|@compile\b")


@dataclass(frozen=True)
class CompiledEntry:
    """A compiled function, method or module, as the sources refer to it.

    ``owner`` is the class of a method. ``receiver`` is the name of a method's first parameter, which ``parameters``
    leaves out. The paths of a module's parts start with the receiver's name.
    """

    name: str
    owner: str = ""
    is_module: bool = False
    parameters: tuple[str, ...] = ()
    receiver: str = "self"


def propose_inner_compilation(
    texts: Mapping[str, str],
    files: Mapping[str, str],
    entry: CompiledEntry,
    calls: Sequence[InnerCall],
    operation_share: float,
    taken_names: frozenset[str] = frozenset(),
    *,
    has_all_layers: bool = False,
) -> Proposal | None:
    """Return the proposal that compiles inner calls instead of an entry; ``None`` if it cannot be written.

    ``texts`` contains all sources except libraries, and ``files`` their file names. The inner calls perform
    ``operation_share`` of the entry's forward operations; ``has_all_layers`` tells whether they run all of its layers
    with parameters. The proposal must not assign the taken names at the top level.
    """
    sources = {
        source_id: source
        for source_id, text in texts.items()
        if (source := parse_source(text, taken_names)) is not None
    }
    writer = _InnerCompilationWriter(sources, entry)
    names = [writer.add(call, files) for call in calls]
    if not writer.is_possible or not names:
        return None
    new_texts = writer.texts()
    if new_texts is None:
        return None
    targets_text = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    title = f"Compile {targets_text} instead of {entry.owner + '.' if entry.owner else ''}{entry.name}"
    is_plural = len(calls) > 1 or (len(calls[0].module_paths) > 1 and not calls[0].covers_list)
    subject, runs, performs = ("they", "run", "do") if is_plural else ("it", "runs", "does")
    layers_text = f"{runs} all layers and " if has_all_layers and operation_share < _SMALL_SHARE else ""
    share_text = f"{subject} {layers_text}{performs} {round(100 * operation_share)}% of the forward operations"
    is_copied = any(_SHALLOW_COPIES.search(source.text) for source in sources.values())
    copied_method = next((call.method for call in calls if call.method), "") if is_copied else ""
    assumptions = (
        (f"a shallow copy that is made later calls `{copied_method}` of the original",) if copied_method else ()
    )
    return Proposal(
        INNER_FAMILY,
        f"{title} ({share_text})",
        new_texts,
        compiles_inner_function=True,
        assumptions=assumptions,
        inner_calls=tuple(calls),
    )


class _CompileSite(NamedTuple):
    """A decorator that compiles the entry, or a call to ``torch.compile`` or ``.compile()``, with its target."""

    source_id: str
    node: ast.expr
    target: ast.expr | None


class _InnerCompilationWriter:
    """Collects the splices that remove ``torch.compile`` from an entry and compile its parts."""

    def __init__(self, sources: Mapping[str, ParsedSource], entry: CompiledEntry) -> None:
        self._sources = sources
        self._entry = entry
        self._splices: dict[str, list[Splice | None]] = {}
        self._deleted_statements: list[ast.stmt] = []
        self._compile_sites = list(_compile_sites(sources, entry))
        options = {compile_options(sources[site.source_id], site.node) for site in self._compile_sites}
        self._options = next(iter(options), "")
        order = [*(site.source_id for site in self._compile_sites), *sources]
        self._torch_name = next(filter(None, (name_of_torch(sources[source_id]) for source_id in order)), "torch")
        may_compile_elsewhere = not self._compile_sites and any(
            _COMPILE_CALL.search(source.text) for source in sources.values()
        )
        self.is_possible = (
            len(options) <= 1
            and not may_compile_elsewhere
            and all(has_constant_options(site.node) for site in self._compile_sites)
        )
        for site in self._compile_sites:
            self._remove_compilation(site)

    def texts(self) -> dict[str, str] | None:
        """Return the new source texts, by source id; ``None`` if one cannot be written."""
        new_texts: dict[str, str] = {}
        for source_id, splices in self._splices.items():
            text = self._sources[source_id].apply_splices(splices)
            if text is None:
                return None
            new_texts[source_id] = text
        return new_texts

    def _remove_compilation(self, site: _CompileSite) -> None:
        source = self._sources[site.source_id]
        if site.target is None:
            self._add_splice(
                site.source_id, source.line_deletion(site.node.lineno, site.node.end_lineno or site.node.lineno)
            )
            return
        statement = source.enclosing_node(site.node, ast.stmt)
        is_call_of_method = isinstance(statement, ast.Expr) and statement.value is site.node
        is_same_name = isinstance(statement, ast.Assign) and [dotted_name(part) for part in statement.targets] == [
            dotted_name(site.target)
        ]
        if statement is not None and (is_call_of_method or is_same_name):
            self._deleted_statements.append(statement)
            self._add_splice(site.source_id, source.deletion(statement))
        else:
            self._add_splice(site.source_id, source.replacement(site.node, source.text_of(site.target)))

    def add(self, call: InnerCall, files: Mapping[str, str]) -> str:
        """Add the code that compiles an inner call, and return the call's name for the title."""
        if not call.module_paths:
            self._decorate(call, files)
            return call.name
        path_expressions = [
            self._expression_for(path, starts_at_owner=call.starts_at_owner) for path in call.module_paths
        ]
        method = f".{call.method}" if call.method not in {"", "forward"} else ""
        expressions = [expression for expression in path_expressions if expression is not None]
        if len(expressions) < len(path_expressions):
            self.is_possible = False
            return call.name
        if len(expressions) > 1:
            return self._add_loop(call, method, expressions)
        self._insert(expressions[0], [self._compile_statement(expressions[0], call)])
        return expressions[0] + method

    def _add_loop(self, call: InnerCall, method: str, expressions: Sequence[str]) -> str:
        """Add a loop that compiles several modules or one method of each; return the text for the title."""
        possible_names = itertools.chain(("block", "layer"), (f"block_{number}" for number in itertools.count(2)))
        block = next(
            possible_name
            for possible_name in possible_names
            if all(fresh_name(source, possible_name) == possible_name for source in self._sources.values())
        )
        # The part of each item of the list: "net.steps[0].hyper" has the list "net.steps" and the part ".hyper".
        parts = {(head, tail.partition("]")[2]) for head, _, tail in (item.rpartition("[") for item in expressions)}
        list_expression, part = min(parts)
        if call.covers_list:
            name = f"each {call.name}{method} of {list_expression}"
            lines = [f"for {block} in {list_expression}:", f"    {self._compile_statement(block + part, call)}"]
        else:
            # Other items of the list may lack the part, or may break.
            list_text = f" of {list_expression}" if len(parts) == 1 and list_expression else ""
            name = f"{method[1:]} of " if method else ""
            name += f"{len(expressions)} {call.name} modules{list_text}"
            lines = [
                f"for {block} in (",
                *(f"    {expression}," for expression in expressions),
                "):",
                f"    {self._compile_statement(block, call)}",
            ]
            roots = {expression.partition(".")[0].partition("[")[0] for expression in expressions}
            if len(expressions) > _MAX_LISTED_MODULES or len(roots) > 1:
                self.is_possible = False
                return name
        self._insert(expressions[0], lines)
        return name

    def _compile_statement(self, expression: str, call: InnerCall) -> str:
        """Return the statement that compiles a module, or a method of the module, in place.

        The method is compiled as a function of its class and bound again: ``copy.deepcopy`` and :mod:`pickle` bind it
        to the copy, while a compiled bound method would stay bound to the original.
        """
        if not call.method:
            return f"{expression}.compile{self._options or '()'}"
        option_arguments = f", {self._options[1:-1]}" if self._options else ""
        compile_call = f"{self._torch_name}.compile(type({expression}).{call.method}{option_arguments})"
        return f"{expression}.{call.method} = {compile_call}.__get__({expression})"

    def _decorate(self, call: InnerCall, files: Mapping[str, str]) -> None:
        for source_id, source in self._sources.items():
            for node in source.tree.body:
                if isinstance(node, FunctionNode) and node.name == call.name and files.get(source_id) == call.filename:
                    torch_name = name_of_torch(source) or "torch"
                    start = source.line_start(first_line(node))
                    self._add_splice(source_id, Splice(start, start, f"@{torch_name}.compile{self._options}\n"))
                    return
        self.is_possible = False

    def _expression_for(self, path: str, *, starts_at_owner: bool) -> str | None:
        """Return the expression that top-level code uses for a path; ``None`` if it is not known."""
        root = path.partition(".")[0].partition("[")[0]
        if (self._entry.is_module or self._entry.owner) and (starts_at_owner or root == self._entry.receiver):
            owner = self._owner_expression()
            path_in_owner = f"{path}.".removeprefix(f"{self._entry.receiver}.").removesuffix(".")
            return _join_path(owner, path_in_owner) if owner is not None else None
        if root in self._entry.parameters:
            argument = self._argument_for(root)
            return _join_path(argument, path[len(root) :]) if argument is not None else None
        return _join_path(path, "")

    def _owner_expression(self) -> str | None:
        """Return the expression for the module that is compiled, or whose method is; ``None`` if it is not known.

        It is not known if several modules are compiled: the parts of all of them would have to be compiled instead.
        """
        owners = [self._owner_at(site) for site in self._compile_sites]
        new_modules = [site for site in self._compile_sites if isinstance(site.target, ast.Call)]
        if any(owners):
            return owners[0] if len(set(owners)) == 1 and len(new_modules) <= 1 else None
        class_name = self._entry.owner or self._entry.name
        names = [name for source in self._sources.values() for name in _names_at_top_level(source, class_name)]
        creations = [
            node
            for source in self._sources.values()
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Call) and called_name(node) == class_name
        ]
        return names[0] if len(names) == len(creations) == 1 else None

    def _owner_at(self, site: _CompileSite) -> str | None:
        """Return the expression for the module that a decorator or call compiles; ``None`` if it is not known."""
        target = site.target
        if self._entry.owner and isinstance(target, ast.Attribute):
            target = target.value
        if target is not None and _PATH_PATTERN.fullmatch(dotted_name(target)):
            return dotted_name(target)
        statement = self._sources[site.source_id].enclosing_node(site.node, ast.stmt)
        is_assigned = isinstance(statement, ast.Assign) and statement.value is site.node
        return _assigned_name(self._sources[site.source_id], site.node) or None if is_assigned else None

    def _argument_for(self, parameter: str) -> str | None:
        """Return the expression that the top level passes for a parameter of the entry; ``None`` if it is not known."""
        index = self._entry.parameters.index(parameter)
        nodes = [(self._sources[site.source_id], site.node) for site in self._compile_sites]
        names = {self._entry.name, *(_assigned_name(source, node) for source, node in nodes)}
        compiled_nodes = [site.node for site in self._compile_sites]
        for source in self._sources.values():
            for node in ast.walk(source.tree):
                if not isinstance(node, ast.Call) or source.enclosing_function(node):
                    continue
                if node.func not in compiled_nodes and dotted_name(node.func) not in names:
                    continue
                passed_value = next((keyword.value for keyword in node.keywords if keyword.arg == parameter), None)
                if passed_value is None and index < len(node.args):
                    passed_value = node.args[index]
                if passed_value is not None and _PATH_PATTERN.fullmatch(dotted_name(passed_value)):
                    return dotted_name(passed_value)
        return None

    def _insert(self, expression: str, lines: list[str]) -> None:
        """Insert lines before the statement that compiled the entry, or before the first use of an expression's name.

        If the name is bound later in that source, or there is no such statement at the top level, the lines follow the
        last binding: a method is decorated before its class has objects.
        """
        root = expression.partition(".")[0].partition("[")[0]
        sites = [
            (site.source_id, self._sources[site.source_id].enclosing_node(site.node, ast.stmt))
            for site in self._compile_sites
        ]
        statements = [(source_id, statement) for source_id, statement in sites if statement is not None]
        at_top_level = [place for place in statements if _is_at_top_level(self._sources[place[0]], place[1])]
        bindings = [
            (source_id, node)
            for source_id, source in self._sources.items()
            for node in ast.walk(source.tree)
            if isinstance(node, ast.stmt) and node not in self._deleted_statements and _binds(node, root)
            if _is_at_top_level(source, node)
        ]
        target = next(iter(at_top_level), None) or (None if statements and bindings else self._first_use(root))
        order = list(self._sources)
        last_binding = max(bindings, key=lambda binding: (order.index(binding[0]), binding[1].lineno), default=None)
        if target is not None and (
            last_binding is None or last_binding[0] != target[0] or last_binding[1].lineno < target[1].lineno
        ):
            source_id, statement = target
            insertion = self._sources[source_id].insertion_before(statement, lines)
        elif last_binding is not None:
            source_id, statement = last_binding
            source = self._sources[source_id]
            end, indent = source.line_end(statement.end_lineno or statement.lineno), source.indent_of(statement)
            text = "".join(f"\n{indent}{line}" for line in lines)
            insertion = Splice(end, end, text) if indent is not None else None
        else:
            self.is_possible = False
            return
        self._add_splice(source_id, insertion)

    def _first_use(self, name: str) -> tuple[str, ast.stmt] | None:
        """Return the first statement at the top level that uses a name, with its source; ``None`` if there is none."""
        for source_id, source in self._sources.items():
            for statement in source.tree.body:
                if not isinstance(statement, FunctionNode | ast.ClassDef) and name in names_read(statement):
                    return source_id, statement
        return None

    def _add_splice(self, source_id: str, splice: Splice | None) -> None:
        self._splices.setdefault(source_id, []).append(splice)


def _compile_sites(sources: Mapping[str, ParsedSource], entry: CompiledEntry) -> Iterator[_CompileSite]:
    """Yield the decorators and calls that compile an entry."""
    functions = {
        node.name for source in sources.values() for node in ast.walk(source.tree) if isinstance(node, FunctionNode)
    }
    created_names = {
        name for source in sources.values() for name in _names_of_objects(source, entry.owner or entry.name)
    }
    for source_id, source in sources.items():
        torch_name = name_of_torch(source) or "torch"
        for node in ast.walk(source.tree):
            if isinstance(node, FunctionNode) and not entry.is_module and node.name == entry.name:
                owner = next(source.ancestors(node), None)
                if (owner.name if isinstance(owner, ast.ClassDef) else "") == entry.owner:
                    yield from (
                        _CompileSite(source_id, part, None)
                        for part in node.decorator_list
                        if is_torch_compile(part, torch_name)
                    )
            if (
                not isinstance(node, ast.Call)
                or not isinstance(node.func, ast.Attribute)
                or node.func.attr != "compile"
            ):
                continue
            if dotted_name(node.func.value) != torch_name:
                if entry.is_module and dotted_name(node.func.value) in created_names:
                    yield _CompileSite(source_id, node, node.func.value)
            elif node.args and _is_entry(node.args[0], entry, functions, created_names):
                yield _CompileSite(source_id, node, node.args[0])


def _is_entry(target: ast.expr, entry: CompiledEntry, functions: set[str], created_names: set[str]) -> bool:
    """Return whether the target of ``torch.compile`` is an entry, which may be a module from a library."""
    if entry.owner:
        return isinstance(target, ast.Attribute) and target.attr == entry.name
    if not entry.is_module:
        return dotted_name(target) == entry.name
    if isinstance(target, ast.Call):
        return _creates_object(target, entry.name) or (not created_names and called_name(target) in functions)
    name = dotted_name(target)
    return name in created_names if created_names else name.rpartition(".")[2] not in functions


def _names_of_objects(source: ParsedSource, class_name: str) -> Iterator[str]:
    """Yield the names to which a source assigns objects of a class."""
    return _paths_assigned(source, lambda node: any(called_name(part) == class_name for part in ast.walk(node.value)))


def _names_at_top_level(source: ParsedSource, class_name: str) -> Iterator[str]:
    """Yield the names to which statements outside functions and loops assign one object of a class each."""
    return _paths_assigned(
        source,
        lambda node: (
            _creates_object(node.value, class_name)
            and not any(isinstance(part, FunctionNode | ast.For | ast.While) for part in source.ancestors(node))
        ),
    )


def _paths_assigned(source: ParsedSource, is_object: Callable[[ast.Assign], bool]) -> Iterator[str]:
    assignments = (node for node in ast.walk(source.tree) if isinstance(node, ast.Assign) and is_object(node))
    names = (dotted_name(target) for node in assignments for target in node.targets)
    return filter(_PATH_PATTERN.fullmatch, names)


def _creates_object(value: ast.expr, class_name: str) -> bool:
    """Return whether an expression creates and returns an object of a class, as ``Net().to(device)`` does."""
    match value:
        case ast.Call() if called_name(value) == class_name:
            return True
        case ast.Call(func=ast.Attribute(attr="compile"), args=[module, *_]):
            return _creates_object(module, class_name)
        case ast.Call(func=ast.Attribute(value=owner)):
            return _creates_object(owner, class_name)
    return False


def _join_path(expression: str, path: str) -> str | None:
    """Return the expression for a path in an object, with module numbers as indices; ``None`` if there is none."""
    steps = re.sub(r"\.(\d+)", r"[\1]", f".{path.lstrip('.')}" if path and path[0] not in ".[" else path)
    joined_expression = re.sub(r"\.(\d+)", r"[\1]", expression) + steps
    return joined_expression if _PATH_PATTERN.fullmatch(joined_expression) else None


def _is_at_top_level(source: ParsedSource, node: ast.AST) -> bool:
    """Return whether a statement is outside functions and classes."""
    return not any(isinstance(outer, FunctionNode | ast.ClassDef) for outer in source.ancestors(node))


def _binds(node: ast.AST, name: str) -> bool:
    """Return whether a statement assigns to a name."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return any(isinstance(part, ast.Name) and part.id == name for target in targets for part in ast.walk(target))


def _assigned_name(source: ParsedSource, node: ast.expr) -> str:
    """Return the name to which the result of an expression is assigned; empty if there is none."""
    statement = source.enclosing_node(node, ast.stmt)
    has_name = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    return statement.targets[0].id if has_name else ""  # type: ignore[union-attr]
