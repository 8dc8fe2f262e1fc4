"""Sizes, and arrays of those sizes, that the properties are checked at. Everything is drawn from a
seed.

Sizes are awkward on purpose: 1, one less and one more than a vector register holds, primes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import reference
from rnnspec.backends.brief import brief_repr
from rnnspec.errors import RnnspecError
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.sizes import evaluate_size, full_shape, size_names, sizes_in
from rnnspec.language.spec import Shape, Spec
from rnnspec.language.syntax.tree import fresh
from rnnspec.symbolic.derive import varying
from rnnspec.symbolic.expressions import FUNCTION_CLASSES, expand_row, names
from rnnspec.symbolic.graph import Graph, Node, Pointwise
from rnnspec.symbolic.operations import Condition, Value, subtract

ATTEMPTS = 40


class NoSampleError(RnnspecError):
    """No point was found at which the property can be checked."""


class UndecidedError(NoSampleError):
    """Rounding alone does as much as what was found at this point: another one must tell."""


@dataclass(frozen=True)
class Case:
    """All arrays of one run: params [...], inputs [T, B, ...], states [B, ...], lengths [B] or
    None, and the gradients that come from outside: d_outputs [T, B, ...], d_final [B, ...]."""

    sizes: Mapping[str, int]
    steps: int
    rows: int
    params: dict[str, Array]
    inputs: dict[str, Array]
    states: dict[str, Array]
    lengths: Array | None
    d_outputs: dict[str, Array]
    d_final: dict[str, Array]

    __repr__ = brief_repr

    @property
    def lead(self) -> tuple[int, int]:
        """(T, B), which a cell without inputs is to be told."""
        return self.steps, self.rows

    @property
    def extent(self) -> dict[str, Any]:
        """The same, as the arguments of a kernel's calls."""
        return {"steps": self.steps, "rows": self.rows}

    def map(self, function: Any) -> Case:
        """The case with `function(array)` in place of every array of numbers."""
        groups = ("params", "inputs", "states", "d_outputs", "d_final")
        changed: dict[str, Any] = {g: {n: np.asarray(function(a)) for n, a in getattr(self, g).items()} for g in groups}
        return replace(self, **changed)

    def about(self) -> str:
        sizes = ", ".join(f"{n} = {v}" for n, v in {"T": self.steps, "B": self.rows, **self.sizes}.items())
        return sizes + (", ragged" if self.lengths is not None else "")


@dataclass(frozen=True)
class Shapes:
    """steps, rows and the values that the size names of a cell take, in turn or by name. number: of
    several points of one property; another number is another draw. again: how many draws before it
    told nothing."""

    steps: int
    rows: int
    sizes: Sequence[int] | Mapping[str, int]
    ragged: bool = False
    number: int = 0
    again: int = 0


def awkward(lanes: int) -> tuple[Shapes, ...]:
    """The sizes at which kernels are compared with the reference."""
    return (
        Shapes(1, 1, (1,)),
        Shapes(5, lanes - 1, (lanes + 1, lanes - 1, 3)),
        Shapes(4, 3, (1, lanes + 1, 2)),
        Shapes(3, lanes + 1, (13, 1, 5)),
        Shapes(7, 5, (lanes - 1, 2 * lanes + 3, 7), ragged=True),
    )


def size_values(spec: Spec, values: Sequence[int] | Mapping[str, int]) -> dict[str, int]:
    """A value for every size of a cell: `values` by name or in turn, but for sizes that are
    constants."""
    found: dict[str, int] = {}
    for name in sizes_in(spec.shapes.values()):
        default = spec.sizes[name].default if name in spec.sizes else None
        fixed = default is not None and not size_names(default)
        chosen = values[name] if isinstance(values, Mapping) else values[len(found) % len(values)]
        found[name] = evaluate_size(default, {}) if fixed and default is not None else chosen
    return found


def draw(
    spec: Spec,
    graph: Graph,
    shapes: Shapes,
    seed: int,
    dtype: str = "float64",
    margin: float = 0.0,
    gain: float = 1.0,
) -> Case:
    """A case whose values are finite and whose comparisons are all decided by more than `margin`.
    spec, graph: the cell, and its forward graph; shapes: of the case; seed: of what is drawn;
    dtype: of the arrays; gain: of parameters and states. Raises NoSampleError if no draw is such a
    case."""
    checked = switches(graph, spec.no_gradient) if margin else None
    reason = "its values are not finite"
    drawn_before = [shapes.again] if shapes.again else []
    for attempt in range(ATTEMPTS):
        rng = np.random.default_rng([seed, attempt, *drawn_before])
        case = _draw(spec, graph, shapes, rng, positive=attempt % 4 == 3)
        if gain != 1.0:
            params, states = ({n: a * gain for n, a in group.items()} for group in (case.params, case.states))
            case = replace(case, params=params, states=states)
        case = case.map(lambda a: a.astype(dtype))
        probed = checked or graph
        given = (case.params, case.inputs, case.states, case.lengths)
        run = reference.forward(probed, *given, sizes=case.sizes, lead=case.lead)
        if not all(np.isfinite(a).all() for a in (*run.outputs.values(), *run.final.values())):
            continue
        if checked is None or all((gap > margin).all() for gap in decided_by(run, graph, case)):
            return case
        reason = f"a comparison always lies within {margin:g} of where it changes sides"
    raise NoSampleError(f"no point found in {ATTEMPTS} draws: {reason}")


def _draw(spec: Spec, graph: Graph, shapes: Shapes, rng: np.random.Generator, positive: bool) -> Case:
    sizes = size_values(spec, shapes.sizes)
    lead = (shapes.steps, shapes.rows)

    def values(before: tuple[int, ...], shape: Shape, scale: float = 1.0) -> Array:
        full = full_shape(shape, sizes)
        return np.asarray(rng.uniform(0.1 if positive else -1.0, 1.0, before + full) * scale)

    def weights(shape: Shape) -> Array:
        fan_in = evaluate_size(shape[-1], sizes) if len(shape) > 1 else 4
        return values((), shape, 1 / np.sqrt(max(1, fan_in)))

    # noise too: a cell is a function of it, and numbers that are never drawn tell more of that
    # function than zeros and ones
    states = {s: graph.shapes[n] for s, n in graph.states.items()}
    outputs = {o: graph.shapes[n] for o, n in graph.outputs.items()}
    return Case(
        sizes,
        *lead,
        params={n: weights(s) for n, s in spec.parameters.items()},
        inputs={n: values(lead, s) for n, s in spec.inputs.items()},
        states={n: values(lead[1:], s, 0.5) for n, s in states.items()},
        lengths=_lengths(rng, *lead) if shapes.ragged else None,
        d_outputs={n: rng.uniform(-1, 1, a.shape) for n, a in ((n, values(lead, s)) for n, s in outputs.items())},
        d_final={n: rng.uniform(-1, 1, a.shape) for n, a in ((n, values(lead[1:], s)) for n, s in states.items())},
    )


def _lengths(rng: np.random.Generator, steps: int, rows: int) -> Array:
    """One row takes no step, one takes all."""
    lengths = rng.integers(0, steps + 1, rows)
    lengths[0] = steps
    if rows > 1:
        lengths[rows // 2] = 0
    return lengths


# --- kinks ---


def switches(graph: Graph, constant_inputs: tuple[str, ...] = ()) -> Graph | None:
    """The graph with one more node for each comparison: the difference of its sides. None if
    nothing is compared that can vary."""
    active = varying(graph, constant_inputs)
    nodes: dict[str, Node] = dict(graph.nodes)
    shapes = dict(graph.shapes)
    for name, node in graph.nodes.items():
        for gap in gaps(node):
            if set(names(gap)) & active:
                own = fresh("switch", shapes)
                nodes[own], shapes[own] = Pointwise(gap), shapes[name]
    return replace(graph, nodes=nodes, shapes=shapes) if len(nodes) > len(graph.nodes) else None


def gaps(node: Node) -> list[Value]:
    """The differences that decide which side of a node's comparisons holds."""
    if not isinstance(node, Pointwise):
        return []
    found: dict[Value, None] = {}
    waiting = [node.expr]
    while waiting:
        expr = waiting.pop()
        if isinstance(expr, Condition) and len(expr.args) == 2 and not isinstance(expr.args[0], Condition):
            a, b = expr.args
            found[a if b == 0 else subtract(a, b)] = None
        waiting += expr.args
        if type(expr).__name__ in FUNCTION_CLASSES:
            row = FUNCTIONS[type(expr).__name__]
            waiting += [] if row.primitive or row.neutral else [expand_row(row, expr.args)]
    return list(found)


def decided_by(run: reference.Trajectory, graph: Graph, case: Case) -> Iterator[Array]:
    """By how much each comparison of every step that is taken is decided. run: of the graph with
    its `switches`; graph: without them."""
    taken = np.ones((case.steps, case.rows), bool)
    if case.lengths is not None:
        taken = np.arange(case.steps)[:, None] < case.lengths
    return (np.abs(gap[taken]) for name, gap in run.values.items() if name not in graph.nodes)
