import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 2 + 0 * x


def leaf(n=2):
    return torch.ones(n, requires_grad=True)


# %% an `autograd.Function`: `F.apply(x)` with `ctx.save_for_backward`
# message: torch.autograd.Function, call_function AutogradFunctionVariable
# message: HigherOrderOperator autograd.Function
# message: comparison AutogradFunctionVariable() <built-in function is_not> ConstantVariable(NoneType)
args = (leaf(),)
def f(x):
    assert Double is not None
    return Double.apply(x)
# %% `ctx.n = 2`, `ctx.x = x` (a tensor), `ctx.needs_input_grad`
# message: AutogradFunctionContextVariable, setattr ctx
class Context(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.n = n
        ctx.x = x
        return x * n
    @staticmethod
    def backward(ctx, grad):
        return (grad * ctx.n + 0 * ctx.x if ctx.needs_input_grad[0] else None), None
args = (leaf(),)
def f(x):
    return Context.apply(x, 3)
# %% `ctx.mark_dirty(x)`
# message: call_method AutogradFunctionContextVariable mark_dirty
# do: Return a new tensor.
class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)
    @staticmethod
    def backward(ctx, grad):
        return grad
args = (leaf(),)
def f(x):
    return Dirty.apply(x * 1)
# %% an `autograd.Function` with `setup_context`
# message: autograd.Function setup_context
class Split(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * 2
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
    @staticmethod
    def backward(ctx, grad):
        return grad * 2
args = (leaf(),)
def f(x):
    return Split.apply(x)
# %% an `autograd.Function` whose `backward` prints
# message: torch.autograd.Function backward graph break
# do: Remove the `print` from `backward`.
class Loud(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        print(grad)
        return grad * 2
args = (leaf(),)
def f(x):
    return Loud.apply(x)
# %% a straight-through estimator: `x + (y - x).detach()`
# message: call_method TensorVariable() detach
args = (leaf(),)
def f(x):
    return x + (x.round() - x).detach()
# %% `torch.autograd.grad(y, x)` inside
# message: torch.autograd.grad, autograd.grad with compiled autograd
# do: Use `torch.func.grad`, or set `torch._dynamo.config.trace_autograd_ops = True` (2.11).
args = (leaf(),)
def f(x):
    return torch.autograd.grad((x**2).sum(), x)[0]
# %% a gradient penalty: `torch.autograd.grad(..., create_graph=True)`
# message: torch.autograd.grad, torch.compile with aot_autograd does not currently support double backward
# do: Use `torch.func.grad` inside.
args = (leaf(),)
def f(x):
    return torch.autograd.grad((x**3).sum(), x, create_graph=True)[0].square().sum()
# %% `torch.func.grad`, `vjp`, `jvp`, `jacrev`, `hessian`
# message: torch.func.grad, functorch transforms, HigherOrderOperator
def f(x):
    y = torch.func.grad(lambda t: (t**3).sum())(x) + torch.func.jacrev(torch.sin)(x).sum() + torch.func.hessian(lambda t: (t**3).sum())(x).sum()
    return y + torch.func.vjp(torch.sin, x)[1](x)[0] + torch.func.jvp(torch.sin, (x,), (x,))[1]
# %% `torch.vmap(f)`, `in_dims=`, `chunk_size=`, keyword arguments, `randomness="different"`
# message: torch.func.vmap, functorch.vmap
# message: NYI - torch.func.vmap: kwargs arguments are currently unsupported.
def f(x):
    y = torch.vmap(lambda a, b: a * b, in_dims=(0, None), chunk_size=2)(x, x).sum()
    z = torch.vmap(lambda t, n: t * n)(x, n=x)
    return y + z + torch.vmap(lambda t: t + torch.rand(()), randomness="different")(x) * 0
# %% `torch.vmap(f, out_dims=None)`
# message: torch._C._functorch.is_batchedtensor, out_dims of torch.vmap is set to None
def f(x):
    return torch.vmap(lambda a, b: (a, b * 2), in_dims=(None, 0), out_dims=(None, 0))(x, x)[1]
# %% `torch.func.functional_call(model, parameters, x)`
# message: call_function functional_call, torch.nn.utils.stateless
layer = nn.Linear(4, 4)
def f(x):
    return torch.func.functional_call(layer, {"weight": torch.eye(4), "bias": x}, (x,))
# %% `torch.func.stack_module_state`, an ensemble with `vmap`
# message: stack_module_state
layers = [nn.Linear(4, 4), nn.Linear(4, 4)]
PARAMETERS, BUFFERS = torch.func.stack_module_state(layers)
def f(x):
    return torch.vmap(lambda p: torch.func.functional_call(layers[0], p, (x,)))(PARAMETERS).sum()
# %% `torch.vmap(F.apply)` of an `autograd.Function`
# message: Unsupported hasattr call, vmap over autograd.Function
# do: Use `torch.vmap(lambda x: F.apply(x))`.
class Tanh(torch.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(x):
        return x.tanh()
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
    @staticmethod
    def backward(ctx, grad):
        return grad * (1 - ctx.saved_tensors[0] ** 2)
def f(x):
    return torch.vmap(Tanh.apply)(x)
# %% `x.requires_grad_()` of an argument
# message: call_method TensorVariable() requires_grad_
# do: Set `requires_grad` before the call.
def f(x):
    return x.requires_grad_() * 2
# %% `x.requires_grad = True`
# message: setattr(TensorVariable) requires_grad
# do: Set `requires_grad` before the call.
def f(x):
    y = x + 1
    y.requires_grad = True
    return y * 2
# %% `x.requires_grad`, `x.is_leaf`, `x.grad is None`
# message: getattr TensorVariable is_leaf
args = (leaf(),)
def f(x):
    return x * 2 + x.requires_grad + x.is_leaf + (x.grad is None)
# %% `y.grad_fn` of a tensor made inside
# message: getattr TensorVariable grad_fn
# do: Use `x.requires_grad`.
args = (leaf(),)
def f(x):
    y = x * 2
    return y + (y.grad_fn is None)
# %% `p.grad` of a parameter
# message: getattr TensorVariable grad
WEIGHT = nn.Parameter(torch.ones(2))
WEIGHT.grad = torch.ones(2)
args = (torch.ones(2),)
def f(x):
    return x * WEIGHT.grad
# %% `x.retain_grad()`
# message: call_method TensorVariable() retain_grad
# do: Call `retain_grad()` on the result of the call.
args = (leaf(),)
def f(x):
    y = x * 2
    y.retain_grad()
    return y.sum()
# %% `with torch.no_grad():`, `enable_grad()`, `set_grad_enabled(False)`
# message: call_function torch.no_grad, GradModeVariable
args = (leaf(),)
def f(x):
    with torch.no_grad():
        y = x * 2
    with torch.set_grad_enabled(False), torch.enable_grad():
        return x * y
# %% `@torch.no_grad()` above a function that is called inside
# message: inline in skipfiles: torch.no_grad decorator, _contextlib.decorate_context
@torch.no_grad()
def scaled(x):
    return x * 2
args = (leaf(),)
def f(x):
    return scaled(x) + x
# %% `torch.set_grad_enabled(False)` as a call
# message: torch.set_grad_enabled, GradModeVariable
args = (leaf(),)
def f(x):
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    return y + x
# %% `with torch.inference_mode():`
# message: torch.inference_mode, InferenceModeVariable
def f(x):
    with torch.inference_mode():
        return x + 1
# %% `with torch.autograd.set_detect_anomaly(True):`
# message: Unsupported context manager, detect_anomaly
# do: Turn anomaly detection on around the call.
def f(x):
    with torch.autograd.set_detect_anomaly(True):
        return x + 1
# %% `with torch.autograd.graph.saved_tensors_hooks(pack, unpack):`
# message: saved_tensors_hooks, save_on_cpu
# do: Set the hooks around the call, where they run as they do in eager code; or use activation checkpointing.
args = (leaf(),)
def f(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        return (x * 2).sin()
# %% gradients of each sample: `torch.vmap(torch.func.grad(loss))` with `functional_call`
# message: functorch transforms, per-sample gradients
layer = nn.Linear(1, 1)
def loss(sample):
    return torch.func.functional_call(layer, dict(layer.named_parameters()), (sample.view(1, 1),)).square().sum()
def f(x):
    return torch.vmap(torch.func.grad(loss))(x)
# %% `ctx.set_materialize_grads(False)`, `ctx.mark_non_differentiable(y)`
# message: inline in skipfiles: FunctionCtx.set_materialize_grads
# message: call_method AutogradFunctionContextVariable mark_non_differentiable
class Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        y, n = x * 2, x > 1
        ctx.mark_non_differentiable(n)
        return y, n
    @staticmethod
    def backward(ctx, grad, _):
        return grad * 2
args = (leaf(),)
def f(x):
    return Pair.apply(x)[0]
# %% an `autograd.Function` that returns a number or `None` besides a tensor
# message: HigherOrderOperator with non-Tensor returns, autograd.Function that returns a non-Tensor
class Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, 3
    @staticmethod
    def backward(ctx, grad, _):
        return grad * 2
args = (leaf(),)
def f(x):
    y, n = Mixed.apply(x)
    return y * n
