"""Only the table of causes names GB ids; its ids, settings and pages exist."""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import re
import tokenize
from pathlib import Path

import pytest

from jupyter_graphbreak.knowledge import skipped_functions
from jupyter_graphbreak.knowledge.causes import CALLS, CAUSES, all_advice, belongs_outside, known_cause
from jupyter_graphbreak.knowledge.entries import KnownCause, SkipReason
from notebooks import cause_pages

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "jupyter_graphbreak"
GB_ID = re.compile(r"GB\d{4}")
CAUSES_WITH_ID = [cause for cause in CAUSES if GB_ID.fullmatch(cause.id)]
TORCH_FOLDER = Path(importlib.util.find_spec("torch").submodule_search_locations[0])  # type: ignore[index, union-attr]
REGISTRY = json.loads((TORCH_FOLDER / "_dynamo" / "graph_break_registry.json").read_text(encoding="utf-8"))
INSTALLED_RELEASE = tuple(map(int, re.findall(r"\d+", (TORCH_FOLDER / "version.py").read_text(encoding="utf-8"))[:2]))


def is_later(release: str | None) -> bool:
    return release is not None and tuple(map(int, release.split("."))) > INSTALLED_RELEASE


def is_earlier(release: str | None) -> bool:
    return release is not None and tuple(map(int, release.split("."))) < INSTALLED_RELEASE


def test_causes_are_unique_and_sorted_by_id() -> None:
    ids = [cause.id for cause in CAUSES_WITH_ID]
    assert ids == sorted(set(ids))
    names = [name for cause in CAUSES for name in cause.names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("cause", CAUSES_WITH_ID, ids=lambda cause: cause.id)
def test_ids_and_names_match_pytorchs_registry(cause: KnownCause) -> None:
    if is_later(cause.since) or is_earlier(cause.until):
        assert cause.id not in REGISTRY
    else:
        assert {entry["Gb_type"] for entry in REGISTRY[cause.id]} & set(cause.names)


def test_settings_exist_in_dynamo() -> None:
    config = (TORCH_FOLDER / "_dynamo" / "config.py").read_text(encoding="utf-8")
    settings = {setting for cause in CAUSES for combination in cause.settings for setting in combination}
    assert settings
    for setting in settings:
        assert is_later(setting.since) != bool(re.search(rf"^{setting.name}\b", config, re.MULTILINE)), setting.name


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") for heading in headings}


def test_every_page_and_section_exists() -> None:
    skips = [reason for reason in vars(skipped_functions).values() if isinstance(reason, SkipReason)]
    pages = {entry.page for entries in (CAUSES, CALLS, skips) for entry in entries}
    for page in pages - {None}:
        assert page is not None
        name, _, section = page.partition("#")
        if name.startswith(f"{cause_pages.FOLDER}/"):
            assert Path(name).stem in cause_pages.pages(), page
            continue
        path = ROOT / "notebooks" / name
        assert path.is_file(), page
        assert not section or section in anchors(path), page


def test_every_entry_has_a_short_title_and_plain_sentences() -> None:
    for cause in CAUSES:
        assert cause.title
        assert len(cause.title) <= 80
        assert cause.title.count("`") % 2 == 0
        assert cause.title[0] == "`" or cause.title[0].isupper() or cause.title.startswith("torch ")
    for text in all_advice():
        assert not text.endswith(".")
    steps = {entry.manual_step for entry in (*CAUSES, *CALLS) if entry.manual_step is not None}
    for step in steps:
        assert bool(step.obsolete_if_failed) == bool(step.text_after_failure)
        assert step.text.endswith(".")


def test_the_advice_contains_the_name_of_the_advised_setting() -> None:
    for entry in (*CAUSES, *CALLS):
        if entry.setting_advice is not None:
            _, prefix, text_after_prefix = entry.setting_advice.rpartition("torch._dynamo.config.")
            assert not prefix or text_after_prefix.partition(" ")[0] in (entry.advice or "")
            assert (
                entry.setting_advice in all_advice()
            )  # it replaces the advice for lines of libraries, and redacted reports keep it


def test_a_variable_of_old_code_has_its_own_advice() -> None:
    cause = known_cause("GB0007", "", "module: <unknown module>, qualname: _LegacyVariableBase.__new__", "Variable(x)")
    assert (cause.title, "x.detach()" in (cause.advice or "")) == ("`torch.autograd.Variable`", True)


def test_the_step_of_an_optimizer_with_a_scheduler_is_still_compiled() -> None:
    context = "qualname: SGD.step, skip reason: file is force-skipped (torch/optim/lr_scheduler.py)"
    for code in ("sgd.step()", "opt.step()"):
        cause = known_cause("GB0007", "", context, code)
        assert "scheduler" in cause.title
        assert "the update is still compiled as one graph" in (cause.advice or "")
    general_cause = known_cause("GB0007", "", "module: m, qualname: f, skip reason: x", "opt.step()")
    assert general_cause.title == "Backward pass or optimizer step"
    assert general_cause.advice == "compile the forward pass, and call backward() and the optimizer after it"


@pytest.mark.parametrize(
    ("context", "code"),
    [
        ("qualname: GradScaler.unscale_, name: unscale_", "self.amp.unscale_(opt)"),
        ("qualname: GradScaler.scale, name: scale", "scaler.scale(loss)"),
        (None, "scaler.step(opt)"),
        (None, "lr_scheduler.step()"),
        ("qualname: LRScheduler.step, name: step", "self.warmup.step()"),
    ],
)
def test_gradient_scalers_and_learning_rate_schedulers_belong_outside_of_the_compiled_function(
    context: str | None, code: str
) -> None:
    cause = known_cause("GB0008", "", context, code)
    assert cause.title == "Gradient scaler or learning-rate scheduler"
    assert context is not None or belongs_outside("GB0008", "", code)


def test_the_called_function_identifies_the_cause_of_a_general_id() -> None:
    print_cause = known_cause("GB0059", "Failed to trace builtin operator", "builtin print [<class 'int'>] False")
    assert print_cause.title == "`print`"
    assert "print after the call" in (print_cause.advice or "")
    general_cause = known_cause("GB0059", "Failed to trace builtin operator", "builtin setattr []")
    assert general_cause.title == "Call to a builtin that Dynamo does not trace"
    assert known_cause("GB0142", "Unsupported context manager", code="with self._lock:").title == "Lock"
    loop = known_cause("GB0008", "", "qualname: DataLoader.__iter__, name: __iter__, filename: `dataloader.py`", "rows")
    assert loop.title == known_cause("GB0008", "", code="enumerate(train_loader)").title == "Loop over a `DataLoader`"
    assert (
        known_cause("GB0008", "", code="optimizer.zero_grad()").advice
        == "compile the forward pass, and call backward() and the optimizer after it"
    )
    assert known_cause("GB0124", "", code="print(x.item())").title == known_cause("GB0124", "").title


@pytest.mark.parametrize(
    ("gb_id", "code", "title", "advice"),
    [
        ("GB0007", "tqdm(zip(xs, ys))", "Progress bar", "compile the model, or a function for one step"),
        ("GB0008", "pbar.set_postfix(loss=loss)", "Progress bar", "after the call"),
        ("GB0008", 'writer.add_scalar("loss", loss, step)', "TensorBoard log", "log it after the call"),
        ("GB0007", "random.sample(memory, n)", "Random number from Python's `random`", "draw before the call"),
        ("GB0007", "torch.sparse_coo_tensor(i, v)", "Sparse tensor made in compiled code", "index_add"),
        ("GB0007", "os.path.exists(path)", "File access", "before or after the compiled function runs"),
        ("GB0033", "np.random.rand()", "NumPy's random numbers", "draw before the call"),
        (
            "GB0142",
            "with self.lock:\n    cache[self.attrname] = val",
            "First read of a `functools.cached_property`",
            "once",
        ),
        (
            "GB9186",
            "grad(y, x, create_graph=True)",
            "`torch.autograd.grad` with `create_graph=True`",
            "torch.func.grad",
        ),
        ("GB0059", "str(flow.size())", "`str` of a size", "tuple(x.shape)"),
        ("GB0033", "x[i]", "Tensor used as an index", "x[i.reshape(1)][0]"),
        ("GB0124", "self.sigmas[t]", "Python list indexed with a tensor", "buffer"),
        ("GB0124", "first:last + 1", "Tensor used as a bound of a slice", "torch.where"),
        ("GB0124", "int(edge_index.max())", "Tensor turned into a Python number", "take it from x.shape"),
        ("GB0124", "sizes[i].item()", "Tensor turned into a Python number", "keep the value as a tensor"),
    ],
)
def test_the_code_of_a_break_determines_its_title_and_advice(gb_id: str, code: str, title: str, advice: str) -> None:
    cause = known_cause(gb_id, "", code=code)
    assert cause.title.startswith(title)
    assert advice in (cause.advice or "")


def test_an_operation_that_needs_a_number_is_not_about_lists_and_booleans() -> None:
    context = "aten._local_scalar_dense.default"
    for code in ("torch.rot90(x, k, (-2, -1))", "F.pad(x, (k, 0))", "x.split([h * w for h, w in shapes], dim=1)"):
        cause = known_cause("GB0033", "", context, code)
        assert cause.title.startswith("Number for an operation")
        assert "before the call" in (cause.advice or "")
    for code in ("x.tolist()", "torch.tensor(np.random.rand())", "torch.equal(a, b)", "x[i]", "int(x.max())"):
        assert not known_cause("GB0033", "", context, code).title.startswith("Number for an operation")


def test_a_number_that_tracing_needs_has_a_title_and_advice() -> None:
    cause = known_cause(None, "UserError", code="range(int(n))")
    assert cause.title == "Number from a tensor that Dynamo needs while tracing"
    assert "pass it as an argument" in (cause.advice or "")


@pytest.mark.parametrize(("gb_id", "verb"), [("GB0170", "Branch on"), ("GB0213", "Arithmetic with")])
def test_the_context_shows_that_a_number_is_random(gb_id: str, verb: str) -> None:
    cause = known_cause(gb_id, "", "attempted to jump with UnspecializedPythonVariable()", "p < self.drop")
    assert cause.title == f"{verb} a Python random number"
    assert known_cause(gb_id, "", "attempted to jump with TensorVariable()", "p < self.drop").title != cause.title


def test_an_unknown_iterator_is_not_about_what_its_line_sorts() -> None:
    cause = known_cause("GB4347", "Missing tp_iternext", code="[d[k] for k in sorted(d)]")
    assert cause.manual_step is not None
    assert cause.manual_step.text.startswith("Fix the other breaks of this function first")


def test_a_cause_without_an_id_is_found_by_its_name() -> None:
    assert known_cause(None, "Data-dependent branching") == known_cause("GB0170", "anything")
    unknown_cause = known_cause("GB9999", "something new")
    assert (unknown_cause.id, unknown_cause.title, unknown_cause.advice, unknown_cause.settings) == (
        "GB9999",
        "something new",
        None,
        (),
    )


def literals_with_gb_ids(text: str) -> list[str]:
    """Return the string literals in a module that contain a GB id, except docstrings."""
    tree = ast.parse(text)
    node_types = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, node_types)]
    docstrings = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings]
    return [node.value for node in constants if isinstance(node.value, str) and GB_ID.search(node.value)]


def comments_with_gb_ids(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT and GB_ID.search(token.string)]


def test_no_other_module_names_a_gb_id() -> None:
    assert literals_with_gb_ids('"""GB0001."""\nx = "GB0002"  # GB0003\n') == ["GB0002"]
    modules = [path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE / "knowledge"]
    assert len(modules) > 100
    for path in modules:
        text = path.read_text(encoding="utf-8")
        assert literals_with_gb_ids(text) + comments_with_gb_ids(text) == [], path
