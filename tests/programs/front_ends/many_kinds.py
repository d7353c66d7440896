"""Functions of many kinds for the front ends, as people write them. Each run creates a new function."""

import random
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple

import numpy as np
import torch


class Case(NamedTuple):
    """A function, the input to capture it with, a second input, and its number of breaks with ``torch.compile``."""

    make: Callable[[], Any]
    first: tuple[Any, ...]
    second: tuple[Any, ...]
    breaks: int
    kwargs: dict[str, Any] = {}


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values)


CASES: dict[str, Case] = {}


def case(first: tuple[Any, ...], second: tuple[Any, ...], breaks: int = 0, **kwargs: Any) -> Callable[[Any], Any]:
    def add(make: Any) -> Any:
        CASES[make.__name__] = Case(make, first, second, breaks, kwargs)
        return make

    return add


ONES = (torch.ones(3),)
MINUS = (-torch.ones(3),)


@case((torch.asarray([1, 2, 3]),), (torch.asarray([-1, -2, -3]),), 1)
def data_dependent_branch() -> Any:
    def func(x: torch.Tensor):
        all_pos = torch.all(x >= 0)
        if all_pos:
            return x + 10
        else:
            return x - 10

    return func


@case(ONES, MINUS)
def plain() -> Any:
    def f(x):
        return torch.relu(x) + 1

    return f


@case(ONES, (torch.full((3,), 2.0),), 1)
def item() -> Any:
    def f(x):
        return x * x.sum().item()

    return f


@case((torch.tensor(3),), (torch.tensor(5),), 1)
def loop_over_a_value() -> Any:
    def f(n):
        total = torch.zeros(1)
        for _ in range(int(n)):
            total = total + 1
        return total

    return f


@case(ONES, (torch.ones(7),))
def loop_over_a_size() -> Any:
    def f(x):
        total = torch.zeros(1)
        for i in range(x.shape[0]):
            total = total + x[i]
        return total

    return f


@case((torch.ones(2),), (torch.ones(6),))
def branch_on_a_size() -> Any:
    def f(x):
        if x.shape[0] > 4:
            return x * 2
        return x + 1

    return f


@case(ONES, MINUS, 1)
def prints() -> Any:
    def f(x):
        y = x * 2
        print("mean", y.mean())
        return y + 1

    return f


@case(ONES, MINUS)
def dict_output() -> Any:
    def f(x):
        return {"double": x * 2, "half": x / 2}

    return f


@case(ONES, MINUS)
def list_output() -> Any:
    def f(x):
        return [x * 2, x / 2]

    return f


@case(ONES, MINUS)
def mutates_its_input() -> Any:
    def f(x):
        x.add_(1)
        return x * 2

    return f


@case(ONES, MINUS)
def try_and_except() -> Any:
    def f(x):
        try:
            return torch.relu(x)
        except ValueError:
            return x

    return f


@case(ONES, MINUS)
def calls_numpy() -> Any:
    def f(x):
        return torch.from_numpy(np.abs(x.numpy())) + 1

    return f


@case(ONES, MINUS)
def closure() -> Any:
    weight = torch.full((3,), 2.0)

    def f(x):
        return x * weight

    return f


@case(ONES, MINUS, scale=torch.tensor(2.0))
def keyword_only() -> Any:
    def f(x, *, scale):
        return x * scale

    return f


@case(ONES, MINUS)
def isinstance_check() -> Any:
    def f(x):
        if isinstance(x, torch.Tensor):
            return x + 1
        return x - 1

    return f


@case(ONES, MINUS, 1)
def early_return() -> Any:
    def f(x):
        if x.sum() < 0:
            return x
        return torch.sin(x)

    return f


@case((torch.tensor(1.0),), (torch.tensor(50.0),), 1)
def while_loop() -> Any:
    def f(x):
        while x < 100:
            x = x * 2
        return x

    return f


@case((torch.ones(64),), (torch.full((64,), 2.0),))
def dropout() -> Any:
    def f(x):
        return torch.nn.functional.dropout(x, 0.5)

    return f


@case((torch.ones(4, 3),), (-torch.ones(4, 3),))
def module_in_training() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))


class Counts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * self.calls


@case(ONES, MINUS)
def module_with_a_buffer() -> Any:
    return Counts()


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        if self.training:
            return x * self.weight
        return x

    def encode(self, x):
        return self.forward(x) + 1


@case(ONES, MINUS)
def module_with_a_training_flag() -> Any:
    return Scaled()


@case(ONES, MINUS)
def method_of_a_module() -> Any:
    return Scaled().encode


@case(ONES, (torch.ones(3, dtype=torch.float64),))
def branch_on_a_dtype() -> Any:
    def f(x):
        if x.dtype == torch.float64:
            return x * 2
        return x + 1

    return f


@case(ONES, MINUS)
def asserts_a_value() -> Any:
    def f(x):
        assert (x > 0).all()
        return x * 2

    return f


@case(ONES, MINUS, 1)
def generator() -> Any:
    def f(x):
        yield x + 1
        yield x * 2

    return f


@case(ONES, MINUS)
def torch_where() -> Any:
    def f(x):
        return torch.where(x > 0, x * 2, x - 1)

    return f


@case(ONES, MINUS)
def torch_cond() -> Any:
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: x + 10, lambda x: x - 10, (x,))

    return f


@case((tensor(1.0, 0.0, 2.0),), (tensor(0.0, 0.0, 2.0),), 1)
def nonzero() -> Any:
    def f(x):
        return x[x.nonzero()[:, 0]] * 2

    return f


@case((torch.ones(3), 2), (torch.ones(3), 3))
def python_number() -> Any:
    def f(x, n: int):
        return x * n

    return f


@case((torch.ones(3), "relu"), (torch.ones(3), "tanh"))
def string_flag() -> Any:
    def f(x, mode: str):
        if mode == "relu":
            return torch.relu(x)
        return torch.tanh(x)

    return f


@case((torch.ones(3), None), (torch.ones(3), torch.ones(3)))
def optional_argument() -> Any:
    def f(x, bias: torch.Tensor | None = None):
        if bias is None:
            return x * 2
        return x + bias

    return f


@dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor


@case((Pair(torch.ones(2), torch.ones(2)),), (Pair(torch.zeros(2), torch.ones(2)),))
def custom_class() -> Any:
    def f(pair):
        return pair.left + pair.right

    return f


@case(ONES, MINUS, 0 if torch.__version__ >= "2.14" else 1)
def python_random() -> Any:
    def f(x):
        return x * random.random()

    return f


@case(ONES, MINUS)
def list_argument_changed() -> Any:
    seen: list[int] = []

    def f(x):
        seen.append(1)
        return x * len(seen)

    return f


@case(ONES, MINUS)
def returns_a_number() -> Any:
    def f(x):
        return x * 2, x.dim()

    return f


@case((torch.ones(3), torch.ones(3)), (torch.ones(3), -torch.ones(3)), 1)
def compares_two_tensors() -> Any:
    def f(x, y):
        if x.sum() > y.sum():
            return x
        return x + y

    return f


@case(ONES, MINUS, 2)
def two_breaks() -> Any:
    def f(x):
        y = x + 1
        torch._dynamo.graph_break()
        y = y * 2
        torch._dynamo.graph_break()
        return y - 1

    return f


@case(ONES, MINUS, 1)
def checkpointed() -> Any:
    from torch.utils.checkpoint import checkpoint

    def f(x):
        y = checkpoint(torch.sin, x, use_reentrant=False)
        print(y.sum())
        return y * 2

    return f


@case(ONES, MINUS)
def remembers_its_first_input() -> Any:
    seen = {}

    def f(x):
        if "first" not in seen:
            seen["first"] = x * 2
        return x + seen["first"]

    return f
