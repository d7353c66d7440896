"""The operations of a graph as rows of a table: of these a report has the most, so no template makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jupyter_graphbreak.views.html.highlight import escaped

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Op, Tensor, TensorMeta


class OpRows:
    """Makes the rows.

    Parameters
    ----------
    prefix : str
        What the ids of the report's markup start with.
    line_ref, source_name : callable
        The reference of a place, empty where the report does not hold the line; and the name of its source, empty for
        the cell itself.
    """

    def __init__(
        self, prefix: str, line_ref: Callable[[Location], str], source_name: Callable[[Location], str]
    ) -> None:
        self._prefix = prefix
        self._line_ref = line_ref
        self._source_name = source_name
        self._places: dict[tuple[str, int], tuple[str, str]] = {}

    def row(self, op: Op) -> Markup:
        """Return the row of an operation."""
        attribute, place = self._place(op.location) if op.location is not None else ("", "")
        output = escaped(tensor_text(op.output)) if op.output is not None else ""
        return Markup(  # noqa: S704 - every part was escaped
            f"<tr{attribute}><td><code>{escaped(op.name)}</code></td><td><code>{escaped(op.target)}</code></td>"
            f"<td>{place}</td><td>{output}</td></tr>"
        )

    def _place(self, location: Location) -> tuple[str, str]:
        key = location.source, location.line
        if key not in self._places:
            reference, name = self._line_ref(location), self._source_name(location)
            line = f"line {location.line}"
            link = f'<a href="#{self._prefix}{reference}">{line}</a>' if reference else line
            attribute = f' data-in="{reference}"' if reference else ""
            self._places[key] = attribute, link + (f", {escaped(name)}" if name else "")
        return self._places[key]


def tensor_text(meta: Tensor | TensorMeta) -> str:
    """Return what is known of a tensor, in a line: "float32 [64, 64] cuda:0"."""
    parts = [meta.dtype.replace("torch.", "")]
    if meta.shape is not None:
        parts.append(f"[{', '.join(map(str, meta.shape))}]")
    return " ".join([*parts, *([meta.device] if meta.device else [])])
