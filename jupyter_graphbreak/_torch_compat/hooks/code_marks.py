"""Make the code that Dynamo creates report when it is entered or left, and when it calls a resume function."""

from __future__ import annotations

import contextlib
import importlib
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal

from jupyter_graphbreak._torch_compat.patching import report_to_run
from jupyter_graphbreak.faults import with_fallback
from jupyter_graphbreak.records.attributes import is_hashable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

#: When code calls a mark: "entered" after its guards have passed, "resumes" before it calls a resume function, "left"
#: before it returns. "marked" directly follows "entered": the time between the two is the cost of a mark.
Moment = Literal["entered", "marked", "resumes", "left"]
_RESUME_GLOBAL_PREFIX = "__resume_at_"


@contextlib.contextmanager
def mark_compiled_code(mark: Callable[[Moment], Callable[[], None]]) -> Iterator[None]:
    """Make all code that Dynamo creates on this thread in the context call a function at each :data:`Moment`.

    If this PyTorch creates code in a different way, the code stays unchanged, and the run notes that.

    Parameters
    ----------
    mark : callable
        Called while code is created, as part of the compiler; returns the function that the code calls, which must be
        passed to :func:`~jupyter_graphbreak._torch_compat.compiled.skip_functions`.
    """
    convert_frame = importlib.import_module("torch._dynamo.convert_frame")
    thread = get_ident()

    def insert_marks(_: CodeType, code: CodeType) -> CodeType | None:
        return _add_marks(code, mark) if get_ident() == thread else None

    hook = with_fallback("marking compiled code", insert_marks, lambda *_: None, report_to_run)
    handle = convert_frame.register_bytecode_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def _add_marks(code: CodeType, mark: Callable[[Moment], Callable[[], None]]) -> CodeType:
    transformation = importlib.import_module("torch._dynamo.bytecode_transformation")

    def instructions_for_call(moment: Moment) -> list[Any]:
        return [
            *transformation.add_push_null(transformation.create_load_const(mark(moment), checked=False)),
            *transformation.create_call_function(0, push_null=False),
            transformation.create_instruction("POP_TOP"),
        ]

    def insert_marks(instructions: list[Any], _: dict[str, Any]) -> None:
        is_entered = False
        # In one pass: code that rebuilds large containers has tens of thousands of instructions.
        new_instructions: list[Any] = []
        for instruction in instructions:
            if instruction.opname == "LOAD_GLOBAL" and str(instruction.argval).startswith(_RESUME_GLOBAL_PREFIX):
                new_instructions += instructions_for_call("resumes")
            elif instruction.opname in {"RETURN_VALUE", "RETURN_CONST"}:
                new_instructions += instructions_for_call("left")
            new_instructions.append(instruction)
            if instruction.opname == "RESUME" and not is_entered:
                new_instructions += [*instructions_for_call("entered"), *instructions_for_call("marked")]
                is_entered = True
        instructions[:] = new_instructions

    # PyTorch caches instructions by the hash of their code, but Dynamo's code may have a dict among its constants.
    constants = tuple(part if is_hashable(part) else _UnhashableConstant(part) for part in code.co_consts)
    result = transformation.transform_code_object(code.replace(co_consts=constants), insert_marks)
    new_code: CodeType = result[0] if isinstance(result, tuple) else result
    constants = tuple(part.constant if type(part) is _UnhashableConstant else part for part in new_code.co_consts)
    return new_code.replace(co_consts=constants)


class _UnhashableConstant:
    """Stands for a constant that has no hash."""

    def __init__(self, constant: Any) -> None:
        self.constant = constant
