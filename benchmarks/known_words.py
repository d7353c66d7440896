"""Write the list of names and strings that redaction keeps, from the installed PyTorch.

They are PyTorch's and Python's own (operations, Dynamo settings, causes of graph breaks with their texts), so they
reveal nothing about a user's program. Entries that the list already has stay in it, since reports of other releases
are redacted as well.
"""

from __future__ import annotations

import builtins
import importlib
import json
import math
import operator
import re
from pathlib import Path

import torch

LIST_FILE = Path(__file__).parents[1] / "jupyter_graphbreak" / "analysis" / "known_words.txt"
MODULES = (
    "torch", "torch.nn.functional", "torch.nn.init", "torch.linalg", "torch.fft", "torch.special", "torch.sparse",
    "torch.random", "torch.autograd", "torch.func", "torch._C", "torch._C._nn", "torch._C._linalg", "torch._C._fft",
    "torch._C._special", "torch._VF", "torch.utils.checkpoint",
)  # fmt: skip
NAMESPACES = {"aten", "prims", "prim", "inductor", "_c10d_functional", "c10d_functional", "quantized"}


def callables(name: str) -> set[str]:
    """Return the dotted names of the callables in a PyTorch module."""
    module = importlib.import_module(name) if name in MODULES[:11] else eval(name, {"torch": torch})  # noqa: S307
    members = ((part, getattr(module, part, None)) for part in dir(module) if not part.startswith("__"))
    return {f"{name}.{part}" for part, value in members if callable(value)}


def operations() -> set[str]:
    """Return the names of all operations as they appear in graphs."""
    names = {name for module in MODULES for name in callables(module)}
    # Methods of tensors are left out: in a graph they have the names from the user's code.
    for owner, holder in (("operator", operator), ("math", math), ("builtins", builtins)):
        names |= {f"{owner}.{part}" for part in dir(holder)}
    for schema in torch._C._jit_get_all_schemas():  # noqa: SLF001 - there is no public list
        namespace, _, name = schema.name.partition("::")
        if namespace in NAMESPACES:
            names |= {f"{namespace}.{name}", f"{namespace}.{name}.{schema.overload_name or 'default'}"}
    state_functions = importlib.import_module("torch._dynamo.variables.torch").tracing_state_functions()
    names |= {f"{function.__module__}.{function.__name__}" for function in state_functions}
    names |= {f"higher_order.{name}" for name in torch._ops._higher_order_ops}  # noqa: SLF001 - there is no public function
    return names


def main() -> None:
    """Write the list."""
    config = importlib.import_module("torch._dynamo.config")
    registry = Path(torch.__file__).parent / "_dynamo" / "graph_break_registry.json"
    causes, texts = set(), set()
    for gb_id, entries in json.loads(registry.read_text(encoding="utf-8")).items():
        for entry in entries:
            causes.add(f"{gb_id} {entry['Gb_type']}")
            texts |= {text for text in (entry["Explanation"], *entry["Hints"]) if not re.search(r"[{}\n]", text)}
    sections = {
        "operations": operations(),
        "settings": {name for name in config.get_config_copy() if not name.startswith("_")},
        "causes": causes,
        "texts": {" ".join(text.split()) for text in texts if text.strip()},
    }
    old_words: dict[str, set[str]] = {name: set() for name in sections}
    section = ""
    for line in LIST_FILE.read_text(encoding="utf-8").splitlines() if LIST_FILE.exists() else []:
        if line.startswith("["):
            section = line.strip("[]")
        elif line:
            old_words[section].add(line)
    section_texts = (f"[{name}]\n" + "\n".join(sorted(words | old_words[name])) for name, words in sections.items())
    LIST_FILE.write_text("\n".join(section_texts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
