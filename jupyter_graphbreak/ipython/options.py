"""The options of the magic: one parser, which also parts them from the call that follows them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec
from IPython.core.error import UsageError

if TYPE_CHECKING:
    import argparse

    from jupyter_graphbreak.compiling.compile_options import CompileOptions


class Options(msgspec.Struct, frozen=True):
    """What the reader asked for.

    Parameters
    ----------
    device : str
        ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
    backend : str or None
        For everything that is compiled; ``None`` leaves the cell's own calls their backends.
    fullgraph, mode, dynamic
        For what the magic compiles.
    frontends : bool
        Whether to compare the front ends on the function that is called.
    output : str or None
        The variable for the report.
    quiet : bool
        Whether to show nothing.
    processes : bool
        Whether to watch the processes that the cell starts, too.
    remedies : bool
        Whether to try changes that remove the breaks.
    patch : str or None
        A change to try, too: the path of a unified diff.
    cost : bool
        Whether to measure what compiling costs and yields.
    check : bool
        Whether to compare compiled results with eager ones.
    fresh : bool
        Whether to forget first what the kernel has compiled.
    log : str or None
        The trace log to explain, in place of a run.
    sources : list of str or None
        Further folders from which source text that a log names may be shown.
    expression : str
        What follows the options.
    """

    device: str = "auto"
    backend: str | None = None
    fullgraph: bool = False
    mode: str | None = None
    dynamic: Literal["true", "false"] | None = None
    frontends: bool = False
    output: str | None = None
    quiet: bool = False
    processes: bool = False
    remedies: bool = False
    patch: str | None = None
    cost: bool = False
    check: bool = False
    fresh: bool = False
    log: str | None = None
    sources: list[str] | None = None
    expression: str = ""

    def for_compile(self) -> CompileOptions:
        """Return those that apply to what the magic compiles."""
        from jupyter_graphbreak.compiling.compile_options import CompileOptions

        dynamic = None if self.dynamic is None else self.dynamic == "true"
        backend = self.backend
        if backend is None and self.mode is None and (self.cost or self.check):
            backend = "inductor"  # what torch.compile uses by itself: eager has nothing to measure
        return CompileOptions(backend=backend, mode=self.mode, fullgraph=self.fullgraph, dynamic=dynamic)

    @property
    def runs_again(self) -> bool:
        """Whether what the cell compiles is to run again on copies."""
        return self.tries or self.cost or self.check

    @property
    def tries(self) -> bool:
        """Whether to try changes that remove breaks."""
        return self.remedies or self.patch is not None

    def only_for_compile(self) -> list[str]:
        """Return the names of the given options that apply only to what the magic compiles."""
        return [f"--{name}" for name in ("fullgraph", "mode", "dynamic") if getattr(self, name)]


def read_options(parser: argparse.ArgumentParser, line: str) -> Options:
    """Read the magic's line.

    Parameters
    ----------
    parser : ArgumentParser
        Whose last argument, ``expression``, takes all words from the first that is no option.
    line : str
        What stands after the magic's name.

    Raises
    ------
    UsageError
        If an option is unknown, lacks its value or has a wrong one.
    """
    words = list(re.finditer(r"\S+", line))
    try:
        arguments = vars(parser.parse_args([word[0] for word in words]))
    except UsageError as error:
        raise UsageError(f"{error}; %%compile_explain? lists the options") from None
    rest = len(arguments["expression"])
    arguments["expression"] = line[words[-rest].start() :].strip() if rest else ""
    options = Options(**arguments)
    if options.output is not None and not options.output.isidentifier():
        raise UsageError(f"-o {options.output}: a variable's name is needed, such as -o report")
    return options
