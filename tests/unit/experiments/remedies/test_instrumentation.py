"""Instrumented source text records the results of conditions during a run, and otherwise does the same."""

from __future__ import annotations

import ast
import builtins

import pytest

from jupyter_graphbreak.experiments.families.proposal import Condition
from jupyter_graphbreak.experiments.remedies.original import RECORDER_NAME, instrument_text, record_test_results

TEXT = """
def f(x, ä="ü"):
    if x > 3 and ä: y = "big"  # ü before
    elif not (x <
              0):
        y = "small"
    else:
        y = "negative"
    return y + ("!" if "ü" in ä and x == 5 else "?")
"""


def conditions(text: str) -> dict[int, Condition]:
    nodes = [node.test for node in ast.walk(ast.parse(text)) if isinstance(node, ast.If | ast.IfExp | ast.While)]
    tests = [Condition.of("", node) for node in nodes]
    return dict(enumerate(sorted(tests, key=lambda test: (test.line, test.column))))


def condition(column: int, end_column: int) -> Condition:
    return Condition("", 1, column, 1, end_column)


def test_the_results_of_several_runs_are_recorded() -> None:
    tests = conditions(TEXT)
    scope: dict[str, object] = {}
    exec(compile(instrument_text(TEXT, tests), "f", "exec"), scope)
    f = scope["f"]
    assert callable(f)
    with record_test_results() as results:
        assert [f(5), f(1)] == ["big!", "small?"]
        assert dict(results) == {0: {True, False}, 1: {True}, 2: {True, False}}
        assert f(-1) == "negative?"
    assert results[1] == {True, False}


def test_instrumented_text_keeps_its_lines() -> None:
    instrumented_text = instrument_text(TEXT, conditions(TEXT))
    assert len(instrumented_text.splitlines()) == len(TEXT.splitlines())
    assert instrumented_text.splitlines()[2] == f'    if {RECORDER_NAME}(0, (x > 3 and ä)): y = "big"  # ü before'


@pytest.mark.parametrize(
    ("text", "tests"),
    [
        ("a if b else c", [condition(0, 13), condition(5, 6)]),
        (
            "b if b else b",
            [condition(0, 13), condition(0, 1), condition(12, 13), condition(5, 6)],
        ),
        ("b", [condition(0, 1)]),
    ],
)
def test_nested_conditions_are_recorded(text: str, tests: list[Condition]) -> None:
    instrumented_text = instrument_text(text, dict(enumerate(tests)))
    with record_test_results() as results:
        value = eval(instrumented_text, {"a": 1, "b": 2, "c": 0})
    assert value is True
    assert set(results) == set(range(len(tests))) - ({2} if len(tests) == 4 else set())


def test_a_value_is_converted_to_bool_once_and_its_errors_are_raised() -> None:
    class CountingBool:
        times = 0

        def __bool__(self) -> bool:
            self.times += 1
            return False

    class FailingBool:
        def __bool__(self) -> bool:
            raise ValueError("ambiguous")

    counting_bool = CountingBool()
    instrumented_text = instrument_text("1 if value else 2", {0: condition(5, 10)})
    with record_test_results() as results:
        assert eval(instrumented_text, {"value": counting_bool}) == 2
    with record_test_results(), pytest.raises(ValueError, match="ambiguous"):
        eval(instrumented_text, {"value": FailingBool()})
    assert (counting_bool.times, dict(results)) == (1, {0: {False}})


def test_code_that_is_not_a_test_is_recorded_if_it_is_evaluated() -> None:
    instrumented_text = instrument_text("[b for _ in a]", {0: Condition("", 1, 1, 1, 2, required_results=())})
    with record_test_results() as results:
        assert eval(instrumented_text, {"a": [], "b": 2}) == []
        assert not results
        assert eval(instrumented_text, {"a": [1], "b": [3, 4]}) == [[3, 4]]
    assert dict(results) == {0: {None}}


def test_the_recorder_is_removed_from_builtins() -> None:
    with record_test_results():
        assert hasattr(builtins, RECORDER_NAME)
    assert not hasattr(builtins, RECORDER_NAME)
