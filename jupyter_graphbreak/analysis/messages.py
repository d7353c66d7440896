"""Parse the text that PyTorch writes about a graph break.

The formats are those of ``log_graph_break`` in ``torch/_dynamo/symbolic_convert.py`` and of
``format_graph_break_message`` in ``torch/_dynamo/exc.py``, torch 2.9 to 2.15. Two messages about one break can differ
in their opening sentence (the opcode, and whether the frame could resume), so it is separated from the rest.
"""

from __future__ import annotations

import re
import textwrap
from typing import Literal

import msgspec

from jupyter_graphbreak.knowledge.causes import cause_name_of_former_message, known_cause
from jupyter_graphbreak.records.package_paths import PackagePaths
from jupyter_graphbreak.records.records import StackFrame, read_stack, strip_inserted_frames

_NO_FOLDERS = PackagePaths()
# The patterns backtrack only within a line or a few thousand characters, so a malicious text is not slow to parse.
_HEADER = re.compile(r"^Graph break in user code at (?P<file>.{1,4096}):(?P<line>\d{1,9})[ \t]*$", re.MULTILINE)
_REASON_PREFIX = "Graph Break Reason: "
_AFTER_REASON = re.compile(r"\n[ \t]*(?:User code traceback:|Stack variable source attribution)")
_TRACEBACK = re.compile(r"(?:User code traceback:|from user code:?)\s*\n(?P<stack>.*?)(?:\n\n|\Z)", re.DOTALL)
_GB_ID = re.compile(r"(?P<url>https?://\S{0,200}?/gb/(?P<id>gb\d{1,9})\.html)")
_CHAINED_BREAK = re.compile(
    r"\n[ \t]*\*\*\* While handling this graph break, another graph break occurred: \*\*\*\s*\n"
)
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*(?P<type>[A-Z]\w*)(?:: (?P<message>.*))?\Z", re.MULTILINE | re.DOTALL)

#: Torch 2.9 and 2.10 put the code object, with its address and file, before the reason why a call is skipped.
_SKIPPED_INLINING = re.compile(r"\ASKIPPED INLINING <code object [^\n]{0,8192}?, line \d{1,9}>: ")

#: Parts of Dynamo's own traceback that show that it inlines a called function, or traces an instruction.
_INLINING = ", in inline_call\n"
_OPERATION = re.compile(r'^ *File ".*symbolic_convert\.py", line \d+, in ([A-Z][A-Z_0-9]+)$', re.MULTILINE)

#: The message about a size that is marked as dynamic, and constant in the code: a general sentence, the marks, and the
#: stack at which the first of them became constant.
_CONSTRAINT_VIOLATION = re.compile(r"\AConstraints violated [^\n]*\n\s*- (?P<details>.*)", re.DOTALL)
_CONSTRAINT_STACK = "\nUser stack:\n"

# The opening sentences of a message.
_CANNOT_RESUME_SENTENCE = "Encountered graph break that we cannot resume from."
_FAILED_SENTENCE = "Failed to handle graph break gracefully."
_OPENING_SENTENCES = re.compile(
    r"\A(?:Encountered graph break when attempting to trace [^\n]*|"
    + re.escape(_CANNOT_RESUME_SENTENCE)
    + r"[^\n]*|"
    + re.escape(_FAILED_SENTENCE)
    + r"[^\n]*):\n\n"
)

#: The fate of the frame, from the message's opening sentence. ``resume``: a resume function continues after the break;
#: ``rest eager``: the frame runs eagerly from the last possible point before the break; ``skip``: it runs eagerly.
Continuation = Literal["resume", "rest eager", "skip"]


class Cause(msgspec.Struct, frozen=True):
    """The cause of a break in PyTorch's words."""

    gb_type: str
    gb_id: str | None = None
    url: str | None = None
    explanation: str | None = None
    hints: list[str] = []
    context: str | None = None


class BreakMessage(msgspec.Struct, frozen=True):
    """The contents of a message.

    ``consequence`` is the reason why the frame could not resume after the break; ``None`` if it could. ``continuation``
    is the fate of the frame, if the message states it. The outermost frame of the stack comes first. ``operation`` is
    the bytecode instruction of the frame that Dynamo was tracing. ``is_inlined`` tells whether the break is in a
    function that the frame calls.
    """

    cause: Cause
    consequence: Cause | None = None
    continuation: Continuation | None = None
    file: str | None = None
    line: int | None = None
    stack: list[StackFrame] = []
    operation: str | None = None
    is_inlined: bool = False


def parse_break(text: str, exception: str | None = None, packages: PackagePaths = _NO_FOLDERS) -> BreakMessage:
    """Parse the payload of a ``dynamo_graph_break_reason`` artifact.

    If the message has no name for the cause, the class of the underlying exception becomes its name.
    """
    header = _HEADER.search(text)
    reason = _reason_part(text)
    # torch < 2.11 skips a frame without a header: "Graph break: skip: from user code at: ..."
    body = reason if reason is not None else _exception_message(text)
    message = parse_reason(body, exception)
    traced_stack = _stack(text)
    stack = strip_inserted_frames([*traced_stack, *stack_of_backend_failure(message.cause)], packages)
    is_at_header = header is not None and stack == traced_stack
    file, line = (header["file"], int(header["line"])) if header and is_at_header else _innermost_location(stack)
    operation = _OPERATION.search(text)
    return BreakMessage(
        cause=message.cause,
        consequence=message.consequence,
        continuation=_continuation(body) if reason is not None else "skip",
        file=file,
        line=line,
        stack=stack,
        operation=operation[1] if operation is not None else None,
        is_inlined=_INLINING in text,
    )


def parse_error(text: str, exception: str | None = None, packages: PackagePaths = _NO_FOLDERS) -> BreakMessage:
    """Parse the payload of a ``dynamo_error`` artifact: a traceback that ends with the exception's message."""
    stack = strip_inserted_frames(_stack(text), packages)
    match = _last_exception(text)
    name = exception or (match["type"] if match else None)
    message = parse_reason(_exception_message(text), name)
    stack = stack_of_constraint_violation(message.cause) or stack
    file, line = _innermost_location(stack)
    return BreakMessage(message.cause, message.consequence, None, file, line, stack)


def parse_reason(text: str, exception: str | None = None) -> BreakMessage:
    """Parse the message of an exception; it may begin with a sentence about the frame and end with the user's stack."""
    body = _OPENING_SENTENCES.sub("", text)
    body = re.split(r"\nfrom user code:?\s*\n", body, maxsplit=1)[0].rstrip("\n")
    parts = _CHAINED_BREAK.split(body)
    causes = [_cause(part, exception) for part in parts]
    return BreakMessage(causes[0], causes[-1] if len(causes) > 1 else None, _continuation(text))


def stack_of_backend_failure(cause: Cause) -> list[StackFrame]:
    """Return the innermost part of the stack at which the backend failed; the message's own stack ends before it."""
    context = cause.context or ""
    return read_stack(context.partition("\nTraceback:\n")[2]) if context.startswith("Backend: ") else []


def stack_of_constraint_violation(cause: Cause) -> list[StackFrame]:
    """Return the stack, from the frame's function on, at which a size that is marked as dynamic became constant."""
    return read_stack((cause.explanation or "").partition(_CONSTRAINT_STACK)[2].partition("\n\n")[0])


def other_names(cause: Cause, reasons: list[str]) -> list[str]:
    """Return a cause's names in ``torch._dynamo.explain`` and in Dynamo's log: the reasons why a graph ended."""
    internal = [reason for reason in dict.fromkeys(reasons) if "\n" not in reason and reason != cause.gb_type]
    former_names = known_cause(cause.gb_id, cause.gb_type).also_reported_as
    former = [name for name in former_names if not any(name in reason for reason in internal)]
    return [*internal, *former]


def _continuation(reason: str) -> Continuation | None:
    if reason.startswith(_CANNOT_RESUME_SENTENCE):
        return "rest eager"
    if reason.startswith(_FAILED_SENTENCE):
        return "skip"
    if reason.startswith("Encountered graph break when attempting to trace"):
        return "resume"
    return None


def _cause(text: str, exception: str | None) -> Cause:
    link = _GB_ID.search(text)
    head, _, after_explanation = text.strip("\n").partition("\n  Explanation:")
    if not after_explanation and link is None:
        # Not in the registry's format: the text becomes the explanation, and the exception's class becomes the name
        # unless the text is known.
        first = _SKIPPED_INLINING.sub("", head.strip()).replace(" raised:\n", " raised: ", 1)
        name = cause_name_of_former_message(first) or exception
        violation = _CONSTRAINT_VIOLATION.match(first)
        first = violation["details"] if violation is not None else first
        return Cause(gb_type=name or next(iter(first.splitlines()), "unknown"), explanation=first or None)
    head = re.split(r"\n  Higher Order Operator:", head, maxsplit=1)[0]
    body, _, context = after_explanation.partition("\n  Developer debug context:")
    explanation, *hints = re.split(r"\n  Hint:", "\n" + body if body.startswith("  Hint:") else body)
    return Cause(
        gb_type=head.strip().splitlines()[-1] if head.strip() else exception or "unknown",
        gb_id=link["id"].upper() if link else None,
        url=link["url"] if link else None,
        explanation=_unindent(explanation) or None,
        hints=[hint for hint in map(_unindent, hints) if hint],
        context=_unindent(re.split(r"\n[ \t]*For more details about this graph break", context, maxsplit=1)[0]) or None,
    )


def _unindent(text: str) -> str:
    first_line, _, other_lines = text.partition("\n")
    return (first_line.strip() + "\n" + textwrap.dedent(other_lines)).strip()


def _reason_part(text: str) -> str | None:
    """Return the part of a message that explains the break; ``None`` if there is none."""
    start = text.find(_REASON_PREFIX)
    end = _AFTER_REASON.search(text, start) if start >= 0 else None
    return text[start + len(_REASON_PREFIX) : end.start()] if end is not None else None


def _innermost_location(stack: list[StackFrame]) -> tuple[str, int | None] | tuple[None, None]:
    return (stack[-1].filename, stack[-1].line) if stack else (None, None)


def _stack(text: str) -> list[StackFrame]:
    section = _TRACEBACK.search(text)
    if section is None and text.startswith("Graph break: skip: from user code at:"):
        stack = text.split("\nTraceback (most recent call last)", 1)[0]
    else:
        stack = section["stack"] if section else ""
    return read_stack(stack)


def _last_exception(text: str) -> re.Match[str] | None:
    # The message may contain lines that look like exceptions; the actual exception follows the last traceback.
    start = text.rfind("Traceback (most recent call last)")
    tail = text[start:] if start >= 0 else text
    return _EXCEPTION.search(tail.rstrip())


def _exception_message(text: str) -> str:
    match = _last_exception(text)
    return (match["message"] or "") if match else text


def page_url(gb_id: str | None) -> str | None:
    """Return the URL of PyTorch's page on a graph break; ``None`` for a break without a GB id."""
    return f"https://meta-pytorch.github.io/compile-graph-break-site/gb/{gb_id.lower()}.html" if gb_id else None
