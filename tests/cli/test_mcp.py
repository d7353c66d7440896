"""An MCP client over stdio lists the tools, explains a program, and gets verdicts on patches."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mcp import ClientSession

# Importing mcp takes more than a second, so only the worker that runs these tests does it.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="mcp is not installed")
ROOT = Path(__file__).parents[2]
LOG = ROOT / "tests" / "recordings" / "logs" / "2.13.0" / "branch.log"

PROGRAM = """\
import torch
from helper import scale


@torch.compile(backend="eager")
def step(x):
    x = x * 2
    if x.sum() > 3:
        x = x / 2
    return scale(x) + 1


step(torch.ones(3))
step(torch.zeros(3))
print("done")
"""

PATCH = """\
--- a/train.py
+++ b/train.py
@@ -6,5 +6,4 @@
 def step(x):
     x = x * 2
-    if x.sum() > 3:
-        x = x / 2
+    x = torch.where(x.sum() > 3, x / 2, x)
     return scale(x) + 1
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "helper.py").write_text("def scale(x):\n    return x * 3\n")
    (folder / "trace.log").write_bytes(LOG.read_bytes())
    (tmp_path / "secret.log").write_bytes(LOG.read_bytes())
    (folder / "link.log").symlink_to(tmp_path / "secret.log")
    return folder


#: Starts the server with a different Python for the programs that it runs.
CODE_FOR_OTHER_PYTHON = "import sys; sys.executable = sys.argv.pop(1); from jupyter_graphbreak.cli import main; main()"


def run_session(
    folder: Path, use_tools: Callable[[ClientSession], Awaitable[None]], *options: str, python: str | None = None
) -> None:
    """Start the server for a folder, and call its tools in one session.

    Parameters
    ----------
    python : str or None
        The Python that runs the programs; by default the one that runs the server.
    """
    import anyio
    from mcp import ClientSession, StdioServerParameters, stdio_client

    server_arguments = ["-m", "jupyter_graphbreak"] if python is None else ["-c", CODE_FOR_OTHER_PYTHON, python]
    server = StdioServerParameters(
        command=sys.executable, args=[*server_arguments, "mcp", "--folder", str(folder), *options], env=dict(os.environ)
    )

    async def run() -> None:
        with open(os.devnull, "w") as null_file:  # noqa: ASYNC230, PTH123
            async with stdio_client(server, errlog=null_file) as streams, ClientSession(*streams) as session:
                await session.initialize()
                await use_tools(session)

    anyio.run(run)


async def call_tool(session: ClientSession, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await session.call_tool(tool, arguments)
    text = result.content[0].text if result.content else ""  # type: ignore[union-attr]
    return {"error": text} if result.is_error else result.structured_content or {}


def test_nothing_runs_and_no_file_outside_the_folder_is_read_without_permission(project: Path) -> None:
    async def use_tools(session: ClientSession) -> None:
        tools = {tool.name for tool in (await session.list_tools()).tools}
        assert tools == {"explain_log", "explain_notebook", "read_report"}
        assert "--allow-run" in (session.instructions or "")
        explanation = await call_tool(session, "explain_log", path="trace.log")
        (break_,) = explanation["breaks"]
        assert (break_["id"], break_["gb_id"]) == ("b1", "GB0170")
        part = await call_tool(session, "read_report", report=explanation["report"], part="b1")
        assert part["value"]["gb_type"] == "Data-dependent branching"
        cost = await call_tool(session, "read_report", report=explanation["report"], part="cost")
        assert cost == {"part": "cost", "value": None}
        assert (
            "has no part 'b9'"
            in (await call_tool(session, "read_report", report=explanation["report"], part="b9"))["error"]
        )
        for path in ("../secret.log", str(project.parent / "secret.log"), "link.log"):
            assert "outside the folder" in (await call_tool(session, "explain_log", path=path))["error"]
        assert "no such file" in (await call_tool(session, "explain_log", path="memory://traces"))["error"]
        assert "error" in await call_tool(session, "explain_script", path="train.py")

    run_session(project, use_tools)


@pytest.mark.slow
def test_a_program_is_explained_and_a_patch_is_accepted(project: Path, warm_python: str) -> None:
    async def use_tools(session: ClientSession) -> None:
        tools = {tool.name for tool in (await session.list_tools()).tools}
        assert {"explain_script", "judge_patch", "measure", "run_notebook"} <= tools
        explanation = await call_tool(session, "explain_script", path="train.py")
        (break_,) = explanation["breaks"]
        assert break_["place"] == "train.py:8 in step"
        assert explanation["output"] == "done"
        judgement = await call_tool(session, "judge_patch", path="train.py", patch=PATCH)
        assert judgement["accepted"], judgement
        assert judgement["verdict"] in {"works", "works on what ran"}
        assert judgement["evidence"]["breaks_after"] == 0
        assert (project / "train.py").read_text() == PROGRAM

    run_session(project, use_tools, "--allow-run", python=warm_python)


@pytest.mark.exhaustive
def test_a_wrong_patch_is_not_accepted(project: Path, warm_python: str) -> None:
    async def use_tools(session: ClientSession) -> None:
        judgement = await call_tool(
            session, "judge_patch", path="train.py", patch=PATCH.replace("x / 2, x)", "x / 4, x)")
        )
        assert (judgement["accepted"], judgement["verdict"]) == (False, "different result")
        assert "instead of tensor([4., 4., 4.])" in judgement["differences"][0]

    run_session(project, use_tools, "--allow-run", python=warm_python)


@pytest.mark.slow
def test_a_run_that_takes_too_long_is_stopped(project: Path) -> None:
    (project / "endless.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'while 1: pass'])\n"
    )

    async def use_tools(session: ClientSession) -> None:
        assert "stopped after 1 seconds" in (await call_tool(session, "explain_script", path="endless.py"))["error"]

    run_session(project, use_tools, "--allow-run", "--seconds", "1")
