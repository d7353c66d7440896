"""List the recompiles: the guards that failed, and the recompiles that a limit prevented."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jupyter_graphbreak.records.records import compiled_function, read_stack
from jupyter_graphbreak.report.schema import GuardFailure, Recompile

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.ledger import Ledger
    from jupyter_graphbreak.analysis.locations import Sources


#: The file of the function that PyTorch compiles instead of a callable object, or of a module whose ``forward`` is
#: PyTorch's own, such as a ``Sequential``; and the variable in that function that holds the object.
_WRAPPER_FILE = "torch/_dynamo/external_utils.py"
_WRAPPED_OBJECT = re.compile(r"(?<![\w.\]])fn(?=\.(?!__))")


def list_recompiles(ledger: Ledger, sources: Sources) -> list[Recompile]:
    """Return the recompiles of a run, including those that a limit prevented."""
    recompiles: list[Recompile] = []
    for frame in ledger.frames:
        is_refused = frame.refusal is not None
        if frame.key.compile == 0 and not is_refused:
            continue
        name, filename, line = ledger.refused_code(frame) if is_refused or not frame.is_started else frame.code
        reasons = frame.recompile_reasons
        if filename.endswith(_WRAPPER_FILE):
            reasons = [_WRAPPED_OBJECT.sub("self", reason) for reason in reasons]
        recompiles.append(
            Recompile(
                frame=frame.ident,
                of=ledger.first_compilation_id(frame),
                function=compiled_function(name),
                location=sources.location(filename, line, name) if line else None,
                reasons=[_guard_failure(reason, sources) for reason in reasons],
                limit_hit=is_refused,
                id=f"r{len(recompiles) + 1}",
            )
        )
    return recompiles


def guard_of(reason: str) -> str:
    """Return the guard in a recompile reason, e.g. ``0/0: tensor 'x' size mismatch ...  # line``, without the rest."""
    text = reason.partition("User stack trace:")[0].partition("  # ")[0].strip()
    head, colon, rest = text.partition(": ")
    return rest.strip() if colon and "/" in head and head.replace("/", "").isdigit() else text


#: The end of a guard on a size, and of every guard in releases of PyTorch that record no stack:
#: "  # if x.shape[0] > 10:  # the/end/of/a/path.py:3 in f".
_GUARD_PLACE = re.compile(r"  # (?P<path>[^#\n]+?):(?P<line>\d+) in (?P<function>[\w.<>]+)")
#: A guard that PyTorch adds to every size, whatever the code does: it compiles sizes 0 and 1 separately.
_FRAMEWORK_GUARD = re.compile(r"2 <= [^<>=]+$")


def _guard_failure(reason: str, sources: Sources) -> GuardFailure:
    text = guard_of(reason)
    stack = read_stack(reason.partition("User stack trace:")[2])
    location = sources.place(stack[-1]) if stack else None
    place = _GUARD_PLACE.search(reason) if location is None else None
    if place is not None and not _FRAMEWORK_GUARD.match(text):
        filename = sources.filename_ending_with(place["path"])
        if filename is not None:
            location = sources.location(filename, int(place["line"]), place["function"])
    return GuardFailure(text, location)


_RESULT_FOR_FUNCTION = "only the options of the outer call count"
_RESULT_FOR_MODULE = (
    "the result is a plain function around its forward, without state_dict, parameters or hooks, and only the options "
    "of the outer call count"
)
_RESULT_FOR_OPTIMIZED = "only the options of the inner call count"


def sentence_on_repeated_compiling(name: str, place_in_words: str, *, is_module: bool, stays_module: bool) -> str:
    """Return the sentence about one call of ``torch.compile`` on something that is already compiled.

    Parameters
    ----------
    name : str
        The function, or the class of the module.
    place_in_words : str
        The place in words, or the empty string.
    is_module, stays_module : bool
        Whether a module was given, and whether the result is one.
    """
    target = f"the compiled module {name}" if is_module else f"{name}, which is compiled already"
    result = _RESULT_FOR_OPTIMIZED if stays_module else _RESULT_FOR_MODULE if is_module else _RESULT_FOR_FUNCTION
    place = f" ({place_in_words})" if place_in_words else ""
    return f"torch.compile was applied to {target}{place}: {result}. Compile it once."
