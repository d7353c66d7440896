"""Cases for each kind of finding that a reproducer shows; each case compiles and calls a function."""

import dataclasses
import functools

import torch
import torch.nn.functional as F

from . import helpers
from .helpers import failing_backend, wrong_backend


def helper_in_another_file():
    @torch.compile(backend="eager")
    def step(x, w, k=2):
        a = x @ w
        b = F.relu(a) + k
        c = helpers.norm(b)
        return c.sum(-1) * 2

    step(torch.randn(4, 8), torch.randn(8, 8))


def recompile_by_size():
    @torch.compile(backend="eager", dynamic=False)
    def scale(x, n):
        y = x * 2
        return y * n

    for size in (3, 4, 5):
        scale(torch.randn(size, 3), 2)


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.scale = 1

    def forward(self, x):
        return self.fc(x) * self.scale


def recompile_by_attribute():
    model = Scaled()
    compiled = torch.compile(model, backend="eager")
    for scale in (1, 2, 3):
        model.scale = scale
        compiled(torch.ones(2, 4))


def error_of_a_backend():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

    @torch.compile(backend=failing_backend)
    def total(x):
        y = model(x)
        return y.cumsum(0) + 1

    total(torch.ones(3, 4))


def wrong_result():
    @torch.compile(backend=wrong_backend)
    def mixed(x, w):
        a = torch.sin(x)
        b = a @ w
        return b.relu() + 1

    mixed(torch.randn(4, 8), torch.randn(8, 2))


def fullgraph():
    @torch.compile(backend="eager", fullgraph=True)
    def clipped(x, names):
        y = x + len(names)
        if y.sum() > 0:
            y = y * 2
        return y

    clipped(torch.ones(3), ["a", "b"])


def generator():
    @torch.compile(backend="eager")
    def shifted(x, count):
        for number in range(count):
            yield x + number

    list(shifted(torch.ones(3), 3))


def generator_of_a_helper():
    def chunks(x, count):
        for chunk in x.chunk(count):
            print(chunk.shape)
            yield chunk * 2

    @torch.compile(backend="eager")
    def total(x):
        result = x.sum()
        for chunk in chunks(x, 2):
            result = result + chunk.sum()
        return result

    total(torch.ones(4))


def twice(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args) * 2

    return inner


@dataclasses.dataclass
class Config:
    dim: int = 4
    name: str = "block"


class Block(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.fc = torch.nn.Linear(config.dim, config.dim)
        self.register_buffer("mask", torch.ones(3))

    def forward(self, x):
        x = self.fc(x) * self.config.dim
        torch._dynamo.graph_break()
        return x


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(Config()) for _ in range(2)])

    @twice
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def modules_without_gradients():
    net = torch.compile(Net().eval(), backend="eager")
    with torch.no_grad():
        net(torch.randn(4, 2).t())


@torch._dynamo.error_on_graph_break(True)
def strict(x):
    y = x + 1
    print("shown")
    return y


def error_in_a_scope():
    @torch.compile(backend="eager")
    def outer(x):
        return strict(x) + 1

    outer(torch.ones(3))


def wrong_sizes():
    @torch.compile(backend="eager")
    def product(x, w):
        y = x + 1
        return y @ w

    product(torch.ones(3, 4), torch.ones(3, 4))


def a_setting():
    @torch.compile(backend="eager", fullgraph=True)
    def first(x):
        count = int(x.sum())
        return torch.zeros(count) if count > 2 else x

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        first(torch.ones(3, dtype=torch.int64))


def writes_a_file():
    @torch.compile(backend="eager")
    def saved(x):
        with open("reproducer-test.txt", "w") as file:
            file.write("hi")
        return x + 1

    saved(torch.ones(3))


def locked():
    import threading

    lock = threading.Lock()

    @torch.compile(backend="eager")
    def guarded(x):
        print(lock)
        return x + 1

    guarded(torch.ones(3))


class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.layers(x))


def step_of_an_optimizer():
    model = Regression()
    scale = torch.ones(1, requires_grad=True)
    groups = [
        {"params": model.layers.parameters(), "lr": 0.1},
        {"params": [model.head.weight, model.head.bias, scale], "weight_decay": 0.01},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9)

    @torch.compile(backend="eager")
    def train(x):
        loss = (model(x) * scale).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    train(torch.randn(3, 4))
