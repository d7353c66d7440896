"""Guard a trial: stop it before it has an effect outside its copies, and restore the state of the process."""

from __future__ import annotations

import contextlib
import dis
from dataclasses import replace
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import msgspec.structs

from jupyter_graphbreak._torch_compat.hooks.stacks_and_code_objects import stack_frame_of
from jupyter_graphbreak._torch_compat.module_calls import enclosing_callable_ids
from jupyter_graphbreak.experiments.trial.code_roles import is_user_code
from jupyter_graphbreak.experiments.trial.process_state import (
    COMPILER_CHANGE_PREFIX,
    ProcessState,
    find_changing_line,
    preserve_line_cache,
    use_copied_context,
)
from jupyter_graphbreak.experiments.trial.side_effects import (
    EffectRefusedError,
    ObservedEffect,
    TrialStoppedError,
    listen,
    trial_file_descriptors,
)
from jupyter_graphbreak.experiments.trial.stand_ins import refuse_input, trace_originals
from jupyter_graphbreak.experiments.trial.unaudited_functions import COMMON_REPLACEMENTS, TRIAL_REPLACEMENTS
from jupyter_graphbreak.experiments.trial.user_imports import line_that_imports
from jupyter_graphbreak.recording.targets import functions_by_name, user_code_objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType, FrameType, TracebackType

    from jupyter_graphbreak.experiments.trial.state_parts import StateChange, StatePart
    from jupyter_graphbreak.records.records import StackFrame


class _EffectGuard:
    """Prevents each effect of a trial, and records the first."""

    is_exclusive = True

    def __init__(self, callables: tuple[Any, ...]) -> None:
        self._callables = callables
        self.effect: ObservedEffect | None = None
        self.changing_lines: dict[str, StackFrame | None] = {}

    def on_effect(self, effect: ObservedEffect, frame: FrameType) -> None:
        if effect.location is None and effect.imported_module:  # Dynamo runs the imports of the code that it traces
            effect = replace(
                effect, location=line_that_imports(effect.imported_module, user_code_objects(*self._callables))
            )
        elif effect.location is not None and effect.location.line == frame.f_code.co_firstlineno:
            # Compiled code reads the objects that it needs before its first line.
            line = _line_of_first_use(frame, user_code_objects(*self._callables))
            effect = replace(
                effect, location=msgspec.structs.replace(effect.location, line=line or effect.location.line)
            )
        if self.effect is None:
            self.effect = effect
        raise EffectRefusedError(effect)

    def on_state_change(self, description: str, location: StackFrame | None, _: FrameType) -> None:
        self.changing_lines.setdefault(description, location)


#: The prefixes of the names of instructions that load a variable.
_VARIABLE_LOADS = ("LOAD_GLOBAL", "LOAD_FAST", "LOAD_DEREF")


def _line_of_first_use(frame: FrameType, code_objects: Iterable[CodeType]) -> int | None:
    """Return the first line that uses the variable being read in a compiled frame; ``None`` if no line is found."""
    key = frame.f_code.co_filename, frame.f_code.co_firstlineno
    code = next((code for code in code_objects if (code.co_filename, code.co_firstlineno) == key), None)
    names = [
        instruction.argval
        for instruction in dis.get_instructions(frame.f_code)
        if instruction.offset <= frame.f_lasti and instruction.opname.startswith(_VARIABLE_LOADS)
    ]
    uses = dis.get_instructions(code) if code is not None and names else ()
    return next((use.positions.lineno for use in uses if use.argval == names[-1] and use.positions is not None), None)


@contextlib.contextmanager
def prevent_effects(*callables: Any, changeable_parts: Iterable[StatePart] = ()) -> Iterator[None]:
    """Stop the code in the context before it has an effect outside its copies, and restore the process's state.

    If the state changes, the code of ``callables``, which the context runs, is searched for the line that changes it.
    ``changeable_parts`` are the parts of packages that this code may change. A TrialStoppedError is raised if the code
    was stopped, even if it caught the exception, or if user code has changed the state.
    """
    guard = _EffectGuard(callables)
    with (
        trial_file_descriptors.close_leftovers(),
        preserve_line_cache(),
        refuse_input(),
        trace_originals(),
        use_copied_context(),
        COMMON_REPLACEMENTS.install(),
        TRIAL_REPLACEMENTS.install(),
    ):
        state_before = ProcessState(changeable_parts)
        try:
            with listen(guard):
                yield
        except KeyboardInterrupt:
            raise
        except EffectRefusedError as refused:
            raise TrialStoppedError(guard.effect or refused.effect) from None
        except SystemExit as error:
            location = _innermost_user_line(error.__traceback__)
            raise TrialStoppedError(guard.effect or ObservedEffect("process", "ends the process", location)) from None
        except Exception:
            if guard.effect is not None:
                raise TrialStoppedError(guard.effect) from None
            raise
        finally:
            changes = state_before.restore()
    if guard.effect is not None:
        raise TrialStoppedError(guard.effect)
    if (effect := state_effect(changes, callables, guard.changing_lines)) is not None:
        raise TrialStoppedError(effect)


def _innermost_user_line(traceback: TracebackType | None) -> StackFrame | None:
    """Return the innermost line of user code in a traceback, or ``None`` if there is none."""
    frames = [frame for frame, _ in walk_tb(traceback) if is_user_code(frame.f_code.co_filename)]
    return stack_frame_of(frames[-1]) if frames else None


def state_effect(
    changes: Iterable[StateChange], callables: Iterable[Any], changing_lines: dict[str, StackFrame | None]
) -> ObservedEffect | None:
    """Return the first change to the process's state that user code makes, or ``None`` if only libraries make changes.

    ``changing_lines`` contains the lines that were observed making changes, by the descriptions of the changes.
    """
    changes, callables = list(changes), list(callables)
    imported_functions = functions_by_name(callables) if changes else {}
    for change in changes:
        location = changing_lines.get(change.description) or find_changing_line(
            change, user_code_objects(*callables), imported_functions
        )
        if location is not None:
            return ObservedEffect("state", change.description, location)
    return None


class EffectRecorder:
    """Records the effects of a real run, each with the compiled callables that were running."""

    is_exclusive = False

    def __init__(self) -> None:
        self.recorded_effects: list[tuple[frozenset[int], ObservedEffect]] = []
        self.changing_lines: dict[str, StackFrame | None] = {}

    def on_effect(self, effect: ObservedEffect, frame: FrameType) -> None:
        """Record an effect of compiled code, and ignore the effects of other code."""
        callers = frozenset(enclosing_callable_ids(frame))
        if callers and len(self.recorded_effects) < _MAX_EFFECTS:
            self.recorded_effects.append((callers, effect))

    def on_state_change(self, description: str, location: StackFrame | None, frame: FrameType) -> None:
        """Record the line that changes a part of the process's state while compiled code runs."""
        if any(True for _ in enclosing_callable_ids(frame)):
            self.changing_lines.setdefault(description, location)


#: The maximum number of recorded effects per run.
_MAX_EFFECTS = 200


@contextlib.contextmanager
def record_effects() -> Iterator[EffectRecorder]:
    """Record the effects of compiled code on this thread while the context is open, without preventing them."""
    recorder = EffectRecorder()
    with COMMON_REPLACEMENTS.install(), listen(recorder):
        yield recorder


class RunEffects:
    """The effects of a real run whose calls are not copied.

    They are complete when the context of :func:`observe_effects` is closed.
    """

    def __init__(self, recorder: EffectRecorder) -> None:
        self._recorder = recorder
        self.changes: list[StateChange] = []

    def effect_of(self, fn: Any) -> ObservedEffect | None:
        """Return the first effect of the code that a callable uses, or ``None`` if there was no effect."""
        code_objects = list(user_code_objects(fn))
        for _, effect in self._recorder.recorded_effects:
            if effect.location is not None and any(_contains_line(code, effect.location) for code in code_objects):
                return effect
        return state_effect(self.changes, [fn], self._recorder.changing_lines)


def _contains_line(code: CodeType, location: StackFrame) -> bool:
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return code.co_filename == location.filename and min(lines) <= (location.line or -1) <= max(lines)


@contextlib.contextmanager
def observe_effects() -> Iterator[RunEffects]:
    """Observe the effects of compiled code on this thread while the context is open."""
    state_before = ProcessState()
    with record_effects() as recorder:
        effects = RunEffects(recorder)
        try:
            yield effects
        finally:
            effects.changes += [
                change for change in state_before.changes() if not change.description.startswith(COMPILER_CHANGE_PREFIX)
            ]
