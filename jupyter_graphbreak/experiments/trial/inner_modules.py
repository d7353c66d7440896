"""Compile modules inside an entry, or methods of these modules, and call the entry itself uncompiled."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak.experiments.trial.arguments import Arguments
from jupyter_graphbreak.experiments.trial.named_objects import named_objects
from jupyter_graphbreak.experiments.trial.swapped_bindings import item_binding
from jupyter_graphbreak.records.attributes import is_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from jupyter_graphbreak.experiments.trial.subject import Subject
    from jupyter_graphbreak.experiments.trial.swapped_bindings import Binding


def modules_of(
    subject: Subject, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules that a call to a subject uses, each with its first path.

    If a variable refers to a module that is also inside another variable's object, the former variable comes first. A
    model is thus called ``net`` and not ``ema.online_model``.
    """
    roots = [*subject.roots(), *Arguments(*args, **kwargs).by_name(subject.function).items()]
    visited_ids: set[int] = set()
    inner_ids = {
        id(item) for name, root in roots for _, item in named_objects(root, name, visited_ids) if item is not root
    }
    roots.sort(key=lambda root: root[0] != "" and id(root[1]) not in inner_ids)
    searched_ids: set[int] = set()
    yielded_ids: set[int] = set()
    for name, root in roots:
        for path, item in named_objects(root, name, searched_ids):
            if is_instance(item, torch.nn.Module) and id(item) not in yielded_ids:
                yielded_ids.add(id(item))
                yield path, item


class InnerModules:
    """Modules inside an entry that run compiled, as after ``Module.compile``, during calls to the entry.

    ``module_methods`` contains the path of each module and the name of its method to compile. An empty name stands for
    the module's calls.
    """

    def __init__(
        self, subject: Subject, module_methods: Collection[tuple[str, str]], compile_: Callable[[Any], Any]
    ) -> None:
        self._subject = subject
        self._module_methods = module_methods
        self._compile = compile_
        #: The compiled functions and their owners, by the owners' ids and the methods' names. An owner is a module, or
        #: a class whose modules share the compiled method. References to the owners keep their ids unique.
        self._compiled_functions: dict[tuple[int, str], tuple[Any, Any]] = {}

    @contextlib.contextmanager
    def compile_modules(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[None]:
        """Make the modules run compiled while the context is open."""
        saved_values: list[tuple[Binding, Any]] = []
        modules = list(modules_of(self._subject, args, kwargs)) if self._module_methods else []
        try:
            for path, module in modules:
                for method in (method for module_path, method in self._module_methods if module_path == path):
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
        if key not in self._compiled_functions:
            function = getattr(owner, method) if method else module._call_impl  # noqa: SLF001 - `Module.compile` compiles the same method
            self._compiled_functions[key] = owner, self._compile(function)
        compiled_function = self._compiled_functions[key][1]
        return compiled_function.__get__(module) if method else compiled_function

    def wrap_call(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls an entry while the modules are compiled. Without modules, return the entry."""

        def run(*args: Any, **kwargs: Any) -> Any:
            with self.compile_modules(args, kwargs):
                return fn(*args, **kwargs)

        return run if self._module_methods else fn
