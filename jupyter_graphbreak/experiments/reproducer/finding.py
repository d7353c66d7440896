"""Find a script that reproduces a finding of a report, reduce it, run it alone, and write the text of a bug report."""

from __future__ import annotations

import ast
import contextlib
import importlib.metadata
import os
import platform
import re
import subprocess
import time
from typing import TYPE_CHECKING

import torch

from jupyter_graphbreak._torch_compat.toolchain import require_torch
from jupyter_graphbreak.experiments.reproducer.definitions import UnwritableError
from jupyter_graphbreak.experiments.reproducer.processes import ScriptRunner, run_alone
from jupyter_graphbreak.experiments.reproducer.reduction import reduce_script
from jupyter_graphbreak.experiments.reproducer.renaming import redact_script, script_text
from jupyter_graphbreak.experiments.reproducer.script import ScriptVariant, write_script
from jupyter_graphbreak.experiments.reproducer.target import CHECK_ID, ERROR_ID, first_line_of_message, target_of
from jupyter_graphbreak.report.reproducer import Reproducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from jupyter_graphbreak.experiments.reproducer.script import Script
    from jupyter_graphbreak.experiments.reproducer.target import Target
    from jupyter_graphbreak.experiments.trial.entry import Entry, RecordedEntries
    from jupyter_graphbreak.report.schema import Report

#: The default time limit for one reproducer in seconds.
PATIENCE_S = 90.0
#: The share of the limit after which reducing ends.
_SHARE_OF_REDUCTION = 0.6
#: The maximum number of scripts to try until one reproduces the finding.
_MAX_SCRIPTS = 24
#: The time limit, in seconds, for one run of a script.
_MAX_RUN_S = 60.0
#: The minimum time limit for the last run, in seconds: loading PyTorch takes a minute on a busy machine.
_FINAL_RUN_S = 180.0
_MAX_OUTPUT_LENGTH = 6_000
#: The time, the process and the source location at the beginning of each line of PyTorch's logs.
_LOG_PREFIX = re.compile(r"^[VIWE]\d{4} [\d:.]+ \d+ \S+\] (?:\[\d+/\d+[^]]*\] )?(?:\[__\w+\] ?)?", re.MULTILINE)
#: The settings that every report contains, with their default values.
_DEFAULT_SETTINGS = {"nested_graph_breaks": False, "recompile_limit": 8}
#: The folder in which packages are installed, at the beginning of a path.
_INSTALL_FOLDER = re.compile(r"""[^\s"']*[/\\](?:site|dist)-packages[/\\]""")


def reproduce(
    report: Report,
    recorded_entries: RecordedEntries,
    ident: str,
    *,
    redacted: bool = False,
    seconds: float | None = None,
    on_status: Callable[[str], None] = lambda _: None,
    runner: ScriptRunner | None = None,
) -> Reproducer:
    """Return the reproducer for a break, a recompile, the ``error`` or a wrong result (``check``) of a report.

    In a redacted script, the program's names and strings are replaced. ``seconds`` is the time limit, by default 90
    seconds: the first script that works is reduced until 60% of this time is over.
    """
    target = target_of(report, ident)
    if target is None:
        raise LookupError(f"the report has nothing with the id {ident!r}")
    if not hasattr(os, "fork"):
        return Reproducer(ident, target.title, reason="This system cannot fork processes, which the search needs.")
    start = time.monotonic()
    entries = list(_entries_for(recorded_entries, target))
    if not entries:
        return Reproducer(ident, target.title, reason=_why_no_entry(report, recorded_entries))
    limit_s = PATIENCE_S if seconds is None else seconds
    on_status(f"writing a script for {ident}")
    with contextlib.ExitStack() as resources:
        script_runner = runner if runner is not None else resources.enter_context(ScriptRunner())
        search = _ScriptSearch(report, target, script_runner, on_status, start + limit_s)
        script = search.find_first_script(entries, recorded_entries)
        if script is None:
            return Reproducer(ident, target.title, reason=search.reason, seconds=_seconds_since(start))
        tree, step_count = search.reduce(script, start + _SHARE_OF_REDUCTION * limit_s)
        text = script_text(tree)
        if redacted:
            redacted_text = search.redact(tree, script)
            if redacted_text is None:
                reason = "With its names and strings replaced, the script does not reproduce the finding."
                return Reproducer(ident, target.title, reason=reason, steps=step_count, seconds=_seconds_since(start))
            text = redacted_text
    return _run_final_script(target, script, text, step_count, start, redacted=redacted, limit_s=limit_s)


def _run_final_script(
    target: Target, script: Script, text: str, step_count: int, start: float, *, redacted: bool, limit_s: float
) -> Reproducer:
    """Run the final script alone, and return a reproducer: with the script, or with the reason why it fails."""
    title = target.title if not redacted or target.kind == "break" else target.kind
    full_text = f"{script_header(title, script.packages)}\n{text}\n"
    try:
        final_run = run_alone(full_text, max(_FINAL_RUN_S, start + limit_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        return Reproducer(target.id, title, reason="The script took too long when it ran alone.", steps=step_count)
    is_shown = target.is_shown_by(final_run.report, script.new_names, is_lenient=redacted)
    # Some findings are only in the output, not in the trace.
    is_shown = is_shown or target.is_printed_by(final_run.output, fails=final_run.status != 0)
    if not is_shown:
        reason = "The script reproduces the finding only in a process that has PyTorch loaded, not when run on its own."
        return Reproducer(target.id, title, reason=reason, steps=step_count, seconds=_seconds_since(start))
    issue = issue_text(title, full_text, final_run.output, script.packages)
    return Reproducer(target.id, title, full_text, issue, steps=step_count, seconds=_seconds_since(start))


class _ScriptSearch:
    """The search for a script that reproduces a finding."""

    def __init__(
        self, report: Report, target: Target, runner: ScriptRunner, on_status: Callable[[str], None], deadline: float
    ) -> None:
        self._report = report
        self._target = target
        self._runner = runner
        self._on_status = on_status
        self._deadline = deadline
        self.reason = "None of the calls reproduces the finding."

    def find_first_script(self, entries: Sequence[Entry], recorded_entries: RecordedEntries) -> Script | None:
        """Return the first script that reproduces the finding, without reducing it; ``None`` if there is none."""
        settings = {name: value for name, value in self._report.config.items() if value != _DEFAULT_SETTINGS.get(name)}
        tried_scripts: set[str] = set()
        for entry in entries:
            calls = recorded_entries.calls_to(entry)
            for variant in _script_variants(self._report, self._target):
                if len(tried_scripts) >= _MAX_SCRIPTS or time.monotonic() > self._deadline:
                    return None
                try:
                    script = write_script(entry, calls, self._target, settings, variant)
                    text = ast.unparse(script.tree)
                except (UnwritableError, RecursionError) as error:
                    if not tried_scripts:  # the reason why a script that ran failed is more informative
                        self.reason = f"{entry.name} cannot be written as a script: {error}."
                    continue
                if text not in tried_scripts:
                    tried_scripts.add(text)
                    if self._reproduces(text, script):
                        return script
        return None

    def _reproduces(self, text: str, script: Script, *, is_lenient: bool = False) -> bool:
        if not is_lenient and not all(line in text for line in script.required_parts):
            return False
        report, stop_reason = self._runner.run(text, min(_MAX_RUN_S, max(1.0, self._deadline - time.monotonic())))
        if report is not None and self._raises_only_expected_errors(report):
            if self._target.is_shown_by(report, script.new_names, is_lenient=is_lenient):
                return True
            if report.error is None:
                self.reason = (
                    "A script with the same code and random inputs of the same kind does not reproduce the finding."
                )
                return False
        if stop_reason:
            self.reason = f"The script was stopped: it {stop_reason}."
        elif report is None:
            self.reason = "The script took too long, or ended its process."
        elif report.error is not None:
            self.reason = (
                f"A script with the same code raises {report.error.type}: {first_line_of_message(report.error.message)}"
            )
        return False

    def _raises_only_expected_errors(self, report: Report) -> bool:
        """Return whether a script raises no error, or one that is expected or that the run raised as well."""
        error_of_run = self._report.error
        is_expected = self._target.kind in {ERROR_ID, CHECK_ID} or self._target.is_error
        return (
            report.error is None or is_expected or (error_of_run is not None and error_of_run.type == report.error.type)
        )

    def reduce(self, script: Script, deadline: float) -> tuple[ast.Module, int]:
        """Return the script, reduced as far as time allows, and the number of reduction steps."""

        def reproduces(text: str) -> bool:
            self._on_status(f"reducing the script, {len(text.splitlines())} lines")
            return self._reproduces(text, script)

        return reduce_script(script.tree, reproduces, lambda: time.monotonic() > deadline)

    def redact(self, tree: ast.Module, script: Script) -> str | None:
        """Return the script without the program's names and strings; ``None`` if it does not reproduce the finding."""
        for keeps_strings in (False, True):
            text = redact_script(tree, keeps_strings=keeps_strings)
            if self._reproduces(text, script, is_lenient=True):
                return text
        return None


def _script_variants(report: Report, target: Target) -> Iterator[ScriptVariant]:
    error_settings = [""]
    if any(scope.setting == "fullgraph" and scope.value for scope in report.scopes):
        sets_fullgraph = any(
            break_.setting is not None and "fullgraph" in break_.setting.rules
            for break_ in report.breaks
            if target.id in {break_.id, ERROR_ID}
        )
        error_settings = ["fullgraph", ""] if sets_fullgraph else ["", "fullgraph"]
    elif target.is_error or target.kind == ERROR_ID:
        error_settings = ["", "error_on_graph_break"]
    for uses_values in (False, True):
        for assembles_objects in (False, True):
            for error_setting in error_settings:
                yield ScriptVariant(uses_values, assembles_objects, shortens_lists=True, error_setting=error_setting)
                yield ScriptVariant(uses_values, assembles_objects, error_setting=error_setting)


def _entries_for(recorded_entries: RecordedEntries, target: Target) -> Iterator[Entry]:
    """Yield the entries that may reproduce a finding, most likely first."""
    entries = [*recorded_entries.entries, *recorded_entries.generator_calls]
    likely_entries = [entry for entry in entries if entry.frame_id is not None and entry.frame_id in target.frames]
    if target.kind == CHECK_ID:
        likely_entries = [entry for entry in entries if entry.name == target.function]
    yield from likely_entries
    if not likely_entries or not recorded_entries.effects:
        yield from (entry for entry in entries if entry not in likely_entries)


def _why_no_entry(report: Report, recorded_entries: RecordedEntries) -> str:
    if recorded_entries.effects:
        return f"The call was not run again: it {recorded_entries.effects[0].description}."
    if recorded_entries.omission_reasons:
        return recorded_entries.omission_reasons[0]
    if report.effects:
        return f"The call was not run again: it {report.effects[0].what}."
    return "No call to a compiled function was recorded."


def _seconds_since(start: float) -> float:
    return round(time.monotonic() - start, 1)


def script_header(title: str, packages: Iterable[str]) -> str:
    """Return the comment at the top of a script: the finding, the versions, and the packages that the script needs."""
    requirement_lines = "".join(f"\n# Needs {requirement}" for requirement in _requirements(packages))
    title_line = f"# Shows: {' '.join(title.split())}"
    return f"{title_line}\n# Seen with PyTorch {require_torch()}, Python {platform.python_version()}{requirement_lines}"


def issue_text(title: str, script: str, output: str, packages: Iterable[str]) -> str:
    """Return the text for PyTorch's bug report form."""
    versions = "\n".join(f"{name}: {version}" for name, version in _versions(packages))
    cleaned_output = _INSTALL_FOLDER.sub("", _LOG_PREFIX.sub("", output)).strip()
    if len(cleaned_output) > _MAX_OUTPUT_LENGTH:
        cleaned_output = (
            f"{cleaned_output[: _MAX_OUTPUT_LENGTH // 2]}\n...\n{cleaned_output[-_MAX_OUTPUT_LENGTH // 2 :]}"
        )
    return (
        f"### 🐛 Describe the bug\n\n{title}\n\n```python\n{script.strip()}\n```\n\n"
        f"### Error logs\n\n```\n{cleaned_output}\n```\n\n### Versions\n\n```\n{versions}\n```\n"
    )


def _versions(packages: Iterable[str]) -> list[tuple[str, str]]:
    versions = [
        ("PyTorch", require_torch()),
        ("Python", platform.python_version()),
        ("OS", f"{platform.system()} {platform.machine()}"),
        ("CUDA used to build PyTorch", str(torch.version.cuda or "none")),
        ("GPU", torch.cuda.get_device_name() if torch.cuda.is_available() else "none"),
    ]
    return [*versions, *(("Package", requirement) for requirement in _requirements(["triton", *packages]))]


def _requirements(packages: Iterable[str]) -> list[str]:
    distributions = importlib.metadata.packages_distributions()
    names = [name for package in sorted(set(packages)) for name in distributions.get(package, [])[:1]]
    return [f"{name}=={importlib.metadata.version(name)}" for name in names]
