"""The gate recognizes the same breaks after an edit, and no others."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from jupyter_graphbreak.gate.baseline import (
    Baseline,
    MalformedBaseline,
    baseline_of,
    format_baseline,
    load_baseline,
    parse_baseline,
    save_baseline,
)
from jupyter_graphbreak.gate.verdict import GateVerdict, details, headline, ids_of_new_breaks, judge
from jupyter_graphbreak.report.location import Location, Segment, Source
from jupyter_graphbreak.report.schema import Break, Device, Frame, Recompile, Report, SkipKind, Skipped
from jupyter_graphbreak.report.summary import Summary

BRANCH = "Data-dependent branching"
PRINT_CAUSE = "Failed to trace builtin operator"


def report_of(
    *breaks: tuple[str, str, str],
    path: str = "model.py",
    torch: str = "2.13.0",
    frames: tuple[str, ...] = (),
    eager_functions: tuple[tuple[str, SkipKind], ...] = (),
    recompiled_functions: tuple[str, ...] = (),
) -> Report:
    """Return a report of breaks on the lines of one file; each break is a function, its line of code and a cause."""
    text = "\n".join(line for _, line, _ in breaks)
    report_breaks = [
        Break(f"b{n}", None, cause, Location("s1", n, n, function=function, code=line), "resumed")
        for n, (function, line, cause) in enumerate(breaks, start=1)
    ]
    return Report(
        status="ok",
        device=Device("cpu", "cpu"),
        torch=torch,
        summary=Summary(breaks=len(report_breaks)),
        sources=[Source("s1", path, "file", path, [Segment(1, text)])],
        frames=[Frame(f"{n}/0", name, Location("s1", 90, 90, function=name), "entry", "compiled")
                for n, name in enumerate(frames)],
        breaks=report_breaks,
        skipped=[Skipped(f"k{n}", None, name, Location("s1", 80, 80, function=name), "why", kind=kind)
                 for n, (name, kind) in enumerate(eager_functions)],
        recompiles=[Recompile(f"0/{n}", "0/0", name, Location("s1", 70, 70, function=name))
                    for n, name in enumerate(recompiled_functions)],
    )  # fmt: skip


REPORT_BEFORE = report_of(("f", "if x.sum() > 0:", BRANCH), ("g", "print(x)", PRINT_CAUSE), frames=("f", "g"))


def verdict_of(after: Report, before: Report = REPORT_BEFORE) -> GateVerdict:
    return judge(parse_baseline(format_baseline(baseline_of([before]))), [after])


@pytest.mark.parametrize(
    ("after", "new", "gone"),
    [
        (REPORT_BEFORE, 0, 0),
        (report_of(("f", "if x.mean() > 0:", BRANCH), ("g", "print(x)", PRINT_CAUSE)), 0, 0),  # line rewritten
        (report_of(("h", "if x.sum() > 0:", BRANCH), ("g", "print(x)", PRINT_CAUSE), frames=("g",)), 0, 0),  # f renamed
        # file renamed
        (report_of(("f", "if x.sum() > 0:", BRANCH), ("g", "print(x)", PRINT_CAUSE), path="net.py"), 0, 0),
        (report_of(("f", "if x.sum() > 0:", BRANCH), frames=("f", "g")), 0, 1),  # one break fixed
        (report_of(("f", "if x.sum() > 0:", BRANCH), ("g", "print(x)", PRINT_CAUSE), ("g", "print(y)", PRINT_CAUSE)),
         1, 0),
        (report_of(("f", "if x.sum() > 0:", BRANCH), ("g", "print(x)", BRANCH), frames=("f", "g")), 1, 1),  # new cause
        (report_of(("f", "x", PRINT_CAUSE), ("h", "if x.sum() > 0:", BRANCH), frames=("f",)), 2, 2),  # moved, f remains
        # newer torch
        (report_of(("f", "if x.sum() > 0:", "Other name"), ("g", "print(x)", PRINT_CAUSE), torch="2.15.0"), 0, 0),
    ],
)  # fmt: skip
def test_the_same_break_is_recognized(after: Report, new: int, gone: int) -> None:
    verdict = verdict_of(after)
    assert (len(verdict.new_breaks), len(verdict.gone_breaks)) == (new, gone)
    assert verdict.has_passed == (new == 0)
    assert headline(verdict).startswith("gate passed" if new == 0 else "gate failed")
    assert len(details(verdict)) == new + gone


def test_the_later_of_two_equal_breaks_is_new() -> None:
    after = report_of(("f", "print(x)", PRINT_CAUSE), ("f", "print(x)", PRINT_CAUSE))
    verdict = verdict_of(after, report_of(("f", "print(x)", PRINT_CAUSE)))
    assert ids_of_new_breaks(verdict, after) == {"b2"}


def test_an_empty_baseline_allows_nothing() -> None:
    assert len(judge(parse_baseline(""), [REPORT_BEFORE]).new_breaks) == 2
    assert judge(parse_baseline(""), [report_of(frames=("f",))]).has_passed


def test_a_run_that_compiled_nothing_proves_nothing() -> None:
    for verdict in (judge(parse_baseline(""), []), verdict_of(report_of())):
        assert not verdict.has_passed
        assert headline(verdict) == "gate failed: nothing was compiled, so the absence of breaks proves nothing"
        (advice,) = details(verdict)
        assert advice.startswith("call a compiled function in this process, ")
    launcher, rank = report_of(), report_of(frames=("f",))
    assert judge(parse_baseline(""), [launcher, rank]).has_passed


def test_the_gate_fails_if_a_function_newly_runs_eagerly() -> None:
    eager_report = report_of(frames=("f",), eager_functions=(("f", "recompile limit"),))
    assert not verdict_of(eager_report, report_of(frames=("f",))).has_passed
    assert verdict_of(eager_report, eager_report).has_passed
    skipping_break = msgspec.structs.replace(REPORT_BEFORE.breaks[0], skipped=["k0"])
    after = msgspec.structs.replace(
        REPORT_BEFORE,
        breaks=[skipping_break, *REPORT_BEFORE.breaks[1:]],
        skipped=[Skipped("k0", None, "f", None, "why", break_="b1")],
    )
    assert verdict_of(after).has_passed


def test_the_gate_fails_if_a_function_recompiles_more_often() -> None:
    assert not verdict_of(report_of(recompiled_functions=("f", "f")), report_of(recompiled_functions=("f",))).has_passed
    assert verdict_of(report_of(recompiled_functions=("f",)), report_of(recompiled_functions=("f", "f"))).has_passed
    assert verdict_of(
        report_of(recompiled_functions=("f",), path="net.py"), report_of(recompiled_functions=("f",))
    ).has_passed


def test_a_baseline_may_allow_some_recompiles_of_every_function() -> None:
    baseline = parse_baseline("version = 1\nmax_recompiles = 1\n")
    assert parse_baseline(format_baseline(baseline)) == baseline
    assert judge(baseline, [report_of(recompiled_functions=("f",))]).has_passed
    assert not judge(baseline, [report_of(recompiled_functions=("f", "f"))]).has_passed
    assert not judge(parse_baseline("version = 1\n"), [report_of(recompiled_functions=("f",))]).has_passed


def test_a_difference_in_a_library_with_a_new_version_names_the_version() -> None:
    def add_libraries(report: Report, **versions: str) -> Report:
        return msgspec.structs.replace(report, libraries=versions)

    old_report = add_libraries(report_of(("f", "a", BRANCH), path="lib/net.py"), lib="1.0", other="3")
    baseline = parse_baseline(format_baseline(baseline_of([old_report])))
    assert baseline.libraries == {"lib": "1.0", "other": "3"}
    new_report = report_of(("f", "a", BRANCH), ("f", "print()", PRINT_CAUSE), path="lib/net.py", torch="2.13.0+cpu")
    verdict = judge(baseline, [add_libraries(new_report, lib="1.1", other="3")])
    assert details(verdict) == [
        "new    lib/net.py in f   print()   Failed to trace builtin operator   [lib 1.0 -> 1.1]",
        "since  the baseline was written: lib 1.0 -> 1.1; differences may be due to that",
    ]
    (line,) = details(judge(baseline, [add_libraries(new_report, lib="1.0")]))
    assert "->" not in line
    assert details(judge(baseline, [add_libraries(old_report, lib="1.1")])) == []


def test_equal_reports_of_two_ranks_count_once() -> None:
    assert judge(baseline_of([REPORT_BEFORE]), [REPORT_BEFORE, REPORT_BEFORE]).has_passed
    assert format_baseline(baseline_of([REPORT_BEFORE, REPORT_BEFORE])) == format_baseline(baseline_of([REPORT_BEFORE]))


def test_the_file_is_sorted_and_keeps_every_character() -> None:
    text = format_baseline(baseline_of([report_of(("g", 'print("\x7f\u2028é")', PRINT_CAUSE), ("f", "a\\b", BRANCH))]))
    assert text.index('function = "f"') < text.index('function = "g"')
    assert "é" in text
    assert parse_baseline(text) == baseline_of(
        [report_of(("g", 'print("\x7f\u2028é")', PRINT_CAUSE), ("f", "a\\b", BRANCH))]
    )


@pytest.mark.parametrize(
    "text",
    [
        "[[break]", "version = 2", "break = 3", "[[breaks]]\npath = ''", "[[break]]\npath = 3", "\x00",
        "max_recompiles = " + "9" * 5000, "a = " + "[" * 5000, "a." * 20_000 + "b = 1",
    ],
    ids=range(9),
)  # fmt: skip
def test_a_malformed_baseline_is_reported_in_one_line(text: str) -> None:
    with pytest.raises(MalformedBaseline) as caught:
        parse_baseline(text)
    assert "\n" not in str(caught.value)


def test_the_order_of_reports_does_not_change_the_baseline() -> None:
    reports = [REPORT_BEFORE, report_of(("a", "b", "c"), path="a.py")]
    assert format_baseline(baseline_of(reports)) == format_baseline(baseline_of(reports[::-1]))
    assert isinstance(baseline_of([]), Baseline)
    assert Path("model.py").name in format_baseline(baseline_of(reports))


def test_in_a_renamed_file_a_copy_of_an_allowed_break_is_the_new_one() -> None:
    after = report_of(
        ("copy", "if x.sum() > 0:", BRANCH),
        ("f", "if x.sum() > 0:", BRANCH),
        ("g", "print(x)", PRINT_CAUSE),
        path="net.py",
    )
    assert [break_.function for break_ in verdict_of(after).new_breaks] == ["copy"]


def test_a_baseline_that_may_not_be_written_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "allowed.toml"
    save_baseline(path, Baseline())
    before = path.read_bytes()
    access = os.access  # root may write every file
    monkeypatch.setattr(os, "access", lambda name, mode: name != path and access(name, mode))
    with pytest.raises(PermissionError):
        save_baseline(path, Baseline(torch="2.13"))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_baseline_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "allowed.toml"
    with pytest.raises(OSError, match="larger than"):
        save_baseline(path, Baseline(torch="." * (9 << 20)))
    assert not path.exists()


def test_a_baseline_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "allowed.toml"
    path.write_bytes(b"\xef\xbb\xbf" + format_baseline(Baseline(torch="2.13")).encode())
    assert load_baseline(path).torch == "2.13"
    path.write_text("version = 1", encoding="utf-16")
    with pytest.raises(MalformedBaseline, match="UTF-8"):
        load_baseline(path)
