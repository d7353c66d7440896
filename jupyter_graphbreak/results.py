"""The objects that users get: reports, jobs, changes, verdicts and notebooks, with methods to show or save them.

Input: inert data of :mod:`jupyter_graphbreak.report`. Output: the same data with methods.
This module may import ``views``, ``analysis`` and ``report``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from jupyter_graphbreak.report import diff, frontends, job, schema
from jupyter_graphbreak.report import reproducer as reproducers

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

#: The attribute in which a report keeps the function that writes standalone scripts; it is not part of the report's
#: data.
_REPRODUCE_ATTRIBUTE = "_reproduce"


class Changes(diff.Changes, frozen=True):
    """The changes from one run to a later run; see :class:`jupyter_graphbreak.report.diff.Changes`."""

    def to_text(self) -> str:
        """Return the changes as text for a terminal 100 columns wide."""
        from jupyter_graphbreak.views.text import changes_as_lines

        return "\n".join(changes_as_lines(self))

    def to_html(self) -> str:
        """Return the changes as a snippet of HTML with its own style sheet, for the output of a cell."""
        from jupyter_graphbreak.views.html.render import render_changes_html

        return render_changes_html(self)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": self.to_text(), "text/html": self.to_html()}


class NotReproducedError(Exception):
    """No standalone script reproduces the finding; the message says why."""


class Reproducer(str):
    """The text of a standalone script, which has run in its own process and reproduces a finding of a report.

    Attributes
    ----------
    shows : str
        The finding, in words.
    issue : str
        The text for PyTorch's bug report form.
    """

    __slots__ = ("issue", "shows")
    shows: str
    issue: str

    @classmethod
    def of(cls, reproducer: reproducers.Reproducer) -> Self:
        """Return the script of a reproducer, as a string with the reproducer's title and bug report.

        Raises
        ------
        NotReproducedError
            If the reproducer has no script.
        """
        if reproducer.script is None:
            raise NotReproducedError(
                f"{reproducer.id} ({reproducer.title}) cannot be reproduced. {reproducer.reason or ''}".strip()
            )
        script = cls(reproducer.script)
        script.shows, script.issue = reproducer.title, reproducer.issue or ""
        return script


class Report(schema.Report, frozen=True, dict=True):
    """The report of one run, with the fields of :class:`jupyter_graphbreak.report.schema.Report`.

    As the value of a cell, it is displayed like the output of the magic; ``print`` prints its text.
    """

    changes: Changes | None = None

    @classmethod
    def of(cls, report: schema.Report) -> Self:
        """Return a copy of a report, with the methods of this class."""
        return cls(**_fields(report))

    def diff(self, other: schema.Report) -> Changes:
        """Return the changes from this run to a later run: ``before.diff(after)``.

        Breaks are recognized even if edits shifted their lines. Two breaks are the same if they have the same cause,
        and either corresponding lines in both sources or the same expression.

        Parameters
        ----------
        other : Report
            The report of the later run.
        """
        from jupyter_graphbreak.analysis.matching import compare_runs

        return Changes(**_fields(compare_runs(self, other)))

    def to_text(self) -> str:
        """Return the report as text for a terminal 100 columns wide."""
        from jupyter_graphbreak.views.text import render_text

        return render_text(self)

    def to_html(self) -> str:
        """Return the report as a snippet of HTML with its own style sheet, for the output of a cell."""
        from jupyter_graphbreak.views.html.render import render_html

        return render_html(self)

    def redacted(self) -> Report:
        """Return a copy that can be shared, without source text, messages, paths and names.

        Functions, files and cells become ``f1``, ``file1``, ``cell1``; ids, causes, line numbers and counts stay.
        """
        from jupyter_graphbreak.analysis.redaction import redact

        return Report.of(redact(self))

    def reproducer(self, ident: str, *, redacted: bool = False, seconds: float | None = None) -> Reproducer:
        """Return a standalone script that shows a break, a recompile, the error or the wrong result of this report.

        The script contains the functions involved, random inputs of the same kind, and the settings. It is reduced step
        by step. It runs in its own process, without effects on files, connections or other processes.

        Parameters
        ----------
        ident : str
            The id of a break or of a recompile, ``"error"``, or ``"check"`` for a wrong result.
        redacted : bool
            Whether to replace the names and strings of the program.
        seconds : float or None
            The time limit in seconds; by default, 90 seconds.

        Returns
        -------
        Reproducer
            The script, as a string; its ``issue`` is the text for PyTorch's bug report form.

        Raises
        ------
        NotReproducedError
            If no standalone script reproduces the finding, or if the report has no copies of the called functions.
        LookupError
            If the report has copies of the called functions, but no finding with this id.
        """
        existing_reproducer = next(
            (reproducer for reproducer in self.reproducers or [] if reproducer.id == ident), None
        )
        if existing_reproducer is not None and not redacted:
            return Reproducer.of(existing_reproducer)
        reproduce = self.__dict__.get(_REPRODUCE_ATTRIBUTE)
        if reproduce is None:
            raise NotReproducedError(
                "This report has no copies of the called functions. Use capture(entries=True), explain(...), or "
                "%%compile_explain --repro."
            )
        return Reproducer.of(reproduce(ident, redacted=redacted, seconds=seconds))

    def set_reproduce_function(self, reproduce: Callable[..., reproducers.Reproducer]) -> Self:
        """Set the function that :meth:`reproducer` uses to repeat the calls and write a script; return this report."""
        self.__dict__[_REPRODUCE_ATTRIBUTE] = reproduce
        return self

    def save(self, path: str | Path) -> None:
        """Write the report to a file.

        Parameters
        ----------
        path : str or Path
            The path of the file: it must end in ``.html`` for a self-contained page, or in ``.json`` for JSON.

        Raises
        ------
        ValueError
            If the path has a different extension.
        """
        target = Path(path)
        if target.suffix == ".html":
            from jupyter_graphbreak.views.html.render import render_page

            target.write_text(render_page(self), encoding="utf-8")
        elif target.suffix == ".json":
            target.write_bytes(self.to_json())
        else:
            raise ValueError(f"cannot save a report as {target.name!r}: use a name that ends in .html or .json")

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        from jupyter_graphbreak.views.text import summary_line

        return f"<Report {summary_line(self)}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        from jupyter_graphbreak.views.html.bundle import mime_bundle

        widget = None
        if _is_in_kernel():
            from jupyter_graphbreak.views.html.widget import ReportWidget

            widget = ReportWidget()
            widget.finish(self)
        return mime_bundle(self, widget)


class Job(job.Job, frozen=True):
    """The reports of several processes; see :class:`jupyter_graphbreak.report.job.Job`."""

    @classmethod
    def of(cls, plain_job: job.Job) -> Self:
        """Return a copy of a job, with the methods of this class."""
        return cls(**_fields(plain_job))

    def to_text(self) -> str:
        """Return the job as text for a terminal 100 columns wide."""
        from jupyter_graphbreak.views.text import render_job

        return render_job(self)

    def to_html(self) -> str:
        """Return the job as a snippet of HTML with its own style sheet, for the output of a cell."""
        from jupyter_graphbreak.views.html.job import render_job_html

        return render_job_html(self)

    def redacted(self) -> Job:
        """Return a copy without source text, messages, paths and names; see :meth:`Report.redacted`."""
        from jupyter_graphbreak.analysis.redaction import redact_job

        return Job.of(redact_job(self))

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        from jupyter_graphbreak.views.words.plain_text import count_text

        process_count = sum(len(process.members) for process in self.processes)
        processes = "1 process" if process_count == 1 else f"{process_count} processes"
        return f"<Job of {processes}, {count_text(len(self.breaks), 'break')}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        from jupyter_graphbreak.views.html.bundle import REST_TYPE
        from jupyter_graphbreak.views.html.job import pack_processes

        return {
            "text/plain": self.to_text(),
            "text/html": self.to_html(),
            job.JOB_MIME_TYPE: self.to_dict(),
            REST_TYPE: {"processes": pack_processes(self)},
        }


class Frontends(frontends.Frontends, frozen=True):
    """The verdicts on PyTorch's front ends; see :class:`jupyter_graphbreak.report.frontends.Frontends`."""

    report: Report | None = None

    @classmethod
    def of(cls, verdicts: frontends.Frontends) -> Self:
        """Return a copy of the verdicts, with the methods of this class."""
        report = Report.of(verdicts.report) if verdicts.report is not None else None
        return cls(**{**_fields(verdicts), "report": report})

    def to_text(self) -> str:
        """Return the verdicts as text for a terminal 100 columns wide."""
        from jupyter_graphbreak.views.text import render_frontends

        return render_frontends(self)

    def to_html(self) -> str:
        """Return the verdicts as a snippet of HTML with its own style sheet, for the output of a cell."""
        from jupyter_graphbreak.views.html.render import render_frontends_html

        return render_frontends_html(self)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": self.to_text(), "text/html": self.to_html()}


@dataclass(frozen=True)
class ExplainedNotebook:
    """A notebook that was run with a report for every cell.

    Parameters
    ----------
    reports : list of Report
        The reports in the order of the cells.
    notebook : dict
        The parsed JSON of the executed copy.
    error : str or None
        The reason why the run ended early, in one line: the exception that a cell raised, or that the kernel died.
    """

    reports: list[Report]
    notebook: dict[str, Any]
    error: str | None = None

    def save(self, path: str | Path) -> None:
        """Write the executed copy to a file."""
        import nbformat

        nbformat.write(nbformat.from_dict(self.notebook), Path(path))


def _fields(data: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(data, name) for name in data.__struct_fields__}


def _is_in_kernel() -> bool:
    """Return whether this process is a Jupyter kernel, whose front end can show widgets."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
