"""The recorded source text of functions with breaks, and the recorded names of modules."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.faults import internal_error_sentence
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.recording.recorder import record
from jupyter_graphbreak.results import Report
from jupyter_graphbreak.views.words.verdict import compiled_name

PROGRAM = """\
import torch


def identity(x):
    return x


def add_one(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y


def scale_items(x):
    scale = 2
    return [
        scale * int(item) for item in x
    ]


shout = lambda x: (print(x), x + 1)[1]
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[ModuleType]:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    spec = importlib.util.spec_from_file_location("program_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def first_lines_of_segments(report: Report) -> list[tuple[int, str]]:
    (source,) = [candidate for candidate in report.sources if candidate.name == "program.py"]
    return [(segment.first_line, segment.text.split("\n")[0].strip()) for segment in source.segments]


@pytest.mark.parametrize(
    ("name", "line", "code"),
    [
        ("add_one", 8, "def add_one(x):"),
        ("scale_items", 14, "def scale_items(x):"),
        ("shout", 21, "shout = lambda x: (print(x), x + 1)[1]"),
    ],
)
def test_only_the_function_around_a_break_is_recorded(program: ModuleType, name: str, line: int, code: str) -> None:
    report = jupyter_graphbreak.explain(getattr(program, name), torch.ones(2))
    assert report.breaks
    assert first_lines_of_segments(report) == [(line, code)]
    text = report.to_text()
    assert code in text
    assert "identity" not in text


LIBRARY = """\
import torch


def leaf(x):
    torch._dynamo.graph_break()
    return x + 1


def guard_leaf(x):
    x = x.sin()
    try:
        x = leaf(x)
    except ValueError:
        pass
    return x


def repeat_leaf(x):
    for _ in range(2):
        x = leaf(x)
    return x


def guard_repeat_leaf(x):
    try:
        return repeat_leaf(x) * 2
    finally:
        x = x + 1
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("guard_leaf", [("guard_leaf", "try", 9, 15)]),
        ("guard_repeat_leaf", [("guard_repeat_leaf", "try", 24, 28), ("repeat_leaf", "loop", 18, 21)]),
    ],
)
def test_a_library_function_that_is_skipped_shows_the_responsible_block(
    name: str, expected: list[tuple[str, str, int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "library_under_test.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(folder)
    paths = {**sysconfig.get_paths(), "purelib": str(folder)}
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
    monkeypatch.delitem(sys.modules, "library_under_test", raising=False)
    library = importlib.import_module("library_under_test")
    torch._dynamo.reset()
    report = jupyter_graphbreak.explain(getattr(library, name), torch.ones(3))
    assert {source.kind for source in report.sources if source.name == "library_under_test.py"} == {"library"}
    skipped = [(skipped.function, skipped.kind, skipped.location) for skipped in report.skipped]
    assert [
        (function, kind, location.line, location.end_line)
        for function, kind, location in skipped
        if location is not None
    ] == expected


def test_a_module_that_garbage_collection_imports_does_not_end_the_run() -> None:
    def import_new_module(*_: object) -> None:
        name = f"imported_by_collection_{len(imported_names)}"
        imported_names.append(name)
        sys.modules[name] = ModuleType(name)

    imported_names: list[str] = []
    threshold = gc.get_threshold()
    gc.callbacks.append(import_new_module)
    gc.set_threshold(1)
    try:
        with record():
            pass
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(import_new_module)
        for name in imported_names:
            del sys.modules[name]
    assert imported_names


def wrap(forward: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def wrapper(*args: object) -> torch.Tensor:
        return forward(*args)

    return wrapper


class Base(torch.nn.Module):
    @wrap
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale_up(x) + 1

    def scale_up(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


class Derived(Base):
    pass


def test_a_run_is_named_after_the_module_and_not_after_a_wrapper_or_the_base_class() -> None:
    model = Derived()
    torch._dynamo.reset()
    with jupyter_graphbreak.capture() as run:
        torch.compile(model, backend="eager")(torch.ones(2))
        torch.compile(model.scale_up, backend="eager")(torch.ones(2))
    assert [(frame.function, frame.module) for frame in run.report.frames] == [
        ("wrapper", "Derived"),
        ("scale_up", None),
    ]
    assert compiled_name(run.report) == "Derived and Base.scale_up"


HOOK_OUTPUTS: dict[str, object] = {}


def store_output(*arguments: object) -> None:
    HOOK_OUTPUTS["last"] = arguments[2]


def test_a_module_of_torchs_own_class_names_the_wrapper_that_is_compiled() -> None:
    torch._dynamo.reset()
    HOOK_OUTPUTS.clear()
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model[0].register_forward_hook(store_output)
    compiled = torch.compile(model, backend="eager")
    with jupyter_graphbreak.capture() as run:
        for _ in range(2):
            compiled(torch.ones(1, 2))
    assert [frame.module for frame in run.report.frames] == ["Sequential"] * 2
    text = " ".join(run.report.to_text().split())
    assert "Sequential was compiled twice: len(tests.torch.test_recorder.HOOK_OUTPUTS) varied" in text
    assert "len(tests.torch.test_recorder.HOOK_OUTPUTS): 0 -> 1 or more" in text


class CountingDescent(torch.optim.Optimizer):
    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        del closure
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state["step"] = state.get("step", 0) + 1
            parameter.sub_(0.1 * parameter.grad)


def test_the_compiled_step_of_an_optimizer_has_the_name_of_its_class() -> None:
    torch._dynamo.reset()
    parameter = torch.ones(2, requires_grad=True)
    parameter.grad = torch.ones(2)
    step = torch.compile(CountingDescent([parameter]).step, backend="eager")
    with jupyter_graphbreak.capture() as run:
        for _ in range(4):
            step()
    assert compiled_name(run.report) == "CountingDescent.step"
    text = " ".join(run.report.to_text().split())
    assert "No breaks, but CountingDescent.step was compiled 3 times: len(self.state) varied." in text
    assert "a count in the optimizer's state is 0 or 1 at first" in text
    assert "args[0]" not in text


def test_an_internal_error_while_recording_a_trial_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> bool:
        raise RuntimeError("broken")

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    compiled = torch.compile(f, backend="eager")
    with jupyter_graphbreak.capture(entries=True) as run:
        compiled(torch.ones(2))
    monkeypatch.setattr(recorder, "is_known_code", fail)
    for report in (run.check(), jupyter_graphbreak.check(compiled, torch.ones(2))):
        assert [note.message for note in report.diagnostics] == [
            internal_error_sentence("listing known code", RuntimeError("broken"))
        ]
