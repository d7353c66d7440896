"""Find the browsers that tests drive. As a script, this module also installs missing ones."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

_FIREFOX_COMMANDS = ("firefox-esr", "firefox")
_CHROMIUM_COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# This code runs in a separate process, because Playwright's synchronous API cannot be started twice in one process.
_PRINT_PLAYWRIGHTS_BROWSER = """
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    print(playwright.chromium.executable_path)
"""


@functools.cache
def find_browser() -> str | None:
    """Return the path of Playwright's own Chromium, of a Chromium on PATH if there is none, or None."""
    result = subprocess.run(
        [sys.executable, "-c", _PRINT_PLAYWRIGHTS_BROWSER], capture_output=True, text=True, check=False
    )
    playwrights_path = result.stdout.strip()
    if playwrights_path and Path(playwrights_path).exists():
        return playwrights_path
    return next(filter(None, map(shutil.which, _CHROMIUM_COMMANDS)), None)


def find_firefox() -> str | None:
    """Return the path of a Firefox on PATH, or None."""
    return next(filter(None, map(shutil.which, _FIREFOX_COMMANDS)), None)


def find_webkit() -> Path | None:
    """Return the path of WebKitGTK's MiniBrowser, or None if it, its driver or Xvfb is missing."""
    if shutil.which("WebKitWebDriver") is None or shutil.which("Xvfb") is None:
        return None
    return next(Path("/usr").glob("lib*/**/webkit2gtk-4.1/MiniBrowser"), None)


def _missing_packages() -> list[list[str]]:
    """Return the Debian packages of the missing browsers, in groups that are installed together, Chromium first."""
    packages = [["chromium"]] if find_browser() is None else []
    optional_packages = ["firefox-esr"] if find_firefox() is None else []
    optional_packages += ["webkit2gtk-driver", "xvfb"] if find_webkit() is None else []
    return [*packages, *([optional_packages] if optional_packages else [])]


def _install(packages: list[list[str]]) -> None:
    """Install Debian packages, and print the output of apt-get if it fails."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "-qq", "install", "--yes", "--no-install-recommends"]
    for command in (["apt-get", "-qq", "update"], *([*install, *names] for names in packages)):
        process = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if process.returncode:
            print(process.stdout, file=sys.stderr)
            return


def main() -> int:
    """Install missing browsers, and print how to get Chromium if it is still missing. The others are optional."""
    missing_packages = _missing_packages()
    if missing_packages and shutil.which("apt-get") and os.geteuid() == 0:
        names = ", ".join(chain.from_iterable(missing_packages))
        print(f"installing {names} with apt-get for the browser tests ...", flush=True)
        _install(missing_packages)
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
