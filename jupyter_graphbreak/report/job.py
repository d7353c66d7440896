"""A job: what torch.compile did in several processes under one command."""

from __future__ import annotations

from typing import Any, Self

import msgspec

from jupyter_graphbreak.report.schema import SCHEMA_VERSION, Diagnostic, Report, of_this_version

#: The mime type under which a notebook's output carries a job, beside the report of the kernel itself.
JOB_MIME_TYPE = "application/vnd.graphbreak.job.v1+json"


class Process(msgspec.Struct, frozen=True):
    """One process of a job; ``rank`` is its number among those that work together, where it has one."""

    id: str
    rank: int | None
    pid: int | None
    command: str | None
    report: Report


class JobPlace(msgspec.Struct, frozen=True):
    """A line of a file or, if ``path`` is ``None``, of the cell of that name."""

    path: str | None
    cell: str | None
    line: int
    function: str | None = None
    code: str | None = None


class JobBreak(msgspec.Struct, frozen=True):
    """One break, in whichever processes it was met.

    Parameters
    ----------
    ranks : list of int
        The ranks that met it.
    processes : list of str
        The ids of the processes that met it, with a rank or without.
    missing_in : list of int
        The ranks that did not: where ranks break at different places, their collectives may wait for each other.
    """

    place: JobPlace | None
    gb_id: str | None
    gb_type: str
    ranks: list[int]
    processes: list[str]
    missing_in: list[int]


class Job(msgspec.Struct, frozen=True):
    """The reports of several processes, and their breaks, those that only some ranks have first."""

    processes: list[Process]
    breaks: list[JobBreak]
    schema_version: str = SCHEMA_VERSION
    diagnostics: list[Diagnostic] = []

    def to_json(self) -> bytes:
        """Return the job as JSON."""
        return msgspec.json.encode(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the job as plain dicts, lists, strings and numbers."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Read a job back.

        Raises
        ------
        msgspec.ValidationError
            If it is none, or one of another major version.
        """
        return of_this_version(msgspec.json.decode(data, type=cls))
