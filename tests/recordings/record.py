"""Make the golden recordings: run every program in tests/programs under the recorder, and write its records.

Run it from the root of the project with a Python that has the torch to record: PYTHON -m tests.recordings.record

The recordings go to tests/recordings/TORCH_VERSION/NAME.log. Paths of the machine are replaced: the folder of the
programs becomes /programs, installed packages /site-packages, the standard library /lib/python.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import platform
import re
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path

import msgspec

FOLDER = Path(__file__).resolve().parent
PROGRAMS = FOLDER.parent / "programs"


def record_program(program: Path) -> None:
    """Record a program in this process and write the recording."""
    import torch

    from jupyter_graphbreak.recording import recorder
    from jupyter_graphbreak.records.records import Record
    from tests.support.trace_files import write_recording

    with recorder.record() as recording, contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(program))
    version = str(torch.__version__).partition("+")[0]
    paths = sysconfig.get_paths()
    replacements = [
        (str(PROGRAMS), "/programs"), (paths["purelib"], "/site-packages"), (paths["stdlib"], "/lib/python"), (paths["platstdlib"], "/lib/python"),
        (str(FOLDER), "/recordings"), (str(Path.cwd()), "/project"), (str(Path.home()), "/user"),
    ]  # fmt: skip

    def neutralize(text: str) -> str:
        for old, new in replacements:
            text = text.replace(old, new)
        return re.sub(r"0x[0-9a-f]{6,}", "0x0", text)

    records = [
        Record(
            msgspec.json.decode(neutralize(msgspec.json.encode(record.envelope).decode())),
            neutralize(record.payload) if record.payload is not None else None,
        )
        for record in recording.records
    ]
    folder = FOLDER / version
    folder.mkdir(exist_ok=True)
    write_recording(
        folder / f"{program.stem}.log",
        records,
        [
            f"python -m tests.recordings.record    (program: tests/programs/{program.name})",
            f"torch {version}, Python {platform.python_version()}, {datetime.date.today().isoformat()}",
        ],
    )


def main() -> None:
    """Record all programs, each in a process of its own."""
    if len(sys.argv) > 1:
        record_program(Path(sys.argv[1]).resolve())
        return
    for program in sorted(PROGRAMS.glob("*.py")):
        subprocess.run([sys.executable, "-m", "tests.recordings.record", str(program)], check=True)  # noqa: S603 - the program is our own file


if __name__ == "__main__":
    main()
