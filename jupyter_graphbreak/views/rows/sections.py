"""Turn a report into rows.

To add a section, write a function here and list it in ``_SECTIONS``, or in ``_MEASUREMENTS`` if all its rows are
sentences.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeVar

from jupyter_graphbreak.report.location import Location
from jupyter_graphbreak.views.rows.schema import ROWS_VERSION, Look, Row, Rows, Section, Spot
from jupyter_graphbreak.views.words import changes as change_words
from jupyter_graphbreak.views.words.advice import advice_for_break, cost_text
from jupyter_graphbreak.views.words.aftermath import aftermath_in_function
from jupyter_graphbreak.views.words.bounds import shown_part
from jupyter_graphbreak.views.words.cost import (
    check_sentence,
    cost_verdicts,
    coverage_sentences,
    restoring_sentences,
    startup_sentence,
    time_change_text,
)
from jupyter_graphbreak.views.words.cost_findings import CostFinding, cost_findings, startup_findings
from jupyter_graphbreak.views.words.effects import not_run_again_sentence
from jupyter_graphbreak.views.words.failed_guards import error_text, guard_lines_text
from jupyter_graphbreak.views.words.groups import best_remedy
from jupyter_graphbreak.views.words.lines import break_numbers, graph_colors, ordered_breaks
from jupyter_graphbreak.views.words.locations import brief_code, line_text, location_text
from jupyter_graphbreak.views.words.paths import (
    decision_location,
    helper_location_text,
    ordered_paths,
    path_effect_text,
    path_note,
)
from jupyter_graphbreak.views.words.permission import scope_label, scope_name
from jupyter_graphbreak.views.words.plain_text import (
    count_text,
    join_words,
    one_line,
    whole_clauses,
    with_arrows,
    without_backticks,
)
from jupyter_graphbreak.views.words.reason import reason_of, title_of
from jupyter_graphbreak.views.words.recompilation import (
    best_recompile_remedy,
    function_name,
    listed_recompilations,
    needs_general_advice,
    recompile_remedies,
)
from jupyter_graphbreak.views.words.remedies import (
    comment_for_cell,
    outcome_text,
    sign_of,
    target_text,
    user_edit_sentence,
    verdict_label,
)
from jupyter_graphbreak.views.words.reproducers import reproducer_sentence
from jupyter_graphbreak.views.words.values import (
    code_of_line,
    left_out_sentence,
    line_note,
    line_sentence,
    non_finite_note,
    values_sentences,
)
from jupyter_graphbreak.views.words.verdict import advice_beside_verdict, compiled_name, verdict, why_untried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import Break, Graph, Report, Skipped

_MAX_COMPILED_NAMES = 4
#: The maximum number of sentences about graphs that run without a CUDA graph.
_MAX_CUDAGRAPH_SENTENCES = 50


def _compiled_calls_sentence(report: Report) -> str:
    """Name the calls that were compiled only for the report, because the program does not compile them; empty if none.

    For example: "compiled for this report: `model` (Net), `loss_fn`; the cell itself does not compile them".
    """
    if not report.compiled:
        return ""
    names = [
        f"`{one_line(call.name)}`" + (f" ({one_line(call.type)})" if call.type not in {None, call.name} else "")
        for call in report.compiled
    ]
    names = list(dict.fromkeys(names))
    program = "cell" if any(source.kind == "cell" for source in report.sources) else "program"
    pronoun = "it" if len(names) == 1 else "them"
    shown_names = join_words(names, ", ", _MAX_COMPILED_NAMES)
    return f"compiled for this report: {shown_names}; the {program} itself does not compile {pronoun}"


def _cudagraph_skip_sentences(report: Report) -> list[str]:
    """Return sentences such as "graph A runs without a CUDA graph: mutated inputs, line 3 in f"."""
    sentences = []
    for skip in report.cudagraph_skips[:_MAX_CUDAGRAPH_SENTENCES]:
        name = f"graph {skip.graph}" if skip.graph is not None else "a graph"
        place_text = f", {location_text(report, skip.location)}" if skip.location is not None else ""
        sentences.append(f"{name} runs without a CUDA graph: {one_line(skip.reason)}{place_text}")
    return sentences


#: The maximum number of rows per section: front ends read no more than this, and saved outputs must stay small.
MAX_ROWS = 5_000
#: The maximum number of characters in a label or a detail.
_MAX_LABEL_LENGTH = 300
_MAX_PARAGRAPH_LENGTH = 1_000
_T = TypeVar("_T")
#: The maximum number of guards of one function to list.
_MAX_GUARDS = 10


def build_rows(report: Report) -> Rows:
    """Return all rows of a report, in reading order."""
    report = shown_part(report)
    outcome, verdict_text = verdict(report)
    return Rows(
        version=ROWS_VERSION,
        look=outcome,
        status=_status_lines(report, verdict_text),
        about=about_rows(report),
        title=_shorten_label(compiled_name(report)),
        sections=[section for make_section in _SECTIONS if (section := make_section(report)) is not None],
    )


def about_rows(report: Report) -> list[Row]:
    """Return rows about the run as a whole, such as the user's own edit and the calls compiled for the report."""
    edit, works = user_edit_sentence(report)
    without_cudagraph = enumerate(_cudagraph_skip_sentences(report))
    rows = [
        Row("edit", edit, "good" if works else "bad"),
        Row("compiled", _compiled_calls_sentence(report)),
        Row("effects", not_run_again_sentence(report), "bad"),
        *(Row(f"cudagraph{index}", sentence) for index, sentence in without_cudagraph),
    ]
    return [row for row in rows if row.label]


def measurement_sections(report: Report) -> list[Section]:
    """Return the sections with the results of experiments, as sentences."""
    return [section for make_section in _MEASUREMENTS if (section := make_section(report)) is not None]


def _status_lines(report: Report, verdict_text: str) -> list[str]:
    """Return the status of a run: the verdict, what to do first, and what changed since the last run."""
    advice, changes = advice_beside_verdict(report), report.changes
    changes_text = f"Since the last run: {change_words.headline(changes)}" if changes and changes.breaks else ""
    parts = (verdict_text, f"Do: {advice}" if advice else "", changes_text)
    return [whole_clauses(" ".join(part.split()), _MAX_LABEL_LENGTH) for part in parts if part]


# Functions that build the sections.


def _change_section(report: Report) -> Section | None:
    changes = report.changes
    if changes is None:
        return None
    rows = [Row("figures", with_arrows(", ".join(change_words.figures(changes))), "figures")]
    locations = {break_.id: break_.location for break_ in report.breaks}
    for index, change in enumerate(_first_items(changes.breaks)):
        place_of_change, code, reason = change_words.describe_change(change)
        rows.append(
            Row(
                str(index),
                _shorten_label(code or reason),
                change.change,
                is_code=bool(code),
                details=[change_words.change_status(change), with_arrows(_shorten_label(place_of_change))],
                more=[_shorten_label(reason)],
                spot=_as_spot(locations.get(change.break_ or "")),
            )
        )
    details = [change_words.headline(changes)]
    return Section("change", "Since the last run", rows, len(changes.breaks), details)


def _error_section(report: Report) -> Section | None:
    error = report.error
    if error is None:
        return None
    label = error_text(error)
    row = Row(
        "0",
        _shorten_label(label),
        "error",
        details=_labels(_line_text_if_known(report, error.location)),
        more=[_shorten_paragraph(error.message)],
        spot=_as_spot(error.location),
    )
    return Section("error", "Errors", [row], 1, form="plain")


def _break_section(report: Report) -> Section | None:
    breaks = ordered_breaks(report)
    rows = [_break_row(report, number, break_) for number, break_ in enumerate(_first_items(breaks), start=1)]
    return _make_section("break", "Breaks", rows, breaks, form="groups")


def _break_row(report: Report, number: int, break_: Break) -> Row:
    location = break_.location
    code = brief_code(location.code) if location is not None else ""
    function = "" if location is None or location.function in {None, "<module>"} else location.function or ""
    details = [aftermath_in_function(report, break_), f"in {function}" if function and code else ""]
    fix, advice = best_remedy(report, break_), advice_for_break(report, break_)
    step = f"Do: {advice[0].text}" if advice else ""
    if fix is not None:
        step = f"Fix: {fix.title} ({verdict_label(fix)})"
    return Row(
        break_.id,
        _shorten_label(code or function or title_of(break_)),
        "break",
        name=f"Break {number}",
        sign=str(number),
        is_code=True,
        details=_labels(_line_text_if_known(report, location), *details) if location is not None else [],
        more=_paragraphs((break_.explanation or "").partition("\n")[0], step, cost_text(break_)),
        group=_shorten_label(reason_of(break_)),
        beside=_shorten_label(f"✂{number} {without_backticks(title_of(break_))}"),
        spot=_as_spot(location),
        cost=break_.cost.compile_s if break_.cost is not None else None,
    )


def _graph_section(report: Report) -> Section | None:
    costs = {frame.id: frame.compile_s for frame in report.frames}
    frame_locations = {frame.id: frame.location for frame in report.frames}
    colors, numbers = graph_colors(report), break_numbers(report)

    def row(graph: Graph) -> Row:
        first, frame_location = graph.lines[:1], frame_locations.get(graph.frame)
        spot = Spot(first[0].source, first[0].line) if first else _as_spot(frame_location)
        place_of_spot = Location(spot.source, spot.line, spot.line) if spot is not None else None
        # The notebook's copy of a very large report contains no operations.
        ops = count_text(len(graph.ops), "op") if graph.ops or not graph.lines else ""
        end_text = f"ends at break {numbers[graph.break_]}" if graph.break_ in numbers else ""
        return Row(
            graph.id,
            _shorten_label(graph.name),
            "graph",
            name=f"Graph {graph.id}",
            sign=graph.id,
            is_code=True,
            details=_labels(_line_text_if_known(report, place_of_spot), ops, end_text),
            spot=spot,
            cost=costs.get(graph.frame),
            colour=colors[graph.id],
        )

    return _make_section("graph", "Graphs", map(row, _first_items(report.graphs)), report.graphs)


def _skipped_section(report: Report) -> Section | None:
    def row(skipped: Skipped) -> Row:
        location = skipped.location
        return Row(
            skipped.id,
            _shorten_label(skipped.function),
            "eager",
            is_code=True,
            name="Runs eagerly",
            details=_labels(_line_text_if_known(report, location), skipped.reason),
            group=_shorten_label(skipped.reason),
            more=_paragraphs(f"Do: {skipped.way_out}" if skipped.way_out else ""),
            beside="runs eagerly",
            spot=_as_spot(location),
        )

    return _make_section("skipped", "Eager", map(row, _first_items(report.skipped)), report.skipped)


def _recompile_section(report: Report) -> Section | None:
    functions = listed_recompilations(report)
    costs = {frame.id: frame.compile_s for frame in report.frames}
    rows = []
    for index, recompilation in enumerate(_first_items(functions)):
        guards = [(guard, guard_lines_text(report, guard)) for guard in recompilation.guards[:_MAX_GUARDS]]
        variations = [with_arrows(guard.variation) + (f", {lines}" if lines else "") for guard, lines in guards]
        remaining_count = len(recompilation.guards) - 1
        known_costs = [cost for ident in recompilation.frames if (cost := costs.get(ident)) is not None]
        trials = recompile_remedies(report, recompilation)
        fix = best_recompile_remedy(report, recompilation)
        is_advised = needs_general_advice(report, recompilation)
        untried_reason = why_untried(report, trials) if trials is not None else ""
        rows.append(
            Row(
                str(index),
                _shorten_label(function_name(report, recompilation)),
                "error" if recompilation.limit_hit else "recompile",
                is_code=not recompilation.is_merged,
                details=_labels(
                    _line_text_if_known(report, recompilation.location),
                    recompilation.times_text,
                    *variations[:1],
                    f"and {remaining_count} more" if remaining_count > 0 else "",
                    recompilation.warning,
                    f"Fix: {fix.title} {sign_of(fix)}" if fix is not None else "",
                ),
                more=_paragraphs(
                    *(
                        text
                        for (guard, _), variation in zip(guards, variations, strict=True)
                        for text in (variation, f"Do: {guard.advice}" if guard.advice and is_advised else "")
                    ),
                    _fix_sentence(report, fix) if fix is not None else "",
                    f"Not tried: {untried_reason}" if untried_reason else "",
                    *(trials.decisions if trials else ()),
                ),
                spot=_as_spot(recompilation.location),
                cost=sum(known_costs) if known_costs else None,
            )
        )
    return _make_section("recompile", "Recompiled functions", rows, functions)


def _fix_sentence(report: Report, fix: Remedy) -> str:
    """Return the change that prevents recompiles, with the outcome of its trial and the time of a call, if measured."""
    time = time_change_text(report, fix)
    return f"Fix: {fix.title}. {outcome_text(fix)}{f'; {time}' if time else ''}"


def _scope_section(report: Report) -> Section | None:
    rows = []
    for scope in _first_items(report.scopes):
        label = scope_label(scope)
        rows.append(
            Row(
                scope.id,
                scope_name(scope),
                "forbid" if scope.value else "allow",
                is_code=True,
                details=_labels(_line_text_if_known(report, scope.location), label),
                more=_paragraphs(scope.note or ""),
                beside=label,
                spot=_as_spot(scope.location),
            )
        )
    return _make_section("scope", "Scopes", rows, report.scopes)


def _path_section(report: Report) -> Section | None:
    rows = []
    paths = ordered_paths(report)
    for index, path in enumerate(_first_items(paths)):
        decision, helper = decision_location(path), helper_location_text(report, path)
        rows.append(
            Row(
                str(index),
                _shorten_label(f"{path.function}()"),
                is_code=True,
                name="Only when compiled",
                details=_labels(_line_text_if_known(report, decision), path_effect_text(path)),
                more=_paragraphs(f"called at {helper}" if helper else ""),
                beside=_shorten_label(path_note(path)),
                spot=_as_spot(decision),
            )
        )
    return _make_section("path", "Different when compiled", rows, paths)


def _remedy_section(report: Report) -> Section | None:
    remedies = [remedy for remedy in report.remedies or [] if remedy.kind != "person"]
    rows = []
    for remedy in _first_items(remedies):
        spot = Spot(remedy.edits[0].source, remedy.edits[0].first_line) if remedy.edits else None
        works = remedy.verdict.startswith("works")
        rows.append(
            Row(
                remedy.id,
                _shorten_label(remedy.title),
                "good" if works else "note",
                sign=sign_of(remedy),
                details=[_shorten_label(target_text(report, remedy)), verdict_label(remedy)],
                more=[_shorten_paragraph(text) for text in (outcome_text(remedy), *remedy.differences)],
                spot=spot,
                comment=[_shorten_paragraph(one_line(text)) for text in comment_for_cell(report, remedy)],
            )
        )
    return _make_section("remedy", "Remedies", rows, remedies)


def _cost_section(report: Report) -> Section | None:
    if report.cost is None:
        return None
    further_sentences = [*coverage_sentences(report), startup_sentence(report)]
    findings = [
        *(CostFinding(sentence) for sentence in cost_verdicts(report)),
        *cost_findings(report),
        *(CostFinding(sentence) for sentence in further_sentences if sentence),
        *startup_findings(report),
    ]
    rows = [
        Row(str(index), finding.sentence, spot=_as_spot(finding.location))
        for index, finding in enumerate(_first_items(findings))
    ]
    return _make_section("cost", "Cost", rows, findings)


def _check_section(report: Report) -> Section | None:
    checks = report.check or []
    sentences: list[tuple[str, Look]] = []
    for check in checks:
        equal_checks = [other for other in checks if other == check]  # for example, of calls with and without gradients
        if check.equal and check is not equal_checks[0]:
            continue
        sentences.append((check_sentence(report, check, len(equal_checks)), "good" if check.equal else "bad"))
        sentences += [(sentence, "note") for sentence in restoring_sentences(check)]
    return _sentence_section("check", "Correctness", sentences)


def _value_section(report: Report) -> Section | None:
    rows: list[Row] = []
    for number, values in enumerate(report.values or []):
        for index, (sentence, is_bad, non_finite) in enumerate(values_sentences(report, values)):
            location = non_finite.location if non_finite is not None else None
            beside = non_finite_note(non_finite) if non_finite is not None else ""
            look: Look = "bad" if is_bad else "note"
            rows.append(
                Row(f"{number}f{index}", _shorten_label(sentence), look, beside=beside, spot=_as_spot(location))
            )
        for index, line in enumerate(values.lines):
            rows.append(
                Row(
                    f"{number}l{index}",
                    _shorten_label(line_sentence(report, line)),
                    details=_labels(code_of_line(report, line)),
                    beside=_shorten_label(line_note(line)),
                    spot=_as_spot(line.location),
                )
            )
        if (left_out := left_out_sentence(values)) != "":
            rows.append(Row(f"{number}m", left_out))
    line_count = sum(len(values.lines) for values in report.values or [])
    if not rows:
        return None
    return Section("value", "Values", list(_first_items(rows)), len(rows), [count_text(line_count, "line")])


def _reproducer_section(report: Report) -> Section | None:
    sentences: list[tuple[str, Look]] = [
        (reproducer_sentence(report, reproducer), "note" if reproducer.script is not None else "bad")
        for reproducer in report.reproducers or []
    ]
    return _sentence_section("reproducer", "Reproducers", sentences)


def _note_section(report: Report) -> Section | None:
    effects, diagnostics = report.effects or [], report.diagnostics
    rows = [
        Row(
            f"effect{index}",
            _shorten_label(effect.what),
            details=_labels(_line_text_if_known(report, effect.location), "not run again"),
            spot=_as_spot(effect.location),
        )
        for index, effect in enumerate(_first_items(effects))
    ]
    rows += [
        Row(str(index), _shorten_paragraph(note.message), details=[] if note.level == "info" else [note.level])
        for index, note in enumerate(_first_items(diagnostics))
    ]
    return _make_section("note", "Notes", rows[:MAX_ROWS], [*effects, *diagnostics])


#: The functions that build the sections whose rows are sentences; every view shows these sentences unchanged.
_MEASUREMENTS: tuple[Callable[[Report], Section | None], ...] = (
    _cost_section,
    _check_section,
    _value_section,
    _reproducer_section,
)
_SECTIONS: tuple[Callable[[Report], Section | None], ...] = (
    _change_section, _error_section, _break_section, _graph_section, _skipped_section, _recompile_section,
    _path_section, _scope_section, _remedy_section, *_MEASUREMENTS, _note_section,
)  # fmt: skip


def _make_section(
    ident: str,
    title: str,
    rows: Iterable[Row],
    items: Sequence[object],
    form: Literal["list", "groups", "plain"] = "list",
) -> Section | None:
    return Section(ident, title, list(rows), len(items), form=form) if items else None


def _sentence_section(ident: str, title: str, sentences: Sequence[tuple[str, Look]]) -> Section | None:
    rows = [Row(str(index), sentence, look) for index, (sentence, look) in enumerate(_first_items(sentences))]
    return _make_section(ident, title, rows, sentences)


def _first_items(items: Sequence[_T]) -> Iterable[_T]:
    return islice(items, MAX_ROWS)


def _as_spot(location: Location | None) -> Spot | None:
    return Spot(location.source, location.line, location.column) if location is not None else None


def _line_text_if_known(report: Report, location: Location | None) -> str:
    return line_text(report, location) if location is not None else ""


def _labels(*texts: str) -> list[str]:
    """Shorten the strings that are not empty, and leave out the others."""
    return [_shorten_label(text) for text in texts if text]


def _paragraphs(*texts: str) -> list[str]:
    """Return the paragraphs that are not empty, shortened."""
    return [_shorten_paragraph(text) for text in texts if text]


def _shorten_label(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_LABEL_LENGTH else f"{text[:_MAX_LABEL_LENGTH]}…"


def _shorten_paragraph(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _MAX_PARAGRAPH_LENGTH else f"{text[:_MAX_PARAGRAPH_LENGTH]}…"
