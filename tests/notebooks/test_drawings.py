"""The drawings are up to date, their numbers are as measured, and each of them is on a page."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import torch

import jupyter_graphbreak
from notebooks import drawings

PAGES = Path(drawings.__file__).parent


@pytest.mark.parametrize("name", drawings.DRAWINGS)
def test_a_drawing_is_up_to_date_small_and_shown_on_a_page(name: str) -> None:
    text = drawings.DRAWINGS[name]()
    assert (drawings.FOLDER / name).read_text(encoding="utf-8") == text
    assert len(text) < 6_000
    assert ET.fromstring(text).find("{http://www.w3.org/2000/svg}title") is not None
    assert any(f"_static/{name}" in page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))


def inner(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


def middle(x: torch.Tensor) -> torch.Tensor:
    return inner(x * 3) - 1


def outer(x: torch.Tensor) -> torch.Tensor:
    return middle(x / 2) + 5


def test_nested_breaks_make_as_many_graphs_as_the_drawing_says() -> None:
    graphs = []
    for is_nested in (False, True):
        torch.compiler.reset()
        with torch._dynamo.config.patch(nested_graph_breaks=is_nested):
            report = jupyter_graphbreak.explain(torch.compile(outer, backend="eager"), torch.ones(3))
        graphs.append(report.summary.graphs)
    assert tuple(graphs) == drawings.NESTED_GRAPHS
