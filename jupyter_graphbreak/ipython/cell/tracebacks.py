"""Make the error of a cell that ran as a function look like that of any cell."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def trim(error: BaseException, is_cell: Callable[[str], bool]) -> None:
    """Take the frames between the notebook and the cell's own off an error's traceback.

    Parameters
    ----------
    error : BaseException
    is_cell : callable
        Whether a function of this name is the cell, or goes on with it after a break.
    """
    if error.__traceback__ is None:
        return
    filename = error.__traceback__.tb_frame.f_code.co_filename
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        pending += [each.__cause__, each.__context__]
        kept = None
        entry = each.__traceback__
        while entry is not None:
            code = entry.tb_frame.f_code
            if code.co_filename == filename and is_cell(code.co_name):
                kept = entry
            entry = entry.tb_next
        if kept is not None:
            each.__traceback__ = _at_module_level(kept)


def _at_module_level(entry: types.TracebackType) -> types.TracebackType:
    """Return the entry of a traceback as if its line stood in the cell itself.

    Not only for its looks: IPython hashes the code of each frame, and Dynamo's has constants that have no hash.
    """
    code, namespace = entry.tb_frame.f_code, entry.tb_frame.f_globals
    stand_in = compile("\n" * (entry.tb_lineno - 1) + "raise StopIteration", code.co_filename, "exec")
    try:
        exec(stand_in, namespace)  # noqa: S102 - the line above
    except StopIteration as raised:
        made = raised.__traceback__
        frame = made.tb_next if made is not None else None
        if frame is not None:
            return types.TracebackType(entry.tb_next, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return entry
