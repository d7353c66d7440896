"""Modules are compiled in cells of all kinds, and the user sees the same output as without the magic."""

from __future__ import annotations

import gc
import random
import re
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.described_values import Describer
from jupyter_graphbreak.results import Report
from tests.ipython.test_magic import Shell
from tests.support.sampling import sample_parameters

CELLS = Path(__file__).parent / "cells" / "any.txt"
BREAK_COMMENT = "# BREAK"
#: The names of the callables that are compiled in each cell, unless only the prepared module is.
COMPILED_NAMES = {
    "loss_fn_called": ["loss_fn"],
    "gan": ["G", "D"],
    "transformed_module": ["vmap(Linear)", "<lambda>"],
    "callable_class": ["sc"],
    "partial": ["scaled"],
    "methods_with_an_optimizer": ["t.loss"],
    "async_functions": ["compute"],
    "error_in_a_function": ["outer"],
    "raise_in_forward": ["R"],
    "plain_tensors": [],
    "error_in_a_graph": [],
    "decorated": ["g2"],
    "main": ["Net", "evaluate2"],
    "keyword_arguments": ["TO"],
    "without_gradients": ["predict"],
    "pickling": ["model", "again"],
    "exported": ["GraphModule", "Linear", "Sequential", "model"],
    "functional": ["model", "squares", "<lambda>"],
    "transform_of_a_function_that_switches_modes": ["loss_of"],
    "lazy": ["lazy"],
    "data_parallel": ["parallel"],
    "lambdas": ["f", "model"],
    "in_place": ["ip"],
    "compute_in_with": [],
    "failed_assertion": ["A"],
    "assertion_in_a_function": ["checked"],
    "state_of_a_function": ["counted"],
    "module_warns": ["W"],
    "clean": ["net", "criterion"],
    "interrupted": ["stop"],
    "nested_error": ["I"],
    "helper_on_three_levels": ["first"],
}
#: Cells that do not reach the break of the prepared module.
CELLS_WITHOUT_BREAK_OF_MODEL = {
    "transformed_module", "error_in_a_function", "raise_in_forward", "plain_tensors", "error_in_a_library",
    "error_in_a_graph", "decorated", "keyword_arguments", "lazy", "shape_error", "in_place", "compute_in_with",
    "transform_of_a_function_that_switches_modes",
    "assertion_in_a_function", "state_of_a_function", "module_warns", "clean", "interrupted", "nested_error",
}  # fmt: skip
#: Cells that end in an error.
FAILING_CELLS = {
    "error_in_a_function", "error_in_a_graph", "raise_in_forward", "error_in_a_library", "shape_error",
    "failed_assertion", "assertion_in_a_function", "interrupted", "nested_error",
}  # fmt: skip
#: The files of libraries in which cells break, by cell.
FILES_OF_LIBRARY_ERRORS = {"error_in_a_library": ["linear.py"], "shape_error": ["linear.py"]}
if torch.__version__ < "2.10":  # Dynamo does not trace repr(module), which functorch calls
    FILES_OF_LIBRARY_ERRORS["transformed_module"] = ["vmap.py"]


def read_cells() -> dict[str, str]:
    parts = re.split(r"^# %% (\w+)\n", CELLS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {title: code.rstrip("\n") for title, code in zip(parts[1::2], parts[2::2], strict=True)}


CELL_TEXTS = read_cells()
PREPARATION = CELL_TEXTS.pop("prep")


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    shell = Shell()
    gc.collect()  # objects of earlier tests may warn when they are freed
    was_always_enabled = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield shell
    torch.set_warn_always(was_always_enabled)
    shell.ip.run_line_magic("unload_ext", "jupyter_graphbreak")


class VisibleState:
    """Everything that the user can see after a cell has run."""

    def __init__(self, shell: Shell, cell: str) -> None:
        for name in [name for name in shell.ip.user_ns if name not in shell.ip.user_ns_hidden and name[:2] != "__"]:
            del shell.ip.user_ns[name]
        torch._dynamo.reset()
        names_before = {*shell.ip.user_ns}
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        assert shell.run(PREPARATION).success
        self.parts: dict[str, Any] = {}
        gc.collect(1)  # objects of the last cell may warn when they are freed
        with warnings.catch_warnings(record=True) as caught_warnings:
            warnings.simplefilter("always")
            result = shell.run(cell)
            self.parts["filters"] = str(warnings.filters)
        self.parts["warnings"] = [
            normalize(f"{item.category} {item.message} {item.filename} {item.lineno}") for item in caught_warnings
        ]
        error = result.error_in_exec or result.error_before_exec
        describer = Describer()
        self.parts |= {
            "result": describer.describe(result.result),
            "error": [type(error).__name__, *traceback_lines(error)],
            "names": [
                f"{name} = {describer.describe(value)}"
                for name, value in sorted(shell.ip.user_ns.items())
                if name not in names_before and not re.fullmatch(r"_+\w*", name)
            ],
            "output": normalize(shell.io.stdout + shell.io.stderr),
            "random": (
                torch.random.get_rng_state().sum().item(),
                hash(random.getstate()),
                np.random.get_state(legacy=False)["state"]["key"].sum(),
            ),
            "settings": (
                torch.is_grad_enabled(),
                torch.are_deterministic_algorithms_enabled(),
                torch.is_autocast_enabled("cpu"),
                torch._C._len_torch_dispatch_stack(),
                torch.nn.Module.__call__.__qualname__,
                torch._dynamo.config.suppress_errors,
            ),
        }


def traceback_lines(error: BaseException | None) -> list[str]:
    entries = traceback.extract_tb(error.__traceback__) if error is not None else []
    return [str(error), *(f"{entry.name} {entry.lineno}" for entry in entries if "IPython" not in entry.filename)]


def normalize(text: str) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"0x[0-9a-f]+|[\d.]+ [nuµm]?s\b|In ?\[\d+\]|Out\[\d+\]|ipython-input-\S+", "*", text)
    return re.sub(r"(# no magic|'?%%compile_explain *'?)\n", "\n", text)


def break_lines(shell: Shell, report: Report) -> list[str]:
    """Return each break's line in the cell, ``model`` for the prepared module, or the name of a library file."""
    names = {source.id: source.name for source in report.sources}
    preparation_name, cell_name = (f"Cell In[{shell.ip.execution_count - before}]" for before in (2, 1))
    lines = []
    for break_ in report.breaks:
        assert break_.location is not None
        name = names[break_.location.source]
        line = str(break_.location.line) if name == cell_name else name
        lines.append("model" if name == preparation_name else line)
    assert len(lines) == len(set(lines))
    return sorted(lines)


def expected_break_lines(name: str) -> list[str]:
    lines = [str(number) for number, line in enumerate(CELL_TEXTS[name].splitlines(), start=2) if BREAK_COMMENT in line]
    return sorted(
        [*lines, *FILES_OF_LIBRARY_ERRORS.get(name, []), *["model"] * (name not in CELLS_WITHOUT_BREAK_OF_MODEL)]
    )


@pytest.mark.parametrize("name", sample_parameters(CELL_TEXTS, 3))
def test_the_user_sees_the_same_as_without_the_magic(shell: Shell, name: str) -> None:
    cell = CELL_TEXTS[name]
    plain_state = VisibleState(shell, cell if cell.startswith("%%") else f"# no magic\n{cell}")
    explained_state = VisibleState(shell, f"%%compile_explain\n{cell}")
    assert (plain_state.parts["error"][0] != "NoneType") is (name in FAILING_CELLS)
    assert explained_state.parts == plain_state.parts
    report = shell.report
    assert [note.message for note in report.diagnostics if note.level != "info"] == []
    assert break_lines(shell, report) == expected_break_lines(name)
    assert [compiled.name for compiled in report.compiled or ()] == COMPILED_NAMES.get(name, ["model"])


def test_every_expectation_has_a_cell() -> None:
    assert {*COMPILED_NAMES, *CELLS_WITHOUT_BREAK_OF_MODEL, *FILES_OF_LIBRARY_ERRORS, *FAILING_CELLS} <= set(CELL_TEXTS)
