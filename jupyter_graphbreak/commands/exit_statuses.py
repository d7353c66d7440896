"""The exit statuses of ``graphbreak``, and the exception for files that cannot be read or written."""

from __future__ import annotations

import click

FINE, FAILED, MISUSE, UNREADABLE, CRASHED, INTERRUPTED = 0, 1, 2, 3, 4, 130


class FileProblem(click.ClickException):
    """A file or folder cannot be read or written; the message gives the path and the reason in one line."""

    exit_code = UNREADABLE
