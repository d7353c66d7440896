"""What is kept of files: the functions that took part, with the text at every break."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.results import Report

PROGRAM = """\
import torch


def untouched(x):
    return x


def named(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y


def with_comprehension(x):
    scale = 2
    return [
        scale * int(each) for each in x
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


def kept(report: Report) -> list[tuple[int, str]]:
    (source,) = [candidate for candidate in report.sources if candidate.name == "program.py"]
    return [(segment.first_line, segment.text.split("\n")[0].strip()) for segment in source.segments]


@pytest.mark.parametrize(
    ("name", "line", "code"),
    [
        ("named", 8, "def named(x):"),
        ("with_comprehension", 14, "def with_comprehension(x):"),
        ("shout", 21, "shout = lambda x: (print(x), x + 1)[1]"),
    ],
)
def test_the_function_around_a_break_is_kept_and_no_other(program: ModuleType, name: str, line: int, code: str) -> None:
    report = jupyter_graphbreak.explain(getattr(program, name), torch.ones(2))
    assert report.breaks
    assert kept(report) == [(line, code)]
    text = report.to_text()
    assert code in text
    assert "untouched" not in text
