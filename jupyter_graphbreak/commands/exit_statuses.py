"""The exit statuses of ``graphbreak``, its messages, and the exception for files that cannot be read or written."""

from __future__ import annotations

import click

from jupyter_graphbreak.views.words.plain_text import one_line

SUCCESS, FAILED, MISUSE, UNREADABLE, CRASHED, INTERRUPTED = 0, 1, 2, 3, 4, 130


class FileProblem(click.ClickException):
    """A file or folder cannot be read or written; the message gives the path and the reason in one line."""

    exit_code = UNREADABLE


#: Messages quote names and strings from files, which may have any length.
_MAX_MESSAGE_LENGTH = 1_000


def print_message(text: str) -> None:
    """Print a message to stderr, on one line, with control characters as escapes."""
    line = one_line(text)
    click.echo(
        f"graphbreak: {line if len(line) <= _MAX_MESSAGE_LENGTH else line[:_MAX_MESSAGE_LENGTH] + '...'}", err=True
    )
