"""All contexts of a run are left, even after errors and interrupts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from jupyter_graphbreak.recording.exit_stack import GuardedExitStack


@contextlib.contextmanager
def log_exit(exited_names: list[str], name: str, error: type[BaseException] | None = None) -> Iterator[str]:
    yield name
    exited_names.append(name)
    if error is not None:
        raise error(name)


def test_an_error_on_leaving_one_context_is_reported_and_the_others_are_left() -> None:
    faults: list[tuple[str, str]] = []
    exited_names: list[str] = []
    stack = GuardedExitStack(lambda activity, fault: faults.append((activity, str(fault))))
    assert stack.enter("one", lambda: log_exit(exited_names, "first"), None) == "first"
    stack.enter("two", lambda: log_exit(exited_names, "second", RuntimeError), None)
    stack.enter("three", lambda: log_exit(exited_names, "third"), None)
    assert stack.is_complete
    stack.contexts.close()
    assert exited_names == ["third", "second", "first"]
    assert faults == [("two", "second")]


def test_an_interrupt_on_leaving_one_context_is_raised_after_leaving_the_others() -> None:
    exited_names: list[str] = []
    stack = GuardedExitStack(lambda *_: None)
    stack.enter("one", lambda: log_exit(exited_names, "first"), None)
    stack.enter("two", lambda: log_exit(exited_names, "second", KeyboardInterrupt), None)
    with pytest.raises(KeyboardInterrupt):
        stack.contexts.close()
    assert exited_names == ["second", "first"]


def test_a_context_that_cannot_be_entered_is_reported_and_yields_the_default() -> None:
    faults: list[str] = []
    stack = GuardedExitStack(lambda activity, _: faults.append(activity))

    def fail() -> contextlib.AbstractContextManager[str]:
        raise RuntimeError

    assert stack.enter("it", fail, "instead") == "instead"
    assert faults == ["it"]
    assert not stack.is_complete
