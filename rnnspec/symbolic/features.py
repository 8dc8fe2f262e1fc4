"""Functions along the feature axis as graph nodes: softmax, layer_norm, concat, outer, ...

In: a row of `features.FEATURES` and its arguments, evaluated. Out: its value over nodes of the
kinds that the graph has anyway, in the form that neither overflows nor divides 0 by 0: softmax
subtracts the largest element, layer_norm centres before it squares, norm has the derivative 0 at 0,
and mean, norm and layer_norm scale what is too large or too small to be squared and added.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from rnnspec.language.sizes import canonical_size
from rnnspec.language.spec import Shape
from rnnspec.symbolic.draft import Draft
from rnnspec.symbolic.graph import Concat, CumSum, Diag, Outer, Part, Pointwise, Reduce
from rnnspec.symbolic.operations import Value, add, divide, equal, multiply, select, subtract, symbol

LOW = sympy.Rational(1, 2**30)  # of a row of 2**30 elements no sum overflows


@dataclass(frozen=True)
class Arguments:
    """What a call takes, each kind in the order of the call: the nodes of what it works on,
    expressions of the single numbers beside them (`eps`), size expressions."""

    nodes: tuple[str, ...] = ()
    numbers: tuple[Value, ...] = ()
    sizes: tuple[str, ...] = ()


def feature(draft: Draft, function: str, args: Arguments, target: str) -> Value:
    """The value of a function along features, whose nodes are added to the draft. target: the
    equation that it stands in, after which new nodes are called."""
    match function, args.nodes:
        case "ones", _:
            return symbol(draft.ones(args.sizes[0]))
        case "eye", _:
            return _diag(draft, draft.ones(args.sizes[0]))
        case "part", (vector,):
            first, length = args.sizes
            return symbol(draft.new(f"part_{vector}", Part(vector, first, length), (length,)))
        case "concat", nodes:
            parts = tuple(_as_vector(draft, node) for node in nodes)
            size = canonical_size(" + ".join(draft.shapes[p][0] for p in parts))
            return symbol(draft.new(f"concat_{parts[0]}", Concat(parts), (size,)))
        case "outer", (left, right):
            shape = draft.shapes[left] + draft.shapes[right]
            return symbol(draft.new(f"outer_{left}", Outer(left, right), shape))
        case "diag", (vector,):
            return _diag(draft, vector)
        case "dot", (left, right):
            return _sum(draft, multiply(symbol(left), symbol(right)), target)
        case "layer_norm", (vector,):
            return _layer_norm(draft, vector, args.numbers[0], target)
        case _, (node,):
            return _of_one(draft, function, node, target)
    raise TypeError(f"no feature function: {function}")


def _of_one(draft: Draft, function: str, node: str, target: str) -> Value:
    match function:
        case "sum":
            return _sum(draft, symbol(node), target)
        case "mean":
            return _mean(draft, node, _largest(draft, node, target), target)
        case "max":
            return symbol(draft.new(f"max_{node}", Reduce("max", node), ()))
        case "norm":
            factor = draft.application("scale", [_largest(draft, node, target)], target)
            small = draft.application("rescaled", [symbol(node), factor], target)
            squares = _sum(draft, multiply(small, small), target)
            root = select(equal(squares, 0), sympy.S.Zero, draft.application("sqrt", [squares], target))
            return draft.application("unscaled", [root, factor], target)
        case "softmax":
            return _softmax(draft, node, target)
        case "cumsum":
            return symbol(draft.new(f"cumsum_{node}", CumSum(node), draft.shapes[node]))
        case "cumax":
            inner = draft.operand(_softmax(draft, node, target), target, f"softmax_{node}")
            return symbol(draft.new(f"cumsum_{inner}", CumSum(inner), draft.shapes[inner]))
    raise TypeError(f"no feature function: {function}")


def _sum(draft: Draft, value: Value, target: str) -> Value:
    node = draft.operand(value, target)
    return symbol(draft.new(f"sum_{node}", Reduce("sum", node), ()))


def _largest(draft: Draft, node: str, target: str) -> Value:
    """The largest size of an element."""
    sizes = draft.application("abs", [symbol(node)], target)
    return symbol(draft.new(f"max_{sizes.name}", Reduce("max", str(sizes.name)), ()))


def _count(draft: Draft, shape: Shape) -> Value:
    return draft.size("*".join(f"({size})" for size in shape))


def _mean(draft: Draft, node: str, largest: Value, target: str, factor: Value | None = None) -> Value:
    """The mean, times `factor`. The sums are made beside each other: neither waits for the largest
    element, nor for the factor that comes of it."""
    sums = [_sum(draft, symbol(node), target), _sum(draft, multiply(symbol(node), LOW), target)]
    if factor is not None:
        sums = [draft.application("rescaled", [s, factor], target) for s in sums]
    return draft.application("mean_of", [*sums, largest, _count(draft, draft.shapes[node])], target)


def _softmax(draft: Draft, node: str, target: str) -> Value:
    largest = symbol(draft.new(f"max_{node}", Reduce("max", node), ()))
    shifted = draft.application("shifted", [symbol(node), largest], target)  # its gradient by `largest` would cancel
    powers = draft.application("exp", [shifted], target)
    return divide(powers, _sum(draft, powers, target))


def _layer_norm(draft: Draft, node: str, eps: Value, target: str) -> Value:
    """Scaling changes nothing but eps, which is scaled twice. The mean is scaled before it is
    rounded: that of the smallest numbers is none of them."""
    largest = _largest(draft, node, target)
    least = draft.application("sqrt", [eps], target)
    factor = draft.application("scale", [draft.application("maximum", [largest, least], target)], target)
    small = draft.application("rescaled", [symbol(node), factor], target)
    middle = _mean(draft, node, largest, target, factor)
    centred = symbol(draft.operand(subtract(small, middle), target, f"centred_{node}"))
    for _ in range(2):
        eps = draft.application("rescaled", [eps, factor], target)
    squares = _sum(draft, multiply(centred, centred), target)
    variance = add(divide(squares, _count(draft, draft.shapes[node])), eps)
    return multiply(centred, draft.application("rsqrt", [variance], target))


def _diag(draft: Draft, vector: str) -> Value:
    node = draft.nodes[vector]
    wanted = "eye" if isinstance(node, Pointwise) and node.expr == 1 else f"diag_{vector}"
    return symbol(draft.new(wanted, Diag(vector), 2 * draft.shapes[vector]))


def _as_vector(draft: Draft, node: str) -> str:
    """A number as a vector of one element."""
    return node if draft.shapes[node] else draft.new(f"{node}_vector", Pointwise(symbol(node)), ("1",))
