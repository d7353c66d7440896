"""Measure the cost and benefit of compiling BART's decoder, and compare known costs with the measured ones.

Run it by hand on a quiet machine: ``python benchmarks/cost.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import statistics
import time
from typing import TYPE_CHECKING, Any

import torch

import jupyter_graphbreak
from jupyter_graphbreak.experiments.cost.entry_cost import MeasuredEntry, measure_entry
from jupyter_graphbreak.experiments.cost.timing import Budget
from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.entry import Entry
from jupyter_graphbreak.report.cost import may_be_equal
from jupyter_graphbreak.views.words.cost import cost_verdicts, coverage_sentences

if TYPE_CHECKING:
    from jupyter_graphbreak.experiments.trial.entry import RemedyContext
    from jupyter_graphbreak.report.cost import Spread

#: Microseconds that each break of ``wait_three_times`` takes.
KNOWN_US = (50, 200, 800)


def format_quartiles(time: Spread) -> str:
    """Return a time with its quartiles."""
    return f"{time.median_us:8,.0f} us  [{time.low_us:,.0f} .. {time.high_us:,.0f}], {time.runs} calls"


def compare_with_eager(eager: Spread, other: Spread) -> str:
    """Compare a time with that of eager mode."""
    if may_be_equal(eager, other):
        return "no difference to eager can be measured"
    return f"{eager.median_us / other.median_us:.2f} times eager"


def bart_config(**settings: Any) -> Any:
    """Return a small configuration of BART, with layer drop."""
    from transformers import BartConfig

    return BartConfig(
        vocab_size=1000,
        d_model=64,
        decoder_layers=3,
        decoder_attention_heads=4,
        decoder_ffn_dim=256,
        decoder_layerdrop=0.1,
        max_position_embeddings=32,
        use_cache=False,
        **settings,
    )


def print_search(backend: str) -> None:
    """Print the result of ``--try --cost`` for the forward pass in training, with the remedies that it finds.

    Dropout is off. With dropout, a change that runs a layer which the original leaves out shifts all later random
    numbers, so such a change would be rejected.
    """
    from transformers import BartForCausalLM

    config = bart_config(dropout=0.0, attention_dropout=0.0)
    torch.manual_seed(0)
    model: Any = BartForCausalLM(config).train()
    compiled: Any = torch.compile(model, backend=backend)
    ids = torch.randint(0, config.vocab_size, (2, 32), generator=torch.Generator().manual_seed(0))
    with jupyter_graphbreak.capture(entries=True) as run:
        compiled(input_ids=ids, labels=ids)
    run.try_remedies()
    report = run.measure()
    print(f"\nBART's decoder, no dropout, what --try --cost says, backend {backend}")
    for sentence in (*cost_verdicts(report), *coverage_sentences(report)):
        print(f"  {sentence}")
    for remedy in report.remedies or []:
        print(f"  {remedy.id} of {', '.join(remedy.breaks)}: {remedy.title}: {remedy.verdict}")
    titles = {remedy.id: f"{remedy.title}: {remedy.verdict}" for remedy in report.remedies or []}
    for entry in report.cost.entries if report.cost is not None else []:
        print(f"  eager            {format_quartiles(entry.eager)}")
        print(f"  compiled         {format_quartiles(entry.compiled)}")
        for remedied_cost in entry.remedied:
            names = ", ".join(titles[ident] for ident in remedied_cost.remedies)
            print(f"  {'/'.join(remedied_cost.remedies):16} {format_quartiles(remedied_cost.time)}  {names}")


def measure_bart(backend: str, budget: Budget) -> None:
    """Measure the forward pass in training: unchanged, with the branch on the layer drop fixed, and without it."""
    from transformers import BartForCausalLM

    config = bart_config()
    ids = torch.randint(0, config.vocab_size, (2, 32), generator=torch.Generator().manual_seed(0))

    class MaybeLayer(torch.nn.Module):
        """A layer that is left out with some probability."""

        def __init__(self, layer: torch.nn.Module, probability: float) -> None:
            super().__init__()
            self.layer = layer
            self.probability = probability

        def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            """Select with ``torch.where`` instead of a branch."""
            return torch.where(torch.rand([]) >= self.probability, self.layer(x, *args, **kwargs), x)

    def entry(kind: str) -> Entry:
        torch.manual_seed(0)
        model = BartForCausalLM(config).train()
        decoder = model.model.decoder
        if kind == "where":
            decoder.layers = torch.nn.ModuleList(MaybeLayer(layer, decoder.layerdrop) for layer in decoder.layers)
        if kind != "as it is":
            decoder.layerdrop = 0.0
        return Entry(f"BART, {kind}", None, model, Arguments(input_ids=ids, labels=ids), backend)

    def remedy_context(kind: str) -> RemedyContext:
        return lambda: contextlib.nullcontext(entries[kind])

    entries = {kind: entry(kind) for kind in ("as it is", "where", "no layer drop")}
    remedied_entries: dict[tuple[str, ...], RemedyContext] = {
        (kind,): remedy_context(kind) for kind in ("where", "no layer drop")
    }
    measured_entry = measure_entry(entries["as it is"], remedied_entries, budget=budget)
    cost, summary = measured_entry.cost, measured_entry.report.summary
    print(f"\nBART's decoder, 3 layers, forward in training, backend {backend}")
    print(f"  {summary.breaks} breaks, {summary.graphs} graphs; {'settled' if cost.settled else 'has not settled'}")
    print(f"  eager            {format_quartiles(cost.eager)}")
    print(f"  compiled         {format_quartiles(cost.compiled)}: {compare_with_eager(cost.eager, cost.compiled)}")
    for remedy in cost.remedied:
        print(
            f"  {remedy.remedies[0]:16} {format_quartiles(remedy.time)}: {compare_with_eager(cost.eager, remedy.time)}"
        )
    show_parts(measured_entry)


def show_parts(measured_entry: MeasuredEntry) -> None:
    """Print the parts of the compiled call's time."""
    cost = measured_entry.cost
    compiled_us = cost.compiled.median_us
    for kind in ("graph", "outside", "guards"):
        part = sum(part.time.median_us for part in cost.parts if part.kind == kind)
        print(f"  {kind:16} {part:8,.0f} us, {part / compiled_us:.0%}")
    print(
        f"  together         {sum(part.time.median_us for part in cost.parts) / compiled_us:8.1%} of the compiled call"
    )
    if cost.coverage is not None:
        print(f"  operations       {cost.coverage.compiled_ops} compiled, {cost.coverage.eager_ops} eager")


def keep_busy(us: float) -> None:
    """Wait outside graphs."""
    end = time.perf_counter() + us * 1e-6
    while time.perf_counter() < end:
        pass


wait = torch.compiler.disable(keep_busy)


def wait_three_times(x: torch.Tensor) -> torch.Tensor:
    """Break three times, for known times."""
    y = x + 1
    wait(KNOWN_US[0])
    y = y * 2
    wait(KNOWN_US[1])
    y = y - x
    wait(KNOWN_US[2])
    return y.relu()


def measure_known_waits(backend: str, budget: Budget) -> None:
    """Measure a program whose breaks take known times."""
    measured_entry = measure_entry(
        Entry("wait_three_times", None, wait_three_times, Arguments(torch.rand(1000)), backend), budget=budget
    )
    print(f"\nBreaks of {', '.join(map(str, KNOWN_US))} us, backend {backend}")
    lines = {break_.id: break_.location.line for break_ in measured_entry.report.breaks if break_.location is not None}
    parts = [part for part in measured_entry.cost.parts if part.kind == "outside" and part.break_ is not None]
    for part, known_us in zip(sorted(parts, key=lambda part: lines[part.break_ or ""]), KNOWN_US, strict=True):
        print(f"  {known_us:5} us found as {format_quartiles(part.time)}: {part.time.median_us / known_us - 1:+.0%}")
    show_parts(measured_entry)
    print_uninstrumented(measured_entry, backend)


def print_uninstrumented(measured_entry: MeasuredEntry, backend: str) -> None:
    """Print the sum of the parts, and the time of the program when it is compiled without instrumentation."""
    compiled, x = torch.compile(wait_three_times, backend=backend), torch.rand(1000)
    times = []
    for _ in range(300):
        start = time.perf_counter()
        compiled(x)
        times.append((time.perf_counter() - start) * 1e6)
    whole_us = statistics.median(times[100:])
    parts_us = sum(part.time.median_us for part in measured_entry.cost.parts)
    print(f"  uninstrumented   {whole_us:8,.0f} us; the parts add up to {parts_us / whole_us:.1%} of it")


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", default="inductor", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10, help="of measuring each program (default: %(default)s)")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.set_num_threads(1)  # the cost of idle threads depends on the load of a shared machine
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} processors")
    budget = Budget(arguments.seconds)
    measure_known_waits(arguments.backend, budget)
    measure_bart(arguments.backend, budget)
    print_search(arguments.backend)


if __name__ == "__main__":
    main()
