"""The text of nodes that need whole rows at once: reductions, running sums, joining and cutting,
outer products, products with a matrix that changes with time. Each goes row by row, along the row
by vectors."""

from __future__ import annotations

from rnnspec.backends.cpu.emit.emission import SUMS, Emission
from rnnspec.lowering.program import Stage
from rnnspec.symbolic.graph import (
    Concat,
    CumSum,
    Diag,
    Outer,
    Part,
    Product,
    Reduce,
    Transpose,
    node_text,
    size_of,
)


def rowwise(work: Emission, stage: Stage) -> None:
    """All nodes of a stage, and the further places that their values are stored in."""
    for name in stage.rowwise:
        text = node_text(work.graph.nodes[name])
        share = "first + count * own // owners, first + count * (own + 1) // owners"
        columned = name in work.program.columned
        with work.block(f"for row in range({share}):  # {name} = {text}"), work.columns(columned):
            _node(work, name)
            place = work.program.places[name]
            for other in (p for value, p in stage.stores if value == name and p != place):
                size = work.program.buffers[other.buffer].size
                row = f"{_row(work, name)} * {work.pad(size)}"
                work.line(f"copy(at({work.rows(other)}, {row}), at({work.rows(place)}, {row}), {work.extent(size)})")


def _row(work: Emission, name: str) -> str:
    """Which row of its buffer a value is, for the column at hand where it has some."""
    return "(row * columns + column)" if name in work.program.columned else "row"


def _node(work: Emission, name: str) -> None:
    node = work.graph.nodes[name]
    match node:
        case Reduce(op, arg):
            _reduce(work, name, op, arg)
        case CumSum(arg, reverse):
            _running_sum(work, name, arg, reverse)
        case Concat(args):
            start = ["0"]
            for arg in args:
                width = work.extent(size_of(work.graph, arg))
                work.line(f"copy({_source(work, name, ' + '.join(start))}, {_source(work, arg)}, {width})")
                start.append(width)
        case Part(arg, first, length):
            work.line(f"copy({_source(work, name)}, {_source(work, arg, work.extent(first))}, {work.extent(length)})")
        case Outer(left, right):
            _outer(work, name, left, right)
        case Transpose(arg):
            _transpose(work, name, arg)
        case Diag(arg):
            _diagonal(work, name, arg)
        case Product(matrix, right, transposed) if len(work.graph.shapes[right]) > 1:
            _matrix_product(work, name, matrix, right, transposed)
        case Product(matrix, vector, transposed):
            (_transposed_product if transposed else _product)(work, name, matrix, vector)
        case _:
            raise TypeError(f"{name} = {node!r} is not computed row by row")


def _source(work: Emission, name: str, offset: str = "0") -> str:
    """Pointer to a row of a value, read or written, `offset` elements on."""
    program = work.program
    padded = work.pad(size_of(program.graph, name))
    if program.is_read(name, "parameter"):
        start = f"column * {padded} + {offset}" if name in program.columned else offset
        return f"at({work.name(f'vector {program.source_of(name)}')}, {start})"
    return f"at({work.rows(program.places[name])}, {_row(work, name)} * {padded} + {offset})"


def _reduce(work: Emission, name: str, op: str, arg: str) -> None:
    size = work.extent(size_of(work.graph, arg))
    neutral, join = ("number(0.0)", "{} + {}") if op == "sum" else ("number(-1e999)", "larger({}, {})")
    step = f"{len(SUMS)} * lanes"
    work.line(f"source, whole = {_source(work, arg)}, {size} // ({step}) * ({step})")
    work.line(f"{' = '.join(SUMS)} = {neutral}")
    with work.block(f"for p in range(0, whole, {step}):"):
        for k, total in enumerate(SUMS):
            work.line(f"{total} = {join.format(total, f'load(source, p + {k} * lanes)')}")
    first, second, third, fourth = SUMS
    work.line(f"total = {join.format(f'({join.format(first, second)})', f'({join.format(third, fourth)})')}")
    with work.block(f"for p in range(whole, {size}, lanes):"):
        work.line("piece = load(source, p)")
        work.line(f"total = {join.format('total', f'select(first_lanes({size} - p, piece), piece, {neutral})')}")
    work.line(f"store_one({_source(work, name)}, 0, {'horizontal_sum' if op == 'sum' else 'horizontal_max'}(total))")


def _running_sum(work: Emission, name: str, arg: str, reverse: bool) -> None:
    size = work.extent(size_of(work.graph, arg))
    work.line(f"source, dest, total = {_source(work, arg)}, {_source(work, name)}, number(0.0)")
    vectors = f"({size} - 1) // lanes * lanes, -1, -lanes" if reverse else f"0, {size}, lanes"
    with work.block(f"for p in range({vectors}):"):
        work.line("piece = load(source, p)")
        inside = f"select(first_lanes({size} - p, piece), piece, number(0.0))"
        work.line(f"piece = {'suffix_sum' if reverse else 'prefix_sum'}({inside}) + total")
        work.line("store(dest, p, piece)")
        work.line(f"total = spread_lane(piece, {'0' if reverse else 'lanes - 1'})")


def term(work: Emission, name: str, first: str, second: str) -> str:
    """The product of two factors, of which one's zeros may leave the other out."""
    side = work.program.left.get(name)
    if side is None:
        return f"{first} * {second}"
    return f"select({first if side == 'left' else second} == number(0.0), number(0.0), {first} * {second})"


def _outer(work: Emission, name: str, left: str, right: str) -> None:
    height, width = work.extent(size_of(work.graph, left)), work.extent(size_of(work.graph, right))
    work.line(f"left, right, dest = {_source(work, left)}, {_source(work, right)}, {_source(work, name)}")
    with work.block(f"for unit in range({height}):"), work.block(f"for p in range(0, {width}, lanes):"):
        text = term(work, name, "load_splat(left, unit)", "load(right, p)")
        work.line(f"store_first(dest, unit * {width} + p, {text}, {width} - p)")


def _product(work: Emission, name: str, matrix: str, vector: str) -> None:
    height, width = work.extent(size_of(work.graph, name)), work.extent(size_of(work.graph, vector))
    work.line(f"source, right, dest = {_source(work, matrix)}, {_source(work, vector)}, {_source(work, name)}")
    with work.block(f"for unit in range({height}):"):
        work.line("total = number(0.0)")
        with work.block(f"for p in range(0, {width}, lanes):"):
            work.line(f"piece = {term(work, name, f'load(source, unit * {width} + p)', 'load(right, p)')}")
            work.line(f"total = total + select(first_lanes({width} - p, piece), piece, number(0.0))")
        work.line("store_one(dest, unit, horizontal_sum(total))")


def _transposed_product(work: Emission, name: str, matrix: str, vector: str) -> None:
    height, width = work.extent(size_of(work.graph, vector)), work.extent(size_of(work.graph, name))
    work.line(f"source, left, dest = {_source(work, matrix)}, {_source(work, vector)}, {_source(work, name)}")
    with work.block(f"for p in range(0, {width}, lanes):"):
        work.line("total = number(0.0)")
        with work.block(f"for unit in range({height}):"):
            text = term(work, name, f"load(source, unit * {width} + p)", "load_splat(left, unit)")
            work.line(f"total = total + {text}")
        work.line("store(dest, p, total)")


def _matrix_product(work: Emission, name: str, matrix: str, right: str, transposed: bool) -> None:
    shapes = work.graph.shapes
    height, width, inner = (work.extent(size) for size in (*shapes[name], shapes[right][0]))
    element = f"k * {height} + unit" if transposed else f"unit * {inner} + k"
    work.line(f"source, right, dest = {_source(work, matrix)}, {_source(work, right)}, {_source(work, name)}")
    with work.block(f"for unit in range({height}):"), work.block(f"for p in range(0, {width}, lanes):"):
        work.line("total = number(0.0)")
        with work.block(f"for k in range({inner}):"):
            text = term(work, name, f"load_splat(source, {element})", f"load(right, k * {width} + p)")
            work.line(f"total = total + {text}")
        work.line(f"store_first(dest, unit * {width} + p, total, {width} - p)")


def _transpose(work: Emission, name: str, arg: str) -> None:
    height, width = (work.extent(size) for size in work.graph.shapes[arg])
    work.line(f"source, dest = {_source(work, arg)}, {_source(work, name)}")
    with work.block(f"for unit in range({height}):"), work.block(f"for k in range({width}):"):
        work.line(f"store_one(dest, k * {height} + unit, load_one(source, unit * {width} + k))")


def _diagonal(work: Emission, name: str, arg: str) -> None:
    width = work.extent(size_of(work.graph, arg))
    work.line(f"source, dest = {_source(work, arg)}, {_source(work, name)}")
    with work.block(f"for unit in range({width}):"):
        with work.block(f"for p in range(0, {width}, lanes):"):
            work.line(f"store_first(dest, unit * {width} + p, number(0.0), {width} - p)")
        work.line(f"store_one(dest, unit * {width} + unit, load_one(source, unit))")
