"""Try changes that may save memory, one at a time, if a call keeps a lot of memory for its backward pass."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.utils.checkpoint

from jupyter_graphbreak._torch_compat.tried_settings import memory_changes
from jupyter_graphbreak.experiments.cost.blocks import find_repeated_blocks, replace_forwards
from jupyter_graphbreak.experiments.cost.memory import SavedBytes, memory_activities, peak_bytes
from jupyter_graphbreak.experiments.cost.timing import ratio_in_turn
from jupyter_graphbreak.experiments.cost.variants import Variant
from jupyter_graphbreak.experiments.trial.entry import compile_separately
from jupyter_graphbreak.experiments.trial.memory import memory_limit
from jupyter_graphbreak.experiments.trial.time_limit import TimeUpError, require_time, seconds_left
from jupyter_graphbreak.report.cost import MemoryChange

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

    from jupyter_graphbreak.experiments.cost.steady_state import SteadyState
    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.report.cost import MemoryCost

#: Changes are tried only if at least this many bytes, and this share of the peak, are kept for the backward pass.
_MIN_SAVED_BYTES, _MIN_SAVED_SHARE = 1 << 20, 0.1
#: A change is tried if the time left is at least this many times the compile time: the backward pass is also compiled.
_MIN_COMPILE_TIMES_LEFT = 2.0
_T = TypeVar("_T")
#: Blocks are checkpointed one by one if the model repeats at least this many.
_MIN_BLOCKS = 2
#: A difference is attributed to rounding if it is at most this many times as large as the difference from the eager
#: result.
_ROUNDING_FACTOR = 10.0
_CHECKPOINT = "torch.utils.checkpoint.checkpoint"


def try_memory_changes(steady_state: SteadyState, memory: MemoryCost) -> list[MemoryChange]:
    """Try as many changes as time allows, and return them with the memory and the time that they need."""
    if memory.compiled_saved_bytes < max(_MIN_SAVED_BYTES, _MIN_SAVED_SHARE * memory.compiled_peak_bytes):
        return []
    compiled = steady_state.compiled
    if compiled.nbytes() + memory.compiled_peak_bytes > memory_limit():
        return []
    changes: list[MemoryChange] = []
    expected, eager_results = compiled.results_and_state(), steady_state.eager.results_and_state()

    def is_correct(actual: Sequence[torch.Tensor]) -> bool:
        return agree_within_rounding(expected, actual, eager_results)

    for code, make_variant in _candidates(steady_state.entry, compiled):
        if (
            make_variant is not None
            and seconds_left() < _MIN_COMPILE_TIMES_LEFT * steady_state.correspondence.compile_seconds()
        ):
            continue
        try:
            if make_variant is None:
                changes.append(_measure_change(code, compiled, compiled, compiled.checkpoint_calls, is_correct))
                continue
            changed_variant = make_variant()
            with compile_separately(changed_variant.subject.function):
                if changed_variant.warm_up():
                    changes.append(_measure_change(code, changed_variant, compiled, contextlib.nullcontext, is_correct))
        except TimeUpError:
            break
        except Exception:  # noqa: BLE001, S112 - PyTorch may fail with a change
            continue
    return changes


def _candidates(entry: Entry, compiled: Variant) -> Iterator[tuple[str, Callable[[], Variant] | None]]:
    """Yield the code of each change and a function that makes its variant, or ``None`` to checkpoint the whole call."""
    blocks = find_repeated_blocks(compiled.modules(), _MIN_BLOCKS)
    if blocks is None:
        yield f"{_CHECKPOINT}({entry.name}, ..., use_reentrant=False)", None
    else:
        yield (
            f"{_CHECKPOINT}(block, ..., use_reentrant=False) for each {blocks.name}"
            + (f" of {blocks.container}" if blocks.container is not None else ""),
            lambda: _with_checkpointed_blocks(entry, blocks.paths),
        )
    for setting in memory_changes():
        yield setting.code, functools.partial(Variant, entry, compiled=True, context=setting.apply)


def _with_checkpointed_blocks(entry: Entry, paths: Collection[str]) -> Variant:
    """Return a compiled variant in which the backward pass calls each block again."""
    replacements: list[tuple[Any, Callable[..., Any]]] = []
    variant = Variant(entry, compiled=True, context=lambda: replace_forwards(replacements))
    replacements += [(block, _add_checkpoint(block.forward)) for path, block in variant.modules() if path in paths]
    return variant


def _add_checkpoint(forward: Callable[..., Any]) -> Callable[..., Any]:
    def checkpoint_calls(*args: Any, **kwargs: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return checkpoint_calls


def _measure_change(
    code: str,
    changed_variant: Variant,
    compiled: Variant,
    context: Callable[[], AbstractContextManager[None]],
    is_correct: Callable[[Sequence[torch.Tensor]], bool],
) -> MemoryChange:
    def observe_with_backward(observe: Callable[[Callable[[], Any]], _T]) -> _T:
        require_time()
        with context():
            return changed_variant.observe_with_backward(observe)

    with context():
        results = changed_variant.results_and_state()
    saved_bytes = SavedBytes(changed_variant.memory_addresses(), lambda _: None)
    observe_with_backward(saved_bytes.observe)
    peak = peak_bytes(observe_with_backward(functools.partial(memory_activities, variant=changed_variant)))
    ratio = None
    with contextlib.suppress(TimeUpError):  # the memory is known
        ratio = ratio_in_turn(
            lambda: observe_with_backward(changed_variant.timer.time),
            lambda: compiled.observe_with_backward(compiled.timer.time),
        )
    return MemoryChange(code, peak, saved_bytes.peak_bytes, is_correct(results), ratio)


def agree_within_rounding(
    expected: Sequence[torch.Tensor], actual: Sequence[torch.Tensor], eager: Sequence[torch.Tensor] = ()
) -> bool:
    """Return whether tensors are equal, except for rounding errors.

    Differences in the last half of the digits are ignored, as are differences about as large as the difference from
    the eager results: a gradient whose terms cancel consists of rounding errors only.
    """
    if len(eager) != len(expected):
        eager = expected
    return len(expected) == len(actual) and all(map(_is_close, expected, actual, eager))


def _is_close(expected: torch.Tensor, actual: torch.Tensor, eager: torch.Tensor) -> bool:
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return False
    if not expected.dtype.is_floating_point:
        return torch.equal(expected, actual)
    digits = torch.finfo(expected.dtype).eps ** 0.5
    rounding = digits * _largest_magnitude(expected)
    if eager.shape == expected.shape:
        rounding += _ROUNDING_FACTOR * _largest_magnitude(expected - eager)
    return torch.allclose(expected, actual, rtol=digits, atol=rounding, equal_nan=True)


def _largest_magnitude(tensor: torch.Tensor) -> float:
    finite_numbers = tensor[tensor.isfinite()]
    return float(finite_numbers.abs().max()) if finite_numbers.numel() else 0.0
