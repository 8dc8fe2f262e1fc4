"""The equations of a file with their places in it, whatever YAML style they are written in."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from yaml.nodes import ScalarNode

from rnnspec.errors import Problem
from rnnspec.language.syntax.parse import parse_equations
from rnnspec.language.syntax.tree import Equation, Expr, Place, Ref, with_parts
from rnnspec.language.syntax.yamltext import Sheet, align, locate_block


def placed(node: ScalarNode, text: str, sheet: Sheet) -> tuple[list[Equation], list[Problem]]:
    """The equations with their places in the file, whatever YAML style they are written in."""
    if node.style == "|":
        return parse_equations(text, *locate_block(node, sheet), sheet.file)
    where, starts = align(node, sheet), [0]
    for row in text.split("\n"):
        starts.append(starts[-1] + len(row) + 1)

    def moved(line: int, column: int, width: int) -> Place:
        index = min(starts[line - 1] + column - 1, len(where) - 1)
        return sheet.at(where[index] if where else node.start_mark.index, width)

    equations, problems = parse_equations(text)
    problems = [
        dataclasses.replace(p, line=at.line, column=at.column)
        for p in problems
        for at in [moved(p.line, p.column, p.width)]
    ]
    return [_moved(e, moved) for e in equations], problems


def targets(text: str) -> frozenset[str]:
    """The names that stand on left sides, whether or not the rest can be read."""
    return frozenset(re.findall(r"(?m)^\s*(?:d\s*/\s*dt\s+)?([A-Za-z]\w*)\s*(?:\[[^=\n]*)?=(?!=)", text))


def _moved(equation: Equation, place: Callable[[int, int, int], Place]) -> Equation:
    def at(old: Place) -> Place:
        return place(old.line, old.column, old.width)

    def tree(expr: Expr) -> Expr:
        match expr:
            case Ref():
                index, delay = (e and tree(e) for e in (expr.index, expr.delay))
                return dataclasses.replace(expr, at=at(expr.at), index=index, delay=delay)
        return dataclasses.replace(with_parts(expr, tree), at=at(expr.at))

    index, loop = (
        equation.index and tree(equation.index),
        equation.loop and dataclasses.replace(equation.loop, at=at(equation.loop.at)),
    )
    return dataclasses.replace(equation, value=tree(equation.value), at=at(equation.at), index=index, loop=loop)
