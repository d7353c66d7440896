"""The sentences about values inside compiled code say which loss their gradients belong to."""

from __future__ import annotations

from jupyter_graphbreak.report.location import Location
from jupyter_graphbreak.report.values import EntryValues, LineValues, ValueRange
from jupyter_graphbreak.views.words.values import values_sentences
from tests.support.sample_reports import no_breaks


def test_a_sentence_names_the_loss_if_there_are_gradients() -> None:
    value_range = ValueRange([2], "float32", 2, low=0.0, high=1.0)
    forward_values = LineValues(Location("s1", 3, 3), "aten.sin", "A", value_range)
    line_values = LineValues(Location("s1", 3, 3), "aten.sin", "A", value_range, backward=value_range)
    for line, count in ((forward_values, 0), (line_values, 1)):
        sentences = [text for text, _, _ in values_sentences(no_breaks(), EntryValues("f", "eager", lines=[line]))]
        assert sum("gradients begin at its result" in text for text in sentences) == count
