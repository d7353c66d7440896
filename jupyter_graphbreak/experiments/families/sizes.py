"""Read sizes that tensors contain, such as grids and lengths, before the call, and pass them as numbers."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from jupyter_graphbreak.experiments.families.conditions import tensor_moved_to_host
from jupyter_graphbreak.experiments.families.crossing import conditions_before
from jupyter_graphbreak.experiments.families.parsed_source import FunctionNode, as_operand, fresh_name
from jupyter_graphbreak.experiments.families.proposal import MAX_TITLE_EXPRESSION_LENGTH, Proposal
from jupyter_graphbreak.experiments.families.site import (
    called_name,
    dotted_name,
    names_bound,
    names_read,
    parameters_of,
    site_at,
    site_of,
)
from jupyter_graphbreak.experiments.families.wrapping import RETURN, entry_function, propose_wrapping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.experiments.families.parsed_source import Splice
    from jupyter_graphbreak.experiments.families.proposal import Problem
    from jupyter_graphbreak.experiments.families.site import Site

_TRANSFORMERS_PATH = "transformers/"
_GRIDS_TITLE = "Compute everything that depends only on grids before the call, and pass the grids as numbers"
_GRIDS_CODE = '''\
import contextlib
import inspect
import json

import torch
from transformers import vision_utils


class Sizes(torch.Tensor):
    """Integers that are known before the call. Numbers computed from them are also known while compiling.

    Dynamo guards on the text of the integers, so different integers cause a recompile.
    """

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name, kwargs = function.__name__, kwargs or {}
        if name in {"tolist", "item", "__int__", "__index__"}:
            return numbers_in(args[0].text)
        operands = [*args, *kwargs.values()]
        if name in {"__getitem__", "__sub__", "sub", "__floordiv__", "prod"} and all(map(is_known, operands)):
            keyword_items = tuple([(key, text_or_value(value)) for key, value in kwargs.items()])
            return sizes_of(compute_text(name, tuple([text_or_value(value) for value in args]), keyword_items))
        with torch._C.DisableTorchFunctionSubclass():
            return function(*map(without_sizes, args), **{key: without_sizes(value) for key, value in kwargs.items()})


def is_known(value):
    if isinstance(value, slice):
        return is_known(value.start) and is_known(value.stop) and is_known(value.step)
    return value is None or isinstance(value, Sizes) or type(value) is int


def text_or_value(value):
    if isinstance(value, Sizes):
        return value.text
    return ("slice", value.start, value.stop, value.step) if isinstance(value, slice) else value


def without_sizes(value):
    if isinstance(value, Sizes):
        return tensor_of(value.text)
    return type(value)([without_sizes(item) for item in value]) if type(value) in (list, tuple) else value


@torch._dynamo.assume_constant_result
def numbers_in(text):
    return json.loads(text)[0]


@torch._dynamo.assume_constant_result
def dtype_in(text):
    return getattr(torch, json.loads(text)[1])


@torch._dynamo.assume_constant_result
def device_in(text):
    return json.loads(text)[2]


@torch._dynamo.assume_constant_result
def compute_text(name, args, kwargs):
    def value_of(value):
        if isinstance(value, str):
            return torch.tensor(numbers_in(value), dtype=dtype_in(value))
        return slice(*value[1:]) if isinstance(value, tuple) else value

    result = getattr(torch.Tensor, name)(*map(value_of, args), **dict(kwargs))
    return text_of(result, device_in(next(value for value in args if isinstance(value, str))))


def text_of(tensor, device=None):
    return json.dumps([tensor.tolist(), str(tensor.dtype).removeprefix("torch."), str(device or tensor.device)])


def tensor_of(text):
    return torch.tensor(numbers_in(text), dtype=dtype_in(text), device=device_in(text))


def sizes_of(text):
    sizes = tensor_of(text).as_subclass(Sizes)
    sizes.text = text
    return sizes


@torch.compiler.disable
def compute_from_grids(module, args, kwargs):
    bound = inspect.signature(type(module).forward).bind(module, *args, **kwargs)
    call_arguments = {**bound.arguments, **bound.arguments.get("kwargs", {})}
    for name in ("self", "kwargs"):
        call_arguments.pop(name, None)
    return (), {**arguments_from_grids(module.model, call_arguments), **sizes_in(call_arguments)}


def sizes_in(call_arguments):
    names = [name for name in ("image_grid_thw", "video_grid_thw") if call_arguments.get(name) is not None]
    return {name: sizes_of(text_of(call_arguments[name])) for name in names}


def arguments_from_grids(inner, call_arguments):
    arguments = dict(call_arguments)
    vision = getattr(inner, "visual", None) or inner.vision_model
    grids = {kind: call_arguments.get(f"{kind}_grid_thw") for kind in ("image", "video")}
    for kind, grid in grids.items():
        for name, value in vision_tensors(vision, grid).items() if grid is not None else ():
            lengths = sizes_of(text_of(value)) if "seqlens" in name else value
            arguments.setdefault(f"{kind}_{name}", lengths)
    compute = getattr(inner, "compute_3d_position_ids", None)
    is_first = call_arguments.get("position_ids") is None and call_arguments.get("past_key_values") is None
    needed = [call_arguments.get(name) for name in ("input_ids", "mm_token_type_ids")]
    has_grid = any(grid is not None for grid in grids.values())
    if compute is not None and is_first and has_grid and all(value is not None for value in needed):
        names = inspect.signature(compute).parameters
        with contextlib.suppress(Exception):  # if the arguments are wrong, the model itself raises
            arguments["position_ids"] = compute(**{name: call_arguments.get(name) for name in names})
    return arguments


def vision_tensors(vision, grid):
    merge = vision.spatial_merge_size
    tensors = {}
    if hasattr(vision, "num_grid_per_side"):
        options = (vision.num_grid_per_side, vision.interpolation_mode, vision.interpolation_align_corners, merge)
        interpolation = vision_utils.get_vision_interpolation_indices_and_weights(grid, *options)
        tensors["interp_indices"], tensors["interp_weights"] = interpolation
    tensors["position_ids"] = vision_utils.get_vision_position_ids(grid, merge)
    tensors["cu_seqlens"] = vision_utils.get_vision_cu_seqlens(grid)
    if hasattr(vision, "window_size"):
        window = vision_utils.get_vision_window_index(grid, merge, vision.window_size, vision.patch_size)
        tensors["window_index"], tensors["cu_window_seqlens"] = window
    return tensors


model.register_forward_pre_hook(compute_from_grids, with_kwargs=True)'''
_LISTS_TITLE = "Pass the sizes of images as numbers"
_LISTS_CODE = """\
import inspect

import torch


@torch.compiler.disable
def pass_numbers(module, args, kwargs):
    bound = inspect.signature(type(module).forward).bind(module, *args, **kwargs)
    call_arguments = {**bound.arguments, **bound.arguments.get("kwargs", {})}
    for name in ("self", "kwargs"):
        call_arguments.pop(name, None)
    if isinstance(call_arguments.get("image_sizes"), torch.Tensor):
        call_arguments["image_sizes"] = call_arguments["image_sizes"].tolist()
    return (), call_arguments


model.register_forward_pre_hook(pass_numbers, with_kwargs=True)"""
_FORWARD_WRAPPER_TITLE = "Wrap forward in a pass-through function"
# Binding a signature breaks the graph if the compiled function has already changed its arguments.
_FORWARD_WRAPPER = """\
import functools
import types


@functools.wraps(type(model).forward)
def forward(self, *args, **kwargs):
    return type(self).forward(self, *args, **kwargs)


model.forward = types.MethodType(forward, model)"""


def _transformers_switches(problem: Problem) -> Iterator[tuple[str, str]]:
    """Yield the title and the code of each switch that may help a model of the transformers library."""
    break_ = problem.break_
    locations = [location for location in (break_.location, *break_.stack) if location is not None]
    paths = {source.id: source.path or "" for source in problem.report.sources if source.kind == "library"}
    texts = [
        problem.texts.get(location.source, "")
        for location in locations
        if _TRANSFORMERS_PATH in paths.get(location.source, "")
    ]
    if not texts:
        return
    rewrites = problem.cause.rewrites
    if "wrap forward" in rewrites and any("signature.bind(" in (location.code or "") for location in locations):
        yield _FORWARD_WRAPPER_TITLE, _FORWARD_WRAPPER
    if "pass sizes as numbers" in rewrites:
        if any("image_grid_thw" in text for text in texts):
            yield _GRIDS_TITLE, _GRIDS_CODE
        elif any("image_sizes" in text for text in texts):
            yield _LISTS_TITLE, _LISTS_CODE


FAMILY = "sizes"
#: Nodes that may enclose a read that happens once per call: other nodes can skip or repeat it.
_NODES_EVALUATED_ONCE = (
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp,
    ast.Subscript, ast.Attribute, ast.Tuple, ast.List, ast.Starred, ast.With, ast.Slice,
)  # fmt: skip
#: Nodes that compute the same value before the call as during the call.
_PURE_NODES = (
    ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Constant, ast.BinOp, ast.operator, ast.Tuple, ast.UnaryOp,
    ast.unaryop, ast.expr_context, ast.keyword,
)  # fmt: skip
_TENSOR_METHODS = {"sum", "prod", "max", "min", "numel", "amax", "amin", "long", "int", "cumsum", "diff", "size"}


def propose(problem: Problem) -> Iterator[Proposal]:
    """Yield changes that make sizes plain numbers in the compiled function."""
    yield from (Proposal(FAMILY, title, code=code) for title, code in _transformers_switches(problem))
    site = site_of(problem)
    if site is None:
        return
    yield from _propose_without_numpy(site)
    function = entry_function(problem, site)
    if function is not None:
        yield from _propose_read_before_call(problem, site, function)


def _propose_without_numpy(site: Site) -> Iterator[Proposal]:
    """Yield a change that multiplies the sizes of a shape without NumPy, because NumPy's numbers become tensors."""
    for call in (node for node in ast.walk(site.statement) if isinstance(node, ast.Call)):
        name = dotted_name(call.func)
        (shape,) = call.args if len(call.args) == 1 and not call.keywords else (None,)
        if name not in {"np.prod", "numpy.prod"} or shape is None or not _is_shape(shape):
            continue
        replaced_node: ast.expr = call
        outer = next(site.source.ancestors(call), None)
        if isinstance(outer, ast.Call) and dotted_name(outer.func) == "int" and outer.args == [call]:
            replaced_node = outer
        count = f"{site.source.text_of(shape)}.numel()"
        splice = site.source.replacement(replaced_node, count)
        yield from site.propose_edit(FAMILY, "Count the elements of a shape without NumPy", [splice])


def _is_shape(node: ast.expr) -> bool:
    """Return whether an expression is the shape of a tensor, or a part of one."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return _is_shape(node.value)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "size" and not node.args
    return isinstance(node, ast.Attribute) and node.attr == "shape"


class _HostRead(NamedTuple):
    """A call that reads the numbers of a tensor.

    ``expression`` is computed before the call. In ``replacement``, braces stand for the name of its value.
    """

    call: ast.Call
    tensor: ast.expr
    expression: str
    replacement: str


def _propose_read_before_call(problem: Problem, site: Site, function: FunctionNode) -> Iterator[Proposal]:
    """Yield a change that reads tensors' numbers before the call, if they depend only on the call's arguments."""
    reads: dict[ast.Call, _HostRead] = {}
    for break_site in (site, *(site_at(problem, break_.location) for break_ in problem.report.breaks)):
        if break_site is not None and break_site.source is site.source and break_site.function is function:
            host_read = _host_read_at(break_site) or _output_size_read(break_site)
            if host_read is not None and _is_same_before_call(break_site, function, host_read.tensor):
                reads[host_read.call] = host_read
    if not any(site.node in ast.walk(call) for call in reads):
        return
    names: dict[str, str] = {}
    for host_read in reads.values():
        if host_read.expression not in names:
            names[host_read.expression] = fresh_name(site.source, "given", names.values())
    splices: list[Splice | None] = [
        site.source.replacement(host_read.call, host_read.replacement.replace("{}", names[host_read.expression]))
        for host_read in reads.values()
    ]
    lines = [f"{name} = {expression}" for expression, name in names.items()]
    (expression, *other_expressions) = names
    title = "Read the numbers before the call, and pass them"
    if not other_expressions and len(expression) <= MAX_TITLE_EXPRESSION_LENGTH:
        title = f"Read `{expression}` before the call, and pass it"
    crossed_conditions = conditions_before(site, function, list(reads))
    yield from propose_wrapping(
        FAMILY, title, site, function, ", ".join(names.values()), [*lines, RETURN], splices, crossed_conditions
    )


def _host_read_at(break_site: Site) -> _HostRead | None:
    """Return the read that moves a tensor's numbers to the host at a break; ``None`` if there is none."""
    for part in (break_site.node, *break_site.source.ancestors(break_site.node)):
        if isinstance(part, ast.stmt):
            return None
        tensor = tensor_moved_to_host(part) if isinstance(part, ast.expr) else None
        if tensor is None or not isinstance(part, ast.Call):
            continue
        name = called_name(part)
        while (inner := tensor_moved_to_host(tensor)) is not None:
            tensor = inner
        return (
            _HostRead(part, tensor, break_site.source.text_of(part), "{}")
            if name in {"item", "tolist", "int"}
            else None
        )
    return None


def _output_size_read(break_site: Site) -> _HostRead | None:
    """Return the read at a break in a ``repeat_interleave`` without an output size; ``None`` for other breaks."""
    call = break_site.source.enclosing_node(break_site.node, ast.Call)
    if call is None or called_name(call) != "repeat_interleave":
        return None
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    values = call.args if dotted_name(call.func) == "torch.repeat_interleave" else [owner, *call.args]
    values += [None] * (3 - len(values))
    parameters = zip(("input", "repeats", "dim"), values, strict=False)
    repeated_expression, repeats, dim = (keywords.get(name, value) for name, value in parameters)
    text = break_site.source.text_of(call)
    if repeats is None or "output_size" in keywords or None in keywords or text[:-1].rstrip().endswith(","):
        return None
    if repeated_expression is None or not all(isinstance(node, _PURE_NODES) for node in ast.walk(repeated_expression)):
        return None
    counts, tensor = (as_operand(break_site.source.text_of(node)) for node in (repeats, repeated_expression))
    length = f"{tensor}.size({break_site.source.text_of(dim)})" if dim is not None else f"{tensor}.numel()"
    # A single count applies to every element.
    size = f"{{}} * ({length} if {counts}.numel() == 1 else 1)"
    return _HostRead(call, repeats, f"int({counts}.sum())", f"{text[:-1]}, output_size={size})")


def _is_same_before_call(break_site: Site, function: FunctionNode, tensor: ast.expr) -> bool:
    """Return whether every call reads a tensor that the arguments determine before the call."""
    read_names = names_read(tensor)
    if not read_names & parameters_of(function) or read_names & (names_bound(function) | _changed_in_place(function)):
        return False
    for node in ast.walk(tensor):
        is_tensor_method = (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TENSOR_METHODS
        )
        if not is_tensor_method and not isinstance(node, _PURE_NODES):
            return False
    top_statement = break_site.statement
    for outer in break_site.source.ancestors(tensor):
        if outer is function:
            break
        is_in_iterable = isinstance(outer, ast.For) and any(tensor is node for node in ast.walk(outer.iter))
        if isinstance(outer, ast.stmt):
            top_statement = outer
        if not isinstance(outer, _NODES_EVALUATED_ONCE) and not is_in_iterable:
            return False
    if top_statement not in function.body:
        return False
    earlier_statements = function.body[: function.body.index(top_statement)]
    may_leave = (ast.Return, ast.Raise, ast.Assert, ast.Yield, ast.YieldFrom)
    return not any(isinstance(node, may_leave) for statement in earlier_statements for node in ast.walk(statement))


def _changed_in_place(function: FunctionNode) -> set[str]:
    """Return the names of objects that a function may change in place, for example by ``add_()`` or ``+=``."""
    names: set[str] = set()
    for node in ast.walk(function):
        is_target = isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load)
        is_in_place = isinstance(node, ast.Attribute) and node.attr.endswith("_") and not node.attr.endswith("__")
        if is_target or is_in_place:
            names |= names_read(node)
        if isinstance(node, ast.AugAssign):
            names |= names_read(node.target) | names_bound(node.target)
        if isinstance(node, ast.keyword) and node.arg == "out":
            names |= names_read(node.value)
    return names
