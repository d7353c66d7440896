"""Reports in marimo, if it is installed or ``MARIMO_PYTHON`` names a Python that has it and torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

NOTEBOOK = """\
import marimo

app = marimo.App()


@app.cell
def set_up():
    import torch
    import jupyter_graphbreak
    return jupyter_graphbreak, torch


@app.cell
def explain_shift(jupyter_graphbreak, torch):
    def shift(x):
        print("shift")
        return x - 1

    report = jupyter_graphbreak.explain(shift, torch.ones(2))
    report
    return (report,)


@app.cell
def print_report(report):
    print(report)
    return


@app.cell
def capture_double(jupyter_graphbreak, torch):
    def double(x):
        print("double")
        return x * 2

    with jupyter_graphbreak.capture() as run:
        torch.compile(double, backend="eager")(torch.ones(2))
    run.report
    return
"""


@pytest.mark.skipif(find_spec("marimo") is None and "MARIMO_PYTHON" not in os.environ, reason="marimo is not installed")
def test_reports_are_displayed(tmp_path: Path) -> None:
    (tmp_path / "notebook.py").write_text(NOTEBOOK)
    python = os.environ.get("MARIMO_PYTHON", sys.executable)
    subprocess.run(
        [python, "-m", "marimo", "-q", "export", "html", "notebook.py", "-o", "notebook.html"],
        cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}, check=True,
    )  # fmt: skip
    # The outputs are JSON in a script of the page.
    page = (tmp_path / "notebook.html").read_text(encoding="utf-8")
    page = re.sub(r"\\u([0-9A-F]{4})", lambda escape: chr(int(escape[1], 16)), page)
    assert page.count('<b class=\\"gb-verdict gb-bad\\">1 break</b>') == 2
    assert page.count("<b>compile_explain</b> marimo cell ") == 2
    assert "<code>print(&#34;shift&#34;)</code>" in page
    assert '"text": "compile_explain: 1 break, ' in page
    assert "<Report" not in page
