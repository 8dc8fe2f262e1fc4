"""What notebooks show of a Spec, a Graph, a Program and a Kernel."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

import rnnspec
from rnnspec.lowering.pipeline import graphs, stages
from rnnspec.show.html.mathml import equations
from rnnspec.show.html.notebook import html
from rnnspec.show.markup import VOID
from rnnspec.show.tex.document import formulas

CELLS = ("rnn", "lstm", "ln_gru", "rhn", "deltanet", "lif")
HOSTILE = """rnnspec: 1
name: mine
title: <script>alert(1)</script> & "quotes"
inputs: {x: H}
states: {h: H}
equations: |
  h[t] = where(h[t-1] < x[t], h[t-1], x[t])
outputs: [h]
"""


class Strict(HTMLParser):
    """Elements close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.words = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.words += data


def read(text: str) -> Strict:
    found = Strict()
    found.feed(text)
    found.close()
    assert not found.open
    return found


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_has_equations_drawing_and_costs(cell: str) -> None:
    spec = rnnspec.load(cell)
    found = read(spec._repr_html_())
    assert {"math", "table", "details"} <= found.seen and "script" not in found.seen
    assert spec.title in found.words and "operations of a step" in found.words
    for state in spec.states:
        assert state in found.words


@pytest.mark.parametrize("cell", CELLS)
def test_every_element_of_an_equation_is_closed(cell: str) -> None:
    found = formulas(rnnspec.load(cell))
    for lines in (found.forward, found.backward):
        # MathML in HTML has no void elements: what follows an open one is inside it, and not shown
        ElementTree.fromstring(equations(lines))


def test_graphs_and_programs_have_their_text() -> None:
    spec = rnnspec.load("gru")
    forward, backward = graphs(spec)[:2]
    for graph in (forward, backward):
        found = read(graph._repr_html_())
        assert graph.to_text() in found.words and f"Graph {graph.name}" in found.words
    program = stages(spec).forward
    found = read(program._repr_html_())
    assert program.to_text() in found.words and "stages before the time loop" in found.words


def test_a_kernel_says_what_it_is_compiled_for() -> None:
    kernel = rnnspec.compile("rnn", dtype="float64", threads=1)
    assert repr(kernel) in read(kernel._repr_html_()).words


def test_texts_of_a_file_stay_text() -> None:
    spec = rnnspec.loads(HOSTILE)
    for thing in (spec, *graphs(spec)[:2], stages(spec).forward):
        assert "script" not in read(thing._repr_html_()).seen
    assert "<script>alert(1)</script>" in read(spec._repr_html_()).words
    with pytest.raises(TypeError, match="no view of int"):
        html(3)
