"""Sentences about the reasons why compiled calls or starts take more time or memory than necessary."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jupyter_graphbreak.knowledge.cache_bypasses import find_cache_bypass
from jupyter_graphbreak.report.cost import have_separate_quartiles
from jupyter_graphbreak.report.guards import plain_guard
from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.cost import entry_prefix, memory_text, time_text
from jupyter_graphbreak.views.words.failed_guards import failed_guards, guard_lines_text
from jupyter_graphbreak.views.words.locations import line_text
from jupyter_graphbreak.views.words.plain_text import count_text, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jupyter_graphbreak.report.cost import (
        Alternative,
        CompiledWay,
        EntryCost,
        MemoryChange,
        MemoryCost,
        MemoryGrowth,
        OpCost,
        RegionCost,
        UnfusedKernels,
    )
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Report

#: The condition under which the cache returns correct code for an operation that is marked as cacheable.
_CACHE_CONDITION = (
    '. The cache knows a marked operation by its name only: if what the operation computes changes, replace its "1" in '
    "this setting with a different string"
)
_MAX_ENTRIES = 50
#: Calls that need less memory than this are not described; differences in memory below this share are ignored.
_NOTABLE_BYTES = 1 << 20
_NOTABLE_SHARE = 0.05
#: A change is mentioned if it saves at least this many bytes and at least this share of the memory; at most this many
#: are mentioned.
_MIN_SAVED_BYTES, _MIN_SAVED_SHARE, _MAX_CHANGES = 1 << 20, 0.1, 3
#: Calls that keep less memory than this, in bytes, are not described.
_NOTABLE_GROWTH_BYTES = 1 << 10
#: Lower ratios of times are not shown.
_MIN_SHOWN_RATIO = 1.1
#: Two starts are compared only if at least one of them compiles for this many seconds.
_NOTABLE_START_S = 1.0
#: The maximum number of listed graphs that no cache can keep.
_MAX_BYPASSED_GRAPHS = 3
#: The maximum number of slow operations to list.
_MAX_OPS = 5
#: A lower bound, in microseconds, for times to divide by.
_MIN_US = 0.1
#: The maximum number of alternatives of an entry to describe.
_MAX_ALTERNATIVES = 5
_UNNOTICED_CHANGES = {
    "skip_guard_on_all_nn_modules_unsafe": "a later change of a module's attribute then goes unnoticed",
    "skip_guard_on_globals_unsafe": "a later change of a global then goes unnoticed",
    "keep_tensor_guards_unsafe": "a later change of anything but the tensors that are passed then goes unnoticed",
}
#: The maximum number of pairs of unfused kernels to describe.
_MAX_UNFUSED_PAIRS = 3
_UNFUSED_REASON_TEXTS = {
    "reduction": "the second one needs the finished result of a reduction",
    "between": "a kernel that must run between them uses the result of the first one",
    "sizes": "their loops have different sizes",
    "order": "the second one reads elements in a different order than the first one writes them",
    "device": "they run on different devices",
}
#: A way to compile blocks is suggested if compiling then takes at most this share of the time for the whole model.
_MAX_START_RATIO = 0.8
#: Times are called equal if their ratio is between the reciprocal of this number and this number.
_EQUAL_RATIO = 1.03
#: The maximum number of differences between blocks to list.
_MAX_DIFFERENCES = 3
#: Findings about start-up time are sorted as if they cost this share of a call.
_SHARE_OF_START = 0.5
#: The maximum number of objects with expensive guards to list.
_MAX_GUARDS = 3
#: A part of a guard's path: the dict in which a module keeps its submodules, parameters or buffers.
_MODULE_CONTAINER = re.compile(r"\._(?:modules|parameters|buffers)\b")


@dataclass(frozen=True, slots=True)
class CostFinding:
    """A sentence about the cost of an entry.

    Findings are sorted by their share of a call's time or memory; that of a saving is negative.
    """

    sentence: str
    share: float = 0.0
    location: Location | None = None


def cost_findings(report: Report) -> list[CostFinding]:
    """Return the findings about all entries, most expensive first."""
    cost = report.cost
    if cost is None:
        return []
    findings = []
    for entry in cost.entries[:_MAX_ENTRIES]:
        prefix = entry_prefix(report, entry)
        findings += [replace(finding, sentence=prefix + finding.sentence) for finding in _entry_findings(report, entry)]
    return sorted(findings, key=lambda finding: -finding.share)


def startup_findings(report: Report) -> list[CostFinding]:
    """Compare a second start with the first, and list the graphs that AOTAutograd's cache cannot keep.

    For example: "compiling takes 10.2 s at a second start (22.6 s at the first): 2 of 3 graphs are in AOTAutograd's
    cache", "graph B is never in AOTAutograd's cache, so every start spends 4.1 s compiling it (Unsupported
    call_function target cond)".
    """
    startup = report.startup
    if startup is None:
        return []
    findings = []
    if max(startup.first_s, startup.second_s) >= _NOTABLE_START_S:
        hit_count = sum(graph.cache == "hit" for graph in startup.graphs)
        count = len(startup.graphs)
        hits_text = f"{hit_count} of {count_text(count, 'graph')} {'is' if 1 in {hit_count, count} else 'are'}"
        seconds_of_starts = f"{startup.second_s:.1f} s at a second start ({startup.first_s:.1f} s at the first)"
        findings.append(CostFinding(f"compiling takes {seconds_of_starts}: {hits_text} in AOTAutograd's cache"))
    bypassed_graphs = [graph for graph in startup.graphs if graph.cache == "bypass"]
    for graph in sorted(bypassed_graphs, key=lambda graph: -graph.tracing_s - graph.backend_s)[:_MAX_BYPASSED_GRAPHS]:
        compile_s = graph.tracing_s + graph.backend_s
        name = f"graph {graph.graph}"
        sentence = f"{name} is never in AOTAutograd's cache, so every start spends {compile_s:.1f} s compiling it"
        facts = [one_line(graph.reason)] if graph.reason else []
        facts += [line_text(report, graph.location)] if graph.location is not None else []
        sentence += f" ({', '.join(facts)})" if facts else ""
        change = next((change for change in startup.changes if graph.graph in change.graphs), None)
        if change is not None:
            code, second_start = one_line(change.code), f"{change.second_s:.2f} s"
            sentence += f": with `{code}` before compiling, a second start finds it and takes {second_start} to compile"
            sentence += _CACHE_CONDITION if "cacheable_functions" in code else ""
            findings.append(CostFinding(sentence, location=graph.location))
            continue
        cause = find_cache_bypass(graph.reason)
        advice = f": {cause.advice}" if cause is not None and cause.advice is not None else ""
        findings.append(CostFinding(sentence + advice, location=graph.location))
    return findings


def _entry_findings(report: Report, entry: EntryCost) -> Iterator[CostFinding]:
    if entry.memory is not None:
        yield from _memory_finding(report, entry.memory)
        yield from _growth_finding(report, entry.memory.growth)
        yield from _memory_change_findings(entry.memory)
    yield from _guard_finding(report, entry)
    yield from map(functools.partial(_slow_operation_finding, report, entry), (entry.ops or [])[:_MAX_OPS])
    for alternative in entry.alternatives[:_MAX_ALTERNATIVES]:
        yield from _alternative_finding(report, entry, alternative)
    yield from map(functools.partial(_unfused_kernels_finding, report), entry.unfused[:_MAX_UNFUSED_PAIRS])
    if entry.regions is not None:
        yield from _region_findings(report, entry.regions)


def _alternative_finding(report: Report, entry: EntryCost, alternative: Alternative) -> Iterator[CostFinding]:
    """Say how much time a branch costs that only compiled code takes, or how much leaving out guards saves.

    Both times of an alternative were measured later than those of the entry, so only their ratio is used. A branch in a
    library that makes no difference is left out: a reader can do nothing about it.

    For example: "the branch at line 7 that only compiled code takes costs 12 µs of 52 µs per call", "with
    `options=...` in `torch.compile`, a call takes 140 µs, not 183 µs; a later change of a global then goes unnoticed".
    """
    before = entry.compiled.median_us
    after = before * alternative.time.median_us / max(alternative.before.median_us, _MIN_US)
    extra_us = before - after
    share = extra_us / max(entry.eager.median_us, before)
    if alternative.kind == "guards":
        name = one_line(alternative.change)
        unnoticed_text = _UNNOTICED_CHANGES.get(name.rpartition(".")[2], "some changes then go unnoticed")
        option = f'`options={{"guard_filter_fn": {name}}}` in `torch.compile`'
        yield CostFinding(
            f"with {option}, a call takes {time_text(after)}, not {time_text(before)}; {unnoticed_text}", share
        )
        return
    place_text = f" at {line_text(report, alternative.location)}" if alternative.location is not None else ""
    branch = f"the branch{place_text} that only compiled code takes"
    if not have_separate_quartiles(alternative.time, alternative.before):
        source = lookup.sources(report).get(alternative.location.source) if alternative.location is not None else None
        if source is None or source.kind != "library":
            yield CostFinding(f"{branch} makes no measurable difference", 0.0, alternative.location)
        return
    verb, total_text = ("costs", f" of {time_text(before)} per call") if extra_us > 0 else ("saves", " per call")
    yield CostFinding(f"{branch} {verb} {time_text(abs(extra_us))}{total_text}", share, alternative.location)


def _region_findings(report: Report, regions: RegionCost) -> Iterator[CostFinding]:
    """List the ways to compile blocks that shorten the start, and say why some blocks cannot share compiled code.

    For example: "compile each `Block` alone (`for block in self.layers: block.compile()`): compiling at a first start
    takes 4.1 s instead of 19.3 s; calls take 1.05 times as long".
    """
    whole_model, *other_ways = regions.ways
    starts = [(way.start_s, way) for way in other_ways if way.equal and way.start_s is not None]
    for start_s, way in sorted(starts, key=lambda start: start[0]):
        if whole_model.start_s is not None and start_s <= _MAX_START_RATIO * whole_model.start_s:
            times = f"compiling at a first start takes {start_s:.1f} s instead of {whole_model.start_s:.1f} s"
            yield CostFinding(f"{_program_change(regions, way)}: {times}{_call_time_text(way)}", _SHARE_OF_START)
    for way in other_ways:
        if way.differences:
            yield _separate_blocks_finding(report, regions, way)


def _program_change(regions: RegionCost, way: CompiledWay) -> str:
    """Say how to change the program: "compile each `Block` alone (...)"."""
    block = one_line(regions.block)
    if way.way != "blocks":
        return f"mark `{block}.forward` with `@torch.compiler.nested_compile_region`"
    container = one_line(regions.container) if regions.container is not None else None
    if regions.compiles_in_place:
        code = f"for block in {container}: block.compile()" if container else "block.compile()"
    elif container:
        code = f"for index, block in enumerate({container}): {container}[index] = torch.compile(block)"
    else:
        code = "block = torch.compile(block)"
    return f"compile each `{block}` alone (`{code}`)"


def _call_time_text(way: CompiledWay) -> str:
    if way.time_ratio is None:
        return ""
    is_equal = 1 / _EQUAL_RATIO <= way.time_ratio <= _EQUAL_RATIO
    return f"; calls take {'equally long' if is_equal else f'{way.time_ratio:.2f} times as long'}"


def _separate_blocks_finding(report: Report, regions: RegionCost, way: CompiledWay) -> CostFinding:
    """Say why blocks of the same class are compiled separately.

    For example: "compiled alone, the 12 `Block` modules need 8 compilations, and the rest of them runs eagerly
    (recompile limit), because of these differences: self.layer_idx: 0 -> 1 -> ... -> 7 (line 8)".
    """
    differences = ((difference.compilation, difference) for difference in way.differences)
    guards = failed_guards(differences, is_module_method=True)
    variations = []
    for guard in guards[:_MAX_DIFFERENCES]:
        lines_text = guard_lines_text(report, guard)
        variations.append(f"{one_line(guard.variation)}{f' ({lines_text})' if lines_text else ''}")
    sentence = f"compiled alone, the {regions.count} `{one_line(regions.block)}` modules need "
    sentence += count_text(way.compilations, "compilation")
    sentence += ", and the rest of them runs eagerly (recompile limit)," if way.limit_hit else ""
    sentence += f" because of these differences: {'; '.join(variations)}"
    sentence += f". Advice: {one_line(guards[0].advice)}" if guards[0].advice else ""
    return CostFinding(sentence, location=next(iter(guards[0].locations), None))


def _unfused_kernels_finding(report: Report, kernels: UnfusedKernels) -> CostFinding:
    """Say why two kernels are not fused.

    For example: "line 5 and line 6 run in separate kernels: the second one needs the finished result of a reduction, so
    each call reads 5.1 MiB again".
    """
    kernel_lines = dict.fromkeys(line for line in (kernels.first, kernels.second) if line is not None)
    lines = [line_text(report, line) for line in kernel_lines]
    verb = "run in separate kernels" if len(lines) > 1 else "runs in several kernels"
    name = one_line(kernels.op or "").removesuffix(".default").rpartition(".")[2]
    library = {"library": f"`{name}` is computed by a library, whose kernels are not fused with others"}
    reason = (_UNFUSED_REASON_TEXTS | library)[kernels.reason]
    consequence = f"so each call reads {memory_text(kernels.nbytes)} again"
    return CostFinding(f"{' and '.join(lines)} {verb}: {reason}, {consequence}", location=kernels.first)


def _slow_operation_finding(report: Report, entry: EntryCost, op: OpCost) -> CostFinding:
    """Describe a slow operation: "`erfinv` is 8.7 times slower compiled than eager (3.14 ms against ..., line 6)"."""
    eager, compiled = op.eager.median_us, op.compiled.median_us
    facts = [f"{time_text(compiled)} against {time_text(eager)}"]
    facts += [line_text(report, op.location)] if op.location is not None else []
    name, ratio = one_line(op.op).rpartition(".")[2], compiled / max(eager, _MIN_US)
    times = f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"  # noqa: PLR2004
    sentence = f"`{name}` is {times} times slower compiled than eager ({', '.join(facts)})"
    return CostFinding(sentence, (compiled - eager) / max(entry.eager.median_us, compiled - eager), op.location)


def _guard_finding(report: Report, entry: EntryCost) -> Iterator[CostFinding]:
    """List the objects whose guards take a notable part of a call.

    The measured part "guards and entering the code" includes more than guards, so the sentence contains no total.

    For example: "guards on `names` take 6.8 µs of each call (400 guards, line 10), on `self.layers` 2.4 µs (90 guards,
    line 8)".
    """
    notable_guards = [
        guard for guard in entry.guards or [] if guard.time.median_us > _NOTABLE_SHARE * entry.compiled.median_us
    ]
    if not notable_guards:
        return
    parts: list[str] = []
    for guard in notable_guards[:_MAX_GUARDS]:
        facts = [f"{guard.count} guards"] if guard.count > 1 else []
        facts += [line_text(report, guard.location)] if guard.location is not None else []
        facts_text = f" ({', '.join(facts)})" if facts else ""
        path = _MODULE_CONTAINER.sub("", plain_guard(guard.guard))
        subject, us = f"on `{path}`", time_text(guard.time.median_us)
        parts.append(f"{subject} {us}{facts_text}" if parts else f"guards {subject} take {us} of each call{facts_text}")
    total_us = sum(guard.time.median_us for guard in notable_guards)
    share = total_us / max(entry.eager.median_us, total_us)
    yield CostFinding(", ".join(parts), share, notable_guards[0].location)


def _memory_finding(report: Report, memory: MemoryCost) -> Iterator[CostFinding]:
    """Compare the peak memory of compiled and eager calls, and say how much is kept for the backward pass.

    For example: "a call needs 48.0 MiB more memory than eager (96.0 MiB against 48.0 MiB); 40.0 MiB are kept for the
    backward pass, most at line 12: 24.0 MiB (eager 20.0 MiB, most at line 12: 16.0 MiB)".
    """
    compiled, eager = memory.compiled_peak_bytes, memory.eager_peak_bytes
    if max(compiled, eager) < _NOTABLE_BYTES:
        return
    extra_bytes = compiled - eager
    share = extra_bytes / max(eager, 1)
    if abs(share) < _NOTABLE_SHARE:
        sentence = f"a call needs as much memory as eager ({memory_text(compiled)})"
    else:
        word = "more" if extra_bytes > 0 else "less"
        peaks_text = f"({memory_text(compiled)} against {memory_text(eager)})"
        sentence = f"a call needs {memory_text(abs(extra_bytes))} {word} memory than eager {peaks_text}"
    by_line = {line.location: line.compiled_bytes or 0 for line in memory.lines}
    eager_by_line = {line.location: line.eager_bytes for line in memory.lines}
    if memory.compiled_saved_bytes or memory.eager_saved_bytes:
        saved_bytes, eager_saved_bytes = memory.compiled_saved_bytes, memory.eager_saved_bytes
        sentence += f"; {memory_text(saved_bytes)} are kept" if saved_bytes else "; none is kept"
        sentence += f" for the backward pass{_line_with_most_memory_text(report, by_line)}"
        eager_text = memory_text(eager_saved_bytes) if eager_saved_bytes else "none"
        sentence += f" (eager {eager_text}{_line_with_most_memory_text(report, eager_by_line)})"
    yield CostFinding(sentence, share, _line_with_most_memory(by_line) or _line_with_most_memory(eager_by_line))


def _line_with_most_memory_text(report: Report, by_line: Mapping[Location, int]) -> str:
    """Return the line that keeps the most memory: ", most at line 7: 12.0 MiB"; empty if no line keeps any."""
    line = _line_with_most_memory(by_line)
    return f", most at {line_text(report, line)}: {memory_text(by_line[line])}" if line else ""


def _line_with_most_memory(by_line: Mapping[Location, int]) -> Location | None:
    line = max(by_line, key=by_line.__getitem__, default=None)
    return line if line is not None and by_line[line] else None


def _growth_finding(report: Report, growth: MemoryGrowth | None) -> Iterator[CostFinding]:
    """Say how much memory stays allocated after every call.

    For example: "each of 6 calls keeps 1.0 MiB in `self.history`, as eager calls do (allocated at line 12); 4.0 MiB if
    no backward pass follows".
    """
    if growth is None or growth.compiled_bytes < _NOTABLE_GROWTH_BYTES:
        return
    sentence = f"each of {growth.calls} calls keeps {memory_text(growth.compiled_bytes)}"
    sentence += f" in `{one_line(growth.holder)}`" if growth.holder is not None else ""
    if growth.eager_bytes is not None:
        is_equal = abs(growth.compiled_bytes - growth.eager_bytes) <= _NOTABLE_SHARE * growth.compiled_bytes
        eager = memory_text(growth.eager_bytes) if growth.eager_bytes else "nothing"
        sentence += ", as eager calls do" if is_equal else f", and an eager call keeps {eager}"
    if growth.location is not None:
        sentence += f" (allocated at {line_text(report, growth.location)})"
    if growth.without_backward_bytes is not None:
        sentence += f"; {memory_text(growth.without_backward_bytes)} if no backward pass follows"
    # Running out of memory is worse than being slow, so this comes first.
    yield CostFinding(sentence, 1.0, growth.location)


def _memory_change_findings(memory: MemoryCost) -> Iterator[CostFinding]:
    """List the changes that save memory, those with the lowest peak first.

    For example: "`torch._functorch.config.activation_memory_budget = 0.5`: peak 3.1 MiB instead of 5.2 MiB; a call
    with its backward pass takes 1.2 times as long".
    """
    sentences = []
    for change in sorted(memory.changes, key=lambda change: (change.peak_bytes, change.saved_bytes)):
        if not change.equal:
            continue
        if _saves_memory(memory.compiled_peak_bytes, change.peak_bytes):
            effect = f"peak {memory_text(change.peak_bytes)} instead of {memory_text(memory.compiled_peak_bytes)}"
        elif _saves_memory(memory.compiled_saved_bytes, change.saved_bytes):
            saved_text = memory_text(change.saved_bytes) if change.saved_bytes else "nothing"
            effect = f"keeps {saved_text} for the backward pass instead of {memory_text(memory.compiled_saved_bytes)}"
            effect += f", with the peak at {memory_text(change.peak_bytes)}"
        else:
            continue
        sentences.append(f"`{one_line(change.change)}`: {effect}{_extra_time_text(change)}")
    return map(CostFinding, sentences[:_MAX_CHANGES])


def _saves_memory(before: int, after: int) -> bool:
    return before - after >= max(_MIN_SAVED_BYTES, _MIN_SAVED_SHARE * before)


def _extra_time_text(change: MemoryChange) -> str:
    """Return how much longer a call takes with a change; empty if that was not measured."""
    if change.time_ratio is None:
        return ""
    duration = f"{change.time_ratio:.2g} times as long" if change.time_ratio >= _MIN_SHOWN_RATIO else "no longer"
    return f"; a call with its backward pass takes {duration}"
