"""The reasons why functions run eagerly, and ways to make Dynamo compile them.

The site has a page for each reason, which is named after the constant.
"""

from __future__ import annotations

from jupyter_graphbreak.knowledge.entries import SkipReason

LOOP = SkipReason(
    "loop",
    "graph break in a loop",
    "move the break out of the loop, unroll the loop, or move its body into its own function, which is then compiled",
    page="skipped.md#a-break-in-a-loop",
)
WITH = SkipReason(
    "context manager",
    "graph break in a context manager that cannot be resumed",
    "move the break out of the with block, or move the block's body into its own function, which is then compiled",
    page="skipped.md#a-break-in-a-with-block",
)
TRY = SkipReason(
    "try",
    "graph break in a try block",
    "move the break out of the try block, or move the block's body into its own function, which is then compiled",
    page="skipped.md#a-break-in-a-try-block",
)
SKIP_FRAME = SkipReason(
    "skip_frame",
    "torch._dynamo.skip_frame() was called",
    "move the call into its own function: then only that function is skipped",
)
GENERATOR = SkipReason(
    "generator", "a generator cannot be compiled", "compile the function that consumes it", page="causes/gb0003.md"
)
CALLED_EAGERLY = SkipReason(
    "generator", "a library's generator, called by code that runs eagerly because of the break", page="causes/gb0003.md"
)
LIVE_GENERATOR_TYPE = SkipReason(
    "other",
    "a generator that consumes an iterator or changes objects is in use across a graph break; Dynamo "
    "cannot carry a partly consumed generator across the break",
    "use a list instead, such as all([...]) instead of all(...), or list(...) before the break; or remove the other "
    "break on this line",
    page="causes/gb0003.md",
)
ESCAPING_GENERATOR = SkipReason(
    "other",
    "a generator is in use beyond the compiled code; Dynamo would replace it with an iterator over the remaining items",
    "consume the generator before the compiled code ends, for example with list(...)",
    page="causes/gb0003.md",
)
DISPATCH_MODE = SkipReason(
    "dispatch mode",
    "a TorchDispatchMode was active, and Dynamo compiles nothing in such a mode",
    "call it outside the mode",
    page="skipped.md#remembered-skips-an-earlier-call-a-mode",
)
MARKED = SkipReason(
    "marked",
    "PyTorch marks it to be skipped",
    "compile the function that calls it, or one that it calls",
    page="where_to_compile.md#another-method-than-forward",
)
LAYER_OF_TORCH = SkipReason(
    "marked",
    "Dynamo skips the code of PyTorch's own layers, even after `layer.compile()`",
    "use `torch.compile(layer)` instead of `layer.compile()`",
    page="where_to_compile.md#another-method-than-forward",
)
_RESET_ADVICE = "reset Dynamo: torch._dynamo.reset(), or --fresh in a notebook"
REMEMBERED = SkipReason(
    "remembered",
    "Dynamo skips it because of an earlier call: compiling failed, it had no tensor operation, or, before torch 2.14, "
    "a mode such as a FLOP counter was active",
    _RESET_ADVICE,
    page="skipped.md#remembered-skips-an-earlier-call-a-mode",
)
REMEMBERED_MODE = SkipReason(
    "remembered",
    "Dynamo skips it because of an earlier call, in which a TorchDispatchMode such as a FLOP counter was active",
    f"{_RESET_ADVICE}; torch 2.14 and newer compile it again",
    page="skipped.md#remembered-skips-an-earlier-call-a-mode",
)
#: ``{limit}`` is the setting whose value was reached, with that value.
RECOMPILE_LIMIT = SkipReason(
    "recompile limit",
    "it was compiled too often ({limit}); its compiled versions are still used when they fit",
    "see the recompiles for the guards that failed, and make them hold; raise the limit only if the same values recur",
    page="recompiles.md#the-limit-recompile-limit-is-reached",
)
SHARED_WRAPPER = SkipReason(
    "shared wrapper",
    "the limit ({limit}) was used up by the wrapper that torch shares between all functions decorated with "
    "error_on_graph_break; everything under it runs eagerly now",
    "use error_on_graph_break as a with block inside the function instead of as a decorator, or set "
    "torch._dynamo.config.nested_graph_breaks = True",
    page="recompiles.md#a-limit-that-functions-share",
)
#: ``{cause}`` is PyTorch's name for the cause.
COMPILE_ERROR = SkipReason("error", "compilation failed: {cause}", page="errors.md")
OTHER_BREAK = SkipReason(
    "other",
    "a graph break from which Dynamo cannot resume: {cause}",
    "fix the break, or move its line into its own function: then only that function is skipped",
    page="skipped.md#a-break-elsewhere-that-skips-the-function",
)
