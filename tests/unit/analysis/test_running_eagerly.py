"""The reason why a function runs eagerly, and advice about loops and wrappers."""

from __future__ import annotations

import pytest

from jupyter_graphbreak.analysis.aftermath import block_enclosing_variadic_calls, skip_reason_of_break
from jupyter_graphbreak.analysis.breaks import advise
from jupyter_graphbreak.analysis.messages import Cause
from jupyter_graphbreak.report.location import Segment, Source
from jupyter_graphbreak.report.schema import Reason


@pytest.mark.parametrize(
    ("gb_type", "kind"),
    [
        ("Attempt to trace generator", "generator"),
        ("Generator reconstruction with mutations", "other"),
        ("infinite generator detected", "other"),
        ("torch.Generator method", "other"),
        ("call_method on generator", "other"),
    ],
)
def test_only_a_directly_compiled_generator_is_reported_as_generator(gb_type: str, kind: str) -> None:
    reason = skip_reason_of_break(Cause(gb_type, "GB0001"), None, None)
    assert reason.kind == kind
    assert ("a generator cannot be compiled" in reason.sentence) == (kind == "generator")


def test_advice_for_a_loop_says_which_parts_are_compiled() -> None:
    loop = Reason("GB7000", "graph break in loop")
    (advice,) = advise(Cause("Call to `torch._dynamo.graph_break()`", "GB0025"), loop)
    assert advice.text == (
        "or move the loop's body into its own function: the body is then compiled, up to the break and after it, and "
        "only the loop itself runs eagerly; to keep the code around the loop compiled, also move the loop into its own "
        "function"
    )


WRAPPERS = """\
def first(*args, **kwargs):
    for each in args:
        log(each)
    try:
        return function(*args, **kwargs)
    finally:
        log("left")

def second(*args):
    for _ in range(2):
        function(*args)
    return function(*args)

def third(*args):
    return function(args)
"""


@pytest.mark.parametrize(("line", "name", "block"), [(1, "first", "try"), (9, "second", None), (14, "third", None)])
def test_a_block_is_reported_if_it_encloses_all_variadic_calls_of_a_function(
    line: int, name: str, block: str | None
) -> None:
    lines_above = 30
    source = Source("s1", "wrappers.py", "file", "wrappers.py", segments=[Segment(1 + lines_above, WRAPPERS)])
    assert block_enclosing_variadic_calls(source, line + lines_above, name) == block
