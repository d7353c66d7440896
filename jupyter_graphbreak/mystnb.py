"""Show reports on pages that MyST-NB builds.

The reports are interactive without a kernel or a network, and complete without JavaScript. MyST-NB finds this module
through the entry point group ``myst_nb.mime_renderers``; no configuration is needed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from docutils import nodes

from jupyter_graphbreak.report.job import JOB_MIME_TYPE, Job
from jupyter_graphbreak.report.schema import MIME_TYPE
from jupyter_graphbreak.views.html.bundle import REST_TYPE, read_report
from jupyter_graphbreak.views.html.job import render_job_html
from jupyter_graphbreak.views.html.render import page_script, render_with_data

if TYPE_CHECKING:
    from collections.abc import Sequence

    from myst_nb.core.render import MimeData, NbElementRenderer


class ReportRenderer:
    """Renders the report or the job in a cell's output."""

    #: HTML pages show these MIME types; a job has precedence over the kernel's own report. Other builders show text.
    mime_priority_overrides: ClassVar[Sequence[tuple[str, str, int | None]]] = [
        (builder, mime_type, priority)
        for builder in ("html", "dirhtml", "singlehtml")
        for mime_type, priority in ((JOB_MIME_TYPE, -1), (MIME_TYPE, 0))
    ]

    @staticmethod
    def handle_mime(renderer: NbElementRenderer, data: MimeData, inline: bool) -> list[nodes.Element] | None:
        """Return the nodes that show a report or a job; ``None`` for any other output."""
        if data.mime_type == REST_TYPE:  # the report's own HTML already contains it
            return []
        if data.mime_type not in {MIME_TYPE, JOB_MIME_TYPE} or inline:
            return None
        renderer.add_js_file("graphbreak", None, {"type": "module", "body": page_script()})
        if data.mime_type == JOB_MIME_TYPE:
            html = render_job_html(msgspec.convert(data.content, Job), with_data=True)
        else:
            html = render_with_data(read_report(_whole_output(renderer, data) | {MIME_TYPE: data.content}))
        return [nodes.container("", nodes.raw("", html, format="html"), classes=["output"])]


def _whole_output(renderer: NbElementRenderer, data: MimeData) -> dict[str, Any]:
    """Return all data of the output that ``data`` belongs to, by MIME type; empty if MyST-NB does not provide it."""
    if data.cell_index is None or data.output_index is None:
        return {}
    with contextlib.suppress(Exception):  # these attributes of MyST-NB may change
        _, outputs = renderer.renderer.nb_client.code_cell_outputs(data.cell_index)
        return dict(outputs[data.output_index].data)
    return {}
