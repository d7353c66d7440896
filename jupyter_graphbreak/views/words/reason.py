"""The reason for a graph break, as shown to a reader."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from jupyter_graphbreak.knowledge.causes import known_cause
from jupyter_graphbreak.report.schema import Break
from jupyter_graphbreak.views.words.plain_text import one_line

if TYPE_CHECKING:
    from jupyter_graphbreak.report.diff import BreakChange
    from jupyter_graphbreak.report.job import JobBreak
    from jupyter_graphbreak.report.schema import Reason


#: An identifier, such as "missing_mp_subscript", in place of a phrase.
_IDENTIFIER = re.compile(r"[a-z]+(?:_[a-z]+)+")


def reason_of(cause: Break | Reason | BreakChange | JobBreak) -> str:
    """Return a reason with its GB id or the class of the exception: "Branch on a tensor's value (GB0170)"."""
    title, name = title_of(cause), cause.gb_id or cause.gb_type
    return f"{title} ({name})" if name != title and name.isidentifier() else title


def title_of(cause: Break | Reason | BreakChange | JobBreak) -> str:
    """Return our title of a known cause; otherwise PyTorch's name, or its explanation if the name is an identifier."""
    if not isinstance(cause, Break):
        return _known_title(cause.gb_id, cause.gb_type, None, None)
    code = cause.location.code if cause.location is not None else None
    title = _known_title(cause.gb_id, cause.gb_type, cause.context, code)
    if title == cause.gb_type and _IDENTIFIER.fullmatch(title) and cause.explanation:
        return one_line(cause.explanation).partition(". ")[0].removesuffix(".")
    return title


@lru_cache(maxsize=2048)
def _known_title(gb_id: str | None, gb_type: str, context: str | None, code: str | None) -> str:
    return known_cause(gb_id, gb_type, context, code).title.removesuffix(".")
