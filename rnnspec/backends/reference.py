"""Runs Graphs in NumPy: the definition that every other backend is tested against.

In: a Graph, arrays of one kind of number (float64, complex128 for complex steps, mpmath for any
precision). Out: the values of every step. Slow and plain on purpose: one step at a time, one node
at a time, nothing saved or hoisted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.brief import brief_repr
from rnnspec.backends.numbers import FLOAT64, Arrays, Numbers, compiled
from rnnspec.language.sizes import evaluate_size, full_shape
from rnnspec.language.slices import Piece
from rnnspec.language.spec import STEP, tangent_of
from rnnspec.symbolic.adjoint import gradient_of
from rnnspec.symbolic.expressions import names
from rnnspec.symbolic.graph import (
    Concat,
    CumSum,
    Diag,
    Graph,
    Node,
    Outer,
    Part,
    Pointwise,
    Product,
    Read,
    Reduce,
    Transpose,
)
from rnnspec.symbolic.left_out import Side, left_out

# --- one step


@dataclass(frozen=True)
class Step:
    """What one step reads, by kind: arrays [B, ...] for inputs, states and history, [...] for
    parameters. number: of the step, one for all rows or [B]."""

    inputs: Arrays
    states: Arrays
    parameters: Arrays
    history: Arrays
    number: int | Array

    __repr__ = brief_repr


def evaluate(
    graph: Graph, step: Step, numbers: Numbers, sizes: Mapping[str, int], left: Mapping[str, Side] | None = None
) -> dict[str, Array]:
    """Every node's value [B or 1, ...]. left: what `left_out` says of an adjoint."""
    run = _Evaluation(graph, step, numbers, sizes, left or {})
    with np.errstate(all="ignore"):
        for name, node in graph.nodes.items():
            value = run.node(name, node)
            exact = numbers.rounded is None or isinstance(node, Read | Concat | Part | Transpose | Diag)
            run.values[name] = value if exact else numbers.rounded(value)  # type: ignore[misc]
    return run.values


@dataclass
class _Evaluation:
    """One step of a graph while its nodes are worked out; `values`: of those that are."""

    graph: Graph
    step: Step
    numbers: Numbers
    sizes: Mapping[str, int]
    left: Mapping[str, Side]
    values: dict[str, Array] = field(default_factory=dict)

    __repr__ = brief_repr

    def node(self, name: str, node: Node) -> Array:
        values, numbers, sizes = self.values, self.numbers, self.sizes
        match node:
            case Read():
                return self.read(node)
            case Pointwise(expr):
                return self.pointwise(name, expr)
            case Product(matrix, vector, transposed):
                m, v = values[matrix], values[vector]
                if numbers.rounded is not None:  # the terms are rounded too, whatever they add up to
                    m = numbers.rounded(m)
                return _times(np.swapaxes(m, 1, 2) if transposed else m, v, numbers, self.left.get(name))
            case Reduce("sum", arg):
                flat = _flat(values[arg])
                return flat.sum(axis=1) if flat.shape[1] else numbers.array(np.zeros(len(flat)))
            case Reduce("max", arg):
                flat = _flat(values[arg])
                return flat.max(axis=1) if flat.shape[1] else numbers.array(np.full(len(flat), -np.inf))
            case CumSum(arg, reverse):
                v = values[arg]
                return v[:, ::-1].cumsum(axis=1)[:, ::-1] if reverse else v.cumsum(axis=1)
            case Concat(args):
                rows = max(len(values[a]) for a in args)
                return np.concatenate([np.broadcast_to(values[a], (rows, *values[a].shape[1:])) for a in args], axis=1)
            case Part(arg, first, length):
                start = evaluate_size(first, sizes)
                return values[arg][:, start : start + evaluate_size(length, sizes)]
            case Outer(left, right):
                return _kept(values[left][:, :, None], values[right][:, None, :], self.left.get(name), numbers)
            case Transpose(arg):
                return np.swapaxes(values[arg], 1, 2)
            case Diag(arg):
                v = values[arg]
                return np.where(np.eye(v.shape[1], dtype=bool), v[:, :, None], numbers.array(0.0))
        raise TypeError(f"not a node: {node!r}")

    def read(self, read: Read) -> Array:
        step, numbers, source = self.step, self.numbers, read.source
        match read.kind:
            case "parameter":
                piece = self.graph.pieces.get(source)
                whole = numbers.array(step.parameters[piece.parameter if piece else source])
                return view(whole, piece, self.sizes)[None]
            case "size":
                return numbers.array([evaluate_size(source, self.sizes)])
            case "step":
                return numbers.array(np.atleast_1d(step.number))
        return numbers.array({"input": step.inputs, "state": step.states, "history": step.history}[read.kind][source])

    def pointwise(self, name: str, expr: Any) -> Array:
        shape, numbers = self.graph.shapes[name], self.numbers
        args = {}
        for n in names(expr):  # single numbers go with every element
            value = self.values[n]
            args[n] = value.reshape(value.shape + (1,) * (len(shape) - len(self.graph.shapes[n])))
        result = np.asarray(compiled(expr, numbers)(args), dtype=numbers.dtype)
        return np.broadcast_to(result, np.broadcast_shapes(result.shape, (1, *full_shape(shape, self.sizes))))


def _flat(value: Array) -> Array:
    return value.reshape(len(value), math.prod(value.shape[1:]))


def _times(matrix: Array, vector: Array, numbers: Numbers, side: Side | None = None) -> Array:
    """matrix [1 or B, M, K] @ vector [1 or B, K] -> [B, M], or @ matrix [1 or B, K, N] -> [B, M,
    N]; side: of the factor whose zeros leave the other one out."""
    right = vector[:, :, None] if vector.ndim == 2 else vector
    other = right if side == "left" else matrix
    if numbers.dtype is object and matrix.shape[2] == 0:
        product = numbers.array(np.zeros((max(len(matrix), len(vector)), matrix.shape[1], right.shape[2])))
    elif side and not np.all(other - other == 0):  # something is NaN or infinite
        product = _kept(matrix[:, :, :, None], right[:, None, :, :], side, numbers).sum(axis=2)
    else:
        product = np.matmul(matrix, right)
    return product[:, :, 0] if vector.ndim == 2 else product


def _kept(first: Array, second: Array, side: Side | None, numbers: Numbers) -> Array:
    """first * second, 0 where the factor at `side` is 0, whatever the other is there."""
    if side is None:
        return first * second
    return np.where((first if side == "left" else second) == 0, numbers.array(0.0), first * second)


def view(whole: Array, piece: Piece | None, sizes: Mapping[str, int]) -> Array:
    """The piece of a parameter's array, or all of it."""
    return whole if piece is None else piece.of(whole, sizes)


# --- a sequence


@dataclass(frozen=True)
class Trajectory:
    """A sequence that was run. values: node -> [T, B, ...], zero where a row had ended; before:
    state -> [T, B, ...], the value before each step; outputs and states as values; final: state ->
    [B, ...]; first: the number of the first step, one for all rows or [B]."""

    outputs: dict[str, Array]
    states: dict[str, Array]
    before: dict[str, Array]
    final: dict[str, Array]
    values: dict[str, Array]
    first: int | Array = 0

    __repr__ = brief_repr


@dataclass(frozen=True)
class TrajectoryGradients:
    """What `backward` finds: params [...], summed over batch and time; inputs [T, B, ...]; states
    [B, ...], before the first step."""

    params: dict[str, Array]
    inputs: dict[str, Array]
    states: dict[str, Array]

    __repr__ = brief_repr


def _active(lengths: Any, t: int, rows: int, rank: int) -> Array:
    alive = np.ones(rows, bool) if lengths is None else np.asarray(lengths) > t
    return alive.reshape((rows,) + (1,) * rank)


def forward(
    graph: Graph,
    params: Arrays,
    inputs: Arrays,
    states: Arrays | None = None,
    lengths: Any = None,
    *,
    sizes: Mapping[str, int],
    numbers: Numbers = FLOAT64,
    lead: tuple[int, int] | None = None,
) -> Trajectory:
    """Runs the forward graph over a sequence. Past a row's end its state stays, its outputs are
    zero.

    params: [...]; inputs: [T, B, ...]; states: [B, ...], zero where left out, and under "t" the
    steps that each row has taken before; lengths: [B] steps that each row takes, None where all
    take T; sizes: the value of every size; numbers: what the arithmetic is done in; lead: (T, B),
    where there are no inputs to tell them."""
    steps, rows = lead or next(iter(inputs.values())).shape[:2]
    first = (states or {}).get(STEP, 0)
    state = {
        s: numbers.array((states or {}).get(s, np.zeros((rows, *full_shape(graph.shapes[n], sizes)))))
        for s, n in graph.states.items()
    }
    parameters = set(graph.reads("parameter").values())
    kept: dict[str, list[Array]] = {n: [] for n in graph.nodes if n not in parameters}
    before: dict[str, list[Array]] = {s: [] for s in state}
    for t in range(steps):
        now = {name: x[t] for name, x in inputs.items()}
        values = evaluate(graph, Step(now, state, params, {}, t + first), numbers, sizes)
        for s, history in before.items():
            history.append(state[s])
        for n, history in kept.items():
            value = np.broadcast_to(values[n], (rows, *values[n].shape[1:]))
            history.append(np.where(_active(lengths, t, rows, value.ndim - 1), value, numbers.array(0.0)))
        state = {
            s: np.where(_active(lengths, t, rows, state[s].ndim - 1), values[n], state[s])
            for s, n in graph.states.items()
        }

    def none(name: str) -> Array:
        return numbers.array(np.zeros((0, rows, *full_shape(graph.shapes[name], sizes))))

    values = {n: np.stack(h) if h else none(n) for n, h in kept.items()}
    earlier = {s: np.stack(h) if h else none(graph.states[s]) for s, h in before.items()}
    outputs, after = ({s: values[n] for s, n in group.items()} for group in (graph.outputs, graph.states))
    return Trajectory(outputs, after, earlier, state, values, first)


def backward(
    graph: Graph,
    params: Arrays,
    inputs: Arrays,
    run: Trajectory,
    outputs: Arrays,
    final: Arrays | None = None,
    lengths: Any = None,
    *,
    sizes: Mapping[str, int],
    numbers: Numbers = FLOAT64,
) -> TrajectoryGradients:
    """Runs the adjoint graph from the last step to the first.

    params, inputs, lengths, sizes, numbers: as `forward` had them; run: what it returned; outputs:
    gradients [T, B, ...] of its outputs; final: gradients [B, ...] of its final states; zero where
    left out.
    """
    steps, rows = next(iter(run.outputs.values())).shape[:2]
    flowing = {
        s: numbers.array((final or {}).get(s, np.zeros((rows, *full_shape(graph.shapes[n], sizes)))))
        for s, n in graph.states.items()
    }
    sums = {p: numbers.array(np.zeros(np.shape(params[p]))) for p in params}
    dx: dict[str, list[Array]] = {i: [] for i in graph.outputs}
    gradients = {gradient_of(o): outputs[o] if o in outputs else np.zeros_like(y) for o, y in run.outputs.items()}
    left = left_out(graph)
    for t in reversed(range(steps)):
        now = {name: x[t] for name, x in inputs.items()} | {o: g[t] for o, g in gradients.items()}
        history = {s: h[t] for s, h in run.before.items()}
        values = evaluate(graph, Step(now, flowing, params, history, t + run.first), numbers, sizes, left)

        def alive(value: Array, t: int = t) -> Array:
            value = np.broadcast_to(value, (rows, *value.shape[1:]))
            return np.where(_active(lengths, t, rows, value.ndim - 1), value, numbers.array(0.0))

        for p, group in graph.sums.items():
            piece = graph.pieces.get(p)
            total = view(sums[piece.parameter if piece else p], piece, sizes)
            if rows:
                total += sum((alive(values[n]).sum(axis=0) for n in group), numbers.array(0.0))
        for i, n in graph.outputs.items():
            dx[i].append(alive(values[n]))
        flowing = {
            s: np.where(_active(lengths, t, rows, flowing[s].ndim - 1), values[n], flowing[s])
            for s, n in graph.states.items()
        }
    stacked = {i: np.stack(d[::-1]) if d else numbers.array(np.zeros(np.shape(inputs[i]))) for i, d in dx.items()}
    return TrajectoryGradients(sums, stacked, flowing)


# --- once per sequence


def once(graph: Graph, params: Arrays, sizes: Mapping[str, int], numbers: Numbers = FLOAT64) -> dict[str, Array]:
    """The values [...] that the `once` graph of a Split makes of the parameters: the step reads
    them beside the parameters."""
    values = evaluate(graph, Step({}, {}, params, {}, 0), numbers, sizes)
    return {name: values[node][0] for name, node in graph.outputs.items()}


def once_gradients(
    reverse: Graph,
    params: Arrays,
    gradients: Arrays,
    sizes: Mapping[str, int],
    numbers: Numbers = FLOAT64,
    along: Arrays | None = None,
) -> dict[str, Array]:
    """What the gradients of those values, summed over batch and time by the step, add to the
    gradients of the parameters that they depend on.

    reverse: the adjoint of the `once` graph; params: [...]; gradients: [...], by the names of those
    values; sizes: the value of every size; numbers: what the arithmetic is done in. along: the
    directions of these gradients, for the tangent of that adjoint; then params has directions too.
    """
    given = {gradient_of(name): numbers.array(gradient)[None] for name, gradient in gradients.items()}
    given |= {tangent_of(gradient_of(name)): numbers.array(d)[None] for name, d in (along or {}).items()}
    values = evaluate(reverse, Step(given, {}, params, {}, 0), numbers, sizes, left_out(reverse))
    wholes = dict.fromkeys(reverse.pieces[p].parameter if p in reverse.pieces else p for p in reverse.sums)
    sums = {p: numbers.array(np.zeros(np.shape(params[p]))) for p in wholes}
    for p, group in reverse.sums.items():
        piece = reverse.pieces.get(p)
        total = view(sums[piece.parameter if piece else p], piece, sizes)
        total += sum((values[n][0] for n in group), numbers.array(0.0))
    return sums
