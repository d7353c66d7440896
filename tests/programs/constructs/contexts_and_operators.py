import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


# %% `with torch.profiler.record_function("part"):`
# message: Unsupported context manager, record_function
def f(x):
    with torch.profiler.record_function("part"):
        return x + 1
# %% `with torch.profiler.profile():` inside
# message: Profiler function, Profiler will be ignored
# do: Dynamo ignores the profiler: open the profiler around the call.
def f(x):
    with torch.profiler.profile():
        return x + 1
# %% `with torch.device("cpu"):` inside
# message: Unsupported context manager, torch.device, call_method UserDefinedObjectVariable(set) __contains__
# do: Use `device=` on every call, or the context around the call.
def f(x):
    with torch.device("cpu"):
        return x + torch.ones(4)
# %% `with sdpa_kernel([SDPBackend.MATH]):`
# message: sdpa_kernel, SDPAKernelVariable
def f(x):
    with sdpa_kernel([SDPBackend.MATH]):
        return F.scaled_dot_product_attention(*[x.view(1, 1, 4, 1)] * 3)
# %% `F.scaled_dot_product_attention` with a mask or `is_causal=True`
# message: SDPAParams, scaled_dot_product_attention
def f(x):
    q = x.view(1, 1, 4, 1)
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(q, q, q, attn_mask=mask) + F.scaled_dot_product_attention(q, q, q, is_causal=True)
# %% `flex_attention(q, k, v, score_mod=...)`
# message: flex_attention, HigherOrderOperator
from torch.nn.attention.flex_attention import flex_attention
def f(x):
    q = x.expand(1, 1, 4, 4)
    return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score * 2)
# %% `create_block_mask(...)` inside
# message: create_block_mask, flex_attention BlockMask
from torch.nn.attention.flex_attention import create_block_mask
def f(x):
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cpu")
    return x + mask.shape[-1]
# %% `torch.cond(pred, a, b, (x,))`
# message: torch.cond, functorch.experimental.control_flow.cond, HigherOrderOperator cond
def f(x):
    return torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,))
# %% `torch.while_loop(...)`
# message: while_loop, HigherOrderOperator
def f(x):
    return torch.while_loop(lambda t: t.sum() < 100, lambda t: (t * 2,), (x,))[0]
# %% `torch._higher_order_ops.scan(...)`
# message: scan, HigherOrderOperator
from torch._higher_order_ops.scan import scan
def f(x):
    return scan(lambda carry, t: (carry + t, carry * t), torch.zeros(()), x)[1]
# %% `torch._check(n > 1, lambda: "a text")`
# message: torch._check
def f(x):
    torch._check(x.shape[0] > 1, lambda: "too short")
    return x + 1
# %% `torch.library.custom_op` with `register_fake`
# message: unsupported operator, custom op, torch.library
@torch.library.custom_op("constructs::shift", mutates_args=())
def shift(x: torch.Tensor) -> torch.Tensor:
    return x + 1
shift.register_fake(torch.empty_like)
def f(x):
    return shift(x) * 2
# %% `torch.library.custom_op` without `register_fake`
# message: no fake impl registered, unsupported operator
# do: Use `@op.register_fake`.
@torch.library.custom_op("constructs::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    return x + 1
def f(x):
    return unknown(x) * 2
# %% `torch.compiler.disable(f)(x)`
# message: call torch._dynamo.disable() wrapped function
# do: This breaks on purpose. A custom operator does not.
@torch.compiler.disable
def eager(x):
    return x + 1
def f(x):
    return eager(x) * 2
# %% `torch._dynamo.graph_break()`
# message: torch._dynamo.graph_break
# do: This breaks on purpose.
def f(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2
# %% a function decorated with `torch.compiler.allow_in_graph`
# message: allow_in_graph
@torch.compiler.allow_in_graph
def opaque(x):
    return x + 1
def f(x):
    return opaque(x) * 2
# %% a function that is compiled already, called inside
# message: torch.compile inside torch.compile, Attempt to trace a compiled function
@torch.compile(backend="eager")
def inner(x):
    return x + 1
def f(x):
    return inner(x) * 2
# %% `torch.compile(g)(x)` inside the compiled function
# message: torch.compile call inside a compiled function
# do: The inner options are lost: `g` becomes a part of the graph.
def g(x):
    return x + 1
def f(x):
    return torch.compile(g, backend="eager")(x) * 2
# %% `torch.compiler.is_compiling()`
# message: torch._dynamo.is_compiling, external_utils.is_compiling
def f(x):
    flag = torch.compiler.is_compiling() or not torch.compiler.is_compiling()
    return x + flag
# %% `torch._dynamo.mark_dynamic(x, 0)` inside
# message: mark_dynamic forbidden
# do: Mark the size before the call.
def f(x):
    torch._dynamo.mark_dynamic(x, 0)
    return x + 1
# %% `torch.distributed.is_initialized()`, `is_available()`
# message: torch.distributed.is_initialized, ProcessGroupVariable
def f(x):
    return x + torch.distributed.is_available() + torch.distributed.is_initialized()
# %% a function of a C extension or of ctypes
# message: Attempted to call function marked as skipped, builtin_function_or_method, PyCapsule
# do: Wrap the function in a custom operator (`torch.library.custom_op`).
import ctypes
LIBC = ctypes.CDLL(None)
def f(x):
    return x + LIBC.abs(-3)
# %% an operator of `TORCH_LIBRARY` without a fake kernel
# message: unsupported operator: mylib.foo.default
# do: Register a fake kernel: `torch.library.register_fake("mylib::foo")`.
torch.library.define("constructs::foo", "(Tensor x) -> Tensor")
torch.library.impl("constructs::foo", "CPU", lambda x: x + 1)
def f(x):
    return torch.ops.constructs.foo(x) * 2
# %% `torch.library.custom_op` that changes an argument
# message: custom op mutates_args, auto_functionalized
@torch.library.custom_op("constructs::change", mutates_args=("x",))
def change(x: torch.Tensor) -> None:
    x.add_(1)
change.register_fake(lambda x: None)
def f(x):
    y = x.clone()
    change(y)
    return y
# %% a function decorated with `torch.compiler.nested_compile_region`
# message: nested_compile_region, invoke_subgraph
@torch.compiler.nested_compile_region
def region(x):
    return x.sin()
def f(x):
    return region(region(x))
# %% `sdpa_kernel([...], set_priority=True)`
# message: sdpa_kernel set_priority
def f(x):
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        return F.scaled_dot_product_attention(*[x.view(1, 1, 4, 1)] * 3)
# %% `torch._higher_order_ops.associative_scan(...)`
# message: associative_scan, HigherOrderOperator
from torch._higher_order_ops.associative_scan import associative_scan
def f(x):
    return associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")
# %% `torch.compiler.set_stance(...)` inside
# message: Attempt to trace forbidden callable, set_stance
# do: Set the stance around the call.
def f(x):
    torch.compiler.set_stance("default")
    return x + 1
# %% `torch._check_with(ValueError, n > 1, lambda: "a text")`
# message: torch._check_with, torch_compilable_check
# do: Use `torch._check`.
def f(x):
    torch._check_with(ValueError, x.shape[0] > 1, lambda: "too short")
    return x + 1
