"""Several breaks on one line, breaks that occur repeatedly, and nested wrappers with the same name."""

import torch


def compiled(function):
    return torch.compile(function, backend="eager", dynamic=False)


@compiled
def three(x):
    return [x[0].tolist(), x[1].tolist(), x[2].tolist()]


@compiled
def header(x):
    pairs = []
    for one, two in zip(x.tolist(), (x + 1).tolist()):
        pairs.append(one * two)
    return pairs


@compiled
def compiled_again(x):
    return x.sum().item() * x.mean().item()


def leaf(x):
    torch._dynamo.graph_break()
    return x + 1


@compiled
def callee_twice(x):
    return leaf(x) + leaf(x + 1)


def helper(x):
    x = x + 1
    torch._dynamo.graph_break(); x = x * 2; torch._dynamo.graph_break()
    return x - 1


@compiled
def called_in_a_loop(x):
    for _ in range(3):
        x = helper(x)
    return x


@compiled
def loop(x):
    for _ in range(2): x = x + 1; torch._dynamo.graph_break()
    return x


@compiled
def head(x):
    while x.sum() < 9:
        x = x + 1
    return x


def recursive(x, n):
    return x.sin() if n == 0 else recursive(torch._dynamo.graph_break() or x + 1, n - 1)


@compiled
def recursion(x):
    return recursive(x, 3)


@compiled
def long_test(x):
    return 1 if x.sum() > 0 and x.max() > 0 and x.min() >= 0 else 2


@compiled
def two_tests(x):
    return (x + 1 if x.sum() > 0 else x - 1) * (2 if x.max() > 5 else 3)


def outermost(function):
    def wrapper(*args, **kwargs):
        for each in args:
            print(each.shape)
        try:
            return function(*args, **kwargs)
        finally:
            print("left")
    return wrapper


def innermost(function):
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper


@compiled
@outermost
@innermost
def wrapped(x):
    x = x + 1
    torch._dynamo.graph_break()
    return x


x = torch.ones(3)
three(x)
header(x)
for length in range(2, 5):
    compiled_again(torch.ones(length))
callee_twice(x)
called_in_a_loop(x)
loop(x)
head(x)
recursion(x)
for sign in (1, -1):
    long_test(x * sign)
    two_tests(x * sign)
wrapped(x)
torch._dynamo.reset()
three(x)
