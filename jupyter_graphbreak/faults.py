"""Keep our internal errors away from the user's code, and report each of them in one sentence.

:class:`suppress_faults` protects blocks of our code. :func:`with_fallback` protects those of our functions that
IPython, PyTorch or a rewritten cell calls.
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

    #: A function that receives our activity ("building the report") and the error.
    OnFault = Callable[[str, Exception], None]


def internal_error_sentence(activity: str, fault: BaseException) -> str:
    """Return the sentence about an internal error; the activity follows "while", as in "building the report"."""
    return f"Internal error in compile_explain while {activity} ({error_headline(fault)}); your code is not affected."


def error_headline(fault: BaseException) -> str:
    """Return the type of an error and the first line of its message, if any; for our own exceptions, only that line."""
    with contextlib.suppress(Exception):  # a broken __str__
        lines = str(fault).strip().splitlines()
        if lines and type(fault).__module__.partition(".")[0] == _PACKAGE:
            return lines[0]
        return f"{type(fault).__name__}: {lines[0].rstrip(': ')}" if lines else type(fault).__name__
    return type(fault).__name__


#: The list that receives the sentences about internal errors in a trial, whose output and reports nobody sees.
_collected_sentences: ContextVar[list[str] | None] = ContextVar("graphbreak_faults", default=None)


@contextlib.contextmanager
def redirect_faults(sentences: list[str]) -> Iterator[None]:
    """Add the sentences about internal errors to a list while the context is open, instead of printing them."""
    token = _collected_sentences.set(sentences)
    try:
        yield
    finally:
        _collected_sentences.reset(token)


def collect_fault(sentence: str) -> bool:
    """Add a sentence about an internal error to the list of :func:`redirect_faults`; return whether there is a list."""
    sentences = _collected_sentences.get()
    if sentences is not None and sentence not in sentences:
        sentences.append(sentence)
    return sentences is not None


def print_fault(activity: str, fault: BaseException) -> None:
    """Print the sentence about an internal error to standard error, unless :func:`redirect_faults` collects it."""
    if collect_fault(internal_error_sentence(activity, fault)):
        return
    with contextlib.suppress(Exception):  # the stream may not be writable
        print(f"compile_explain: {internal_error_sentence(activity, fault)}", file=sys.stderr)  # noqa: T201


_printed_sentences: set[str] = set()


def print_fault_once(activity: str, fault: BaseException) -> None:
    """Print the sentence about an internal error once per process, because a hook may fail thousands of times."""
    sentence = internal_error_sentence(activity, fault)
    if not collect_fault(sentence) and sentence not in _printed_sentences:
        _printed_sentences.add(sentence)
        print_fault(activity, fault)


class suppress_faults:  # noqa: N801 - used like contextlib.suppress
    """Report an internal error in a block instead of raising it.

    ``activity`` is that of the block, in a form that follows "while": "building the report". ``on_fault`` receives the
    activity and the error; if this function fails, both are printed to standard error. ``errors_to_raise`` are meant
    for the user.
    """

    def __init__(
        self, activity: str, on_fault: OnFault = print_fault, errors_to_raise: tuple[type[Exception], ...] = ()
    ) -> None:
        self._activity = activity
        self._on_fault = on_fault
        self._errors_to_raise = errors_to_raise

    def __enter__(self) -> None:
        """Enter the block."""

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> bool:
        """Report the error that the block raised, unless it is an interrupt or meant for the user."""
        if not isinstance(error, Exception) or isinstance(error, self._errors_to_raise):
            return False
        report_fault(self._activity, error, self._on_fault)
        return True


def report_fault(activity: str, fault: Exception, on_fault: OnFault) -> None:
    """Pass an internal error to a function, or print it if that function fails; never raise."""
    try:
        on_fault(activity, fault)
    except Exception:  # noqa: BLE001 - a function that reports errors may fail as well
        with contextlib.suppress(Exception):
            print_fault_once(activity, fault)


def with_fallback(
    activity: str,
    function: Callable[..., Any],
    fallback: Callable[..., Any],
    on_fault: OnFault = print_fault,
    errors_to_raise: tuple[type[Exception], ...] = (),
) -> Callable[..., Any]:
    """Return a function that calls one of our functions and, if it fails, a fallback with the same arguments.

    The fallback must not depend on anything that the function needs. ``on_fault`` receives the activity and the error.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except errors_to_raise:
            raise
        except Exception as fault:  # noqa: BLE001 - our errors must not reach the user's program
            report_fault(activity, fault, on_fault)
        # The call is outside the handler, so that an error in the fallback does not have ours as its context.
        return fallback(*args, **kwargs)

    return wrapper


def finalize(owner: object, activity: str, function: Callable[..., Any], *args: Any) -> None:
    """Call one of our functions when its owner is freed; an error is printed as one sentence, without a traceback.

    The arguments of the function must not refer to the owner, which would keep it alive.
    """
    weakref.finalize(owner, with_fallback(activity, function, lambda *_: None, print_fault_once), *args)
