"""Keep our own errors away from the user's code, and say them in one sentence.

:func:`noted` is for a block that only we need. :func:`shielded` is for a function of ours that others call: IPython,
PyTorch, a rewritten cell.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    #: Receives what we were doing ("making the report") and the error.
    OnFault = Callable[[str, Exception], None]


def internal_error(what: str, fault: BaseException) -> str:
    """Return the sentence about an internal error.

    Parameters
    ----------
    what : str
        What we were doing, as it follows "while": "making the report".
    fault : BaseException
    """
    return f"Internal error in compile_explain while {what} ({description(fault)}); your code is not affected."


def description(fault: BaseException) -> str:
    """Return the type of an error and the first line of what it says."""
    try:
        return f"{type(fault).__name__}: {fault}".partition("\n")[0]
    except Exception:  # noqa: BLE001 - a broken __str__
        return type(fault).__name__


def say(what: str, fault: BaseException) -> None:
    """Say on the standard error that we failed, where there is no report to say it in."""
    with contextlib.suppress(Exception):  # a stream that cannot be written to
        print(f"compile_explain: {internal_error(what, fault)}", file=sys.stderr)  # noqa: T201


_said: set[str] = set()


def say_once(what: str, fault: BaseException) -> None:
    """Say it as :func:`say` does, but not again in this process: what PyTorch calls may fail a thousand times."""
    sentence = internal_error(what, fault)
    if sentence not in _said:
        _said.add(sentence)
        say(what, fault)


class noted:  # noqa: N801 - it is used as a function is
    """Note an error of ours in place of raising it.

    Parameters
    ----------
    what : str
        What the block does, as it follows "while": "making the report".
    on_fault : callable
        Receives that and the error; if it fails as well, the standard error has both.
    passing : tuple of type
        Errors that go on: those that are meant for the user.
    """

    def __init__(self, what: str, on_fault: OnFault = say, passing: tuple[type[Exception], ...] = ()) -> None:
        self._what = what
        self._on_fault = on_fault
        self._passing = passing

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> bool:
        """Note what the block raised, unless it is an interrupt or meant for the user."""
        if not isinstance(error, Exception) or isinstance(error, self._passing):
            return False
        report(self._what, error, self._on_fault)
        return True


def report(what: str, fault: Exception, on_fault: OnFault) -> None:
    """Tell a function about an error of ours, or the standard error if that fails; this does not fail."""
    try:
        on_fault(what, fault)
    except Exception:  # noqa: BLE001 - what notes may be what fails
        with contextlib.suppress(Exception):
            say_once(what, fault)


def shielded(
    what: str,
    function: Callable[..., Any],
    otherwise: Callable[..., Any],
    on_fault: OnFault = say,
    passing: tuple[type[Exception], ...] = (),
) -> Callable[..., Any]:
    """Return a function that does what another does, and what a third one does if that fails on our side.

    Parameters
    ----------
    what : str
        What ``function`` does, as it follows "while".
    function : callable
        One of ours, which calls nothing of the user's.
    otherwise : callable
        Given the same arguments; it needs nothing that ``function`` needs.
    on_fault : callable
        Receives what failed, and the error.
    passing : tuple of type
        Errors that go on: those that are meant for the user.
    """

    @functools.wraps(function)
    def shield(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except passing:
            raise
        except Exception as fault:  # noqa: BLE001 - see the module
            report(what, fault, on_fault)
        return otherwise(*args, **kwargs)  # not while the fault is handled, which an error in it would be chained to

    return shield
