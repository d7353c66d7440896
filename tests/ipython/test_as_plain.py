"""A cell has the same output and effects with the magic as without it. Random programs found these cases."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from jupyter_graphbreak.report.remedies import WORKING
from tests.ipython.test_magic import Shell

WITHOUT_STDERR_WARNING = pytest.mark.skipif(
    torch.__version__.startswith("2.14"),
    reason="while it compiles, torch 2.14 itself writes the warning about .T to stderr",
)
PREPARATION = """import contextlib, functools, weakref, collections, torch, warnings
def print_warning(message, category, filename, lineno, file=None, line=None):
    print(category.__name__, lineno, "ipython-input" in filename)
def fails(x):
    raise LookupError(x.shape)
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        print(function.__name__)
        return function(*args, **(kwargs or {}))
def frees_a_tensor(x):
    tensors = [x + 1]
    reference = weakref.ref(tensors[0])
    del tensors
    return reference() is None
frees_a_tensor_cached = functools.lru_cache(lambda size: frees_a_tensor(torch.ones(size)))
"""


@pytest.fixture
def shell() -> Iterator[Shell]:
    torch._dynamo.reset()
    shell = Shell()
    shell.run(PREPARATION)
    original_showwarning, was_always_enabled = warnings.showwarning, torch.is_warn_always_enabled()
    yield shell
    warnings.showwarning = original_showwarning
    torch.set_warn_always(was_always_enabled)
    torch.use_deterministic_algorithms(mode=False)
    torch.compiler.set_stance("default")
    shell.ip.run_line_magic("unload_ext", "jupyter_graphbreak")


def run_without_and_with_magic(shell: Shell, cell: str, options: str = "") -> tuple[Any, Any]:
    """Run a cell without and with the magic, and return both results, with the output as ``stdout`` and ``stderr``."""
    results = []
    for first_line in ("#", f"%%compile_explain {options}"):
        result = shell.run(f"{first_line}\n{cell}")
        result.stdout, result.stderr = shell.io.stdout, shell.io.stderr
        results.append(result)
    plain_run, explained_run = results
    return plain_run, explained_run


def was_compiled_as_one_function(shell: Shell) -> bool:
    return any("compiled as one function" in note.message for note in shell.report.diagnostics)


def compiled_names(shell: Shell) -> list[str]:
    """Return the names of the callables that were compiled for the report; there must be at least one."""
    names = [entry.name for entry in shell.report.compiled or ()]
    assert names
    return names


def traceback_frames(error: BaseException) -> list[tuple[str, int | None]]:
    entries = traceback.extract_tb(error.__traceback__)
    return [(entry.name, entry.lineno) for entry in entries if "IPython" not in entry.filename]


def test_python_warns_about_a_statement_only_after_those_above_have_run(shell: Shell) -> None:
    plain_run, explained_run = run_without_and_with_magic(
        shell, "x = torch.ones(2)\nprint(x)\nraise ValueError(1)\nassert (x, 'always')"
    )
    assert (explained_run.stdout.count("\n"), explained_run.stderr) == (plain_run.stdout.count("\n"), plain_run.stderr)


@pytest.mark.parametrize("options", ["", pytest.param("--try", marks=pytest.mark.exhaustive)])
def test_python_warns_about_source_text_as_often_as_without_the_magic(shell: Shell, options: str) -> None:
    cell = """def f(x):
    note = "\\d"
    if x.sum() > 0:
        x = x + 1
    return x
warnings.simplefilter("always")
x = torch.compile(f, backend="eager")(torch.ones(2))"""
    shell.run("warnings.showwarning = print_warning")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        plain_run, explained_run = run_without_and_with_magic(shell, cell, options)
    assert "Warning 3 True\n" in plain_run.stdout
    assert explained_run.stdout == plain_run.stdout


@pytest.mark.parametrize(
    "operation",
    [
        "torch.range(0, 3)",
        pytest.param("torch.ones(3).T", marks=WITHOUT_STDERR_WARNING),
        pytest.param("(torch.ones(3) * 2).T + 1", marks=WITHOUT_STDERR_WARNING),
    ],
)
def test_the_warning_of_an_operation_has_its_line(shell: Shell, operation: str) -> None:
    shell.run("warnings.showwarning = print_warning\ntorch.set_warn_always(True)")
    plain_run, explained_run = run_without_and_with_magic(shell, f"x = torch.ones(2)\ny = {operation}\nz = y * 2")
    assert explained_run.stdout == plain_run.stdout == "UserWarning 3 True\n"
    assert was_compiled_as_one_function(shell)
    assert shell.report.breaks == []


@WITHOUT_STDERR_WARNING
def test_the_warning_of_an_operation_in_a_function_has_its_line(shell: Shell) -> None:
    shell.run("warnings.showwarning = print_warning\ntorch.set_warn_always(True)")
    cell = "def transpose(x):\n    y = x + 1\n    return y.T\ndef double(x):\n    return transpose(x) * 2\n"
    cell += "for _ in range(2):\n    z = double(torch.ones(3))"
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        plain_run, explained_run = run_without_and_with_magic(shell, cell)
    assert explained_run.stdout == plain_run.stdout == "UserWarning 4 True\n" * 2
    assert compiled_names(shell) == ["double"]
    assert shell.report.breaks == []


def test_a_warning_for_the_caller_of_the_cell_has_a_line_of_ipython(shell: Shell) -> None:
    shell.run("warnings.showwarning = print_warning")
    shell.run("%%compile_explain\nx = torch.ones(2)\nwarnings.warn('of the caller', stacklevel=2)")
    assert shell.io.stdout.endswith("False\n")  # a line of IPython


DRAWING_FUNCTION = "def draws(x):\n    return x + torch.full((3,), random.randrange(9))"


@pytest.mark.parametrize(
    "cell",
    [
        "x = torch.full((3,), random.randint(0, 9))",
        "from random import randint\nx = torch.full((3,), randint(0, 9))",
        "pass\nx = torch.full((3,), generator.randint(0, 9))",
        f"{DRAWING_FUNCTION}\nx = draws(torch.zeros(3, dtype=torch.int64))",
    ],
)
def test_random_integers_are_the_same_as_without_the_magic(shell: Shell, cell: str) -> None:
    shell.run("import random\ngenerator = random.Random(0)")
    results = []
    for magic in ("#", "%%compile_explain"):
        shell.run("random.seed(3)\ngenerator.seed(3)")
        shell.run(f"{magic}\n{cell}\nafter = random.random(), generator.random()")
        results.append((shell.ip.user_ns["x"].tolist(), shell.ip.user_ns["x"].dtype, shell.ip.user_ns["after"]))
    assert results[0] == results[1]
    assert results[0][1] == torch.int64


TRAINING = """model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
round(sum(parameter.sum().item() for parameter in model.parameters()), 3), torch.rand(1).item()"""


def test_a_check_does_not_change_the_random_numbers_of_the_cell(shell: Shell) -> None:
    plain_run, checked_run = run_without_and_with_magic(shell, f"torch.manual_seed(0)\n{TRAINING}", "--check")
    assert checked_run.result == plain_run.result
    assert [check.equal for check in shell.report.check or ()] == [True]


def test_tensors_of_random_integers_are_compiled(shell: Shell) -> None:
    run_without_and_with_magic(shell, "x = torch.randint(0, 9, (3,)) + 1")
    assert was_compiled_as_one_function(shell)


def test_the_message_of_an_error_is_computed_as_often_as_without_the_magic(shell: Shell) -> None:
    shell.run("class Odd(ValueError):\n    def __str__(self):\n        print('asked')\n        return 'odd'")
    plain_run, explained_run = run_without_and_with_magic(shell, "x = torch.ones(2)\nraise Odd(3)")
    assert plain_run.stdout.count("asked") == explained_run.stdout.count("asked") > 0
    assert shell.report.error is not None
    assert (shell.report.error.type, shell.report.error.message) == ("Odd", "3")


def test_no_attribute_is_left_on_parameters(shell: Shell) -> None:
    cell = "layer = torch.nn.Linear(2, 2)\ny = layer(torch.ones(2))\nnorm = torch.nn.BatchNorm1d(2)\n"
    run_without_and_with_magic(shell, f"{cell}norm(torch.ones(3, 2))")
    assert compiled_names(shell) == ["layer", "norm"]
    state = [*shell.ip.user_ns["layer"].parameters(), *shell.ip.user_ns["norm"].buffers()]
    assert [vars(tensor) for tensor in state] == [{}] * len(state)


def test_a_stance_that_the_cell_sets_stays_with_a_backend(shell: Shell) -> None:
    shell.run("%%compile_explain -b eager\ntorch.compiler.set_stance('force_eager')")
    assert torch._dynamo.eval_frame._stance.stance == "force_eager"


def test_an_earlier_stance_stays_in_force_with_a_backend(shell: Shell) -> None:
    shell.run("torch.compiler.set_stance('force_eager')")
    shell.run("%%compile_explain -b eager\ntwice = torch.compile(lambda x: x * 2)\ny = twice(torch.ones(2))")
    assert shell.report.graphs == []
    assert [note.message for note in shell.report.diagnostics if note.level == "warning"] == [
        'The stance is "force_eager" (torch.compiler.set_stance): nothing is compiled.',
        '--backend had no effect: the stance is "force_eager".',
    ]


def test_objects_that_the_cell_deletes_are_freed_immediately(shell: Shell) -> None:
    shell.run("x = torch.ones(2)")
    _, explained_run = run_without_and_with_magic(
        shell, "alive = weakref.ref(x)\ndel x\nprint(alive() is None)\nx = torch.ones(2)"
    )
    assert explained_run.stdout == "True\n"


def test_messages_that_pytorch_logs_once_are_still_logged_later(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.variables.tensor.TensorVariable._warn_capture_scalar_outputs.cache_clear()
    shell.run("def number(x):\n    return x + x.sum().item()")
    run_without_and_with_magic(shell, "x = torch.ones(2)\nprint(number(x))")
    assert compiled_names(shell) == ["number"]
    caplog.clear()
    shell.run("y = torch.compile(number, backend='eager')(x)")
    assert "Graph break from `Tensor.item()`" in caplog.text


def test_a_disabled_function_is_in_the_traceback_as_without_the_magic(shell: Shell) -> None:
    shell.run("disabled = torch.compiler.disable(fails)\ndef leads(x):\n    y = x + 1\n    return disabled(y)")
    plain_run, explained_run = run_without_and_with_magic(shell, "x = torch.ones(2)\nleads(x)")
    assert compiled_names(shell) == ["leads"]
    assert traceback_frames(explained_run.error_in_exec) == traceback_frames(plain_run.error_in_exec)
    assert "_fn" in [name for name, _ in traceback_frames(plain_run.error_in_exec)]


def test_the_code_of_a_graph_is_not_in_the_traceback(shell: Shell) -> None:
    plain_run, explained_run = run_without_and_with_magic(
        shell, "x = torch.ones(2)\nprint(x)\ny = x - x[torch.tensor([7])]"
    )
    assert was_compiled_as_one_function(shell)
    assert [name for name, _ in traceback_frames(explained_run.error_in_exec)] == ["<module>"]
    assert str(explained_run.error_in_exec) == str(plain_run.error_in_exec)


@pytest.mark.parametrize(
    "cell",
    [
        "x = torch.ones(2)\nprint(frees_a_tensor(x))",
        "Pair = collections.namedtuple('Pair', 'left right')\nprint(Pair.__module__)",
        "x = torch.ones(2)\ntorch.set_grad_enabled(True)\nprint(x)",
        "x = torch.ones(2)\nprint(frees_a_tensor_cached(3))",
        "x = torch.ones(2)\nprint(x, type('Odd', (Exception,), {}).__module__)",
        "x = torch.ones(2)\nwith Mode():\n    y = x + 1",
        "torch.use_deterministic_algorithms(True)\nprint(getattr(torch._inductor.config, 'deterministic', None))",
        "x = torch.ones(2)\nif len(x) > 2:\n    torch.set_default_device('cpu')",
        "with torch.autograd.set_detect_anomaly(True):\n    y = torch.ones(2) * 2\nprint(y.sum())",
    ],
)
def test_code_cannot_notice_the_magic(shell: Shell, cell: str) -> None:
    plain_run, explained_run = run_without_and_with_magic(shell, cell)
    assert plain_run.error_in_exec is explained_run.error_in_exec is None
    assert explained_run.stdout == plain_run.stdout


def test_an_error_under_no_grad_leaves_gradients_enabled(shell: Shell) -> None:
    _, explained_run = run_without_and_with_magic(
        shell, "x = torch.ones(2)\nwith torch.no_grad():\n    y = x - x[torch.tensor([7])]"
    )
    assert was_compiled_as_one_function(shell)
    assert isinstance(explained_run.error_in_exec, IndexError)
    assert torch.is_grad_enabled()


FUNCTION = """@torch.compile(backend="eager", dynamic=False)
def step(x):
    y = x + 1
    torch._dynamo.graph_break()
    print("in step")
    return y * 2
step(torch.ones(2))"""
MODULE = """class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Softmax(-1))
    def forward(self, x):
        y = self.inner(x)
        if y.sum() > 0:
            y = y + 1
        return self.inner(y)
step = torch.compile(Net(), backend="eager", dynamic=False)
step(torch.ones(2))"""
LIBRARY = """library = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Softmax(-1))
step = torch.compile(library, backend="eager", dynamic=False)
step(torch.ones(2))"""
SCOPED_FUNCTION = """@torch.compile(backend="eager", dynamic=False)
@torch._dynamo.error_on_graph_break(False)
def step(x):
    if x.sum() > 0:
        x = x + 1
    return x * 2
step(torch.ones(2))"""
HELPER = """def helper(x):
    if x.sum() > 0:
        print("large")
    return x + 1
x = helper(torch.ones(2))
y = x + 1"""
LATER_CALLS = """for size in range(3, 14):
    step(torch.ones(size))"""


@pytest.mark.parametrize(
    ("cell", "later_cell"),
    [
        pytest.param(FUNCTION, LATER_CALLS, id="function", marks=pytest.mark.exhaustive),
        pytest.param(MODULE, LATER_CALLS, id="module", marks=pytest.mark.exhaustive),
        pytest.param(LIBRARY, LATER_CALLS, id="library"),
        pytest.param(SCOPED_FUNCTION, LATER_CALLS, id="scoped", marks=pytest.mark.exhaustive),
        pytest.param(
            HELPER,
            f"step = torch.compile(helper, backend='eager', dynamic=False)\n{LATER_CALLS}",
            id="helper",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_trials_do_not_count_as_recompilations(shell: Shell, cell: str, later_cell: str) -> None:
    sizes = []
    for options in ("", "--try --check --cost"):
        torch._dynamo.reset()
        shell.run(f"%%compile_explain {options}\n{cell}")
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
            later_run = shell.run(later_cell)
        assert "recompile_limit" in str(later_run.error_in_exec)
        sizes.append(shell.ip.user_ns["size"])
    assert sizes == sizes[:1] * 2


UNCOOPERATIVE_OBJECTS = """import torch
ACCESSES = []
class Missing:
    def __getattr__(self, name):
        ACCESSES.append(name)
        raise ImportError("an optional package is missing")
class Slotted(Missing):
    __slots__ = ()
class Strict:
    def __getattribute__(self, name):
        if name not in {"__class__", "__dict__"}:
            ACCESSES.append(name)
            raise RuntimeError(name)
        return object.__getattribute__(self, name)
class Kind(type):
    def __getattr__(cls, name):
        ACCESSES.append(name)
        raise RuntimeError(name)
class Made(metaclass=Kind):
    pass
missing, slotted, strict, use_package = Missing(), Slotted(), Strict(), False"""
CELL_WITH_UNCOOPERATIVE_OBJECTS = """@torch.compile(backend="eager")
def step(x):
    if use_package:
        return missing.array(x) + slotted.array(x) + strict.array(x) + Made.array(x)
    if x.sum() > 3:
        return x / 2
    return x + 1
step(torch.ones(3)), step(torch.ones(9))"""


@pytest.mark.parametrize("options", ["", pytest.param("--try", marks=pytest.mark.exhaustive)])
def test_attributes_of_uncooperative_objects_are_not_read(shell: Shell, options: str) -> None:
    shell.run(UNCOOPERATIVE_OBJECTS)
    _, explained_run = run_without_and_with_magic(shell, CELL_WITH_UNCOOPERATIVE_OBJECTS, options)
    assert explained_run.error_in_exec is None
    assert shell.ip.user_ns["ACCESSES"] == []
    assert shell.report.diagnostics == []
    assert any(remedy.verdict in WORKING for remedy in shell.report.remedies or ()) == bool(options)
