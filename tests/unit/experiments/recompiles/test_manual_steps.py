"""Manual steps about recompiles: one sentence for each cause, with the recompiles that it explains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from msgspec.structs import replace

from jupyter_graphbreak.experiments.recompiles.manual_steps import (
    GENERAL_STEP,
    are_recompiles_expected,
    is_about_freed_objects,
    is_general,
    manual_step,
    manual_steps,
)
from jupyter_graphbreak.experiments.recompiles.trying import SpecializingLine
from jupyter_graphbreak.experiments.recompiles.variations import Number, OtherVariation, Size, Variations
from jupyter_graphbreak.experiments.trial.call_specs import Path, Root, TensorSpec
from jupyter_graphbreak.report.schema import GuardFailure, Recompile
from jupyter_graphbreak.views.words.failed_guards import failed_guards

if TYPE_CHECKING:
    from jupyter_graphbreak.experiments.recompiles.variations import OtherKind

CODE = "pad = 16 - int(x.shape[0])"


def test_a_line_in_a_library_is_shown_with_its_file() -> None:
    sentence = manual_step(
        Variations(), Variations(), [], SpecializingLine("/site-packages/lib/pad.py", 7, CODE, "pad.py")
    )
    assert sentence.startswith(f"Line 7 of pad.py, `{CODE}`, turns a size")
    assert "convert it outside" not in sentence


def test_the_step_for_a_line_of_the_user_says_how_to_rewrite_it() -> None:
    sentence = manual_step(Variations(), Variations(), [], SpecializingLine("s1", 7, CODE))
    assert sentence.startswith(f"Line 7, `{CODE}`, turns a size")
    assert "convert it outside" in sentence


def test_a_list_that_grows_is_the_cause_even_if_a_line_turns_a_number_into_a_constant() -> None:
    guards = [GuardFailure("len(L['self'].history) == 3"), GuardFailure("L['epoch'] == 0")]
    line = SpecializingLine("s1", 14, "for block in self.blocks: x = block(x, epoch / 10)")
    ((step, _),) = manual_steps(Variations(), [Recompile("0/2", "0/0", "forward", None, guards, id="r2")], [line])
    assert step.startswith("The length of `self.history` varies")
    ((step, _),) = manual_steps(Variations(), [Recompile("0/1", "0/0", "forward", None, guards[1:], id="r1")], [line])
    assert "turns a size or a number into a constant" in step, "the body of the loop, not its header"


def test_a_tensor_that_is_an_index_gets_a_vector_and_no_advice_on_sizes() -> None:
    recompile = Recompile("0/1", "0/0", "f", None, [GuardFailure("L['t'].item() == 3")], id="r1")
    ((step, _),) = manual_steps(Variations(), [recompile], [SpecializingLine("s1", 6, "a = alphas[t]")])
    assert step.startswith("`t` is a tensor that is used as a number, and each value has its own graph: for an index")
    assert step.endswith("write `x[t.reshape(1)][0]` instead of `x[t]`; or pass `t` as a number.")


def test_a_deallocated_object_was_replaced_by_a_new_one() -> None:
    deallocated = GuardFailure("Cache line invalidated because L['self'] got deallocated")
    recompile = Recompile("2/1", "2/0", "step", None, [deallocated], id="r1")
    assert is_about_freed_objects(recompile)
    assert not is_about_freed_objects(replace(recompile, reasons=[deallocated, GuardFailure("L['lr'] == 0.1")]))
    ((step, _),) = manual_steps(Variations(), [recompile])
    assert step.startswith("`self` is a new object, and the one that the code was compiled for is gone")
    deallocated = GuardFailure("Cache line invalidated because L['___stack0'] got deallocated")
    ((step, _),) = manual_steps(Variations(), [replace(recompile, reasons=[deallocated])])
    assert step == GENERAL_STEP


def test_a_condition_on_a_size_may_need_padding() -> None:
    line = SpecializingLine("s1", 26, "if x.shape != y.shape:", head="condition")
    varied = Variations(sizes=(Size(Path(Root("argument", "x")), 2, (32, 48)),))
    assert "padding" in manual_step(varied, Variations(), [], line)
    assert "padding" not in manual_step(Variations(), Variations(), [], line)


def test_one_graph_for_each_optimizer_is_expected() -> None:
    guard = GuardFailure("___check_obj_id(args[0], 139), type=<class 'torch.optim.adam.Adam'>")
    ((step, _),) = manual_steps(Variations(), [Recompile("7/1", "7/0", "wrapper", None, [guard], id="r1")])
    assert step == "`args[0]` is a different optimizer in some calls, and each has its own graph, as expected."


def test_one_graph_for_each_passed_function_is_expected() -> None:
    guards = [
        "___check_obj_id(L['kernel'].__code__, 140), type=<class 'code'>",
        "CodeGuardAccessor: Not a function on L['kernel'].__code__",
        "___check_obj_id(L['kernel'], 150), type=<class 'builtin_function_or_method'>",
    ]
    recompiles = [
        Recompile(f"0/{number}", "0/0", "apply", None, [GuardFailure(guard) for guard in guards[:number]])
        for number in (1, 2, 3)
    ]
    assert are_recompiles_expected(Variations(), recompiles)
    assert not are_recompiles_expected(Variations(), [*recompiles, *recompiles])
    assert manual_step(Variations(), Variations(), recompiles, None).startswith(
        "`kernel` is a different function in some calls, and each function has its own graph"
    )
    (guard,) = failed_guards((0, failure) for failure in recompiles[-1].reasons)
    assert guard.variation == "`kernel` is a different function"


def test_recompiles_for_training_and_evaluation_are_expected() -> None:
    recompile = Recompile("0/1", "0/0", "forward", None, [GuardFailure("GLOBAL_STATE changed: grad_mode ")])
    assert are_recompiles_expected(Variations(), [recompile])
    other = replace(recompile, reasons=[GuardFailure("GLOBAL_STATE changed: grad_mode num_threads ")])
    assert not are_recompiles_expected(Variations(), [other])


def test_training_does_not_explain_the_dtype_of_a_tensor_in_an_inner_function() -> None:
    path = Path(Root("module", "self")).child("attribute", "training")
    training = Variations(other_variations=(OtherVariation(path, "flag", (True, False)),))
    guards = {"r1": "tensor 't' dtype mismatch. expected Float, actual Long", "r2": "L['self'].training == True"}
    recompiles = [
        Recompile("3/1", "3/0", "pad", None, [GuardFailure(guard)], id=ident) for ident, guard in guards.items()
    ]
    steps = manual_steps(training, recompiles)
    assert [ids for _, ids in steps] == [["r2"]]


def test_a_counter_of_an_object_whose_method_is_called_at_a_break_is_recognized() -> None:
    recompile = Recompile("1/1", "1/0", "step", None, [GuardFailure("___stack0.__self__.n == 0")], id="r1")
    ((step, _),) = manual_steps(Variations(), [recompile], [SpecializingLine("s1", 11, "self.n += n")])
    assert step.startswith("`self.n` of the method that is called at the break varies: keep the number in a tensor")


def test_an_optimizer_that_counts_its_steps_in_python_stays_out_of_the_compiled_function() -> None:
    group = Path(Root("global", "opt")).child("attribute", "param_groups").child("item", 0)
    count = Number(group.child("item", "k"), (1, 2, 3))
    keys = OtherVariation(group, "length", ())
    first = GuardFailure("not ___dict_contains('z', G['opt'].state[list(dict.keys(G['opt'].state))[0]])")
    later = GuardFailure("G['opt'].param_groups[0]['k'] == 1")
    recompiles = [
        Recompile("0/1", "0/0", "step", None, [first], id="r1"),
        Recompile("0/2", "0/0", "step", None, [first, later], id="r2"),
    ]
    steps = dict(manual_steps(Variations(numbers=(count,), other_variations=(keys,)), recompiles))
    (state_step, number_step) = sorted(steps, key=lambda step: steps[step])
    assert state_step.startswith("The first call creates the optimizer's state")
    assert number_step.startswith("`opt.param_groups[0]['k']` of the optimizer is a Python number")
    assert "leave `step()` of this optimizer out of the compiled function" in number_step


def test_a_number_of_an_optimizer_is_the_cause_even_if_a_flag_varies_and_the_guard_names_the_optimizer_self() -> None:
    group = Path(Root("global", "opt")).child("attribute", "param_groups").child("item", 0)
    flag = OtherVariation(group.child("item", "capturable"), "flag", (False, True))
    guard = GuardFailure("L['self'].param_groups[0]['lr'] == 0.001")
    ((step, _),) = manual_steps(
        Variations(other_variations=(flag,)), [Recompile("5/1", "5/0", "step", None, [guard], id="r1")]
    )
    assert step.startswith("`self.param_groups[0]['lr']` of the optimizer is a Python number")


def test_a_count_in_the_state_of_an_optimizer_is_expected_to_need_graphs_for_0_and_1() -> None:
    guard = GuardFailure("L['args'][0].state[list(dict.keys(L['args'][0].state))[0]]['step'] == 1")
    recompile = Recompile("0/1", "0/0", "wrapper", None, [guard], id="r1")
    ((step, _),) = manual_steps(Variations(), [recompile], [SpecializingLine("s1", 11, "state['step'] += 1")])
    assert step.startswith("A count in the optimizer's state is 0 or 1 in the first steps")


def test_each_function_gets_the_sentence_about_its_own_line_and_its_own_guard() -> None:
    length = OtherVariation(Path(Root("global", "rows")), "length", ())
    step_number = Number(Path(Root("argument", "step")), (0, 1, 2))
    lines = [
        SpecializingLine("s1", 9, "log(loss, step)", None, "1/0"),
        SpecializingLine("s1", 10, "if step % 2 == 0:", None, "2/0", "condition"),
    ]
    recompiles = [
        Recompile("2/1", "2/0", "step", None, [GuardFailure("(L['step'] % 2) != 0")], id="r1"),
        Recompile("3/1", "3/0", "step", None, [GuardFailure("L['step'] == 0")], id="r2"),
    ]
    variations = Variations(numbers=(step_number,), other_variations=(length,))
    by_id = {ident: step for step, ids in manual_steps(variations, recompiles, lines) for ident in ids}
    assert by_id["r1"].startswith("Line 10, `if step % 2 == 0`, tests a value that varies")
    assert by_id["r2"].startswith("`step` varies")


@pytest.mark.parametrize(("kind", "first", "kind_words"), [
    ("kind", 0.0, "is a number"),
    ("rank", 1, "has a different number of dimensions"),
    ("none", None, "is None"),
])  # fmt: skip
def test_a_modules_own_state_has_to_be_set_before_the_first_call(kind: OtherKind, first: Any, kind_words: str) -> None:
    later = TensorSpec((3,), torch.float32, torch.device("cpu"), requires_grad=False)
    own_state = Path(Root("module", "self")).child("attribute", "v")
    for path, is_own in ((own_state, True), (Path(Root("argument", "x")), False)):
        variations = Variations(other_variations=(OtherVariation(path, kind, (first, later)),))
        step = manual_step(variations, variations, [], None)
        assert ("before the first call" in step) == is_own
        assert kind_words in step or not is_own


def test_a_name_that_is_none_in_the_first_call_needs_no_tensor() -> None:
    own_state = Path(Root("module", "self")).child("attribute", "adapter")
    variations = Variations(other_variations=(OtherVariation(own_state, "none", (None, "en", "de")),))
    step = manual_step(variations, variations, [], None)
    assert step.startswith("`self.adapter` is sometimes None")
    assert step.endswith("If it is None only until the first call sets it, set it before that call.")


def test_recompiles_for_different_memory_layouts_are_not_expected() -> None:
    guard = GuardFailure("tensor 'L['x']' stride mismatch at index 0. expected 4, actual 1")
    recompile = Recompile("0/1", "0/0", "f", None, [guard], id="r1")
    gradients = OtherVariation(Path(Root("argument", "x")), "requires_grad", (False, True))
    assert not are_recompiles_expected(Variations(other_variations=(gradients,)), [recompile])
    ((step, _),) = manual_steps(Variations(), [recompile])
    assert "make it contiguous before the call" in step


def test_the_step_says_whether_values_share_a_graph() -> None:
    position = Number(Path(Root("argument", "position")), (0, 1, 2, 3))
    recompile = Recompile("0/1", "0/0", "f", None, [GuardFailure("position == 0")], id="r1")
    line = SpecializingLine("s1", 7, "cache[position] = x")
    ((shared_graph_step, _),) = manual_steps(Variations(numbers=(position,)), [recompile], [line])
    assert shared_graph_step.startswith("Line 7, `cache[position] = x`, treats some values of `position` separately")
    assert "the 4 values of this run need 2 graphs" in shared_graph_step
    ((separate_graphs_step, _),) = manual_steps(Variations(numbers=(position,)), [recompile] * 3, [line])
    assert "each value has its own graph" in separate_graphs_step
    assert "Compute with the number itself or a tensor" in separate_graphs_step


@pytest.mark.parametrize(
    ("dim", "sizes", "sentence"),
    [
        (0, (32, 32, 4, 32, 32, 4), "Dimension 0 of `x` is 4 instead of 32 in some calls, as in a smaller last batch"),
        (0, (32, 4, 4, 4), "Dimension 0 of `x` varies"),
        (0, (4, 32), "Dimension 0 of `x` varies"),
        (1, (32, 32, 4), "Dimension 1 of `x` varies"),
    ],
)
def test_a_smaller_last_batch_can_be_left_out(dim: int, sizes: tuple[int, ...], sentence: str) -> None:
    variations = Variations(sizes=(Size(Path(Root("argument", "x")), dim, sizes),))
    step = manual_step(variations, variations, [], None)
    assert step.startswith(sentence)
    assert ("drop_last=True" in step) == ("last batch" in sentence)
    assert is_general(step) == ("last batch" not in sentence)


def test_a_step_names_all_numbers_that_vary() -> None:
    numbers = tuple(Number(Path(Root("argument", name)), (0.1, 0.2)) for name in ("beta", "gamma"))
    variations = Variations(numbers=numbers)
    step = manual_step(variations, variations, [], None)
    assert step.startswith("`beta` and `gamma` vary: keep them the same")
    assert is_general(step)
    assert manual_step(Variations(numbers=numbers[:1]), Variations(numbers=numbers[:1]), [], None).startswith(
        "`beta` varies"
    )


def test_each_cause_has_its_own_sentence() -> None:
    guards = ["len(args) == 3", "tensor 'x' requires_grad mismatch. expected requires_grad=0", "len(args) == 4", "y"]
    recompiles = [
        Recompile(f"0/{index}", "0/0", "f", None, [GuardFailure(guard)], id=f"r{index}")
        for index, guard in enumerate(guards, start=1)
    ]
    steps = manual_steps(Variations(), recompiles)
    assert [(sentence.partition(" varies")[0], about) for sentence, about in steps] == [
        ("The length of `args`", ["r1", "r3"]),
        (
            "`x` requires a gradient in some calls only, and each kind has its own graph, as expected.",
            ["r2"],
        ),
    ]


def test_inference_tensors_and_the_grad_mode_have_different_sentences() -> None:
    dispatch_keys = "CPU, BackendSelect, ADInplaceOrView, AutogradCPU"
    guard = (
        f"tensor 'x' dispatch key set mismatch. expected DispatchKeySet({dispatch_keys}), actual DispatchKeySet(CPU)"
    )
    reasons = [GuardFailure(guard), GuardFailure("GLOBAL_STATE changed: grad_mode ")]
    recompiles = [
        Recompile("0/1", "0/0", "f", None, reasons[1:], id="r1"),
        Recompile("0/2", "0/0", "f", None, reasons, id="r2"),
    ]
    steps = manual_steps(Variations(), recompiles)
    assert [(sentence.partition(" in ")[0][:40], about) for sentence, about in steps] == [
        ("The function is called with and without ", ["r1"]),
        ("`x` is an inference tensor (from `torch.", ["r2"]),
    ]
    assert not [sentence for sentence, _ in steps if "two graphs" in sentence], "the function has three graphs"
    other = guard.replace("ADInplaceOrView, ", "Conjugate, ")
    ((step, _),) = manual_steps(Variations(), [replace(recompiles[0], reasons=[GuardFailure(other)])])
    assert step == GENERAL_STEP


def test_a_string_of_an_inner_function_is_the_cause_and_not_another_string_of_the_call() -> None:
    category = OtherVariation(Path(Root("argument", "category")), "text", ("Russian", "German"))
    recompile = Recompile("0/1", "0/0", "encode", None, [GuardFailure("line == 'R'")], id="r1")
    ((step, _),) = manual_steps(Variations(other_variations=(category,)), [recompile])
    assert step.startswith("`line` is a string, and each of its values has its own graph")


def test_an_integer_in_a_global_variable_becomes_an_argument() -> None:
    failure = GuardFailure("G['cache'].length == 6")
    recompile = Recompile("0/1", "0/0", "f", None, [failure], id="r1")
    ((step, _),) = manual_steps(Variations(), [recompile])
    assert step == (
        "`cache.length` is read from a global variable, and PyTorch makes a constant of such an integer: pass `cache` "
        "to the compiled function as an argument."
    )
    steps = manual_steps(Variations(), [replace(recompile, reasons=[replace(failure, head="loop")])])
    assert "global" not in steps[0][0]


def test_a_line_is_not_the_cause_of_recompiles_in_a_different_function() -> None:
    calls = Number(Path(Root("module", "self")).child("attribute", "calls"), (0, 1, 2))
    recompile = Recompile("1/1", "1/0", "forward", None, [GuardFailure("self.calls == 0")], id="r1")
    line = SpecializingLine("s1", 11, "print(f'{loss}')", frame="2/0")
    ((step, _),) = manual_steps(Variations(numbers=(calls,)), [recompile], [line])
    assert "print" not in step
    ((step, _),) = manual_steps(Variations(numbers=(calls,)), [recompile], [line._replace(frame="1/0")])
    assert "print" in step
