"""Internal errors are reported in one sentence and suppressed; errors meant for the user are raised."""

from __future__ import annotations

import contextlib
import sys

import pytest

from jupyter_graphbreak import faults


class UnprintableError(Exception):
    """An error whose message cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.fixture(autouse=True)
def _forget_printed_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_printed_sentences", set())


@pytest.mark.parametrize(
    ("fault", "text"),
    [(ValueError("one\ntwo"), "ValueError: one"), (UnprintableError(), "UnprintableError")],
)
def test_one_sentence_describes_the_error(fault: Exception, text: str) -> None:
    assert faults.internal_error_sentence("building the report", fault) == (
        f"Internal error in compile_explain while building the report ({text}); your code is not affected."
    )


def test_the_error_of_a_block_is_reported() -> None:
    reported_faults: list[tuple[str, str]] = []
    with faults.suppress_faults("testing", lambda activity, fault: reported_faults.append((activity, str(fault)))):
        raise RuntimeError("broken")
    assert reported_faults == [("testing", "broken")]


def test_interrupts_and_errors_for_the_user_are_raised() -> None:
    reported_faults: list[str] = []
    for error in (KeyboardInterrupt, LookupError):
        with (
            pytest.raises(error),
            faults.suppress_faults(
                "testing", lambda activity, _: reported_faults.append(activity), errors_to_raise=(LookupError,)
            ),
        ):
            raise error
    function_with_fallback = faults.with_fallback(
        "testing", {}.__getitem__, lambda _: "instead", errors_to_raise=(KeyError,)
    )
    with pytest.raises(KeyError):
        function_with_fallback("missing")
    assert not reported_faults


def test_an_error_that_cannot_be_reported_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    function_with_fallback = faults.with_fallback("testing", fail, lambda: "instead", fail)
    assert [function_with_fallback(), function_with_fallback()] == ["instead", "instead"]
    assert capsys.readouterr().err == (
        "compile_explain: Internal error in compile_explain while testing (RuntimeError: broken); "
        "your code is not affected.\n"
    )


def test_standard_error_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (None, object()):
        monkeypatch.setattr("sys.stderr", stream)
        with faults.suppress_faults("testing"):
            raise RuntimeError("broken")


def test_the_fallback_sees_the_error_that_the_caller_handles() -> None:
    def fail() -> None:
        raise RuntimeError("broken")

    function_with_fallback = faults.with_fallback("testing", fail, lambda: sys.exc_info()[1])
    assert function_with_fallback() is sys.exc_info()[1]
    with contextlib.ExitStack() as stack:  # its callbacks run while the error of the block is handled
        is_same_error: list[bool] = []
        stack.enter_context(contextlib.suppress(LookupError))
        stack.push(lambda _, error, __: is_same_error.append(function_with_fallback() is error))
        [].pop()
    assert is_same_error == [True]


def test_nothing_is_printed_while_a_report_collects_errors(capsys: pytest.CaptureFixture[str]) -> None:
    sentences: list[str] = []
    with faults.redirect_faults(sentences):
        for print_error in (faults.print_fault, faults.print_fault_once, faults.print_fault_once):
            print_error("testing", RuntimeError("broken"))
    assert sentences == [faults.internal_error_sentence("testing", RuntimeError("broken"))]
    assert not capsys.readouterr().err


def test_an_error_in_a_finalizer_is_printed_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    class Owner:
        pass

    def fail(number: int) -> None:
        raise LookupError(f"number {number}")

    owner = Owner()
    faults.finalize(owner, "forgetting it", fail, 3)
    del owner
    output = capsys.readouterr().err
    assert output.startswith("compile_explain: ")
    assert "number 3" in output
    assert "Traceback" not in output
