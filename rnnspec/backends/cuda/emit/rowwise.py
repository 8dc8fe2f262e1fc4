"""The text of nodes that need whole rows at once: reductions, running sums, joining and cutting,
outer products, products with a matrix that changes with time. A group of threads shares a row:
thread `lane` of the group takes every group-th element.

Reductions and running sums go in two phases with a barrier between: each thread's part into shared
memory, then all parts together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from rnnspec.backends.cuda.emit.text import CudaText
from rnnspec.lowering.program import Stage
from rnnspec.symbolic.graph import (
    Concat,
    CumSum,
    Diag,
    Graph,
    Outer,
    Part,
    Product,
    Reduce,
    Transpose,
    node_text,
    size_of,
)


class Access(Protocol):
    """Elements of a row's values."""

    def read(self, name: str, index: str) -> str: ...

    def write(self, name: str, index: str, text: str) -> None: ...


@dataclass(frozen=True)
class Group:
    """The threads of a row: how many (a constant's name), the text of a thread's number, where in
    shared memory parts are put, and how far apart those of two nodes lie."""

    size: str
    lane: str
    parts: int
    apart: int


def waiting(stage: Stage, graph: Graph) -> list[str]:
    """The nodes of a stage that go in two phases: all threads of a row leave their parts in shared
    memory before one of them goes on."""
    return [n for n in stage.rowwise if isinstance(graph.nodes[n], Reduce | CumSum)]


def first_phase(work: CudaText, stage: Stage, access: Access, group: Group) -> None:
    """Each thread's part of the nodes that wait."""
    for number, name in enumerate(waiting(stage, work.graph)):
        node = work.graph.nodes[name]
        assert isinstance(node, Reduce | CumSum)
        largest = isinstance(node, Reduce) and node.op == "max"
        work.line(f"total = real({'-1e999' if largest else '0.0'})  # {name} = {node_text(node)}")
        start, end, step = _span(work, node, group)
        work.line(f"e = {start}")
        work.line(f"while e < {end}:")
        piece = access.read(node.arg, "e")
        work.line(f"    total = {f'larger(total, {piece})' if largest else f'total + {piece}'}")
        work.line(f"    e += {step}")
        work.line(f"sh[{work.u(group.parts + number * group.apart)} + thread] = total")


def _span(work: CudaText, node: Reduce | CumSum, group: Group) -> tuple[str, str, str]:
    """First, end and step of a thread's elements: a running sum needs neighbours."""
    size = work.size(size_of(work.graph, node.arg))
    if isinstance(node, Reduce):
        return group.lane, size, group.size
    work.line(f"piece = ({size} + {group.size} - {work.u(1)}) // {group.size}")
    work.line(f"low = {group.lane} * piece")
    work.line(f"high = low + piece if low + piece < {size} else {size}")
    return "low", "high", work.u(1)


def second_phase(work: CudaText, stage: Stage, access: Access, group: Group) -> None:
    """All the rest."""
    waits = waiting(stage, work.graph)
    for name in stage.rowwise:
        node = work.graph.nodes[name]
        work.line(f"# {name} = {node_text(node)}")
        if name in waits:
            parts = f"{work.u(group.parts + waits.index(name) * group.apart)} + thread"
            (_reduced if isinstance(node, Reduce) else _running)(work, name, access, group, parts)
        else:
            _moved(work, name, access, group)


def _reduced(work: CudaText, name: str, access: Access, group: Group, parts: str) -> None:
    node = work.graph.nodes[name]
    assert isinstance(node, Reduce)
    with work.block(f"if {group.lane} == {work.u(0)}:"):
        work.line(f"total = sh[{parts}]")
        work.line(f"k = {work.u(1)}")
        work.line(f"while k < {group.size}:")
        work.line(
            f"    total = {f'larger(total, sh[{parts} + k])' if node.op == 'max' else f'total + sh[{parts} + k]'}"
        )
        work.line(f"    k += {work.u(1)}")
        access.write(name, work.u(0), "total")


def _running(work: CudaText, name: str, access: Access, group: Group, parts: str) -> None:
    node = work.graph.nodes[name]
    assert isinstance(node, CumSum)
    one = work.u(1)
    start, end, _ = _span(work, node, group)
    work.line("total = real(0.0)")
    work.line(f"k = {f'{group.lane} + {one}' if node.reverse else work.u(0)}")
    work.line(f"while k < {group.size if node.reverse else group.lane}:")
    work.line(f"    total = total + sh[{parts} - {group.lane} + k]")
    work.line(f"    k += {one}")
    work.line(f"e = {end if node.reverse else start}")
    with work.block(f"while {f'e > {start}' if node.reverse else f'e < {end}'}:"):
        if node.reverse:
            work.line(f"e -= {one}")
        work.line(f"total = total + {access.read(node.arg, 'e')}")
        access.write(name, "e", "total")
        if not node.reverse:
            work.line(f"e += {one}")


@contextlib.contextmanager
def _elements(work: CudaText, group: Group, size: str) -> Iterator[None]:
    """A loop in which `e` is each of a thread's elements."""
    work.line(f"e = {group.lane}")
    with work.block(f"while e < {size}:"):
        yield
        work.line(f"e += {group.size}")


def _moved(work: CudaText, name: str, access: Access, group: Group) -> None:
    graph = work.graph
    size, shape = work.size(size_of(graph, name)), graph.shapes[name]
    match graph.nodes[name]:
        case Concat(args):
            start: list[str] = []
            for arg in args:
                width = work.size(size_of(graph, arg))
                with _elements(work, group, width):
                    access.write(name, " + ".join([*start, "e"]), access.read(arg, "e"))
                start.append(width)
        case Part(arg, first, _):
            with _elements(work, group, size):
                access.write(name, "e", access.read(arg, f"{work.size(first)} + e"))
        case Outer(left, right):
            width = work.size(size_of(graph, right))
            with _elements(work, group, size):
                factors = access.read(left, f"e // {width}"), access.read(right, f"e % {width}")
                access.write(name, "e", _term(work, name, *factors))
        case Transpose(arg):
            height, width = (work.size(s) for s in graph.shapes[arg])
            with _elements(work, group, size):
                access.write(name, "e", access.read(arg, f"e % {height} * {width} + e // {height}"))
        case Diag(arg):
            width = work.size(shape[0])
            with _elements(work, group, size):
                work.line("total = real(0.0)")
                work.line(f"if e // {width} == e % {width}:")
                work.line(f"    total = {access.read(arg, f'e // {width}')}")
                access.write(name, "e", "total")
        case Product(matrix, right, transposed):
            _product(work, name, (matrix, right, transposed), access, group)
        case node:
            raise TypeError(f"{name} = {node!r} is not computed row by row")


def _product(work: CudaText, name: str, operands: tuple[str, str, bool], access: Access, group: Group) -> None:
    """Each thread sums whole elements of the product, of a vector (one column) or a matrix."""
    matrix, right, transposed = operands
    shapes = work.graph.shapes
    inner, height = work.size(shapes[right][0]), work.size(shapes[name][0])
    columns = work.size(shapes[name][1]) if len(shapes[name]) > 1 else ""
    unit, column = (f"e // {columns}", f" * {columns} + e % {columns}") if columns else ("e", "")
    with _elements(work, group, work.size(size_of(work.graph, name))):
        work.line("total = real(0.0)")
        work.line(f"k = {work.u(0)}")
        work.line(f"while k < {inner}:")
        element = f"k * {height} + {unit}" if transposed else f"{unit} * {inner} + k"
        term = _term(work, name, access.read(matrix, element), access.read(right, f"k{column}"))
        work.line(f"    total = total + {term}")
        work.line(f"    k += {work.u(1)}")
        access.write(name, "e", "total")


def _term(work: CudaText, name: str, first: str, second: str) -> str:
    """The product of two factors, of which one's zeros may leave the other out."""
    side = work.program.left.get(name)
    if side is None:
        return f"{first} * {second}"
    return f"({first} * {second} if {first if side == 'left' else second} != real(0.0) else real(0.0))"
