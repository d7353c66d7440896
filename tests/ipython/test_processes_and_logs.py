"""The magic's options for logs and other processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.ipython.conftest import Kernel

CHILD_PROGRAM = """
import torch

def scale(x):
    y = x * 2
    print("in the child")
    return y + 1

if __name__ == "__main__":
    torch.compile(scale, backend="eager")(torch.ones(3))
"""


def test_a_child_process_is_part_of_the_report(kernel: Kernel, warm_python: str, tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD_PROGRAM)
    kernel.run(
        "%%compile_explain --processes -o job\n"
        f"import os, subprocess, torch\nsubprocess.run([{warm_python!r}, {str(script)!r}], check=True)\n"
        "y = torch.compile(torch.sin)(torch.ones(2))"
    )
    bundle = kernel.bundles()[-1]
    assert "2 processes" in bundle["text/plain"]
    assert "print" in bundle["text/html"]

    kernel.run("print([[b.location.line for b in process.report.breaks] for process in job.processes])")
    assert kernel.stdout() == "[[], [6]]\n"

    kernel.run("%%compile_explain --processes -o report\nz = torch.ones(2) + 1")
    kernel.run("print(type(report).__name__, os.environ.get('TORCH_TRACE'))")
    assert kernel.stdout() == "Report None\n"


def test_a_forked_process_runs_code_of_cells(kernel: Kernel) -> None:
    kernel.run(
        "def work():\n    import torch\n    torch.compile(leaf, backend='eager')(torch.ones(3))\n\n"
        "def leaf(x):\n    torch._dynamo.graph_break()\n    return x + 1\n\nimport torch"
    )
    kernel.run(
        "%%compile_explain --processes -o job\nimport multiprocessing\ny = torch.compile(torch.sin)(torch.ones(2))\n"
        "process = multiprocessing.get_context('fork').Process(target=work)\nprocess.start()\nprocess.join()"
    )
    kernel.run("(b,) = job.breaks\nprint(b.place.cell.startswith('Cell In['), b.place.path, b.place.line)")
    assert kernel.stdout() == "True None 6\n"


@pytest.mark.exhaustive
def test_the_line_magic_explains_a_log(kernel: Kernel, tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD_PROGRAM)
    kernel.run(
        "import os, subprocess, sys\n"
        f"environment = os.environ | {{'TORCH_TRACE': {str(tmp_path / 'logs')!r}}}\n"
        f"subprocess.run([sys.executable, {str(script)!r}], check=True, env=environment)"
    )
    reply = kernel.run(f"%compile_explain -o explained --log {tmp_path / 'logs'}")
    assert reply["status"] == "ok"
    assert "print" in kernel.bundles()[-1]["text/plain"]
    kernel.run("print([b.location.line for b in explained.breaks])")
    assert kernel.stdout() == "[6]\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [("--log /nowhere/at/all", "/nowhere/at/all"), ("--log /tmp f(x)", "leave out 'f(x)'")],
)
def test_a_log_that_cannot_be_explained_is_a_usage_error(kernel: Kernel, line: str, message: str) -> None:
    reply = kernel.run(f"%compile_explain {line}")
    assert reply["ename"] == "UsageError"
    assert message in reply["evalue"]
