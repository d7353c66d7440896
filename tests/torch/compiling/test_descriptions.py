"""Compiled modules and functions: their names in the program, the statements that compile them, and their lines."""

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
PROGRAM = """import torch
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
    """An object that has a module."""

    def __init__(self) -> None:
        self.net = Net()

    def step(self, x: Any) -> Any:
        return self.net(x)


@pytest.fixture(autouse=True)
def _add_program_to_linecache() -> Iterator[None]:
    linecache.cache[FILE] = (len(PROGRAM), None, PROGRAM.splitlines(keepends=True), FILE)
    yield
    del linecache.cache[FILE]


def describe(target: Any, namespace: dict[str, Any], line: int | None = None, name: str = "f") -> CompiledForReport:
    (description,) = describe_compiled_callables([CompiledCallable(lambda: target, name, None, line)], namespace, FILE)
    return description


def test_a_module_is_compiled_in_place() -> None:
    model = Net()
    description = describe(model, {"_hidden": model, "model": model, "torch": torch}, line=4)
    assert (description.name, description.type, description.code) == ("model", "Net", "model.compile()")
    assert (description.filename, description.line) == (FILE, 3)


@pytest.mark.parametrize(
    "model", [Net(), torch.nn.Linear(2, 2), torch.nn.Sequential(Net())], ids=["own", "torch", "both"]
)
def test_the_statement_compiles_the_module_as_one_graph(model: torch.nn.Module) -> None:
    names: dict[str, Any] = {"model": model, "torch": torch}
    code = describe(model, names).code
    assert code is not None
    torch.compiler.reset()
    eager_code = code.replace("(model)", "(model, backend='eager')").replace("()", "(backend='eager')")
    exec(eager_code, names)
    with jupyter_graphbreak.capture() as run:
        names["model"](torch.ones(3, 2))
    assert run.report.summary.graphs == 1


def test_the_statement_binds_the_name_of_a_function_again() -> None:
    description = describe(loss, {"loss": loss, "t": torch})
    assert (description.name, description.type, description.code) == ("loss", None, "loss = t.compile(loss)")
    assert describe(loss, {"loss": loss}).code == "import torch\nloss = torch.compile(loss)"
    assert (description.filename, description.line) == (None, None)


def test_parts_of_objects_have_names() -> None:
    trainer = Trainer()
    names = {"trainer": trainer, "torch": torch}
    assert describe(trainer.net, names).code == "trainer.net.compile()"
    assert describe(trainer.step, names).code == "trainer.step = torch.compile(trainer.step)"
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model.head = torch.nn.ReLU()
    assert describe(model.head, {"model": model}).name == "model.head"


def test_an_object_without_a_name_has_no_compiling_code() -> None:
    description = describe(torch.nn.ReLU(), {}, line=4, name="ReLU")
    assert (description.name, description.code, description.line) == ("ReLU", None, None)
    description_of_dead_object = describe(None, {"model": None}, line=4, name="Net")
    assert (description_of_dead_object.name, description_of_dead_object.code, description_of_dead_object.line) == (
        "Net",
        None,
        None,
    )


@pytest.mark.parametrize(
    ("name", "line", "expected_line"),
    [
        ("model", 3, 3),
        ("model", 2, None),  # line 2 binds it
        ("loss", 5, None),  # a later line binds it
        ("loss", 8, 8),
        ("other", 8, None),  # the same line binds it
        ("other", 9, 9),
        ("elsewhere", 9, 9),
        ("model", 20, None),
        ("model", None, None),
    ],
)
def test_the_statement_is_inserted_before_the_first_use(name: str, line: int | None, expected_line: int | None) -> None:
    target = torch.nn.ReLU()
    assert describe(target, {name: target}, line).line == expected_line
