"""Two cells side by side at many points, in real numbers of 50 digits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice, permutations, product
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.check.sampling import size_values
from rnnspec.compare.comparison import Difference
from rnnspec.compare.normal import Leaf
from rnnspec.compare.pair import Pair, Proof, one_to_one
from rnnspec.compare.points import Family, Points, by_rows, reads_step, run
from rnnspec.compare.reals import BeyondError, Reals, reals
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.rewrite import line
from rnnspec.language.sizes import full_shape, sizes_in, with_default_sizes
from rnnspec.language.slices import Piece
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.tree import Call, Number, Ref, walk

ORDERS = 24  # in which parameters of other names are tried
DIGITS, MORE_DIGITS = 50, 400  # a difference that is none with more digits was rounding
# Numbers that the equations fold, like sqrt(2), are rounded to float64; at large ones more is lost.
ROUNDED, ROUNDED_LARGE, LARGE = 1e-14, 1e-6, 8.0
FEW = ((2, 3, 1), (1, 2, 2))  # sizes at which a guess is tried


def family(pair: Pair, sizes: tuple[int, ...], seed: int) -> Family:
    """What draws points for both cells, by the names of a."""
    shapes = {"inputs": pair.declared["input"][0], "states": pair.declared["state"][0], "params": pair.a.parameters}
    counts = reads_step(pair.graph_a) or reads_step(pair.graph_b)
    return Family(shapes, _all_sizes(pair.a, size_values(pair.a, sizes)), counts, seed)


def agree_where_tried(pair: Pair, proof: Proof) -> bool:
    """Whether both give one value at a few points: enough to drop a wrong guess, and no proof."""
    few = (family(pair, sizes, seed).moderate(4) for seed, sizes in enumerate(FEW))
    return not any(differing(pair, points, proof).rows for points in few)


# --- parameters


def unmatched_parameters(pair: Pair, proof: Proof) -> tuple[list[str], list[str]]:
    """The parameters of each that nothing in the other stands for."""
    matched_a, matched_b = set(pair.shared), set(pair.shared)
    for match in proof.matches:
        matched_a |= {leaf.parameter for leaf in match.a}
        matched_b |= {leaf.parameter for leaf in match.b}
    return [n for n in pair.a.parameters if n not in matched_a], [n for n in pair.b.parameters if n not in matched_b]


def match_the_rest(pair: Pair, proof: Proof) -> Proof:
    """The matches with the parameters that are left matched too: in the first order, of those with
    fitting shapes, in which both give one value. The same matches where there is none."""
    rest_a, rest_b = unmatched_parameters(pair, proof)
    shapes = [pair.a.parameters[n] for n in rest_a]
    if len(rest_a) != len(rest_b) or not rest_a:
        return proof
    fitting = (o for o in permutations(rest_b) if [pair.b.parameters[n] for n in o] == shapes)
    for order, sign in product(islice(fitting, ORDERS) if len(rest_b) <= 8 else (), (1, -1)):
        guess = replace(proof, matches=(*proof.matches, *one_to_one(zip(rest_a, order), sign)))
        if agree_where_tried(pair, guess):
            return guess
    return proof


def gate_to_negate(pair: Pair) -> Proof | None:
    """The parameters of a gate with whose signs changed both seem the same: 1 - sigmoid(v) is
    sigmoid(-v)."""
    for e in pair.a.equations:
        row = FUNCTIONS.get(e.value.function) if isinstance(e.value, Call) else None
        if row is None or row.mirror != 1:
            continue
        names = sorted({n.name for n in walk(e.value) if isinstance(n, Ref)} & set(pair.shared))
        negated = Proof(False, one_to_one(zip(names, names), -1))
        if names and not any(unmatched_parameters(pair, negated)) and agree_where_tried(pair, negated):
            return negated
    return None


def _parameters_of_both(
    pair: Pair, points: Points, proof: Proof, seed: int | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters [B, ...] of a, and of b those that the matches tell. What has no counterpart
    is 0, or random where a seed is given."""
    sizes, rng = _all_sizes(pair.b, points.sizes), np.random.default_rng(seed)
    rest_a, rest_b = unmatched_parameters(pair, proof)
    exact = any(v.dtype == object for v in points.params.values())
    a = {n: np.zeros_like(v) if n in rest_a and seed is None else v for n, v in points.params.items()}
    b: dict[str, Any] = {}
    for n, shape in pair.b.parameters.items():
        full = full_shape(shape, sizes)
        drawn = np.round(rng.uniform(-1, 1, full), 2) if n in rest_b and seed is not None else np.zeros(full)
        b[n] = np.repeat(drawn[None].astype(object if exact else np.float64), len(points), axis=0)
    b |= {n: a[n].copy() for n in pair.shared}
    for left, right, sign in proof.matches:
        total = sign * sum(_view(a[leaf.parameter], leaf, sizes) for leaf in left)
        for leaf in right:
            _view(b[leaf.parameter], leaf, sizes)[...] = total if leaf is right[0] else 0.0
    for left, right, _ in proof.matches:  # one of several of a shared name stays what it is
        if len(right) > 1 and len(left) > 1:
            for leaf in right:
                _view(b[leaf.parameter], leaf, sizes)[...] = next(
                    (_view(a[o.parameter], o, sizes) for o in left if o == replace(leaf, side="a")), 0.0
                )
    return a, b


def _view(array: Any, leaf: Leaf, sizes: Mapping[str, int]) -> Any:
    """A view [..., B] of the piece of a parameter's array [B, ...] that a leaf is; it may be cut
    along several axes."""
    view = Piece(leaf.parameter, leaf.index).of(np.moveaxis(array, 0, -1), sizes)
    for axis, cut in enumerate(leaf.cuts):
        view = Piece(leaf.parameter, None, axis, *cut).of(view, sizes) if cut else view
    return view


def _all_sizes(spec: Spec, known: Mapping[str, int]) -> dict[str, int]:
    """Every size of a cell, 2 where nothing tells it."""
    sizes = with_default_sizes(spec.sizes, known)
    return dict.fromkeys(sorted(sizes_in(spec.shapes.values()) - set(sizes)), 2) | sizes


# --- both cells at points


@dataclass(frozen=True)
class Both:
    """The points of either cell, by its own names, and its values [B or 1, ...] by node."""

    points_a: Points
    points_b: Points
    values_a: Mapping[str, Array]
    values_b: Mapping[str, Array]


@dataclass(frozen=True)
class Differing:
    """rows: the points at which both differ, and where; largest: the largest difference of all;
    told: how many points both could be worked out at, with a number from one of them at least."""

    rows: tuple[Points, ...] = ()
    largest: float = 0.0
    told: int = 0


def of_both(pair: Pair, points: Points, proof: Proof, seed: int | None) -> tuple[Points, Points]:
    """The points, which have the names of a, as each of both cells names them."""
    params_a, params_b = _parameters_of_both(pair, points, proof, seed)
    return replace(points, params=params_a), Points(
        sizes=_all_sizes(pair.b, points.sizes),
        steps=points.steps,
        inputs={n: points.inputs[m] for n, m in pair.roles["input"].items()},
        states={n: points.states[m] for n, m in pair.roles["state"].items()},
        params=params_b,
    )


def both_at(pair: Pair, points: Points, proof: Proof, numbers: Reals, seed: int | None = None) -> Both:
    """One step of both cells at points, which have the names of a. Raises BeyondError."""
    a, b = of_both(pair, points, proof, seed)
    values = [run(g, by_rows(g), own, numbers) for g, own in ((pair.graph_a, a), (pair.graph_b, b))]
    return Both(a, b, *values)


def differing(pair: Pair, points: Points, proof: Proof, seed: int | None = None) -> Differing:
    """The first point at which both cells differ, and how far they do at most. What differs is
    looked at again with 400 digits. seed: of parameters without a counterpart, which are 0 where it
    is None."""
    try:
        both = both_at(pair, points, proof, reals(DIGITS), seed)
    except BeyondError:  # of some row: the others are looked at all the same
        if len(points) == 1:
            return Differing()
        half = len(points) // 2
        parts = [differing(pair, points.take(rows), proof, seed) for rows in (slice(None, half), slice(half, None))]
        rows = tuple(row for part in parts for row in part.rows)
        return Differing(rows[:1], max(p.largest for p in parts), sum(p.told for p in parts))
    errors, told = _errors(pair, both, points)
    allowed = _allowed(points)
    for row in np.flatnonzero(errors > allowed):
        one = points.take([row])
        again, _ = _errors(pair, both_at(pair, one, proof, reals(MORE_DIGITS), seed), one)
        if again[0] > allowed[row]:
            return Differing((one,), float(again[0]), told)
        errors[row] = again[0]
    return Differing((), float(errors.max(initial=0.0)), told)


def _allowed(points: Points) -> Array:
    """For each row, up to which difference both are one value."""
    return np.where(points.magnitudes()[1] <= LARGE, ROUNDED, ROUNDED_LARGE)


def _errors(pair: Pair, both: Both, points: Points) -> tuple[Array, int]:
    """The largest difference of each row, and how many rows tell anything."""
    errors, told = np.zeros(len(points)), np.zeros(len(points), bool)
    least = points.magnitudes()[0]
    for a, b in pair.results():
        left, right = _rows(both.values_a[a], len(points)), _rows(both.values_b[b], len(points))
        for row in range(len(points)):
            error, known = _distance(left[row], right[row], float(least[row]))
            errors[row], told[row] = max(errors[row], error), told[row] or known
    return errors, int(told.sum())


def _rows(value: Array, rows: int) -> Array:
    return np.broadcast_to(value, (rows, *value.shape[1:]))


def _distance(a: Any, b: Any, least: float) -> tuple[float, bool]:
    """The largest difference, beside the larger of two values and `least`; infinite where only one
    of them is a number. And whether any is one."""
    worst, told = 0.0, False
    for x, y in zip(np.ravel(a), np.ravel(b)):
        finite_x, finite_y = x - x == 0, y - y == 0
        told = told or finite_x or finite_y
        if x == y or not (finite_x or finite_y):
            continue
        worst = max(worst, float(abs(x - y) / max(least, abs(x), abs(y))) if finite_x and finite_y else float("inf"))
    return worst, told


# --- the difference that is shown


def difference_at(pair: Pair, one: Points, proof: Proof, seed: int | None, swapped: bool) -> Difference:
    """What differs first at one point. swapped: b of the pair is what the caller calls a."""
    both = both_at(pair, one, proof, reals(MORE_DIGITS), seed)
    least, allowed = float(one.magnitudes()[0][0]), float(_allowed(one)[0])

    def differ(a: str, b: str) -> bool:
        left, right = _value(pair.a, both.values_a, a), _value(pair.b, both.values_b, b)
        if left is None or right is None:
            return False
        if a not in both.values_a or b not in both.values_b:  # a number is one for every unit
            left, right = np.broadcast_arrays(left, right)
        return np.shape(left) != np.shape(right) or _distance(left, right, least)[0] > allowed

    sides = [(pair.a, pair.graph_a, both.points_a, both.values_a), (pair.b, pair.graph_b, both.points_b, both.values_b)]
    results = [(kind, (ours, theirs)) for kind in ("output", "state") for theirs, ours in pair.roles[kind].items()]
    kind, found = next(
        (kind, names)
        for kind, names in results
        if differ(*(_node(g, kind, n) for (_, g, _, _), n in zip(sides, names)))
    )
    texts, equations = _equation(pair, both, found, differ)
    nodes = [_node(graph, kind, name) for (_, graph, _, _), name in zip(sides, found)]
    values = [_plain(vs[node][0]) for (_, _, _, vs), node in zip(sides, nodes)]
    own, other = (1, 0) if swapped else (0, 1)
    points, others = sides[own][2], sides[other][2]
    return Difference(
        kind=kind,
        name=found[own],
        step=int(one.steps[0]),
        a=values[own],
        b=values[other],
        sizes=dict(points.sizes),
        inputs={n: _plain(v[None]) for n, v in points.inputs.items()},
        states=_plains(points.states),
        parameters={n: _plain(v[0]) for n, v in (others.params | points.params).items()},
        equation=equations[own],
        text_a=texts[own],
        text_b=texts[other],
    )


def _value(spec: Spec, values: Mapping[str, Array], name: str) -> Array | None:
    """A value of the first row, None where it has none. A number, like `f[t] = 1`, goes into the
    equations that read it and is no node of a graph."""
    if name in values:
        return np.asarray(values[name][0])
    number = next((e.value for e in spec.equations if e.target == name), None)
    return reals(MORE_DIGITS).array(number.value) if isinstance(number, Number) else None


def _node(graph: Any, kind: str, name: str) -> str:
    return str((graph.outputs if kind == "output" else graph.states)[name])


def _equation(pair: Pair, both: Both, found: tuple[str, str], differ: Any) -> tuple[tuple[str, str], tuple[str, str]]:
    """The first equation, in the order in which a is computed, whose value differs: the texts and
    the names that it has in a and b."""
    theirs = {e.target: e for e in pair.b.equations}
    roles = {m: n for n, m in pair.roles["state"].items()}
    for e in pair.a.equations:
        other = theirs.get(roles.get(e.target, e.target))
        if other and differ(e.target, other.target):
            return (line(e), line(other)), (e.target, other.target)
    ours, last = {e.target: e for e in pair.a.equations}.get(found[0]), theirs.get(found[1])
    return ((line(ours), line(last)), found) if ours and last else (("", ""), ("", ""))


def _plain(array: Any) -> Any:
    return np.asarray(array).astype(np.float64).tolist()


def _plains(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {n: _plain(v) for n, v in arrays.items()}
