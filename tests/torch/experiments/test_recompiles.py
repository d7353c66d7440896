"""Remedies that prevent recompiles are tried on all recorded calls, and on calls that the run never made."""

from __future__ import annotations

import dataclasses
import enum
import gc
import runpy
import textwrap
import time
import types
import weakref
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._dynamo.utils import clear_compilation_metrics, get_compilation_metrics

import jupyter_graphbreak
from jupyter_graphbreak.experiments.recompiles.trying import CallTrials, SpecializingLine
from jupyter_graphbreak.experiments.remedies.change import apply_edits
from jupyter_graphbreak.experiments.trial.call_specs import key_of
from jupyter_graphbreak.report.remedies import WORKING
from jupyter_graphbreak.views.words.verdict import verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jupyter_graphbreak.report.remedies import Remedy
    from jupyter_graphbreak.report.schema import Report


@pytest.fixture(autouse=True)
def _reset_dynamo() -> None:
    torch.compiler.reset()


def try_on_calls(fn: Any, calls: Iterable[Callable[[Any], object]], **options: Any) -> Report:
    """Make calls to a compiled function, and return a report with remedies for its recompiles."""
    compiled = torch.compile(fn, backend="eager", **options)
    with jupyter_graphbreak.capture(entries=True) as run:
        for call in calls:
            call(compiled)
    return run.try_remedies(seconds=600)


def pass_value(make_call: Callable[..., object], value: Any) -> Callable[[Any], object]:
    """Return a function that calls a compiled function with a value."""
    return lambda compiled: make_call(compiled, value)


def best_remedy(report: Report) -> Remedy:
    """Return the first remedy for recompiles that works."""
    return next(remedy for remedy in report.remedies or [] if remedy.recompiles and remedy.verdict in WORKING)


def compilation_counts(remedy: Remedy) -> tuple[int | None, int | None, int | None]:
    """Return the numbers of compilations before and after a remedy, and for calls that the run never made."""
    evidence = remedy.evidence
    assert evidence is not None
    unseen = evidence.unseen.compilations if evidence.unseen is not None else None
    return evidence.compilations_before, evidence.compilations_after, unseen


def best_remedy_with_code_before_calls(report: Report) -> Remedy:
    """Return the first remedy for recompiles that works and runs code before each call."""
    marks = (remedy for remedy in report.remedies or [] if remedy.recompiles and remedy.kind == "mark")
    return next(remedy for remedy in marks if remedy.verdict in WORKING)


def decision_for_reader(report: Report) -> str:
    """Return the decision about recompiles that is left to the user."""
    return next(remedy.person or "" for remedy in report.remedies or [] if remedy.recompiles and remedy.person)


def count_compiled_frames(function: Callable[[], object]) -> int:
    """Return how many frames Dynamo compiles in a call. In its metrics, those that it refuses have no name."""
    clear_compilation_metrics()
    function()
    return sum(metrics.co_name is not None for metrics in get_compilation_metrics())


def test_a_mark_prevents_recompiles_for_sizes_including_those_that_the_run_never_used() -> None:
    def scale(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).sum(0) * 2

    report = try_on_calls(scale, [pass_value(lambda c, n: c(torch.randn(n, 3)), n) for n in (4, 6, 9, 6, 13)])
    assert best_remedy(report).edits  # a lambda has no line for a mark, so dynamic=True comes first
    remedy = next(remedy for remedy in report.remedies or [] if remedy.kind == "mark")
    assert (remedy.kind, remedy.code, remedy.verdict) == ("mark", "torch._dynamo.mark_dynamic(x, 0)", "works")
    assert remedy.recompiles == [recompile.id for recompile in report.recompiles] == ["r1"]
    assert compilation_counts(remedy) == (2, 1, 0)

    torch.compiler.reset()
    compiled = torch.compile(scale, backend="eager")

    def call(n: int) -> None:
        x = torch.randn(n, 3)
        exec(remedy.code or "", {"torch": torch, "x": x})
        compiled(x)

    assert [count_compiled_frames(partial(call, n)) for n in (4, 6, 9, 13, 50, 7)] == [1, 0, 0, 0, 0, 0]


def test_the_edits_of_a_mark_insert_it_before_the_call_in_its_loop(tmp_path: Any) -> None:
    text = textwrap.dedent(
        """
        import torch
        def scale(x):
            return x * 2
        compiled = torch.compile(scale, backend="eager")
        for n in (4, 6, 9): compiled(torch.ones(n, 3))
        """
    )
    path = tmp_path / "program.py"
    path.write_text(text)
    with jupyter_graphbreak.capture(entries=True) as run:
        exec(compile(text, str(path), "exec"), {"__name__": "__main__"})
    remedy = best_remedy(run.try_remedies(seconds=600))
    (edit,) = remedy.edits
    assert edit.new.split("\n") == [
        "for n in (4, 6, 9):",
        "    x = torch.ones(n, 3)",
        "    torch._dynamo.mark_dynamic(x, 0)",
        "    compiled(x)",
    ]
    changed_text = text.replace(edit.old, edit.new)
    torch.compiler.reset()
    with jupyter_graphbreak.capture() as second_run:
        exec(compile(changed_text, str(tmp_path / "changed.py"), "exec"), {"__name__": "__main__"})
    assert not second_run.report.recompiles


def test_a_global_of_a_different_file_is_assigned_by_the_name_of_its_module(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "library_of_a_scale.py").write_text(
        "import torch\nSCALE = 1\n@torch.compile(backend='eager')\ndef step(x):\n    return x.sin() * SCALE\n"
    )
    text = textwrap.dedent(
        """
        import torch
        import library_of_a_scale as lib
        from library_of_a_scale import SCALE, step
        def train(values):
            for value in values:
                lib.SCALE = value
                step(torch.ones(3))
        """
    )
    path = tmp_path / "program.py"
    path.write_text(text)
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, str(path), "exec"), scope)
    with jupyter_graphbreak.capture(entries=True) as run:
        scope["train"]((1, 2, 3, 1))  # the imported SCALE equals lib.SCALE in the first and last calls only
    remedy = best_remedy(run.try_remedies(seconds=600))
    (edit,) = remedy.edits
    assert edit.new.strip() == "lib.SCALE = torch.as_tensor(lib.SCALE, dtype=torch.int64)"
    exec(compile(apply_edits(text, remedy.edits), str(path), "exec"), scope)
    torch.compiler.reset()
    assert count_compiled_frames(lambda: scope["train"]((1, 2, 3, 9))) == 1


def test_a_change_that_can_be_written_is_preferred_to_a_mark_without_a_line(tmp_path: Any) -> None:
    text = textwrap.dedent(
        """
        import torch
        @torch.compile(backend="eager")
        def scores(x, scale=None):
            return x.cumsum(0) if scale is None else x * scale
        out = [scores(torch.ones(n, 2)) for n in (4, 6, 9)]
        """
    )
    path = tmp_path / "program.py"
    path.write_text(text)
    with jupyter_graphbreak.capture(entries=True) as run:
        exec(compile(text, str(path), "exec"), {"__name__": "__main__"})
    report = run.try_remedies(seconds=600)
    assert [edit.new for edit in best_remedy(report).edits] == ['@torch.compile(backend="eager", dynamic=True)']
    assert compilation_counts(best_remedy(report)) == (2, 1, 0)
    assert any(remedy.kind == "mark" and remedy.verdict == "works" for remedy in report.remedies or [])


@pytest.mark.exhaustive
def test_a_default_that_a_call_leaves_out_is_left_out_again() -> None:
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.RMSprop([weight], lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))

    def train(compiled: Any) -> None:
        for _ in range(4):
            weight.grad = torch.ones(3)
            compiled()
            scheduler.step()

    expected_count = count_compiled_frames(lambda: train(partial(torch.compile, backend="eager")(optimizer.step)))
    torch.compiler.reset()
    report = try_on_calls(optimizer.step, [train])
    assert compilation_counts(best_remedy(report))[0] == expected_count


def test_a_mark_that_pytorch_refuses_for_a_size_in_the_code_is_not_proven() -> None:
    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] == 3 else x.sum(0)

    report = try_on_calls(scale, [pass_value(lambda c, n: c(torch.randn(n, 2)), n) for n in (4, 6, 9)])
    verdicts = {remedy.kind: (remedy.verdict, remedy.reason) for remedy in report.remedies or [] if remedy.recompiles}
    assert verdicts["edit"] == ("works", None)
    assert verdicts["mark"] == ("works on what ran", "PyTorch rejects the mark, on size 3 of x")


def test_sizes_one_and_zero_need_an_unbacked_mark() -> None:
    report = try_on_calls(lambda x: x * 2, [pass_value(lambda c, n: c(torch.ones(n, 3)), n) for n in (5, 1, 8)])
    assert "mark_unbacked(x, 0)" in (best_remedy(report).code or "")
    assert compilation_counts(best_remedy(report))[1:] == (1, 0)


def test_a_mark_that_only_prevents_recompiles_for_new_sizes_is_not_proven() -> None:
    def reduce_rows(x: torch.Tensor) -> torch.Tensor:
        return x.squeeze(0) if x.shape[0] == 1 else x.mean(0)

    report = try_on_calls(reduce_rows, [pass_value(lambda c, n: c(torch.ones(n, 3)), n) for n in (4, 1)])
    (mark,) = [remedy for remedy in report.remedies or [] if "mark_dynamic" in (remedy.code or "")]
    assert compilation_counts(mark) == (2, 2, 0)
    assert (mark.verdict, mark.reason) == ("works on what ran", "the recompiles of this run stay")


def test_numbers_that_are_arguments_need_dynamic_true() -> None:
    report = try_on_calls(lambda x, k: x * k, [pass_value(lambda c, k: c(torch.ones(3), k), k) for k in (2, 3, 5)])
    assert best_remedy(report).family == "dynamic"
    assert compilation_counts(best_remedy(report)) == (2, 1, 0)


SCALE = 1


def test_a_global_int_is_compiled_for_each_value_until_it_is_a_tensor() -> None:
    def times_scale(x: torch.Tensor) -> torch.Tensor:
        return x * SCALE

    def call(compiled: Any, value: int) -> None:
        global SCALE  # noqa: PLW0603
        SCALE = value
        compiled(torch.ones(3))

    report = try_on_calls(times_scale, [pass_value(call, value) for value in (2, 3, 4, 5)])
    assert best_remedy(report).code == "SCALE = torch.as_tensor(SCALE, dtype=torch.int64)"
    assert compilation_counts(best_remedy(report)) == (4, 1, 0)
    assert SCALE == 5


class CallCounter(torch.nn.Module):
    """A module that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the argument times the number of calls."""
        self.calls += 1
        return x * self.calls


@pytest.mark.exhaustive
def test_a_counter_of_a_module_becomes_a_tensor_and_the_module_stays_as_it_was() -> None:
    counter = CallCounter()
    report = try_on_calls(counter, [lambda c: c(torch.ones(3))] * 6)
    remedy = next(remedy for remedy in report.remedies or [] if ".calls = torch.as_tensor(" in (remedy.code or ""))
    assert compilation_counts(remedy) == (6, 1, 0)
    (difference,) = remedy.differences
    assert difference.endswith(".calls` as a tensor, but the original leaves a number")
    assert best_remedy(report).verdict == "works"
    assert counter.calls == 6
    assert type(counter.calls) is int


class TimedModule(torch.nn.Module):
    """A module that stores the time of its last call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.at = 0, 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the argument times the number of calls."""
        self.at = time.perf_counter()
        self.calls += 1
        return x * self.calls


@pytest.mark.exhaustive
def test_a_time_that_a_module_stores_is_not_a_difference() -> None:
    report = try_on_calls(TimedModule(), [lambda c: c(torch.ones(3))] * 3)
    remedy = next(remedy for remedy in report.remedies or [] if ".calls = torch.as_tensor(" in (remedy.code or ""))
    assert remedy.verdict in WORKING


class Scale:
    n = 0


@pytest.mark.parametrize(("after", "is_read"), [("scale.n = 0", False), ("kept.append({2: 'two'}.get(scale.n))", True)])
def test_the_report_shows_code_that_would_get_a_tensor_instead_of_a_number(
    tmp_path: Any, after: str, is_read: bool
) -> None:
    text = textwrap.dedent(
        f"""
        scale, kept = Scale(), []
        @torch.compile(backend="eager")
        def step(x):
            return x * scale.n
        for n in (2, 3, 4):
            scale.n = n
            step(torch.ones(3))
            {after}
        """
    )
    path = tmp_path / "program.py"
    path.write_text(text)
    with jupyter_graphbreak.capture(entries=True) as run:
        exec(compile(text, str(path), "exec"), {"torch": torch, "Scale": Scale, "__name__": "__main__"})
    report = run.try_remedies(seconds=600)
    remedy = next(remedy for remedy in report.remedies or [] if remedy.title == "Make `scale.n` a tensor")
    expected = "line 9 of program.py also reads `scale.n`, which is then a tensor" if is_read else None
    assert (remedy.verdict, remedy.reason) == ("works but differs", expected)


@pytest.mark.exhaustive
def test_a_number_that_becomes_a_tensor_may_promote_other_dtypes(tmp_path: Any) -> None:
    text = textwrap.dedent(
        """
        table = [0.5, 0.25, 0.75]
        @torch.compile(backend="eager")
        def step(x, i):
            return x * table[i]
        for i in range(3):
            step(torch.ones(3).half(), i)
        """
    )
    path = tmp_path / "program.py"
    path.write_text(text)
    with jupyter_graphbreak.capture(entries=True) as run:
        exec(compile(text, str(path), "exec"), {"torch": torch, "__name__": "__main__"})
    report = run.try_remedies(seconds=600)
    reasons = {remedy.title: remedy.reason for remedy in report.remedies or []}
    title = "Compute `table[i]` before the call, and pass a tensor of `torch.float64`"
    assert reasons[title] == "it returns torch.float64 instead of torch.float32, on int64 tensors"
    assert best_remedy(report).title == "Compute `table[i]` before the call; compile with `dynamic=True`"


def test_a_tensor_as_a_bound_of_a_slice_breaks_the_graph(tmp_path: Any) -> None:
    text = textwrap.dedent(
        """
        @torch.compile(backend="eager")
        def crop(x, box):
            a, b = box
            return x[a:b].sum() / (b - a)
        for box in ((1, 4), (2, 6), (0, 3), (3, 8)):
            crop(torch.arange(9.0), box)
        """
    )
    path = tmp_path / "program.py"
    path.write_text(text)
    with jupyter_graphbreak.capture(entries=True) as run:
        exec(compile(text, str(path), "exec"), {"torch": torch, "__name__": "__main__"})
    report = run.try_remedies(seconds=600)
    remedies = [remedy for remedy in report.remedies or [] if "tensor" in remedy.title]
    assert {remedy.verdict for remedy in remedies} == {"another break"}
    reasons = {remedy.reason for remedy in remedies}
    # torch 2.9 does not log a break before the first operation: it counts a function that is not compiled.
    assert reasons - {"then Dynamo compiles less"} == {"then a graph breaks"}
    assert len(reasons) == 1 or torch.__version__ < "2.10"


@pytest.mark.parametrize(
    ("dtype", "verdict", "suffix"),
    [("float32", "works on what ran", "float64 tensors"), ("float64", "another result", "the first call")],
)
def test_the_quotient_of_ints_that_become_tensors_is_less_precise_than_a_double(
    tmp_path: Any, dtype: str, verdict: str, suffix: str
) -> None:
    text = textwrap.dedent(
        f"""
        @torch.compile(backend="eager")
        def scale(x, part):
            count, total = part
            return x.reshape(3) * (count / (total + 7))
        for part in ((1, 7), (2, 7), (3, 11), (5, 13)):
            scale(torch.ones(3, dtype=torch.{dtype}), part)
        """
    )
    path = tmp_path / "program.py"
    path.write_text(text)
    with jupyter_graphbreak.capture(entries=True) as run:
        exec(compile(text, str(path), "exec"), {"torch": torch, "__name__": "__main__"})
    report = run.try_remedies(seconds=600)
    remedy = next(remedy for remedy in report.remedies or [] if remedy.title == "Make `part` one tensor")
    assert remedy.verdict == verdict
    assert (remedy.reason or "").endswith(f"computes a double in single precision, on {suffix}")


def test_an_index_next_to_slices_is_replaced_by_select(tmp_path: Any) -> None:
    text = textwrap.dedent(
        """
        @torch.compile(backend="eager")
        def fill(cache, x, position):
            total = cache[:, :position].sum()
            cache[:, position] = x
            return cache, total
        cache = torch.zeros(2, 9)
        for position in range(1, 6):
            fill(cache, torch.ones(2), position)
        """
    )
    path = tmp_path / "program.py"
    path.write_text(text)
    with jupyter_graphbreak.capture(entries=True) as run:
        exec(compile(text, str(path), "exec"), {"torch": torch, "__name__": "__main__"})
    report = run.try_remedies(seconds=600)
    remedy = best_remedy(report)
    assert (remedy.title, remedy.verdict) == ("Index by `position` with `select()`", "works")
    assert "cache.select(1, position)[...] = x" in remedy.edits[0].new
    assert compilation_counts(remedy) == (5, 2, 0)
    assert not any(remedy.person for remedy in report.remedies or [])


@pytest.mark.exhaustive
def test_a_counter_of_a_module_compiled_in_place_becomes_a_tensor() -> None:
    module = CallCounter()
    module.compile(backend="eager")
    with jupyter_graphbreak.capture(entries=True) as run:
        for _ in range(4):
            module(torch.ones(3))
    report = run.try_remedies(seconds=600)
    assert "tensor" in {remedy.family for remedy in report.remedies or [] if remedy.verdict in WORKING}


class NumberedLayer(torch.nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.mul(self.linear(x), self.number)


@pytest.mark.exhaustive
def test_layers_that_differ_in_a_number_are_compiled_once(tmp_path: Any) -> None:
    text = textwrap.dedent(
        """
        layers = [NumberedLayer(number) for number in range(5)]
        for layer in layers:
            layer.compile(backend="eager")
        def run_layers(x):
            for layer in layers:
                x = layer(x)
        run_layers(torch.ones(2, 3, requires_grad=True))
        """
    )
    path = tmp_path / "program.py"
    path.write_text(text)
    names = {"torch": torch, "NumberedLayer": NumberedLayer, "__name__": "__main__"}
    with jupyter_graphbreak.capture(entries=True) as run:
        exec(compile(text, str(path), "exec"), dict(names))
    remedy = best_remedy_with_code_before_calls(run.try_remedies(seconds=600))
    assert compilation_counts(remedy) == (5, 1, 0)
    (edit,) = remedy.edits
    assert edit.new.strip() == "layer.number = torch.as_tensor(layer.number, dtype=torch.int64)"
    lines = text.split("\n")
    lines[edit.first_line - 1 : edit.last_line] = edit.new.split("\n")
    torch.compiler.reset()
    assert count_compiled_frames(lambda: exec("\n".join(lines), dict(names))) == 1


@pytest.mark.exhaustive
def test_adamw_under_onecyclelr_needs_tensors_for_the_learning_rate_and_the_betas() -> None:
    def update_and_call() -> tuple[Callable[[], None], Callable[[Any], None]]:
        linear = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(linear.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=30)

        def update() -> None:
            optimizer.step()

        def call(compiled: Any) -> None:
            linear(torch.ones(2, 4)).square().sum().backward()
            compiled()
            optimizer.zero_grad()
            scheduler.step()

        return update, call

    update, call = update_and_call()
    compiled = torch.compile(update, backend="eager")
    count = count_compiled_frames(lambda: [call(compiled) for _ in range(20)])
    torch.compiler.reset()
    update, call = update_and_call()
    remedy = best_remedy_with_code_before_calls(try_on_calls(update, [call] * 20))
    assert "group['lr'] = torch.as_tensor(" in (remedy.code or "")
    assert "group['betas'] = tuple(" in (remedy.code or "")
    assert compilation_counts(remedy) == (count, count - 1, 0)
    assert remedy.verdict == "works but differs"


@pytest.mark.exhaustive
def test_the_step_of_an_optimizer_that_a_scheduler_has_wrapped_is_repeated_on_copies() -> None:
    linear = torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adam(linear.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)

    def call(compiled: Any) -> None:
        linear(torch.ones(2, 4)).square().sum().backward()
        compiled()
        optimizer.zero_grad()
        scheduler.step()

    remedy = best_remedy_with_code_before_calls(try_on_calls(optimizer.step, [call] * 6))
    assert remedy.code == (
        "for group in optimizer.param_groups:\n    group['lr'] = torch.as_tensor(group['lr'], dtype=torch.float64)"
    )
    before, after, unseen = compilation_counts(remedy)
    assert before is not None
    assert (after, unseen) == (before - 1, 0)


@pytest.mark.exhaustive
def test_a_break_remedy_that_leaves_nothing_to_compile_does_not_work(tmp_path: Any) -> None:
    text = textwrap.dedent(
        """
        import torch
        linear = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(linear.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        @torch.compile(backend="eager")
        def step():
            optimizer.step()
        for _ in range(6):
            linear(torch.ones(2, 4)).sum().backward()
            step()
            scheduler.step()
        """
    )
    path = tmp_path / "program.py"
    path.write_text(text)
    with jupyter_graphbreak.capture(entries=True) as run:
        exec(compile(text, str(path), "exec"), {"__name__": "__main__"})
    report = run.try_remedies(seconds=600)
    changes = [remedy for remedy in report.remedies or [] if remedy.breaks and remedy.kind != "person"]
    assert {(change.verdict, change.reason) for change in changes} == {("fails", "then nothing is compiled")}


@pytest.mark.exhaustive
def test_a_call_that_looks_like_an_earlier_one_but_was_compiled_is_also_repeated() -> None:
    linear = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    def step() -> None:
        optimizer.step()

    frame_counts = []

    def call(compiled: Any) -> None:
        linear(torch.ones(2, 4)).square().sum().backward()
        frame_counts.append(count_compiled_frames(compiled))
        optimizer.zero_grad()
        scheduler.step()

    remedy = best_remedy(try_on_calls(step, [call] * 8))
    assert frame_counts[1:4] == [1, 1, 0]  # the second call finds the state that the first has created
    assert compilation_counts(remedy) == (sum(frame_counts), sum(frame_counts) - 1, 0)


@pytest.mark.exhaustive
def test_the_limit_also_applies_to_library_code_that_trials_do_not_copy() -> None:
    linear = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1, momentum=0.5)
    frame_counts = []

    def step() -> None:
        optimizer.step()

    def call(compiled: Any, foreach: bool, nesterov: bool, maximize: bool, decay: float) -> None:
        group = optimizer.param_groups[0]
        group |= {"foreach": foreach, "nesterov": nesterov, "maximize": maximize, "weight_decay": decay}
        linear(torch.ones(2, 2)).sum().backward()
        frame_counts.append(count_compiled_frames(compiled))
        optimizer.zero_grad()

    flags = [(a, b, c, d) for a in (False, True) for b in (False, True) for c in (False, True) for d in (0, 0.1)]
    report = try_on_calls(step, [pass_value(lambda c, args: call(c, *args), args) for args in flags])
    counts_in_trials = {
        remedy.evidence.compilations_before
        for remedy in report.remedies or []
        if remedy.recompiles and remedy.evidence is not None
    }
    assert counts_in_trials == {sum(frame_counts)}


def test_a_global_with_the_name_of_an_attribute_is_not_state() -> None:
    namespace: dict[str, Any] = {"torch": torch}
    source = """
    class Keys(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.k = torch.nn.Linear(2, 2)
        def forward(self, x):
            return self.k(x)
    """
    exec(textwrap.dedent(source), namespace)

    def call(compiled: Any, n: int) -> None:
        namespace["k"] = torch.ones(n, 2)
        compiled(namespace["k"])

    report = try_on_calls(namespace["Keys"](), [pass_value(call, n) for n in (3, 4, 5)])
    assert best_remedy(report).code == "torch._dynamo.mark_dynamic(x, 0)"


def test_a_flag_selects_two_graphs_and_no_remedy_claims_to_prevent_that() -> None:
    def forward(x: torch.Tensor, train: bool) -> torch.Tensor:
        return x * 2 if train else x + 1

    report = try_on_calls(
        forward, [pass_value(lambda c, train: c(torch.ones(3), train), train) for train in (True, False, True)]
    )
    assert "each has its own graph, as expected" in decision_for_reader(report)
    assert verdict(report).text.startswith("No breaks. ")
    assert verdict(report).text.endswith("forward was compiled twice, as expected: train varied.")
    assert not [remedy for remedy in report.remedies or [] if remedy.verdict in WORKING]


def test_a_list_of_ints_becomes_one_tensor_and_stays_as_it_was() -> None:
    def scale(x: torch.Tensor, weights: list[int]) -> torch.Tensor:
        return torch.stack([x * weight for weight in weights]).sum()

    lists = [[1, 2, 3], [2, 2, 5], [3, 1, 4]]
    report = try_on_calls(scale, [pass_value(lambda c, w: c(torch.ones(4), w), weights) for weights in lists])
    assert best_remedy(report).title == "Compile with `dynamic=True`"  # the other remedy's code has no place
    (remedy,) = [remedy for remedy in report.remedies or [] if remedy.title == "Make `weights` one tensor"]
    assert remedy.verdict == "works"
    assert remedy.code == "weights = torch.as_tensor(weights, dtype=torch.int64)"
    assert compilation_counts(remedy) == (3, 1, 0)
    assert lists == [[1, 2, 3], [2, 2, 5], [3, 1, 4]]


def test_a_list_of_ints_of_any_length_becomes_one_tensor_with_a_mark(tmp_path: Any) -> None:
    path = tmp_path / "picked.py"
    text = textwrap.dedent("""
        import torch

        @torch.compile(backend="eager")
        def pick(x, index):
            return x[index].sum()

        def calls(lists):
            x = torch.arange(6.0)
            for indices in lists:
                pick(x, indices)

        calls([[0, 2], [1, 2, 3], [0, 1, 2, 3], [3, 1]])
    """)
    path.write_text(text)
    with jupyter_graphbreak.capture(entries=True) as run:
        runpy.run_path(str(path))
    remedy = best_remedy(run.try_remedies(seconds=600))
    assert remedy.title == "Make `index` one tensor, marked as dynamic"
    assert compilation_counts(remedy) == (4, 1, 0)
    changed_text = apply_edits(text, remedy.edits)
    assert "        index_tensor = torch.as_tensor(indices, dtype=torch.int64)\n" in changed_text
    path.write_text(changed_text)
    torch.compiler.reset()
    namespace: dict[str, Any] = {}
    assert count_compiled_frames(lambda: namespace.update(runpy.run_path(str(path)))) == 1
    assert count_compiled_frames(lambda: namespace["calls"]([[1, 2, 3, 4, 5]])) == 0


def test_training_and_evaluation_are_counted_together_and_two_graphs_are_right() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.drop = torch.nn.Dropout(0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.drop(torch.relu(self.linear(x)))
            return y

    model = Net()

    def train(compiled: Any) -> None:
        model.train()
        for length in (4, 6, 8):
            compiled(torch.randn(length, 4)).sum().backward()

    def evaluate(compiled: Any) -> None:
        model.eval()
        with torch.no_grad():
            for length in (5, 7):
                compiled(torch.randn(length, 4))

    count = count_compiled_frames(lambda: [step(torch.compile(model, backend="eager")) for step in (train, evaluate)])
    torch.compiler.reset()
    report = try_on_calls(model, [train, evaluate])
    working_remedies = [remedy for remedy in report.remedies or [] if remedy.verdict in WORKING]
    assert [remedy.title for remedy in working_remedies] == ["Mark dimension 0 of `x` as dynamic"]
    assert compilation_counts(working_remedies[0]) == (count, 2, 0) == (3, 2, 0)
    assert decision_for_reader(report).startswith("Training or evaluation selects between two branches")


def test_a_number_that_a_new_function_keeps_in_each_call_is_left_to_the_reader() -> None:
    # Unless this setting is off, older releases do not guard on the defaults of parameters: every call uses the first
    # number, without a recompile.
    with torch._dynamo.config.patch(skip_guards_on_constant_func_defaults=False):
        report = try_on_calls(
            lambda x, callback: callback(torch.relu(x)),
            [pass_value(lambda c, k: c(torch.ones(3), lambda y, k=k: y * k), k) for k in (2, 3, 4)],
        )
    step = decision_for_reader(report)
    assert "`callback` is a new function on every call, and a number that it keeps varies" in step
    (remedy,) = [remedy for remedy in report.remedies or [] if remedy.recompiles]
    assert "calls cannot be created again" in (remedy.reason or "")


@dataclasses.dataclass
class EncoderOutput(OrderedDict[str, torch.Tensor]):
    """A dict whose items are also attributes, like transformers' ``ModelOutput``."""

    states: torch.Tensor

    def __post_init__(self) -> None:
        self["states"] = self.states

    def __setitem__(self, name: str, value: torch.Tensor) -> None:
        super().__setitem__(name, value)
        object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.states,)


def test_calls_with_a_dict_whose_items_are_attributes_are_repeated() -> None:
    report = try_on_calls(
        lambda output: output.states.sin() + output["states"],
        [pass_value(lambda c, n: c(EncoderOutput(torch.ones(n, 3))), n) for n in (4, 5, 6)],
    )
    assert compilation_counts(best_remedy(report)) == (2, 1, 0)


def blend(alpha: float, x: torch.Tensor, *, shift: float = 0.0) -> torch.Tensor:
    """Apply two numbers, which partials bind, to a tensor."""
    return x * alpha + shift


def apply_to_relu(x: torch.Tensor, function: Any) -> Any:
    """Apply a function to the positive part of a tensor."""
    return function(torch.relu(x))


def test_a_number_that_a_partial_fixes_is_one_graph_with_dynamic_true() -> None:
    x = torch.ones(3)
    partials = [partial(blend, 0.5, shift=shift) for shift in (0.1, 0.2, 0.3)]
    report_with_arguments = try_on_calls(
        apply_to_relu, [pass_value(lambda c, function: c(x, function), value) for value in partials]
    )
    assert (best_remedy(report_with_arguments).title, compilation_counts(best_remedy(report_with_arguments))) == (
        "Compile with `dynamic=True`",
        (2, 1, 0),
    )
    assert [bound_function.keywords for bound_function in partials] == [{"shift": 0.1}, {"shift": 0.2}, {"shift": 0.3}]

    torch.compiler.reset()
    with jupyter_graphbreak.capture(entries=True) as run:
        for alpha in (0.1, 0.2, 0.3):
            torch.compile(partial(blend, alpha), backend="eager")(x)
    report_of_partials = run.try_remedies(seconds=600)
    assert (best_remedy(report_of_partials).family, compilation_counts(best_remedy(report_of_partials))) == (
        "dynamic",
        (2, 1, 0),
    )
    for calls in (
        [partial(torch.compile(apply_to_relu, backend="eager", dynamic=True), x, function) for function in partials],
        [partial(torch.compile(partial(blend, k), backend="eager", dynamic=True), x) for k in (0.1, 0.2, 0.3, 0.9)],
    ):
        torch.compiler.reset()
        assert [count_compiled_frames(call) for call in calls] == [1, *[0] * (len(calls) - 1)]


def test_partials_of_different_functions_are_not_confused() -> None:
    x = torch.ones(3)
    functions = [partial(torch.add, other=2), partial(torch.mul, other=2)]
    report = try_on_calls(apply_to_relu, [pass_value(lambda c, function: c(x, function), value) for value in functions])
    assert not [remedy for remedy in report.remedies or [] if remedy.verdict in WORKING]
    assert decision_for_reader(report)


@dataclasses.dataclass
class Batch:
    """A tensor and its length."""

    x: torch.Tensor
    length: int


def test_a_dataclass_is_created_again_for_each_call() -> None:
    def sum_masked(batch: Batch) -> torch.Tensor:
        return (batch.x * (torch.arange(batch.x.shape[0]) < batch.length)).sum()

    report = try_on_calls(sum_masked, [pass_value(lambda c, n: c(Batch(torch.ones(n), n - 1)), n) for n in (4, 6, 8)])
    assert compilation_counts(best_remedy(report)) == (2, 1, 0)


class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2


def test_an_argument_that_some_calls_leave_out_has_two_graphs() -> None:
    def sum_masked(x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return x * 2 if mask is None else x * mask

    x = torch.ones(3)
    report = try_on_calls(sum_masked, [lambda compiled: compiled(x), lambda compiled: compiled(x, mask=x)])
    assert "`mask` is sometimes None" in decision_for_reader(report)


@pytest.mark.parametrize(
    ("fn", "calls", "words"),
    [
        (lambda xs: torch.stack(xs).sum(), [[torch.ones(3)] * n for n in (1, 2, 3)], "length of `xs` varies"),
        (lambda d: sum(d.values()), [{name: torch.ones(3)} for name in "abc"], "keys of `d` vary"),
        (lambda x: x * 2, [torch.ones(3), torch.ones(3, dtype=torch.float64)], "one dtype"),
        (lambda m: torch.ones(3) if m is None else m * 2, [None, torch.ones(3)], "sometimes None"),
        (lambda m: torch.ones(3) * (2 if m is Side.LEFT else 3), [Side.LEFT, Side.RIGHT], "has 2 values"),
    ],
)
def test_other_variations_leave_a_decision_to_the_reader(fn: Any, calls: list[Any], words: str) -> None:
    report = try_on_calls(fn, [pass_value(lambda c, argument: c(argument), argument) for argument in calls])
    assert words in decision_for_reader(report)
    assert not [remedy for remedy in report.remedies or [] if remedy.verdict in WORKING]


def test_functions_with_the_same_decorator_of_pytorch_are_different_entries() -> None:
    one, other = (torch.no_grad()(function) for function in (DoublingModule.forward, CallCounter.forward))
    copied_function = types.FunctionType(
        one.__code__, one.__globals__, "decorated", None, one.__closure__
    )  # as Dynamo makes it
    assert key_of(one) == key_of(copied_function) != key_of(other)


class DoublingModule(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.doubles = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if self.doubles else x


def test_the_layer_of_a_sequential_is_named_as_in_code() -> None:
    layers = torch.nn.Sequential(torch.nn.ReLU(), DoublingModule())

    def call(compiled: Any, doubles: Any) -> Any:
        layers[1].doubles = doubles
        return compiled(torch.ones(3))

    report = try_on_calls(layers, [pass_value(call, doubles) for doubles in (True, False)])
    assert "`self[1].doubles` selects between two branches" in decision_for_reader(report)
    assert "self[1].doubles varied" in verdict(report).text


def test_a_line_that_turns_a_size_into_a_constant_is_named() -> None:
    def label(x: torch.Tensor) -> torch.Tensor:
        return x * len(f"{x.shape[0]}")

    report = try_on_calls(label, [pass_value(lambda c, n: c(torch.ones(n, 3)), n) for n in (4, 6, 9)])
    assert "len(f" in decision_for_reader(report)
    assert "into a constant" in decision_for_reader(report)
    assert not [remedy for remedy in report.remedies or [] if remedy.verdict in WORKING]


@pytest.mark.exhaustive
def test_both_branches_of_a_condition_on_a_size_are_one_graph_with_cond() -> None:
    def reduce_rows(x: torch.Tensor) -> torch.Tensor:
        length = x.shape[0]
        y = x + 1
        if length > 10:
            y = y * 2
        return y

    report = try_on_calls(reduce_rows, [pass_value(lambda c, n: c(torch.ones(n, 3)), n) for n in (4, 6, 9, 12, 15)])
    remedy = best_remedy(report)
    assert compilation_counts(remedy) == (3, 1, 0)
    assert "torch.cond" in remedy.title
    assert remedy.title.endswith("; Mark dimension 0 of `x` as dynamic")
    assert "y = torch.cond(length > 10, lambda: y * 2, lambda: y.clone())" in (remedy.patch or "")
    assert not [remedy for remedy in report.remedies or [] if remedy.recompiles and remedy.person]


def test_a_condition_with_cond_loses_the_gradient_of_a_gradient() -> None:
    def reduce_rows(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        if x.shape[0] > 10:
            y = y * 2
        return y

    sizes = (4, 6, 9, 12, 15)
    calls = [pass_value(lambda c, n: c(torch.ones(n, 3, requires_grad=True)), n) for n in sizes]
    (remedy,) = [r for r in try_on_calls(reduce_rows, calls).remedies or [] if "torch.cond" in r.title]
    assert (remedy.verdict, remedy.reason) == ("works on what ran", "a gradient of a gradient is lost without an error")


@pytest.mark.exhaustive
def test_a_change_that_runs_both_branches_is_not_proven_if_one_divides_by_a_number_that_varied() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = 1

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (12 // self.step) if self.step % 3 else x - self.step

    net, x = Net(), torch.ones(3)

    def call_with(step: int) -> Callable[[Any], object]:
        def call(compiled: Any) -> object:
            net.step = step
            return compiled(x)

        return call

    report = try_on_calls(net, map(call_with, (2, 4, 5)))
    remedies_with_cond = [r for r in report.remedies or [] if "torch.cond" in r.title and r.verdict in WORKING]
    assert [remedy.verdict for remedy in remedies_with_cond] == ["works on what ran"]
    assert (remedies_with_cond[0].reason or "").endswith("on self.step = 0")


@pytest.mark.exhaustive
def test_a_condition_on_a_size_is_named_and_its_two_graphs_are_right() -> None:
    def reduce_rows(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 10:
            return x.sum(0)
        return x * 3

    report = try_on_calls(reduce_rows, [pass_value(lambda c, n: c(torch.ones(n, 3)), n) for n in (4, 6, 9, 12, 15)])
    assert compilation_counts(best_remedy(report)) == (3, 2, 0)
    assert "if x.shape[0] > 10" in decision_for_reader(report)
    (cond_remedy,) = [remedy for remedy in report.remedies or [] if "torch.cond" in remedy.title]
    assert cond_remedy.verdict not in WORKING


@pytest.mark.exhaustive
def test_a_loop_over_a_size_is_named_and_no_mark_that_breaks_it_claims_to_work() -> None:
    def decay_rows(x: torch.Tensor) -> torch.Tensor:
        out = x[0]
        for i in range(1, x.shape[0]):
            out = out * 0.5 + x[i]
        return out

    report = try_on_calls(decay_rows, [pass_value(lambda c, n: c(torch.ones(n, 3)), n) for n in (3, 4, 5, 6)])
    assert "`for i in range(1, x.shape[0])`, is unrolled" in decision_for_reader(report)
    assert not [remedy for remedy in report.remedies or [] if remedy.verdict in WORKING]


def test_the_line_of_the_run_comes_before_a_library_line_that_a_failed_trial_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def decay_rows(x: torch.Tensor) -> torch.Tensor:
        out = x[0]
        for i in range(1, x.shape[0]):
            out = out * 0.5 + x[i]
        return out

    def report_library_line(trials: CallTrials, error: BaseException) -> str:
        trials.specializing_line = SpecializingLine(torch.functional.__file__, 10, "if tensors.dim() == 3:")
        return f"raises {error}"

    monkeypatch.setattr(CallTrials, "_reason_of_error", report_library_line)
    report = try_on_calls(decay_rows, [pass_value(lambda c, n: c(torch.ones(n, 3)), n) for n in (3, 4, 5, 6)])
    assert "`for i in range(1, x.shape[0])`, is unrolled" in decision_for_reader(report)
    assert "functional.py" not in decision_for_reader(report)


@pytest.mark.exhaustive
def test_a_condition_on_size_one_has_two_graphs_and_that_is_right() -> None:
    def reduce_rows(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 1:
            return x.squeeze(0)
        return x.mean(0)

    report = try_on_calls(reduce_rows, [pass_value(lambda c, n: c(torch.ones(n, 3)), n) for n in (1, 4, 5)])
    assert "`x` has size 1 in some calls" in decision_for_reader(report)
    assert not [remedy for remedy in report.remedies or [] if remedy.verdict in WORKING]


def test_a_growing_cache_that_starts_as_one_tensor_needs_two_marks_and_two_tensors() -> None:
    def attend(x: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cat([k, x]), torch.cat([v, x + 1])

    start = torch.zeros(2, 3)
    caches = [(start, start), *((torch.zeros(n, 3), torch.ones(n, 3)) for n in range(3, 7))]
    report = try_on_calls(
        attend, [pass_value(lambda c, arguments: c(torch.ones(1, 3), *arguments), arguments) for arguments in caches]
    )
    assert best_remedy(report).code == "torch._dynamo.mark_dynamic(k, 0)\ntorch._dynamo.mark_dynamic(v, 0)"
    assert compilation_counts(best_remedy(report)) == (3, 2, 0)
    assert "`k` and `v` are the same tensor in some calls only" in decision_for_reader(report)


def test_a_buffer_that_grows_needs_settings_for_its_sizes_and_for_the_position() -> None:
    class Attention(torch.nn.Module):
        cache: torch.Tensor | None
        mask: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", None)
            self.register_buffer("mask", torch.arange(64))
            self.position = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.cache = x if self.cache is None else torch.cat([self.cache, x])
            mask = self.mask[self.position : self.position + len(x)]
            self.position += len(x)
            return self.cache.sum(0) + mask[-1]

    report = try_on_calls(Attention(), [pass_value(lambda c, n: c(torch.ones(n, 3)), n) for n in (4, 1, 1, 1, 1, 1)])
    assert best_remedy(report).settings == {
        "torch._dynamo.config.force_parameter_static_shapes": False,
        "torch._dynamo.config.allow_unspec_int_on_nn_module": True,
    }
    assert compilation_counts(best_remedy(report))[:2] == (6, 2)


@pytest.mark.exhaustive
def test_a_cache_that_the_first_call_does_not_have_is_marked_in_the_others(tmp_path: Any) -> None:
    text = textwrap.dedent(
        """
        import torch
        @torch.compile(backend="eager")
        def attend(x, past=None):
            if past is not None:
                x = torch.cat([past[0], x])
            return x * 2, (x,)
        y, past = attend(torch.ones(5, 3))
        for _ in range(4):
            y, past = attend(torch.ones(2, 3), past)
        """
    )
    path = tmp_path / "program.py"
    path.write_text(text)
    with jupyter_graphbreak.capture(entries=True) as run:
        exec(compile(text, str(path), "exec"), {"__name__": "__main__"})
    remedy = best_remedy_with_code_before_calls(run.try_remedies(seconds=600))
    assert compilation_counts(remedy) == (3, 2, 0)
    assert remedy.reason == "it assumes that every call has `past[0]`"
    mark_code = "if past is not None:\n    torch._dynamo.mark_dynamic(past[0], 0)"
    assert mark_code in (remedy.code or "")
    assert textwrap.indent(mark_code, "    ") in "\n".join(edit.new for edit in remedy.edits)


@pytest.mark.exhaustive
def test_for_a_growing_cache_of_transformers_a_fixed_length_is_advised() -> None:
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, max_position_embeddings=16,
    )  # fmt: skip
    cache = DynamicCache(config=config)

    def call(compiled: Any) -> None:
        with torch.no_grad():
            compiled(input_ids=torch.tensor([[1]]), past_key_values=cache, use_cache=True)

    report = try_on_calls(LlamaForCausalLM(config).eval(), [call] * 4)
    assert "`past_key_values` grows with each call: pass a cache of fixed length" in decision_for_reader(report)
    assert "StaticCache" in decision_for_reader(report)


def test_a_mark_whose_memory_formats_inductor_mixes_up_comes_with_a_setting() -> None:
    # Inductor does this in the backward pass of a convolution over images of varying sizes.
    def mix_up_formats(graph: torch.fx.GraphModule, _: Any) -> Any:
        sizes = [node for node in graph.graph.nodes if node.op == "placeholder" and node.type is torch.SymInt]
        is_confused = sizes and torch._inductor.config.layout_optimization

        def run_graph(*args: Any) -> Any:
            if is_confused:
                raise AssertionError("expected size 2==2, stride 3072==12288 at dim=0")
            return graph(*args)

        return run_graph

    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    compiled = torch.compile(scale, backend=mix_up_formats, dynamic=False)
    with jupyter_graphbreak.capture(entries=True) as run:
        for n in (4, 6, 9):
            compiled(torch.ones(2, n))
    remedy = best_remedy(run.try_remedies(seconds=600))
    assert remedy.code is not None
    assert "torch._dynamo.mark_dynamic(x, 1)" in remedy.code
    assert remedy.settings == {"torch._inductor.config.layout_optimization": False}
    assert compilation_counts(remedy) == (3, 1, 0)


@pytest.mark.parametrize(("step_size", "is_accepted"), [(1.0, True), (2.0, False)])
def test_a_remedy_may_round_differently_if_steps_depend_on_rounding_errors(
    *, step_size: float, is_accepted: bool
) -> None:
    weight = torch.nn.Parameter(torch.linspace(0.1, 0.9, 64))
    state = {"moved": torch.zeros(64)}

    def add_rounding_errors(graph: Any, inputs: list[Any]) -> Any:
        is_dynamic = not all(isinstance(value, torch.Tensor) for value in inputs)
        factor = 1 + 2**-22 if is_dynamic else 1 - 2**-22

        def call(*args: Any) -> Any:
            *outputs, moved = graph(*(a * factor if isinstance(a, torch.Tensor) else a for a in args))
            return [*outputs, moved * step_size if is_dynamic else moved]

        return call

    @torch.compile(backend=add_rounding_errors)
    def step(x: torch.Tensor) -> torch.Tensor:
        error = weight / 3 * 3 - weight  # only rounding errors, which Adam divides by their size
        state["moved"] = state["moved"] + 0.001 * error.detach().sign()
        return x + 1

    with jupyter_graphbreak.capture(entries=True) as run:
        for size in (4, 6, 9):
            step(torch.randn(size))
    remedies = [remedy for remedy in run.try_remedies(seconds=600).remedies or [] if remedy.recompiles]
    assert any(remedy.verdict in WORKING for remedy in remedies) is is_accepted, [r.reason for r in remedies]


@pytest.mark.exhaustive
def test_a_larger_change_is_not_shown_if_a_smaller_one_is_as_good() -> None:
    linear = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        optimizer.step()

    def call(compiled: Any, lr: float) -> None:
        optimizer.param_groups[0]["lr"] = lr
        linear(torch.ones(2, 2)).sum().backward()
        compiled()

    report = try_on_calls(step, [pass_value(call, lr) for lr in (0.1, 0.1, 0.2, 0.3)])
    working_remedies = [
        remedy.title for remedy in report.remedies or [] if remedy.recompiles and remedy.verdict in WORKING
    ]
    assert working_remedies == ["Compile with `dynamic=True`", "Make `lr` of `optimizer` a tensor"]


@pytest.mark.exhaustive
def test_a_remedy_for_a_break_and_a_mark_are_tried_together(tmp_path: Any) -> None:
    text = textwrap.dedent(
        """
        import torch
        @torch.compile(backend="eager")
        def noisy(x):
            y = torch.relu(x)
            print("seen")
            return y.sum(0) * 2
        for n in (3, 4, 5):
            noisy(torch.ones(n, 3))
        """
    )
    path = tmp_path / "program.py"
    path.write_text(text)
    with jupyter_graphbreak.capture(entries=True) as run:
        exec(compile(text, str(path), "exec"), {"__name__": "__main__"})
    report = run.try_remedies(seconds=600)
    combined_remedy = next(remedy for remedy in report.remedies or [] if remedy.breaks and remedy.recompiles)
    assert combined_remedy.title.endswith("; Mark dimension 0 of `x` as dynamic")
    assert combined_remedy.breaks == [break_.id for break_ in report.breaks]
    assert combined_remedy.recompiles == [recompile.id for recompile in report.recompiles]
    assert compilation_counts(combined_remedy) == (4, 1, 0)
    assert combined_remedy.evidence is not None
    assert combined_remedy.evidence.breaks_after == 0
    mark = next(remedy for remedy in report.remedies or [] if remedy.kind == "mark" and not remedy.breaks)
    assert compilation_counts(mark) == (4, 3, 0)  # our own code, which captures the output, is not counted
    assert not [remedy for remedy in report.remedies or [] if remedy.person and remedy.recompiles]

    lines = text.split("\n")
    for edit in sorted(combined_remedy.edits, key=lambda edit: -edit.first_line):
        assert "\n".join(lines[edit.first_line - 1 : edit.last_line]) == edit.old
        lines[edit.first_line - 1 : edit.last_line] = edit.new.split("\n")
    torch.compiler.reset()
    path.write_text("\n".join(lines))
    program = compile("\n".join(lines), str(path), "exec")
    assert count_compiled_frames(lambda: exec(program, {"__name__": "__main__"})) == 1


def test_the_time_of_a_call_with_a_mark_is_measured() -> None:
    compiled = torch.compile(lambda x: torch.relu(x) * 2, backend="eager")
    with jupyter_graphbreak.capture(entries=True) as run:
        for n in (4, 6, 9):
            compiled(torch.ones(n, 3))
    remedy = best_remedy(run.try_remedies(seconds=600))
    cost = run.measure(seconds=600).cost
    assert cost is not None
    (entry,) = cost.entries
    assert [remedied.remedies for remedied in entry.remedied] == [[remedy.id]]
    assert entry.remedied[0].time.median_us > 0


def test_the_arguments_of_later_calls_are_not_stored() -> None:
    references: list[weakref.ref[torch.Tensor]] = []

    def call(compiled: Any, n: int) -> None:
        x = torch.ones(n, 64, 64)
        references.append(weakref.ref(x))
        compiled(x)

    compiled = torch.compile(lambda x: x * 2, backend="eager")
    with jupyter_graphbreak.capture(entries=True) as run:
        for n in (8, 9, 10):
            call(compiled, n)
        gc.collect()
        assert [reference() for reference in references] == [None] * 3
    assert compilation_counts(best_remedy(run.try_remedies(seconds=600))) == (2, 1, 0)


def test_a_call_late_in_a_long_loop_is_repeated_if_something_was_compiled_in_it() -> None:
    def call(compiled: Any, n: int) -> None:
        for _ in range(300 if n == 4 else 1):
            compiled(torch.ones(n))

    report = try_on_calls(lambda x: x * 2, [pass_value(call, n) for n in (4, 6)])
    assert compilation_counts(best_remedy(report)) == (2, 1, 0)


def test_a_run_without_recompiles_has_no_trials_of_them() -> None:
    report = try_on_calls(lambda x: x * 2, [lambda c: c(torch.ones(3))] * 3)
    assert report.remedies == []


@pytest.mark.exhaustive
def test_a_higher_limit_is_a_remedy_only_if_a_call_uses_code_of_an_earlier_call() -> None:
    def scale_by_length(x: torch.Tensor, name: str) -> torch.Tensor:
        return x * len(name)

    def trials(*lengths: int) -> list[Remedy]:
        report = try_on_calls(scale_by_length, [pass_value(lambda c, n: c(torch.ones(3), "a" * n), n) for n in lengths])
        return [remedy for remedy in report.remedies or [] if remedy.family == "limit"]

    (remedy,) = trials(*range(10), 3)
    assert remedy.settings == {"torch._dynamo.config.recompile_limit": 64}
    assert compilation_counts(remedy)[:2] == (8, 10)
    assert remedy.verdict == "works on what ran"
    torch.compiler.reset()
    assert trials(*range(10)) == [], "no call used code of an earlier call, so a higher limit would not help"


PROGRAM_WITH_STRINGS = """
import torch

WEIGHTS = {f"step{number}": 1 / (number + 1) for number in range(30)}


class Annealed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)
        self.step = 0

    def forward(self, x):
        name = f"step{self.step}"
        y = self.lin(x)
        return torch.relu(y) * WEIGHTS[name]


@torch.compile(backend="eager")
def scaled(x):
    return x.cumsum(0) * len(f"size {x.shape[0]}") * 2


model = Annealed()
compiled = torch.compile(model, backend="eager")


def count_steps(steps):
    for step in steps:
        model.step = step
        compiled(torch.ones(2, 4))


def count_sizes(sizes):
    for size in sizes:
        scaled(torch.ones(size))
"""


@pytest.fixture(scope="module")
def run_with_strings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Report]:
    """Return the path of a program whose numbers come from strings with a step or a size, and the report of its run."""
    torch.compiler.reset()
    path = tmp_path_factory.mktemp("hoisted") / "hoisted.py"
    path.write_text(PROGRAM_WITH_STRINGS)
    names: dict[str, Any] = {"__name__": "__main__"}
    with jupyter_graphbreak.capture(entries=True) as run:
        exec(compile(PROGRAM_WITH_STRINGS, str(path), "exec"), names)
        names["count_steps"](range(6))
        names["count_sizes"]((4, 6, 80, 100))
    return path, run.try_remedies(seconds=600)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("function", "title", "seen_values", "unseen_values"),
    [
        ("count_steps", "Compute `WEIGHTS[name]` before the call", range(6), (7, 9, 25)),
        ("count_sizes", 'Compute `len(f"size {x.shape[0]}")` before the call', (4, 6, 80, 100), (7, 9, 200)),
    ],
)
def test_a_value_that_depends_only_on_a_varied_value_is_computed_before_the_call(
    run_with_strings: tuple[Any, Report], function: str, title: str, seen_values: Any, unseen_values: Any
) -> None:
    path, report = run_with_strings
    remedy = next(r for r in report.remedies or [] if r.title.startswith(title) and r.verdict in WORKING)
    assert remedy.kind == "edit"
    assert compilation_counts(remedy)[1:] == (1, 0)
    changed_text = apply_edits(PROGRAM_WITH_STRINGS, list(remedy.edits))
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(changed_text, str(path.with_name("changed.py")), "exec"), names)
    torch.compiler.reset()
    assert count_compiled_frames(partial(names[function], seen_values)) == 1
    assert count_compiled_frames(partial(names[function], unseen_values)) == 0


@pytest.mark.exhaustive
def test_a_setting_after_which_a_later_call_breaks_is_not_a_remedy(run_with_strings: tuple[Any, Report]) -> None:
    _, report = run_with_strings
    setting = next(r for r in report.remedies or [] if r.title == "Let integer attributes of modules vary")
    if torch.__version__ < "2.11" or torch.__version__ >= "2.14":  # a number in an f-string is still a constant
        assert setting.verdict == "break stays"
    else:
        assert (setting.verdict, setting.reason) == ("another break", "then Dynamo compiles less")
