import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.named = nn.ModuleDict({"relu": nn.ReLU()})
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("count", torch.zeros(()))
        self.calls = 0

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x * self.scale


# %% `nn.ModuleList`, `nn.ModuleDict`, `nn.Sequential`: loops, indices, `enumerate`, `.items()`
# message: call_method NNModuleVariable() __getitem__, call_function UnspecializedNNModuleVariable
class Loops(Net):
    def forward(self, x):
        for n, layer in enumerate(self.layers):
            x = layer(x) + n
        for name, part in self.named.items():
            x = part(x) + len(name)
        return self.layers[-1](self.layers[:1][0](x)) + nn.Sequential(*self.layers)(x)
f = Loops()
# %% `nn.ParameterList`, `nn.ParameterDict`
# message: call_method NNModuleVariable(ParameterDict) __getitem__
class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList([torch.ones(4), torch.ones(4)])
        self.named = nn.ParameterDict({"a": torch.ones(4)})
    def forward(self, x):
        return x * self.weights[0] + sum(self.weights) + self.named["a"]
f = Lists()
# %% `self.layers[n]` with a number that is an argument; `getattr(self, f"layer{n}")`
# message: call_method NNModuleVariable() __getitem__ [SymNodeVariable()]
class Chosen(Net):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(4, 4)
    def forward(self, x, n=1):
        return self.layers[n](x) + getattr(self, f"layer{n}")(x)
f = Chosen()
# %% `self.layers[i]` with a tensor
# message: call_method NNModuleVariable() __getitem__ [TensorVariable()]
# do: Pass a number as an argument; or stack the weights and index them.
args = (torch.ones(4), torch.tensor(1))
class Routed(Net):
    def forward(self, x, i):
        return self.layers[i](x)
f = Routed()
# %% `self.calls += 1`, `self.last = x` in `forward`
# message: setattr(NNModuleVariable), nn.Module attribute mutation
class Remembers(Net):
    def forward(self, x):
        self.calls += 1
        self.last = x * 2
        return x + self.calls + self.last
f = Remembers()
# %% `self.count += 1` of a buffer, `self.register_buffer(...)` in `forward`
# message: call_method UnspecializedNNModuleVariable register_buffer
class Counts(Net):
    def forward(self, x):
        self.count += 1
        self.register_buffer("seen", x.detach())
        return x + self.count + self.seen
f = Counts()
# %% `self.parameters()`, `named_parameters()`, `next(self.parameters()).device`, `named_buffers()`
# message: call_method NNModuleVariable() parameters, call_method UnspecializedNNModuleVariable() named_parameters
# message: call_method NNModuleVariable() named_buffers [] {}
class Walks(Net):
    def forward(self, x):
        x = x.to(next(self.parameters()).device)
        return x + sum(p.square().sum() for p in self.parameters()) + len(dict(self.named_parameters())) + len(list(self.buffers())) + len(dict(self.named_buffers()))
f = Walks()
# %% `self.modules()`, `self.children()`, `named_children()`, `get_submodule`, `self._modules`
# message: call_method NNModuleVariable() children
class Visits(Net):
    def forward(self, x):
        x = x + len(list(self.modules())) + len(list(self.children())) + len(dict(self.named_children()))
        return self.get_submodule("layers.0")(x) + len(self._modules)
f = Visits()
# %% `self.state_dict()`
# message: call_method UnspecializedNNModuleVariable state_dict
# do: Use `dict(self.named_parameters())`.
class States(Net):
    def forward(self, x):
        return x + len(self.state_dict())
f = States()
# %% `self.load_state_dict(...)` inside
# message: call_method UnspecializedNNModuleVariable load_state_dict
# do: Load the weights before the call.
class Loads(Net):
    def forward(self, x):
        self.load_state_dict(self.state_dict())
        return x + 1
f = Loads()
# %% `self.eval()`, `self.train()`, `layer.training = False` inside
# message: call_method UnspecializedNNModuleVariable eval
# message: setattr(UserDefinedObjectVariable) training
class Modes(Net):
    def forward(self, x):
        self.eval()
        x = x + self.training
        self.layers[0].training = False
        self.train()
        return x
f = Modes()
# %% a layer made inside `forward`: `nn.Linear(4, 4)(x)`
# message: call_function UserDefinedClassVariable(nn.Linear), nn.Module constructor
# do: Make the layer in `__init__`.
def f(x):
    return nn.Linear(4, 4)(x)
# %% `self.layer = nn.Linear(...)` at the first call
# message: setattr(NNModuleVariable), nn.Module constructor
# do: Make the layer in `__init__`, or call the model once before it is compiled.
class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = None
    def forward(self, x):
        if self.layer is None:
            self.layer = nn.Linear(4, 4)
        return self.layer(x)
f = Lazy()
# %% `self.to(device)` inside, when it changes nothing
# message: call_method NNModuleVariable() to
class Moves(Net):
    def forward(self, x):
        return self.to("cpu").layers[0](x)
f = Moves()
# %% `register_forward_hook`, `register_forward_pre_hook` before compiling
# message: forward hooks, nn.Module forward/_pre hooks, forward_pre_hook triggered graph break
# message: nn.Module forward hook ends up with a separate graph
# do: A hook that breaks (with a `print` or a log message) splits the graph around its module, which 2.9 runs eagerly.
f = Net()
f.register_forward_hook(lambda module, args, result: result * 2)
f.layers[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
# %% `register_forward_hook` inside the compiled function
# message: call_method UnspecializedNNModuleVariable register_forward_hook
# do: Register the hook before the call.
net = Net()
def f(x):
    net.layers[0].register_forward_hook(lambda module, args, result: result * 2)
    return net(x)
# %% `register_full_backward_hook`, `register_full_backward_pre_hook` on a module
# message: backward hooks, full_backward_pre_hook induces a graph break
# message: call_method NNModuleVariable() _get_backward_hooks [] {}
# do: With `torch._dynamo.config.compiled_autograd = True` the module does not break, if `backward()` runs inside; or compile the code around this module.
net = Net()
net.layers[0].register_full_backward_hook(lambda module, grad, out: None)
net.layers[1].register_full_backward_pre_hook(lambda module, out: None)
def f(x):
    return net(x)
# %% `x.register_hook(...)` on an intermediate tensor
# message: Tensor.register_hook, call_method TensorVariable() register_hook
args = (torch.ones(2, requires_grad=True),)
def f(x):
    y = x * 2
    y.register_hook(lambda grad: grad * 2)
    return y.sum()
# %% `x.register_hook(print)`: a hook that prints
# message: Tensor.register_hook
# do: Remove the hook, or register the hook on the result of the call.
args = (torch.ones(2, requires_grad=True),)
def f(x):
    y = x * 2
    y.register_hook(lambda grad: print(grad))
    return y.sum()
# %% `model.forward(x)`, `super().forward(x)`, `Net.forward(self, x)`
# message: super() nn.Module.forward, call_method NNModuleVariable() forward
class Child(Net):
    def forward(self, x):
        return super().forward(x) + Net.forward(self, x) + self.layers[0].forward(x)
f = Child()
# %% `__getattr__` of your `nn.Module`
# message: UnspecializedNNModuleVariable __getattr__
class Delegates(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Net()
    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)
    def forward(self, x):
        return self.layers[0](x) * self.scale
f = Delegates()
# %% a `@property` or a method of your `nn.Module`
# message: NNModuleVariable property
class Properties(Net):
    @property
    def width(self):
        return self.layers[0].in_features
    def double(self, x):
        return x * self.width
    def forward(self, x):
        return self.double(x)
f = Properties()
# %% a frozen layer: `for p in layer.parameters(): p.requires_grad = False` inside
# message: setattr(TensorVariable) requires_grad
# do: Freeze the layer before the call.
net = Net()
def f(x):
    for p in net.parameters():
        p.requires_grad = False
    return net(x).detach()
# %% `copy.deepcopy(self.layer)` in `forward`
# message: inline in skipfiles: copy.deepcopy
# do: Copy the layer before the call, or call `torch.func.functional_call` with other parameters.
import copy
net = nn.Linear(4, 4)
def f(x):
    return copy.deepcopy(net)(x)
# %% `super().forward(x)` of a subclass of `nn.Conv1d`, `nn.Linear`
# message: call_method NNModuleVariable() _conv_forward
class Conv(nn.Conv1d):
    def forward(self, x):
        return super().forward(x.view(1, 1, 4))
f = Conv(1, 1, 1)
# %% a container of your own with `__getitem__`, `__len__`, `__iter__`
# message: Custom ModuleDict.__getitem__(key: tuple) produces a graph break
# message: AssertionError for custom iterable nn.Module, torch.compile doesn't work with custom __getitem__ in model
class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleDict({"a__b": nn.Linear(4, 4)})
    def __getitem__(self, key):
        return self.inner["__".join(key)]
    def __len__(self):
        return len(self.inner)
    def __iter__(self):
        return iter(self.inner.values())
table = Table()
def f(x):
    for layer in table:
        x = layer(x)
    return table["a", "b"](x) * len(table)
# %% `model.apply(function)` inside
# message: call_method UnspecializedNNModuleVariable apply
net = Net()
def f(x):
    net.apply(lambda module: None)
    return net(x)
# %% an attribute that has the name of a method: `self.buffers = [...]`
# message: TypeError: list object is not callable
class Renamed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.buffers = [1, 2]
    def forward(self, x):
        return self.layer(x) + len(self.buffers)
f = Renamed()
# %% `register_parametrization(layer, "weight", ...)` inside
# message: Module parametrization doesn't trace correctly in Dynamo
# do: Register the parametrization before the call.
class Negated(nn.Module):
    def forward(self, x):
        return -x
layer = nn.Linear(4, 4)
def f(x):
    nn.utils.parametrize.register_parametrization(layer, "weight", Negated())
    return layer(x)
# %% a parametrization of your own, registered before
# message: torch.nn.utils.parametrize, ParametrizedLinear
class Doubled(nn.Module):
    def forward(self, x):
        return x * 2
f = nn.Linear(4, 4)
nn.utils.parametrize.register_parametrization(f, "weight", Doubled())
# %% `layer == self.layer0`, `layer is self.layer0`, `layer in self.layers`
# message: comparison NNModuleVariable() <built-in function eq> NNModuleVariable()
class Compared(Net):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x) + (layer == self.layers[0]) + (layer is self.layers[1]) + (layer in [self.layers[0]])
        return x
f = Compared()
