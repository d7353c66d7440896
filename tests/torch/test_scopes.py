"""The scopes that a report says allow a break agree with the behaviour of Dynamo."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.results import Report

PLAIN_ENTRY = 'entry = torch.compile(backend="eager")'
STRICT_ENTRY = 'entry = lambda f: torch._dynamo.error_on_graph_break(True)(torch.compile(f, backend="eager"))'
FULLGRAPH_ENTRY = 'entry = torch.compile(backend="eager", fullgraph=True)'

# Each program defines ``run``. A comment "is V by L" on the line of a break gives the value in force and the line of
# the scope that set it ("is V by default" if no scope did).
PROGRAMS = {
    "no setting": """
        @entry
        def run(x):
            x = x + 1
            torch._dynamo.graph_break()  # is False by default
            return x * 2
    """,
    "decorator on a callee": """
        @torch._dynamo.error_on_graph_break(False)
        def leaf(x):
            x = x + 1
            torch._dynamo.graph_break()  # is False by 3
            return x * 2

        def middle(x):
            return leaf(x)

        @entry
        def run(x):
            return middle(x)
    """,
    "with block": """
        @entry
        def run(x):
            x = x + 1
            with torch._dynamo.error_on_graph_break(False):
                torch._dynamo.graph_break()  # is False by 6
            return x * 2
    """,
    "with block around a call": """
        def leaf(x):
            x = x + 1
            torch._dynamo.graph_break()  # is False by 11
            return x * 2

        @entry
        def run(x):
            y = x - 1
            with torch._dynamo.error_on_graph_break(False):
                return leaf(y)
    """,
    "inner over outer": """
        @entry
        def run(x):
            with torch._dynamo.error_on_graph_break(True):
                y = x + 1
                with torch._dynamo.error_on_graph_break(False):
                    torch._dynamo.graph_break()  # is False by 7
                    z = y * 2
                    print("resumed in both")  # is False by 7
                    z = z + 1
                w = z - 1
            return w
    """,
    "imported with a different name": """
        from torch._dynamo import error_on_graph_break as allow

        @entry
        def run(x):
            x = x + 1
            with allow(False):
                torch._dynamo.graph_break()  # is False by 8
                y = x * 2
                torch._dynamo.graph_break()  # is False by 8
            return y
    """,
    "value computed at run time, in a closure": """
        def make(flag):
            def leaf(x):
                with torch._dynamo.error_on_graph_break(not flag):
                    torch._dynamo.graph_break()  # is False by 5
                    return x + 1
            return leaf

        leaf = make(True)

        @entry
        def run(x):
            return leaf(x)
    """,
    "wrapped method": """
        class Model:
            def forward(self, x):
                torch._dynamo.graph_break()  # is False by 10
                return x + 1

        model = Model()
        forward = torch._dynamo.error_on_graph_break(False)
        model.forward = torch._dynamo.error_on_graph_break(False)(model.forward)

        @entry
        def run(x):
            return model.forward(x * 2)
    """,
    "several managers": """
        @entry
        def run(x):
            with torch.no_grad(), torch._dynamo.error_on_graph_break(False):
                torch._dynamo.graph_break()  # is False by 5
                y = x + 1
            return y
    """,
    "opened around a loop": """
        @entry
        def run(x):
            with torch._dynamo.error_on_graph_break(False):
                for _ in range(2):
                    x = x + 1
                    torch._dynamo.graph_break()  # is False by 5
            return x
    """,
    "function that calls itself": """
        @torch._dynamo.error_on_graph_break(False)
        def down(x, n):
            if n == 0:
                torch._dynamo.graph_break()  # is False by 3
                return x
            return down(x + 1, n - 1)

        @entry
        def run(x):
            return down(x, 2)
    """,
    "two breaks, the second not allowed": """
        @entry
        def run(x):
            with torch._dynamo.error_on_graph_break(False):
                torch._dynamo.graph_break()  # is False by 5
                y = x + 1
            print("y")  # is False by default
            return y
    """,
    "branch on data": """
        @entry
        def run(x):
            if x.sum() > 0:  # is False by default
                return x + 1
            return x - 1
    """,
    "try block": """
        @entry
        def run(x):
            try:
                x = x + 1
                torch._dynamo.graph_break()  # is False by default
            except ValueError:
                pass
            return x
    """,
    "generator": """
        def numbers(x):
            yield x + 1

        @entry
        def run(x):
            return next(numbers(x)) + 1
    """,
}


def run_program(tmp_path: Path, body: str, entry: str) -> Report:
    """Run a program, preceded by ``import torch`` and the definition of its decorator ``entry``; return the report."""
    lines = body.strip("\n").split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    text = "\n".join(["import torch", entry, *(line[indent:] for line in lines)])
    path = tmp_path / "program.py"
    path.write_text(text + "\n")
    name = f"program_{abs(hash((text, entry)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Dynamo imports the module of a function that it inlines
    torch._dynamo.reset()
    with jupyter_graphbreak.capture() as run:
        spec.loader.exec_module(module)
        with contextlib.suppress(torch._dynamo.exc.Unsupported):
            module.run(torch.ones(3))
    return run.report


def expected_settings(body: str) -> dict[int, tuple[bool, int | None]]:
    lines = body.strip("\n").split("\n")
    settings = {}
    for number, line in enumerate(lines, start=3):
        match = re.search(r"# is (True|False) by (\d+|default)", line)
        if match:
            settings[number] = (match[1] == "True", None if match[2] == "default" else int(match[2]))
    return settings


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_break_has_the_setting_in_force_and_its_scope(name: str, tmp_path: Path) -> None:
    report = run_program(tmp_path, PROGRAMS[name], PLAIN_ENTRY)
    scopes = {scope.id: scope for scope in report.scopes}
    actual = {}
    for graph_break in report.breaks:
        assert graph_break.setting is not None
        assert graph_break.location is not None
        scope = scopes.get(graph_break.scope or "")
        line = scope.location.line if scope is not None and scope.location is not None else None
        actual[graph_break.location.line] = (graph_break.setting.value, line)
    assert actual == expected_settings(PROGRAMS[name])
    assert not [diagnostic for diagnostic in report.diagnostics if "Dynamo held" in diagnostic.message]


@pytest.mark.parametrize("name", PROGRAMS)
def test_stricter_settings_do_what_the_report_claims(name: str, tmp_path: Path) -> None:
    plain_report = run_program(tmp_path, PROGRAMS[name], PLAIN_ENTRY)
    lines = {
        graph_break.id: graph_break.location.line
        for graph_break in plain_report.breaks
        if graph_break.location is not None
    }
    expected_errors = [lines[break_id] for break_id in plain_report.what_if.error_on_graph_break]
    lines_of_errors = [
        break_.location.line
        for break_ in run_program(tmp_path, PROGRAMS[name], STRICT_ENTRY).breaks
        if break_.outcome == "error" and break_.location
    ]
    assert lines_of_errors == expected_errors[:1]
    lines_of_fullgraph_errors = [
        break_.location.line
        for break_ in run_program(tmp_path, PROGRAMS[name], FULLGRAPH_ENTRY).breaks
        if break_.outcome == "error" and break_.location
    ]
    assert lines_of_fullgraph_errors == (
        [lines[plain_report.what_if.fullgraph]] if plain_report.what_if.fullgraph is not None else []
    )


# For each pair of fullgraph and error_on_graph_break: the outcomes of a first break, of a second break, and of a break
# in an inner scope.
OUTCOMES = {
    (True, True): ("error", None, "error"),
    (True, False): ("error", None, "error"),
    (False, True): ("error", None, "resumed"),
    (False, False): ("resumed", "resumed", "resumed"),
}


@pytest.mark.parametrize(("fullgraph", "error_on_break"), OUTCOMES)
def test_fullgraph_and_the_scope_decide_together_which_break_is_an_error(
    fullgraph: bool, error_on_break: bool, tmp_path: Path
) -> None:
    entry = (
        f"entry = lambda f: torch._dynamo.error_on_graph_break({error_on_break})"
        f"(torch.compile(f, backend='eager', fullgraph={fullgraph}))"
    )
    two_breaks = """
        @entry
        def run(x):
            x = x + 1
            torch._dynamo.graph_break()
            x = x + 2
            print("second")
            return x * 2
    """
    break_in_inner_scope = """
        @entry
        def run(x):
            x = x + 1
            with torch._dynamo.error_on_graph_break(False):
                torch._dynamo.graph_break()
            return x * 2
    """
    first, second, inner_outcome = OUTCOMES[fullgraph, error_on_break]
    report = run_program(tmp_path, two_breaks, entry)
    outcomes = {
        graph_break.location.line: graph_break.outcome
        for graph_break in report.breaks
        if graph_break.location is not None
    }
    assert (outcomes.get(6), outcomes.get(8)) == (first, second)
    (graph_break,) = run_program(tmp_path, break_in_inner_scope, entry).breaks
    assert graph_break.outcome == inner_outcome
    assert graph_break.setting is not None
    if fullgraph:
        assert "fullgraph" in graph_break.setting.rules
        assert len(graph_break.setting.chain) == 3  # both scopes were open, but fullgraph wins
    else:
        assert graph_break.setting.rules == (["own", "inner over outer"] if error_on_break else ["own"])


def test_a_scope_in_an_imported_file_is_located(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lenient.py").write_text(
        "import torch\n\n\n@torch._dynamo.error_on_graph_break(False)\ndef norm(x):\n"
        "    torch._dynamo.graph_break()\n    return x / x.sum()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    body = """
        import lenient

        @entry
        def run(x):
            return lenient.norm(x) + 1
    """
    report = run_program(tmp_path, body, STRICT_ENTRY)
    (graph_break,) = report.breaks
    scope = next(candidate for candidate in report.scopes if candidate.id == graph_break.scope)
    names = {source.id: source.name for source in report.sources}
    assert scope.location is not None
    assert (names[scope.location.source], scope.location.line, scope.form) == ("lenient.py", 4, "decorator")
    assert scope.location.end_line == 7


def test_a_shared_wrapper_at_the_limit_is_reported_for_the_affected_function(tmp_path: Path) -> None:
    functions = "\n".join(
        f"        @torch._dynamo.error_on_graph_break(False)\n        def f{n}(x):\n            return x + {n}\n"
        for n in range(12)
    )
    calls = ", ".join(f"f{n}" for n in range(12))
    body = f"{functions}\n        def run(x):\n            for f in ({calls}):\n                entry(f)(x)\n"
    report = run_program(tmp_path, body, PLAIN_ENTRY)
    (skipped_function,) = [skipped for skipped in report.skipped if skipped.kind == "shared wrapper"]
    assert skipped_function.function == "f8"
    assert skipped_function.location is not None
    assert skipped_function.location.code is not None
    assert "recompile_limit = 8" in skipped_function.reason
    assert "with block" in (skipped_function.way_out or "")
    text = report.to_text()
    assert "runs eagerly: the limit (recompile_limit = 8) was used up by the wrapper" in text


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("for _ in range(2):\n                x = x + 1\n                torch._dynamo.graph_break()", "loop"),
        (
            "try:\n                torch._dynamo.graph_break()\n            except ValueError:\n                pass",
            "try",
        ),
        ("with Own():\n                torch._dynamo.graph_break()", "context manager"),
        ("torch._dynamo.skip_frame()", "skip_frame"),
    ],
)
def test_a_skipped_frame_has_a_kind_and_a_way_out(body: str, kind: str, tmp_path: Path) -> None:
    program = f"""
        class Own:
            def __enter__(self): return self
            def __exit__(self, *_): return None

        def helper(x):
            return x.sin()

        @entry
        def run(x):
            {body}
            return helper(x)
    """
    report = run_program(tmp_path, program, PLAIN_ENTRY)
    (skipped,) = report.skipped
    assert skipped.kind == kind
    assert skipped.way_out
    functions = {frame.id: frame.function for frame in report.frames}
    assert [functions[frame] for frame in skipped.callees] == ["helper"]


def test_one_cause_has_one_name_and_lists_its_other_names(tmp_path: Path) -> None:
    (graph_break,) = run_program(tmp_path, PROGRAMS["branch on data"], PLAIN_ENTRY).breaks
    assert (graph_break.gb_type, graph_break.gb_id) == ("Data-dependent branching", "GB0170")
    assert "generic_jump TensorVariable()" in graph_break.also_reported_as
    assert "Dynamic control flow is not supported at the moment" in graph_break.also_reported_as
