"""Runs Graphs in NumPy: the definition that every other backend is tested against.

In: a Graph, arrays of one kind of number (float64, complex128 for complex steps, mpmath for any
precision). Out: the values of every step. Slow and plain on purpose: one step at a time, one node
at a time, nothing saved or hoisted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import sympy
from numpy import ndarray as Array

from rnnspec.language.functions import FUNCTIONS, PRIMITIVES
from rnnspec.language.sizes import evaluate_size, full_shape
from rnnspec.language.slices import Piece
from rnnspec.symbolic.adjoint import gradient_of
from rnnspec.symbolic.expressions import expand_row, names
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

Arrays = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Numbers:
    """A kind of number: its NumPy dtype, how a rational constant is made, the primitives of the
    function table, and how a value that was computed is rounded (None: as NumPy does)."""

    dtype: Any
    constant: Callable[[sympy.Rational], Any]
    primitives: Mapping[str, Callable[[Any], Any]]
    rounded: Callable[[Array], Array] | None = None

    def array(self, value: object) -> Array:
        """The values as an array of this kind of number; mpmath numbers are made from float64
        exactly."""
        if self.dtype is object:
            import mpmath

            made = np.frompyfunc(lambda v: v if isinstance(v, mpmath.mpf) else mpmath.mpf(float(v)), 1, 1)(
                np.asarray(value, dtype=object)
            )
            return np.asarray(made, dtype=object)  # of one number NumPy makes no array
        return np.asarray(value, dtype=self.dtype)


def _sigmoid(v: Array) -> Array:
    e = np.exp(np.where(v.real < 0, v, -v))
    return np.where(v.real < 0, e, 1) / (1 + e)


def _erf(v: Array) -> Array:
    real = np.array([math.erf(a) for a in v.real.ravel()]).reshape(v.shape)
    return real if not np.iscomplexobj(v) else real + 1j * v.imag * (2 / math.sqrt(math.pi)) * np.exp(-(v.real**2))


_OWN = {"sigmoid": _sigmoid, "erf": _erf}  # NumPy has neither
_NUMPY: dict[str, Callable[[Any], Any]] = {name: _OWN.get(name) or getattr(np, name) for name in PRIMITIVES}

FLOAT64 = Numbers(np.float64, float, _NUMPY)
COMPLEX128 = Numbers(np.complex128, float, _NUMPY)


def rounded_at_random(unit: float, seed: int) -> Numbers:
    """float64 of which every computed value is off by a random part of it, up to `unit`: Monte
    Carlo arithmetic (Parker 1997), which shows what rounding to numbers of that unit does to a
    result."""
    rng = np.random.default_rng(seed)
    return replace(FLOAT64, rounded=lambda v: v * (1 + unit * rng.uniform(-1, 1, v.shape)))


@lru_cache(maxsize=1)
def mpmath_numbers() -> Numbers:
    """Numbers of mpmath, at whatever precision is set when they are used (`with mpmath.workdps(50):
    ...`)."""
    import mpmath

    own = {"sigmoid": lambda v: 1 / (1 + mpmath.exp(-v)), "log1p": lambda v: mpmath.log(1 + v)}  # not in every mpmath
    functions = {name: _elementwise(getattr(mpmath, name, None) or own[name]) for name in PRIMITIVES}
    return Numbers(object, lambda q: mpmath.mpf(int(q.p)) / int(q.q), functions)


def _elementwise(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def real(v: Any) -> Any:
        import mpmath

        result = function(v)
        return mpmath.nan if isinstance(result, mpmath.mpc) else result

    return np.frompyfunc(real, 1, 1)


# --- expressions

_CONDITIONS: Mapping[str, Callable[..., Any]] = {
    "less": np.less,
    "less_equal": np.less_equal,
    "equal": np.equal,
    "unequal": np.not_equal,
    "both": np.logical_and,
    "either": np.logical_or,
    "opposite": np.logical_not,
}


@lru_cache(maxsize=4096)
def _compiled(expr: Any, numbers: Any) -> Callable[[Arrays], Any]:
    """The expression as a function of its nodes' arrays."""
    if expr.is_Symbol:
        name = expr.name
        return lambda values: values[name]
    if expr.is_Number:
        constant = numbers.constant(expr)
        return lambda values: constant
    parts = [_compiled(a, numbers) for a in expr.args]
    if expr.is_Add:
        return lambda values: sum((p(values) for p in parts[1:]), parts[0](values))
    if expr.is_Mul:
        return lambda values: math.prod((p(values) for p in parts[1:]), start=parts[0](values))
    if expr.is_Pow:
        return _power(expr, parts[0], numbers)
    if isinstance(expr, sympy.Abs):
        return lambda values: _select(_real(parts[0](values)) < 0, -parts[0](values), parts[0](values))
    name = type(expr).__name__
    if name in _CONDITIONS:
        condition = _CONDITIONS[name]
        return lambda values: condition(*(_real(p(values)) for p in parts)).astype(bool)
    if name == "select":
        return lambda values: _select(*(p(values) for p in parts))
    row = FUNCTIONS[name]
    if row.primitive:
        primitive = numbers.primitives[name]
        return lambda values: primitive(np.asarray(parts[0](values)) + numbers.array(0))
    return _compiled(expand_row(row, expr.args), numbers)


def _power(expr: Any, base: Callable[[Arrays], Any], numbers: Numbers) -> Callable[[Arrays], Any]:
    exponent = expr.exp
    if exponent.is_Integer:
        n = int(exponent)
        return (lambda values: base(values) ** n) if n > 0 else (lambda values: 1 / base(values) ** -n)
    if exponent in (sympy.Rational(1, 2), sympy.Rational(-1, 2)):
        root = numbers.primitives["sqrt"]
        return (lambda values: root(base(values))) if exponent > 0 else (lambda values: 1 / root(base(values)))
    power, exp, log = numbers.constant(exponent), numbers.primitives["exp"], numbers.primitives["log"]
    return lambda values: exp(power * log(base(values)))


def _real(value: Any) -> Any:
    return value.real if np.iscomplexobj(value) else np.asarray(value)


def _select(condition: Any, a: Any, b: Any) -> Any:
    return np.where(condition, a, b)


# --- one step


@dataclass(frozen=True)
class Step:
    """What one step reads, by kind: arrays [B, ...] for inputs, states and history, [...] for
    parameters."""

    inputs: Arrays
    states: Arrays
    parameters: Arrays
    history: Arrays
    number: int


def evaluate(graph: Graph, step: Step, numbers: Numbers, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Every node's value [B or 1, ...]."""
    run = _Evaluation(graph, step, numbers, sizes)
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
    values: dict[str, Array] = field(default_factory=dict)

    def node(self, name: str, node: Node) -> Array:
        values, numbers, sizes = self.values, self.numbers, self.sizes
        match node:
            case Read():
                return self.read(node)
            case Pointwise(expr):
                return self.pointwise(name, expr)
            case Product(matrix, vector, transposed):
                m, v = values[matrix], values[vector]
                return _times(np.swapaxes(m, 1, 2) if transposed else m, v, numbers)
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
                return values[left][:, :, None] * values[right][:, None, :]
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
                return numbers.array([step.number])
        return numbers.array({"input": step.inputs, "state": step.states, "history": step.history}[read.kind][source])

    def pointwise(self, name: str, expr: Any) -> Array:
        shape, numbers = self.graph.shapes[name], self.numbers
        args = {}
        for n in names(expr):  # single numbers go with every element
            value = self.values[n]
            args[n] = value.reshape(value.shape + (1,) * (len(shape) - len(self.graph.shapes[n])))
        result = np.asarray(_compiled(expr, numbers)(args), dtype=numbers.dtype)
        return np.broadcast_to(result, np.broadcast_shapes(result.shape, (1, *full_shape(shape, self.sizes))))


def _flat(value: Array) -> Array:
    return value.reshape(len(value), math.prod(value.shape[1:]))


def _times(matrix: Array, vector: Array, numbers: Numbers) -> Array:
    """matrix [1 or B, M, K] @ vector [1 or B, K] -> [B, M], or @ matrix [1 or B, K, N] -> [B, M,
    N]."""
    right = vector[:, :, None] if vector.ndim == 2 else vector
    if numbers.dtype is object and matrix.shape[2] == 0:
        product = numbers.array(np.zeros((max(len(matrix), len(vector)), matrix.shape[1], right.shape[2])))
    else:
        product = np.matmul(matrix, right)
    return product[:, :, 0] if vector.ndim == 2 else product


def view(whole: Array, piece: Piece | None, sizes: Mapping[str, int]) -> Array:
    """The piece of a parameter's array, or all of it."""
    return whole if piece is None else piece.of(whole, sizes)


# --- a sequence


@dataclass(frozen=True)
class Trajectory:
    """A sequence that was run. values: node -> [T, B, ...], zero where a row had ended; before:
    state -> [T, B, ...], the value before each step; outputs and states as values; final: state ->
    [B, ...]."""

    outputs: dict[str, Array]
    states: dict[str, Array]
    before: dict[str, Array]
    final: dict[str, Array]
    values: dict[str, Array]


@dataclass(frozen=True)
class Gradients:
    params: dict[str, Array]
    inputs: dict[str, Array]
    states: dict[str, Array]


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
) -> Trajectory:
    """Runs the forward graph over a sequence.

    params: [...]; inputs: [T, B, ...]; states: [B, ...], zero where left out; lengths: [B] steps
    that each row takes. Past a row's end its state stays and its outputs are zero.
    """
    steps, rows = next(iter(inputs.values())).shape[:2]
    state = {
        s: numbers.array((states or {}).get(s, np.zeros((rows, *full_shape(graph.shapes[n], sizes)))))
        for s, n in graph.states.items()
    }
    parameters = set(graph.reads("parameter").values())
    kept: dict[str, list[Array]] = {n: [] for n in graph.nodes if n not in parameters}
    before: dict[str, list[Array]] = {s: [] for s in state}
    for t in range(steps):
        now = {name: x[t] for name, x in inputs.items()}
        values = evaluate(graph, Step(now, state, params, {}, t), numbers, sizes)
        for s in state:
            before[s].append(state[s])
        for n, history in kept.items():
            value = np.broadcast_to(values[n], (rows, *values[n].shape[1:]))
            history.append(np.where(_active(lengths, t, rows, value.ndim - 1), value, numbers.array(0.0)))
        state = {
            s: np.where(_active(lengths, t, rows, state[s].ndim - 1), values[n], state[s])
            for s, n in graph.states.items()
        }

    def stack(name: str, history: list[Array]) -> Array:
        return (
            np.stack(history) if history else numbers.array(np.zeros((0, rows, *full_shape(graph.shapes[name], sizes))))
        )

    values = {n: stack(n, h) for n, h in kept.items()}
    earlier = {s: stack(graph.states[s], h) for s, h in before.items()}
    return Trajectory(
        {o: values[n] for o, n in graph.outputs.items()},
        {s: values[n] for s, n in graph.states.items()},
        earlier,
        state,
        values,
    )


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
) -> Gradients:
    """Runs the adjoint graph from the last step to the first.

    outputs: gradients [T, B, ...] of the forward's outputs; final: gradients [B, ...] of its final
    states; zero where left out.
    """
    steps, rows = next(iter(inputs.values())).shape[:2]
    flowing = {
        s: numbers.array((final or {}).get(s, np.zeros((rows, *full_shape(graph.shapes[n], sizes)))))
        for s, n in graph.states.items()
    }
    sums = {p: numbers.array(np.zeros(np.shape(params[p]))) for p in params}
    dx: dict[str, list[Array]] = {i: [] for i in graph.outputs}
    gradients = {
        gradient_of(o): outputs[o] if o in outputs else np.zeros_like(value) for o, value in run.outputs.items()
    }
    for t in reversed(range(steps)):
        now = {name: x[t] for name, x in inputs.items()} | {o: g[t] for o, g in gradients.items()}
        history = {s: h[t] for s, h in run.before.items()}
        values = evaluate(graph, Step(now, flowing, params, history, t), numbers, sizes)

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
    return Gradients(sums, stacked, flowing)


# --- once per sequence


def once(graph: Graph, params: Arrays, sizes: Mapping[str, int], numbers: Numbers = FLOAT64) -> dict[str, Array]:
    """The values [...] that the `once` graph of a Split makes of the parameters: the step reads
    them beside the parameters."""
    values = evaluate(graph, Step({}, {}, params, {}, 0), numbers, sizes)
    return {name: values[node][0] for name, node in graph.outputs.items()}


def once_gradients(
    reverse: Graph, params: Arrays, gradients: Arrays, sizes: Mapping[str, int], numbers: Numbers = FLOAT64
) -> dict[str, Array]:
    """What the gradients of those values, summed over batch and time by the step, add to the
    gradients of the parameters that they depend on.

    reverse: the adjoint of the `once` graph.
    """
    given = {gradient_of(name): numbers.array(gradient)[None] for name, gradient in gradients.items()}
    values = evaluate(reverse, Step(given, {}, params, {}, 0), numbers, sizes)
    wholes = dict.fromkeys(reverse.pieces[p].parameter if p in reverse.pieces else p for p in reverse.sums)
    sums = {p: numbers.array(np.zeros(np.shape(params[p]))) for p in wholes}
    for p, group in reverse.sums.items():
        piece = reverse.pieces.get(p)
        total = view(sums[piece.parameter if piece else p], piece, sizes)
        total += sum((values[n][0] for n in group), numbers.array(0.0))
    return sums
