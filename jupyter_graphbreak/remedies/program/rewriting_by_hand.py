"""A function that somebody wrote in place of another, as a change of that one's source."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.remedies.program.change import Change

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.remedies.program.application import Program

#: The first line of a function, its decorators aside.
_DEFINES = re.compile(r"\s*(?:async\s+)?def\s")


def as_change(program: Program, function: Callable[..., Any], instead: Callable[..., Any]) -> Change:
    """Return a function in place of another as a change of the source; no change, where that is not known.

    Parameters
    ----------
    program : Program
    function : callable
        The one that is there.
    instead : callable
        The one that somebody wrote. Its decorators are left out, those of the other one stay.
    """
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    if code is None:
        return Change()
    source = next((ident for ident, name in program.files.items() if name == code.co_filename), None)
    if source is None or source not in program.texts:
        return Change()
    lines = program.texts[source].split("\n")
    try:
        old = [line.rstrip("\n") for line in inspect.getblock([f"{x}\n" for x in lines[code.co_firstlineno - 1 :]])]
        new = textwrap.dedent(inspect.getsource(instead)).rstrip("\n").split("\n")
    except (OSError, TypeError, SyntaxError):
        return Change()
    old_start, new_start = _definition(old), _definition(new)
    if old_start is None or new_start is None:  # a lambda
        return Change()
    indent = old[0][: len(old[0]) - len(old[0].lstrip())]
    named = re.compile(rf"(\s*(?:async\s+)?def\s+){re.escape(instead.__name__)}\b")
    body = [f"{indent}{line}" if line else line for line in new[new_start:]]
    body[0] = named.sub(rf"\g<1>{function.__name__}", body[0])
    first = code.co_firstlineno - 1
    made = [*lines[: first + old_start], *body, *lines[first + len(old) :]]
    return Change({source: "\n".join(made)})


def _definition(lines: list[str]) -> int | None:
    return next((index for index, line in enumerate(lines) if _DEFINES.match(line)), None)
