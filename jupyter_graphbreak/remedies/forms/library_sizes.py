"""How models of transformers get sizes as numbers: hooks that read them before the compiled function begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.knowledge.lookup import known_cause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.remedies.proposal import Problem

_PACKAGE = "transformers/"
_GRIDS_TITLE = "Compute what depends on grids alone before the call, and hand their numbers in"
_GRIDS = '''\
import contextlib
import inspect
import json

import torch
from transformers import vision_utils


class Sizes(torch.Tensor):
    """Integers known before the call; what is read or computed of them is known while compiling, too.

    Their text is guarded: other numbers are compiled anew.
    """

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name, kwargs = function.__name__, kwargs or {}
        if name in {"tolist", "item", "__int__", "__index__"}:
            return numbers_in(args[0].text)
        operands = [*args, *kwargs.values()]
        if name in {"__getitem__", "__sub__", "sub", "__floordiv__", "prod"} and all(map(is_known, operands)):
            named = tuple([(key, said(value)) for key, value in kwargs.items()])
            return sizes_of(computed(name, tuple([said(value) for value in args]), named))
        with torch._C.DisableTorchFunctionSubclass():
            return function(*map(plain, args), **{key: plain(value) for key, value in kwargs.items()})


def is_known(value):
    if isinstance(value, slice):
        return is_known(value.start) and is_known(value.stop) and is_known(value.step)
    return value is None or isinstance(value, Sizes) or type(value) is int


def said(value):
    if isinstance(value, Sizes):
        return value.text
    return ("slice", value.start, value.stop, value.step) if isinstance(value, slice) else value


def plain(value):
    if isinstance(value, Sizes):
        return tensor_of(value.text)
    return type(value)([plain(each) for each in value]) if type(value) in (list, tuple) else value


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
def computed(name, args, kwargs):
    def made(value):
        if isinstance(value, str):
            return torch.tensor(numbers_in(value), dtype=dtype_in(value))
        return slice(*value[1:]) if isinstance(value, tuple) else value

    result = getattr(torch.Tensor, name)(*map(made, args), **dict(kwargs))
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
    given = {**bound.arguments, **bound.arguments.get("kwargs", {})}
    for name in ("self", "kwargs"):
        given.pop(name, None)
    return (), {**from_grids(module.model, given), **given_sizes(given)}


def given_sizes(given):
    names = [name for name in ("image_grid_thw", "video_grid_thw") if given.get(name) is not None]
    return {name: sizes_of(text_of(given[name])) for name in names}


def from_grids(inner, given):
    made = dict(given)
    vision = getattr(inner, "visual", None) or inner.vision_model
    grids = {kind: given.get(f"{kind}_grid_thw") for kind in ("image", "video")}
    for kind, grid in grids.items():
        for name, value in of_vision(vision, grid).items() if grid is not None else ():
            lengths = sizes_of(text_of(value)) if "seqlens" in name else value
            made.setdefault(f"{kind}_{name}", lengths)
    compute = getattr(inner, "compute_3d_position_ids", None)
    is_first = given.get("position_ids") is None and given.get("past_key_values") is None
    needed = [given.get(name) for name in ("input_ids", "mm_token_type_ids")]
    has_grid = any(grid is not None for grid in grids.values())
    if compute is not None and is_first and has_grid and all(each is not None for each in needed):
        names = inspect.signature(compute).parameters
        with contextlib.suppress(Exception):  # the model says first what else is wrong with its arguments
            made["position_ids"] = compute(**{name: given.get(name) for name in names})
    return made


def of_vision(vision, grid):
    merge = vision.spatial_merge_size
    made = {}
    if hasattr(vision, "num_grid_per_side"):
        how = (vision.num_grid_per_side, vision.interpolation_mode, vision.interpolation_align_corners, merge)
        interpolation = vision_utils.get_vision_interpolation_indices_and_weights(grid, *how)
        made["interp_indices"], made["interp_weights"] = interpolation
    made["position_ids"] = vision_utils.get_vision_position_ids(grid, merge)
    made["cu_seqlens"] = vision_utils.get_vision_cu_seqlens(grid)
    if hasattr(vision, "window_size"):
        window = vision_utils.get_vision_window_index(grid, merge, vision.window_size, vision.patch_size)
        made["window_index"], made["cu_window_seqlens"] = window
    return made


model.register_forward_pre_hook(compute_from_grids, with_kwargs=True)'''
_LISTS_TITLE = "Hand the sizes of images in as numbers"
_LISTS = """\
import inspect

import torch


@torch.compiler.disable
def hand_in_numbers(module, args, kwargs):
    bound = inspect.signature(type(module).forward).bind(module, *args, **kwargs)
    given = {**bound.arguments, **bound.arguments.get("kwargs", {})}
    for name in ("self", "kwargs"):
        given.pop(name, None)
    if isinstance(given.get("image_sizes"), torch.Tensor):
        given["image_sizes"] = given["image_sizes"].tolist()
    return (), given


model.register_forward_pre_hook(hand_in_numbers, with_kwargs=True)"""
_THROUGH_TITLE = "Call forward through a function that passes everything on"
# What binds a signature breaks where arguments of the compiled function itself were changed before.
_THROUGH = """\
import functools
import types


@functools.wraps(type(model).forward)
def forward(self, *args, **kwargs):
    return type(self).forward(self, *args, **kwargs)


model.forward = types.MethodType(forward, model)"""

#: The codes of all.
SWITCHES = (_GRIDS, _LISTS, _THROUGH)


def switches_for(problem: Problem) -> Iterator[tuple[str, str]]:
    """Yield titles and codes of what has a model of transformers know its sizes."""
    found = problem.break_
    places = [place for place in (found.location, *found.stack) if place is not None]
    paths = {source.id: source.path or "" for source in problem.report.sources if source.kind == "library"}
    texts = [problem.texts.get(place.source, "") for place in places if _PACKAGE in paths.get(place.source, "")]
    if not texts:
        return
    rewrites = known_cause(found.gb_id, found.gb_type).rewrites
    if "wrap forward" in rewrites and any("signature.bind(" in (place.code or "") for place in places):
        yield _THROUGH_TITLE, _THROUGH
    if "pass sizes as numbers" in rewrites:
        if any("image_grid_thw" in text for text in texts):
            yield _GRIDS_TITLE, _GRIDS
        elif any("image_sizes" in text for text in texts):
            yield _LISTS_TITLE, _LISTS
