"""Runs on copies apply the process's warning filters and log handlers, in order, without changing them."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.difference import differences
from jupyter_graphbreak.experiments.trial.effects import capture_effects
from jupyter_graphbreak.experiments.trial.outcome import Result, run, sandbox_runs
from jupyter_graphbreak.experiments.trial.subject import Subject

LOG = logging.getLogger("trial.with.handlers")
EVENTS: list[str] = []


class RecordingHandler(logging.Handler):
    """A handler that records messages in a global and in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        EVENTS.append(record.getMessage())


class RaisingHandler(logging.Handler):
    """A handler that raises an exception for each record."""

    def emit(self, record: logging.LogRecord) -> None:
        raise LookupError(record.getMessage())


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    LOG.setLevel(logging.INFO)
    yield LOG
    LOG.handlers.clear()
    LOG.filters.clear()
    EVENTS.clear()


def result_of(fn: Any) -> Result:
    with sandbox_runs():
        subject = Subject(fn, Arguments(torch.ones(2)))
        assert subject.arguments is not None
        return run(subject.function, subject, subject.arguments)


def log_then_note(x: torch.Tensor) -> torch.Tensor:
    LOG.info("logged")
    EVENTS.append("noted")
    return x


def note_then_log(x: torch.Tensor) -> torch.Tensor:
    EVENTS.append("noted")
    LOG.info("logged")
    return x


def test_a_recording_handler_receives_records_in_order(log: logging.Logger) -> None:
    handler = RecordingHandler()
    log.addHandler(handler)
    first, second = result_of(log_then_note), result_of(note_then_log)
    assert first.state["EVENTS"] == ["logged", "noted"]
    assert first.state["the attributes of the handler RecordingHandler"]["messages"] == ["logged"]
    assert any(difference.kind == "state" for difference in differences(first, second))
    assert (handler.messages, EVENTS) == ([], [])


def test_an_exception_of_a_handler_is_raised(log: logging.Logger) -> None:
    log.addHandler(RaisingHandler())
    result = result_of(log_then_note)
    assert isinstance(result.error, LookupError)
    assert result.state["EVENTS"] == []


def test_a_handler_that_cannot_be_copied_receives_nothing(log: logging.Logger) -> None:
    handler = RecordingHandler()
    handler.kept = (number for number in range(3))  # type: ignore[attr-defined]
    log.addHandler(handler)
    result = result_of(log_then_note)
    assert result.error is None
    assert [text for _, _, text in result.effects.log_records] == ["logged"]
    assert handler.messages == []


class CountingFilter(logging.Filter):
    """A filter that counts records in an attribute, in a global and in its class."""

    total = 0

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        self.messages.append(record.getMessage())
        EVENTS.append(record.getMessage())
        type(self).total += 1
        return record.getMessage() != "dropped"


def log_twice(x: torch.Tensor) -> torch.Tensor:
    LOG.info("dropped")
    LOG.info("logged")
    return x


def test_a_filter_with_state_filters_in_a_copy(log: logging.Logger) -> None:
    original = CountingFilter()
    log.addFilter(original)
    result = result_of(log_twice)
    assert [text for _, _, text in result.effects.log_records] == ["logged"]
    assert result.state["EVENTS"] == ["dropped", "logged"]
    assert (original.messages, EVENTS, CountingFilter.total) == ([], [], 0)


def note_record(record: logging.LogRecord) -> bool:
    EVENTS.append(record.getMessage())
    return True


def test_a_filter_that_is_a_function_changes_a_copy(log: logging.Logger) -> None:
    log.addFilter(note_record)
    assert result_of(log_twice).state["EVENTS"] == ["dropped", "logged"]
    assert EVENTS == []


class ObjectWithDestructor:
    """An object with a destructor, so it cannot be copied."""

    def __del__(self) -> None:
        """Close nothing."""


def test_a_filter_that_cannot_be_copied_lets_records_pass(log: logging.Logger) -> None:
    original = CountingFilter()
    original.kept = ObjectWithDestructor()  # type: ignore[attr-defined]
    log.addFilter(original)
    assert [text for _, _, text in result_of(log_twice).effects.log_records] == ["dropped", "logged"]
    assert original.messages == []


def test_other_threads_use_the_original_filter(log: logging.Logger) -> None:
    original = CountingFilter()
    log.addFilter(original)

    is_filter_active = threading.Event()

    def log_when_active() -> None:
        is_filter_active.wait()
        LOG.info("from elsewhere")

    thread = threading.Thread(target=log_when_active)
    thread.start()
    with sandbox_runs():
        subject = Subject(log_when_active)
        with capture_effects(subject.handlers, subject.filters):
            is_filter_active.set()
            thread.join()
    assert original.messages == ["from elsewhere"]


def warn_twice(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        warnings.warn("careful", stacklevel=1)
    return x


@pytest.mark.parametrize(
    ("action", "expected_count"), [("always", 2), ("once", 1), ("default", 1), ("ignore", 0), ("error", None)]
)
def test_warnings_pass_the_process_filters(action: Any, expected_count: int | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        filters_before = list(warnings.filters)
        for _ in range(2):  # a warning shown once is shown once per run
            result = result_of(warn_twice)
            if expected_count is None:
                assert isinstance(result.error, UserWarning)
            else:
                assert len(result.effects.warning_messages) == expected_count
        assert warnings.filters == filters_before


def print_then_log(x: torch.Tensor) -> torch.Tensor:
    print("printed")
    LOG.warning("logged")
    return x


def log_then_print(x: torch.Tensor) -> torch.Tensor:
    LOG.warning("logged")
    print("printed")
    return x


def test_the_order_of_prints_and_logs_is_compared() -> None:
    (difference,) = differences(result_of(print_then_log), result_of(log_then_print))
    assert difference.text == "prints, warns and logs in a different order"
    assert difference.is_acceptable
