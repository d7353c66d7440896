"""``capture(compile=True)``: the modules that a block calls are compiled for its report."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from jupyter_graphbreak import capture
from jupyter_graphbreak.records.package_paths import is_library


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        if y.sum() > 0:
            y = y * 2
        return y


def train(model: torch.nn.Module, step_count: int) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(step_count):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_net(*, is_compiled: bool) -> tuple[list[float], list[str]]:
    torch.manual_seed(0)
    model = Net()
    with capture(compile=True) if is_compiled else contextlib.nullcontext() as run:
        losses = train(model, 3)
    if run is None:
        return losses, []
    report = run.report
    assert [(call.name, call.type, call.code) for call in report.compiled or []] == [
        ("model", "Net", "model.compile()")
    ]
    return losses, [str(break_.gb_id) for break_ in report.breaks]


def test_a_training_loop_has_the_same_result_and_its_break_is_reported() -> None:
    original_call = torch.nn.Module.__call__
    eager_losses, _ = train_net(is_compiled=False)
    assert train_net(is_compiled=True) == (eager_losses, ["GB0170"])
    assert torch.nn.Module.__call__ is original_call


def test_graphs_of_a_module_that_the_program_compiles_are_not_compiled_again() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
    model: Any = torch.compile(layers, backend="aot_eager")
    with capture(compile=True) as run:
        train(model, 2)
    assert not run.report.compiled
    assert len(run.report.graphs) == 1


def test_an_error_has_the_same_traceback_as_in_an_uncompiled_run() -> None:
    model = Net()
    with pytest.raises(RuntimeError, match="cannot be multiplied") as caught, capture(compile=True) as run:
        model(torch.ones(2, 5))
    this_file = Path(__file__).name
    frames = [entry.path for entry in caught.traceback]
    assert [Path(path).name for path in frames] == [
        this_file,
        "module.py",
        "module.py",
        this_file,
        "module.py",
        "module.py",
        "linear.py",
    ]
    assert run.report.status == "error"


def test_calls_on_a_different_thread_are_not_compiled() -> None:
    model, shapes = Net(), []
    with capture(compile=True) as run:
        thread = threading.Thread(target=lambda: shapes.append(model(torch.ones(1, 3)).shape))
        thread.start()
        thread.join()
    assert shapes == [(1, 3)]
    assert (run.report.compiled, run.report.frames) == ([], [])


def test_files_in_a_folder_of_installed_packages_are_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "target" / "lib-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "own").mkdir()
    for folder in ("target", "own"):
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    assert is_library(str(tmp_path / "target" / "lib" / "a.py"))
    assert is_library(torch.__file__)
    assert is_library(sys.modules["threading"].__file__ or "")
    assert not is_library(str(tmp_path / "own" / "a.py"))
    assert not is_library(str(tmp_path / "target_notes.py"))


def test_a_report_has_the_versions_of_the_libraries_that_took_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, attribute in (("lib_with", '__version__ = "2.0"\n'), ("lib_without", "")):
        information = tmp_path / f"{name}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        text = "import torch\n\ndef shift(x):\n    torch._dynamo.graph_break()\n    return x + 1\n"
        (tmp_path / f"{name}.py").write_text(attribute + text)
    monkeypatch.syspath_prepend(str(tmp_path))
    libraries = [importlib.import_module(name) for name in ("lib_with", "lib_without")]
    with capture() as run:
        torch.compile(lambda x: [library.shift(x) for library in libraries], backend="eager")(torch.ones(2))
    assert run.report.libraries == {"lib_with": "2.0", "lib_without": "1.0"}
    assert run.report.redacted().libraries == {}
