"""Rebuild the arguments of a recorded call from their specs."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import math
import types
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.call_specs import ContainerSpec, OpaqueSpec, Path, Root, TensorSpec
from jupyter_graphbreak.experiments.trial.code_hints import default_values
from jupyter_graphbreak.records.attributes import is_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from jupyter_graphbreak.experiments.trial.call_specs import CallSpec

#: Types whose objects are not interchangeable, because each object does something different.
_CALLABLE_TYPES = types.FunctionType | types.BuiltinFunctionType | types.MethodType | type


class CannotRebuildError(Exception):
    """The arguments of a call cannot be created again from the recording."""


def can_be_rebuilt(call: CallSpec, first_call: CallSpec) -> bool:
    """Return whether the arguments of a call can be rebuilt from its specs and the first call's arguments."""
    for path, spec in call.arguments.items():
        original = first_call.arguments.get(path)
        if isinstance(spec, OpaqueSpec) and not (isinstance(original, OpaqueSpec) and _can_stand_for(original, spec)):
            return False
        is_rebuilt = isinstance(spec, ContainerSpec) and issubclass(
            spec.class_, list | tuple | dict | functools.partial
        )
        if isinstance(spec, ContainerSpec) and not is_rebuilt and original != spec:
            return False
    return True


def _can_stand_for(original: OpaqueSpec, spec: OpaqueSpec) -> bool:
    """Return whether an object of the first call can be passed again in place of one of a later call."""
    return original.class_ is spec.class_ and (
        original.identity == spec.identity or not issubclass(spec.class_, _CALLABLE_TYPES)
    )


def bind_arguments(
    fn: Callable[..., Any], arguments_by_name: Mapping[str, Any], keyword_names: Collection[str]
) -> Arguments:
    """Return the arguments of a call, by position as far as the signature and ``keyword_names`` allow.

    ``keyword_names`` contains the arguments to pass by keyword: Dynamo's wrapper around modules distinguishes them.
    """
    try:
        signature = inspect.signature(getattr(fn, "forward", fn))
    except (TypeError, ValueError):
        return _arguments_without_signature(arguments_by_name)
    if not arguments_by_name.keys() <= signature.parameters.keys():
        return _arguments_without_signature(arguments_by_name)
    bound = signature.bind_partial()
    bound.arguments.update(
        {name: arguments_by_name[name] for name in signature.parameters if name in arguments_by_name}
    )
    names = list(signature.parameters)
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in signature.parameters.values()):
        return Arguments(*bound.args, **bound.kwargs)
    first_keyword = min((names.index(name) for name in keyword_names if name in names), default=len(names))
    positional_values = bound.args[:first_keyword]
    return Arguments(
        *positional_values,
        **dict(zip(names[len(positional_values) :], bound.args[first_keyword:], strict=False)),
        **bound.kwargs,
    )


def _arguments_without_signature(arguments_by_name: Mapping[str, Any]) -> Arguments:
    positional_values = [value for name, value in arguments_by_name.items() if name.startswith("argument ")]
    return Arguments(
        *positional_values,
        **{name: value for name, value in arguments_by_name.items() if not name.startswith("argument ")},
    )


def rebuild_arguments(
    fn: Callable[..., Any], specs: Mapping[Path, Any], keyword_names: frozenset[str], first_arguments: Arguments
) -> Arguments:
    """Return the arguments of a call, rebuilt from their specs and from the arguments of the first call.

    A CannotRebuildError is raised if the arguments contain anything but tensors, plain values, containers of these, and
    objects of the first call.
    """
    first_values = first_arguments.by_name(fn)
    tensors: dict[int, torch.Tensor] = {}

    def build(path: Path, original: Any) -> Any:
        spec = specs[path]
        match spec:
            case TensorSpec():
                if spec.number not in tensors:
                    tensors[spec.number] = make_tensor(spec, original)
                return tensors[spec.number]
            case ContainerSpec():
                return _build_container(spec, path, original, build)
            case OpaqueSpec():
                if type(original) is not spec.class_:
                    raise CannotRebuildError(f"{path} is an object that cannot be created again")
                return original
        return spec

    defaults = default_values(fn)
    names = [
        path.root.name
        for path, spec in specs.items()
        if not path.steps
        # A frame has the defaults for arguments that the call left out, but passing them would recompile a wrapper.
        and not (
            path.root.name in defaults.keys() - first_values.keys() - keyword_names and spec is defaults[path.root.name]
        )
    ]
    arguments_by_name = {name: build(Path(Root("argument", name)), first_values.get(name)) for name in names}
    if "self" in first_values:
        arguments_by_name.setdefault("self", first_values["self"])
    return bind_arguments(fn, arguments_by_name, keyword_names)


def _build_container(spec: ContainerSpec, path: Path, original: Any, build: Callable[[Path, Any], Any]) -> Any:
    cls = spec.class_
    if cls is functools.partial:
        func, args, keywords = (build(path.child("attribute", key), getattr(original, key, None)) for key in spec.keys)
        return functools.partial(func, *args, **keywords)
    if hasattr(cls, "_fields"):
        return cls(*(build(path.child("attribute", key), getattr(original, key, None)) for key in spec.keys))
    if cls is not dict and issubclass(cls, MutableMapping) and type(original) is cls:
        return _rebuild_mapping(spec, path, original, build)
    if dataclasses.is_dataclass(cls) and type(original) is cls:
        instance = copy.copy(original)
        for key in spec.keys:
            object.__setattr__(instance, key, build(path.child("attribute", key), getattr(original, key, None)))
        return instance
    if issubclass(cls, list | tuple):
        originals = [
            original[index] if is_instance(original, list | tuple) and index < len(original) else None
            for index in spec.keys
        ]
        return cls(build(path.child("item", index), part) for index, part in zip(spec.keys, originals, strict=True))
    if cls is dict:
        original_items = original if is_instance(original, dict) else {}
        return {key: build(path.child("item", key), original_items.get(key)) for key in spec.keys}
    if type(original) is cls:
        return original
    raise CannotRebuildError(f"{path} is an object that cannot be created again")


def _rebuild_mapping(spec: ContainerSpec, path: Path, original: Any, build: Callable[[Path, Any], Any]) -> Any:
    """Return a copy of the first call's mapping with new items, for a class such as transformers' ``ModelOutput``."""
    if {key for key in original if isinstance(key, str | int)} != set(spec.keys):
        raise CannotRebuildError(f"{path} has different keys than in the first call")
    mapping = copy.copy(original)
    for key in spec.keys:
        mapping[key] = build(path.child("item", key), original[key])
    return mapping


def make_tensor(spec: TensorSpec, original: Any) -> torch.Tensor:
    """Return a tensor for a spec.

    The elements are the spec's data. If the spec has no data, they are those of the first call's tensor, repeated or
    cut off, if that tensor has the same dtype. Otherwise they are random numbers for a floating-point dtype, and zeros
    for any other dtype.
    """
    with torch.no_grad():
        if spec.data is not None:
            tensor = spec.data.clone()
        elif is_instance(original, torch.Tensor) and original.dtype == spec.dtype:
            tensor = repeat_to_shape(original.detach(), spec.shape)
        elif spec.dtype.is_floating_point:
            generator = torch.Generator().manual_seed(0)
            tensor = torch.randn(spec.shape, generator=generator).to(spec.device, spec.dtype)
        else:
            tensor = torch.zeros(spec.shape, dtype=spec.dtype, device=spec.device)
    return tensor.requires_grad_(spec.requires_grad)


def repeat_to_shape(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return a copy of a tensor in a new shape, with values repeated or cut off, or zeros if the tensor is empty."""
    if tensor.dim() != len(shape):
        flat = tensor.reshape(-1)
        index = torch.arange(math.prod(shape), device=tensor.device) % max(1, flat.numel())
        return flat[index].reshape(tuple(shape)) if flat.numel() else tensor.new_zeros(tuple(shape))
    for dim, size in enumerate(shape):
        if tensor.shape[dim] != size:
            if not tensor.shape[dim]:
                return tensor.new_zeros(tuple(shape))
            index = torch.arange(size, device=tensor.device) % tensor.shape[dim]
            tensor = tensor.index_select(dim, index)
    return tensor.clone()
