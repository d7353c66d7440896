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


# %% `loss.backward()` inside
# message: Tensor.backward, call_method TensorVariable() backward
# do: Call `backward()` after the compiled function returns; its backward pass is compiled as well. Or set `torch._dynamo.config.trace_autograd_ops = True` (2.11).
WEIGHT = nn.Parameter(torch.ones(2))
args = (torch.ones(2),)
def f(x):
    loss = (x * WEIGHT).sum()
    loss.backward()
    return loss.detach()
# %% `with torch.autocast("cpu", dtype=torch.bfloat16):`
# message: AutocastModeVariable, call_function torch.autocast
layer = nn.Linear(4, 4)
def f(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return layer(x)
# %% `@torch.autocast(...)` above a function
# message: Using torch.amp.autocast as decorator caused graph breaks
layer = nn.Linear(4, 4)
@torch.autocast("cpu", dtype=torch.bfloat16)
def forward(x):
    return layer(x)
def f(x):
    return forward(x)
# %% `checkpoint(f, x, use_reentrant=False)`
# message: torch.utils.checkpoint, HigherOrderOperator tag_activation_checkpoint
args = (leaf(),)
def f(x):
    return checkpoint(lambda t: t.sin().cos(), x, use_reentrant=False)
# %% `checkpoint` of a function that appends to a list
# message: checkpoint, side effects in HigherOrderOperator
# do: Take the side effect out of the function.
SEEN = []
args = (leaf(),)
def f(x):
    def block(t):
        SEEN.append(1)
        return t.sin()
    return checkpoint(block, x, use_reentrant=False)
# %% `nn.utils.clip_grad_norm_(parameters, 1.0)` inside
# message: call_function clip_grad_norm_, inline in skipfiles
WEIGHT = nn.Parameter(torch.ones(2))
WEIGHT.grad = torch.ones(2)
args = (torch.ones(2),)
def f(x):
    return x * nn.utils.clip_grad_norm_([WEIGHT], 1.0)
# %% `optimizer.step()` inside
# message: torch.optim.Optimizer.step, inline in skipfiles: optimizer
# do: Compile the step [in a function of its own](where_to_compile.md#the-training-step).
WEIGHT = nn.Parameter(torch.ones(2))
WEIGHT.grad = torch.ones(2)
OPTIMIZER = torch.optim.SGD([WEIGHT], lr=0.1)
args = (torch.ones(2),)
def f(x):
    OPTIMIZER.step()
    return x + WEIGHT.detach()
# %% `optimizer.zero_grad()` inside
# message: disabled function, Optimizer.zero_grad
# do: Reset the gradients outside the compiled function.
WEIGHT = nn.Parameter(torch.ones(2))
OPTIMIZER = torch.optim.SGD([WEIGHT], lr=0.1)
args = (torch.ones(2),)
def f(x):
    OPTIMIZER.zero_grad()
    return x + 1
# %% `scaler.scale(loss)` inside
# message: inline in skipfiles: GradScaler
# do: Scale the loss outside the compiled function.
WEIGHT = nn.Parameter(torch.ones(2))
SCALER = torch.amp.GradScaler("cpu")
args = (torch.ones(2),)
def f(x):
    return SCALER.scale(x.sum() * WEIGHT.sum()).detach()
# %% `scheduler.step()` inside
# message: inline in skipfiles: lr_scheduler
# do: Step the scheduler outside the compiled function.
WEIGHT = nn.Parameter(torch.ones(2))
SCHEDULER = torch.optim.lr_scheduler.StepLR(torch.optim.SGD([WEIGHT], lr=0.1), 1)
args = (torch.ones(2),)
def f(x):
    SCHEDULER.step()
    return x + 1
# %% an optimizer made inside: `torch.optim.SGD(...)`
# message: Irrecoverable graph break in optimizer init, instantiate optimizer outside of the compiled function
# do: Make the optimizer outside the compiled function.
WEIGHT = nn.Parameter(torch.ones(2))
args = (torch.ones(2),)
def f(x):
    optimizer = torch.optim.SGD([WEIGHT], lr=0.1)
    return x * len(optimizer.param_groups)
# %% a loss made inside: `nn.CrossEntropyLoss()(x, y)`
# message: instantiate criterion outside of the compiled function
def f(x):
    return nn.CrossEntropyLoss()(x.view(2, 2), torch.tensor([0, 1]))
