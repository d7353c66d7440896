"""Measure the overhead of watching: the same training step with and without it, in pairs of separate processes.

Run it by hand on a quiet machine: ``python benchmarks/overhead.py --backend eager --pairs 15``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

#: Layers, width and text length. Breaks and graphs are the same in each, but the share of tensor work differs.
SIZES = {"small": (2, 64, 32), "medium": (6, 256, 64), "base": (6, 768, 128)}

#: The expected breaks: one branch on the layer drop, one call that Dynamo does not trace.
BREAK_COUNT = 2


class Cost(NamedTuple):
    """Wall-clock and processor seconds of one run, including child processes."""

    wall: float
    cpu: float


def cpu_seconds() -> float:
    """Return the processor time that this process and its ended children have used."""
    usages = (resource.getrusage(processes) for processes in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run_step(*, is_watched: bool, backend: str, size: str) -> dict[str, Any]:
    """Compile and run one training step of BART's decoder, and return its times and results."""
    import torch
    from transformers import BartConfig, BartForCausalLM

    import jupyter_graphbreak

    layers, width, length = SIZES[size]
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=1000,
        d_model=width,
        decoder_layers=layers,
        decoder_attention_heads=4,
        decoder_ffn_dim=4 * width,
        decoder_layerdrop=0.5,
        max_position_embeddings=length,
        use_cache=False,
    )
    model = BartForCausalLM(config).train()
    ids = torch.randint(0, config.vocab_size, (2, length))

    # Exclude the first compilation of a process, which imports the compiler and probes the C++ toolchain.
    torch.compile(torch.sin, backend=backend)(torch.ones(3))
    observer = jupyter_graphbreak.capture() if is_watched else contextlib.nullcontext()
    torch.manual_seed(1)

    cpu, wall = cpu_seconds(), time.perf_counter()
    with observer as run:
        compiled: Any = torch.compile(model, backend=backend)
        loss = compiled(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu

    result = {"wall": wall, "cpu": cpu, "loss": loss.item()}
    if run is not None:
        report = run.report
        if report.summary.breaks != BREAK_COUNT:
            raise SystemExit(
                f"the report shows {report.summary.breaks} breaks, not {BREAK_COUNT}: nothing was measured"
            )
        result |= {"capture_s": report.timing.capture_s, "wall_s": report.timing.wall_s}
    return result


def run_process(*, is_watched: bool, backend: str, size: str) -> dict[str, Any]:
    """Run the step in a fresh process with empty compiler caches."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            # One thread each, so that processor time is work and not the waiting of idle threads.
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TORCHINDUCTOR_CACHE_DIR": cache,
        }
        command = [sys.executable, __file__, "--backend", backend, "--size", size]
        command += ["--step", "watched" if is_watched else "plain"]
        output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def format_spread(values: list[float], number_format: str = ".3f") -> str:
    """Return the median of values, their quartiles and their extremes."""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    numbers = (statistics.median(values), low, high, min(values), max(values))
    return "{}  [{} .. {}]  ({} .. {})".format(*(format(number, number_format) for number in numbers))


def compare(backend: str, size: str, pair_count: int) -> None:
    """Run pairs of processes and print their ratios."""
    plain_costs, watched_costs, shares = [], [], []
    for pair in range(pair_count):
        results = {}
        # The order alternates, so that a gradual change in the machine's speed affects both equally.
        for mode in (False, True) if pair % 2 == 0 else (True, False):
            results[mode] = run_process(is_watched=mode, backend=backend, size=size)
        if results[False]["loss"] != results[True]["loss"]:
            raise SystemExit(f"the two runs did different work: {results}")
        plain_costs.append(Cost(results[False]["wall"], results[False]["cpu"]))
        watched_costs.append(Cost(results[True]["wall"], results[True]["cpu"]))
        shares.append(results[True]["capture_s"] / results[True]["wall_s"])

    print(f"\nbackend {backend}, size {size}, {pair_count} pairs: median  [quartiles]  (least .. most)")
    for clock in Cost._fields:
        watched_values, plain_values = (
            [getattr(cost, clock) for cost in costs] for costs in (watched_costs, plain_costs)
        )
        ratios = [a / b for a, b in zip(watched_values, plain_values, strict=True)]
        print(f"  {clock:4} without  {format_spread(plain_values)} s")
        print(f"  {clock:4} with     {format_spread(watched_values)} s")
        print(f"  {clock:4} ratio    {format_spread(ratios)}")
    print(f"  capture_s/wall_s {format_spread(shares, '.2%')}", flush=True)


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--pairs", type=int, default=15, help="how many pairs of runs (default: %(default)s, at least 2)"
    )
    parser.add_argument("--backend", choices=["eager", "inductor", "both"], default="both")
    parser.add_argument("--size", choices=SIZES, default="small", help="of the model (default: %(default)s)")
    parser.add_argument("--step", choices=["plain", "watched"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        is_watched = arguments.step == "watched"
        print(json.dumps(run_step(is_watched=is_watched, backend=arguments.backend, size=arguments.size)))
        return
    if arguments.pairs < 2:  # noqa: PLR2004  # a spread needs two
        parser.error("--pairs must be at least 2")

    import torch
    import transformers

    print(f"torch {torch.__version__}, transformers {transformers.__version__}, Python {platform.python_version()}")
    for backend in ["eager", "inductor"] if arguments.backend == "both" else [arguments.backend]:
        compare(backend, arguments.size, arguments.pairs)


if __name__ == "__main__":
    main()
