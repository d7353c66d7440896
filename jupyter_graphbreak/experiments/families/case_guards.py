"""Rewrite the guard of a ``case`` as a branch inside it, both sides of which can be computed."""

from __future__ import annotations

import ast
from dataclasses import replace

from jupyter_graphbreak.experiments.families.drafting import Splice
from jupyter_graphbreak.experiments.families.site import Site, draft_of, indentation_step


def rewrite_guard_as_branch(site: Site) -> Site | None:
    """Rewrite the guard of the ``case`` at a site as a branch, and return the branch's site; ``None`` if impossible.

    The branch's other side is the case that matches if the guard is false.
    """
    draft = site.draft
    statement, case = draft.enclosing(site.node, ast.Match), draft.enclosing(site.node, ast.match_case)
    if statement is None or case is None or case.guard is None or site.node not in ast.walk(case.guard):
        return None
    later_cases = statement.cases[statement.cases.index(case) + 1 :]
    other = next((part for part in later_cases if not _are_disjoint(part.pattern, case.pattern)), None)
    bodies = [case.body] if other is None else [case.body, other.body]
    indents = {draft.indent_of(body[0]) for body in bodies}
    (indent,) = indents if len(indents) == 1 else (None,)
    if indent is None or (
        other is not None and (other.guard is not None or not _includes(other.pattern, case.pattern))
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
    branch = new_draft.find_node(line, None, line, None) if new_draft is not None else None
    if new_draft is None or not isinstance(branch, ast.If):
        return None
    return replace(site, draft=new_draft, node=branch, statement=branch)


def _includes(pattern: ast.pattern, other: ast.pattern) -> bool:
    """Return whether a pattern matches everything that another pattern matches, judging by their syntax."""
    alternatives = pattern.patterns if isinstance(pattern, ast.MatchOr) else [pattern]
    others = other.patterns if isinstance(other, ast.MatchOr) else [other]
    is_wildcard = isinstance(pattern, ast.MatchAs) and pattern.name is None
    return is_wildcard or {ast.dump(part) for part in others} <= {ast.dump(part) for part in alternatives}


def _are_disjoint(pattern: ast.pattern, other: ast.pattern) -> bool:
    """Return whether two patterns match only strings, and no string in common."""
    alternatives = [part.patterns if isinstance(part, ast.MatchOr) else [part] for part in (pattern, other)]
    values = [
        {part.value.value if isinstance(part, ast.MatchValue) and isinstance(part.value, ast.Constant) else None
         for part in parts}
        for parts in alternatives
    ]  # fmt: skip
    return all(isinstance(value, str) for part in values for value in part) and values[0].isdisjoint(values[1])
