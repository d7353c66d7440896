"""Give code that is not copied, such as methods, copies of the state that it uses while a program runs."""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import logging
import re
import threading
import types
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.experiments.trial.assigned_attributes import (
    assigned_attributes,
    belongs_to_library,
    sets_attributes,
)
from jupyter_graphbreak.experiments.trial.copies import UncopiedObject, clone
from jupyter_graphbreak.experiments.trial.function_copies import LRU_CACHE, is_library_function
from jupyter_graphbreak.experiments.trial.library_parts import attribute_part, library_objects, library_parts
from jupyter_graphbreak.experiments.trial.object_kinds import is_code, is_data, is_immutable
from jupyter_graphbreak.experiments.trial.other_threads import busy_thread_name
from jupyter_graphbreak.experiments.trial.process_state import find_changing_line
from jupyter_graphbreak.experiments.trial.saved_state import SavedState
from jupyter_graphbreak.experiments.trial.side_effects import ObservedEffect, TrialStoppedError
from jupyter_graphbreak.experiments.trial.state_parts import StateChange, StatePart
from jupyter_graphbreak.experiments.trial.swapped_bindings import (
    MISSING,
    Binding,
    SwappedBinding,
    attribute_binding,
    attributes_binding,
    cell_binding,
    change_functions_of,
    functions_in,
    global_names,
    item_binding,
    mentioned_loggers,
    part_binding,
    used_modules,
)
from jupyter_graphbreak.experiments.trial.unaudited_functions import TRIAL_REPLACEMENTS
from jupyter_graphbreak.recording.targets import is_user_class, may_be_user_defined, reachable_objects
from jupyter_graphbreak.records.attributes import is_instance

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from jupyter_graphbreak.experiments.trial.function_copies import FunctionCopier
    from jupyter_graphbreak.experiments.trial.swapped_bindings import VariableKey

_LOGGING_MODULES = frozenset({"logging", "logging.handlers"})
_ASSIGNING_INSTRUCTIONS = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})
#: Names in modules and classes that trials leave unchanged.
_UNCHANGED_IN_MODULES = re.compile("__")
_UNCHANGED_IN_CLASSES = re.compile("__annotations|__annotate|__abstractmethods__$|_abc_impl$|__dict__$|__weakref__$")
#: Attributes that describe classes of ``ctypes`` and that cannot be set again.
_CTYPES_LAYOUT = frozenset({"_fields_", "_anonymous_", "_pack_", "_align_", "_layout_", "_length_", "_type_"})
#: The lists among the attributes of loggers and handlers, which :mod:`.state_parts` restores.
_LOGGING_LISTS = frozenset({"handlers", "filters", "buffer"})


class ThreadSeesCopyError(Exception):
    """A copy cannot run now, because another thread would see the objects that are swapped in for the copy."""


class UncopiedCode:
    """The code that copied functions use but that is not copied, with copies of the state that this code uses.

    The search for this code starts at the copied objects in ``roots``. The bindings whose values are swapped are added
    to those of the copier of the functions. ``values_at_call`` contains the values that variables had when the copied
    function was called.
    """

    def __init__(
        self,
        copier: FunctionCopier,
        values_at_call: Mapping[VariableKey, Any],
        roots: list[Any],
        arguments: Iterable[Any],
    ) -> None:
        self._copier = copier
        self._bindings = copier.bindings
        self._values_at_call = values_at_call
        self.changeable_parts: list[StatePart] = []
        self._copied_methods: set[types.FunctionType] = set()
        self._open_context_count = 0
        self._saved_namespaces: list[tuple[Any, frozenset[str], dict[str, Any]]] = []
        self._code_before: list[tuple[types.FunctionType, types.CodeType]] = []
        self._destructor_effect: ObservedEffect | None = None
        #: The user modules, classes and functions that the code may change, each with the names swapped in it.
        self._namespaces: list[tuple[types.ModuleType | type | types.FunctionType, frozenset[str]]] = []
        self._swap_all(roots, arguments)
        self._saved_state = SavedState(copier.uncopied_objects)

    @contextlib.contextmanager
    def swap_copies_in(self) -> Iterator[None]:
        """Swap the copies in while the context is open. On exit, restore the objects that could not be copied.

        A ThreadSeesCopyError is raised if another thread of the user is running, because it would see the copies, and a
        TrialStoppedError if the code creates objects whose destructors may run after the context has ended.
        """
        if self._destructor_effect is not None:
            raise TrialStoppedError(self._destructor_effect)
        swapped_bindings = [binding for binding in self._bindings if isinstance(binding, SwappedBinding)]
        visible_name = next((binding.name for binding in swapped_bindings if not binding.may_be_seen_by_threads), None)
        if visible_name is not None and (thread := busy_thread_name()) is not None:
            raise ThreadSeesCopyError(f"your thread {thread} is running and would see copies of {visible_name}")
        self._open_context_count += 1
        if self._open_context_count == 1:
            for binding in swapped_bindings:
                binding.swap()
            self._saved_namespaces = [(owner, names, dict(vars(owner))) for owner, names in self._namespaces]
            # A trial of a change gives functions their changed code before it runs them.
            functions = (owner for owner, _ in self._namespaces if isinstance(owner, types.FunctionType))
            self._code_before = [(function, function.__code__) for function in functions]
        try:
            yield
        finally:
            self._open_context_count -= 1
            if not self._open_context_count:
                self._restore_namespaces()
                for binding in swapped_bindings:
                    binding.swap()
                self._saved_state.restore()

    def _restore_namespaces(self) -> None:
        """Undo changes to modules, classes and functions that a run made without mentioning names, as by ``setattr``.

        Attributes that Dynamo adds to modules, and Python to classes, stay.
        """
        for owner, swapped_names, saved_values in self._saved_namespaces:
            ignored_names = _UNCHANGED_IN_CLASSES if is_instance(owner, type) else _UNCHANGED_IN_MODULES
            base_class: Any = next(
                cls for cls in (type, types.ModuleType, types.FunctionType) if is_instance(owner, cls)
            )
            current = vars(owner)
            for name in [name for name in current if name not in saved_values and not ignored_names.match(name)]:
                base_class.__delattr__(owner, name)
            for name, value in saved_values.items():
                if (
                    name not in swapped_names
                    and not ignored_names.match(name)
                    and current.get(name, MISSING) is not value
                ):
                    base_class.__setattr__(owner, name, value)
        for function, code in self._code_before:
            if function.__code__ is not code:
                function.__code__ = code

    def _swap_all(self, roots: list[Any], arguments: Iterable[Any]) -> None:
        """Swap the globals, closures and class attributes that the code uses."""
        modules = used_modules(roots)
        parts = [vars(module)[name] for module, names in modules for name in names]
        classes = dict.fromkeys(part for part in parts if is_instance(part, type))
        owners_by_attribute: dict[tuple[int, str], Any] = {}
        functions = []
        stored_globals: set[VariableKey] = set()
        assigns_attributes = False
        user_functions: list[types.FunctionType] = []
        loggers: dict[int, logging.Filterer] = {}
        for item in list(reachable_objects(*roots, *parts, *arguments)):
            classes.update(dict.fromkeys(type(item).__mro__))
            if is_instance(item, logging.Filterer):
                loggers[id(item)] = item
            if is_instance(item, types.FunctionType) and not is_library_function(item) and may_be_user_defined(item):
                loggers.update((id(logger), logger) for logger in mentioned_loggers(item.__code__))
                names = global_names(item.__code__)
                classes.update(
                    (value, None) for name in names if is_instance(value := item.__globals__.get(name), type)
                )
                owners_by_attribute.update(assigned_attributes(item))
                user_functions.append(item)
                origin = self._copier.origin_id(item.__globals__)
                stored_globals.update((origin, name) for name in global_names(item.__code__, _ASSIGNING_INSTRUCTIONS))
                assigns_attributes = assigns_attributes or sets_attributes(item.__code__)
                if not self._copier.reads_copies(item):
                    functions.append((item, names))
        classes_with_destructor = [cls for cls in classes if is_user_class(cls) and "__del__" in vars(cls)]
        self._destructor_effect = next(
            (effect for cls in classes_with_destructor for effect in _destructor_effects(cls, user_functions)), None
        )
        swapped_in_modules = self._swap_modules(modules)
        if assigns_attributes:
            self._namespaces = list(swapped_in_modules)
        swapped_keys = {(id(vars(module)), name) for module, names in swapped_in_modules for name in names}
        stored_globals |= self._callers_of(stored_globals, user_functions)
        swapped_methods = {
            cls: self._swap_methods(cls, stored_globals) for cls in classes if stored_globals and is_user_class(cls)
        }
        self._swap_variables(functions, swapped_keys)
        classes.update((metaclass, None) for cls in list(classes) for metaclass in inspect.getmro(type(cls)))
        for cls in classes:
            if is_user_class(cls):
                swapped_names = self._swap_attributes(cls, swaps_members=assigns_attributes)
                swapped_names |= swapped_methods.get(cls, set())
                self._namespaces.append((cls, frozenset(name for _, name in swapped_names)))
                swapped_keys |= swapped_names
        self._swap_defaults_and_attributes(user_functions, assigns_attributes=assigns_attributes)
        self._swap_assigned_attributes(owners_by_attribute, swapped_keys)
        self.changeable_parts += library_parts(user_functions)
        packages = {str(cls.__module__).partition(".")[0] for cls in classes}
        self.changeable_parts.append(library_objects(packages))
        self._swap_attached_data(loggers.values())

    def _swap_variables(
        self, functions: list[tuple[types.FunctionType, set[str]]], swapped_keys: set[VariableKey]
    ) -> None:
        """Swap the globals and closure variables of functions that are not copied, unless these are already swapped."""
        for function, names in functions:
            if function in self._copied_methods:
                continue
            cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            bindings = [item_binding(name, function.__globals__, name) for name in sorted(names)]
            bindings += [cell_binding(name, cell) for name, cell in cells if name != "__class__"]
            for binding in bindings:
                if binding.key is not None and binding.key not in swapped_keys:
                    swapped_keys.add(binding.key)
                    self._swap(binding)

    def _swap_attributes(self, cls: type, *, swaps_members: bool) -> set[tuple[int, str]]:
        """Swap a class's attributes and, if ``swaps_members``, those of an enumeration's members; return the keys."""
        names = [name for name in vars(cls) if not name.startswith("__") and name not in _CTYPES_LAYOUT]
        names = [name for name in names if self._swap(attribute_binding(cls, name))]
        if swaps_members and issubclass(cls, enum.Enum):
            for member in cls.__members__.values():
                self._swap(attributes_binding(f"{cls.__name__}.{member.name}", member))
        return {(id(cls), name) for name in names}

    def _callers_of(self, variables: set[VariableKey], functions: list[types.FunctionType]) -> set[VariableKey]:
        """Return the keys of functions that use any of the given variables, directly or by calling each other."""
        names_by_function: list[tuple[VariableKey, set[VariableKey]]] = []
        for function in functions if variables else ():
            origin = self._copier.origin_id(function.__globals__)
            names_by_function.append(
                ((origin, function.__name__), {(origin, name) for name in global_names(function.__code__)})
            )
        callers: set[VariableKey] = set()
        while new_callers := {
            key for key, names in names_by_function if key not in callers and not names.isdisjoint(variables | callers)
        }:
            callers |= new_callers
        return callers

    def _swap_methods(self, cls: type, stored_globals: set[VariableKey]) -> set[VariableKey]:
        """Swap copies in for methods that use a global of copied functions if any function assigns to this global."""
        swapped_names = set()
        for name, member in list(vars(cls).items()):
            used_globals = [
                (self._copier.origin_id(function.__globals__), name)
                for function in functions_in(member)
                if self._copier.has_copied_globals_of(function) and not is_library_function(function)
                for name in global_names(function.__code__)
            ]
            if not stored_globals.isdisjoint(used_globals):
                binding = attribute_binding(cls, name)
                self._copied_methods.update(functions_in(member))
                copy = change_functions_of(member, self._copier.copy_function)
                self._bindings.append(SwappedBinding(binding, copy, is_function=True))
                swapped_names.add((id(cls), name))
        return swapped_names

    def _swap_defaults_and_attributes(self, functions: list[types.FunctionType], *, assigns_attributes: bool) -> None:
        """Swap the data in the defaults and attributes of functions that are not copied, such as methods.

        ``assigns_attributes`` tells whether code sets attributes, which may be attributes of the functions.
        """
        copies = set(map(id, self._copier.functions))
        for function in functions:
            if id(function) in copies:
                continue
            title = function.__qualname__
            for name in ("__defaults__", "__kwdefaults__"):
                value = getattr(function, name)
                copied_value = self._copier.copy(value, title)
                if assigns_attributes or copied_value is not value:
                    binding = part_binding(f"{title}.{name}", function, name)
                    self._bindings.append(SwappedBinding(binding, copied_value))
            attributes = vars(function)
            names = [name for name in attributes if not name.startswith("__")]
            swapped_names = [name for name in names if self._swap(item_binding(f"{title}.{name}", attributes, name))]
            if assigns_attributes:
                self._namespaces.append((function, frozenset(swapped_names)))

    def _swap_assigned_attributes(
        self, owners_by_attribute: Mapping[tuple[int, str], Any], swapped_keys: set[tuple[int, str]]
    ) -> None:
        """Swap the attributes that code assigns to, unless these are already swapped."""
        for (_, name), owner in owners_by_attribute.items():
            if belongs_to_library(owner):
                self.changeable_parts.append(attribute_part(owner, name))
            elif (id(vars(owner) if is_instance(owner, types.ModuleType) else owner), name) not in swapped_keys:
                binding = attribute_binding(owner, name)
                value = binding.read()
                self._bindings.append(
                    SwappedBinding(binding, self._copier.copy(value, binding.name) if is_data(value) else value)
                )

    def _swap_attached_data(self, loggers: Iterable[logging.Filterer]) -> None:
        """Swap the data in attributes of loggers, Python's own handlers and threads, which are not copied themselves.

        Handlers of other classes keep their data, because they may collect the records of other threads in it.
        """
        uncopied_objects = [
            item for item in loggers if is_instance(item, logging.Logger) or type(item).__module__ in _LOGGING_MODULES
        ]
        for owner in {
            id(item): item for item in (*uncopied_objects, threading.current_thread(), threading.main_thread())
        }.values():
            attributes = vars(owner)
            title = getattr(owner, "name", None) or type(owner).__name__
            for name, value in list(attributes.items()):
                if name[:1] != "_" and name not in _LOGGING_LISTS and is_data(value):
                    self._swap_if_copied(item_binding(f"{title}.{name}", attributes, name), value)

    def _swap_modules(
        self, modules: list[tuple[types.ModuleType, list[str]]]
    ) -> list[tuple[types.ModuleType, frozenset[str]]]:
        """Swap the values of names in modules, and return, for each module, the names whose values were swapped."""
        swapped_names = []
        for module, names in modules:
            bindings = {name: item_binding(f"{module.__name__}.{name}", vars(module), name) for name in names}
            swapped_names.append((module, frozenset(name for name, binding in bindings.items() if self._swap(binding))))
        return swapped_names

    def _swap(self, binding: Binding) -> bool:
        """Swap a copy in for the value of a binding, and return whether swapping back undoes a run's assignments."""
        try:
            value = binding.read()
        except ValueError:  # an empty cell
            return False
        value = self._values_at_call.get(binding.key, value) if binding.key is not None else value
        count_before = len(self._bindings)
        if value is MISSING or is_immutable(value):
            self._bindings.append(SwappedBinding(binding, value))
        elif (refusing_function := TRIAL_REPLACEMENTS.replacement_of(value)) is not None:
            self._bindings.append(SwappedBinding(binding, refusing_function))
        elif is_instance(value, functools.singledispatchmethod) or (
            is_instance(value, types.FunctionType) and is_library_function(value)  # such as one with a registry
        ):
            self._swap_if_copied(binding, value)
        elif is_data(value) or is_instance(value, LRU_CACHE):
            self._bindings.append(SwappedBinding(binding, self._copier.copy(value, binding.name)))
        elif not is_code(value) and not hasattr(type(value), "__get__"):  # such as an iterator, a file or a queue
            self._swap_if_copied(binding, value)
        return len(self._bindings) > count_before

    def _swap_if_copied(self, binding: Binding, value: Any) -> None:
        failed_objects: list[UncopiedObject] = []
        result = clone(
            value, self._copier.memo, failed_objects, self._copier.copy_function, self._copier.memory_provider
        )
        if result is not value and not failed_objects:
            self._bindings.append(SwappedBinding(binding, result))


def _destructor_effects(cls: type, functions: Iterable[types.FunctionType]) -> Iterator[ObservedEffect]:
    """Yield the effect of creating an instance of a class with a destructor, if code outside the class mentions it."""
    description = f"creates a {cls.__name__}, whose destructor may run later"
    change = StateChange(description, frozenset({cls.__name__}))
    outside_functions = [
        function for function in functions if not function.__qualname__.startswith(f"{cls.__qualname__}.")
    ]
    line = find_changing_line(change, [function.__code__ for function in outside_functions], {})
    if line is not None:
        yield ObservedEffect("state", description, line)
