"""Sentences about compile time, the time of calls, and correctness."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jupyter_graphbreak.report.cost import may_be_equal
from jupyter_graphbreak.report.relevance import break_times
from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.lines import break_numbers
from jupyter_graphbreak.views.words.locations import called_object_name, function_of, line_text, location_text
from jupyter_graphbreak.views.words.lookup import per_report
from jupyter_graphbreak.views.words.plain_text import breaks_text, count_text, join_with_and, join_words, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jupyter_graphbreak.report.cost import Check, Coverage, EntryCost, Spread
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import Break, Frame, Graph, Report

_MAX_NAMED_FUNCTIONS = 3
#: The minimum compile time in seconds that is worth a sentence.
_MIN_COMPILE_S = 1.0
#: Shorter times, in seconds, would be shown as zero.
_MIN_SHOWN_S = 0.05
#: A block is mentioned if a graph contains it at least this many times, and if compiling it alone saves at least
#: ``_MIN_BLOCK_SAVING`` of the operations.
_MIN_REPEATS = 3
#: A repeated block with fewer operations, such as one indexing operation in a loop, cannot be compiled alone.
_MIN_BLOCK_OPS = 4
_MIN_BLOCK_SAVING = 0.4


def startup_sentence(report: Report) -> str:
    """Return which functions took longest to compile; empty if compiling took little time.

    For example: "start-up: 17.0 s of compiling: 7.1 s for step resumed at line 12, 4.0 s for step, 3.2 s for norm, 2.7
    s for 2 more functions; 2.1 s of it was spent on recompiles, for which 3 calls waited; Inductor's cache had the
    code of 2 of 6 graphs; graph A contains 12 copies of the block that starts at line 31 in forward (96% of the
    graph's operations): compiling that block alone may save 88% of the graph's compile time".
    """
    times: defaultdict[str, float] = defaultdict(float)
    for frame in report.frames:
        times[_frame_name(report, frame)] += frame.compile_s or 0.0
    total = sum(times.values())
    if total < _MIN_COMPILE_S:
        return ""
    times_by_length = sorted(times.items(), key=lambda item: -item[1])
    parts = [
        f"{seconds:.1f} s for {name}"
        for name, seconds in times_by_length[:_MAX_NAMED_FUNCTIONS]
        if seconds >= _MIN_SHOWN_S
    ]
    remaining_times = times_by_length[_MAX_NAMED_FUNCTIONS:]
    remaining_s = sum(seconds for _, seconds in remaining_times)
    if remaining_s >= _MIN_SHOWN_S:
        parts.append(f"{remaining_s:.1f} s for {count_text(len(remaining_times), 'more function')}")
    recompile_s = sum(frame.compile_s or 0.0 for frame in report.frames if frame.recompile_of is not None)
    sentences = [f"start-up: {total:.1f} s of compiling: {', '.join(parts)}"]
    if recompile_s >= _MIN_SHOWN_S:
        sentences.append(f"{recompile_s:.1f} s of it was spent on recompiles, {_waiting_calls_text(report)}")
    return "; ".join([*sentences, *_cache_sentence(report), *_block_sentence(report)])


def _waiting_calls_text(report: Report) -> str:
    """Say how many calls waited for recompiles: "for which 3 calls waited".

    A call that recompiles several frames, such as a function and its resume function, is counted once.
    """
    recompiles_by_function: defaultdict[str | None, int] = defaultdict(int)
    for frame in report.frames:
        recompiles_by_function[frame.recompile_of] += frame.recompile_of is not None
    entry_frame_ids = {frame.id for frame in report.frames if frame.role == "entry"}
    call_count = sum(count for first, count in recompiles_by_function.items() if first in entry_frame_ids)
    call_count = max(call_count, *recompiles_by_function.values())
    return f"for which {count_text(call_count, 'call')} waited"


def _cache_sentence(report: Report) -> list[str]:
    """Return a sentence, in a list, that says for how many graphs Inductor's cache on disk had the code."""
    hits, misses = report.timing.cache_hits, report.timing.cache_misses
    if hits is None or misses is None or not hits + misses:
        return []
    if hits:
        return [f"Inductor's cache had the code of {hits} of {count_text(hits + misses, 'graph')}"]
    advice = "keep the folder that TORCHINDUCTOR_CACHE_DIR names for the next start"
    return [f"Inductor's cache had no code for these graphs: {advice}"]


def _block_sentence(report: Report) -> list[str]:
    """Return a sentence, in a list, about the block that a graph repeats, if compiling it alone would save time."""
    blocks = [
        block for block in map(largest_repeated_block, report.graphs) if block and _can_compile_alone(report, block)
    ]
    block = max(blocks, key=lambda block: block.saving, default=None)
    is_measured = report.cost is not None and any(entry.regions is not None for entry in report.cost.entries)
    if block is None or block.saving < _MIN_BLOCK_SAVING or is_measured:
        return []
    start, share = location_text(report, block.start), f"{block.share:.0%} of the graph's operations"
    copies = f"graph {block.graph} contains {block.copy_count} copies of the block that starts at {start} ({share})"
    return [f"{copies}: compiling that block alone may save {block.saving:.0%} of the graph's compile time"]


def _can_compile_alone(report: Report, block: RepeatedBlock) -> bool:
    """Return whether the reader can compile a block alone, because it is their own code or a library's module.

    A library's loop, such as that of an optimizer over the parameters, is not a function that can be compiled.
    """
    is_library = any(source.id == block.start.source and source.kind == "library" for source in report.sources)
    return not is_library or block.start.function == "forward"


@dataclass(frozen=True)
class RepeatedBlock:
    """A block of operations that a graph repeats, and the share of the graph's operations in its copies."""

    graph: str
    start: Location
    copy_count: int
    share: float

    @property
    def saving(self) -> float:
        """The share of the graph's operations that need not be compiled if the block is compiled alone."""
        return self.share * (1 - 1 / self.copy_count)


def largest_repeated_block(graph: Graph) -> RepeatedBlock | None:
    """Return the largest block of operations that a graph repeats; ``None`` if there is none.

    Operations are identified by line and target. An operation that recurs at equal distances, with the same operations
    in between, belongs to such a block. The location of the block is that of its first operation in the function that
    spans most of the block.
    """
    numbers: defaultdict[tuple[str, int, str], list[int]] = defaultdict(list)
    for number, op in enumerate(graph.ops):
        if op.location is not None:
            numbers[op.location.source, op.location.line, op.target].append(number)
    largest: tuple[int, list[int]] | None = None
    for positions in numbers.values():
        distances = {later - number for number, later in itertools.pairwise(positions)}
        if len(positions) < _MIN_REPEATS or len(distances) > 1 or min(distances) < _MIN_BLOCK_OPS:
            continue
        targets = [[op.target for op in graph.ops[number:later]] for number, later in itertools.pairwise(positions)]
        if any(copy != targets[0] for copy in targets):
            continue
        covered_ops = distances.pop() * len(positions)
        if covered_ops <= len(graph.ops) and (largest is None or covered_ops > largest[0]):
            largest = covered_ops, positions
    if largest is None:
        return None
    covered_ops, positions = largest
    spans: dict[str | None, list[int]] = {}
    for number in range(positions[0], positions[1]):
        location = graph.ops[number].location
        if location is not None:
            spans.setdefault(location.function, []).append(number)
    widest_span = max(spans.values(), key=lambda span: span[-1] - span[0])
    start = graph.ops[widest_span[0]].location
    return RepeatedBlock(graph.id, start, len(positions), covered_ops / len(graph.ops)) if start is not None else None


def _frame_name(report: Report, frame: Frame) -> str:
    location = frame.location
    if frame.module is not None:
        name = called_object_name(report, frame)
        return name if "." in name else f"{name}.forward"
    name = function_of(report, location) if location is not None else frame.function
    return f"{name} resumed at line {location.line}" if frame.role == "resume" and location is not None else name


#: The backends that run the operations of a graph one by one, as eager code does.
_BACKENDS_WITHOUT_CODE = frozenset({"eager", "aot_eager"})
_ORIGIN_TEXTS = {
    "eager": "introduced by capture (the backend eager shows it as well)",
    "aot_eager": "introduced by AOTAutograd (the backend aot_eager shows it as well)",
    "backend": "introduced by the backend",
}
#: Lower ratios are shown in percent.
_MIN_SHOWN_RATIO = 1.1
#: If times with at least this ratio may be equal, they vary too much for a comparison.
_MIN_NOISY_RATIO = 1.25
#: Guards are mentioned if they take at least this share of a call.
_NOTABLE_GUARD_SHARE = 0.25
#: Processor time is mentioned if it differs from wall-clock time by more than this share of wall-clock time.
_NOTABLE_DIFFERENCE = 0.25
#: Eager calls that take less time, in microseconds, have too little work to gain from compiling if guards are notable.
_MAX_SMALL_CALL_US = 200.0
_ADVICE_ON_SMALL_CALLS = (
    ": a call does too little work, so compile a function that does more, or leave this one uncompiled"
)
#: Calls in the run may take up to this many times as long as in the measurement, because they are watched.
_MAX_WATCHED_RATIO = 1.5
_MAX_ENTRIES = 50
#: The maximum number of an entry's remedies to describe.
_MAX_REMEDIED = 20


@dataclass(frozen=True, slots=True)
class TimeShare:
    """A share of a call's time: the time of one graph, of the code outside graphs at one break, or of the guards.

    Its name is "A", "outside at break 1" or "guards". Only a graph has operations.
    """

    kind: Literal["graph", "outside", "guards"]
    name: str
    graph: str | None
    number: int | None
    us: float
    share: float
    op_count: int


def time_text(us: float) -> str:
    """Return a time in a suitable unit: "12 µs", "3.71 ms", "1.20 s"."""
    if us < 1000:  # noqa: PLR2004
        return f"{us:.0f} µs" if us >= 10 else f"{us:.1f} µs"  # noqa: PLR2004
    return f"{us / 1000:.2f} ms" if us < 1_000_000 else f"{us / 1_000_000:.2f} s"  # noqa: PLR2004


def cost_verdicts(report: Report) -> list[str]:
    """Say for each entry whether compiled calls are faster than eager ones, and how fixing breaks changes that.

    For example: "a compiled call is 3.1 times slower than eager (34 µs against 11 µs); guards and entering the code
    take 19 µs; without break 1: 1.2 times faster than eager (9 µs)". No ratio is shown if the difference is too small
    to measure, or if the entry was still being compiled during the measurement.
    """
    cost = report.cost
    if cost is None:
        return []
    return [entry_prefix(report, entry) + _entry_verdict(report, entry) for entry in cost.entries[:_MAX_ENTRIES]]


def entry_prefix(report: Report, entry: EntryCost) -> str:
    """Return the name of an entry for the beginning of a sentence: "step: "; empty if there is only one entry.

    If several entries have the same name, the first graph is added: "Sequential (graph A): ". Entries of one frame,
    such as calls with and without gradients, are numbered: "Net (call 1 of 2): ".
    """
    entries = report.cost.entries if report.cost is not None else []
    namesakes = [other for other in entries if other.function == entry.function]
    frame = lookup.frames(report).get(entry.frame or "")
    name = entry.function
    if len({other.frame for other in namesakes}) < len(namesakes):
        name = f"{name} (call {namesakes.index(entry) + 1} of {len(namesakes)})"
    elif len(namesakes) > 1 and frame is not None and frame.graphs:
        name = f"{name} (graph {frame.graphs[0]})"
    return f"{name}: " if len(entries) > 1 else ""


def _entry_verdict(report: Report, entry: EntryCost) -> str:
    if not entry.settled:
        return "not measured: it was still being compiled during the measurement"
    times = f"({time_text(entry.compiled.median_us)} against {time_text(entry.eager.median_us)})"
    ratio = _compare_with_eager(entry.eager, entry.compiled)
    parts = [f"a compiled call is {ratio} {times}", *_guard_time_text(entry)]
    for remedied in entry.remedied[:_MAX_REMEDIED]:
        name = _without_breaks_text(report, remedied.remedies)
        if may_be_equal(remedied.time, entry.compiled):
            parts.append(f"{name}: no measurable effect")
        else:
            parts.append(
                f"{name}: {_compare_with_eager(entry.eager, remedied.time)} ({time_text(remedied.time.median_us)})"
            )
    return "; ".join(parts)


def _compare_with_eager(eager: Spread, time: Spread) -> str:
    """Compare the time of a call with that of an eager call: "3.1 times slower than eager", "8% faster than eager"."""
    if not min(eager.median_us, time.median_us) > 0:
        return "as fast as eager, within measurement error"
    slower, faster = time.median_us / eager.median_us, eager.median_us / time.median_us
    word, ratio = ("slower", slower) if slower > 1 else ("faster", faster)
    if may_be_equal(eager, time):
        if ratio >= _MIN_NOISY_RATIO:
            return "not comparable with eager, because the times vary too much"
        return "as fast as eager, within measurement error"
    if ratio < _MIN_SHOWN_RATIO:
        return f"{100 * (ratio - 1):.0f}% {word} than eager"
    return f"{ratio:.0f} times {word} than eager" if ratio >= 10 else f"{ratio:.1f} times {word} than eager"  # noqa: PLR2004


def _guard_time_text(entry: EntryCost) -> list[str]:
    """Return the time for guards and for entering the code, in a list that is empty if it is a small part of a call."""
    guards_us = sum(part.time.median_us for part in entry.parts if part.kind == "guards")
    is_notable = guards_us > _NOTABLE_GUARD_SHARE * entry.compiled.median_us
    return [f"guards and entering the code take {time_text(guards_us)}"] if is_notable else []


def _without_breaks_text(report: Report, ids: Iterable[str]) -> str:
    """Return the condition under which a time with remedies was measured: "without break 1"."""
    remedies, numbers = lookup.remedies(report), break_numbers(report)
    applied_remedies = [remedies[ident] for ident in itertools.islice(ids, _MAX_REMEDIED) if ident in remedies]
    removed_numbers = sorted(
        {numbers[ident] for remedy in applied_remedies for ident in remedy.breaks if ident in numbers}
    )
    if not removed_numbers:
        return "without recompiles" if any(remedy.recompiles for remedy in applied_remedies) else "with a remedy"
    return f"without {breaks_text(removed_numbers)}"


def coverage_sentences(report: Report) -> list[str]:
    """Say for each entry how much of it ran compiled, after how many calls compiling pays off, and related facts."""
    cost = report.cost
    if cost is None:
        return []
    sentences = []
    for entry in cost.entries[:_MAX_ENTRIES]:
        parts = [_coverage_text(entry.coverage)] if entry.coverage is not None else []
        parts += _processor_time_text(entry)
        parts += _break_even_text(entry, cost.backend)
        parts += _time_in_run_text(entry)
        parts += _device_work_text(entry)
        if parts:
            sentences.append(entry_prefix(report, entry) + "; ".join(parts))
    return sentences


def _break_even_text(entry: EntryCost, backend: str) -> list[str]:
    """Return a list that says after how many calls compiling pays off, or that it never does with this backend."""
    if entry.break_even_calls is not None:
        return [f"compiling pays off after {count_text(entry.break_even_calls, 'call')}"]
    times = [entry.compiled, *(remedied.time for remedied in entry.remedied)]
    is_slower = all(time.median_us > entry.eager.median_us and not may_be_equal(entry.eager, time) for time in times)
    if not entry.settled or not is_slower:
        return []
    if backend in _BACKENDS_WITHOUT_CODE:
        return [f'the backend "{backend}" generates no faster code: measure with the default backend']
    is_small = bool(_guard_time_text(entry)) and entry.eager.median_us < _MAX_SMALL_CALL_US
    return [f"compiling never pays off{_ADVICE_ON_SMALL_CALLS if is_small else ''}"]


def _time_in_run_text(entry: EntryCost) -> list[str]:
    """Return a list with the time of the calls in the run itself after the last compilation.

    A time that is much longer than in the measurement is left out: most of it may be the time for watching the calls.
    """
    time = entry.in_run
    if time is None or time.median_us > _MAX_WATCHED_RATIO * entry.compiled.median_us:
        return []
    spread = f"{time_text(time.low_us)} to {time_text(time.high_us)}"
    return [f"in the run itself {count_text(time.runs, 'warm call')} took {time_text(time.median_us)} each ({spread})"]


def _device_work_text(entry: EntryCost) -> list[str]:
    """Return a list that describes a CUDA device's work: "a call launches 12 kernels (eager 48), waits for ..."."""
    compiled, eager = entry.device_work, entry.eager_device_work
    if compiled is None or eager is None:
        return []
    graphs = f" and {count_text(compiled.graph_launches, 'CUDA graph')}" if compiled.graph_launches else ""
    launches = f"launches {count_text(compiled.launches, 'kernel')}{graphs} (eager {eager.launches})"
    waits_text = (
        f"waits for the device {count_text(compiled.synchronizations, 'time')} (eager {eager.synchronizations})"
    )
    memory = f"takes up to {memory_text(compiled.peak_bytes)} of its memory (eager {memory_text(eager.peak_bytes)})"
    return [f"a call {launches}, {waits_text}, {memory}"]


def memory_text(nbytes: int) -> str:
    """Return an amount of memory in a suitable unit: "512 B", "1.5 KiB", "3.1 MiB"."""
    amount = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:  # noqa: PLR2004
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def _processor_time_text(entry: EntryCost) -> list[str]:
    """Return a list with the processor time of a call if it differs notably from the wall-clock time."""
    times = [(time.processor_us, time.median_us) for time in (entry.compiled, entry.eager)]
    known_times = [(processor_us, us) for processor_us, us in times if processor_us is not None]
    if len(known_times) < len(times) or all(
        abs(processor_us - us) <= _NOTABLE_DIFFERENCE * us for processor_us, us in known_times
    ):
        return []
    compiled, eager = (time_text(processor_us) for processor_us, _ in known_times)
    return [f"processor time: {compiled} a call, {eager} eagerly"]


def _coverage_text(coverage: Coverage) -> str:
    all_ops = coverage.compiled_ops + coverage.eager_ops
    if coverage.compiled_ops == 0:
        return f"nothing ran compiled: {count_text(all_ops, 'operation')} ran eagerly"
    count = f"{coverage.compiled_ops} of {count_text(all_ops, 'operation')}" if coverage.eager_ops else "all operations"
    words = f"{count} ran compiled"
    return words if coverage.time_share is None else f"{words}, {coverage.time_share:.0%} of the time"


#: :func:`break_times`, computed only once for each report.
_break_times = per_report(break_times)


def break_time_text(report: Report, break_: Break) -> str:
    """Say how much time a break costs: what a fix saves, if measured, or else the time outside graphs at the break."""
    time = _break_times(report).get(break_.id)
    if time is None:
        return ""
    if time.remedied is None:
        return f"{time_text(time.outside_us)} of each call is spent outside graphs at this break"
    compiled = time.entry.compiled
    if may_be_equal(time.remedied.time, compiled):
        return "fixing it saves no measurable time"
    word = "saves" if time.saved_us > 0 else "costs"
    return f"fixing it {word} {time_text(abs(time.saved_us))} of {time_text(compiled.median_us)} a call"


def measured_cost_text(report: Report, break_: Break) -> str:
    """Return how much time fixing a break saves: "costs 24 µs of 34 µs per call"; empty if none or unknown."""
    time = _break_times(report).get(break_.id)
    if time is None or time.remedied is None or time.saved_us <= 0:
        return ""
    if may_be_equal(time.remedied.time, time.entry.compiled):
        return ""
    return f"costs {time_text(time.saved_us)} of {time_text(time.entry.compiled.median_us)} per call"


def time_change_text(report: Report, remedy: Remedy) -> str:
    """Return how a remedy changes the time of a call; empty if that was not measured."""
    after, before = _times_with_and_without(report, remedy)
    if after is None or before is None:
        return ""
    if may_be_equal(after, before):
        return "a call then takes as long as before, within measurement error"
    return f"a call then takes {time_text(after.median_us)}, not {time_text(before.median_us)}"


def slowdown_text(report: Report, remedy: Remedy) -> str:
    """Return how much a remedy slows down a call: "a call then takes 1.70 ms, not 1.60 ms"; empty if it does not."""
    after, before = _times_with_and_without(report, remedy)
    if after is None or before is None or may_be_equal(after, before) or after.median_us < before.median_us:
        return ""
    return time_change_text(report, remedy)


def _times_with_and_without(report: Report, remedy: Remedy) -> tuple[Spread | None, Spread | None]:
    """Return the measured times of a compiled call with only this remedy, and without it."""
    for entry in report.cost.entries if report.cost is not None else []:
        for remedied in entry.remedied if entry.settled else []:
            if remedied.remedies == [remedy.id]:
                return remedied.time, entry.compiled
    return None, None


def time_shares(report: Report, entry: EntryCost) -> list[TimeShare]:
    """Return the shares of an entry's time, in the order in which their code ran."""
    total = sum(part.time.median_us for part in entry.parts) or 1.0
    ops = {graph.id: len(graph.ops) for graph in report.graphs}
    numbers = break_numbers(report)
    shares = []
    for part in entry.parts:
        number = numbers.get(part.break_ or "") if part.kind == "outside" else None
        graph = part.graph if part.kind == "graph" else None
        name = graph or (f"outside at break {number}" if number is not None else part.kind)
        us = part.time.median_us
        shares.append(TimeShare(part.kind, name, graph, number, us, us / total, ops.get(graph or "", 0)))
    return shares


def restoring_sentences(check: Check) -> list[str]:
    """Return sentences about the changes that make a wrong result right or, if none does, about those that were tried.

    For example: "With `torch._inductor.config.emulate_precision_casts = True` the result is right; a call takes 1.2
    times as long".
    """
    sentences = []
    for trial in check.restored_by:
        if trial.equal:
            sentence = f"With `{one_line(trial.change)}` the result is right"
            if trial.time_ratio is not None:
                is_longer = trial.time_ratio >= _MIN_SHOWN_RATIO
                sentence += f"; a call takes {f'{trial.time_ratio:.2g} times as long' if is_longer else 'no longer'}"
            sentences.append(sentence)
    if sentences or not check.restored_by:
        return sentences
    return [
        f"The result stays wrong with {join_with_and([f'`{one_line(trial.change)}`' for trial in check.restored_by])}"
    ]


def check_sentence(report: Report, check: Check, compared_call_count: int = 1) -> str:
    """Describe whether a result is right: "wrong: step ..., from graph B, line 14 (mul), introduced by the backend"."""
    if check.equal:
        instances = f" ({check.instances} instances)" if check.instances > 1 else ""
        words = f"right: {check.function}{instances} compiled with {check.backend}"
        calls = "1 call of each" if instances else f"{compared_call_count} of {check.calls} calls"
        compared_text = f" ({calls} {'was' if compared_call_count == 1 else 'were'} compared)"
        is_partial = check.calls > (1 if instances else compared_call_count)
        results = "values and gradients" if check.gradients else "values"
        return f"{words} gives the same {results} as eager{compared_text if is_partial else ''}"
    first = check.first
    words = f"{'wrong' if check.is_result_wrong else 'different'}: {check.function} compiled with {check.backend}"
    if first is not None:
        words += f", from graph {first.graph}"
        words += f", {line_text(report, first.location)}" if first.location is not None else ""
        words += f" ({first.op.rpartition('.')[2]})" if first.op else ""
    if check.step is not None:
        words += f", {_ORIGIN_TEXTS[check.step]}"
    return f"{words}: {join_words(check.differences, '; ')}" if check.differences else words
