"""Code outside the compiled function may read a number that becomes a tensor; the first such line is found."""

from __future__ import annotations

import ast
import textwrap

import pytest

from jupyter_graphbreak.experiments.recompiles.placement import find_reading_line
from jupyter_graphbreak.experiments.trial.call_specs import Path, Root

SCALE = Path(Root("global", "SCALE"))
RATE = Path(Root("module", "self")).child("attribute", "rate")
LR = Path(Root("global", "optimizer")).child("attribute", "param_groups").child("item", 0).child("item", "lr")
ARGUMENT = Path(Root("argument", "k"))


@pytest.mark.parametrize(
    ("path", "line", "expected_line"),
    [
        (SCALE, "print(SCALE)", 5),
        (SCALE, "SCALE = 3", None),
        (SCALE, "later = lambda: SCALE", 5),
        (RATE, "print(net.rate)", 5),
        (RATE, "net.rate()", None),
        (RATE, "net.rate = net.other", None),
        (LR, "print(optimizer.param_groups[0]['lr'])", 5),
        (LR, "print(optimizer.param_groups[0]['betas'])", None),
        (ARGUMENT, "print(k)", None),
    ],
)
def test_a_line_outside_the_function_that_reads_the_number_is_found(
    path: Path, line: str, expected_line: int | None
) -> None:
    text = f"""
    def step():
        return x * SCALE * net.rate * group["lr"]
    def train():
        {line}
    """
    reader = find_reading_line([path], ast.parse(textwrap.dedent(text)), 2)
    assert (reader.line if reader is not None else None) == expected_line
    assert reader is None or reader.path == path


def test_a_reading_line_is_found_in_a_source_without_the_compiled_function() -> None:
    reader = find_reading_line([SCALE], ast.parse("for SCALE in (1, 2):\n    step()\nprint(SCALE)\n"), None)
    assert reader is not None
    assert reader.line == 3
