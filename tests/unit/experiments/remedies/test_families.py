"""The proposals of the smaller families of remedies."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import NoReturn

import pytest
from msgspec.structs import replace as replace_fields

from jupyter_graphbreak.analysis.redaction import FAMILY_NAMES
from jupyter_graphbreak.experiments.families import rewrites
from jupyter_graphbreak.experiments.families.table import FAMILIES, MAX_PROPOSALS, proposals_for
from jupyter_graphbreak.report.location import Location, Source
from tests.support.break_problems import problem, proposals_of, proposed_texts

CONFIG = "torch._dynamo.config."


def reraise(_: str, fault: Exception) -> NoReturn:
    raise fault


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("x = 1\ntorch._dynamo.graph_break()  # here\ny = 2\n", "x = 1\ny = 2\n"),
        ("if x:\n\ttorch._dynamo.graph_break()\n", "if x:\n\tpass\n"),
        ("s = 'é'; torch._dynamo.graph_break(); y = 2\n", "s = 'é'; pass; y = 2\n"),
    ],
)
def test_markers_are_removed(text: str, after: str) -> None:
    assert proposed_texts("marker", problem(text, "torch._dynamo.graph_break()", "GB0025")) == [after]


def test_a_similar_call_is_not_removed() -> None:
    assert proposed_texts("marker", problem("y = graph_break()\n", "graph_break()", "GB0025")) == []
    assert proposed_texts("marker", problem("helper()\n", "helper()", "GB0025")) == []


@pytest.mark.parametrize(
    ("gb_id", "settings"),
    [
        ("GB0014", [{"allow_rnn": True}]),
        ("GB0124", [{"capture_scalar_outputs": True},
                    {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}]),
        ("GB9186", [{"trace_autograd_ops": True}]),
        ("GB0170", []),
        ("GB0025", []),
    ],
)  # fmt: skip
def test_settings_are_proposed_for_their_causes(gb_id: str, settings: list[dict[str, object]]) -> None:
    proposals = proposals_of("setting", problem("y = x.item()\n", "x.item()", gb_id))
    assert [dict(proposal.settings) for proposal in proposals] == [
        {CONFIG + name: value for name, value in expected.items()} for expected in settings
    ]


def test_settings_are_found_by_names_of_earlier_releases() -> None:
    break_problem = problem("y = x.item()\n", "x.item()", "", gb_type="Tensor.item() with capture_scalar_outputs=False")
    assert proposals_of("setting", break_problem)


@pytest.mark.parametrize(
    ("code", "gb_id", "after"),
    [
        ("x.max().item()", "GB0124", "y = x.max().detach()\n"),
        ("float(x.max().item())", "GB0124", "y = x.max().detach()\n"),
        ("x.tolist()", "GB0109", "y = x.detach().unbind()\n"),
        ("not x.any()", "GB0033", "y = torch.logical_not(x.any())\n"),
        ("x.any() and x.max() > 1", "GB0170", "y = x.any() & (x.max() > 1)\n"),
        ("x[m].sum()", "GB0036", "y = torch.where(m, x, 0).sum()\n"),
        ("x[m > 0].mean()", "GB0036", "y = (torch.where(m > 0, x, 0).sum() / (m > 0).sum())\n"),
        ("torch.masked_select(x, m).max()", "GB0036", 'y = torch.where(m, x, float("-inf")).max()\n'),
        ("x[m].numel()", "GB0036", "y = m.sum()\n"),
        ("len(x[m])", "GB0036", "y = m.sum()\n"),
    ],
)
def test_values_stay_tensors_without_a_selection(code: str, gb_id: str, after: str) -> None:
    text = f"import torch\ny = {code}\n"
    broken_code = next((part for part in ("x[m > 0]", "x[m]", "torch.masked_select(x, m)") if part in code), code)
    assert proposed_texts("scalar", problem(text, broken_code, gb_id))[0] == f"import torch\n{after}"


def test_elements_are_replaced_without_a_selection() -> None:
    text = "import torch\nold[m > 0] = new[m > 0]\n"
    after = "import torch\nold.copy_(torch.where(m > 0, new, old))\n"
    assert proposed_texts("scalar", problem(text, "new[m > 0]", "GB0036")) == [after]
    other_mask = text.replace("old[m > 0]", "old[m < 0]")
    assert proposed_texts("scalar", problem(other_mask, "new[m > 0]", "GB0036")) == []


@pytest.mark.parametrize("code", ["x[m].sort()", "x[m].sum(0)", "x[m, 1].sum()", "x[1:].sum()", "x[m]"])
def test_code_that_needs_the_selection_is_not_changed(code: str) -> None:
    broken_code = code.partition(".")[0]
    assert proposed_texts("scalar", problem(f"y = {code}\n", broken_code, "GB0036")) == []


@pytest.mark.parametrize("choice", ["if x is None:\n        x = y", "x = y if x is None else x"])
def test_a_value_that_a_test_chooses_may_have_more_dimensions(choice: str) -> None:
    text = f"def f(y, x=None):\n    {choice}\n    return x.tolist()\n"
    proposals = proposals_of("scalar", problem(text, "x.tolist()", "GB0109"))
    assert [proposal.assumptions for proposal in proposals if proposal.settings] == [
        ("it assumes that x has one dimension in all cases",)
    ]


def test_taking_values_one_by_one_includes_the_setting() -> None:
    proposal = proposals_of("scalar", problem("import torch\ny = x.tolist()\n", "x.tolist()", "GB0109"))[-1]
    assert proposal.texts["s1"].endswith("y = [value.item() for value in x]\n")
    assert proposal.settings == {CONFIG + "capture_scalar_outputs": True}


@pytest.mark.parametrize(
    ("statement", "gb_id", "after"),
    [
        ("x.random_(0, 9)", "GB0107", "x.copy_(torch.randint_like(x, 0, 9))"),
        ("y = torch.empty(3).random_(9)", "GB0107", "y = torch.randint_like(torch.empty(3), 0, 9)"),
        ("y = copy.deepcopy(x)", "GB4198", "y = x.detach().clone().requires_grad_(x.requires_grad)"),
        ("x.requires_grad = False", "GB0206", "x = x.detach()"),
        ("x.requires_grad = flag", "GB0206", "x.requires_grad_(flag)"),
        ("y = x.detach().requires_grad_()", "GB8985", "y = x.detach()"),
        ("assert x.any(), f'{x}'", "GB0171", 'torch._assert_async(x.any(), "check failed")'),
        (
            "if y is not None and x.max() > 3:\n    raise ValueError('far')",
            "GB0170",
            "if y is not None:\n    torch._assert_async(torch.logical_not(x.max() > 3), 'far')",
        ),
        ("y = list(map(torch.sin, xs + ys))", "GB0213", "y = [torch.sin(item) for item in (xs + ys)]"),
        ("y = list(map(item.mul, xs))", "GB0213", "y = [item.mul(item_2) for item_2 in xs]"),
        ("y = x + random.random()", "GB0007", "y = x + random.uniform(0, 1)"),
        ("s = '%s: %.2f {' % (name, x.sum())", "GB0088", "s = '{!s}: {:.2f} {{'.format(name, x.sum())"),
        ("s = '%f' % x.sum()", "GB0033", "s = '{:f}'.format(x.sum())"),
        ("x[i, 0] = 1", "GB0033", "x[i.reshape(1), 0] = 1"),
        ("x[i] += 1", "GB0033", "x[i.reshape(1)] += 1"),
    ],
)
def test_statements_are_rewritten(statement: str, gb_id: str, after: str) -> None:
    text = f"import torch\n{statement}  # so\n"
    assert proposed_texts("rewrite", problem(text, statement, gb_id))[0] == f"import torch\n{after}  # so\n"


def test_variables_of_old_code_are_detached_in_the_whole_source() -> None:
    text = "def f(x):\n    h = Variable(x + 1)\n    return h\ny = Variable(g(x)), Variable(x, volatile=True)\n"
    after = text.replace("Variable(x + 1)", "(x + 1).detach()").replace("Variable(g(x))", "g(x).detach()")
    assert proposed_texts("rewrite", problem(text, "Variable(x + 1)", "GB0007")) == [after]


@pytest.mark.parametrize(
    ("test", "after"),
    [
        ("x.isnan().any() and debug", "debug and x.isnan().any()"),
        ("x.any() and not self.debug and x.max() > 1", "(not self.debug) and x.any() and (x.max() > 1)"),
        ("(x.isnan().any() or bad(x)) and DEBUG", "DEBUG and (x.isnan().any() or bad(x))"),
        ("x.any() or x.dim() > 2", "(x.dim() > 2) or x.any()"),
    ],
)
def test_a_python_operand_is_tested_before_the_tensor(test: str, after: str) -> None:
    text = f"if {test}:\n    y = x.log()\n"
    assert text.replace(test, after) in proposed_texts("rewrite", problem(text, test, "GB0170"))


@pytest.mark.parametrize("test", ["x.any() and y.pop()", "debug and x.any()", "xs.pop().any() and debug", "x.any()"])
def test_other_operands_keep_their_order(test: str) -> None:
    text = f"if {test}:\n    y = x.log()\n"
    assert proposed_texts("rewrite", problem(text, test, "GB0170")) == []


@pytest.mark.parametrize(
    ("code", "after"),
    [
        ("x[x.argmax()]", "x[x.argmax().reshape(1)][0]"),
        ("x[:, i]", "x[:, i.reshape(1)].squeeze(1)"),
        ("x[0, None, :, i + 1, 0]", "x[0, None, :, (i + 1).reshape(1), 0].squeeze(2)"),
    ],
)
def test_a_tensor_that_is_an_index_becomes_a_vector(code: str, after: str) -> None:
    text = f"import torch\ny = {code} * 2\n"
    assert proposed_texts("rewrite", problem(text, code, "GB0033"))[0] == f"import torch\ny = {after} * 2\n"


def test_a_variable_that_is_an_index_is_replaced_in_the_whole_function() -> None:
    text = "import torch\ndef f(x, i):\n    y = x[i] + x[j]\n    x[i] = 0\n    return y[..., i], x[1]\n"
    after = text.replace("x[i] +", "x[i.reshape(1)][0] +").replace("x[i] = 0", "x[i.reshape(1)] = 0")
    assert proposed_texts("rewrite", problem(text, "x[i]", "GB0033")) == [after]


@pytest.mark.parametrize("code", ["x[0]", "x[1:]", "x[..., i]", "x['k', ::2]"])
def test_other_indices_stay(code: str) -> None:
    assert proposed_texts("rewrite", problem(f"import torch\ny = {code} * 2\n", code, "GB0033")) == []


def test_a_mask_does_not_become_a_vector() -> None:
    assert proposed_texts("rewrite", problem("import torch\ny = x[mask] * 2\n", "x[mask]", "GB0036")) == []


def test_the_largest_item_is_found_in_a_loop() -> None:
    text = "import torch\ndef f(xs):\n  y = max(xs, key=len) + 1\n  return min(ys)\n"
    (largest,) = proposed_texts("rewrite", problem(text, "max(xs, key=len)"))
    assert largest.splitlines()[2:-1] == [
        "  rest = list(xs)", "  best = rest.pop(0) if rest else max(rest)  # raises for an empty list",
        "  key = len", "  best_key = key(best)", "  for item in rest:", "    item_key = key(item)",
        "    better = item_key > best_key", "    best = torch.where(better, item, best)",
        "    best_key = torch.where(better, item_key, best_key)", "  y = best + 1",
    ]  # fmt: skip
    (smallest,) = proposed_texts("rewrite", problem(text, "min(ys)"))
    assert smallest.splitlines()[3:] == [
        "  rest = list(ys)", "  best = rest.pop(0) if rest else min(rest)  # raises for an empty list",
        "  for item in rest:", "    better = item < best", "    best = torch.where(better, item, best)",
        "  return best",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "code", ["max(x, y)", "max(*xs)", "max(xs, default=x)", "g(max(xs))", "x and max(xs)", "x.max(y)"]
)
def test_other_calls_of_max_are_not_rewritten(code: str) -> None:
    assert proposed_texts("rewrite", problem(f"import torch\ny = {code}\n", code)) == []


def test_strings_are_formatted_as_with_the_operator() -> None:
    numbers = (0.0, -0.0, 3.14159, -2.5, 1e20, float("nan"), float("-inf"))
    parts = itertools.product(("", "-", "+", " ", "0", "+0", "-+"), ("", "9"), ("", ".0", ".3"), "feEgGFsr")
    comparison_count = 0
    for flags, width, precision, kind in parts:
        template = f"a%{flags}{width}{precision}{kind}%%{{b}}"
        for value in (*numbers, "text") if kind in "sr" else numbers:
            braces = rewrites._str_format_template(template)
            if braces is not None:
                comparison_count += 1
                assert braces.format(value) == template % value, (template, braces, value)
    assert comparison_count > 1000
    assert [rewrites._str_format_template(template) for template in ("%d", "%(name)s", "%", "%*d", "%#x")] == [None] * 5


def test_a_tensor_is_created_without_gradients() -> None:
    text = "zeros = torch.zeros(2, requires_grad=True, dtype=x.dtype)\n"
    (after,) = proposed_texts("rewrite", problem(text, "torch.zeros(2, requires_grad=True, dtype=x.dtype)", "GB0225"))
    assert after == text.replace("True", "False")


@pytest.mark.parametrize("inputs", ["net.parameters()", "(p for p in ps)", "[p for p in ps]", "list(ps)", "weights"])
def test_the_inputs_of_grad_are_listed(inputs: str) -> None:
    code = f"torch.autograd.grad(loss, {inputs})"
    proposals = proposals_of("rewrite", problem(f"gs = {code}\n", code, "GB9186"))
    texts = (
        [f"gs = torch.autograd.grad(loss, list({inputs}))\n"]
        if inputs in {"net.parameters()", "(p for p in ps)"}
        else []
    )
    assert [text for proposal in proposals for text in proposal.texts.values()] == texts
    assert all(proposal.settings == {f"{CONFIG}trace_autograd_ops": True} for proposal in proposals)


def test_a_statement_that_sets_requires_grad_is_left_out() -> None:
    text = "import torch\ny = x.detach()\ny.requires_grad_()\nz = y\n"
    assert proposed_texts("rewrite", problem(text, "y.requires_grad_()", "GB8985")) == [
        "import torch\ny = x.detach()\nz = y\n"
    ]


def test_a_progress_bar_is_skipped_when_compiling() -> None:
    text = "import torch\nfor i in tqdm(range(3), leave=True):\n    x = x + i\n"
    (proposed_text,) = proposed_texts("rewrite", problem(text, "tqdm(range(3), leave=True)", "GB0008"))
    loop = "for i in (range(3) if torch.compiler.is_compiling() else tqdm(range(3), leave=True)):"
    assert proposed_text == f"import torch\n{loop}\n    x = x + i\n"


def test_a_call_independent_of_the_function_moves_before_it() -> None:
    text = "import torch\ndef f(x):\n    home = os.path.expanduser('~')\n    return x * len(home)\n"
    (first,) = proposals_of("hoisting", problem(text, "os.path.expanduser('~')", "GB0007", entry="def f("))
    assert first.compiles_inner_function
    assert first.texts["s1"] == (
        "import torch\n@torch.compile\ndef _f_compiled(home, x):\n    return x * len(home)\n\n\n"
        "def f(x):\n    home = os.path.expanduser('~')\n    return _f_compiled(home, x)\n"
    )


def test_random_numbers_are_drawn_before_the_call() -> None:
    body = "    y = x.sin()\n    y = y[top : top + k]\n    if random.random() < k:\n        y = -y\n    return y\n"
    text = f"import torch\ndef f(x, k=2):\n    top = random.randint(0, len(x) - k)\n{body}"
    (proposal,) = proposals_of("hoisting", problem(text, "top + k", "GB0213", entry="def f("))
    new_body = body.replace("random.random() < k", "drawn")
    lines = "    top = random.randint(0, len(x) - k)\n    drawn = random.random() < k\n"
    assert proposal.texts["s1"] == (
        f"import torch\n@torch.compile\ndef _f_compiled(top, drawn, x, k=2):\n{new_body}\n\n"
        f"def f(x, k=2):\n{lines}    return _f_compiled(top, drawn, x, k)\n"
    )


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("    y = x.sin()\n    n = random.randint(0, len(y))\n    return x + (n + 1)", "n + 1"),
        ("    x = x.sin()\n    n = random.randint(0, len(x))\n    return x + (n + 1)", "n + 1"),
        ("    n = random.randint(0, 2) if len(x) else 1\n    return x + (n + 1)", "n + 1"),
        ("    n = random.seed(1)\n    return x + (n + 1)", "n + 1"),
        ("    if len(x): return x\n    n = random.randint(0, 2)\n    return x + (n + 1)", "n + 1"),
        ("    n = random.randint(0, 2)\n    return x + (x.item() + 1)", "x.item() + 1"),
    ],
)
def test_random_numbers_that_depend_on_the_function_stay_in_it(lines: str, code: str) -> None:
    text = f"import random, torch\ndef f(x):\n{lines}\n"
    assert proposals_of("hoisting", problem(text, code, "GB0213", entry="def f(")) == []


def test_a_context_moves_around_the_call() -> None:
    text = "import torch\ndef f(x):\n    with lock:\n        y = x * 2\n        # then\n    return y\n"
    (proposal,) = proposals_of("hoisting", problem(text, "with lock:", "GB0142", entry="def f("))
    assert proposal.texts["s1"] == (
        "import torch\n@torch.compile\ndef _f_compiled(x):\n    y = x * 2\n        # then\n    return y\n\n\n"
        "def f(x):\n    with lock:\n        return _f_compiled(x)\n"
    )


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("    t = time.time()\n    return x", "time.time()"),
        ("    n = compute(x)\n    return n", "compute(x)"),
        ("    if x.dim():\n        n = os.getpid()\n    return x", "os.getpid()"),
        ("    log = []\n    n = log.copy()\n    return x", "log.copy()"),
        ("    with lock as l:\n        x = l(x)\n    return x", "with lock as l:"),
        ("    with open(x):\n        for i in x: x = x + i\n    return x", "with open(x):"),
    ],
)
def test_code_that_depends_on_the_function_stays_in_it(lines: str, code: str) -> None:
    assert (
        proposals_of("hoisting", problem(f"import torch\ndef f(x):\n{lines}\n", code, "GB0007", entry="def f(")) == []
    )


@pytest.mark.parametrize(
    ("path", "code", "part", "assumption"),
    [
        (
            "transformers/models/x.py",
            "torch._check_tensor_all(cond)",
            "TRANSFORMERS_DISABLE_TORCH_CHECK",
            "no longer noticed",
        ),
        ("transformers/models/x.py", "for expert_idx in expert_hit:", 'set_experts_implementation("batched_mm")', None),
        ("transformers/models/x.py", "dropout_probability < self.layerdrop", "layerdrop", "no longer dropped"),
        ("torch_geometric/utils/loop.py", "edge_index[:, mask]", "module.add_self_loops = False", "already contain"),
        (
            "gpytorch/models/exact_gp.py",
            "torch.equal(train_input, input)",
            "gpytorch.settings.debug(False)",
            "no longer",
        ),
    ],
)
def test_a_switch_is_proposed_for_its_library(path: str, code: str, part: str, assumption: str | None) -> None:
    break_problem = problem(f"x = 0\n{code}\n", code, "GB0170")
    library_problem = replace(
        break_problem, report=replace_fields(break_problem.report, sources=[Source("s1", "x.py", "library", path)])
    )
    (proposal,) = proposals_of("switch", library_problem)
    assert part in (proposal.code or "")
    assert bool(proposal.assumptions) is (assumption is not None)
    assert all(assumption in text for text in proposal.assumptions if assumption is not None)
    assert proposals_of("switch", break_problem) == []


def test_a_switch_that_only_the_user_can_set_is_not_proposed() -> None:
    break_problem = problem("x = 0\nint(index.max())\n", "int(index.max())", "GB0124")
    source = Source("s1", "_scatter.py", "library", "torch_geometric/utils/_scatter.py")
    assert (
        proposals_of("switch", replace(break_problem, report=replace_fields(break_problem.report, sources=[source])))
        == []
    )


def test_a_break_inside_the_standard_library_is_fixed_at_the_call() -> None:
    text = "import copy, torch\ny = copy.deepcopy(x)\n"
    break_problem = problem(text, "copy.deepcopy(x)", "GB4198")
    inner_location = Location("s2", 153, 153, 12, 24, "deepcopy", "copier(memo)")
    (break_,) = break_problem.report.breaks
    assert break_.location is not None
    moved_break = replace_fields(break_, location=inner_location, stack=[break_.location, inner_location])
    sources = [*break_problem.report.sources, Source("s2", "copy.py", "library", "copy.py")]
    report = replace_fields(break_problem.report, breaks=[moved_break], sources=sources)
    assert proposed_texts("rewrite", replace(break_problem, report=report, break_=moved_break))[0].endswith(
        "x.requires_grad)\n"
    )


def test_a_source_that_cannot_be_parsed_has_no_proposals() -> None:
    for text in ("def f(:\n    x.item()\n", "x = (\n"):
        break_problem = problem(text + "x.item()", "x.item()", "GB0170")
        assert not [proposal for proposal in proposals_for(break_problem, reraise) if proposal.texts]
    break_problem = replace(problem("x.item()\n", "x.item()"), texts={})
    assert not [proposal for proposal in proposals_for(break_problem, reraise) if proposal.texts]


def test_proposals_are_ordered_without_duplicates() -> None:
    assert set(FAMILIES) <= FAMILY_NAMES
    text = "import torch\ndef f(x):\n    if x.max().item() > 0: x += 1\n    return x\n"
    proposals = proposals_for(problem(text, "x.max().item()", "GB0124"), reraise)
    assert 1 < len(proposals) <= MAX_PROPOSALS
    assert proposals[0].family == "branch"
    changes = [
        (tuple(proposal.texts.items()), tuple(proposal.settings.items()), proposal.code) for proposal in proposals
    ]
    assert len(set(changes)) == len(changes)
    assert {proposal.kind for proposal in proposals} == {"edit", "setting"}


CONTEXTS = """
@contextlib.contextmanager
def print_entry():
    yield


class Quiet:
    def __exit__(self, *error):
        return True


class Timer:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False


def make_context():
    return Timer()


def make_quiet_context():
    return contextlib.suppress(ValueError)
"""


@pytest.mark.parametrize(
    ("block", "is_handled"),
    [
        ("try:\n        {}\n    except ValueError:\n        pass", True),
        ("try:\n        pass\n    except ValueError:\n        {}", False),
        ("try:\n        {}\n    finally:\n        pass", False),
        ("with contextlib.suppress(ValueError):\n        {}", True),
        ("with Quiet():\n        {}", True),
        ("with Timer():\n        {}", False),
        ("with make_context():\n        {}", False),
        ("with make_quiet_context():\n        {}", True),
        ("with print_entry(), torch.no_grad():\n        {}", False),
    ],
)
def test_an_assumption_says_that_code_whose_errors_are_handled_raises_nothing(block: str, *, is_handled: bool) -> None:
    text = f"{CONTEXTS}def f(x):\n    {block.format('y = int(x)')}\n"
    break_problem = problem(text, "int(x)", "GB0124", entry="def f(")
    proposals = proposals_for(break_problem, reraise)
    assert {proposal.family for proposal in proposals} >= {"setting", "scalar"}
    assumption = "it assumes that int(x), whose errors the code around it handles, never raises"
    assert all((assumption in proposal.assumptions) is is_handled for proposal in proposals)
