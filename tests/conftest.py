"""Shared fixtures (kernels, a JupyterLab, the documentation), and the order in which tests run."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_graphbreak._torch_compat.separate_cache import skip_guard_profiling
from tests.support import warm_processes
from tests.support.lab_server import Lab, jupyterlab

ROOT = Path(__file__).parents[1]
#: The name of the pytest-xdist worker; None without pytest-xdist.
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
#: Long files whose tests are independent, so several workers can share them.
SPLIT_FILES = ("tests/torch/experiments/remedies/test_by_hand.py", "tests/cli/test_commands.py")
#: Files that share a JupyterLab and a browser, because both take seconds to start.
LAB_FILES = ("tests/browser/", "tests/hosts/test_lab_in_firefox.py")
#: The only browser tests that read the built documentation and do not use JupyterLab.
DOCS_FILE = "tests/browser/test_docs.py"

# Workers, kernels and the documentation share the cores, so torch's threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files that need the documentation late and unit tests last, so that all workers end together."""
    site_files = {item.path for item in items if needs_site(item)}
    unit_folder = ROOT / "tests" / "unit"
    items.sort(key=lambda item: 2 if unit_folder in item.path.parents else int(item.path in site_files))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute files among the workers: split `SPLIT_FILES` into tests, and keep `LAB_FILES` together."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc] # pytest-xdist ships no types
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(LAB_FILES) and not nodeid.startswith(DOCS_FILE):
                return "lab"
            return nodeid if nodeid.startswith(SPLIT_FILES) else str(super()._split_scope(nodeid))

    config.option.loadscopereorder = False  # keep the order from above
    return Scheduling(config, log)


def needs_warm_processes(item: pytest.Item) -> bool:
    parts = {"browser", "cli", "ipython", "plugin", "test_children.py"}
    return needs_site(item) or not parts.isdisjoint(item.path.parts)


def needs_site(item: pytest.Item) -> bool:
    return "site" in getattr(item, "fixturenames", ())


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all workers share."""
    folder = factory.getbasetemp()
    return folder if WORKER is None else folder.parent


@pytest.fixture(scope="session", autouse=True)
def fork_server_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make kernels and commands use this version of the package and start with PyTorch loaded.

    Yields the folder of the server that forks them.
    """
    old_values = {name: os.environ.get(name) for name in ("JUPYTER_PATH", "PYTHONPATH", warm_processes.FEW_INPUTS)}
    paths = (old_values["PYTHONPATH"] or "").split(os.pathsep)
    if str(ROOT) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), *paths]))
    os.environ[warm_processes.FEW_INPUTS] = "1"
    folder = shared_folder(tmp_path_factory) / "kernels"
    kernelspec_folder = warm_processes.use_warm_kernels(folder, dict(os.environ))
    os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [kernelspec_folder, old_values["JUPYTER_PATH"]]))
    if WORKER in {None, "gw0"} and any(needs_warm_processes(item) for item in request.session.items):
        warm_processes.start_server(folder)
    yield folder
    for name, value in old_values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture(scope="session")
def warm_python(fork_server_folder: Path) -> str:
    """Return a command ``python`` that starts with PyTorch loaded, next to ``graphbreak`` and ``torchrun``."""
    return f"{warm_processes.use_warm_commands(fork_server_folder)}/python"


@pytest.fixture(scope="session", autouse=True)
def speed_up_compilation() -> Iterator[None]:
    """Skip the slow parts of a compilation that no test needs.

    Dynamo flushes the processor's caches to time guards. A full garbage collection visits a million PyTorch objects
    and would happen every few compilations, because each compilation starts with a partial one. Together, they would
    take a tenth of the time of the tests that compile.
    """
    if warm_processes.COLD_START in os.environ:
        yield
        return
    importlib.import_module("torch._functorch.aot_autograd")
    gc.collect()
    gc.freeze()
    thresholds = gc.get_threshold()
    gc.set_threshold(10 * thresholds[0], thresholds[1], 100 * thresholds[2])
    with skip_guard_profiling():
        yield
    gc.set_threshold(*thresholds)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with jupyterlab(tmp_path_factory.mktemp("lab")) as running_lab:
        yield running_lab


@pytest.fixture(autouse=True)
def hide_running_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hide the event loop that Playwright's synchronous API leaves running.

    Otherwise, ``asyncio.run`` and cells with ``await`` raise RuntimeError in later tests.
    """
    if "browser" in request.path.parts:
        yield
        return
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(loop)


@pytest.fixture(scope="session", autouse=True)
def build_site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Build the documentation like ``make docs``, in the background from the first test on, if any test needs it."""
    if WORKER not in {None, "gw0"} or not any(map(needs_site, request.session.items)):
        yield
        return
    python: str = request.getfixturevalue("warm_python")  # kernels execute the pages
    folder = shared_folder(tmp_path_factory) / "site"
    folder.mkdir()
    path = [str(Path(python).parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(path), "PYTHON_EXEC": python}  # the latter is for torchrun
    del environment[warm_processes.FEW_INPUTS]  # the pages show verdicts as users get them
    # Build in one process and at low priority, because the tests have time limits. The pages' cells have none.
    command: list[str | Path] = ["sh", "-c", 'nice "$@" > "$0/log" 2>&1; echo $? > "$0/status"', folder]
    command += [sys.executable, "-m", "sphinx", "-E", "-W", "--keep-going", "-b", "html"]
    command += ["-D", "nb_execution_timeout=-1"]
    build = subprocess.Popen([*command, ROOT / "notebooks", folder / "html"], cwd=ROOT, env=environment)
    yield
    build.wait()  # other workers may need the site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wait for the documentation, and return its folder. The folder ``jupyter_execute`` next to it has notebooks."""
    folder = shared_folder(tmp_path_factory) / "site"
    status = folder / "status"
    while not status.exists() or not status.read_text():
        time.sleep(0.2)
    assert status.read_text() == "0\n", (folder / "log").read_text(encoding="utf-8")
    return folder / "html"
