"""The front end's types come from the schema of a report, and the schema from its classes."""

from __future__ import annotations

import runpy
from pathlib import Path

import msgspec
import pytest

from jupyter_graphbreak.report.job import Job

FRONT_END = Path(__file__).parents[3] / "labextension"


def test_the_saved_schema_is_current() -> None:
    current_schema = runpy.run_path(str(FRONT_END / "scripts" / "schema.py"))["schema"]()
    saved_schema = (FRONT_END / "src" / "report" / "schema.json").read_text(encoding="utf-8")
    assert saved_schema == current_schema, "run python labextension/scripts/schema.py"


def test_a_job_with_a_different_major_version_is_refused() -> None:
    job = Job([], [], schema_version="999.0")
    with pytest.raises(msgspec.ValidationError, match=r"file has schema version 999\.0; .* reads version \d+\.x:"):
        Job.from_json(job.to_json())
