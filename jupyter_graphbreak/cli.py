"""The command ``graphbreak``, also available as ``jupyter graphbreak``.

Input: the arguments. Output: the exit status; see ``commands/options.py``. ``graphbreak script`` exits with the status
of its program if that fails.
This module may import ``commands``, click, and the exception for a missing PyTorch.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

import click

import jupyter_graphbreak
from jupyter_graphbreak._torch_compat.toolchain import TorchUnavailable
from jupyter_graphbreak.commands.checkpoint import checkpoint_command
from jupyter_graphbreak.commands.diff import diff_command
from jupyter_graphbreak.commands.doctor import doctor_command
from jupyter_graphbreak.commands.log import log_command
from jupyter_graphbreak.commands.mcp import mcp_command
from jupyter_graphbreak.commands.notebook import notebook_command
from jupyter_graphbreak.commands.options import (
    CRASHED_STATUS,
    INTERRUPTED_STATUS,
    MISUSE_STATUS,
    SUCCESS_STATUS,
    FileProblem,
    print_message,
)
from jupyter_graphbreak.commands.repro import repro_command
from jupyter_graphbreak.commands.script import script_command

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEBUG_VARIABLE = "GRAPHBREAK_DEBUG"
_MAX_ERROR_LENGTH = 300
_HOW_TO_REPORT = (
    f"please report it with the traceback that {_DEBUG_VARIABLE}=1 shows: graphbreak {jupyter_graphbreak.__version__}"
)


@click.group(
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog='For completion in bash: eval "$(_GRAPHBREAK_COMPLETE=bash_source graphbreak)"; in other shells, '
    "use zsh_source or fish_source.",
)
@click.version_option(jupyter_graphbreak.__version__, prog_name="graphbreak")
def graphbreak() -> None:
    """Show where torch.compile breaks graphs, why, and what to do about it.

    The report is the same as that of the notebook magic %%compile_explain, but for the logs of a job, a notebook or a
    program. With --baseline, the command fails if there are new breaks.

    Exit status: 0 success; 1 the baseline does not allow a finding, a notebook cell raised, or the reason in the
    command's help; 2 wrong usage, or PyTorch is missing or too old; 3 a file or folder cannot be read or written;
    4 internal error (GRAPHBREAK_DEBUG=1 shows the traceback); 130 interrupted.
    """


for _command in (
    log_command, notebook_command, script_command, repro_command, diff_command, doctor_command, checkpoint_command,
    mcp_command,
):  # fmt: skip
    graphbreak.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its status; wrong usage prints one line to stderr."""
    command_name = "jupyter graphbreak" if "jupyter-graphbreak" in sys.argv[0] else "graphbreak"
    try:
        status = graphbreak.main(args=arguments, prog_name=command_name, standalone_mode=False)
    except click.exceptions.Exit as exit_:
        status = exit_.exit_code
    except click.ClickException as error:
        print_message(error.format_message())
        status = error.exit_code if isinstance(error, FileProblem) else MISUSE_STATUS
    except TorchUnavailable as error:
        print_message(str(error))
        status = MISUSE_STATUS
    except (click.Abort, KeyboardInterrupt):
        status = INTERRUPTED_STATUS
    except BrokenPipeError:  # the program that reads our output, such as `head`, closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = SUCCESS_STATUS
    except Exception as error:  # noqa: BLE001 - reported in one line, with a separate exit status
        if os.environ.get(_DEBUG_VARIABLE):
            traceback.print_exc()
        print_message(f"internal error: {type(error).__name__}: {str(error)[:_MAX_ERROR_LENGTH]} ({_HOW_TO_REPORT})")
        status = CRASHED_STATUS
    sys.exit(status or 0)
