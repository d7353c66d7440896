"""What the templates are made with: the style sheet, the filters, the environment that escapes text."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from markupsafe import Markup

from jupyter_graphbreak.views.html.highlight import escaped, visible
from jupyter_graphbreak.views.words.plain_text import counted, is_known_page

if TYPE_CHECKING:
    import jinja2

_HERE = Path(__file__).parent


#: Markup of which an output may have none, and whose rules it then does without.
Part = Literal["cost", "frontends", "job", "remedies"]


@cache
def style_sheet(*parts: Part) -> Markup:
    """Return the style sheet of what we show, without its comments.

    Parameters
    ----------
    *parts : {"cost", "frontends", "job", "remedies"}
        What there is besides the parts that every report has.
    """
    text = (_HERE / "templates" / "report.css").read_text(encoding="utf-8")
    text = re.sub(
        r"/\* if (\w+) \*/(.*?)/\* end \*/",
        lambda block: block[2] if block[1] in parts else "",
        text,
        flags=re.DOTALL,
    )
    text = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))
    # Strings stay as they are, and so do the blanks before a colon, which may mean a descendant.
    text = re.sub(r'("[^"]*")|\s*([{};,>])\s*|(:)\s+', lambda part: part[1] or part[2] or part[3], text)
    return Markup(text.replace(";}", "}").strip())  # noqa: S704 - a file of ours


@lru_cache(maxsize=512)  # many breaks have the same reason and the same advice
def _ticks(text: str) -> Markup:
    """Return text in which what stands in backticks is code."""
    parts = [escaped(part) for part in text.split("`")]
    if len(parts) % 2 == 0:
        return Markup("`".join(parts))  # noqa: S704 - every part was escaped
    coded = (f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))
    return Markup("".join(coded))  # noqa: S704 - every part was escaped


def _arrows(text: str) -> str:
    return text.replace(" -> ", " → ")


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _seconds(value: float) -> str:
    for limit, factor, form in ((0.001, 1e6, "{:.0f} µs"), (0.1, 1e3, "{:.0f} ms"), (60, 1, "{:.2f} s")):
        if value < limit:
            return form.format(value * factor)
    return f"{value / 60:.1f} min"


def _count_of(number: int, noun: str) -> str:
    return counted(number, noun) if number else f"no {noun}s"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _shown(value: Any) -> Any:
    # Markup has been through this already, in the filters that make it.
    return visible(value) if type(value) is str else value


@cache
def environment() -> jinja2.Environment:
    """Return what loads our templates, with our filters; it escapes text."""
    import jinja2
    from jinja2.runtime import Context

    class PlainContext(Context):
        """Calls what a template calls without looking first whether it takes the context, as none of ours does."""

        def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            kwargs.pop("_loop_vars", None)
            return function(*args, **kwargs)

    class Environment(jinja2.Environment):
        context_class = PlainContext

    environment = Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for convert in (_ticks, _arrows, _short, _first_line, _seconds, _count_of, _times):
        environment.filters[convert.__name__.removeprefix("_")] = convert
    environment.filters["is_known_page"] = is_known_page
    return environment
