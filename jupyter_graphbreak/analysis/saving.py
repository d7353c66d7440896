"""Describe the saved states of compiled modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.records.additions import ORIG_MOD
from jupyter_graphbreak.report.schema import Diagnostic

if TYPE_CHECKING:
    from jupyter_graphbreak.analysis.ledger import Ledger
    from jupyter_graphbreak.analysis.locations import Sources

_ADVICE_FOR_MODULE = "save `compiled._orig_mod.state_dict()`, or compile the model in place with `model.compile()`"
_ADVICE_FOR_PARTS = "compile each part in place with `part.compile()`"
#: How to repair files that are already saved.
REPAIR_ADVICE = (
    "A file that is already saved can be repaired with `graphbreak checkpoint FILE -o NEW`, or with "
    "`jupyter_graphbreak.repair_checkpoint(file, new)`."
)


def saved_prefixes(ledger: Ledger, sources: Sources) -> list[Diagnostic]:
    """Return a note for each place that saves a compiled module, or names that only a compiled module can load."""
    notes: list[Diagnostic] = []
    for saved in ledger.compiled_saved:
        place = sources.place(saved.site) if saved.site is not None else None
        subject = f"{sources.name_of(place.source)} line {place.line}" if place is not None else "The program"
        if saved.is_module:
            sentence = (
                f"{subject} pickles a compiled module (`{ORIG_MOD}`), with objects of PyTorch and its backend that a "
                f"later PyTorch may not load: {_ADVICE_FOR_MODULE}."
            )
        else:
            sentence = (
                f"{subject} saves names of parameters that contain `{ORIG_MOD}`, so that the model itself cannot load "
                f"them: {_ADVICE_FOR_PARTS if saved.is_part else _ADVICE_FOR_MODULE}. {REPAIR_ADVICE}"
            )
        notes.append(Diagnostic("info", sentence))
    return notes
