"""Output formats and exit statuses of the commands."""

from __future__ import annotations

import difflib
import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import nbformat
import pytest

from jupyter_graphbreak.results import Job, Report
from tests.cli.conftest import Cli

LOGS = Path(__file__).parents[1] / "recordings" / "logs"
LOG = LOGS / "2.13.0" / "nested_break.log"
BRANCH = LOGS / "2.13.0" / "branch.log"
SCHEMA = json.loads((Path(__file__).parent / "sarif-reduced.schema.json").read_text())
PROGRAM = """\
import sys
import torch

@torch.compile(backend="eager")
def secret_step(velocity):
    momentum = velocity * 2
    if momentum.sum() > 0:
        momentum = momentum + 1
    return momentum

secret_step(torch.ones(3))
print("argv", sys.argv[1:], __name__)
if "fail" in sys.argv:
    sys.exit(7)
if "raise" in sys.argv:
    raise ValueError("no such velocity")
"""


TRAINING = """\
import sys
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        if y.sum() > 0:
            y = y * 2
        return y

def loss_of(model, x):
    y = model(x)
    if y.mean() > 0:
        y = y + 1
    return y.pow(2).mean()

def main():
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, torch.ones(2, 4))
        loss.backward()
        optimizer.step()
    print(sys.argv[1:], __name__, f"{loss.item():.6f}")

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "training_loop.py"
    path.write_text(PROGRAM)
    return path


def test_every_command_has_a_narrow_help_text(cli: Cli) -> None:
    for command in ([], ["log"], ["notebook"], ["script"], ["repro"], ["diff"], ["doctor"]):
        result = cli(*command, "--help")
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.startswith("Usage: graphbreak")
        assert all(len(line) <= 100 for line in result.stdout.split("\n"))
    assert cli("--version").stdout.startswith("graphbreak, version")


@pytest.mark.parametrize("as_module", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_a_program_that_compiles_nothing_is_compiled_for_the_report(cli: Cli, tmp_path: Path, as_module: bool) -> None:
    (tmp_path / "train_net.py").write_text(TRAINING)
    target = ["-m", "train_net"] if as_module else ["train_net.py"]
    result = cli("script", "--compile", "--format", "json", *target, "-x")
    plain_result = cli("script", "--format", "json", *target, "-x")
    assert result.returncode == 0, result.stderr
    assert result.stderr == plain_result.stderr  # the program's own output
    report, report_without_option = Report.from_json(result.stdout), Report.from_json(plain_result.stdout)
    assert [(break_.location.line, break_.gb_id) for break_ in report.breaks if break_.location] == [
        (11, "GB0170"),
        (17, "GB0170"),
    ]
    assert [call.name for call in report.compiled or []] == ["loss_of"]
    assert (report_without_option.breaks, report_without_option.compiled) == ([], None)
    assert [location.function for location in report.breaks[0].stack] == ["<module>", "main", "loss_of", "forward"]


def test_a_command_is_completed_in_a_shell(cli: Cli) -> None:
    result = cli(_GRAPHBREAK_COMPLETE="bash_complete", COMP_WORDS="graphbreak no", COMP_CWORD="1")
    assert result.stdout == "plain,notebook\n"


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ([], 2),
        (["nonsense"], 2),
        (["log"], 2),
        (["log", LOG, "--format", "pdf"], 2),
        (["log", LOG, "--update-baseline"], 2),
        (["log", LOG, "--sources", "nowhere"], 2),
        (["log", LOG, "--baseline", "nowhere/new.toml", "--update-baseline"], 2),
        (["notebook", "old.ipynb", "--output", "copy.ipynb"], 2),
        (["notebook", "empty.ipynb", "--execute", "--output", "empty.ipynb"], 2),
        (["script"], 2),
        (["script", "nowhere.py"], 2),
        (["repro"], 2),
        (["repro", "nowhere.py"], 2),
        (["script", "-m", "no_such_module"], 2),
        (["log", "nowhere"], 3),
        (["log", "."], 3),
        (["log", "pipe"], 3),
        (["log", "empty.log"], 3),
        (["log", "binary.log"], 3),
        (["log", "foreign.log"], 3),
        (["log", "damaged.zst"], 3),
        (["log", "n" * 5000], 3),
        (["log", LOG, "--baseline", "nowhere.toml"], 3),
        (["log", LOG, "--baseline", "malformed.toml"], 3),
        (["log", LOG, "--baseline", "malformed.toml", "--update-baseline"], 3),
        (["log", LOG, "--baseline", "pipe"], 3),
        (["log", LOG, "--baseline", ".", "--update-baseline"], 3),
        (["log", LOG, "--baseline", "itself.toml", "--update-baseline"], 3),
        (["notebook", "nowhere.ipynb"], 3),
        (["notebook", "pipe"], 3),
        (["notebook", "foreign.log"], 3),
        (["notebook", "old.ipynb"], 3),
        (["notebook", "old.ipynb", "--execute", "--output", "copy.ipynb"], 3),
        (["notebook", "outputs.ipynb", "--execute"], 3),
        (["diff", LOG, "nowhere"], 3),
        (["diff", LOG, "foreign.log"], 3),
        (["diff", LOG, "report.json"], 3),
        (["diff", LOG, "nested.json"], 3),
        (["diff", LOG, "pipe"], 3),
    ],
    ids=lambda value: (
        " ".join(str(a).rpartition("/")[2][:20] for a in value) if isinstance(value, list) else str(value)
    ),
)
def test_misuse_and_unreadable_files_are_reported_in_one_line(
    cli: Cli, tmp_path: Path, arguments: list[object], status: int
) -> None:
    (tmp_path / "empty.log").write_bytes(b"")
    (tmp_path / "binary.log").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "foreign.log").write_text("hello\nworld\n")
    (tmp_path / "damaged.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(range(100, 200)))
    (tmp_path / "outputs.ipynb").write_text('{"nbformat": 4, "cells": [{"cell_type": "code", "outputs": 5}]}')
    (tmp_path / "malformed.toml").write_text("[[break]\n")
    (tmp_path / "old.ipynb").write_text('{"nbformat": 3, "worksheets": []}')
    (tmp_path / "empty.ipynb").write_text('{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}')
    (tmp_path / "report.json").write_text('{"schema_version": "9.0"}')
    (tmp_path / "nested.json").write_text('{"status": ' + "[" * 100_000)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "itself.toml").symlink_to("itself.toml")
    times_by_name = {path.name: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    result = cli(*arguments)
    assert (result.returncode, result.stdout) == (status, "")
    assert re.fullmatch(r"graphbreak: [^\n]+\n", result.stderr)
    assert {path.name: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == times_by_name


@pytest.mark.parametrize(
    ("torch_code", "message"),
    [
        ("raise ImportError('no libcuda')", "PyTorch is not installed here (no libcuda): pip install 'torch>=2.9'"),
        ("__version__ = '2.8.1'", "PyTorch 2.8.1 is too old (2.9 or newer is needed): pip install -U 'torch>=2.9'"),
    ],
    ids=["missing", "old"],
)
@pytest.mark.parametrize("arguments", [["script", "train.py"], ["checkpoint", "train.py", "-o", "new"]], ids=" ".join)
def test_a_missing_pytorch_is_reported_in_one_line(
    tmp_path: Path, arguments: list[str], torch_code: str, message: str
) -> None:
    (tmp_path / "torch.py").write_text(torch_code)
    (tmp_path / "train.py").touch()
    command = [sys.executable, "-m", "jupyter_graphbreak", *arguments]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"graphbreak: {message}\n")


def test_an_internal_error_has_its_own_exit_status(tmp_path: Path) -> None:
    (tmp_path / "broken_reading.py").write_text(
        "import jupyter_graphbreak.api.saved as saved\n"
        "def fail(*_, **__):\n    raise ZeroDivisionError('inside\\nof it')\n"
        "saved.read_trace = fail\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    code = "import broken_reading; from jupyter_graphbreak.cli import main; main()"
    command = [sys.executable, "-c", code, "log", str(LOG)]
    for debug, tracebacks in (("", 0), ("1", 1)):
        environment = {**os.environ, "PYTHONPATH": path, "GRAPHBREAK_DEBUG": debug}
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
        assert (result.returncode, result.stdout, result.stderr.count("Traceback")) == (4, "", tracebacks)
        last_line = result.stderr.rstrip("\n").split("\n")[-1]
        assert last_line.startswith("graphbreak: internal error: ZeroDivisionError: inside of it (please report it")


def test_a_baseline_is_replaced_atomically(cli: Cli, tmp_path: Path) -> None:
    file, link = tmp_path / "real" / "allowed.toml", tmp_path / "allowed.toml"
    file.parent.mkdir()
    file.write_text("")
    file.chmod(0o640)
    link.symlink_to(file)
    old_inode = file.stat().st_ino
    assert cli("log", LOG, "--baseline", "allowed.toml", "--update-baseline").returncode == 0
    assert link.is_symlink()
    assert "[[break]]" in file.read_text()
    assert (file.stat().st_mode & 0o777, file.stat().st_ino != old_inode) == (0o640, True)
    assert [path.name for path in file.parent.iterdir()] == ["allowed.toml"]


def test_a_log_is_shown_in_every_format(cli: Cli) -> None:
    assert "nested_break.py:8 in leaf" in cli("log", LOG).stdout
    report = Report.from_json(cli("log", LOG, "--format", "json").stdout)
    assert len(report.breaks) == 1
    page = cli("log", LOG, "--format", "html").stdout
    assert page.startswith("<!doctype html>")
    HTMLParser().feed(page)
    comment = cli("log", LOG, "--format", "markdown").stdout
    assert "| 1 | nested&#95;break.py:8 in leaf |" in comment
    annotations = json.loads(cli("log", LOG, "--format", "sarif").stdout)
    jsonschema.validate(annotations, SCHEMA)
    (result,) = annotations["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 8


def test_a_job_is_shown_in_every_format(cli: Cli, tmp_path: Path) -> None:
    for rank, name in enumerate(["branch", "nested_break"]):
        text = (LOGS / "2.13.0" / f"{name}.log").read_bytes()
        (tmp_path / f"dedicated_log_torch_trace_rank_{rank}_x.log.gz").write_bytes(gzip.compress(text))
    assert "only on rank 0, not on rank 1" in cli("log", tmp_path).stdout
    job = Job.from_json(cli("log", tmp_path, "--format", "json").stdout)
    assert [process.rank for process in job.processes] == [0, 1]
    assert "only on rank 1" in cli("log", tmp_path, "--format", "html").stdout
    assert "only on rank 1" in cli("log", tmp_path, "--format", "markdown").stdout
    annotations = json.loads(cli("log", tmp_path, "--format", "sarif").stdout)
    jsonschema.validate(annotations, SCHEMA)
    assert len(annotations["runs"][0]["results"]) == 2


def test_the_gate_fails_on_a_new_break(cli: Cli, tmp_path: Path) -> None:
    update = cli("log", LOG, "--baseline", "allowed.toml", "--update-baseline")
    assert update.returncode == 0
    assert 'line = "torch._dynamo.graph_break()"' in (tmp_path / "allowed.toml").read_text()
    assert "gate passed: 1 allowed break" in cli("log", LOG, "--baseline", "allowed.toml").stdout
    failed_gate = cli("log", BRANCH, "--baseline", "allowed.toml")
    assert failed_gate.returncode == 1
    assert "gate failed: 1 new break; 1 allowed break gone" in failed_gate.stdout
    (tmp_path / "none.toml").write_text("")
    annotated_gate = cli("log", LOG, "--baseline", "none.toml", "--format", "sarif")
    assert (annotated_gate.returncode, "gate failed" in annotated_gate.stderr) == (1, True)
    result = json.loads(annotated_gate.stdout)["runs"][0]["results"][0]
    assert (result["level"], result["baselineState"]) == ("error", "new")
    assert "**1 new**" in cli("log", LOG, "--baseline", "none.toml", "--format", "markdown").stdout


def test_the_gate_fails_if_nothing_was_compiled(cli: Cli, program: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "allowed.toml"
    options = ("--baseline", baseline)
    assert cli("script", *options, "--update-baseline", program).returncode == 0
    old_text = baseline.read_text()
    assert cli("script", *options, program).returncode == 0
    text = program.read_text()
    program.write_text("import torch._dynamo; torch._dynamo.config.disable = True\n" + text)
    failed_gate = cli("script", *options, program)
    assert failed_gate.returncode == 1
    assert "gate failed: nothing was compiled, so the absence of breaks proves nothing" in failed_gate.stdout
    assert "  call a compiled function in this process, and check that compiling is not" in failed_gate.stdout
    assert "gone" not in failed_gate.stdout
    second_update = cli("script", *options, "--update-baseline", program)
    assert second_update.returncode == 1
    assert "allowed.toml was not written: nothing was compiled; " in second_update.stderr
    assert baseline.read_text() == old_text
    empty_notebook = tmp_path / "empty.ipynb"
    nbformat.write(nbformat.v4.new_notebook(), empty_notebook)
    assert cli("notebook", *options, empty_notebook).returncode == 1


def test_a_script_runs_as_python_runs_it(cli: Cli, program: Path) -> None:
    result = cli("script", program, "--format", "x")
    assert result.returncode == 0
    assert result.stdout.startswith("argv ['--format', 'x'] __main__\n1 break, training_loop.py:7 in")
    result = cli("script", "--format", "json", "-m", "training_loop", "a")
    assert Report.from_json(result.stdout).breaks[0].gb_id == "GB0170"
    assert "argv ['a'] __main__" in result.stderr


def test_remedies_cost_check_and_values_are_computed_after_a_script_has_ended(cli: Cli, program: Path) -> None:
    result = cli("script", "--try", "--check", "--cost", "--values", "--format", "json", program)
    assert result.returncode == 0
    assert result.stderr.count("argv") == 1, "the program itself ran once"
    report = json.loads(result.stdout)
    assert "works" in {remedy["verdict"] for remedy in report["remedies"]}
    assert [check["equal"] for check in report["check"]] == [True]
    assert report["cost"]["entries"]
    assert [values["first"] for values in report["values"]] == [[]]
    refused_run = cli("script", "--at", "line 7", program)
    assert (refused_run.returncode, refused_run.stdout) == (2, "")
    assert "--at 'line 7' is not a line: use, for example, 12 or model.py:12" in refused_run.stderr


@pytest.mark.exhaustive
def test_functions_of_a_script_find_their_globals_when_they_run_again(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "uses_globals.py"
    path.write_text(
        "import torch\n"
        "def halve(x): return torch.relu(x) / 2\n"
        "@torch.compile(backend='eager')\n"
        "def f(x): return halve(x)\n"
        "for n in (3, 5, 7): f(torch.ones(n))\n"
    )
    report = Report.from_json(cli("script", "--try", "--format", "json", path).stdout)
    (remedy, *_) = report.remedies or []
    assert (remedy.verdict, remedy.title) == ("works", "Mark dimension 0 of `x` as dynamic")


@pytest.mark.exhaustive
def test_a_patch_of_a_script_is_tried(cli: Cli, program: Path, tmp_path: Path) -> None:
    old_text = program.read_text()
    new_text = old_text.replace("momentum.sum() > 0", "momentum.dim() > 0")
    patch = tmp_path / "own.patch"
    patch.write_text("".join(difflib.unified_diff(
        old_text.splitlines(keepends=True), new_text.splitlines(keepends=True), program.name, program.name,
    )))  # fmt: skip
    result = cli("script", "--patch", patch, program)
    assert "Your patch" in result.stdout
    assert "different results" in result.stdout
    assert program.read_text() == old_text
    refused_run = cli("script", "--patch", "nowhere.patch", program)
    assert (refused_run.returncode, refused_run.stdout) == (2, "")
    assert "--patch nowhere.patch: " in refused_run.stderr


def test_the_exit_status_of_a_script_takes_precedence(cli: Cli, program: Path, tmp_path: Path) -> None:
    (tmp_path / "none.toml").write_text("")
    assert cli("script", "--baseline", "none.toml", program).returncode == 1
    result = cli("script", "--baseline", "none.toml", program, "fail")
    assert (result.returncode, "gate failed" in result.stdout) == (7, True)
    result = cli("script", program, "raise")
    assert result.returncode == 1
    assert "1 break until then" in result.stdout
    assert [line for line in result.stderr.split("\n") if line.startswith("  File")] == [
        f'  File "{program}", line 16, in <module>'
    ]
    program.write_text("def step(:\n")
    result = cli("script", program)
    assert result.returncode == 1
    assert [line for line in result.stderr.split("\n") if line.startswith(("Trace", "  File"))] == [
        f'  File "{program}", line 1'
    ]


@pytest.mark.exhaustive
def test_repro_prints_the_issue_with_its_script(cli: Cli, tmp_path: Path) -> None:
    program = tmp_path / "steps.py"
    program.write_text(
        "import torch\n@torch.compile(backend='eager')\ndef step(velocity):\n    print('hi')\n    return velocity + 1\n"
        "step(torch.ones(3))\n"
    )
    result = cli("repro", "--issue", program, "-x")
    assert result.returncode == 0, result.stderr
    assert "print('hi')" in result.stdout
    assert "Failed to trace builtin operator" in result.stdout
    assert "gb0059" in result.stdout
    assert ", line " in result.stdout  # PyTorch's own log, with its traceback
    assert "hi" in result.stderr  # the program's own output
    unknown_id_result = cli("repro", "--id", "b7", program)
    assert unknown_id_result.returncode == 2
    assert "the report has no such id; it has b1" in unknown_id_result.stderr
    program.write_text("print('nothing is compiled')\n")
    uncompiled_result = cli("repro", program)
    assert uncompiled_result.returncode == 1
    assert "nothing to reproduce" in uncompiled_result.stderr


def test_diff_compares_two_runs(cli: Cli, tmp_path: Path) -> None:
    for name in ("branch", "nested_break"):
        (tmp_path / f"{name}.json").write_text(cli("log", LOGS / "2.13.0" / f"{name}.log", "--format", "json").stdout)
    result = cli("diff", "branch.json", "nested_break.json")
    assert result.returncode == 0
    assert "1 break gone, 1 new" in result.stdout
    assert "the same break" in cli("diff", "branch.json", LOGS / "2.13.0" / "branch.log").stdout
    assert len(json.loads(cli("diff", "branch.json", LOG, "--format", "json").stdout)["breaks"]) == 2
    assert cli("diff", "branch.json", LOG, "--format", "html").stdout.startswith("<!doctype html>")
    assert "1 break gone, 1 new" in cli("diff", "branch.json", LOG, "--format", "markdown").stdout


def notebook_with_cells(*cells: str) -> Any:
    return nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )


def test_a_notebook_is_run_without_changing_its_file(cli: Cli, tmp_path: Path) -> None:
    step = "\n".join(PROGRAM.split("\n")[1:9])
    path = tmp_path / "work.ipynb"
    nbformat.write(
        notebook_with_cells("a = 1 + 1", step, "# first\nsecret_step(torch.ones(3))", "1 / 0", "a = 3"), path
    )
    old_content = path.read_bytes()
    result = cli("notebook", path.name, "--execute", "--output", "copy.ipynb", "--format", "json")
    assert result.returncode == 1
    assert "the notebook ended early: ZeroDivisionError: division by zero" in result.stderr
    (report,) = [Report.from_dict(data) for data in json.loads(result.stdout)]
    assert [source.name for source in report.sources] == ["Cell In[3]", "Cell In[2]"]
    assert [break_.location.line for break_ in report.breaks if break_.location is not None] == [6]
    assert path.read_bytes() == old_content
    saved_copy = nbformat.read(tmp_path / "copy.ipynb", as_version=4)
    assert [len(cell.outputs) for cell in saved_copy.cells] == [0, 0, 2, 1, 0]
    copy_result = cli("notebook", "copy.ipynb")
    assert (copy_result.returncode, copy_result.stdout.count("\nCell In[3], ")) == (0, 1)
    jsonschema.validate(json.loads(cli("notebook", "copy.ipynb", "--format", "sarif").stdout), SCHEMA)


SECRETS = ("secret_step", "velocity", "momentum", "training_loop", "ones")
LOG_WORDS = ("branch.py", "choose")


def test_a_redacted_report_contains_no_name_from_the_code(cli: Cli, program: Path) -> None:
    # In a format for other programs, standard output contains only the report, not the program's own output.
    redacted_result = cli("script", "--redact", "--format", "json", program, "raise")
    Report.from_json(redacted_result.stdout)
    assert_redacted(redacted_result.stdout, SECRETS)
    for output_format in ("text", "json", "html", "markdown", "sarif"):
        plain_text = cli("log", BRANCH, "--format", output_format).stdout
        assert [word for word in LOG_WORDS if word not in plain_text] == []
        assert_redacted(cli("log", BRANCH, "--redact", "--format", output_format).stdout, LOG_WORDS)


def assert_redacted(text: str, secrets: Iterable[str]) -> None:
    assert [word for word in secrets if word in text] == []
    assert "f1" in text
    assert "GB0170" in text
