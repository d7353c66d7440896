"""Look at PyTorch from within its own calls, so that looking neither fails nor goes unmeasured."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from jupyter_graphbreak._torch_compat.hooks.open_scopes import Scopes
from jupyter_graphbreak._torch_compat.patching import tell_fault
from jupyter_graphbreak._torch_compat.threads import same_run
from jupyter_graphbreak.records.additions import Addition, CodeObject, Note, WatchFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from jupyter_graphbreak._torch_compat.threads import Claim


class Emit(Protocol):
    """Receives what a hook saw."""

    def __call__(self, addition: Addition) -> None:
        """Take one observation."""


class Observer:
    """What the hooks of one watch share.

    Parameters
    ----------
    emit : callable
        Given each observation, under no lock, from the thread that compiles.
    spent : callable
        Given the seconds that each observation took.
    claim : Claim or None
        Of the run that watches: only its threads are looked at. Without one it is the run that makes the observer.
    """

    def __init__(self, emit: Emit, spent: Callable[[float], None], claim: Claim | None = None) -> None:
        #: Whether the thread that asks is looked at.
        self.is_here: Callable[[], bool] = claim.is_here if claim is not None else same_run()
        self.scopes = Scopes()
        self._emit = emit
        self._spent = spent
        self._faults: set[tuple[str, str]] = set()
        self._missing: set[str] = set()
        #: What was seen last of each code object that Dynamo came to, by the number of the code object.
        self.codes: dict[int, CodeObject] = {}

    def observe(self, what: str, look: Callable[[], Addition | None]) -> None:
        """Look, and pass on what there is to see; a fault is noted once and goes no further.

        Parameters
        ----------
        what : str
            The name of the hook, for the note about a fault.
        look : callable
            Returns the observation, or ``None`` where there is nothing to record.
        """
        start = time.perf_counter()
        try:
            seen = look()
            if isinstance(seen, CodeObject) and seen.id is not None:
                self.codes[seen.id] = seen
            if seen is not None:
                self._emit(seen)
        except Exception as error:  # noqa: BLE001 - the user's program must not notice us
            self.note_fault(what, error)
        finally:
            with contextlib.suppress(Exception):
                self._spent(time.perf_counter() - start)

    def local(self, frame: FrameType | None, name: str) -> Any:
        """Return a local variable of one of torch's functions, ``None`` where there is none of this name any more.

        That it is missing is noted once: what depends on it is then not in the report.
        """
        if frame is not None and name in frame.f_locals:
            return frame.f_locals[name]
        function = frame.f_code.co_name if frame is not None else "a function"
        sentence = f"Not seen with this torch: the variable {name!r} of {function}, which it does not have."
        if sentence not in self._missing:
            self._missing.add(sentence)
            self._emit(Note(level="info", message=sentence))
        return None

    def note_fault(self, what: str, error: Exception) -> None:
        """Note once that a hook failed; this does not fail."""
        with contextlib.suppress(Exception):
            message = f"{type(error).__name__}: {error}"
            if (what, message) not in self._faults:
                self._faults.add((what, message))
                self._emit(WatchFailed(hook=what, message=message))


class Call:
    """One call of a function of torch that is watched.

    Parameters
    ----------
    function : callable
        What torch has by this name.
    args, kwargs
        What it is called with.
    caller : FrameType
        The frame that calls it.
    """

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any], caller: FrameType) -> None:
        self.args = args
        self.kwargs = kwargs
        self.caller = caller
        #: What the call returned, when it has.
        self.result: Any = None
        #: What it raised, when it has.
        self.error: BaseException | None = None
        #: What a look before the call keeps for the one after it.
        self.kept: Any = None
        self._function = function

    def argument(self, name: str) -> Any:
        """Return the argument that is given to a parameter, ``None`` where none is."""
        return inspect.signature(self._function).bind_partial(*self.args, **self.kwargs).arguments.get(name)


_HOOKS = str(Path(__file__).parent)


def _caller() -> FrameType:
    """Return the frame that calls a watched function; several may watch it, one within the other."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HOOKS):
        frame = frame.f_back
    return frame


def watched(
    function: Callable[..., Any],
    observer: Observer,
    *,
    before: Callable[[Call], Addition | None] | None = None,
    after: Callable[[Call], Addition | None] | None = None,
    failed: Callable[[Call], Addition | None] | None = None,
) -> Callable[..., Any]:
    """Return a function that does what another does, whatever it is called with, and looks before or after it.

    Parameters
    ----------
    function : callable
    observer : Observer
    before, after, failed : callable or None
        Given the call: before it is made, when it has returned, when it has raised.
    """
    name = getattr(function, "__name__", "a hook")

    @functools.wraps(function)
    def watching(*args: Any, **kwargs: Any) -> Any:
        call = None
        try:
            if observer.is_here():
                call = Call(function, args, kwargs, _caller())
            if before is not None and call is not None:
                observer.observe(name, functools.partial(before, call))
        except Exception as error:  # noqa: BLE001 - the user's program must not notice us, whatever of ours fails
            tell_fault(name, error)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            if failed is not None and call is not None:
                try:
                    call.error = error
                    observer.observe(name, functools.partial(failed, call))
                except Exception as fault:  # noqa: BLE001 - as above
                    tell_fault(name, fault)
            own = error.__traceback__
            if own is not None and own.tb_frame is sys._getframe():
                error.__traceback__ = own.tb_next  # a bare raise adds no entry: the traceback is as without us
            raise
        if after is not None and call is not None:
            try:
                call.result = result
                observer.observe(name, functools.partial(after, call))
            except Exception as error:  # noqa: BLE001 - as above
                tell_fault(name, error)
        return result

    return watching
