"""Hooks on what Dynamo refuses: generators, functions that it compiled too often, frames that it leaves alone."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.hooks.fullgraph_sites import fullgraph_site
from jupyter_graphbreak._torch_compat.hooks.scope_hooks import SCOPES, is_wrapper
from jupyter_graphbreak._torch_compat.hooks.stacks_and_codes import identity, stack_above, wrapped_code
from jupyter_graphbreak._torch_compat.patching import patched
from jupyter_graphbreak.recording.additions import Blind, FrameRefused, FrameSkipped, RegistryEntry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from jupyter_graphbreak._torch_compat.hooks.observer import Observer

_CONVERT_FRAME = "torch._dynamo.convert_frame"


@contextlib.contextmanager
def watch_generators(observer: Observer) -> Iterator[None]:
    """Record which generators Dynamo was to compile."""
    module = importlib.import_module(_CONVERT_FRAME)
    original = module.is_generator

    @functools.wraps(original)
    def is_generator(code: Any, *args: Any, **kwargs: Any) -> Any:
        refused = original(code, *args, **kwargs)
        if refused:
            caller = sys._getframe(1)  # ConvertFrameAssert.__call__

            def look() -> FrameRefused:
                convert = observer.local(caller, "self")
                one_graph = getattr(convert, "_one_graph", None)
                setting = getattr(getattr(convert, "_box", None), "error_on_graph_break", None)
                return FrameRefused(
                    **identity(code),
                    reason="generator",
                    registry=_registry_entry("Attempt to trace generator"),
                    above=stack_above(),
                    fullgraph=one_graph,
                    fullgraph_site=fullgraph_site(observer) if one_graph else None,
                    error_on_graph_break=setting,
                    scopes=SCOPES.chain(None),
                    raised=bool(one_graph) or bool(setting),
                )

            observer.observe("is_generator", look)
        return refused

    with patched(module, "is_generator", is_generator):
        yield


@contextlib.contextmanager
def watch_limits(observer: Observer) -> Iterator[None]:
    """Record which functions Dynamo does not compile once more, because a limit is reached."""
    module = importlib.import_module(_CONVERT_FRAME)
    original = module.exceeds_recompile_limit

    @functools.wraps(original)
    def exceeds_recompile_limit(*args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        caller = sys._getframe(1)  # _compile

        def look() -> FrameRefused | None:
            exceeded, limit = answer
            return _limited(observer, caller, limit) if exceeded else None

        observer.observe("exceeds_recompile_limit", look)
        return answer

    with patched(module, "exceeds_recompile_limit", exceeds_recompile_limit):
        yield


def _limited(observer: Observer, caller: FrameType, limit: str) -> FrameRefused:
    config = importlib.import_module("torch._dynamo.config")
    code = observer.local(caller, "code")
    one_graph = observer.local(caller, "one_graph")
    wrapped = None
    if code is not None and is_wrapper(code):
        cells = dict(zip(code.co_freevars, observer.local(caller, "closure") or (), strict=False))
        wrapped = wrapped_code(cells["func"].cell_contents) if "func" in cells else None
    return FrameRefused(
        **(identity(code) if code is not None else {}),
        wrapped=wrapped,
        reason="recompile limit",
        registry=_registry_entry("Dynamo recompile limit exceeded"),
        limit=limit,
        limit_value=getattr(config, limit, None),
        above=stack_above(),
        fullgraph=one_graph,
        fullgraph_site=fullgraph_site(observer) if one_graph else None,
        scopes=SCOPES.chain(None),
        raised=bool(one_graph) or bool(config.fail_on_recompile_limit_hit),
    )


@contextlib.contextmanager
def watch_skips(observer: Observer) -> Iterator[None]:
    """Record which frames Dynamo leaves alone, and why."""
    wrapper = importlib.import_module(_CONVERT_FRAME).CatchErrorsWrapper
    if not hasattr(wrapper, "_handle_skip"):  # torch < 2.13
        yield
        blind = Blind(what="frames skipped because a TorchDispatchMode was on (torch < 2.13)")
        observer.observe("_handle_skip", lambda: blind)
        return
    original = wrapper._handle_skip

    @functools.wraps(original)
    def handle_skip(self: Any, result: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        def look() -> FrameSkipped | None:
            reason = result.skip_reason
            if reason is None or result.guarded_code is not None:
                return None
            return FrameSkipped(**identity(frame.f_code), reason=reason, above=stack_above())

        observer.observe("_handle_skip", look)
        return original(self, result, frame, *args, **kwargs)

    with patched(wrapper, "_handle_skip", handle_skip):
        yield


@functools.cache
def _registry() -> dict[str, tuple[str, dict[str, Any]]]:
    path = Path(importlib.import_module("torch._dynamo").__file__ or "").with_name("graph_break_registry.json")
    try:
        registry = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    # The newest revision of an entry comes first; the last one to be read stays.
    return {entry["Gb_type"]: (gb_id, entry) for gb_id, entries in registry.items() for entry in reversed(entries)}


def _registry_entry(gb_type: str) -> RegistryEntry:
    gb_id, entry = _registry().get(gb_type, (None, {}))
    return RegistryEntry(
        gb_type=gb_type,
        gb_id=gb_id,
        explanation=entry.get("Explanation"),
        hints=[hint for hint in entry.get("Hints", []) if "{" not in hint],
    )
