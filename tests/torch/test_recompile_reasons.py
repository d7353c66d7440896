"""A report names all reasons for recompiling a function, each at its own line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from jupyter_graphbreak.api.watching import capture
from jupyter_graphbreak.views.words.recompilation import recompilations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.results import Report

SCALE = 1


@pytest.fixture(autouse=True)
def _discard_compiled_code() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def attend(x: Any, causal: bool, name: str) -> Any:
    y = x * 2
    if causal:
        y = y.tril()
    if name == "head1":
        y = y + 1
    return y.sum()


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mode = "a"

    def forward(self, x: Any, flag: bool) -> Any:
        if flag:
            x = x + SCALE
        return x * 2 if self.mode == "a" else x


def varied(report: Report) -> dict[str, tuple[str, list[str | None]]]:
    """Return the values that varied in the only recompiled function: how often, and the code of their lines."""
    (again,) = recompilations(report)
    return {guard.variation: (again.share(guard), [place.code for place in guard.locations]) for guard in again.guards}


def test_sizes_flags_and_names_that_vary_together_are_all_named() -> None:
    compiled = torch.compile(attend, backend="eager")
    with capture() as run:
        for index in range(10):
            compiled(torch.randn(4 + index, 4 + index), index % 2 == 0, f"head{index % 3 + 1}")
    report = run.report
    in_json = {reason.guard.split()[0] for recompile in report.recompiles for reason in recompile.reasons}
    assert in_json == {"name", "causal", "tensor"}
    stories = varied(report)
    total = len(report.recompiles)
    assert stories["dimension 0 of x: 4 -> 5 -> ... -> 10"] == (f"all {total} times", [])
    assert stories["causal: False -> True"][1] == ["if causal:"]
    assert stories["name: 'head2', 'head3', 'head1'"][1] == ['if name == "head1":']
    for guard, name in (("causal", "causal: False -> True"), ("name", "name: 'head2', 'head3', 'head1'")):
        count = sum(any(r.guard.startswith(guard) for r in recompile.reasons) for recompile in report.recompiles)
        assert stories[name][0] == f"{count} of {total} times"


def total_of_rows(x: Any) -> Any:
    total = x[:, 0]
    for column in range(1, x.shape[1]):
        total = total + x[:, column]
    return total


def total_of_items(batch: dict[str, Any]) -> Any:
    count = int(batch["x"].shape[1])
    return batch["x"].sum(1) / float(count)


def scale_pairs(x: Any) -> Any:
    if x.shape[1] == 4:
        x = x * 2
    return x + 1


@pytest.mark.parametrize(
    ("fn", "argument", "line", "advice"),
    [
        (total_of_rows, lambda x: x, "for column in range(1, x.shape[1]):", "the loop is unrolled"),
        (total_of_items, lambda x: {"x": x}, None, "mark_dynamic"),
        (scale_pairs, lambda x: x, "if x.shape[1] == 4:", "each side of the condition"),
    ],
)
def test_a_line_that_makes_a_constant_of_a_size_is_named(fn: Any, argument: Any, line: str | None, advice: str) -> None:
    compiled: Any = torch.compile(fn, backend="eager")
    with capture() as run:
        for size in (3, 4, 5):
            compiled(argument(torch.ones(2, size)))
    (recompilation,) = recompilations(run.report)
    (guard,) = recompilation.guards
    assert [place.code for place in guard.locations] == ([line] if line is not None else [])
    assert advice in guard.advice


def double(x: Any) -> Any:
    return x * 2


def test_a_line_of_code_compiled_before_a_reset_is_not_named() -> None:
    """After a reset, Dynamo uses its frame ids again."""
    with capture() as run:
        for fn, is_dynamic in ((total_of_rows, None), (double, False)):
            torch.compiler.reset()
            compiled: Any = torch.compile(fn, backend="eager", dynamic=is_dynamic)
            for size in range(3, 7):
                compiled(torch.ones(2, size))
        compiled(torch.ones(2, 7))
    before_reset, after_reset = run.report.recompiles[1], run.report.recompiles[-1]
    assert [reason.location is not None for reason in before_reset.reasons[:1]] == [True]
    assert [reason.location is not None for reason in after_reset.reasons[:1]] == [False]


def test_attributes_globals_and_closures_are_named_at_their_own_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Scaled()
    compiled = torch.compile(model, backend="eager", dynamic=False)
    x = torch.ones(3)
    with capture() as run:
        compiled(x, True)
        monkeypatch.setitem(globals(), "SCALE", 2)
        compiled(x, True)
        model.mode = "b"
        compiled(x, True)
        compiled(x, False)
    stories = varied(run.report)
    assert {name.partition(":")[0]: lines for name, (_, lines) in stories.items()} == {
        "flag": ["if flag:"],
        "self.mode": ['return x * 2 if self.mode == "a" else x'],
        "SCALE": ["x = x + SCALE"],
    }

    torch.compiler.reset()
    factor, name = 1, "a"

    def scale(x: Any) -> Any:
        y = x * factor
        return y + 1 if name == "a" else y

    scaled = torch.compile(scale, backend="eager", dynamic=False)
    with capture() as run:
        scaled(x)
        factor = 2
        scaled(x)
        name = "b"
        scaled(x)
    stories = varied(run.report)
    assert {name.partition(":")[0]: lines for name, (_, lines) in stories.items()} == {
        "factor": ["y = x * factor"],
        "name": ['return y + 1 if name == "a" else y'],
    }


def test_a_compilation_that_the_limit_refused_is_not_counted() -> None:
    with torch._dynamo.config.patch(recompile_limit=2):
        compiled = torch.compile(attend, backend="eager")
        with capture() as run:
            for name in "abcd":
                compiled(torch.ones(3, 3), True, name)
    (again,) = recompilations(run.report)
    assert again.times == "recompiled (0/1), then limit reached: runs eagerly"
    assert [guard.variation for guard in again.guards] == ["name: 'a' -> 'b' -> different value"]
