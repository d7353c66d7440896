"""Find the branches that may change the values that moved code reads, if the code moves across them."""

from __future__ import annotations

import ast
import builtins
import functools
import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

from jupyter_graphbreak._torch_compat.operations import TENSOR_METHODS
from jupyter_graphbreak.analysis.python_text import parse_expression
from jupyter_graphbreak.experiments.families.branch_values import SIDE_EFFECT_FUNCTIONS
from jupyter_graphbreak.experiments.families.parsed_source import FunctionNode
from jupyter_graphbreak.experiments.families.site import (
    Site,
    arguments_of,
    called_name,
    dotted_name,
    name_bound_by,
    names_bound,
    names_imported,
    names_read,
    parameters_of,
    parse_source,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from jupyter_graphbreak.experiments.families.proposal import Condition

    _Branch = Sequence[ast.stmt] | ast.expr

#: Functions known to have side effects, and further methods that change a list, a dict or a set.
_IMPURE_METHODS = SIDE_EFFECT_FUNCTIONS | {
    "clear", "discard", "popitem", "remove", "reverse", "setdefault", "sort", "difference_update",
    "intersection_update", "symmetric_difference_update",
}  # fmt: skip
_AUGMENTED_ASSIGNMENT_METHODS: dict[type[ast.operator], str] = {
    ast.Add: "__iadd__", ast.Sub: "__isub__", ast.Mult: "__imul__", ast.Div: "__itruediv__", ast.MatMult: "__imatmul__",
    ast.FloorDiv: "__ifloordiv__", ast.Mod: "__imod__", ast.Pow: "__ipow__", ast.BitAnd: "__iand__",
    ast.BitOr: "__ior__", ast.BitXor: "__ixor__", ast.LShift: "__ilshift__", ast.RShift: "__irshift__",
}  # fmt: skip
#: The methods that Python calls to convert an object to a string.
_STRING_METHODS = {"__format__", "__repr__", "__str__"}
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
#: Attributes of tensors that no method changes unless its name says so.
_TENSOR_ATTRIBUTES = {"T", "device", "dtype", "mT", "ndim", "requires_grad", "shape"}
#: Builtin functions that change an object, or run code that the source does not show.
_IMPURE_BUILTINS = {
    "__import__", "anext", "breakpoint", "delattr", "eval", "exec", "input", "iter", "map", "next", "open", "print",
    "setattr",
}  # fmt: skip
#: Packages whose functions change no argument unless their names or arguments say so.
_PURE_PACKAGES = {"einops", "math", "numpy", "torch"}
#: The usual names of packages without side effects, which an earlier cell may have imported.
_USUAL_PACKAGE_NAMES = {"F", "math", "np", "torch"}
#: Parts of names that show that a function in ``_PURE_PACKAGES`` changes an argument or global state.
_IMPURE_NAME_PARTS = ("seed", "rand", "set_", "shuffle", "permutation", "choice", "copyto", "put", "fill")
#: Methods of containers and strings that change nothing.
_PURE_METHODS = {
    "copy", "count", "endswith", "format", "get", "index", "items", "join", "keys", "lower", "replace", "split",
    "startswith", "strip", "upper", "values",
}  # fmt: skip
#: Syntax that may call special methods of objects.
_OPERATION_NODES = (
    ast.BinOp, ast.BoolOp, ast.Compare, ast.For, ast.FormattedValue, ast.If, ast.IfExp, ast.Subscript, ast.UnaryOp,
    ast.While, ast.With, ast.comprehension,
)  # fmt: skip
#: Special methods that run only when an object is created.
_CONSTRUCTOR_METHODS = {"__init__", "__new__", "__post_init__"}
#: A name that stands for all other special methods in a set of function names.
_ALL_OPERATORS = "operators"


def conditions_before(site: Site, function: FunctionNode, moved_code: Sequence[ast.AST]) -> tuple[Condition, ...]:
    """Return the conditions whose branches may change values that the moved code reads, if it moves to the start."""
    start = min(map(_position, moved_code))
    hidden_effects = _hidden_effects(site)
    return _crossed_conditions(site, function, moved_code, lambda node: _position(node) < start, hidden_effects)


def conditions_on_result(site: Site, function: FunctionNode, call: ast.Call) -> tuple[Condition, ...]:
    """Return the tests that depend on the result of a call that moves to the start, past code with effects.

    The result may then differ, although a trial in which each test has one result does not show it.
    """
    effects = _hidden_effects(site)
    crossed_nodes = (part for node in function.body for part in ast.walk(node) if _position(part) < _position(call))
    if not any(effects.may_occur(node) or _is_shared_store(node) for node in crossed_nodes):
        return ()
    nodes = [part for statement in function.body for part in ast.walk(statement)]
    tests = [node.test for node in nodes if isinstance(node, ast.If | ast.While | ast.IfExp)]
    conditions = [site.condition(test) for test in tests if call in ast.walk(test)]
    names = names_bound(site.statement) if isinstance(site.statement, ast.Assign | ast.AnnAssign) else set()
    return tuple(dict.fromkeys([*conditions, *_conditions_of_reads(site, nodes, names)]))


def _is_shared_store(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load)


def conditions_after(
    site: Site,
    function: FunctionNode,
    moved_code: Sequence[ast.stmt],
    values: Sequence[str],
    is_output: Callable[[ast.stmt], bool],
) -> tuple[Condition, ...]:
    """Return the conditions whose branches may change values that the moved code reads, if it moves to the end.

    The moved code uses ``values``, which are still computed on the original line. If this code may change something,
    the result includes the conditions of all branches that may read the changes. ``is_output`` returns whether a
    statement calls a function whose only effect is to output its arguments as text.
    """
    start = min(map(_position, moved_code))
    effects = _hidden_effects(site)
    hidden_effects = effects if reads_shared_state(site, function, moved_code, values) else None
    conditions = _crossed_conditions(site, function, moved_code, lambda node: _position(node) > start, hidden_effects)
    if _has_effects(site, moved_code, effects, is_output):
        conditions = (*conditions, *_conditions_of_later_reads(site, function, moved_code, start))
        conditions = (*conditions, *_conditions_of_moved_effects(site, function, moved_code, start, effects))
        conditions = (*conditions, *_conditions_of_changed_objects(site, function, moved_code, start, effects))
    return tuple(dict.fromkeys(conditions))


def _hidden_effects(site: Site) -> HiddenEffects:
    sources = map(parse_source, dict.fromkeys([site.source.text, *site.texts.values()]))
    return HiddenEffects(source.tree for source in sources if source is not None)


def reads_shared_state(
    site: Site, function: FunctionNode, moved_code: Sequence[ast.stmt], values: Sequence[str]
) -> bool:
    """Return whether moved code reads an object that other code may change in the meantime, under any name."""
    # The object that a name, an attribute or an item refers to may also have other names.
    if any(isinstance(parse_expression(value), ast.Name | ast.Attribute | ast.Subscript) for value in values):
        return True
    local_names = names_bound(function) | parameters_of(function)
    imported_names = names_imported(site.source.tree)
    calls = [node.func for part in moved_code for node in ast.walk(part) if isinstance(node, ast.Call)]
    owners = {part for call in calls if isinstance(call, ast.Attribute) for part in ast.walk(call)}
    return any(
        isinstance(node, ast.Name) and node not in owners and node.id not in local_names | imported_names
        and not hasattr(builtins, node.id)
        for part in moved_code
        for node in ast.walk(part)
    )  # fmt: skip


def _has_effects(
    site: Site, moved_code: Sequence[ast.stmt], hidden_effects: HiddenEffects, is_output: Callable[[ast.stmt], bool]
) -> bool:
    """Return whether code may change something by a call, a property, an operator, or a conversion to a string."""
    string_methods = (callee for name in sorted(_STRING_METHODS) for _, callee in _definitions(site, name))
    if any(_may_change_outside(callee, part) for callee in string_methods for part in ast.walk(callee)):
        return True
    statements = [part for statement in moved_code for part in ast.walk(statement) if isinstance(part, ast.stmt)]
    output_calls = {part.value for part in statements if isinstance(part, ast.Expr) and is_output(part)}
    raised_expressions = {part.exc for part in statements if isinstance(part, ast.Raise)}
    return any(
        node not in output_calls | raised_expressions and hidden_effects.may_occur(node)
        for statement in moved_code
        for node in ast.walk(statement)
    )


def _conditions_of_later_reads(
    site: Site, function: FunctionNode, moved_code: Sequence[ast.stmt], start: tuple[int, int]
) -> tuple[Condition, ...]:
    """Return the conditions whose branches follow the moved code and may read more than local variables."""
    moved_nodes = {part for statement in moved_code for part in ast.walk(statement)}
    local_names = names_bound(function) | parameters_of(function)

    def reads_outside(part: ast.AST) -> bool:
        return isinstance(part, ast.Attribute | ast.Call | ast.Subscript) or (
            isinstance(part, ast.Name) and part.id not in local_names
        )

    reading_tests = [
        (test, result)
        for node in _conditional_nodes(function)
        if node not in moved_nodes and _position(node) > start
        for test, result, branch in _branches_of(node)
        if any(map(reads_outside, _nodes_of_branch(branch)))
    ]
    return _as_conditions(site, reading_tests)


def _conditions_of_moved_effects(
    site: Site, function: FunctionNode, moved_code: Sequence[ast.stmt], start: tuple[int, int], effects: HiddenEffects
) -> Iterator[Condition]:
    """Yield the conditions under which moved calls may change attributes and globals that the code after them reads.

    Moved to the end of the function, the change comes too late for this code.
    """
    moved_nodes = {part for statement in moved_code for part in ast.walk(statement)}
    later_nodes = [node for node in ast.walk(function) if node not in moved_nodes and _position(node) > start]
    moved_callees = list(_reachable_definitions(site, map(_name_of_callee, moved_nodes), {function.name}))
    later_callees = _reachable_definitions(site, map(_name_of_callee, later_nodes), {function.name})
    later_names = _names_of_shared_values(later_nodes, names_bound(function) | parameters_of(function))
    for _, callee in later_callees:
        later_names |= _names_of_shared_values(ast.walk(callee), names_bound(callee) | parameters_of(callee))
    for callee_site, callee in moved_callees:
        names = _names_of_shared_values(ast.walk(callee), names_bound(callee) | parameters_of(callee))
        if not names.isdisjoint(later_names):
            yield from _conditions_in_callees([(callee_site, callee)], effects)


def _conditions_of_changed_objects(
    site: Site, function: FunctionNode, moved_code: Sequence[ast.stmt], start: tuple[int, int], effects: HiddenEffects
) -> Iterator[Condition]:
    """Yield the tests that read objects which moved calls may change, and those whose branches read them.

    They may follow the moved code, or be in functions that this code calls.
    """
    moved_nodes = {part for statement in moved_code for part in ast.walk(statement)}
    later_nodes = [node for node in ast.walk(function) if node not in moved_nodes and _position(node) > start]
    calls = [node for node in moved_nodes if isinstance(node, ast.Call) and effects.may_occur(node)]
    changed_names = _names_of_changed_objects(site, function, calls)
    callees = list(_reachable_definitions(site, map(_name_of_callee, later_nodes), {function.name}))
    moved_callees = _reachable_definitions(site, map(called_name, calls), {function.name})
    if any(
        map(effects.runs_unknown_code, [*calls, *(node for _, callee in moved_callees for node in ast.walk(callee))])
    ):
        for scope, nodes in ((function, later_nodes), *((callee, ast.walk(callee)) for _, callee in callees)):
            changed_names |= _names_of_shared_values(nodes, names_bound(scope) | parameters_of(scope))
    yield from _conditions_of_reads(site, later_nodes, changed_names)
    for callee_site, callee in callees:
        passed_names = {
            name
            for node in later_nodes
            if isinstance(node, ast.Call) and called_name(node) == callee.name
            for argument in arguments_of(node)
            if not changed_names.isdisjoint(_names_and_attributes([argument]))
            for name in parameters_of(callee)
        }
        yield from _conditions_of_reads(callee_site, list(ast.walk(callee)), changed_names | passed_names)


def _names_of_changed_objects(site: Site, function: FunctionNode, calls: Sequence[ast.Call]) -> set[str]:
    """Return the names and attributes of the objects that calls may change, except local variables."""
    objects: list[ast.expr] = [node.func.value for node in calls if isinstance(node.func, ast.Attribute)]
    objects += [argument for node in calls for argument in arguments_of(node)]
    names: set[str] = set()
    for node in objects:
        owner = node
        while isinstance(owner, ast.Subscript):
            owner = owner.value
        if isinstance(owner, ast.Attribute):
            names.add(owner.attr)
        elif isinstance(owner, ast.Name):
            names.add(owner.id)
    names -= names_bound(function) | names_imported(site.source.tree) | {"self", "cls"} | set(dir(builtins))
    for _, callee in _reachable_definitions(site, map(called_name, calls), {function.name}):
        names |= _names_of_shared_values(ast.walk(callee), names_bound(callee) | parameters_of(callee))
    return names - _TENSOR_ATTRIBUTES


def _conditions_of_reads(site: Site, nodes: Sequence[ast.AST], names: set[str]) -> Iterator[Condition]:
    """Yield the conditions in code whose tests or branches read one of the names, or a local variable set from them."""
    assignments = [node for node in nodes if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)]
    names, count = set(names), -1
    while len(names) > count:
        count = len(names)
        for assignment in assignments:
            if assignment.value is not None and not names.isdisjoint(_names_and_attributes([assignment.value])):
                names |= names_bound(assignment)
    for node in nodes:
        if isinstance(node, ast.Compare) and any(called_name(part) == "len" for part in ast.walk(node)):
            if not names.isdisjoint(_names_and_attributes([node])):
                yield site.condition(node)
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            is_tested = not names.isdisjoint(_names_and_attributes([node.test]))
            for test, result, branch in _branches_of(node):
                parts = [branch] if isinstance(branch, ast.expr) else branch
                if is_tested or not names.isdisjoint(_names_and_attributes(parts)):
                    yield site.condition(test, required_results=(result,))


def _names_and_attributes(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names and attributes in code, except the names of methods."""
    parts = [part for node in nodes for part in ast.walk(node)]
    methods = {part.func for part in parts if isinstance(part, ast.Call)}
    attributes = {part.attr for part in parts if isinstance(part, ast.Attribute) and part not in methods}
    return attributes | {part.id for part in parts if isinstance(part, ast.Name)}


def _names_of_shared_values(nodes: Iterable[ast.AST], local_names: set[str]) -> set[str]:
    """Return the names of the attributes, except methods, and of the globals in code."""
    parts = list(nodes)
    called_parts = {part.func for part in parts if isinstance(part, ast.Call)}
    attributes = {part.attr for part in parts if isinstance(part, ast.Attribute) and part not in called_parts}
    names = {part.id for part in parts if isinstance(part, ast.Name) and part not in called_parts}
    declared_names = {name for part in parts if isinstance(part, ast.Global | ast.Nonlocal) for name in part.names}
    return (attributes - _TENSOR_ATTRIBUTES) | (names - (local_names - declared_names) - set(dir(builtins)))


def conditions_outside(site: Site, function: FunctionNode, block: ast.stmt) -> tuple[Condition, ...]:
    """Return the conditions whose branches compute something outside a ``with`` block.

    If the whole function runs in the block's context, the context also covers these branches.
    """
    nodes_of_block = set(ast.walk(block))
    tests_with_results = [
        (test, result)
        for node in _conditional_nodes(function)
        if node not in nodes_of_block
        for test, result, branch in _branches_of(node)
        if any(isinstance(part, ast.expr) and part not in nodes_of_block for part in _nodes_of_branch(branch))
    ]
    return _as_conditions(site, tests_with_results)


def _crossed_conditions(
    site: Site,
    function: FunctionNode,
    moved_code: Sequence[ast.AST],
    is_crossed: Callable[[ast.AST], bool],
    hidden_effects: HiddenEffects | None,
) -> tuple[Condition, ...]:
    """Return the conditions under which the crossed code may change values that the moved code reads.

    ``hidden_effects`` are those that the syntax does not show; ``None`` if none can affect the moved code.
    """
    # In a parsed tree, expressions share their context and operator nodes.
    moved_nodes = {part for node in moved_code for part in ast.walk(node) if isinstance(part, ast.expr | ast.stmt)}
    names = {name for node in moved_code for name in names_read(node)}
    owners = {name for node in moved_code for name in _attribute_owners(node)}
    # A loop repeats its body, so code in it runs both before and after the moved code.
    all_loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]
    loops = [node for node in all_loops if moved_nodes & set(ast.walk(node))]
    repeated_nodes = {part for loop in loops for part in ast.walk(loop)}

    def is_change(part: ast.AST) -> bool:
        has_hidden_effect = hidden_effects is not None and hidden_effects.may_occur(part)
        return part not in moved_nodes and (_may_change(part, names, owners) or has_hidden_effect)

    crossed_nodes = [
        node for node in ast.walk(function) if node not in moved_nodes and (node in repeated_nodes or is_crossed(node))
    ]
    conditions = list(_conditions_in_function(site, function, crossed_nodes, is_change))
    unused_values = {node.value for node in crossed_nodes if isinstance(node, ast.Expr)}  # called for their effects
    called_names = [
        _name_of_callee(node)
        for node in crossed_nodes
        if isinstance(node, ast.AugAssign)
        or (
            isinstance(node, ast.Call)
            and (hidden_effects is not None or node in unused_values or not names.isdisjoint(names_read(node)))
        )
    ]
    callees = _reachable_definitions(site, called_names, {function.name})
    return tuple(dict.fromkeys([*conditions, *_conditions_in_callees(callees, hidden_effects)]))


def _reachable_definitions(
    site: Site, called_names: Iterable[str], excluded_names: Iterable[str]
) -> Iterator[tuple[Site, FunctionNode]]:
    """Yield the user's functions with the given names, and those that they call, directly or not."""
    remaining_names, visited_names = list(called_names), {"", *excluded_names}
    while remaining_names:
        name = remaining_names.pop()
        if name in visited_names:
            continue
        visited_names.add(name)
        for definition_site, callee in _definitions(site, name):
            yield definition_site, callee
            remaining_names += map(_name_of_callee, ast.walk(callee))


def _conditions_in_callees(
    callees: Iterable[tuple[Site, FunctionNode]], hidden_effects: HiddenEffects | None
) -> Iterator[Condition]:
    """Yield the conditions under which called functions change objects that they did not create."""
    for definition_site, callee in callees:
        changes_outside = functools.partial(_may_change_outside, callee, hidden_effects=hidden_effects)
        yield from _conditions_in_function(definition_site, callee, list(ast.walk(callee)), changes_outside)


def _name_of_callee(node: ast.AST) -> str:
    """Return the name of the function or method that an expression or an augmented assignment calls, if any."""
    if isinstance(node, ast.AugAssign):
        return _AUGMENTED_ASSIGNMENT_METHODS.get(type(node.op), "")
    return called_name(node)


def _conditions_in_function(
    site: Site, function: FunctionNode, crossed_nodes: Sequence[ast.AST], is_change: Callable[[ast.AST], bool]
) -> Iterator[Condition]:
    """Yield the conditions under which a function changes something: tests, and changes that may be skipped."""
    conditional_nodes = set(_conditional_nodes(function)) & set(crossed_nodes)
    changing_tests = [
        (test, result)
        for node in conditional_nodes
        for test, result, branch in _branches_of(node)
        if any(map(is_change, _nodes_of_branch(branch)))
    ]
    yield from _as_conditions(site, changing_tests)
    skippable_changes = [part for part in crossed_nodes if is_change(part) and _may_be_skipped(site, function, part)]
    expressions = dict.fromkeys(_evaluated_expression(site, part) for part in skippable_changes)
    yield from (site.condition(part, required_results=()) for part in expressions if part is not None)


def _definitions(site: Site, name: str) -> Iterator[tuple[Site, FunctionNode]]:
    """Yield the functions and methods of this name in the user's sources."""
    for source_id, text in {site.source_id: site.source.text, **site.texts}.items():
        source = parse_source(text) if f"def {name}(" in text else None
        for node in ast.walk(source.tree) if source is not None else ():
            if source is not None and isinstance(node, FunctionNode) and node.name == name:
                yield Site(source_id, source, node.body[0], node.body[0], site.texts), node


def _may_change_outside(function: FunctionNode, part: ast.AST, hidden_effects: HiddenEffects | None = None) -> bool:
    """Return whether a part of a function may change an object that the function did not create."""
    if hidden_effects is not None and hidden_effects.may_occur(part):
        return True
    parameters = parameters_of(function)
    if isinstance(part, ast.Attribute | ast.Subscript | ast.AugAssign | ast.Call | ast.Expr):
        target = part.target if isinstance(part, ast.AugAssign) else part
        if names_read(target) <= names_bound(function) - parameters:
            return False
    return _may_change(part, parameters, parameters)


def _as_conditions(site: Site, tests: Sequence[tuple[ast.expr, bool]]) -> tuple[Condition, ...]:
    return tuple(site.condition(test, required_results=(result,)) for test, result in dict.fromkeys(tests))


def _may_be_skipped(site: Site, function: FunctionNode, part: ast.AST) -> bool:
    """Return whether code may be skipped because a loop is empty, nothing is raised or another case matches."""
    inner = part
    for outer in site.source.ancestors(part):
        if outer is function:
            return False
        if isinstance(outer, ast.If | ast.While | ast.IfExp) and inner is not outer.test:
            return False  # a trial must run this branch, and thus the code
        if isinstance(outer, ast.For) and inner is not outer.iter:
            return True
        if isinstance(outer, ast.ExceptHandler | ast.match_case | ast.comprehension | _COMPREHENSIONS):
            return True
        inner = outer
    return False


def _evaluated_expression(site: Site, part: ast.AST) -> ast.expr | None:
    """Return an expression with a known range that is evaluated whenever a part of the code runs; else ``None``."""
    ancestors = list(site.source.ancestors(part))
    # Positions in f-strings are wrong in Python 3.11.
    is_in_f_string = any(isinstance(node, ast.JoinedStr) for node in ancestors)
    if isinstance(part, ast.Call) and not is_in_f_string:
        return part
    statement = next((node for node in (part, *ancestors) if isinstance(node, ast.stmt)), None)
    value = getattr(statement, "value", None)
    return value if isinstance(value, ast.expr) else None


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _conditional_nodes(function: FunctionNode) -> Iterator[ast.If | ast.While | ast.IfExp | ast.BoolOp]:
    """Yield the conditional code of a function, including ``and`` and ``or`` whose results are not used."""
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.BoolOp):
            yield node.value


def _branches_of(node: ast.If | ast.While | ast.IfExp | ast.BoolOp) -> Iterator[tuple[ast.expr, bool, _Branch]]:
    """Yield the branches of conditional code, each with the test that selects it and the result of the test."""
    if isinstance(node, ast.BoolOp):
        result = isinstance(node.op, ast.And)
        yield from ((test, result, branch) for test, branch in itertools.pairwise(node.values))
        return
    yield node.test, True, node.body
    if not isinstance(node, ast.While):
        yield node.test, False, node.orelse


def _nodes_of_branch(branch: _Branch) -> Iterator[ast.AST]:
    for node in [branch] if isinstance(branch, ast.expr) else branch:
        yield from ast.walk(node)


def _attribute_owners(node: ast.AST) -> Iterator[str]:
    """Yield the names in expressions whose attributes code reads, apart from methods and attributes of tensors."""
    called_expressions = {part.func for part in ast.walk(node) if isinstance(part, ast.Call)}
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part not in called_expressions and part.attr not in _TENSOR_ATTRIBUTES:
            yield from names_read(part.value)


def _may_change(node: ast.AST, names: set[str], owners: set[str]) -> bool:
    """Return whether code may change an object that moved code reads, under the same name or a different one."""
    match node:
        case ast.Attribute() | ast.Subscript():
            return not isinstance(node.ctx, ast.Load)
        case ast.AugAssign() | ast.Global() | ast.keyword(arg="out"):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute())):  # the result is not used, so the call has an effect
            return True
        case ast.Call(func=ast.Attribute(attr=name)):
            is_in_place = name.endswith("_") and not name.endswith("__")
            return name in _IMPURE_METHODS or is_in_place or not owners.isdisjoint(names_read(node))
        case ast.Call(func=ast.Name(id=name)):
            return not hasattr(builtins, name) and (not node.args or not names.isdisjoint(names_read(node)))
        case ast.Call():
            return not names.isdisjoint(names_read(node))
    return False


class HiddenEffects:
    """The effects of calls, properties and operators, as far as the user's sources show them."""

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        nodes = [node for tree in trees for node in ast.walk(tree)]
        self._functions: dict[str, list[FunctionNode]] = defaultdict(list)
        self._classes: dict[str, list[ast.ClassDef]] = defaultdict(list)
        self._packages = set(_USUAL_PACKAGE_NAMES)
        self._known_functions = {
            name_bound_by(alias)
            for node in nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        } | set(dir(builtins))
        self._stored_attributes = {
            node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        for node in nodes:
            if isinstance(node, FunctionNode):
                self._functions[node.name].append(node)
            elif isinstance(node, ast.ClassDef):
                self._classes[node.name].append(node)
            elif isinstance(node, ast.Import):
                pure_imports = [alias for alias in node.names if alias.name.partition(".")[0] in _PURE_PACKAGES]
                self._packages |= {name_bound_by(alias) for alias in pure_imports}

    def may_occur(self, node: ast.AST) -> bool:
        """Return whether a node, without its child nodes, may change an object that it does not create."""
        return self._may_occur(node, frozenset())

    def runs_unknown_code(self, node: ast.AST) -> bool:
        """Return whether a node calls a function that is the value of a variable, an attribute or an item."""
        if not isinstance(node, ast.Call) or called_name(node) in self._functions.keys() | self._classes.keys():
            return False
        if isinstance(node.func, ast.Attribute):
            return node.func.attr in self._stored_attributes
        return not (isinstance(node.func, ast.Name) and node.func.id in self._known_functions)

    def _may_occur(self, node: ast.AST, names_in_progress: frozenset[str]) -> bool:
        if isinstance(node, ast.Call):
            return not self._is_harmless(node, names_in_progress)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            return self._may_change(self._functions.get(node.attr, ()), names_in_progress)
        if isinstance(node, _OPERATION_NODES):
            return _ALL_OPERATORS not in names_in_progress and self._operators_have_effects
        return isinstance(node, ast.Import | ast.ImportFrom | ast.Await | ast.Yield | ast.YieldFrom)

    @functools.cached_property
    def _operators_have_effects(self) -> bool:
        methods = [
            function
            for name, functions in self._functions.items()
            if name.startswith("__") and name not in _CONSTRUCTOR_METHODS | {"__call__"}
            for function in functions
        ]
        return self._may_change(methods, frozenset({_ALL_OPERATORS}))

    def _is_harmless(self, call: ast.Call, names_in_progress: frozenset[str]) -> bool:
        name = called_name(call)
        if name in self._functions:
            return not self._may_change(self._functions[name], names_in_progress)
        if name in self._classes:
            parts = (part for class_ in self._classes[name] for part in class_.body)
            creation_methods = [
                part for part in parts if isinstance(part, FunctionNode) and part.name in _CONSTRUCTOR_METHODS
            ]
            return not self._may_change(creation_methods, names_in_progress, are_constructors=True)
        if isinstance(call.func, ast.Name):
            return hasattr(builtins, name) and name not in _IMPURE_BUILTINS
        is_in_place = name.endswith("_") or any(keyword.arg in {"inplace", "out"} for keyword in call.keywords)
        if is_in_place or not isinstance(call.func, ast.Attribute):
            return False
        if dotted_name(call.func).partition(".")[0] in self._packages:
            flags = (node.value for node in arguments_of(call) if isinstance(node, ast.Constant))
            is_flagged = any(flag is True for flag in flags)  # it may be the parameter ``inplace``
            return not is_flagged and not any(part in name for part in _IMPURE_NAME_PARTS)
        return name in _PURE_METHODS or name in TENSOR_METHODS

    def _may_change(
        self, functions: Iterable[FunctionNode], names_in_progress: frozenset[str], *, are_constructors: bool = False
    ) -> bool:
        """Return whether functions, except those in progress, may change objects that they do not create."""
        for function in functions:
            if function.name in names_in_progress:
                continue
            local_names = names_bound(function) - parameters_of(function)
            local_names |= {function.args.args[0].arg} if are_constructors and function.args.args else set()
            names_with_function = names_in_progress | {function.name}
            for part in (part for statement in function.body for part in ast.walk(statement)):
                if isinstance(part, ast.Global | ast.Nonlocal) or self._may_occur(part, names_with_function):
                    return True
                is_store = isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(part.ctx, ast.Load)
                target = part.target if isinstance(part, ast.AugAssign) else part if is_store else None
                if target is not None and not names_read(target) <= local_names:
                    return True
        return False
