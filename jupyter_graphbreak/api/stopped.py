"""Report on a call that was stopped before it had an effect outside its copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from jupyter_graphbreak.experiments.trial.entry import Entry
    from jupyter_graphbreak.experiments.trial.side_effects import ObservedEffect
    from jupyter_graphbreak.records.source_texts import FindCell
    from jupyter_graphbreak.report.schema import Report


def report_until_stopped(
    entry: Entry, effect: ObservedEffect, find_cell: FindCell = lambda _: None
) -> tuple[Report, dict[str, str]]:
    """Return the report of the compilations before a call was stopped, and its file names by source id.

    The call runs again on copies, and is stopped again.

    Parameters
    ----------
    entry : Entry
    effect : ObservedEffect
        The effect that the call was about to have; the report lists it.
    find_cell : callable
        Returns the cell that a code object comes from, given its file name.
    """
    import torch

    from jupyter_graphbreak._torch_compat.default_device import default_device_name
    from jupyter_graphbreak.analysis.build import build_with_files
    from jupyter_graphbreak.experiments.trial.effect_places import with_effects
    from jupyter_graphbreak.experiments.trial.entry import recompiling
    from jupyter_graphbreak.experiments.trial.outcome import run, sandboxed
    from jupyter_graphbreak.experiments.trial.side_effects import TrialStoppedError
    from jupyter_graphbreak.experiments.trial.subject import Subject
    from jupyter_graphbreak.recording import recorder
    from jupyter_graphbreak.report.schema import Device

    with sandboxed(), recorder.record(find_cell) as recording:
        recording.describe_device(Device("auto", default_device_name()))
        subject = Subject(entry.call, entry.arguments)
        try:
            with recompiling(subject.call):
                run(torch.compile(subject.call, backend="eager"), subject, subject.arguments or entry.arguments)
        except TrialStoppedError:
            pass  # at the same effect
        except Exception as error:  # noqa: BLE001 - the effect is still worth reporting
            recording.note("warning", f"The report lacks what was compiled before the call was stopped ({error}).")
    report, files = build_with_files(recording.records)
    reported = with_effects(report, files, [effect], find_cell)
    return replace(reported, status="ok", error=None), files
