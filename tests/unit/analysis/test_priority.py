"""Breaks are ordered by their cost, if it was measured."""

from __future__ import annotations

from msgspec.structs import replace

from jupyter_graphbreak.analysis.priority import prioritize_breaks
from jupyter_graphbreak.report.cost import Cost, CostPart, EntryCost, RemediedCost, Spread
from jupyter_graphbreak.report.location import Location, Source
from jupyter_graphbreak.report.remedies import Remedy
from jupyter_graphbreak.report.schema import Break, Device, Frame, Graph, Report, Resume, Skipped
from jupyter_graphbreak.views.words.verdict import verdict


def break_on_line(ident: str, line: int, source: str = "s1") -> Break:
    return Break(id=ident, gb_id=None, gb_type="print", location=Location(source, line, line), outcome="resumed")


def exact_time(us: float) -> Spread:
    return Spread(us, us, us, 9)


def entry(parts: dict[str, float], remedied: dict[str, float], *, settled: bool = True) -> EntryCost:
    return EntryCost(
        "f",
        "0/0",
        settled,
        eager=exact_time(900),
        compiled=exact_time(1000),
        remedied=[RemediedCost([ident], exact_time(us)) for ident, us in remedied.items()],
        parts=[CostPart("outside", exact_time(us), break_=ident) for ident, us in parts.items()],
    )


def report(*entries: EntryCost) -> Report:
    return Report(
        "ok",
        Device("auto", "cpu"),
        sources=[Source("s1", "Cell In[1]", "cell"), Source("s2", "lib.py", "library", "lib/models/lib.py")],
        breaks=[break_on_line("b1", 3), break_on_line("b2", 7), break_on_line("b3", 5, "s2")],
        remedies=[Remedy(f"r{number}", [f"b{number}"], "output", "", "edit", "works") for number in (1, 2, 3)],
        cost=Cost("cpu", "eager", list(entries)) if entries else None,
    )


def test_the_most_expensive_break_in_the_users_own_code_is_first() -> None:
    assert prioritize_breaks(report()).order == ["b1", "b2", "b3"]
    assert prioritize_breaks(report(entry({"b1": 50, "b2": 800, "b3": 900}, {}))).order == ["b2", "b1", "b3"]


def test_measured_savings_of_a_remedy_count_more_than_time_outside_graphs() -> None:
    measured_entry = entry({"b1": 50, "b2": 300}, {"r1": 200, "r2": 1100})
    assert prioritize_breaks(report(measured_entry)).order == ["b1", "b2", "b3"]


def test_the_most_expensive_settled_entry_counts() -> None:
    unsettled_entry = entry({"b2": 9000}, {}, settled=False)
    assert prioritize_breaks(report(entry({"b1": 50}, {}), unsettled_entry)).order == ["b1", "b2", "b3"]
    assert prioritize_breaks(report(entry({"b1": 50}, {}), entry({"b2": 60}, {}))).order == ["b2", "b1", "b3"]


def test_a_break_before_all_operations_adds_no_graph() -> None:
    """The graph after the first break would also exist without it, but not the graph after a second break."""
    graphs = [Graph("A", "f", "0/1", ends="break", break_="b2"), Graph("B", "f", "0/2")]
    frames = [
        Frame("0/0", "f", None, "entry", "empty", breaks=["b1"]),
        Frame("0/1", "f", None, "resume", "compiled", resume="t1", graphs=["A"], breaks=["b2"]),
        Frame("0/2", "f", None, "resume", "compiled", resume="t2", graphs=["B"]),
    ]
    resumes = [
        Resume("t1", "", "f", None, "b1", ["0/1"], ["A"]),
        Resume("t2", "", "f", None, "b2", ["0/2"], ["B"]),
    ]
    breaks = [replace(break_on_line(f"b{number}", number), resumes=[f"t{number}"]) for number in (1, 2)]
    run = replace(report(), frames=frames, graphs=graphs, resumes=resumes, breaks=breaks)
    costs = [break_.cost for break_ in prioritize_breaks(run).breaks]
    assert [cost.graphs for cost in costs if cost is not None] == [0, 1]


def test_graphs_of_functions_that_the_broken_function_calls_count() -> None:
    """A recursive function breaks at its end: each level has a graph, and one of them would exist without the break."""
    frames = [
        Frame("0/0", "f", None, "entry", "compiled", breaks=["b1"]),
        Frame("1/0", "r", None, "call", "compiled", caller="0/0", graphs=["A"], breaks=["b1"]),
        Frame("1/1", "r", None, "call", "compiled", caller="1/0", graphs=["B"], breaks=["b1"], recompile_of="1/0"),
        Frame("2/0", "r", None, "resume", "compiled", caller="1/1", resume="t1", graphs=["C"]),
    ]
    graphs = [Graph("A", "r", "1/0", ends="break", break_="b1"), Graph("B", "r", "1/1"), Graph("C", "r", "2/0")]
    resumes = [Resume("t1", "", "r", None, "b1", ["2/0"], ["C"])]
    breaks = [replace(break_on_line("b1", 3), resumes=["t1"])]
    run = prioritize_breaks(replace(report(), frames=frames, graphs=graphs, resumes=resumes, breaks=breaks))
    assert run.breaks[0].cost is not None
    assert run.breaks[0].cost.graphs == 2


def test_functions_of_python_and_parts_of_functions_are_not_counted_as_eager() -> None:
    locations = {
        "step": Location("s1", 2, 9, function="step"),
        "<genexpr>": Location("s1", 5, 5),
        "<listcomp>": Location("s1", 12, 12),
        "_check": Location("s3", 40, 44),
    }
    skipped = [
        Skipped(f"k{number}", None, name, location, "", "b1")
        for number, (name, location) in enumerate(locations.items())
    ]
    standard_library = Source("s3", "typing.py", "library", "typing.py")
    report_without_eager_functions = report()
    run = prioritize_breaks(
        replace(
            report_without_eager_functions,
            sources=[*report_without_eager_functions.sources, standard_library],
            breaks=[
                replace(
                    report_without_eager_functions.breaks[0],
                    outcome="skipped",
                    skipped=[function.id for function in skipped],
                )
            ],
            skipped=skipped,
            remedies=None,
        )
    )
    assert run.breaks[0].cost is not None
    assert run.breaks[0].cost.eager == 2
    assert verdict(run).text == "1 break, line 3. Nothing was compiled: step ran eagerly."
