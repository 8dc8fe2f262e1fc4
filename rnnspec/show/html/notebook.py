"""What a notebook shows of a Spec, a Graph, a Program or a Kernel: one piece of HTML without a
style of its own, in which every text of a file is escaped.

A Spec has its equations and gradients as MathML, its drawing, and what a step costs; a Graph and a
Program have what they hold in numbers, and their text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import singledispatch

from rnnspec.errors import UnsupportedError
from rnnspec.language.spec import Spec
from rnnspec.lowering.program import Program
from rnnspec.show.counts import SIZE, counts
from rnnspec.show.drawing.svg import svg
from rnnspec.show.html.mathml import equations
from rnnspec.show.markup import Markup, tag
from rnnspec.show.tex.document import formulas
from rnnspec.symbolic.graph import Graph


@singledispatch
def html(thing: object, about: str = "") -> str:
    """The HTML of what has some. about: a line more, such as what a kernel is compiled for."""
    raise TypeError(f"there is no view of {type(thing).__name__} for a notebook")


@html.register
def _(spec: Spec, about: str = "") -> str:
    found, numbers = formulas(spec), counts(spec)
    costs = {
        "states": ", ".join(spec.states),
        "outputs": ", ".join(spec.outputs),
        f"parameters at D = H = {SIZE}": _number(numbers["parameters"]),
        "operations of a step": _number(numbers["flop"]),
    }
    return tag(
        "div",
        tag("p", tag("b", spec.label), f": {spec.title}", *([tag("br"), about] if about else [])),
        equations(found.forward),
        tag("details", tag("summary", "gradients"), equations(found.backward)),
        _drawing(spec),
        _table(costs),
        class_="rnnspec",
    )


def _drawing(spec: Spec) -> Markup:
    try:
        return Markup(svg(spec, "step"))
    except UnsupportedError as error:
        return tag("p", str(error))


@html.register
def _(graph: Graph, about: str = "") -> str:
    kinds = Counter(type(node).__name__ for node in graph.nodes.values())
    facts = {
        "states": ", ".join(graph.states),
        "outputs": ", ".join(graph.outputs),
        "sums over rows and steps": ", ".join(graph.sums),
        "nodes": ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())),
    }
    return _with_text("Graph", graph.name, about, facts, graph.to_text())


@html.register
def _(program: Program, about: str = "") -> str:
    facts = {
        "stages before the time loop": str(len(program.before)),
        "in it": str(len(program.loop)),
        "after it": str(len(program.after)),
        "sums of outer products": str(len(program.outers)),
        "runs": "from the last step to the first" if program.reverse else "from the first step to the last",
    }
    return _with_text("Program", program.name, about, facts, program.to_text())


def _with_text(kind: str, name: str, about: str, facts: Mapping[str, str], text: str) -> str:
    title = tag("p", tag("b", f"{kind} {name}"), *([tag("br"), about] if about else []))
    return tag("div", title, _table(facts), tag("details", tag("summary", "text"), tag("pre", text)), class_="rnnspec")


def _table(facts: Mapping[str, str]) -> Markup:
    rows = [tag("tr", tag("th", what, scope="row"), tag("td", value)) for what, value in facts.items() if value]
    return tag("table", tag("tbody", *rows))


def _number(value: int | None) -> str:
    return "not known without other sizes" if value is None else f"{value:,}"
