"""The verdicts on PyTorch's front ends, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_graphbreak.views.html.environment import environment, style_sheet
from jupyter_graphbreak.views.words.experiments.verdicts import OUTCOMES, RIGHT, SIGNS, call_of, details, legend

if TYPE_CHECKING:
    from jupyter_graphbreak.report.frontends import Frontends


def render_frontends_html(frontends: Frontends) -> str:
    """Return the verdicts as a snippet of HTML with its own style sheet."""
    template = environment().get_template("frontends.html.j2")
    return template.render(
        frontends=frontends, call=call_of(frontends), words=OUTCOMES, signs=SIGNS, right=RIGHT,
        css=style_sheet("frontends"), details=details, legend=legend(frontends),
    ).strip()  # fmt: skip
