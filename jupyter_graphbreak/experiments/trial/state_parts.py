"""The parts of the process's state that trials restore, with functions that read, restore and compare them."""

from __future__ import annotations

import itertools
import logging
import operator
import sys
import types
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_graphbreak._torch_compat.structured_trace import trace_logger
from jupyter_graphbreak.records.package_paths import is_library

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

#: The value of a part that cannot be read or does not exist.
MISSING = object()


class StatePart(NamedTuple):
    """A part of the state; its description is the effect of changing it, worded as the rest of a sentence.

    Code must call or assign one of ``names`` to change the part, and must contain one of ``owners``, unless there are
    none. With ``is_assigned``, only assignments change the part, so code that only reads it is not the cause.
    """

    description: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]
    names: Collection[str] = ()
    owners: Collection[str] = ()
    is_assigned: bool = False

    def change(self, before: Any, after: Any) -> StateChange:
        """Return the description of a change to the part."""
        changed_names = before.changed_names(after) if isinstance(before, HandlerAttributes) else ()
        return StateChange(self.description, frozenset({*self.names, *changed_names}), self.owners, self.is_assigned)


class StateChange(NamedTuple):
    """A change to the state, with the names that lead to the code that makes the change."""

    description: str
    names: frozenset[str]
    owners: Collection[str] = ()
    is_assigned: bool = False


class AttributesByObject(dict[Any, "Identities"]):
    """The attributes of objects, by object. Objects that did not exist before are not a change."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return False
        if dict.__eq__(self, other):
            return True
        pairs = ((state, other.get(item, state)) for item, state in self.items())
        return all(before is after or before == after for before, after in pairs)

    __hash__ = None


class HandlerAttributes(AttributesByObject):
    """The attributes of handlers. Code that sets one has an effect, because it redirects or changes log output."""

    def changed_names(self, other: HandlerAttributes) -> set[str]:
        """Return the names of differing attributes, and public names of private ones, because code may use these."""
        names: set[str] = set()
        for item, state in self.items():
            before, after = state.as_dict(), other.get(item, state).as_dict()
            names |= {name for name in {**before, **after} if before.get(name, MISSING) is not after.get(name, MISSING)}
        return names | {name.lstrip("_") for name in names}


def attributes_of(items: Iterable[Any]) -> AttributesByObject:
    """Return those attributes of objects that no other part restores."""
    return AttributesByObject({item: Attributes(item, _ignored_attributes(type(item))) for item in items})


def _ignored_attributes(cls: type) -> frozenset[str]:
    if issubclass(cls, logging.Logger):
        return _IGNORED_LOGGER_ATTRIBUTES
    if issubclass(cls, logging.FileHandler):
        return _IGNORED_FILE_HANDLER_ATTRIBUTES
    return _IGNORED_HANDLER_ATTRIBUTES if issubclass(cls, logging.Handler) else frozenset()


#: The attributes of loggers that other parts restore, or that are caches.
_IGNORED_LOGGER_ATTRIBUTES = frozenset(
    {"name", "level", "parent", "propagate", "handlers", "filters", "disabled", "manager", "_cache", "root"}
)
#: The attributes of handlers that other parts restore, or that a handler changes when it receives a record.
_IGNORED_HANDLER_ATTRIBUTES = frozenset({
    "level", "formatter", "filters", "lock", "_closed", "buffer", "rolloverAt", "dev", "ino", "sock", "socket",
    "retryTime", "retryPeriod",
})  # fmt: skip
_IGNORED_FILE_HANDLER_ATTRIBUTES = _IGNORED_HANDLER_ATTRIBUTES | {"stream"}


def restore_attributes(attributes_before: AttributesByObject) -> None:
    """Restore attributes that :func:`attributes_of` returned."""
    for item, state in attributes_before.items():
        saved_attributes = state.as_dict()
        ignored_names = _ignored_attributes(type(item))
        for name in [name for name in vars(item) if name not in saved_attributes and name not in ignored_names]:
            del vars(item)[name]
        vars(item).update(saved_attributes)


def identity_reader(read: Callable[[], Any]) -> Callable[[], Identities]:
    """Return a function that reads a value and wraps it, so that it is compared by identity."""
    return lambda: Identities([read()])


def identity_writer(write: Callable[[Any], Any]) -> Callable[[Identities], Any]:
    """Return a function that restores a value that :func:`identity_reader`'s function has wrapped."""
    return lambda saved_value: write(saved_value.items[0])


class Identities:
    """Objects that are compared by identity."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = tuple(items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identities) or len(self.items) != len(other.items):
            return False
        return all(map(operator.is_, self.items, other.items))

    def as_dict(self) -> dict[Any, Any]:
        """Return the items as a dict, if they are alternating names and values."""
        return dict(zip(self.items[::2], self.items[1::2], strict=True))

    __hash__ = None  # type: ignore[assignment]


class Attributes(Identities):
    """An object's attributes, without those to ignore. These are filtered out only if an attribute has changed."""

    def __init__(self, item: Any, ignored_names: frozenset[str]) -> None:
        super().__init__(itertools.chain.from_iterable(vars(item).items()))
        self._ignored_names = ignored_names

    def __eq__(self, other: object) -> bool:
        if super().__eq__(other):
            return True
        if not isinstance(other, Attributes):
            return False
        own_attributes, other_attributes = self.as_dict(), other.as_dict()
        return [*own_attributes] == [*other_attributes] and all(
            map(operator.is_, own_attributes.values(), other_attributes.values())
        )

    def as_dict(self) -> dict[Any, Any]:
        """Return the attributes that are not ignored, by name."""
        return {name: value for name, value in super().as_dict().items() if name not in self._ignored_names}

    __hash__ = None


#: No objects. Most loggers have no handlers and no filters.
_NO_OBJECTS = Identities(())
#: No attributes. Most loggers have no further attributes.
_NO_ATTRIBUTES = Attributes(types.SimpleNamespace(), frozenset())


#: The names that code uses to change loggers.
_LOGGING_NAMES = frozenset({
    "addHandler", "removeHandler", "setLevel", "addFilter", "removeFilter", "basicConfig", "dictConfig", "handlers",
    "filters", "propagate", "disabled", "captureWarnings", "setFormatter", "formatter", "level",
})  # fmt: skip
#: The names that code uses to change PyTorch's loggers.
_PYTORCH_LOGGING_NAMES = frozenset(
    {"setLevel", "set_logs", "disabled", "propagate", "level", "handlers", "addHandler", "removeHandler"}
)
_LEVEL_NAMES: tuple[dict[Any, Any], ...] = (logging._levelToName, logging._nameToLevel)  # noqa: SLF001 - there is no public name


def logging_parts() -> Iterator[StatePart]:
    """Yield the parts of the state that belong to ``logging``."""
    yield StatePart("sets attributes of a logger", _logger_attributes, restore_attributes, ("setattr",))
    yield StatePart(
        "disables log records", lambda: logging.root.manager.disable, logging.disable, ("disable",), ("logging",)
    )
    yield StatePart("sets the log record factory", identity_reader(logging.getLogRecordFactory),
                    identity_writer(logging.setLogRecordFactory), ("setLogRecordFactory",))  # fmt: skip
    yield StatePart("sets the logger class", identity_reader(logging.getLoggerClass),
                    identity_writer(logging.setLoggerClass), ("setLoggerClass",))  # fmt: skip
    # This part has no names, because a new logger is not an effect.
    yield StatePart("creates loggers", _LOGGERS.by_name, _restore_named_loggers)
    yield StatePart("sets the log level names", lambda: tuple(map(dict, _LEVEL_NAMES)), _restore_level_names,
                    ("addLevelName",))  # fmt: skip
    yield StatePart("changes loggers", _logger_states, _restore_loggers, _LOGGING_NAMES)
    yield StatePart("sets PyTorch's loggers", lambda: _LoggerSettings(_LOGGERS.of_pytorch()), _restore_pytorch_loggers,
                    _PYTORCH_LOGGING_NAMES)  # fmt: skip
    yield StatePart("sets attributes of a log handler", _handler_attributes, restore_attributes,
                    ("setattr", "set_name", "setStream", "setTarget"))  # fmt: skip


def _logger_attributes() -> AttributesByObject:
    return AttributesByObject(
        {
            logger: _NO_ATTRIBUTES
            if vars(logger).keys() <= _IGNORED_LOGGER_ATTRIBUTES
            else Attributes(logger, _IGNORED_LOGGER_ATTRIBUTES)
            for logger in _LOGGERS.outside_pytorch()
        }
    )


class _NamedLoggers(dict[str, Any]):
    """The loggers by name, and the placeholders for parents that no code has requested yet."""

    def __init__(self, loggers_by_name: dict[str, Any]) -> None:
        super().__init__(loggers_by_name)
        self.children = {
            name: dict(logger.loggerMap) for name, logger in self.items() if isinstance(logger, logging.PlaceHolder)
        }


class _LoggersByOrigin:
    """The loggers of the process, grouped again only after a change, because trials read them hundreds of times."""

    def __init__(self) -> None:
        self._known_loggers = _NamedLoggers({})
        self._other_loggers: list[logging.Logger] = []
        self._pytorch_loggers: list[logging.Logger] = []

    def by_name(self) -> _NamedLoggers:
        """Return the loggers and placeholders by name, in the same object until the loggers change."""
        self._group()
        return self._known_loggers

    def outside_pytorch(self) -> list[logging.Logger]:
        """Return the loggers except PyTorch's own."""
        self._group()
        return self._other_loggers

    def of_pytorch(self) -> list[logging.Logger]:
        """Return PyTorch's own loggers, except the trace's logger, to which this package listens."""
        self._group()
        return self._pytorch_loggers

    def _group(self) -> None:
        by_name = logging.root.manager.loggerDict
        if self._other_loggers and by_name == self._known_loggers:  # loggers are compared by identity
            return
        known_loggers = _NamedLoggers(by_name.copy())
        loggers = [
            (logger, name[:6] in {"torch", "torch."})
            for name, logger in known_loggers.items()
            if isinstance(logger, logging.Logger)
        ]
        trace = trace_logger()
        self._pytorch_loggers = [logger for logger, is_pytorch in loggers if is_pytorch and logger is not trace]
        self._other_loggers = [logging.root, *(logger for logger, is_pytorch in loggers if not is_pytorch)]
        self._known_loggers = known_loggers


_LOGGERS = _LoggersByOrigin()


class _LoggerSettings:
    """The settings of loggers. A logger that did not exist before is not a change."""

    def __init__(self, loggers: list[logging.Logger]) -> None:
        self.loggers = loggers
        self.settings = [(logger.level, logger.disabled, logger.propagate, *logger.handlers) for logger in loggers]

    def by_logger(self) -> dict[logging.Logger, tuple[Any, ...]]:
        return dict(zip(self.loggers, self.settings, strict=True))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _LoggerSettings):
            return False
        if self.settings == other.settings and self.loggers == other.loggers:
            return True
        other_settings = other.by_logger()
        return all(other_settings.get(logger, settings) == settings for logger, settings in self.by_logger().items())

    __hash__ = None  # type: ignore[assignment]


def _restore_pytorch_loggers(settings_before: _LoggerSettings) -> None:
    for logger, (level, disabled, propagate, *handlers) in settings_before.by_logger().items():
        if logger.level != level:
            logger.setLevel(level)
        logger.disabled, logger.propagate, logger.handlers[:] = disabled, propagate, handlers


def _handler_attributes() -> HandlerAttributes:
    """Return the attributes of Python's own handlers. Trials copy the handlers whose classes the user wrote."""
    handlers = [reference() for reference in logging._handlerList]  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public name
    python_handlers = [handler for handler in handlers if type(handler).__module__ in {"logging", "logging.handlers"}]
    return HandlerAttributes(attributes_of(python_handlers))


def _restore_named_loggers(loggers_before: _NamedLoggers) -> None:
    """Remove the loggers that user code has created, except those of modules, because modules refer to them."""
    by_name = logging.root.manager.loggerDict
    parents_of_removed: dict[Any, Any] = {}
    for name, logger in by_name.copy().items():
        if (
            loggers_before.get(name) is logger
            or name in sys.modules
            or (name not in loggers_before and _is_library_logger(name))
        ):
            continue
        if isinstance(logger, logging.Logger):
            parents_of_removed[logger] = logger.parent
            by_name.pop(name)
            if name in loggers_before:
                by_name[name] = loggers_before[name]
    for name, logger in by_name.copy().items():
        if isinstance(logger, logging.Logger):
            while logger.parent in parents_of_removed:
                logger.parent = parents_of_removed[logger.parent]
            continue
        for child in [child for child in logger.loggerMap if child in parents_of_removed]:
            del logger.loggerMap[child]
        logger.loggerMap.update(loggers_before.children.get(name, {}))
        if name not in loggers_before and not logger.loggerMap:
            by_name.pop(name)


def _restore_level_names(names: tuple[dict[Any, Any], ...]) -> None:
    for current_names, names_before in zip(_LEVEL_NAMES, names, strict=True):
        current_names.clear()
        current_names.update(names_before)


def _logger_states() -> dict[Any, tuple[Any, ...]]:
    return _LoggerStates(
        {
            logger: (
                logger.level,
                logger.disabled,
                logger.propagate,
                Identities(logger.handlers) if logger.handlers else _NO_OBJECTS,
                Identities(logger.filters) if logger.filters else _NO_OBJECTS,
                [
                    (handler.level, Identities([handler.formatter]), Identities(handler.filters))
                    for handler in logger.handlers
                ],
            )
            for logger in _LOGGERS.outside_pytorch()
        }
    )


class _LoggerStates(dict[Any, tuple[Any, ...]]):
    """The state of loggers. A new logger is not a change if it has no settings or belongs to a library."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return False
        new_states = [
            state for logger, state in other.items() if logger not in self and not _is_library_logger(logger.name)
        ]
        return all(other.get(logger) == state for logger, state in self.items()) and all(
            level == logging.NOTSET and propagate and not (disabled or handlers.items or filters.items)
            for level, disabled, propagate, handlers, filters, _ in new_states
        )

    __hash__ = None


def _is_library_logger(name: str) -> bool:
    """Return whether a logger is named after a module of a library."""
    module = sys.modules.get(name.partition(".")[0])
    return module is not None and is_library(getattr(module, "__file__", None) or "")


def _restore_loggers(states_before: dict[Any, tuple[Any, ...]]) -> None:
    for logger, state in _logger_states().items():
        if logger not in states_before and _is_library_logger(logger.name):
            continue  # it was set up when a trial imported the library
        saved_state = states_before.get(logger, (logging.NOTSET, False, True, Identities(()), Identities(()), []))
        if state != saved_state:
            level, logger.disabled, logger.propagate, handlers, filters, handler_states = saved_state
            logger.setLevel(level)
            logger.handlers[:] = handlers.items
            logger.filters[:] = filters.items
            for handler, (level_of_handler, formatter, filters_of_handler) in zip(
                logger.handlers, handler_states, strict=True
            ):
                handler.level, handler.formatter = level_of_handler, formatter.items[0]
                handler.filters[:] = filters_of_handler.items
