"""Rewrite the guard of a ``case`` as an ``if`` inside the case, so that both branches can be computed."""

from __future__ import annotations

import ast
from dataclasses import replace

from jupyter_graphbreak.experiments.families.drafting import Splice
from jupyter_graphbreak.experiments.families.site import Site, draft_of, indentation_step


def rewrite_guard_as_if(site: Site) -> Site | None:
    """Rewrite the guard of the ``case`` at a site as an ``if``, and return its site; ``None`` if that is impossible.

    The ``else`` contains the body of the case that matches if the guard is false.
    """
    draft = site.draft
    statement, case = draft.enclosing(site.node, ast.Match), draft.enclosing(site.node, ast.match_case)
    if statement is None or case is None or case.guard is None or site.node not in ast.walk(case.guard):
        return None
    later_cases = statement.cases[statement.cases.index(case) + 1 :]
    fallback = next((part for part in later_cases if not _are_disjoint(part.pattern, case.pattern)), None)
    bodies = [case.body] if fallback is None else [case.body, fallback.body]
    indents = {draft.indent_of(body[0]) for body in bodies}
    (indent,) = indents if len(indents) == 1 else (None,)
    if indent is None or (
        fallback is not None and (fallback.guard is not None or not _includes(fallback.pattern, case.pattern))
    ):
        return None
    literals = (node for body in bodies for part in body for node in ast.walk(part) if isinstance(node, ast.expr))
    if any(isinstance(node, ast.Constant | ast.JoinedStr) and node.lineno != node.end_lineno for node in literals):
        return None  # the lines of a string would be indented
    step = indentation_step(draft, site.function) if site.function is not None else "    "
    texts = [draft.text[draft.line_start(body[0].lineno) : draft.end_of(body[-1])].split("\n") for body in bodies]
    lines = [
        line
        for header, text in zip((f"if {draft.text_of(case.guard)}:", "else:"), texts, strict=False)
        for line in (f"{indent}{header}", *(f"{step}{line}" if line.strip() else line for line in text))
    ]
    start, end = draft.end_of(case.pattern), draft.end_of(case.guard)
    splices = [
        Splice(start, end, ""),
        Splice(draft.line_start(case.body[0].lineno), draft.end_of(case.body[-1]), "\n".join(lines)),
    ]
    text = draft.apply_splices(splices)
    new_draft = draft_of(text, draft.taken_names) if text is not None else None
    line = case.body[0].lineno - draft.text.count("\n", start, end)
    if_statement = new_draft.find_node(line, None, line, None) if new_draft is not None else None
    if new_draft is None or not isinstance(if_statement, ast.If):
        return None
    return replace(site, draft=new_draft, node=if_statement, statement=if_statement)


def _includes(outer: ast.pattern, inner: ast.pattern) -> bool:
    """Return whether the first pattern matches everything that the second one matches, judging by their syntax."""
    alternatives = outer.patterns if isinstance(outer, ast.MatchOr) else [outer]
    inner_alternatives = inner.patterns if isinstance(inner, ast.MatchOr) else [inner]
    is_wildcard = isinstance(outer, ast.MatchAs) and outer.name is None
    return is_wildcard or {ast.dump(part) for part in inner_alternatives} <= {ast.dump(part) for part in alternatives}


def _are_disjoint(first: ast.pattern, second: ast.pattern) -> bool:
    """Return whether two patterns match only strings and have no string in common."""
    alternatives = [part.patterns if isinstance(part, ast.MatchOr) else [part] for part in (first, second)]
    values = [
        {part.value.value if isinstance(part, ast.MatchValue) and isinstance(part.value, ast.Constant) else None
         for part in parts}
        for parts in alternatives
    ]  # fmt: skip
    return all(isinstance(value, str) for part in values for value in part) and values[0].isdisjoint(values[1])
