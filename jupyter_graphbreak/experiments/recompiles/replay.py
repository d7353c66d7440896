"""Repeat the calls to an entry on copies, in the order of the run, and count the compilations of each call."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.compiled import CompilationCounts, force_eager_on_thread, watch_compilations
from jupyter_graphbreak._torch_compat.configuration import apply_settings, use_eager_random_numbers
from jupyter_graphbreak._torch_compat.separate_cache import clone_backend
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.call_specs import Path, Root, state_roots
from jupyter_graphbreak.experiments.trial.entry import compile_separately
from jupyter_graphbreak.experiments.trial.outcome import run, sandbox_runs
from jupyter_graphbreak.experiments.trial.rebuilt_calls import bind_arguments, rebuild_arguments
from jupyter_graphbreak.experiments.trial.rounding import add_noise_to_parameters
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.records.attributes import is_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jupyter_graphbreak._torch_compat.call_modes import CallModes
    from jupyter_graphbreak.experiments.trial.call_specs import PathStep
    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.experiments.trial.outcome import Result
    from jupyter_graphbreak.experiments.trial.swapped_bindings import Binding

#: The name of a called module that has no name in the user's code.
DEFAULT_OWNER = "model"


@dataclass(frozen=True)
class RepeatedCall:
    """A call to repeat. It is unseen if the run did not make it.

    ``arguments`` contains the specs by path; ``None`` for the first call: its arguments were copied. ``state``
    contains plain values to assign before the call. ``description`` is the phrase for the call in a sentence: "call 2".
    """

    arguments: Mapping[Path, Any] | None
    state: Mapping[Path, Any]
    description: str
    keyword_names: frozenset[str]
    modes: CallModes
    is_unseen: bool = False


@dataclass(frozen=True)
class Adjustment:
    """A change to make when calls are repeated.

    ``lines`` run before each call; they can use parameters, globals and the called module by name, and they replace the
    numbers at the paths ``replaced_numbers`` with tensors. If ``dynamic`` is ``None``, the entry's value is kept.
    """

    lines: tuple[str, ...] = ()
    replaced_numbers: tuple[Path, ...] = ()
    dynamic: bool | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ReplayResult:
    """The results of repeated calls, and how much Dynamo compiled on each call."""

    results: list[Result]
    counts: list[CompilationCounts]

    def count_frames(self, calls: Sequence[RepeatedCall], *, is_unseen: bool) -> int:
        """Return the number of frames compiled in the calls of the run, or in the calls that the run did not make."""
        pairs = zip(calls, self.counts, strict=True)
        return sum(count.frames for call, count in pairs if call.is_unseen is is_unseen)


def replay(
    entry: Entry,
    calls: Sequence[RepeatedCall],
    adjustment: Adjustment,
    owner: str | None,
    *,
    compiles: bool = True,
    adds_noise: bool = False,
) -> ReplayResult:
    """Repeat calls on one copy of an entry, with fresh Dynamo state.

    With ``adds_noise``, the parameters are first changed by rounding errors; without parameters, no call is repeated.
    """
    results: list[Result] = []
    counts: list[CompilationCounts] = []
    with sandbox_runs(), use_eager_random_numbers(), apply_settings(adjustment.settings):
        subject = Subject(entry.function, entry.arguments)
        original_arguments = subject.arguments or entry.arguments
        noise = add_noise_to_parameters(subject) if adds_noise else contextlib.nullcontext(enter_result=True)
        with noise as can_repeat, compile_separately(subject.function), watch_compilations() as counts_so_far:
            dynamic = entry.dynamic if adjustment.dynamic is None else adjustment.dynamic
            compiled = (
                dataclasses.replace(entry, dynamic=dynamic).compile(subject.function, clone_backend(entry.backend))
                if compiles and not entry.compiles_inner_function
                else subject.function
            )
            for call in calls if can_repeat else ():
                arguments = (
                    original_arguments
                    if call.arguments is None
                    else rebuild_arguments(subject.function, call.arguments, call.keyword_names, original_arguments)
                )
                counts_before = counts_so_far()
                program = _make_program(compiled, subject, call, adjustment.lines, owner or DEFAULT_OWNER)
                with contextlib.nullcontext() if compiles else force_eager_on_thread():
                    result = run(program, subject, arguments)
                counts.append(counts_so_far() - counts_before)
                results.append(
                    _restore_numbers(result, adjustment.replaced_numbers) if adjustment.replaced_numbers else result
                )
    return ReplayResult(results, counts)


def _make_program(
    compiled: Callable[..., Any], subject: Subject, call: RepeatedCall, lines: tuple[str, ...], owner: str
) -> Callable[..., Any]:
    """Return a function that sets the state, runs the lines, and calls the compiled function in the modes of a call."""
    code = compile("\n".join(lines), "<before the call>", "exec")

    def program(*args: Any, **kwargs: Any) -> Any:
        arguments = Arguments(*args, **kwargs)
        roots = state_roots(subject.function, arguments)
        for path, value in call.state.items():
            _assign(roots, path, value)
        with call.modes.apply():
            if lines:
                arguments = run_lines(code, subject.function, arguments, roots, owner)
            return compiled(*arguments.args, **arguments.kwargs)

    return program


def run_lines(
    code: Any, function: Callable[..., Any], arguments: Arguments, roots: Mapping[Root, Binding], owner: str
) -> Arguments:
    """Run the code that precedes a call, and return the arguments for the call."""
    arguments_by_name = arguments.by_name(function)
    state = {root.name: binding for root, binding in roots.items() if root.kind in {"global", "closure"}}
    names = {"torch": torch, **{name: binding.read() for name, binding in state.items()}, **arguments_by_name}
    module = next((binding for root, binding in roots.items() if root.kind == "module"), None)
    if module is not None:
        names[owner] = module.read()
    names_before = dict(names)
    exec(code, names)  # noqa: S102 - runs the lines of a remedy
    for name, binding in state.items():
        if names[name] is not names_before[name]:
            binding.write(names[name])
    new_arguments = {name: names[name] for name in arguments_by_name}
    if all(new_arguments[name] is arguments_by_name[name] for name in arguments_by_name):
        return arguments
    return bind_arguments(function, new_arguments, arguments.kwargs)


def _assign(roots: Mapping[Root, Binding], path: Path, value: Any) -> None:
    """Assign a plain value to a path of the state, unless the path already has this value."""
    binding = roots.get(path.root)
    if binding is None:
        return
    try:
        current: Any = binding.read()
        for step in path.steps:
            current = _get_part(current, step)
        current = current.item() if is_instance(current, torch.Tensor) and not current.dim() else current
        if current is value or (type(current) is type(value) and current == value):
            return
        binding.write(replace_part(binding.read(), path.steps, value))
    except (AttributeError, KeyError, IndexError, TypeError):
        return  # the structure of the state has changed


def _get_part(value: Any, step: PathStep) -> Any:
    return getattr(value, step.key) if step.kind == "attribute" else value[step.key]


def replace_part(value: Any, steps: Sequence[PathStep], new_part: Any) -> Any:
    """Return a value with a part replaced: the same object if it can be changed in place, a new tuple otherwise."""
    if not steps:
        return new_part
    step = steps[0]
    inner = replace_part(_get_part(value, step), steps[1:], new_part)
    if is_instance(value, tuple):
        if step.kind == "attribute":
            return value._replace(**{step.key: inner})
        return tuple(inner if index == step.key else part for index, part in enumerate(value))
    if is_instance(value, functools.partial):
        new_members = {"func": value.func, "args": value.args, "keywords": value.keywords, step.key: inner}
        value.__setstate__((*new_members.values(), vars(value)))
    elif step.kind == "attribute":
        if getattr(value, step.key) is not inner:
            setattr(value, step.key, inner)
    else:
        value[step.key] = inner
    return value


def _restore_numbers(result: Result, paths: Sequence[Path]) -> Result:
    """Return a result in which tensors that replaced numbers are numbers again, for comparison."""
    arguments, state = dict(result.arguments), dict(result.state)
    for path in paths:
        holder, name = (arguments, path.root.name) if path.root.kind == "argument" else (state, path.root.name)
        if name not in holder:
            continue
        try:
            value: Any = holder[name]
            for step in path.steps:
                value = _get_part(value, step)
            if is_instance(value, torch.Tensor) and value.dim() <= 1:  # a number, or a list of numbers
                holder[name] = replace_part(holder[name], path.steps, value.tolist())
        except (AttributeError, KeyError, IndexError, TypeError):
            continue
    return replace(result, arguments=arguments, state=state)
