"""The text of each documentation page agrees with the page's reports, and contains nothing specific to this machine."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag

import jupytext
import nbformat
import pytest

from jupyter_graphbreak.ipython.magic import CompileExplain
from jupyter_graphbreak.report import location, schema
from jupyter_graphbreak.report.schema import MIME_TYPE
from jupyter_graphbreak.results import Report
from notebooks import cause_pages
from notebooks.run_demo import external_addresses

if TYPE_CHECKING:
    from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
PAGES = {path.stem: path for path in (ROOT / "notebooks").glob("*.md") if path.stem != "demo"}
NOTEBOOKS = [name for name, path in sorted(PAGES.items()) if path.read_text(encoding="utf-8").startswith("---\n")]

#: What the text of a page claims about each of its reports: the line (in a library, the file) and code of each break,
#: and the numbers of events of these breaks, graphs, functions that run eagerly, and recompiles.
EXPECTED_REPORTS: dict[str, list[tuple[list[str], int, int, int, int]]] = {
    "quickstart": [
        (["8 length > 1"], 1, 2, 0, 0),
        ([], 0, 1, 0, 0),
        (["8 length > 1"], 1, 2, 0, 0),
        ([], 0, 1, 0, 0),
    ],
    "case_studies": [
        (["6 l1.item()", "6 l2.item()"], 2, 1, 0, 0),
        ([], 0, 1, 0, 0),
        (["4 from a_faster_attention import attend"], 2, 0, 2, 0),
        ([], 0, 1, 0, 0),
        (["4 offsets.tolist()"], 1, 1, 0, 0),
        ([], 0, 1, 0, 0),
        (["7 (ids == CLASS).sum(1).max().item()", "10 torch.where(ids[row] == CLASS)"], 2, 1, 1, 0),
        ([], 0, 1, 0, 0),
        (["14 species.nonzero()", "16 self.product"], 2, 1, 0, 0),
        ([], 0, 1, 0, 0),
        (["inspect.py getattr(obj, '__globals__', None)"], 1, 0, 0, 0),
        ([], 0, 1, 0, 0),
        ([], 0, 5, 0, 4),
        ([], 0, 1, 0, 0),
        ([], 0, 2, 0, 1),
        ([], 0, 1, 0, 0),
        (["external_utils.py fn(*args, **kwargs)", "optimizer.py torch._dynamo.graph_break()"], 2, 2, 0, 1),
        (["external_utils.py fn(*args, **kwargs)", "optimizer.py torch._dynamo.graph_break()"], 2, 1, 0, 0),
        ([], 0, 1, 0, 0),
        ([], 0, 1, 0, 0),
        ([], 0, 1, 0, 0),
        ([], 0, 1, 0, 0),
    ],
    "cost": [
        (["5 y.sum() > 0"], 1, 2, 0, 0),
        ([], 0, 1, 0, 0),
        ([], 0, 1, 0, 0),
        ([], 0, 1, 0, 0),
        ([], 0, 1, 0, 0),
        ([], 0, 2, 0, 0),
        ([], 0, 1, 0, 0),
        ([], 0, 1, 0, 0),
        ([], 0, 1, 0, 0),
    ],
    "reading": [(["17 x.sum() > 10", '9 print(end=".")'], 4, 4, 1, 1)],
    "error_on_graph_break": [
        (['4 print("largest:", x.max())'], 3, 3, 0, 0),
        (['7 print("largest:", x.max())'], 1, 2, 0, 0),
        (['4 print("a library that talks")'], 3, 2, 0, 1),
        (['10 print("in the open")', '4 print("in the hot part")'], 2, 0, 0, 0),
        (['3 print("helping")'], 3, 2, 0, 0),
        (['4 print("helping")'], 2, 1, 0, 0),
        (['5 print("not even here")'], 1, 0, 0, 0),
        (['4 print("inside")'], 1, 0, 0, 0),
        (['10 print("outside")'], 1, 2, 0, 0),
    ],
    "skipped": [
        (['8 print("almost there")'], 1, 0, 1, 0),
        (['7 print("done")'], 1, 1, 0, 0),
        (['12 print("almost there")'], 1, 2, 1, 1),
        (['14 print("lap")'], 1, 0, 1, 0),
        (['6 print("lap")'], 1, 2, 0, 0),
        (['6 print("lap")'], 1, 2, 0, 0),
        (['6 print("careful")'], 1, 0, 1, 0),
        (['9 print("careful")'], 1, 2, 0, 0),
        (['6 print("careful")'], 1, 0, 1, 0),
        (['4 print("row", row, "of", tuple(x.shape))'], 2, 2, 1, 0),
    ],
    "resume": [
        (['5 print("half way")'], 1, 2, 0, 0),
        (["4 x.sum() > 0"], 1, 2, 0, 0),
        (['3 print("deep inside")'], 3, 6, 0, 0),
        (['3 print("deep inside")'], 1, 2, 0, 0),
    ],
    "recompiles": [
        ([], 0, 2, 0, 1),
        ([], 0, 2, 0, 1),
        ([], 0, 2, 0, 1),
        ([], 0, 1, 0, 0),
        ([], 0, 1, 0, 0),
        ([], 0, 4, 0, 3),
        ([], 0, 1, 0, 0),
        (["optimizer.py torch._dynamo.graph_break()"], 1, 2, 0, 1),
        (["optimizer.py torch._dynamo.graph_break()"], 1, 1, 0, 0),
        ([], 0, 8, 1, 8),
        ([], 0, 2, 0, 1),
        ([], 0, 8, 1, 8),
        ([], 0, 1, 0, 0),
        ([], 0, 8, 1, 8),
        ([], 0, 10, 0, 9),
    ],
    "fullgraph": [
        (
            ["10 torch.isnan(scores).any()", "19 (chosen == number).nonzero()", "__init__.py self.isEnabledFor(INFO)"],
            4,
            1,
            1,
            0,
        ),
        (
            [
                "10 torch.isnan(scores).any()",
                '11 logger.info("load %s", load)',
                "__init__.py self.isEnabledFor(INFO)",
                "12 load.max().item()",
            ],
            5,
            4,
            0,
            0,
        ),
        (["11 load.max().item()"], 1, 2, 0, 0),
        ([], 0, 1, 0, 0),
    ],
    "escape_hatches": [
        (['10 print("ranking", len(x), "values")', "11 x.tolist()"], 3, 3, 0, 0),
        (["7 disabled_ranks(x * 2)"], 1, 2, 0, 0),
        ([], 0, 1, 0, 0),
        ([], 0, 1, 0, 0),
    ],
    "where_to_compile": [
        ([], 0, 1, 0, 0),
        ([], 0, 1, 0, 0),
        ([], 0, 1, 0, 0),
        (["8 optimizer.zero_grad()", "10 loss.backward()", "optimizer.py torch._dynamo.graph_break()"], 4, 2, 0, 0),
        (["optimizer.py torch._dynamo.graph_break()"], 1, 2, 0, 0),
        (["7 x.norm() < 50"], 2, 2, 0, 0),
        ([], 0, 1, 0, 0),
    ],
    "training": [
        (["10 loss.isnan()"], 1, 2, 0, 0),
        (["distributed.py self.logger.set_runtime_stats_and_log()", "contextlib.py func(*args, **kwds)"], 3, 1, 0, 0),
        ([], 0, 1, 0, 0),
    ],
    "compile_time": [([], 0, 1, 0, 0)],
    "errors": [
        (["5 doubled @ doubled"], 1, 0, 0, 0),
        (["4 x.sum() > 0"], 1, 0, 0, 0),
        (["6 @torch.compile(backend=unfinished)"], 1, 1, 0, 0),
        (["6 @torch.compile(backend=unfinished)"], 1, 0, 1, 0),
    ],
    "in_a_notebook": [
        ([], 0, 8, 1, 8),
        ([], 0, 1, 0, 0),
        ([], 0, 2, 0, 1),
    ],
    "logs": [
        (["7 if x.sum() > 3:"], 1, 2, 0, 0),
        ([], 0, 0, 0, 0),
    ],
    "frontends": [(["3 slope > 0"], 1, 2, 0, 0), ([], 0, 1, 0, 0), ([], 0, 1, 0, 0), ([], 0, 1, 0, 0)],
    "bart": [
        (["modeling_bart.py dropout_probability < self.layerdrop", "output_capturing.py {"], 6, 5, 4, 0),
        ([], 0, 1, 0, 0),
        ([], 0, 1, 0, 0),
    ],
    "gpu": [([], 0, 1, 0, 0), ([], 0, 1, 0, 0), ([], 0, 1, 0, 0)],
    "options": [([], 0, 2, 0, 0), ([], 0, 1, 0, 0), (["2 x.min() > 0"], 1, 1, 0, 0), ([], 0, 1, 0, 0)],
    "schema": [],
    "models": [],
}

#: Text that a page must not contain: folders of this machine.
PRIVATE_FOLDERS = [str(ROOT), sys.prefix, sys.base_prefix, str(Path.home()) + "/", tempfile.gettempdir() + "/"]
#: IPython and Dynamo files that a page must not mention. The file of torch's wrapper around functions decorated with
#: error_on_graph_break is an exception, because two pages explain it.
INTERNAL_FILES = re.compile(
    r"ipykernel|interactiveshell\.py|runpy|asyncio|tornado|traitlets|_dynamo/(?!external_utils)\w+\.py"
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def read_executed_notebook(site: Path, name: str) -> NotebookNode:
    notebook: NotebookNode = nbformat.read(site.parent / "jupyter_execute" / f"{name}.ipynb", as_version=4)
    return notebook


def outputs(notebook: NotebookNode) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def reports(notebook: NotebookNode) -> list[Report]:
    bundles = [output.get("data", {}).get(MIME_TYPE) for output in outputs(notebook)]
    return [Report.from_dict(bundle) for bundle in bundles if bundle is not None]


def output_texts(notebook: NotebookNode) -> list[str]:
    """Return the text of all outputs: of streams, of errors, and of each format of displayed data."""
    texts = []
    for output in outputs(notebook):
        texts += [output.get("text", ""), *output.get("traceback", [])]
        texts += [data if isinstance(data, str) else repr(data) for data in output.get("data", {}).values()]
    return texts


def _location_text(report: Report, break_location: location.Location) -> str:
    source = next(source for source in report.sources if source.id == break_location.source)
    file_or_line = source.name if source.kind == "library" else break_location.line
    return f"{file_or_line} {(break_location.code or '').splitlines()[0]}"


@pytest.mark.parametrize("name", sorted(EXPECTED_REPORTS))
def test_reports_agree_with_the_page(site: Path, name: str) -> None:
    actual = []
    for report in reports(read_executed_notebook(site, name)):
        locations = [_location_text(report, b.location) for b in report.breaks if b.location]
        summary = report.summary
        actual.append((locations, summary.events, summary.graphs, summary.skipped, summary.recompiles))
    assert actual == EXPECTED_REPORTS[name]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_output_contains_an_internal_file_or_a_path_of_this_machine(site: Path, name: str) -> None:
    notebook = read_executed_notebook(site, name)
    assert outputs(notebook)
    for text in output_texts(notebook):
        assert [folder for folder in PRIVATE_FOLDERS if folder in text] == []
        assert INTERNAL_FILES.findall(text) == []
    page = (site / f"{name}.html").read_text(encoding="utf-8")
    assert [folder for folder in PRIVATE_FOLDERS if folder in page] == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_page_opens_as_a_notebook_with_the_same_cells(site: Path, name: str) -> None:
    cells = [cell.source for cell in jupytext.read(PAGES[name]).cells if cell.cell_type == "code"]
    assert cells == [cell.source for cell in read_executed_notebook(site, name).cells if cell.cell_type == "code"]


def test_permissions_agree_with_the_page_on_error_on_graph_break(site: Path) -> None:
    last_breaks = [report.breaks[-1] for report in reports(read_executed_notebook(site, "error_on_graph_break"))]
    assert [graph_break.outcome for graph_break in last_breaks] == (
        ["resumed"] * 3 + ["error"] + ["resumed"] * 2 + ["error"] * 2 + ["resumed"]
    )
    assert [graph_break.setting.rules for graph_break in last_breaks if graph_break.setting][-3:] == [
        ["fullgraph"],
        ["fullgraph"],
        ["default"],
    ]


def test_the_table_of_both_settings_is_right(site: Path) -> None:
    shown_tables = (
        output.get("data", {}).get("text/markdown")
        for output in outputs(read_executed_notebook(site, "error_on_graph_break"))
    )
    table = next(filter(None, shown_tables)).split("\n")
    cells = [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in table[2:]]
    assert cells == [
        ["True", "True", "1 graph", "error", "error"],
        ["True", "False", "1 graph", "error", "error"],
        ["False", "True", "1 graph", "error", "2 graphs"],
        ["False", "False", "1 graph", "2 graphs", "error"],
    ]


def test_eager_functions_agree_with_the_page_on_skipped_functions(site: Path) -> None:
    functions = [
        [skipped.function for skipped in report.skipped] for report in reports(read_executed_notebook(site, "skipped"))
    ]
    expected_functions = [["accumulate"], [], ["accumulate"], ["step"], [], [], ["step"], [], ["step"], ["announce"]]
    assert functions == expected_functions


def test_breaks_of_the_case_studies_are_on_the_marked_lines(site: Path) -> None:
    marked_line_count = 0
    for cell in read_executed_notebook(site, "case_studies").cells:
        lines = {number for number, line in enumerate(cell.source.splitlines(), 1) if "# break" in line}
        for output in cell.get("outputs", []):
            if MIME_TYPE in output.get("data", {}):
                report = Report.from_dict(output["data"][MIME_TYPE])
                cells = {source.id for source in report.sources if source.kind == "cell"}
                locations = [item.location for item in report.breaks if item.location is not None]
                lines_with_breaks = {location.line for location in locations if location.source in cells}
                assert lines_with_breaks == lines, cell.source
                marked_line_count += len(lines)
    assert marked_line_count >= 6


def test_every_cause_has_a_page_and_reports_link_to_it(site: Path) -> None:
    for name in cause_pages.pages():
        assert (site / cause_pages.FOLDER / f"{name}.html").exists()
    assert 'href="causes/gb0170.html">GB0170: programs and fixes</a>' in (site / "quickstart.html").read_text(
        encoding="utf-8"
    )


def test_fixes_have_the_effects_that_the_pages_claim(site: Path) -> None:
    counts = [
        (report.summary.breaks, report.summary.graphs, report.summary.skipped)
        for report in reports(read_executed_notebook(site, "fullgraph"))
    ]
    assert counts == [(3, 1, 1), (4, 4, 0), (1, 2, 0), (0, 1, 0)]
    page_outputs = outputs(read_executed_notebook(site, "escape_hatches"))
    assert any(output.get("data", {}).get("text/plain") == "(3, 3)" for output in page_outputs)


def test_the_gate_of_the_page_on_ci_fails_on_the_new_break(site: Path) -> None:
    printed_text = "".join(output.get("text", "") for output in outputs(read_executed_notebook(site, "ci")))
    assert "status 1" in printed_text
    assert "new    train.py in step   print(x.shape)" in printed_text
    assert "1 failed, 2 passed" in printed_text


def test_the_recompile_limit_is_reported_with_its_cause(site: Path) -> None:
    page_reports = reports(read_executed_notebook(site, "recompiles"))
    assert [skipped.kind for report in page_reports for skipped in report.skipped] == [
        "recompile limit",
        "shared wrapper",
        "recompile limit",
    ]
    assert [skipped.function for skipped in page_reports[11].skipped] == ["tanhshrink"]  # the ninth compilation
    assert any(recompile.limit_hit for recompile in page_reports[9].recompiles)


def test_every_option_and_every_field_is_on_its_page(site: Path) -> None:
    options = (site / "options.html").read_text(encoding="utf-8")
    for action in CompileExplain.compile_explain.parser._actions:
        assert all(f">{name}" in options or f"{name}</span>" in options for name in action.option_strings[-1:])
    fields = (site / "schema.html").read_text(encoding="utf-8")
    for kind in (schema.Report, schema.Break, location.Location, schema.Setting):
        for name in kind.__struct_encode_fields__:
            assert f">{name}</span>" in fields


def test_options_in_descriptions_have_two_hyphens(site: Path) -> None:
    options = (site / "options.html").read_text(encoding="utf-8")
    assert "%compile_explain --frontends f(x), f(-x)" in re.sub(r"<[^>]+>", "", options)
    assert "–" not in options  # outside of code, two hyphens become a dash


def test_parameters_of_public_classes_are_on_the_api_page(site: Path) -> None:
    page = (site / "api.html").read_text(encoding="utf-8")
    for name in (
        "results.Changes",
        "Frontends",
        "report.frontends.Verdict",
        "_torch_compat.toolchain.TorchUnavailable",
    ):
        assert f'id="jupyter_graphbreak.{name}"' in page
    assert 'id="jupyter_graphbreak.Report.diff"' in page


def test_the_page_on_models_agrees_with_its_recording(site: Path) -> None:
    recording = (ROOT / "benchmarks" / "architectures.jsonl").read_text(encoding="utf-8")
    versions, *lines = map(json.loads, recording.splitlines())
    assert [folder for folder in PRIVATE_FOLDERS if folder in recording] == []
    summary, table, *_ = (output["data"]["text/markdown"] for output in outputs(read_executed_notebook(site, "models")))
    models_with_breaks = [line for line in lines if line.get("breaks") and not line["training"]]
    assert versions["torch"] in summary
    assert f"{len(models_with_breaks)} break" in summary
    assert f"{sum(len(line['breaks']) for line in models_with_breaks)} breaks with" in summary
    rows = {cells[0].strip(): cells for cells in (row.strip("|").split("|") for row in table.splitlines()[2:])}
    assert set(rows) == {line["type"] for line in models_with_breaks}
    for line in models_with_breaks:
        assert rows[line["type"]][-1].strip() == str(line.get("left", "not tried"))


def test_the_page_on_gpus_says_if_there_is_no_recording(site: Path) -> None:
    import torch

    text = (site / "gpu.html").read_text(encoding="utf-8")
    is_recorded = (ROOT / "notebooks" / "gpu.json").exists()
    assert ("no report of one has been recorded yet" in text) == (not is_recorded and not torch.cuda.is_available())


class _Page(HTMLParser):
    """Collects the ids and link targets of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids[value] += 1
            elif value and (name == "src" or (name == "href" and tag in {"a", "link"})):
                self.links.append(value)


def test_links_have_targets_and_pages_load_nothing_external(site: Path) -> None:
    files = sorted([*site.glob("*.html"), *site.glob(f"{cause_pages.FOLDER}/*.html")])
    pages = {path.relative_to(site).as_posix(): _Page(path.read_text(encoding="utf-8")) for path in files}
    assert set(pages) > {f"{name}.html" for name in PAGES}
    for name, page in pages.items():
        assert external_addresses((site / name).read_text(encoding="utf-8")) == []
        assert [ident for ident, count in page.ids.items() if count > 1] == []
        for link in page.links:
            address, anchor = urldefrag(link)
            if re.match(r"[a-z]+:|//", address):
                continue
            path = unquote(address.partition("?")[0])
            target = os.path.normpath(Path(name).parent / path) if path else name
            assert (site / target).exists(), f"{name} links to {link}"
            if anchor and target.endswith(".html"):
                assert unquote(anchor) in pages[target].ids, f"{name} links to {link}"
