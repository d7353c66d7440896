"""Time the calls that cost.md quotes, eager and compiled alternately, with one thread.

python benchmarks/single_calls.py   # the quantized layers need torchao
"""

from __future__ import annotations

import copy
import importlib
import statistics
import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

#: The number of calls in one measurement.
CALLS = 20
#: The number of measurements.
ROUNDS = 30


def milliseconds(*functions: Callable[[], object]) -> list[float]:
    """Return the median time of a call to each function; the functions take turns."""
    times: list[list[float]] = [[] for _ in functions]
    for function in functions:
        for _ in range(CALLS):
            function()
    for _ in range(ROUNDS):
        for function, function_times in zip(functions, times, strict=True):
            start = time.perf_counter()
            for _ in range(CALLS):
                function()
            function_times.append((time.perf_counter() - start) / CALLS * 1e3)
    return [statistics.median(function_times) for function_times in times]


def print_times(name: str, function: Callable[..., Any], x: torch.Tensor) -> None:
    """Print the time of an eager and of a compiled call."""
    torch.compiler.reset()
    compiled = torch.compile(function)
    eager_ms, compiled_ms = milliseconds(lambda: function(x), lambda: compiled(x))
    print(f"{name:42} eagerly {eager_ms:6.2f} ms, compiled {compiled_ms:6.2f} ms")


def print_guard_times() -> None:
    """Print the time of a call to 60 small layers with all guards, and with fewer in both ways that cost.md names."""
    layers, x = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(60))), torch.randn(1, 4)

    # Two functions, because compiled code belongs to the code of a function.
    def call_guarded_layers(x: torch.Tensor) -> torch.Tensor:
        return layers(x)  # type: ignore[no-any-return]

    def call_filtered_layers(x: torch.Tensor) -> torch.Tensor:
        return layers(x)  # type: ignore[no-any-return]

    options: dict[str, Any] = {"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}
    compiled_guarded, compiled_filtered = (
        torch.compile(call_guarded_layers),
        torch.compile(call_filtered_layers, options=options),
    )

    def call_with_all_guards() -> None:
        for _ in range(CALLS):
            compiled_guarded(x)

    def call_with_filtered_guards() -> None:
        for _ in range(CALLS):
            compiled_filtered(x)

    def call_without_guards() -> None:
        with torch.compiler.set_stance(skip_guard_eval_unsafe=True):
            call_with_all_guards()

    all_us, filtered_us, none_us = (
        1e3 * ms / CALLS for ms in milliseconds(call_with_all_guards, call_with_filtered_guards, call_without_guards)
    )
    print(f"60 layers: all guards {all_us:.0f} us, none on modules {filtered_us:.0f} us, skipped {none_us:.0f} us")


def main() -> None:
    """Print the times."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with torch.inference_mode():
        print_guard_times()
        print_times("erfinv of 100,000 numbers", torch.erfinv, torch.rand(100_000))
        layers = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024))
        layers, row = layers.to(torch.bfloat16), torch.randn(1, 1024, dtype=torch.bfloat16)
        print_times("two layers of 1024, one row", layers, row)
        try:
            quantization = importlib.import_module("torchao.quantization")
        except ImportError:
            print("torchao is not installed")
            return
        for config in ("Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"):
            quantized_layers = copy.deepcopy(layers)
            quantization.quantize_(quantized_layers, getattr(quantization, config)())
            print_times(config, quantized_layers, row)


if __name__ == "__main__":
    main()
