"""Pass on what PyTorch does as soon as it is known, one compilation after the other."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from jupyter_graphbreak.analysis.build import build_report
from jupyter_graphbreak.records.records import Record
from jupyter_graphbreak.records.source_texts import recorded_sources
from jupyter_graphbreak.views.words.events import events_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_graphbreak.records.records import CompileKey
    from jupyter_graphbreak.views.words.events import Event


class EventStream:
    """Turns records into events and passes them to a function of the user.

    Parameters
    ----------
    on_event : callable
        Receives each :class:`Event`, on the thread that compiles. If it raises an exception, it is not called again.
    on_error : callable
        Receives that exception.
    """

    def __init__(self, on_event: Callable[[Event], object], on_error: Callable[[Exception], None]) -> None:
        self._on_event: Callable[[Event], object] | None = on_event
        self._on_error = on_error
        self._lock = threading.Lock()
        self._file_names: list[Record] = []
        self._begun: dict[CompileKey, list[Record]] = {}
        self._breaks: set[str] = set()

    def take(self, record: Record) -> None:
        """Take a record; the last one of a compilation leads to its events."""
        if self._on_event is None:
            return
        key = record.compile_key
        with self._lock:
            if record.kind == "str":
                self._file_names.append(record)
            if key is None:
                return
            self._begun.setdefault(key, []).append(record)
            if not record.kind.endswith("compilation_metrics"):
                return
            records = [*self._file_names, *self._begun.pop(key)]
        if record.kind == "compilation_metrics":
            self._pass_on(records)

    def _pass_on(self, records: list[Record]) -> None:
        sources = recorded_sources(records, lambda _: None, None)
        records += [Record({source.kind: msgspec.to_builtins(source)}) for source in sources]
        for event in events_of(build_report(records)):
            if self._on_event is None:
                return
            if event.kind == "break":  # once, although each function that inlines its line meets it again
                if event.text in self._breaks:
                    continue
                self._breaks.add(event.text)
            try:
                self._on_event(event)
            except Exception as error:  # noqa: BLE001 - the function that is compiled must not notice
                self._on_event = None
                self._on_error(error)
