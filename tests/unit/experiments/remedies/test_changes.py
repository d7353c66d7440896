"""A change can be written as edits, as a patch and as code; each of them produces the changed program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_graphbreak.experiments.families.proposal import Proposal
from jupyter_graphbreak.experiments.remedies import own_edits
from jupyter_graphbreak.experiments.remedies.application import CannotApplyError
from jupyter_graphbreak.experiments.remedies.change import (
    Change,
    apply_edits,
    code_of,
    edits_of,
    merge_changes,
    patch_of,
)
from jupyter_graphbreak.experiments.remedies.own_edits import require_exact_edits
from jupyter_graphbreak.experiments.remedies.search import (
    _only_extends_settings,
    _without_subsumed_settings,
)
from jupyter_graphbreak.report.remedies import Edit

FLAG = "torch._dynamo.config.capture_scalar_outputs"
SETTING = "torch._dynamo.config.reorderable_logging_functions"
#: Texts made of a few different lines, some of them empty, so many lines are equal.
TEXTS = st.lists(st.sampled_from(["a", "b", "", "  c", "\u2028é\x0c", "a\r"]), min_size=1, max_size=9).map("\n".join)


@given(TEXTS, TEXTS)
def test_the_edits_of_a_change_produce_the_changed_text(old: str, new: str) -> None:
    edits = edits_of({"s1": old}, Change({"s1": new}))
    assert apply_edits(old, edits) == new
    lines = old.split("\n")
    for edit in edits:
        assert "\n".join(lines[edit.first_line - 1 : edit.last_line]) == edit.old
        deleted_count = len(lines[edit.first_line - 1 : edit.last_line])
        assert deleted_count or edit.new, "an edit deletes or inserts lines"
    assert bool(edits) == (old != new)


@given(TEXTS, TEXTS)
def test_only_an_empty_new_text_deletes_lines(old: str, new: str) -> None:
    """JupyterLab also applies edits, and knows only the fields of the report."""
    lines = old.split("\n")
    for edit in reversed(edits_of({"s1": old}, Change({"s1": new}))):
        lines[edit.first_line - 1 : edit.last_line] = edit.new.split("\n") if edit.new else []
    assert "\n".join(lines) == new


def test_adjacent_edits_become_one() -> None:
    old = "x\nsame\nz"
    assert edits_of({"s1": old}, Change({"s1": "\nsame\n"})) == [Edit("s1", 1, 3, old, "\nsame\n")]


def test_an_edit_of_a_different_text_cannot_be_applied() -> None:
    edits = edits_of({"s1": "a\nb"}, Change({"s1": "a\nc"}))
    with pytest.raises(ValueError, match="lines 2 to 2"):
        apply_edits("a\nx", edits)


@given(TEXTS, TEXTS, TEXTS)
def test_changes_to_different_lines_are_merged(old: str, first: str, second: str) -> None:
    original = {"s1": old}
    first_change, second_change = Change({"s1": first}), Change({"s1": second})
    merged_change = merge_changes(original, first_change, second_change)
    if merged_change is None:
        return
    edits = {*edits_of(original, first_change), *edits_of(original, second_change)}
    ordered_edits = sorted(edits, key=lambda edit: (edit.first_line, edit.last_line))
    assert merged_change.texts["s1"] == apply_edits(old, ordered_edits)
    merged_in_reverse = merge_changes(original, second_change, first_change)
    assert merged_in_reverse is not None
    assert merged_in_reverse.texts == merged_change.texts


def test_changes_to_the_same_lines_are_not_merged() -> None:
    original = {"s1": "a\nb\nc"}
    first_change, second_change = Change({"s1": "a\nX\nc"}), Change({"s1": "a\nY\nc"})
    assert merge_changes(original, first_change, second_change) is None
    before = Change({"s1": "a\nnew\nb\nc"})
    after = Change({"s1": "a\nother\nb\nc"})
    assert merge_changes(original, before, after) is None, "the order of two insertions is unknown"


def test_settings_are_merged_unless_they_contradict_each_other() -> None:
    flag_on, flag_off = Change(settings={FLAG: True}), Change(settings={FLAG: False})
    assert merge_changes({}, flag_on, flag_off) is None
    both = merge_changes(
        {}, Change(settings={SETTING: ["builtins.print"]}), Change(settings={SETTING: ["warnings.warn"]})
    )
    assert both == Change(settings={SETTING: ["builtins.print", "warnings.warn"]})
    assert merge_changes({}, Change(compiles_inner_function=True), Change(compiles_inner_function=True)) is None


def test_a_change_is_extended_by_proposals() -> None:
    first = Proposal("f", "t", {"s1": "one"}, {SETTING: ["builtins.print"]}, "model.a = 1")
    second = Proposal("g", "u", {"s1": "two"}, {SETTING: ["warnings.warn"], FLAG: True}, "model.a = 1", (), True)
    change = Change().with_proposal(first).with_proposal(second)
    assert change.texts == {"s1": "two"}
    assert change.settings == {SETTING: ["builtins.print", "warnings.warn"], FLAG: True}
    assert change.switch_statements == ("model.a = 1",)
    assert change.compiles_inner_function
    assert change
    assert not Change()


def test_the_code_applies_the_settings() -> None:
    import torch._dynamo.config as config  # noqa: PLR0402 - the code imports it in this form

    change = Change(settings={FLAG: True, SETTING: ["builtins.print", "warnings.warn", "logging.Logger.info"]})
    code = code_of(change)
    assert code is not None
    with config.patch(capture_scalar_outputs=False, reorderable_logging_functions=set()):
        exec(code, {})
        import logging
        import warnings

        assert config.capture_scalar_outputs is True
        assert config.reorderable_logging_functions == {print, warnings.warn, logging.Logger.info}
    assert code_of(Change({"s1": "x"})) is None
    assert code_of(Change(switch_statements=("model.config.layerdrop = 0.0",))) == "model.config.layerdrop = 0.0"


@pytest.mark.parametrize(
    ("old", "new"),
    [("a\nb\nc", "a\nB\nc"), ("a\nb", "b"), ("a", "a\n\nb"), ("a\n\nb", "a\nb"), ("é\n\u2028\n", "é\nx\n")],
)
def test_git_applies_the_patch(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(old + "\n", encoding="utf-8", newline="\n")
    patch = patch_of({"s1": old}, Change({"s1": new}), {"s1": "module.py"})
    assert patch is not None
    assert patch.startswith("--- a/module.py\n+++ b/module.py\n")
    (tmp_path / "change.patch").write_text(patch, encoding="utf-8", newline="\n")
    subprocess.run(["git", "apply", "--whitespace=nowarn", "change.patch"], cwd=tmp_path, check=True)
    assert path.read_text(encoding="utf-8") == new + "\n"


def test_a_change_of_settings_has_no_patch() -> None:
    assert patch_of({"s1": "a"}, Change(settings={FLAG: True}), {"s1": "x.py"}) is None


def test_an_absolute_path_loses_its_root() -> None:
    path: Any = "/home/a/x.py" if sys.platform != "win32" else "x.py"
    patch = patch_of({"s1": "a"}, Change({"s1": "b"}), {"s1": path})
    assert patch is not None
    assert patch.splitlines()[0] == f"--- a/{path.lstrip('/')}"


def test_subsumed_settings_are_dropped() -> None:
    switch = Proposal("switch", "off", code="model.off = True")
    one_setting, both_settings = (
        Proposal("s", "one", settings={FLAG: True}),
        Proposal("s", "both", settings={FLAG: True, SETTING: ["f"]}),
    )
    assert _without_subsumed_settings([one_setting, switch, both_settings]) == [switch, both_settings]
    assert _without_subsumed_settings([one_setting, switch]) == [one_setting, switch]


def test_larger_combinations_of_working_settings_are_not_tried() -> None:
    both_settings = Proposal("s", "both", settings={FLAG: True, SETTING: ["f"]})
    assert _only_extends_settings(both_settings, Change(settings={FLAG: True}))
    assert not _only_extends_settings(both_settings, Change(settings={FLAG: False}))
    assert not _only_extends_settings(both_settings, Change({"s1": "x"}))
    assert not _only_extends_settings(
        Proposal("r", "edit", {"s1": "y"}, {FLAG: True, SETTING: []}), Change(settings={FLAG: True})
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a\nb\nc", "a\nB\nc"), ("a\nb", "a\nb\nc"), ("a\n\nb", "a\nb"), ("a\nb", "b"), ("a\n", "a\n\n"),
        ("a\r\nb", "a\r\nc"), ("a\n\n\nb", "a\n\nc\n\nb"),
    ],
)  # fmt: skip
def test_edits_and_patch_produce_the_change(old: str, new: str) -> None:
    require_exact_edits({"s1": old}, Change({"s1": new}))


def test_edits_that_produce_a_different_text_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_edits, "edits_of", lambda *_: [])
    with pytest.raises(CannotApplyError, match="do not produce the text that was tried"):
        require_exact_edits({"s1": "a"}, Change({"s1": "b"}))
