"""Sentences about remedies: evidence, changes and combinations, as text and markup."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from jupyter_graphbreak.report.location import Source
from jupyter_graphbreak.report.remedies import INNER_FAMILY, NO_TIME_REASON, Edit, Evidence, Remedy, RemedyVerdict
from jupyter_graphbreak.results import Report
from jupyter_graphbreak.views.html.render import render_html
from jupyter_graphbreak.views.rows.sections import about_rows
from jupyter_graphbreak.views.text import render_text
from jupyter_graphbreak.views.words.remedies import (
    BreakRemedies,
    change_lines,
    code_of,
    comment_for_cell,
    comment_for_code,
    compatible_remedies,
    failed_trials_heading,
    has_separate_code,
    how_to_apply,
    how_to_undo,
    outcome_text,
    remedies_for_break,
    remedies_for_frame,
    sign_of,
    target_text,
    trials_sentence,
)
from tests.support.sample_reports import HOSTILE, hostile_report, remedies, two_breaks

EVIDENCE = Evidence("inductor", 6, True, ["values", "gradients", "output"], 5, 1, 4, 0)


def make_remedy(verdict: RemedyVerdict = "works", **fields: object) -> Remedy:
    return replace(Remedy("m1", ["b1"], "branch", "A change", "edit", verdict, evidence=EVIDENCE), **fields)


def remedy_with_id(report: Report, ident: str) -> Remedy:
    return next(remedy for remedy in report.remedies or [] if remedy.id == ident)


@pytest.mark.parametrize(
    ("remedy", "expected"),
    [
        (
            make_remedy(),
            "works: values, gradients and output equal on 6 inputs with inductor, both branches taken; 5 graphs become "
            "1, and no break is left",
        ),
        (
            make_remedy(evidence=Evidence("eager", 1, None, ["values"], 2, 2, 3, 1)),
            "works: values equal on 1 input with eager; 1 of 3 breaks is left",
        ),
        (
            make_remedy("works on what ran", evidence=Evidence("eager", 2, False, ["values", "output"], 1, 2, 1, 1)),
            "works as far as tested: values and output equal on 2 inputs with eager, but one branch of a condition "
            "never ran; 1 graph becomes 2",
        ),
        (
            make_remedy("works on what ran", reason="`flag` was never true", evidence=EVIDENCE),
            "works as far as tested: values, gradients and output equal on 6 inputs with inductor, both branches "
            "taken, but `flag` was never true; 5 graphs become 1, and no break is left",
        ),
        (make_remedy("break stays"), "still breaks"),
        (make_remedy("another break", reason="GB0010, line 3"), "breaks elsewhere: GB0010, line 3"),
        (
            make_remedy("another break", reason="for a different cause at line 3, f(x): a hook"),
            "still breaks: for a different cause at line 3, f(x): a hook",
        ),
        (make_remedy("break stays", breaks=[], recompiles=["r1"]), "still recompiles"),
        (
            make_remedy("another break", breaks=[], recompiles=["r1"], reason="then a graph breaks"),
            "makes it worse: then a graph breaks",
        ),
        (make_remedy("another result", differences=["a", "b"]), "different result: a; b"),
        (make_remedy("fails", reason="NameError: y"), "fails: NameError: y"),
        (make_remedy("not tried", reason="no time was left"), "not tried: no time was left"),
        (make_remedy(evidence=None), "works"),
    ],
)
def test_a_verdict_is_shown_with_its_evidence(remedy: Remedy, expected: str) -> None:
    assert outcome_text(remedy) == expected


def test_a_failed_trial_is_described_by_its_effect() -> None:
    evidence_of_savings = Evidence(
        "eager", 3, None, ["values"], 1, 1, 0, 0, compilations_before=4, compilations_after=1
    )
    evidence_without_savings = Evidence(
        "eager", 3, None, ["values"], 1, 1, 0, 0, compilations_before=4, compilations_after=4
    )
    trials = {
        "for a break": make_remedy("another result"),
        "for recompiles": make_remedy("another result", breaks=[], recompiles=["r1"], evidence=evidence_of_savings),
        "no effect": make_remedy("another result", breaks=[], recompiles=["r1"], evidence=evidence_without_savings),
    }
    sentences = {name: trials_sentence(BreakRemedies([], [trial], [])) for name, trial in trials.items()}
    assert sentences == {
        "for a break": '1 change tried: it does not work; "A change" removes the break, but changes the result',
        "for recompiles": '1 change tried: it does not work; "A change" saves compilations, but changes the result',
        "no effect": "1 change tried: it does not work",
    }


def test_a_change_that_was_not_tried_is_not_called_a_failed_trial() -> None:
    untried_remedy, failed_remedy = (
        make_remedy("not tried", reason=NO_TIME_REASON),
        make_remedy("fails", reason="NameError: y"),
    )
    cases = {
        (0, 1): ("1 change not tried", "1 change not tried"),
        (1, 1): ("1 change tried: it does not work; 1 more change not tried", "1 trial failed, 1 change not tried"),
        (2, 0): ("2 changes tried, none works", "2 trials failed"),
    }
    for (trials, more), (sentence, heading) in cases.items():
        listed_remedies = [*([failed_remedy] * trials), *([untried_remedy] * more)]
        assert trials_sentence(BreakRemedies([], listed_remedies, [])) == sentence
        assert failed_trials_heading(listed_remedies) == heading
    report = replace(two_breaks(), remedies=[untried_remedy])
    assert f"not tried: A change: {NO_TIME_REASON}" in " ".join(render_text(report).split())
    assert "does not work" not in render_html(report)


def test_working_remedies_come_first_and_decisions_are_separate() -> None:
    report = remedies()
    first = remedies_for_break(report, report.breaks[0])
    second = remedies_for_break(report, report.breaks[1])
    assert first is not None
    assert second is not None
    assert [remedy.id for remedy in first.working_remedies] == ["m1", "m11", "m7"]
    assert [remedy.id for remedy in first.failed_remedies] == ["m3", "m2"]
    assert [remedy.id for remedy in second.working_remedies] == ["m7", "m4", "m10"]
    assert [remedy.verdict for remedy in second.failed_remedies] == ["another break", "fails", "not tried"]
    assert [sentence[:32] for sentence in second.decisions] == ["Decide whether the statistics mu"]
    assert {sign_of(remedy) for remedy in first.working_remedies} == {"✓"}
    assert sign_of(remedy_with_id(report, "m4")) == "≈"


def test_a_report_distinguishes_no_trials_from_no_remedies() -> None:
    report = two_breaks()
    assert remedies_for_break(report, report.breaks[0]) is None
    assert "tried" not in render_text(report)
    assert "Remedies" not in render_html(report)
    report_without_remedies = replace(report, remedies=[])
    assert not remedies_for_break(report_without_remedies, report_without_remedies.breaks[0])
    assert "tried: nothing, no known remedy applies" in render_text(report_without_remedies)
    assert "Nothing was tried" in render_html(report_without_remedies)


def test_a_function_that_runs_eagerly_without_a_break_has_remedies() -> None:
    report = remedies()
    report_without_breaks = replace(report, breaks=[], order=[], skipped=[replace(report.skipped[0], break_=None)])
    remedies_of_frame = remedies_for_frame(report_without_breaks, report_without_breaks.skipped[0])
    assert remedies_of_frame is not None
    assert [remedy.id for remedy in remedies_of_frame.working_remedies] == ["m10"]
    text = render_text(report_without_breaks).split("\n")
    line_index = next(index for index, line in enumerate(text) if "log_stats runs eagerly" in line)
    assert text[line_index + 2].strip() == "fix: Let log_stats be compiled"
    assert "Let <code>log_stats</code> be compiled" in render_html(report_without_breaks)


def test_a_change_is_shown_by_its_lines() -> None:
    report = remedies()
    assert [line.sign + line.text for line in change_lines(report, remedy_with_id(report, "m4"))] == [
        "@line 5", "-    log_stats(x)", "+    stats = x.mean(), x.std()",
        "@before line 20", "+    # printed by the caller",
    ]  # fmt: skip
    # A long edit shows only its changes with two lines of context.
    old = "\n".join(f"    line{number}" for number in range(1, 21))
    remedy = make_remedy(edits=[Edit("s1", 3, 22, old, old.replace("line10\n", "ten\n"))])
    assert [line.sign + line.text for line in change_lines(report, remedy)] == [
        "@lines 10 to 14", "     line8", "     line9", "-    line10", "+    ten", "     line11", "     line12",
    ]  # fmt: skip
    assert [line.text for line in change_lines(report, make_remedy(edits=[Edit("s1", 5, 5, "x", "")]))] == [
        "line 5",
        "x",
    ]


def test_a_change_of_several_cells_names_each_cell() -> None:
    sources = [Source("s1", "Cell In[2]", "cell"), Source("s2", "Cell In[1]", "cell")]
    report = replace(remedies(), sources=sources)
    remedy = make_remedy(edits=[Edit("s2", 3, 3, "@torch.compile", ""), Edit("s1", 4, 3, "", "net.compile()")])
    places = [line.text for line in change_lines(report, remedy) if line.sign == "@"]
    assert places == ["Cell In[1], line 3", "Cell In[2], before line 4"]


def test_a_change_of_a_file_is_its_patch() -> None:
    report = remedies()
    lines = change_lines(report, remedy_with_id(report, "m11"))
    assert (
        "\n".join(line.text if line.sign == "@" else line.sign + line.text for line in lines)
        == remedy_with_id(report, "m11").patch
    )
    remedy_without_patch = replace(remedy_with_id(report, "m11"), patch=None)
    assert change_lines(report, remedy_without_patch)[0].text == "helpers.py, line 2"


def test_settings_without_code_are_statements() -> None:
    remedy = make_remedy(settings={"torch._dynamo.config.capture_scalar_outputs": True})
    assert code_of(remedy) == "torch._dynamo.config.capture_scalar_outputs = True"
    assert code_of(remedy_with_id(remedies(), "m7")) == "model.config.log_stats = False"


def test_a_notebook_can_apply_edits_of_cells_and_separate_code() -> None:
    report = remedies()
    ways_to_apply = {remedy.id: how_to_apply(report, remedy) for remedy in report.remedies or []}
    assert ways_to_apply == {
        "m1": "edit", "m2": None, "m3": None, "m4": "edit", "m5": None, "m6": None, "m7": "cell", "m8": None,
        "m9": None, "m10": "edit", "m11": "cell",
    }  # fmt: skip


def test_compatible_remedies_start_with_those_for_most_breaks() -> None:
    report = remedies()
    assert [remedy.id for remedy in compatible_remedies(report)] == ["m7", "m10"]
    other_remedies = [remedy for remedy in report.remedies or [] if remedy.id != "m7"]
    report_without_switch = replace(report, remedies=other_remedies)
    assert [remedy.id for remedy in compatible_remedies(report_without_switch)] == ["m1", "m4", "m10"]
    assert [target_text(report, remedy_with_id(report, ident)) for ident in ("m7", "m1", "m10")] == [
        "breaks 1 and 2", "break 1", "log_stats",
    ]  # fmt: skip
    # Exclusion works in both directions, and two remedies cannot change the same line.
    remedies_with_exclusion = [replace(other, excludes=["m1"] if other.id == "m4" else []) for other in other_remedies]
    assert "m4" not in [remedy.id for remedy in compatible_remedies(replace(report, remedies=remedies_with_exclusion))]
    overlapping_remedy = replace(remedy_with_id(report, "m4"), edits=[Edit("s1", 15, 16, "", "")])
    changed_remedies = [overlapping_remedy if other.id == "m4" else other for other in other_remedies]
    assert [remedy.id for remedy in compatible_remedies(replace(report, remedies=changed_remedies))] == ["m1", "m10"]
    assert compatible_remedies(two_breaks()) == []


def test_compiling_a_part_comes_after_remedies_that_remove_as_many_breaks() -> None:
    single, other = make_remedy(id="r1", breaks=["b1"]), make_remedy(id="r2", breaks=["b2"])
    inner = make_remedy(id="r3", breaks=["b1", "b2"], family=INNER_FAMILY, excludes=["r1", "r2"])
    report = report_with_remedies(inner, single)
    assert [remedy.id for remedy in compatible_remedies(report)] == ["r3"]  # no other remedy removes break 2
    trials = remedies_for_break(report, report.breaks[0])
    assert trials is not None
    assert [remedy.id for remedy in trials.working_remedies] == ["r1", "r3"]
    assert [remedy.id for remedy in compatible_remedies(report_with_remedies(inner))] == ["r3"]
    assert [remedy.id for remedy in compatible_remedies(report_with_remedies(inner, single, other))] == ["r1", "r2"]
    doubtful_remedy = replace(other, verdict="works on what ran")
    assert [remedy.id for remedy in compatible_remedies(report_with_remedies(inner, single, doubtful_remedy))] == ["r3"]


def test_a_setting_that_failed_twice_is_listed_once() -> None:
    failures = [make_remedy("break stays", id="r1", reason="one"), make_remedy("another break", id="r2", reason="two")]
    edit_trials = remedies_for_break(report := report_with_remedies(*failures), report.breaks[0])
    settings = [replace(remedy, kind="setting") for remedy in failures]
    setting_trials = remedies_for_break(report := report_with_remedies(*settings), report.breaks[0])
    assert edit_trials is not None
    assert setting_trials is not None
    assert (len(edit_trials.failed_remedies), len(setting_trials.failed_remedies)) == (2, 1)


def test_the_text_lists_remedies_within_100_columns() -> None:
    text = render_text(remedies())
    assert max(map(len, text.split("\n")[1:])) <= 100
    expected = [
        "fix: Compute both branches with torch.where\n         works: values, gradients and output equal on 6 inputs",
        "           -        if score > 3:\n           -            y = y / score\n           +        y = torch.wh",
        "or: Switch statistics off: works as far as tested",
        'tried, none works; "Branch with torch.cond" removes the break',
        "fix: Switch statistics off: works as far as tested, see break 1",
        "compatible remedies (each was tested alone): Switch statistics off (breaks 1 and 2); Let log_stats",
    ]
    position = -1
    for sentence in expected:
        next_position = text.find(sentence, position + 1)
        assert next_position > position, sentence
        position = next_position


def test_a_remedy_that_was_not_tried_is_named_for_its_first_break_only() -> None:
    untried_remedy = make_remedy(breaks=["b1", "b2"], title="Compile a part", verdict="not tried", reason="no time")
    decision = make_remedy(id="r2", breaks=["b2"], kind="person", verdict="not tried", person="Decide it.")
    text = render_text(report_with_remedies(untried_remedy, decision))
    assert text.count("not tried: Compile a part") == 1
    assert "Decide it." in text


def test_remedies_with_the_same_title_are_listed_once() -> None:
    first_remedy, second_remedy = make_remedy(), make_remedy(id="r2")
    text = render_text(replace(two_breaks(), remedies=[first_remedy, second_remedy]))
    assert f"fix: {first_remedy.title}" in text
    assert f"or: {first_remedy.title}" not in text


def test_a_long_change_is_truncated_in_the_text_but_not_in_the_markup() -> None:
    long_remedy = make_remedy(edits=[Edit("s1", 1, 30, "\n".join(f"a{number}" for number in range(30)), "b")])
    report = replace(two_breaks(), remedies=[long_remedy])
    text = " ".join(render_text(report).split())
    assert "lines 1 to 30 -a0 -a1 ... 28 more lines removed +b" in text
    longer_report = replace(
        report, remedies=[replace(long_remedy, edits=[replace(long_remedy.edits[0], new="b\n" * 30)])]
    )
    assert "more lines removed" in render_text(longer_report)
    assert "... and 23 more lines" in render_text(longer_report)
    assert ">-a29\n<" in render_html(report)


def test_the_markup_of_a_card_is_readable_without_style() -> None:
    html = render_html(remedies()).partition("</style>")[2]
    start = html.index("Branch on a tensor's value <small>")
    card = html[start : html.index('<li class="gb-item gb-break" id="', start)]
    text = re.sub(r"<[^>]+>", "", card)
    assert "Fix: Compute both branches with torch.where ✓ works" in text
    assert "values, gradients and output equal on 6 inputs with inductor, both branches taken" in text
    assert "lines 14 to 15\n-        if score &gt; 3:\n-            y = y / score\n+        y = torch.where" in text
    assert "2 trials failed" in text
    assert "Make it branchless" in text  # untested advice is among the other ways
    assert 'data-remedy="0" data-apply="edit" data-copy=""' in card
    assert 'data-remedy="10" data-apply="cell" data-copy="patch"' in card
    assert card.count('data-remedy="6"') == 1
    assert 'class="gb-together" data-remedies="6 9 "' in html


def test_hostile_text_is_never_markup() -> None:
    html = render_html(hostile_report()).partition("</style>")[2]
    assert "<script>" not in html
    assert "<img" not in html
    assert html.count("&lt;script&gt;") > 40
    assert "\x1b" not in render_text(
        replace(remedies(), remedies=[make_remedy(reason="\x1b[2J", title=f"\x1b{HOSTILE}")])
    )


def report_with_remedies(*tried_remedies: Remedy) -> Report:
    return replace(two_breaks(), remedies=list(tried_remedies))


def test_a_trial_with_the_same_result_is_listed_once() -> None:
    equal_remedies = [make_remedy("break stays", id=f"m{number}", title="Use `torch.where`") for number in (1, 2)]
    other = make_remedy("fails", id="m3", title="Use `torch.where`", reason="NameError: y")
    report = report_with_remedies(*equal_remedies, other)
    trial_lines = [line.strip() for line in render_text(report).splitlines() if line.strip().startswith("tried: Use")]
    assert trial_lines == ["tried: Use torch.where: still breaks", "tried: Use torch.where: fails: NameError: y"]
    assert render_html(report).count("still breaks") == 1


def test_a_reason_is_never_truncated_within_a_clause() -> None:
    clauses = [f"the {name} of the tensor that the function returns is different" for name in ("sign", "value", "sum")]
    report = report_with_remedies(make_remedy("another result", differences=clauses))
    text = " ".join(render_text(report).split())
    assert f"tried: A change: different result: {clauses[0]}; {clauses[1]} " in text
    assert clauses[2] not in text
    combination = make_remedy(
        "fails", title="Compile with `dynamic=True`; Make `k` a tensor", reason=f"raises {'long' * 50}"
    )
    assert "Make k a tensor: fails: raises longlong" in " ".join(render_text(report_with_remedies(combination)).split())
    long_clause = "the value of " + "a_very_long_name" * 20 + " differs"
    assert long_clause in "".join(
        line.strip().removeprefix("tried: ") + " "
        for line in render_text(
            report_with_remedies(make_remedy("another result", differences=[long_clause]))
        ).splitlines()
    )


def test_a_difference_is_shown_once() -> None:
    for remedy in (
        make_remedy("another result", reason="y is 2, not 3", differences=["y is 2, not 3", "z is 4, not 5"]),
        make_remedy("another result", differences=["y is 2, not 3", "z is 4, not 5"]),
        make_remedy("works but differs", differences=["y is 2, not 3", "z is 4, not 5"]),
    ):
        html = render_html(report_with_remedies(remedy))
        assert (html.count("y is 2, not 3"), html.count("z is 4, not 5")) == (1, 1)


@pytest.mark.parametrize(
    ("remedy", "sentence"),
    [
        (make_remedy(), "Your edit: same results, removes break 1"),
        (make_remedy("works but differs", differences=["prints later"]),
         "Your edit: works, but differs (prints later), removes break 1"),
        (make_remedy("works but differs", differences=["prints later", "warns later", "warns twice"]),
         "Your edit: works, but differs (prints later and 2 more), removes break 1"),
        (make_remedy("works on what ran", reason="`flag` was never true"),
         "Your edit: same results as far as tested (`flag` was never true), removes break 1"),
        (make_remedy(breaks=[]), "Your edit: same results, removes no break"),
        (make_remedy("break stays"), "Your edit: does not remove break 1"),
        (make_remedy("another result", differences=["y is 2, not 3"]), "Your edit: different results (y is 2, not 3)"),
        (make_remedy("fails", reason="NameError: y"), "Your edit: fails (NameError: y)"),
    ],
)  # fmt: skip
def test_the_result_of_the_users_edit_is_the_first_sentence(remedy: Remedy, sentence: str) -> None:
    first = about_rows(report_with_remedies(replace(remedy, family="own", title="Your edit")))[0]
    assert (first.id, first.label) == ("edit", sentence)
    assert first.look == ("good" if "removes" in sentence else "bad")
    assert "edit" not in {row.id for row in about_rows(report_with_remedies(remedy))}


FLAG = "torch._dynamo.config.capture_scalar_outputs"
SWITCH = "Turn off SpecAugment"


@pytest.mark.parametrize(
    ("remedy", "undo"),
    [
        (make_remedy(kind="setting", code="...", settings={FLAG: True}), f", or: {FLAG} = False"),
        (
            make_remedy(kind="setting", code="...", settings={"torch._dynamo.config.recompile_limit": 64}),
            ", or: torch._dynamo.config.recompile_limit = 8",
        ),
        (
            make_remedy(kind="setting", code="...", settings={"torch._dynamo.config.reorderable": ["builtins.print"]}),
            ", or: torch._dynamo.config.reorderable.discard(print)",
        ),
        (
            make_remedy(kind="switch", code="...", title=SWITCH),
            ", or: set apply_spec_augment = True in the model's configuration",
        ),
        (make_remedy(kind="switch", code="..."), ""),
        (
            make_remedy(edits=[Edit("s9", 1, 1, "a", "b")], patch="--- a/x.py\n+++ b/x.py\n"),
            "; no file was changed",
        ),
    ],
)
def test_the_comment_of_a_cell_says_what_it_does_and_how_to_undo_it(remedy: Remedy, undo: str) -> None:
    report = two_breaks()
    sources = [*report.sources, Source("s9", "x.py", "library", "x.py")]
    report = replace(report, config={"recompile_limit": 8}, remedies=[remedy], sources=sources)
    assert comment_for_cell(report, remedy) == [
        f"{remedy.title}: removes break 1.",
        f"To undo: delete this cell, then restart the kernel{undo}",
    ]


def test_the_comment_of_a_cell_names_differences() -> None:
    remedy = make_remedy("works but differs", kind="switch", code="...", differences=["prints nothing"])
    assert comment_for_cell(two_breaks(), remedy)[1] == "Differences: prints nothing."


def test_copied_code_says_what_it_does_and_how_to_undo_it() -> None:
    report = two_breaks()
    switch = make_remedy(kind="switch", code="...")
    undo = "To undo: delete this code, then restart the kernel"
    assert comment_for_code(report, switch) == [f"{switch.title}: removes break 1.", undo]
    mark = make_remedy(kind="mark", code="torch._dynamo.mark_dynamic(x, 0)")
    assert comment_for_code(report, mark)[-1] == "To undo: delete this code"
    assert comment_for_code(report, make_remedy("break stays", kind="switch", code="...")) == []


def test_a_mark_with_a_setting_edits_the_cell_and_says_how_to_undo_the_setting() -> None:
    report = remedies()
    edit = remedy_with_id(report, "m1").edits[0]
    setting = {"torch._dynamo.config.allow_unspec_int_on_nn_module": True}
    mark = make_remedy(kind="mark", code="mark(x)", edits=[edit], settings=setting)
    assert how_to_apply(report, mark) == "edit"
    assert not has_separate_code(mark)
    assert how_to_undo(report, mark) == (
        "To undo: delete these lines, then restart the kernel, or: "
        "torch._dynamo.config.allow_unspec_int_on_nn_module = False"
    )
    assert how_to_undo(report, replace(mark, settings={})) == ""
    assert how_to_apply(report, replace(mark, edits=[])) is None
    assert has_separate_code(replace(mark, kind="edit"))


def test_an_edit_of_a_cell_adds_no_comment() -> None:
    report = remedies()
    edits = [remedy for remedy in report.remedies or [] if how_to_apply(report, remedy) == "edit"]
    assert edits
    assert [comment_for_cell(report, remedy) for remedy in edits] == [[]] * len(edits)
