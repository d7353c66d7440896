"""Repeat the calls of an entry in their order on copies, and count what Dynamo compiles in each."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.compiled import CompilationCounts, compilation_counts, running_eagerly
from jupyter_graphbreak._torch_compat.configuration import applied_settings, eager_random_numbers
from jupyter_graphbreak._torch_compat.separate_cache import own_backend
from jupyter_graphbreak.experiments.trial.entry import recompiling
from jupyter_graphbreak.experiments.trial.inputs import Arguments
from jupyter_graphbreak.experiments.trial.outcome import run, sandboxed
from jupyter_graphbreak.experiments.trial.seen_calls import Container, Other, Path, Root, TensorSketch, state_roots
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.records.attributes import is_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from jupyter_graphbreak._torch_compat.call_modes import CallModes
    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.experiments.trial.outcome import Result
    from jupyter_graphbreak.experiments.trial.seen_calls import Place, Step

#: The name of a called module that has no name in the user's code.
DEFAULT_OWNER = "model"


class CannotRebuildError(Exception):
    """The arguments of a call cannot be created again from the recording."""


@dataclass(frozen=True)
class RepeatedCall:
    """A call to repeat.

    Parameters
    ----------
    arguments : mapping or None
        The sketches of its arguments by place; ``None`` for the first call, whose arguments were copied.
    state : mapping
        Plain values to assign before it, by place.
    what : str
        Its description in a sentence.
    is_unseen : bool
        Whether the run had no such call.
    keywords : frozenset of str
        The names of the arguments to pass by keyword.
    modes : CallModes or None
        Its modes; ``None`` for the entry's modes.
    """

    arguments: Mapping[Path, Any] | None
    state: Mapping[Path, Any] = field(default_factory=dict)
    what: str = ""
    is_unseen: bool = False
    keywords: frozenset[str] = frozenset()
    modes: CallModes | None = None


@dataclass(frozen=True)
class Adjustment:
    """A change under which calls are repeated.

    Parameters
    ----------
    lines : tuple of str
        The code that runs before each call, with the names of parameters, globals and the called module.
    tensors : tuple of Path
        The numbers that ``lines`` replace with tensors.
    dynamic : bool or None
        The argument of ``torch.compile``; ``None`` to keep the entry's.
    settings : mapping
        Full dotted names of settings, and their values.
    """

    lines: tuple[str, ...] = ()
    tensors: tuple[Path, ...] = ()
    dynamic: bool | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Replayed:
    """The results of repeated calls, and the code that Dynamo compiled in each of them."""

    results: list[Result]
    counts: list[CompilationCounts]

    def frames(self, calls: Sequence[RepeatedCall], *, unseen: bool) -> int:
        """Return the number of frames compiled in the calls of the run, or in the added calls."""
        pairs = zip(calls, self.counts, strict=True)
        return sum(count.frames for call, count in pairs if call.is_unseen is unseen)


def replay(
    entry: Entry, calls: Sequence[RepeatedCall], adjustment: Adjustment, owner: str | None, *, compiles: bool = True
) -> Replayed:
    """Repeat calls on one copy of an entry, in a fresh state of Dynamo.

    Parameters
    ----------
    entry : Entry
    calls : sequence of RepeatedCall
    adjustment : Adjustment
    owner : str or None
        The name of the called module in the user's code.
    compiles : bool
        Whether to compile the entry.
    """
    results: list[Result] = []
    counts: list[CompilationCounts] = []
    with sandboxed(), eager_random_numbers(), applied_settings(adjustment.settings):
        subject = Subject(entry.call, entry.arguments)
        given = subject.arguments or entry.arguments
        with recompiling(subject.call):
            dynamic = entry.dynamic if adjustment.dynamic is None else adjustment.dynamic
            compiled = (
                dataclasses.replace(entry, dynamic=dynamic).compile(subject.call, own_backend(entry.backend))
                if compiles and not entry.compiles_itself
                else subject.call
            )
            for call in calls:
                arguments = given if call.arguments is None else rebuilt_arguments(subject.call, call, given)
                before = compilation_counts()
                program = _program(compiled, subject, call, adjustment.lines, owner or DEFAULT_OWNER)
                with contextlib.nullcontext() if compiles else running_eagerly():
                    result = run(program, subject, arguments)
                counts.append(compilation_counts() - before)
                results.append(_with_numbers(result, adjustment.tensors) if adjustment.tensors else result)
    return Replayed(results, counts)


def _program(
    compiled: Callable[..., Any], subject: Subject, call: RepeatedCall, lines: tuple[str, ...], owner: str
) -> Callable[..., Any]:
    """Return a function that sets the state, runs the lines, and calls the compiled function in the modes of a call."""
    code = compile("\n".join(lines), "<before the call>", "exec")

    def program(*args: Any, **kwargs: Any) -> Any:
        arguments = Arguments(*args, **kwargs)
        roots = state_roots(subject.call, arguments)
        for path, value in call.state.items():
            _assign(roots, path, value)
        with call.modes.entered() if call.modes is not None else contextlib.nullcontext():
            if lines:
                arguments = run_lines(code, subject.call, arguments, roots, owner)
            return compiled(*arguments.args, **arguments.kwargs)

    return program


def run_lines(
    code: Any, call: Callable[..., Any], arguments: Arguments, roots: Mapping[Root, Place], owner: str
) -> Arguments:
    """Run code before a call; return the arguments to call it with."""
    named = arguments.named(call)
    state = {root.name: place for root, place in roots.items() if root.kind in {"global", "closure"}}
    names = {"torch": torch, **{name: place.read() for name, place in state.items()}, **named}
    module = next((place for root, place in roots.items() if root.kind == "module"), None)
    if module is not None:
        names[owner] = module.read()
    before = dict(names)
    exec(code, names)  # noqa: S102 - the lines of a remedy
    for name, place in state.items():
        if names[name] is not before[name]:
            place.write(names[name])
    changed = {name: names[name] for name in named}
    if all(changed[name] is named[name] for name in named):
        return arguments
    return bound_arguments(call, changed, arguments.kwargs)


def _assign(roots: Mapping[Root, Place], path: Path, value: Any) -> None:
    """Assign a plain value, unless the variable already has it."""
    place = roots.get(path.root)
    if place is None:
        return
    try:
        known: Any = place.read()
        for step in path.steps:
            known = _part(known, step)
        known = known.item() if is_instance(known, torch.Tensor) and not known.dim() else known
        if known is value or (type(known) is type(value) and known == value):
            return
        place.write(with_part(place.read(), path.steps, value))
    except (AttributeError, KeyError, IndexError, TypeError):
        return  # the state has changed its structure


def _part(value: Any, step: Step) -> Any:
    return getattr(value, step.key) if step.kind == "attribute" else value[step.key]


def with_part(value: Any, steps: Sequence[Step], new: Any) -> Any:
    """Return a value with a part replaced: the same object if it can be changed, a new tuple otherwise."""
    if not steps:
        return new
    step = steps[0]
    inner = with_part(_part(value, step), steps[1:], new)
    if is_instance(value, tuple):
        if step.kind == "attribute":
            return value._replace(**{step.key: inner})
        return tuple(inner if index == step.key else part for index, part in enumerate(value))
    if is_instance(value, functools.partial):
        changed = {"func": value.func, "args": value.args, "keywords": value.keywords, step.key: inner}
        value.__setstate__((*changed.values(), vars(value)))
    elif step.kind == "attribute":
        if getattr(value, step.key) is not inner:
            setattr(value, step.key, inner)
    else:
        value[step.key] = inner
    return value


def _with_numbers(result: Result, paths: Sequence[Path]) -> Result:
    """Return a result in which numbers that were replaced with tensors are numbers again, for comparison."""
    arguments, state = dict(result.arguments), dict(result.state)
    for path in paths:
        holder, name = (arguments, path.root.name) if path.root.kind == "argument" else (state, path.root.name)
        if name not in holder:
            continue
        try:
            value: Any = holder[name]
            for step in path.steps:
                value = _part(value, step)
            if is_instance(value, torch.Tensor) and value.dim() <= 1:  # a number, or a list of numbers
                holder[name] = with_part(holder[name], path.steps, value.tolist())
        except (AttributeError, KeyError, IndexError, TypeError):
            continue
    return replace(result, arguments=arguments, state=state)


def bound_arguments(call: Callable[..., Any], named: Mapping[str, Any], keywords: Collection[str]) -> Arguments:
    """Return arguments given by parameter name, positional as far as the signature allows.

    Parameters
    ----------
    call : callable
    named : mapping
        The arguments by parameter name.
    keywords : collection of str
        The names of those to pass by keyword, as Dynamo's wrapper around modules distinguishes them.
    """
    try:
        signature = inspect.signature(getattr(call, "forward", call))
    except (TypeError, ValueError):
        return _unnamed(named)
    if not named.keys() <= signature.parameters.keys():
        return _unnamed(named)
    bound = signature.bind_partial()
    bound.arguments.update({name: named[name] for name in signature.parameters if name in named})
    names = list(signature.parameters)
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in signature.parameters.values()):
        return Arguments(*bound.args, **bound.kwargs)
    first = min((names.index(name) for name in keywords if name in names), default=len(names))
    positional = bound.args[:first]
    return Arguments(
        *positional, **dict(zip(names[len(positional) :], bound.args[first:], strict=False)), **bound.kwargs
    )


def _unnamed(named: Mapping[str, Any]) -> Arguments:
    positional = [value for name, value in named.items() if name.startswith("argument ")]
    return Arguments(*positional, **{name: value for name, value in named.items() if not name.startswith("argument ")})


def rebuilt_arguments(call: Callable[..., Any], repeated: RepeatedCall, given: Arguments) -> Arguments:
    """Return the arguments of a call, made from their sketches and from the arguments of the first call.

    Raises
    ------
    CannotRebuildError
        If they contain anything but tensors, plain values, containers of these, and objects of the first call.
    """
    sketches = repeated.arguments or {}
    first = given.named(call)
    tensors: dict[int, torch.Tensor] = {}

    def build(path: Path, known: Any) -> Any:
        sketch = sketches[path]
        match sketch:
            case TensorSketch():
                if sketch.number not in tensors:
                    tensors[sketch.number] = tensor_of(sketch, known)
                return tensors[sketch.number]
            case Container():
                return _built_container(sketch, path, known, build)
            case Other():
                if type(known) is not sketch.kind:
                    raise CannotRebuildError(f"{path} is an object that cannot be made again")
                return known
        return sketch

    defaults = _defaults(call)
    names = [
        path.root.name
        for path, sketch in sketches.items()
        if not path.steps
        # A frame has the defaults of arguments that the call left out, but a wrapper would be compiled again for them.
        and not (
            path.root.name in defaults.keys() - first.keys() - repeated.keywords and sketch is defaults[path.root.name]
        )
    ]
    built = {name: build(Path(Root("argument", name)), first.get(name)) for name in names}
    if "self" in first:
        built.setdefault("self", first["self"])
    return bound_arguments(call, built, repeated.keywords)


def _defaults(call: Callable[..., Any]) -> dict[str, Any]:
    """Return the defaults of a function's or a module's parameters."""
    try:
        parameters = inspect.signature(getattr(call, "forward", call)).parameters
    except (TypeError, ValueError):
        return {}
    return {name: known.default for name, known in parameters.items() if known.default is not known.empty}


def _built_container(sketch: Container, path: Path, known: Any, build: Callable[[Path, Any], Any]) -> Any:
    kind = sketch.kind
    if kind is functools.partial:
        func, args, keywords = (build(path.into("attribute", key), getattr(known, key, None)) for key in sketch.keys)
        return functools.partial(func, *args, **keywords)
    if hasattr(kind, "_fields"):
        return kind(*(build(path.into("attribute", key), getattr(known, key, None)) for key in sketch.keys))
    if dataclasses.is_dataclass(kind) and type(known) is kind:
        built = copy.copy(known)
        for key in sketch.keys:
            object.__setattr__(built, key, build(path.into("attribute", key), getattr(known, key, None)))
        return built
    if issubclass(kind, list | tuple):
        at = [
            known[index] if is_instance(known, list | tuple) and index < len(known) else None for index in sketch.keys
        ]
        return kind(build(path.into("item", index), part) for index, part in zip(sketch.keys, at, strict=True))
    if kind is dict:
        parts = known if is_instance(known, dict) else {}
        return {key: build(path.into("item", key), parts.get(key)) for key in sketch.keys}
    if type(known) is kind:
        return known
    raise CannotRebuildError(f"{path} is an object that cannot be made again")


def tensor_of(sketch: TensorSketch, known: Any) -> torch.Tensor:
    """Return a tensor for a sketch: its data, the data of a known tensor in other sizes, or random numbers."""
    with torch.no_grad():
        if sketch.data is not None:
            tensor = sketch.data.clone()
        elif is_instance(known, torch.Tensor) and known.dtype == sketch.dtype:
            tensor = resized(known.detach(), sketch.shape)
        elif sketch.dtype.is_floating_point:
            generator = torch.Generator().manual_seed(0)
            tensor = torch.randn(sketch.shape, generator=generator).to(sketch.device, sketch.dtype)
        else:
            tensor = torch.zeros(sketch.shape, dtype=sketch.dtype, device=sketch.device)
    return tensor.requires_grad_(sketch.requires_grad)


def resized(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return a copy of a tensor in a different shape; its values repeat."""
    if tensor.dim() != len(shape):
        count = 1
        for size in shape:
            count *= size
        flat = tensor.reshape(-1)
        index = torch.arange(count, device=tensor.device) % max(1, flat.numel())
        return flat[index].reshape(tuple(shape)) if flat.numel() else tensor.new_zeros(tuple(shape))
    for dim, size in enumerate(shape):
        if tensor.shape[dim] != size:
            if not tensor.shape[dim]:
                return tensor.new_zeros(tuple(shape))
            index = torch.arange(size, device=tensor.device) % tensor.shape[dim]
            tensor = tensor.index_select(dim, index)
    return tensor.clone()
