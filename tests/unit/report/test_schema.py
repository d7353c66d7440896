"""The front end's types come from the schema of a report, and the schema from its classes."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from jupyter_graphbreak.report.job import Job
from jupyter_graphbreak.report.schema import Report

SCHEMA = Path(__file__).parents[3] / "labextension" / "src" / "report" / "schema.json"


def test_the_saved_schema_is_current() -> None:
    current = json.loads(json.dumps(msgspec.json.schema(Report)))
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == current, "run python labextension/scripts/schema.py"


def test_a_job_of_another_major_version_is_refused() -> None:
    job = Job([], [], schema_version="999.0")
    with pytest.raises(msgspec.ValidationError, match=r"schema version 999\.0"):
        Job.from_json(job.to_json())
