"""Run a function and observe everything that it did."""

from __future__ import annotations

import contextlib
import io
import random
import sys
import types
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.configuration import quiet
from jupyter_graphbreak.experiments.trial.copies import clone
from jupyter_graphbreak.experiments.trial.effects import (
    Effects,
    kept_generators,
    kept_modes,
    kept_warnings,
    modes,
    observed,
    random_states,
    seed_all,
    unlogged,
)
from jupyter_graphbreak.experiments.trial.guard import guarded
from jupyter_graphbreak.experiments.trial.places import RESULT, memory, named
from jupyter_graphbreak.experiments.trial.stand_ins import note_streams
from jupyter_graphbreak.experiments.trial.time_limit import require_time
from jupyter_graphbreak.experiments.trial.values import Yielded
from jupyter_graphbreak.records.package_paths import OWN_FOLDER, is_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jupyter_graphbreak.experiments.trial.inputs import Arguments
    from jupyter_graphbreak.experiments.trial.subject import Subject

#: An input with which the function runs more lines is left out: the function may loop for ever.
_MOST_LINES = 20_000
#: Of how many other places of one object is known that they are the same.
_MOST_NAMES = 20


@dataclass(frozen=True)
class Result:
    """What one call did. Places are names such as "the result[0]", "the argument x", "the parameter fc.weight".

    Parameters
    ----------
    arguments, state : dict
        The arguments, and all else that the call may have changed, as they are afterwards, by name.
    requires_grad : dict
        Whether each tensor of the result, the arguments and the state requires a gradient, by place.
    left_grad : dict
        The ``.grad`` that the call itself left on each leaf, by place.
    gradients : dict or None
        The gradient that one backward pass from all results gives each leaf, by place, ``None`` where it gives none.
        ``None`` altogether where nothing that the call returned or left requires a gradient, or nobody asked.
    backward : Exception or None
        What the backward pass raised.
    before : dict
        The state before all runs, by name.
    places : frozenset of str
        The places of all objects of the result, the arguments and the state.
    aliases : dict
        For each of them that was met before at other places, or whose memory was, how ("is" or "shares memory with")
        and where.
    random, modes : dict
        Digests of the states of the random generators, and the modes of torch after the call.
    """

    value: Any = None
    raised: Exception | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    effects: Effects = field(default_factory=Effects)
    requires_grad: dict[str, bool] = field(default_factory=dict)
    left_grad: dict[str, torch.Tensor | None] = field(default_factory=dict)
    gradients: dict[str, torch.Tensor | None] | None = None
    backward: Exception | None = None
    before: dict[str, Any] = field(default_factory=dict)
    places: frozenset[str] = frozenset()
    aliases: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    random: dict[str, str] = field(default_factory=dict)
    modes: dict[str, Any] = field(default_factory=dict)

    @property
    def printed(self) -> str:
        """What was written to stdout."""
        return self.effects.printed


def run(
    program: Callable[..., Any],
    subject: Subject,
    arguments: Arguments,
    seed: int = 0,
    *,
    gradients: bool = True,
) -> Result:
    """Call a program with copies of arguments and with seeded random numbers; return what it did.

    What of the arguments the subject holds too is not copied: :meth:`Subject.restore` restores it.

    Parameters
    ----------
    gradients : bool
        Whether to run the backward pass, once.

    Raises
    ------
    TrialStoppedError
        If the program was stopped before it did something outside of its copies.
    TimeUpError
        If the time for runs is up.
    """
    require_time()
    given = subject.copies_of(arguments)
    value, raised, failed = None, None, None
    with (
        guarded(subject.call, program, assigned=subject.assigned),
        subject.entered(),
        kept_modes(),
        observed(subject.handlers) as effects,
    ):
        seed_all(seed)
        try:
            value = program(*given.args, **given.kwargs)
            if isinstance(value, types.GeneratorType):
                value = Yielded(list(value))
        except Exception as error:  # noqa: BLE001 - that it raises is the finding
            raised = error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None)
        random_after, modes_after = random_states(), modes()
        now = {RESULT: value, **given.named(subject.call)}
        objects = list(_all_objects(value, given.named(subject.call), subject))
        found = {place: item for place, item in objects if isinstance(item, torch.Tensor)}
        left_grad = {
            place: subject.seen(item.grad, {}) for place, item in found.items() if item.is_leaf and item.requires_grad
        }
        requires_grad = {place: item.requires_grad for place, item in found.items()}
        aliases = _aliases(objects)
        given_gradients = None
        if gradients and raised is None and not torch.is_inference_mode_enabled():
            given_gradients, failed = _backward(found)
    memo = subject.unchanged()
    now = {name: subject.seen(item, memo) for name, item in now.items()}
    return Result(
        now.pop(RESULT), raised, now, subject.state(memo), effects, requires_grad, left_grad, given_gradients, failed,
        subject.initial, frozenset(place for place, _ in objects), aliases, random_after, modes_after,
    )  # fmt: skip


def _all_objects(value: Any, arguments: dict[str, Any], subject: Subject) -> Iterator[tuple[str, Any]]:
    """Yield what a call got, changed and returned, by place."""
    seen: set[int] = set()
    for kind, name, held in [
        *(("argument", name, item) for name, item in arguments.items()),
        *(("tensor", name, item) for name, item in subject.roots()),
    ]:
        for place, item in named(held, name, seen):
            if isinstance(item, torch.nn.Parameter):
                yield f"the parameter {place}", item
            else:
                yield f"the {kind} {place}" if isinstance(item, torch.Tensor) or kind == "argument" else place, item
    yield from named(value, RESULT, seen)


def _aliases(objects: Iterable[tuple[str, Any]]) -> dict[str, tuple[str, frozenset[str]]]:
    """Return which objects are, or share memory with, some that were met before."""
    aliases: dict[str, tuple[str, frozenset[str]]] = {}
    same: dict[int, list[str]] = defaultdict(list)
    in_memory: dict[int, list[str]] = defaultdict(list)
    for place, item in objects:
        lies_at = memory(item)
        neighbours = in_memory[lies_at] if lies_at is not None else []
        if same[id(item)]:
            aliases[place] = ("is", frozenset(same[id(item)][:_MOST_NAMES]))
        elif neighbours:
            aliases[place] = ("shares memory with", frozenset(neighbours[:_MOST_NAMES]))
        same[id(item)].append(place)
        neighbours.append(place)
    return aliases


def _backward(found: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor | None] | None, Exception | None]:
    """Run one backward pass from everything that has a gradient function; return the gradient of each leaf."""
    roots = {
        id(item): item
        for place, item in found.items()
        if item.requires_grad and (item.grad_fn is not None or place.startswith(RESULT))
    }
    if not roots:
        return None, None
    leaves = {place: item for place, item in found.items() if item.is_leaf and item.requires_grad}
    left = {id(leaf): (leaf, leaf.grad) for leaf in leaves.values()}
    failed = None
    try:
        for leaf, _ in left.values():
            leaf.grad = None
        with torch.enable_grad():
            torch.autograd.backward(list(roots.values()), [_weights(root) for root in roots.values()])
        gradients = {place: clone(leaf.grad, digests={}) for place, leaf in leaves.items()}
    except Exception as error:  # noqa: BLE001 - that it raises is the finding
        gradients, failed = {}, error.with_traceback(None)
    finally:
        for leaf, grad in left.values():
            leaf.grad = grad
    return gradients, failed


def _weights(root: torch.Tensor) -> torch.Tensor:
    """Return how much each element of a result counts, no two neighbours the same, so that none cancels another."""
    detached = root.detach()
    if detached.layout != torch.strided or detached.is_nested:
        return torch.ones_like(detached)
    ramp = torch.arange(detached.numel(), dtype=torch.float64) * 0.6180339887 % 1 + 0.5
    return ramp.to(detached.device, detached.dtype).reshape(detached.shape)


class TooLongError(BaseException):
    """A function ran too many lines. This is no Exception, so that the function itself does not catch it."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Stop a function that runs too many lines: it may never end with an input that it was not written for."""
    # Our own code counts as a library's also where it is not installed: it compares, and takes many lines for that.
    counted: dict[str, bool] = {}
    lines = 0

    def count(_: Any, event: str, __: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        if lines > _MOST_LINES:
            raise TooLongError
        return count

    def enter(frame: types.FrameType, _: str, __: Any) -> Any:
        filename = frame.f_code.co_filename
        if filename not in counted:
            counted[filename] = not (filename.startswith(OWN_FOLDER) or is_library(filename))
        return count if counted[filename] else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def untouched() -> Iterator[None]:
    """Restore what runs change, and stop what they would do outside of their copies.

    Raises
    ------
    TrialStoppedError
        If a run was stopped.
    """
    note_streams()
    numpy = sys.modules.get("numpy")
    python_random, numpy_random = random.getstate(), numpy.random.get_state() if numpy is not None else None
    try:
        with (
            kept_generators(),
            kept_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            kept_modes(),
            quiet(),
            unlogged(),
            guarded(),
        ):
            yield
    finally:
        random.setstate(python_random)
        if numpy is not None:
            numpy.random.set_state(numpy_random)
