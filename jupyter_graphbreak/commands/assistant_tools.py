"""The tools of ``graphbreak mcp``: the features of the command line, with short answers.

Programs run in separate processes, so nothing that they print reaches the protocol, and a limit can end them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

import jupyter_graphbreak
from jupyter_graphbreak.records.regular_files import read_regular
from jupyter_graphbreak.results import Job, Report
from jupyter_graphbreak.views.words.advice import advice_for_break
from jupyter_graphbreak.views.words.jobs import (
    compiling_lines,
    job_headline,
    job_location_text,
    process_name,
    processes_text,
)
from jupyter_graphbreak.views.words.locations import location_text
from jupyter_graphbreak.views.words.reason import reason_of
from jupyter_graphbreak.views.words.remedies import verdict_label
from jupyter_graphbreak.views.words.verdict import summary, verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.report.cost import EntryCost
    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import Break

#: The maximum number of reports to keep; an older report must be created again.
_MAX_REPORTS = 32
#: The maximum number of entries in each list of an answer.
_MAX_ENTRIES = 20
#: The maximum number of characters in each string of an answer.
_MAX_TEXT_LENGTH = 400
#: The maximum number of characters in one part of a report.
_MAX_PART_LENGTH = 20_000
#: The maximum number of characters in a patch, or of the end of a program's output.
_MAX_OUTPUT_LENGTH = 2_000
#: The maximum size of a report file in bytes.
_MAX_FILE_BYTES = 512 << 20
_COMMAND_LINE = "from jupyter_graphbreak.cli import main; main()"

_INSTRUCTIONS = (
    "Explains what torch.compile does with a program: graph breaks, recompiles, functions that run eagerly, their "
    "causes, and changes that were tried. An answer is short and has the id of a report; read_report returns any part "
    "of that report. Before you propose a change for a break or a recompile, test it with judge_patch: accept only the "
    "verdict 'works', or tell the user what 'works on what ran' and 'works but differs' leave open."
)
_NO_RUNNING_TEXT = " Running programs is not allowed here: the user can start `graphbreak mcp` with --allow-run."

FilePath = Annotated[str, Field(description="Path of a file, relative to the folder that the user chose.")]
ProgramArguments = Annotated[list[str], Field(description="The program's command-line arguments.")]
CompileFlag = Annotated[
    bool, Field(description="Compile what the program calls, for a program that does not use torch.compile.")
]


class AssistantTools:
    """The tools of a coding assistant, for the files in one folder."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder = folder.resolve()
        self._seconds = seconds
        self._kept_reports: OrderedDict[str, Report | Job] = OrderedDict()
        self._report_count = 0

    def explain_log(
        self,
        path: Annotated[str, Field(description="A log of TORCH_TRACE, or a folder of them, in the chosen folder.")],
    ) -> dict[str, Any]:
        """Explain the logs that a program wrote with TORCH_TRACE, on one rank or many. Runs no program."""
        from jupyter_graphbreak.api.saved import read_trace

        try:
            return self._keep_and_summarize(read_trace(self._path_in_folder(path), sources=[self._folder]))
        except (ValueError, OSError) as error:  # UnreadableTrace is a ValueError
            raise ToolError(str(error)) from None

    def explain_notebook(self, path: FilePath) -> dict[str, Any]:
        """Return the reports that are saved in a notebook's outputs, one for each explained cell. Runs no program."""
        from jupyter_graphbreak.api.saved import read_notebook

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reports = read_notebook(self._path_in_folder(path))
        except (ValueError, OSError) as error:
            raise ToolError(str(error)) from None
        return {
            "cells": [self._keep_and_summarize(report) for report in reports[:_MAX_ENTRIES]],
            "number_of_cells": len(reports),
        }

    def read_report(
        self,
        report: Annotated[str, Field(description="The id of a report, or the path of a report saved as JSON.")],
        part: Annotated[
            str | None,
            Field(description="The id of a break, graph, change, frame, process, ..., or a field such as 'cost'."),
        ] = None,
    ) -> dict[str, Any]:
        """Read a part of a report, such as a break with its stacks, the code of a graph or the patch of a change."""
        whole_report = self._kept_reports[report] if report in self._kept_reports else self._load_saved(report)
        if part is None:
            return (
                self._keep_and_summarize(whole_report)
                if report not in self._kept_reports
                else _summarize(whole_report, report)
            )
        if isinstance(whole_report, Job):
            for process in whole_report.processes:
                if any(member.id == part for member in process.members):
                    return self._keep_and_summarize(Report.of(process.report))
        data = whole_report.to_dict()
        entries = (entry for value in data.values() if isinstance(value, list) for entry in value)
        matching_entries = (entry for entry in entries if isinstance(entry, dict) and entry.get("id") == part)
        value = data[part] if part in data else next(matching_entries, None)
        if value is None and part not in data:
            raise ToolError(f"{report} has no part {part!r}; its fields are {', '.join(data)}")
        text = json.dumps(value)
        if len(text) > _MAX_PART_LENGTH:
            return {"part": part, "is_cut": True, "json": text[:_MAX_PART_LENGTH]}
        return {"part": part, "value": value}

    def explain_script(
        self,
        path: FilePath,
        arguments: ProgramArguments = [],  # noqa: B006 - never changed, and shown in the tool's schema
        compile: CompileFlag = False,  # noqa: A002, FBT002 - torch uses this word; passed by keyword
        try_changes: Annotated[  # noqa: FBT002 - passed by keyword
            bool, Field(description="Also try changes that remove breaks and recompiles; takes up to two minutes.")
        ] = False,
    ) -> dict[str, Any]:
        """Run a Python program once and explain its graph breaks, recompiles and eager functions."""
        return self._run_script(path, arguments, *(["--try"] if try_changes else []), compiles=compile)

    def judge_patch(
        self,
        path: FilePath,
        patch: Annotated[str, Field(description="A unified diff with paths relative to the chosen folder.")],
        arguments: ProgramArguments = [],  # noqa: B006
        compile: CompileFlag = False,  # noqa: A002, FBT002
    ) -> dict[str, Any]:
        """Judge a patch: run the program, repeat its compiled calls with the patch on copies, and compare the results.

        Only the program itself may change files. With the verdicts 'works' and 'works on what ran', nothing differed on
        any input that was tried; 'reason' and 'differences' explain the other verdicts.
        """
        with tempfile.TemporaryDirectory(prefix="graphbreak-patch-") as folder:
            file = Path(folder) / "proposed.patch"
            file.write_text(patch if patch.endswith("\n") else f"{patch}\n", encoding="utf-8")
            answer = self._run_script(path, arguments, "--patch", str(file), compiles=compile)
        own_change = next((change for change in answer.get("changes", []) if change["family"] == "own"), None)
        if own_change is None:
            notes = [note for note in answer["notes"] if "patch" in note] or answer["notes"]
            reason = " ".join(notes) or "no compiled call with a graph break or a recompile uses the patched lines"
            return {"verdict": "not tried", "accepted": False, "reason": reason, "report": answer["report"]}
        return {
            "verdict": own_change["verdict"],
            "accepted": own_change["verdict"] in {"works", "works on what ran"},
            "reason": own_change["reason"],
            "differences": own_change["differences"],
            "evidence": own_change["evidence"],
            "report": answer["report"],
        }

    def measure(
        self,
        path: FilePath,
        arguments: ProgramArguments = [],  # noqa: B006
        compile: CompileFlag = False,  # noqa: A002, FBT002
    ) -> dict[str, Any]:
        """Run a program once, then time its compiled calls and eager ones on copies, and measure each break's cost."""
        return self._run_script(path, arguments, "--cost", compiles=compile)

    def run_notebook(self, path: FilePath) -> dict[str, Any]:
        """Run a notebook in a fresh kernel with every cell explained. The file stays unchanged."""
        output, status, text = self._run(["notebook", str(self._path_in_folder(path)), "--execute", "--format", "json"])
        try:
            reports = [Report.of(report) for report in msgspec.json.decode(output, type=list[Report])]
        except msgspec.DecodeError:
            raise ToolError(text) from None
        cells = [self._keep_and_summarize(report) for report in reports[:_MAX_ENTRIES]]
        return {"cells": cells, "number_of_cells": len(reports), "exit_status": status, "output": text}

    def _run_script(self, path: str, arguments: list[str], *options: str, compiles: bool) -> dict[str, Any]:
        """Run a program under ``graphbreak script`` and return a summary of its report."""
        command = ["script", "--format", "json", *options, *(["--compile"] if compiles else [])]
        output, status, text = self._run([*command, str(self._path_in_folder(path)), *arguments])
        try:
            report = Report.from_json(output)
        except msgspec.DecodeError:
            raise ToolError(text) from None
        return {**self._keep_and_summarize(report), "exit_status": status, "output": text}

    def _run(self, arguments: list[str]) -> tuple[bytes, int, str]:
        """Run the command line in the folder; return its output, its exit status and the end of its error output."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND_LINE, *arguments],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
            try:
                status = process.wait(self._seconds)
            except subprocess.TimeoutExpired:
                raise ToolError(
                    f"the run was stopped after {self._seconds:g} seconds, the limit that the user set"
                ) from None
            finally:
                _kill_process_group(process)
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - _MAX_OUTPUT_LENGTH))
            text = errors.read().decode(errors="replace").strip()
            if output.seek(0, os.SEEK_END) > _MAX_FILE_BYTES:
                raise ToolError("the report of the run is too large")
            output.seek(0)
            return output.read(), status, text

    def _path_in_folder(self, path: str) -> Path:
        """Return the real path of a file; raise a ToolError if it is missing or outside the folder."""
        try:
            real_path = (self._folder / path).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            raise ToolError(f"{path}: no such file or folder") from None
        if not real_path.is_relative_to(self._folder):
            raise ToolError(f"{path}: outside the folder that the user chose ({self._folder})")
        return real_path

    def _load_saved(self, path: str) -> Report | Job:
        if not path.endswith(".json"):
            raise ToolError(f"no report {path!r}; there are {', '.join(self._kept_reports) or 'none yet'}")
        try:
            content = read_regular(self._path_in_folder(path), _MAX_FILE_BYTES)
            return Job.from_json(content) if b'"processes"' in content[:64] else Report.from_json(content)
        except (OSError, ValueError, RecursionError) as error:
            raise ToolError(f"{path}: not a report ({' '.join(str(error).split())[:_MAX_TEXT_LENGTH]})") from None

    def _keep_and_summarize(self, result: Report | Job) -> dict[str, Any]:
        """Keep a report, and return its id and a summary."""
        self._report_count += 1
        ident = f"{'job' if isinstance(result, Job) else 'report'}-{self._report_count}"
        self._kept_reports[ident] = result
        while len(self._kept_reports) > _MAX_REPORTS:
            self._kept_reports.popitem(last=False)
        return _summarize(result, ident)


def serve(folder: Path, *, allow_run: bool, seconds: float) -> None:
    """Serve the tools on standard input and output until the input ends."""
    os.chdir(folder)  # source text may be read from the working folder
    tools = AssistantTools(Path(), seconds)
    instructions = _INSTRUCTIONS if allow_run else _INSTRUCTIONS + _NO_RUNNING_TEXT
    server = MCPServer(
        "graphbreak", instructions=instructions, version=jupyter_graphbreak.__version__, log_level="WARNING"
    )
    offered_tools: list[Callable[..., dict[str, Any]]] = [tools.explain_log, tools.explain_notebook, tools.read_report]
    if allow_run:
        offered_tools += [tools.explain_script, tools.judge_patch, tools.measure, tools.run_notebook]
    for tool in offered_tools:
        server.tool()(tool)
    server.run()


def _kill_process_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and the processes that it started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # all have already ended
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        process.kill()
    process.wait()


def _summarize(result: Report | Job, ident: str) -> dict[str, Any]:
    return _summarize_job(result, ident) if isinstance(result, Job) else _summarize_report(result, ident)


def _summarize_report(report: Report, ident: str) -> dict[str, Any]:
    """Return a summary of a report; long lists are cut, and ``counts`` contains the totals."""
    breaks = {break_.id: break_ for break_ in report.breaks}
    ordered_breaks = [breaks[id_] for id_ in report.order or breaks if id_ in breaks]
    summary_fields: dict[str, Any] = {
        "report": ident,
        "verdict": _shorten(verdict(report)[1]),
        "summary": _shorten(summary(report)),
        "counts": msgspec.to_builtins(report.summary),
        "breaks": [_summarize_break(report, break_) for break_ in ordered_breaks[:_MAX_ENTRIES]],
        "recompiles": [
            {
                "id": recompile.id,
                "function": recompile.function,
                "guards": [_shorten(reason.guard) for reason in recompile.reasons[:_MAX_ENTRIES]],
            }
            for recompile in report.recompiles[:_MAX_ENTRIES]
        ],
        "eager": [
            {"function": skipped.function, "reason": _shorten(skipped.reason)}
            for skipped in report.skipped[:_MAX_ENTRIES]
        ],
        "notes": [_shorten(note.message) for note in report.diagnostics[:_MAX_ENTRIES]],
    }
    if report.error is not None:
        summary_fields["error"] = _shorten(f"{report.error.type}: {report.error.message}")
    if report.remedies is not None:
        summary_fields["changes"] = [_summarize_change(remedy) for remedy in report.remedies[:_MAX_ENTRIES]]
    if report.cost is not None:
        summary_fields["cost"] = [_summarize_cost(entry) for entry in report.cost.entries[:_MAX_ENTRIES]]
    if report.effects is not None:
        summary_fields["effects"] = [_shorten(effect.what) for effect in report.effects[:_MAX_ENTRIES]]
    return summary_fields


def _summarize_break(report: Report, break_: Break) -> dict[str, Any]:
    advice = advice_for_break(report, break_)
    return {
        "id": break_.id,
        "place": location_text(report, break_.location),
        "code": _shorten(break_.location.code if break_.location is not None else None),
        "reason": _shorten(reason_of(break_)),
        "gb_id": break_.gb_id,
        "advice": _shorten(advice[0].text) if advice else None,
    }


def _summarize_change(remedy: Remedy) -> dict[str, Any]:
    return {
        "id": remedy.id,
        "breaks": remedy.breaks,
        "recompiles": remedy.recompiles,
        "family": remedy.family,
        "title": _shorten(remedy.title),
        "verdict": verdict_label(remedy),
        "reason": _shorten(remedy.reason or remedy.person),
        "differences": [_shorten(difference) for difference in remedy.differences[:_MAX_ENTRIES]],
        "evidence": msgspec.to_builtins(remedy.evidence),
        "patch": _shorten(remedy.patch, _MAX_OUTPUT_LENGTH),
        "code": _shorten(remedy.code),
    }


def _summarize_cost(entry: EntryCost) -> dict[str, Any]:
    parts = sorted(entry.parts, key=lambda part: -part.time.median_us)
    return {
        "function": entry.function,
        "settled": entry.settled,
        "eager": msgspec.to_builtins(entry.eager),
        "compiled": msgspec.to_builtins(entry.compiled),
        "changed": msgspec.to_builtins(entry.remedied[:_MAX_ENTRIES]),
        "parts": msgspec.to_builtins(parts[:_MAX_ENTRIES]),
        "break_even_calls": entry.break_even_calls,
    }


def _summarize_job(job: Job, ident: str) -> dict[str, Any]:
    return {
        "report": ident,
        "summary": job_headline(job),
        "breaks": [
            {
                "place": job_location_text(break_.place),
                "reason": _shorten(reason_of(break_)),
                "gb_id": break_.gb_id,
                "processes": processes_text(job, break_),
            }
            for break_ in job.breaks[:_MAX_ENTRIES]
        ],
        "processes": [
            {"id": process.id, "name": process_name(process), "summary": _shorten(summary(process.report))}
            for process in job.processes[:_MAX_ENTRIES]
        ],
        "compiling": compiling_lines(job),
        "notes": [_shorten(note.message) for note in job.diagnostics[:_MAX_ENTRIES]],
    }


def _shorten(text: str | None, max_length: int = _MAX_TEXT_LENGTH) -> str | None:
    return text if text is None or len(text) <= max_length else f"{text[:max_length]}..."
