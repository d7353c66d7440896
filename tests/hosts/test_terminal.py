"""Reports in a terminal, as a user at the keyboard sees them: in IPython and in Jupyter's console."""

from __future__ import annotations

import os
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pexpect
import pytest

from tests.support.warm_processes import COLD_START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]

CELL = """\
%%compile_explain -o report
import torch
@torch.compile(backend="eager")
def shift(x):
    print("shift")
    return x - 1
shift(torch.ones(2))"""

#: Escape sequences that move the cursor and change colours.
_COLOURS = r"(?:\x1b\[[0-9;?]*[a-zA-Z])*"
_CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|\x1b[=>()78][AB012]?|\r")


@pytest.fixture(params=["IPython", pytest.param("jupyter_console", marks=pytest.mark.exhaustive)])
def run_at_prompt(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Return a function that pastes a cell at the prompt, runs it, and returns the output up to the next prompt."""
    if find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    variables = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    folders = {name: str(tmp_path / name.lower()) for name in variables}
    environment = {**os.environ, **folders, "PYTHONPATH": str(ROOT), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
    environment[COLD_START] = "1"  # a warm kernel process would have a different parent
    child = pexpect.spawn(
        sys.executable, ["-m", request.param], env=environment, encoding="utf-8", timeout=120, dimensions=(60, 120)
    )
    numbers = iter(range(1, 100))

    def wait_for_prompt() -> str:
        child.expect(rf"In {_COLOURS}\[{_COLOURS}{next(numbers)}{_COLOURS}\]: ")
        return _CONTROLS.sub("", child.before or "")

    wait_for_prompt()

    def paste_and_run(cell: str) -> str:
        child.send(f"\x1b[200~{cell}\x1b[201~")
        time.sleep(1)  # Enter is a line break within what is still being pasted
        child.send("\x1b\r")
        return wait_for_prompt()

    yield paste_and_run
    child.close(force=True)


def test_the_report_is_printed_when_the_cell_has_ended(run_at_prompt: Callable[[str], str]) -> None:
    assert "Error" not in run_at_prompt("%load_ext jupyter_graphbreak")
    output = run_at_prompt(CELL)
    assert "\nshift\n" in output
    assert "1 break, line" in output
    assert "do: " in output
    assert "running" not in output
    assert "tensor([0., 0.])" in output
    assert "<div" not in output
    # A report in a variable is displayed as the same text that print writes.
    assert run_at_prompt("print(report)\nreport").count("1 break, line") == 2
