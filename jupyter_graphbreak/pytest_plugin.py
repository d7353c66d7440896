"""A pytest plugin that makes tests fail because of unexpected graph breaks, recompiles or slow compilation.

Input: the markers ``max_graph_breaks``, ``max_recompiles`` and ``max_compile_seconds``, and the fixture
``graph_breaks``. Output: failures that show the text of a report.
This module may import ``api`` and ``results``, but only when a test uses a marker or the fixture.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from jupyter_graphbreak.api.watching import Run
    from jupyter_graphbreak.report.location import Location, Source
    from jupyter_graphbreak.report.schema import Break, Report


_NOTHING_COMPILED_TEXT = (
    "nothing was compiled, so {check} proves nothing: call a compiled function here, check that compiling is on "
    '(TORCH_COMPILE_DISABLE, torch._dynamo.config.disable and the stance "force_eager" switch it off), or remove '
    "{check}"
)


#: For each marker: its arguments, and the condition under which a test fails.
_LIMIT_MARKERS = {
    "max_graph_breaks": ("number, within=None", "has more graph breaks than this number"),
    "max_recompiles": ("number, within=None", "has more recompiles than this number"),
    "max_compile_seconds": ("number", "compiles for more than this number of seconds"),
}


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for name, (arguments, limit) in _LIMIT_MARKERS.items():
        config.addinivalue_line("markers", f"{name}({arguments}): fail if the test {limit}, or compiles nothing")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Watch a marked test; make it fail if a limit is exceeded, or if nothing was compiled."""
    limits = {
        name: _limit_of(marker) for name in _LIMIT_MARKERS if (marker := item.get_closest_marker(name)) is not None
    }
    if not limits:
        return (yield)
    with _capture_from_scratch() as run:
        result = yield
    report = run.report
    for name, limit in limits.items():
        problem = _describe_excess(report, name, limit)
        if problem is not None:
            pytest.fail(_failure_message(report, problem), pytrace=False)
    unknown_modules = [limit.module for limit in limits.values() if limit.module and _is_unknown(report, limit.module)]
    if unknown_modules:
        message = (
            f"no module {unknown_modules[0]} took part or was imported, so its limit proves nothing: check within="
        )
        pytest.fail(_failure_message(report, message), pytrace=False)
    if _compiled_nothing(report):
        message = _NOTHING_COMPILED_TEXT.format(check=f"the marker {next(iter(limits))}")
        pytest.fail(_failure_message(report, message), pytrace=False)
    return result


class _Limit(NamedTuple):
    """The highest number that a marker allows, and the package or module to whose code the limit applies."""

    max_number: float
    module: str | None = None


def _limit_of(marker: pytest.Mark) -> _Limit:
    """Return the limit in the arguments of a marker; wrong arguments make the test fail."""
    is_time = marker.name == "max_compile_seconds"
    max_number, module = marker.args[0] if len(marker.args) == 1 else None, marker.kwargs.get("within")
    allowed_keywords = set() if is_time else {"within"}
    if (
        not isinstance(max_number, (int, float) if is_time else int)
        or isinstance(max_number, bool)
        or not marker.kwargs.keys() <= allowed_keywords
        or not (module is None or (isinstance(module, str) and module))
    ):
        within_hint = "" if is_time else ', and within="package" to count in that package or module alone'
        pytest.fail(
            f"{marker.name} takes one number, such as @pytest.mark.{marker.name}(0){within_hint}", pytrace=False
        )
    return _Limit(max_number, module)


def _describe_excess(report: Report, marker_name: str, limit: _Limit) -> str | None:
    """Return a description of how a report exceeds the limit of a marker; ``None`` if it does not."""
    if marker_name == "max_compile_seconds":
        seconds = report.timing.compile_s or 0.0
        sentence = f"{seconds:.1f} s of compiling, at most {limit.max_number:g} s allowed"
        return sentence if seconds > limit.max_number else None
    items, noun = (
        (report.breaks, "graph break") if marker_name == "max_graph_breaks" else (report.recompiles, "recompile")
    )
    number = len([item for item in items if limit.module is None or _is_within(report, item.location, limit.module)])
    allowed = "none is allowed" if limit.max_number == 0 else f"at most {limit.max_number} allowed"
    place = f" within {limit.module}" if limit.module is not None else ""
    return f"{_count_with_noun(number, noun)}{place}, {allowed}" if number > limit.max_number else None


def _is_unknown(report: Report, module: str) -> bool:
    """Return whether a package or module, given its dotted name, is not imported and has no source in a report."""
    return module not in sys.modules and not any(_is_source_within(source, module) for source in report.sources)


def _is_within(report: Report, location: Location | None, module: str) -> bool:
    """Return whether a location is in a package or module, given its dotted name."""
    source = next((source for source in report.sources if location is not None and source.id == location.source), None)
    return source is not None and _is_source_within(source, module)


def _is_source_within(source: Source, module: str) -> bool:
    path, parts = f"/{source.path or ''}", module.replace(".", "/")
    return f"/{parts}/" in path or path.endswith(f"/{parts}.py")


@pytest.fixture
def graph_breaks() -> GraphBreaks:
    """Check that a part of a test has the expected graph breaks; see :meth:`GraphBreaks.expect`."""
    return GraphBreaks()


class GraphBreaks:
    """The value of the fixture ``graph_breaks``; see :meth:`expect`.

    Attributes
    ----------
    report : Report or None
        The report of the last ``with`` block.
    """

    def __init__(self) -> None:
        self.report: Report | None = None

    @contextlib.contextmanager
    def expect(self, *expected: str | int) -> Iterator[None]:
        """Make the test fail unless exactly these graph breaks occur in a ``with`` block.

        All functions are compiled from scratch, because PyTorch does not report the breaks of compiled code again. If
        no break is expected, the block must compile something; otherwise the check would prove nothing.

        Parameters
        ----------
        *expected : str or int
            One string for each break, in any order: its id (``"GB0170"``), its cause (``"Data-dependent branching"``)
            or a part of its line (``"if x.sum() > 0"``). Alternatively, a single number: how many breaks are expected.
            Without arguments, no break is expected.

        Examples
        --------
        >>> with graph_breaks.expect("Data-dependent branching"):  # doctest: +SKIP
        ...     step(x)
        """
        with _capture_from_scratch() as run:
            yield
        self.report = run.report
        problem = _describe_differences(run.report, expected)
        if problem is not None:
            pytest.fail(_failure_message(run.report, problem), pytrace=False)


@contextlib.contextmanager
def _capture_from_scratch() -> Iterator[Run]:
    import torch

    from jupyter_graphbreak.api.watching import capture

    torch.compiler.reset()
    with capture() as run:
        yield run


def _describe_differences(report: Report, expected: tuple[str | int, ...]) -> str | None:
    """Return the differences from the expected breaks in one line; ``None`` if there are none."""
    if expected in {(), (0,)} and _compiled_nothing(report):
        return _NOTHING_COMPILED_TEXT.format(check="graph_breaks.expect()")
    if len(expected) == 1 and isinstance(expected[0], int):
        return (
            None
            if len(report.breaks) == expected[0]
            else f"{_count_with_noun(len(report.breaks))}, {expected[0]} expected"
        )
    unexpected_breaks = list(report.breaks)
    missing_breaks = []
    for description in map(str, expected):
        match = next((break_ for break_ in unexpected_breaks if _is_described_by(break_, description)), None)
        if match is None:
            missing_breaks.append(description)
        else:
            unexpected_breaks.remove(match)
    problems = [f"{_count_with_noun(len(unexpected_breaks))} not expected"] if unexpected_breaks else []
    problems += [f"no break {description!r}" for description in missing_breaks]
    return ", ".join(problems) or None


def _compiled_nothing(report: Report) -> bool:
    """Return whether nothing was compiled. The absence of breaks then proves nothing."""
    return not report.breaks and all(frame.outcome != "compiled" for frame in report.frames)


def _is_described_by(break_: Break, description: str) -> bool:
    code = break_.location.code if break_.location is not None else None
    return description in {break_.gb_id, break_.gb_type} or (
        code is not None and bool(description) and (description in code or code in description)
    )


def _count_with_noun(number: int, noun: str = "graph break") -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _failure_message(report: Report, headline: str) -> str:
    from jupyter_graphbreak.results import Report as PrintableReport

    return f"{headline}\n{PrintableReport.of(report).to_text()}"
