"""Run a function and observe what it did."""

from __future__ import annotations

import contextlib
import io
import random
import sys
import types
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.configuration import quiet
from jupyter_graphbreak.recording.library import library_roots
from jupyter_graphbreak.trial.difference import Yielded
from jupyter_graphbreak.trial.subject import clone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jupyter_graphbreak.trial.inputs import Arguments
    from jupyter_graphbreak.trial.subject import Subject

#: An input with which the function runs more lines is left out: the function may loop for ever.
_MOST_LINES = 20_000


@dataclass(frozen=True)
class Result:
    """What one call did: its value or its exception, its arguments afterwards, its output, the state that it left."""

    value: Any = None
    raised: Exception | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    printed: str = ""
    state: dict[str, Any] = field(default_factory=dict)


def run(program: Callable[..., Any], subject: Subject, arguments: Arguments, seed: int = 0) -> Result:
    """Call a program with copies of arguments and with seeded random numbers; return what it did."""
    given = arguments.copy()
    seed_all(seed)
    value, raised = None, None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            value = program(*given.args, **given.kwargs)
            if isinstance(value, types.GeneratorType):
                value = Yielded(list(value))
        except Exception as error:  # noqa: BLE001 - that it raises is the finding
            raised = error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None)
    named = given.named(subject.call)
    return Result(clone(value), raised, named, printed.getvalue(), subject.state())


def seed_all(seed: int) -> None:
    """Seed the random generators of torch, Python and numpy."""
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


class TooLongError(BaseException):
    """A function ran too many lines. This is no Exception, so that the function itself does not catch it."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Stop a function that runs too many lines: it may never end with an input that it was not written for."""
    library = tuple(library_roots())
    lines = 0

    def count(_: Any, event: str, __: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        if lines > _MOST_LINES:
            raise TooLongError
        return count

    def enter(frame: types.FrameType, _: str, __: Any) -> Any:
        return None if frame.f_code.co_filename.startswith(library) else count

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def untouched() -> Iterator[None]:
    """Restore what runs change: random numbers, modes, output, warnings."""
    numpy = sys.modules.get("numpy")
    python_random, numpy_random = random.getstate(), numpy.random.get_state() if numpy is not None else None
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with (
            torch.random.fork_rng(devices),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            quiet(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(python_random)
        if numpy is not None:
            numpy.random.set_state(numpy_random)
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
