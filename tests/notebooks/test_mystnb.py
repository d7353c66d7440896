"""The report renderer for MyST-NB, which reads outputs with MyST-NB's own notebook client."""

from __future__ import annotations

import base64
import gzip
import logging
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import nbformat
from msgspec.structs import replace
from myst_nb.core.config import NbParserConfig
from myst_nb.core.execute.base import NotebookClientBase
from myst_nb.core.render import MimeData

from jupyter_graphbreak.mystnb import ReportRenderer
from jupyter_graphbreak.report.schema import MIME_TYPE
from jupyter_graphbreak.views.html.bundle import REST_TYPE, mime_bundle
from tests.support.sample_reports import two_breaks

if TYPE_CHECKING:
    import pytest

#: The name that the last line of the code assigns.
LAST_NAME = "x399"
CODE = "".join(f"x{number} = x{number - 1} + 1\n" for number in range(1, 400))


def render_report_page(output_index: int | None) -> str:
    """Render the report in the second output of a notebook, which stores its long code in compressed form."""
    report = two_breaks()
    graphs = [replace(graph, code=CODE if index == 0 else graph.code) for index, graph in enumerate(report.graphs)]
    bundle = mime_bundle(replace(report, graphs=graphs), None)
    assert REST_TYPE in bundle
    assert not any(graph.get("code") for graph in bundle[MIME_TYPE]["graphs"])
    outputs = [nbformat.v4.new_output("stream", text="x"), nbformat.v4.new_output("display_data", bundle)]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("f(x)", outputs=outputs)])
    client = NotebookClientBase(notebook, None, NbParserConfig(), cast("Any", logging.getLogger()))
    renderer: Any = SimpleNamespace(renderer=SimpleNamespace(nb_client=client), add_js_file=lambda *_: None)
    data = MimeData(MIME_TYPE, cast("Any", bundle[MIME_TYPE]), cell_index=0, output_index=output_index)
    (container,) = ReportRenderer.handle_mime(renderer, data, inline=False) or []
    return str(container.astext())


def unpack_data(html: str) -> str:
    """Return HTML followed by its compressed data in decompressed form."""
    packed_blocks = re.findall(r"<script[^>]*>\s*(H4sI[^<]+)", html)
    return html + "".join(gzip.decompress(base64.b64decode(block)).decode() for block in packed_blocks)


def test_a_page_has_the_code_that_an_output_stores_in_compressed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LAST_NAME in unpack_data(render_report_page(1))
    page_without_code = unpack_data(render_report_page(None))
    assert LAST_NAME not in page_without_code
    assert "score &gt; 3" in page_without_code
    monkeypatch.delattr(NotebookClientBase, "code_cell_outputs")
    assert unpack_data(render_report_page(1)) == page_without_code
