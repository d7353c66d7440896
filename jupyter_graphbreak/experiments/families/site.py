"""Find the source and the syntax node of a break, and the names that code reads and binds."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.parsed_source import FunctionNode, ParsedSource, Splice
from jupyter_graphbreak.experiments.families.proposal import Condition, Proposal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from jupyter_graphbreak.experiments.families.proposal import Problem
    from jupyter_graphbreak.report.location import Location


@dataclass(frozen=True)
class Site:
    """The code that broke a graph, in its parsed source.

    ``node`` is the expression or statement at which the graph broke, and ``statement`` the innermost statement around
    it. ``texts`` contains all sources except libraries, by their ids.
    """

    source_id: str
    source: ParsedSource
    node: ast.expr | ast.stmt
    statement: ast.stmt
    texts: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)

    @property
    def function(self) -> FunctionNode | None:
        """The function that contains the break; ``None`` at the top level."""
        return self.source.enclosing_function(self.node)

    def condition(self, test: ast.expr, required_results: tuple[bool, ...] = (True, False)) -> Condition:
        """Return a test of the source as a condition, with the results that it must have in trials."""
        return Condition.of(self.source_id, test, required_results)

    def propose_edit(
        self,
        family: str,
        title: str,
        splices: Iterable[Splice | None],
        tests: Iterable[ast.expr] = (),
        assumptions: Iterable[str] = (),
    ) -> Iterator[Proposal]:
        """Yield a proposal that applies splices and imports torch if necessary, unless that is impossible.

        Trials must reach both branches of each of the tests.
        """
        splices = list(splices)
        uses_torch = any(splice is not None and f"{self.torch_name}." in splice.new_text for splice in splices)
        text = self.source.apply_splices([*splices, *(self._torch_imports() if uses_torch else ())])
        if text is not None:
            conditions = tuple(map(self.condition, tests))
            yield Proposal(family, title, {self.source_id: text}, conditions=conditions, assumptions=tuple(assumptions))

    @cached_property
    def torch_name(self) -> str:
        """The name of the torch package in the source, for new code in :meth:`propose_edit`."""
        return name_of_torch(self.source) or "torch"

    def _torch_imports(self) -> list[Splice | None]:
        """Return the splices that import torch if the source does not."""
        reads_torch = any(isinstance(node, ast.Name) and node.id == "torch" for node in ast.walk(self.source.tree))
        if reads_torch or name_of_torch(self.source) is not None:  # without an import here, another cell imports it
            return []
        return [self.source.insertion_at_start(self.function, ["import torch"]) if self.function is not None else None]


def name_of_torch(source: ParsedSource) -> str | None:
    """Return the name under which a source imports torch; ``None`` if it does not."""
    return next((name for _, name in _imports_of_torch(source)), None)


def torch_name_and_imports(source: ParsedSource, function: ast.stmt) -> tuple[str, list[str]]:
    """Return the name of torch at the top level before a function, and the lines that import it if necessary."""
    outermost = next(node for node in source.tree.body if function in ast.walk(node))
    imports = list(_imports_of_torch(source))
    for node, name in imports:
        if source.enclosing_function(node) is None and node.lineno < outermost.lineno:
            return name, []
    uses_torch = any(isinstance(node, ast.Name) and node.id == "torch" for node in ast.walk(source.tree))
    if uses_torch and not imports:  # another cell imports it
        return "torch", []
    return "torch", ["import torch"]


def _imports_of_torch(source: ParsedSource) -> Iterator[tuple[ast.Import, str]]:
    """Yield the statements that import torch, each with the name that it gives to torch."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "torch" or (alias.name.startswith("torch.") and alias.asname is None):
                    yield node, alias.asname or "torch"


@lru_cache(maxsize=32)
def parse_source(text: str, taken_names: frozenset[str] = frozenset()) -> ParsedSource | None:
    """Parse source text as :meth:`ParsedSource.parse` does; return a cached result if it was parsed recently."""
    return ParsedSource.parse(text, taken_names)


def site_at(problem: Problem, location: Location | None) -> Site | None:
    """Return the site of a location; ``None`` if the text of the source is not available or not Python."""
    text = problem.texts.get(location.source) if location is not None else None
    source = parse_source(text, problem.taken_names) if text is not None else None
    if location is None or source is None:
        return None
    node = source.find_node(location.line, location.column, location.end_line, location.end_column)
    statement = source.enclosing_node(node, ast.stmt) if node is not None else None
    if node is None or statement is None:
        return None
    library_ids = {source.id for source in problem.report.sources if source.kind == "library"}
    user_texts = {ident: text for ident, text in problem.texts.items() if ident not in library_ids}
    return Site(location.source, source, node, statement, user_texts)


def site_of(problem: Problem) -> Site | None:
    """Return the site of the break or, if PyTorch or the standard library breaks, of the call that led there."""
    location = problem.break_.location
    for outer in reversed(problem.break_.stack):
        if not _is_standard_or_torch(problem, location):
            break
        location = outer
    return site_at(problem, location) if not _is_standard_or_torch(problem, location) else None


def _is_standard_or_torch(problem: Problem, location: Location | None) -> bool:
    """Return whether a location is in the standard library or torch, which users do not edit."""
    source = next(
        (source for source in problem.report.sources if location is not None and source.id == location.source), None
    )
    if source is None or source.kind != "library" or source.path is None:
        return False
    package = source.path.partition("/")[0].removesuffix(".py")
    return package == "torch" or package in sys.stdlib_module_names


def dotted_name(node: ast.AST) -> str:
    """Return the dotted name of an expression, such as "torch.nn.Linear", with "()" for each part without a name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted_name(node.value)}.{node.attr}"
    return "()"


def called_name(node: ast.AST) -> str:
    """Return the name of the called function or method, without its owner; empty if the node is not a call."""
    return dotted_name(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def names_read(node: ast.AST) -> set[str]:
    """Return the names that a piece of code reads."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}


def names_bound(node: ast.AST) -> set[str]:
    """Return the names that a piece of code assigns to, without those of imports and definitions."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def global_and_nonlocal_names(node: ast.AST) -> set[str]:
    """Return the names that a piece of code declares as ``global`` or ``nonlocal``."""
    declarations = (part for part in ast.walk(node) if isinstance(part, ast.Global | ast.Nonlocal))
    return {name for declaration in declarations for name in declaration.names}


def names_imported(node: ast.AST) -> set[str]:
    """Return the names that a piece of code binds by ``import``, without those of ``from ... import``."""
    imports = (part for part in ast.walk(node) if isinstance(part, ast.Import))
    return {name_bound_by(alias) for statement in imports for alias in statement.names}


def name_bound_by(alias: ast.alias) -> str:
    """Return the name that a part of an ``import`` statement binds."""
    return (alias.asname or alias.name).partition(".")[0]


def parameters_of(function: FunctionNode) -> set[str]:
    """Return the names of a function's parameters."""
    return {part.arg for part in ast.walk(function.args) if isinstance(part, ast.arg)}


def arguments_of(call: ast.Call) -> list[ast.expr]:
    """Return the positional and keyword arguments of a call."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def is_torch_compile(node: ast.expr, torch_name: str) -> bool:
    """Return whether an expression is ``torch.compile`` or a call to it, given the name of the torch package."""
    return dotted_name(node.func if isinstance(node, ast.Call) else node) == f"{torch_name}.compile"


def compile_options(source: ParsedSource, node: ast.expr) -> str:
    """Return the options of a call to ``torch.compile``, such as ``(dynamic=True)``; empty if there are none."""
    keywords = node.keywords if isinstance(node, ast.Call) else []
    options = ", ".join(f"{keyword.arg}={source.text_of(keyword.value)}" for keyword in keywords)
    return f"({options})" if options else ""


def has_constant_options(node: ast.expr) -> bool:
    """Return whether the options of a call to ``torch.compile`` are constants and so mean the same in any source."""
    keywords = node.keywords if isinstance(node, ast.Call) else []
    return all(keyword.arg is not None and isinstance(keyword.value, ast.Constant) for keyword in keywords)


def indentation_step(source: ParsedSource, block: ast.If | ast.For | ast.While | FunctionNode) -> str:
    """Return the indentation of the body of a block; four spaces if the block shows none."""
    outer_indent, inner_indent = source.indent_of(block) or "", source.indent_of(block.body[0]) or ""
    return (
        inner_indent[len(outer_indent) :]
        if inner_indent.startswith(outer_indent) and len(inner_indent) > len(outer_indent)
        else "    "
    )


def is_bound_before(source: ParsedSource, statement: ast.stmt, target: str) -> bool:
    """Return whether a target is bound before a statement. A target that is not a plain name counts as bound."""
    if not target.isidentifier():
        return True
    scope = source.enclosing_function(statement) or source.tree
    if isinstance(scope, FunctionNode) and target in parameters_of(scope):
        return True
    return target in global_and_nonlocal_names(scope) or any(
        isinstance(node, ast.Name) and node.id == target and isinstance(node.ctx, ast.Store)
        and node.lineno < statement.lineno
        for node in ast.walk(scope)
    )  # fmt: skip


def names_read_after(source: ParsedSource, statement: ast.stmt) -> set[str]:
    """Return the names read after a statement, including those read in the next iteration of a loop around it."""
    scope: ast.AST = source.enclosing_function(statement) or source.tree
    last_line = statement.end_lineno or statement.lineno
    loops = [part for part in source.ancestors(statement) if isinstance(part, ast.For | ast.While)]
    first_line = min((part.lineno for part in loops), default=last_line + 1)
    nodes_of_statement = set(ast.walk(statement))
    return {
        node.id
        for node in ast.walk(scope)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and (node.lineno > last_line or (node.lineno >= first_line and node not in nodes_of_statement))
    }
