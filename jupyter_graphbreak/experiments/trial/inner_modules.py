"""Compile modules inside an entry, or their methods; the entry itself is called uncompiled."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.places import named_objects
from jupyter_graphbreak.experiments.trial.swapped_bindings import item_binding
from jupyter_graphbreak.records.attributes import is_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from jupyter_graphbreak.experiments.trial.subject import Subject
    from jupyter_graphbreak.experiments.trial.swapped_bindings import Binding


def modules_of(
    subject: Subject, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules that a call of a subject uses, each with its first place.

    If a variable holds a module that is also inside the object of a different variable, the variable comes first, so
    that a model is called ``net`` and not ``ema.online_model``.
    """
    roots = [*subject.roots(), *Arguments(*args, **kwargs).by_name(subject.call).items()]
    visited: set[int] = set()
    inside = {id(item) for name, root in roots for _, item in named_objects(root, name, visited) if item is not root}
    roots.sort(key=lambda named: named[0] != "" and id(named[1]) not in inside)
    seen: set[int] = set()
    yielded: set[int] = set()
    for name, root in roots:
        for place, item in named_objects(root, name, seen):
            if is_instance(item, torch.nn.Module) and id(item) not in yielded:
                yielded.add(id(item))
                yield place, item


class InnerModules:
    """Modules inside an entry that are compiled in place, as ``Module.compile`` does, during calls of the entry.

    Parameters
    ----------
    subject : Subject
        The copies to which the entry belongs.
    places : collection of tuple
        The place of each module, and the name of the method to compile; an empty name stands for the module's calls,
        which ``Module.compile`` compiles.
    compile_ : callable
        Compiles a function.
    """

    def __init__(self, subject: Subject, places: Collection[tuple[str, str]], compile_: Callable[[Any], Any]) -> None:
        self._subject = subject
        self._places = places
        self._compile = compile_
        #: The compiled functions by methods and the ids of their owners, which are kept so that the ids stay unique:
        #: modules, or classes if the modules share a compiled method.
        self._compiled: dict[tuple[int, str], tuple[Any, Any]] = {}

    @contextlib.contextmanager
    def compiled(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[None]:
        """Let the modules run compiled while the context is open.

        Parameters
        ----------
        args, kwargs
            The arguments of the call, since they may contain modules.
        """
        saved_values: list[tuple[Binding, Any]] = []
        modules = list(modules_of(self._subject, args, kwargs)) if self._places else []
        try:
            for place, module in modules:
                for method in (method for module_place, method in self._places if module_place == place):
                    name = method or "_compiled_call_impl"
                    attribute = item_binding(name, vars(module), name)
                    saved_values.append((attribute, attribute.read()))
                    attribute.write(self._compiled_function(module, method))
            yield
        finally:
            for attribute, value in saved_values:
                attribute.write(value)

    def _compiled_function(self, module: torch.nn.Module, method: str) -> Any:
        owner = type(module) if method else module
        key = id(owner), method
        if key not in self._compiled:
            function = getattr(owner, method) if method else module._call_impl  # noqa: SLF001 - as `Module.compile` does
            self._compiled[key] = owner, self._compile(function)
        compiled = self._compiled[key][1]
        return compiled.__get__(module) if method else compiled

    def calling(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls an entry while the modules are compiled; without modules, the entry itself."""

        def run(*args: Any, **kwargs: Any) -> Any:
            with self.compiled(args, kwargs):
                return call(*args, **kwargs)

        return run if self._places else call
