"""The pytest plugin, in test modules that a separate pytest process runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import warm_processes

pytest_plugins = ["pytester"]
RunPytest = Callable[[str], pytest.RunResult]
OPTIONS = (
    "--strict-markers", "-p", "no:graphbreak", "-p", "jupyter_graphbreak.pytest_plugin", "-p", "no:cacheprovider",
)  # fmt: skip
TESTS = """
import pytest
import torch

@torch.compile(backend="eager")
def step(x):
    if x.sum() > 0:
        x = x + 1
    return x

@pytest.mark.max_graph_breaks(1)
def test_allowed():
    step(torch.ones(3))

@pytest.mark.max_graph_breaks(0)
def test_too_many():
    step(torch.ones(3))

@pytest.mark.max_graph_breaks(0)
def test_of_its_own_fault():
    step(torch.ones(3))
    assert 1 == 2

@pytest.mark.max_graph_breaks("none")
def test_misused():
    pass

@pytest.mark.parametrize("expected", [(1,), ("GB0170",), ("Data-dependent branching",), ("x.sum() > 0",)])
def test_expected(graph_breaks, expected):
    with graph_breaks.expect(*expected):
        step(torch.ones(3))
    assert len(graph_breaks.report.breaks) == 1

def test_none_expected(graph_breaks):
    with graph_breaks.expect():
        step(torch.ones(3))

def test_a_different_break_is_expected(graph_breaks):
    with graph_breaks.expect("GB0025"):
        step(torch.ones(3))

def test_other_tests_are_not_affected(graph_breaks):
    with pytest.raises(ValueError), graph_breaks.expect():
        raise ValueError
"""
RECOMPILES = """
import pytest
import torch

@torch.compile(backend="eager")
def double(x):
    return x * 2

@pytest.mark.max_recompiles(1)
def test_allowed():
    for n in (3, 4, 5):
        double(torch.ones(n))

@pytest.mark.max_recompiles(0)
@pytest.mark.max_graph_breaks(0)
def test_too_many():
    for n in (3, 4, 5):
        double(torch.ones(n))

@pytest.mark.max_recompiles()
def test_misused():
    pass
"""
UNCOMPILED_TESTS = """
import pytest
import torch

def eager(x):
    return x + 1

@torch.compile(backend="eager")
def double(x):
    return x * 2

@torch.compile(backend="eager")
def length(items):
    return len(items)

@pytest.mark.max_graph_breaks(0)
def test_compiled():
    double(torch.ones(3))

@pytest.mark.max_graph_breaks(0)
def test_not_compiled():
    eager(torch.ones(3))

@pytest.mark.max_graph_breaks(2)
def test_no_tensor():
    length([1])

@pytest.mark.max_graph_breaks(0)
def test_stance():
    with torch.compiler.set_stance("force_eager"):
        double(torch.ones(3))

@pytest.mark.parametrize("expected", [(), (0,)])
def test_none_expected(graph_breaks, expected):
    with graph_breaks.expect(*expected):
        eager(torch.ones(3))

def test_compiled_and_none_expected(graph_breaks):
    with graph_breaks.expect(0):
        double(torch.ones(3))

@pytest.mark.max_graph_breaks(0)
def test_skipped():
    pytest.skip("not here")
"""


@pytest.fixture
def run_pytest(pytester: pytest.Pytester, fork_server_folder: Path) -> RunPytest:
    """Return a function that runs pytest with the plugin on one module, in a separate process."""

    def run_on_module(module: str) -> pytest.RunResult:
        pytester.makepyfile(test_model=module)
        process = warm_processes.run(
            fork_server_folder, ["-m", "pytest", *OPTIONS], cwd=pytester.path, env=dict(os.environ)
        )
        return pytest.RunResult(process.returncode, process.stdout.splitlines(), process.stderr.splitlines(), 0.0)

    return run_on_module


def test_too_many_breaks_fail_with_the_text_of_the_report(run_pytest: RunPytest) -> None:
    outcome = run_pytest(TESTS)
    outcome.assert_outcomes(passed=6, failed=5)
    outcome.stdout.fnmatch_lines(
        [
            "*_ test_too_many _*",
            "1 graph break, none is allowed",
            "1 break, test_model.py:6 in step: it adds 1 graph.",
            " 1  test_model.py:6 in step   x.sum() > 0",
            "    Branch on a tensor's value (GB0170)",
            "*_ test_of_its_own_fault _*",
            "E       assert 1 == 2",
            "*_ test_misused _*",
            "max_graph_breaks takes one number, such as @pytest.mark.max_graph_breaks(0), and within=*",
            "*_ test_none_expected _*",
            "1 graph break not expected",
            "*_ test_a_different_break_is_expected _*",
            "1 graph break not expected, no break 'GB0025'",
        ]
    )


def test_too_many_recompiles_fail_with_the_text_of_the_report(run_pytest: RunPytest) -> None:
    outcome = run_pytest(RECOMPILES)
    outcome.assert_outcomes(passed=1, failed=2)
    outcome.stdout.fnmatch_lines(
        [
            "*_ test_too_many _*",
            "1 recompile, none is allowed",
            "*dimension 0 of x: 3 -> 4*",
            "*_ test_misused _*",
            "max_recompiles takes one number, such as @pytest.mark.max_recompiles(0), and within=*",
        ]
    )


def test_a_limit_on_breaks_fails_if_nothing_is_compiled(run_pytest: RunPytest) -> None:
    outcome = run_pytest(UNCOMPILED_TESTS)
    outcome.assert_outcomes(passed=2, failed=5, skipped=1)
    outcome.stdout.fnmatch_lines(
        [
            "*_ test_not_compiled _*",
            "nothing was compiled, so the marker max_graph_breaks proves nothing: call a compiled function here, *"
            "or remove the marker max_graph_breaks",
            "Nothing was compiled in this run.*",
            "*_ test_none_expected[[]expected0] _*",
            "*graph_breaks.expect() proves nothing: *or remove graph_breaks.expect()",
        ]
    )
    outcome = run_pytest(f"import torch._dynamo; torch._dynamo.config.disable = True\n{UNCOMPILED_TESTS}")
    outcome.assert_outcomes(failed=7, skipped=1)
    outcome.stdout.fnmatch_lines(
        ["*_ test_compiled _*", "warning: torch.compile is switched off (TORCH_COMPILE_DISABLE=1, or*"]
    )


TESTS_WITH_PACKAGES = """
import pytest
import torch
import their
from theirs import helper
from theirs.norms import layers

@torch.compile(backend="eager")
def step(x):
    torch._dynamo.graph_break()
    return layers.scale(helper.shift(x))

def within(module):
    return pytest.param(module, marks=pytest.mark.max_graph_breaks(0, within=module))

MODULES = ["theirs", "theirs.norms", "theirs.helper", "test_model", "their", "thiers"]

@pytest.mark.parametrize("module", map(within, MODULES))
def test_in(module):
    step(torch.ones(3))

@pytest.mark.max_graph_breaks(2, within="theirs")
@pytest.mark.max_compile_seconds(600)
@pytest.mark.max_recompiles(0, within="theirs")
def test_enough():
    step(torch.ones(3))

@pytest.mark.max_compile_seconds(0)
def test_too_slow():
    step(torch.ones(3))

@pytest.mark.max_compile_seconds(1, within="theirs")
def test_misused():
    pass
"""
TESTS_WITH_BREAKS = """
import torch

def NAME(x):
    torch._dynamo.graph_break()
    return x * 2
"""


def test_only_breaks_within_a_package_count(run_pytest: RunPytest, pytester: pytest.Pytester) -> None:
    package = pytester.mkpydir("theirs")
    pytester.mkpydir("their")
    (package / "norms").mkdir()
    (package / "helper.py").write_text(TESTS_WITH_BREAKS.replace("NAME", "shift"))
    (package / "norms" / "layers.py").write_text(TESTS_WITH_BREAKS.replace("NAME", "scale"))
    outcome = run_pytest(TESTS_WITH_PACKAGES)
    outcome.assert_outcomes(passed=2, failed=7)
    outcome.stdout.fnmatch_lines(
        [
            "2 graph breaks within theirs, none is allowed",
            "1 graph break within theirs.norms, none is allowed",
            "1 graph break within theirs.helper, none is allowed",
            "1 graph break within test_model, none is allowed",
            "no module thiers took part or was imported, so its limit proves nothing: check within=",
            "* s of compiling, at most 0 s allowed",
            "max_compile_seconds takes one number, such as @pytest.mark.max_compile_seconds(0)",
        ]
    )


FIXTURE_AND_MARKER = """
import pytest
import torch

def step(x):
    if x.sum() > 0:
        x = x + 1
    return x

def other(x):
    torch._dynamo.graph_break()
    return x * 2

compiled, compiled_other = torch.compile(step, backend="eager"), torch.compile(other, backend="eager")

def both(graph_breaks):
    compiled(torch.ones(3))
    with graph_breaks.expect("Data-dependent branching"):
        compiled(torch.ones(3))
    with graph_breaks.expect(1):
        compiled_other(torch.ones(3))
        with graph_breaks.expect():
            torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    assert len(graph_breaks.report.breaks) == 1

@pytest.mark.max_graph_breaks(2)
def test_together(graph_breaks):
    both(graph_breaks)

@pytest.mark.max_graph_breaks(1)
def test_too_many_together(graph_breaks):
    both(graph_breaks)
"""


def test_the_fixture_and_the_marker_work_together(run_pytest: RunPytest) -> None:
    result = run_pytest(FIXTURE_AND_MARKER)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*2 graph breaks, at most 1 allowed*"])
