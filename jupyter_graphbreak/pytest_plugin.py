"""The pytest plugin: tests that fail when a graph breaks that must not.

In: the marker ``max_graph_breaks`` and the fixture ``graph_breaks``. Out: failures that read like the text of a report.
May import ``api`` and ``results``, and those only when a test asks for graph breaks.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from jupyter_graphbreak.api.watching import Run
    from jupyter_graphbreak.report.schema import Break, Report


_NOTHING = (
    "nothing was compiled, so 0 graph breaks prove nothing: call a compiled function here, switch compiling on "
    '(TORCH_COMPILE_DISABLE, torch._dynamo.config.disable and the stance "force_eager" switch it off)'
)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "max_graph_breaks(number): fail if torch.compile meets more graph breaks than that during the test, "
        "or compiles nothing",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Watch a marked test, and fail it if there were too many breaks, or nothing that could break."""
    marker = item.get_closest_marker("max_graph_breaks")
    if marker is None:
        return (yield)
    most = marker.args[0] if len(marker.args) == 1 else None
    if not isinstance(most, int) or isinstance(most, bool) or marker.kwargs:
        pytest.fail("max_graph_breaks takes one number, such as @pytest.mark.max_graph_breaks(0)", pytrace=False)
    with _watched() as run:
        result = yield
    if len(run.report.breaks) > most:
        allowed = "none is allowed" if most == 0 else f"at most {most} allowed"
        pytest.fail(_failure(run.report, f"{_counted(run.report)}, {allowed}"), pytrace=False)
    if _compiled_nothing(run.report):
        pytest.fail(_failure(run.report, f"{_NOTHING}, or take the marker max_graph_breaks off"), pytrace=False)
    return result


@pytest.fixture
def graph_breaks() -> GraphBreaks:
    """Say which graph breaks a part of a test must meet."""
    return GraphBreaks()


class GraphBreaks:
    """What the fixture ``graph_breaks`` is; see :meth:`expect`."""

    def __init__(self) -> None:
        #: The report of the last block.
        self.report: Report | None = None

    @contextlib.contextmanager
    def expect(self, *expected: str | int) -> Iterator[None]:
        """Fail if a ``with`` block does not meet just these graph breaks.

        Functions that were compiled before are compiled afresh, since what is compiled breaks no more. If no break is
        expected, something has to be compiled, since otherwise nothing could break.

        Parameters
        ----------
        *expected : str or int
            One string for each break, in any order: its id (``"GB0170"``), its reason (``"Data-dependent branching"``)
            or a part of its line (``"if x.sum() > 0"``). One number: how many there are. Nothing: no break.

        Examples
        --------
        >>> with graph_breaks.expect("Data-dependent branching"):  # doctest: +SKIP
        ...     step(x)
        """
        with _watched() as run:
            yield
        self.report = run.report
        problem = _unexpected(run.report, expected)
        if problem is not None:
            pytest.fail(_failure(run.report, problem), pytrace=False)


@contextlib.contextmanager
def _watched() -> Iterator[Run]:
    import torch

    from jupyter_graphbreak.api.watching import capture

    torch.compiler.reset()
    with capture() as run:
        yield run


def _unexpected(report: Report, expected: tuple[str | int, ...]) -> str | None:
    """Return what is other than expected, in one line."""
    if expected in {(), (0,)} and _compiled_nothing(report):
        return f"{_NOTHING}, or take the block out of graph_breaks.expect()"
    if len(expected) == 1 and isinstance(expected[0], int):
        return None if len(report.breaks) == expected[0] else f"{_counted(report)}, {expected[0]} expected"
    left = list(report.breaks)
    missing = []
    for text in map(str, expected):
        met = next((found for found in left if _is_called(found, text)), None)
        if met is None:
            missing.append(text)
        else:
            left.remove(met)
    problems = [f"{_counted(report, len(left))} not expected"] if left else []
    problems += [f"no break {text!r}" for text in missing]
    return ", ".join(problems) or None


def _compiled_nothing(report: Report) -> bool:
    """Whether the absence of breaks says nothing, for there was no code in which one could be."""
    return not report.breaks and all(frame.outcome != "compiled" for frame in report.frames)


def _is_called(found: Break, text: str) -> bool:
    code = found.location.code if found.location is not None else None
    return text in {found.gb_id, found.gb_type} or (code is not None and bool(text) and (text in code or code in text))


def _counted(report: Report, number: int | None = None) -> str:
    number = len(report.breaks) if number is None else number
    return f"{number} graph break" + ("" if number == 1 else "s")


def _failure(report: Report, head: str) -> str:
    from jupyter_graphbreak.results import Report as Shown

    return f"{head}\n{Shown.of(report).to_text()}"
