"""Programs with breaks as people write them, and arguments for each."""

from __future__ import annotations

import logging
import random
import time
import warnings
from typing import Any

import torch
from torch import Tensor, nn

_log = logging.getLogger("breaking")
_history: list[float] = []


def two_branches(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x + 1
    else:
        x = x - 1
    return x


def chain(x: Tensor) -> Tensor:
    total = x.sum()
    if total > 3:
        y = x + 1
    elif total > 0:
        y = x * 2
    else:
        y = x - 3
    return y.relu()


def nested(x: Tensor) -> Tensor:
    if x.sum() > 0:
        if x.max() > 1:
            y = x + 1
        else:
            y = x + 2
    else:
        y = x - 1
    return y


def early_return(x: Tensor) -> Tensor:
    if x.norm() > 2:
        return x / x.norm()
    return x * 2


def two_conditions(x: Tensor) -> Tensor:
    if x.sum() > 0 and x.max() < 9:
        return x + 1
    return x - 1


def shortcut(x: Tensor, mask: Tensor) -> Tensor:
    if mask.any():
        x = x.masked_fill(mask, 0.0)
    return x * 2


def chosen_number(x: Tensor) -> Tensor:
    scale = 2.0 if x.mean() > 0 else 0.5
    return x * scale


def printing(x: Tensor) -> Tensor:
    y = x.sin()
    print("mean", y.mean())
    return y.cos()


def printing_twice(x: Tensor) -> Tensor:
    print("begins")
    y = x * 2
    print("ends with", y.shape)
    return y


def _print_and_add(x: Tensor) -> Tensor:
    print("inside", x.sum())
    return x + 1


def printing_inside(x: Tensor) -> Tensor:
    return _print_and_add(x) * 2


def warning(x: Tensor) -> Tensor:
    if x.sum() > -100:
        warnings.warn("it is large", stacklevel=2)
    return x + 1


def checking(x: Tensor) -> Tensor:
    if x.sum() > 100:
        raise ValueError("too large")
    return x + 1


def logging_value(x: Tensor) -> Tensor:
    _log.warning("sum %s", x.sum().item())
    return x + 1


def scaled_by_item(x: Tensor) -> Tensor:
    return x * x.sum().item()


def returned_item(x: Tensor) -> float:
    return x.sum().item()


def counted(x: Tensor) -> Tensor:
    return x + int((x > 0).sum())


def as_list(x: Tensor) -> Tensor:
    return x.sum() + sum((x > 0).tolist()[0])


def masked_mean(x: Tensor) -> Tensor:
    return x[x > 0].mean()


def masked_assignment(x: Tensor) -> Tensor:
    y = x.clone()
    y[x > 0] = y[x > 0] * 2
    return y


def number_of_nonzero(x: Tensor) -> Tensor:
    return x.sum() + (x > 0).nonzero().shape[0]


def marked(x: Tensor) -> Tensor:
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


def remembered(x: Tensor) -> Tensor:
    y = x * 2
    _history.append(y.sum().item())
    return y


def timed(x: Tensor) -> Tensor:
    start = time.perf_counter()
    y = x * 2
    return y + (time.perf_counter() - start) * 0


def drawn(x: Tensor) -> Tensor:
    return x * random.Random(3).random()


def until_large(x: Tensor) -> Tensor:
    while x.sum() < 10:
        x = x + 1
    return x


def first_large(x: Tensor) -> Tensor:
    for value in x.flatten():
        if value > 1:
            return value * 2
    return x.sum()


class Gate(nn.Module):
    """Runs a layer for large inputs only."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if x.mean() > 0:
            x = self.second(x)
        return x.relu()


class LayerDrop(nn.Module):
    """Leaves layers out at random while it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if self.training and torch.rand([]) < 0.5:
                continue
            x = layer(x)
        return x


class Experts(nn.Module):
    """Sends each row to the expert that scores highest."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(4, 2)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.router(x).argmax(-1)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().flatten()
            if rows.numel():
                result = result.index_add(0, rows, expert(x[rows]))
        return result


def _cases() -> dict[str, tuple[Any, ...]]:
    torch.manual_seed(0)
    x = torch.randn(4, 4)
    functions = [
        two_branches, chain, nested, early_return, two_conditions, chosen_number, printing, printing_twice, printing_inside, warning, checking,
        logging_value, scaled_by_item, returned_item, counted, as_list, masked_mean, masked_assignment,
        number_of_nonzero, marked, remembered, timed, drawn, until_large, first_large,
    ]  # fmt: skip
    cases: dict[str, tuple[Any, ...]] = {function.__name__: (function, x) for function in functions}
    cases["shortcut"] = (shortcut, x, x > 1)
    cases["two_branches with gradients"] = (two_branches, x.clone().requires_grad_())
    cases |= {type(module).__name__: (module, x) for module in (Gate(), LayerDrop(), Experts())}
    return cases


CASES = _cases()
