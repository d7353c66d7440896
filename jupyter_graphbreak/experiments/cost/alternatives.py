"""Time the compiled call without a branch that only compiled code takes, or without some of its guards."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.hooks.paths import answer_questions_as_eager
from jupyter_graphbreak.experiments.cost.timing import Budget, spread_of_calls, time_in_turn
from jupyter_graphbreak.experiments.cost.variants import Variant
from jupyter_graphbreak.experiments.trial.entry import compile_separately
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, require_time
from jupyter_graphbreak.report.cost import Alternative, have_separate_quartiles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jupyter_graphbreak.experiments.cost.correspondence import Correspondence
    from jupyter_graphbreak.experiments.cost.steady_state import SteadyState
    from jupyter_graphbreak.report.cost import GuardCost, Spread
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import PathDifference

#: The maximum number of branches to leave out, one at a time; the branches with the most lines come first.
_MAX_BRANCHES = 3
#: Guards are left out if they take at least this share of the time of a call and this many microseconds. The result is
#: reported if leaving them out saves at least ``_MIN_SAVED_SHARE`` of their time.
_MIN_GUARDS_SHARE, _MIN_GUARDS_US = 0.05, 5.0
_MIN_SAVED_SHARE = 0.5
#: The names of PyTorch's functions that select the guards to keep; the functions that keep the most guards come first.
_GUARD_FILTERS = ("skip_guard_on_all_nn_modules_unsafe", "skip_guard_on_globals_unsafe", "keep_tensor_guards_unsafe")
_BUDGET = Budget(seconds=0.6, max_runs=100)


def measure_alternatives(
    steady_state: SteadyState, compiled_time: Spread, guards: Sequence[GuardCost]
) -> list[Alternative]:
    """Time the call without the branches that only compiled code takes, and without some of its guards.

    Each alternative is compared with an unchanged copy that is compiled just before the alternatives: guards take more
    or less time depending on where they are in memory.
    """
    paths = _shared_path_differences(steady_state.correspondence)
    guards_us = sum(guard.time.median_us for guard in guards)
    filters = (
        _guard_filters(guards) if guards_us >= max(_MIN_GUARDS_SHARE * compiled_time.median_us, _MIN_GUARDS_US) else []
    )
    alternatives: list[Alternative] = []
    if not paths and not filters:
        return alternatives
    unchanged_variant = Variant(steady_state.entry, compiled=True)
    with compile_separately(unchanged_variant.subject.function), contextlib.suppress(TimeUpError):
        if not unchanged_variant.warm_up():
            return alternatives
        for path in paths:

            def without_branch(path: PathDifference = path) -> contextlib.AbstractContextManager[None]:
                return answer_questions_as_eager(
                    lambda caller: _is_same_line(steady_state.locate([caller]), path.location)
                )

            times = _time_both(unchanged_variant, Variant(steady_state.entry, compiled=True, context=without_branch))
            if times is not None:
                alternatives.append(Alternative("branch", path.function, path.branch or path.location, *times))
        for name, guard_filter in filters:
            times = _time_both(
                unchanged_variant, Variant(replace(steady_state.entry, guard_filter=guard_filter), compiled=True)
            )
            if times is not None and _is_faster_by(times, _MIN_SAVED_SHARE * guards_us):
                alternatives.append(Alternative("guards", f"torch.compiler.{name}", None, *times))
                break
    return alternatives


def _shared_path_differences(correspondence: Correspondence) -> list[PathDifference]:
    """Return the run's path differences that also occurred on the copies, those with the most lines first."""
    keys = {_path_key(path) for path in correspondence.report_on_copies.paths if path.lines}
    paths = [path for path in correspondence.run_report.paths if path.lines and _path_key(path) in keys]
    return sorted(paths, key=lambda path: -len(path.lines))[:_MAX_BRANCHES]


def _path_key(path: PathDifference) -> tuple[str, int | None, str | None]:
    """Return a key for a path difference: the function that is called, and the line and function of the call."""
    location = path.location
    return (path.function, *((location.line, location.function) if location is not None else (None, None)))


def _is_same_line(one: Location | None, other: Location | None) -> bool:
    return one is not None and other is not None and (one.source, one.line) == (other.source, other.line)


def _guard_filters(guards: Sequence[GuardCost]) -> list[tuple[str, Callable[..., Any]]]:
    """Return PyTorch's functions that may leave out the most expensive guards, by name, if this release has them."""
    is_global = "G[" in guards[0].guard
    names = [name for name in _GUARD_FILTERS if is_global or name != "skip_guard_on_globals_unsafe"]
    return [(name, getattr(torch.compiler, name)) for name in names if hasattr(torch.compiler, name)]


def _is_faster_by(times: tuple[Spread, Spread], min_us: float) -> bool:
    times_after, times_before = times
    return times_before.median_us - times_after.median_us >= min_us and have_separate_quartiles(
        times_after, times_before
    )


def _time_both(unchanged_variant: Variant, changed_variant: Variant) -> tuple[Spread, Spread] | None:
    """Return the times of a changed call and of the unchanged one; ``None`` if the changed call cannot be timed."""
    require_time()
    start = time.monotonic()
    # The call may raise an error without the branch or the guards.
    with compile_separately(changed_variant.subject.function), contextlib.suppress(Exception):
        if changed_variant.warm_up():
            calls = time_in_turn(
                [changed_variant.time_call, unchanged_variant.time_call], _BUDGET, deadline=start + 10 * _BUDGET.seconds
            )
            return spread_of_calls(calls[0]), spread_of_calls(calls[1])
    return None
