"""Have the code that Dynamo makes say when it is entered and left, and when it goes on after a break."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

#: Code is entered when it was chosen and its guards hold; it resumes when it calls a resume function; it is left. That
#: it is marked follows at once, so that the time between these two is what a mark takes.
Moment = Literal["entered", "marked", "resumes", "left"]
_RESUME = "__resume_at_"


@contextlib.contextmanager
def marked_code(mark: Callable[[Moment], Callable[[], None]]) -> Iterator[None]:
    """Have all code that Dynamo makes while the context is open call a function at each of its moments.

    Parameters
    ----------
    mark : callable
        Called while code is made, as if it were the compiler; returns what the code calls, which :func:`left_alone`
        must know.
    """
    convert_frame = importlib.import_module("torch._dynamo.convert_frame")
    handle = convert_frame.register_bytecode_hook(lambda _, made: _with_marks(made, mark))
    try:
        yield
    finally:
        handle.remove()


def left_alone(*functions: Callable[..., Any]) -> None:
    """Have Dynamo never look at some functions, which run amid code that it compiled."""
    skip_code = importlib.import_module("torch._dynamo.eval_frame").skip_code
    for function in functions:
        skip_code(function.__code__)


def _with_marks(code: CodeType, mark: Callable[[Moment], Callable[[], None]]) -> CodeType | None:
    """Return code with marks; ``None``, which leaves it as it is, where this torch makes code in another way."""
    home = importlib.import_module("torch._dynamo.bytecode_transformation")

    def call(moment: Moment) -> list[Any]:
        return [
            *home.add_push_null(home.create_load_const(mark(moment), checked=False)),
            *home.create_call_function(0, push_null=False),
            home.create_instruction("POP_TOP"),
        ]

    def insert(instructions: list[Any], _: dict[str, Any]) -> None:
        begun = False
        for instruction in list(instructions):
            place = instructions.index(instruction)
            if instruction.opname == "RESUME" and not begun:
                instructions[place + 1 : place + 1] = [*call("entered"), *call("marked")]
                begun = True
            elif instruction.opname == "LOAD_GLOBAL" and str(instruction.argval).startswith(_RESUME):
                instructions[place:place] = call("resumes")
            elif instruction.opname in {"RETURN_VALUE", "RETURN_CONST"}:
                instructions[place:place] = call("left")

    try:
        made = home.transform_code_object(code, insert)
    except Exception:  # noqa: BLE001 - then the code is what it would be without us
        return None
    found: CodeType = made[0] if isinstance(made, tuple) else made
    return found
