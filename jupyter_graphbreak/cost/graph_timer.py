"""A backend around a backend, which takes the time of each graph that it compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_graphbreak._torch_compat.profile_ranges import marked_graph
from jupyter_graphbreak._torch_compat.separate_cache import own_backend
from jupyter_graphbreak._torch_compat.structured_trace import envelope
from jupyter_graphbreak.cost.timing import CallTime, GraphRun, yields

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.cost.clock import Clock

_T = TypeVar("_T")


class GraphTimer:
    """A backend that compiles as another does, and whose graphs take their own time while it listens.

    Parameters
    ----------
    backend : str or callable
    clock : Clock

    Attributes
    ----------
    compile_ids : list of str
        For each graph, in order, the id of the frame that was compiled.
    """

    def __init__(self, backend: str | Callable[..., Any], clock: Clock) -> None:
        self._backend = own_backend(backend) if isinstance(backend, str) else backend
        self._clock = clock
        self._marks: list[tuple[int, Any, Any]] | None = None
        self._profiled = False
        self.compile_ids: list[str] = []

    def __getattr__(self, name: str) -> Any:
        """Return what Dynamo asks of a backend, such as its settings, from the one inside."""
        if name.startswith("_torchdynamo") or name == "_backend":
            raise AttributeError(name)
        return getattr(self._backend, name)

    def __call__(self, module: Any, inputs: Any, **kwargs: Any) -> Callable[..., Any]:
        """Compile a graph."""
        number = len(self.compile_ids)
        self.compile_ids.append(compile_id())
        compiled: Callable[..., Any] = self._backend(module, inputs, **kwargs)

        def run(*args: Any) -> Any:
            if self._profiled:
                with marked_graph(number):
                    return compiled(*args)
            marks = self._marks
            if marks is None:
                return compiled(*args)
            start = self._clock.mark()
            result = compiled(*args)
            marks.append((number, start, self._clock.mark()))
            return result

        return run

    def time(self, call: Callable[[], Any]) -> CallTime:
        """Make a call and take its time, and that of the graphs in it."""
        marks = self._marks = []
        before = yields()
        try:
            start = self._clock.mark()
            result = call()
            end = self._clock.mark()
            yielded = yields() - before
        finally:
            self._marks = None
        times = self._clock.times_us([start, *(mark for _, *both in marks for mark in both), end])
        del result  # not while the clock runs
        runs = [GraphRun(number, *times[1 + 2 * i : 3 + 2 * i]) for i, (number, _, _) in enumerate(marks)]
        return CallTime(times[-1], runs, yielded)

    def profiling(self, call: Callable[[], _T]) -> _T:
        """Make a call in which graphs are ranges of the profiler."""
        self._profiled = True
        try:
            return call()
        finally:
            self._profiled = False


def compile_id() -> str:
    """Return the id of the frame that is being compiled, as a report names it."""
    context = envelope()
    return f"{context.get('frame_id', '-')}/{context.get('frame_compile_id', '-')}"
