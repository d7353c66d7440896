"""Trials restore assigned attributes of user modules, and refuse assignments to attributes of packages."""

from __future__ import annotations

import dis
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.experiments.trial.assigned_attributes import assigned_attributes
from jupyter_graphbreak.experiments.trial.library_parts import library_parts
from tests.support.sampling import sample_parameters

pytestmark = pytest.mark.usefixtures("few_unusual_inputs")

ONES = torch.ones(3)
MODULE = """
import own_part
COUNT = 0
ITEMS = []
class Thing:
    total = 0
class Meta(type):
    instances = []
    def __call__(cls):
        Meta.instances.append(cls)
        return super().__call__()
class Part(metaclass=Meta):
    pass
"""
#: Statements that change a user module, and an expression for what they change.
CHANGES_OF_USER_MODULES = {
    "an attribute": ("own.COUNT += 1", "own.COUNT"),
    "a new attribute": ("own.NEW = 1", "hasattr(own, 'NEW')"),
    "an import in the function": ("import own as other\n    other.COUNT += 1", "own.COUNT"),
    "a name imported in the function": ("from own import ITEMS\n    ITEMS.append(1)", "len(own.ITEMS)"),
    "a module by its name": ("sys.modules['own'].ITEMS.append(1)", "len(own.ITEMS)"),
    "a class": ("own.Thing.total += 1", "own.Thing.total"),
    "a metaclass": ("own.Part()", "len(own.Meta.instances)"),
    "a module in a module": ("own.own_part.VALUE += 1", "own.own_part.VALUE"),
}
#: Statements that change a module of a library or of Python.
CHANGES_OF_LIBRARIES = {
    "a standard function": ("json.dumps = str", "json.dumps is str"),
    "a new attribute": ("torch.calls = getattr(torch, 'calls', 0) + 1", "getattr(torch, 'calls', 0)"),
    "a class": (
        "torch.nn.Linear.calls = getattr(torch.nn.Linear, 'calls', 0) + 1",
        "hasattr(torch.nn.Linear, 'calls')",
    ),
    "a builtin": ("builtins.calls = 1", "hasattr(builtins, 'calls')"),
    "a builtin by its name": ("setattr(builtins, 'calls', 1)", "hasattr(builtins, 'calls')"),
    "a module that is loaded again": ("importlib.reload(colorsys)", "colorsys.rgb_to_hsv is RGB_TO_HSV"),
    "the folder of models": ("torch.hub.set_dir('models')", "torch.hub.get_dir()"),
    "the way processes share tensors": (
        "torch.multiprocessing.set_sharing_strategy('file_system')",
        "torch.multiprocessing.get_sharing_strategy()",
    ),
    "a fault timer": ("faulthandler.dump_traceback_later(1000, file=sys.__stderr__)", "None"),
    "standard output": ("sys.stdout = io.StringIO()", "type(sys.stdout)"),
    "the trace function": ("sys.settrace(trace)", "sys.gettrace() is trace"),
    "log records": ("logging.disable(7)", "logging.root.manager.disable"),
    "a handler": ("HANDLER.setLevel(7)", "HANDLER.level"),
    "the socket timeout": ("socket.setdefaulttimeout(7)", "socket.getdefaulttimeout()"),
}
PROGRAM = """
import builtins, colorsys, faulthandler, importlib, io, json, logging, socket, sys
import torch, torch.multiprocessing
import own
HANDLER, RGB_TO_HSV = logging.NullHandler(), colorsys.rgb_to_hsv
logging.getLogger("own").addHandler(HANDLER)
def trace(*_):
    return None
def step(x):
    STATEMENT
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    return y
def read_state():
    return EXPRESSION
"""
LINE = 10


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Any]]:
    torch._dynamo.reset()
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own.py").write_text(MODULE)
    (tmp_path / "own_part.py").write_text("VALUE = 0\n")

    def load_program(statement: str, expression: str) -> Any:
        text = PROGRAM.replace("STATEMENT", statement).replace("EXPRESSION", expression)
        (tmp_path / "own_program.py").write_text(text)
        importlib.invalidate_caches()
        return importlib.import_module("own_program")

    yield load_program
    for name in ("own", "own_part", "own_program"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("case", sample_parameters(CHANGES_OF_USER_MODULES, 4))
def test_a_user_module_is_restored(program: Callable[[str, str], Any], case: str) -> None:
    module = program(*CHANGES_OF_USER_MODULES[case])
    state_before = module.read_state()
    comparison = jupyter_graphbreak.compare_frontends(module.step, ONES)
    assert module.read_state() == state_before
    assert comparison.effects is None
    assert comparison.verdicts


@pytest.mark.parametrize("case", CHANGES_OF_LIBRARIES)
def test_a_function_that_changes_a_library_is_not_run(program: Callable[[str, str], Any], case: str) -> None:
    module = program(*CHANGES_OF_LIBRARIES[case])
    state_before = module.read_state()
    report = jupyter_graphbreak.try_remedies(module.step, ONES, seconds=600)
    comparison = jupyter_graphbreak.compare_frontends(module.step, ONES)
    assert module.read_state() == state_before
    for effects in (report.effects, comparison.effects):
        assert [(effect.kind, effect.location and effect.location.line) for effect in effects or []] == [
            ("state", LINE)
        ]


def test_attribute_assignments_in_code_are_found() -> None:
    def assign_attributes(value: Any) -> None:
        import json as text

        json.one = value  # type: ignore[attr-defined]
        torch.nn.two += value  # type: ignore[attr-defined]
        text.three = torch.nn.functional.relu(value)  # type: ignore[attr-defined]
        value.four = json.dumps

    assert isinstance(assign_attributes, FunctionType)
    attributes = {(owner.__name__, name) for (_, name), owner in assigned_attributes(assign_attributes).items()}
    assert attributes == {("json", "one"), ("torch.nn", "two"), ("json", "three")}


@pytest.mark.parametrize("marks_callees_last", [False, True])
def test_called_classes_do_not_count_as_passed_on(marks_callees_last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def instructions_of_python_3_13(code: Any) -> Iterator[dis.Instruction]:
        for instruction in instructions(code):
            mark, separator, name = instruction.argrepr.partition(" + ")
            yield instruction._replace(argrepr=f"{name} + {mark}") if separator else instruction

    def f(value: Any) -> Any:
        setattr(json, "one", value)  # noqa: B010
        return dis.Bytecode(Path(value).read_text())

    instructions = dis.get_instructions
    if marks_callees_last and sys.version_info < (3, 13):
        monkeypatch.setattr(dis, "get_instructions", instructions_of_python_3_13)
    f.__code__ = f.__code__.replace()  # the result for a code object is cached
    descriptions = [part.description for part in library_parts([f])]  # type: ignore[list-item]
    assert [text for text in descriptions if text.startswith("sets attributes of")] == ["sets attributes of json"]
