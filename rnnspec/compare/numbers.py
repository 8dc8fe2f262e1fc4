"""Two cells run side by side in the reference, with numbers of 50 digits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice, permutations, product
from typing import Any

import numpy as np

from rnnspec.backends import numbers, reference
from rnnspec.check.sampling import Case, NoSampleError, Shapes, draw
from rnnspec.compare.comparison import Difference
from rnnspec.compare.normal import Leaf
from rnnspec.compare.pair import Pair, Proof, one_to_one
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.rewrite import line
from rnnspec.language.sizes import full_shape, sizes_in, with_default_sizes
from rnnspec.language.slices import Piece
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.tree import Call, Ref, walk

SIZES = ((1, 1, 1), (2, 2, 2), (2, 3, 1), (3, 2, 4))
SCALES = (1.0, 1.0, 4.0)  # of the numbers drawn, at each of the sizes: a cell that spikes does so at large ones
STEPS = 2
ORDERS = 24  # in which parameters of other names are tried
DIGITS = 50
EXACT, ROUNDED = 1e-30, 1e-14  # numbers that the equations fold, like sqrt(2), are rounded to float64


def agree_where_tried(pair: Pair, proof: Proof) -> bool:
    """Whether both give one value at a few points: pieces of parameters that were matched may
    overlap."""
    for seed, sizes in enumerate(((2, 3, 1), (1, 2, 2))):
        try:
            case = point(pair, sizes, seed)
        except NoSampleError:
            continue
        if not compare_at(pair, case, proof, numbers.FLOAT64)[0] < 1e-9:
            return False
    return True


def point(pair: Pair, sizes: tuple[int, ...], seed: int, scale: float = 1.0) -> Case:
    """A case of numbers of few digits, if the values of a are finite there."""
    case = draw(pair.a, pair.graph_a, Shapes(STEPS, 1, sizes), seed)
    short = case.map(lambda a: np.round(scale * a, 2))
    run = reference.forward(pair.graph_a, short.params, short.inputs, short.states, sizes=short.sizes, lead=short.lead)
    return short if all(np.isfinite(v).all() for v in (*run.outputs.values(), *run.final.values())) else case


def unmatched_parameters(pair: Pair, proof: Proof) -> tuple[list[str], list[str]]:
    """The parameters of each that nothing in the other stands for."""
    matched_a, matched_b = set(pair.shared), set(pair.shared)
    for match in proof.matches:
        matched_a |= {leaf.parameter for leaf in match.a}
        matched_b |= {leaf.parameter for leaf in match.b}
    return [n for n in pair.a.parameters if n not in matched_a], [n for n in pair.b.parameters if n not in matched_b]


def match_the_rest(pair: Pair, proof: Proof) -> Proof:
    """The proof with the parameters that are left matched too: in the first order, of those with
    fitting shapes, in which both give one value. The same proof where there is none."""
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


def gate_to_negate(pair: Pair) -> str:
    """The parameters of a gate with whose signs changed both are the same, or nothing: 1 -
    sigmoid(v) is sigmoid(-v)."""
    for e in pair.a.equations:
        row = FUNCTIONS.get(e.value.function) if isinstance(e.value, Call) else None
        if row is None or row.mirror != 1:
            continue
        names = sorted({n.name for n in walk(e.value) if isinstance(n, Ref)} & set(pair.shared))
        negated = Proof(False, one_to_one(zip(names, names), -1))
        if names and not any(unmatched_parameters(pair, negated)) and agree_where_tried(pair, negated):
            return ", ".join(names)
    return ""


def _parameters_of_both(
    pair: Pair, case: Case, proof: Proof, seed: int | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of a, and of b those that the matches tell. What has no counterpart is 0, or
    random where a seed is given."""
    sizes, rng = _all_sizes(pair.b, case.sizes), np.random.default_rng(seed)
    full = {n: full_shape(shape, sizes) for n, shape in pair.b.parameters.items()}
    rest_a, rest_b = unmatched_parameters(pair, proof)
    a = {n: np.zeros_like(v) if n in rest_a and seed is None else v for n, v in case.params.items()}
    b: dict[str, Any] = {
        n: np.round(rng.uniform(-1, 1, s), 2) if n in rest_b and seed is not None else np.zeros(s)
        for n, s in full.items()
    }
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
    """A view of the piece of a parameter's array that a leaf is; it may be cut along several
    axes."""
    view = Piece(leaf.parameter, leaf.index).of(array, sizes)
    for axis, cut in enumerate(leaf.cuts):
        view = Piece(leaf.parameter, None, axis, *cut).of(view, sizes) if cut else view
    return view


def _all_sizes(spec: Spec, known: Mapping[str, int]) -> dict[str, int]:
    """Every size of a cell, 2 where nothing tells it."""
    sizes = with_default_sizes(spec.sizes, known)
    return dict.fromkeys(sorted(sizes_in(spec.shapes.values()) - set(sizes)), 2) | sizes


def compare_at(
    pair: Pair, case: Case, proof: Proof, numbers: numbers.Numbers, seed: int | None = None
) -> tuple[float, Difference | None]:
    """The largest difference of a run of both, beside the largest value, and the first value that
    differs.

    pair: both cells, a and b. case: the sizes, inputs, states and parameters, by the names of
    a. proof: which parameters of b are which of a. numbers: in which both run. seed: of parameters
    without a counterpart, which are 0 where it is None.
    """
    params_a, params_b = _parameters_of_both(pair, case, proof, seed)
    shared: dict[str, Any] = {"numbers": numbers, "lead": case.lead}
    run_a = reference.forward(pair.graph_a, params_a, case.inputs, case.states, sizes=case.sizes, **shared)
    inputs = {n: case.inputs[m] for n, m in pair.roles["input"].items()}
    states = {n: case.states[m] for n, m in pair.roles["state"].items()}
    sizes = _all_sizes(pair.b, case.sizes)
    run_b = reference.forward(pair.graph_b, params_b, inputs, states, sizes=sizes, **shared)
    largest, first = 0.0, None
    values = {"output": (run_a.outputs, run_b.outputs), "state": (run_a.states, run_b.states)}
    for step, (kind, (values_a, values_b)) in product(range(STEPS), values.items()):
        for theirs, ours in pair.roles[kind].items():
            a, b = values_a[ours][step, 0], values_b[theirs][step, 0]
            error = _distance(a, b)
            largest = max(largest, error)
            if error > ROUNDED and first is None:
                equation, text_a, text_b = _equation(pair, run_a, run_b, step, ours)
                first = Difference(
                    kind=kind,
                    name=ours,
                    step=step,
                    a=_plain(a),
                    b=_plain(b),
                    sizes=dict(case.sizes),
                    inputs=_plains(case.inputs),
                    states=_plains(case.states),
                    parameters=_plains(params_a | {n: v for n, v in params_b.items() if n not in params_a}),
                    equation=equation,
                    text_a=text_a,
                    text_b=text_b,
                )
    return largest, first


def _distance(a: Any, b: Any) -> float:
    """The largest difference, beside 1 or the value; infinite where only one of two values is a
    number."""
    worst = 0.0
    for x, y in zip(np.ravel(a), np.ravel(b)):
        if x == y or (x != x and y != y):
            continue
        error = float(abs(x - y) / max(1, abs(x), abs(y)))
        worst = max(worst, error if error == error else float("inf"))
    return worst


def _equation(
    pair: Pair, run_a: reference.Trajectory, run_b: reference.Trajectory, step: int, name: str
) -> tuple[str, str, str]:
    """The first equation, in the order in which a is computed, whose value differs at this step:
    its name and both texts."""
    theirs = {e.target: e for e in pair.b.equations}
    roles = {m: n for n, m in pair.roles["state"].items()}
    for e in pair.a.equations:
        other = theirs.get(roles.get(e.target, e.target))
        if other and e.target in run_a.values and other.target in run_b.values:
            a, b = run_a.values[e.target][step, 0], run_b.values[other.target][step, 0]
            if np.shape(a) != np.shape(b) or _distance(a, b) > ROUNDED:
                return e.target, line(e), line(other)
    ours = {e.target: e for e in pair.a.equations}
    last = theirs.get(roles.get(name, name))
    return (name, line(ours[name]), line(last)) if name in ours and last else ("", "", "")


def _plain(array: Any) -> Any:
    return np.asarray(array).astype(np.float64).tolist()


def _plains(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {n: _plain(v) for n, v in arrays.items()}
