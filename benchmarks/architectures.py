"""Compile tiny random models of transformers' architectures, and try remedies for the breaks.

``python benchmarks/architectures.py [TYPE ...] [--try] [--training]`` writes one line of JSON for each architecture to
``build/architectures.jsonl`` and continues where it stopped; ``--table`` prints that file, and ``--publish`` writes the
fields that the page on models shows to ``benchmarks/architectures.jsonl``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FILE = Path("build/architectures.jsonl")
_PUBLISHED_FILE = Path(__file__).with_suffix(".jsonl")
#: Bytes that a process may add to its memory: some architectures are large even in their smallest configuration.
_MAX_MEMORY = 8 << 30
_WORKING_VERDICTS = ("works", "works on what ran", "works but differs")


def main() -> None:
    """Parse the arguments, and run the chosen step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", help="model types (default: all of the library)")
    parser.add_argument("--try", dest="remedies", action="store_true", help="try remedies, and apply them")
    parser.add_argument("--training", action="store_true", help="models in training mode")
    parser.add_argument("--again", action="store_true", help="repeat architectures that are in the file or published")
    parser.add_argument("--file", type=Path, default=_FILE)
    parser.add_argument("--timeout", type=float, default=280.0, help="seconds for one architecture")
    parser.add_argument("--table", action="store_true", help="print the contents of the file")
    parser.add_argument(
        "--publish", action="store_true", help=f"add the contents of the file to {_PUBLISHED_FILE.name}"
    )
    parser.add_argument("--check", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.check is not None:
        check(json.loads(options.check.read_text()))
    elif options.table:
        print_table(last_records(options.file))
    elif options.publish:
        publish(last_records(options.file))
    else:
        survey(options)


def last_records(file: Path) -> dict[str, dict[str, Any]]:
    """Return the last line about each architecture in a file."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {line["key"]: line for line in map(json.loads, lines)}


def survey(options: argparse.Namespace) -> None:
    """Compile each architecture in a separate process."""
    warnings.filterwarnings("ignore")
    import tiny_models  # type: ignore[import-not-found]
    import torch
    import torch._dynamo  # loaded once, before forking
    import transformers

    torch.set_num_threads(1)
    today = time.strftime("%Y-%m-%d")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "date": today}
    options.file.parent.mkdir(parents=True, exist_ok=True)
    recorded_lines = {} if options.again else last_records(options.file)
    page_lines = {} if options.again else published_lines()
    for model_type in options.types or tiny_models.architectures():
        key = f"{model_type} training" if options.training else model_type
        earlier_result = recorded_lines.get(key)
        if key in page_lines:
            continue
        if earlier_result is not None and (
            "remedies" in earlier_result or not options.remedies or not earlier_result.get("breaks")
        ):
            continue
        line = run_in_fork(compile_and_try, model_type, options.remedies, options.training, seconds=options.timeout)
        claim = line.pop("claim", None)
        if claim is not None:
            line["check"] = check_in_processes(claim)
        with options.file.open("a") as lines:
            head = {"key": key, "type": model_type, "training": options.training}
            lines.write(json.dumps({**head, **line, "versions": versions}) + "\n")
        print(key, summary(line), flush=True)


def summary(line: dict[str, Any]) -> str:
    """Return a short summary of a line."""
    if "error" in line:
        return f"not run: {line['error']}"
    text = f"{len(line['breaks'])} breaks, {line['events']} events"
    if "left" in line:
        verdicts = [entry["verdict"] for entry in line["breaks"]]
        text += f"; {sum(verdict in _WORKING_VERDICTS for verdict in verdicts)} with a remedy, {line['left']} left"
        text += f", {line['seconds']} s; run again: {line['check']}"
    return text


def run_in_fork(function: Callable[..., Iterator[dict[str, Any]]], *arguments: Any, seconds: float) -> dict[str, Any]:
    """Run a function in a forked process that may hang or die, and return its last result."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, function, *arguments, seconds))
    process.start()
    sender.close()
    line: dict[str, Any] | None = None
    end = time.monotonic() + seconds
    with contextlib.suppress(EOFError):
        while receiver.poll(max(0.0, end - time.monotonic())):
            message = receiver.recv()
            line = {**line, "stopped": message["error"]} if line is not None and "error" in message else message
    if line is None:
        line = {"error": "no end within the time" if process.is_alive() else "the process died"}
    if process.is_alive():
        process.join(5)
    if process.is_alive():
        process.kill()
    process.join()
    return line


def _send(pipe: Any, function: Callable[..., Iterator[dict[str, Any]]], *arguments: Any) -> None:
    with Path(os.devnull).open("w") as null_device:
        os.dup2(null_device.fileno(), 1)
        os.dup2(null_device.fileno(), 2)
    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + _MAX_MEMORY, resource.RLIM_INFINITY))
    try:
        for line in function(*arguments):
            pipe.send(line)
    except Exception as error:  # noqa: BLE001 - a model may raise anything for a configuration that is not its own
        last_frame = traceback.extract_tb(error.__traceback__)[-1]
        location = f"{Path(last_frame.filename).name}:{last_frame.lineno}"
        pipe.send({"error": f"{type(error).__name__}: {str(error)[:200]} ({location})"})


def compile_and_try(model_type: str, remedies: bool, training: bool, seconds: float) -> Iterator[dict[str, Any]]:  # noqa: FBT001
    """Compile one architecture, then try remedies for its breaks within a time limit."""
    import tiny_models
    import torch

    import jupyter_graphbreak

    model, inputs = tiny_models.make_tiny_model(model_type, training=training)
    with torch.no_grad():
        model(**inputs)
    start = time.perf_counter()
    with jupyter_graphbreak.capture() as run:
        compiled: Any = torch.compile(model, backend="eager")
        compiled(**inputs)
    report = run.report
    line: dict[str, Any] = {
        "class": type(model).__name__,
        "status": report.status,
        "graphs": report.summary.graphs,
        "events": report.summary.events,
        "breaks": [_break_fields(report, break_) for break_ in report.breaks],
        "compile_s": round(time.perf_counter() - start, 1),
    }
    yield line
    if remedies and report.breaks:
        yield {**line, **_try_remedies(model_type, model, inputs, training=training, seconds=0.6 * seconds)}


def _break_fields(report: Any, break_: Any) -> dict[str, Any]:
    location = break_.location
    path = next(
        (source.path for source in report.sources if location is not None and source.id == location.source), None
    )
    return {
        "id": break_.id,
        "gb_id": break_.gb_id,
        "gb_type": break_.gb_type,
        "file": "/".join(Path(path).parts[-2:]) if path else None,
        "function": location and location.function,
        "line": location and location.line,
        "code": location and location.code,
        "explanation": (break_.explanation or "")[:200],
    }


def _try_remedies(
    model_type: str, model: Any, inputs: dict[str, Any], *, training: bool, seconds: float
) -> dict[str, Any]:
    """Try remedies, and return their verdicts with the claim of the one that removes most breaks."""
    import torch

    import jupyter_graphbreak

    start = time.perf_counter()
    report = jupyter_graphbreak.try_remedies(torch.compile(model, backend="eager"), seconds=seconds, **inputs)
    elapsed_s = time.perf_counter() - start
    remedies = report.remedies or []
    working_remedies = [remedy for remedy in remedies if remedy.verdict in _WORKING_VERDICTS]
    best_verdicts = {
        break_.id: min(
            (remedy.verdict for remedy in working_remedies if break_.id in remedy.breaks),
            key=_WORKING_VERDICTS.index,
            default=None,
        )
        for break_ in report.breaks
    }
    candidates = [(remedy, remedy.evidence) for remedy in working_remedies if remedy.evidence is not None]
    furthest_remedy, evidence = max(
        candidates, key=lambda pair: (-pair[1].breaks_after, pair[0].verdict == "works"), default=(None, None)
    )
    paths = {source.id: source.path or source.name for source in report.sources}
    return {
        "breaks": [
            {**_break_fields(report, break_), "verdict": best_verdicts[break_.id] or "stays"}
            for break_ in report.breaks
        ],
        "left": evidence.breaks_after if evidence else len(report.breaks),
        "furthest": furthest_remedy and furthest_remedy.verdict,
        "seconds": round(elapsed_s, 1),
        "remedies": [_remedy_fields(remedy) for remedy in remedies],
        **(
            {"claim": _claim(model_type, furthest_remedy, paths, training=training)}
            if furthest_remedy
            else {"check": "nothing to run"}
        ),
    }


def _remedy_fields(remedy: Any) -> dict[str, Any]:
    names = ("breaks", "family", "title", "verdict", "reason", "differences", "settings", "code", "patch", "person")
    evidence = remedy.evidence
    counts = (
        {"after": evidence.breaks_after, "inputs": evidence.inputs, "both_sides": evidence.both_sides}
        if evidence
        else {}
    )
    return {**{name: getattr(remedy, name) for name in names}, **counts, "seconds": round(remedy.seconds, 1)}


def _claim(model_type: str, remedy: Any, paths: dict[str, str], *, training: bool) -> dict[str, Any]:
    """Return the claim of a remedy, with the data needed to check it."""
    return {
        "type": model_type,
        "training": training,
        "code": remedy.code,
        "edits": [[paths[edit.source], edit.first_line, edit.last_line, edit.old, edit.new] for edit in remedy.edits],
        "breaks": remedy.evidence.breaks_after,
        "verdict": remedy.verdict,
    }


def check_in_processes(claim: dict[str, Any]) -> str:
    """Run a program with and without a remedy in separate processes, and compare the results without the package."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        for name in ("original", "changed"):
            task = {**claim, "changed": name == "changed", "results": f"{folder}/{name}.pt"}
            if task["changed"] and task["edits"]:  # files are edited as they are imported
                file = Path(folder) / "task.json"
                file.write_text(json.dumps(task))
                command = [sys.executable, __file__, "--check", str(file)]
                process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
                lines = [line for line in process.stderr.splitlines() if re.match(r"[\w.]+: ", line)]
                error = (lines or ["nothing"])[0][:200] if process.returncode else None
            else:
                error = run_in_fork(_check_in_fork, task, seconds=300).get("error")
            if error:
                return f"{name} ends with {error}"
        first, second = (torch.load(f"{folder}/{name}.pt", weights_only=False) for name in ("original", "changed"))
    return _comparison(first, second, claim)


def _comparison(first: dict[str, Any], second: dict[str, Any], claim: dict[str, Any]) -> str:
    import torch

    if second["breaks"] != claim["breaks"]:
        return f"{second['breaks']} breaks instead of {claim['breaks']}"
    for name in ("values", "gradients"):
        if len(first[name]) != len(second[name]):
            return f"a different number of {name}"
        for first_value, second_value in zip(first[name], second[name], strict=True):
            if (first_value is None) != (second_value is None) and claim["verdict"] != "works but differs":
                return f"{name}: one is missing"
            if first_value is None or second_value is None:
                continue
            if first_value.shape != second_value.shape or not torch.allclose(
                first_value, second_value, 1e-4, 1e-5, equal_nan=True
            ):
                return f"{name} differ"
    return "holds"


def _check_in_fork(task: dict[str, Any], _: float) -> Iterator[dict[str, Any]]:
    check(task)
    yield {}


def check(task: dict[str, Any]) -> None:
    """Run a model, optionally with edits of the library's sources before they are imported."""
    warnings.filterwarnings("ignore")
    if task["changed"]:
        _edit_on_import(task["edits"])
    import tiny_models
    import torch
    from torch.utils import _pytree as pytree

    import jupyter_graphbreak

    torch.set_num_threads(1)
    model, inputs = tiny_models.make_tiny_model(task["type"], training=task["training"])
    model_call = model
    if task["changed"]:
        exec(task["code"] or "", {"model": model})  # noqa: S102 - runs the code that the remedy shows
        model_call = torch.compile(model, backend="eager")
    torch.manual_seed(2)
    with jupyter_graphbreak.capture() as run:
        output = model_call(**inputs)
    values = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    total = sum(leaf.float().sum() for leaf in values if leaf.requires_grad)
    if isinstance(total, torch.Tensor):
        total.backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    results = {"values": [leaf.detach() for leaf in values], "gradients": gradients, "breaks": len(run.report.breaks)}
    torch.save(results, task["results"])


def _edit_on_import(edits: list[list[Any]]) -> None:
    """Apply edits to files when they are imported. Paths are relative to the packages folder."""
    from importlib.machinery import SourceFileLoader

    by_path: dict[str, list[list[Any]]] = {}
    for path, *edit in edits:
        by_path.setdefault(f"/{path.lstrip('/')}", []).append(edit)
    read_file, compile_file = SourceFileLoader.get_data, SourceFileLoader.get_code

    def edits_of(path: str) -> list[list[Any]]:
        return next((edits_of_file for end, edits_of_file in by_path.items() if path.endswith(end)), [])

    def read_edited(self: Any, path: str) -> bytes:
        data = read_file(self, path)
        if not edits_of(path):
            return data
        lines = data.decode().split("\n")
        for first, last, old, new in sorted(edits_of(path), reverse=True):
            if "\n".join(lines[first - 1 : last]) != old:
                raise ValueError(f"{path} reads otherwise at line {first}")
            lines[first - 1 : last] = new.split("\n") if new or last < first else []
        return "\n".join(lines).encode()

    def compile_edited(self: Any, fullname: str) -> Any:
        path = self.get_filename(fullname)
        if edits_of(path):
            return self.source_to_code(self.get_data(path), path)
        return compile_file(self, fullname)

    SourceFileLoader.get_data, SourceFileLoader.get_code = read_edited, compile_edited  # type: ignore[method-assign]


def print_table(lines: dict[str, dict[str, Any]]) -> None:
    """Print the breaks, and the breaks that remain after remedies."""
    working_lines = {key: line for key, line in lines.items() if "error" not in line}
    breaking_lines = {key: line for key, line in working_lines.items() if line["breaks"]}
    for key, line in breaking_lines.items():
        print(f"{key:28} {summary(line)}")
        for break_ in line["breaks"]:
            location = f"{break_['file']}:{break_['line']}"
            print(f"    {break_.get('verdict', ''):18} {break_['gb_id']} {location} {break_['code']}")
    locations = [break_ for line in breaking_lines.values() for break_ in line["breaks"]]
    tried_lines = [line for line in breaking_lines.values() if "left" in line]
    print(
        f"{len(lines)} architectures, {len(working_lines)} ran, "
        f"{len(breaking_lines)} break at {len(locations)} locations"
    )
    print(f"{len(tried_lines)} tried, {sum(line['left'] == 0 for line in tried_lines)} end without a break, "
          f"{sum(line['check'] == 'holds' for line in tried_lines)} claims hold")  # fmt: skip
    verdicts = [break_["verdict"] for line in tried_lines for break_ in line["breaks"]]
    print({verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)})


def published_lines() -> dict[str, dict[str, Any]]:
    """Return the published lines by architecture, without the versions."""
    _, *texts = _PUBLISHED_FILE.read_text().splitlines() if _PUBLISHED_FILE.exists() else [""]
    return {f"{line['type']} training" if line["training"] else line["type"]: line for line in map(json.loads, texts)}


def publish(lines: dict[str, dict[str, Any]]) -> None:
    """Update the published file: the versions, then one line per architecture, sorted by name."""
    versions = {json.dumps(line["versions"]) for line in lines.values()}
    if _PUBLISHED_FILE.exists():
        versions.add(_PUBLISHED_FILE.read_text().partition("\n")[0])
    libraries = {tuple(json.loads(version)[name] for name in ("torch", "transformers")) for version in versions}
    if len(libraries) != 1:
        raise SystemExit(f"recorded with several versions: {', '.join(map(str, sorted(libraries)))}")
    texts = [max(versions, key=lambda version: str(json.loads(version)["date"]))]
    page_lines = published_lines() | {key: _published_fields(line) for key, line in lines.items()}
    texts += [json.dumps(page_lines[key]) for key in sorted(page_lines)]
    _PUBLISHED_FILE.write_text("\n".join(texts) + "\n")
    print(f"{_PUBLISHED_FILE}: {len(page_lines)} architectures")


def _published_fields(line: dict[str, Any]) -> dict[str, Any]:
    """Return the published data of one architecture, with the best remedy per break and the furthest-reaching one."""
    names = ("type", "training", "class", "error", "graphs", "events", "left", "furthest", "check", "seconds")
    fields = {name: line[name] for name in names if name in line}
    if "error" in line:
        return fields
    break_names = ("gb_id", "gb_type", "file", "function", "line", "code", "verdict")
    breaks = []
    for break_ in line["breaks"]:
        working_remedies = [remedy for remedy in line.get("remedies", []) if remedy["verdict"] in _WORKING_VERDICTS]
        remedies_of_break = [remedy for remedy in working_remedies if break_["id"] in remedy["breaks"]]
        best_of_break = min(
            remedies_of_break,
            key=lambda remedy: (_WORKING_VERDICTS.index(remedy["verdict"]), len(remedy["title"])),
            default=None,
        )
        persons = [remedy["person"] for remedy in line.get("remedies", []) if break_["id"] in remedy["breaks"]]
        breaks.append(
            {
                **{name: break_.get(name) for name in break_names},
                "code": " ".join((break_["code"] or "").split()),
                "remedy": best_of_break and best_of_break["title"],
                "person": next((person for person in persons if person), None),
            }
        )
    best_remedy = _best_remedy(line.get("remedies", []))
    return {**fields, "breaks": breaks, "remedy": best_remedy and best_remedy["title"]}


def _best_remedy(remedies: list[dict[str, Any]]) -> dict[str, Any] | None:
    working_remedies = [remedy for remedy in remedies if remedy["verdict"] in _WORKING_VERDICTS and "after" in remedy]
    return max(working_remedies, key=lambda remedy: (-remedy["after"], remedy["verdict"] == "works"), default=None)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
