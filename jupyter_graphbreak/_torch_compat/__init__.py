"""The only package that touches PyTorch's internals.

Every hook has a feature test: where a release of PyTorch lacks what it needs, the hook is left out and :func:`watch`
says so in a sentence, for the report's diagnostics. Written against torch 2.9.1, 2.13.0 and 2.15.0. Nothing is patched
at import; what :func:`watch` patches it restores.
"""

from __future__ import annotations

from jupyter_graphbreak._torch_compat.compiled import (
    compiled_callable,
    forget,
    has_cached_code,
    is_torch_compile,
    resume_codes,
)
from jupyter_graphbreak._torch_compat.frontends import (
    copy_fx_wraps,
    forget_fx_wraps,
    is_allowed_in_graph,
    own_backend,
    separate_cache,
)
from jupyter_graphbreak._torch_compat.hooks import watch
from jupyter_graphbreak._torch_compat.settings import (
    TorchUnavailable,
    as_uncompiled,
    backends,
    cuda_devices,
    default_device,
    default_device_name,
    dynamo_config,
    envelope,
    errors_suppressed,
    forced_backend,
    interned_name,
    library_roots,
    modes,
    narrowed_trace,
    quiet,
    require_torch,
    trace_logger,
)

__all__ = [
    "TorchUnavailable", "as_uncompiled", "backends", "compiled_callable", "copy_fx_wraps", "cuda_devices",
    "default_device", "default_device_name", "dynamo_config", "envelope", "errors_suppressed", "forced_backend",
    "forget", "forget_fx_wraps", "has_cached_code", "interned_name", "is_allowed_in_graph", "is_torch_compile",
    "library_roots", "modes", "narrowed_trace", "own_backend", "quiet", "require_torch", "resume_codes",
    "separate_cache", "trace_logger", "watch",
]  # fmt: skip
