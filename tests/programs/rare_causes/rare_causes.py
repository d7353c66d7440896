"""Programs with a rare cause, by its id: one that raises it under ``fullgraph=True``, and one that follows the advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import Function

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


class Doubling(Function):
    """A product with two, which is its own gradient."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


class WithJvp(Doubling):
    """A function with a forward-mode derivative."""

    @staticmethod
    def jvp(_ctx: Any, tangent: Tensor) -> Tensor:
        return tangent * 2


class WithVjp(Function):
    """A function whose backward pass is called ``vjp``."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def vjp(_ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


class ByKeyword(Function):
    """A function with an argument that has to be named."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor, *, scale: int = 2) -> Tensor:
        return x * scale

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


class ByPosition(Function):
    """The same function without the star."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor, scale: int = 2) -> Tensor:
        return x * scale

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * 2, None


class Changing(Function):
    """A function that changes its argument and returns a different tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x + 1

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> Tensor:
        return grad


class Returning(Function):
    """A function that changes its argument and returns it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> Tensor:
        return grad


def _cond(true: Callable[..., Any], false: Callable[..., Any]) -> Callable[[Tensor], Any]:
    return lambda x: torch.cond(x.sum() > 0, true, false, (x,))


def _backward_of_an_intermediate_tensor(x: Tensor) -> Tensor:
    y = x * 2
    y.square().sum().backward(inputs=[y])
    return x


def _gradient_of_an_intermediate_tensor(x: Tensor) -> Tensor:
    y = x * 2
    return torch.autograd.grad(y.square().sum(), y)[0]


PROGRAMS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Tensor], Any]]] = {
    "GB0144": (WithJvp.apply, Doubling.apply),
    "GB0145": (WithVjp.apply, Doubling.apply),
    "GB0310": (
        lambda x: torch.cond([1], torch.sin, torch.cos, (x,)),  # type: ignore[arg-type] # this is the mistake
        lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)),
    ),
    "GB0311": (
        lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, x),  # type: ignore[arg-type] # this is the mistake
        lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)),
    ),
    "GB0313": (_cond(lambda x: (x + 1,), lambda x: (x + 2, x + 3)), _cond(lambda x: (x + 1,), lambda x: (x + 2,))),
    "GB0314": (
        _cond(lambda _: 1.5, lambda _: 2.5),
        _cond(lambda _: torch.tensor(1.5), lambda _: torch.tensor(2.5)),
    ),
    "GB0350": (_cond(lambda _: None, lambda _: None), _cond(lambda x: x + 1, lambda x: x + 2)),
    "GB2464": (lambda x: Changing.apply(x * 1), lambda x: Returning.apply(x * 1)),
    "GB4372": (lambda x: ByKeyword.apply(x, scale=3), lambda x: ByPosition.apply(x, 3)),
    "GB7054": (_backward_of_an_intermediate_tensor, _gradient_of_an_intermediate_tensor),
}
