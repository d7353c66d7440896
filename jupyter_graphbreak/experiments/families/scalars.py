"""Avoid values and shapes that depend on a tensor's data: keep values as tensors, and mask instead of selecting."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from jupyter_graphbreak.experiments.families.conditions import tensor_condition, tensor_moved_to_host
from jupyter_graphbreak.experiments.families.parsed_source import as_argument, as_operand
from jupyter_graphbreak.experiments.families.proposal import Proposal
from jupyter_graphbreak.experiments.families.protection import assumptions_of
from jupyter_graphbreak.experiments.families.site import dotted_name, names_bound, names_read, site_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.experiments.families.proposal import Problem
    from jupyter_graphbreak.experiments.families.site import Site

FAMILY = "scalar"
_KEEP_TITLE = "Keep the value as a tensor"
#: The replacement for elements that are not selected, by the reduction that follows.
_NEUTRAL_ELEMENTS = {"sum": "0", "prod": "1", "max": 'float("-inf")', "amax": 'float("-inf")', "min": 'float("inf")'}


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield changes that need no value on the host and no shape that depends on data, or that capture single values."""
    site = site_of(problem)
    if site is None:
        return
    yield from _propose_keeping_condition(site)
    rewrites = problem.cause.rewrites
    if "keep the tensor" in rewrites:
        yield from _propose_keeping_tensor(site)
    if "mask instead of selecting" in rewrites:
        yield from _propose_masking(site)
    if "take values one by one" in rewrites:
        yield from _propose_reading_one_by_one(site)


def _propose_keeping_tensor(site: Site) -> Iterator[Proposal]:
    """Yield a change that keeps a tensor instead of a number, detached because no gradient flows through a number."""
    source = site.source
    call = next((part for part in (site.node, *source.ancestors(site.node)) if isinstance(part, ast.Call)), None)
    tensor = tensor_moved_to_host(call) if call is not None else None
    if call is None or tensor is None or (isinstance(call.func, ast.Attribute) and call.func.attr == "cpu"):
        return
    while (inner := tensor_moved_to_host(tensor)) is not None:
        tensor = inner
    outer = next(source.ancestors(call), None)
    if isinstance(outer, ast.Expr | ast.FormattedValue):
        return
    text = as_operand(source.text_of(tensor))
    new_text = text if text.endswith(".detach()") else f"{text}.detach()"
    if isinstance(call.func, ast.Attribute) and call.func.attr == "tolist":
        new_text = f"{new_text}.unbind()"
    yield from site.propose_edit(FAMILY, _KEEP_TITLE, [source.replacement(call, new_text)])


def _propose_keeping_condition(site: Site) -> Iterator[Proposal]:
    """Yield a change that keeps a condition assigned to a name, such as ``not x.any()``, as a tensor."""
    match site.statement:
        case ast.Assign(targets=[ast.Name()], value=ast.BoolOp() | ast.UnaryOp(op=ast.Not()) as value):
            condition = tensor_condition(site.source, value, site.torch_name)
            if condition is not None and site.node in ast.walk(value):
                splices = [site.source.replacement(value, condition)]
                assumptions = assumptions_of(site.source, [value])
                yield from site.propose_edit(FAMILY, _KEEP_TITLE, splices, [value], assumptions)


def _propose_masking(site: Site) -> Iterator[Proposal]:
    """Yield changes that compute over all elements, with neutral values for those that are not selected."""
    source = site.source
    selection = _tensor_and_mask(site.node)
    if selection is None:
        return
    values, mask = selection
    torch_name = site.torch_name
    data, mask_text = source.text_of(values), as_argument(source, mask)
    match site.statement:
        case ast.Assign([ast.Subscript(target, target_mask)], value) if value is site.node:
            if source.text_of(target_mask) == source.text_of(mask):
                old = source.text_of(target)
                new_line = f"{as_operand(old)}.copy_({torch_name}.where({mask_text}, {data}, {old}))"
                splices = [source.statement_replacement(site.statement, [new_line])]
                yield from site.propose_edit(FAMILY, "Assign all elements, chosen with torch.where", splices)
            return
    method = next(source.ancestors(site.node), None)
    call = next(source.ancestors(method), None) if isinstance(method, ast.Attribute) else None
    title = "Compute over all elements, with torch.where instead of the selection"
    count = f"{as_operand(source.text_of(mask))}.sum()"
    if isinstance(method, ast.Call) and dotted_name(method.func) == "len":
        yield from site.propose_edit(
            FAMILY, "Count the selected elements in the mask", [source.replacement(method, count)]
        )
    if not isinstance(call, ast.Call) or call.args or call.keywords or not isinstance(method, ast.Attribute):
        return
    new_text = {
        "mean": f"({torch_name}.where({mask_text}, {data}, 0).sum() / {count})",
        "numel": count,
        **{
            name: f"{torch_name}.where({mask_text}, {data}, {value}).{name}()"
            for name, value in _NEUTRAL_ELEMENTS.items()
        },
    }.get(method.attr)
    if new_text is not None:
        yield from site.propose_edit(FAMILY, title, [source.replacement(call, new_text)])


def _tensor_and_mask(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """Return the tensor and the mask of ``x[mask]`` or ``masked_select``; ``None`` for other expressions."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return None if isinstance(node.slice, ast.Tuple | ast.Slice) else (node.value, node.slice)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "masked_select":
        if len(node.args) == 1:
            return node.func.value, node.args[0]
        return (node.args[0], node.args[1]) if len(node.args) == 2 else None  # noqa: PLR2004 - the arguments are a tensor and a mask
    return None


def _propose_reading_one_by_one(site: Site) -> Iterator[Proposal]:
    """Yield a change that reads the values of a list one by one, with a setting that makes this traceable."""
    call = site.source.enclosing_node(site.node, ast.Call)
    if call is None or not isinstance(call.func, ast.Attribute) or call.func.attr != "tolist":
        return
    text = as_operand(site.source.text_of(call.func.value))
    new_text = site.source.apply_splices([site.source.replacement(call, f"[value.item() for value in {text}]")])
    if new_text is not None:
        settings = {"torch._dynamo.config.capture_scalar_outputs": True}
        title = "Take the values one by one, with capture_scalar_outputs"
        has_choice = _is_chosen_by_test(site, call.func.value)
        assumptions = (f"it assumes that {text} has one dimension in all cases",) if has_choice else ()
        yield Proposal(FAMILY, title, {site.source_id: new_text}, settings, assumptions=assumptions)


def _is_chosen_by_test(site: Site, tensor: ast.expr) -> bool:
    """Return whether a test chooses the value of a name in an expression: trials see few of the possible shapes."""
    names = names_read(tensor)
    nodes = [node for node in ast.walk(site.function or site.source.tree) if site.node not in ast.walk(node)]
    return any(
        not names.isdisjoint(names_bound(node))
        for node in nodes
        if isinstance(node, ast.If) or (isinstance(node, ast.Assign) and isinstance(node.value, ast.IfExp))
    )
