"""The sentences about values inside compiled code say which call, and which loss, the numbers belong to."""

from __future__ import annotations

from jupyter_graphbreak.report.location import Location
from jupyter_graphbreak.report.values import EntryValues, LineValues, ValueRange
from jupyter_graphbreak.views.words.values import values_sentences
from tests.support.sample_reports import no_breaks


def test_gradients_are_those_of_a_loss_that_the_report_names() -> None:
    numbers = ValueRange([2], "float32", 2, low=0.0, high=1.0)
    forward = LineValues(Location("s1", 3, 3), "aten.sin", "A", numbers)
    both = LineValues(Location("s1", 3, 3), "aten.sin", "A", numbers, backward=numbers)
    for line, number in ((forward, 0), (both, 1)):
        sentences = [text for text, _, _ in values_sentences(no_breaks(), EntryValues("f", "eager", lines=[line]))]
        assert sum("gradients begin at its result" in text for text in sentences) == number
