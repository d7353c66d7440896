"""Run a function and observe everything it does."""

from __future__ import annotations

import contextlib
import dis
import functools
import io
import random
import sys
import types
from collections import defaultdict
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from jupyter_graphbreak._torch_compat.call_modes import leave_autocast_contexts
from jupyter_graphbreak._torch_compat.configuration import hide_compiler_logs
from jupyter_graphbreak._torch_compat.separate_cache import confine_fx_tracing, forget_new_backends
from jupyter_graphbreak._torch_compat.tensor_values import disable_gradients_and_overrides, in_place_change_count
from jupyter_graphbreak.experiments.trial.copies import clone, is_large
from jupyter_graphbreak.experiments.trial.effects import (
    Effects,
    allow_repeated_warnings,
    capture_effects,
    current_modes,
    preserve_random_generators,
    random_states,
    seed_all,
    suppress_displays,
    suppress_logging,
)
from jupyter_graphbreak.experiments.trial.guard import prevent_effects
from jupyter_graphbreak.experiments.trial.named_objects import RESULT_PATH, memory_address, named_objects
from jupyter_graphbreak.experiments.trial.other_threads import redirect_thread_streams
from jupyter_graphbreak.experiments.trial.stand_ins import remember_streams
from jupyter_graphbreak.experiments.trial.time_limit import measure_run, require_time
from jupyter_graphbreak.experiments.trial.values import YieldedItems
from jupyter_graphbreak.records.attributes import is_instance
from jupyter_graphbreak.records.package_paths import OWN_FOLDER, is_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from jupyter_graphbreak.experiments.trial.arguments import Arguments
    from jupyter_graphbreak.experiments.trial.subject import Subject

#: If a function runs more lines for an input, the input is skipped, because the function may loop forever.
_MAX_LINES = 20_000
#: The instructions that start an iteration of a loop over an iterator. Such a loop usually ends.
_ITERATION_OPCODES = {dis.opmap["FOR_ITER"], dis.opmap["SEND"]}
#: The maximum number of recorded paths for an alias.
_MAX_ALIAS_PATHS = 20
_differentiates_twice: ContextVar[bool] = ContextVar("differentiates_twice", default=False)


class Layout(NamedTuple):
    """The class of a tensor, and its strides in dimensions with several elements, if it is dense and not empty."""

    class_: type
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Result:
    """The observed outcome of one call.

    A path is a name such as "the result[0]", "the argument x" or "the parameter fc.weight".
    """

    value: Any = None
    error: Exception | None = None
    #: The arguments and everything else that the call may have changed, as they were after the call, by name.
    arguments: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    effects: Effects = field(default_factory=Effects)
    #: Whether each tensor of the result, the arguments and the state requires a gradient, by path.
    requires_grad: dict[str, bool] = field(default_factory=dict)
    #: The ``.grad`` that the call left on each leaf, by path.
    leaf_grads: dict[str, torch.Tensor | None] = field(default_factory=dict)
    #: The gradient of each leaf from one backward pass through all results, by path, or ``None`` for a leaf without a
    #: gradient. Instead of a dict, ``None`` if there was no backward pass: nothing requires a gradient, the call raised
    #: an exception or ran in inference mode, or no backward pass was requested. Within :func:`differentiate_twice`,
    #: these are second derivatives.
    gradients: dict[str, torch.Tensor | None] | None = None
    backward_error: Exception | None = None
    #: The state before all runs, by name.
    state_before: dict[str, Any] = field(default_factory=dict)
    #: The paths of all objects of the result, the arguments and the state.
    paths: frozenset[str] = frozenset()
    #: For each path whose object or memory also appears at earlier paths: the relation ("is" or "shares memory with")
    #: and those paths.
    aliases: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    #: Digests of the states of the random generators, and PyTorch's modes, after the call.
    random: dict[str, str] = field(default_factory=dict)
    modes: dict[str, Any] = field(default_factory=dict)
    #: The class and the strides of each tensor of the result, by path.
    layouts: dict[str, Layout] = field(default_factory=dict)
    #: Whether the call changed a tensor in place, for each path that has the same tensor as before the call.
    changed_in_place: dict[str, bool] = field(default_factory=dict)

    @property
    def stdout(self) -> str:
        """The text written to stdout."""
        return self.effects.stdout


def run(
    program: Callable[..., Any], subject: Subject, arguments: Arguments, seed: int = 0, *, runs_backward: bool = True
) -> Result:
    """Call a program with copies of arguments and with seeded random generators, and return the outcome.

    Arguments that are part of the subject's state are not copied, because :meth:`Subject.restore` restores them. The
    subject is the copied function that the program is, or that it comes from. A TrialStoppedError is raised if the
    program was stopped before it had an effect outside its copies, or if it changed the process's state, and a
    TimeUpError if the time limit has passed.
    """
    require_time("call")
    copies = subject.copy_arguments(arguments)
    line_counter = _active_trace_function()
    with (
        # The limit is only for the program: tracing would double the time for reading the state of the process.
        _set_trace_function(None) if line_counter is not None else contextlib.nullcontext(),
        subject.activate(),
        torch.set_grad_enabled(torch.is_grad_enabled()),  # restores the mode on exit
        capture_effects(subject.handlers, subject.filters) as effects,
        subject.prevent_effects(program),
    ):
        seed_all(seed)
        tensors_before = _tensors_with_change_counts(copies, subject)
        value, error = _call(program, copies, line_counter)
        random_after, modes_after = random_states(), current_modes()
        values_after = {RESULT_PATH: value, **copies.by_name(subject.function)}
        tensors, facts = _observe_objects(value, copies, subject, tensors_before)
        gradients, backward_error = None, None
        if runs_backward and error is None and not torch.is_inference_mode_enabled():
            gradients, backward_error = _run_backward(tensors)
    memo = subject.unchanged_memo()
    values_after = {name: subject.snapshot(item, memo) for name, item in values_after.items()}
    return Result(
        values_after.pop(RESULT_PATH), error, values_after, subject.state(memo), effects, gradients=gradients,
        backward_error=backward_error, state_before=subject.initial_state, random=random_after, modes=modes_after,
        **facts,
    )  # fmt: skip


def _tensors_with_change_counts(arguments: Arguments, subject: Subject) -> dict[str, tuple[torch.Tensor, Any]]:
    """Return the tensors that a call may change, by path, each with the number of its in-place changes so far."""
    with disable_gradients_and_overrides():
        return {
            path: (item, in_place_change_count(item))
            for path, item in _all_objects(None, arguments.by_name(subject.function), subject)
            if is_instance(item, torch.Tensor)
        }


def _call(program: Callable[..., Any], arguments: Arguments, line_counter: Any) -> tuple[Any, Exception | None]:
    """Call a program, run a returned generator to its end, and return the value and the exception."""
    try:
        with (
            _set_trace_function(line_counter) if line_counter is not None else contextlib.nullcontext(),
            measure_run("call"),
            leave_autocast_contexts(),
        ):
            value = program(*arguments.args, **arguments.kwargs)
            return YieldedItems(list(value)) if is_instance(value, types.GeneratorType) else value, None
    except Exception as error:  # noqa: BLE001 - the exception is the finding
        return None, error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None)


@disable_gradients_and_overrides()
def _observe_objects(
    value: Any, arguments: Arguments, subject: Subject, tensors_before: Mapping[str, tuple[torch.Tensor, Any]]
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the tensors after a call and before its backward pass, and the fields of :class:`Result` about objects.

    ``tensors_before`` were found before the call; see :func:`_tensors_with_change_counts`.
    """
    objects = list(_all_objects(value, arguments.by_name(subject.function), subject))
    tensors = {path: item for path, item in objects if is_instance(item, torch.Tensor)}
    return tensors, {
        "paths": frozenset(path for path, _ in objects),
        "aliases": _aliases(objects),
        "leaf_grads": {
            path: subject.snapshot(item.grad, {})
            for path, item in tensors.items()
            if item.is_leaf and item.requires_grad
        },
        "requires_grad": {path: item.requires_grad for path, item in tensors.items()},
        "layouts": {path: _layout(item) for path, item in tensors.items() if path.startswith(RESULT_PATH)},
        "changed_in_place": {
            path: in_place_change_count(item) != tensors_before[path][1]
            for path, item in tensors.items()
            if path in tensors_before and tensors_before[path][0] is item
        },
    }


def _all_objects(value: Any, arguments: dict[str, Any], subject: Subject) -> Iterator[tuple[str, Any]]:
    """Yield the objects that a call received, may have changed, or returned, each with its path."""
    visited_ids: set[int] = set()
    for kind, name, root in [
        *(("argument", name, item) for name, item in arguments.items()),
        *(("tensor", name, item) for name, item in subject.roots()),
    ]:
        for path, item in named_objects(root, name, visited_ids):
            if is_instance(item, torch.Tensor) and isinstance(item, torch.nn.Parameter):
                yield f"the parameter {path}", item
            else:
                yield f"the {kind} {path}" if is_instance(item, torch.Tensor) or kind == "argument" else path, item
    yield from named_objects(value, RESULT_PATH, visited_ids)


def _aliases(objects: Iterable[tuple[str, Any]]) -> dict[str, tuple[str, frozenset[str]]]:
    """Return the paths of objects that are identical to, or share memory with, earlier ones; see :class:`Result`."""
    aliases: dict[str, tuple[str, frozenset[str]]] = {}
    paths_by_id: dict[int, list[str]] = defaultdict(list)
    paths_by_address: dict[int, list[str]] = defaultdict(list)
    for path, item in objects:
        address = memory_address(item)
        paths_in_memory = paths_by_address[address] if address is not None else []
        if paths_by_id[id(item)]:
            aliases[path] = ("is", frozenset(paths_by_id[id(item)][:_MAX_ALIAS_PATHS]))
        elif paths_in_memory:
            aliases[path] = ("shares memory with", frozenset(paths_in_memory[:_MAX_ALIAS_PATHS]))
        paths_by_id[id(item)].append(path)
        paths_in_memory.append(path)
    return aliases


def _layout(tensor: torch.Tensor) -> Layout:
    is_plain = tensor.layout == torch.strided and not tensor.is_nested and tensor.numel() > 0
    sizes = zip(tensor.shape, tensor.stride(), strict=True) if is_plain else ()
    return Layout(type(tensor), tuple(stride for size, stride in sizes if size > 1))


def _run_backward(tensors: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor | None] | None, Exception | None]:
    """Run one backward pass from the results and from all tensors with a gradient function.

    Return the gradient of each leaf by path, and the exception that the backward pass raised.
    """
    roots = {
        id(item): item
        for path, item in tensors.items()
        if item.requires_grad and (item.grad_fn is not None or path.startswith(RESULT_PATH))
    }
    if not roots:
        return None, None
    leaves = {path: item for path, item in tensors.items() if item.is_leaf and item.requires_grad}
    if _differentiates_twice.get():
        return _second_derivatives(list(roots.values()), leaves)
    saved_grads = {id(leaf): (leaf, leaf.grad) for leaf in leaves.values()}
    backward_error = None
    try:
        for leaf, _ in saved_grads.values():
            leaf.grad = None
        with (
            torch.enable_grad(),
            _digest_gradients(leaf for leaf, _ in saved_grads.values()) as digests,
            measure_run("backward"),
        ):
            torch.autograd.backward(list(roots.values()), [gradient_weights(root) for root in roots.values()])
        gradients = {
            path: clone(leaf.grad, digests={}) if leaf.grad is not None else digests.get(id(leaf))
            for path, leaf in leaves.items()
        }
    except Exception as error:  # noqa: BLE001 - the exception is the finding
        gradients, backward_error = {}, error.with_traceback(None)
    finally:
        for leaf, grad in saved_grads.values():
            leaf.grad = grad
    return gradients, backward_error


@contextlib.contextmanager
def differentiate_twice() -> Iterator[None]:
    """Replace the gradients in the results of runs with second derivatives: the gradients of these gradients."""
    token = _differentiates_twice.set(True)
    try:
        yield
    finally:
        _differentiates_twice.reset(token)


def _second_derivatives(
    roots: list[torch.Tensor], leaves: dict[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor | None], Exception | None]:
    """Return the gradients of the gradients of the leaves by path, and the exception that a backward pass raised."""

    def differentiate(tensors: list[torch.Tensor], *, create_graph: bool = False) -> list[torch.Tensor | None]:
        # A derivative of squares depends on the tensors themselves, unlike that of a weighted sum.
        weights = [gradient_weights(tensor) * tensor for tensor in tensors]
        leaf_tensors = list(leaves.values())
        return list(torch.autograd.grad(tensors, leaf_tensors, weights, create_graph=create_graph, allow_unused=True))

    try:
        with torch.enable_grad():
            gradients = differentiate(roots, create_graph=True) if leaves else []
            roots = [gradient for gradient in gradients if gradient is not None and gradient.requires_grad]
            second_derivatives = differentiate(roots) if roots else [None] * len(leaves)
    except Exception as error:  # noqa: BLE001 - the exception is the finding
        return {}, error.with_traceback(None)
    return dict(zip(leaves, second_derivatives, strict=True)), None


@contextlib.contextmanager
def _digest_gradients(leaves: Iterable[torch.Tensor]) -> Iterator[dict[int, torch.Tensor]]:
    """Replace the gradient of each large leaf with a digest as soon as a backward pass has computed the gradient.

    Otherwise all gradients, which take as much memory as the leaves, would exist at once. Yield the digests, by the ids
    of the leaves.
    """
    digests: dict[int, torch.Tensor] = {}

    def digest_gradient(leaf: torch.Tensor) -> None:
        if leaf.grad is None or not is_large(leaf.grad):
            return
        gradient_digest = clone(leaf.grad.detach(), digests={})
        leaf.grad = None
        if id(leaf) in digests:  # a reentrant checkpoint computes the gradient in several parts
            digests[id(leaf)] += gradient_digest
        else:
            digests[id(leaf)] = gradient_digest

    large_leaves = [leaf for leaf in leaves if is_large(leaf)]
    handles = [leaf.register_post_accumulate_grad_hook(digest_gradient) for leaf in large_leaves]
    try:
        yield digests
    finally:
        for handle in handles:
            handle.remove()


def gradient_weights(root: torch.Tensor) -> torch.Tensor:
    """Return non-periodic weights for the elements of a result, so that their gradients do not cancel.

    The weights are the same numbers in every dtype: multiples of 1/64 between 0.5 and 1.5. The weight of a single
    element, such as a loss, is 1, as in ``backward()``. The weights of sparse and nested tensors are also 1.
    """
    detached_root = root.detach()
    if detached_root.layout != torch.strided or detached_root.is_nested or detached_root.numel() == 1:
        return torch.ones_like(detached_root)
    ramp = torch.arange(detached_root.numel(), dtype=torch.float64) * 0.6180339887 % 1
    return ((ramp * 64).floor() / 64 + 0.5).to(detached_root.device, detached_root.dtype).reshape(detached_root.shape)


class LineLimitError(BaseException):
    """A function ran too many lines. This is not an ``Exception``, so that the function does not catch it."""


class _LineCounter:
    """Provides a trace function that notes the lines that run, and stops a function that runs too many lines."""

    def __init__(self) -> None:
        # Lines of this package never count, even if it runs from a source tree, because comparisons run many lines.
        self._is_counted: dict[str, bool] = {}
        self._count = 0
        self.lines: set[tuple[str, int]] = set()

    def trace_call(self, frame: types.FrameType, _: str, __: Any) -> Any:
        filename = frame.f_code.co_filename
        if filename not in self._is_counted:
            self._is_counted[filename] = not (filename.startswith(OWN_FOLDER) or is_library(filename))
        if not self._is_counted[filename]:
            return None
        frame.f_trace_opcodes = _has_one_line_loop(frame.f_code)
        return self._count_line

    def _count_line(self, frame: types.FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        if event in {"line", "opcode"}:
            self._count += 1
        if self._count > _MAX_LINES:
            raise LineLimitError
        return self._count_line


@functools.lru_cache(maxsize=256)
def _has_one_line_loop(code: types.CodeType) -> bool:
    """Return whether code has a loop on one line, such as ``while True: pass``, which Python 3.11 traces only once."""
    line = None
    lines: dict[int, int | None] = {}
    for instruction in dis.get_instructions(code):
        if instruction.positions is not None:
            line = instruction.positions.lineno or line
        lines[instruction.offset] = line
        is_loop = "JUMP_BACKWARD" in instruction.opname and code.co_code[instruction.argval] not in _ITERATION_OPCODES
        if is_loop and lines.get(instruction.argval) == line:
            return True
    return False


@contextlib.contextmanager
def limit_lines() -> Iterator[set[tuple[str, int]]]:
    """Stop a function that runs too many lines and may never end; yield the files and numbers of the lines that ran."""
    counter = _LineCounter()
    with _set_trace_function(counter.trace_call):
        yield counter.lines


@contextlib.contextmanager
def _set_trace_function(function: Any) -> Iterator[None]:
    """Set the trace function, and reset it on exit unless code in the context has set a different one."""
    trace_before = sys.gettrace()
    sys.settrace(function)
    try:
        yield
    finally:
        if sys.gettrace() == function:
            sys.settrace(trace_before)


def _active_trace_function() -> Any:
    """Return the trace function of :func:`limit_lines` if it is set, else ``None``."""
    function = sys.gettrace()
    return function if isinstance(getattr(function, "__self__", None), _LineCounter) else None


@contextlib.contextmanager
def sandbox_runs() -> Iterator[None]:
    """Isolate the process from the runs in this context: hide their output, prevent effects and restore state.

    A TrialStoppedError is raised if a run was stopped.
    """
    remember_streams()
    numpy = sys.modules.get("numpy")
    python_random, numpy_random = random.getstate(), numpy.random.get_state() if numpy is not None else None
    try:
        with (
            preserve_random_generators(),
            allow_repeated_warnings(),
            redirect_thread_streams(io.StringIO(), io.StringIO()),
            torch.set_grad_enabled(torch.is_grad_enabled()),  # restores the mode on exit
            leave_autocast_contexts(),
            hide_compiler_logs(),
            suppress_logging(),
            suppress_displays(),
            forget_new_backends(),
            confine_fx_tracing(),
            prevent_effects(),
        ):
            yield
    finally:
        random.setstate(python_random)
        if numpy is not None:
            numpy.random.set_state(numpy_random)
