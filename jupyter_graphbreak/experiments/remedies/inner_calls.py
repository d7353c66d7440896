"""Find the largest parts of an entry in which nothing breaks, and compile them instead of the entry."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jupyter_graphbreak.experiments.families.proposal import InnerCall
from jupyter_graphbreak.experiments.trial.call_tree import CallNode, record_calls
from jupyter_graphbreak.experiments.trial.inputs import Arguments
from jupyter_graphbreak.experiments.trial.outcome import sandboxed
from jupyter_graphbreak.experiments.trial.places import named_objects
from jupyter_graphbreak.experiments.trial.subject import Subject
from jupyter_graphbreak.records.package_paths import is_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import CodeType

    from jupyter_graphbreak.experiments.remedies.original import Original
    from jupyter_graphbreak.report.schema import Report

#: The smallest share of the entry's operations that is worth a graph of its own, and the fewest operations.
_SMALLEST_SHARE = 0.1
_FEWEST_OPS = 3
#: A function is only a wrapper around a module that performs this share of its operations.
_WRAPPER_SHARE = 0.9
#: The maximum number of modules and functions to compile, where modules that are alike count once.
_MOST = 3
_MISSING = object()
#: A number in a place, such as the index of a layer.
_INDEX = re.compile(r"\.(\d+)(?=\.|$)|\[(\d+)\]")


@dataclass(frozen=True)
class InnerCalls:
    """What to compile instead of an entry.

    Parameters
    ----------
    calls : tuple of InnerCall
        The largest first.
    share : float
        The share of the entry's operations that they perform.
    """

    calls: tuple[InnerCall, ...]
    share: float


def find_inner_calls(original: Original, report: Report, files: Mapping[str, str]) -> InnerCalls | None:
    """Return the largest parts of an entry in which nothing breaks; ``None`` if there are none worth compiling.

    Parameters
    ----------
    original : Original
        The entry, which runs once more, uncompiled.
    report : Report
        The report of the compiled entry.
    files : mapping
        The file name of each source of the report, by the source's id.
    """
    places: dict[int, str] = {}
    with sandboxed():
        subject = Subject(original.entry.call, original.entry.arguments)

        def named(*args: Any, **kwargs: Any) -> Any:
            places.update((id(module), place) for place, module in _modules(subject, args, kwargs))
            return subject.call(*args, **kwargs)

        with record_calls(named) as (program, root):
            original.run(program, subject, original.pool[0])
    breaking = _breaking_lines(report, files)
    total = root.ops
    ops: dict[tuple[Any, ...], int] = defaultdict(int)
    parts: dict[tuple[Any, ...], list[CallNode]] = defaultdict(list)
    for node in _clean_parts(root, breaking, places):
        key = _kind_of(node, places)
        ops[key] += node.ops
        parts[key].append(node)
    largest = sorted(
        (key for key in ops if ops[key] >= max(_FEWEST_OPS, total * _SMALLEST_SHARE)), key=lambda k: -ops[k]
    )
    calls = [_inner_call(parts[key], places) for key in largest[:_MOST]]
    if not calls:
        return None
    return InnerCalls(tuple(calls), sum(ops[key] for key in largest[:_MOST]) / total)


def _breaking_lines(report: Report, files: Mapping[str, str]) -> set[tuple[str, int]]:
    """Return the lines at which a function breaks or is skipped."""
    places = [place for break_ in report.breaks for place in (break_.location, *break_.stack)]
    places += [skipped.location for skipped in report.skipped]
    return {(files.get(place.source, ""), place.line) for place in places if place is not None}


def _clean_parts(node: CallNode, breaking: set[tuple[str, int]], places: Mapping[int, str]) -> Iterator[CallNode]:
    """Yield the topmost nodes that can be compiled and below which nothing breaks."""
    for child in node.children.values():
        if not child.ops:
            continue
        if any(_breaks(part.code, breaking) for part in child.walk()):
            yield from _clean_parts(child, breaking, places)
        else:
            yield from _compilable_parts(child, places)


def _breaks(code: CodeType | None, breaking: set[tuple[str, int]]) -> bool:
    return code is not None and any((code.co_filename, line) in breaking for _, _, line in code.co_lines() if line)


def _compilable_parts(node: CallNode, places: Mapping[int, str]) -> Iterator[CallNode]:
    """Yield a node, or the modules inside it if it is only a wrapper or cannot be compiled in place."""
    if id(node.module) in places:
        yield node
        return
    inner = [part for child in node.children.values() for part in _compilable_parts(child, places)]
    is_wrapper = any(part.module is not None and part.ops >= _WRAPPER_SHARE * node.ops for part in inner)
    code = node.code
    is_own_function = code is not None and code.co_qualname.isidentifier() and not is_library(code.co_filename)
    if is_own_function and not is_wrapper:
        yield node
    else:
        yield from inner


def _kind_of(node: CallNode, places: Mapping[int, str]) -> tuple[Any, ...]:
    """Return a key that is the same for modules that are alike."""
    if node.module is None:
        return (node.code,)
    return node.code, _INDEX.sub("[]", places[id(node.module)]), node.is_usual_call


def _inner_call(nodes: Sequence[CallNode], places: Mapping[int, str]) -> InnerCall:
    first = nodes[0]
    modules = dict.fromkeys(places[id(node.module)] for node in nodes if node.module is not None)
    if first.code is not None and not modules:
        return InnerCall(first.code.co_name, filename=first.code.co_filename)
    return InnerCall(type(first.module).__name__, tuple(modules), is_usual_call=first.is_usual_call)


def _modules(subject: Subject, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules that a call of a subject uses, each with its first place."""
    seen: set[int] = set()
    known: set[int] = set()
    for name, root in (*subject.roots(), *Arguments(*args, **kwargs).named(subject.call).items()):
        for place, item in named_objects(root, name, seen):
            if isinstance(item, torch.nn.Module) and id(item) not in known:
                known.add(id(item))
                yield place, item


def compiled_inside(
    call: Callable[..., Any], subject: Subject, inner: Sequence[InnerCall], compile_: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Return a function that calls an entry while modules inside it are compiled, as ``Module.compile`` does it.

    Parameters
    ----------
    call : callable
        The uncompiled entry.
    subject : Subject
        The copies to which the entry belongs.
    inner : sequence of InnerCall
        Functions, which have no places, stay as they are.
    compile_ : callable
        Compiles a function.
    """
    names = {
        place: "_compiled_call_impl" if part.is_usual_call else "forward" for part in inner for place in part.places
    }
    compiled: dict[int, tuple[torch.nn.Module, Any]] = {}  # keeps the modules, so that their ids stay unique

    def compiled_call(module: torch.nn.Module, name: str) -> Any:
        if id(module) not in compiled:
            function = module._call_impl if name == "_compiled_call_impl" else module.forward  # noqa: SLF001
            compiled[id(module)] = module, compile_(function)
        return compiled[id(module)][1]

    def run(*args: Any, **kwargs: Any) -> Any:
        modules = [(names[place], module) for place, module in _modules(subject, args, kwargs) if place in names]
        before = [(vars(module), name, vars(module).get(name, _MISSING)) for name, module in modules]
        try:
            for name, module in modules:
                vars(module)[name] = compiled_call(module, name)
            return call(*args, **kwargs)
        finally:
            for attributes, name, value in before:
                if value is _MISSING:
                    attributes.pop(name, None)
                else:
                    attributes[name] = value

    return run if names else call
