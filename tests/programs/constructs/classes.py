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


# %% an object of your class, made inside: `Config(3).n`
# message: call_function UserDefinedClassVariable() [] {}
def f(x):
    return x * Base(3).n + Base().twice(x)
# %% an object that is passed in, and its attributes set: `state.n += 1`
# message: generic_setattr, setattr(UserDefinedObjectVariable)
args = (torch.ones(2), Base(1))
def f(x, state):
    state.n += 1
    state.last = x * 2
    return x * state.n, state.last
# %% `super().__init__(...)`, `super().method(x)`, `super(Child, self)`
# message: super() nn.Module.__init__, non-function or method super
# message: call_function BuiltinVariable(super)
class Child(Base):
    def __init__(self, n):
        super().__init__(n * 2)
        super(Child, self).__init__(n)
    def twice(self, x):
        return super().twice(x) + self.n
def f(x):
    return Child(3).twice(x)
# %% `__setattr__` of your class; `super().__setattr__(name, value)`, `object.__setattr__(self, name, value)`
# message: non-function or method super: <slot wrapper '__setattr__' of 'object' objects>
# message: call_method UserDefinedObjectVariable(...) __setattr__
# message: Dynamo is currently unable to handle user defined __setattr__ functions
class Frozen:
    def __init__(self, n):
        object.__setattr__(self, "n", n)
    def __setattr__(self, name, value):
        super().__setattr__(name, value * 2)
def f(x):
    frozen = Frozen(2)
    frozen.m = 3
    return x * frozen.n + frozen.m
# %% `self.__dict__["n"] = 2`, `self.__dict__.update(...)`
# message: call_method GetAttrVariable(UserDefinedObjectVariable, __dict__) __setitem__
# message: call_method GetAttrVariable(UserDefinedObjectVariable, __dict__) update
class Open:
    def __init__(self, **values):
        self.__dict__["n"] = 2
        self.__dict__.update(values)
def f(x):
    return x * Open(m=3).m + Open().n
# %% `@property` with a setter, `@staticmethod`, `@classmethod`
# message: UserDefinedObjectVariable property
# message: call_method UserDefinedClassVariable() classmethod
class Scaled:
    factor = 2
    @property
    def half(self):
        return self.factor / 2
    @half.setter
    def half(self, value):
        self.factor = value * 2
    @staticmethod
    def shift(x):
        return x + 1
    @classmethod
    def make(cls):
        return cls()
def f(x):
    scaled = Scaled.make()
    scaled.half = 3
    return scaled.shift(x) * scaled.half
# %% a descriptor of your own: `__get__`, `__set__`, `__set_name__`
# message: UserDefinedObjectVariable custom descriptor __get__
class Positive:
    def __set_name__(self, owner, name):
        self.key = "_" + name
    def __get__(self, instance, owner=None):
        return getattr(instance, self.key)
    def __set__(self, instance, value):
        setattr(instance, self.key, abs(value))
class Width:
    size = Positive()
def f(x):
    width = Width()
    width.size = -3
    return x * width.size
# %% `__getattr__` of your class: a proxy, a wrapper
# message: UserDefinedObject with non-function __getattr__
class Proxy:
    def __init__(self, inner):
        self.inner = inner
    def __getattr__(self, name):
        return getattr(self.inner, name)
args = (torch.ones(2), Proxy(Base(3)))
def f(x, proxy):
    return x * proxy.n * proxy.scale
# %% `__getattribute__` of your class
# message: UserDefined with non-function __getattribute__
# do: Use `__getattr__`, which is called for missing names only.
class Loud:
    n = 2
    def __getattribute__(self, name):
        return object.__getattribute__(self, name)
args = (torch.ones(2), Loud())
def f(x, loud):
    return x * loud.n
# %% `__call__`, `__len__`, `__getitem__`, `__iter__`, `__contains__`, `__bool__`
# message: call_function UserDefinedObjectVariable
# message: UserDefinedObjectVariable __iter__
class Bag:
    def __init__(self, items):
        self.items = items
    def __call__(self, x):
        return x + 1
    def __len__(self):
        return len(self.items)
    def __getitem__(self, i):
        return self.items[i]
    def __iter__(self):
        return iter(self.items)
    def __contains__(self, item):
        return item in self.items
    def __bool__(self):
        return True
def f(x):
    bag = Bag([1, 2])
    return bag(x) * len(bag) * bag[1] + sum(bag) + (2 in bag) + (1 if bag else 5)
# %% `__add__`, `__radd__`, `__iadd__`, `__lt__`, `__eq__`
# message: call_function BuiltinVariable(add) [UserDefinedObjectVariable()]
# message: comparison UserDefinedObjectVariable
class Vector:
    def __init__(self, x):
        self.x = x
    def __add__(self, other):
        return Vector(self.x + getattr(other, "x", other))
    __radd__ = __add__
    def __iadd__(self, other):
        self.x = self.x + other
        return self
    def __lt__(self, other):
        return True
    def __eq__(self, other):
        return isinstance(other, Vector)
def f(x):
    v = Vector(x) + Vector(x) + 1
    v += 2
    return (1 + v).x + (v < v) + (v == Vector(x))
# %% `a @ b` of your class: `__matmul__`
# message: call_function BuiltinVariable(matmul) [UserDefinedObjectVariable()]
# do: Call a method: `a.matmul(b)`.
class Matrix:
    def __init__(self, x):
        self.x = x
    def __matmul__(self, other):
        return self.x * other.x
def f(x):
    return Matrix(x) @ Matrix(x)
# %% `-object` of your class: `__neg__`
# message: call_function BuiltinVariable(neg) [UserDefinedObjectVariable()]
class Signed:
    def __init__(self, x):
        self.x = x
    def __neg__(self):
        return Signed(-self.x)
def f(x):
    return (-Signed(x)).x
# %% `__hash__` of your class: the object as a key
# message: call_method ConstDictVariable() __getitem__ [UserDefinedObjectVariable()]
class Hashed:
    def __eq__(self, other):
        return isinstance(other, Hashed)
    def __hash__(self):
        return 7
def f(x):
    return x * {Hashed(): 2}[Hashed()]
# %% `__enter__`, `__exit__` of your class
# message: missing: SETUP_WITH, BEFORE_WITH
# message: with UserDefinedObjectVariable
class Section:
    def __enter__(self):
        return 2
    def __exit__(self, *error):
        return None
def f(x):
    with Section() as n:
        return x * n
# %% `__new__`, a singleton
# message: call_function UserDefinedClassVariable() custom __new__
class Single:
    instance = None
    def __new__(cls):
        if cls.instance is None:
            cls.instance = object.__new__(cls)
        return cls.instance
    n = 3
def f(x):
    return x * Single().n
# %% `__slots__`
# message: slots, member_descriptor
class Slotted:
    __slots__ = ("n",)
    def __init__(self, n):
        self.n = n
def f(x):
    slotted = Slotted(2)
    slotted.n = 3
    return x * slotted.n
# %% `Box[int](2)` of a class with `Generic[T]`
# message: call_function UserDefinedClassVariable(Generic)
# message: call_method TypingVariable() __getitem__
# do: Use `Box(2)`: the types in brackets change nothing at run time.
T = TypeVar("T")
class Box(Generic[T]):
    def __init__(self, value):
        self.value = value
def f(x):
    return Box[int](2).value * x
# %% `Box(2)` of a class with `Generic[T]`
# message: call_function UserDefinedClassVariable(Generic)
T = TypeVar("T")
class Box(Generic[T]):
    def __init__(self, value):
        self.value = value
def f(x):
    return Box(3).value * x
# %% a metaclass of your own
# message: call_function UserDefinedClassVariable() custom metaclass
class Registry(type):
    names = []
    def __len__(cls):
        return 3
class Registered(metaclass=Registry):
    n = 2
def f(x):
    return x * Registered().n + len(Registered)
# %% an abstract class (`abc.ABC`), `Protocol`, `isinstance(x, Protocol)`
# message: _abc._abc_instancecheck
class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...
class Square(Shape):
    def area(self):
        return 4
@runtime_checkable
class HasArea(Protocol):
    def area(self): ...
def f(x):
    return x * Square().area() + isinstance(Square(), Shape) + isinstance(Square(), HasArea)
# %% several base classes, a mixin, `cls.__mro__`
# message: super() multiple inheritance
class Mixin:
    def twice(self, x):
        return super().twice(x) + 1
class Mixed(Mixin, Base):
    pass
def f(x):
    return Mixed().twice(x) + len(Mixed.__mro__)
# %% `Count.calls += 1`: an attribute of a class
# message: setattr(UserDefinedClassVariable)
class Count:
    calls = 0
def f(x):
    Count.calls += 1
    return x * Count.calls
# %% `self.__class__.__name__`, `type(self).scale`, `Base.__module__`
# message: UserDefinedObjectVariable __class__
def f(x):
    base = Base()
    return x * len(base.__class__.__name__) * type(base).scale + len(Base.__module__ or "")
# %% a class defined inside the compiled function
# message: missing: LOAD_BUILD_CLASS, call_function BuiltinVariable(__build_class__)
# do: Move the class out of the function.
def f(x):
    class Local:
        n = 2
    return x * Local.n
# %% `type("Name", (), {...})`: a class made at run time
# message: call_function BuiltinVariable(type)
def f(x):
    return x * type("Made", (), {"n": 2}).n
# %% `del self.cache`
# message: DELETE_ATTR
def f(x):
    base = Base(2)
    base.cache = x
    del base.cache
    return x + hasattr(base, "cache")
# %% `argparse.Namespace(scale=2)`, a settings object
# message: UserDefinedObjectVariable(Namespace)
import argparse
def f(x):
    return x * argparse.Namespace(scale=2).scale
# %% `for item in object` of a class with `__getitem__` only, `zip(object, values)`
# message: call_function BuiltinVariable(zip) [ListVariable(), UserDefinedObjectVariable(KJTList)] {}
# message: call_function BuiltinVariable(iter) [UserDefinedObjectVariable()]
class Items:
    def __getitem__(self, i):
        if i > 1:
            raise IndexError
        return i + 1
class Pairs:
    def __iter__(self):
        return iter([1, 2])
def f(x):
    for item in Items():
        x = x + item
    return sum(a * b for a, b in zip(Pairs(), [x, x]))
# %% `__str__`, `__repr__` of your class: `str(object)`, `repr(object)`
# message: call_function BuiltinVariable(str) [UserDefinedObjectVariable()]
class Named:
    def __str__(self):
        return "named"
    def __repr__(self):
        return "repr"
def f(x):
    return x + len(str(Named())) + len(repr(Named()))
# %% `f"{object}"` of your class
# message: FORMAT_VALUE UserDefinedObjectVariable
# do: Use `f"{str(object)}"`.
class Named:
    def __str__(self):
        return "named"
def f(x):
    return x + len(f"{Named()}")
# %% methods bound to variables: `g = object.method`, `Base.twice(object, x)`, `object.method.__func__`
# message: __self__ mismatch for bound method
def f(x):
    base = Base()
    g = base.twice
    return g(x) + Base.twice(base, x) + (g.__self__ is base)
