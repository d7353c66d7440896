"""Write the JSON Schema of a report, from which the types of the front end are made.

Run it when a class in ``jupyter_graphbreak/report/`` changes, then ``npm run types`` in ``labextension/``.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from jupyter_graphbreak.report.schema import Report

TARGET = Path(__file__).parents[1] / "src" / "report" / "schema.json"


def schema() -> str:
    """Return the schema as it is saved."""
    return json.dumps(msgspec.json.schema(Report), indent=2) + "\n"


if __name__ == "__main__":
    TARGET.write_text(schema(), encoding="utf-8")
