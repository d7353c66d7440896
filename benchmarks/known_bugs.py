"""Run the programs of the known bugs with the installed release of PyTorch, and write the outcomes for the page.

It takes about a minute; ``--check`` writes nothing and fails if an outcome has changed.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from notebooks.known_bugs import OUTCOMES
from tests.programs.bugs.known_bugs import PROGRAMS, outcome


def main() -> None:
    """Run the programs, and write or compare their outcomes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    torch._logging.set_logs(all=logging.CRITICAL)  # type: ignore[attr-defined] # noqa: SLF001 - there is no public name
    release = torch.__version__.partition("+")[0]
    outcomes = json.loads(OUTCOMES.read_text(encoding="utf-8")) if OUTCOMES.exists() else {}
    has_changed = False
    for name in PROGRAMS:
        known_outcomes = outcomes.setdefault(name, {})
        new_outcome = outcome(name)
        if known_outcomes.get(release) != new_outcome:
            has_changed = True
            print(f"{name}: {known_outcomes.get(release, 'not run')} -> {new_outcome}", flush=True)
        known_outcomes[release] = new_outcome
    if check:
        sys.exit(has_changed)
    sorted_outcomes = {name: dict(sorted(outcomes[name].items(), key=_version)) for name in PROGRAMS}
    OUTCOMES.write_text(json.dumps(sorted_outcomes, indent=1) + "\n", encoding="utf-8")


def _version(item: tuple[str, str]) -> tuple[int, ...]:
    return tuple(map(int, item[0].split(".")))


if __name__ == "__main__":
    main()
