"""What the commands have in common: the format, the gate, redaction; and how each of them ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from jupyter_graphbreak.commands.output_formats import FORMATS, Found, verdict_lines, written
from jupyter_graphbreak.gate.baseline import Baseline, MalformedBaseline, baseline_of, read_baseline, write_baseline
from jupyter_graphbreak.gate.gate_words import COMPILE_SOMETHING
from jupyter_graphbreak.gate.verdict import judge, nothing_compiled

_F = TypeVar("_F", bound=Callable[..., Any])


class Shared(NamedTuple):
    """The options that every command with a report has."""

    form: str
    redact: bool
    baseline: Path | None
    update_baseline: bool


def shared_options(command: _F) -> _F:
    """Add the options of :class:`Shared` to a command, which takes them as keywords."""
    for option in reversed(
        (
            format_option(FORMATS),
            click.option("--baseline", type=click.Path(path_type=Path), metavar="FILE",
                         help="Fail with status 1 on breaks, eager functions and recompiles that FILE does not allow, "
                         "and if nothing was compiled."),
            click.option("--update-baseline", is_flag=True, help="Write the baseline FILE anew."),
            click.option("--redact", is_flag=True,
                         help="Leave out source text, messages, paths and names, to show the report to anybody."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def format_option(formats: tuple[str, ...]) -> Callable[[_F], _F]:
    """Return the option that chooses a format."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(formats),
        default="text",
        show_default=True,
        help="How to write the report.",
    )


class Gate:
    """The baseline of a command: read before anything runs, held against the reports when they are there.

    Parameters
    ----------
    shared : Shared

    Raises
    ------
    UsageError
        If the baseline is missing or cannot be read.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._baseline: Baseline | None = None
        path = shared.baseline
        if path is None:
            if shared.update_baseline:
                raise click.UsageError("--update-baseline: say which file with --baseline FILE")
            return
        if shared.update_baseline and not path.resolve().parent.is_dir():
            raise click.UsageError(f"--baseline {path}: there is no folder {path.parent}")
        if path.is_dir():
            raise click.UsageError(f"--baseline {path}: is a directory")
        if shared.update_baseline:
            return
        try:
            self._baseline = read_baseline(path.read_text(encoding="utf-8"))
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise click.UsageError(f"--baseline {path}: {why}; --update-baseline writes it") from None
        except (MalformedBaseline, UnicodeDecodeError) as error:
            raise click.UsageError(f"--baseline {path}: not a baseline: {error}") from None

    def finish(self, found: Found) -> int:
        """Write what was found and what the gate says of it; return the exit status."""
        shared = self._shared
        verdict = judge(self._baseline, found.reports) if self._baseline is not None else None
        click.echo(written(found, shared.form, verdict, redacted=shared.redact).encode(errors="backslashreplace"))
        if shared.update_baseline and shared.baseline is not None:
            if nothing_compiled(found.reports):
                sentence = f"graphbreak: {shared.baseline} was not written: nothing was compiled; {COMPILE_SOMETHING}"
                click.echo(sentence, err=True)
                return 1
            try:
                shared.baseline.write_text(write_baseline(baseline_of(found.reports)), encoding="utf-8")
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                raise click.UsageError(f"--baseline {shared.baseline}: {why}") from None
            click.echo(f"graphbreak: wrote {shared.baseline}", err=True)
        if verdict is not None and shared.form not in {"text", "markdown"}:
            click.echo("\n".join(verdict_lines(verdict, redacted=shared.redact)), err=True)
        return 0 if verdict is None or verdict.passed else 1
