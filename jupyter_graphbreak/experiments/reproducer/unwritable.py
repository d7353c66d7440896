"""The reason why a reproducer cannot be written."""

from __future__ import annotations


class UnwritableError(Exception):
    """Something that the code uses cannot be written as source text; the message names it and ends without a period."""
