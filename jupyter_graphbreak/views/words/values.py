"""Sentences about the values that compiled code computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words import lookup
from jupyter_graphbreak.views.words.locations import line_text, lines_around, location_text
from jupyter_graphbreak.views.words.plain_text import count_text, join_with_and, one_line

if TYPE_CHECKING:
    from jupyter_graphbreak.report.schema import Report
    from jupyter_graphbreak.report.values import EntryValues, LineValues, NonFinite, NonFiniteCounts, ValueRange

_KIND_NAMES = {"nan": "NaN", "inf": "Inf"}
#: The largest finite values of the dtypes that overflow easily.
_LARGEST_BY_DTYPE = {"float16": "65504", "float8_e4m3fn": "448", "float8_e5m2": "57344"}


def values_sentences(report: Report, values: EntryValues) -> list[tuple[str, bool, NonFinite | None]]:
    """Return the findings about a call: for each, a sentence, whether it is bad, and the operation it is about."""
    name = one_line(values.function)
    sentences: list[tuple[str, bool, NonFinite | None]] = []
    sentences += [
        (f"{one_line(tensor.name)} has {_counts_text(tensor.nan, tensor.inf)} before {name} is called", True, None)
        for tensor in values.given
    ]
    sentences += [(_first_non_finite_sentence(report, first), True, first) for first in values.first]
    if not sentences:
        operations = count_text(values.operations, "operation")
        nothing_found = f"{name}: no NaN and no Inf in {operations}, forward and backward"
        sentences.append((nothing_found, False, None))
    sentences += [(sentence, is_bad, None) for sentence, is_bad in _results_of_backend(values)]
    sentences += [
        (f"{name} raises {one_line(counts.raised)} when its operations run one by one", True, None)
        for counts in values.results
        if counts.by == "graphs" and counts.raised is not None
    ]
    if any(line.backward is not None for line in values.lines):
        introduction = f"Unless {name} runs a backward pass itself, gradients begin at its result"
        loss = "the loss is the result if that is a single number, otherwise a weighted sum of its numbers"
        sentences.append((f"{introduction}: {loss}", False, None))
    if values.call > 1:
        call = f"The values are those of call {values.call} of {values.calls} calls of {name}"
        arguments = "its arguments have the values that they had after the call"
        sentences.append((f"{call}, the first whose result had NaN; {arguments}", False, None))
    elif values.calls > 1:
        calls = f"The values are those of the first of {values.calls} calls of {name}"
        sentences.append((f"{calls}; to see another call, run only that call in a cell", False, None))
    return sentences


def _first_non_finite_sentence(report: Report, non_finite: NonFinite) -> str:
    """Say where NaN or Inf first appears.

    For example: "NaN first appears at line 12 in f (log), graph A: 3 of 12 elements, float32; eager also has NaN
    there".
    """
    kind = _KIND_NAMES[non_finite.kind]
    beginning = (
        f"{kind} first appears" if non_finite.direction == "forward" else f"In the backward pass, {kind} first appears"
    )
    place_text = f"{location_text(report, non_finite.location)} ({one_line(non_finite.op).rpartition('.')[2]})"
    graph_text = f"graph {non_finite.graph}" if non_finite.graph is not None else "not compiled"
    elements = f"{non_finite.count} of {count_text(non_finite.elements, 'element')}, {one_line(non_finite.dtype)}"
    parts = [f"{beginning} at {place_text}, {graph_text}: {elements}"]
    if non_finite.execution > 1:
        parts.append(f"in execution {non_finite.execution} of the line")
    if non_finite.direction == "backward":
        parts.append(f"the gradient that reaches the operation has no {kind}")
    if non_finite.kind == "inf" and non_finite.dtype in _LARGEST_BY_DTYPE:
        parts.append(f"the largest {non_finite.dtype} is {_LARGEST_BY_DTYPE[non_finite.dtype]}")
    if non_finite.graph is not None and non_finite.eager is not None:
        parts.append(
            {
                "same": f"eager also has {kind} there",
                "elsewhere": f"eager has {kind} on a different line",
                "none": f"eager has no {kind}",
            }[non_finite.eager]
        )
    if non_finite.further:
        parts.append(f"{count_text(non_finite.further, 'other operation')} later")
    return "; ".join(parts)


def line_sentence(report: Report, values: LineValues) -> str:
    """Return the values of a line: "line 3 (matmul), graph A: 8 x 2 float32, -1.5 to 2.3, mean 0.1"."""
    op = one_line(values.op).rpartition(".")[2]
    graph_text = f"graph {values.graph}" if values.graph is not None else "not compiled"
    executions = f", {values.executions} executions" if values.executions > 1 else ""
    place_text = line_text(report, values.location)
    sentence = f"{place_text} ({op}), {graph_text}{executions}: {_range_text(values.forward)}"
    return f"{sentence}; gradient {_numbers_text(values.backward)}" if values.backward is not None else sentence


def non_finite_note(non_finite: NonFinite) -> str:
    """Return the note to show beside the line in an editor: "NaN begins here"."""
    backward = " in the backward pass" if non_finite.direction == "backward" else ""
    return f"{_KIND_NAMES[non_finite.kind]} begins here{backward}"


def line_note(values: LineValues) -> str:
    """Return the note to show beside the line in an editor: "8 x 2 float32, -1.5 to 2.3"."""
    return _range_text(values.forward)


def code_of_line(report: Report, values: LineValues) -> str:
    """Return the source text of a line; empty if the report does not contain it."""
    lines, index = lines_around(lookup.sources(report).get(values.location.source), values.location.line)
    return lines[index].strip() if lines else ""


def left_out_sentence(values: EntryValues) -> str:
    """Return a phrase about the lines that are not listed; empty if all are listed."""
    if not values.left_out:
        return ""
    lines = count_text(values.left_out, "more line")
    return f"{lines} of {one_line(values.function)}; `--at` with a line lists its operations"


def _results_of_backend(values: EntryValues) -> list[tuple[str, bool]]:
    """Compare the results of the backend's code with single operations: sentences, each with whether it is bad."""
    counts_by_run = {counts.by: counts for counts in values.results}
    graphs, backend = counts_by_run.get("graphs"), counts_by_run.get("backend")
    if graphs is None or backend is None:
        return []
    name = one_line(values.backend)
    if backend.raised is not None:
        return [(f"Compiled with {name}, the code raises {one_line(backend.raised)}", True)]
    kinds_of_operations, kinds_of_backend = _non_finite_kinds(graphs), _non_finite_kinds(backend)
    if kinds_of_backend and not kinds_of_operations:
        contrast = f"Only the code compiled with {name} produces {join_with_and(kinds_of_backend)}"
        advice = "`--check` names the first operation that differs"
        return [(f"{contrast}; the operations do not if they run one by one. {advice}", True)]
    if kinds_of_backend:
        return [(f"Compiled with {name}, the code also produces {join_with_and(kinds_of_backend)}", True)]
    if kinds_of_operations:
        contrast = (
            f"Run one by one, the operations produce {join_with_and(kinds_of_operations)}; {name}'s code does not"
        )
        return [(f"{contrast}. It may keep more digits between operations", False)]
    return []


def _non_finite_kinds(counts: NonFiniteCounts) -> list[str]:
    counts_by_name = {
        "NaN in the result": counts.nan,
        "Inf in the result": counts.inf,
        "NaN in gradients": counts.gradient_nan,
        "Inf in gradients": counts.gradient_inf,
    }
    return [name for name, count in counts_by_name.items() if count]


def _range_text(value_range: ValueRange) -> str:
    shape = " x ".join(map(str, value_range.shape)) or "scalar"
    return f"{shape} {one_line(value_range.dtype)}, {_numbers_text(value_range)}"


def _numbers_text(value_range: ValueRange) -> str:
    parts = []
    if value_range.low is not None and value_range.high is not None:
        is_constant = value_range.low == value_range.high
        parts.append(
            f"all {value_range.low:.4g}" if is_constant else f"{value_range.low:.4g} to {value_range.high:.4g}"
        )
        if value_range.mean is not None and not is_constant:
            parts.append(f"mean {value_range.mean:.4g}")
    if value_range.nan or value_range.inf:
        parts.append(f"{_counts_text(value_range.nan, value_range.inf)} of {value_range.elements}")
    return ", ".join(parts) or ("no elements" if not value_range.elements else "no range")


def _counts_text(nan: int, inf: int) -> str:
    return join_with_and([f"{count} {kind}" for count, kind in ((nan, "NaN"), (inf, "Inf")) if count])
