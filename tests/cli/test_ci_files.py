"""The GitHub Action and the pre-commit hooks run the commands that they promise."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from jupyter_graphbreak.cli import graphbreak

ROOT = Path(__file__).parents[2]
LOG = ROOT / "tests" / "recordings" / "logs" / "2.13.0" / "branch.log"


@pytest.mark.skipif(sys.platform == "win32", reason="the step is for bash")
def test_the_action_fails_on_a_new_break_and_writes_the_summary(tmp_path: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (step,) = action["runs"]["steps"]
    inputs = {
        "command": "log",
        "arguments": f"--sources . {LOG}",
        "baseline": "allowed.toml",
        "install": "",
    }
    assert inputs.keys() == action["inputs"].keys()
    variables = {
        variable: inputs[expression.removeprefix("${{ inputs.").removesuffix(" }}")]
        for variable, expression in step["env"].items()
    }
    assert "${{" not in step["run"]  # an input that is inserted into the script could run any code
    summary = tmp_path / "summary.md"
    (tmp_path / "graphbreak").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -c "from jupyter_graphbreak.cli import main; main()" "$@"\n'
    )
    (tmp_path / "graphbreak").chmod(0o755)
    environment = {
        **os.environ,
        **variables,
        "GITHUB_STEP_SUMMARY": str(summary),
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }

    def run_step() -> int:
        # This is GitHub's command for a step with "shell: bash".
        script = tmp_path / "step.sh"
        script.write_text(step["run"])
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False).returncode

    (tmp_path / "allowed.toml").write_text("version = 1\n")
    assert run_step() == 1
    assert "gate failed: 1 new break" in summary.read_text()
    subprocess.run(
        ["graphbreak", "log", "--baseline", "allowed.toml", "--update-baseline", LOG],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=True,
    )
    summary.unlink()
    assert run_step() == 0
    assert "gate passed: 1 allowed break" in summary.read_text()


def test_the_hooks_call_commands_and_options_that_exist() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [hook["id"] for hook in hooks] == ["graphbreak-script", "graphbreak-notebook"]
    for hook in hooks:
        program, command, *options = shlex.split(hook["entry"])
        assert program == "graphbreak"
        known_options = {option for parameter in graphbreak.commands[command].params for option in parameter.opts}
        assert set(options[::2]) <= known_options
        assert not hook["pass_filenames"]  # the program is run once, however many files have changed
