"""The operations of a graph as rows of a table: of these a report has the most, so no template makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.views.html.highlight import escaped

if TYPE_CHECKING:
    from jupyter_graphbreak.report.location import Location
    from jupyter_graphbreak.report.schema import Op, Tensor, TensorMeta
    from jupyter_graphbreak.views.html.references import Links


class OpRows:
    """Makes the rows."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._places: dict[tuple[str, int], tuple[str, str]] = {}

    def row(self, op: Op) -> str:
        """Return the row of an operation as markup."""
        attribute, place = self._place(op.location) if op.location is not None else ("", "")
        output = escaped(tensor_text(op.output)) if op.output is not None else ""
        return (
            f"<tr{attribute}><td><code>{escaped(op.name)}</code></td><td><code>{escaped(op.target)}</code></td>"
            f"<td>{place}</td><td>{output}</td></tr>"
        )

    def _place(self, location: Location) -> tuple[str, str]:
        key = location.source, location.line
        if key not in self._places:
            reference = self._links.line_reference(location)
            attribute = f' data-in="{reference}"' if reference else ""
            self._places[key] = attribute, self._links.spot(location)
        return self._places[key]


def tensor_text(meta: Tensor | TensorMeta) -> str:
    """Return what is known of a tensor, in a line: "float32 [64, 64] cuda:0"."""
    parts = [meta.dtype.replace("torch.", "")]
    if meta.shape is not None:
        parts.append(f"[{', '.join(map(str, meta.shape))}]")
    return " ".join([*parts, *([meta.device] if meta.device else [])])
