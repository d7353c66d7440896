"""Hooks that record saved parameter names that contain ``_orig_mod.``, and pickled compiled modules."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.hooks.observer import wrap_with_uncompiled_hook
from jupyter_graphbreak._torch_compat.hooks.stacks_and_code_objects import site_of
from jupyter_graphbreak._torch_compat.patching import patch_attribute
from jupyter_graphbreak.records.additions import ORIG_MOD, CompiledSaved
from jupyter_graphbreak.records.package_paths import OWN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from jupyter_graphbreak._torch_compat.hooks.observer import Observer, WatchedCall
    from jupyter_graphbreak.records.records import StackFrame

#: The maximum number of keys to examine in a dict.
_MAX_KEYS = 1000
#: The maximum number of levels of nested dicts to examine.
_MAX_LEVELS = 3
#: Files whose frames are between the program's line and the hook.
_SAVING_FILES = ("torch/serialization.py", "safetensors/torch.py")


@contextlib.contextmanager
def watch_saving(observer: Observer) -> Iterator[None]:
    """Record saves of compiled modules: pickles, and states with keys that contain _orig_mod.

    Modules that are not compiled cannot load such states.
    """
    serialization = importlib.import_module("torch.serialization")
    safetensors_module: Any = sys.modules.get("safetensors.torch")
    wrapper = importlib.import_module("torch._dynamo.eval_frame").OptimizedModule
    recorded_sites: set[StackFrame | None] = set()

    def record_once(caller: FrameType | None, *, is_module: bool, is_part: bool = False) -> CompiledSaved | None:
        while caller is not None and _is_saving(caller.f_code.co_filename):
            caller = caller.f_back
        site = site_of(caller)
        if site in recorded_sites:
            return None
        recorded_sites.add(site)
        return CompiledSaved(is_module=is_module, is_part=is_part, site=site)

    def record_names_with_orig_mod(call: WatchedCall) -> CompiledSaved | None:
        name = _key_with_orig_mod(call.args[0] if call.args else None)
        is_part = name is not None and not name.startswith(ORIG_MOD)
        return record_once(call.caller, is_module=False, is_part=is_part) if name is not None else None

    def record_pickle(call: WatchedCall) -> CompiledSaved | None:
        is_copied = call.caller.f_code.co_filename.endswith("copy.py")
        return None if is_copied else record_once(call.caller, is_module=True)

    with contextlib.ExitStack() as stack:
        for owner, name in (
            (serialization, "_save"),
            (serialization, "_legacy_save"),
            (safetensors_module, "_flatten"),
            (safetensors_module, "_flatten_as_ptr"),
        ):
            if hasattr(owner, name):
                hook = wrap_with_uncompiled_hook(getattr(owner, name), observer, record_names_with_orig_mod)
                stack.enter_context(patch_attribute(owner, name, hook))
        hook = wrap_with_uncompiled_hook(wrapper.__reduce__, observer, record_pickle)
        stack.enter_context(patch_attribute(wrapper, "__reduce__", hook))
        yield


def _is_saving(filename: str) -> bool:
    return filename.endswith(_SAVING_FILES) or filename.startswith(OWN_FOLDER)


def _key_with_orig_mod(value: Any, depth: int = 0) -> str | None:
    """Return the first key of a dict or its nested dicts that contains ``_orig_mod.``; ``None`` if none does."""
    if not isinstance(value, dict) or depth == _MAX_LEVELS:
        return None
    for key in list(value)[:_MAX_KEYS]:
        if isinstance(key, str) and ORIG_MOD in key:
            return key
        if (inner_key := _key_with_orig_mod(value[key], depth + 1)) is not None:
            return inner_key
    return None
