"""Compare ways to compile a model that repeats blocks: as a whole, block by block, with blocks as nested regions."""

from __future__ import annotations

import contextlib
import functools
import time
import types
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from msgspec import structs

from jupyter_graphbreak._torch_compat.configuration import use_eager_random_numbers
from jupyter_graphbreak._torch_compat.tried_settings import disable_caches
from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.experiments.cost.blocks import find_repeated_blocks, replace_forwards
from jupyter_graphbreak.experiments.cost.correspondence import Correspondence
from jupyter_graphbreak.experiments.cost.memory_changes import agree_within_rounding
from jupyter_graphbreak.experiments.cost.timing import ratio_in_turn
from jupyter_graphbreak.experiments.cost.variants import Variant
from jupyter_graphbreak.experiments.trial.entry import backend_name, compile_separately
from jupyter_graphbreak.experiments.trial.memory import memory_limit
from jupyter_graphbreak.experiments.trial.other_threads import busy_thread_name
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, require_time, seconds_left
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.report.cost import BlockDifference, CompiledWay, RegionCost

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.experiments.cost.blocks import RepeatedBlocks
    from jupyter_graphbreak.experiments.cost.steady_state import SteadyState
    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.report.cost import Way
    from jupyter_graphbreak.report.schema import Report

#: Ways are compared if compiling the entry took at least this many seconds, and if it repeats at least this many
#: blocks.
_MIN_COMPILE_S = 2.0
_MIN_BLOCKS = 3
#: The whole model is compiled again, without caches, if the time left is at least this many times its compile time.
_MIN_COMPILE_TIMES_LEFT = 1.5
#: If fewer than this many blocks share a compilation on average, compiling each block in place is not worthwhile.
_MIN_SHARING = 2
#: A backend that computes the same values as eager mode, to check ways that draw different random numbers.
_REFERENCE_BACKEND = "aot_eager"


def measure_regions(steady_state: SteadyState) -> RegionCost | None:
    """Compile an entry that repeats blocks in different ways, and return how the ways compare.

    The result is ``None`` if the entry repeats no blocks, is itself uncompiled, compiles quickly, takes too much
    memory, or was taken mostly from PyTorch's caches; or if fewer than two ways could be measured.
    """
    entry, correspondence = steady_state.entry, steady_state.correspondence
    whole_model_s = correspondence.compile_seconds()
    timing = correspondence.run_report.timing
    is_warm = (timing.cache_hits or 0) > (timing.cache_misses or 0)  # a start without caches takes much longer
    if whole_model_s < _MIN_COMPILE_S or is_warm or entry.inner_targets or entry.compiles_inner_function:
        return None
    blocks = find_repeated_blocks(steady_state.compiled.modules(), _MIN_BLOCKS)
    if blocks is None or 2 * steady_state.compiled.nbytes() > memory_limit():
        return None
    trial = _CompilationTrial(steady_state, blocks)
    ways: list[CompiledWay] = []
    for measure in (trial.measure_blocks, trial.measure_nested, trial.measure_whole):
        if measure == trial.measure_whole and (not ways or seconds_left() < _MIN_COMPILE_TIMES_LEFT * whole_model_s):
            continue
        try:
            way = measure()
        except TimeUpError:
            break
        except Exception:  # noqa: BLE001, S112 - PyTorch may fail to compile in this way
            continue
        if way is not None:
            ways.append(way)
    if ways and ways[-1].way != "whole":
        frames = [frame for frame in correspondence.run_report.frames if frame.id in correspondence.matched_frames()]
        compiled_frame_count = sum(frame.outcome == "compiled" for frame in frames)
        ways.append(
            CompiledWay(
                "whole", whole_model_s, compiled_frame_count, sum(len(frame.graphs) for frame in frames), time_ratio=1.0
            )
        )
    if len(ways) < 2:  # noqa: PLR2004
        return None
    return RegionCost(blocks.name, len(blocks.paths), blocks.container, ways[::-1], blocks.compiles_in_place)


class _CompilationTrial:
    """Compiles an entry in different ways, and measures each way."""

    def __init__(self, steady_state: SteadyState, blocks: RepeatedBlocks) -> None:
        self._entry = entry = steady_state.entry
        self._blocks = blocks
        self._compiled_variant = compiled = steady_state.compiled
        self._run_report = steady_state.correspondence.run_report
        # The order in which code draws random numbers depends on the way in which the code is compiled.
        self._is_random = compiled.is_random and backend_name(entry.backend) not in {"eager", _REFERENCE_BACKEND}
        self._expected_results = (
            steady_state.eager.results_and_gradients() if self._is_random else compiled.results_and_gradients()
        )
        self._eager_results = steady_state.eager.results_and_gradients()

    def measure_whole(self) -> CompiledWay | None:
        """Measure compiling the whole model at once."""
        return self._measure("whole", lambda entry: Variant(entry, compiled=True))

    def measure_blocks(self) -> CompiledWay | None:
        """Measure compiling block by block; if the blocks share little compiled code, only return the reasons."""
        return self._way_if_blocks_differ() or self._measure("blocks", self._variant_by_block)

    def _way_if_blocks_differ(self) -> CompiledWay | None:
        """Return why few blocks share compiled code, without generating any; ``None`` if many blocks share it."""
        require_time()
        variant = self._variant_by_block(replace(self._entry, backend="eager"))
        with compile_separately(variant.subject.function), recorder.record() as recording:
            variant.warm_up()
        way = self._way_in_report("blocks", None, build_report(recording.records))
        return way if _MIN_SHARING * way.compilations > len(self._blocks.paths) else None

    def measure_nested(self) -> CompiledWay | None:
        """Measure compiling the whole model at once, with each block as a nested region."""
        if not hasattr(torch.compiler, "nested_compile_region"):  # older releases of PyTorch have no nested regions
            return None
        files = {forward.__code__.co_filename for forward in self._forwards(self._compiled_variant).values()}
        if busy_thread_name(files) is not None:  # that thread would run the replaced methods of the classes
            return None
        return self._measure("nested", self._variant_with_nested_regions) if self._shares_regions() else None

    def _shares_regions(self) -> bool:
        """Return whether several blocks use one nested region, without generating code."""
        require_time()
        variant = self._variant_with_nested_regions(replace(self._entry, backend="eager"))
        with compile_separately(variant.subject.function):
            variant.warm_up()
        return any(map(_shared_region_count, variant.timer.modules))

    def _variant_by_block(self, entry: Entry) -> Variant:
        subject_paths = self._compiled_variant.paths_in_subject()
        method = "" if self._blocks.compiles_in_place else "forward"
        blocks = frozenset((subject_paths[path], method) for path in self._blocks.paths)
        return Variant(replace(entry, inner_targets=blocks), compiled=False)

    def _variant_with_nested_regions(self, entry: Entry) -> Variant:
        # Nested regions that replace the methods of individual modules return wrong results (torch 2.13, 2.15), unlike
        # those that replace the methods of classes.
        regions: dict[Any, Any] = {}
        variant = Variant(entry, compiled=True, context=lambda: replace_forwards(regions.items()))
        regions.update({kind: _as_nested_region(forward) for kind, forward in self._forwards(variant).items()})
        return variant

    def _forwards(self, variant: Variant) -> dict[Any, Any]:
        """Return the method ``forward`` of each class of the blocks."""
        blocks = [module for path, module in variant.modules() if path in self._blocks.paths]
        return {type(block): type(block).forward for block in blocks}

    def _measure(self, way: Way, make_variant: Callable[[Entry], Variant]) -> CompiledWay | None:
        """Compile in one way, and time calls in turn with the whole model; ``None`` if the calls keep compiling."""
        require_time()
        variant = make_variant(self._entry)
        with compile_separately(variant.subject.function), disable_caches():
            with recorder.record() as recording:
                is_settled = variant.warm_up()
                start_s = variant.first_call_s + _seconds_of_call(variant)
            if not is_settled:
                return None
            start_s -= variant.second_call_s + _seconds_of_call(variant)  # the same calls without compiling
            report = build_report(recording.records)
            is_equal = way == "whole" or self._has_equal_results(variant, make_variant)
            ratio = 1.0 if way == "whole" else None
            if is_equal and ratio is None:
                with contextlib.suppress(TimeUpError):  # the start-up time alone is worth reporting
                    ratio = ratio_in_turn(_timer_of(variant), _timer_of(self._compiled_variant))
        return structs.replace(
            self._way_in_report(way, round(max(0.0, start_s), 3), report),
            regions=sum(map(_shared_region_count, variant.timer.modules)) if way == "nested" else None,
            equal=is_equal,
            time_ratio=round(ratio, 3) if ratio is not None else None,
        )

    def _way_in_report(self, way: Way, start_s: float | None, report: Report) -> CompiledWay:
        """Return what the report of a compilation shows about a way."""
        return CompiledWay(
            way,
            start_s,
            compilations=sum(frame.outcome == "compiled" for frame in report.frames),
            graphs=len(report.graphs),
            differences=_failed_guards(report, self._run_report) if way == "blocks" else [],
            limit_hit=any(recompile.limit_hit for recompile in report.recompiles),
        )

    def _has_equal_results(self, variant: Variant, make_variant: Callable[[Entry], Variant]) -> bool:
        """Return whether results and gradients agree with those of the whole model."""
        if not self._is_random:
            return agree_within_rounding(self._expected_results, variant.results_and_gradients(), self._eager_results)
        reference_variant = make_variant(replace(self._entry, backend=_REFERENCE_BACKEND))
        with use_eager_random_numbers(), compile_separately(reference_variant.subject.function):
            reference_variant.warm_up()
            return agree_within_rounding(
                self._expected_results, reference_variant.results_and_gradients(), self._eager_results
            )


def _shared_region_count(module: torch.fx.GraphModule) -> int:
    """Return the number of nested regions that a graph calls; Dynamo inlines a region that only one block uses."""
    return sum(isinstance(child, torch.fx.GraphModule) for child in module.children())


def _seconds_of_call(variant: Variant) -> float:
    """Return the time in seconds of a call with its backward pass; the first call may compile the backward pass."""
    start = time.monotonic()
    variant.observe_with_backward(lambda call: call())
    return time.monotonic() - start


def _timer_of(variant: Variant) -> Callable[[], Any]:
    """Return a function that times a call with its backward pass."""
    return lambda: variant.observe_with_backward(variant.timer.time)


def _as_nested_region(function: Any) -> Any:
    """Return a copy of a method that is marked to be compiled only once for all modules that are alike.

    The method itself is not marked, because the mark is an attribute that would stay.
    """
    code = function.__code__.replace()
    copy = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return torch.compiler.nested_compile_region(functools.update_wrapper(copy, function))


def _failed_guards(report_on_copies: Report, run_report: Report) -> list[BlockDifference]:
    """Return the guards that failed in a compilation, with locations in the sources of the original run."""
    correspondence = Correspondence(report_on_copies, run_report)
    return [
        BlockDifference(number, reason.guard, correspondence.original_location(reason.location), reason.head)
        for number, recompile in enumerate(report_on_copies.recompiles, start=1)
        for reason in reversed(recompile.reasons)  # PyTorch lists the latest version first
    ]
