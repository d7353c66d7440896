"""Compiled modules and functions have their names in the program, the statement that compiles them, and its place."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.compiling.descriptions import CompiledCallable, describe_compiled_callables
from jupyter_graphbreak.records.additions import CompiledForReport

FILE = "<described>"
TEXT = """import torch
model = Net()
for batch in batches:
    y = model(batch)
    z = loss(y)
@decorated
def loss(y): return y
loss(y); other = 1
last = other(y)
"""


def loss(y: Any) -> Any:
    return y


class Net(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2


class Trainer:
    """Has parts."""

    def __init__(self) -> None:
        self.net = Net()

    def step(self, x: Any) -> Any:
        return self.net(x)


@pytest.fixture(autouse=True)
def _text() -> Iterator[None]:
    linecache.cache[FILE] = (len(TEXT), None, TEXT.splitlines(keepends=True), FILE)
    yield
    del linecache.cache[FILE]


def description(target: Any, namespace: dict[str, Any], line: int | None = None, name: str = "f") -> CompiledForReport:
    (description_,) = describe_compiled_callables([CompiledCallable(lambda: target, name, None, line)], namespace, FILE)
    return description_


def test_a_module_is_compiled_in_place() -> None:
    model = Net()
    compiled = description(model, {"_hidden": model, "model": model, "torch": torch}, line=4)
    assert (compiled.name, compiled.type, compiled.code) == ("model", "Net", "model.compile()")
    assert (compiled.filename, compiled.line) == (FILE, 3)


@pytest.mark.parametrize(
    "model", [Net(), torch.nn.Linear(2, 2), torch.nn.Sequential(Net())], ids=["own", "torch", "both"]
)
def test_the_statement_compiles_the_module_as_one_graph(model: torch.nn.Module) -> None:
    names: dict[str, Any] = {"model": model, "torch": torch}
    code = description(model, names).code
    assert code is not None
    torch.compiler.reset()
    eagerly = code.replace("(model)", "(model, backend='eager')").replace("()", "(backend='eager')")
    exec(eagerly, names)  # noqa: S102 - the offered statement
    with jupyter_graphbreak.capture() as run:
        names["model"](torch.ones(3, 2))
    assert run.report.summary.graphs == 1


def test_the_statement_binds_the_name_of_a_function_again() -> None:
    compiled = description(loss, {"loss": loss, "t": torch})
    assert (compiled.name, compiled.type, compiled.code) == ("loss", None, "loss = t.compile(loss)")
    assert description(loss, {"loss": loss}).code == "import torch\nloss = torch.compile(loss)"
    assert (compiled.filename, compiled.line) == (None, None)


def test_parts_of_objects_have_names() -> None:
    trainer = Trainer()
    names = {"trainer": trainer, "torch": torch}
    assert description(trainer.net, names).code == "trainer.net.compile()"
    assert description(trainer.step, names).code == "trainer.step = torch.compile(trainer.step)"
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model.head = torch.nn.ReLU()
    assert description(model.head, {"model": model}).name == "model.head"


def test_an_object_without_a_name_has_no_compiling_code() -> None:
    compiled = description(torch.nn.ReLU(), {}, line=4, name="ReLU")
    assert (compiled.name, compiled.code, compiled.line) == ("ReLU", None, None)
    gone = description(None, {"model": None}, line=4, name="Net")
    assert (gone.name, gone.code, gone.line) == ("Net", None, None)


@pytest.mark.parametrize(
    ("name", "line", "place"),
    [
        ("model", 3, 3),
        ("model", 2, None),  # it is bound there
        ("loss", 5, None),  # it is bound below
        ("loss", 8, 8),
        ("other", 8, None),  # it is bound on the same line
        ("other", 9, 9),
        ("elsewhere", 9, 9),
        ("model", 20, None),
        ("model", None, None),
    ],
)
def test_the_statement_is_inserted_before_the_first_use(name: str, line: int | None, place: int | None) -> None:
    target = torch.nn.ReLU()
    assert description(target, {name: target}, line).line == place
