"""The options, exit statuses, messages and final steps that commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
from msgspec.structs import replace

from jupyter_graphbreak.commands.formats import FORMATS, CommandResult, render, verdict_lines
from jupyter_graphbreak.gate.baseline import Baseline, MalformedBaseline, baseline_of, load_baseline, save_baseline
from jupyter_graphbreak.gate.verdict import NOTHING_COMPILED_ADVICE, have_compiled_nothing, judge
from jupyter_graphbreak.views.words.plain_text import one_line

_Command = TypeVar("_Command", bound=Callable[..., Any])


class SharedOptions(NamedTuple):
    """The options that all commands that print a report share."""

    output_format: str
    redact: bool
    baseline: Path | None
    update_baseline: bool


def shared_options(command: _Command) -> _Command:
    """Add the options of :class:`SharedOptions` to a command, which receives them as keyword arguments."""
    for option in reversed(
        (
            format_option(FORMATS),
            click.option("--baseline", type=click.Path(path_type=Path), metavar="FILE",
                         help="Exit with status 1 on breaks, eager functions and recompiles that FILE does not "
                         "allow, or if nothing was compiled."),
            click.option("--update-baseline", is_flag=True,
                         help="Write the baseline FILE from this run, instead of judging the run."),
            click.option("--redact", is_flag=True,
                         help="Leave out source text, messages, paths and names, so that the report can be shared."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def format_option(formats: tuple[str, ...]) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the option for the format of the output."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(formats),
        default="text",
        show_default=True,
        help="Format of the output.",
    )


def sources_option(command: _Command) -> _Command:
    """Add the option for folders from which source files may be read."""
    return click.option(
        "--sources",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Also show source text from this folder if it matches the log; can be repeated. By default: the working "
        "folder and installed packages.",
    )(command)


class Gate:
    """The baseline of a command, which is read before anything runs and compared with the reports at the end.

    A UsageError is raised if ``--update-baseline`` has no ``--baseline`` to write, or if the folder of that file is
    missing; a FileProblem if the baseline cannot be read, or if it is missing without ``--update-baseline``.
    """

    def __init__(self, shared: SharedOptions) -> None:
        self._options = shared
        self._baseline: Baseline | None = None
        path = shared.baseline
        if path is None:
            if shared.update_baseline:
                raise click.UsageError("--update-baseline needs --baseline FILE")
            return
        if shared.update_baseline and not Path(os.path.realpath(path)).parent.is_dir():
            raise click.UsageError(f"--baseline {path}: no such folder: {path.parent}")
        try:
            self._baseline = load_baseline(path)
        except FileNotFoundError as error:
            if not shared.update_baseline:
                raise FileProblem(
                    f"--baseline {path}: {_failure_reason(error)}; add --update-baseline to create it"
                ) from None
        except (OSError, ValueError) as error:
            raise FileProblem(f"--baseline {path}: {_failure_reason(error)}") from None

    def finish(self, result: CommandResult) -> int:
        """Print the result, judge it or write the baseline, and return the exit status."""
        shared = self._options
        verdict = None
        if self._baseline is not None and not shared.update_baseline:
            verdict = judge(self._baseline, result.reports)
        click.echo(
            render(result, shared.output_format, verdict, redacted=shared.redact).encode(errors="backslashreplace")
        )
        if shared.update_baseline and shared.baseline is not None:
            if have_compiled_nothing(result.reports):
                print_message(f"{shared.baseline} was not written: nothing was compiled; {NOTHING_COMPILED_ADVICE}")
                return FAILURE_STATUS
            try:
                max_recompiles = self._baseline.max_recompiles if self._baseline is not None else 0
                save_baseline(shared.baseline, replace(baseline_of(result.reports), max_recompiles=max_recompiles))
            except (OSError, ValueError) as error:
                raise FileProblem(f"--baseline {shared.baseline}: {_failure_reason(error)}") from None
            print_message(f"wrote {shared.baseline}")
        if verdict is not None and shared.output_format not in {"text", "markdown"}:
            click.echo("\n".join(verdict_lines(verdict, redacted=shared.redact)), err=True)
        return SUCCESS_STATUS if verdict is None or verdict.has_passed else FAILURE_STATUS


def _failure_reason(error: OSError | ValueError) -> str:
    if isinstance(error, MalformedBaseline):
        return f"not a baseline: {error}; correct it, or delete it and create it again with --update-baseline"
    reason: str = getattr(error, "strerror", None) or str(error)
    return reason[:1].lower() + reason[1:]


# The exit statuses of commands.
SUCCESS_STATUS, FAILURE_STATUS, MISUSE_STATUS = 0, 1, 2
UNREADABLE_STATUS, CRASHED_STATUS, INTERRUPTED_STATUS = 3, 4, 130


class FileProblem(click.ClickException):
    """A file or folder cannot be read or written; the message states the path and the reason in one line."""

    exit_code = UNREADABLE_STATUS


#: Messages quote names and strings from files, which may have any length.
_MAX_MESSAGE_LENGTH = 1_000


def print_message(text: str) -> None:
    """Print a message to stderr, on one line, with control characters as escapes."""
    line = one_line(text)
    click.echo(
        f"graphbreak: {line if len(line) <= _MAX_MESSAGE_LENGTH else line[:_MAX_MESSAGE_LENGTH] + '...'}", err=True
    )
