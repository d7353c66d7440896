"""The user's own patches get verdicts like every other change, or are refused."""

from __future__ import annotations

import difflib
import importlib.util
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.report.remedies import Remedy

pytestmark = pytest.mark.usefixtures("few_unusual_inputs")

MODULE = """import torch

SCALE = 2


class Scaler:
    offset = 1

    def apply(self, x, factor=SCALE):
        if x.sum() > 0:
            return x * factor
        return x - self.offset


def step(x):
    y = Scaler().apply(x)
    return y + 1
"""
BRANCH = """        if x.sum() > 0:
            return x * factor
        return x - self.offset
"""
WHERE_LINE = "        return torch.where(x.sum() > 0, x * factor, x - self.offset)\n"
_NAMES = itertools.count()

TryPatch = Callable[..., Remedy]


def make_patch(old: str, new: str, path: str) -> str:
    return "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), f"a/{path}", f"b/{path}"))


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def try_patches(
    folder: Path, changes: Sequence[Sequence[tuple[str, str]]], *, text: str = MODULE, other_patch: str = ""
) -> list[Remedy]:
    """Try the patch of each change, which is a list of old and new texts, in one search."""
    file = folder / "pkg" / f"own_{next(_NAMES)}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    patches = []
    for number, pairs in enumerate(changes):
        new = text
        for old, replacement in pairs:
            assert old in new
            new = new.replace(old, replacement)
        patches.append(folder / f"own{number}.patch")
        patches[-1].write_text(make_patch(text, new, f"pkg/{file.name}") + other_patch)
    report = jupyter_graphbreak.try_remedies(load(file).step, torch.ones(3), also=patches, seconds=0.0)
    assert file.read_text() == text
    remedies = {remedy.title: remedy for remedy in report.remedies or [] if remedy.family == "own"}
    return [remedies.pop(f"Your patch, {patch.name}") for patch in patches]


@pytest.fixture
def try_patch(tmp_path: Path) -> TryPatch:
    def try_patch(*pairs: tuple[str, str], other_patch: str = "", text: str = MODULE) -> Remedy:
        (remedy,) = try_patches(tmp_path, [pairs], other_patch=other_patch, text=text)
        return remedy

    return try_patch


def test_a_correct_patch_works(try_patch: TryPatch) -> None:
    remedy = try_patch((BRANCH, WHERE_LINE))
    assert remedy.verdict == "works"
    assert "b1" in remedy.breaks
    assert remedy.evidence is not None
    assert remedy.evidence.both_sides is True
    assert [edit.new for edit in remedy.edits] == [WHERE_LINE.rstrip("\n")]


def test_a_wrong_patch_has_a_different_result(tmp_path: Path) -> None:
    replacements = [
        "        return x * factor\n",  # right for the recorded input only
        WHERE_LINE.replace("> 0", "> -1000"),
        WHERE_LINE.replace("x - self", "x + self"),
        WHERE_LINE.replace("return", "x.add_(0.5)\n        return"),
    ]
    remedies = try_patches(tmp_path, [[(BRANCH, replacement)] for replacement in replacements])
    assert [remedy.verdict for remedy in remedies] == ["another result"] * len(replacements)


@pytest.mark.exhaustive
def test_a_patch_may_add_a_function(try_patch: TryPatch) -> None:
    helper = "def choose(x, one, other):\n    return torch.where(x.sum() > 0, one, other)\n\n\n"
    new = "        return choose(x, x * factor, x - self.offset)\n"
    assert try_patch((BRANCH, new), ("def step", f"{helper}def step")).verdict == "works"


def test_changes_of_module_level_code_are_not_tried(tmp_path: Path) -> None:
    """The existing functions do not have such a change, so a verdict on them would be about a different program."""
    changes = [
        ("SCALE = 2", "SCALE = 3", 3),
        ("offset = 1", "offset = 2", 7),
        ("factor=SCALE", "factor=3", 9),
        ("import torch\n", "import torch\nimport math\n", 2),
        ("    def apply", "    def more(self):\n        return 1\n\n    def apply", 9),
        ("class Scaler:", "class Scaler(torch.nn.Module):", 6),
        ("\n\n\ndef step", "\n\nprint('loaded')\n\n\ndef step", 12),
    ]
    remedies = try_patches(tmp_path, [[(BRANCH, WHERE_LINE), (old, new)] for old, new, _ in changes])
    for remedy, (_, new, line) in zip(remedies, changes, strict=True):
        assert remedy.verdict == "not tried", new
        assert remedy.reason is not None
        assert remedy.reason.startswith(f"line {line} "), new


def test_a_removed_function_is_not_tried(try_patch: TryPatch) -> None:
    text = MODULE + "\n\ndef unused(x):\n    return x\n"
    remedy = try_patch((BRANCH, WHERE_LINE), ("\n\ndef unused(x):\n    return x\n", ""), text=text)
    assert remedy.verdict == "not tried"


def test_changes_of_compile_calls_are_not_tried(tmp_path: Path) -> None:
    old = '@torch.compile(backend="eager")\ndef step'
    new = old.replace('"eager"', '"eager", dynamic=True')
    helper = '@torch.compile(backend="eager")\ndef helper(x):\n    return x\n\n\n'
    changes = [[(BRANCH, WHERE_LINE), (old, f"{addition}{new}")] for addition in ("", helper)]
    for remedy in try_patches(tmp_path, changes, text=MODULE.replace("def step", old)):
        assert remedy.verdict == "not tried"
        assert remedy.reason == "it changes how a function is compiled: run the cell to see the effect"


@pytest.mark.exhaustive
def test_a_patch_that_compiles_an_inner_function_instead_works(try_patch: TryPatch) -> None:
    text = """import torch


@torch.compile(backend="eager")
def step(x):
    y = x * 2
    print("mean", float(x.mean()))
    return y + 1
"""
    new = """import torch


@torch.compile(backend="eager")
def compute(x):
    y = x * 2
    return y + 1, x.mean()


def step(x):
    y, mean = compute(x)
    print("mean", float(mean))
    return y
"""
    remedy = try_patch((text, new), text=text)
    assert remedy.verdict == "works"
    assert "b1" in remedy.breaks


@pytest.mark.exhaustive
def test_an_edit_in_a_branch_that_never_runs_is_not_fully_verified(try_patch: TryPatch) -> None:
    text = """import torch


def step(x):
    y = x * 2
    if x.shape[0] > 100_000:  # more than any size that a trial derives
        torch._dynamo.graph_break()
        y = y * 3
    torch._dynamo.graph_break()
    return y + 1
"""
    remedy = try_patch(
        ("        torch._dynamo.graph_break()\n        y = y * 3", "        y = y * 4"),
        ("    torch._dynamo.graph_break()\n    return", "    return"),
        text=text,
    )
    assert remedy.verdict == "works on what ran"


@pytest.mark.parametrize(("threshold", "verdict"), [(2, "another result"), (100_000, "works")])
def test_a_difference_that_shows_only_in_the_third_call_is_found(
    try_patch: TryPatch, threshold: int, verdict: str
) -> None:
    text = """import torch

seen = []


def step(x):
    seen.append(x.shape[0])
    torch._dynamo.graph_break()
    return x * len(seen)
"""
    remedy = try_patch(
        ("    seen.append(x.shape[0])\n", f"    if len(seen) < {threshold}:\n        seen.append(x.shape[0])\n"),
        ("    torch._dynamo.graph_break()\n", ""),
        text=text,
    )
    assert remedy.verdict == verdict


@pytest.mark.parametrize(
    ("new", "expected"),
    [("return x - missing(", "not valid Python: '(' was never closed, line 17"), ("return missing", "NameError")],
)
def test_a_failure_has_a_reason(try_patch: TryPatch, new: str, expected: str) -> None:
    remedy = try_patch(("return y + 1", new))
    assert remedy.verdict == "fails"
    assert expected in (remedy.reason or "")


@pytest.mark.exhaustive
def test_a_patch_may_also_change_files_that_are_not_python(try_patch: TryPatch) -> None:
    """A change of other Python code could change the result as well. A change of other files cannot."""
    other = make_patch("x = 1\n", "x = 2\n", "pkg/other.py")
    remedy = try_patch((BRANCH, WHERE_LINE), other_patch=other)
    assert remedy.verdict == "not tried"
    assert remedy.reason == "it also changes pkg/other.py, and nothing in that file was compiled"
    assert try_patch((BRANCH, WHERE_LINE), other_patch=make_patch("old\n", "new\n", "README.md")).verdict == "works"


def test_a_patch_for_a_different_source_text_is_not_tried(tmp_path: Path) -> None:
    file = tmp_path / "drifted.py"
    file.write_text(MODULE)
    patch = tmp_path / "own.patch"
    patch.write_text(
        make_patch(MODULE.replace("x - self", "x - 2 * self"), MODULE.replace(BRANCH, WHERE_LINE), "drifted.py")
    )
    report = jupyter_graphbreak.try_remedies(load(file).step, torch.ones(3), also=[str(patch)], seconds=0.0)
    (remedy,) = [remedy for remedy in report.remedies or [] if remedy.family == "own"]
    assert remedy.verdict == "not tried"
    assert remedy.reason == "line 12 of drifted.py is not 'return x - 2 * self.offset'"


def test_an_invalid_patch_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "plain.py"
    file.write_text(MODULE)
    step = load(file).step
    patch = tmp_path / "own.patch"
    patch.write_text("fix it, please\n")
    with pytest.raises(ValueError, match=r"own\.patch is not a patch: a unified diff is needed"):
        jupyter_graphbreak.try_remedies(step, torch.ones(3), also=[patch])
    patch.write_text(make_patch("x = 1\n", "x = 2\n", "elsewhere.py"))
    with pytest.raises(ValueError, match=r"own\.patch was not tried: .* It changes elsewhere\.py\."):
        jupyter_graphbreak.try_remedies(step, torch.ones(3), also=[patch])
    with pytest.raises(FileNotFoundError):
        jupyter_graphbreak.try_remedies(step, torch.ones(3), also=[tmp_path / "none.patch"])


@pytest.mark.exhaustive
def test_a_patch_is_tried_on_the_recorded_entries_of_a_run(tmp_path: Path) -> None:
    torch.compiler.reset()
    file = tmp_path / "kept.py"
    file.write_text(MODULE)
    patch = tmp_path / "own.patch"
    patch.write_text(make_patch(MODULE, MODULE.replace(BRANCH, WHERE_LINE), "kept.py"))
    compiled: Any = torch.compile(load(file).step, backend="eager")
    with jupyter_graphbreak.capture(entries=True) as run:
        compiled(torch.ones(3))
    report = run.try_remedies(also=[patch])
    assert [remedy.verdict for remedy in report.remedies or [] if remedy.family == "own"] == ["works"]
    patch.write_text(make_patch("x = 1\n", "x = 2\n", "elsewhere.py"))
    report = run.try_remedies(also=[patch])
    assert [note.message.partition(":")[0] for note in report.diagnostics] == ["Your patch, own.patch was not tried"]
