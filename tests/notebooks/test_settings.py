"""Settings and functions of PyTorch that the pages name exist, or the page on settings says since when they do."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import torch

from jupyter_graphbreak.knowledge import causes
from notebooks import cause_pages

PAGES = Path(cause_pages.__file__).parent
_NAME = re.compile(r"\btorch\.(?:_(?:dynamo|inductor|functorch)\.config|compiler)(?:\.[a-z]\w*)+")
#: Names on the pages that these releases do not have: a placeholder, a wrong spelling, a former name, a prefix.
_NOT_NAMES = {
    "torch._dynamo.config.something", "torch._dynamo.config.capture_scalar_output", "torch._dynamo.config.log_level",
    "torch.compiler.skip_guard_on_",
}  # fmt: skip
#: Names that exist in later releases, as the sentence with them says.
_LATER_NAMES = {"torch.compiler.config.compile_on_one_rank", "torch.compiler.nonstrict_trace"}


def _named_things() -> set[str]:
    paths = [*PAGES.glob("*.md"), *PAGES.glob("*_examples/*.md"), Path(causes.__file__)]
    texts = [path.read_text(encoding="utf-8").replace("{CONFIG}", "torch._dynamo.config.") for path in paths]
    return {name for text in texts for name in _NAME.findall(text)}


def _exists(name: str) -> bool:
    parts = name.split(".")
    thing = torch
    for number, part in enumerate(parts[1:], 2):
        if not hasattr(thing, part):
            try:
                importlib.import_module(".".join(parts[:number]))
            except ImportError:
                return False
        thing = getattr(thing, part)
    return True


@pytest.mark.parametrize("name", sorted(_named_things() - _NOT_NAMES - _LATER_NAMES))
def test_each_setting_and_function_exists_or_is_listed_as_new(name: str) -> None:
    table = (PAGES / "settings.md").read_text(encoding="utf-8").partition("\n| new in | names |\n")[2]
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    listed = {
        listed_name
        for line in table.splitlines()
        if (row := re.match(r"\| (\d+)\.(\d+) \| (.*) \|$", line)) and (int(row[1]), int(row[2])) > (major, minor)
        for listed_name in re.findall(r"`([\w.]+)`", row[3])
    }
    assert _exists(name) or name.removesuffix(".add").rpartition(".")[2] in listed
