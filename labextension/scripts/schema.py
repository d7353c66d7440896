"""Write the JSON Schema of a report, from which the types of the front end are made.

Run it when a class in ``jupyter_graphbreak/report/`` changes, then ``npm run types`` in ``labextension/``.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import msgspec

from jupyter_graphbreak.report.schema import Report

TARGET = Path(__file__).parents[1] / "src" / "report" / "schema.json"


def schema() -> str:
    """Return the schema as it is saved."""
    return json.dumps(_without_indentation(msgspec.json.schema(Report)), indent=2) + "\n"


def _without_indentation(node: Any) -> Any:
    """Clean the descriptions, which are docstrings: Python 3.13 takes their indentation away by itself."""
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
