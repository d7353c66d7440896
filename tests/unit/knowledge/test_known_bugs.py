"""The message of an error identifies a known PyTorch bug, and the report gives the advice for that bug."""

from __future__ import annotations

import re

from jupyter_graphbreak.analysis.breaks import advise
from jupyter_graphbreak.analysis.messages import Cause
from jupyter_graphbreak.knowledge.causes import all_advice
from jupyter_graphbreak.knowledge.known_bugs import bug_with_message, bugs_with_messages

MOCK_ERROR_MESSAGE = "No constant base type found in MRO of <class '__main__.Mock'>"


def test_an_error_with_the_message_of_a_known_bug_has_advice_for_it() -> None:
    (advice,) = advise(Cause("AssertionError", explanation=MOCK_ERROR_MESSAGE), None)
    assert advice.text == (
        "call `isinstance` before the compiled function runs, and pass the result (a known PyTorch bug, "
        "https://github.com/pytorch/pytorch/issues/174050)"
    )
    assert advice.text in all_advice()


def test_an_error_with_an_unknown_message_has_general_advice() -> None:
    (advice,) = advise(Cause("AssertionError", explanation="no"), None)
    assert "report it" in advice.text


def test_an_error_that_eager_code_can_also_raise_is_recognized_by_its_line() -> None:
    message = "sequence item 1: expected str instance, int found"
    bug = bug_with_message(f'{message}\nprint(f"step {{i}}: {{loss.item():.3f}}")')
    assert bug is not None
    assert bug.issue == "189830"
    assert bug_with_message(f"{message}\n', '.join(parts)") is None


def test_a_break_is_not_reported_as_a_known_bug() -> None:
    (advice, *_) = advise(Cause("Unsupported", gb_id="GB0059", explanation=MOCK_ERROR_MESSAGE), None)
    assert "known bug" not in advice.text


def test_a_pattern_in_a_message_identifies_a_bug() -> None:
    bug = bug_with_message("NameError: name 'tmp7' is not defined")
    assert bug is not None
    assert bug.issue == "194490"
    assert bug_with_message("NameError: name 'tmp' is not defined") is None


def test_advice_of_reports_is_plain_text() -> None:
    assert [bug.issue for bug in bugs_with_messages() if re.search(r"\]\(|\*", bug.advice_in_report)] == []
