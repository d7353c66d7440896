"""Side effects of a function happen once when its cell runs, with any option of the magic."""

from __future__ import annotations

import difflib
import mimetypes
import os
import signal
import socket
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from jupyter_graphbreak.report.schema import Effect

BRANCH = "    if y.sum() > 0:\n        y = y + 1\n"
WHERE_LINE = "    y = torch.where(y.sum() > 0, y + 1, y)\n"
STEP = """import logging, os, pathlib, random, signal, torch
def step(x):
    STATEMENT
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    return y
"""
LINE = 3
BRANCH_LINE = 5
#: For each effect: its kind, a statement that causes it, and a function that returns how often it happened.
EFFECTS: dict[str, tuple[str, str, Callable[[dict[str, Any]], int]]] = {
    "file": ("file", "with open('rows.txt', 'a') as out: out.write('row\\n')", lambda _: count_lines("rows.txt")),
    "environment": ("state", "os.environ['ROWS'] += '1'", lambda _: len(os.environ["ROWS"])),
    "command": ("process", "os.system('echo row >> rows.txt')", lambda _: count_lines("rows.txt")),
    "database": (
        "database",
        "rows.execute('insert into rows values (1)')",
        lambda names: names["rows"].execute("select count(*) from rows").fetchone()[0],
    ),
    "signal handler": (
        "state",
        "signal.signal(signal.SIGUSR2, signal.SIG_IGN)",
        lambda _: signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN,
    ),
    "file type": (
        "state",
        "import mimetypes; mimetypes.add_type('x/y', '.rows')",
        lambda _: mimetypes.guess_type("a.rows")[0] == "x/y",
    ),
    "socket": ("network", "sender.send(b'1')", lambda names: len(names["receiver"].recv(100))),
}
#: Statements without an effect outside the objects of the notebook.
PURE_STATEMENTS = {
    "reads a file": "y = y * length('in.txt')",
    "caches": "y = y * cached(2)",
    "imports late": "import colorsys; y = y * colorsys.rgb_to_hsv(1.0, 1.0, 1.0)[2]",
    "logs": "logging.getLogger('own').info('row')",
    "draws random numbers": "y = y + torch.rand(3) * random.random()",
    "keeps a list": "kept.append(1)",
}
HELPERS = """import functools
@functools.lru_cache
def cached(n):
    return n
def length(name):
    with open(name) as text:
        return len(text.read())
"""
COMPILED_CALL = "result = torch.compile(step, backend='eager')(torch.ones(3))"
WAYS = ["--try", "--cost", "--check", "--frontends", "--frontends on a line", "--patch", "an edited cell"]


def count_lines(name: str) -> int:
    return len(Path(name).read_text().splitlines()) if Path(name).exists() else 0


class Notebook:
    """A shell that can receive requests from a front end."""

    def __init__(self) -> None:
        InteractiveShell.clear_instance()
        self.ip: Any = InteractiveShell.instance()
        self.ip.run_line_magic("load_ext", "jupyter_graphbreak")
        self.error = ""

    def run(self, text: str, **options: Any) -> None:
        request = {"metadata": {"graphbreak": options} if options else {}, "content": {"code": text}}
        self.ip.get_parent = lambda: request
        with capture_output(display=False) as captured_output:
            self.ip.run_cell(text, store_history=True).raise_error()
        self.error = captured_output.stderr

    def explain_step(self, way: str, text: str) -> Any:
        """Define a step, call it once in a cell, request an answer in one of ``WAYS``, and return the answer."""
        self.run(text)
        new_text = text.replace(BRANCH, WHERE_LINE)
        match way:
            case "an edited cell":
                self.run(COMPILED_CALL, explain="--try -o answer", edited=((text, new_text),))
            case "--patch":
                name = f"Cell In[{self.ip.execution_count - 1}]"
                lines = text.splitlines(), new_text.splitlines()
                patch = difflib.unified_diff(*lines, f"a/{name}", f"b/{name}", lineterm="")
                Path("own.patch").write_text("\n".join(patch) + "\n")
                self.run(f"%%compile_explain --patch own.patch -o answer\n{COMPILED_CALL}")
            case "--frontends":
                self.run("%%compile_explain --frontends -o answer\nresult = step(torch.ones(3))")
            case "--frontends on a line":
                self.run("%compile_explain --frontends -o answer step(torch.ones(3))")
            case _:
                self.run(f"%%compile_explain {way} -o answer\n{COMPILED_CALL}")
        return self.ip.user_ns["answer"]


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    torch._dynamo.reset()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROWS", "")
    # With less time, a busy machine cannot try every input, and a claim is limited to what ran.
    monkeypatch.setattr("jupyter_graphbreak.experiments.remedies.finding.PATIENCE_S", 120.0)
    Path("in.txt").write_text("12")
    notebook = Notebook()
    handler = signal.getsignal(signal.SIGUSR2)
    rows = sqlite3.connect("rows.db", check_same_thread=False)
    rows.execute("create table rows (n)")
    sender, receiver = socket.socketpair()
    notebook.ip.user_ns.update(rows=rows, sender=sender, receiver=receiver, kept=[])
    yield notebook
    signal.signal(signal.SIGUSR2, handler)
    mimetypes.init()  # without the types that cells added
    for resource in (rows, sender, receiver):
        resource.close()
    notebook.ip.run_line_magic("unload_ext", "jupyter_graphbreak")
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "effect",
    [
        pytest.param(name, marks=[] if name in {"file", "signal handler"} else pytest.mark.exhaustive)
        for name in EFFECTS
    ],
)
def test_an_effect_happens_once(notebook: Notebook, effect: str, way: str) -> None:
    kind, statement, count = EFFECTS[effect]
    result = notebook.explain_step(way, STEP.replace("STATEMENT", statement))
    assert count(notebook.ip.user_ns) == 1
    assert [kind_and_line(effect) for effect in result.effects] == [(kind, LINE)]
    if way in {"--patch", "an edited cell"}:
        assert "was not tried: running the function again" in result.to_text().replace("\n", " ")
    assert not getattr(result, "verdicts", None)
    assert all(remedy.verdict == "not tried" for remedy in getattr(result, "remedies", None) or [])


def test_a_trial_is_stopped_before_it_uses_the_shell(notebook: Notebook) -> None:
    attributes_before = dict(vars(InteractiveShell))
    notebook.run("counted = []")
    result = notebook.explain_step("--check", STEP.replace("STATEMENT", "get_ipython().user_ns['counted'].append(1)"))
    assert notebook.ip.user_ns["counted"] == [1]
    assert [kind_and_line(effect) for effect in result.effects] == [("state", LINE)]
    assert dict(vars(InteractiveShell)) == attributes_before


def kind_and_line(effect: Effect) -> tuple[str, int | None]:
    return effect.kind, effect.location.line if effect.location is not None else None


def pure_cases() -> Iterator[Any]:
    """Yield each pure statement with each way; ``make test`` runs one statement with each way except the slowest."""
    ways = ["an edited cell", "--patch", "--try", "--frontends"]
    for number, name in enumerate(PURE_STATEMENTS):
        for index, way in enumerate(ways):
            yield pytest.param(name, way, marks=[] if index == number > 0 else [pytest.mark.exhaustive])


@pytest.mark.parametrize(("name", "way"), list(pure_cases()))
def test_a_function_without_side_effects_has_remedies(notebook: Notebook, name: str, way: str) -> None:
    notebook.run(HELPERS)
    result = notebook.explain_step(
        way, STEP.replace("STATEMENT\n    y = x * 2", f"y = x * 2\n    {PURE_STATEMENTS[name]}")
    )
    names = notebook.ip.user_ns
    assert result.effects is None
    assert names["kept"] == [1] * (name == "keeps a list")
    if way == "--frontends":
        assert result["torch.compile"].raised is None
        assert len(result.verdicts) > 1
        return
    (branch,) = [item.id for item in result.breaks if item.location.line == BRANCH_LINE]
    family = "own" if way == "--patch" else "branch"  # with --patch, only the patch is tried
    remedies = [item for item in result.remedies if item.family == family and branch in item.breaks]
    assert ("works", None) in {(remedy.verdict, remedy.reason) for remedy in remedies}
    if way != "--try":
        own_verdicts = [(remedy.verdict, remedy.reason) for remedy in result.remedies if remedy.family == "own"]
        assert own_verdicts == [("works", None)]


@pytest.mark.parametrize("way", ["--try", "--cost", "--check", "--frontends"])
def test_trials_leave_no_name_in_the_notebook(notebook: Notebook, way: str) -> None:
    notebook.run("""import torch
class Net(torch.nn.Module):
    def forward(self, x):
        with torch.no_grad():
            if x.sum() > 0:
                x = x + 1
        return x * 2
step = Net()""")
    names_before = set(notebook.ip.user_ns)
    failing_call = """try:
    torch.compile(step, backend='eager', fullgraph=True)(torch.ones(3))
except Exception:
    pass"""
    call = "result = step(torch.ones(3))" if way == "--frontends" else failing_call
    notebook.run(f"%%compile_explain {way} -o answer\n{call}")
    new_names = set(notebook.ip.user_ns) - names_before - {"result", "answer", "_"}
    kept_by_dynamo = {
        name for name in new_names if name.startswith("__builtins_dict__")
    }  # for code that the user compiled
    assert len(kept_by_dynamo) <= 1
    assert {name for name in new_names - kept_by_dynamo if not name.startswith("_i")} == set()


def test_an_edit_that_adds_an_effect_is_stopped_before_it_happens(notebook: Notebook) -> None:
    text = STEP.replace("STATEMENT", "pass")
    notebook.run(text)
    new_text = text.replace("pass", "with open('rows.txt', 'a') as out: out.write('row')").replace(BRANCH, WHERE_LINE)
    notebook.run(COMPILED_CALL, explain="--try -o answer", edited=((text, new_text),))
    (own_remedy,) = [remedy for remedy in notebook.ip.user_ns["answer"].remedies if remedy.family == "own"]
    assert own_remedy.verdict == "not tried"
    assert "rows.txt" in own_remedy.reason
    assert not Path("rows.txt").exists()


@pytest.mark.parametrize(
    ("argument", "is_compared"),
    [
        ("torch.rand(3)", True),
        ("(z := torch.ones(3))", True),
        ("next(numbers)", False),
        ("made()", False),
    ],
)
def test_arguments_are_evaluated_again_on_copies(notebook: Notebook, argument: str, is_compared: bool) -> None:
    notebook.run(f"""{STEP.replace("STATEMENT", "pass")}
numbers = (torch.ones(3) * n for n in range(9))
z = 0
def made():
    with open('rows.txt', 'a') as out: out.write('row\\n')
    return torch.ones(3)
torch.manual_seed(0)""")
    notebook.run(f"%%compile_explain --frontends -o answer\nresult = step({argument})\nafter = z")
    names = notebook.ip.user_ns
    assert bool(getattr(names["answer"], "verdicts", None)) == is_compared
    assert names["z"] is names["after"]
    if argument == "torch.rand(3)":
        expected = torch.Generator().manual_seed(0)
        torch.rand(3, generator=expected)
        assert torch.equal(torch.get_rng_state(), expected.get_state())
    if not is_compared:
        assert "were not evaluated again, because that" in notebook.error
    assert count_lines("rows.txt") == (argument == "made()")
    assert next(names["numbers"])[0] == (1 if argument == "next(numbers)" else 0)
