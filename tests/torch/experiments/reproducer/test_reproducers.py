"""A reproducer runs alone, reproduces the finding of the run, and is short. If there is none, an error says why."""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from _pytest.mark.structures import ParameterSet

import jupyter_graphbreak
from jupyter_graphbreak.api.watching import Run
from jupyter_graphbreak.experiments.reproducer import finding
from jupyter_graphbreak.experiments.reproducer.finding import reproduce
from jupyter_graphbreak.experiments.reproducer.processes import FinalRun, ScriptRunner
from jupyter_graphbreak.experiments.reproducer.script import ScriptVariant, write_script
from jupyter_graphbreak.experiments.reproducer.target import CHECK_ID, ERROR_ID, target_of
from jupyter_graphbreak.report.reproducer import Reproducer
from tests.programs.reproducers import cases

#: The longest time for one case; the searches end earlier.
SECONDS = 120.0


@pytest.fixture(scope="module")
def runner() -> Iterator[ScriptRunner]:
    with ScriptRunner() as script_runner:
        yield script_runner


@pytest.fixture
def forking_runner(runner: ScriptRunner, monkeypatch: pytest.MonkeyPatch) -> ScriptRunner:
    """Run the final script in a fork as well, to save the time for loading PyTorch."""

    def run_alone(script: str, seconds: float) -> FinalRun:
        report, reason = runner.run(script, seconds)
        assert report is not None, reason
        return FinalRun(report, "", int(report.error is not None))

    monkeypatch.setattr(finding, "run_alone", run_alone)
    return runner


def capture_case(case: str) -> Run:
    torch._dynamo.reset()
    with contextlib.suppress(Exception), jupyter_graphbreak.capture(entries=True) as run:
        getattr(cases, case)()
    return run


def reproduce_finding(run: Run, ident: str, runner: ScriptRunner, *, redacted: bool = False) -> Reproducer:
    kept_run = run._get_rerun()
    return reproduce(kept_run.report, kept_run._kept_entries, ident, redacted=redacted, seconds=SECONDS, runner=runner)


def count_lines(*names: str) -> int:
    """Return the number of lines of functions and classes of the programs."""
    folder = Path(cases.__file__).parent
    nodes = [node for file in ("cases.py", "helpers.py") for node in ast.walk(ast.parse((folder / file).read_text()))]
    definitions = [node for node in nodes if getattr(node, "name", None) in names]
    assert definitions
    return sum((node.end_lineno or 0) - node.lineno + 1 for node in definitions)  # type: ignore[attr-defined]


def exhaustive_case(*values: object) -> ParameterSet:
    return pytest.param(*values, marks=pytest.mark.exhaustive)


@pytest.mark.parametrize(
    ("case", "ident", "functions", "code"),
    [
        exhaustive_case("helper_in_another_file", "b1", ["step", "norm", "report_shape"], "print('normalized'"),
        exhaustive_case("recompile_by_size", "r1", ["scale"], "compiled(torch.randn(4, 3)"),
        exhaustive_case("recompile_by_attribute", "r1", ["Scaled"], "scaled.scale = 2"),
        exhaustive_case("error_of_a_backend", ERROR_ID, ["total", "failing_backend"], "if 'cumsum' in "),
        exhaustive_case("fullgraph", ERROR_ID, ["clipped"], "fullgraph=True"),
        exhaustive_case("generator", "b1", ["shifted"], "yield"),
        exhaustive_case("generator_of_a_helper", "b1", ["chunks"], "print(chunk.shape)"),
        exhaustive_case("modules_without_gradients", "b1", ["Net", "Block"], "torch._dynamo.graph_break()"),
        ("error_in_a_scope", ERROR_ID, ["outer", "strict"], "error_on_graph_break(True)"),
        exhaustive_case("wrong_sizes", ERROR_ID, ["product"], "x @ w"),
        exhaustive_case("step_of_an_optimizer", "b1", ["Regression", "train"], "loss.backward()"),
        exhaustive_case("a_setting", ERROR_ID, ["first"], "count > 2"),
    ],
)
def test_scripts_reproduce_the_finding_and_are_short(
    forking_runner: ScriptRunner, case: str, ident: str, functions: list[str], code: str
) -> None:
    run = capture_case(case)
    reproducer = reproduce_finding(run, ident, forking_runner)
    assert reproducer.script is not None, reproducer.reason
    assert code in reproducer.script
    assert len(reproducer.script.splitlines()) <= 2 * count_lines(*functions) + 30
    assert "programs" not in reproducer.script
    target = target_of(run.report, ident)
    reproduced_report, _ = forking_runner.run(reproducer.script, SECONDS)
    assert target is not None
    assert reproduced_report is not None
    assert target.is_shown_by(reproduced_report, {"helpers.norm": "norm"})


@pytest.mark.exhaustive
def test_the_script_has_classes_of_a_notebook_and_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(cases.__file__).parent / "values.txt").read_text()
    cell = "<a cell>"
    monkeypatch.setitem(linecache.cache, cell, (len(text), None, text.splitlines(keepends=True), cell))
    notebook = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    torch._dynamo.reset()
    with contextlib.redirect_stdout(io.StringIO()) as expected, jupyter_graphbreak.capture(entries=True) as run:
        exec(compile(text, cell, "exec"), vars(notebook))
    kept_run = run._get_rerun()
    (target,) = [target for ident in run.report.order[:1] if (target := target_of(run.report, ident))]
    entry = next(entry for entry in kept_run._kept_entries.entries if entry.name == "show")
    script = ast.unparse(
        write_script(entry, kept_run._kept_entries.calls_to(entry), target, {}, ScriptVariant(uses_values=True)).tree
    ).replace("torch._logging", "#")
    torch._dynamo.reset()
    with contextlib.redirect_stdout(io.StringIO()) as actual:
        exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
    assert "Options app" in expected.getvalue()
    assert actual.getvalue() == expected.getvalue()


def test_the_script_has_the_optimizer_with_its_groups() -> None:
    run = capture_case("step_of_an_optimizer")
    kept_run = run._get_rerun()
    (target,) = [target for ident in run.report.order[:1] if (target := target_of(run.report, ident))]
    entry = next(entry for entry in kept_run._kept_entries.entries if entry.name == "train")
    text = ast.unparse(write_script(entry, kept_run._kept_entries.calls_to(entry), target, {}, ScriptVariant()).tree)
    assert (
        "torch.optim.SGD([{'params': regression.layers.parameters(), 'lr': 0.1, 'weight_decay': 0}, {'params': "
        "[regression.head.weight, regression.head.bias, parameter], 'weight_decay': 0.01, 'lr': 0.01}], momentum=0.9)"
    ) in text
    assert "(regression(x) * parameter)" in text
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(text, "<script>", "exec"), {})


@pytest.mark.exhaustive
def test_the_script_of_a_wrong_result_fails_alone() -> None:
    run = capture_case("wrong_result")
    run.check()
    script = run.reproducer(CHECK_ID, seconds=SECONDS)
    assert len(script.splitlines()) <= 2 * count_lines("mixed", "wrong_backend") + 30
    assert "out * 1.5 if isinstance(out, torch.Tensor) else out for out in gm(*args)" in script
    assert script in script.issue
    assert "Tensor-likes are not close" in script.issue
    assert "### Versions" in script.issue
    assert torch.__version__ in script.issue


@pytest.mark.exhaustive  # tests/cli has the same break
def test_the_script_prints_the_break_alone() -> None:
    report = jupyter_graphbreak.explain(helper_with_a_break, torch.randn(3))
    script = report.reproducer("b1", seconds=SECONDS)
    assert "Failed to trace builtin operator" in script.shows
    assert "gb0059" in script.issue
    assert ", line " in script.issue  # PyTorch's own log, with its traceback


def helper_with_a_break(x: torch.Tensor) -> torch.Tensor:
    y = x.relu()
    print("secret words")
    return y + 1


@pytest.mark.exhaustive
def test_a_redacted_script_has_no_names_and_strings(forking_runner: ScriptRunner) -> None:
    reproducer = reproduce_finding(capture_case("error_in_a_scope"), ERROR_ID, forking_runner, redacted=True)
    assert reproducer.script is not None, reproducer.reason
    assert reproducer.issue is not None
    for word in ("outer", "strict", "shown"):
        assert word not in reproducer.script + reproducer.issue


def test_a_call_with_an_effect_is_not_run_again(runner: ScriptRunner) -> None:
    run = capture_case("writes_a_file")
    Path("reproducer-test.txt").unlink()
    reproducer = reproduce_finding(run, "b1", runner)
    assert reproducer.script is None
    assert reproducer.reason is not None
    assert "writes to the file reproducer-test.txt" in reproducer.reason
    assert not Path("reproducer-test.txt").exists()
    with pytest.raises(jupyter_graphbreak.NotReproducedError, match="writes to the file"):
        run.report.reproducer("b1")


def test_a_script_is_stopped_before_it_has_an_effect(runner: ScriptRunner, tmp_path: Path) -> None:
    file = tmp_path / "file"
    report, reason = runner.run(f"open({str(file)!r}, 'w')", SECONDS)
    assert report is None
    assert "writes to the file" in reason
    assert not file.exists()


def test_the_reason_names_the_object_that_cannot_be_written(runner: ScriptRunner) -> None:
    reproducer = reproduce_finding(capture_case("locked"), "b1", runner)
    assert reproducer.script is None
    assert reproducer.reason is not None
    assert "lock" in reproducer.reason


def test_a_report_without_copies_says_how_to_keep_them() -> None:
    with jupyter_graphbreak.capture() as run:
        torch.compile(helper_with_a_break, backend="eager")(torch.ones(2))
    with pytest.raises(jupyter_graphbreak.NotReproducedError, match="entries=True"):
        run.report.reproducer("b1")


def test_an_unknown_id_is_an_error(runner: ScriptRunner) -> None:
    with pytest.raises(LookupError, match="b77"):
        reproduce_finding(capture_case("wrong_sizes"), "b77", runner)
