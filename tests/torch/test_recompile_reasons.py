"""A report names all reasons for recompiling a function, each with its own line."""

from __future__ import annotations

import contextlib
import copy
import enum
import importlib
from typing import TYPE_CHECKING, Any

import pytest
import torch

from jupyter_graphbreak.api.watching import capture
from jupyter_graphbreak.views.words.recompilation import recompilations
from jupyter_graphbreak.views.words.verdict import verdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


class ModuleWithMode(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mode = "a"

    def forward(self, x: Any, flag: bool) -> Any:
        if flag:
            x = x + SCALE
        return x * 2 if self.mode == "a" else x


def varied_values(report: Report) -> dict[str, tuple[str, list[str | None]]]:
    """Return how often each value varied in the only recompiled function, and the code of its lines."""
    (recompilation,) = recompilations(report)
    return {
        guard.variation: (recompilation.share_text(guard), [location.code for location in guard.locations])
        for guard in recompilation.guards
    }


def test_sizes_flags_and_names_that_vary_together_are_all_named() -> None:
    compiled = torch.compile(attend, backend="eager")
    with capture() as run:
        for index in range(10):
            compiled(torch.randn(4 + index, 4 + index), index % 2 == 0, f"head{index % 3 + 1}")
    report = run.report
    guarded_names = {reason.guard.split()[0] for recompile in report.recompiles for reason in recompile.reasons}
    assert guarded_names == {"name", "causal", "tensor"}
    variations = varied_values(report)
    total = len(report.recompiles)
    assert variations["dimension 0 of x: 4 -> 5 -> ... -> 10"] == (f"all {total} times", [])
    assert variations["causal: False -> True"][1] == ["if causal:"]
    assert variations["name: 'head2', 'head3', 'head1'"][1] == ['if name == "head1":']
    for guard, name in (("causal", "causal: False -> True"), ("name", "name: 'head2', 'head3', 'head1'")):
        count = sum(any(r.guard.startswith(guard) for r in recompile.reasons) for recompile in report.recompiles)
        assert variations[name][0] == f"{count} of {total} times"


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


def total_while(x: Any) -> Any:
    column, total = 0, x[:, 0]
    while column < x.shape[1]:
        total = total + x[:, column]
        column += 1
    return total


def total_in_comprehension(x: Any) -> Any:
    return sum([x[:, column] for column in range(x.shape[1])])


def total_of_helper(x: Any) -> Any:
    return total_of_rows(x) + 1


@pytest.mark.parametrize(
    ("fn", "make_argument", "line", "advice"),
    [
        (total_of_rows, lambda x: x, "for column in range(1, x.shape[1]):", "the loop is unrolled"),
        (total_while, lambda x: x, "while column < x.shape[1]:", "the loop is unrolled"),
        (
            total_in_comprehension,
            lambda x: x,
            "return sum([x[:, column] for column in range(x.shape[1])])",
            "the loop is unrolled",
        ),
        (total_of_helper, lambda x: x, "for column in range(1, x.shape[1]):", "the loop is unrolled"),
        (total_of_items, lambda x: {"x": x}, None, "mark_dynamic"),
        (scale_pairs, lambda x: x, "if x.shape[1] == 4:", "each branch of the condition"),
    ],
)
def test_a_line_that_turns_a_size_into_a_constant_is_named(
    fn: Any, make_argument: Any, line: str | None, advice: str
) -> None:
    compiled: Any = torch.compile(fn, backend="eager")
    with capture() as run:
        for size in (3, 4, 5):
            compiled(make_argument(torch.ones(2, size)))
    (recompilation,) = recompilations(run.report)
    (guard,) = recompilation.guards
    assert [location.code for location in guard.locations] == ([line] if line is not None else [])
    assert advice in guard.advice


def scale_pairs_and_total(x: Any) -> Any:
    if x.shape[1] == 4:
        x = x * 2
    total = x[:, 0]
    for column in range(x.shape[1]):
        total = total + x[:, column]
    return total


def test_each_version_of_a_function_names_its_own_line() -> None:
    compiled: Any = torch.compile(scale_pairs_and_total, backend="eager")
    with capture() as run:
        for size in (3, 5, 4, 6):
            compiled(torch.ones(2, size))
    condition, loop = "if x.shape[1] == 4:", "for column in range(x.shape[1]):"
    named_lines = [
        [reason.location and reason.location.code for reason in recompile.reasons]
        for recompile in run.report.recompiles
    ]
    # In each list, the newest version comes first. The oldest version, whose sizes are all constant, has a guard on the
    # size without any such line, so the report names a line of the version that the recompile created.
    assert named_lines == [[loop], [loop, condition], [condition, loop, loop]]
    ((guard,),) = [recompilation.guards for recompilation in recompilations(run.report)]
    assert [location.code for location in guard.locations] == [loop, condition]
    assert "the loop is unrolled" in guard.advice


def test_a_loop_over_pieces_says_that_it_is_unrolled() -> None:
    def total_of_pieces(x: Any) -> Any:
        total = 0
        for piece in x.split(2):
            total = total + piece.sum()
        return total

    compiled: Any = torch.compile(total_of_pieces, backend="eager", dynamic=True)
    with capture() as run:
        for size in (4, 6, 8):
            compiled(torch.ones(size))
    guards = [guard for recompilation in recompilations(run.report) for guard in recompilation.guards]
    assert [location.code for location in guards[0].locations] == ["for piece in x.split(2):"]
    assert "the loop is unrolled" in guards[0].advice


def test_lines_of_functions_in_other_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo traces the functions into their caller, and its trace has only numbers for their files."""
    lines = ["def steps(x):", "    for row in range(x.shape[0]):", "        x = x + row", "    return x", ""]
    lines += ["def double_long(x):", "    return x * 2 if x.shape[0] > 4 else x", ""]
    (tmp_path / "functions_of_sizes.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    functions = importlib.import_module("functions_of_sizes")
    for name, line in (("steps", lines[1]), ("double_long", lines[6])):
        torch.compiler.reset()
        function = getattr(functions, name)

        def caller(x: Any) -> Any:
            return function(x) + 1  # noqa: B023 - called in this iteration only

        compiled: Any = torch.compile(caller, backend="eager", dynamic=True)
        with capture() as run:
            for size in (3, 6):
                compiled(torch.ones(size))
        (reason,) = run.report.recompiles[-1].reasons
        sources = {source.id: source.name for source in run.report.sources}
        assert reason.location is not None
        assert (sources[reason.location.source], reason.location.code) == ("functions_of_sizes.py", line.strip())


def test_a_range_names_the_line_that_sets_its_bound() -> None:
    """PyTorch names two lines for a range, but none sets its lower bound: sizes 0 and 1 always compile separately."""

    def double_long(x: Any) -> Any:
        x = x + 1
        return x * 2 if x.shape[0] > 4 else x

    compiled: Any = torch.compile(double_long, backend="eager", dynamic=True)
    with capture() as run:
        for size in (3, 6):
            compiled(torch.ones(size))
    ((reason,),) = [recompile.reasons for recompile in run.report.recompiles]
    assert reason.guard == "2 <= x.size()[0] <= 4"
    assert reason.location is not None
    assert reason.location.code == "return x * 2 if x.shape[0] > 4 else x"


def double(x: Any) -> Any:
    return x * 2


def test_a_line_of_code_compiled_before_a_reset_is_not_named() -> None:
    """After a reset, Dynamo reuses its frame ids."""
    with capture() as run:
        for fn, is_dynamic in ((total_of_rows, None), (double, False)):
            torch.compiler.reset()
            compiled: Any = torch.compile(fn, backend="eager", dynamic=is_dynamic)
            for size in range(3, 7):
                compiled(torch.ones(2, size))
        compiled(torch.ones(2, 7))
    recompile_before_reset, recompile_after_reset = run.report.recompiles[1], run.report.recompiles[-1]
    assert [reason.location is not None for reason in recompile_before_reset.reasons[:1]] == [True]
    assert [reason.location is not None for reason in recompile_after_reset.reasons[:1]] == [False]


def test_recompiles_after_a_reset_have_their_own_reasons() -> None:
    def add_if_flag(x: Any, flag: Any) -> Any:
        return x + 1 if flag else x

    calls = ((attend, (True, "a"), (False, "a")), (add_if_flag, (True,), (False,)))
    with capture() as run:
        for fn, *arguments in calls:
            torch.compiler.reset()
            compiled: Any = torch.compile(fn, backend="eager")
            for other_arguments in arguments:
                compiled(torch.ones(2, 2), *other_arguments)
    reasons = {
        recompile.function: [reason.guard for reason in recompile.reasons] for recompile in run.report.recompiles
    }
    assert {name: [guard.split()[0] for guard in guards] for name, guards in reasons.items()} == {
        "attend": ["causal"],
        "add_if_flag": ["flag"],
    }


def test_attributes_globals_and_closures_are_named_with_their_own_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModuleWithMode()
    compiled = torch.compile(model, backend="eager", dynamic=False)
    x = torch.ones(3)
    with capture() as run:
        compiled(x, True)
        monkeypatch.setitem(globals(), "SCALE", 2)
        compiled(x, True)
        model.mode = "b"
        compiled(x, True)
        compiled(x, False)
    variations = varied_values(run.report)
    assert {name.partition(":")[0]: lines for name, (_, lines) in variations.items()} == {
        "flag": ["if flag:"],
        "self.mode": ['return x * 2 if self.mode == "a" else x'],
        "SCALE": ["x = x + SCALE"],
    }

    torch.compiler.reset()
    factor, name = 1, "a"

    def scale(x: Any) -> Any:
        y = x * factor
        return y + 1 if name == "a" else y

    compiled_scale = torch.compile(scale, backend="eager", dynamic=False)
    with capture() as run:
        compiled_scale(x)
        factor = 2
        compiled_scale(x)
        name = "b"
        compiled_scale(x)
    variations = varied_values(run.report)
    assert {name.partition(":")[0]: lines for name, (_, lines) in variations.items()} == {
        "factor": ["y = x * factor"],
        "name": ['return y + 1 if name == "a" else y'],
    }


class Projection(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size, 2))

    def forward(self, x: Any) -> Any:
        y = x @ self.weight
        torch._dynamo.graph_break()
        return y @ self.weight.T


class DoubledLayer(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(size, 2)

    def forward(self, x: Any) -> Any:
        return 2 * self.layer(x)


def linear_layer(size: int) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(size, 2))


@pytest.mark.parametrize("make_model", [Projection, linear_layer])
def test_each_of_several_modules_is_compiled_once_as_expected(make_model: Any) -> None:
    models: list[Any] = [torch.compile(make_model(size), backend="eager") for size in (3, 4, 5)]
    with capture() as run:
        for _ in range(2):
            for size, model in enumerate(models, start=3):
                model(torch.ones(2, size))
    for recompilation in recompilations(run.report):
        assert recompilation.is_caused_by_instances
        assert recompilation.times_text == "recompiled twice, each time for a different instance"
        assert [guard.advice.partition(":")[0] for guard in recompilation.guards][:1] == [
            "nothing, if the instances differ on purpose"
        ]
    if make_model is linear_layer:
        assert verdict(run.report).text == "No breaks. Sequential was compiled 3 times, once for each instance."


def test_modules_that_share_graphs_are_not_the_cause() -> None:
    models: list[Any] = [torch.compile(DoubledLayer(2), backend="eager") for _ in range(4)]
    with capture() as run:
        x = torch.ones(3, 2)
        for model in models:
            x = model(x)
    (recompilation,) = recompilations(run.report)
    assert not recompilation.is_caused_by_instances
    assert recompilation.times_text.startswith("recompiled (")
    expected = "No breaks, but DoubledLayer.forward was compiled twice: requires_grad of x varied."
    assert verdict(run.report).text == expected


def test_an_object_that_varies_is_named() -> None:
    compiled = torch.compile(lambda x, kind: x + 1 if kind is Kind.ONE else x * 2, backend="eager")
    with capture() as run:
        for kind in Kind:
            compiled(torch.ones(3), kind)
    assert verdict(run.report).text.endswith("was compiled twice: kind varied.")


def test_a_marked_size_that_the_code_makes_a_constant_has_advice() -> None:
    compiled = torch.compile(lambda x: x.reshape(4, 2) + 1, backend="eager")
    x = torch.ones(4, 2)
    torch._dynamo.mark_dynamic(x, 0)
    with capture() as run, contextlib.suppress(Exception):
        compiled(x)
    text = run.report.to_text()
    assert "Size marked as dynamic, but constant in the code" in text
    assert "maybe_mark_dynamic" in text


class Kind(enum.Enum):
    ONE = 1
    TWO = 2


def test_the_forward_of_a_compiled_module_is_an_entry_whose_argument_can_be_marked() -> None:
    model: Any = torch.compile(DoubledLayer(4), backend="eager")
    with capture() as run:
        for size in (2, 3):
            model(torch.ones(size, 4))
    assert {frame.role for frame in run.report.frames} == {"entry"}
    (recompilation,) = recompilations(run.report)
    assert "`torch._dynamo.mark_dynamic(x, 0)`" in recompilation.guards[0].advice


@pytest.mark.parametrize(("sizes", "is_expected"), [((7, 1), True), ((1, 7), True), ((7, 1, 9), False)])
def test_a_size_of_one_has_a_graph_of_its_own(sizes: tuple[int, ...], is_expected: bool) -> None:
    model: Any = torch.compile(DoubledLayer(4), backend="eager", dynamic=None)
    with capture() as run:
        for size in sizes:
            model(torch.ones(size, 4))
    (recompilation,) = recompilations(run.report)
    assert ("this is expected" in recompilation.guards[0].advice) is is_expected


def test_each_module_is_compared_with_its_own_compiled_code_only() -> None:
    student = torch.nn.Sequential(torch.nn.Linear(4, 4))
    teacher = copy.deepcopy(student).eval()
    compiled_models: list[Any] = [torch.compile(model, backend="eager") for model in (teacher, student)]
    with capture() as run:
        for size in (2, 3):
            for model in compiled_models:
                with torch.set_grad_enabled(model is compiled_models[1]):
                    model(torch.ones(size, size, 4))
    (recompilation,) = recompilations(run.report)
    assert [(guard.variation, guard.recompile_count) for guard in recompilation.guards[:2]] == [
        ("a different instance", 1),
        ("dimension 0 of the first argument: 2 -> 3", 2),
    ]
    assert recompilation.guards[1].advice.endswith("; `x` stands for the first argument")
    assert not recompilation.is_caused_by_instances
    assert "compiled 4 times for 2 instances: dimension 0 of the first argument" in verdict(run.report).text


def test_instances_that_reach_the_limit_get_advice_about_it() -> None:
    with capture() as run, torch._dynamo.config.patch(recompile_limit=2):
        for size in (3, 4, 5):
            torch.compile(DoubledLayer(size), backend="eager")(torch.ones(2, size))
    (recompilation,) = recompilations(run.report)
    assert recompilation.limit_hit
    assert recompilation.guards[0].variation == "a different instance"
    assert "recompile_limit` above the number of instances" in recompilation.guards[0].advice
    assert "compiled twice for 2 instances and now runs eagerly" in verdict(run.report).text


def test_one_module_that_is_compiled_for_two_sizes_is_one_instance() -> None:
    relu: Any = torch.nn.Sequential(torch.nn.ReLU())
    model: Any = torch.compile(relu, backend="eager", dynamic=False)
    with capture() as run:
        for size in (3, 4):
            model(torch.ones(size))
    (recompilation,) = recompilations(run.report)
    assert not recompilation.is_caused_by_instances
    assert "`torch._dynamo.mark_dynamic" in recompilation.guards[0].advice


def test_a_compilation_that_the_limit_refused_is_not_counted() -> None:
    with torch._dynamo.config.patch(recompile_limit=2):
        compiled = torch.compile(attend, backend="eager")
        with capture() as run:
            for name in "abcd":
                compiled(torch.ones(3, 3), True, name)
    (recompilation,) = recompilations(run.report)
    assert recompilation.times_text == "recompiled (0/1), then reached the limit and runs eagerly"
    assert [guard.variation for guard in recompilation.guards] == ["name: 'a' -> 'b' -> different value"]
