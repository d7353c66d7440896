"""Guard a trial: what it would do outside of its copies is stopped, and the state of the process is restored."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.hooks.stacks_and_codes import entry_of_frame
from jupyter_graphbreak._torch_compat.module_calls import compiled_callers
from jupyter_graphbreak.experiments.trial.process_state import ProcessState, line_of, own_context
from jupyter_graphbreak.experiments.trial.side_effects import (
    REFUSABLE,
    UNSEEN,
    EffectRefusedError,
    SeenEffect,
    TrialStoppedError,
    is_own_code,
    listening,
)
from jupyter_graphbreak.recording.targets import own_codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType, TracebackType

    from jupyter_graphbreak.experiments.trial.assigned_attributes import AttributeOfLibrary
    from jupyter_graphbreak.experiments.trial.process_state import Change
    from jupyter_graphbreak.records.records import StackEntry


class _Guard:
    """Refuses each effect of a trial, and keeps the first."""

    hides_others = True

    def __init__(self) -> None:
        self.effect: SeenEffect | None = None
        self.lines: dict[str, StackEntry | None] = {}

    def notice(self, effect: SeenEffect, _: FrameType) -> None:
        if self.effect is None:
            self.effect = effect
        raise EffectRefusedError(f"A trial {effect.what}: stopped.")

    def notice_state(self, what: str, place: StackEntry | None, _: FrameType) -> None:
        self.lines.setdefault(what, place)


@contextlib.contextmanager
def guarded(*calls: Any, assigned: Iterable[AttributeOfLibrary] = ()) -> Iterator[None]:
    """Stop what runs in the context before it does something outside of its copies, and restore the process's state.

    Parameters
    ----------
    *calls : callable
        What runs; its code says which line changes the state of the process.
    assigned : iterable of AttributeOfLibrary
        The attributes of packages to which it assigns.

    Raises
    ------
    TrialStoppedError
        If it was stopped, whatever it made of that, or if the user's code has changed the state.
    """
    guard = _Guard()
    before = ProcessState(assigned)
    with own_context(), UNSEEN.used(), REFUSABLE.used():
        try:
            with listening(guard):
                yield
        except KeyboardInterrupt:
            raise
        except EffectRefusedError:
            raise TrialStoppedError(_first(guard)) from None
        except SystemExit as error:
            place = _innermost(error.__traceback__)
            raise TrialStoppedError(guard.effect or SeenEffect("process", "ends the process", place)) from None
        except Exception:
            if guard.effect is not None:
                raise TrialStoppedError(guard.effect) from None
            raise
        finally:
            changes = before.restore()
    if guard.effect is not None:
        raise TrialStoppedError(guard.effect)
    if (changed := state_effect(changes, calls, guard.lines)) is not None:
        raise TrialStoppedError(changed)


def _innermost(traceback: TracebackType | None) -> StackEntry | None:
    """Return the innermost line of the user's code in a traceback."""
    place = None
    while traceback is not None:
        if is_own_code(traceback.tb_frame.f_code.co_filename):
            place = entry_of_frame(traceback.tb_frame)
        traceback = traceback.tb_next
    return place


def _first(guard: _Guard) -> SeenEffect:
    return guard.effect or SeenEffect("state", "does something outside of its objects")


def state_effect(
    changes: Iterable[Change], calls: Iterable[Any], lines: dict[str, StackEntry | None]
) -> SeenEffect | None:
    """Return the first change of the process's state that the user's code makes; ``None`` if libraries make all.

    Parameters
    ----------
    lines : dict
        The lines that were seen to make a change.
    """
    for change in changes:
        place = lines.get(change.what) or line_of(change, own_codes(*calls))
        if place is not None:
            return SeenEffect("state", change.what, place)
    return None


class SeenEffects:
    """The effects of a real run, each with the compiled callables within which it happens."""

    hides_others = False

    def __init__(self) -> None:
        self.seen: list[tuple[frozenset[int], SeenEffect]] = []
        self.lines: dict[str, StackEntry | None] = {}

    def notice(self, effect: SeenEffect, frame: FrameType) -> None:
        """Keep an effect of compiled code; what other code does is its own affair."""
        within = frozenset(compiled_callers(frame))
        if within and len(self.seen) < _MOST:
            self.seen.append((within, effect))

    def notice_state(self, what: str, place: StackEntry | None, frame: FrameType) -> None:
        """Keep the line that changes a state."""
        if any(True for _ in compiled_callers(frame)):
            self.lines.setdefault(what, place)


#: So many effects of a run are kept.
_MOST = 200


@contextlib.contextmanager
def effects_seen() -> Iterator[SeenEffects]:
    """See the effects that compiled code of this thread has while the context is open; nothing is prevented."""
    seen = SeenEffects()
    with UNSEEN.used(), listening(seen):
        yield seen
