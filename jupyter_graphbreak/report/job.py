"""Jobs: the reports of several processes of one command."""

from __future__ import annotations

from typing import Any, Self

import msgspec

from jupyter_graphbreak.report.schema import SCHEMA_VERSION, Diagnostic, Report, require_known_version

#: The MIME type of a job in a notebook's output, which also contains the kernel's own report.
JOB_MIME_TYPE = "application/vnd.graphbreak.job.v1+json"


class EqualProcess(msgspec.Struct, frozen=True):
    """A rank whose report differs from that of a :class:`Process` only in times, device numbers and addresses."""

    id: str
    rank: int | None
    pid: int | None


class Process(msgspec.Struct, frozen=True):
    """One process of a job; ``rank`` is its rank in a distributed job, if it has one.

    Parameters
    ----------
    equal : list of EqualProcess
        Further ranks with the same report, apart from times, device numbers and the addresses of objects.
    """

    id: str
    rank: int | None
    pid: int | None
    command: str | None
    report: Report
    equal: list[EqualProcess] = []

    @property
    def members(self) -> list[EqualProcess]:
        """The process itself and the processes with the same report."""
        return [EqualProcess(self.id, self.rank, self.pid), *self.equal]


class RankCompiling(msgspec.Struct, frozen=True):
    """The time that one rank spent compiling.

    The points in time are in seconds after the job's first compilation began.

    Parameters
    ----------
    process : str
        The id of the process.
    start_s, end_s : float
        When its first compilation began, and when its last one ended.
    compile_s : float
        The time in seconds that the rank spent compiling.
    alone_s : float
        The part of this time in which at most half of the ranks compiled: the others wait in their next collective.
    alone_start_s : float or None
        When the longest period of this kind began.
    alone_function : str or None
        The function that the rank compiled in that period.
    """

    rank: int
    process: str
    start_s: float
    end_s: float
    compile_s: float
    alone_s: float = 0.0
    alone_start_s: float | None = None
    alone_function: str | None = None


class JobPlace(msgspec.Struct, frozen=True):
    """A line of the file ``path``, or of the cell with the name ``cell`` if ``path`` is ``None``."""

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
        The ranks in which the break occurs.
    processes : list of str
        The ids of the processes in which the break occurs, with or without a rank.
    missing_in : list of int
        The ranks in which it does not occur: if ranks break on different lines, their collectives may wait for each
        other.
    """

    place: JobPlace | None
    gb_id: str | None
    gb_type: str
    ranks: list[int]
    processes: list[str]
    missing_in: list[int]


class Job(msgspec.Struct, frozen=True):
    """The reports of several processes, and their breaks; breaks that occur on only some ranks come first.

    Parameters
    ----------
    processes : list of Process
        The processes: first those without a rank, then those with few equal ranks. Ranks with equal reports are one.
    compiling : list of RankCompiling
        The time that each rank spent compiling, if its log contains it.
    """

    processes: list[Process]
    breaks: list[JobBreak]
    schema_version: str = SCHEMA_VERSION
    diagnostics: list[Diagnostic] = []
    compiling: list[RankCompiling] = []

    def to_json(self) -> bytes:
        """Return the job as JSON."""
        return msgspec.json.encode(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the job as plain dicts, lists, strings and numbers."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Read a job from the result of :meth:`to_json`.

        Raises
        ------
        msgspec.ValidationError
            If the data is not a job, or has a different major version. For data that is not JSON, its base class
            ``msgspec.DecodeError`` is raised.
        """
        return require_known_version(msgspec.json.decode(data, type=cls))
