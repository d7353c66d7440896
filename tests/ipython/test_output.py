"""An output is shown during the run only if the front end can replace it afterwards."""

from __future__ import annotations

import psutil
import pytest

from jupyter_graphbreak.ipython.output import Output


class Shell:
    kernel = object()


@pytest.mark.parametrize(
    ("command", "is_live"),
    [
        (["/usr/bin/python", "/usr/local/bin/jupyter-console"], False),
        (["python", "-m", "jupyter_console"], False),
        (["python", "/usr/local/bin/jupyter-lab"], True),
        (["python", "script.py", "--title", "jupyter-console"], True),
    ],
)
def test_a_console_shows_only_the_final_report(
    monkeypatch: pytest.MonkeyPatch, command: list[str], is_live: bool
) -> None:
    class Parent:
        def __init__(self, pid: int) -> None:
            assert pid > 0

        def cmdline(self) -> list[str]:
            return command

    monkeypatch.setattr(psutil, "Process", Parent)
    assert Output(Shell()).is_updatable is is_live  # type: ignore[arg-type]
