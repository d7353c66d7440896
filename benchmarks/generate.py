"""Count the graphs that `generate` of a small Llama needs: the table of where_to_compile.md.

python benchmarks/generate.py   # needs transformers
"""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.utils import counters
from transformers import LlamaConfig, LlamaForCausalLM

#: For each row of the table: the way in which the model is compiled, the lengths of the prompts, options of `generate`.
ONE_LENGTH, THREE_LENGTHS = (6,), (6, 9, 12)
ROWS: tuple[tuple[str, tuple[int, ...], dict[str, Any]], ...] = (
    ("wrapper", ONE_LENGTH, {}),
    ("wrapper", ONE_LENGTH, {"cache_implementation": "static"}),
    ("in place", ONE_LENGTH, {}),
    ("in place", ONE_LENGTH, {"cache_implementation": "static"}),
    ("in place", THREE_LENGTHS, {"cache_implementation": "static"}),
)


def count_graphs(way: str, lengths: tuple[int, ...], options: dict[str, Any]) -> int:
    """Return how many graphs Dynamo captured while a compiled model generated eight tokens for each prompt."""
    torch.compiler.reset()
    counters.clear()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    model: Any = LlamaForCausalLM(config).eval()
    if way == "wrapper":
        model = torch.compile(model, backend="eager")
    else:
        model.compile(backend="eager")
    for length in lengths:
        prompt = torch.randint(3, 64, (1, length))
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=8,
            min_new_tokens=8,
            do_sample=False,
            pad_token_id=0,
            **options,
        )
    return int(counters["stats"]["unique_graphs"])


def main() -> None:
    """Print the number of graphs of each row."""
    for way, lengths, options in ROWS:
        prompts = f"prompts of {', '.join(map(str, lengths))}"
        print(f"{way:9} {prompts:20} {options or 'default cache'}: {count_graphs(way, lengths, options)} graphs")


if __name__ == "__main__":
    main()
