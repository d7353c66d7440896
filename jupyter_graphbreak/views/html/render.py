"""Render reports as HTML: a snippet for the output of a cell, or a standalone page.

All HTML of reports is generated from the templates in this folder. Front ends that run scripts get the same markup, and
add behaviour to it through the ids and attributes described in :mod:`~jupyter_graphbreak.views.html.references`.
"""

from __future__ import annotations

import base64
import functools
import gzip
import re
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from markupsafe import Markup

from jupyter_graphbreak.views.html.environment import environment, live_style_sheet, style_sheet
from jupyter_graphbreak.views.html.view import LINES_AT_ONCE, View
from jupyter_graphbreak.views.text import render_text
from jupyter_graphbreak.views.words import (
    advice,
    aftermath,
    changes,
    cost,
    groups,
    locations,
    paths,
    permission,
    reason,
    recompilation,
    remedies,
    reproducers,
    verdict,
)
from jupyter_graphbreak.views.words.bounds import limit_part
from jupyter_graphbreak.views.words.frontends import (
    OUTCOME_SIGNS,
    OUTCOME_TEXTS,
    RIGHT_OUTCOMES,
    call_text,
    input_notes,
    verdict_sentences,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from jupyter_graphbreak.report.diff import Changes
    from jupyter_graphbreak.report.frontends import Frontends
    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import Break, Graph, Report
    from jupyter_graphbreak.views.html.source_lines import SourceListing

#: A function that renders those items of one list that the static markup leaves out.
ItemRenderer: TypeAlias = "Callable[[], Iterator[Any]]"


def remaining_item_renderers(view: View, macros: Any) -> dict[str, ItemRenderer]:
    """Return functions that render the remaining items of each list that the static markup does not show in full."""
    report, limits = view.report, view.limits
    makers: dict[str, ItemRenderer] = {}

    def add(name: str, make: Callable[[int, Any], Any], items: Sequence[Any], limit: int) -> None:
        if len(items) > limit:
            makers[name] = lambda: (make(index, items[index]) for index in range(limit, len(items)))

    numbers = view.numbers

    def render_break_of_group(fix: Remedy | None, _: int, break_: Break) -> Any:
        return macros.break_item(numbers[break_.id], break_, open=False, grouped=True, shared=fix)

    add("breaks", lambda index, group: macros.break_or_group(index, group, open=False), view.groups, limits.breaks)
    for index, group in enumerate(view.groups):
        if not group.is_single:
            render_break_with_shared_fix = functools.partial(render_break_of_group, view.shared_fix(group))
            add(f"places-{index}", render_break_with_shared_fix, group.breaks, limits.group_breaks)
    add("minor", lambda _, item: macros.break_item(numbers[item.id], item, open=False), view.minor, limits.breaks)
    add("graphs", macros.graph_item, report.graphs, limits.graphs)
    add("frames", macros.frame_row, report.frames, limits.rows)
    add("resumes", macros.resume_row, report.resumes, limits.rows)
    add("skipped", macros.skipped_row, report.skipped, limits.rows)
    add("recompiles", macros.recompile_row, view.recompilations, limits.rows)
    add("paths", macros.path_row, view.paths, limits.rows)
    add("scopes", macros.scope_row, report.scopes, limits.rows)
    add("notes", lambda _, item: macros.note_item(item), report.diagnostics, limits.rows)
    for index, graph in enumerate(report.graphs):
        add(f"ops-{index}", lambda _, op: view.op_rows([op]), graph.ops, limits.ops)
        if graph.code and not view.shows_code(graph):
            makers[f"code-{index}"] = _code_renderer(view, graph)
    for listing in view.listings:
        if listing.left_out_count:
            makers[f"l{listing.index}"] = _lines_renderer(macros, listing)
    return makers


def _code_renderer(view: View, graph: Graph) -> ItemRenderer:
    return lambda: iter([Markup("<pre>") + view.highlight_code(graph.code) + Markup("</pre>")])


def _lines_renderer(macros: Any, listing: SourceListing) -> ItemRenderer:
    starts = range(0, listing.left_out_count, LINES_AT_ONCE)
    return lambda: (macros.source_lines(listing.more_rows(start, start + LINES_AT_ONCE), lazy=True) for start in starts)


def render_frontends_html(frontends: Frontends) -> str:
    """Return the verdicts on front ends as a snippet of HTML with its own style sheet."""
    template = environment().get_template("frontends.html.j2")
    return template.render(
        frontends=frontends, call=call_text(frontends), words=OUTCOME_TEXTS, signs=OUTCOME_SIGNS, right=RIGHT_OUTCOMES,
        css=style_sheet("frontends"), verdict_sentences=verdict_sentences, input_notes=input_notes(frontends),
    ).strip()  # fmt: skip


_FOLDER = Path(__file__).parent
#: The modules whose functions the templates of a report call, by the names that the templates use.
_TEMPLATE_MODULES = {
    "aftermath_words": aftermath,
    "change_words": changes,
    "cost_words": cost,
    "group_words": groups,
    "advice_words": advice,
    "path_words": paths,
    "permission_words": permission,
    "location_words": locations,
    "reason_words": reason,
    "recompile_words": recompilation,
    "remedy_words": remedies,
    "script_words": reproducers,
    "verdict_words": verdict,
}
#: If the JSON of a report is longer than this, a page contains it in compressed form.
_MAX_PLAIN_LENGTH = 1_000_000
#: The compression level. The highest level takes three times as long, for a result that is only a tenth smaller.
_COMPRESSION_LEVEL = 6
#: The flag of zlib for data with gzip's header.
_GZIP_FLAG = 16
_MAX_UNPACKED_BYTES = 1 << 28
#: Text between tags that contains an escaped quotation mark.
_ESCAPED_QUOTES = re.compile(r">[^<]*&#3[94];[^<]*")


def render_html(report: Report) -> str:
    """Return the report as a snippet with its own style sheet. It shows the beginning of each list."""
    view = View(report)
    return _with_plain_quotes(str(_report_macros(view).report()))


def _with_plain_quotes(markup: str) -> str:
    """Return markup in which quotation marks are escaped only where they would end the value of an attribute."""
    return _ESCAPED_QUOTES.sub(lambda text: text[0].replace("&#39;", "'").replace("&#34;", '"'), markup)


def render_changes_html(run_changes: Changes) -> str:
    """Return the changes between two runs as a snippet with its own style sheet."""
    macros: Any = environment().get_template("changes.html.j2").make_module({"change_words": changes})
    return str(macros.alone(limit_part(run_changes), style_sheet()))


def render_rest(report: Report, name: str | None = None) -> dict[str, list[str]]:
    """Return the list items that :func:`render_html` leaves out of one or all lists, as markup, by the list's name."""
    view = View(report)
    return _render_rest(view, _report_macros(view), name)


def pack_rest(report: Report, code: Mapping[str, str]) -> str:
    """Return everything that :func:`render_html` leaves out, compressed; an empty string if it leaves out nothing.

    A front end needs this data if it has no kernel that could render the rest. ``code`` is that of graphs that the
    output contains nowhere else, by their ids.
    """
    rest = render_rest(report)
    return _compress({"rest": rest} | ({"code": code} if code else {})) if rest or code else ""


def unpack_code(packed_code: Any) -> dict[str, str]:
    """Return the code of graphs, by graph id, from the data of a saved output; an empty dict if none can be read."""
    try:
        compressed_code = base64.b64decode(packed_code["gzip"])
        content = zlib.decompressobj(zlib.MAX_WBITS | _GZIP_FLAG).decompress(compressed_code, _MAX_UNPACKED_BYTES)
        return msgspec.json.decode(content, type=_PackedCode).code
    except (TypeError, KeyError, ValueError, zlib.error):  # a different program may have written the output
        return {}


class _PackedCode(msgspec.Struct):
    code: dict[str, str] = {}


def pack_text_and_rest(report: Report) -> str:
    """Return everything that :func:`render_html` leaves out, and the report as text, compressed together."""
    view = View(report)
    return _compress({"text": render_text(report), "rest": _render_rest(view, _report_macros(view))})


def render_with_data(report: Report) -> str:
    """Return the snippet of :func:`render_html`, followed by the data that :func:`page_script` needs."""
    view = View(report)
    return _render_with_data(view, _report_macros(view))


def render_page(report: Report) -> str:
    """Return the complete report as a standalone page with search and keyboard navigation."""
    view = View(report)
    return build_page(_render_with_data(view, _report_macros(view)), f"compile_explain: {verdict.run_name(report)}")


def build_page(markup: str, title: str) -> str:
    """Return a standalone page that shows the results of one or several calls to :func:`render_with_data`."""
    script = Markup(page_script())  # noqa: S704 - built from our own sources
    template = environment().get_template("page.html.j2")
    return template.render(body=Markup(markup), title=title, script=script)  # noqa: S704 - built from our own sources


def _render_rest(view: View, macros: Any, name: str | None = None) -> dict[str, list[str]]:
    makers = remaining_item_renderers(view, macros)
    return {key: [str(item) for item in make()] for key, make in makers.items() if name in {None, key}}


def _render_with_data(view: View, macros: Any) -> str:
    report = view.report
    data = {"text": render_text(report), "rest": _render_rest(view, macros)}
    json_text = report.to_json().decode()
    if len(json_text) > _MAX_PLAIN_LENGTH:
        data["report"], json_text = json_text, ""
    # Escape "<", which could end the surrounding script element.
    plain = Markup(json_text.replace("<", "\\u003c"))  # noqa: S704
    return str(macros.with_data(macros.report(), live_style_sheet(), plain, _compress(data)))


def _compress(data: dict[str, Any]) -> str:
    return base64.b64encode(gzip.compress(msgspec.json.encode(data), _COMPRESSION_LEVEL, mtime=0)).decode()


@cache
def page_script() -> str:
    """Return the script that makes the reports on a page interactive, if they contain their data.

    The script is empty in a source tree in which the front end has not been built.
    """
    path = _FOLDER / "static" / "page.js"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _report_macros(view: View) -> Any:
    # The macros of a template are attributes of a module that is created at run time, so they have no static type.
    return environment().get_template("report.html.j2").make_module({"v": view} | _TEMPLATE_MODULES)
