"""A switch of a library is on only during its trial, and a remedy shows its code."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

import jupyter_graphbreak

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

FILES = {
    "gpytorch/__init__.py": "from gpytorch import settings, kernels\n",
    "gpytorch/utils/__init__.py": "",
    "gpytorch/kernels.py": """
from gpytorch import settings
from gpytorch.utils.memoize import cached


def evaluated(x):
    return cached(x) if settings.lazily_evaluate_kernels.is_on else x + 1
""",
    "gpytorch/settings.py": """
class lazily_evaluate_kernels:
    is_on = True

    def __init__(self, state=True):
        self.state = state

    def __enter__(self):
        type(self).is_on = self.state
        type(self).entered = True
""",
    "gpytorch/utils/memoize.py": """
import pickle


def cached(x):
    pickle.dumps({})
    return x + 1
""",
}


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    folder = tmp_path / "site-packages"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        module = name.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module("gpytorch")


def test_a_switch_of_a_library_is_tried_and_restored(library: Any) -> None:
    report = jupyter_graphbreak.try_remedies(lambda x: library.kernels.evaluated(x) * 2, torch.ones(3))
    (break_,) = report.breaks
    switch = "gpytorch.settings.lazily_evaluate_kernels(False).__enter__()"
    assert break_.advice[0].text.endswith(f": {switch}")
    remedy = next(remedy for remedy in report.remedies or [] if remedy.kind == "switch")
    assert (remedy.verdict, remedy.code) == ("works", f"import gpytorch\n{switch}")
    assert library.settings.lazily_evaluate_kernels.is_on
    assert not hasattr(library.settings.lazily_evaluate_kernels, "entered")


LOOP = "torch_geometric/utils/loop.py"


@pytest.mark.exhaustive
def test_code_for_the_model_names_it_as_the_program_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    (tmp_path / "site-packages" / LOOP).parent.mkdir(parents=True)
    (tmp_path / "site-packages" / LOOP).write_text("def looped(x):\n    return x[x > 0]\n")
    for name in ("torch_geometric", "torch_geometric.utils", "torch_geometric.utils.loop"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    names: dict[str, Any] = {"torch": torch, "loop": importlib.import_module("torch_geometric.utils.loop")}
    program = (
        "class Net(torch.nn.Module):\n    add_self_loops = True\n    def forward(self, x):\n"
        "        return loop.looped(x) if self.add_self_loops else x[:]\n"
        "net = Net()\ndef step(x):\n    return net(x)\n"
    )
    exec(program, names)
    report = jupyter_graphbreak.try_remedies(names["step"], torch.ones(3))
    remedy = next(remedy for remedy in report.remedies or [] if "self-loops" in remedy.title)
    assert remedy.code is not None
    assert "for module in net.modules():" in remedy.code
