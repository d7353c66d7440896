"""The verdict on a run, and the line of figures below it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from jupyter_graphbreak.report.cost import (
    EAGER_RETURNS_TEXT,
    UNAFFECTED_RESULT_TEXT,
    Check,
    Cost,
    EntryCost,
    RemediedCost,
    Spread,
)
from jupyter_graphbreak.report.location import Location, Source
from jupyter_graphbreak.report.remedies import INNER_FAMILY, INTERRUPTED_REASON, NO_TIME_REASON, Remedy
from jupyter_graphbreak.report.schema import (
    Advice,
    Break,
    BreakCost,
    CompiledCall,
    Device,
    Frame,
    Graph,
    GuardFailure,
    Op,
    Recompile,
    Report,
    RunError,
    Skipped,
)
from jupyter_graphbreak.report.summary import Summary, Timing
from jupyter_graphbreak.views.text import render_text, summary_line
from jupyter_graphbreak.views.words.cost import cost_verdicts
from jupyter_graphbreak.views.words.verdict import compiled_name, figures, verdict
from tests.support.sample_reports import no_breaks, two_breaks

_CELL = Source("s1", "Cell In[3]", "cell")


def break_at(number: int, *, eager: int = 0, graphs: int = 0, gb_id: str = "GB0170") -> Break:
    """Return a break on its own line."""
    location = Location("s1", number, number, function="step", code="x > 0")
    cost = BreakCost(graphs=graphs, compile_s=0.5 if graphs else None, eager=eager)
    return Break(f"b{number}", gb_id, "Data-dependent branching", location, "resumed", cost=cost)


def run_report(*breaks: Break, remedies: list[Remedy] | None = None) -> Report:
    """Return a report of a run with breaks and one graph."""
    graph = Graph("A", "step", "0/0")
    return Report("ok", Device("auto", "cpu"), sources=[_CELL], graphs=[graph], breaks=list(breaks), remedies=remedies)


def remedy(*breaks: str, title: str = "Compute both branches with torch.where", verdict: str = "works") -> Remedy:
    return Remedy(id=f"r{title}", breaks=list(breaks), frames=[], family="where", title=title, kind="setting",
                  settings={}, verdict=verdict)  # type: ignore[arg-type]  # fmt: skip


UNTRIED_REMEDY = replace(remedy("b2", verdict="not tried"), reason=INTERRUPTED_REASON, kind="person")
LAYERDROP_TITLE = "Turn off the random dropping of layers"
PART_TITLE = "Compile net instead of step (it does 82% of the forward operations)"
REMEDY_WITHOUT_TIME = replace(
    remedy("b1", title=PART_TITLE, verdict="not tried"), family=INNER_FAMILY, reason=NO_TIME_REASON
)
PART_WITH_BREAK = replace(
    remedy("b2", title="Try compiling `net` instead of step", verdict="not tried"), family=INNER_FAMILY, kind="person"
)
ERROR = RunError("ValueError", "no", Location("s1", 4, 4, function="step"))
FAILING_CHECK = Check("step", "inductor", equal=False, differences=[f"raises KeyError{EAGER_RETURNS_TEXT}"])
CHECK_OF_A_RIGHT_RESULT = replace(FAILING_CHECK, differences=[f"graph A differs, {UNAFFECTED_RESULT_TEXT}"])
REPORT_ENDED_BY_BREAK = replace(
    run_report(break_at(1), break_at(2)), status="error", error=RunError("Unsupported", "no", None, "b2")
)
EAGER_FUNCTION = Skipped("k1", None, "norm", None, "a generator function")
EAGER_FUNCTIONS = [replace(EAGER_FUNCTION, id=f"k{number}", function=f"f{number}") for number in range(9)]
RECOMPILE = Recompile("0/1", "0/0", "f", None, [GuardFailure("k == 1")], id="r1")
MANUAL_REMEDY = replace(remedy(verdict="not tried"), kind="person", recompiles=["r1"], person="Keep k the same.")
WRAPPER_LOCATION = Location("s1", 69, 69, function="wrap_inline.inner")


BACKWARD_BREAK = replace(
    break_at(2, gb_id="GB0123"), advice=[Advice("compile the forward pass; or set trace_autograd_ops")]
)
STEP_OPERATION = Op("x", "torch.add", Location("s1", 6, 6, function="step"))
UNROLLED_RUN = replace(
    run_report(), graphs=[Graph("A", "step", "0/0", ops=[STEP_OPERATION] * 150)], timing=Timing(12.0, 9.63)
)


@pytest.mark.parametrize(
    ("report", "outcome", "text"),
    [
        (no_breaks(), "good", "No breaks: one graph."),
        (UNROLLED_RUN, "good",
         "No breaks: one graph. A loop was unrolled: the graph contains line 6 in step 150 times, and compiling took "
         "9.63 s. To compile faster, compile only the body of the loop."),
        (replace(UNROLLED_RUN, timing=Timing(2.0, 1.5)), "good", "No breaks: one graph."),
        (run_report(), "good", "No breaks: one graph."),
        (replace(run_report(), graphs=[replace(run_report().graphs[0], id=f"g{n}") for n in range(11)]), "good",
         "No breaks: 11 graphs."),
        (run_report(break_at(1, eager=3), break_at(2)), "bad",
         "2 breaks. Fix break 1 first: it makes 3 functions run eagerly."),
        (run_report(break_at(1), break_at(2, graphs=2)), "bad", "2 breaks. Fix break 2 first: it adds 2 graphs."),
        (run_report(break_at(1, eager=3), BACKWARD_BREAK, break_at(3)), "bad",
         "3 breaks. Break 2 belongs outside of the compiled function: compile the forward pass."),
        (run_report(break_at(1, graphs=1)), "bad", "1 break, line 1 in step: it adds 1 graph."),
        (run_report(*(break_at(number, graphs=1) for number in range(1, 5))), "bad",
         "4 breaks, all for one reason: Branch on a tensor's value. They add 4 graphs; "
         "compiling the code after them took 2.00 s."),
        (run_report(*(break_at(number, eager=1) for number in range(1, 5))), "bad",
         "4 breaks, all for one reason: Branch on a tensor's value. 4 functions run eagerly."),
        (run_report(*(break_at(number) for number in range(1, 5)), break_at(5, gb_id="GB0059")), "bad",
         "5 breaks, 4 of them for one reason: Branch on a tensor's value."),
        (run_report(*(replace(break_at(number, gb_id=gb_id, graphs=1), advice=[Advice("set x = True")])
               for number, gb_id in enumerate(["GB0124", "GB0033", "GB0124"], 1)), break_at(4)), "bad",
         "4 breaks, 3 of them with the same fix: set x = True. They add 3 graphs; "
         "compiling the code after them took 1.50 s."),
        (run_report(break_at(1), break_at(2), remedies=[remedy("b1", "b2")]), "bad",
         "2 breaks. Compute both branches with torch.where: that removes both."),
        (run_report(break_at(1), break_at(2), remedies=[remedy("b2", verdict="works but differs")]), "bad",
         "2 breaks. Compute both branches with torch.where: that removes break 2, with a difference."),
        (run_report(break_at(1), break_at(2),
                    remedies=[remedy("b1", "b2", title="Wait, and see; Set a = 1; Turn b off")]), "bad",
         "2 breaks. Wait, and see; set a = 1; and turn b off: that removes both."),
        (run_report(break_at(1), break_at(2),
                    remedies=[remedy("b1", title="First"), remedy("b2", title="Second")]), "bad",
         "2 breaks. 2 changes, each tried alone, remove both."),
        (run_report(break_at(1, eager=1), break_at(2), remedies=[remedy("b1", verdict="fails")]), "bad",
         "2 breaks. No change that was tried removes one. Fix break 1 first: it makes 1 function run eagerly."),
        (run_report(break_at(1), remedies=[replace(remedy("b1", verdict="not tried"), reason=NO_TIME_REASON)]), "bad",
         "1 break, line 1 in step. There was no time to try a change."),
        (run_report(break_at(1), remedies=[REMEDY_WITHOUT_TIME]),
         "bad", f'1 break, line 1 in step. There was no time to try "{PART_TITLE}".'),
        (run_report(break_at(1), remedies=[remedy("b1", verdict="fails"), REMEDY_WITHOUT_TIME]), "bad",
         f'1 break, line 1 in step. No change that was tried removes it; there was no time to try "{PART_TITLE}".'),
        (run_report(break_at(1), break_at(2), remedies=[remedy("b1"), PART_WITH_BREAK]), "bad",
         "2 breaks. Compute both branches with torch.where: that removes break 1. If you can remove break 2, try "
         "compiling `net` instead of step."),
        (run_report(break_at(1, eager=1), break_at(2),
                    remedies=[remedy("b1", title=LAYERDROP_TITLE, verdict="another result")]),
         "bad",
         f'2 breaks. Only "{LAYERDROP_TITLE}" removes break 1, but layers are no longer dropped in training. Fix '
         "break 1 first: it makes 1 function run eagerly."),
        (run_report(break_at(1), break_at(2), remedies=[remedy("b1"), UNTRIED_REMEDY]), "bad",
         "2 breaks. Compute both branches with torch.where: that removes break 1. The trials were interrupted; "
         "nothing was tried for break 2."),
        (replace(run_report(), status="error", error=ERROR), "error", "The run ended in ValueError, line 4 in step."),
        (REPORT_ENDED_BY_BREAK, "error",
         "Break 2 ended the run: Branch on a tensor's value, line 2 in step. There is 1 other break."),
        (replace(run_report(break_at(1)), status="interrupted", error=None), "bad", "Interrupted; 1 break until then."),
        (replace(run_report(), skipped=[EAGER_FUNCTION]), "plain", "No breaks, but norm ran eagerly."),
        (Report("ok", Device("auto", "cpu")), "plain", "Nothing was compiled in this run."),
        (Report("ok", Device("auto", "cpu"), frames=[Frame("0/0", "f", None, "entry", "empty")]), "plain",
         "Nothing was compiled: the first call of f had no tensor operation, so PyTorch runs it eagerly from now on."),
        (replace(run_report(), frames=[Frame("0/0", "learn", None, "entry", "empty"),
                                Frame("1/0", "forward", None, "call", "compiled", caller="0/0")]), "plain",
         "No breaks: one graph. The first call of learn had no tensor operation, so PyTorch runs it eagerly from now "
         "on: move the early return in front of the call."),
        (Report("ok", Device("auto", "cpu"), frames=[Frame("0/0", "<module>", None, "entry", "empty")]), "plain",
         "Nothing was compiled: the cell has no tensor operation."),
        (Report("ok", Device("auto", "cpu"), skipped=[EAGER_FUNCTION]),
         "plain", "Nothing was compiled: norm ran eagerly."),
        (Report("ok", Device("auto", "cpu"), skipped=EAGER_FUNCTIONS),
         "plain", "Nothing was compiled: 9 functions ran eagerly."),
        # The user's name for the function replaces the name of a wrapper in PyTorch.
        (Report("ok", Device("auto", "cpu"), compiled=[CompiledCall("lstm", "LSTM")],
                sources=[Source("s1", "external_utils.py", "library", "torch/_dynamo/external_utils.py")],
                skipped=[replace(EAGER_FUNCTION, function="inner", location=WRAPPER_LOCATION)]),
         "plain", "Nothing was compiled: `lstm` ran eagerly."),
        (replace(run_report(), recompiles=[Recompile("0/1", "0/0", "f", None, [GuardFailure("k == 1")])]), "plain",
         "No breaks, but f was compiled twice: k varied."),
        (replace(run_report(), recompiles=[RECOMPILE], remedies=[replace(MANUAL_REMEDY, is_right=True)]), "good",
         "No breaks. f was compiled twice, as expected: k varied."),
        (replace(run_report(), recompiles=[RECOMPILE], remedies=[MANUAL_REMEDY]), "plain",
         "No breaks, but f was compiled twice: k varied. Keep k the same."),
        (replace(run_report(), recompiles=[RECOMPILE],
                 remedies=[replace(MANUAL_REMEDY, person="Rare."), replace(MANUAL_REMEDY, recompiles=["r1", "r2"])]),
         "plain",
         "No breaks, but f was compiled twice: k varied. Keep k the same."),
        # The user's name also replaces the name of a library's wrapper, if nothing else was compiled.
        (replace(run_report(), frames=[Frame("0/0", "wrapper", None, "call", "compiled", graphs=["g1"])],
                 compiled=[CompiledCall("model", "GPT2LMHeadModel")],
                 recompiles=[Recompile("0/1", "0/0", "wrapper", None, [GuardFailure("k == 1")])]), "plain",
         "No breaks, but GPT2LMHeadModel was compiled twice: k varied."),
        (replace(run_report(), check=[Check("step", "inductor", equal=False)]), "error",
         "When compiled, step returns a wrong result. No breaks: one graph."),
        (replace(run_report(), check=[FAILING_CHECK]), "error",
         "When compiled, step raises an error. No breaks: one graph."),
        # The verdict names the error that ended the run only once.
        (replace(run_report(), status="error", error=ERROR, check=[FAILING_CHECK]), "error",
         verdict(replace(run_report(), status="error", error=ERROR)).text),
        (replace(run_report(), check=[CHECK_OF_A_RIGHT_RESULT]),
         "good", "No breaks: one graph."),
    ],
)  # fmt: skip
def test_the_verdict_says_what_to_do_first(report: Report, outcome: str, text: str) -> None:
    assert verdict(report) == (outcome, text)
    assert render_text(report).replace("\n", " ").startswith(text.replace("`", "")[:90])


def test_sentences_of_the_verdict_about_recompiles_are_not_repeated() -> None:
    assert (
        render_text(replace(run_report(), recompiles=[RECOMPILE], remedies=[MANUAL_REMEDY])).count("Keep k the same.")
        == 1
    )


def test_figures_begin_with_the_name_of_the_compiled_code() -> None:
    report = replace(two_breaks(), timing=Timing(wall_s=0.84, compile_s=0.79))
    assert figures(report)[0].startswith("Cell In[7], step: ")
    assert "0.84 s, compiling 0.79 s" in figures(report)
    assert summary_line(report).startswith("Cell In[7]: 2 breaks, 4 graphs, 9 ops | cuda:0")
    torch_source = Source("s1", "external_utils.py", "library", "torch/_dynamo/external_utils.py")
    assert figures(replace(run_report(), sources=[torch_source]))[0] == "this run"


def test_a_wrapper_is_not_the_name_of_the_compiled_code() -> None:
    frames = [
        Frame("0/0", "wrapper", None, "call", "compiled"),
        Frame("1/0", "forward", Location("s1", 5, 9, function="Net.forward"), "call", "compiled", caller="0/0"),
        Frame("2/0", "helper", None, "call", "compiled", caller="1/0"),
    ]
    report = replace(run_report(), frames=frames, summary=Summary(frames=3))
    assert compiled_name(report) == "Net"


def test_the_verdict_says_if_a_remedy_makes_a_call_slower() -> None:
    remedy = Remedy("r1", ["b1"], "inner", "Compile net instead of sample", "edit", "works")
    fast, slow = Spread(1000, 990, 1010, 9), Spread(1500, 1490, 1510, 9)

    def verdict_text(time: Spread) -> str:
        entry = EntryCost(
            "sample", "0/0", settled=True, eager=slow, compiled=fast, remedied=[RemediedCost(["r1"], time)]
        )
        return verdict(replace(run_report(break_at(1), remedies=[remedy]), cost=Cost("cpu", "eager", [entry]))).text

    assert verdict_text(slow) == (
        "1 break. Compile net instead of sample: that removes it, but a call then takes 1.50 ms, not 1.00 ms."
    )
    assert verdict_text(fast) == "1 break. Compile net instead of sample: that removes it."


def test_a_change_that_avoids_recompiles_is_shown_with_its_cost_per_call() -> None:
    remedy = Remedy("r1", [], "mark", "Mark dimension 0 of `x` as dynamic", "mark", "works", recompiles=["r1"])
    recompile = Recompile("0/1", "0/0", "f", None, [GuardFailure("k == 1")], id="r1")
    fast, slow = Spread(1000, 990, 1010, 9), Spread(1200, 1190, 1210, 9)

    def report_with_time(time: Spread) -> Report:
        entry = EntryCost("f", "0/0", settled=True, eager=slow, compiled=fast, remedied=[RemediedCost(["r1"], time)])
        cost = Cost("cpu", "eager", [entry])
        return replace(run_report(), recompiles=[recompile], remedies=[remedy], cost=cost)

    assert verdict(report_with_time(slow)).text.endswith("but a call then takes 1.20 ms, not 1.00 ms.")
    assert "a call then takes 1.20 ms, not 1.00 ms" in render_text(report_with_time(slow))
    assert "without recompiles: as fast as eager" in " ".join(cost_verdicts(report_with_time(slow)))
    assert "a call then takes as long as before, within measurement error" in render_text(report_with_time(fast))


def test_a_reason_why_nothing_was_tried_is_stated_once() -> None:
    first, second = (
        replace(
            remedy(ident, verdict="not tried"),
            kind="person",
            person="Decide.",
            reason=f"{function} could not run again",
        )
        for ident, function in (("b1", "step"), ("b2", "loss"))
    )
    text = render_text(run_report(break_at(1), break_at(2, gb_id="GB0059"), remedies=[first, second]))
    assert "not tried: step could not run again" in text
    assert "not tried: loss could not run again" in text
    one_reason_text = render_text(
        run_report(break_at(1), break_at(2, gb_id="GB0059"), remedies=[first, replace(second, reason=first.reason)])
    )
    assert one_reason_text.count("could not run again") == 1
    assert "could not run again" in one_reason_text.partition("\n")[0]


def test_the_advice_is_shown_if_nothing_was_tried() -> None:
    untried_remedy = replace(
        remedy("b1", verdict="not tried"), kind="person", person="Decide what to compile.", reason=NO_TIME_REASON
    )
    report = run_report(
        replace(break_at(1), advice=[Advice("use torch.where", "graphbreak")]), remedies=[untried_remedy]
    )
    assert "do: use torch.where" in render_text(report)
    assert "Decide what to compile." not in render_text(report)
    assert "Decide what to compile." in render_text(replace(report, breaks=[break_at(1)]))
