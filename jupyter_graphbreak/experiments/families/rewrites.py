"""Rewrite code that Dynamo cannot trace as code that it can trace, with one rule for each rewrite."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.branch_values import has_no_side_effects, has_no_unpacking
from jupyter_graphbreak.experiments.families.conditions import is_host_test, split_test, tensor_condition
from jupyter_graphbreak.experiments.families.deferral import is_in_try_or_with
from jupyter_graphbreak.experiments.families.indexing import index_with_vector
from jupyter_graphbreak.experiments.families.parsed_source import as_argument, as_operand, fresh_name
from jupyter_graphbreak.experiments.families.protection import assumptions_of
from jupyter_graphbreak.experiments.families.site import called_name, dotted_name, indentation_step, site_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jupyter_graphbreak.experiments.families.proposal import Problem, Proposal
    from jupyter_graphbreak.experiments.families.site import Site
    from jupyter_graphbreak.knowledge.entries import Rewrite

FAMILY = "rewrite"

_TRACE_AUTOGRAD = {"torch._dynamo.config.trace_autograd_ops": True}

#: Dynamo turns a number into a zero-dimensional tensor, which takes part in type promotion.
_DOUBLE_RESULT_ASSUMPTION = "with a tensor of integers, the number makes the compiled result float64"


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield the proposals of the rules for the break's cause, and of those that apply to any cause."""
    site = site_of(problem)
    if site is None:
        return
    rewrite_names = problem.cause.rewrites
    for rule in (
        *(_RULES[rewrite_name] for rewrite_name in rewrite_names if rewrite_name in _RULES),
        _map_as_comprehension,
        _drop_progress_bar,
        _draw_with_uniform,
        _select_extreme_item,
    ):
        yield from rule(site)


def _find_call(site: Site, *names: str) -> ast.Call | None:
    """Return the first call to one of the named functions, at a break or in its statement; else ``None``."""
    nodes = [site.node, *site.source.ancestors(site.node), *ast.walk(site.statement)]
    for part in nodes:
        if isinstance(part, ast.Call) and called_name(part) in names:
            return part
    return None


def _draw_with_randint_like(site: Site) -> Iterator[Proposal]:
    call = _find_call(site, "random_")
    if call is None or not isinstance(call.func, ast.Attribute) or not call.args or len(call.args) > 2:  # noqa: PLR2004 - a range has two ends
        return
    torch_name = site.torch_name
    tensor = site.source.text_of(call.func.value)
    bounds = [as_argument(site.source, node) for node in call.args]
    low, high = bounds if len(bounds) > 1 else ("0", bounds[0])
    random_tensor = f"{torch_name}.randint_like({tensor}, {low}, {high})"
    new_text = (
        f"{tensor}.copy_({random_tensor})" if isinstance(call.func.value, ast.Name | ast.Attribute) else random_tensor
    )
    yield from site.propose_edit(FAMILY, "Draw with torch.randint_like", [site.source.replacement(call, new_text)])


def _copy_with_clone(site: Site) -> Iterator[Proposal]:
    call = _find_call(site, "deepcopy")
    if call is None or len(call.args) != 1:
        return
    tensor = as_operand(site.source.text_of(call.args[0]))
    new_text = f"{tensor}.detach().clone()"
    splice = site.source.replacement(call, f"{new_text}.requires_grad_({tensor}.requires_grad)")
    yield from site.propose_edit(FAMILY, "Copy the tensor with detach().clone()", [splice])
    yield from site.propose_edit(
        FAMILY, "Copy the values with detach().clone()", [site.source.replacement(call, new_text)]
    )


def _replace_requires_grad(site: Site) -> Iterator[Proposal]:
    """Write ``x.requires_grad = flag`` as a call, detach the tensor, or leave the flag unchanged."""
    statement = site.statement
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return
    target = statement.targets[0]
    if not isinstance(target, ast.Attribute) or target.attr != "requires_grad":
        return
    tensor = site.source.text_of(target.value)
    if isinstance(statement.value, ast.Constant) and statement.value.value is False:
        splice = site.source.statement_replacement(statement, [f"{tensor} = {tensor}.detach()"])
        yield from site.propose_edit(FAMILY, "Take the tensor out of autograd with detach()", [splice])
    value = as_argument(site.source, statement.value)
    splice = site.source.statement_replacement(statement, [f"{tensor}.requires_grad_({value})"])
    yield from site.propose_edit(FAMILY, "Set the flag with requires_grad_()", [splice])
    yield from site.propose_edit(FAMILY, "Leave the flag unchanged", [site.source.deletion(statement)])


def _detach_instead_of_variable(site: Site) -> Iterator[Proposal]:
    """Write all ``Variable(x)`` of the source as ``x.detach()``, which does the same."""
    call = _find_call(site, "Variable")
    if call is None:
        return
    name = dotted_name(call.func)
    calls = [
        node
        for node in ast.walk(site.source.tree)
        if isinstance(node, ast.Call) and dotted_name(node.func) == name and len(node.args) == 1 and not node.keywords
    ]
    splices = [
        site.source.replacement(node, f"{as_operand(site.source.text_of(node.args[0]))}.detach()") for node in calls
    ]
    yield from site.propose_edit(FAMILY, "Write Variable(x) as x.detach()", splices)


def _test_python_operand_first(site: Site) -> Iterator[Proposal]:
    """Write ``x.isnan().any() and debug`` as ``debug and x.isnan().any()``: a false ``debug`` then needs no tensor."""
    source, statement = site.source, site.statement
    test = getattr(statement, "test", None)
    if not isinstance(statement, ast.If | ast.While) or not isinstance(test, ast.BoolOp):
        return
    moved_operands = [value for value in test.values[1:] if _is_python_operand(value)]
    other_operands = [value for value in test.values if value not in moved_operands]
    if not moved_operands or not all(map(has_no_side_effects, other_operands)):
        return
    sign, result = (" and ", "false") if isinstance(test.op, ast.And) else (" or ", "true")
    operands = [as_operand(source.text_of(value)) for value in (*moved_operands, *other_operands)]
    names = sign.join(operands[: len(moved_operands)])
    yield from site.propose_edit(
        FAMILY,
        f"Test `{names}` first: its value is known while compiling",
        [source.replacement(test, sign.join(operands))],
        assumptions=[f"it assumes that {names} is {result} in compiled code; otherwise, the graph still breaks"],
    )


def _is_python_operand(node: ast.expr) -> bool:
    """Return whether an operand only reads a variable, or needs no tensor's value according to :func:`is_host_test`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _is_python_operand(node.operand)
    return is_host_test(node) or (isinstance(node, ast.Name | ast.Attribute) and "()" not in dotted_name(node))


def _leave_requires_grad_out(site: Site) -> Iterator[Proposal]:
    """Remove ``requires_grad=True`` from a call that creates a tensor, or a call to ``requires_grad_()``."""
    keywords = (part for part in ast.walk(site.node) if isinstance(part, ast.keyword) and part.arg == "requires_grad")
    flag = next((keyword.value for keyword in keywords), None)
    if isinstance(flag, ast.Constant) and flag.value is True:
        title = "Create the tensor with requires_grad=False: only its values are used"
        yield from site.propose_edit(FAMILY, title, [site.source.replacement(flag, "False")])
    call = _find_call(site, "requires_grad_")
    if call is None or not isinstance(call.func, ast.Attribute):
        return
    is_statement = isinstance(site.statement, ast.Expr) and site.statement.value is call
    splice = (
        site.source.deletion(site.statement)
        if is_statement
        else site.source.replacement(call, site.source.text_of(call.func.value))
    )
    yield from site.propose_edit(FAMILY, "Leave requires_grad_() out: only the values are used", [splice])


def _list_inputs_of_grad(site: Site) -> Iterator[Proposal]:
    """Pass ``torch.autograd.grad`` a list, such as ``list(model.parameters())``, because Dynamo traces no generator."""
    call = _find_call(site, "grad")
    if call is None:
        return
    inputs = next((part.value for part in call.keywords if part.arg == "inputs"), next(iter(call.args[1:2]), None))
    if isinstance(inputs, ast.Call | ast.GeneratorExp) and called_name(inputs) not in {"list", "tuple"}:
        splice = site.source.replacement(inputs, f"list({site.source.text_of(inputs)})")
        title = "Set `trace_autograd_ops = True`, and pass the inputs as a list"
        for proposal in site.propose_edit(FAMILY, title, [splice]):
            yield replace(proposal, settings=_TRACE_AUTOGRAD)


def _check_in_graph(site: Site) -> Iterator[Proposal]:
    """Move a check that raises into the graph, with a constant message."""
    statement = site.statement
    torch_name = site.torch_name
    remaining_check = ""
    if isinstance(statement, ast.Raise):
        statement = next((node for node in site.source.ancestors(statement) if isinstance(node, ast.If)), statement)
    if isinstance(statement, ast.Assert):
        condition, message_node = tensor_condition(site.source, statement.test, torch_name), statement.msg
    elif isinstance(statement, ast.If) and _only_raises(statement):
        test, remaining_check = split_test(statement.test)
        failure_condition = tensor_condition(site.source, test, torch_name)
        condition = f"{torch_name}.logical_not({failure_condition})" if failure_condition is not None else None
        raised_expression = statement.body[0].exc if isinstance(statement.body[0], ast.Raise) else None
        message_node = (
            raised_expression.args[0] if isinstance(raised_expression, ast.Call) and raised_expression.args else None
        )
    else:
        return
    if condition is None or is_in_try_or_with(site.source, statement):
        return
    is_string = isinstance(message_node, ast.Constant) and isinstance(message_node.value, str)
    message = site.source.text_of(message_node) if message_node is not None and is_string else '"check failed"'
    check = f"{torch_name}._assert_async({condition}, {message})"
    lines = [check]
    if remaining_check and isinstance(statement, ast.If):
        lines = [f"if {remaining_check}:", f"{indentation_step(site.source, statement)}{check}"]
    splice = site.source.statement_replacement(statement, lines)
    assumptions = assumptions_of(site.source, tests := [statement.test])
    title = "Check within the graph: a failed check raises RuntimeError"
    yield from site.propose_edit(FAMILY, title, [splice], tests, assumptions)


def _only_raises(if_statement: ast.If) -> bool:
    return len(if_statement.body) == 1 and isinstance(if_statement.body[0], ast.Raise) and not if_statement.orelse


def _drop_progress_bar(site: Site) -> Iterator[Proposal]:
    """Drop the progress bar of a loop when compiling."""
    loop = site.statement
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call) or len(loop.iter.args) != 1:
        return
    if called_name(loop.iter) not in {"tqdm", "track"}:
        return
    torch_name = site.torch_name
    items, iterable = as_operand(site.source.text_of(loop.iter.args[0])), site.source.text_of(loop.iter)
    new_iterable = f"({items} if {torch_name}.compiler.is_compiling() else {iterable})"
    splice = site.source.replacement(loop.iter, new_iterable)
    yield from site.propose_edit(FAMILY, "Loop without the progress bar when compiling", [splice])


def _draw_with_uniform(site: Site) -> Iterator[Proposal]:
    """Replace ``random.random()``, which Dynamo cannot trace, with the equivalent ``random.uniform(0, 1)``."""
    call = _find_call(site, "random")
    if call is None or dotted_name(call.func) != "random.random" or call.args or call.keywords:
        return
    splice = site.source.replacement(call, "random.uniform(0, 1)")
    yield from site.propose_edit(
        FAMILY, "Draw with random.uniform(0, 1)", [splice], assumptions=[_DOUBLE_RESULT_ASSUMPTION]
    )


def _map_as_comprehension(site: Site) -> Iterator[Proposal]:
    """Write ``list(map(f, xs))`` or ``tuple(map(f, xs))`` as a comprehension."""
    call = _find_call(site, "list", "tuple")
    inner = call.args[0] if call is not None and len(call.args) == 1 else None
    if call is None or not isinstance(inner, ast.Call) or dotted_name(inner.func) != "map" or len(inner.args) != 2:  # noqa: PLR2004 - the arguments are a function and its items
        return
    function, items = inner.args
    if not isinstance(function, ast.Name | ast.Attribute):
        return
    item_name = fresh_name(site.source, "item")
    loop = f"{site.source.text_of(function)}({item_name}) for {item_name} in {as_operand(site.source.text_of(items))}"
    new_text = f"[{loop}]" if dotted_name(call.func) == "list" else f"tuple([{loop}])"
    yield from site.propose_edit(FAMILY, "Write the map as a comprehension", [site.source.replacement(call, new_text)])


def _select_extreme_item(site: Site) -> Iterator[Proposal]:
    """Write ``max(xs, key=k)`` or ``min(xs)`` over tensors as a loop over the items, with ``torch.where``."""
    source, statement = site.source, site.statement
    call = _find_call(site, "max", "min")
    if call is None or not isinstance(call.func, ast.Name) or len(call.args) != 1 or not has_no_unpacking(call):
        return
    key = next((part.value for part in call.keywords if part.arg == "key"), None)
    outer_nodes = itertools.takewhile(lambda node: node is not statement, source.ancestors(call))
    is_evaluated_first = not any(isinstance(node, (*_DEFERRING_OR_REPEATING_NODES, ast.Call)) for node in outer_nodes)
    if (
        len(call.keywords) > (key is not None)
        or not is_evaluated_first
        or isinstance(statement, ast.For | ast.While | ast.If)
    ):
        return
    best, rest, item, better, best_key, item_key, key_name = (
        fresh_name(source, name) for name in ("best", "rest", "item", "better", "best_key", "item_key", "key")
    )
    step = indentation_step(source, site.function) if site.function is not None else "    "
    sign = ">" if call.func.id == "max" else "<"
    selected_names = {best: item} if key is None else {best: item, best_key: item_key}
    lines = [
        f"{rest} = list({as_argument(source, call.args[0])})",
        f"{best} = {rest}.pop(0) if {rest} else {call.func.id}({rest})  # raises for an empty list",
        *([f"{key_name} = {source.text_of(key)}", f"{best_key} = {key_name}({best})"] if key is not None else []),
        f"for {item} in {rest}:",
        *([f"{step}{item_key} = {key_name}({item})"] if key is not None else []),
        f"{step}{better} = {item_key if key is not None else item} {sign} {best_key if key is not None else best}",
        *(f"{step}{old} = {site.torch_name}.where({better}, {new}, {old})" for old, new in selected_names.items()),
    ]
    splices = [source.insertion_before(statement, lines), source.replacement(call, best)]
    yield from site.propose_edit(FAMILY, f"Find the {call.func.id} item by item, with torch.where", splices)


#: Expressions whose parts may run later, more than once, or not at all.
_DEFERRING_OR_REPEATING_NODES = (
    ast.BoolOp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.Lambda, ast.ListComp, ast.SetComp,
)  # fmt: skip
#: A ``%`` conversion.
_CONVERSION = re.compile(r"%(?:%|(?P<flags>[-0+ ]*)(?P<width>\d*)(?P<precision>(?:\.\d+)?)(?P<kind>[a-zA-Z]))")
#: Conversions of numbers and of any objects that ``str.format`` writes with the same letter.
_NUMBER_CONVERSIONS = frozenset("eEfFgG")
_STRING_CONVERSIONS = frozenset("sr")


def _format_with_str_format(site: Site) -> Iterator[Proposal]:
    """Write ``"%.2f" % y`` as ``"{:.2f}".format(y)``: Dynamo formats after the graph, but computes ``%`` in it."""
    nodes = [site.node, *site.source.ancestors(site.node), *ast.walk(site.statement)]
    operation = next((part for part in nodes if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod)), None)
    if operation is None or not isinstance(operation.left, ast.Constant) or not isinstance(operation.left.value, str):
        return
    template = _str_format_template(operation.left.value)
    values = operation.right.elts if isinstance(operation.right, ast.Tuple) else [operation.right]
    if template is None or any(isinstance(value, ast.Starred) for value in values):
        return
    arguments_text = ", ".join(as_argument(site.source, value) for value in values)
    splice = site.source.replacement(operation, f"{ast.unparse(ast.Constant(template))}.format({arguments_text})")
    yield from site.propose_edit(FAMILY, "Format with str.format instead of %", [splice])


def _str_format_template(template: str) -> str | None:
    """Turn a ``%`` template into a ``str.format`` template; ``None`` if a conversion has no equivalent."""
    parts: list[str] = []
    literal_start = 0
    for percent in re.finditer("%", template):
        if percent.start() < literal_start:
            continue
        conversion = _CONVERSION.match(template, percent.start())
        replacement = _replacement_field(conversion) if conversion is not None else None
        if conversion is None or replacement is None:
            return None
        parts += [template[literal_start : conversion.start()].replace("{", "{{").replace("}", "}}"), replacement]
        literal_start = conversion.end()
    return "".join([*parts, template[literal_start:].replace("{", "{{").replace("}", "}}")])


def _replacement_field(conversion: re.Match[str]) -> str | None:
    """Return the replacement field for a ``%`` conversion, with the same alignment; ``None`` if there is none."""
    if conversion.group() == "%%":
        return "%"
    flags, width, precision, conversion_type = conversion.group("flags", "width", "precision", "kind")
    if conversion_type in _STRING_CONVERSIONS and not set(flags) - {"-"}:
        align = "" if not width or "-" in flags else ">"
        format_spec = f"{align}{width}{precision}"
        return f"{{!{conversion_type}:{format_spec}}}" if format_spec else f"{{!{conversion_type}}}"
    if conversion_type in _NUMBER_CONVERSIONS and not ("0" in flags and "-" in flags):
        align = "<" if width and "-" in flags else ""
        sign = "+" if "+" in flags else " " if " " in flags else ""
        return f"{{:{align}{sign}{'0' if '0' in flags else ''}{width}{precision}{conversion_type}}}"
    return None


_RULES: Mapping[Rewrite, Callable[[Site], Iterator[Proposal]]] = {
    "check in the graph": _check_in_graph,
    "copy with clone()": _copy_with_clone,
    "detach instead of Variable": _detach_instead_of_variable,
    "draw with randint_like": _draw_with_randint_like,
    "format with str.format": _format_with_str_format,
    "index with a vector": functools.partial(index_with_vector, family=FAMILY),
    "leave requires_grad_() out": _leave_requires_grad_out,
    "list the inputs of grad": _list_inputs_of_grad,
    "replace the requires_grad assignment": _replace_requires_grad,
    "test the Python operand first": _test_python_operand_first,
}


MARKER_FAMILY = "marker"


_BREAKING_FUNCTIONS = {"graph_break", "skip_frame", "step_unsupported"}


def propose_without_markers(problem: Problem) -> Iterator[Proposal]:
    """Yield a change that removes a call whose purpose is to break the graph."""
    site = site_of(problem)
    if site is None or not isinstance(site.statement, ast.Expr) or not isinstance(site.statement.value, ast.Call):
        return
    name = called_name(site.statement.value)
    if name in _BREAKING_FUNCTIONS:
        yield from site.propose_edit(MARKER_FAMILY, f"Remove {name}()", [site.source.deletion(site.statement)])
