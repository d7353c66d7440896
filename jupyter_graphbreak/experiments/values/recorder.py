"""Record the values that operations compute, and find the operations that make NaN or Inf from finite numbers."""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from jupyter_graphbreak._torch_compat.tensor_values import changes_in_place
from jupyter_graphbreak.experiments.values.ranges import NOTHING, Presence, merged, presence_of, range_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from jupyter_graphbreak.report.values import ValueRange

#: The maximum number of gradient functions that one operation is searched for.
_MAX_FUNCTIONS = 200
#: The gradient function of a leaf, which computes nothing.
_LEAF = "AccumulateGrad"


@dataclass
class RecordedValue:
    """The values of one operation, over all of its executions."""

    forward: ValueRange
    backward: ValueRange | None = None
    executions: int = 0


class Origin(NamedTuple):
    """The first execution in which an operation made NaN or Inf."""

    key: Any
    direction: Literal["forward", "backward"]
    kind: Literal["nan", "inf"]
    seen: ValueRange
    execution: int


@dataclass
class ValueRecorder:
    """Records the operations of one call, and of the backward pass from its results.

    Attributes
    ----------
    values : dict
        The values by the keys of the operations, in the order in which they ran first.
    origins : dict
        The origins of NaN and Inf, by operation, direction and kind, in order.
    """

    values: dict[Hashable, RecordedValue] = field(default_factory=dict)
    origins: dict[tuple[Hashable, str, str], Origin] = field(default_factory=dict)
    _executions: Counter[Hashable] = field(default_factory=Counter)
    #: The gradient functions of the operations so far; holding them keeps their identities.
    _functions: set[Any] = field(default_factory=set)
    _presences: dict[int, tuple[weakref.ref[torch.Tensor], int, Presence]] = field(default_factory=dict)

    def run(self, key: Hashable, given: Any, call: Callable[[], Any], *, makes: Presence = NOTHING) -> Any:
        """Run an operation, record it and return its result.

        Parameters
        ----------
        key : hashable
            Identifies the operation.
        given : object
            Its arguments.
        call : callable
            Runs it.
        makes : Presence
            Values that the program itself writes there, such as ``-inf`` for a mask.
        """
        inputs = list(_tensors(given))
        present = self._presence(inputs)
        before = Presence(present.nan or makes.nan, present.inf or makes.inf)
        for tensor in inputs:
            if tensor.grad_fn is not None:
                self._functions.add(tensor.grad_fn)
        result = call()
        outputs = list(_tensors(result))
        if not outputs:
            return result
        self._executions[key] += 1
        execution = self._executions[key]
        for number, tensor in enumerate(outputs):
            seen = range_of(tensor)
            self._keep_presence(tensor, Presence(seen.nan > 0, seen.inf > 0))
            if number == 0:
                self._add_forward(key, seen, execution)
            self._find_origins(
                key, "forward", seen, Presence(before.nan or makes.nan, before.inf or makes.inf), execution
            )
            if tensor.requires_grad and not tensor.is_leaf:
                self._watch_backward(key, tensor, execution, is_first=number == 0)
        return result

    def forget(self) -> None:
        """Forget the objects of the call, to free its memory."""
        self._functions.clear()
        self._presences.clear()

    def _add_forward(self, key: Hashable, seen: ValueRange, execution: int) -> None:
        known = self.values.get(key)
        if known is None:
            self.values[key] = RecordedValue(seen, executions=execution)
        else:
            known.forward, known.executions = merged(known.forward, seen), execution

    def _add_backward(self, key: Hashable, gradient: torch.Tensor) -> None:
        known, seen = self.values[key], range_of(gradient)
        known.backward = seen if known.backward is None else merged(known.backward, seen)

    def _find_origins(
        self,
        key: Hashable,
        direction: Literal["forward", "backward"],
        seen: ValueRange,
        before: Presence,
        execution: int,
    ) -> None:
        # A division of Inf by Inf makes NaN: only a new kind counts.
        if seen.nan and not before.nan:
            origin = Origin(key, direction, "nan", seen, execution)
            self.origins.setdefault((key, direction, "nan"), origin)
        if seen.inf and not (before.inf or before.nan):
            origin = Origin(key, direction, "inf", seen, execution)
            self.origins.setdefault((key, direction, "inf"), origin)

    def _watch_backward(self, key: Hashable, tensor: torch.Tensor, execution: int, *, is_first: bool) -> None:
        """Watch the gradient of a result, and the gradient functions that its operation made."""
        if is_first:
            tensor.register_hook(lambda gradient: self._add_backward(key, gradient))

        def record_gradients(computed: tuple[torch.Tensor | None, ...], given: tuple[torch.Tensor | None, ...]) -> None:
            before = self._presence(gradient for gradient in given if gradient is not None)
            for gradient in computed:
                if gradient is not None:
                    self._find_origins(key, "backward", range_of(gradient), before, execution)

        for function in self._new_functions(tensor.grad_fn):
            function.register_hook(record_gradients)

    def _new_functions(self, function: Any) -> Iterator[Any]:
        """Yield the gradient functions behind a result that no operation before has made."""
        pending, count = [function], 0
        while pending and count < _MAX_FUNCTIONS:
            function = pending.pop()
            if function is None or function in self._functions or function.name().rpartition("::")[2].startswith(_LEAF):
                continue
            count += 1
            self._functions.add(function)
            yield function
            pending += [following for following, _ in function.next_functions]

    def _presence(self, tensors: Iterable[torch.Tensor]) -> Presence:
        """Return whether any tensor has NaN, and whether any has infinite elements."""
        nan = inf = False
        for tensor in tensors:
            known = self._presences.get(id(tensor))
            version = changes_in_place(tensor)
            if known is not None and known[0]() is tensor and known[1] == version:
                found = known[2]
            else:
                found = presence_of(tensor)
                self._keep_presence(tensor, found)
            nan, inf = nan or found.nan, inf or found.inf
        return Presence(nan, inf)

    def _keep_presence(self, tensor: torch.Tensor, presence: Presence) -> None:
        version = changes_in_place(tensor)
        if version is not None:
            self._presences[id(tensor)] = weakref.ref(tensor), version, presence


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in the arguments or in the result of an operation."""
    match value:
        case torch.Tensor():
            yield value
        case list() | tuple():
            for item in value:
                yield from _tensors(item)
        case dict():
            yield from _tensors(list(value.values()))
