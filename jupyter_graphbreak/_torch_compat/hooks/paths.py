"""Hook on functions such as ``torch.compiler.is_compiling()``, whose result differs while Dynamo traces.

Dynamo replaces such a call, the *question*, with a constant, its *answer*. The constant is followed through the traced
code until a jump depends on it. The lines that Dynamo traces from there until both branches join again run only because
the code is compiled. The lines that only the other branch reaches are skipped for the same reason.
"""

from __future__ import annotations

import importlib
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak._torch_compat.hooks.observer import observe_calls, wrap_with_hooks
from jupyter_graphbreak._torch_compat.patching import redirect_calls_on_thread
from jupyter_graphbreak.records.additions import AnswerDiffers
from jupyter_graphbreak.records.records import StackFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from contextlib import AbstractContextManager
    from types import CodeType

    from jupyter_graphbreak._torch_compat.hooks.observer import Observer, WatchedCall

#: Instructions that are not part of any statement.
_OUTSIDE_STATEMENTS = frozenset(
    {"CACHE", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD", "NOP", "PRECALL", "PUSH_NULL", "RESUME"}
)
_RETURN_INSTRUCTIONS = frozenset({"RETURN_CONST", "RETURN_VALUE"})
_RAISE_INSTRUCTIONS = frozenset({"RAISE_VARARGS", "RERAISE"})
#: Jumps that are always taken.
_UNCONDITIONAL_JUMPS = frozenset({"JUMP_ABSOLUTE", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD"})
#: The maximum number of instructions of a function in which to look for the point where two branches join.
_MAX_INSTRUCTIONS = 20_000
#: The maximum number of values to follow at the same time.
_MAX_FOLLOWED_VALUES = 1_000
#: The maximum number of lines of one branch to record.
_MAX_LINES = 2_000


def watch_paths(observer: Observer) -> AbstractContextManager[None]:
    """Record calls such as ``is_compiling()`` whose result differs while compiling, and the lines that depend on it."""
    module = importlib.import_module("torch._dynamo.variables.torch")
    questions = module.tracing_state_functions()
    owner = module.TorchInGraphFunctionVariable
    follower = _AnswerFollower(observer)

    def observation(call: WatchedCall) -> AnswerDiffers | None:
        variable, tracer = call.args[:2]
        question = variable.value
        if not _is_one_of(question, questions):
            return None
        answer = call.result.as_python_constant()
        if not answer:  # the answer of the uncompiled program: False, or None for a state
            return None
        answer_differs = AnswerDiffers(
            question=f"{question.__module__}.{question.__name__}", compiled=str(answer), eager="False",
            call=_location(tracer),
        )  # fmt: skip
        call.result = follower.follow(tracer, call.result, answer, answer_differs)
        return answer_differs

    return observe_calls(owner, "call_function", observer, after=observation)


def answer_questions_as_eager(is_selected: Callable[[StackFrame], bool]) -> AbstractContextManager[None]:
    """Make Dynamo answer selected questions on this thread as the uncompiled program would, while the context is open.

    ``is_selected`` receives the location of a question; it returns whether to change the answer.
    """
    module = importlib.import_module("torch._dynamo.variables.torch")
    questions = module.tracing_state_functions()
    owner = module.TorchInGraphFunctionVariable
    constant = importlib.import_module("torch._dynamo.variables.constant").ConstantVariable

    def plan(variable: Any, tracer: Any, *_: Any, **__: Any) -> tuple[Callable[..., Any], tuple[Any, ...], Any] | None:
        question = variable.value
        if _is_one_of(question, questions) and questions[question] and is_selected(_location(tracer)):
            return constant.create, (False,), {}
        return None

    return redirect_calls_on_thread(owner, "call_function", plan)


def _is_one_of(function: Any, functions: Container[Any]) -> bool:
    try:
        return function in functions
    except TypeError:  # the function cannot be hashed
        return False


@dataclass
class _Branch:
    """A jump that depends on an answer, and the instructions that Dynamo traces because of it."""

    answer: AnswerDiffers
    #: The location of the jump.
    test: StackFrame
    #: The index of the instruction at which the uncompiled program continues.
    eager_target: int
    #: The index of the instruction at which both branches join; ``None`` if they do not join within the function.
    merge_point: int | None
    #: The positions of the instructions of the uncompiled program's branch. A traced instruction with one of them is a
    #: copy that belongs to both branches, such as ``return`` since Python 3.12.
    eager_positions: frozenset[Any]
    #: The lines that only the uncompiled program reaches.
    skipped_lines: list[int]
    #: Whether the instructions since the jump still belong to the test: ``is_compiling() and x.dim() > 1``.
    is_test: bool = True
    lines: dict[int, None] = field(default_factory=dict)


class _AnswerFollower:
    """Follows answers through the traced code."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        #: The constants to follow, each with its answer, by address. Dynamo copies the attributes of its variables, so
        #: an attribute cannot mark one of them. The reference keeps the address from being used again.
        self._followed_constants: dict[int, tuple[Any, AnswerDiffers]] = {}
        self._tracers: weakref.WeakSet[Any] = weakref.WeakSet()
        #: The results of ``_branch_region``, by code, jump and target: Dynamo may trace a function repeatedly.
        self.regions: dict[tuple[CodeType, int, int], tuple[int | None, frozenset[Any], list[int]]] = {}

    def follow(self, tracer: Any, variable: Any, value: object, answer: AnswerDiffers) -> Any:
        """Return a unique variable for the answer, and follow it."""
        # Newer releases use a single variable for every True.
        unique_variable = type(variable)(value) if variable is type(variable).create(value) else variable
        if len(self._followed_constants) >= _MAX_FOLLOWED_VALUES:
            self._followed_constants.pop(next(iter(self._followed_constants)))
        self._followed_constants[id(unique_variable)] = unique_variable, answer
        while tracer is not None:  # the function may return the answer
            self._watch_steps(tracer)
            tracer = getattr(tracer, "parent", None)
        return unique_variable

    def answer_on_stack(self, tracer: Any) -> AnswerDiffers | None:
        """Return the followed answer on top of a tracer's stack; ``None`` if something else is there."""
        if not tracer.stack:
            return None
        variable, answer = self._followed_constants.get(id(tracer.stack[-1]), (None, None))
        return answer if variable is tracer.stack[-1] else None

    def _watch_steps(self, tracer: Any) -> None:
        """Observe each instruction that a tracer traces from now on."""
        if tracer in self._tracers:
            return
        self._tracers.add(tracer)
        steps = _TracerSteps(self, tracer, self._emit)
        tracer.step = wrap_with_hooks(
            tracer.step, self._observer, before=steps.begin, after=steps.end, on_error=steps.fail
        )

    def _emit(self, branch: _Branch) -> None:
        answer = branch.answer
        self._observer.observe(
            "step",
            lambda: AnswerDiffers(
                question=answer.question, compiled=answer.compiled, eager=answer.eager, call=answer.call,
                branch=branch.test, lines=list(branch.lines), skipped=branch.skipped_lines,
            ),
        )  # fmt: skip


class _TracerSteps:
    """The steps of one tracer through the instructions of one function."""

    def __init__(self, follower: _AnswerFollower, tracer: Any, emit: Callable[[_Branch], None]) -> None:
        self._follower = follower
        self._tracer = tracer
        self._emit = emit
        self._open_branches: list[_Branch] = []
        #: The answer on which the current instruction, a jump, depends, and the index of the instruction.
        self._jump: tuple[AnswerDiffers, int] | None = None
        #: The answer that the current instruction negates.
        self._negated_answer: AnswerDiffers | None = None

    def begin(self, _: WatchedCall) -> None:
        """Examine the next instruction before it is traced."""
        tracer = self._tracer
        self._jump = self._negated_answer = None
        index = tracer.instruction_pointer
        if index is None:
            return
        instruction = tracer.instructions[index]
        for branch in self._open_branches:
            if index == branch.eager_target:  # compiled code also runs this instruction
                branch.skipped_lines = []
        self._close_branches(lambda branch: index in {branch.eager_target, branch.merge_point})
        targets = self._following_indices(index)
        for branch in self._open_branches:
            is_later_operand = len(targets) > 1 and branch.eager_target in targets
            if branch.is_test and is_later_operand:  # both operands belong to one test
                branch.lines.clear()
            else:
                branch.is_test = branch.is_test and not instruction.opname.startswith(("STORE_", "DELETE_"))
                self._add_line(branch, index)
        answer = self._follower.answer_on_stack(tracer)
        if answer is not None and len(targets) > 1:
            self._jump = answer, index
        elif answer is not None and instruction.opname == "UNARY_NOT":
            self._negated_answer = answer

    def end(self, call: WatchedCall) -> None:
        """Examine the tracer's state after an instruction has been traced."""
        tracer = self._tracer
        if self._jump is not None and tracer.instruction_pointer is not None:
            answer, jump = self._jump
            traced_target = tracer.instruction_pointer
            other_targets = self._following_indices(jump) - {traced_target}
            if len(other_targets) == 1:
                eager_target = other_targets.pop()
                self._open_branches.append(
                    _Branch(
                        answer,
                        _location(tracer, jump),
                        eager_target,
                        *self._branch_region(jump, traced_target, eager_target),
                    )
                )
        if self._negated_answer is not None and tracer.stack:
            variable = tracer.stack[-1]
            tracer.stack[-1] = self._follower.follow(
                tracer, variable, variable.as_python_constant(), self._negated_answer
            )
        if not call.result:
            self._end_all_branches()

    def fail(self, _: WatchedCall) -> None:
        """End all branches at an exception, such as a graph break."""
        self._end_all_branches()

    def _end_all_branches(self) -> None:
        for branch in self._open_branches:
            self._add_lines_after_break(branch)
        self._close_branches(lambda _: True)

    def _add_lines_after_break(self, branch: _Branch) -> None:
        """Add the lines that may run after the last traced instruction, in resume functions if it breaks the graph."""
        tracer = self._tracer
        current = tracer.instructions.index(tracer.current_instruction)
        for index in sorted(self._reachable(current, {branch.eager_target, branch.merge_point})):
            self._add_line(branch, index)

    def _reachable(self, start: int, ends: Container[int | None]) -> set[int]:
        """Return the indices of the instructions that may run from a start up to, but not including, the ends."""
        pending_indices, reached_indices = [start], set()
        while pending_indices:
            index = pending_indices.pop()
            if index not in reached_indices and index not in ends and index < len(self._tracer.instructions):
                reached_indices.add(index)
                pending_indices += self._following_indices(index)
        return reached_indices

    def _add_line(self, branch: _Branch, index: int) -> None:
        line = _line(self._tracer.instructions[index])
        if line is None or len(branch.lines) >= _MAX_LINES:
            return
        if self._is_statement(index, branch.eager_positions) and not self._is_implicit_return(index, branch.test):
            branch.lines[line] = None

    def _close_branches(self, is_over: Callable[[_Branch], bool]) -> None:
        finished_branches = [branch for branch in self._open_branches if is_over(branch)]
        self._open_branches = [branch for branch in self._open_branches if not is_over(branch)]
        for branch in finished_branches:
            self._emit(branch)

    def _following_indices(self, index: int) -> set[int]:
        """Return the indices of the instructions that may follow an instruction."""
        instruction = self._tracer.instructions[index]
        if instruction.opname in _RETURN_INSTRUCTIONS:
            return set()
        if instruction.opname in _RAISE_INSTRUCTIONS:
            handler = instruction.exn_tab_entry
            return {self._tracer.indexof[handler.target]} if handler is not None else set()
        following_indices = set() if instruction.opname in _UNCONDITIONAL_JUMPS else {index + 1}
        if instruction.target is not None:
            following_indices.add(self._tracer.indexof[instruction.target])
        return following_indices

    def _branch_region(
        self, jump: int, traced_target: int, eager_target: int
    ) -> tuple[int | None, frozenset[Any], list[int]]:
        """Return the index at which both branches of a jump join, and the positions and lines of the eager branch."""
        regions, key = self._follower.regions, (self._tracer.f_code, jump, eager_target)
        if key not in regions:
            merge_point = self._merge_point(jump, eager_target)
            instructions = self._tracer.instructions
            eager_indices = self._reachable(eager_target, {merge_point, jump})
            traced_indices = self._reachable(0, {jump}) | self._reachable(traced_target, {jump, eager_target})
            traced_positions = {instructions[index].positions for index in traced_indices}
            test_line = _line(instructions[jump])
            lines = {
                _line(instructions[index]) for index in eager_indices if self._is_statement(index, traced_positions)
            }
            positions = frozenset(instructions[index].positions for index in eager_indices)
            skipped_lines = sorted(line for line in lines if line is not None and line != test_line)
            regions[key] = merge_point, positions, skipped_lines[:_MAX_LINES]
        return regions[key]

    def _is_statement(self, index: int, other_positions: Container[Any]) -> bool:
        """Return whether an instruction belongs to a statement and is at none of the other positions."""
        instruction = self._tracer.instructions[index]
        return instruction.opname not in _OUTSIDE_STATEMENTS and instruction.positions not in other_positions

    def _merge_point(self, jump: int, eager_target: int) -> int | None:
        """Return the index of the first instruction that both branches of a jump reach, unless they raise, if any."""
        import networkx as nx

        instructions = self._tracer.instructions
        if len(instructions) > _MAX_INSTRUCTIONS:
            return None
        end = len(instructions)
        backwards = nx.DiGraph()
        backwards.add_node(end)
        for index, instruction in enumerate(instructions):
            returns = instruction.opname in _RETURN_INSTRUCTIONS
            backwards.add_edges_from((next_, index) for next_ in ({end} if returns else self._following_indices(index)))
        # There are dominators only for instructions from which the function can return.
        dominators = nx.immediate_dominators(backwards, end)
        merge_point: int | None = dominators.get(jump) if eager_target in dominators else None
        return None if merge_point == end else merge_point

    def _is_implicit_return(self, index: int, test: StackFrame) -> bool:
        """Return whether an instruction belongs to the implicit ``return``, which is on the line of the test."""
        instructions = self._tracer.instructions
        if _line(instructions[index]) != test.line:
            return False
        pair = [instruction.opname for instruction in instructions[index : index + 2]]
        is_none = instructions[index].opname in {"LOAD_CONST", "RETURN_CONST"} and instructions[index].argval is None
        return pair[0] == "RETURN_VALUE" or (is_none and pair[-1] in _RETURN_INSTRUCTIONS)


def _line(instruction: Any) -> int | None:
    line: int | None = instruction.positions.lineno if instruction.positions is not None else None
    return line


def _location(tracer: Any, index: int | None = None) -> StackFrame:
    """Return the location of an instruction of a tracer's function, by default of the current one."""
    code = tracer.f_code
    instruction = tracer.current_instruction if index is None else tracer.instructions[index]
    positions = instruction.positions
    if positions is None or positions.lineno is None:
        return StackFrame(code.co_filename, tracer.lineno, code.co_name, code.co_firstlineno)
    return StackFrame(
        code.co_filename, positions.lineno, code.co_name, code.co_firstlineno,
        positions.col_offset, positions.end_col_offset, positions.end_lineno,
    )  # fmt: skip
