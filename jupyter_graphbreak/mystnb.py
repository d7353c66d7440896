"""Reports on pages made by MyST-NB: interactive with no kernel and no network, complete without scripts.

MyST-NB finds this by the package's entry point in the group ``myst_nb.mime_renderers``; nothing has to be configured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from docutils import nodes

from jupyter_graphbreak.report.schema import MIME_TYPE, Report
from jupyter_graphbreak.views.html.bundle import REST_TYPE
from jupyter_graphbreak.views.html.render import page_script, render_with_data

if TYPE_CHECKING:
    from collections.abc import Sequence

    from myst_nb.core.render import MimeData, NbElementRenderer


class ReportRenderer:
    """Renders the report that a cell's output carries."""

    #: Of the forms that an output has, pages take this one; other kinds of documents have the text.
    mime_priority_overrides: ClassVar[Sequence[tuple[str, str, int | None]]] = [
        (builder, MIME_TYPE, 0) for builder in ("html", "dirhtml", "singlehtml")
    ]

    @staticmethod
    def handle_mime(renderer: NbElementRenderer, data: MimeData, inline: bool) -> list[nodes.Element] | None:
        """Return the nodes of a report, or None for what is none."""
        if data.mime_type == REST_TYPE:  # the page of a report has it already
            return []
        if data.mime_type != MIME_TYPE or inline:
            return None
        renderer.add_js_file("graphbreak", None, {"type": "module", "body": page_script()})
        html = render_with_data(Report.from_dict(data.content))
        return [nodes.container("", nodes.raw("", html, format="html"), classes=["output"])]
