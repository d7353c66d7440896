"""What a person can do about recompiles: a line of a library is named with its file."""

from __future__ import annotations

from jupyter_graphbreak.experiments.recompiles.manual_steps import manual_step
from jupyter_graphbreak.experiments.recompiles.trying import SpecializingLine
from jupyter_graphbreak.experiments.recompiles.varied import Varied

CODE = "pad = 16 - int(x.shape[0])"


def test_line_of_a_library_is_named_with_its_file() -> None:
    sentence = manual_step(Varied(), Varied(), [], SpecializingLine("/site-packages/lib/pad.py", 7, CODE, "pad.py"))
    assert sentence.startswith(f"Line 7 of pad.py, `{CODE}`, makes a constant")
    assert "convert it outside" not in sentence


def test_line_of_the_reader_says_how_to_write_it() -> None:
    sentence = manual_step(Varied(), Varied(), [], SpecializingLine("s1", 7, CODE))
    assert sentence.startswith(f"Line 7, `{CODE}`, makes a constant")
    assert "convert it outside" in sentence
