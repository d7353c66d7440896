"""The text for an issue shows paths within packages, not the folder in which a package is installed."""

from __future__ import annotations

import pytest

from jupyter_graphbreak.experiments.reproducer.finding import issue_text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('  File "/home/ann/env/lib/python3.12/site-packages/torch/nn/x.py", line 3', '  File "torch/nn/x.py", line 3'),
        (r'  File "C:\Users\ann\Lib\site-packages\torch\x.py", line 3', r'  File "torch\x.py", line 3'),
        ("/usr/lib/python3/dist-packages/torch/x.py:3: UserWarning: slow", "torch/x.py:3: UserWarning: slow"),
    ],
)
def test_paths_begin_with_the_package(line: str, expected: str) -> None:
    text = issue_text("a title", "import torch", f"first\n{line}\nlast", [])
    assert f"\nfirst\n{expected}\nlast\n" in text
