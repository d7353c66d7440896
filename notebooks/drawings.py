"""Draw the pictures of the pages: ``python notebooks/drawings.py`` writes them to ``_static/``."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FOLDER = Path(__file__).parent / "_static"
#: Graphs of one break three calls deep: by default one for each part of each function, then with nested graph breaks.
NESTED_GRAPHS = (6, 2)
#: An image has its own background, so it can be read on a page of either theme.
_STYLE = """\
svg { font: 15px system-ui, sans-serif; }
.ground { fill: #fff; } text { fill: #1c2024; } .small { font-size: 13px; fill: #4a5158; }
.code { font-family: monospace; }
.graph { fill: #d7e8fb; stroke: #2f6fb5; } .other { fill: #d9f0dc; stroke: #2d7d3a; }
.eager { fill: #eee; stroke: #777; }
.break { fill: #fbdcdc; stroke: #b3261e; } .line { stroke: #4a5158; fill: none; } .tip { fill: #4a5158; }
@media (prefers-color-scheme: dark) {
  .ground { fill: #16191d; } text { fill: #eceef0; } .small { fill: #b8bfc6; }
  .graph { fill: #173a5e; stroke: #7db4ee; } .other { fill: #174523; stroke: #7fcf8c; }
  .eager { fill: #2b2f34; stroke: #999; }
  .break { fill: #5a1b1b; stroke: #f2a09a; } .line { stroke: #b8bfc6; } .tip { fill: #b8bfc6; }
}
"""


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float, kind: str, *lines: str) -> str:
    middle = y + height / 2 + 5 - 9 * (len(lines) - 1)
    shapes = [f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="{kind}"/>']
    shapes += [_text(x + width / 2, middle + 18 * row, line, "small" if row else "") for row, line in enumerate(lines)]
    return "".join(shapes)


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<path d="M{x} {y}L{to_x} {to_y}" class="line" marker-end="url(#tip)"/>'


def _picture(width: int, height: int, label: str, shapes: Sequence[str], style: str = "") -> str:
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
        f"<title>{escape(label)}</title><style>{_STYLE}{style}</style>"
        f'<defs>{tip}<path d="M0 0L8 4L0 8z" class="tip"/></marker></defs>'
        f'<rect width="{width}" height="{height}" rx="8" class="ground"/>{"".join(shapes)}</svg>\n'
    )


def graph_break() -> str:
    """Return the picture of a function that becomes a graph, a break and a graph."""
    code = ["def step(x):", "    x = x * 2", "    if x.sum() > 3:", "        x = x / 2", "    return x + 1"]
    shapes = [_text(24, 40 + 24 * row, line.replace(" ", "\u00a0"), "code", "start") for row, line in enumerate(code)]
    shapes += [_box(300, 20, 300, 34, "graph", "graph A: x * 2, sum, > 3"), _arrow(205, 60, 296, 40)]
    shapes += [_box(300, 72, 300, 34, "break", "break: Python asks for the answer"), _arrow(205, 84, 296, 88)]
    shapes += [_box(300, 124, 300, 34, "other", "graph B, the rest: x / 2, + 1"), _arrow(205, 125, 296, 140)]
    return _picture(620, 176, "One if on a tensor's value: graph A, the break, graph B", shapes)


def nested_breaks() -> str:
    """Return the picture of the graphs of nested calls, with and without nested graph breaks."""
    many, few = NESTED_GRAPHS
    functions = ("outer", "middle", "inner")
    shapes = [_text(160, 28, f"by default: {many} graphs"), _text(470, 28, f"nested_graph_breaks: {few} graphs")]
    for depth, name in enumerate(functions):
        y = 44 + 46 * depth
        shapes += [_box(20, y, 120, 36, "graph", f"{name}, before")]
        shapes += [_box(180, y, 120, 36, "other", f"{name}, after")]
    shapes.append(_box(146, 136, 28, 36, "break", ""))
    shapes += [_box(350, 44, 110, 128, "graph", "before it,", "of all three")]
    shapes += [
        _box(466, 44, 28, 128, "break", ""),
        _box(500, 44, 110, 128, "other", "after it,", "of all three"),
    ]
    return _picture(
        630, 192, f"A break three calls deep makes {many} graphs, or {few} with nested graph breaks", shapes
    )


def guards() -> str:
    """Return the picture of a call's way through the guards to compiled code."""
    shapes = [_box(20, 22, 90, 44, "eager", "a call"), _arrow(110, 44, 146, 44)]
    shapes += [
        _box(150, 24, 190, 40, "graph", "guards of graph A"),
        _box(150, 84, 190, 40, "other", "guards of graph B"),
    ]
    shapes += [_box(150, 144, 190, 40, "eager", "no more graphs")]
    shapes += [_arrow(340, 44, 400, 44), _arrow(340, 104, 400, 104), _arrow(340, 164, 400, 164)]
    shapes += [_text(370, 38, "hold", "small"), _text(370, 98, "hold", "small")]
    shapes += [_arrow(245, 64, 245, 82), _arrow(245, 124, 245, 142), _text(294, 78, "do not hold", "small")]
    shapes += [_box(404, 24, 206, 40, "graph", "run graph A"), _box(404, 84, 206, 40, "other", "run graph B")]
    shapes += [_box(404, 144, 206, 40, "break", "recompile; after 8: eager")]
    return _picture(630, 204, "Guards choose the compiled code of a call; if none hold, it is compiled again", shapes)


def hatches() -> str:
    """Return the decision tree of the escape hatches."""
    questions = [
        ("Can the code run before or after?", "move it there"),
        ("Can a switch or a setting avoid it?", "--try finds it"),
        ("Must Python run it on every call?", "a break is fine: disable"),
        ("", "no break: custom_op"),
        ("Only tensor operations, traced once?", "nonstrict_trace"),
        ("Only for a while, or to find the fault?", "set_stance"),
    ]
    shapes = []
    for row, (question, answer) in enumerate(questions):
        y = 16 + 56 * row
        if question:
            shapes.append(_box(20, y, 320, 36, "graph", question))
            row_distance = 2 if row + 1 < len(questions) and not questions[row + 1][0] else 1
            if row + row_distance < len(questions):
                shapes += [
                    _arrow(180, y + 36, 180, y + 56 * row_distance - 2),
                    _text(196, y + 56 * row_distance - 6, "no", "small"),
                ]
        shapes.append(_arrow(340, y + 18, 396, y + 18) if question else _arrow(340, y - 30, 396, y + 18))
        shapes += [_text(366, y + 12, "yes", "small")] if question else []
        shapes.append(_box(400, y, 210, 36, "other", answer))
    return _picture(630, 348, "Which escape hatch to take", shapes)


def cost_bar() -> str:
    """Return the labelled bar of the cost of a call."""
    parts = [(110, "eager", "guards", "choose a graph"), (180, "graph", "graph A", "compiled")]
    parts += [(130, "eager", "Python", "at the break"), (180, "other", "graph B", "compiled")]
    shapes, x = [_text(20, 28, "one compiled call", "", "start")], 20.0
    for width, kind, *lines in parts:
        shapes.append(_box(x, 44, width, 46, kind, *lines))
        x += width
    shapes += [
        _box(20, 106, 400, 30, "eager", "the same call, eager"),
        _text(440, 126, "shorter: it does not pay", "small", "start"),
    ]
    return _picture(660, 152, "The cost bar: guards, graphs, Python between them, and the eager call beside it", shapes)


def report() -> str:
    """Return a report with labels at its parts."""
    shapes = [
        _box(20, 16, 420, 32, "eager", "1 break, line 8 in shorten: it adds 1 graph"),
        _text(456, 37, "verdict", "small", "start"),
    ]
    shapes += [
        _box(20, 56, 180, 24, "graph", "A"),
        _box(204, 56, 24, 24, "break", ""),
        _box(232, 56, 208, 24, "other", "B"),
    ]
    shapes += [_text(456, 73, "strip: how the run went", "small", "start")]
    lines = ["A   length = x.norm()", "A\u2702  if length > 1:", "B      x /= length", "B   return x + 0.5"]
    shapes += [
        _text(28, 112 + 22 * row, line.replace(" ", "\u00a0"), "code", "start") for row, line in enumerate(lines)
    ]
    shapes += [
        _text(456, 112, "source: each line's graph,", "small", "start"),
        _text(456, 130, "the break at its expression", "small", "start"),
    ]
    shapes += [_box(230, 96, 210, 84, "break", "1  length > 1", "Branch on a tensor's value", "do: use clamp or where")]
    shapes += [_text(456, 168, "card: cause, id, what to do", "small", "start")]
    return _picture(660, 196, "The parts of a report: verdict, strip, source, card", shapes)


def animation() -> str:
    """Return ten seconds in three scenes: explain, try, apply."""
    scenes = [
        (
            "%%compile_explain",
            _box(20, 60, 180, 40, "graph", "graph A")
            + _box(206, 60, 30, 40, "break", "")
            + _box(242, 60, 180, 40, "other", "graph B"),
            "1. Explain: the break, at its line",
        ),
        (
            "%%compile_explain --try",
            _box(20, 52, 402, 28, "break", "- if length > 1: x = x / length")
            + _box(20, 84, 402, 28, "other", "+ x = torch.where(length > 1, x / length, x)"),
            "2. Try: a change, tested on copies",
        ),
        ("Apply", _box(20, 60, 402, 40, "graph", "graph A"), "3. Apply: one graph, the same result"),
    ]
    shapes = [
        f'<g class="scene s{number}">{_text(20, 32, title, "code", "start")}{drawing}'
        f"{_text(20, 136, caption, 'small', 'start')}</g>"
        for number, (title, drawing, caption) in enumerate(scenes)
    ]
    style = (
        ".scene { opacity: 0; animation: show 10.5s infinite; }\n"
        ".s1 { animation-delay: 3.5s; } .s2 { animation-delay: 7s; }\n"
        "@keyframes show { 0%, 32% { opacity: 1; } 33.4%, 100% { opacity: 0; } }\n"
        "@media (prefers-reduced-motion: reduce) { .scene { animation: none; } .s1 { opacity: 1; } }\n"
    )
    return _picture(442, 152, "Explain, try, apply", shapes, style)


#: The drawings by the names of their files.
DRAWINGS: dict[str, Callable[[], str]] = {
    "graph-break.svg": graph_break,
    "nested-breaks.svg": nested_breaks,
    "guards.svg": guards,
    "escape-hatches.svg": hatches,
    "cost-bar.svg": cost_bar,
    "report.svg": report,
    "explain-try-apply.svg": animation,
}

if __name__ == "__main__":
    for file, draw in DRAWINGS.items():
        (FOLDER / file).write_text(draw(), encoding="utf-8")
