"""Determine the Dynamo settings with which the frames of a run were compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.report.schema import Diagnostic

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.ledger import Ledger
    from jupyter_graphbreak.recording.additions import SettingsInForce

#: Stands for a value that is not recorded because it is the default.
_DEFAULT = object()


def settings_of_run(ledger: Ledger) -> tuple[dict[str, Any], list[Diagnostic]]:
    """Return the settings in force while frames were compiled, and a note for each that changed between two frames.

    For a setting that changed, the returned value is one that is not the default; the note has all values. If there is
    no record of the settings of any frame, the settings at the end of the run are returned.
    """
    if not ledger.settings:
        return ledger.run.config, []
    values: dict[str, Any] = {}
    for _, settings in ledger.settings:
        values.update(
            (name, value)
            for name, value in settings.values.items()
            if name not in values or name not in settings.defaults
        )
    notes = [note for name in values if (note := _change(name, ledger.settings)) is not None]
    return values, notes


def _change(name: str, recorded: list[tuple[str, SettingsInForce]]) -> Diagnostic | None:
    steps: list[tuple[str, Any]] = []
    for frame, settings in recorded:
        value = settings.values.get(name, _DEFAULT)
        if not steps or steps[-1][1] != value:
            steps.append((frame, value))
    if len(steps) == 1:
        return None
    (first, value), *later = steps
    words = [f"{_word(value)} for frame {first}", *(f"{_word(value)} from frame {frame} on" for frame, value in later)]
    return Diagnostic("info", f"The setting {name} changed during the run: {', '.join(words)}.")


def _word(value: Any) -> str:
    return "its default" if value is _DEFAULT else repr(value)
