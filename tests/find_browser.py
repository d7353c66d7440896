"""Find the Chromium that the browser tests drive; run as a script, see to it that there is one."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# In a process of its own: Playwright's sync interface cannot be started twice in one.
_PLAYWRIGHTS_OWN = """
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    print(playwright.chromium.executable_path)
"""


@functools.cache
def find_browser() -> str | None:
    """Return the path of Playwright's own Chromium, else of one on PATH, else None."""
    asked = subprocess.run([sys.executable, "-c", _PLAYWRIGHTS_OWN], capture_output=True, text=True, check=False)
    own = asked.stdout.strip()
    if own and Path(own).exists():
        return own
    return next(filter(None, map(shutil.which, _NAMES)), None)


def _install() -> None:
    """Install Debian's Chromium, silently unless it fails."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "-qq", "update"],
        ["apt-get", "-qq", "install", "--yes", "--no-install-recommends", "chromium"],
    ):
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode:
            print(done.stdout, file=sys.stderr)
            return


def main() -> int:
    """Find or install a browser; say how to get one where neither works."""
    if find_browser() is None and shutil.which("apt-get") and os.geteuid() == 0:
        print("installing chromium with apt-get for the browser tests ...", flush=True)
        _install()
        find_browser.cache_clear()
    if find_browser() is None:
        print(
            "The browser tests need Chromium and none was found. Install your system's chromium package,"
            f" or run: {sys.executable} -m playwright install chromium",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
