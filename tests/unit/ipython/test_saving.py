"""Notes on cells that save a state dict whose keys contain ``_orig_mod.``, as ``torch.compile`` makes them."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jupyter_graphbreak.ipython.cell.mentions import notes_on_saving

MODEL = torch.nn.Linear(2, 2)
WRAPPED_MODEL: Any = torch.compile(MODEL, backend="eager")
COMPILED_MODEL = torch.nn.Linear(2, 2)
COMPILED_MODEL.compile(backend="eager")


class UnreadableObject:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError("an attribute was read")


NAMES: dict[str, Any] = {
    "model": MODEL, "wrapped": WRAPPED_MODEL, "compiled": COMPILED_MODEL, "torch": torch, "opaque": UnreadableObject(),
    "run": SimpleNamespace(model=WRAPPED_MODEL, plain=MODEL),
    "outer": torch.nn.Sequential(torch.nn.Sequential(WRAPPED_MODEL)),
    "state": WRAPPED_MODEL.state_dict(), "nested": {"net": WRAPPED_MODEL.state_dict()},
    "good": MODEL.state_dict(), "numbers": {1: 2},
}  # fmt: skip


def expressions_with_notes(code: str) -> list[str]:
    return [expression for expression, _ in notes_on_saving(ast.parse(code), NAMES)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("torch.save(wrapped.state_dict(), 'f')", ["wrapped.state_dict()"]),
        ("save_file(tensors=run.model.state_dict(), filename='f')", ["run.model.state_dict()"]),
        ("torch.save({'net': wrapped.state_dict(), 'step': 3}, 'f')", ["wrapped.state_dict()"]),
        ("torch.save(state, 'f')", ["state"]),
        ("pickle.dump(nested, file)", ["nested"]),
        ("torch.save(outer.state_dict(), 'f')", ["outer.state_dict()"]),
        ("torch.save(model.state_dict(), 'f')", []),
        ("torch.save(wrapped._orig_mod.state_dict(), 'f')", []),
        ("torch.save(compiled.state_dict(), 'f')", []),
        ("torch.save(run.plain.state_dict(), 'f')", []),
        ("torch.save(wrapped, 'f')", []),
        ("torch.save(good, 'f'); torch.save(numbers, 'f'); torch.save(opaque.state_dict(), 'f')", []),
        ("model.load_state_dict(wrapped.state_dict())", []),
        ("wrapped = torch.compile(model); compiled = 1; opaque.x.y = 2", []),
    ],
)
def test_only_saving_keys_with_orig_mod_causes_a_note(code: str, expected: list[str]) -> None:
    assert expressions_with_notes(code) == expected


def test_a_note_names_the_line_and_the_code_to_write_instead() -> None:
    ((_, note),) = notes_on_saving(ast.parse("x = 1\ntorch.save(wrapped.state_dict(), 'f')"), NAMES)
    assert note.startswith("Line 2 saves `wrapped.state_dict()`, in which parameter names contain `_orig_mod.`")
    assert "save `wrapped._orig_mod.state_dict()`" in note
    assert "`graphbreak checkpoint FILE -o NEW`, or with `jupyter_graphbreak.repair_checkpoint(file, new)`" in note
    ((_, nested_note),) = notes_on_saving(ast.parse("torch.save(outer.state_dict(), 'f')"), NAMES)
    assert "compile each part in place with `part.compile()`" in nested_note
