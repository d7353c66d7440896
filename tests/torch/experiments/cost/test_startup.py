"""A second start uses the caches, and the report says why some graphs are not in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import jupyter_graphbreak
from jupyter_graphbreak.report.cost import GraphStartup, Startup


class Square(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x.mm(x)

    @staticmethod
    def backward(_: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0].mm(grads[0])


def multiply(x: torch.Tensor) -> torch.Tensor:
    return x.mm(x)  # a library's function: there is no code to compile


def square_product(x: torch.Tensor) -> torch.Tensor:
    y = x.mm(x)
    square: torch.Tensor = Square.apply(y)  # type: ignore[no-untyped-call]
    return square


def second_start(
    *calls: tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor], backend: str = "inductor"
) -> Startup | None:
    torch._dynamo.reset()
    with jupyter_graphbreak.capture(entries=True) as run:
        for fn, x in calls:
            torch.compile(fn, backend=backend)(x)
    return run.measure().startup


def test_a_hit_and_a_bypass_with_its_reason_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    x = torch.rand(8, 8)
    startup = second_start((multiply, x), (square_product, x.clone().requires_grad_()))
    assert startup is not None
    assert startup.first_s > 0
    assert startup.second_s > 0
    hit, bypass = startup.graphs
    assert (hit.graph, hit.cache, hit.reason, hit.location) == ("A", "hit", None, None)
    assert (bypass.graph, bypass.cache) == ("B", "bypass")
    assert bypass.reason is not None
    assert "autograd_function_apply" in bypass.reason
    assert bypass.location is not None
    assert bypass.location.line == square_product.__code__.co_firstlineno + 2
    assert all(0 <= graph.tracing_s + graph.backend_s <= startup.second_s for graph in startup.graphs)
    (change,) = startup.changes
    assert change.graphs == ["B"]
    assert change.code == "torch._functorch.config.autograd_cache_allow_custom_autograd_functions = True"
    assert not torch._functorch.config.autograd_cache_allow_custom_autograd_functions


@pytest.mark.skipif(
    torch.__version__ < "2.12" or torch.__version__ >= "2.14",
    reason="among the functions that AOTAutograd's cache accepts, autocast is missing only in torch 2.12 and 2.13",
)
@pytest.mark.exhaustive
def test_autocast_in_a_graph_is_named_with_its_line_and_can_be_marked_as_cacheable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def multiply_under_autocast(x: torch.Tensor) -> torch.Tensor:
        y = x.mm(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return y.mm(x)

    marked_functions = dict(torch._inductor.config.unsafe_marked_cacheable_functions)
    startup = second_start((multiply_under_autocast, torch.rand(8, 8)))
    assert startup is not None
    (graph,) = startup.graphs
    assert graph.cache == "bypass"
    assert graph.location is not None
    assert graph.location.line == multiply_under_autocast.__code__.co_firstlineno + 2
    (change,) = startup.changes
    assert change.code == (
        "torch._inductor.config.unsafe_marked_cacheable_functions.update("
        '{"torch.amp.autocast_mode._enter_autocast": "1", "torch.amp.autocast_mode._exit_autocast": "1"})'
    )
    assert torch._inductor.config.unsafe_marked_cacheable_functions == marked_functions


def test_a_graph_that_the_first_start_did_not_save_is_a_miss_and_no_cache_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    x = torch.rand(8, 8, requires_grad=True)

    def graphs_of(startup: Startup | None) -> list[GraphStartup]:
        return startup.graphs if startup is not None else []

    (miss,) = graphs_of(second_start((multiply, x)))
    assert miss.cache == "miss"
    with torch._inductor.config.patch(fx_graph_cache=False):
        (off,) = graphs_of(second_start((multiply, x)))
    assert (off.cache, off.reason) == ("off", None)


def test_a_backend_without_caches_has_no_second_start() -> None:
    assert second_start((multiply, torch.rand(8, 8)), backend="aot_eager") is None
