"""Reports and comparisons handle code that PyTorch still has from an earlier run."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import io
import linecache
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from jupyter_graphbreak._torch_compat.compiled import forget_code_objects, is_known_code, snapshot_known_code
from jupyter_graphbreak.api.watching import capture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak.results import Report

LIBRARY = """
    def scale(x):
        y = x * 3
        print("scaled")
        return y - 1


    def norm(x):
        y = x + 1
        print("normed")
        return scale(y) * 2
"""


@pytest.fixture(autouse=True)
def _reset_dynamo() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture
def library(tmp_path: Path) -> Any:
    path = tmp_path / "norms.py"
    path.write_text(textwrap.dedent(LIBRARY))
    spec = importlib.util.spec_from_file_location("norms", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def watch_call(fn: Callable[[Any], Any]) -> Report:
    with capture() as run, contextlib.redirect_stdout(io.StringIO()):
        torch.compile(fn, backend="eager")(torch.ones(3))
    return run.report


def changed_breaks(before: Report, after: Report) -> list[tuple[str, str | None]]:
    return [(change.change, change.function) for change in before.diff(after).breaks]


def make_entry(library: Any, result: str = "library.norm(x) + 1") -> Callable[[Any], Any]:
    """Return a new function each time, like a notebook cell that runs again."""
    path = Path(library.__file__).with_name("program.py")
    path.write_text(f"def f(x):\n    return {result}\n")
    linecache.checkcache()
    scope: dict[str, Any] = {"library": library}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    function: Callable[[Any], Any] = scope["f"]
    return function


def test_breaks_and_graphs_of_reused_code_are_not_gone(library: Any) -> None:
    first, second = watch_call(make_entry(library)), watch_call(make_entry(library))
    assert (first.summary.breaks, second.summary.breaks) == (2, 1)
    changes = first.diff(second)
    assert changed_breaks(first, second) == [("unknown", "scale")]
    assert {(reused.function, reused.run) for reused in changes.reused} >= {("norm", "after"), ("scale", "after")}
    assert changes.before.summary == changes.after.summary
    assert "gone" not in changes.to_text()
    assert "this run did not compile norm and scale (PyTorch" in " ".join(changes.to_text().split())

    torch.compiler.reset()
    fresh_report = watch_call(make_entry(library))
    assert fresh_report.held == []
    assert changed_breaks(second, fresh_report) == [("unknown", "scale")]
    assert changed_breaks(first, fresh_report) == []
    assert first.diff(fresh_report).reused == []


def test_a_call_that_was_removed_from_a_retraced_function_is_gone(library: Any) -> None:
    first = watch_call(make_entry(library))
    gc.collect()
    after = watch_call(make_entry(library, "x + 1"))
    # The calls to norm were never traced from f, so it is unknown whether they ran.
    assert changed_breaks(first, after) == [("gone", "norm"), ("unknown", "scale")]


def test_forgotten_code_is_no_longer_known(library: Any) -> None:
    watch_call(make_entry(library))
    code = library.norm.__code__
    with snapshot_known_code() as code_objects:
        assert any(reference() is code for reference in code_objects)
        assert is_known_code(code)
        forget_code_objects([code])
        assert not is_known_code(code)
        torch.compiler.reset()
        assert code_objects == []
    watch_call(make_entry(library))
    assert is_known_code(code)


def test_a_reset_within_a_run_leaves_no_reused_code(library: Any) -> None:
    first = watch_call(make_entry(library))
    with capture() as run, contextlib.redirect_stdout(io.StringIO()):
        torch.compiler.reset()
        torch.compile(make_entry(library), backend="eager")(torch.ones(3))
    assert run.report.held == []
    assert changed_breaks(first, run.report) == []


def test_a_function_that_is_still_skipped_is_not_reported_as_fixed(library: Any) -> None:
    def loop(x: Any) -> Any:
        for _ in range(2):
            torch._dynamo.graph_break()
            x = x + 1
        return x

    library.torch = torch
    library.scale.__code__ = loop.__code__.replace(co_name="scale")
    first, second = watch_call(library.scale), watch_call(library.scale)
    assert [skipped.function for skipped in first.skipped] == ["scale"]
    assert (second.frames, [skipped.kind for skipped in second.skipped]) == ([], ["remembered"])
    assert changed_breaks(first, second) == [("unknown", "scale")]
    assert "eager 1" not in first.diff(second).to_text()
