"""Write the notes about a run: settings that changed, repeated compiling, saved states of compiled modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.records.additions import ORIG_MOD
from jupyter_graphbreak.report.schema import Diagnostic

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.ledger import Ledger
    from jupyter_graphbreak.analysis.locations import Sources
    from jupyter_graphbreak.records.additions import SettingsInForce
    from jupyter_graphbreak.records.records import StackFrame

#: Represents a value that is not recorded because it is the default.
_DEFAULT_VALUE = object()


def settings_of_run(ledger: Ledger) -> tuple[dict[str, Any], list[Diagnostic]]:
    """Return the settings in force while frames were compiled, and a note for each that changed between two frames.

    For a setting that changed, the returned value is the last one other than the default; the note lists all values. If
    the settings of no frame were recorded, the settings at the end of the run are returned.
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
    notes = [note for name in values if (note := _note_on_change(name, ledger.settings)) is not None]
    return values, notes


def _note_on_change(name: str, recorded_settings: list[tuple[str, SettingsInForce]]) -> Diagnostic | None:
    changes: list[tuple[str, Any]] = []
    for frame, settings in recorded_settings:
        value = settings.values.get(name, _DEFAULT_VALUE)
        if not changes or changes[-1][1] != value:
            changes.append((frame, value))
    if len(changes) == 1:
        return None
    (first_frame, value), *later_changes = changes
    phrases = [
        f"{_value_in_words(value)} for frame {first_frame}",
        *(f"{_value_in_words(value)} from frame {frame} on" for frame, value in later_changes),
    ]
    return Diagnostic("info", f"The setting {name} changed during the run: {', '.join(phrases)}.")


def _value_in_words(value: Any) -> str:
    return "its default" if value is _DEFAULT_VALUE else repr(value)


_EFFECT_FOR_FUNCTION = "only the options of the outer call count"
_EFFECT_FOR_MODULE = (
    "the result is a plain function around its forward, without state_dict, parameters or hooks, and only the options "
    "of the outer call count"
)
_EFFECT_FOR_OPTIMIZED = "only the options of the inner call count"


def repeated_compiling_notes(ledger: Ledger, sources: Sources) -> list[Diagnostic]:
    """Return a warning for each line that compiles something already compiled."""
    sentences = []
    for call in ledger.repeated_compilations:
        target = f"the compiled module {call.name}" if call.is_module else f"{call.name}, which is compiled already"
        line = _line_in_words(call.site, sources)
        suffix = f" ({line})" if line else ""
        effect = _EFFECT_FOR_MODULE if call.is_module else _EFFECT_FOR_FUNCTION
        effect = _EFFECT_FOR_OPTIMIZED if call.stays_module else effect
        sentences.append(f"torch.compile was applied to {target}{suffix}: {effect}. Compile it once.")
    return [Diagnostic("warning", sentence) for sentence in dict.fromkeys(sentences)]


def _line_in_words(site: StackFrame | None, sources: Sources) -> str:
    """Return the source and the line of a call in words; empty if they are unknown."""
    location = sources.stack_frame_location(site) if site is not None else None
    return f"{sources.name_by_id(location.source)} line {location.line}" if location is not None else ""


_ADVICE_FOR_MODULE = "save `compiled._orig_mod.state_dict()`, or compile the model in place with `model.compile()`"
_ADVICE_FOR_PARTS = "compile each part in place with `part.compile()`"
#: The advice on files that are already saved.
REPAIR_ADVICE = (
    "A file that is already saved can be repaired with `graphbreak checkpoint FILE -o NEW`, or with "
    "`jupyter_graphbreak.repair_checkpoint(file, new)`."
)


def saved_prefix_notes(ledger: Ledger, sources: Sources) -> list[Diagnostic]:
    """Return a note for each line that saves a compiled module, or parameters that only a compiled module can load."""
    notes: list[Diagnostic] = []
    for save in ledger.saves_of_compiled:
        subject = _line_in_words(save.site, sources) or "The program"
        if save.is_module:
            sentence = (
                f"{subject} pickles a compiled module (`{ORIG_MOD}`), with objects from PyTorch and its backend that a "
                f"later PyTorch may not load: {_ADVICE_FOR_MODULE}."
            )
        else:
            sentence = (
                f"{subject} saves parameter names that contain `{ORIG_MOD}`, so the model itself cannot load "
                f"them: {_ADVICE_FOR_PARTS if save.is_part else _ADVICE_FOR_MODULE}. {REPAIR_ADVICE}"
            )
        notes.append(Diagnostic("info", sentence))
    return notes
