"""Questions such as ``torch.compiler.is_compiling()``, and the lines that the answer decides."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch

import jupyter_graphbreak
from tests.programs.paths import questions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak.results import Report

ONES = torch.ones(3)
FUNCTIONS = [
    function
    for name, function in inspect.getmembers(questions, inspect.isfunction)
    if function.__module__ == questions.__name__ and name != "compiled_here"
]


@pytest.fixture(autouse=True)
def reset_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def report_of(function: Callable[..., Any], **options: Any) -> Report:
    compiled = torch.compile(function, backend="eager", **options)
    with jupyter_graphbreak.capture() as run:
        compiled(ONES)
    return run.report


def marked_lines(function: Callable[..., Any], word: str) -> list[int]:
    """Return the lines of a function with a word in their comment."""
    lines, first = inspect.getsourcelines(function)
    return [number for number, line in enumerate(lines, first) if re.search(rf"#.*\b{word}\b", line)]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_path_has_exactly_the_lines_that_the_answer_decides(function: Callable[..., Any]) -> None:
    report = report_of(function)
    assert [path.location.line for path in report.paths if path.location] == marked_lines(function, "asks")
    assert [line.line for path in report.paths for line in path.lines] == marked_lines(function, "compiled")
    assert [line.line for path in report.paths for line in path.skipped] == marked_lines(function, "skipped")
    assert {(path.compiled, path.eager) for path in report.paths} <= {("True", "False")}


def add_one_unless_exporting(x: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_exporting():
        return x
    return x + 1


def test_a_question_is_listed_only_if_this_release_answers_it_differently_when_compiled() -> None:
    answers_differ = not torch.equal(
        torch.compile(add_one_unless_exporting, backend="eager")(ONES), add_one_unless_exporting(ONES)
    )  # the answers differ in torch 2.9
    torch._dynamo.reset()
    assert [path.location.line for path in report_of(add_one_unless_exporting).paths if path.location] == (
        [add_one_unless_exporting.__code__.co_firstlineno + 1] if answers_differ else []
    )


def test_a_helper_that_asks_decides_branches_of_its_callers() -> None:
    def first(x: torch.Tensor) -> torch.Tensor:
        return x.sin() if questions.compiled_here() else x.cos()

    def call(x: torch.Tensor) -> torch.Tensor:
        y = first(x)
        if not questions.compiled_here():
            y = y + 1
        return y

    report = report_of(call)
    line = first.__code__.co_firstlineno
    lines_that_ask = marked_lines(questions.compiled_here, "asks")
    assert [path.location.line for path in report.paths if path.location] == lines_that_ask * 2
    decided_lines = [
        (path.branch.line, [location.line for location in path.lines], [location.line for location in path.skipped])
        for path in report.paths
        if path.branch
    ]
    assert decided_lines == [(line + 1, [line + 1], []), (line + 5, [], [line + 6])]
    name = "test_paths.py"
    assert f"{name}:{line + 1} in first calls torch.compiler.is_compiling() through questions.py" in " ".join(
        report.to_text().split()
    )


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("two_arms", "lines {1} and {2} run instead of line {4} because the code is compiled"),
        ("only_eager_work", "line {1} is skipped because the code is compiled"),
        ("a_loop_that_only_runs_eagerly", "lines {1} and {2} are skipped because the code is compiled"),
        ("conditional_expression", "part of line {0} runs only because the code is compiled"),
        (
            "a_loop_whose_test_continues_only_when_compiled",
            "part of line {0} and line {1} run only because the code is compiled",
        ),
        ("a_question_in_a_with_block", "line {1} runs only because the code is compiled"),
    ],
)
def test_the_report_says_what_the_answer_changes(name: str, effect: str) -> None:
    function = getattr(questions, name)
    (first_line,) = marked_lines(function, "asks")
    assert effect.format(*range(first_line, first_line + 5)) in " ".join(report_of(function).to_text().split())


def test_questions_in_libraries_are_reported() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([parameter], capturable=False)

    def step() -> None:
        parameter.grad = torch.ones(2)
        optimizer.step()

    compiled = torch.compile(step, backend="eager")
    with jupyter_graphbreak.capture() as run:
        compiled()
    names = {source.id: source.name for source in run.report.sources}
    asking_files = {names[path.location.source] for path in run.report.paths if path.location is not None}
    assert "optimizer.py" in asking_files
    assert all(path.function.startswith("torch.compiler.") for path in run.report.paths)


def test_the_program_gets_the_same_answers_and_the_same_error() -> None:
    def ask(x: torch.Tensor) -> tuple[torch.Tensor, bool, bool]:
        answer = questions.compiled_here()
        if not answer:
            return x, answer, answer
        return x + 1, answer, not answer

    def fail(x: torch.Tensor) -> torch.Tensor:
        if questions.compiled_here():
            torch._dynamo.graph_break()
        return x

    plain_result = torch.compile(ask, backend="eager")(ONES)
    torch._dynamo.reset()
    with jupyter_graphbreak.capture() as outer, jupyter_graphbreak.capture() as inner:
        observed_result = torch.compile(ask, backend="eager")(ONES)
    assert plain_result[1:] == observed_result[1:] == (True, False)
    assert torch.equal(plain_result[0], observed_result[0])
    assert len(outer.report.paths) == len(inner.report.paths) == 1
    assert [line.line for path in inner.report.paths for line in path.lines] == [ask.__code__.co_firstlineno + 4]
    assert inner.report.paths[0].lines == outer.report.paths[0].lines

    compiled = torch.compile(fail, backend="eager", fullgraph=True)

    def traceback_names() -> list[str]:
        torch._dynamo.reset()
        with pytest.raises(Exception, match="graph_break") as caught:
            compiled(ONES)
        return [entry.name for entry in caught.traceback]

    plain_frames = traceback_names()
    with jupyter_graphbreak.capture():
        assert traceback_names() == plain_frames


def test_a_redacted_path_contains_none_of_the_users_names() -> None:
    report = report_of(questions.two_arms)
    path = report.redacted().paths[0]
    assert (path.function, path.compiled, path.eager) == ("torch.compiler.is_compiling", "True", "False")
    assert path.location is not None
    assert path.location.code is None
    hostile_report = report.from_dict(
        report.to_dict() | {"paths": [report.to_dict()["paths"][0] | {"function": "my.secret"}]}
    )
    assert "secret" not in hostile_report.redacted().to_json().decode()
