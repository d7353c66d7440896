"""The line on which a resume function continues, read from bytecode listings of two Python releases."""

from __future__ import annotations

import pytest

from jupyter_graphbreak.trace.entries import resumed_line

PYTHON_311 = """\
  5           0 RESUME                   0
              2 LOAD_CONST               1 (True)
              4 STORE_FAST               4 (__is_tracing_resume_prologue)
              6 LOAD_CONST               2 (False)
              8 STORE_FAST               4 (__is_tracing_resume_prologue)
             10 JUMP_FORWARD            25 (to 62)
             60 POP_JUMP_FORWARD_IF_FALSE     5 (to 72)

  6     >>   62 LOAD_FAST                2 (x)
             70 RETURN_VALUE

  8     >>   72 LOAD_FAST                2 (x)
"""
PYTHON_313 = """\
   5           RESUME                   0
               LOAD_CONST               1 (True)
               STORE_FAST               4 (__is_tracing_resume_prologue)
               LOAD_CONST               2 (False)
               STORE_FAST               4 (__is_tracing_resume_prologue)
               JUMP_FORWARD            25 (to L2)
  --           NOP
   6   L1:     LOAD_FAST                2 (x)

   8   L2:     LOAD_FAST                2 (x)
"""


@pytest.mark.parametrize(("listing", "line"), [(PYTHON_311, 6), (PYTHON_313, 8)])
def test_a_resume_function_continues_at_the_target_of_the_jump_in_its_prologue(listing: str, line: int) -> None:
    assert resumed_line(listing) == line


def test_a_prologue_without_a_jump_continues_on_its_own_line() -> None:
    assert resumed_line(PYTHON_311.replace("JUMP_FORWARD            25 (to 62)", "NOP")) == 5


@pytest.mark.parametrize("text", ["", "no listing", PYTHON_311.replace("prologue", "x"), "  5  RESUME 0"])
def test_no_line_is_read_from_an_unknown_listing(text: str) -> None:
    assert resumed_line(text) is None
