"""Keep our internal errors away from the user's code, and report each in one sentence.

:class:`suppress_faults` is for our own blocks. :func:`with_fallback` is for our functions that IPython, PyTorch or
a rewritten cell calls.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

#: The name of this package, whose exceptions are raised on purpose.
_PACKAGE = __name__.partition(".")[0]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    #: Receives our activity ("making the report") and the error.
    OnFault = Callable[[str, Exception], None]


def internal_error(activity: str, fault: BaseException) -> str:
    """Return the sentence about an internal error.

    Parameters
    ----------
    activity : str
        Our activity, in a form that follows "while": "making the report".
    """
    return f"Internal error in compile_explain while {activity} ({description(fault)}); your code is not affected."


def description(fault: BaseException) -> str:
    """Return the type of an error and the first line of its message, if it has one; only the line if we raise it."""
    with contextlib.suppress(Exception):  # a broken __str__
        lines = str(fault).strip().splitlines()
        if lines and type(fault).__module__.partition(".")[0] == _PACKAGE:
            return lines[0]
        return f"{type(fault).__name__}: {lines[0]}" if lines else type(fault).__name__
    return type(fault).__name__


#: Receives the sentences about internal errors in a trial, whose own output and reports nobody sees.
_collected_sentences: ContextVar[list[str] | None] = ContextVar("graphbreak_faults", default=None)


@contextlib.contextmanager
def collected_faults(sentences: list[str]) -> Iterator[None]:
    """Append the sentences about internal errors to a list while the context is open, instead of printing them."""
    token = _collected_sentences.set(sentences)
    try:
        yield
    finally:
        _collected_sentences.reset(token)


def collect_fault(sentence: str) -> bool:
    """Add the sentence about an internal error to the list of :func:`collected_faults`; return whether there is one."""
    sentences = _collected_sentences.get()
    if sentences is not None and sentence not in sentences:
        sentences.append(sentence)
    return sentences is not None


def print_fault(activity: str, fault: BaseException) -> None:
    """Print the sentence about an internal error to the standard error, unless :func:`collected_faults` collects it."""
    if collect_fault(internal_error(activity, fault)):
        return
    with contextlib.suppress(Exception):  # a stream that cannot be written to
        print(f"compile_explain: {internal_error(activity, fault)}", file=sys.stderr)  # noqa: T201


_printed_sentences: set[str] = set()


def print_fault_once(activity: str, fault: BaseException) -> None:
    """Print the sentence about an internal error once per process: a hook of PyTorch may fail thousands of times."""
    sentence = internal_error(activity, fault)
    if not collect_fault(sentence) and sentence not in _printed_sentences:
        _printed_sentences.add(sentence)
        print_fault(activity, fault)


class suppress_faults:  # noqa: N801 - used like contextlib.suppress
    """Report internal errors of a block instead of raising them.

    Parameters
    ----------
    activity : str
        The activity of the block, in a form that follows "while": "making the report".
    on_fault : callable
        Receives the activity and the error; if it fails itself, both are printed to the standard error.
    reraised : tuple of type
        Errors that are raised: those meant for the user.
    """

    def __init__(
        self, activity: str, on_fault: OnFault = print_fault, reraised: tuple[type[Exception], ...] = ()
    ) -> None:
        self._activity = activity
        self._on_fault = on_fault
        self._reraised = reraised

    def __enter__(self) -> None:
        """Enter the block."""

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> bool:
        """Report the error of the block, unless it is an interrupt or meant for the user."""
        if not isinstance(error, Exception) or isinstance(error, self._reraised):
            return False
        report_fault(self._activity, error, self._on_fault)
        return True


def report_fault(activity: str, fault: Exception, on_fault: OnFault) -> None:
    """Pass an internal error to a function, or print it if that fails; this never raises."""
    try:
        on_fault(activity, fault)
    except Exception:  # noqa: BLE001 - the function that reports errors may fail
        with contextlib.suppress(Exception):
            print_fault_once(activity, fault)


def with_fallback(
    activity: str,
    function: Callable[..., Any],
    fallback: Callable[..., Any],
    on_fault: OnFault = print_fault,
    reraised: tuple[type[Exception], ...] = (),
) -> Callable[..., Any]:
    """Return a function that calls our function, and calls a fallback if ours fails.

    Parameters
    ----------
    activity : str
        The activity of ``function``, in a form that follows "while".
    function : callable
        One of our functions; it must not call user code.
    fallback : callable
        The fallback, called with the same arguments. It must not depend on anything that ``function`` needs.
    on_fault : callable
        Receives the activity and the error.
    reraised : tuple of type
        Errors that are raised: those meant for the user.
    """

    @functools.wraps(function)
    def shield(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except reraised:
            raise
        except Exception as fault:  # noqa: BLE001 - see the module
            report_fault(activity, fault, on_fault)
        # Called outside the handler, so that an error in the fallback is not chained to ours.
        return fallback(*args, **kwargs)

    return shield


def finalize(owner: object, activity: str, function: Callable[..., Any], *args: Any) -> None:
    """Call one of our functions when an object is freed; an error is printed as one sentence, without a traceback.

    Parameters
    ----------
    owner : object
    activity : str
        The activity of ``function``, in a form that follows "while".
    function : callable
    *args
        The arguments of ``function``; they must not refer to the owner.
    """
    weakref.finalize(owner, with_fallback(activity, function, lambda *_: None, print_fault_once), *args)
