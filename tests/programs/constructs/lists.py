import bisect
import heapq
from typing import NamedTuple

import torch
from torch import nn


class Item:
    def __init__(self, n):
        self.n = n


# %% `values.append`, `extend`, `insert`, `pop`, `remove`, `clear`, `del values[0]`
# message: call_method ListVariable() insert
# message: call_method ListVariable() remove
# message: call_method ListVariable() clear
def f(x):
    values = [x]
    values.append(x * 2)
    values.extend([x * 3, x * 4])
    values.insert(0, x * 5)
    last = values.pop()
    del values[0]
    numbers = [1, 2]
    numbers.remove(1)
    numbers.clear()
    return sum(values) + last + len(numbers)
# %% `values.copy()`, `values[:]`, `list(values)`
# message: call_method ListVariable() copy [] {}
def f(x):
    values = [x, x * 2]
    return sum(values.copy()) + sum(values[:]) + sum(list(values))
# %% `values.reverse()`, `values[::-1]`
# message: call_method ListVariable() reverse [] {}
def f(x):
    values = [x, x * 2]
    values.reverse()
    return values[0] + values[::-1][0]
# %% `values.index("b")`, `values.count(1)` of numbers or strings
# message: call_method ListVariable() index [ConstantVariable(str)] {}
# message: call_method ListVariable() count
def f(x):
    return x + ["a", "b"].index("b") + [1, 2, 1].count(1)
# %% `numbers.index(t)` with tensors of one value: compares values
# message: comparison TensorVariable, Data-dependent branching
# do: Keep the position, or compare with `is`: `any(t is x for t in tensors)`.
def f(x):
    return x + [x[0], x[1]].index(x[1] * 1)
# %% `x is y`, `any(t is x for t in tensors)`
# message: comparison TensorVariable() <built-in function is_>
def f(x):
    return x + any(t is x for t in [x * 2, x])
# %% `values.sort()`, `values.sort(key=lambda item: item.n)`
# message: call_method ListVariable() sort
# message: sort with non-constant keys
def f(x):
    values, items = [3, 1], [Item(2), Item(1)]
    values.sort()
    items.sort(key=lambda item: item.n)
    return x * values[0] + items[0].n
# %% `values += [x]`, `a + b`, `values * 2`, `[0] * n`
# message: call_function BuiltinVariable(iadd) [ListVariable()]
# message: call_function BuiltinVariable(mul) [ListVariable()]
def f(x):
    values = [x]
    values += [x * 2]
    values += (x,)
    return sum(values + [x]) + sum([1] * 3) + len((1,) * x.shape[0])
# %% `a == b`, `a < b`, `1 in values` of lists and tuples of numbers
# message: comparison ListVariable
def f(x):
    return x + ([1, 2] == [1, 2]) + ((1, 2) < (1, 3)) + (1 in [1, 2]) + (tuple(x.shape) == (4,))
# %% `a, *rest, b = values`, `(a, (b, c)) = ...`, `a, b = x`
# message: UNPACK_EX
# message: UNPACK_SEQUENCE TensorVariable
def f(x):
    a, *rest, b = [x, x * 2, x * 3, x * 4]
    p, q, r, s = x
    return a + b + sum(rest) + p * q * r * s
# %% `values[i] = x`, `values[1:3] = [...]`, `values[-1]`, `values[i, j]` of a tensor
# message: call_method ListVariable() __setitem__
# message: STORE_SUBSCR
def f(x):
    values = [x, x, x]
    values[0] = x * 2
    values[1:3] = [x * 3]
    y = x.view(2, 2).clone()
    y[0, 1] = 5
    return sum(values) + y.view(-1) + values[-1]
# %% `values[tensor]`: a list indexed by a tensor
# message: call_method ListVariable() __getitem__ [TensorVariable()]
# do: Use `torch.stack(values).index_select(0, i)[0]`, or pass the index as a number.
args = (torch.ones(2), torch.tensor(1))
def f(x, i):
    return [x, x * 2][i]
# %% a list comprehension, nested ones, with a condition
# message: inline generator, <listcomp>
def f(x):
    return sum([t * n for n in range(3) if n for t in [x, x]])
# %% a list that is passed in and changed
# message: mutated list argument
args = (torch.ones(2), [1, 2])
def f(x, values):
    values.append(3)
    return x * sum(values), values
# %% a list of modules or functions in a loop: `for layer in [self.a, self.b]`
# message: call_method ListVariable of NNModuleVariable
layers = [nn.Linear(4, 4), torch.relu]
def f(x):
    for layer in layers:
        x = layer(x)
    return x
# %% a subclass of `list` or `tuple`
# message: call_function UserDefinedClassVariable(list subclass)
class Stack(list):
    def top(self):
        return self[-1]
def f(x):
    stack = Stack([x])
    stack.append(x * 2)
    return stack.top() + len(stack)
# %% a named tuple: fields, `_replace`, `_asdict`, `_fields`, unpacking
# message: call_function UserDefinedClassVariable(namedtuple)
# message: call_method NamedTupleVariable() _replace
# message: UserDefinedObjectVariable(_tuplegetter)
class Pair(NamedTuple):
    left: torch.Tensor
    right: int = 2
def f(x):
    left, right = pair = Pair(x)._replace(right=3)
    return pair.left * pair[1] + left * right + len(Pair._fields) + pair._asdict()["right"]
# %% `bisect.bisect_left(values, n)`, `bisect.insort`
# message: Attempted to call function marked as skipped: bisect
# do: Use `torch.searchsorted` for tensors; search a list of numbers before the call.
def f(x):
    return x * bisect.bisect_left([1, 3, 5], 4)
# %% `heapq.heappush`, `heappop`
# message: Attempted to call function marked as skipped: heapq
# do: Use `sorted`, or use the heap before the call.
def f(x):
    heap = []
    heapq.heappush(heap, 3)
    heapq.heappush(heap, 1)
    return x * heapq.heappop(heap)
# %% `x.shape`, `torch.Size`: `numel()`, slices, `+`, `*x.shape`, `math.prod(x.shape)`
# message: call_method SizeVariable() numel [] {}
# message: call_method SizeVariable() __add__
import math
def f(x):
    size = x.view(2, 2).shape
    return x.view(*size) * size.numel() + len(size[1:] + (3,)) + math.prod(size) + torch.Size([2])[0]
# %% `array.array(...)`
# message: call_function UserDefinedClassVariable(array.array)
# do: Use a list.
import array
def f(x):
    return x * array.array("i", [1, 2])[1]
