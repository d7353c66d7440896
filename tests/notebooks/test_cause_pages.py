"""A cause's programs break for that cause, each fix removes the break, and the line "Measured: ..." is correct."""

from __future__ import annotations

import ast
import contextlib
import copy
import io
import linecache
import logging
import random
import re
import sys
import time
import types
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

import jupyter_graphbreak
from jupyter_graphbreak.knowledge.causes import CAUSES
from jupyter_graphbreak.results import Report
from notebooks import cause_pages, examples, rare_causes
from notebooks.examples import Example, Fix
from tests.programs.rare_causes.rare_causes import PROGRAMS

EXAMPLES = examples.examples()
RECOMPILES = examples.recompiles()
BYPASSES = list(examples.bypasses().values())
_CONFIGS = {
    "torch._dynamo.config": torch._dynamo.config,
    "torch._functorch.config": torch._functorch.config,
    "torch._inductor.config": torch._inductor.config,
    "torch.fx.experimental._config": torch.fx.experimental._config,
}
_SETTING = re.compile(rf"({'|'.join(map(re.escape, _CONFIGS))})\.(\w+)")
#: How a report begins the reason for a function that is skipped elsewhere than in a loop, a with or a try block.
_CANNOT_RESUME = "a graph break from which Dynamo cannot resume"
_DECORATOR = re.compile(r"@torch\.compile(?:\((.*)\))?\n")


class _LogCollector(logging.Handler):
    """Collects the messages that the program logs, without those of PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("torch"):
            self.lines.append(f"{record.name} {record.getMessage()}")


@dataclass
class Outcome:
    """Everything that a reader could notice about a call. The line "Measured: ..." uses the names of the fields."""

    value: Any = None
    gradients: Any = None
    arguments: Any = None
    exception: str = ""
    output: str = ""
    log: Any = None
    warnings: Any = None

    def differences(self, expected_outcome: Outcome) -> list[str]:
        return [name for name in vars(self) if not _is_equal(getattr(self, name), getattr(expected_outcome, name))]


def _is_equal(actual: Any, expected: Any) -> bool:
    try:
        torch.testing.assert_close(actual, expected, equal_nan=True)
    except AssertionError:
        return False
    except TypeError:  # neither tensors nor numbers
        return bool(actual == expected)
    return True


def _copy_tensors(value: Any, copies: dict[int, torch.Tensor]) -> Any:
    """Copy a value and the tensors in it. A tensor that occurs twice is copied once."""
    if isinstance(value, torch.Tensor):
        new_copy = value.detach().clone().requires_grad_(value.requires_grad)
        return copies.setdefault(id(value), new_copy)
    if isinstance(value, dict):
        return {key: _copy_tensors(item, copies) for key, item in value.items()}
    return type(value)(_copy_tensors(item, copies) for item in value) if isinstance(value, (list, set)) else value


def _tensors(values: list[Any]) -> list[torch.Tensor]:
    return [value for value in values if isinstance(value, torch.Tensor)]


def _run_call(function: Any, arguments: list[Any]) -> Outcome:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    outcome, log_collector = Outcome(), _LogCollector()
    logging.getLogger().addHandler(log_collector)
    with (
        contextlib.redirect_stdout(io.StringIO()) as stdout,
        warnings.catch_warnings(record=True) as caught_warnings,
    ):
        warnings.simplefilter("always")
        try:
            outcome.value = function(*arguments)
            if isinstance(outcome.value, torch.Tensor) and outcome.value.requires_grad and not outcome.value.is_leaf:
                outcome.value.sum().backward()
        except Exception as error:  # noqa: BLE001 - any exception of the program is an outcome
            outcome.exception = f"{type(error).__name__}: {error}"
    logging.getLogger().removeHandler(log_collector)
    outcome.gradients = [argument.grad for argument in _tensors(arguments)]
    outcome.arguments = [argument.detach() for argument in _tensors(arguments)]
    outcome.output, outcome.log = stdout.getvalue(), log_collector.lines
    program_warnings = [warning for warning in caught_warnings if "torch" not in Path(warning.filename).parts]
    outcome.warnings = [str(warning.message) for warning in program_warnings]
    return outcome


class Program:
    """An example, with one of its fixes if given, as a module whose calls to ``before`` can be run."""

    def __init__(self, path: Path, example: Example, fix: Fix | None = None, backend: str = "eager") -> None:
        calls = [call for node in ast.parse(example.code).body for call in _calls_of_before(node)]
        lines = example.code.splitlines()[: calls[0].lineno - 1]
        text = "\n".join([*lines, *([fix.code] if fix else [])]) + "\n"
        # With backend="eager", the same lines break as with other backends, and no code is generated.
        text = _DECORATOR.sub(lambda match: f'@torch.compile(backend="{backend}", {match[1] or ""})\n', text)
        path.write_text(text, encoding="utf-8")
        linecache.checkcache(str(path))
        self.settings = set(_SETTING.findall(text))
        self.function = "after" if fix else "before"
        self._code = compile(text, str(path), "exec")
        self._calls = calls

    def run(self, *, eager: bool = False) -> tuple[Report, list[Outcome]]:
        """Run all calls, and restore the settings that the program changes."""
        torch.compiler.reset()
        level = logging.getLogger().level
        with contextlib.ExitStack() as stack:
            for module, name in self.settings:
                config: Any = _CONFIGS[module]
                stack.enter_context(config.patch({name: copy.copy(getattr(config, name))}))
            stack.enter_context(torch.compiler.set_stance("force_eager" if eager else "default"))
            module = types.ModuleType("program")
            sys.modules["program"] = module  # PyTorch pickles functions of the program by their names
            stack.callback(sys.modules.pop, "program")
            namespace = vars(module)
            exec(self._code, namespace)
            with jupyter_graphbreak.capture() as run:
                outcomes = [
                    _run_call(namespace[self.function], _copy_tensors(self._arguments(call, namespace), {}))
                    for call in self._calls
                ]
        logging.getLogger().setLevel(level)
        return run.report, outcomes

    @staticmethod
    def _arguments(call: ast.Call, namespace: dict[str, Any]) -> list[Any]:
        return [eval(ast.unparse(argument), namespace) for argument in call.args]


def _calls_of_before(node: ast.stmt) -> list[ast.Call]:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id="before")) as call):
            return [call]
    return []


@pytest.fixture(autouse=True)
def _silence_dynamo_logs() -> Iterator[None]:
    torch._logging.set_logs(dynamo=logging.ERROR)  # type: ignore[attr-defined] # torch exports the name implicitly
    yield
    torch._logging.set_logs()  # type: ignore[attr-defined] # torch exports the name implicitly
    torch.compiler.reset()


def _reported_ids(report: Report) -> set[str | None]:
    consequences = {item.consequence.gb_id for item in report.breaks if item.consequence}
    return consequences | {item.gb_id for item in report.breaks}


def measured_line(report: Report, fixed_report: Report, differences: list[str]) -> str:
    """Return the text that follows "Measured: " below a fix."""
    old, new = report.summary, fixed_report.summary
    counts = f"breaks {old.breaks} -> {new.breaks}, graphs {old.graphs} -> {new.graphs}"
    return f"{counts}, {_outcome_words(set(differences))}"


def _outcome_words(differences: set[str]) -> str:
    names = sorted(differences, key=list(vars(Outcome())).index)
    return f"different {' and '.join(names)}" if names else "same outcome"


def _skipping_examples() -> set[str]:
    """Return the names of the examples to which the table of skipped.md links."""
    text = (Path(cause_pages.__file__).parent / "skipped.md").read_text(encoding="utf-8")
    section = text.split("## A break elsewhere that skips the function\n")[1].split("\n## ")[0]
    return {
        example.name
        for page, anchor in re.findall(r"\(causes/([\w-]+)\.md(?:#([\w-]+))?\)", section)
        for example in EXAMPLES
        if page in map(cause_pages.page_name, example.ids) and anchor in {"", cause_pages.slug(example.title)}
    }


SKIPPING_EXAMPLES = _skipping_examples()
#: A function that only helps to debug Dynamo.
_NOT_IN_TABLE = {"step_unsupported"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_each_fix_removes_the_break_and_has_the_outcome_in_its_line(tmp_path: Path, example: Example) -> None:
    program = Program(tmp_path / "before.py", example)
    _, eager_outcomes = program.run(eager=True)
    report, outcomes = program.run()
    assert _reported_ids(report) & set(example.ids)
    is_skipped = any(skipped.reason.startswith(_CANNOT_RESUME) for skipped in report.skipped)
    assert is_skipped == (example.name in SKIPPING_EXAMPLES | _NOT_IN_TABLE)
    assert [
        actual.differences(expected_outcome) for actual, expected_outcome in zip(outcomes, eager_outcomes, strict=True)
    ] == [[]] * len(eager_outcomes)
    for number, fix in enumerate(example.fixes):
        fixed_report, outcomes = Program(tmp_path / f"after_{number}.py", example, fix).run()
        differences = [
            name
            for actual, expected_outcome in zip(outcomes, eager_outcomes, strict=True)
            for name in actual.differences(expected_outcome)
        ]
        assert measured_line(report, fixed_report, differences) == fix.outcome
        assert (fixed_report.summary.breaks, fixed_report.summary.skipped) == (0, 0)
        assert not (fix.is_safe and differences)


def _count_compilations(report: Report) -> int:
    return sum(frame.compile_s is not None for frame in report.frames)


@pytest.mark.parametrize("example", RECOMPILES, ids=lambda example: example.name)
def test_each_fix_ends_the_recompiles_and_has_the_outcome_in_its_line(tmp_path: Path, example: Example) -> None:
    program = Program(tmp_path / "before.py", example)
    _, eager_outcomes = program.run(eager=True)
    report, outcomes = program.run()
    assert report.recompiles[0].reasons[0].guard == example.ids[0]
    assert [
        actual.differences(expected_outcome) for actual, expected_outcome in zip(outcomes, eager_outcomes, strict=True)
    ] == [[]] * len(eager_outcomes)
    for number, fix in enumerate(example.fixes):
        fixed_report, outcomes = Program(tmp_path / f"after_{number}.py", example, fix).run()
        differences = {
            name
            for actual, expected_outcome in zip(outcomes, eager_outcomes, strict=True)
            for name in actual.differences(expected_outcome)
        }
        old_count, new_count = _count_compilations(report), _count_compilations(fixed_report)
        assert f"compilations {old_count} -> {new_count}, {_outcome_words(differences)}" == fix.outcome
        assert new_count < old_count
        assert not (fix.is_safe and differences)


def _run_with_empty_caches(program: Program) -> tuple[str, list[Outcome]]:
    """Run a program with empty caches, and return how the two caches used its graph, and the outcomes of its calls."""
    counters.clear()
    with torch.compiler.config.patch(cache_key_tag=f"{time.time_ns()}"):  # type: ignore[attr-defined] # torch exports the name implicitly
        _, outcomes = program.run()
    aot_counts, inductor_counts = counters["aot_autograd"], counters["inductor"]
    assert aot_counts["autograd_cache_bypass"] + aot_counts["autograd_cache_miss"] == 1
    return f"{_cache_use(aot_counts, 'autograd_cache')}, {_cache_use(inductor_counts, 'fxgraph_cache')}", outcomes


def _cache_use(counts: Counter[str], cache: str) -> str:
    """Return how a cache used a graph. A cache that is switched off has no counts."""
    if counts[f"{cache}_bypass"]:
        return "bypassed"
    return "kept" if counts[f"{cache}_miss"] else "not used"


@pytest.mark.slow
@pytest.mark.parametrize("example", BYPASSES, ids=lambda example: example.name)
def test_each_fix_lets_the_caches_store_the_graph_and_has_the_outcome_in_its_line(
    tmp_path: Path, example: Example
) -> None:
    program = Program(tmp_path / "before.py", example, backend="inductor")
    _, eager_outcomes = program.run(eager=True)
    caches, outcomes = _run_with_empty_caches(program)
    assert [
        actual.differences(expected_outcome) for actual, expected_outcome in zip(outcomes, eager_outcomes, strict=True)
    ] == [[]] * len(eager_outcomes)
    for number, fix in enumerate(example.fixes):
        fixed_caches, outcomes = _run_with_empty_caches(
            Program(tmp_path / f"after_{number}.py", example, fix, backend="inductor")
        )
        differences = {
            name
            for actual, expected_outcome in zip(outcomes, eager_outcomes, strict=True)
            for name in actual.differences(expected_outcome)
        }
        assert (
            f"caches of AOTAutograd and Inductor: {caches} -> {fixed_caches}; {_outcome_words(differences)}"
            == fix.outcome
        )
        assert fixed_caches == "kept, kept"


def test_every_cause_has_an_example_or_a_reason_for_having_none_and_every_example_is_listed_once() -> None:
    assert [name for names in examples.KINDS.values() for name in names.split()] == [item.name for item in EXAMPLES]
    ids_with_examples = {ident for example in EXAMPLES for ident in example.ids}
    assert ids_with_examples | set(cause_pages.MISSING_PROGRAM_REASONS) == {cause.id for cause in CAUSES}
    assert not ids_with_examples & set(cause_pages.MISSING_PROGRAM_REASONS)


def test_every_id_of_pytorchs_registry_has_an_address_whose_page_names_it() -> None:
    pages = cause_pages.pages()
    registry = rare_causes.registry()
    assert len(registry) > len(CAUSES)
    for ident, entry in registry.items():
        page, _, anchor = cause_pages.address(ident).removeprefix(f"{cause_pages.FOLDER}/").partition(".html")
        assert (page == cause_pages.OTHERS) == (anchor == f"#{ident.lower()}")
        assert page != cause_pages.OTHERS or f"({ident.lower()})=\n## {ident}: " in pages[page]
        words = re.findall(r"\w+", entry["Gb_type"])
        assert not anchor or set(words) <= set(re.findall(r"\w+", pages[page].replace("\\_", "_")))
    assert pages[cause_pages.OTHERS].count("\n*What to do*: ") == pages[cause_pages.OTHERS].count("\n## ")


@pytest.mark.parametrize("ident", PROGRAMS)
def test_the_advice_about_a_rare_cause_removes_it(ident: str) -> None:
    x = torch.ones(3, requires_grad=True)
    wrong_function, right_function = PROGRAMS[ident]
    with torch._dynamo.config.patch(trace_autograd_ops=ident == "GB7054"):
        torch.compiler.reset()
        with pytest.raises(Exception, match=f"gb/{ident.lower()}"):
            torch.compile(wrong_function, backend="eager", fullgraph=True)(x)
        torch.compiler.reset()
        torch.compile(right_function, backend="eager", fullgraph=True)(x)


def test_each_piece_of_advice_about_a_rare_cause_has_a_program() -> None:
    assert PROGRAMS.keys() == rare_causes.ADVICE.keys()
    assert (
        cause_pages.pages()[cause_pages.OTHERS].count("*What to do*: Return the argument that `mark_dirty` names.") == 1
    )


def test_a_page_has_its_parts_in_order() -> None:
    text = cause_pages.pages()["gb0123"]
    parts = [
        "`Tensor.backward()`",
        "Unsupported Tensor.backward() call",
        "In short: ",
        "## Why",
        "By default, Dynamo does not trace a backward pass",
        "## In your code",
        "loss.backward()",
    ]
    parts += ["**1. ", "Measured: breaks 1 -> 0", "**2. ", "## Settings", "gb/gb0123.html"]
    positions = [text.index(part) for part in parts]
    assert positions == sorted(positions)


def test_a_summary_shows_the_line_that_a_fix_changes_unless_it_only_calls_a_function() -> None:
    pages = cause_pages.pages()
    fix = "Switch duck shaping off: `torch.fx.experimental._config.use_duck_shape = False` (*safe*)"
    assert f"In short: {fix}." in pages["recompile-equal-sizes"]
    assert "In short: Warn before or after the call (*safe*); " in pages["gb0007"]


def test_sentences_from_the_tables_show_code_as_code() -> None:
    assert "Replace `__getattribute__` with a property" in cause_pages.pages()["gb0031"]
    assert "`torch.where(mask, x, 0).sum()` for `x[mask].sum()`" in cause_pages._sentence(
        next(cause.advice or "" for cause in CAUSES if cause.id == "GB0036")
    )


def compute_in_hook(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.register_hook(lambda gradient: gradient + 1)
    return y.sum()


def import_json(x: torch.Tensor) -> torch.Tensor:
    import json  # noqa: F401 - the case is the import itself

    return x + 1


def assert_sum(x: torch.Tensor) -> torch.Tensor:
    assert x.sum() > 0  # pytest rewrites it
    return x + 1


def assert_size(x: torch.Tensor) -> torch.Tensor:
    assert x.shape[0] == 4
    return x + 1


def reshape_with_numpy_size(x: torch.Tensor) -> torch.Tensor:
    y = x.reshape(2, 2)
    size: Any = np.prod(y.shape)  # not a plain int
    result: torch.Tensor = y.reshape(-1, size)
    return result


def draw_array(x: torch.Tensor) -> torch.Tensor:
    return x + torch.from_numpy(np.random.rand(4))


def log_message(x: torch.Tensor) -> torch.Tensor:
    LOGGER.warning("sent")
    return x + 1


def log_shape(x: torch.Tensor) -> torch.Tensor:
    logging.warning("%s", x.shape)  # noqa: LOG015 - the program uses the root logger
    return x + 1


def solve(x: torch.Tensor) -> torch.Tensor:
    solution: torch.Tensor = torch.linalg.lstsq(torch.eye(4), x[:, None]).solution
    return solution * 2


LOGGER = logging.getLogger("model")
REORDERABLE = {"reorderable_logging_functions": {logging.warning, logging.Logger.warning}}


@pytest.mark.parametrize(
    ("function", "settings", "expected"),
    [
        pytest.param(compute_in_hook, {}, [], id="a hook that only computes is traced"),
        pytest.param(import_json, {}, [], id="an import that works is traced"),
        pytest.param(assert_sum, {}, ["GB0170"], id="an assert in the file of a test breaks, since pytest rewrites it"),
        pytest.param(assert_size, {}, [], id="an assert on a size does not break there"),
        pytest.param(
            reshape_with_numpy_size, {}, ["GB0033"], id="a size that NumPy computes breaks without int as well"
        ),
        pytest.param(draw_array, {}, [], id="an array of random numbers does not break"),
        pytest.param(log_message, REORDERABLE, ["GB0291"], id="methods of a logger are not reordered"),
        pytest.param(log_shape, REORDERABLE, ["GB0296"], id="a shape cannot be logged at the end"),
        pytest.param(solve, {}, ["GB0036"], id="without the setting, lstsq has the more common id"),
    ],
)
def test_functions_break_as_the_pages_claim(function: Any, settings: dict[str, Any], expected: list[str]) -> None:
    with torch._dynamo.config.patch(settings) if settings else contextlib.nullcontext():
        report = jupyter_graphbreak.explain(torch.compile(function, backend="eager"), torch.ones(4, requires_grad=True))
    assert [item.gb_id for item in report.breaks] == expected


def test_random_arrays_of_numpy_follow_the_seed_of_torch() -> None:
    compiled = torch.compile(draw_array, backend="eager")

    def draw(numpy_seed: int, torch_seed: int) -> torch.Tensor:
        np.random.seed(numpy_seed)
        torch.manual_seed(torch_seed)
        return compiled(torch.zeros(4))

    assert torch.equal(draw(0, 0), draw(1, 0))
    assert not torch.equal(draw(0, 0), draw(0, 1))
