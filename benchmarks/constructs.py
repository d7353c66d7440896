"""Run the constructs of the page "Is this traced?" with the installed release of PyTorch, and write the outcomes.

``--check`` writes nothing and fails if an outcome has changed. ``--new`` runs only those that were not run with this
release. Names of files restrict the run to these.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from notebooks.constructs import OUTCOMES, constructs
from tests.support.construct_outcomes import outcome


def main() -> None:
    """Run the constructs, and write or compare their outcomes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--new", action="store_true", help="run only what was not run with this release")
    parser.add_argument("files", nargs="*", help="the files to run, such as lists")
    options = parser.parse_args()
    torch._logging.set_logs(all=logging.CRITICAL)  # type: ignore[attr-defined] # noqa: SLF001 - there is no public name
    release = torch.__version__.partition("+")[0]
    outcomes = json.loads(OUTCOMES.read_text(encoding="utf-8")) if OUTCOMES.exists() else {}
    has_changed = False
    names = [construct.name for group in constructs().values() for construct in group]
    for file in options.files or constructs():
        for construct in constructs()[file]:
            known_outcomes = outcomes.setdefault(construct.name, {})
            if options.new and release in known_outcomes:
                continue
            new_outcome = outcome(construct)
            if known_outcomes.get(release) != new_outcome:
                has_changed = True
                print(f"{construct.name}: {known_outcomes.get(release, 'not run')} -> {new_outcome}", flush=True)
            known_outcomes[release] = new_outcome
    if options.check:
        sys.exit(has_changed)
    sorted_outcomes = {name: dict(sorted(outcomes[name].items(), key=_version)) for name in names if name in outcomes}
    OUTCOMES.write_text(json.dumps(sorted_outcomes, indent=1) + "\n", encoding="utf-8")


def _version(item: tuple[str, str]) -> tuple[int, ...]:
    return tuple(map(int, item[0].split(".")))


if __name__ == "__main__":
    main()
