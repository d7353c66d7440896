import math

import torch

class Config:
    scale = 2


class Sized:
    def __len__(self):
        return 3

    def __call__(self, x):
        return x + 1


# %% `sorted(numbers)`, also of a set
# message: call_function BuiltinVariable(sorted)
def f(x):
    return x * sorted([3, 1])[0] * sorted({2, 1})[0]
# %% `sorted(values, key=..., reverse=True)`
# message: sort with non-constant keys
def f(x):
    return x * sorted([-3, 1], key=abs, reverse=True)[0]
# %% `sorted(tensors, key=lambda t: t.sum())`: by a tensor's value
# message: sort with non-constant keys
# do: Stack the tensors and use `argsort` or `topk`, or sort by something that is known, such as a shape.
def f(x):
    return sorted([x, -x], key=lambda t: t.sum())[0]
# %% `max(numbers)`, `min(a, b)`
# message: call_function BuiltinVariable(max)
def f(x):
    return x * max([1, 2]) * min(3, 4)
# %% `max(a, b)`, `min(a, 3)` of tensors with one value
# message: call_function BuiltinVariable(max) [TensorVariable()]
def f(x):
    return max(x[0], x[1]) + min(x[2], 3)
# %% `max(names, key=len)`, `max((), default=0)`
# message: call_function BuiltinVariable(max) [..., key=...]
def f(x):
    return x * len(max(["a", "bb"], key=len)) + max((), default=0)
# %% `sum(tensors)`, `sum(t * 2 for t in tensors)`
# message: call_function BuiltinVariable(sum)
def f(x):
    return sum([x, x]) + sum(t * 2 for t in [x, x]) + sum([1, 2], 3)
# %% `any(...)`, `all(...)` of a list, an iterator, a generator expression
# message: call_function BuiltinVariable(all) [ListIteratorVariable()] {}
def f(x):
    return x + 1 if all(iter([1, True])) and any(s > 3 for s in x.shape) else x
# %% `any(tensors)`, `all(t > 0 for t in x)`: the values of tensors
# message: Dynamic control flow is not supported at the moment
# do: Use `(x > 0).all()`, and keep the result a tensor.
def f(x):
    return x + all(t > 0 for t in x)
# %% `enumerate(values, 1)`, `zip(a, b)`, `reversed(values)`
# message: call_function BuiltinVariable(enumerate)
# message: call_function BuiltinVariable(zip)
def f(x):
    for n, (a, b) in enumerate(zip([x, x], reversed([1, 2])), 1):
        x = x + a * b * n
    return x
# %% `zip(a, b, strict=True)`
# message: zip() strict kwarg
def f(x):
    return sum(a * b for a, b in zip([x, x], (1, 2), strict=True))
# %% an iterator as an argument of the compiled function: `enumerate(...)`, `zip(...)`, `dict.items()`
# message: call_method UserDefinedObjectVariable(enumerate) __next__
# message: Attempted to call iter() on a user-defined object
# do: Pass `list(enumerate(...))`.
args = (torch.ones(2), enumerate([1, 2]))
def f(x, pairs):
    return sum(x * n * value for n, value in pairs)
# %% `map(f, values)`, `filter(f, values)`
# message: call_function BuiltinVariable(map)
# message: call_function BuiltinVariable(filter)
def f(x):
    return sum(map(torch.sin, filter(lambda t: t.dim() == 1, [x, x[0]])))
# %% `range(x.shape[0])`, `len(range(3))`, a slice of a range
# message: call_function BuiltinVariable(range)
def f(x):
    return x * sum(range(x.shape[0])) + len(range(3)) + range(9)[2:4][0]
# %% `range(tensor)`
# message: call_function BuiltinVariable(range) [TensorVariable()]
# do: Use the tensor itself: `torch.arange` up to the largest length, and a mask.
args = (torch.ones(2), torch.tensor(3))
def f(x, n):
    for _ in range(n):
        x = x + 1
    return x
# %% `slice(a, b)`, `x[slice(1, 3)]`
# message: call_function BuiltinVariable(slice)
def f(x):
    part = slice(1, 3)
    return x[part] + part.start
# %% `iter(values)`, `next(it)`, `next(it, None)`
# message: call_function BuiltinVariable(iter)
# message: call_function BuiltinVariable(next)
def f(x):
    it = iter([x, x * 2])
    return next(it) + next(it) + (0 if next(it, None) is None else 1)
# %% `iter(function, sentinel)`
# message: call_function BuiltinVariable(iter) [UserFunctionVariable(), ConstantVariable()]
def f(x):
    values = [0, 2, 1]
    return x * sum(iter(lambda: values.pop(), 0))
# %% `open(...)`
# message: call_function BuiltinVariable(open)
# message: Dynamo does not know how to trace builtin operator
# do: Read the file before the compiled function runs.
def f(x):
    with open("/dev/null") as file:
        return x + len(file.read()) * 0
# %% `print(...)`
# message: call_function BuiltinVariable(print) [ConstantVariable(str)] {}
# do: Print after the call.
def f(x):
    print("now")
    return x + 1
# %% `len(x)`, `len(object)` with `__len__`
# message: call_function BuiltinVariable(len)
def f(x):
    return x * len(x) + len(Sized())
