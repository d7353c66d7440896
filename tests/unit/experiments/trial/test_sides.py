"""The sides of conditions that a run takes: the changed text notes them, and does what the text did."""

from __future__ import annotations

import ast
import builtins

import pytest

from jupyter_graphbreak.experiments.remedies.original import (
    RECORDER_NAME,
    ConditionRange,
    instrumented_text,
    record_sides,
)

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


def conditions(text: str) -> list[ConditionRange]:
    nodes = [node.test for node in ast.walk(ast.parse(text)) if isinstance(node, ast.If | ast.IfExp | ast.While)]
    found = [ConditionRange(node.lineno, node.col_offset, *end(node)) for node in nodes]
    return sorted(found, key=lambda test: (test.line, test.column))


def end(node: ast.expr) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def test_both_sides_are_noted_over_several_runs() -> None:
    tests = conditions(TEXT)
    scope: dict[str, object] = {}
    exec(compile(instrumented_text(TEXT, tests), "f", "exec"), scope)  # noqa: S102 - our own text
    f = scope["f"]
    assert callable(f)
    with record_sides() as taken:
        assert [f(5), f(1)] == ["big!", "small?"]
        assert dict(taken) == {0: {True, False}, 1: {True}, 2: {True, False}}
        assert f(-1) == "negative?"
    assert taken[1] == {True, False}


def test_lines_stay_where_they_are() -> None:
    changed = instrumented_text(TEXT, conditions(TEXT))
    assert len(changed.splitlines()) == len(TEXT.splitlines())
    assert changed.splitlines()[2] == f'    if {RECORDER_NAME}(0, (x > 3 and ä)): y = "big"  # ü before'


@pytest.mark.parametrize(
    ("text", "tests"),
    [
        ("a if b else c", [ConditionRange(1, 0, 1, 13), ConditionRange(1, 5, 1, 6)]),
        (
            "b if b else b",
            [
                ConditionRange(1, 0, 1, 13),
                ConditionRange(1, 0, 1, 1),
                ConditionRange(1, 12, 1, 13),
                ConditionRange(1, 5, 1, 6),
            ],
        ),
        ("b", [ConditionRange(1, 0, 1, 1)]),
    ],
)
def test_nested_conditions_are_noted(text: str, tests: list[ConditionRange]) -> None:
    changed = instrumented_text(text, tests)
    with record_sides() as taken:
        value = eval(changed, {"a": 1, "b": 2, "c": 0})  # noqa: S307 - our own text
    assert value is True
    assert set(taken) == set(range(len(tests))) - ({2} if len(tests) == 4 else set())


def test_the_value_is_tested_once_and_its_errors_are_raised() -> None:
    class Asked:
        times = 0

        def __bool__(self) -> bool:
            self.times += 1
            return False

    class Refusing:
        def __bool__(self) -> bool:
            raise ValueError("ambiguous")

    asked = Asked()
    changed = instrumented_text("1 if asked else 2", [ConditionRange(1, 5, 1, 10)])
    with record_sides() as taken:
        assert eval(changed, {"asked": asked}) == 2  # noqa: S307 - our own text
    with record_sides(), pytest.raises(ValueError, match="ambiguous"):
        eval(changed, {"asked": Refusing()})  # noqa: S307 - our own text
    assert (asked.times, dict(taken)) == (1, {0: {False}})


def test_the_evaluation_of_code_that_is_no_test_is_noted_and_its_value_is_kept() -> None:
    changed = instrumented_text("[b for _ in a]", [ConditionRange(1, 1, 1, 2, is_test=False)])
    with record_sides() as taken:
        assert eval(changed, {"a": [], "b": 2}) == []  # noqa: S307 - our own text
        assert not taken
        assert eval(changed, {"a": [1], "b": [3, 4]}) == [[3, 4]]  # noqa: S307 - our own text
    assert dict(taken) == {0: {None}}


def test_nothing_is_left_in_python_itself() -> None:
    with record_sides():
        assert hasattr(builtins, RECORDER_NAME)
    assert not hasattr(builtins, RECORDER_NAME)
