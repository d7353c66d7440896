"""Apply a change to copies of an entry: edits of source text, PyTorch settings, and statements that set switches."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak._torch_compat.compiled import compiled_callable, uncompiled_callable
from jupyter_graphbreak._torch_compat.configuration import apply_settings, use_eager_random_numbers
from jupyter_graphbreak._torch_compat.separate_cache import clone_backend
from jupyter_graphbreak.experiments.remedies.application import Application, replace_functions
from jupyter_graphbreak.experiments.remedies.change import library_switches, restore_switches_on_exit
from jupyter_graphbreak.experiments.trial.entry import compile_separately
from jupyter_graphbreak.experiments.trial.outcome import sandbox_runs
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.records.attributes import globals_of, unwrap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from jupyter_graphbreak.experiments.remedies.application import Program
    from jupyter_graphbreak.experiments.remedies.change import Change
    from jupyter_graphbreak.experiments.trial.arguments import Arguments
    from jupyter_graphbreak.experiments.trial.entry import Entry


def make_remedy_context(entry: Entry, program: Program, change: Change) -> Callable[[], AbstractContextManager[Entry]]:
    """Return a function that opens a context in which a change is applied, and that yields the changed entry.

    The function can be called repeatedly. Code and functions are created once, so that Dynamo finds its compiled
    code again.
    """
    with restore_switches_on_exit(change):
        saved_environment = dict(os.environ)
        subject = _copy_with_switches(entry, change)
        environment = {name: value for name, value in os.environ.items() if saved_environment.get(name) != value}
    application = Application(program, change.texts, subject.functions())
    backend = clone_backend(entry.backend)

    def compile_inner(inner: Any) -> Any:
        return entry.compile(inner, backend)

    @contextlib.contextmanager
    def apply() -> Iterator[Entry]:
        with restore_switches_on_exit(change):
            os.environ.update(environment)
            for switch in library_switches(change):
                exec(switch.code or "", {})  # noqa: S102 - runs the code of a switch
            with application.replace_code(), _prepare_call(change, application, subject) as function:
                if change.compiles_inner_function:  # a stance of `torch.compiler` would cost time on every call
                    _replace_definitions(application, function, compile_inner)
                yield replace(
                    entry,
                    function=function,
                    compiles_inner_function=change.compiles_inner_function,
                    inner_targets=change.inner_targets,
                )

    return apply


@contextlib.contextmanager
def open_to_compile(
    entry: Entry, program: Program, change: Change
) -> Iterator[tuple[Callable[..., Any], Subject, Application]]:
    """Yield the function of a changed program on copies, to be compiled again, its subject, and the applied change."""
    with sandbox_runs(), use_eager_random_numbers(), restore_switches_on_exit(change):
        # The code shows which state to copy, and a changed function may use some of it only through a new function.
        subject = _copy_with_switches(entry, change)
        with (
            replace_functions(program, change.texts, subject.functions()) as application,
            _prepare_call(change, application, subject) as function,
            compile_separately(function),
        ):
            yield function, subject, application


@contextlib.contextmanager
def open_uncompiled(entry: Entry, program: Program, change: Change) -> Iterator[tuple[Callable[..., Any], Subject]]:
    """Yield the function of :func:`open_to_compile`, uncompiled, and its subject."""
    with open_to_compile(entry, program, change) as (function, subject, application):
        if change.compiles_inner_function:
            _replace_definitions(application, function, lambda inner: inner)
            subject.keep_definitions(application.defined_names)
        yield uncompiled_callable(function), subject


@contextlib.contextmanager
def _prepare_call(change: Change, application: Application, subject: Subject) -> Iterator[Any]:
    """Apply the settings and definitions of a change while the context is open, and yield the function to call."""
    namespace = globals_of(subject.function)
    names = application.defined_names
    with apply_settings(change.settings), application.add_definitions(namespace):
        subject.keep_definitions(names)
        if namespace is not None and subject.function.__name__ in names:
            # with new decorators; without a new definition, the name refers to the user's own function
            yield namespace[subject.function.__name__]
        else:
            yield subject.function


def _copy_with_switches(entry: Entry, change: Change) -> Subject:
    """Return a copy of an entry after running the switches of a change. Each run starts from that state."""
    subject = Subject(entry.function, entry.arguments)
    for switch in (switches := library_switches(change)):
        exec(switch.code or "", {})  # noqa: S102 - runs the code of a switch
    statements = [
        statement for statement in change.switch_statements if statement not in {switch.code for switch in switches}
    ]
    if not statements:
        return subject
    model = outermost_module(subject.function, subject.arguments or entry.arguments)
    for statement in statements:
        exec(statement, {"model": model})  # noqa: S102 - runs the code of a switch
    return Subject(subject.function, subject.arguments, name_snapshot=subject.name_snapshot())


def outermost_module(function: Any, arguments: Arguments) -> Any:
    """Return the module that the code of switches calls ``model``; ``None`` if the program has none."""
    if isinstance(function, torch.nn.Module):
        return function
    owner = getattr(function, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        return owner
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    names = getattr(getattr(unwrap(function), "__code__", None), "co_names", ())
    namespace = globals_of(function) or {}
    used_globals = [namespace[name] for name in names if name in namespace]
    values = (*arguments.values(), *cells, *used_globals)
    modules = (value for value in values if isinstance(value, torch.nn.Module))
    return next(modules, None)


def _replace_definitions(application: Application, function: Any, make_replacement: Callable[[Any], Any]) -> None:
    """Replace the compiled functions that a change defines, given a function that makes each replacement."""
    namespaces = [
        *(changed_function.__globals__ for changed_function in application.functions),
        globals_of(function) or {},
    ]
    for namespace in namespaces:
        for definition in application.definitions:
            inner = compiled_callable(namespace.get(definition.name))
            if inner is not None:
                namespace[definition.name] = make_replacement(inner)
