import math

import torch

class Config:
    scale = 2


class Sized:
    def __len__(self):
        return 3

    def __call__(self, x):
        return x + 1


# %% `isinstance`, `issubclass`, `type(x) is ...`, `type(x)(...)`
# message: unsupported isinstance
# message: call_function BuiltinVariable(issubclass)
def f(x):
    good = isinstance(x, (torch.Tensor, int)) and issubclass(Config, object) and type(x) is torch.Tensor
    return x + type([1])((2,))[0] if good else x
# %% `isinstance(x, collections.abc.Sequence)`, `Iterable`
# message: _abc._abc_instancecheck, unsupported builtin
def f(x):
    from collections.abc import Iterable, Sequence
    return x + isinstance([x], Sequence) + isinstance((1,), Iterable)
# %% `hasattr`, `getattr` with a default, `setattr`, `delattr`
# message: hasattr: UserDefinedObjectVariable
# message: call_function BuiltinVariable(setattr)
# message: call_function BuiltinVariable(delattr)
def f(x):
    config = Config()
    setattr(config, "more", 3)
    total = getattr(config, "more") + getattr(config, "missing", 1) + hasattr(config, "scale") + hasattr(x, "shape")
    delattr(config, "more")
    return x * total + hasattr(config, "more")
# %% `callable(value)`
# message: call_function BuiltinVariable(callable)
def f(x):
    return x + callable(Sized()) + callable(len) + callable(3)
# %% `id(value)`
# message: call_id with args
# message: call_id not supported with sourceless TensorVariable
def f(x):
    seen = {id(x): 1}
    return x + seen[id(x)]
# %% `id(module)`, as a key of a dict
# message: call_id with args
layer = torch.nn.Linear(4, 4)
names = {id(layer): 2}
def f(x):
    return layer(x) * names[id(layer)]
# %% `hash(text)`, `hash((1, 2))`
# message: call_function BuiltinVariable(hash)
def f(x):
    return x + (hash("a") == hash("a")) + (hash((1, 2)) == hash((1, 2)))
# %% `locals()["y"]`
# message: call_function BuiltinVariable(locals)
def f(x):
    y = x + 1
    return locals()["y"] * 2
# %% `dir(value)`
# message: call_function BuiltinVariable(dir)
# do: Read the names before the compiled function runs.
def f(x):
    return x * ("scale" in dir(Config()))
# %% `vars(value)`, `value.__dict__`
# message: call_function BuiltinVariable(vars)
def f(x):
    config = Config()
    config.a = 2
    return x * vars(config)["a"] + config.__dict__["a"]
# %% `globals()["name"]`
# message: call_function BuiltinVariable(globals)
# do: Use the name itself, or a dict of your own.
LIMIT = 3
def f(x):
    return x * globals()["LIMIT"]
# %% `eval("...")`
# message: call_function BuiltinVariable(eval)
# message: Dynamo does not know how to trace builtin operator
# do: Make a function of the text before the compiled function runs.
def f(x):
    return eval("x * 2")
# %% `int(x.shape[0] / 2)`, `float(n)`, `bool(n)`, `round(n)`, `abs(n)`, `divmod(a, b)`, `pow(a, b)`
# message: call_function BuiltinVariable(round)
# message: call_function BuiltinVariable(divmod)
# message: call_function BuiltinVariable(pow)
def f(x):
    n = x.shape[0]
    return x * int(n / 3) * float(n) * bool(n) * round(n / 3) * abs(-n) * pow(n, 2) + divmod(n, 3)[0]
# %% `abs(x)`, `x.round(decimals=1)`
# message: call_function BuiltinVariable(abs) [TensorVariable()]
def f(x):
    return abs(x) + x.round(decimals=1)
# %% `pow(x, 2)` of a tensor
# message: call_function BuiltinVariable(pow) [TensorVariable()]
# do: Use `x**2` or `torch.pow(x, 2)`.
def f(x):
    return pow(x, 2)
# %% `round(x.item(), 1)`
# message: call_function BuiltinVariable(round) [TensorVariable()]
# do: Use `x.round(decimals=1)`.
def f(x):
    return x * round(x.sum().item(), 1)
# %% `int(x.sum())`, `float(x.mean())`, `x.item()`
# message: call_function BuiltinVariable(int) [TensorVariable()] {}
# message: call_function BuiltinVariable(float) [TensorVariable()] {}
# message: aten._local_scalar_dense.default
# do: Keep the tensor. `fullgraph=True` captures the number from 2.10 on.
def f(x):
    return x * float(x.mean()) + x.sum().item() + int(x.sum())
# %% `chr`, `ord`, `bin`, `hex`, `repr` of numbers
# message: call_function BuiltinVariable(chr)
# message: call_function BuiltinVariable(ord)
# message: call_function BuiltinVariable(repr)
def f(x):
    return x * len(chr(97) + bin(2) + hex(3) + repr(1)) + ord("a")
# %% `str(n)`, `str(x.dtype)`
# message: call_function BuiltinVariable(str)
def f(x):
    return x * len(str(x.shape[0]) + str(x.dtype))
# %% `str(x)` of a tensor
# message: call_function BuiltinVariable(str) [TensorVariable()] {}
# do: Format the tensor after the call.
def f(x):
    return x * len(str(x))
# %% `bytes([1, 2])`
# message: call_function BuiltinVariable(bytes)
# do: Make the `bytes` object before the call.
def f(x):
    return x * len(bytes([1, 2]))
# %% `complex(a, b)`, `1j`
# message: call_function BuiltinVariable(complex)
def f(x):
    return x * complex(1, 2) + 1j
# %% `math.sqrt`, `math.floor`, `math.pi` with numbers
# message: call_function math.sqrt
def f(x):
    return x * math.sqrt(x.shape[0]) + math.floor(2.5) + math.pi
# %% `hasattr(torch, "compile")`, `hasattr(module, name)`
# message: hasattr tracing for PythonModuleVariable is unsupported
# message: hasattr PythonModuleVariable
import math
def f(x):
    return x + hasattr(torch, "compile") + hasattr(math, "missing")
# %% `hasattr(batch, "to")` of a dict or a list, of a tensor
# message: torch.compile doesn't work with hasattr
# message: hasattr ConstDictVariable to, hasattr TensorVariable
def f(x):
    return x + hasattr({"a": x}, "to") + hasattr([x], "append") + hasattr(x, "missing")
# %% `getattr(type(m), "scale", 0)`, `getattr(None, "a", 3)`, `Config.scale`
# message: dynamo breaks when getting attributes of builtins
# message: BuiltinVariable.call_hasattr() missing 1 required positional argument
def f(x):
    return x + getattr(type(Config()), "scale", 0) + getattr(type(3), "scale", 0) + getattr(None, "a", 3)
# %% `isinstance(x, nn.Buffer)`, `isinstance(x, torch.FloatTensor)`: a metaclass with `__instancecheck__`
# message: Dynamo has limited support for __instancecheck__ in meta types
BUFFER = torch.nn.Buffer(torch.ones(4))
def f(x):
    return x * BUFFER + isinstance(BUFFER, torch.nn.Buffer)
# %% `value.__class__` of a list, a tuple, a string, of `x.shape`
# message: Unsupported __class__ attr for tuple or list, getattr SizeVariable __class__
def f(x):
    return x + (x.shape.__class__ is torch.Size) + ("a".__class__ is str) + ([1].__class__ is list) + ((1,).__class__ is tuple)
