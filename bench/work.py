"""What the programs of a cell compute and move, counted from the programs alone: the work that a
roof is drawn from.

Everything is counted for one step of one row, at given sizes. Multiply-adds are those of products
and outer products. Elementwise work is counted as it is written: an operation of arithmetic, a
comparison or a select is one instruction for each number; a primitive function is counted by its
name. Numbers moved are those that leave the caches' reach: what a caller gives and gets, and the
tape, written by one program and read by the other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.sizes import evaluate_size, full_shape
from rnnspec.lowering.program import Program
from rnnspec.symbolic.expressions import expand_row
from rnnspec.symbolic.graph import Concat, CumSum, Outer, Part, Pointwise, Product, Reduce
from rnnspec.symbolic.operations import Value


@dataclass(frozen=True)
class Work:
    """Of one step of one row. multiply_adds: of products; operations: numbers that one instruction
    each makes; functions: how many numbers each primitive makes; moved: numbers read and written
    that lie in memory."""

    multiply_adds: int
    operations: int
    functions: Mapping[str, int]
    moved: int

    def __add__(self, other: Work) -> Work:
        return Work(
            self.multiply_adds + other.multiply_adds,
            self.operations + other.operations,
            Counter(self.functions) + Counter(other.functions),
            self.moved + other.moved,
        )


def work(program: Program, sizes: Mapping[str, int]) -> Work:
    """The work of a program's step, for one row."""
    totals: Counter[str] = Counter()
    for stage in program.stages():
        for name in (*stage.nodes, *stage.rowwise):
            totals.update(_elementwise(program, name, sizes))
        totals["operations"] += len(stage.sums) * evaluate_size(stage.size, sizes)
    return Work(
        _multiply_adds(program, sizes),
        totals.pop("operations", 0),
        totals,
        _moved(program, sizes),
    )


def _multiply_adds(program: Program, sizes: Mapping[str, int]) -> int:
    """Those of panels, of outer products that are summed, and of products and outer products of
    matrices that each row has of its own."""
    graph = program.graph

    def count(*names: str) -> int:
        return math.prod(math.prod(full_shape(graph.shapes[n], sizes)) for n in names)

    total = sum(count(o.left, o.right) for o in program.outers)
    for stage in program.stages():
        for panel in stage.panels:
            total += sum(
                count(t.matrix) * columns(program, t.operand, sizes) for a in panel.accumulations for t in a.terms
            )
        for name in (*stage.nodes, *stage.rowwise):
            node = graph.nodes[name]
            if isinstance(node, Product):
                total += count(node.matrix) * columns(program, node.vector, sizes)
            elif isinstance(node, Outer):
                total += count(name)
    return total


def columns(program: Program, operand: str, sizes: Mapping[str, int]) -> int:
    """How many columns a product's right side has: 1 of a vector."""
    return math.prod(full_shape(program.graph.shapes[operand][1:], sizes))


def _elementwise(program: Program, name: str, sizes: Mapping[str, int]) -> Counter[str]:
    """Operations and functions of one node that is no product: what is rearranged is moved, number
    by number."""
    node, shapes = program.graph.nodes[name], program.graph.shapes
    count = math.prod(full_shape(shapes[name], sizes))
    found: Counter[str] = Counter()
    match node:
        case Pointwise(expr):
            found = operations(expr)
        case Reduce(_, arg) | CumSum(arg):
            return Counter(operations=math.prod(full_shape(shapes[arg], sizes)))
        case Concat() | Part():
            found = Counter(operations=1)
    return Counter({kind: times * count for kind, times in found.items()})


def operations(expr: Value) -> Counter[str]:
    """What one number of an expression takes: "operations", and primitive functions by name. What
    stands twice in it is computed once."""
    found: Counter[str] = Counter()
    for part in set(_parts(expr)):
        name = type(part).__name__
        row = FUNCTIONS.get(name)
        if row is None:
            found["operations"] += _instructions(part)
        elif row.primitive:
            found[name] += 1
        else:
            found += operations(expand_row(row, part.args)) if part.args else Counter()
    return found


def _parts(expr: Value) -> Iterator[Value]:
    """The operations of an expression, itself first, down to names and numbers."""
    if expr.args and not expr.is_Number:
        yield expr
        for arg in expr.args:
            yield from _parts(arg)


def _instructions(part: Value) -> int:
    """Of an operation that is no function: a sum of n terms takes n - 1, a whole power as many
    products as squaring takes."""
    name = type(part).__name__
    if name == "total":
        return len(part.args) - 1
    if name == "power" and part.args[1].is_Integer:
        return max(1, abs(int(part.args[1])).bit_length() - 1)
    return 1


def _moved(program: Program, sizes: Mapping[str, int]) -> int:
    """Numbers of the tape that are written or read, and of inputs and outputs."""
    buffers = [b for b in program.buffers.values() if b.saved or b.taped]
    total = sum(evaluate_size(b.size, sizes) for b in buffers)
    given = [program.buffers[b] for b in program.inputs.values()]
    total += sum(evaluate_size(b.size, sizes) for b in given if not b.taped)
    shapes = program.graph.shapes
    return total + sum(math.prod(full_shape(shapes[value], sizes)) for value in program.outputs.values())
