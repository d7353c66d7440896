"""``graphbreak checkpoint``: remove the prefix ``_orig_mod.`` from the names in a checkpoint."""

from __future__ import annotations

from pathlib import Path

import click

from jupyter_graphbreak.commands.options import FAILURE_STATUS, SUCCESS_STATUS, FileProblem
from jupyter_graphbreak.views.words.plain_text import count_text, one_line

_MAX_NAMES = 5


@click.command("checkpoint", short_help="Remove _orig_mod. from the names in a checkpoint.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", "new", required=True, type=click.Path(path_type=Path), metavar="NEW", help="The file to write."
)
def checkpoint_command(file: Path, new: Path) -> int:
    """Write NEW, a copy of the checkpoint FILE in which no name of a parameter contains _orig_mod.

    torch.compile(model) returns a wrapper, whose state_dict() has this prefix in its keys, so the model itself cannot
    load them. Everything else stays unchanged, unless this machine lacks a device: then all tensors move to the
    CPU. FILE is loaded with weights_only=True: no code in it runs. It may also be a safetensors file.

    The exit status is 1 if no name contains the prefix; NEW is then not written. It is 2 if FILE is not a checkpoint,
    or if NEW exists.
    """
    from jupyter_graphbreak.api.checkpoints import NotACheckpointError, repair_checkpoint

    try:
        repaired_checkpoint = repair_checkpoint(file, new)
    except FileExistsError:
        raise click.UsageError(f"{new} exists; choose a different name") from None
    except NotACheckpointError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FileProblem(f"{error.filename or file}: {reason}") from None
    renamed = repaired_checkpoint.renamed
    if not renamed:
        click.echo(one_line(f"No name in {file} contains _orig_mod. {new} was not written."), err=True)
        return FAILURE_STATUS
    for old, name in list(renamed.items())[:_MAX_NAMES]:
        click.echo(one_line(f"{old} -> {name}"))
    if len(renamed) > _MAX_NAMES:
        click.echo(f"and {len(renamed) - _MAX_NAMES} more")
    if repaired_checkpoint.on_cpu:
        click.echo("The tensors are now on the CPU: this machine lacks the device on which they were saved.")
    click.echo(one_line(f"Renamed {count_text(len(renamed), 'name')}; wrote {new}."))
    return SUCCESS_STATUS
