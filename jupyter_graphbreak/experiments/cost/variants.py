"""Variants of one call that run in turn, each on its own copies: eager, compiled, and compiled with remedies."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import sys
import time
import types
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.utils.checkpoint

from jupyter_graphbreak._torch_compat.compiled import compilation_count
from jupyter_graphbreak._torch_compat.profile_ranges import profile_call, record_device_activities
from jupyter_graphbreak.experiments.cost.graph_timer import GraphTimer
from jupyter_graphbreak.experiments.cost.timing import clock_for
from jupyter_graphbreak.experiments.trial.effects import capture_effects, seed_all
from jupyter_graphbreak.experiments.trial.inner_modules import InnerModules, modules_of
from jupyter_graphbreak.experiments.trial.named_objects import leaves, memory_address, named_objects, named_tensors
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.experiments.trial.values import describe_difference
from jupyter_graphbreak.recording.targets import may_be_user_defined, reachable_objects
from jupyter_graphbreak.records.attributes import is_instance, stored_items

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from contextlib import AbstractContextManager

    from jupyter_graphbreak._torch_compat.profile_ranges import Activity, ProfileRange
    from jupyter_graphbreak.experiments.cost.timing import CallTime
    from jupyter_graphbreak.experiments.trial.arguments import Arguments
    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.experiments.trial.saved_state import SavedState


class PrivateCode:
    """Private code objects for the methods and library functions that a callable uses.

    Dynamo stores compiled code, and its decision to skip a frame, with the code object: programs that share a code
    object would all run the code compiled last. ``unshared_functions`` are used by no other program. They keep their
    code: after a replacement, Python specializes their callers again, which can take longer than a call.
    """

    def __init__(self, function: Any, unshared_functions: Collection[types.FunctionType]) -> None:
        self._private_code = {
            own_function: _copy_code(own_function.__code__)
            for own_function in _functions_of(function)
            if own_function not in unshared_functions
        }

    @contextlib.contextmanager
    def install(self) -> Iterator[None]:
        """Make the functions run their private code while the context is open."""
        originals = {own_function: own_function.__code__ for own_function in self._private_code}
        try:
            for own_function, code in self._private_code.items():
                own_function.__code__ = code
            yield
        finally:
            for own_function, code in originals.items():
                own_function.__code__ = code


def _functions_of(function: Any) -> Iterator[types.FunctionType]:
    for item in reachable_objects(function):
        functions = [item] if is_instance(item, types.FunctionType) else _methods(item)
        for candidate in functions:
            if may_be_user_defined(candidate):
                yield candidate


def _methods(value: Any) -> Iterator[types.FunctionType]:
    """Yield the methods of an object, and the functions that decorators of these methods wrap."""
    for class_ in type(value).__mro__:
        for member in vars(class_).values():
            wrapped = member
            while is_instance(wrapped, types.FunctionType):
                yield wrapped
                wrapped = getattr(wrapped, "__wrapped__", None)


def _copy_code(code: types.CodeType) -> types.CodeType:
    constants = tuple(_copy_code(const) if isinstance(const, types.CodeType) else const for const in code.co_consts)
    return code.replace(co_consts=constants)


_T = TypeVar("_T")
#: The maximum number of elements of a tensor to compare after a call.
_MAX_ELEMENTS = 1 << 14
#: The number of seeds, used in rotation, for a call that draws random numbers, because its path may depend on them.
SEED_COUNT = 8
#: The number of untimed calls before a timed call that takes less than ``_SHORT_US`` microseconds.
_WARM_UP_CALLS = 2
_SHORT_US = 5_000
#: The maximum number of passes through the seeds until a pass compiles nothing.
_MAX_ROUNDS = 12
#: A call that takes at least this many seconds is warmed up with one seed only.
_SLOW_S = 0.5


class Variant:
    """A call that can be repeated from the same state.

    Changes that the first call makes are kept if later calls change no state. Changes that later calls make are undone
    after each call, outside the timed section. Changes to arguments are undone after every call, in place: Dynamo would
    compile a training step again for each new copy of an optimizer, and for an optimizer without state. A state that
    the first call creates for an optimizer is therefore kept. Only arguments that cannot be restored in place are
    copied again.

    All variants of an entry share the memory of large tensors, so a variant must be restored before another one runs.
    Each call runs in a new ``context()``, such as one that applies a remedy. With ``records_marks``, compiled code can
    record marks.
    """

    def __init__(
        self,
        entry: Entry,
        *,
        compiled: bool,
        records_marks: bool = False,
        context: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        self.entry = entry
        self.subject = Subject(entry.function, entry.arguments)
        self._seeds, self._seeds_with_marks = itertools.cycle(range(SEED_COUNT)), itertools.cycle(range(SEED_COUNT))
        self.is_compiled = compiled
        self._records_marks = records_marks
        self._context = context
        self._code = PrivateCode(self.subject.function, self.subject.functions())
        self._original_arguments = self.subject.arguments or entry.arguments
        self._arguments = self.subject.copy_arguments(self._original_arguments)
        self.clock = clock_for(tensors_of(self.subject, self._arguments))
        self.timer = GraphTimer(entry.backend, self.clock)
        self._program = entry.compile(self.subject.function, self.timer) if compiled else self.subject.function
        self._inner_modules = InnerModules(
            self.subject, entry.inner_targets, lambda inner: entry.compile(inner, self.timer)
        )
        #: Whether calls change their arguments or their state. Until the warm-up finds out, every change is undone.
        self._changes_arguments = self._changes_state = True
        self._is_short = False
        #: The content of the arguments before each call; ``None`` if it cannot be restored in place.
        self._saved_arguments: SavedState | None = self.subject.save_arguments(self._arguments)
        self.is_random = False
        #: The times in seconds of the first and the second call: the first one compiles.
        self.first_call_s = self.second_call_s = 0.0

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield the tensors in the variant's copies."""
        yield from tensors_of(self.subject, self._arguments)

    def nbytes(self) -> int:
        """Return the size in bytes of the tensors in the variant's copies."""
        return sum(tensor.nbytes for tensor in {id(tensor): tensor for tensor in self.tensors()}.values())

    def warm_up(self) -> bool:
        """Call the variant until calls compile nothing; return whether this state was reached."""
        try:
            with self.timer.mark_generated_code() if self._records_marks else contextlib.nullcontext():
                return self._warm_up()
        except BaseException:
            self.subject.memory.restore()  # the other variants use the same memory
            raise

    def _warm_up(self) -> bool:
        self._changes_arguments = self._changes_state = False
        initial_arguments = self.subject.copy_arguments_for_comparison(self._original_arguments)
        new_optimizers = [optimizer for optimizer in self._optimizers() if not optimizer.state]
        start = time.monotonic()
        self._call(0, is_guarded=True)
        self.first_call_s = time.monotonic() - start
        state = self.subject.state()
        created_states = [(optimizer, dict(optimizer.state)) for optimizer in new_optimizers if optimizer.state]
        self.subject.memory.share_created(named_tensors([list(state.values()) for _, state in created_states], "state"))
        self.subject.restore_memory_of_arguments()
        self._restore_arguments()
        if created_states and self._saved_arguments is not None:
            _set_states(created_states)
            self._saved_arguments = self.subject.save_arguments(self._arguments)
            initial_arguments = self.subject.copy_arguments_for_comparison(self._arguments)
        if self._saved_arguments is not None and self._arguments_differ_from(initial_arguments):
            self._saved_arguments = None
            self._restore_arguments()
        # Changes are detected from the second call on, because the first call may initialize state.
        seed_all(0)
        random_state = _random_state()
        start = time.monotonic()
        self._call(0, is_guarded=True)
        self.second_call_s = time.monotonic() - start
        self.is_random = random_state != _random_state()
        self._changes_state = _differ(state, self.subject.state())
        changes_memory = self.subject.restore_memory_of_arguments()
        self._changes_arguments = changes_memory or self._arguments_differ_from(initial_arguments)
        if not self._changes_state:  # the changes of the first call are kept
            self.subject.detach_changed_memory()
        elif created_states:
            self.subject.undo_changes()
            _set_states(created_states)
            self.subject.save_state()
        self._restore()
        seeds = SEED_COUNT if self.is_random and self.second_call_s < _SLOW_S else 1
        for _ in range(_MAX_ROUNDS):
            before_round = compilation_count()
            for seed in range(seeds):
                self._call(seed)
            if before_round == compilation_count():
                return True
        return False

    def time_call(self) -> CallTime:
        """Call the variant with the next random seed, and return the call's time."""
        return self._time(next(self._seeds), records_marks=False)

    def time_call_with_marks(self) -> CallTime:
        """Call the variant with the next random seed, and return the call's time with marks."""
        return self._time(next(self._seeds_with_marks), records_marks=True)

    def _time(self, seed: int, *, records_marks: bool) -> CallTime:
        """Time a call; a short call is first made untimed, because other code has used the processor's caches."""
        warm_up_call_count = _WARM_UP_CALLS if self._is_short else 0
        if self.is_random or self._changes_arguments or self._changes_state:
            for _ in range(warm_up_call_count):
                self._call(seed)
            warm_up_call_count = 0
            seed_all(seed)
        arguments = self._arguments
        try:
            with self._swap_copies_in():
                for _ in range(warm_up_call_count):
                    self._program(*arguments.args, **arguments.kwargs)
                call_time = self.timer.time(
                    lambda: self._program(*arguments.args, **arguments.kwargs), records_marks=records_marks
                )
        finally:
            self._restore()
        self._is_short = call_time.total_us < _SHORT_US
        return call_time

    def profile_ranges(self, seed: int = 0) -> list[ProfileRange]:
        """Call the variant under a profiler, and return the recorded ranges."""
        return self._observe(seed, lambda call: self.timer.call_with_graph_ranges(lambda: profile_call(call)))

    def device_activities(self) -> list[Activity]:
        """Call the variant under a profiler, and return the activities of the device."""
        return self._observe(0, record_device_activities)

    def graph_inputs(self) -> dict[int, list[Any]]:
        """Call the variant, and return the inputs of each graph, by the graph's number."""
        return self._observe(0, self.timer.graph_inputs_of)

    def run_in_modes(self, observe: Callable[[], _T]) -> _T:
        """Call a function in the modes of the variant's call, with the copies swapped in."""
        with self._swap_copies_in():
            return observe()

    def run_between_calls(self, observe: Callable[[Callable[[], object] | None], _T]) -> _T:
        """Call a function as :meth:`run_in_modes` does, and pass it a function that calls the variant.

        If calls change the state or the arguments, pass ``None`` instead.
        """
        is_repeatable = not (self._changes_arguments or self._changes_state)
        return self._observe(0, lambda call: observe(call if is_repeatable else None))

    def results_and_gradients(self) -> list[torch.Tensor]:
        """Return copies of the tensors in the result of a call and, if it requires gradients, of those gradients."""
        tensors: list[torch.Tensor] = []
        self.observe_with_backward(lambda call: call(), tensors.append)
        return tensors

    def results_and_state(self) -> list[torch.Tensor]:
        """Return copies of the tensors in the result of a call, of the gradients, and of the state after the call.

        This state includes the arguments, Python's random numbers and the length of the output. If the call changes its
        state, a second call follows, whose tensors are included: it is the first call that starts from a different
        state.
        """
        tensors: list[torch.Tensor] = []

        def observe(function: Callable[[], Any]) -> None:
            for _ in range(2 if self._changes_state else 1):
                function()
                tensors.extend(self._state_after_call())

        with capture_effects() as effects:
            self.observe_with_backward(observe, tensors.append)
        messages = [message for *_, message in (*effects.log_records, *effects.warning_messages)]
        return [*tensors, torch.tensor([len(text) for text in (effects.stdout, effects.stderr, *messages)])]

    def _state_after_call(self) -> Iterator[torch.Tensor]:
        """Yield some elements of each tensor in the arguments and the state, and the plain values in the state."""
        for tensor in {id(tensor): tensor for tensor in self._all_tensors()}.values():
            if tensor.layout == torch.strided and not tensor.is_nested:
                flat = tensor.detach().reshape(-1)
                yield flat[:: 1 + flat.numel() // _MAX_ELEMENTS].clone()
        # For a container, the leaves include the name of its class.
        parts = [part for name, root in self.subject.roots() for _, part in leaves(root, name or "self")]
        yield from (torch.tensor(part, dtype=torch.float64) for part in parts if type(part) is float)
        values = [part for part in parts if type(part) in {bool, int, str}]
        tensor_count = sum(is_instance(part, torch.Tensor) for part in parts)
        yield torch.tensor([*map(hash, values), tensor_count, hash(_python_random_state())])

    def observe_with_backward(
        self, observe: Callable[[Callable[[], Any]], _T], on_tensor: Callable[[torch.Tensor], None] | None = None
    ) -> _T:
        """Observe a call that is followed by a backward pass if its results require gradients.

        ``on_tensor`` receives copies of the tensors in the result, and of the gradients.
        """
        leaves: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}

        def call_with_backward(function: Callable[[], Any]) -> None:
            results = function()
            if roots := _backward_roots(results):
                for leaf in filter(_collects_gradients, self._all_tensors()):
                    leaves.setdefault(id(leaf), (leaf, leaf.grad))
                for leaf, _ in leaves.values():
                    leaf.grad = None
                _run_backward(roots)
            if on_tensor is not None:
                grads = [leaf.grad for leaf, _ in leaves.values() if leaf.grad is not None]
                for tensor in (*(tensor for _, tensor in named_tensors(results, "")), *grads):
                    on_tensor(tensor.detach().clone())

        try:
            with self.subject.prevent_effects():
                return self._observe(0, lambda call: observe(lambda: call_with_backward(call)))
        finally:
            for leaf, grad in leaves.values():
                leaf.grad = grad

    @contextlib.contextmanager
    def checkpoint_calls(self) -> Iterator[None]:
        """While the context is open, make calls keep nothing for the backward pass, which repeats the call instead."""
        program = self._program
        self._program = functools.partial(torch.utils.checkpoint.checkpoint, program, use_reentrant=False)
        try:
            yield
        finally:
            self._program = program

    def modules(self) -> list[tuple[str, torch.nn.Module]]:
        """Return the modules that the call uses, each with its first path, such as ``self.layers``."""
        modules = dict(modules_of(self.subject, self._arguments.args, self._arguments.kwargs))
        return [(path, modules[subject_path]) for path, subject_path in self.paths_in_subject().items()]

    def paths_in_subject(self) -> dict[str, str]:
        """Return the paths of modules as :class:`InnerModules` needs them, by the paths in :meth:`modules`."""
        paths = [path for path, _ in modules_of(self.subject, self._arguments.args, self._arguments.kwargs)]
        return {f"self.{path}".rstrip(".") if self.subject.owner is not None else path: path for path in paths}

    def observe_consecutive_calls(self, observe: Callable[[Callable[[], None]], _T], *, backward: bool) -> _T:
        """Observe consecutive calls, and undo their changes only after the last one.

        Each call receives new copies of the arguments, but not of tensors that collect gradients, such as parameters.
        """
        original_values, copied_values = (
            (arguments.args, arguments.kwargs) for arguments in (self._original_arguments, self._arguments)
        )
        pairs = zip(named_tensors(original_values, ""), named_tensors(copied_values, ""), strict=True)
        copies = {id(original): copy for (_, original), (_, copy) in pairs if _collects_gradients(copy)}
        state = (tensor for _, tensor in self.named_state())
        leaves = [*filter(_collects_gradients, state), *copies.values()]
        grads = [leaf.grad for leaf in leaves]

        def call() -> None:
            arguments_of_call = self._original_arguments.copy(self.subject.state_memo() | copies)
            roots = _backward_roots(self._program(*arguments_of_call.args, **arguments_of_call.kwargs))
            if backward and roots:
                for leaf in leaves:
                    leaf.grad = None
                _run_backward(roots)

        try:
            with self.subject.prevent_effects():
                return self._observe(0, lambda _: observe(call))
        finally:
            for leaf, grad in zip(leaves, grads, strict=True):
                leaf.grad = grad

    def memory_addresses(self) -> set[int]:
        """Return the addresses of the memory that the call's arguments and state use, including parameters."""
        return {address for tensor in self._all_tensors() if (address := memory_address(tensor)) is not None}

    def named_state(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors of the call's state, each with its path, such as ``self.history[2]``."""
        visited_ids: set[int] = set()
        for name, root in self.subject.roots():
            yield from named_tensors(root, name or "self", visited_ids)

    def _all_tensors(self) -> Iterator[torch.Tensor]:
        """Yield the tensors in the call's state and in the variant's copies; a tensor may occur twice."""
        yield from (tensor for _, tensor in self.named_state())
        yield from self.tensors()

    def _observe(self, seed: int, observe: Callable[[Callable[[], Any]], _T]) -> _T:
        seed_all(seed)
        arguments = self._arguments
        try:
            with self._swap_copies_in():
                return observe(lambda: self._program(*arguments.args, **arguments.kwargs))
        finally:
            self._restore()

    def _call(self, seed: int, *, is_guarded: bool = False) -> None:
        def call_guarded(call: Callable[[], Any]) -> None:
            with self.subject.prevent_effects() if is_guarded else contextlib.nullcontext():
                call()

        self._observe(seed, call_guarded)

    @contextlib.contextmanager
    def _swap_copies_in(self) -> Iterator[None]:
        """Within this context, keep the variant's context open, and use the copies and the private code."""
        arguments = self._arguments
        with (
            self._context(),
            self.subject.activate(),
            self._code.install(),
            self._inner_modules.compile_modules(arguments.args, arguments.kwargs),
        ):
            yield

    def _restore(self) -> None:
        if self._changes_state:
            self.subject.undo_changes()
        elif self._changes_arguments:
            self.subject.memory.restore()
        if self._changes_arguments:
            self._restore_arguments()

    def _restore_arguments(self) -> None:
        """Restore the arguments in place, except the memory of large tensors, or else copy them again."""
        if self._saved_arguments is not None:
            self._saved_arguments.restore()
        else:
            self._arguments = self.subject.copy_arguments(self._original_arguments)

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        """Return the optimizers in the call's state and in the variant's copies of the arguments."""
        visited_ids: set[int] = set()
        objects = (
            item
            for root in (*(value for _, value in self.subject.roots()), *self._arguments.values())
            for _, item in named_objects(root, "", visited_ids)
        )
        return list({id(item): item for item in objects if is_instance(item, torch.optim.Optimizer)}.values())

    def _arguments_differ_from(self, expected: Arguments) -> bool:
        actual = self._arguments
        return _differ((expected.args, expected.kwargs), (actual.args, actual.kwargs))


def _set_states(states: list[tuple[torch.optim.Optimizer, dict[Any, Any]]]) -> None:
    for optimizer, state in states:
        optimizer.state.update(state)


def tensors_of(subject: Subject, arguments: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a call's arguments and of the object whose state the call may change."""
    pending: list[Any] = [arguments.args, arguments.kwargs, subject.owner]
    while pending:
        value = pending.pop()
        if is_instance(value, torch.Tensor):
            yield value
        elif is_instance(value, torch.nn.Module):
            yield from value.parameters()
            yield from value.buffers()
        elif is_instance(value, dict):
            pending += [item for _, item in stored_items(value)]
        elif is_instance(value, list | tuple | set):
            pending += value


def _collects_gradients(tensor: torch.Tensor) -> bool:
    return tensor.is_leaf and tensor.requires_grad


def _backward_roots(results: Any) -> list[torch.Tensor]:
    """Return the tensors in a result from which a backward pass can start."""
    tensors = {id(tensor): tensor for _, tensor in named_tensors(results, "")}
    return [tensor for tensor in tensors.values() if tensor.grad_fn is not None]


def _run_backward(roots: list[torch.Tensor]) -> None:
    with torch.enable_grad():
        torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])


def _differ(one: Any, other: Any) -> bool:
    return describe_difference(one, other) is not None


def _random_state() -> tuple[Any, ...]:
    """Return the state of the random generators as comparable values."""
    states = [torch.random.get_rng_state().numpy().tobytes()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states += [state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()]
    return (*states, *_python_random_state())


def _python_random_state() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy is not None else ()
    return (random.getstate(), *(part.tobytes() if hasattr(part, "tobytes") else part for part in numpy_state))
