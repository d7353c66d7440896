"""Send the events of ``capture(on_event=...)`` to logging, TensorBoard or W&B, and watch training loops.

There are callbacks for the ``Trainer`` of Lightning and for that of transformers, which watch a whole training run.

Input: the events of a run in progress. Output: log records, scalars, and a report after training.
This module may import ``api`` and ``results``. Importing ``LightningCallback`` or ``TransformersCallback`` imports its
library.

>>> with jupyter_graphbreak.capture(on_event=to_logging()):  # doctest: +SKIP
...     train()
>>> trainer = lightning.Trainer(callbacks=[LightningCallback(warm_up_steps=100)])  # doctest: +SKIP
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.api.watching import Run
    from jupyter_graphbreak.results import Report
    from jupyter_graphbreak.views.words.events import Event

__all__ = ["LightningCallback", "TransformersCallback", "to_logging", "to_tensorboard", "to_wandb"]

_LOGGER_NAME = "jupyter_graphbreak.compiling"


def to_logging(logger: logging.Logger | None = None) -> Callable[[Event], None]:
    """Return a function that logs each event: a first compilation as ``INFO``, any other event as ``WARNING``.

    Parameters
    ----------
    logger : Logger or None
        The logger to use. By default, the logger ``jupyter_graphbreak.compiling``.
    """
    target_logger = logger if logger is not None else logging.getLogger(_LOGGER_NAME)

    def receive(event: Event) -> None:
        target_logger.log(logging.INFO if event.kind == "compile" else logging.WARNING, "%s", event)

    return receive


def to_tensorboard(
    writer: Any, step: Callable[[], int] | None = None, prefix: str = "compiling"
) -> Callable[[Event], None]:
    """Return a function that writes each event, the number of events of each kind, and the seconds spent compiling.

    Parameters
    ----------
    writer : SummaryWriter
        A writer of ``torch.utils.tensorboard``, or any object with the methods ``add_scalar`` and ``add_text``.
    step : callable or None
        Returns the current training step. By default, the step is the number of events so far.
    prefix : str
        The prefix of each scalar's name.
    """
    totals = _Totals(prefix)

    def receive(event: Event) -> None:
        changed_totals = totals.add(event)
        current_step = step() if step is not None else totals.event_count
        for name, value in changed_totals.items():
            writer.add_scalar(name, value, current_step)
        writer.add_text(f"{prefix}/events", str(event), current_step)

    return receive


def to_wandb(run: Any, prefix: str = "compiling") -> Callable[[Event], None]:
    """Return a function that logs the number of events of each kind, and the seconds spent compiling, to W&B.

    The metrics are added to the step that the training logs next. They do not create a step.

    Parameters
    ----------
    run : wandb.Run
        The result of ``wandb.init()``.
    prefix : str
        The prefix of each metric's name.
    """
    totals = _Totals(prefix)

    def receive(event: Event) -> None:
        run.log(totals.add(event), commit=False)

    return receive


class _Totals:
    """The number of events of each kind so far, and the seconds spent compiling."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._counts: Counter[str] = Counter()
        self._seconds = 0.0

    @property
    def event_count(self) -> int:
        """The total number of events."""
        return self._counts.total()

    def add(self, event: Event) -> dict[str, float]:
        """Count an event, and return the totals that it changes, by metric name."""
        self._counts[event.kind] += 1
        changed_totals: dict[str, float] = {f"{self._prefix}/{event.kind}": self._counts[event.kind]}
        if event.seconds is not None:
            self._seconds += event.seconds
            changed_totals[f"{self._prefix}/seconds"] = self._seconds
        return changed_totals


class _TrainingWatch:
    """Watches a training run, from the end of the warm-up to the end of training.

    Parameters
    ----------
    on_event : callable or None
        Receives each event; by default, the function that :func:`to_logging` returns.
    warm_up_steps : int
        The number of steps at the beginning that are not watched, because compiling is expected there.
    """

    def __init__(self, on_event: Callable[[Event], object] | None = None, *, warm_up_steps: int = 0) -> None:
        super().__init__()
        self._on_event = on_event
        self._warm_up_steps = warm_up_steps
        self._exit_stack: contextlib.ExitStack | None = None
        self._run: Run | None = None

    @property
    def report(self) -> Report | None:
        """The report of the training so far; ``None`` during the warm-up."""
        return self._run.report_so_far() if self._run is not None else None

    def _begin_watching(self, step: int) -> None:
        if self._exit_stack is not None or step < self._warm_up_steps:
            return
        from jupyter_graphbreak.api.watching import capture

        receive = self._on_event if self._on_event is not None else to_logging()
        with contextlib.ExitStack() as stack:
            self._run = stack.enter_context(capture(on_event=receive))
            self._exit_stack = stack.pop_all()

    def _end_watching(self) -> None:
        if self._exit_stack is not None:
            stack, self._exit_stack = self._exit_stack, None
            stack.close()


class _LightningHooks(_TrainingWatch):
    """Implements Lightning's hooks."""

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        self._begin_watching(trainer.global_step)

    def on_train_end(self, *_: Any) -> None:
        self._end_watching()

    def on_exception(self, *_: Any) -> None:
        self._end_watching()


class _TransformersHooks(_TrainingWatch):
    """Implements the hooks of transformers' ``Trainer``.

    The Trainer calls no hook if training raises: watching then ends when the next training begins.
    """

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._end_watching()

    def on_step_begin(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        self._begin_watching(state.global_step)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._end_watching()


if TYPE_CHECKING:

    class LightningCallback(_LightningHooks):
        """Watches a Lightning ``Trainer``; see :class:`_TrainingWatch` for the parameters."""

    class TransformersCallback(_TransformersHooks):
        """Watches a transformers ``Trainer``; see :class:`_TrainingWatch` for the parameters."""


#: For each callback class: the class with its hooks, the modules that may contain its base class (those that were
#: already imported are tried first), and the name of the base class.
_CALLBACK_CLASSES: dict[str, tuple[type[_TrainingWatch], tuple[str, ...], str]] = {
    "LightningCallback": (_LightningHooks, ("lightning.pytorch", "pytorch_lightning"), "Callback"),
    "TransformersCallback": (_TransformersHooks, ("transformers",), "TrainerCallback"),
}


def __getattr__(name: str) -> Any:
    """On first use, import a callback class's library, create the class, and store it so that it can be pickled."""
    if name not in _CALLBACK_CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    hooks, modules, base_name = _CALLBACK_CLASSES[name]
    problems = []
    for module in sorted(modules, key=lambda module: module not in sys.modules):
        try:
            base = getattr(importlib.import_module(module), base_name)
        except ImportError as error:
            problems.append(str(error))
            continue
        callback_class = type(name, (hooks, base), {"__module__": __name__, "__doc__": _TrainingWatch.__doc__})
        globals()[name] = callback_class
        return callback_class
    raise ImportError(f"{name} needs {' or '.join(modules)}: {problems[0]}")
