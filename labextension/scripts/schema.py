"""Write the JSON Schema of a report and of its rows, from which the types of the front end are made.

Run it when a class in ``jupyter_graphbreak/report/`` or in ``jupyter_graphbreak/views/rows/`` changes, then
``npm run types`` in ``labextension/``.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import msgspec

from jupyter_graphbreak.report.schema import Report
from jupyter_graphbreak.views.rows.schema import Rows

TARGET = Path(__file__).parents[1] / "src" / "report" / "schema.json"


def schema() -> str:
    """Return the text of the schema file."""
    (root, _), definitions = msgspec.json.schema_components([Report, Rows], ref_template="#/$defs/{name}")
    return json.dumps(_without_indentation({**root, "$defs": definitions}), indent=2) + "\n"


def _without_indentation(node: Any) -> Any:
    """Remove the indentation from descriptions, which are docstrings; Python 3.13 has removed it already."""
    if isinstance(node, dict):
        return {
            key: inspect.cleandoc(value)
            if key == "description" and isinstance(value, str)
            else _without_indentation(value)
            for key, value in node.items()
        }
    return [_without_indentation(value) for value in node] if isinstance(node, list) else node


if __name__ == "__main__":
    TARGET.write_text(schema(), encoding="utf-8")
