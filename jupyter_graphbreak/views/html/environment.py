"""Set up Jinja, with filters and escaping for the templates, and read the style sheets."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from markupsafe import Markup

from jupyter_graphbreak.views.html.highlight import escape_html, escape_invisible
from jupyter_graphbreak.views.words.plain_text import count_text, duration_text, is_known_page, times_text, with_arrows

if TYPE_CHECKING:
    import jinja2

_FOLDER = Path(__file__).parent


#: Optional parts of the markup; a style sheet contains only the rules for the parts that are requested.
OptionalPart = Literal["cost", "frontends", "groups", "job", "remedies", "scopes"]


@cache
def live_style_sheet() -> Markup:
    """Return the rules for the elements that a script adds to a report; see :func:`style_sheet` for all others."""
    return _minify((_FOLDER / "templates" / "live.css").read_text(encoding="utf-8"))


@cache
def style_sheet(*parts: OptionalPart) -> Markup:
    """Return the rules for a report's static markup, minified and with some optional parts."""
    text = (_FOLDER / "templates" / "report.css").read_text(encoding="utf-8")
    text = re.sub(
        r"/\* if (\w+) \*/(.*?)/\* end \*/", lambda block: block[2] if block[1] in parts else "", text, flags=re.DOTALL
    )
    return _minify(text)


def _minify(text: str) -> Markup:
    text = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))
    # Strings stay unchanged, and so does a space before a colon, which may be a descendant combinator.
    text = re.sub(r'("[^"]*")|\s*([{};,>])\s*|(:)\s+', lambda part: part[1] or part[2] or part[3], text)
    return Markup(text.replace(";}", "}").strip())  # noqa: S704 - the package contains the file


@lru_cache(maxsize=512)  # many breaks have the same reason and advice
def _code_spans(text: str) -> Markup:
    """Return markup in which text between backticks is code."""
    parts = [escape_html(part) for part in text.split("`")]
    if len(parts) % 2 == 0:
        return Markup("`".join(parts))  # noqa: S704 - every part was escaped
    parts_with_code = (f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))
    return Markup("".join(parts_with_code))  # noqa: S704 - every part was escaped


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _count_of(number: int, noun: str) -> str:
    return count_text(number, noun) if number else f"no {noun}s"


def _with_visible_characters(value: Any) -> Any:
    # Filters that return markup have already escaped the text in it.
    return escape_invisible(value) if type(value) is str else value


@cache
def environment() -> jinja2.Environment:
    """Return the Jinja environment that loads the templates, with our filters and automatic escaping."""
    import jinja2
    from jinja2.runtime import Context

    class PlainContext(Context):
        """Calls functions directly, without a check for Jinja's decorators (``pass_context``), which we do not use."""

        def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            kwargs.pop("_loop_vars", None)
            return function(*args, **kwargs)

    class Environment(jinja2.Environment):
        context_class = PlainContext

    environment = Environment(
        loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_with_visible_characters,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for convert in (_code_spans, _short, _first_line, _count_of):
        environment.filters[convert.__name__.removeprefix("_")] = convert
    environment.filters["arrows"] = with_arrows
    environment.filters["is_known_page"] = is_known_page
    environment.filters["duration"] = duration_text
    environment.filters["times"] = times_text
    return environment
