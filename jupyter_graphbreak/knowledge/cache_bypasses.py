"""The table of reasons why PyTorch does not cache a graph, which every start of the program then compiles again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheBypass:
    """A reason why the AOTAutograd cache, the Inductor cache or both are bypassed."""

    #: The name of the entry's page and example program.
    name: str
    #: The cause in the reader's words; code is in backticks.
    title: str
    #: Parts of PyTorch's reason; any one of them identifies the entry.
    search_strings: tuple[str, ...]
    #: PyTorch's reason, as a report shows it.
    reason: str
    #: The way to avoid the bypass, to be appended to a sentence.
    advice: str | None = None


#: The entry for a reason is the first one with a search string that occurs in the reason.
CACHE_BYPASSES = (
    CacheBypass(
        "autograd function",
        "A `torch.autograd.Function`",
        ("autograd_function_apply",),
        "Unsupported call_function target autograd_function_apply",
        "set TORCHINDUCTOR_AUTOGRAD_CACHE_ALLOW_CUSTOM_AUTOGRAD=1 before the program starts",
    ),
    CacheBypass(
        "autocast",
        "`torch.autocast` in compiled code",
        ("_enter_autocast", "_exit_autocast"),
        "Unsupported call_function target <function _enter_autocast at ...>",
        "enter autocast outside of the compiled function",
    ),
    CacheBypass(
        "higher order",
        "`torch.cond`, `while_loop` and other operations that call functions",
        ("HigherOrderOperator", "target cond", "target while_loop"),
        "Unsupported call_function target cond; inductor: Can't cache HigherOrderOperator: cond",
        "if both branches of a torch.cond are cheap, compute both and choose with torch.where",
    ),
    CacheBypass(
        "selective checkpointing",
        "Selective activation checkpointing",
        ("SAC context_fn",),
        "SAC context_fn does not have a cache_hash attribute",
        "give the context_fn of checkpoint() an attribute cache_hash",
    ),
    CacheBypass(
        "unknown function",
        "A function marked with `allow_in_graph`",
        ("Unsupported call_function", "Unsupported call_method"),
        "Unsupported call_function target <function f at ...>",
    ),
    CacheBypass(
        "custom pass",
        "Your own pass over Inductor's graphs",
        ("custom pass", "_pre_fusion_custom_pass", "_post_fusion_custom_pass"),
        "inductor: Unsupported post grad custom pass",
        "derive the pass from torch._inductor.custom_graph_pass.CustomGraphPass and give it a uuid()",
    ),
    CacheBypass(
        "freezing",
        "Inductor's setting `freezing`",
        ("freezing enabled", "frozen constants"),
        "Cannot cache a graph with freezing enabled",
        "turn freezing off, or compile the model ahead of time",
    ),
    CacheBypass(
        "unpicklable",
        "An object in the graph or in a setting that cannot be pickled",
        ("pickle", "unpicklable", "torchbind", "mkldnn"),
        "inductor: Failed to pickle cache key",
        "keep objects other than tensors and numbers out of the graph; in a setting, use no lambda",
    ),
    CacheBypass(
        "switched off",
        "A cache that is switched off, or a Triton that is too old",
        ("cache is not enabled", "requires triton"),
        "FX graph cache is not enabled",
        "unset TORCHINDUCTOR_FX_GRAPH_CACHE and TORCHINDUCTOR_FORCE_DISABLE_CACHES, or install a newer Triton",
    ),
)


def find_cache_bypass(reason: str | None) -> CacheBypass | None:
    """Return the entry for PyTorch's reason; ``None`` if there is none."""
    text = reason or ""
    return next((entry for entry in CACHE_BYPASSES if any(part in text for part in entry.search_strings)), None)
