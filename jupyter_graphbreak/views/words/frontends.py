"""Put the verdicts on PyTorch's front ends into words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.views.words.effects import not_run_again_sentence

if TYPE_CHECKING:
    from jupyter_graphbreak.report.frontends import Example, Frontends, Outcome, Verdict

#: The words that a reader sees for each outcome.
OUTCOME_TEXTS: dict[Outcome, str] = {
    "captures": "captures",
    "breaks": "right, with breaks",
    "eager": "right, runs eagerly",
    "refuses": "refuses other input",
    "silently wrong": "silently wrong",
    "raises": "raises",
}
#: The sign to show before each outcome.
OUTCOME_SIGNS: dict[Outcome, str] = {
    "captures": "✓",
    "breaks": "✂",
    "eager": "○",
    "refuses": "⚠",
    "silently wrong": "✗",
    "raises": "⊘",
}
#: The outcomes for which every result was right.
RIGHT_OUTCOMES: frozenset[Outcome] = frozenset({"captures", "breaks", "eager"})


def call_text(frontends: Frontends) -> str:
    """Return the captured call as source text."""
    return f"{frontends.function}({frontends.example.values})"


def verdict_sentences(frontends: Frontends, verdict: Verdict) -> list[str]:
    """Return sentences about a verdict, with code between backticks."""
    sentences = []
    example_text = f"with {_describe_example(verdict.example)}: " if verdict.example is not None else ""
    if verdict.difference is not None:
        sentences.append(f"{example_text}{verdict.difference}")
    elif verdict.raised is not None:
        message = verdict.raised.message.rstrip(": ")
        raised = f"{verdict.raised.type}: {message}" if message else verdict.raised.type
        raised_by = (
            "" if verdict.raised.by == "capture" or verdict.outcome == "refuses" else "the captured program raises "
        )
        sentences.append(f"{example_text}{raised_by}{raised}")
    sentences += [f"warned: {warning}" for warning in verdict.warnings]
    if verdict.outcome == "silently wrong" and not verdict.warnings:
        sentences.append("without a warning")
    sentences += verdict.notes
    if verdict.deprecated:
        sentences.append(f"deprecated in torch {frontends.torch.partition('+')[0]}")
    return sentences


def input_notes(frontends: Frontends) -> list[str]:
    """Return notes for all verdicts: the inputs that were used, and limits of the comparison."""
    if frontends.effects and frontends.report is not None:
        return [not_run_again_sentence(frontends.report)]
    notes = [note.message for note in frontends.diagnostics]
    if not frontends.verdicts and frontends.report is not None:
        notes += [note.message for note in frontends.report.diagnostics]
    if notes and not frontends.verdicts:
        return notes
    return [*notes, *_input_sentences(frontends)]


def _input_sentences(frontends: Frontends) -> list[str]:
    sentences = [f"About the first break: {frontends.advice.rstrip('.')}."] if frontends.advice else []
    if frontends.left_out:
        sentences.append(f"There was no time left for {', '.join(frontends.left_out)}.")
    if not frontends.others and frontends.verdicts:
        return [*sentences, "No other input could be derived: the programs were compared with eager on one input only."]
    inputs_run = ", ".join(dict.fromkeys(map(_example_name, frontends.others)))
    sentences += [f"Also run with: {inputs_run}."] if inputs_run else []
    if any(verdict.breaks for verdict in frontends.verdicts):
        sentences.append("Graphs and breaks are counted with the first input.")
    if frontends.changes:
        changed_values = ", ".join(frontends.changes)
        sentences.append(
            f"A call changes {changed_values}, so each further input ran after a call with the first input."
        )
    inputs_by_error: dict[str, list[str]] = {}
    for example in frontends.others:
        if example.raised is not None:
            inputs_by_error.setdefault(example.raised.type, []).append(_example_name(example))
    for error, inputs in inputs_by_error.items():
        sentences.append(f"The function itself raises {error} with {', '.join(dict.fromkeys(inputs))}.")
    if frontends.searched and any(verdict.outcome in RIGHT_OUTCOMES for verdict in frontends.verdicts):
        sentences.append(
            '"captures" and "right" mean that the program agreed with the function on all of these inputs.'
        )
    return sentences


def _describe_example(example: Example) -> str:
    if not example.values or not example.what:
        return example.values or example.what or "no arguments"
    return f"{example.values} ({example.what})"


def _example_name(example: Example) -> str:
    return example.what.removesuffix(", random") or example.values or "no arguments"
