"""The command line: ``graphbreak``, also as ``jupyter graphbreak``.

In: what was written after the name. Out: the exit status: 0 fine, 1 the gate failed or a cell raised, 2 misuse, 3 a
file that cannot be read, 4 an error of our own.
May import ``commands`` and click.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

import click

import jupyter_graphbreak
from jupyter_graphbreak.commands.diff_command import diff_command
from jupyter_graphbreak.commands.exit_statuses import CRASHED, FINE, INTERRUPTED, MISUSE, FileProblem
from jupyter_graphbreak.commands.log_command import log_command
from jupyter_graphbreak.commands.notebook_command import notebook_command
from jupyter_graphbreak.commands.script_command import script_command

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEBUG = "GRAPHBREAK_DEBUG"
_MOST_WORDS = 300
_REPORT = f"please report it with the traceback that {_DEBUG}=1 shows: graphbreak {jupyter_graphbreak.__version__}"


@click.group(
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog='For completion in bash: eval "$(_GRAPHBREAK_COMPLETE=bash_source graphbreak)"; likewise zsh_source and '
    "fish_source.",
)
@click.version_option(jupyter_graphbreak.__version__, prog_name="graphbreak")
def graphbreak() -> None:
    """Show where torch.compile breaks graphs, why, and what to do about it.

    The report is that of the notebook magic %%compile_explain; here it is made of the logs of a job, of a notebook or
    of a program. With --baseline it fails when a break appears that was not there before.

    The exit status is 0 if all is well; 1 if the baseline does not allow what happened or a notebook's cell raised; 2
    for a mistake in the call; 3 if a file or folder cannot be read or written; 4 for an error of graphbreak itself,
    whose traceback GRAPHBREAK_DEBUG=1 shows.
    """


for _command in (log_command, notebook_command, script_command, diff_command):
    graphbreak.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its status; misuse is one line on stderr."""
    try:
        status = graphbreak.main(args=arguments, prog_name=_name(), standalone_mode=False)
    except click.exceptions.Exit as end:
        status = end.exit_code
    except click.ClickException as error:
        click.echo(f"graphbreak: {' '.join(error.format_message().split())}", err=True)
        status = error.exit_code if isinstance(error, FileProblem) else MISUSE
    except (click.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = FINE
    except Exception as error:  # noqa: BLE001 - one line says so, and a status of its own
        if os.environ.get(_DEBUG):
            traceback.print_exc()
        what = " ".join(f"{type(error).__name__}: {error}".split())[:_MOST_WORDS]
        click.echo(f"graphbreak: internal error: {what} ({_REPORT})", err=True)
        status = CRASHED
    sys.exit(status or 0)


def _name() -> str:
    return "jupyter graphbreak" if "jupyter-graphbreak" in sys.argv[0] else "graphbreak"
