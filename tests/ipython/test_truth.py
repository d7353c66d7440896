"""Cells of many kinds in a real kernel: their reports are right, and they run as they do without the magic.

The expected lines, outcomes and counts are those of Dynamo when the cells run without the magic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from jupyter_client.manager import start_new_kernel

from jupyter_graphbreak.report.location import Location
from jupyter_graphbreak.report.schema import MIME_TYPE
from jupyter_graphbreak.results import Report
from tests.support.sampling import sample_parameters

CELLS = Path(__file__).parent / "cells"
PREPARATION = """%reset -f
import random, numpy, torch
torch._dynamo.reset()
random.seed(1); numpy.random.seed(1); torch.manual_seed(1)
del random, numpy, torch"""
NAME_LISTING = "print(sorted(name for name in dir() if not name.startswith('_') and name not in {'In', 'Out'}))"


@dataclass
class ExpectedReport:
    """The expected line (or file and line) and outcome of each break, in order, and the expected counts."""

    breaks: str
    graphs: int
    skipped: int = 0


COMPILED_CELLS = {
    "closures_deep": ExpectedReport("8 resumed", graphs=2),
    "methods": ExpectedReport("16 resumed, 12 resumed, 8 skipped", graphs=2, skipped=1),
    "recursion": ExpectedReport("6 resumed", graphs=4),
    "for_zip": ExpectedReport("9 skipped", graphs=0, skipped=1),
    "managers": ExpectedReport("11 skipped", graphs=0, skipped=1),
    "autograd_function_break": ExpectedReport("6 resumed", graphs=3),
    "item_tolist_numpy": ExpectedReport("5 resumed, 6 resumed, 8 resumed, 9 resumed, 10 resumed", graphs=5),
    "match": ExpectedReport("10 resumed, 12 resumed", graphs=4),
    "tabs2": ExpectedReport("5 resumed, 8 resumed, 11 resumed", graphs=3),
    "html_ansi_bidi": ExpectedReport("6 resumed", graphs=1),
    "thread_error": ExpectedReport("6 resumed, 7 skipped", graphs=1, skipped=1),
    "gather": ExpectedReport("10 resumed, 6 resumed", graphs=4),
    "gen_fn_two": ExpectedReport("3 skipped, 6 skipped", graphs=0, skipped=2),
    "dispatch_mode_own": ExpectedReport("", graphs=0, skipped=1),
    "limit_small": ExpectedReport("6 resumed", graphs=4, skipped=1),
    "fullgraph_nested_err": ExpectedReport("4 error", graphs=0),
    "eogb_dyn": ExpectedReport("8 resumed, 11 error", graphs=1),
    "skip_frame_nested": ExpectedReport("4 skipped", graphs=2, skipped=1),
    "ipythons_open": ExpectedReport("6 resumed, 6 resumed", graphs=2),
    "raise_after_break": ExpectedReport("4 resumed, 5 resumed, 6 skipped", graphs=2, skipped=1),
    "kbd_caught": ExpectedReport("6 resumed", graphs=1),
    "two_fns_same_name": ExpectedReport("5 resumed, 11 resumed", graphs=1),
    "finally_return": ExpectedReport("10 skipped", graphs=0, skipped=1),
    "checkpoint": ExpectedReport("6 resumed", graphs=1),
    "reset_mid_thread": ExpectedReport("6 resumed", graphs=6),
    "later_call": ExpectedReport("6 resumed", graphs=5),
    "limit_fullgraph": ExpectedReport("3 error", graphs=2),
    "capture_magic": ExpectedReport("6 resumed", graphs=1),
    "logging_configured_anew": ExpectedReport("6 resumed", graphs=2),
}

# Older releases of torch behave differently.
if torch.__version__ < "2.11":
    # skip_frame() has no event; the caller breaks at the call and is skipped.
    COMPILED_CELLS["skip_frame_nested"] = ExpectedReport("9 resumed", graphs=2, skipped=1)
    # Even without the magic, torch raises InternalTorchDynamoError for a match statement on a mapping.
    COMPILED_CELLS["match"] = ExpectedReport("6 error", graphs=0)

#: The code compiled for the report of each cell that compiles nothing itself: the cell as one function, or callables.
PLAIN_CELLS: dict[str, str | list[str]] = {
    "semi": "function",
    "inplace_alias": [],
    "model_opt": ["model"],
    "gen": [],
    "random": [],
    "global_fn": ["bump"],
    "read_before_assigned": "function",
    "cond_assign": [],
    "err_assert": [],
    "err_unbound": [],
    "err_zero": [],
    "err_custom": [],
    "err_in_torch": ["Linear"],
    "error_after_a_break_and_a_definition": [],
    "exec": [],
    "magics_with_a_scope": [],
    "dead_code": "function",
    "long_sum": "function",
    "async_comprehension": [],
    "seen_names": [],
    "read_by_a_helper": ["scaled"],
    "no_annotations": [],
    "settings_stay": [],
    "stance": [],
    "documentation": [],
    "annotations": [],
    "numpy_numbers": [],
    "surrogates": [],
    "carets": "function",
    "class_of_a_with_block": [],
    "set_logs_and_log": [],
    "deleted_objects": [],
}


@dataclass
class Outcome:
    """The output of a cell that the user sees."""

    stdout: str = ""
    stderr: str = ""
    result: str | None = None
    displays: list[dict[str, Any]] = field(default_factory=list)
    error: tuple[str, str] | None = None
    traceback: str = ""
    reports: list[dict[str, Any]] = field(default_factory=list)


def is_live_view(data: dict[str, Any]) -> bool:
    """Return whether a MIME bundle is the live view shown during a run, which has no text."""
    return data["text/plain"] == "" and "application/vnd.jupyter.widget-view+json" in data


class Kernel:
    """A kernel with the extension loaded."""

    def __init__(self) -> None:
        self.manager, self.client = start_new_kernel(kernel_name="python3")
        self.run("%load_ext jupyter_graphbreak")

    def run(self, code: str) -> Outcome:
        outcome = Outcome()

        def handle_message(message: dict[str, Any]) -> None:
            kind, content = message["msg_type"], message["content"]
            if kind == "stream" and content["name"] == "stdout":
                outcome.stdout += content["text"]
            elif kind == "stream":
                outcome.stderr += content["text"]
            elif kind == "execute_result":
                outcome.result = content["data"]["text/plain"]
            elif kind == "error":
                outcome.error = (content["ename"], content["evalue"])
                outcome.traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"]))
            elif kind in {"display_data", "update_display_data"} and MIME_TYPE in content["data"]:
                outcome.reports.append(content["data"])
            elif kind == "display_data" and not is_live_view(content["data"]):
                outcome.displays.append(content["data"])

        self.client.execute_interactive(
            code, output_hook=handle_message, allow_stdin=False, timeout=120, stop_on_error=False
        )
        return outcome

    def run_without_and_with_magic(self, cell: str) -> tuple[Outcome, Outcome, Report]:
        """Run a cell without and with the magic, in separate namespaces, and compare the output."""
        self.run(PREPARATION)
        plain_outcome = self.run(cell)
        plain_names = self.run(NAME_LISTING).stdout
        self.run(PREPARATION)
        explained_outcome = self.run("%%compile_explain\n" + cell)
        assert self.run(NAME_LISTING).stdout == plain_names
        assert remove_times(explained_outcome.stdout) == remove_times(plain_outcome.stdout)
        assert remove_addresses(explained_outcome.result) == remove_addresses(plain_outcome.result)
        assert explained_outcome.displays == plain_outcome.displays
        assert (explained_outcome.error and explained_outcome.error[0]) == (
            plain_outcome.error and plain_outcome.error[0]
        )
        assert innermost_line(explained_outcome.traceback) == innermost_line(plain_outcome.traceback, lines_above=1)
        (bundle,) = explained_outcome.reports
        return plain_outcome, explained_outcome, Report.from_dict(bundle[MIME_TYPE])


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    yield kernel
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)


def read_cells(name: str) -> dict[str, str]:
    parts = re.split(r"^# %% (\w+)\n", (CELLS / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {title: code.rstrip("\n") for title, code in zip(parts[1::2], parts[2::2], strict=True)}


def innermost_line(traceback: str, lines_above: int = 0) -> int | None:
    """Return the innermost line of the cell in a traceback, plus the number of lines above the cell."""
    lines = re.findall(r"Cell In\[\d+\], line (\d+)", traceback)
    return int(lines[-1]) + lines_above if lines else None


def remove_addresses(text: str | None) -> str | None:
    return re.sub(r"0x[0-9a-f]+", "0x", text) if text is not None else None


def remove_times(text: str) -> str:
    return re.sub(r"[\d.]+(e\+\d+)? \w?s\b", "TIME", text)


def location_text(report: Report, location: Location | None) -> str:
    assert location is not None
    source = next(source for source in report.sources if source.id == location.source)
    return str(location.line) if source.kind == "cell" else f"{source.name}:{location.line}"


def breaks_text(report: Report) -> str:
    return ", ".join(f"{location_text(report, break_.location)} {break_.outcome}" for break_ in report.breaks)


@pytest.mark.parametrize("name", sample_parameters(COMPILED_CELLS, 2))
def test_every_break_is_listed_once_and_the_cell_runs_as_without_the_magic(kernel: Kernel, name: str) -> None:
    _, explained_outcome, report = kernel.run_without_and_with_magic(read_cells("compiled.txt")[name])
    expected = COMPILED_CELLS[name]
    text = explained_outcome.reports[0]["text/plain"]
    assert (breaks_text(report), report.summary.graphs, report.summary.skipped) == (
        expected.breaks,
        expected.graphs,
        expected.skipped,
    ), text
    head, _, _ = text.partition("\n\n")
    for word in ("IPython", "ipykernel", "asyncio/", "tornado", "torch/_dynamo", "jupyter_graphbreak"):
        assert word not in head


@pytest.mark.parametrize("name", sample_parameters(PLAIN_CELLS, 2))
def test_a_cell_that_compiles_nothing_runs_as_without_the_magic(kernel: Kernel, name: str) -> None:
    plain_outcome, explained_outcome, report = kernel.run_without_and_with_magic(read_cells("plain.txt")[name])
    assert explained_outcome.error == plain_outcome.error
    assert explained_outcome.stderr == plain_outcome.stderr
    assert "jupyter_graphbreak" not in explained_outcome.traceback
    assert "_dynamo" not in explained_outcome.traceback
    is_one_function = any("compiled as one function" in note.message for note in report.diagnostics)
    assert ("function" if is_one_function else [compiled.name for compiled in report.compiled or ()]) == PLAIN_CELLS[
        name
    ]


def test_every_cell_has_an_expectation() -> None:
    assert set(read_cells("compiled.txt")) == set(COMPILED_CELLS)
    assert set(read_cells("plain.txt")) == set(PLAIN_CELLS)
