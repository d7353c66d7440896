"""All contexts of a run are left, even after errors and interrupts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from jupyter_graphbreak.recording.exit_stack import GuardedExitStack


@contextlib.contextmanager
def noted(closed: list[str], name: str, error: type[BaseException] | None = None) -> Iterator[str]:
    yield name
    closed.append(name)
    if error is not None:
        raise error(name)


def test_an_error_on_leaving_one_context_is_reported_and_the_others_are_left() -> None:
    faults: list[tuple[str, str]] = []
    closed: list[str] = []
    opened = GuardedExitStack(lambda what, fault: faults.append((what, str(fault))))
    assert opened.enter("one", lambda: noted(closed, "first"), None) == "first"
    opened.enter("two", lambda: noted(closed, "second", RuntimeError), None)
    opened.enter("three", lambda: noted(closed, "third"), None)
    assert opened.is_complete
    opened.contexts.close()
    assert closed == ["third", "second", "first"]
    assert faults == [("two", "second")]


def test_an_interrupt_on_leaving_one_context_is_raised_after_leaving_the_others() -> None:
    closed: list[str] = []
    opened = GuardedExitStack(lambda *_: None)
    opened.enter("one", lambda: noted(closed, "first"), None)
    opened.enter("two", lambda: noted(closed, "second", KeyboardInterrupt), None)
    with pytest.raises(KeyboardInterrupt):
        opened.contexts.close()
    assert closed == ["second", "first"]


def test_a_context_that_cannot_be_entered_is_reported_and_yields_the_default() -> None:
    faults: list[str] = []
    opened = GuardedExitStack(lambda what, _: faults.append(what))

    def fail() -> contextlib.AbstractContextManager[str]:
        raise RuntimeError

    assert opened.enter("it", fail, "instead") == "instead"
    assert faults == ["it"]
    assert not opened.is_complete
