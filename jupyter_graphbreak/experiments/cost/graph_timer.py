"""A backend that wraps another backend, and times its compiled graphs and the code between them."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import time
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from jupyter_graphbreak._torch_compat.compiled import innermost_backend, skip_functions
from jupyter_graphbreak._torch_compat.profile_ranges import mark_compiled_code, mark_graph, replace_backends
from jupyter_graphbreak._torch_compat.separate_cache import clone_backend
from jupyter_graphbreak._torch_compat.structured_trace import current_compile_id
from jupyter_graphbreak.experiments.cost.timing import CallTime, Mark, ProcessorClock, waiting_us_so_far, yields_so_far

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak._torch_compat.profile_ranges import Moment
    from jupyter_graphbreak.experiments.cost.timing import Clock

_T = TypeVar("_T")


class _Recording:
    """Holds the marks of a call while it is timed with marks; otherwise, ``marks`` is ``None``.

    Compiled code refers to this object, not to the timer: the code may outlive the measurement, and the timer's graphs
    keep parameters alive.
    """

    marks: list[tuple[str, str, Any]] | None = None


class GraphTimer:
    """A backend that wraps another backend; :meth:`time` can record when its graphs begin and end.

    The code around the graphs can also record marks if it was compiled in the context of :meth:`mark_generated_code`.
    ``compile_ids`` contains the id of the compiled frame of each graph, in order. ``running_graph`` is the number of
    the graph that is running, and the number of this run among the runs of all graphs; it is ``None`` if no graph is
    running, and while marks are recorded.
    """

    def __init__(self, backend: str | Callable[..., Any], clock: Clock) -> None:
        self.backend = clone_backend(backend) if isinstance(backend, str) else backend
        self.clock = clock
        self._recording = _Recording()
        self._records_ranges = False
        self._inputs: dict[int, list[Any]] | None = None
        self.compile_ids: list[str] = []
        self.modules: list[torch.fx.GraphModule] = []
        self.running_graph: tuple[int, int] | None = None
        self._runs = itertools.count()

    def __getattr__(self, name: str) -> Any:
        """Return the wrapped backend's attribute, such as a setting that Dynamo reads."""
        if name.startswith("_torchdynamo") or name == "backend":
            raise AttributeError(name)
        return getattr(self.backend, name)

    def __call__(self, module: Any, inputs: Any, **kwargs: Any) -> Callable[..., Any]:
        """Compile a graph."""
        return self._compile(self.backend, module, inputs, **kwargs)

    def _compile(self, backend: Callable[..., Any], module: Any, inputs: Any, **kwargs: Any) -> Callable[..., Any]:
        number = len(self.compile_ids)
        self.compile_ids.append(current_compile_id())
        # The backend may change the original.
        self.modules.append(torch.fx.GraphModule(module, copy.deepcopy(module.graph)))
        compiled: Callable[..., Any] = backend(module, inputs, **kwargs)
        name, mark_now = str(number), self.clock.mark

        def run(*args: Any) -> Any:
            if (marks := self._recording.marks) is not None:
                marks.append(("graph", name, mark_now()))
                result = compiled(*args)
                marks.append(("graph ends", name, mark_now()))
                self._watch_backward(result, name)
                marks.append(("graph is noted", name, mark_now()))
                return result
            if self._inputs is not None:
                self._inputs.setdefault(number, list(args))
            self.running_graph = number, next(self._runs)
            try:
                if self._records_ranges:
                    with mark_graph(number):
                        return compiled(*args)
                return compiled(*args)
            finally:
                self.running_graph = None

        return run

    @contextlib.contextmanager
    def mark_generated_code(self) -> Iterator[None]:
        """Return a context in which Dynamo generates code that can record marks; see :meth:`time`.

        In this context, the graphs of compiled functions that the call contains are timed as well.
        """

        def mark(moment: Moment) -> Callable[[], None]:
            return self._marker(moment, current_compile_id())

        with mark_compiled_code(mark), replace_backends(self._wrap_backend):
            yield

    def _wrap_backend(self, backend: Callable[..., Any]) -> Callable[..., Any]:
        """Return a backend that compiles a graph with the given backend, and times the graph."""
        innermost = innermost_backend(backend)
        if innermost is self or getattr(innermost, "compiler_fn", None) is self:  # torch.compile wraps backends
            return backend
        return functools.update_wrapper(functools.partial(self._compile, backend), backend)

    def time(self, function: Callable[[], Any], *, records_marks: bool = False) -> CallTime:
        """Time a call; with ``records_marks``, also record marks in the call, such as the end of each graph."""
        marks: list[tuple[str, str, Any]] = []
        self._recording.marks = marks if records_marks else None
        yields_before, waiting_us_before = yields_so_far(), waiting_us_so_far()
        process_ns_before = time.process_time_ns()
        try:
            start = self.clock.mark()
            result = function()
            end = self.clock.mark()
            processor_us = (time.process_time_ns() - process_ns_before) / 1e3
            yield_count, waited_us = yields_so_far() - yields_before, waiting_us_so_far() - waiting_us_before
        finally:
            self._recording.marks = None
        first, *times, last = self.clock.times_us([start, *(mark for _, _, mark in marks), end])
        del result  # after the clock has stopped
        timed_marks = [Mark(kind, name, us - first) for (kind, name, _), us in zip(marks, times, strict=True)]
        call_time = CallTime(last - first, timed_marks, yield_count, processor_us)
        return call_time.without_waiting(waited_us) if isinstance(self.clock, ProcessorClock) else call_time

    def call_with_graph_ranges(self, function: Callable[[], _T]) -> _T:
        """Make a call in which each run of a graph is a range of the profiler."""
        self._records_ranges = True
        try:
            return function()
        finally:
            self._records_ranges = False

    def graph_inputs_of(self, function: Callable[[], object]) -> dict[int, list[Any]]:
        """Make a call, and return the inputs of each graph that it runs, by the graph's number."""
        inputs: dict[int, list[Any]] = {}
        self._inputs = inputs
        try:
            function()
        finally:
            self._inputs = None
        return inputs

    def _marker(self, kind: str, name: str) -> Callable[..., None]:
        def mark(*_: Any) -> None:
            if (marks := recording.marks) is not None:
                marks.append((kind, name, clock_mark()))

        recording, clock_mark = self._recording, self.clock.mark
        skip_functions(mark, clock_mark)
        return mark

    def _watch_backward(self, result: Any, number: str) -> None:
        """Record marks for the backward pass of a graph, if it runs in the same call."""
        for value in result if isinstance(result, tuple | list) else [result]:
            node = value.grad_fn if isinstance(value, torch.Tensor) else None
            if node is not None and node.name().startswith("CompiledFunctionBackward"):
                node.register_prehook(self._marker("backward", number))
                node.register_hook(self._marker("backward ends", number))
                return


def as_leaves(inputs: list[Any]) -> list[Any]:
    """Return the inputs of a graph, with each tensor replaced by a leaf tensor that shares its memory."""
    return [
        value.detach().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value
        for value in inputs
    ]
