"""The wording of reports, which all views share."""

from __future__ import annotations

import re
from html import unescape
from textwrap import indent

import pytest
from msgspec.structs import replace

from jupyter_graphbreak.analysis.priority import prioritize_breaks
from jupyter_graphbreak.report.cost import Check, NumericsTrial
from jupyter_graphbreak.report.job import Job, Process
from jupyter_graphbreak.report.location import FunctionName, HeadKind, Location, Segment, Source
from jupyter_graphbreak.report.remedies import ENDING_FAMILY, INNER_FAMILY, NOTHING_TRIED_REASON, Evidence, Remedy
from jupyter_graphbreak.report.schema import (
    Break,
    CompiledCall,
    Device,
    Frame,
    Graph,
    GraphLine,
    GuardFailure,
    Occurrence,
    Recompile,
    Report,
    Resume,
    RunError,
    Setting,
    Skipped,
)
from jupyter_graphbreak.views.html.render import render_html
from jupyter_graphbreak.views.html.view import run_steps
from jupyter_graphbreak.views.markdown import render_markdown
from jupyter_graphbreak.views.rows.sections import build_rows
from jupyter_graphbreak.views.text import render_text
from jupyter_graphbreak.views.words.advice import advice_for_break, cost_text
from jupyter_graphbreak.views.words.aftermath import aftermath, aftermath_in_function
from jupyter_graphbreak.views.words.failed_guards import error_text, failed_guards
from jupyter_graphbreak.views.words.jobs import job_headline
from jupyter_graphbreak.views.words.lines import break_numbers
from jupyter_graphbreak.views.words.locations import brief_code, location_text, text_of_function
from jupyter_graphbreak.views.words.permission import describe_permission
from jupyter_graphbreak.views.words.plain_text import is_known_page
from jupyter_graphbreak.views.words.reason import title_of
from jupyter_graphbreak.views.words.recompilation import (
    limited_functions_text,
    listed_recompilations,
    needs_general_advice,
    recompilations,
    recompile_remedies,
)
from jupyter_graphbreak.views.words.verdict import verdict
from tests.support.sample_reports import big_report, no_breaks, two_breaks


def library_report() -> Report:
    """Return a report with breaks in a library (in five frames), in a library's helper and in the user's code."""
    branch = Location("s2", 660, 660, 19, 56, "forward", "dropout_probability < self.layerdrop")
    helper = Location("s3", 332, 335, 30, 9, "<dictcomp>", "{\n    f'output_{k}': 1\n}")
    own_location = Location("s1", 2, 2, 0, 9, "step", "print(1)")
    outer = ["0/0", "1/0", "2/0", "3/0"]
    return prioritize_breaks(
        Report(
            status="ok",
            device=Device("auto", "cpu"),
            sources=[
                Source("s1", "Cell In[1]", "cell"),
                Source("s2", "modeling_bart.py", "library", "transformers/models/bart/modeling_bart.py", [], [
                    FunctionName(521, "BartDecoder.forward"), FunctionName(1234, "BartForCausalLM.forward"),
                ]),
                Source("s3", "output_capturing.py", "library", "transformers/utils/output_capturing.py"),
            ],
            frames=[
                Frame("0/0", "wrapper", Location("s3", 1, 1), "entry", "compiled", breaks=["b1"]),
                Frame("1/0", "forward", Location("s2", 1234, 1234, function="forward"), "call", "compiled",
                      caller="0/0", breaks=["b1"]),
                Frame("2/0", "wrapper", Location("s3", 1, 1), "call", "skipped", caller="1/0", breaks=["b1"]),
                Frame("3/0", "wrapper", Location("s3", 1, 1), "call", "skipped", caller="2/0", breaks=["b1"]),
                Frame("5/0", "<dictcomp>", helper, "call", "skipped", caller="3/0", breaks=["b2"]),
                Frame("6/0", "forward", Location("s2", 521, 521, function="forward"), "call", "skipped", caller="3/0",
                      breaks=["b1"]),
                Frame("7/0", "layer", Location("s2", 9, 9), "call", "compiled", caller="6/0", graphs=["A"]),
                Frame("8/0", "forward", Location("s2", 1280, 1280), "resume", "compiled", resume="r2", caller="1/0",
                      graphs=["B"], compile_s=0.5),
                Frame("9/0", "step", Location("s1", 1, 1), "entry", "compiled", breaks=["b3"]),
            ],
            graphs=[Graph("A", "layer", "7/0"), Graph("B", "forward", "8/0")],
            breaks=[
                Break("b1", "GB0170", "Data-dependent branching", branch, "skipped",
                      occurrences=[Occurrence(frame, 1, [branch], "skipped") for frame in [*outer, "6/0"]],
                      resumes=["r1", "r2"], skipped=["k1", "k2", "k4"]),
                Break("b2", "GB4347", "Missing tp_iternext", helper, "skipped",
                      occurrences=[Occurrence("5/0", 1, [helper], "skipped")], skipped=["k3"]),
                Break("b3", "GB0025", "Call to `print`", own_location, "resumed",
                      occurrences=[Occurrence("9/0", 1, [own_location], "resumed")],
                      setting=Setting(False, ["default"])),
            ],
            resumes=[
                Resume("r1", "torch_dynamo_resume_in_wrapper_at_944", "wrapper",
                       Location("s3", 944, 944, function="wrapper"), "b1", no_frame="eager"),
                Resume("r2", "torch_dynamo_resume_in_forward_at_1280", "forward",
                       Location("s2", 1280, 1280, function="forward"), "b1", ["8/0"], ["B"]),
            ],
            skipped=[
                Skipped("k1", "2/0", "wrapper", Location("s3", 1, 1, function="wrapper"), "", "b1"),
                Skipped("k2", "3/0", "wrapper", Location("s3", 1, 1, function="wrapper"), "", "b1"),
                Skipped("k3", "5/0", "<dictcomp>", helper, "", "b2"),
                Skipped("k4", "6/0", "forward", Location("s2", 521, 521, function="forward"), "", "b1"),
            ],
        )
    )  # fmt: skip


def test_breaks_in_own_code_come_first_and_in_library_helpers_last() -> None:
    report = library_report()
    assert [break_.id for break_ in report.breaks] == ["b1", "b2", "b3"]
    assert report.order == ["b3", "b1", "b2"]
    assert break_numbers(report) == {"b3": 1, "b1": 2, "b2": 3}
    assert [break_.minor for break_ in report.breaks] == [False, True, False]
    assert Report.from_json(report.to_json()) == report


def test_text_and_markup_have_the_same_order_and_numbers() -> None:
    text = render_text(library_report())
    assert [line[:30].split()[:3] for line in text.split("\n") if line[:2].strip().isdigit() and line[2:4] == "  "] == [
        ["1", "line", "2"],
        ["2", "modeling_bart.py:660", "in"],
        ["3", "output_capturing.py:332", "in"],
    ]
    rows = re.findall(
        r'<li class="gb-item gb-break" id="\w+-(b\d).*?<span class="gb-place">(.*?)</span>',
        render_html(library_report()),
        re.DOTALL,
    )
    assert [number for number, _ in rows] == ["b1", "b2", "b3"]
    assert ["print" in rows[0][1], "BartDecoder.forward" in rows[1][1], "…" in rows[2][1]] == [True] * 3


def test_a_break_shows_its_cost_and_that_it_was_allowed_by_default() -> None:
    report = library_report()
    costs = [cost_text(break_) for break_ in report.breaks]
    assert costs[0] == "adds 1 graph; compiling the code after it took 0.50 s; 3 functions run eagerly"
    assert costs[1] == "1 function runs eagerly"
    assert describe_permission(report, report.breaks[2]) == "allowed by default"
    html = render_html(report)
    assert html.count('class="gb-brief"') == 3
    assert "allowed by default | adds no graph" in html


def test_advice_names_the_break_to_fix_first() -> None:
    report = library_report()
    (advice,) = advice_for_break(report, report.breaks[1])
    assert advice.text.startswith(
        "fix break 2 first: this function is compiled separately because its caller `wrapper` runs"
    )


def test_a_break_compiled_without_its_caller_asks_for_no_decision() -> None:
    report = library_report()
    decision = Remedy(
        "r1", [report.breaks[1].id], "decisions", "Decide", "person", "not tried", person="Decide what to do."
    )
    report = replace(report, remedies=[decision])
    text = render_text(report)
    assert "Decide what to do." not in text
    assert "fix break 2 first: this function is compiled separately" in text


def test_a_location_in_a_library_has_a_qualified_name() -> None:
    report = library_report()
    assert location_text(report, report.breaks[0].location) == "modeling_bart.py:660 in BartDecoder.forward"
    assert location_text(report, report.resumes[1].location) == "modeling_bart.py:1280 in BartForCausalLM.forward"


def test_the_code_of_a_function_ends_before_the_next_statement() -> None:
    f = "def f(\n    self, x\n):\n    y = x\n\n    return y"
    text = "class A:\n    n = 1\n" + indent(f, "    ") + "\n\n    def g(self): ...\n\nA()"
    source = Source("s1", "model.py", "file", "model.py", [Segment(10, text)])
    assert [text_of_function(source, line) for line in (15, 17)] == [f, f]
    assert [text_of_function(source, line) for line in (9, 11, 21)] == ["", "", ""]


def test_a_note_describes_the_function_of_its_line_and_names_other_files() -> None:
    report = library_report()
    break_ = report.breaks[0]
    assert aftermath_in_function(report, break_) == "runs eagerly"
    assert aftermath_in_function(report, replace(break_, skipped=[])) == (
        "resumes at modeling_bart.py:1280 in BartForCausalLM.forward (B)"
    )
    assert aftermath(report, break_)[0] == (
        "resumes at modeling_bart.py:1280 in BartForCausalLM.forward (graph B); "
        "output_capturing.py:944 in wrapper (ran eagerly)"
    )
    resumes = [replace(resume, graphs=["B", "C", "D"]) for resume in report.resumes]
    assert "(graphs B, C and D)" in aftermath(replace(report, resumes=resumes), break_)[0]
    own_report = two_breaks()
    assert aftermath_in_function(own_report, own_report.breaks[0]) == "resumes at 15 (B)"


def test_the_steps_of_a_run_contain_a_break_of_several_frames_once() -> None:
    steps = [
        (">".join(segment.calls), segment.step.kind, segment.step.number) for segment in run_steps(library_report())
    ]
    inner = "wrapper>forward>wrapper>wrapper"
    assert steps == [
        ("wrapper>forward>wrapper", "eager", None),
        (inner, "eager", None),
        (f"{inner}><dictcomp>", "break", 3),
        (f"{inner}><dictcomp>", "eager", None),
        (f"{inner}>forward", "break", 2),
        (f"{inner}>forward", "eager", None),
        (f"{inner}>forward", "graph", None),
        ("wrapper>forward", "graph", None),
        ("", "break", 1),
    ]


def report_with_recompiles(*guards: str, limit: bool = False) -> Report:
    return report_with_guard_location(None, *guards, limit=limit)


def report_with_guard_location(guard_location: Location | None, *guards: str, limit: bool = False) -> Report:
    f = Location("s1", 2, 2, function="f")
    recompiles = [
        Recompile(f"0/{index}", "0/0", "f", f, [GuardFailure(guard, guard_location)], limit and index == len(guards))
        for index, guard in enumerate(guards, start=1)
    ]
    report = no_breaks()
    library = Source("s9", "dropout.py", "library", "torch/nn/modules/dropout.py")
    return replace(report, sources=[*report.sources, library], recompiles=recompiles)


def test_a_learning_rate_that_varies_becomes_a_tensor_that_changes_in_place() -> None:
    report = report_with_recompiles("L['self'].param_groups[0]['lr'] == 0.5")
    step = Location("s9", 30, 30, function="step")
    report = replace(report, recompiles=[replace(report.recompiles[0], location=step)])
    (recompilation,) = recompilations(report)
    assert recompilation.guards[0].advice == (
        "pass a tensor to the optimizer (`lr=torch.tensor(0.5)`) and change it in place, as PyTorch's schedulers do; "
        "or leave its `step()` uncompiled"
    )


def test_the_error_of_the_stance_that_forbids_recompiles_names_what_varied() -> None:
    message = (
        "Detected recompile when torch.compile stance is 'fail_on_recompile'. filename: 'f.py', function name: 'f', "
        "line number: 2\n    triggered by the following guard failure(s):\n    - 0/0: n == 1        # def f(x, n)\n"
        "    - User stack trace:"
    )
    error = RunError("RuntimeError", message, Location("s1", 4, 4))
    text = "RuntimeError: the stance 'fail_on_recompile' forbids a recompile, but n: 1 -> different value"
    assert error_text(error) == text
    assert text in " ".join(render_text(replace(no_breaks(), status="error", error=error)).split())
    assert error_text(replace(error, message="no")) == "RuntimeError: no"


@pytest.mark.parametrize("is_same_entry", [True, False])
def test_recompiles_of_code_that_a_fix_leaves_uncompiled_need_no_advice(*, is_same_entry: bool) -> None:
    step = Location("s1", 2, 2, function="step")
    entry = "0/0" if is_same_entry else "4/0"
    frames = [
        Frame("0/0", "step", step, "entry", "compiled", breaks=["b1"]),
        Frame("4/0", "other", step, "entry", "compiled"),
        Frame("1/0", "step", step, "resume", "compiled", caller=entry),
        Frame("1/1", "step", step, "resume", "compiled", caller=entry, recompile_of="1/0"),
        Frame("2/0", "forward", step, "call", "compiled", caller=entry),
        Frame("2/1", "forward", step, "call", "compiled", caller=entry, recompile_of="2/0"),
    ]
    recompiles = [
        Recompile("1/1", "1/0", "step", step, [GuardFailure("L['k'] == 2")], id="c1"),
        Recompile("2/1", "2/0", "forward", step, [GuardFailure("L['k'] == 2")], id="c2"),
    ]
    evidence = Evidence("eager", 6, None, ["values"], 2, 1, 1, 0)
    fix = Remedy("m1", ["b1"], INNER_FAMILY, "Compile net instead of step", "edit", "works", evidence=evidence)
    break_ = Break("b1", "GB0059", "print", step, "resumed", occurrences=[Occurrence("0/0", 1, [], outcome="resumed")])
    report = replace(no_breaks(), frames=frames, breaks=[break_], recompiles=recompiles, remedies=[fix])
    resume_recompilation, callee_recompilation = recompilations(report)
    remedies = recompile_remedies(report, resume_recompilation)
    assert remedies is not None
    sentence = (
        "With the fix for break 1, this code is no longer compiled, but the part that the fix compiles may recompile"
    )
    assert [decision.startswith(sentence) for decision in remedies.decisions] == [True] * is_same_entry
    assert needs_general_advice(report, resume_recompilation) is not is_same_entry
    assert needs_general_advice(report, callee_recompilation), "it may be inside the part"


@pytest.mark.parametrize(("break_id", "is_moved"), [("b1", True), ("b2", False)])
def test_recompiles_of_code_that_a_fix_runs_after_the_call_need_no_advice(*, break_id: str, is_moved: bool) -> None:
    step = Location("s1", 2, 2, function="step")
    frames = [
        Frame("0/0", "step", step, "entry", "compiled", breaks=["b1"]),
        Frame("1/0", "step", step, "resume", "compiled", caller="0/0", resume="r1"),
        Frame("1/1", "step", step, "resume", "compiled", caller="0/0", resume="r1", recompile_of="1/0"),
    ]
    recompiles = [Recompile("1/1", "1/0", "step", step, [GuardFailure("L['k'] == 2")], id="c1")]
    evidence = Evidence("eager", 6, None, ["values"], 2, 1, 1, 0)
    fix = Remedy("m1", ["b1"], ENDING_FAMILY, "Run the end of step after the call", "edit", "works", evidence=evidence)
    break_ = Break("b1", "GB0109", "tolist", step, "resumed", occurrences=[Occurrence("0/0", 1, [], outcome="resumed")])
    resumes = [Resume("r1", "torch_dynamo_resume_in_step_at_2", "step", step, break_id)]
    report = replace(
        no_breaks(), frames=frames, breaks=[break_], resumes=resumes, recompiles=recompiles, remedies=[fix]
    )
    remedies = recompile_remedies(report, recompilations(report)[0])
    assert remedies is not None
    sentence = "With the fix for break 1, this code runs uncompiled after the call."
    assert remedies.decisions == [sentence] * is_moved


def test_many_functions_that_a_fix_leaves_uncompiled_are_one_entry() -> None:
    step = Location("s1", 2, 2, function="step")
    frames = [Frame("0/0", "step", step, "entry", "compiled", breaks=["b1"])]
    recompiles = []
    for number in range(1, 5):
        of, ident = f"{number}/0", f"{number}/1"
        resume_location = replace(step, line=number)
        frames += [
            Frame(of, "step", resume_location, "resume", "compiled", caller="0/0"),
            Frame(ident, "step", resume_location, "resume", "compiled", caller="0/0", recompile_of=of),
        ]
        recompiles.append(Recompile(ident, of, "step", resume_location, [GuardFailure("L['k'] == 2")], id=f"c{number}"))
    evidence = Evidence("eager", 6, None, ["values"], 2, 1, 1, 0)
    fix = Remedy("m1", ["b1"], INNER_FAMILY, "Compile net instead of step", "edit", "works", evidence=evidence)
    break_ = Break("b1", "GB0059", "print", step, "resumed", occurrences=[Occurrence("0/0", 1, [], outcome="resumed")])
    report = replace(no_breaks(), frames=frames, breaks=[break_], recompiles=recompiles, remedies=[fix])
    text = " ".join(render_text(report).split())
    assert "4 functions recompiled 4 times: the reasons differ, line 1, line 2, line 3 and" in text
    assert text.count("With the fix for break 1, this code is no longer compiled") == 1


def test_without_time_for_a_trial_the_general_advice_and_the_reason_are_shown() -> None:
    decision = Remedy(
        "m1", [], "person", "A person must decide", "person", "not tried",
        reason=NOTHING_TRIED_REASON, person="Keep it the same.", recompiles=["c1"],
    )  # fmt: skip
    report = report_with_recompiles("tensor 'x' size mismatch at index 0. expected 2, actual 3")
    report = replace(report, recompiles=[replace(report.recompiles[0], id="c1")], remedies=[decision])
    section = next(section for section in build_rows(report).sections if section.id == "recompile")
    shown_texts = [
        render_text(report),
        unescape(re.sub("<[^>]*>", "", render_html(report))),
        "\n".join(section.rows[0].more),
    ]
    for text in shown_texts:
        assert "torch._dynamo.mark_dynamic(x, 0)" in text
        assert "ot tried: there was no time to try a change" in text
        assert "Keep it the same" not in text


def test_without_time_for_a_trial_no_view_says_that_no_remedy_applies() -> None:
    report = two_breaks()
    decisions = [
        Remedy("m1", [break_.id], "person", "A person must decide", "person", "not tried", reason=NOTHING_TRIED_REASON)
        for break_ in report.breaks
    ]
    report = replace(report, remedies=decisions)
    assert "There was no time to try a change." in verdict(report).text
    for text in (render_text(report), unescape(re.sub("<[^>]*>", "", render_html(report)))):
        assert "no known remedy applies" not in text


@pytest.mark.parametrize(
    ("report", "variation", "advice"),
    [
        (
            report_with_recompiles(*(f"k == {value}" for value in range(2, 10)), limit=True),
            "k: 2 -> 3 -> ... -> 9 -> different value",
            "each value of `k` is compiled separately, even with `dynamic=True`: use few values",
        ),
        (
            report_with_recompiles("tensor 'x' size mismatch at index 0. expected 2, actual 3"),
            "dimension 0 of x: 2 -> 3",
            "use `torch.compile(..., dynamic=True)`, or mark each size that varies before the call: "
            "`torch._dynamo.mark_dynamic(x, 0)`",
        ),
        (
            report_with_recompiles(
                "tensor 'self._modules['att']._buffers['cache']' size mismatch at index 1. expected 5, actual 6"
            ),
            "dimension 1 of self.att.cache: 5 -> 6",
            "the sizes of a buffer are constants, even with `dynamic=True`: keep the tensor in a plain attribute, "
            "without `register_buffer`, or set `torch._dynamo.config.force_parameter_static_shapes = False`",
        ),
        (
            report_with_recompiles("___stack0.__self__.n == 0"),
            "self.n: 0 -> different value",
            "use `torch.compile(..., dynamic=True)`",
        ),
        (
            report_with_recompiles("___stack0 == 28.5"),
            "a value on the line of the break: 28.5 -> different value",
            "remove the break: this also prevents recompiles of this function; "
            "or use `torch.compile(..., dynamic=True)`",
        ),
        (
            report_with_recompiles("___stack0 == 0"),
            "a value on the line of the break: 0 -> different value",
            "remove the break: this also prevents recompiles of this function",
        ),
        (
            report_with_recompiles("L['___stack0'] < 0.5"),
            "`value < 0.5` failed for a value on the line of the break",
            "",
        ),
        (
            report_with_recompiles("___stack2 == '2'"),
            "a value on the line of the break: '2' -> different value",
            "remove the break: this also prevents recompiles of this function",
        ),
        (
            report_with_recompiles("k == 1"),
            "k: 1 -> different value",
            "use `torch.compile(..., dynamic=True)`",
        ),
        (
            report_with_recompiles("self.k == 2"),
            "self.k: 2 -> different value",
            "use `torch.compile(..., dynamic=True)`",
        ),
        (
            report_with_recompiles("self.rate == 0.1"),
            "self.rate: 0.1 -> different value",
            "use `torch.compile(..., dynamic=True)`",
        ),
        (
            report_with_guard_location(Location("s9", 73, 73), "self.drop.p == 0.1"),
            "self.drop.p: 0.1 -> different value",
            "each value of `self.drop.p` is compiled separately: use few values, or a tensor if the library takes one",
        ),
        (
            report_with_recompiles("len(args) == 2"),
            "len(args): 2 -> different value",
            "each length of `args` is compiled separately: pass one stacked tensor, or always the same length",
        ),
        (
            report_with_recompiles("mode == 'a'"),
            "mode: 'a' -> different value",
            "each value of `mode` has its own graph: if there are many, branch on it outside the compiled function",
        ),
        (
            report_with_recompiles("causal == False"),
            "causal: False -> True",
            "nothing: each of the two values has its own graph, which is expected",
        ),
        (
            report_with_recompiles("tensor 'x' rank mismatch. expected 1, actual 2"),
            "number of dimensions of x: 1 -> 2",
            "each number of dimensions has its own graph: reshape `x` before the call",
        ),
        (
            report_with_recompiles(
                "tensor 'x' rank mismatch. expected 1, actual 2. Guard failed on a parameter, consider using "
                "torch._dynamo.config.force_parameter_static_shapes = False to allow dynamism on parameters."
            ),
            "number of dimensions of x: 1 -> 2",
            "each number of dimensions has its own graph: reshape `x` before the call",
        ),
        (
            report_with_recompiles("tensor 'x' requires_grad mismatch. expected requires_grad=0"),
            "requires_grad of x: False -> True",
            "nothing: each of the two values has its own graph, which is expected",
        ),
        (
            report_with_recompiles(
                "___check_obj_id(fn, 140), type=<class 'function'>", "___check_obj_id(fn, 150), type=<class 'x'>"
            ),
            "`fn` is a different object",
            "nothing, if there are few objects, such as the members of an enum: each has its own graph; otherwise "
            "create it once, before the calls",
        ),
        (
            report_with_recompiles("GLOBAL_STATE changed: grad_mode "),
            "the grad mode changed",
            "nothing: calls with and without gradients have their own graphs, which is expected",
        ),
        (
            report_with_recompiles("2 <= x.size()[1]"),
            "dimension 1 of x: 2 or more -> 0 or 1",
            "sizes 0 and 1 get their own graphs, even with `dynamic=True`: this is expected",
        ),
        (
            report_with_recompiles(
                "tensor 'x' size mismatch at index 1. expected 8, actual 16",
                "tensor 'x' size mismatch at index 1. expected 8, actual 1",
                "2 <= x.size()[1]",
            ),
            "dimension 1 of x: 8 -> 16 -> 1",
            "use `torch.compile(..., dynamic=True)`, or mark each size that varies before the call: "
            "`torch._dynamo.mark_dynamic(x, 1)`; sizes 0 and 1 get their own graphs even then",
        ),
        (
            report_with_recompiles("L['self'].adapter is None", "L['self'].adapter is not None"),
            "`self.adapter` is None in some calls only",
            "nothing: calls with and without it have their own graphs, which is expected",
        ),
        (
            report_with_recompiles("L['___stack2'][6].next_state is None"),
            "`[6].next_state` of a value that the break returned is None in some calls only",
            "nothing: calls with and without it have their own graphs, which is expected",
        ),
        (
            report_with_recompiles("'NoneType' object has no attribute 'size'"),
            "a tensor is None in some calls only",
            "",
        ),
        (
            report_with_recompiles("'int' object has no attribute 'stride'"),
            "a tensor has a different type (int)",
            "",
        ),
        (
            report_with_recompiles("tensor 'x' stride mismatch at index 0. expected 4, actual 1"),
            "stride 0 of x: 4 -> 1",
            "give `x` one memory layout before the call: `x = x.contiguous()`",
        ),
        (
            report_with_guard_location(
                Location("s1", 3, 3, code="self.k[:, pos] = k"), *(f"pos == {value}" for value in range(3))
            ),
            "pos: 0 -> 1 -> 2 -> different value",
            "an index next to slices is a constant, even with `dynamic=True`: use `select()`, such as "
            "`x.select(1, pos)` for `x[:, pos]` and `x.select(1, pos)[...] = y` for `x[:, pos] = y`",
        ),
        (
            report_with_recompiles(
                "GLOBAL_STATE changed: grad_mode autocast(cpu)_enabled autocast(cpu)_dtype allow_tf32 "
            ),
            "the grad mode, autocast on cpu and `allow_tf32` changed",
            "set it once, before the first call",
        ),
        (
            report_with_recompiles(
                "BACKEND_MATCH failure: torch.compile detected different backends. Cached backend: f (id=0x1).",
                "BACKEND_MATCH failure: torch.compile detected different backends. Cached backend: f (id=0x2).",
            ),
            "`torch.compile` was called with a different backend, mode or options",
            "pass the same backend, mode and options each time; make a backend function once",
        ),
        (
            report_with_recompiles("not L['self'].__dict__['cache']"),
            "len(self.cache): 0 -> 1 or more",
            "if the code fills `self.cache`, as for a cache, ignore this one recompile, or fill it before the first "
            "compiled call; otherwise always pass the same length",
        ),
        (
            report_with_recompiles("not args", "len(args) == 1"),
            "len(args): 0 -> 1 -> different value",
            "each length of `args` is compiled separately: pass one stacked tensor, or always the same length",
        ),
        (
            report_with_recompiles("not ___dict_contains('z', L['opt'].state[L['p']])"),
            "`opt.state[p]` has the key 'z' in some calls only",
            "",
        ),
        (
            report_with_recompiles("L['opt'].param_groups[0]['k'] == 2"),
            "opt.param_groups[0]['k']: 2 -> different value",
            "leave `step()` of this optimizer out of the compiled function",
        ),
        (report_with_recompiles("G['__import_a_dot_b'].device > None"), "`a.b.device > None` failed", ""),
        (
            report_with_recompiles("L['t'].item() == 0"),
            "the value of t: 0 -> different value",
            "for an index, write `x[t.reshape(1)][0]` instead of `x[t]`; or pass `t` as a number",
        ),
        (
            report_with_recompiles("Cache line invalidated because L['___stack0'] got deallocated"),
            "an object or a method on the line of the break no longer exists",
            "call the method after the compiled function returns, with a value from its result",
        ),
        (
            report_with_recompiles("expected type of 'x' to be a tensor type, ' but found <class 'float'>"),
            "`x` has a different type (float)",
            "pass a tensor each time: `x = torch.as_tensor(x)`",
        ),
        (
            report_with_recompiles("___check_obj_id(args[0], 139), type=<class 'torch.optim.adam.Adam'>"),
            "a different optimizer (`Adam`)",
            "nothing: each optimizer has its own compiled code, as expected",
        ),
        (
            report_with_recompiles("len(self.state[list(dict.keys(self.state))[0]]) != 0"),
            "the optimizer has no state before its first step",
            "nothing: the first step creates the optimizer's state, so this happens once",
        ),
        (
            report_with_recompiles("2 <= L['x'].storage_offset()"),
            "the offset of x in its storage",
            "a slice such as `y[:, -1:]` begins inside of a larger tensor: copy it before the call, `x.clone()`",
        ),
        (
            report_with_recompiles("L['args'][0].state[list(dict.keys(L['args'][0].state))[0]]['step'] == 1"),
            "a count in the optimizer's state is 0 or 1 at first",
            "nothing: 0 and 1 get their own graphs, and all later values share one, as expected",
        ),
        (
            report_with_recompiles("GLOBAL_STATE changed: grad_mode autocast(cpu)_enabled autocast(cpu)_dtype "),
            "the grad mode and autocast on cpu changed",
            "nothing: each setting of autocast has its own graph, which is expected",
        ),
        (
            report_with_recompiles("GLOBAL_STATE changed: num_threads "),
            "the number of threads changed",
            "set it once, before the first call",
        ),
        (
            report_with_recompiles(
                "tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, "
                "AutogradCPU), actual DispatchKeySet(CPU, BackendSelect, ADInplaceOrView)"
            ),
            "inference mode is on in some calls only",
            "nothing: calls in inference mode have their own graph, which is expected",
        ),
        (
            report_with_recompiles(
                "tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, "
                "AutogradCPU), actual DispatchKeySet(CPU, BackendSelect)"
            ),
            "`x` is an inference tensor in some calls only",
            "nothing: calls in inference mode have their own graph, which is expected",
        ),
        (
            report_with_recompiles("2 <= x.size()[0] <= 4"),
            "the range of dimension 0 of x: 2 to 4 -> a size outside of it",
            "",
        ),
        (
            report_with_recompiles("len(batch) != 2", "len(batch) != 3"),
            "len(batch): 2 -> 3 -> different value",
            "each set of keys has its own graph: pass the same keys each time",
        ),
        (
            report_with_guard_location(Location("s1", 3, 3, code="seen.append(y)"), "len(seen) == 1", "len(seen) == 2"),
            "len(seen): 1 -> 2 -> different value",
            "`seen` grows with each call: return the value, and add it after the call",
        ),
        (
            report_with_recompiles("len(__import_pyro_dot_runtime._STACK) == 6"),
            "len(pyro.runtime._STACK): 6 -> different value",
            "each length of `pyro.runtime._STACK` is compiled separately: pass one stacked tensor, or always the same "
            "length",
        ),
    ],
)
def test_recompiles_are_sentences_with_advice(report: Report, variation: str, advice: str) -> None:
    (recompilation,) = recompilations(report)
    (guard,) = recompilation.guards
    assert (guard.variation, guard.advice) == (variation, advice)


def test_recompiles_of_a_function_that_an_earlier_run_compiled_are_listed_together() -> None:
    report = report_with_recompiles("k == 2", "k == 3")
    first, second = report.recompiles
    report = replace(report, recompiles=[replace(first, of=None), replace(second, of=first.frame)])
    (function,) = recompilations(report)
    assert function.frames == [first.frame, second.frame]


def test_the_guards_of_a_condition_select_branches() -> None:
    for guard in ("2 <= x.size()[0] <= 4", "(it % 2) != 0"):
        report = report_with_recompiles(guard)
        location = Location("s1", 3, 3, code="if it % 2 == 0:")
        (recompile,) = report.recompiles
        failure = replace(recompile.reasons[0], location=location, head="condition")
        (function,) = recompilations(replace(report, recompiles=[replace(recompile, reasons=[failure])]))
        assert function.guards[0].advice == "each branch of the condition has its own graph, which is expected"


@pytest.mark.parametrize(
    ("guard", "head", "advice"),
    [
        (
            "x.size()[1] == (2 ** math.ceil(math.log2(torch.sym_float(x.size()[1]))))",
            None,
            "the code turns a number computed from the size into a constant, even with `dynamic=True`: pad to a few "
            "sizes",
        ),
        ("(x.size()[1] // 2) == 4", "loop", "the loop is unrolled, so each number of steps has its own graph, even"),
        ("(x.size()[1] // 2) == 4", "condition", "use `torch.compile(..., dynamic=True)`, or"),
        ("(x.size()[1] % 2) == 0", None, "use `torch.compile(..., dynamic=True)`, or"),
        ("x.size()[1] == y.size()[0]", None, "use `torch.compile(..., dynamic=True)`, or"),
        ("(x.size()[0] // 2) == 4", None, "use `torch.compile(..., dynamic=True)`, or"),
    ],
)
def test_the_advice_on_a_size_considers_guards_on_numbers_computed_from_it(
    guard: str, head: HeadKind | None, advice: str
) -> None:
    size = GuardFailure("tensor 'x' size mismatch at index 1. expected 12, actual 16")
    failures = [(1, size), (2, GuardFailure(guard, Location("s1", 3, 3), head)), (2, size)]
    first, *_ = failed_guards(failures)
    assert first.variation == "dimension 1 of x: 12 -> 16"
    assert first.advice.startswith(advice)


def test_guards_on_the_steps_that_a_loop_has_left_are_one_variation() -> None:
    failures = [
        (index, GuardFailure(f"___tuple_iterator_len(___stack0) == {number}")) for index, number in enumerate((3, 2, 1))
    ]
    (guard,) = failed_guards(failures)
    assert guard.variation == "steps left in the loop: 3 -> 2 -> 1 -> different value"
    assert guard.advice.startswith("the code after the break is compiled for each step of the loop: remove the break")


def test_the_verdict_names_a_size_and_a_setting_only_once() -> None:
    sizes = report_with_recompiles("tensor 'x' size mismatch at index 0. expected 2, actual 3", "2 <= x.size()[0] <= 4")
    assert verdict(sizes).text == "No breaks, but f was compiled 3 times: dimension 0 of x varied."
    settings = report_with_recompiles(
        "GLOBAL_STATE changed: num_threads autocast(cpu)_enabled ", "GLOBAL_STATE changed: autocast(cpu)_enabled "
    )
    names = "the number of threads and autocast on cpu"
    assert verdict(settings).text == f"No breaks, but f was compiled 3 times: {names} varied."


def test_a_guard_that_fails_again_for_the_same_version_causes_no_further_recompile() -> None:
    report = report_with_recompiles("k == 2", "k == 3")
    first, second = report.recompiles
    gradients = GuardFailure("tensor 'x' requires_grad mismatch. expected requires_grad=0", version="0/0")
    latest_failure = GuardFailure("k == 3", version="0/1")
    recompiles = [replace(first, reasons=[gradients]), replace(second, reasons=[latest_failure, gradients])]
    (function,) = recompilations(replace(report, recompiles=recompiles))
    assert [(guard.variation, guard.recompile_count) for guard in function.guards] == [
        ("requires_grad of x: False -> True", 1),
        ("k: 3 -> different value", 1),
    ]


@pytest.mark.parametrize(
    ("guard", "advice"),
    [("k == 2", "use `torch.compile(..., dynamic=True)`"), ("k == 0", ""), ("mode == 'a'", ""), ("len(args) == 2", "")],
)
def test_advice_on_recompiles_in_a_library_asks_for_no_change_to_its_code(guard: str, advice: str) -> None:
    report = report_with_recompiles(guard)
    location = Location("s9", 3, 3, function="f")
    report = replace(
        report,
        sources=[*report.sources, Source("s9", "theirs.py", "library")],
        recompiles=[replace(recompile, location=location) for recompile in report.recompiles],
    )
    assert recompilations(report)[0].guards[0].advice == advice


def test_only_callers_of_a_librarys_function_can_convert_its_arguments() -> None:
    failure = GuardFailure("tensor 'x' dtype mismatch. expected Float, actual Long")
    (inner_guard,) = failed_guards([(0, failure)], is_inner=True, is_library=True)
    assert not inner_guard.advice
    for is_inner, is_library in ((True, False), (False, True)):
        (guard,) = failed_guards([(0, failure)], is_inner=is_inner, is_library=is_library)
        assert guard.advice == "give `x` one dtype before the call: `x = x.to(...)`"


def test_the_text_does_not_repeat_advice() -> None:
    first_break = two_breaks().breaks[0]
    other = replace(first_break, id="b2", gb_id="GB0025", gb_type="Call to `print`")
    text = render_text(replace(two_breaks(), breaks=[replace(first_break, id="b1"), other], order=["b1", "b2"]))
    assert text.replace("\n        ", " ").count(f"do: {first_break.advice[0].text}") == 1
    assert "    do: as for break 1" in text.split("\n")


def test_a_group_names_the_causes_of_all_its_breaks() -> None:
    report = two_breaks()
    inner = Remedy("m1", [b.id for b in report.breaks], "inner", "Compile a part", "edit", "works")
    report = replace(report, remedies=[inner])
    titles = map(title_of, sorted(report.breaks, key=lambda b: break_numbers(report)[b.id]))
    first, second = (title.replace("`", "") for title in titles)
    assert first != second
    for view_text in (render_text(report), unescape(re.sub("<[^>]*>", "", render_html(report)))):
        assert re.search(rf"{re.escape(first)} \(GB\d+\); {re.escape(second)}", " ".join(view_text.split()))


def test_advice_for_several_guards_of_one_function_is_given_once() -> None:
    guards = [GuardFailure(f"tensor '{name}' size mismatch at index 0. expected 2, actual 3") for name in ("x", "y")]
    report = report_between_breaks(1, "")
    (entry,) = recompilations(replace(report, recompiles=[replace(report.recompiles[0], reasons=guards)]))
    assert [bool(guard.advice) for guard in entry.guards] == [True, False]


def test_the_text_shows_the_lines_of_the_listed_breaks_alone_if_many_have_one_cause() -> None:
    text = render_text(big_report(breaks=30, ops=60))
    assert len(text.split("\n")) < 50
    assert "/5 " in text
    assert "/6 " not in text


@pytest.mark.parametrize(("guard_line", "shown_lines"), [(70, {68, 72}), (None, {58, 100})], ids=["recompile", "graph"])
def test_the_text_of_a_long_cell_shows_lines_with_recompiles_or_graphs(
    guard_line: int | None, shown_lines: set[int]
) -> None:
    lines = [f"line_{number}" for number in range(1, 121)]
    cell = Source("s1", "Cell In[1]", "cell", segments=[Segment(1, "\n".join(lines))])
    graph = replace(no_breaks().graphs[0], ops=[], lines=[GraphLine("s1", 60, 1)])
    recompile = Recompile("0/1", "0/0", "f", Location("s1", 55, 55, function="f"), [])
    if guard_line is not None:
        recompile = replace(recompile, reasons=[GuardFailure("k == 2", Location("s1", guard_line, guard_line))])
    report = replace(
        no_breaks(), sources=[cell], graphs=[graph], recompiles=[recompile] if guard_line is not None else []
    )
    text = render_text(report)
    listed_lines = {int(number) for number in re.findall(r"\bline_(\d+)$", text, re.MULTILINE)}
    assert shown_lines <= listed_lines
    assert 1 not in listed_lines


def test_the_text_leaves_out_counts_of_zero() -> None:
    report_without_graphs = replace(no_breaks(), graphs=[], summary=replace(no_breaks().summary, graphs=0, ops=0))
    assert re.search(r"\b0 (?!s\b)", render_text(report_without_graphs)) is None


def report_between_breaks(count: int, guard: str) -> Report:
    """Return a report of functions that are called between breaks, each recompiled once."""
    recompiles = [
        Recompile(f"{index}/1", f"{index}/0", f"f{index}", Location("s1", index, index), [GuardFailure(guard)])
        for index in range(1, count + 1)
    ]
    frame = no_breaks().frames[0]
    frames = [replace(frame, id=f"{index}/0", role="call") for index in range(1, count + 1)]
    return replace(no_breaks(), recompiles=recompiles, frames=[frame, *frames])


@pytest.mark.parametrize(
    ("name", "subject", "advice"),
    [
        (
            "___stack0[0]",
            "a tensor that the break returned",
            "use `torch.compile(..., dynamic=True)`, or remove the break before it",
        ),
        (
            "pairs[0]",
            "pairs[0]",
            "use `torch.compile(..., dynamic=True)`, or `torch._dynamo.mark_dynamic` for the argument that sets the "
            "size",
        ),
    ],
)
def test_a_mark_is_advised_only_for_the_users_variables(name: str, subject: str, advice: str) -> None:
    guard = f"tensor '{name}' size mismatch at index 0. expected 2, actual 3"
    few_functions = report_between_breaks(3, guard)
    first = recompilations(few_functions)[0].guards[0]
    assert (first.variation, first.advice) == (f"dimension 0 of {subject}: 2 -> 3", advice)
    assert listed_recompilations(few_functions) == recompilations(few_functions)


@pytest.mark.parametrize(
    ("guard", "reason"),
    [
        ("tensor 'pairs[0]' size mismatch at index 0. expected 2, actual 3", "the sizes of results varied"),
        ("___stack0 == -1.5e-05", "numbers that breaks returned varied"),
    ],
)
@pytest.mark.parametrize("remedies", [None, []], ids=["untried", "tried"])
def test_recompiles_caused_by_results_of_breaks_are_one_entry_in_every_view(
    guard: str, reason: str, remedies: list[Remedy] | None
) -> None:
    report = replace(report_between_breaks(6, guard), remedies=remedies)
    (entry,) = listed_recompilations(report)
    assert (entry.function, entry.times_text, entry.guards[0].variation) == (
        "6 functions between breaks",
        "recompiled 6 times",
        reason,
    )
    advice = "remove the breaks, or use `torch.compile(..., dynamic=True)`"
    sentence = (
        f"6 functions between breaks recompiled 6 times: {reason}, line 1, line 2, line 3 and 3 more do: {advice}"
    )
    text = " ".join(render_text(report).split())
    assert sentence in text
    assert text.count("recompiled") == 1
    (row,) = next(section for section in build_rows(report).sections if section.id == "recompile").rows
    assert (row.label, row.is_code, row.details[0], row.more[-1]) == (
        "6 functions between breaks",
        False,
        "recompiled 6 times",
        f"Do: {advice}",
    )
    assert render_html(report).count(reason) == 1
    different_report = report_between_breaks(6, "k == 2")
    assert listed_recompilations(different_report) == recompilations(different_report)


def test_functions_that_are_compiled_with_and_without_gradients_are_one_entry_in_every_view() -> None:
    guard = "tensor 'dt' requires_grad mismatch. expected requires_grad=1"
    decision = Remedy(
        "m1", [], "person", "A person must decide", "person", "not tried", recompiles=["r1"], person="As is."
    )
    report = replace(report_between_breaks(6, guard), remedies=[decision])
    report = replace(
        report, recompiles=[replace(recompile, id=f"r{n}") for n, recompile in enumerate(report.recompiles, 1)]
    )
    reason = "a tensor requires a gradient in some calls only"
    text = " ".join(render_text(report).split())
    assert (
        f"6 functions recompiled 6 times: {reason}, line 1, line 2, line 3 and 3 more Each kind has its own graph, as"
        " expected."
    ) in text
    assert text.count("As is.") == 1, "only in the verdict"
    (row,) = next(section for section in build_rows(report).sections if section.id == "recompile").rows
    assert (row.label, row.details) == (
        "6 functions",
        ["recompiled 6 times", f"{reason}, line 1, line 2, line 3 and 3 more"],
    )
    assert render_html(report).count(reason) == 1
    small_report = report_between_breaks(3, guard)
    assert listed_recompilations(small_report) == recompilations(small_report)
    report_with_limit = replace(
        report, recompiles=[replace(report.recompiles[0], limit_hit=True), *report.recompiles[1:4]]
    )
    assert len(listed_recompilations(report_with_limit)) == 4


def test_an_inner_function_for_tensors_of_every_rank_needs_no_change() -> None:
    (function,) = recompilations(report_between_breaks(1, "tensor 'p[0]' rank mismatch. expected 4, actual 1"))
    assert function.guards[0].advice == "nothing, if there are few: each number of dimensions has its own graph"


def test_a_remedy_for_several_functions_takes_the_place_of_the_advice_on_each() -> None:
    report = report_between_breaks(2, "tensor 'x' size mismatch at index 0. expected 2, actual 3")
    recompiles = [replace(recompile, id=f"r{n}") for n, recompile in enumerate(report.recompiles, 1)]
    mark = Remedy("m1", [], "dynamic", "Mark a dimension", "edit", "works", recompiles=["r1", "r2"])
    report_with_shared_remedy = replace(report, recompiles=recompiles, remedies=[mark])
    assert [
        needs_general_advice(report_with_shared_remedy, function)
        for function in recompilations(report_with_shared_remedy)
    ] == [False, False]
    report_with_remedy_for_first = replace(report_with_shared_remedy, remedies=[replace(mark, recompiles=["r1"])])
    assert [
        needs_general_advice(report_with_remedy_for_first, function)
        for function in recompilations(report_with_remedy_for_first)
    ] == [False, True]


LIMIT_SENTENCE = "no breaks, but f was compiled 3 times and now runs eagerly (recompile limit)"


def test_a_headline_does_not_hide_the_recompile_limit() -> None:
    report = report_with_recompiles("k == 1", "k == 2", "k == 3", limit=True)
    verdict = f"{LIMIT_SENTENCE[0].upper()}{LIMIT_SENTENCE[1:]}: k varied."
    assert render_text(report).startswith(f"{verdict}\nCell In[1], f: 1 graph, 2 ops")
    assert f'<p class="gb-verdict gb-bad">{verdict}</p>' in render_html(report)
    assert render_markdown([report]).startswith(
        "**compile_explain**: Cell In&#91;1&#93;: No breaks, but f was compiled"
    )
    job = Job([Process("p1", 0, 1, None, report), Process("p2", 1, 2, None, no_breaks())], [])
    assert job_headline(job) == f"2 processes, {LIMIT_SENTENCE} in 1 of 2 processes"
    assert job_headline(Job(job.processes[1:], [])) == "1 process, 0 breaks"


def test_a_headline_names_the_functions_that_reached_the_limit() -> None:
    report = report_with_recompiles("k == 1", limit=True)
    unknown_recompiles = [replace(recompile, of=None) for recompile in report.recompiles]
    assert (
        limited_functions_text(replace(report, recompiles=unknown_recompiles)) == "f now runs eagerly (recompile limit)"
    )
    wrapped_functions = [Skipped(f"k{name}", None, name, None, "", kind="shared wrapper") for name in ("g", "h")]
    assert (
        limited_functions_text(replace(report, skipped=wrapped_functions))
        == "g and h now run eagerly (recompile limit)"
    )
    limited_report = replace(report, skipped=[Skipped("k1", None, "f", None, "", kind="recompile limit")])
    assert verdict(limited_report) == (
        "bad",
        "No breaks, but f was compiled once and now runs eagerly (recompile limit): k varied.",
    )
    assert limited_functions_text(no_breaks()) == ""


def report_with_several_guards() -> Report:
    """Return a report of a function whose flag, name and size vary: a recompile has failed guards of each version."""
    f = Location("s1", 2, 4, function="f")
    causal = Location("s1", 3, 3, function="f", code="if causal:")
    name = Location("s1", 4, 4, function="f", code="if name == 'a':")

    def size(actual: int) -> GuardFailure:
        return GuardFailure(f"tensor 'x' size mismatch at index 0. expected 4, actual {actual}")

    def recompile_with(*reasons: GuardFailure, number: int) -> Recompile:
        return Recompile(f"0/{number}", "0/0", "f", f, list(reasons), limit_hit=number == 4)

    a, b = GuardFailure("name == 'a'", name), GuardFailure("name == 'b'", name)
    flag = GuardFailure("causal == False", causal)
    recompiles = [
        recompile_with(size(5), number=1),
        recompile_with(a, size(6), number=2),
        recompile_with(b, a, size(7), number=3),
        recompile_with(a, b, flag, a, size(8), number=4),
    ]
    return replace(no_breaks(), recompiles=recompiles)


def test_each_failed_guard_has_its_own_count_and_lines() -> None:
    (recompilation,) = recompilations(report_with_several_guards())
    descriptions = [
        (guard.variation, recompilation.share_text(guard), [location.line for location in guard.locations])
        for guard in recompilation.guards
    ]
    assert descriptions == [
        ("dimension 0 of x: 4 -> 5 -> ... -> 8", "all 4 times", []),
        ("name: 'a', 'b'", "3 of 4 times", [4]),  # 'a' recurred, so there is no arrow
        ("causal: False -> True", "1 of 4 times", [3]),
    ]


def test_every_view_lists_every_failed_guard() -> None:
    report = report_with_several_guards()
    text = render_text(report)
    assert "f recompiled 3 times, then reached the limit and runs eagerly, because these varied:\n" in text
    assert "    -  name: 'a', 'b', 3 of 4 times, line 4\n" in text
    assert "    -  causal: False -> True, 1 of 4 times, line 3\n" in text
    html = unescape(re.sub(r"<[^>]+>", "", render_html(report)))
    assert "dimension 0 of x: 4 → 5 → ... → 8, all 4 times" in html
    assert "name: 'a', 'b', 3 of 4 times (line 4)" in html
    assert "causal: False → True, 1 of 4 times (line 3)" in html


@pytest.mark.parametrize(
    ("guards", "limit", "times"),
    [
        (1, False, "recompiled (0/1)"),
        (3, False, "recompiled 3 times"),
        (1, True, "not recompiled, but runs eagerly, because the limit is reached"),
        (3, True, "recompiled twice, then reached the limit and runs eagerly"),
    ],
)
def test_a_recompile_refused_by_the_limit_is_not_counted(guards: int, limit: bool, times: str) -> None:
    report = report_with_recompiles(*(f"k == {value}" for value in range(guards)), limit=limit)
    (recompilation,) = recompilations(report)
    assert recompilation.times_text == times


def test_a_version_for_a_different_grad_mode_is_not_the_cause_if_there_is_one_for_the_same_mode() -> None:
    grad_mode = GuardFailure("GLOBAL_STATE changed: grad_mode ")
    report = report_with_recompiles(grad_mode.guard, "k == 0", "k == 1")
    recompiles = [
        replace(recompile, reasons=[*recompile.reasons, grad_mode]) if index else recompile
        for index, recompile in enumerate(report.recompiles)
    ]
    (recompilation,) = recompilations(replace(report, recompiles=recompiles))
    assert [(guard.variation, recompilation.share_text(guard)) for guard in recompilation.guards] == [
        ("k: 0 -> 1 -> different value", "2 of 3 times"),
        ("the grad mode changed", "1 of 3 times"),
    ]


def test_a_function_at_the_recompile_limit_is_not_called_good() -> None:
    html = render_html(report_with_recompiles("k == 2", limit=True)).partition("</style>")[2]
    assert "gb-good" not in html
    assert "No breaks, but f was compiled once and now runs eagerly (recompile limit): k varied." in html
    assert "gb-good" in render_html(no_breaks()).partition("</style>")[2]


@pytest.mark.parametrize(
    ("code", "brief"),
    [
        ("x > 0", "x > 0"),
        ("f(\n  x)", "f( …"),
        ("{\n  'a': 1,\n}", "{ 'a': 1, …"),
        (None, ""),
        ("(\n)", "( )"),
        ("if (\n  x\n  and y", "if ( x …"),
    ],
)
def test_multiline_code_is_shown_as_its_first_line_and_an_ellipsis(code: str | None, brief: str) -> None:
    assert brief_code(code) == brief


def test_views_say_where_a_run_was_interrupted() -> None:
    location = Location("s1", 3, 3, function="f")
    report = replace(no_breaks(), status="interrupted", error=RunError("KeyboardInterrupt", "", location))
    assert " -  interrupted at line 3 in f: the report covers what happened until then" in render_text(report)
    html = render_html(report)
    assert "<b>Interrupted</b> at" in html
    assert "the report covers what happened until then" in html
    # An interrupt before the cell began or while the report was made has no location.
    report = replace(no_breaks(), status="interrupted", error=None)
    assert " -  interrupted: the report covers what happened until then" in render_text(report)


def test_an_older_report_lists_breaks_as_they_occurred() -> None:
    report = replace(library_report(), order=[])
    assert break_numbers(report) == {"b1": 1, "b2": 2, "b3": 3}


@pytest.mark.parametrize(
    "url",
    [
        "https://pytorch.org",
        "https://docs.pytorch.org/docs/stable/x.html#y",
        "https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0170.html",
    ],
)
def test_reports_link_to_pytorchs_pages(url: str) -> None:
    assert is_known_page(url)


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "http://pytorch.org/",
        "javascript:alert(1)//https://pytorch.org/",
        "https://pytorch.org.example.com/",
        "https://pytorch.org@example.com/",
        "https://notpytorch.org/",
        "https://meta-pytorch.github.io/other/",
        "https://pytorch.org/)[x](https://example.com",
        "https://pytorch.org/\n",
    ],
)
def test_reports_link_to_nothing_else(url: str | None) -> None:
    assert not is_known_page(url)


def test_a_long_call_path_shows_the_users_own_calls() -> None:
    """Lightning's loops call the user's `training_step`, which calls the library again."""
    report = library_report()
    cell, library = report.sources[0].id, "s2"

    def call(source: str, line: int, function: str) -> Location:
        return Location(source, line, line, 0, 4, function, "f()")

    loops = [call(library, 100 + number, f"run_loop_{number}") for number in range(12)]
    stack = [call(cell, 1, "<module>"), *loops, call(cell, 7, "training_step"), *loops, call(library, 5, "log")]
    break_with_long_stack = replace(report.breaks[0], stack=[*stack, report.breaks[0].location], occurrences=[])
    text = render_text(replace(report, breaks=[break_with_long_stack, *report.breaks[1:]]))
    (path,) = re.findall(r"called from (.*)", text)
    assert path.startswith("line 1 > ... > line 7 in training_step > ... > ")
    assert path.endswith("modeling_bart.py:5 in log")


def test_the_title_of_a_run_names_the_compiled_code() -> None:
    report = two_breaks()
    assert build_rows(report).title == "step"
    assert build_rows(replace(report, frames=[])).title == ""
    callee_recompilation = [CompiledCall(name, kind) for name, kind in (("model", "Net"), ("loss", None), ("f", None))]
    assert build_rows(replace(report, compiled=callee_recompilation)).title == "Net, loss and 1 more"


def test_the_setting_that_corrects_a_wrong_result_is_reported() -> None:
    def sentences(*trials: NumericsTrial) -> list[str]:
        check = Check("f", "inductor", equal=False, step="backend", restored_by=list(trials))
        report = Report("ok", Device("auto", "cpu"), check=[check])
        (section,) = [section for section in build_rows(report).sections if section.id == "check"]
        text = " ".join(render_text(report).split())
        assert all(" ".join(row.label.replace("`", "").split()) in text.replace("`", "") for row in section.rows)
        return [row.label for row in section.rows[1:]]

    assert sentences(NumericsTrial("a = True", equal=True, time_ratio=1.25), NumericsTrial("b = 1", equal=False)) == [
        "With `a = True` the result is right; a call takes 1.2 times as long"
    ]
    assert sentences(NumericsTrial("a = True", equal=True, time_ratio=1.02)) == [
        "With `a = True` the result is right; a call takes no longer"
    ]
    assert sentences(NumericsTrial("a = True", equal=True)) == ["With `a = True` the result is right"]
    assert sentences(NumericsTrial("a = True", equal=False), NumericsTrial("b = 1", equal=False)) == [
        "The result stays wrong with `a = True` and `b = 1`"
    ]
    assert sentences() == []


def test_an_identifier_as_a_title_is_replaced_by_pytorchs_explanation() -> None:
    explanation = "Dynamo does not yet support subscripting 'type'."
    break_ = Break("b1", None, "missing_mp_other", None, "resumed", explanation=explanation)
    assert title_of(break_) == "Dynamo does not yet support subscripting 'type'"
    assert title_of(replace(break_, explanation="")) == "missing_mp_other"
