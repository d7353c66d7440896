"""The exit statuses of ``graphbreak``, and the exception of those that a file is the cause of."""

from __future__ import annotations

import click

FINE, FAILED, MISUSE, UNREADABLE, CRASHED, INTERRUPTED = 0, 1, 2, 3, 4, 130


class FileProblem(click.ClickException):
    """A file or folder cannot be read or written; the message says in one line which and why."""

    exit_code = UNREADABLE
