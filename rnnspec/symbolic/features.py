"""Functions along the feature axis as graph nodes: softmax, layer_norm, concat, outer, ...

In: a call of a row of `functions.FEATURES`. Out: its value over nodes of the kinds that the graph
has anyway, in the form that neither overflows nor divides 0 by 0: softmax subtracts the largest
element, layer_norm centres before it squares, norm has the derivative 0 at 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy

from rnnspec.language.sizes import canonical_size, size_of
from rnnspec.language.spec import Shape
from rnnspec.language.syntax.tree import Expr
from rnnspec.symbolic.expressions import Value, equal, select, symbol
from rnnspec.symbolic.graph import Concat, CumSum, Diag, Outer, Part, Pointwise, Read, Reduce

if TYPE_CHECKING:
    from rnnspec.symbolic.build import Builder


def feature(work: Builder, function: str, args: tuple[Expr, ...], target: str) -> Value:
    """The value of `function(args)`, whose nodes are added to `work`."""
    match function:
        case "eye":
            return _diag(work, _ones(work, size_of(args[0])))
        case "part":
            vector, first, length = work.node(args[0], target), size_of(args[1]), size_of(args[2])
            return work.new(f"part_{vector}", Part(vector, first, length), (length,))
        case "concat":
            parts = tuple(_as_vector(work, work.node(arg, target)) for arg in args)
            return work.new(
                f"concat_{parts[0]}", Concat(parts), (canonical_size(" + ".join(work.shapes[p][0] for p in parts)),)
            )
        case "outer":
            left, right = (work.node(arg, target) for arg in args)
            return work.new(f"outer_{left}", Outer(left, right), work.shapes[left] + work.shapes[right])
        case "diag":
            return _diag(work, work.node(args[0], target))
        case "dot":
            left, right = (work.node(arg, target) for arg in args)
            return _sum(work, symbol(left) * symbol(right), target)
        case "layer_norm":
            return _layer_norm(work, work.node(args[0], target), work.value(args[1], target), target)
    return _of_one(work, function, work.node(args[0], target), target)


def _of_one(work: Builder, function: str, node: str, target: str) -> Value:
    match function:
        case "sum":
            return _sum(work, symbol(node), target)
        case "mean":
            return _mean(work, symbol(node), work.shapes[node], target)
        case "max":
            return work.new(f"max_{node}", Reduce("max", node), ())
        case "norm":
            squares = _sum(work, symbol(node) ** 2, target)
            return select(equal(squares, 0), sympy.S.Zero, work.application("sqrt", [squares], target))
        case "softmax":
            return _softmax(work, node, target)
        case "cumsum":
            return work.new(f"cumsum_{node}", CumSum(node), work.shapes[node])
        case "cumax":
            inner = work.operand(_softmax(work, node, target), target, f"softmax_{node}")
            return work.new(f"cumsum_{inner}", CumSum(inner), work.shapes[inner])
    raise TypeError(f"no feature function: {function}")


def _sum(work: Builder, value: Value, target: str) -> Value:
    node = work.operand(value, target)
    return work.new(f"sum_{node}", Reduce("sum", node), ())


def _mean(work: Builder, value: Value, shape: Shape, target: str) -> Value:
    return _sum(work, value, target) / work.size("*".join(f"({size})" for size in shape))


def _softmax(work: Builder, node: str, target: str) -> Value:
    largest = work.new(f"max_{node}", Reduce("max", node), ())
    shifted = work.application("shifted", [symbol(node), largest], target)  # its gradient by `largest` would cancel
    powers = work.application("exp", [shifted], target)
    return powers / _sum(work, powers, target)


def _layer_norm(work: Builder, node: str, eps: Value, target: str) -> Value:
    shape = work.shapes[node]
    mean = work.operand(_mean(work, symbol(node), shape, target), target, f"mean_{node}")
    centred = symbol(work.operand(symbol(node) - symbol(mean), target, f"centred_{node}"))
    return centred * work.application("rsqrt", [_mean(work, centred**2, shape, target) + eps], target)


def _ones(work: Builder, size: str) -> str:
    return str(work.new("ones", Pointwise(sympy.S.One), (size,)).name)


def _diag(work: Builder, vector: str) -> Value:
    node = work.nodes[vector]
    wanted = "eye" if isinstance(node, Pointwise) and node.expr == 1 else f"diag_{vector}"
    return work.new(wanted, Diag(vector), 2 * work.shapes[vector])


def _as_vector(work: Builder, node: str) -> str:
    """A number as a vector of one element."""
    return node if work.shapes[node] else str(work.new(f"{node}_vector", Pointwise(symbol(node)), ("1",)).name)


def scaled(work: Builder, matrix: str, vector: str, *, rows: bool) -> Value:
    """diag(vector) @ matrix, or matrix @ diag(vector), element by element."""
    size = work.shapes[matrix][1 if rows else 0]
    pair = (vector, _ones(work, size)) if rows else (_ones(work, size), vector)
    return symbol(matrix) * work.new(f"outer_{vector}", Outer(*pair), work.shapes[matrix])


def read_size(work: Builder, size: str) -> Value:
    text = canonical_size(size)
    if text.isdigit():
        return sympy.Integer(text)
    known = next((n for n, node in work.nodes.items() if node == Read("size", text)), None)
    return symbol(known) if known else work.new(text if text.isidentifier() else "size", Read("size", text), ())
