"""The sentences about cost and checks claim only results that were measured."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from msgspec.structs import replace

from jupyter_graphbreak.report.cost import (
    Alternative,
    BlockDifference,
    CacheChange,
    Check,
    CompiledWay,
    Cost,
    CostPart,
    Coverage,
    DeviceWork,
    EntryCost,
    GraphStartup,
    GuardCost,
    MemoryChange,
    MemoryCost,
    MemoryGrowth,
    MemoryLine,
    OpCost,
    RegionCost,
    Spread,
    Startup,
    UnfusedKernels,
)
from jupyter_graphbreak.report.location import Location, Source
from jupyter_graphbreak.report.schema import Frame, Graph, Op
from jupyter_graphbreak.report.summary import Timing
from jupyter_graphbreak.results import Report
from jupyter_graphbreak.views.html.render import render_html
from jupyter_graphbreak.views.rows.schema import Spot
from jupyter_graphbreak.views.rows.sections import build_rows
from jupyter_graphbreak.views.text import render_text
from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.cost import (
    break_time_text,
    check_sentence,
    cost_verdicts,
    coverage_sentences,
    largest_repeated_block,
    startup_sentence,
    time_shares,
    time_text,
)
from jupyter_graphbreak.views.words.cost_findings import CostFinding, cost_findings, startup_findings
from tests.support.sample_reports import checks, cost, two_breaks


def entry_of(report: Report) -> EntryCost:
    assert report.cost is not None
    return report.cost.entries[0]


def replace_entry_fields(report: Report, **fields: object) -> Report:
    """Return the report with the given fields in its entry, and by default no findings about regions and kernels."""
    assert report.cost is not None
    new_fields = {"regions": None, "unfused": []} | fields
    return replace(report, cost=replace(report.cost, entries=[replace(entry_of(report), **new_fields)]))


def test_the_verdict_compares_a_call_with_eager_and_with_fixed_breaks() -> None:
    assert cost_verdicts(cost()) == [
        "a compiled call is 1.1 times slower than eager (4.21 ms against 3.71 ms); without break 1: 1.2 times faster "
        "than eager (3.03 ms); without break 2: no measurable effect; without breaks 1 and 2: 1.4 times faster than "
        "eager (2.60 ms)"
    ]
    assert cost_verdicts(two_breaks()) == []


def test_two_kinds_of_calls_to_one_function_have_different_names() -> None:
    report = cost()
    assert report.cost is not None
    other = replace(entry_of(report), compiled=Spread(3710, 3600, 3800, 9))
    verdicts = cost_verdicts(replace(report, cost=replace(report.cost, entries=[entry_of(report), other])))
    assert [text.partition(":")[0] for text in verdicts] == ["step (call 1 of 2)", "step (call 2 of 2)"]


def test_overlapping_spreads_have_no_ratio() -> None:
    report = replace_entry_fields(cost(), compiled=Spread(3710, 3600, 3800, 9), remedied=[])
    assert cost_verdicts(report) == [
        "a compiled call is as fast as eager, within measurement error (3.71 ms against 3.71 ms)"
    ]


def test_times_that_vary_too_much_are_not_called_equal() -> None:
    report = replace_entry_fields(
        cost(), compiled=Spread(34_000, 20_000, 400_000, 3), eager=Spread(246_000, 240_000, 250_000, 3), remedied=[]
    )
    assert cost_verdicts(report) == [
        "a compiled call is not comparable with eager, because the times vary too much (34.00 ms against 246.00 ms)"
    ]


def test_small_differences_are_percentages_and_large_ratios_are_rounded() -> None:
    for median, words in ((3890, "5% slower"), (37050, "10 times slower"), (1000, "3.7 times faster")):
        compiled = Spread(median, median - 1, median + 1, 9)
        report = replace_entry_fields(
            cost(), compiled=compiled, eager=Spread(3705, 3704, 3706, 9), remedied=[], parts=[]
        )
        assert cost_verdicts(report)[0].startswith(f"a compiled call is {words} than eager")


def test_guards_are_mentioned_if_they_take_much_of_the_time() -> None:
    guards = CostPart("guards", Spread(19, 18, 20, 9))
    report = replace_entry_fields(
        cost(), compiled=Spread(34, 33, 35, 9), eager=Spread(11, 10, 12, 9), remedied=[], parts=[guards]
    )
    assert cost_verdicts(report) == [
        "a compiled call is 3.1 times slower than eager (34 µs against 11 µs); guards and entering the code take 19 µs"
    ]


def test_a_remedy_that_makes_calls_as_fast_as_eager_has_no_ratio() -> None:
    compiled_time, remedied_time = Spread(5000, 4900, 5100, 9), Spread(3710, 3600, 3800, 9)
    report = replace_entry_fields(
        cost(), compiled=compiled_time, remedied=[replace(entry_of(cost()).remedied[0], time=remedied_time)]
    )
    (sentence,) = cost_verdicts(report)
    assert sentence.endswith("; without break 1: as fast as eager, within measurement error (3.71 ms)")


def test_an_unsettled_entry_has_no_figures() -> None:
    report = replace_entry_fields(cost(), settled=False)
    (sentence,) = cost_verdicts(report)
    assert sentence.startswith("not measured")
    assert not re.search(r"\d", sentence)
    assert break_time_text(report, report.breaks[0]) == ""
    assert 'class="gb-bars"' not in render_html(report)


def test_sentences_about_several_entries_begin_with_their_names() -> None:
    report = cost()
    other = replace(entry_of(report), function="norm", remedied=[], coverage=Coverage(0, 3, 0.0), break_even_calls=7)
    report_of_both = replace(report, cost=Cost("cpu", "eager", [entry_of(report), other]))
    assert [sentence.partition(":")[0] for sentence in cost_verdicts(report_of_both)] == ["step", "norm"]
    assert coverage_sentences(report_of_both) == [
        "step: 9 of 11 operations ran compiled, 61% of the time",
        "norm: nothing ran compiled: 3 operations ran eagerly; compiling pays off after 7 calls",
    ]
    report_without_breaks = replace(report, cost=Cost("cpu", "eager", [replace(other, coverage=Coverage(264, 0, 0.9))]))
    assert coverage_sentences(report_without_breaks)[0].startswith("all operations ran compiled, 90% of the time")


def test_slow_compiled_calls_never_pay_off() -> None:
    def sentence(eager_us: float, compiled_us: float, guards_us: float, backend: str = "inductor") -> str:
        spreads = [Spread(us, us - 1, us + 1, 9) for us in (eager_us, compiled_us, guards_us)]
        parts = [CostPart("guards", spreads[2])]
        report = replace_entry_fields(cost(), eager=spreads[0], compiled=spreads[1], remedied=[], parts=parts)
        assert report.cost is not None
        return " ".join(coverage_sentences(replace(report, cost=replace(report.cost, backend=backend))))

    assert sentence(11, 34, 19).endswith(
        "compiling never pays off: a call does too little work, so compile a function that does more, or leave "
        "this one uncompiled"
    )
    assert sentence(3000, 3400, 19).endswith("compiling never pays off")
    assert sentence(11, 34, 19, "aot_eager").endswith(
        'the backend "aot_eager" generates no faster code: measure with the default backend'
    )
    assert "pays off" not in sentence(3400, 3400, 19)
    assert "pays off" not in " ".join(coverage_sentences(cost()))  # without the break, calls are faster


def test_times_of_watched_calls_are_left_out_if_watching_dominates() -> None:
    compiled = Spread(34, 33, 35, 9)
    for run_time, is_shown in ((Spread(40, 35, 60, 9), True), (Spread(2000, 1900, 2100, 9), False)):
        report = replace_entry_fields(cost(), compiled=compiled, in_run=run_time)
        assert ("in the run itself" in " ".join(coverage_sentences(report))) == is_shown


def test_entries_with_the_same_name_are_told_apart_by_their_first_graph() -> None:
    report = cost()
    entry = entry_of(report)
    frame = lookup.frames(report)[entry.frame or ""]
    second_frame = replace(frame, id="9/0", graphs=["Z"])
    entries = [entry, replace(entry, frame="9/0")]
    report_of_both = replace(report, frames=[*report.frames, second_frame], cost=Cost("cpu", "eager", entries))
    assert [sentence.partition(":")[0] for sentence in cost_verdicts(report_of_both)] == [
        f"step (graph {frame.graphs[0]})",
        "step (graph Z)",
    ]


def test_the_device_work_of_a_call_is_reported() -> None:
    eager, graphs = DeviceWork(48, 0, 3, 5 * 2**20), DeviceWork(0, 1, 1, 1536)
    (sentence,) = coverage_sentences(replace_entry_fields(cost(), eager_device_work=eager, device_work=graphs))
    assert sentence.endswith(
        "; a call launches 0 kernels and 1 CUDA graph (eager 48), waits for the device 1 time (eager 3), "
        "takes up to 1.5 KiB of its memory (eager 5.0 MiB)"
    )
    work = DeviceWork(12, 0, 2, 3 * 2**30)
    (sentence,) = coverage_sentences(replace_entry_fields(cost(), eager_device_work=eager, device_work=work))
    assert "launches 12 kernels (eager 48), waits for the device 2 times (eager 3), takes up to 3.0 GiB" in sentence


def test_a_break_costs_what_its_fix_saved_or_else_the_time_outside_graphs() -> None:
    report = cost()
    first, second = report.breaks
    assert break_time_text(report, first) == "fixing it saves 1.18 ms of 4.21 ms a call"
    assert break_time_text(report, second) == "fixing it saves no measurable time"
    report_without_remedies = replace_entry_fields(report, remedied=[])
    assert (
        break_time_text(report_without_remedies, first) == "1.34 ms of each call is spent outside graphs at this break"
    )
    assert break_time_text(two_breaks(), first) == ""


def test_the_parts_of_a_call_are_in_order_and_their_shares_add_up() -> None:
    report = cost()
    shares = time_shares(report, entry_of(report))
    assert [share.name for share in shares] == [
        "guards", "A", "outside at break 1", "B", "C", "outside at break 2", "D",
    ]  # fmt: skip
    assert sum(share.share for share in shares) == pytest.approx(1)
    assert [share.op_count for share in shares] == [0, 4, 0, 1, 2, 0, 2]


@pytest.mark.parametrize(
    ("us", "text"), [(4.25, "4.2 µs"), (56, "56 µs"), (999, "999 µs"), (3705, "3.71 ms"), (2.5e6, "2.50 s")]
)
def test_times_have_a_suitable_unit(us: float, text: str) -> None:
    assert time_text(us) == text


def test_a_check_says_whether_the_result_is_right() -> None:
    report = checks()
    right_check, wrong_check = report.check or []
    all_right = "right: norm compiled with inductor gives the same values and gradients as eager"
    assert check_sentence(report, right_check) == all_right
    without_gradients = all_right.replace(" and gradients", "")
    assert check_sentence(report, replace(right_check, gradients=False)) == without_gradients
    several_calls = replace(right_check, calls=3)
    assert check_sentence(report, several_calls) == f"{all_right} (1 of 3 calls was compared)"
    assert check_sentence(report, several_calls, 2) == f"{all_right} (2 of 3 calls were compared)"
    assert check_sentence(report, several_calls, 3) == all_right
    assert check_sentence(report, replace(several_calls, instances=2)).endswith(" (1 call of each was compared)")
    assert check_sentence(report, wrong_check) == (
        "wrong: step compiled with inductor, from graph B, line 15 (truediv), introduced by the backend: "
        "the value differs by 0.25"
    )
    assert check_sentence(report, Check("f", "eager", False)) == "wrong: f compiled with eager"


def test_text_and_markup_contain_the_sentences_at_the_top() -> None:
    lines = render_text(cost()).split("\n")
    assert lines[0] == "2 breaks. Switch statistics off: that removes both, as far as tested."
    assert (
        "a compiled call is 1.1 times slower than eager (4.21 ms against 3.71 ms); without break 1: 1.2 times" in lines
    )
    assert "9 of 11 operations ran compiled, 61% of the time" in lines
    assert any("fixing it saves 1.18 ms of 4.21 ms a call" in line for line in lines)
    html = re.sub(r"<[^>]+>", "", render_html(cost()).partition("</style>")[2])
    phrases = [
        "2 breaks",
        "a compiled call is 1.1 times",
        "9 of 11 operations",
        "4.21 ms a call",
        "fixing it saves 1.18 ms",
    ]
    assert [html.index(words) for words in phrases] == sorted(html.index(words) for words in phrases)
    assert "wrong: step compiled with inductor" in render_html(checks())
    assert "wrong: step" in render_text(checks())


def test_the_width_of_a_bar_is_its_share_of_the_time() -> None:
    html = render_html(cost()).partition('class="gb-times"')[2]
    shares = [float(share) for share in re.findall(r'style="flex-grow:([\d.]+)"', html)]
    assert len(shares) == len(entry_of(cost()).parts)
    assert sum(shares) == pytest.approx(1, abs=0.001)
    assert "gb-times" not in render_html(two_breaks()).partition("</style>")[2]


def test_long_compile_times_are_broken_down() -> None:
    location = Location("s1", 9, 9, function="step")
    frames = [
        Frame("0/0", "step", location, "entry", "compiled", compile_s=4.0),
        Frame(
            "1/0", "torch_dynamo_resume_in_step_at_12", replace(location, line=12), "resume", "compiled", compile_s=7.1
        ),
        Frame("0/1", "step", location, "entry", "compiled", compile_s=2.0, recompile_of="0/0"),
        Frame("2/0", "norm", None, "call", "compiled", compile_s=0.5),
        Frame("3/0", "scale", None, "call", "compiled", compile_s=0.25),
    ]
    report = replace(cost(), frames=frames)
    sentence = startup_sentence(report)
    assert sentence == (
        "start-up: 13.8 s of compiling: 7.1 s for step resumed at line 12, 6.0 s for step, 0.5 s for norm, 0.2 s for "
        "1 more function; 2.0 s of it was spent on recompiles, for which 1 call waited"
    )
    assert "start-up: 13.8 s of compiling" in render_text(report)
    assert sentence in render_html(report)
    assert "start-up" not in render_text(replace(report, cost=None))
    assert startup_sentence(replace(report, frames=frames[3:])) == ""


def graph_of_layers(layer_count: int) -> Graph:
    """Return the graph of a model: an embedding, four lines repeated for each layer, and an output."""

    def op(line: int, function: str, target: str = "add") -> Op:
        return Op(f"v{line}", target, Location("s1", line, line, 4, 9, function))

    block = [op(31, "norm"), op(12, "forward"), op(12, "forward", "mul"), op(31, "norm")]
    return Graph("A", "graph", "0/0", [op(3, "embed"), *block * layer_count, op(5, "head")])


def test_a_repeated_block_is_mentioned_if_compiling_it_alone_saves_much() -> None:
    frames = [Frame("0/0", "step", None, "entry", "compiled", compile_s=4.0)]
    report = replace(replace_entry_fields(cost()), frames=frames)
    (sentence,) = [
        part
        for part in startup_sentence(replace(report, graphs=[graph_of_layers(6)])).split("; ")
        if part.startswith("graph A contains")
    ]
    assert sentence == (
        "graph A contains 6 copies of the block that starts at line 12 in forward (92% of the graph's operations): "
        "compiling that block alone may save 77% of the graph's compile time"
    )
    assert "copies" not in startup_sentence(replace(report, graphs=[graph_of_layers(2)]))
    measured_report = replace(
        cost(), frames=frames, graphs=[graph_of_layers(6)]
    )  # a finding states the measured savings instead
    assert "copies" not in startup_sentence(measured_report)
    assert largest_repeated_block(graph_of_layers(1)) is None


def test_different_halves_of_a_layer_are_not_copies_of_a_block() -> None:
    targets = ["query", "attention", "dropout", "norm", "linear", "relu", "dropout", "norm"]
    location = Location("s1", 27, 27, 4, 9, "forward")
    ops = [Op(f"v{number}", target, location) for number, target in enumerate(targets * 2)]
    assert largest_repeated_block(Graph("A", "graph", "0/0", ops)) is None
    block = largest_repeated_block(Graph("A", "graph", "0/0", [*ops, *ops]))
    assert block is not None
    assert (block.copy_count, block.share) == (4, 1.0)


def test_a_loop_in_a_library_is_not_a_block_to_compile_alone() -> None:
    frames = [Frame("0/0", "step", None, "entry", "compiled", compile_s=4.0)]
    report = replace_entry_fields(cost())
    library = Source("library", "layers.py", "library")
    for function, is_shown in (("forward", True), ("_single_tensor_adam", False)):
        ops = [
            replace(op, location=Location("library", op.location.line, op.location.line, function=function))
            for op in graph_of_layers(6).ops
            if op.location is not None
        ]
        graph = replace(graph_of_layers(6), ops=ops)
        changed_report = replace(report, frames=frames, graphs=[graph], sources=[*report.sources, library])
        assert ("copies of the block" in startup_sentence(changed_report)) is is_shown


def test_an_operation_that_one_line_repeats_is_not_a_block() -> None:
    getitem = Op("v", "getitem", Location("s1", 10, 10, 4, 9, "forward"))
    assert largest_repeated_block(Graph("A", "graph", "0/0", [getitem] * 4)) is None


def test_processor_time_is_shown_if_it_differs_from_wall_clock_time() -> None:
    report = cost()
    cost_section = report.cost
    assert cost_section is not None
    entry = entry_of(report)
    eager = replace(entry.eager, processor_us=entry.eager.median_us)

    def sentence(compiled_us: float) -> str:
        compiled = replace(entry.compiled, processor_us=compiled_us)
        changed_report = replace(
            report, cost=replace(cost_section, entries=[replace(entry, eager=eager, compiled=compiled)])
        )
        assert coverage_sentences(changed_report)[0] in " ".join(render_text(changed_report).split())
        assert coverage_sentences(changed_report)[0] in render_html(changed_report)
        return coverage_sentences(changed_report)[0]

    twice_the_time = 2 * entry.compiled.median_us
    assert f"processor time: {time_text(twice_the_time)} a call, {time_text(eager.median_us)} eagerly" in sentence(
        twice_the_time
    )
    assert "processor time" not in sentence(1.1 * entry.compiled.median_us)
    assert "processor time" not in coverage_sentences(report)[0]


@pytest.mark.parametrize(
    ("timing", "expected"),
    [
        (Timing(cache_hits=3, cache_misses=2), "Inductor's cache had the code of 3 of 5 graphs"),
        (Timing(cache_hits=0, cache_misses=2), "Inductor's cache had no code for these graphs: keep the folder"),
        (Timing(), None),
    ],
)
def test_startup_says_how_much_code_came_from_the_cache(timing: Timing, expected: str | None) -> None:
    frames = [Frame("0/0", "step", None, "entry", "compiled", compile_s=4.0)]
    sentence = startup_sentence(replace(cost(), frames=frames, timing=timing, graphs=[]))
    assert (expected in sentence) if expected is not None else ("cache" not in sentence)


def test_memory_is_compared_if_it_is_notable() -> None:
    mib, line = 1 << 20, MemoryLine(Location("s1", 12, 12, function="step"), 16 << 20)

    def findings(*figures: int, lines: list[MemoryLine] | None = None) -> list[CostFinding]:
        eager, compiled, eager_saved, compiled_saved = (figure * mib for figure in figures)
        memory = MemoryCost(eager, compiled, eager_saved, compiled_saved, lines or [])
        return cost_findings(replace_entry_fields(cost(), memory=memory, guards=None, ops=None))

    (finding_with_line,) = findings(48, 96, 20, 40, lines=[line])
    assert finding_with_line.sentence == (
        "a call needs 48.0 MiB more memory than eager (96.0 MiB against 48.0 MiB); 40.0 MiB are kept for the backward "
        "pass (eager 20.0 MiB, most at line 12: 16.0 MiB)"
    )
    assert (finding_with_line.share, finding_with_line.location) == (1.0, line.location)
    (finding_with_compiled_line,) = findings(
        48, 96, 20, 40, lines=[line, replace(line, location=Location("s1", 14, 14), compiled_bytes=mib)]
    )
    assert (
        "40.0 MiB are kept for the backward pass, most at line 14: 1.0 MiB (eager 20.0 MiB, "
        in finding_with_compiled_line.sentence
    )
    assert [finding.sentence for finding in findings(48, 24, 20, 0)] == [
        "a call needs 24.0 MiB less memory than eager (24.0 MiB against 48.0 MiB); none is kept for the backward pass "
        "(eager 20.0 MiB)"
    ]
    assert [finding.sentence for finding in findings(100, 102, 0, 0)] == [
        "a call needs as much memory as eager (102.0 MiB)"
    ]
    assert findings(0, 0, 0, 0) == cost_findings(replace_entry_fields(cost(), memory=None, guards=None, ops=None)) == []


def test_memory_that_stays_after_each_call_comes_first() -> None:
    def sentence(growth: MemoryGrowth) -> str:
        memory = MemoryCost(4 << 20, 6 << 20, 0, 0, growth=growth)
        return cost_findings(replace_entry_fields(cost(), memory=memory, guards=None, ops=None))[0].sentence

    line = Location("s1", 12, 12, function="step")
    assert sentence(MemoryGrowth(6, 1 << 20, 1 << 20, 4 << 20, "self.history", line)) == (
        "each of 6 calls keeps 1.0 MiB in `self.history`, as eager calls do (allocated at line 12); 4.0 MiB if no "
        "backward pass follows"
    )
    assert sentence(MemoryGrowth(6, 4096)) == "each of 6 calls keeps 4.0 KiB"
    assert sentence(MemoryGrowth(6, 4096, 0)) == "each of 6 calls keeps 4.0 KiB, and an eager call keeps nothing"
    assert sentence(MemoryGrowth(6, 1000)).startswith("a call needs")  # too little to report


def test_changes_that_save_memory_are_listed() -> None:
    mib = 1 << 20
    changes = [
        MemoryChange(
            "torch._functorch.config.activation_memory_budget = 0.5", 3 * mib, 2 * mib, equal=True, time_ratio=1.23
        ),
        MemoryChange("checkpoint(f)", 5 * mib, 0, equal=True, time_ratio=1.04),
        MemoryChange("wrong", mib, 0, equal=False, time_ratio=1.0),
        MemoryChange("useless", 5 * mib, 4 * mib, equal=True),
        MemoryChange("untimed", 4 * mib, 0, equal=True),
    ]
    memory = MemoryCost(5 * mib, 5 * mib, 4 * mib, 4 * mib, changes=changes)
    _, *change_findings = cost_findings(replace_entry_fields(cost(), memory=memory, guards=None, ops=None))
    assert [finding.sentence for finding in change_findings] == [
        "`torch._functorch.config.activation_memory_budget = 0.5`: peak 3.0 MiB instead of 5.0 MiB; a call with its "
        "backward pass takes 1.2 times as long",
        "`untimed`: peak 4.0 MiB instead of 5.0 MiB",
        "`checkpoint(f)`: keeps nothing for the backward pass instead of 4.0 MiB, with the peak at 5.0 MiB; a call "
        "with its backward pass takes no longer",
    ]


def test_objects_with_expensive_guards_are_listed() -> None:
    def sentences(*guards: GuardCost) -> list[str]:
        report = replace_entry_fields(
            cost(), compiled=Spread(100, 99, 101, 9), memory=None, guards=list(guards), ops=None
        )
        return [finding.sentence for finding in cost_findings(report)]

    line = Location("s1", 12, 12, function="step")
    names = GuardCost("0/0", "L['names']", line, Spread(31.2, 31, 32, 15), 400)
    layer = GuardCost("0/0", "L['self']._modules['layers']._modules['0']", None, Spread(9, 8, 10, 15), 30)
    size = GuardCost("0/0", "___check_obj_id(G['scale'], 12)", line, Spread(6, 5, 7, 15))
    cheap = GuardCost("0/0", "L['x']", None, Spread(0.4, 0.3, 0.5, 15))
    assert sentences(names, layer, size, cheap) == [
        "guards on `names` take 31 µs of each call (400 guards, line 12), on `self.layers[0]` 9.0 µs "
        "(30 guards), on `___check_obj_id(scale, 12)` 6.0 µs (line 12)"
    ]
    assert sentences(cheap) == sentences() == []


def test_alternatives_are_compared_by_their_ratio() -> None:
    line = Location("s1", 7, 7, function="step")
    full_spread, half_spread = Spread(400, 399, 401, 9), Spread(200, 199, 201, 9)

    def sentence(kind: Literal["branch", "guards"], change: str, time: Spread, before: Spread = full_spread) -> str:
        alternative = Alternative(kind, change, line if kind == "branch" else None, time, before)
        report = replace_entry_fields(
            cost(), compiled=Spread(100, 99, 101, 9), memory=None, guards=None, ops=None, alternatives=[alternative]
        )
        (finding,) = cost_findings(report)
        return finding.sentence

    is_compiling = "torch.compiler.is_compiling"
    branch = "the branch at line 7 that only compiled code takes"
    assert sentence("branch", is_compiling, half_spread) == f"{branch} costs 50 µs of 100 µs per call"
    assert sentence("branch", is_compiling, full_spread, half_spread) == f"{branch} saves 100 µs per call"
    assert sentence("branch", is_compiling, full_spread) == f"{branch} makes no measurable difference"
    library_report = replace(cost(), sources=[replace(source, kind="library") for source in cost().sources])
    equal_alternative = Alternative("branch", is_compiling, line, full_spread, full_spread)
    assert (
        cost_findings(
            replace_entry_fields(library_report, memory=None, guards=None, ops=None, alternatives=[equal_alternative])
        )
        == []
    )
    assert sentence("guards", "torch.compiler.keep_tensor_guards_unsafe", half_spread) == (
        'with `options={"guard_filter_fn": torch.compiler.keep_tensor_guards_unsafe}` in `torch.compile`, '
        "a call takes 50 µs, not 100 µs; a later change of anything but the tensors that are passed then goes unnoticed"
    )


def test_operations_that_are_slower_compiled_are_listed() -> None:
    line = Location("s1", 12, 12, function="step")
    slow_op = OpCost("A", "torch.erfinv", line, Spread(295, 290, 300, 9), Spread(3140, 3100, 3200, 9))
    other = OpCost("A", "torch._C._nn.pad", None, Spread(100, 99, 101, 9), Spread(310, 300, 320, 9))
    report = replace_entry_fields(
        cost(), eager=Spread(1000, 990, 1010, 9), memory=None, guards=None, ops=[other, slow_op]
    )
    assert [finding.sentence for finding in cost_findings(report)] == [
        "`erfinv` is 11 times slower compiled than eager (3.14 ms against 295 µs, line 12)",
        "`pad` is 3.1 times slower compiled than eager (310 µs against 100 µs)",
    ]


def test_kernels_that_are_not_fused_are_listed_with_the_reason() -> None:
    first, second = (Location("s1", line, line, function="step") for line in (12, 15))
    pairs = [
        UnfusedKernels("A", "reduction", 5 << 20, first=first, second=second),
        UnfusedKernels("A", "library", 1 << 20, 2, "aten.cumsum.default", first, first),
        UnfusedKernels("A", "order", 1 << 19, first=first),
    ]
    report = replace_entry_fields(cost(), memory=None, guards=None, ops=None, unfused=pairs)
    assert [finding.sentence for finding in cost_findings(report)] == [
        "line 12 and line 15 run in separate kernels: the second one needs the finished result of a reduction, so "
        "each call reads 5.0 MiB again",
        "line 12 runs in several kernels: `cumsum` is computed by a library, whose kernels are not fused with others, "
        "so each call reads 1.0 MiB again",
        "line 12 runs in several kernels: the second one reads elements in a different order than the first one "
        "writes them, so each call reads 512.0 KiB again",
    ]


def test_the_way_to_compile_blocks_that_starts_fastest_comes_first() -> None:
    line = Location("s1", 12, 12, function="step")
    ways = [
        CompiledWay("whole", 19.3, 1, 1, time_ratio=1.0),
        CompiledWay("nested", 9.0, 1, 1, regions=1, time_ratio=1.2),
        CompiledWay("blocks", 4.1, 1, 1, time_ratio=1.01),
    ]

    def sentences(regions: RegionCost) -> list[str]:
        report = replace_entry_fields(cost(), memory=None, guards=None, ops=None, regions=regions)
        return [finding.sentence for finding in cost_findings(report)]

    assert sentences(RegionCost("Block", 12, "self.layers", ways)) == [
        "compile each `Block` alone (`for block in self.layers: block.compile()`): compiling at a first start takes "
        "4.1 s instead of 19.3 s; calls take equally long",
        "mark `Block.forward` with `@torch.compiler.nested_compile_region`: compiling at a first start takes 9.0 s "
        "instead of 19.3 s; calls take 1.20 times as long",
    ]
    (words, _) = sentences(RegionCost("TransformerEncoderLayer", 12, "self.layers", ways, compiles_in_place=False))
    assert "(`for index, block in enumerate(self.layers): self.layers[index] = torch.compile(block)`)" in words
    wrong_way, slow_way = replace(ways[1], equal=False), replace(ways[2], start_s=18.0)
    assert sentences(RegionCost("Block", 12, None, [ways[0], wrong_way, slow_way])) == []
    differences = [
        BlockDifference(number, f"self.index == {old}", line) for number in (1, 2) for old in reversed(range(number))
    ]
    separate_blocks = replace(ways[2], compilations=2, limit_hit=True, time_ratio=None, differences=differences)
    texts = sentences(RegionCost("Block", 12, None, [ways[0], separate_blocks]))
    assert (
        texts[0]
        == "compile each `Block` alone (`block.compile()`): compiling at a first start takes 4.1 s instead of 19.3 s"
    )
    assert texts[1].startswith(
        "compiled alone, the 12 `Block` modules need 2 compilations, and the rest of them runs eagerly (recompile "
        "limit), because of these differences: self.index: 0 -> 1 -> different value"
    )
    assert "(line 12). Advice: " in texts[1]
    assert sentences(RegionCost("Block", 12, None, [ways[0], replace(separate_blocks, start_s=None)])) == texts[1:]


def test_a_second_start_is_compared_with_the_first() -> None:
    assert [(finding.sentence, finding.location is not None) for finding in startup_findings(cost())] == [
        (
            "compiling takes 10.2 s at a second start (22.6 s at the first): 1 of 4 graphs is in AOTAutograd's cache",
            False,
        ),
        (
            "graph B is never in AOTAutograd's cache, so every start spends 4.1 s compiling it (Unsupported "
            "call_function target autograd_function_apply, line 15): set "
            "TORCHINDUCTOR_AUTOGRAD_CACHE_ALLOW_CUSTOM_AUTOGRAD=1 before the program starts",
            True,
        ),
        (
            "graph C is never in AOTAutograd's cache, so every start spends 2.5 s compiling it (Unsupported "
            "call_function target cond): if both branches of a torch.cond are cheap, compute both and choose "
            "with torch.where",
            False,
        ),
    ]
    change = CacheChange("torch._functorch.config.a = True", ["B"], 1.25)
    startup = cost().startup
    assert startup is not None
    sentence = startup_findings(replace(cost(), startup=replace(startup, changes=[change])))[1].sentence
    assert sentence == (
        "graph B is never in AOTAutograd's cache, so every start spends 4.1 s compiling it (Unsupported call_function "
        "target autograd_function_apply, line 15): with `torch._functorch.config.a = True` before compiling, a second "
        "start finds it and takes 1.25 s to compile"
    )
    assert startup_findings(replace(cost(), startup=None)) == []
    assert startup_findings(replace(cost(), startup=Startup(0.9, 0.1, [GraphStartup("A", 0.1, 0.0, "hit")]))) == []


def test_findings_have_a_line_and_come_before_the_coverage() -> None:
    (section,) = [section for section in build_rows(cost()).sections if section.id == "cost"]
    labels = [row.label for row in section.rows]
    (row,) = [row for row in section.rows if "more memory than eager" in row.label]
    assert row.spot == Spot("s1", 11)
    assert 0 < labels.index(row.label) < labels.index("9 of 11 operations ran compiled, 61% of the time")
    assert row.label in " ".join(render_text(cost()).split())
    assert row.label in render_html(cost())
