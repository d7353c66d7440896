"""Proposals for sizes that are stored in tensors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_fields

from jupyter_graphbreak.experiments.families.proposal import Problem
from jupyter_graphbreak.report.location import Location, Source
from tests.support.break_problems import problem, proposals_of, proposed_texts

HEAD = "import torch\n"


def test_sizes_are_read_before_the_call() -> None:
    text = f"{HEAD}def f(x, n):\n    parts = x.split(n.tolist())\n    return parts[int(n[0])]\n"
    (proposal,) = proposals_of("sizes", problem(text, ["n.tolist()", "int(n[0])"], "GB0033", entry="def f("))
    assert proposal.compiles_inner_function
    assert proposal.title == "Read the numbers before the call, and pass them"
    assert proposal.texts["s1"] == (
        f"{HEAD}@torch.compile\ndef _f_compiled(given, given_2, x, n):\n    parts = x.split(given)\n"
        "    return parts[given_2]\n\n\n"
        "def f(x, n):\n    given = n.tolist()\n    given_2 = int(n[0])\n    return _f_compiled(given, given_2, x, n)\n"
    )


def test_an_unknown_output_size_is_passed() -> None:
    text = f"{HEAD}def f(x, n):\n    return torch.repeat_interleave(x, n)\n"
    (proposed_text,) = proposed_texts("sizes", problem(text, "torch.repeat_interleave(x, n)", "GB0036", entry="def f("))
    assert (
        "return torch.repeat_interleave(x, n, output_size=given * (x.numel() if n.numel() == 1 else 1))"
        in proposed_text
    )
    assert "    given = int(n.sum())\n    return _f_compiled(given, x, n)" in proposed_text


def test_an_output_size_along_a_dimension_counts_its_elements() -> None:
    text = f"{HEAD}def f(x, n):\n    return x[1:].repeat_interleave(n, dim=-1)\n"
    (proposed_text,) = proposed_texts(
        "sizes", problem(text, "x[1:].repeat_interleave(n, dim=-1)", "GB0036", entry="def f(")
    )
    size = "given * (x[1:].size(-1) if n.numel() == 1 else 1)"
    assert f"return x[1:].repeat_interleave(n, dim=-1, output_size={size})" in proposed_text


def test_an_expression_with_a_call_is_not_repeated_in_an_output_size() -> None:
    text = f"{HEAD}def f(x, n):\n    return x.cumsum(0).repeat_interleave(n, 0)\n"
    assert not proposed_texts("sizes", problem(text, "x.cumsum(0).repeat_interleave(n, 0)", "GB0036", entry="def f("))


def test_new_names_differ_from_existing_names() -> None:
    text = f"{HEAD}def f(x, given):\n    return x[: given[0].item()], x[given[1].item() :]\n"
    expressions = ["given[0].item()", "given[1].item()"]
    (proposed_text,) = proposed_texts("sizes", problem(text, expressions, "GB0124", entry="def f("))
    assert "    given_2 = given[0].item()\n    given_3 = given[1].item()\n" in proposed_text
    assert "return x[: given_2], x[given_3 :]" in proposed_text


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("n += 1\n    return x.split(n.tolist())", "n.tolist()"),
        ("n.add_(1)\n    return x.split(n.tolist())", "n.tolist()"),
        ("n[0] = 1\n    return x.split(n.tolist())", "n.tolist()"),
        ("torch.add(n, 1, out=n)\n    return x.split(n.tolist())", "n.tolist()"),
        ("n = n * 2\n    return x.split(n.tolist())", "n.tolist()"),
        ("if x.dim():\n        return x\n    return x.split(n.tolist())", "n.tolist()"),
        ("if x.dim():\n        x = x[: n.item()]\n    return x", "n.item()"),
        ("return x if x.dim() else x[: n.item()]", "n.item()"),
        ("for i in range(3):\n        x = x[: n.item()]\n    return x", "n.item()"),
        ("return [x[: m.item()] for m in n]", "m.item()"),
        ("return x.split(helper(n).tolist())", "helper(n).tolist()"),
        ("return x + scale.item()", "scale.item()"),
    ],
)
def test_a_number_that_may_change_is_not_read_before_the_call(body: str, code: str) -> None:
    assert proposed_texts("sizes", problem(f"{HEAD}def f(x, n):\n    {body}\n", code, "GB0124", entry="def f(")) == []


@pytest.mark.parametrize(
    ("code", "after"),
    [
        ("int(np.prod(x.shape))", "x.shape.numel()"),
        ("np.prod(x.shape[1:])", "x.shape[1:].numel()"),
        ("numpy.prod(x.size())", "x.size().numel()"),
    ],
)
def test_elements_are_counted_without_numpy(code: str, after: str) -> None:
    assert proposed_texts("sizes", problem(f"y = {code} + 1\n", code, "GB0033")) == [f"y = {after} + 1\n"]


@pytest.mark.parametrize("code", ["np.prod(sizes)", "np.prod(x.shape, 0)", "np.sum(x.shape)", "np.prod(x.shape[0])"])
def test_other_products_are_not_changed(code: str) -> None:
    assert proposed_texts("sizes", problem(f"y = {code}\n", code, "GB0033")) == []


def library_problem(text: str, code: str, gb_id: str) -> Problem:
    break_problem = problem(text, code, gb_id)
    source = Source("s1", "modeling_x.py", "library", "transformers/models/x/modeling_x.py")
    return replace(break_problem, report=replace_fields(break_problem.report, sources=[source]))


@pytest.mark.parametrize(
    ("text", "code", "gb_id", "part"),
    [
        ("n = image_grid_thw.prod(-1).tolist()\n", "image_grid_thw.prod(-1).tolist()", "GB0033", "compute_from_grids"),
        ("n = [int(size[0]) for size in image_sizes]\n", "int(size[0])", "GB0124", "pass_numbers"),
        ("bound = signature.bind(self, x)\n", "signature.bind(self, x)", "GB0198", "type(self).forward(self"),
    ],
)
def test_sizes_are_passed_to_library_models_by_hooks(text: str, code: str, gb_id: str, part: str) -> None:
    (proposal,) = proposals_of("sizes", library_problem(text, code, gb_id))
    assert proposal.kind == "switch"
    assert part in (proposal.code or "")
    compile(proposal.code or "", "switch", "exec")
    assert proposals_of("sizes", problem(text, code, gb_id)) == []


def test_a_signature_break_in_the_standard_library_belongs_to_its_caller() -> None:
    break_problem = library_problem("bound = signature.bind(self, x)\n", "signature.bind(self, x)", "GB0198")
    (break_,) = break_problem.report.breaks
    assert break_.location is not None
    inner_break = replace_fields(
        break_, location=Location("s2", 9, 9, code="self.parameters.values()"), stack=[break_.location]
    )
    assert len(proposals_of("sizes", replace(break_problem, break_=inner_break))) == 1


def test_the_title_names_the_only_number() -> None:
    text = f"{HEAD}def f(x, n):\n    return x.split(n.tolist())\n"
    (proposal,) = proposals_of("sizes", problem(text, "n.tolist()", "GB0033", entry="def f("))
    assert proposal.title == "Read `n.tolist()` before the call, and pass it"
