"""``graphbreak doctor``: check whether PyTorch can compile on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING

import click
import msgspec

from jupyter_graphbreak.commands.options import FAILURE_STATUS, SUCCESS_STATUS, format_option
from jupyter_graphbreak.views.words.plain_text import count_text, join_with_and

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_graphbreak.api.installation import RequirementFinding


@click.command("doctor", short_help="Check whether PyTorch can compile here, and list what is missing.")
@format_option(("text", "json"))
def doctor_command(output_format: str) -> int:
    """Check whether PyTorch can compile on this machine, and list what is missing if it cannot.

    The check covers the versions, the cache folder, Triton, the C++ compiler and the settings, and it compiles a
    function on each device. The exit status is 1 if something is missing.
    """
    from jupyter_graphbreak.api.installation import examine_installation

    findings: list[RequirementFinding] = []
    with _hide_warnings():
        for finding in examine_installation():
            findings.append(finding)
            if output_format == "text":
                click.echo(f"{'ok' if finding.fix is None else 'fault':6}{finding.requirement}: {finding.sentence}")
                if finding.fix is not None:
                    click.echo(f"      {finding.fix}")
    faults = [finding.requirement for finding in findings if finding.fix is not None]
    if output_format == "json":
        click.echo(msgspec.json.encode([dataclasses.asdict(finding) for finding in findings]))
    else:
        click.echo(f"{count_text(len(faults), 'fault')}: {join_with_and(faults)}." if faults else "All is well.")
    return FAILURE_STATUS if faults else SUCCESS_STATUS


@contextlib.contextmanager
def _hide_warnings() -> Iterator[None]:
    """Hide PyTorch's warnings, because they would repeat the findings between the lines of the output."""
    previous_level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(previous_level)
