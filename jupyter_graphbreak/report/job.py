"""Jobs: the reports of several processes of one command."""

from __future__ import annotations

from typing import Any, Self

import msgspec

from jupyter_graphbreak.report.schema import SCHEMA_VERSION, Diagnostic, Report, of_this_version

#: The mime type of a job in a notebook's output, next to the report of the kernel.
JOB_MIME_TYPE = "application/vnd.graphbreak.job.v1+json"


class Process(msgspec.Struct, frozen=True):
    """One process of a job; ``rank`` is its rank in a distributed job, if it has one."""

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
    """One break in the processes of a job.

    Parameters
    ----------
    ranks : list of int
        The ranks that have it.
    processes : list of str
        The ids of the processes that have it, with or without a rank.
    missing_in : list of int
        The ranks that do not have it: if ranks break at different places, their collectives may wait for each other.
    """

    place: JobPlace | None
    gb_id: str | None
    gb_type: str
    ranks: list[int]
    processes: list[str]
    missing_in: list[int]


class Job(msgspec.Struct, frozen=True):
    """The reports of several processes, and their breaks; breaks that only some ranks have come first."""

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
            If the data is not a job, or has a different major version.
        """
        return of_this_version(msgspec.json.decode(data, type=cls))
