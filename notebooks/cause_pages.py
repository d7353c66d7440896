"""Make the page of each cause from the tables in ``knowledge/`` and the programs in ``cause_examples/``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from jupyter_graphbreak.knowledge import skipped_functions
from jupyter_graphbreak.knowledge.cache_bypasses import CACHE_BYPASSES, CacheBypass
from jupyter_graphbreak.knowledge.causes import CALLS, CAUSES
from jupyter_graphbreak.knowledge.entries import DynamoSetting, KnownCause, ManualStep, SkipReason
from notebooks import constructs, rare_causes
from notebooks.examples import KINDS, Example, bypasses, examples, recompiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: The folder of the pages below ``notebooks/``.
FOLDER = "causes"
#: A line of code for a summary: short, and neither plain arithmetic nor a call such as ``return double(x)``.
_INFORMATIVE_LINE = re.compile(r"(?!return \w+\([\w, ]*\)$)(?=.*[(=[]|.*\*\*)[^`|]{1,70}")
_ERROR_REASON = (
    "This is an error, not a break. Other pages show [programs](../errors.md) and [bugs in individual releases]"
    "(../known_bugs.md)."
)
_NO_PROGRAM_REASON = "We know no program of a few lines that breaks for this reason with PyTorch 2.13 on a CPU."
_GONE_REASON = "PyTorch 2.13, which built this site, no longer gives this reason."
_NEWER_REASON = "The reason is newer than PyTorch 2.13, which built this site"
#: The reasons why the pages of some causes have no program.
MISSING_PROGRAM_REASONS = {
    **dict.fromkeys(
        (
            *("BackendCompilerFailed", "InternalTorchDynamoError", "InductorError", "GB0064", "GB0111", "GB0112"),
            *("ConstraintViolationError", "GB4315", "GB0040", "GB0041", "GB5173"),
        ),
        _ERROR_REASON,
    ),
    **dict.fromkeys(
        ("GB0086", "GB0093", "GB0175", "GB0177", "GB6270", "GB9741"),
        _NO_PROGRAM_REASON,
    ),
    **dict.fromkeys(("GB0063", "GB0187", "GB0328", "GB0364", "GB0365", "GB0366"), _GONE_REASON),
    "GB0009": "PyTorch 2.13 gives the reason [GB0008](gb0008.md) instead.",
    "GB0021": "It happens only after several calls: a break inside an f-string divides the string, and a later call "
    "compiles its rest. PyTorch 2.13 can also "
    "[raise an error](../known_bugs.md#internaltorchdynamoerror-and-other-dynamo-errors) there.",
    "GB0031": "PyTorch 2.13 gives the reason of the break inside the method, such as [GB0059](gb0059.md).",
    "GB0035": "In PyTorch 2.13, it happens only with a `__bool__` that returns no `bool`; uncompiled code then "
    "raises a `TypeError`.",
    "GB0039": "The page on recompiles [shows programs](../recompiles.md#the-limit-recompile-limit-is-reached).",
    "GB0065": "This reason only names the call that leads to a break. A report shows "
    "[the break itself](../resume.md#a-break-three-calls-deep).",
    "GB0070": "PyTorch 2.13 gives the reason [GB0124](gb0124.md) instead.",
    "GB0087": "In PyTorch 2.13 a custom operator without `register_fake` is an "
    "[error](../messages_kernels.md#custom-operators-fake-kernels); one of `torch.library.define` breaks as "
    "[GB0090](gb0090.md).",
    "GB0097": "PyTorch 2.13 traces `append` and `appendleft` of such a deque.",
    "GB0103": "PyTorch 2.13 traces methods that a subclass overrides. (With the backend `eager`, one that calls "
    "`super()` runs again in the graph, and its result can be wrong; with Inductor it is right.)",
    "GB0115": "It happens only if the key function raises an error, so uncompiled code raises an error there.",
    "GB0151": "PyTorch 2.13 traces `signature` and `getfullargspec`; `getsource` and `currentframe` break as "
    "[GB0007](gb0007.md).",
    "GB0160": "PyTorch 2.13 gives the reason [GB4347](gb4347.md) instead.",
    "GB0172": "It needs a process group, as in [this program](../training.md#collectives-in-compiled-code).",
    "GB0184": "In PyTorch 2.13 it needs an object without `__str__` and `__repr__`, and every object has them.",
    "GB0218": "PyTorch 2.13 gives the reason [GB0124](gb0124.md) instead.",
    "GB0269": "The setting tests PyTorch itself. In PyTorch 2.13, functions that were compiled under it break until "
    "the process ends, so switch it off before the first call.",
    "GB0300": "PyTorch 2.13 gives the reason [GB0157](gb0157.md) first, since it does not trace `array.dtype`.",
    "GB0354": "It happens only with a name that is not defined; uncompiled code then raises a `NameError`.",
    "GB2412": f"{_NEWER_REASON}.",
    "GB2549": "It happens only after more than 100,000 values of one generator, which Dynamo traces one by one.",
    "GB4240": "PyTorch 2.13 gives the reason [GB4880](others.md#gb4880) instead.",
    "GB5821": f"{_NEWER_REASON} and traces such a hook.",
    "GB6025": "PyTorch 2.13 gives the reason [GB0811](gb0811.md) instead.",
    "GB6066": f"{_NEWER_REASON}; there it is [GB0156](gb0156.md).",
    "GB6815": f"{_NEWER_REASON}; there it is [GB0156](gb0156.md).",
    "GB7324": "It is an error under `fullgraph=True`. Without that, the code breaks as [GB8985](gb8985.md).",
    "GB9118": f"{_NEWER_REASON} and traces such a branch.",
    "Generator in use beyond compiled code": "PyTorch 2.13 gives the reason [GB4347](gb4347.md) first.",
}
#: The page of the causes for which we only have the text of PyTorch's registry.
OTHERS = "others"
_BRACKETS = r"(?:\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\])"
#: Code in a sentence: words with brackets right behind them, and words with an underscore.
_CODE_WORD = re.compile(rf"(?<![\w`.\"')])(?:\.?\w[\w.]*{_BRACKETS}(?:\.\w+|{_BRACKETS})*|[\w.]*_[\w.]*\w)(?: = \w+)?")


#: An underscore, escaped because two of them around a word would make it bold.
_UNDERSCORE = r"\_"

#: The cause whose page lists what to do by the function that is called.
_CALLS_ID = "GB0007"
_CALLS_ANCHOR = "#by-the-function-that-is-called"
#: Ids of calls in general, and what helps with any function.
_CALL_IDS = {"GB0007", "GB0008", "GB0059", "GB0147", "GB0156"}
_OTHER_CALLS_ADVICE = (
    "Call anything else that Dynamo does not trace, such as a function of a C extension, before the compiled "
    "function runs and pass the result, or call it afterwards. If it computes on tensors, "
    "[wrap it in a custom operator](../escape_hatches.md#custom-operators-one-opaque-operation), which does not "
    "break. Or accept one break, and "
    "[leave it out](../escape_hatches.md#torch-compiler-disable-leave-a-function-out). "
    "[Libraries](../libraries.md) have their own page."
)
_ALL_SKIPS = "../common_breaks.md#every-reason-why-a-function-runs-eagerly"


def pages() -> dict[str, str]:
    """Return the text of each page by its name, without the suffix."""
    by_id: dict[str, list[Example]] = {cause.id: [] for cause in CAUSES}
    for example in examples():
        for ident in example.ids:
            by_id[ident].append(example)
    for ident, examples_of_cause in by_id.items():
        examples_of_cause.sort(
            key=lambda example: example.ids[0] != ident
        )  # examples with this cause as their main one come first
    registry = rare_causes.registry()
    texts = {page_name(cause.id): _page(cause, by_id[cause.id], registry.get(cause.id)) for cause in CAUSES}
    texts |= {page_name(name): _skip_page(name, reason) for name, reason in _skips().items()}
    texts[OTHERS] = _assemble(rare_causes.page_parts())
    texts |= {page_name(f"recompile {item.name}"): _recompile_page(item) for item in recompiles()}
    shown_bypasses = bypasses()
    return texts | {
        page_name(f"bypass {entry.name}"): _bypass_page(entry, shown_bypasses.get(entry.name))
        for entry in CACHE_BYPASSES
    }


def write(folder: Path) -> None:
    """Write the pages into a folder, and remove pages of causes that are gone."""
    texts = {f"{name}.md": text for name, text in pages().items()}
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.md"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def page_name(ident: str) -> str:
    """Return the name of a cause's page: "gb0029", "recompile-limit"."""
    return re.sub(r"\W+|_", "-", ident.lower())


def address(ident: str) -> str:
    """Return the address of a cause in the built site: its page, or its section on the page of rare causes."""
    is_known = any(cause.id == ident for cause in CAUSES)
    return f"{FOLDER}/{page_name(ident)}.html" if is_known else f"{FOLDER}/{OTHERS}.html#{ident.lower()}"


def examples_by_kind() -> str:
    """Return a table of the examples by what the code does, with links, in Markdown."""
    by_name = {example.name: example for example in examples()}
    rows = [
        f"| {kind} | {', '.join(_link(by_name[name]) for name in names.split())} |" for kind, names in KINDS.items()
    ]
    return "\n".join(["| what the code does | causes |", "| --- | --- |", *rows])


def _link(example: Example) -> str:
    """Return a link to an example: to its section if it shares the page with others."""
    ident = example.ids[0]
    is_alone = sum(ident in other.ids for other in examples()) == 1
    section = "" if is_alone else f"#{slug(example.title)}"
    return f"[{example.title}]({FOLDER}/{page_name(ident)}.md{section}) {ident}"


def causes_table() -> str:
    """Return a table of all causes of breaks with links to their pages, in Markdown."""
    rows = [
        f"| [{cause.id}]({FOLDER}/{page_name(cause.id)}.md) | {cause.title} | {cause.names[0]} |" for cause in CAUSES
    ]
    return "\n".join(["| id | in your code | PyTorch's name |", "| --- | --- | --- |", *rows])


def former_messages_table() -> str:
    """Return a table of what earlier releases said, with links to the pages of the causes, in Markdown."""
    rows = [
        f"| {', '.join(messages)} | [{cause.title}]({FOLDER}/{page_name(cause.id)}.md) |"
        for cause in CAUSES
        if (messages := _former_messages(cause))
    ]
    return "\n".join(["| the message began with | it is about |", "| --- | --- |", *rows])


def _former_messages(cause: KnownCause) -> list[str]:
    prefixes = [cause.former_message_prefix] if cause.former_message_prefix else []
    return [f"`{message}`" for message in (*cause.also_reported_as, *prefixes, *cause.former_messages)]


def recompiles_table() -> str:
    """Return a table of the kinds of recompiles with links to their pages, in Markdown."""
    rows = [
        f"| [{item.title}]({FOLDER}/{page_name(f'recompile {item.name}')}.md) | `{item.ids[0]}` |"
        for item in recompiles()
    ]
    return "\n".join(["| what changes | the guard in a report |", "| --- | --- |", *rows])


def bypasses_table() -> str:
    """Return a table of the reasons why a cache is bypassed, with links to their pages, in Markdown."""
    rows = [
        f"| [{entry.title}]({FOLDER}/{page_name(f'bypass {entry.name}')}.md) | `{entry.reason}` | "
        f"{_sentence(entry.advice) if entry.advice else ''} |"
        for entry in CACHE_BYPASSES
    ]
    return "\n".join(["| in the graph | PyTorch's reason | what helps |", "| --- | --- | --- |", *rows])


def skips_table() -> str:
    """Return a table of the reasons why functions run eagerly, with links to their pages, in Markdown."""
    rows = [
        f"| [{name.lower().replace('_', ' ')}]({FOLDER}/{page_name(name)}.md) | {_plain(reason.sentence)} |"
        for name, reason in _skips().items()
    ]
    return "\n".join(["| reason | in a report |", "| --- | --- |", *rows])


def _skips() -> dict[str, SkipReason]:
    return {name: reason for name, reason in vars(skipped_functions).items() if isinstance(reason, SkipReason)}


def _plain(sentence: str) -> str:
    return sentence.replace("{limit}", "`recompile_limit` 8").replace("{cause}", "...")


def _skip_page(name: str, reason: SkipReason) -> str:
    parts = [f"# Runs eagerly: {name.lower().replace('_', ' ')}", f"A report says: *{_plain(reason.sentence)}*."]
    if reason.way_out:
        parts += ["## What to do", _sentence(reason.way_out)]
    return _assemble([*parts, "## More", f"- [](../{reason.page})\n- [All reasons]({_ALL_SKIPS})"])


def _recompile_page(item: Example) -> str:
    parts = [f"# Recompile: {item.title}", f"A report and `TORCH_LOGS=recompiles` say: `{item.ids[0]}`"]
    if item.fixes:
        parts.append(_short_summary([item]))
    parts += _example(item, alone=True)
    return _assemble(
        [*parts, "## More", "- [](../recompiles.md)\n- [All kinds](../common_breaks.md#every-kind-of-recompile)"]
    )


def _bypass_page(entry: CacheBypass, example: Example | None) -> str:
    is_traced_only = example is not None and "bypassed, kept ->" in example.fixes[0].outcome
    consequence = (
        "Every start traces such a graph again, but Inductor's cache has its code"
        if is_traced_only
        else "Every start compiles such a graph again"
    )
    parts = [
        f"# A cache that is bypassed: {entry.title}",
        f"PyTorch's reason, in `--cost` and in a log: `{entry.reason}`. {consequence}.",
    ]
    if example is not None:
        parts += [_short_summary([example]), *_example(example, alone=True)]
    elif entry.advice:
        parts += ["## What to do", _sentence(entry.advice)]
    more = "- [](../compile_time.md#a-cache-that-does-not-work)\n- [](../cost.md#what-makes-the-first-call-slow)"
    return _assemble([*parts, "## More", more])


def _page(cause: KnownCause, examples_of_cause: Sequence[Example], entry: dict[str, Any] | None) -> str:
    names = " or ".join(f"*{name.strip().replace('_', _UNDERSCORE)}*" for name in cause.names)
    is_registered = re.fullmatch(r"GB\d{4}", cause.id) is not None
    facts = [f"PyTorch's name: {names}"]
    if is_registered:
        facts += [f"id {cause.id}", _releases(cause)]
    parts = [f"# {cause.title} ({cause.id})" if is_registered else f"# {cause.title}", "; ".join(facts) + "."]
    if former_messages := _former_messages(cause):
        parts.append(f"Earlier releases and `torch._dynamo.explain` say {' or '.join(former_messages)}.")
    if cause.is_deliberate:
        parts.append("The code breaks the graph here on purpose.")
    if examples_of_cause:
        parts.append(_short_summary(examples_of_cause))
    if cause.id in _CALL_IDS:
        parts.append(_OTHER_CALLS_ADVICE)
    for example in examples_of_cause:
        parts += _example(example, alone=len(examples_of_cause) == 1)
    if not examples_of_cause:
        parts += _advice(cause)
        parts += ["## In PyTorch's words", *rare_causes.explanation(entry)] if entry else []
        parts += ["## Why there is no program here", MISSING_PROGRAM_REASONS[cause.id]]
    if cause.id == _CALLS_ID:
        parts += ["## By the function that is called", *_calls()]
    elif cause.is_named_by_call:
        parts.append(f"What to do [depends on the function that is called]({page_name(_CALLS_ID)}.md{_CALLS_ANCHOR}).")
    if cause.settings:
        parts += ["## Settings", *_settings(cause)]
    parts += _constructs(cause)
    parts += ["## More", *_further_links(cause, is_registered=is_registered)]
    return _assemble(parts)


def _constructs(cause: KnownCause) -> list[str]:
    """Return the constructs of "Is this traced?" that break for a cause, and those that once did, as paragraphs."""
    breaking_titles, traced_titles = constructs.titles_by_cause(cause.id)
    parts = []
    if breaking_titles:
        parts.append(f"These break ([what to write instead](../traced.md)): {'; '.join(breaking_titles)}.")
    if traced_titles:
        parts.append(
            f"These broke in earlier releases, and [are traced now](../traced.md): {'; '.join(traced_titles)}."
        )
    return ["## Code that was run", *parts] if parts else []


def _short_summary(examples_of_cause: Sequence[Example]) -> str:
    """Return all fixes at a glance, so that the answer is on the first screen."""
    if len(examples_of_cause) == 1:
        return f"In short: {_titles(examples_of_cause[0])}."
    rows = [f"| [{example.title}](#{slug(example.title)}) | {_titles(example)} |" for example in examples_of_cause]
    return "\n".join(["| in your code | fixes, in the order to try them |", "| --- | --- |", *rows])


def _titles(example: Example) -> str:
    parts = []
    for fix in example.fixes:
        line = _changed_line(example.code, fix.code)
        code = f": `{line}`" if line and "`" not in fix.title else ""
        parts.append(f"{fix.title}{code} (*{'safe' if fix.is_safe else 'changes something'}*)")
    return "; ".join(parts)


def _changed_line(old_code: str, new_code: str) -> str | None:
    """Return what a fix computes or sets, if it is one short line that says more than the fix's title."""
    old_lines = {line.strip() for line in old_code.splitlines()}
    lines = [line.strip() for line in new_code.splitlines() if line.strip() and line.strip() not in old_lines]
    statements = [line for line in lines if not line.startswith(("@", "def ", "import ", "from "))]
    if len(statements) != 1 or not _INFORMATIVE_LINE.fullmatch(statements[0]):
        return None
    return statements[0].removeprefix("return ")


def slug(title: str) -> str:
    """Return the anchor of a section."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _assemble(parts: Sequence[str]) -> str:
    # The pages are found from the table, from reports and by search; in the sidebar they would hide everything else.
    return "\n\n".join(["---\norphan: true\n---", *parts]) + "\n"


def _releases(cause: KnownCause) -> str:
    first = f"since PyTorch {cause.since}" if cause.since else "in PyTorch 2.9 and later"
    return f"{first}, until {cause.until}" if cause.until else first


def _example(example: Example, *, alone: bool) -> list[str]:
    def heading(text: str) -> str:
        return f"## {text}" if alone else f"**{text}**"

    parts = [] if alone else [f"## {example.title}", *([f"In short: {_titles(example)}."] if example.fixes else [])]
    # The reason comes first: with a long program above it, it would not be on the first screen.
    parts += [heading("Why"), example.explanation, heading("In your code"), _block(example.code)]
    if example.fixes:
        parts.append(heading("Fixes, in the order to try them"))
    for number, fix in enumerate(example.fixes, 1):
        mark = "safe" if fix.is_safe else "changes something"
        parts += [f"**{number}. {fix.title}** (*{mark}*)", *filter(None, [fix.text]), _block(fix.code)]
        parts.append(f"Measured: {fix.outcome}.")
    return parts


def _advice(cause: KnownCause) -> list[str]:
    parts = []
    if cause.advice:
        parts.append(_sentence(cause.advice))
    if cause.manual_step:
        parts.append(_step(cause.manual_step))
    if not parts and not cause.page:
        parts.append(
            "There is no general fix. If the code does not have to be in the graph, call it before the compiled "
            "function runs and pass its result as an argument, call it after the function returns, or "
            "[leave it out of the graph](../escape_hatches.md)."
        )
    if not parts:
        parts.append(f"This page explains it: [](../{cause.page}).")
    return ["## What to do", *parts]


def _calls() -> list[str]:
    rows: dict[str, str] = {}
    for call in CALLS:
        if call.title and not call.causes and (call.advice or call.manual_step):
            advice = _sentence(call.advice) if call.advice else _step(call.manual_step)
            more = f" [](../{call.page})" if call.page else ""
            rows.setdefault(call.title, f"- {call.title}: {advice}{more}")
    introduction = "This id only means that a call could not be traced. What to do depends on the call:"
    return [introduction, "\n".join(rows.values())]


def _settings(cause: KnownCause) -> list[str]:
    rows = [f"- {' and '.join(map(_setting, settings))}{_condition(cause, settings)}" for settings in cause.settings]
    return [
        "`--try` tests each of these on your code, the smallest change first:",
        "\n".join(rows),
        "A setting applies to everything that is compiled while it is on. Set it before the first call.",
    ]


def _condition(cause: KnownCause, settings: Sequence[DynamoSetting]) -> str:
    """Return the words that follow the settings in the cause's advice, such as ", if only tensor operations ..."."""
    return (cause.setting_advice or "").partition(" and ".join(map(str, settings)))[2]


def _setting(setting: DynamoSetting) -> str:
    mark = {True: "safe", False: "changes something", None: "can change something, or fail: try it"}[setting.is_safe]
    since = f", since PyTorch {setting.since}" if setting.since else ""
    return f"`{setting}` (*{mark}*{since})"


def _further_links(cause: KnownCause, *, is_registered: bool) -> list[str]:
    parts = []
    if cause.page:
        parts.append(f"- [](../{cause.page})")
    if is_registered:
        parts.append(f"- {rare_causes.registry_link(cause.id)}: its explanation, its hints, and users' notes")
    return ["\n".join([*parts, "- [All causes](../common_breaks.md#every-cause)"])]


def _sentence(text: str) -> str:
    return _mark_code(f"{text[0].upper()}{text[1:]}.")


def _step(step: ManualStep | None) -> str:
    return _mark_code(step.text) if step else ""


def _mark_code(sentence: str) -> str:
    return _CODE_WORD.sub(r"`\g<0>`", sentence)


def _block(code: str) -> str:
    return f"```python\n{code}```"
