import collections
import enum
import types
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque

import torch


class Kind(enum.Enum):
    CAT = "cat"
    DOG = "dog"


# %% `d[key]`, `in`, `get`, `setdefault`, `pop`, `update`, `del d[key]`, `clear`
# message: call_method ConstDictVariable() setdefault
# message: call_method ConstDictVariable() pop
# message: call_method ConstDictVariable() update
# message: call_method ConstDictVariable() __contains__
def f(x):
    d = {"a": x}
    d["b"] = x * 2
    d.update({"c": x * 3}, e=x)
    y = d.setdefault("g", x) + d.get("h", x) + d.pop("c")
    del d["b"]
    n = ("a" in d) + len(d)
    d.clear()
    return y * n
# %% `for key, value in d.items()`, `keys()`, `values()`, `list(d)`
# message: call_method ConstDictVariable() items
# message: call_function BuiltinVariable(iter) [DictView]
def f(x):
    d = {"a": x, "b": x * 2}
    return sum(value * len(key) for key, value in d.items()) + sum(d.values()) + len(list(d)) + ("a" in d.keys())
# %% `d.keys() & other.keys()`
# message: call_method DictKeysVariable __and__
def f(x):
    return x * len({"a": 1, "b": 2}.keys() & {"a": 3}.keys())
# %% `{**a, "b": 2}`, `a | b`, `dict(a, b=2)`, `dict(zip(names, values))`
# message: DICT_UPDATE, DICT_MERGE
# message: call_function BuiltinVariable(dict)
def f(x):
    a = {"a": x}
    return sum({**a, "b": x}.values()) + (a | {"c": x})["c"] + dict(a, b=x)["b"] + dict(zip(["k"], [x]))["k"]
# %% `d.copy()`, `dict.fromkeys(names, 0)`, `d.popitem()`
# message: call_method ConstDictVariable() copy [] {}
# message: call_method BuiltinVariable(dict) fromkeys
def f(x):
    d = dict.fromkeys(["a", "b"], 2)
    return x * d.copy()["a"] + d.popitem()[1]
# %% `fromkeys` of a subclass of `dict`
# message: call_method UserDefinedClassVariable() fromkeys
class Table(dict):
    pass
def f(x):
    return x * Table.fromkeys(["a"], 2)["a"]
# %% a dict comprehension, a dict of dicts
# message: <dictcomp>
def f(x):
    return {n: {"x": x * n} for n in range(3)}[2]["x"]
# %% keys that are numbers, tuples, `None`, types, functions, dtypes
# message: call_method UserDefinedObjectVariable(dict) get [TorchVariable(<class 'torch.Tensor'>), ConstantVariable(NoneType)]
# message: ConstDictVariable key not supported
TABLE = {torch.Tensor: 2, (1, 2): 3, None: 4, torch.float32: 5, torch.sin: 6, len: 7}
def f(x):
    return x * TABLE.get(type(x)) + TABLE[1, 2] + TABLE[None] + TABLE[x.dtype] + TABLE[torch.sin] + TABLE[len]
# %% a member of an `Enum` as a key, in a set, compared, `.value`, `.name`, `Kind("cat")`
# message: Sets with EnumVariable NYI
# message: builtin: eq [GetAttrVariable, EnumVariable]
# message: enum as a key of a dict
# message: call_function UserDefinedClassVariable(Enum)
def f(x):
    table = {Kind.CAT: 2, Kind.DOG: 3}
    return x * table[Kind("cat")] + (Kind.CAT in {Kind.CAT}) + (Kind.CAT == Kind.DOG) + len(Kind.CAT.value + Kind.DOG.name)
# %% `for kind in Kind`, `len(Kind)`, `Kind["CAT"]`
# message: call_function BuiltinVariable(iter) [UserDefinedClassVariable()]
def f(x):
    for kind in Kind:
        x = x + len(kind.value)
    return x * len(Kind) + len(Kind["CAT"].name)
# %% `IntEnum`: arithmetic, as an index
# message: call_function UserDefinedClassVariable(IntEnum)
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2
def f(x):
    return x * (Level.LOW + Level.HIGH) + x[Level.LOW] + (Level.HIGH > 1)
# %% a module or an object of yours as a key
# message: call_method ConstDictVariable() __getitem__ [UserDefinedObjectVariable()]
class Key:
    pass
KEY = Key()
LAYER = torch.nn.Linear(4, 4)
SCALES = {KEY: 2, LAYER: 3}
def f(x):
    return x * SCALES[KEY] + SCALES[LAYER]
# %% a tensor as a key: `{x: 1}`
# message: call_id not supported with sourceless TensorVariable
def f(x):
    return {x: x + 1}[x]
# %% a dict with tensors that is passed in and changed: `batch["y"] = ...`
# message: mutated dict argument
args = ({"x": torch.ones(2)},)
def f(batch):
    batch["y"] = batch["x"] * 2
    return batch
# %% `OrderedDict`, `move_to_end`, `popitem(last=False)`
# message: call_function UserDefinedClassVariable(OrderedDict)
def f(x):
    d = OrderedDict(a=x, b=x * 2)
    d.move_to_end("a")
    return d.popitem(last=False)[1]
# %% `defaultdict(list)`, `defaultdict(lambda: 0)`
# message: call_function UserDefinedClassVariable(<class 'collections.defaultdict'>) [BuiltinVariable()] {}
def f(x):
    d, n = defaultdict(list), defaultdict(lambda: 0)
    d["a"].append(x)
    n["b"] += 2
    return d["a"][0] * n["b"]
# %% `Counter(...).most_common(1)`
# message: call_function UserDefinedClassVariable(Counter)
def f(x):
    return x * Counter("aab").most_common(1)[0][1]
# %% `Counter("aab")["a"]`
# message: call_function UserDefinedClassVariable(Counter)
def f(x):
    return x * Counter("aab")["a"]
# %% `ChainMap`, `UserDict`
# message: call_function UserDefinedClassVariable(ChainMap)
def f(x):
    return x * ChainMap({"a": 1}, {"b": 2})["b"] + UserDict(a=3)["a"]
# %% `deque(maxlen=2)`: `append`, `appendleft`, `popleft`, `extend`
# message: call_method UserDefinedObjectVariable(deque) append
# message: call_function UserDefinedClassVariable(deque)
def f(x):
    q = deque([x], maxlen=2)
    q.append(x * 2)
    q.appendleft(x * 3)
    q.extend([x])
    return q.popleft() + q[0] + len(q)
# %% `deque.rotate(1)`
# message: call_method DequeVariable() rotate
# do: Use `q.appendleft(q.pop())`.
def f(x):
    q = deque([1, 2, 3])
    q.rotate(1)
    return x * q[0]
# %% `set`: `add`, `discard`, `update`, `|`, `&`, `-`, `<=`, a set comprehension
# message: call_method SetVariable() add, Dynamo: BUILD_SET op is unsupported
# message: call_function BuiltinVariable(set)
# message: call_method UserDefinedObjectVariable(set) __contains__
def f(x):
    s = {1, 2} | {n for n in range(4)}
    s.add(7)
    s.discard(0)
    s.update(map(abs, [-9]))
    return x * len(s & {1, 7}) + len(s - {1}) + ({1} <= s) + len(s ^ {1})
# %% `frozenset`, `set.union(a, b)`, `issubset`
# message: call_function BuiltinVariable(frozenset)
def f(x):
    return x * len(frozenset([1, 2]).union([3])) + frozenset([1]).issubset({1, 2})
# %% a set of tensors: `{x, y}`
# message: call_method SetVariable() add [TensorVariable()]
def f(x):
    return x + len({x, x})
# %% `for n in {3, 1, 2}`: the order of a set
# message: iteration over a set
def f(x):
    for n in {3, 1, 2}:
        x = x * n
    return x
# %% a subclass of `dict`, such as `ModelOutput`, `EasyDict`, `BatchEncoding`
# message: call_function UserDefinedClassVariable(dict subclass)
# message: non-function or method super: <slot wrapper '__setattr__' of 'object' objects>
class AttrDict(dict):
    def __getattr__(self, name):
        return self[name]
    def __setattr__(self, name, value):
        self[name] = value
        super().__setattr__(name, value)
def f(x):
    d = AttrDict(a=x)
    d.b = x * 2
    return d.a + d["b"]
# %% `__getattr__ = dict.__getitem__` in a subclass of `dict`
# message: UserDefinedDictVariable __getattr__
# do: Write `def __getattr__(self, name): return self[name]`.
class Dotted(dict):
    __getattr__ = dict.__getitem__
def f(x):
    return Dotted(a=x).a + 1
# %% `types.MappingProxyType(d)`
# message: call_function UserDefinedClassVariable(mappingproxy)
VIEW = types.MappingProxyType({"a": 2})
def f(x):
    return x * VIEW["a"] + len(VIEW)
# %% `types.SimpleNamespace(a=1)`
# message: call_function UserDefinedClassVariable(SimpleNamespace)
# do: Use a dataclass or a dict, or make the namespace before the call.
def f(x):
    return x * types.SimpleNamespace(a=2).a
# %% `TypedDict`
# message: call_function UserDefinedClassVariable(TypedDict)
# do: A `TypedDict` with `total=False` breaks ([GB0257](causes/gb0257.md)): make a plain dict.
from typing import TypedDict
class Options(TypedDict):
    a: int
def f(x):
    return x * Options(a=2)["a"]
# %% `d[x.shape[0]]`, a key that is the size of a tensor
# message: call_method ConstDictVariable() __getitem__ [SymNodeVariable()]
def f(x):
    return x * {4: 2}[x.shape[0]]
# %% `d[x.item()]`, a key that is a tensor's value
# message: call_method ConstDictVariable() __getitem__ [SymNodeVariable()]
# do: Use a table as a tensor: `table.index_select(0, i)[0]`.
args = (torch.tensor(1),)
def f(i):
    return i + {1: 2}[i.item()]
# %% `d.__dict__` of a subclass of `dict`, `isinstance(d, Mapping)`
# message: dynamo + dict subclass + tensor instance check: NotImplementedError
# message: torch.compile prevents access to the __dict__ attribute
from collections.abc import Mapping
class Batch(dict):
    pass
def f(x):
    batch = Batch(a=x)
    batch.n = 2
    return batch["a"] * batch.__dict__["n"] + isinstance(batch, Mapping)
# %% a class of `collections.abc.MutableMapping`, and its attributes set inside
# message: setattr(MutableMappingVariable, ...) not supported
from collections.abc import MutableMapping
class Store(MutableMapping):
    def __init__(self):
        self.values_ = {}
    def __getitem__(self, key):
        return self.values_[key]
    def __setitem__(self, key, value):
        self.values_[key] = value
    def __delitem__(self, key):
        del self.values_[key]
    def __iter__(self):
        return iter(self.values_)
    def __len__(self):
        return len(self.values_)
args = (torch.ones(2), Store())
def f(x, store):
    store["a"] = x * 2
    store.last = 3
    return store["a"] + len(store) + store.last
# %% a loop over a set of tensors that is passed in
# message: iteration over a set of tensors
# do: Use a list, or a dict with names.
args = ({torch.ones(3), torch.zeros(2)},)
def f(tensors):
    return sum(tensor.sum() for tensor in tensors)
