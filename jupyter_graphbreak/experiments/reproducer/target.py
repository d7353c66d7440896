"""The finding that a script must reproduce: the same break, recompile, error or wrong result as in the report."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jupyter_graphbreak.report.cost import Check
    from jupyter_graphbreak.report.schema import Break, Recompile, Report, RunError

#: The ids of an error and of a wrong result, which are also kinds of findings.
ERROR_ID, CHECK_ID = "error", "check"
#: The exception that the script raises if its two results differ.
WRONG_RESULT_ERROR = "AssertionError"
#: The function that the script calls to compare its two results.
COMPARISON_FUNCTION = "assert_close"
_MAX_TITLE_LENGTH = 200
_NUMBER = re.compile(r"(?<![\w.])(?:0[xXoObB][\da-fA-F_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?)")


@dataclass(frozen=True)
class Target:
    """The finding that a script must reproduce."""

    #: The id of a break or of a recompile, ``error`` or ``check``.
    id: str
    title: str
    #: The frames in which the finding occurs, and the callers of these frames.
    frames: tuple[str, ...] = ()
    kind: str = "break"
    #: The GB id of a break, or its type if the break has no id.
    cause: str = ""
    gb_type: str = ""
    #: Whether PyTorch logs the break: breaks of functions that it does not begin to trace are only counted.
    is_logged: bool = True
    #: The code of a break as :func:`comparable_code_of` returns it; empty if the break may be on any line.
    code: str = ""
    is_error: bool = False
    function: str = ""
    #: The kinds of the guards that fail.
    guards: frozenset[str] = frozenset()
    #: Whether the recompile is the one that the recompile limit prevents.
    limit_hit: bool = False
    #: The type and the first line of an error; for a wrong result, the type of the error that compiled code raises.
    error: tuple[str, str] = ("", "")
    gradients_differ: bool = False
    #: Whether only the arguments and the state differ after the call.
    arguments_differ: bool = False

    def is_shown_by(self, report: Report, new_names: Mapping[str, str], *, is_lenient: bool = False) -> bool:
        """Return whether the run of a script reproduces this target.

        Code, function names and messages differ in a redacted script; a lenient test ignores them.
        """
        match self.kind:
            case "break":
                return any(self._is_same_break(break_, new_names, is_lenient=is_lenient) for break_ in report.breaks)
            case "recompile":
                return any(self._is_same_recompile(recompile, is_lenient=is_lenient) for recompile in report.recompiles)
            case "error":
                error = report.error
                error_of_script = (
                    (error.type, "" if is_lenient else first_line_of_message(error.message))
                    if error is not None
                    else None
                )
                return error_of_script == (self.error[0], "" if is_lenient else self.error[1])
        if report.error is None or self.error[0]:
            return report.error is not None and report.error.type == self.error[0]
        location = report.error.location  # a line of the script, not of PyTorch
        return (
            report.error.type == WRONG_RESULT_ERROR
            and location is not None
            and COMPARISON_FUNCTION in (location.code or "")
        )

    def is_printed_by(self, output: str, *, fails: bool) -> bool:
        """Return whether the output and the exit status of a script show the finding."""
        match self.kind:
            case "break":
                return self.gb_type in output and fails == self.is_error
            case "recompile":
                return False
        return (
            fails
            and (self.error[0] or WRONG_RESULT_ERROR) in output
            and (bool(self.error[0]) or COMPARISON_FUNCTION in output)
        )

    def _is_same_break(self, break_: Break, new_names: Mapping[str, str], *, is_lenient: bool) -> bool:
        if (break_.gb_id or break_.gb_type) != self.cause or (break_.outcome == "error") != self.is_error:
            return False
        if is_lenient or not self.code:
            return True
        target_code, break_code = self.code, comparable_code_of(break_)
        for name, new_name in new_names.items():
            target_code = target_code.replace(name, new_name)
        # A report that is built from a trace contains whole lines.
        return bool(break_code) and (target_code in break_code or break_code in target_code)

    def _is_same_recompile(self, recompile: Recompile, *, is_lenient: bool) -> bool:
        guards = {guard_kind(reason.guard) for reason in recompile.reasons}
        is_same = is_lenient or self.function in {recompile.function, ""}
        return is_same and recompile.limit_hit == self.limit_hit and (not self.guards or bool(self.guards & guards))


def reproducible_ids(report: Report) -> list[str]:
    """Return the ids of all findings in a report that can have a reproducer, most important first."""
    idents = [ERROR_ID] if report.error is not None else []
    idents += [CHECK_ID] if any(not check.equal for check in report.check or []) else []
    break_of_error = report.error.break_ if report.error is not None else None
    breaks = {break_.id: break_ for break_ in report.breaks if not break_.minor and break_.id != break_of_error}
    idents += [ident for ident in report.order if ident in breaks]
    return idents + [recompile.id for recompile in report.recompiles if recompile.id]


def target_of(report: Report, ident: str) -> Target | None:
    """Return the finding with an id in a report; ``None`` if the report has no such id."""
    if ident == ERROR_ID and report.error is not None:
        return _error_target(report, report.error)
    if ident == CHECK_ID:
        check = next((check for check in report.check or [] if not check.equal), None)
        return _check_target(check) if check is not None else None
    for break_ in report.breaks:
        if break_.id == ident:
            return _break_target(report, break_)
    for recompile in report.recompiles:
        if recompile.id == ident:
            return _recompile_target(report, recompile)
    return None


def _error_target(report: Report, error: RunError) -> Target:
    break_of_error = next((break_ for break_ in report.breaks if break_.id == error.break_), None)
    frames = [occurrence.frame for occurrence in break_of_error.occurrences] if break_of_error is not None else []
    line = first_line_of_message(error.message)
    title = f"{error.type}: {line}"[:_MAX_TITLE_LENGTH]
    return Target(ERROR_ID, title, _add_callers(report, frames), "error", error=(error.type, line))


def _check_target(check: Check) -> Target:
    title = f"wrong result of {check.function} with the backend {check.backend}"
    error_type = next((words[1] for text in check.differences if len(words := re.split(r"[ ,]+", text)) > 1
                   and words[0] == "raises"), "")  # fmt: skip
    parts = [difference.partition(":")[0] for difference in check.differences]
    return Target(
        CHECK_ID, title, kind="check", function=check.function, error=(error_type, ""),
        gradients_differ=bool(parts) and not any(part == "the result" for part in parts)
        and any("gradient" in part or part.endswith(".grad") for part in parts),
        arguments_differ=bool(parts) and all(part.endswith(" afterwards") for part in parts),
    )  # fmt: skip


def _break_target(report: Report, break_: Break) -> Target:
    frames = [occurrence.frame for occurrence in break_.occurrences]
    return Target(
        break_.id,
        f"graph break {break_.gb_id}: {break_.gb_type}" if break_.gb_id else f"graph break: {break_.gb_type}",
        _add_callers(report, frames),
        cause=break_.gb_id or break_.gb_type,
        gb_type=break_.gb_type,
        is_logged=any(frames),
        code=comparable_code_of(break_) if break_.gb_id else "",
        is_error=break_.outcome == "error",
        function=(break_.location.function if break_.location is not None else None) or "",
    )


def _recompile_target(report: Report, recompile: Recompile) -> Target:
    reason = f": {recompile.reasons[0].guard}" if recompile.reasons else ""
    title = f"{'recompile limit' if recompile.limit_hit else 'recompile'} of {recompile.function}{reason}"
    return Target(
        recompile.id,
        title[:_MAX_TITLE_LENGTH],
        _add_callers(report, [recompile.frame, recompile.of]),
        "recompile",
        function=recompile.function,
        guards=frozenset(guard_kind(reason.guard) for reason in recompile.reasons),
        limit_hit=recompile.limit_hit,
    )


def _add_callers(report: Report, frames: Iterable[str | None]) -> tuple[str, ...]:
    """Return the ids of frames, and of the frames that called them."""
    callers = {frame.id: frame.caller for frame in report.frames}
    all_frame_ids: list[str] = []
    for frame in frames:
        outer_frame = frame
        while outer_frame is not None and outer_frame not in all_frame_ids:
            all_frame_ids.append(outer_frame)
            outer_frame = callers.get(outer_frame)
    return tuple(all_frame_ids)


def comparable_code_of(break_: Break) -> str:
    """Return the code of a break in a form for comparisons: without spaces, parentheses, quotes, commas and comments.

    Numbers are written as :func:`ast.unparse` writes them. The result is empty for the first line of a definition.
    """
    code = (break_.location.code if break_.location is not None else None) or ""
    return "" if code.startswith(("@", "def ")) else re.sub(r"[\s()'\",;]|#.*", "", _NUMBER.sub(_plain_number, code))


def _plain_number(match: re.Match[str]) -> str:
    """Return a number as ``ast.unparse`` writes it: ``10000.0`` for ``1e4``."""
    try:
        return repr(ast.literal_eval(match[0]))
    except (ValueError, SyntaxError):  # a part of a string
        return match[0]


def guard_kind(guard: str) -> str:
    """Return a guard without the numbers, strings and names of variables in it."""
    text = re.sub(r"(?:L|G)\[['\"][^]]*\]|'[^']*'|\"[^\"]*\"|\b\d[\d.e+-]*\b|0x\w+", "#", guard)
    return re.sub(r"\s+", " ", re.sub(r"^[\w.\[\]]+ (==|!=)", r"# \1", text)).strip()


def first_line_of_message(message: str) -> str:
    """Return the first line of a message without memory addresses; also the next line if it ends with "raised:"."""
    without_addresses = re.sub(r" at 0x[\da-fA-F]+", "", message)
    lines = [line.strip() for line in without_addresses.strip().split("\n") if line.strip()]
    if lines and lines[0].endswith("raised:") and len(lines) > 1:
        return f"{lines[0]} {lines[1]}"
    return lines[0] if lines else ""
