import abc
import copy
import dataclasses
import enum
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import torch


class Base:
    scale = 2

    def __init__(self, n=1):
        self.n = n

    def twice(self, x):
        return x * 2


# %% a dataclass made inside
# message: call_function UserDefinedClassVariable(dataclass)
@dataclass
class Output:
    loss: torch.Tensor
    parts: list = field(default_factory=list)
    size: ClassVar[int] = 2
def f(x):
    output = Output(x)
    output.parts.append(x)
    return Output(output.loss * output.size + len(output.parts)).loss
# %% a frozen dataclass, as a key, compared, `__post_init__`
# message: frozen dataclass, FrozenDataClassVariable
# message: SourcelessBuilder.create does not know how to wrap frozen dataclass
@dataclass(frozen=True)
class Point:
    a: int
    b: int = 2
    def __post_init__(self):
        object.__setattr__(self, "c", self.a + self.b)
def f(x):
    return x * {Point(1): 3}[Point(1)] + Point(1).c + (Point(1) == Point(1, 2))
# %% `dataclasses.replace`, `fields`, `is_dataclass`
# message: inline in skipfiles: dataclasses.fields
# message: skip function is_dataclass
@dataclass
class Settings:
    a: int = 1
def f(x):
    settings = dataclasses.replace(Settings(), a=3)
    return x * settings.a + dataclasses.is_dataclass(settings) + len(dataclasses.fields(settings))
# %% `dataclasses.asdict(...)`
# message: inline in skipfiles: dataclasses.asdict, copy.deepcopy
# do: Use `{f.name: getattr(o, f.name) for f in dataclasses.fields(o)}`, which copies nothing.
@dataclass
class Pair:
    a: torch.Tensor
    b: int = 2
def f(x):
    return dataclasses.asdict(Pair(x))["a"] + 1
# %% `@dataclass(slots=True)`, `kw_only=True`
# message: dataclass slots
@dataclass(slots=True, kw_only=True)
class Compact:
    a: int = 2
def f(x):
    return x * Compact(a=3).a
# %% `copy.copy(values)` of a list or a dict
# message: inline in skipfiles: copy.copy
# do: Use `values.copy()` or `list(values)`.
def f(x):
    return sum(copy.copy([x, x])) + copy.copy({"a": x})["a"]
# %% `copy.copy(object)` of an object of yours
# message: inline in skipfiles: copy.copy, __reduce_ex__
def f(x):
    return x * copy.copy(Base(3)).n
# %% `copy.deepcopy(values)` of tensors, lists, dicts
# message: inline in skipfiles: copy.deepcopy
# do: Copy before the compiled function runs; `x.detach().clone()` of a tensor.
def f(x):
    return copy.deepcopy({"a": [x, 2]})["a"][0] + 1
# %% `weakref.ref(value)()`
# message: call_function UserDefinedClassVariable(weakref.ReferenceType)
import weakref
BASE = Base(3)
REF = weakref.ref(BASE)
def f(x):
    return x * REF().n
# %% `weakref.ref(object)` made inside
# message: call_function UserDefinedClassVariable(weakref)
import weakref
OTHER = Base(3)
def f(x):
    return x * weakref.ref(OTHER)().n
# %% an object of a class of attrs (`@attrs.define`)
# message: call_function UserDefinedClassVariable(attrs)
import attrs
@attrs.define
class Attrs:
    a: int = 2
def f(x):
    return x * Attrs(3).a
# %% a named tuple with a `__new__` of its own
# message: call_function args: TensorVariable() UserDefinedObjectVariable(_tuplegetter)
import collections
class Size(collections.namedtuple("Size", ["n"])):
    def __new__(cls, n):
        return super().__new__(cls, n * 2)
SIZE = Size(2)
def f(x):
    return x * SIZE.n
# %% `pickle.dumps(object)`
# message: Attempted to call function marked as skipped: pickle
# do: Pickle the object before or after the call.
import pickle
def f(x):
    return x + len(pickle.dumps([1]))
