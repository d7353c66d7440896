"""The callbacks that pass events on to other packages, with stand-ins for these packages."""

from __future__ import annotations

import logging
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak import callbacks
from jupyter_graphbreak.views.words.events import Event

EVENTS = [
    Event("compile", "f", "Compiled f in 2.0 s.", 2.0),
    Event("break", "f", "Graph break in f.", gb_id="GB0025"),
    Event("compile", "g", "Compiled g in 1.0 s.", 1.0),
]


@pytest.fixture(autouse=True)
def reset_dynamo() -> None:
    torch.compiler.reset()


def break_once(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


def test_a_break_is_logged_at_a_higher_level_than_a_compilation(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "jupyter_graphbreak.compiling"),
        jupyter_graphbreak.capture(on_event=callbacks.to_logging()),
    ):
        torch.compile(break_once, backend="eager")(torch.ones(2))
    logged_records = [(record.levelname, record.getMessage().split()[0]) for record in caplog.records]
    assert logged_records == [("INFO", "Compiled"), ("WARNING", "Graph"), ("INFO", "Compiled")]


def test_tensorboard_gets_totals_and_sentences() -> None:
    writer_calls: list[tuple[Any, ...]] = []

    class Writer:
        def add_scalar(self, *arguments: Any) -> None:
            writer_calls.append(arguments)

        def add_text(self, *arguments: Any) -> None:
            writer_calls.append(arguments)

    receive = callbacks.to_tensorboard(Writer(), step=lambda: 7)
    for event in EVENTS:
        receive(event)
    assert writer_calls == [
        ("compiling/compile", 1, 7),
        ("compiling/seconds", 2.0, 7),
        ("compiling/events", "Compiled f in 2.0 s.", 7),
        ("compiling/break", 1, 7),
        ("compiling/events", "Graph break in f.", 7),
        ("compiling/compile", 2, 7),
        ("compiling/seconds", 3.0, 7),
        ("compiling/events", "Compiled g in 1.0 s.", 7),
    ]
    writer_calls.clear()
    receive = callbacks.to_tensorboard(Writer())
    for event in EVENTS[:2]:
        receive(event)
    assert [step for *_, step in writer_calls] == [1, 1, 1, 2, 2]


def test_weights_and_biases_gets_totals_but_no_step() -> None:
    logged_records: list[tuple[dict[str, float], bool]] = []
    receive = callbacks.to_wandb(
        types.SimpleNamespace(log=lambda numbers, commit: logged_records.append((numbers, commit)))
    )
    for event in EVENTS:
        receive(event)
    assert logged_records == [
        ({"compiling/compile": 1, "compiling/seconds": 2.0}, False),
        ({"compiling/break": 1}, False),
        ({"compiling/compile": 2, "compiling/seconds": 3.0}, False),
    ]


class BaseCallback:
    """The base class of callbacks in the stand-ins."""


def lightning_step(callback: Any, step: int) -> None:
    callback.on_train_batch_start(types.SimpleNamespace(global_step=step), None, None, 0)


def transformers_step(callback: Any, step: int) -> None:
    callback.on_step_begin(None, types.SimpleNamespace(global_step=step), None, model=None)


@pytest.mark.parametrize(
    ("name", "module", "base", "begin_step"),
    [
        ("LightningCallback", "lightning.pytorch", "Callback", lightning_step),
        ("TransformersCallback", "transformers", "TrainerCallback", transformers_step),
    ],
)
def test_training_is_watched_after_its_warm_up(
    name: str, module: str, base: str, begin_step: Callable[[Any, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = types.ModuleType(module)
    setattr(stand_in, base, BaseCallback)
    monkeypatch.setitem(sys.modules, module.partition(".")[0], types.ModuleType(module.partition(".")[0]))
    monkeypatch.setitem(sys.modules, module, stand_in)
    monkeypatch.delitem(vars(callbacks), name, raising=False)
    callback_class = getattr(callbacks, name)
    assert getattr(callbacks, name) is callback_class
    assert issubclass(callback_class, BaseCallback)
    events: list[Event] = []
    callback = callback_class(events.append, warm_up_steps=2)
    assert pickle.loads(pickle.dumps(callback_class(print, warm_up_steps=2)))._warm_up_steps == 2
    compiled = torch.compile(break_once, backend="eager", dynamic=False)
    if name == "TransformersCallback":
        callback.on_train_begin(None, None, None)
    for step, size in enumerate((2, 2, 2, 3, 3)):
        begin_step(callback, step)
        assert (callback.report is None) == (step < 2)
        compiled(torch.ones(size))
    assert [event.kind for event in events] == ["recompile", "break", "recompile"]
    assert len(callback.report.recompiles) == 2
    callback.on_train_end(None, None, None)
    compiled(torch.ones(4))
    assert len(callback.report.recompiles) == 2
    callback.on_train_end(None, None, None)
    monkeypatch.delitem(vars(callbacks), name)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(callbacks), "LightningCallback", raising=False)
    for module in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"LightningCallback needs lightning\.pytorch or pytorch_lightning"):
        _ = callbacks.LightningCallback
