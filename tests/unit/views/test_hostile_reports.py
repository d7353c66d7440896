"""Every view of a hostile report is fast and small, says what it leaves out, and does not raise."""

from __future__ import annotations

import gc
import json
import random
import time
import unicodedata
import weakref
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from jupyter_graphbreak.analysis.jobs import build_job
from jupyter_graphbreak.gate.baseline import Baseline, baseline_of, format_baseline, parse_baseline
from jupyter_graphbreak.gate.verdict import details, headline, ids_of_new_breaks, judge
from jupyter_graphbreak.report.job import Process
from jupyter_graphbreak.report.schema import Report as PlainReport
from jupyter_graphbreak.results import Job, Report
from jupyter_graphbreak.views.html.bundle import mime_bundle
from jupyter_graphbreak.views.html.job import render_job_page
from jupyter_graphbreak.views.html.render import render_html, render_page, render_rest
from jupyter_graphbreak.views.markdown import render_markdown
from jupyter_graphbreak.views.sarif import render_sarif
from jupyter_graphbreak.views.words.bounds import MAX_LIST_ENTRIES, shown_part
from jupyter_graphbreak.views.words.lines import break_numbers
from tests.support.sample_reports import FOLDER, SAVED_REPORTS, two_breaks

if TYPE_CHECKING:
    from collections.abc import Callable

Data = dict[str, Any]
#: The number of breaks on one line: more than any view shows.
BREAK_COUNT = MAX_LIST_ENTRIES + 500
#: The limit for processor time, which other programs do not affect; each shape takes a few seconds at most.
MAX_SECONDS = 60
LIST_NAMES = ("sources", "frames", "graphs", "breaks", "resumes", "skipped", "scopes", "recompiles", "diagnostics")


def all_formats(report: PlainReport) -> dict[str, str]:
    """Render a report in every format."""
    user_report = Report.of(report)
    job = Job.of(build_job([Process("p1", 0, 1, None, report), Process("p2", 1, 2, None, report)]))
    baseline = baseline_of([report])
    verdict = judge(Baseline(), [report])
    return {
        "text": user_report.to_text(),
        "repr": repr(user_report),
        "html": render_html(report),
        "rest": json.dumps(render_rest(report)),
        "page": render_page(report),
        "markdown": render_markdown([report], ["a title"], [ids_of_new_breaks(verdict, report)]),
        "sarif": render_sarif([report], "0", [ids_of_new_breaks(verdict, report)]),
        "bundle": json.dumps(mime_bundle(report, None)["text/plain"]),
        "job": job.to_text(),
        "job page": render_job_page(job),
        "baseline": format_baseline(baseline),
        "verdict": "\n".join([headline(verdict), *details(judge(baseline, [report]))]),
        "changes": user_report.diff(two_breaks()).to_text() + Report.of(two_breaks()).diff(report).to_html(),
        "redacted": user_report.redacted().to_text(),
    }


def sample_data() -> Data:
    return two_breaks().to_dict()


def breaks_on_one_line() -> Data:
    data = sample_data()
    data["breaks"] = [data["breaks"][0] | {"id": f"b{index}"} for index in range(BREAK_COUNT)]
    return data | {"order": []}


def many_sources() -> Data:
    data = sample_data()
    segments = [{"first_line": 1, "text": "def f(x):\n    return x\n" * 7}]
    more_sources = ({"id": f"x{index}", "name": f"Cell In[{index}]", "kind": "cell", "segments": segments}
            for index in range(20_000))  # fmt: skip
    data["sources"] += more_sources
    return data


def long_lists() -> Data:
    """Fill every list of a report with entries that refer to many entries of every other list."""
    data = sample_data()
    entries_of_empty_lists: Data = {
        "recompiles": {"frame": "0/1", "of": "0/0", "function": "f", "location": None},
        "diagnostics": {"level": "info", "message": "x"},
    }
    for name in LIST_NAMES:
        first = data[name][0] if data[name] else entries_of_empty_lists[name]
        data[name] = [first | ({"id": f"{name[0]}{index}"} if "id" in first else {}) for index in range(6_000)]
    for index, break_ in enumerate(data["breaks"]):
        break_["resumes"] = [f"r{(index + step) % 6_000}" for step in range(20)]
        break_["skipped"] = [f"s{(index + step) % 6_000}" for step in range(20)]
    return data


def cyclic_references() -> Data:
    data = sample_data()
    data["scopes"] = [data["scopes"][0] | {"id": f"c{index}", "parent": f"c{(index + 1) % 3_000}"}
                      for index in range(3_000)]  # fmt: skip
    data["frames"] = [data["frames"][0] | {"id": f"{index}/0", "caller": f"{(index + 1) % 3_000}/0", "breaks": ["b1"],
                                           "recompile_of": f"{index}/0", "resume": "r1"}
                      for index in range(3_000)]  # fmt: skip
    data["resumes"][0] |= {"frames": ["0/0", "1/0"], "break": "b1"}
    data["breaks"] = [break_ | {"minor": True} for break_ in data["breaks"]]
    return data


def deep_calls() -> Data:
    data = sample_data()
    data["frames"] = [data["frames"][0] | {"id": f"{index}/0", "caller": f"{index - 1}/0"} for index in range(4_000)]
    location = data["breaks"][0]["location"]
    stacks = [[location | {"line": line} for line in range(1, depth)] for depth in range(2, 400)]
    occurrence = data["breaks"][0]["occurrences"][0]
    data["breaks"][0]["occurrences"] = [occurrence | {"stack": stack} for stack in stacks]
    return data


def wide_locations() -> Data:
    data = sample_data()
    for name in ("breaks", "scopes", "skipped"):
        first = data[name][0]
        location = first["location"] | {"line": 1, "end_line": 2**62, "column": -3, "end_column": 2**62}
        data[name] = [first | {"id": f"{name[0]}{index}", "location": location} for index in range(3_000)]
    data["sources"][0]["segments"] = [{"first_line": 1, "text": "x = 1\n" * 30_000}]
    return data


def long_strings() -> Data:
    data: Data = json.loads(FOLDER.joinpath("remedies.json").read_text(encoding="utf-8"))
    text = "`x" * 150_000 + "\n" * 5_000 + "' a mismatch at index 0. expected " * 5_000
    for break_ in data["breaks"]:
        break_ |= {"explanation": text, "gb_type": text, "hints": [text] * 3, "context": text}
        break_["location"] |= {"code": text, "function": text}
    data["sources"][0]["name"] = text
    data["recompiles"] = [
        {"frame": "0/1", "of": "0/0", "function": text, "location": None,
         "reasons": [{"guard": guard} for guard in (text, f"tensor '{text}", f"___check_obj_id({text}")]}
    ]  # fmt: skip
    for remedy in data["remedies"]:
        remedy |= {"title": text, "reason": text, "patch": text, "code": text, "differences": [text] * 3}
    return data


def many_remedies() -> Data:
    data: Data = json.loads(FOLDER.joinpath("remedies.json").read_text(encoding="utf-8"))
    first = data["breaks"][0]
    data["breaks"] = [first | {"id": f"b{index}"} for index in range(2_000)]
    ids = [break_["id"] for break_ in data["breaks"][:200]]
    data["remedies"] = [remedy | {"id": f"m{index}", "breaks": ids}
                        for index in range(500) for remedy in data["remedies"][:1]]  # fmt: skip
    return data


def similar_lines() -> Data:
    data = sample_data()
    data["sources"][0]["segments"] = [{"first_line": 1, "text": "\n".join(f"x{index % 3}" for index in range(9_000))}]
    return data


QUICK_SHAPES = (cyclic_references,)
SLOW_SHAPES = (
    breaks_on_one_line,
    long_strings,
    similar_lines,
    many_sources,
    long_lists,
    deep_calls,
    wide_locations,
    many_remedies,
)
SHAPES = [*QUICK_SHAPES, *(pytest.param(shape, marks=pytest.mark.exhaustive) for shape in SLOW_SHAPES)]
#: The maximum size of any format; the complete page is the largest.
MAX_CHARACTERS = {"text": 400_000, "repr": 2_000, "html": 8_000_000, "markdown": 400_000, "job": 200_000}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_views_of_a_huge_report_are_fast_and_small(shape: Callable[[], Data]) -> None:
    report = PlainReport.from_dict(shape())
    start = time.process_time()
    outputs = all_formats(report)
    assert time.process_time() - start < MAX_SECONDS
    for name, maximum in MAX_CHARACTERS.items():
        assert len(outputs[name]) < maximum, name


def test_notes_say_what_is_left_out() -> None:
    report = PlainReport.from_dict(breaks_on_one_line())
    note = f"Shown: {MAX_LIST_ENTRIES} of {BREAK_COUNT} breaks."
    text = Report.of(report).to_text()
    assert note in text
    assert note in render_html(report)
    assert f"{MAX_LIST_ENTRIES} breaks, all for one reason" in text
    # The gate judges all of them.
    assert headline(judge(Baseline(), [report])).startswith(f"gate failed: {BREAK_COUNT} new breaks")


def test_the_breaks_that_come_first_in_the_order_are_shown() -> None:
    data = breaks_on_one_line()
    data["order"] = [break_["id"] for break_ in reversed(data["breaks"])]
    numbers = break_numbers(shown_part(PlainReport.from_dict(data)))
    assert len(numbers) == MAX_LIST_ENTRIES
    assert (numbers[f"b{BREAK_COUNT - 1}"], numbers[f"b{BREAK_COUNT // 2}"]) == (1, BREAK_COUNT // 2)


@pytest.mark.parametrize("name", SAVED_REPORTS)
def test_an_ordinary_report_is_shown_whole(name: str) -> None:
    report = PlainReport.from_json((FOLDER / f"{name}.json").read_bytes())
    assert shown_part(report) is report


def test_no_cache_keeps_a_report_alive() -> None:
    report = PlainReport.from_dict(breaks_on_one_line())
    shown_part(report)
    reference = weakref.ref(report)
    del report
    gc.collect()
    assert reference() is None


BAD_INTS = (-1, 0, 2**31, 2**62, -(2**62), 10**30)
BAD_FLOATS = (-1.0, 0.0, 1e300, -1e300)
BAD_STRINGS = (
    "", "\x00", "\x1b[2J\x1b]0;owned\x07", "\u202egnp.exe", "\u2066x", "\r", "\n", "</script><script>", "{{ 7 * 7 }}",
    "`", "|", "]]>", "b1", "0/0", "a" * 3_000, "\udfff", "__class__", "%s{0}", "\u2028", "=cmd", "https://example.org/",
)  # fmt: skip


def corrupt(value: Any, rng: random.Random, share: float) -> Any:
    """Return a part of a report in which some values are replaced by hostile ones of the same type."""
    if isinstance(value, dict):
        return {key: corrupt(inner, rng, share) for key, inner in value.items()}
    if isinstance(value, list):
        items = [corrupt(inner, rng, share) for inner in value]
        if items and rng.random() < share:
            items = rng.choice([[], items[:1] * 60, [*items, *items], items[::-1], items[1:]])
        return items
    if rng.random() >= share or value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return rng.choice(BAD_INTS)
    if isinstance(value, float):
        return rng.choice(BAD_FLOATS)
    return rng.choice(BAD_STRINGS)


def nested_list(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("report_count", [3, pytest.param(25, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", SAVED_REPORTS)
def test_no_view_of_a_corrupted_report_raises(name: str, report_count: int) -> None:
    data = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    readable_report_count = 0
    for seed in range(25):
        if readable_report_count == report_count:
            break
        rng = random.Random(f"{name} {seed}")
        corrupt_data = corrupt(data, rng, rng.choice((0.01, 0.05, 0.3)))
        corrupt_data["schema_version"], corrupt_data["config"] = (
            "1.1",
            {"x": nested_list(rng.randrange(400)), "\x1b": "\x1b"},
        )
        for field in ("status", "kind", "role", "outcome"):  # fields with a fixed set of values
            corrupt_data = restore_field(corrupt_data, data, field)
        try:
            report = PlainReport.from_dict(corrupt_data)
        except msgspec.ValidationError:
            continue
        readable_report_count += 1
        outputs = all_formats(report)
        json.loads(outputs["sarif"])
        parse_baseline(outputs["baseline"])
        for format_name in ("text", "job", "repr", "changes"):
            assert not control_characters(outputs[format_name]), format_name
    assert readable_report_count >= 3


def restore_field(value: Any, original: Any, field: str) -> Any:
    """Return a value with the original content of a field, if both have the field."""
    if isinstance(value, dict) and isinstance(original, dict):
        return {
            key: original[key] if key == field and key in original else restore_field(inner, original.get(key), field)
            for key, inner in value.items()
        }
    if isinstance(value, list) and isinstance(original, list) and original:
        return [restore_field(inner, original[index % len(original)], field) for index, inner in enumerate(value)]
    return value


def control_characters(text: str) -> set[str]:
    """Return the characters of a text that can control a terminal or reorder text."""
    return {char for char in text if char not in "\n\t" and unicodedata.category(char) in {"Cc", "Cf", "Cs"}}
