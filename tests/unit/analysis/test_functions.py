"""The last lines of functions that run eagerly, and the heads of loops and conditions."""

from __future__ import annotations

import ast

import pytest

from jupyter_graphbreak.analysis.functions import head_kind, head_kind_of_line
from jupyter_graphbreak.analysis.locations import Sources, SourceText
from jupyter_graphbreak.report.location import Segment

FILE = "/project/model.py"
TEXT = """\
class Model:
    @first
    @second(
        1,
    )
    def forward(
        self,
        x,
    ):
        def inner(y):
            return y

        # a comment at the left
# further left
        total = sum(
            each + 1
            for each in x
        )
        return inner(total)

    # of the next one
    def other(self): ...


shout = lambda x: (
    print(x),
    x + 1,
)


def forward(x):
    return x
"""


def eager_lines(
    line: int, name: str, text: str = TEXT, first_line: int = 1, offset: int = 0, kind: str = "file"
) -> tuple[int, int]:
    """Return the first and the last line of the part of a function that runs eagerly from a line on."""
    source = SourceText(FILE, "model.py", kind, [Segment(first_line, text.rstrip())], line_offset=offset)  # type: ignore[arg-type]
    location = Sources([source]).rest_of_function(FILE, line, name)
    assert location is not None
    return location.line, location.end_line


@pytest.mark.parametrize(
    ("line", "name", "last"),
    [
        (2, "forward", 19),
        (6, "forward", 19),
        (15, "forward", 19),
        (15, "torch_dynamo_resume_in_forward_at_15", 19),
        (10, "inner", 11),
        (16, "<genexpr>", 18),
        (22, "other", 22),
        (25, "<lambda>", 28),
        (31, "forward", 32),
        (15, "unknown", 15),
    ],
)
def test_the_rest_of_a_function_ends_at_its_last_line(line: int, name: str, last: int) -> None:
    assert eager_lines(line, name) == (line, last)


def test_lines_are_counted_as_in_the_editor() -> None:
    assert eager_lines(31, "forward", offset=0) == (31, 32)
    assert eager_lines(1, "f", "%%magic\ndef f(x):\n    return (\n        x\n    )", offset=1) == (2, 5)


@pytest.mark.parametrize(("line", "last"), [(4, 14), (9, 9)])
def test_indentation_ends_a_function_with_missing_lines(line: int, last: int) -> None:
    broken = "    @wrapped\n    def f(\n        self,\n        x,\n        if x:\n# out\n            y = 1\n\n"
    broken += "    # of g\n            z = (\n        )\n    @wrapped\n    def g(self): ..."
    assert eager_lines(line, "f", broken, first_line=4) == (line, last)


def test_a_cell_compiled_as_a_function_ends_at_its_last_line() -> None:
    cell = "%%compile_explain\nimport torch\nx = torch.ones(3)\nif x.sum() > 0:\n    x = -x\n\n"
    assert eager_lines(2, "cell", cell, offset=1, kind="cell") == (3, 5)


def test_without_source_text_the_rest_of_a_function_is_one_line() -> None:
    location = Sources([]).rest_of_function(FILE, 7, "forward")
    assert location is not None
    assert (location.line, location.end_line) == (7, 7)
    assert Sources([]).rest_of_function(FILE, None, "forward") is None


HEADS = """\
def f(x):
    with (
        first(),
        second(),
    ):
        x = x.sum() + x.max()
    while (
        x.sum() < 9
    ):
        x += 1
    for y in zip(x.tolist(), x.tolist()):
        x += y
    return 1 if x > 0 and x > 1 else 2
"""


def test_lines_that_python_may_execute_a_second_time_are_found() -> None:
    sources = Sources([SourceText(FILE, "model.py", "file", [Segment(1, HEADS)])])
    for is_branch, expected in ((False, [2, 3, 4, 5, 7, 8, 9]), (True, [2, 3, 4, 5, 7, 8, 9, 13])):
        assert [line for line in range(1, 14) if sources.is_reached_again(FILE, line, is_branch)] == expected
    assert sources.is_reached_again("/unknown.py", 1, is_branch=False)  # its source is unknown


@pytest.mark.parametrize(
    ("text", "line", "kind"),
    [
        ("for t in range(n):\n    x = x + t", 1, "loop"),
        ("for t in range(n):\n    x = x + t", 2, None),
        ("for piece in x.split(2): total = total + piece.sum()", 1, "loop"),
        ("for row in x: total = total + row", 1, "loop"),
        ("for block in self.blocks: x = block(x, epoch / 10)", 1, None),
        ("for a, b in zip(\n    range(n),\n    c,\n):\n    pass", 2, "loop"),
        ("async def f():\n    async for t in g(n):\n        pass", 2, "loop"),
        ("while i < x.shape[0]:\n    i += 1", 1, "loop"),
        ("parts = [f(piece) for piece in x.split(2)]", 1, "loop"),
        ("parts = {i: x[i] for i in range(n)}", 1, "loop"),
        ("parts = [\n    float(x.shape[0]) * part\n    for part in parts\n]", 2, None),
        ("y = x if x.shape[0] > 3 else -x", 1, "condition"),
        ("if a:\n    pass\nelif x.shape[0] == 5:\n    pass", 3, "condition"),
        ("assert x.shape[0] == 5", 1, "condition"),
        ("if any(x[i] for i in range(n)):\n    pass", 1, "loop"),
        ("n = int(x.shape[0])", 1, None),
    ],
)
def test_lines_in_the_head_of_a_loop_or_condition_are_recognized(text: str, line: int, kind: str | None) -> None:
    assert head_kind(ast.parse(text), line) == kind


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("for t in range(n):", "loop"),
        ("elif x.shape[0] == 5:", "condition"),
        ("if x.shape[0] in (5, 6):", "condition"),
        ("if x.shape not in self.cache:", None),
        ("else:", None),
        ("f(x,", None),
        ("total = sum(part for part in x.split(2))", "loop"),
    ],
)
def test_a_head_is_recognized_from_its_line_alone(code: str, kind: str | None) -> None:
    assert head_kind_of_line(code) == kind
