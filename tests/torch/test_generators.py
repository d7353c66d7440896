"""Generators that are breaks themselves, that follow from another break, or that are in use across a break."""

from __future__ import annotations

import ast
import importlib
import json
import logging
import os
import pathlib
import pickle
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.recording import recorder
from jupyter_graphbreak.results import Report

ONES = torch.ones(3)
#: Earlier releases stop compiling some functions silently or for different reasons.
IS_RECENT = hasattr(torch._dynamo.convert_frame.CatchErrorsWrapper, "_handle_skip")
#: Since Python 3.13, json has no generators that Dynamo tries to compile, and pathlib breaks at one more call.
IS_BEFORE_3_13 = sys.version_info < (3, 13)
log = logging.getLogger("a logger of the test")
log.addHandler(logging.NullHandler())


@pytest.fixture(autouse=True)
def reset_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def save_tensor(x: torch.Tensor, folder: str) -> torch.Tensor:
    y = x + 1
    torch.save(y, os.path.join(folder, "saved.pt"))  # noqa: PTH118
    return y * 2


def dump_json(x: torch.Tensor, _: str) -> torch.Tensor:
    y = x + 1
    text = json.dumps({"a": [1, 2, {"b": 3}]}, indent=2)
    return y * len(text)


def dump_json_over_lines(x: torch.Tensor, _: str) -> torch.Tensor:
    y = x + 1
    text = json.dumps(
        {"a": [1, 2, {"b": 3}]},
        indent=2,
    )
    return y * len(text)


def dump_json_to_file(x: torch.Tensor, folder: str) -> torch.Tensor:
    y = x + 1
    with open(os.path.join(folder, "dumped.json"), "w") as file:  # noqa: PTH118, PTH123
        json.dump({"a": [1, 2, {"b": 3}]}, file)
    return y * 2


def list_files(x: torch.Tensor, folder: str) -> torch.Tensor:
    y = x + 1
    count = len(list(pathlib.Path(folder).glob("*.py")))
    count += len(list(os.walk(folder)))
    return y * count


def log_number(x: torch.Tensor, _: str) -> torch.Tensor:
    y = x + 1
    log.warning("three is %s", 3)
    return y * 2


def pickle_tensor(x: torch.Tensor, _: str) -> torch.Tensor:
    y = x + 1
    return y * len(pickle.dumps(y))


def match_pattern(x: torch.Tensor, _: str) -> torch.Tensor:
    y = x + 1
    re.compile("a(b|c)*d+x").match("abcd")
    return y * 2


def make_folder(x: torch.Tensor, _: str) -> torch.Tensor:
    y = x + 1
    with tempfile.TemporaryDirectory() as folder:
        os.listdir(folder)  # noqa: PTH208
    return y * 2


def numbers() -> Iterator[int]:
    yield 1
    yield 2


def sum_generator(x: torch.Tensor, folder: str) -> torch.Tensor:
    y = x + 1
    with open(os.path.join(folder, "mine"), "w"):  # noqa: PTH118, PTH123
        total = sum(numbers())
    return y * total


def generators_that_break(report: Report) -> list[str]:
    """Return the generators that are breaks themselves."""
    return [b.stack[-1].function or "" for b in report.breaks if b.gb_type == "Attempt to trace generator"]


@pytest.mark.parametrize(
    ("function", "breaks"),
    [
        (save_tensor, 1), (dump_json, 1), (dump_json_over_lines, 1), (dump_json_to_file, 2),
        (log_number, 1), (pickle_tensor, 1), (make_folder, 2),
        *([(list_files, 1 if IS_BEFORE_3_13 else 2), (match_pattern, 0)] if IS_RECENT else []),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)  # fmt: skip
def test_generators_of_the_standard_library_are_left_out(
    function: Callable[..., object], breaks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("torch.utils.serialization")]:
        monkeypatch.delitem(sys.modules, name)  # torch.save then imports it again, which runs generators
    report = jupyter_graphbreak.explain(function, ONES, str(tmp_path))
    assert generators_that_break(report) == []
    assert len(report.breaks) == breaks
    assert [skipped.function for skipped in report.skipped if skipped.kind == "generator"] == []


def test_generators_of_a_library_follow_from_the_break_that_called_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "counting_library.py").write_text("def counted():\n    yield 1\n    yield 2\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys.modules[__name__], "numbers", importlib.import_module("counting_library").counted)
    report = jupyter_graphbreak.explain(sum_generator, ONES, str(tmp_path))
    assert generators_that_break(report) == []
    breaks_by_id = {break_.id: break_ for break_ in report.breaks}
    (skipped,) = [skipped for skipped in report.skipped if skipped.kind == "generator"]
    assert skipped.function == "counted"
    assert skipped.break_ is not None
    assert skipped.id in breaks_by_id[skipped.break_].skipped
    assert skipped.reason == "a library's generator, called by code that runs eagerly because of the break"


def test_the_users_own_generator_is_a_break(tmp_path: Path) -> None:
    report = jupyter_graphbreak.explain(sum_generator, ONES, str(tmp_path))
    assert generators_that_break(report) == ["numbers"]
    (skipped,) = [skipped for skipped in report.skipped if skipped.kind == "generator"]
    assert (skipped.function, skipped.way_out) == ("numbers", "compile the function that consumes it")


def test_a_directly_compiled_generator_of_a_library_is_a_break() -> None:
    compiled = torch.compile(ast.walk, backend="eager")
    with recorder.record() as recording:
        list(compiled(ast.parse("x = 1")))
    assert [break_.gb_type for break_ in build_report(recording.records).breaks] == ["Attempt to trace generator"]


def count_up(x: torch.Tensor, numbers_so_far: list[int]) -> Iterator[torch.Tensor]:
    for number in range(3):
        numbers_so_far.append(number)
        yield x + number


def use_generator_across_break(x: torch.Tensor) -> torch.Tensor:
    numbers_so_far: list[int] = []
    generator = count_up(x, numbers_so_far)
    y = next(generator)
    torch._dynamo.graph_break()
    return y + next(generator)


def exhaust_generator_before_break(x: torch.Tensor) -> torch.Tensor:
    numbers_so_far: list[int] = []
    items = list(count_up(x, numbers_so_far))
    torch._dynamo.graph_break()
    return items[0] + items[1]


@pytest.mark.skipif(not IS_RECENT, reason="earlier releases of torch keep the graph")
def test_a_generator_in_use_across_a_break_has_its_own_reason() -> None:
    report = jupyter_graphbreak.explain(use_generator_across_break, ONES)
    assert "Generator reconstruction with mutations" in [break_.gb_type for break_ in report.breaks]
    (skipped,) = report.skipped
    assert skipped.kind == "other"
    assert skipped.reason.startswith(
        "a generator that consumes an iterator or changes objects is in use across a graph"
    )
    assert skipped.way_out == (
        "use a list instead, such as all([...]) instead of all(...), or list(...) before the break; or remove the "
        "other break on this line"
    )
    assert skipped.way_out in [step.text for break_ in report.breaks for step in break_.advice]


def test_the_advice_for_a_generator_in_use_works() -> None:
    report = jupyter_graphbreak.explain(exhaust_generator_before_break, ONES)
    assert report.skipped == []
    assert len(report.graphs) == 2
