"""PyTorch's messages about a break, as its releases have written them."""

from __future__ import annotations

import pytest

from jupyter_graphbreak.analysis.messages import parse_break, parse_error, parse_reason
from jupyter_graphbreak.records.records import StackFrame

CAUSE = """Call to `torch._dynamo.graph_break()`
  Explanation: User-inserted graph break. Message: None
  Hint: Remove the `torch._dynamo.graph_break()` call.

  Developer debug context: Called `torch._dynamo.graph_break()` with args `[]`, kwargs `{}`

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0025.html"""
LOOP = """graph break in loop
  Explanation: torch.compile detected a graph break in a for/while loop.
      Second line of it.
  Hint: This graph break may have been caused by an earlier graph break. Resolve that first.

  Developer debug context: frame skipped: f (a.py line 3)

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb7000.html"""
CHAINED_MESSAGE = f"{CAUSE}\n\n*** While handling this graph break, another graph break occurred: ***\n\n{LOOP}"
TRACEBACK = """User code traceback:
  File "/a b/cell.py", line 12, in fn
    y = inner(x)
        ^^^^^^^^
  File "/a b/cell.py", line 4, in inner
    torch._dynamo.graph_break()

Traceback (most recent call last):
  File "/site-packages/torch/_dynamo/symbolic_convert.py", line 1, in wrapper
    return inner_fn(self, inst)
"""


def break_message(reason: str, blank: str = "\n") -> str:
    return f"Graph break in user code at /a b/cell.py:4\nGraph Break Reason: {reason}\n{blank}{TRACEBACK}"


@pytest.mark.parametrize("blank", ["", "\n", "\nStack variable source attribution:\n  a <- b\n\n"])
@pytest.mark.parametrize(
    ("opening", "continuation"),
    [
        ("", None),
        ("Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):\n\n", "resume"),
        (
            "Encountered graph break that we cannot resume from. Compiling up to the previous resumable state, "
            "then skipping the rest of the function. Graph break encountered:\n\n",
            "rest eager",
        ),
        (
            "Failed to handle graph break gracefully. Skipping the function and falling back to eager. "
            "Graph break encountered:\n\n",
            "skip",
        ),
    ],
)
def test_the_cause_is_parsed_with_any_surrounding_text(opening: str, continuation: str | None, blank: str) -> None:
    message = parse_break(break_message(opening + CAUSE, blank))
    assert message.cause.gb_id == "GB0025"
    assert message.cause.gb_type == "Call to `torch._dynamo.graph_break()`"
    assert message.cause.explanation == "User-inserted graph break. Message: None"
    assert message.cause.hints == ["Remove the `torch._dynamo.graph_break()` call."]
    assert message.cause.context == "Called `torch._dynamo.graph_break()` with args `[]`, kwargs `{}`"
    assert message.continuation == continuation
    assert (message.file, message.line) == ("/a b/cell.py", 4)
    assert message.stack == [StackFrame("/a b/cell.py", 12, "fn"), StackFrame("/a b/cell.py", 4, "inner")]


def test_cause_and_consequence_are_distinguished() -> None:
    message = parse_break(break_message("Failed to handle graph break gracefully. Skipping:\n\n" + CHAINED_MESSAGE))
    assert (message.cause.gb_id, message.cause.gb_type) == ("GB0025", "Call to `torch._dynamo.graph_break()`")
    assert message.consequence is not None
    assert (message.consequence.gb_id, message.consequence.gb_type) == ("GB7000", "graph break in loop")
    assert message.consequence.explanation is not None
    assert message.consequence.explanation.endswith("Second line of it.")


def test_the_message_of_an_error_has_a_location_and_a_reason() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/x.py", line 1, in f\n    g()\n'
        f"torch._dynamo.exc.Unsupported: {CAUSE}\n\nfrom user code:\n"
        '   File "/cell.py", line 3, in fn\n    torch._dynamo.graph_break()\n\nSet TORCHDYNAMO_VERBOSE=1 for more\n'
    )
    message = parse_error(text)
    assert message.cause.gb_id == "GB0025"
    assert (message.file, message.line) == ("/cell.py", 3)


def test_an_exception_without_a_registry_entry_is_called_by_its_class() -> None:
    text = (
        "Traceback (most recent call last):\n"
        "torch._dynamo.exc.TorchRuntimeError: Dynamo failed to run FX node\nsize mismatch\n\n"
        'from user code:\n   File "/cell.py", line 8, in fn\n    x @ y\n'
    )
    message = parse_error(text)
    assert message.cause.gb_type == "TorchRuntimeError"
    assert message.cause.gb_id is None
    assert message.cause.explanation == "Dynamo failed to run FX node\nsize mismatch"
    assert message.line == 8


def test_an_old_message_has_the_current_name_of_its_cause() -> None:
    text = "Logger not supported for non-export cases. To avoid graph breaks caused by logger in compile-mode, ..."
    cause = parse_break(break_message(text), "Unsupported").cause
    assert (cause.gb_type, cause.gb_id) == ("logging.Logger method not supported for non-export cases", None)
    assert cause.explanation == text


def test_the_reason_of_a_skipped_call_leaves_out_the_code_object() -> None:
    reason = "Skip frame due to `torch._dynamo.skip_frame()`. Message: None"
    text = f'SKIPPED INLINING <code object inner at 0x7f, file "/tmp/ipykernel_1/2.py", line 3>: {reason}'
    assert parse_break(break_message(text), "Unsupported").cause.explanation == reason


def test_a_message_without_a_header_is_parsed() -> None:
    text = 'Graph break: skip: from user code at:\n  File "/cell.py", line 5, in fn\n    loop()\n\n'
    message = parse_break(text)
    assert (message.continuation, message.line) == ("skip", 5)


@pytest.mark.parametrize("text", ["", "?", "Graph Break Reason: ", "  Explanation:", "\n\n***", "<b>&"])
def test_no_message_makes_the_parser_raise(text: str) -> None:
    for parsed in (parse_break(text), parse_error(text), parse_reason(text)):
        assert parsed.cause.gb_type


def test_a_violated_constraint_is_at_the_line_that_made_the_size_constant() -> None:
    reason = (
        "Constraints violated (L['x'].size()[1])! For more information, run with TORCH_LOGS=\"+dynamic\".\n"
        "  - You marked L['x'].size()[1] as dynamic but your code specialized it to be a constant (12).\n\n"
        'User stack:\n  File "/a b/cell.py", line 12, in fn\n    y = inner(x)\n        ^^^^^^^^\n'
        '  File "/a b/cell.py", line 4, in inner\n    return x + position\n           ^^^^^^^^^^^^\n\n'
    )
    text = f'Traceback (most recent call last):\n  File "/torch/a.py", line 1, in f\nConstraintViolationError: {reason}'
    message = parse_error(text)
    assert message.cause.gb_type == "ConstraintViolationError"
    assert (message.cause.explanation or "").startswith("You marked L['x'].size()[1] as dynamic")
    assert (message.file, message.line) == ("/a b/cell.py", 4)
    assert message.stack == [StackFrame("/a b/cell.py", 12, "fn"), StackFrame("/a b/cell.py", 4, "inner")]
