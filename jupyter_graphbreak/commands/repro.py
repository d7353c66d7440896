"""``graphbreak repro``: run a Python program, and write a standalone script that shows one of the report's findings."""

from __future__ import annotations

import click

from jupyter_graphbreak.commands.options import FAILURE_STATUS, SUCCESS_STATUS, print_message
from jupyter_graphbreak.commands.script import ProgramCommand, program_of, run_program


@click.command(
    "repro", cls=ProgramCommand, short_help="Write a small script that shows a break, an error or a recompile."
)
@click.option("--id", "ident", metavar="ID",
              help="What to show: the id of a break (b1) or a recompile (r1), `error`, or `check` for a wrong result. "
              "By default, the first of them in the report.")  # fmt: skip
@click.option("--issue", is_flag=True, help="Print the text for PyTorch's bug report form instead of the script.")
@click.option("--redact", is_flag=True, help="Replace the names and strings of the program.")
@click.option("--compile", "compiles", is_flag=True, help="Compile the modules and functions that the program calls.")
@click.pass_context
def repro_command(context: click.Context, /, *, ident: str | None, issue: bool, redact: bool, compiles: bool) -> int:
    """Run the Python program FILE, or MODULE as `python -m` does, and write a standalone script that shows a finding.

    The script contains the functions involved, random inputs of the same kind and the settings. It is reduced step by
    step, and has run in its own process, in an empty folder. To find it, calls of the program are repeated; each is
    stopped before it has an effect on files, connections or processes. The exit status is 1 if there is no such script.
    """
    from jupyter_graphbreak.experiments.reproducer.target import CHECK_ID, reproducible_ids
    from jupyter_graphbreak.results import NotReproducedError

    program = program_of(context)
    run, status = run_program(program, compiles=compiles, to_stderr=True, entries=True)
    if run is None:
        return status or FAILURE_STATUS
    if ident == CHECK_ID:
        run.check()
    idents = reproducible_ids(run.report)
    if ident is None and not idents:
        print_message("nothing to reproduce: the report has no break, recompile or error")
        return FAILURE_STATUS
    try:
        script = run.reproducer(ident or idents[0], redacted=redact)
    except LookupError:
        available = ", ".join(idents) or "nothing to reproduce"
        raise click.UsageError(f"--id {ident}: the report has no such id; it has {available}") from None
    except NotReproducedError as reason:
        print_message(str(reason))
        return FAILURE_STATUS
    click.echo(script.issue if issue else script, nl=False)
    return SUCCESS_STATUS
