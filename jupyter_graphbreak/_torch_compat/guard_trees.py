"""Collect the guards of frames as trees whose parts can be checked, and therefore timed, one by one."""

from __future__ import annotations

import contextlib
import functools
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.patching import observe_calls_on_thread
from jupyter_graphbreak._torch_compat.structured_trace import current_compile_id
from jupyter_graphbreak.records.records import StackFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MISSING = object()


@dataclass(frozen=True)
class GuardNode:
    """The guards on one object, and those on the objects reached through it.

    ``source`` is Dynamo's expression for the object, such as ``L['x']``. Each guard on the object itself is Python
    code, with a function that checks it alone.
    """

    source: str
    guards: list[tuple[str, Callable[[], object] | None]]
    children: list[GuardNode]


@dataclass(frozen=True)
class FrameGuards:
    """The guards of a compiled frame, and the stacks where they were installed, by the source of the guarded object."""

    compile_id: str
    check: Callable[[], bool]
    tree: Callable[[], GuardNode]
    stacks: dict[str, list[StackFrame]]


@contextlib.contextmanager
def collect_guards() -> Iterator[list[FrameGuards]]:
    """Collect the guards of the frames that Dynamo compiles on this thread while the context is open.

    The collected guards keep the local variables of the frames alive.
    """
    frames: list[FrameGuards] = []
    manager_class: Any = getattr(importlib.import_module("torch._dynamo.guards"), "CheckFunctionManager", None)
    if manager_class is None:  # not in this PyTorch
        yield frames
        return

    def collect(_: None, manager: Any, code: Any, graph: Any, *__: Any, **___: Any) -> None:
        del code
        with contextlib.suppress(AttributeError):  # not in this PyTorch
            frames.append(_frame_guards(manager.guard_manager, graph))

    with observe_calls_on_thread(manager_class, "__init__", collect):
        yield frames


def _frame_guards(guards: Any, graph: Any) -> FrameGuards:
    namespace = {**(guards.closure_vars or {}), "L": graph.local_scope, "G": graph.global_scope}
    stacks = {}
    for guard in graph.guards:
        name = guard.name() if callable(guard.name) else guard.name
        if guard.user_stack:
            stacks[name] = [StackFrame(summary.filename, summary.lineno, summary.name) for summary in guard.user_stack]
    return FrameGuards(
        current_compile_id(),
        functools.partial(guards.root.check, graph.local_scope),
        functools.partial(_guard_node, guards.root, graph.local_scope, namespace),
        stacks,
    )


def _guard_node(manager: Any, value: Any, namespace: dict[str, Any]) -> GuardNode:
    guards: list[tuple[str, Callable[[], object] | None]] = []
    for leaf in manager.get_leaf_guards():
        can_be_checked = callable(leaf) and value is not _MISSING
        code = next(iter(leaf.verbose_code_parts()), type(leaf).__name__)
        guards.append((code, functools.partial(leaf, value) if can_be_checked else None))
    children = []
    # PyTorch does not recheck objects that are reached through unchanged dicts of modules.
    if not getattr(manager, "is_tag_safe_root", bool)():
        children = [_guard_node(child, _value_of(child, namespace), namespace) for child in _child_managers(manager)]
    return GuardNode(manager.get_source(), guards, children)


def _child_managers(manager: Any) -> list[Any]:
    """Return the managers of the objects reached through an object; for a dict, of keys and values in turn."""
    pairs: dict[int, tuple[Any, Any]] = getattr(manager, "get_key_value_managers", dict)()
    managers = [part for pair in pairs.values() for part in pair if part is not None]
    with contextlib.suppress(RuntimeError):  # some kinds of managers have no child managers
        managers += manager.get_child_managers()
    return managers


def _value_of(manager: Any, namespace: dict[str, Any]) -> Any:
    """Return the guarded object by evaluating Dynamo's expression for it; ``_MISSING`` if that fails."""
    try:
        return eval(manager.get_source(), namespace)  # noqa: S307 - Dynamo wrote the expression
    except Exception:  # noqa: BLE001 - only Dynamo's C++ code can evaluate some expressions
        return _MISSING
