"""The advice for loops, try blocks and with blocks matches what Dynamo does, and depends on the owner of the code."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.experiments.remedies.remedy_list import manual_step_of_break
from jupyter_graphbreak.knowledge.owners import (
    LIBRARY_OPTIMIZER_ADVICE,
    LIBRARY_OPTIMIZER_MANUAL_STEP,
    OPTIMIZER_ADVICE,
    OPTIMIZER_MANUAL_STEP,
)
from jupyter_graphbreak.report.schema import Break
from jupyter_graphbreak.results import Report
from jupyter_graphbreak.views.words.advice import advice_for_break

ONES = torch.ones(3)


@pytest.fixture(autouse=True)
def reset_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def break_graph() -> None:
    torch._dynamo.graph_break()


def body(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


def break_in_loop(x: torch.Tensor) -> torch.Tensor:
    x = x.sin()
    for _ in range(3):
        x = x + 1
        break_graph()
        x = x * 2
    return x.cos()


def body_in_loop(x: torch.Tensor) -> torch.Tensor:
    x = x.sin()
    for _ in range(3):
        x = body(x)
    return x.cos()


def only_the_loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = body(x)
    return x


def loop_in_a_function(x: torch.Tensor) -> torch.Tensor:
    x = x.sin()
    x = only_the_loop(x)
    return x.cos()


def body_in_try(x: torch.Tensor) -> torch.Tensor:
    x = x.sin()
    try:  # noqa: SIM105 - the test needs a try block
        x = body(x)
    except ValueError:
        pass
    return x.cos()


@pytest.mark.parametrize(
    ("function", "eager_names", "compiled_names"),
    [
        (break_in_loop, ["break_in_loop"], set()),  # moving only the break into a function changes nothing
        (body_in_loop, ["body_in_loop"], {"body"}),
        (loop_in_a_function, ["only_the_loop"], {"body", "loop_in_a_function"}),
        (body_in_try, ["body_in_try"], {"body"}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_functions_are_listed_as_eager_or_compiled(
    function: Callable[..., object], eager_names: list[str], compiled_names: set[str]
) -> None:
    report = jupyter_graphbreak.explain(function, ONES)
    assert [skipped.function for skipped in report.skipped] == eager_names
    assert {graph.name for graph in report.graphs} == compiled_names


LIBRARY = """
import torch


class Optimizer(torch.optim.Optimizer):
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            if parameter.sum() > 0:
                parameter.data.mul_(0.5)


def clip(x):
    if x.sum() > 1:
        return x / x.sum()
    return x


def numbers(x):
    total = x
    for _ in range(2):
        total = total * x.sum().item()
    return total


def add_after_break(x):
    torch._dynamo.graph_break()
    return x + 1
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "clipping_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "clipping_library", raising=False)
    return importlib.import_module("clipping_library")


def advice_for(fn: Callable[..., object]) -> tuple[Report, Break, list[str]]:
    with jupyter_graphbreak.capture() as run:
        torch.compile(fn, backend="eager")(ONES)
    graph_break = run.report.breaks[0]
    return run.report, graph_break, [advice.text for advice in advice_for_break(run.report, graph_break)]


def test_advice_for_a_library_can_be_followed_by_its_user(library: ModuleType) -> None:
    report, graph_break, advice_texts = advice_for(lambda x: library.clip(x) + 1)
    assert graph_break.owner == "library"
    assert len(advice_texts) == 1
    assert advice_texts == [
        "compile a part of the model that does not run this line, and report the break to the library"
    ]
    assert "torch.where" not in manual_step_of_break(report, graph_break)


def test_a_setting_also_helps_with_a_library(library: ModuleType) -> None:
    report, graph_break, advice_texts = advice_for(lambda x: library.numbers(x) + 1)
    assert graph_break.owner == "library"
    setting = "torch._dynamo.config.capture_scalar_outputs = True"
    assert advice_texts[0] == f"set {setting}, if only tensor operations use the number"
    assert "loop's body" not in " ".join(advice_texts)
    (skipped,) = [skipped for skipped in report.skipped if skipped.function == "numbers"]
    assert skipped.kind == "loop"
    assert skipped.way_out is None  # users do not edit a library


def test_a_deliberate_break_in_a_library_stays(library: ModuleType) -> None:
    _, _, advice_texts = advice_for(lambda x: library.add_after_break(x) + 1)
    assert advice_texts == [
        "the library breaks here on purpose: leave it, or compile a part of the model that does not call it"
    ]


def test_advice_for_pytorchs_optimizer_does_not_ask_the_reader_to_change_it() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.step()
        return x + 1

    report, graph_break, advice_texts = advice_for(step)
    assert graph_break.owner == "torch"
    assert advice_texts == [OPTIMIZER_ADVICE]
    assert manual_step_of_break(report, graph_break) == OPTIMIZER_MANUAL_STEP


def test_a_librarys_optimizer_stays_outside_compiled_code(library: ModuleType) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = library.Optimizer([weight], {})

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.step()
        return x + 1

    report, graph_break, advice_texts = advice_for(step)
    assert graph_break.owner == "library"
    assert advice_texts[-1] == LIBRARY_OPTIMIZER_ADVICE
    assert manual_step_of_break(report, graph_break) == LIBRARY_OPTIMIZER_MANUAL_STEP


def test_a_model_that_an_optimizer_calls_is_no_optimizer(library: ModuleType) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(3))], lr=0.1)

    @torch.compile(backend="eager")
    def loss(x: torch.Tensor) -> torch.Tensor:
        return library.clip(x).sum()  # type: ignore[no-any-return]

    with jupyter_graphbreak.capture() as run:
        optimizer.step(lambda: float(loss(ONES)))
    assert any("optim" in source.name for source in run.report.sources)
    (graph_break,) = run.report.breaks
    assert graph_break.owner == "library"
    assert LIBRARY_OPTIMIZER_ADVICE not in [advice.text for advice in graph_break.advice]


def test_a_line_of_the_standard_library_belongs_to_its_caller() -> None:
    logger = logging.getLogger("graphbreak.tests")

    def log_sum(x: torch.Tensor) -> torch.Tensor:
        logger.info("sum %s", x)
        return x + 1

    _, graph_break, advice_texts = advice_for(log_sum)
    assert graph_break.owner == "own"
    assert advice_texts[0].startswith("log after the call")


def scale_if_file_exists(x: torch.Tensor, path: str) -> torch.Tensor:
    return x * 2 if os.path.exists(path) else x  # noqa: PTH110 - this function is in a module without source


def test_a_break_in_a_frozen_module_is_at_the_call() -> None:
    (break_,) = jupyter_graphbreak.explain(scale_if_file_exists, ONES, "/missing").breaks
    assert break_.location is not None
    assert (break_.location.function, break_.location.code) == ("scale_if_file_exists", "os.path.exists(path)")
    assert break_.stack[-1] == break_.location
