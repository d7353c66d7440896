"""Functions that ask whether they are compiled.

``# asks`` marks the line of the question, ``# compiled`` marks lines that run only in compiled code, and ``# skipped``
marks lines that run only in uncompiled code.
"""

import contextlib

import torch
from torch.compiler import is_compiling


def compiled_here() -> bool:
    return torch.compiler.is_compiling()  # asks


def two_arms(x):
    if torch.compiler.is_compiling():  # asks
        y = x + 1  # compiled
        y = y * 2  # compiled
    else:
        y = x - 1  # skipped
    return y


def only_eager_work(x):
    if not torch.compiler.is_compiling():  # asks
        print("eager")  # skipped
    return x + 1


def conditional_expression(x):
    return x.sin() if is_compiling() else x.cos()  # asks, compiled


def long_conditional_expression(x):
    return (
        x.sin()  # compiled
        if is_compiling()  # asks
        else x.cos()  # skipped
    )


def a_second_operand_is_true(x, *, fast=True):
    if torch.compiler.is_compiling() and fast:  # asks
        return x + 1  # compiled
    return x + 2  # skipped


def a_second_operand_is_false(x, *, fast=False):
    if torch.compiler.is_compiling() and fast:  # asks
        return x + 1
    return x + 2


def the_first_operand_is_false(x, *, fast=False):
    if fast and torch.compiler.is_compiling():
        return x + 1
    return x + 2


def stored_and_negated(x):
    slow = not torch.compiler.is_compiling() and x.dim() > 0  # asks
    for _ in range(2):
        if slow:
            x = x + 1  # skipped
        else:
            x = (x *  # compiled
                 2)  # compiled  # fmt: skip
    return x


def an_early_return(x):
    if not torch.compiler.is_compiling():  # asks
        return x  # skipped
    x = x + 1  # compiled
    return x * 2  # compiled


def a_break_in_the_branch(x):
    if not torch.compiler.is_compiling():  # asks
        return x  # skipped
    x = x + 1  # compiled
    torch._dynamo.graph_break()  # compiled
    return x * 2  # compiled


def a_question_in_a_loop(x):
    for i in range(3):
        if not torch.compiler.is_dynamo_compiling():  # asks
            print("eager")  # skipped
        x = x + i
    return x


def a_loop_around_an_arm(x):
    steps = 0
    while steps < 2:
        if torch.compiler.is_compiling():  # asks
            x = x + 1  # compiled
        steps += 1
    return x


def an_error_in_the_eager_arm(x):
    if not torch.compiler.is_compiling() and x.dim() > 1:  # asks
        raise ValueError("too many dimensions")  # skipped
    return x + 1


def a_question_in_a_with_block(x):
    with contextlib.nullcontext():
        if torch.compiler.is_compiling():  # asks
            x = x + 1  # compiled
    return x


def a_nested_test(x):
    if torch.compiler.is_compiling():  # asks
        y = x + 1  # compiled
        if y.dim() > 3:  # compiled
            y = y + 2
        x = y  # compiled
    return x


def an_error_that_is_caught(x):
    try:
        if torch.compiler.is_compiling():  # asks
            raise ValueError  # compiled
        x = x * 9  # skipped
    except ValueError:  # compiled
        x = x * 7  # compiled
    return x


def a_loop_that_only_runs_eagerly(x):
    n = 0
    while n < 3 and not torch.compiler.is_compiling():  # asks
        x = x * 2  # skipped
        n += 1  # skipped
    return x


def a_loop_whose_test_continues_only_when_compiled(x):
    while torch.compiler.is_compiling() and x.shape[0] < 4:  # asks, compiled
        x = torch.cat([x, x])  # compiled
    return x


def a_loop_in_the_eager_arm(x):
    for i in range(2):
        if i and not torch.compiler.is_compiling():  # asks
            for _ in range(3):  # skipped
                x = x + i  # skipped
            continue
        x = x * 2  # compiled
    return x


def questions_with_the_same_answer(x):
    if torch.jit.is_scripting() or torch.jit.is_tracing():
        return x
    return x + 1
