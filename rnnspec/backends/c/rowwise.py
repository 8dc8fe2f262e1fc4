"""Nodes that need whole rows, as loops of C: reductions, running sums, joining and cutting, outer
products, products with a matrix that changes with time."""

from __future__ import annotations

from rnnspec.backends.c.text import CText
from rnnspec.symbolic.graph import Concat, CumSum, Diag, Outer, Part, Product, Reduce, Transpose


def rowwise(text: CText, name: str) -> None:
    """The lines that compute one node."""
    graph = text.graph
    match graph.nodes[name]:
        case Reduce(op, arg):
            _reduced(text, name, op, arg)
        case CumSum(arg, reverse):
            size = text.count(name)
            with text.block("{"):
                text.line(f"real total = {text.real.constant(0.0)};")
                header = f"for (int i = {size - 1}; i >= 0; i--) {{" if reverse else text.loop(size)
                with text.block(header):
                    text.line(f"total += {text.element(arg, 'i')};")
                    text.line(f"{text.array(name)}[i] = total;")
                text.line("}")
            text.line("}")
        case Concat(args):
            start = 0
            for arg in args:
                _each(text, name, text.count(arg), f"{start} + i" if start else "i", text.element(arg, "i"))
                start += text.count(arg)
        case Part(arg, first, _):
            _each(text, name, text.count(name), "i", f"{text.array(arg)}[{text.number(first)} + i]")
        case Outer(left, right):
            width, side = text.count(right), text.program.left.get(name)
            factors = text.element(left, "i"), text.element(right, "j")
            product = f"{factors[0]} * {factors[1]}"
            if side:  # what a branch not taken multiplies leaves no trace
                product = f"{factors[side == 'right']} == 0 ? {text.real.constant(0.0)} : {product}"
            _table(text, name, product, text.count(left), width)
        case Transpose(arg):
            height, width = (text.number(s) for s in graph.shapes[name])
            _table(text, name, f"{text.array(arg)}[j * {height} + i]", height, width)
        case Diag(arg):
            width = text.number(graph.shapes[name][0])
            zero = text.real.constant(0.0)
            _table(text, name, f"i == j ? {text.element(arg, 'i')} : {zero}", width, width)
        case Product(matrix, right, transposed):
            _product(text, name, matrix, right, transposed)
        case node:
            raise TypeError(f"{name} = {node!r} is not computed row by row")


def _each(text: CText, name: str, size: int, index: str, value: str) -> None:
    if size:
        with text.block(text.loop(size)):
            text.line(f"{text.array(name)}[{index}] = {value};")
        text.line("}")


def _table(text: CText, name: str, value: str, height: int, width: int) -> None:
    """A matrix, row after row."""
    if height and width:
        with text.block(text.loop(height)), text.block(text.loop(width, "j")):
            text.line(f"{text.array(name)}[i * {width} + j] = {value};")
        text.line("    }")
        text.line("}")


def _reduced(text: CText, name: str, op: str, arg: str) -> None:
    """A sum or the largest of a row."""
    function = f"{op}_of"
    text.functions.add(function)
    text.line(f"{text.array(name)}[0] = {function}({text.array(arg)}, {text.count(arg)});")


def _product(text: CText, name: str, matrix: str, right: str, transposed: bool) -> None:
    """A row of the product at a time: sums of rows of the right side, or of its numbers."""
    shapes = text.graph.shapes
    height, inner = text.number(shapes[name][0]), text.number(shapes[right][0])
    width = text.number(shapes[name][1]) if len(shapes[name]) > 1 else 1
    if not height or not width:
        return
    element = f"k * {height} + i" if transposed else f"i * {inner} + k"
    factor = f"{text.array(matrix)}[{element}]"
    with text.block(text.loop(height)):
        with text.block(text.loop(width, "j")):
            text.line(f"{text.array(name)}[i * {width} + j] = {text.real.constant(0.0)};")
        text.line("}")
        if inner:
            with text.block(text.loop(inner, "k")), text.block(text.loop(width, "j")):
                other = f"{text.array(right)}[k * {width} + j]"
                if side := text.program.left.get(name):
                    text.line(f"if ({factor if side == 'left' else other} != 0)")
                text.line(f"{'    ' * bool(side)}{text.array(name)}[i * {width} + j] += {factor} * {other};")
            text.line("    }")
            text.line("}")
    text.line("}")
