"""Two cells run side by side in the reference, with numbers of 50 digits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice, permutations, product
from typing import Any

import numpy as np

from rnnspec.backends import reference
from rnnspec.check.sampling import Case, NoSampleError, Shapes, draw
from rnnspec.compare.comparison import Difference
from rnnspec.compare.normal import Leaf
from rnnspec.compare.pair import Pair, Proof, signed
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


def holds(pair: Pair, proof: Proof) -> bool:
    """Whether both give one value where they are run: pieces that were matched may overlap."""
    for seed, sizes in enumerate(((2, 3, 1), (1, 2, 2))):
        try:
            case = point(pair, sizes, seed)
        except NoSampleError:
            continue
        if not errors_at(pair, case, proof, reference.FLOAT64)[0] < 1e-9:
            return False
    return True


# --- numerically
# -----------------------------------------------------------------------------------------------------


def point(pair: Pair, sizes: tuple[int, ...], seed: int, scale: float = 1.0) -> Case:
    """Numbers of few digits, where the values of a are finite there."""
    case = draw(pair.a, pair.graph_a, Shapes(STEPS, 1, sizes), seed)
    short = case.map(lambda a: np.round(scale * a, 2))
    run = reference.forward(pair.graph_a, short.params, short.inputs, short.states, sizes=short.sizes)
    return short if all(np.isfinite(v).all() for v in (*run.outputs.values(), *run.final.values())) else case


def free_parameters(pair: Pair, proof: Proof) -> tuple[list[str], list[str]]:
    """The parameters of each that nothing in the other stands for."""
    shared = set(pair.shared())
    bound = [{leaf.parameter for group in proof.groups for leaf in (group[0], group[1])[k]} | shared for k in (0, 1)]
    return [n for n in pair.a.parameters if n not in bound[0]], [n for n in pair.b.parameters if n not in bound[1]]


def guessed(pair: Pair, proof: Proof) -> Proof:
    """With the parameters that are left matched in the first order, of those with fitting shapes,
    in which both give one value."""
    free_a, free_b = free_parameters(pair, proof)
    shapes = [pair.a.parameters[n] for n in free_a]
    if len(free_a) != len(free_b) or not free_a:
        return proof
    fitting = (o for o in permutations(free_b) if [pair.b.parameters[n] for n in o] == shapes)
    for order, sign in product(islice(fitting, ORDERS) if len(free_b) <= 8 else (), (1, -1)):
        guess = replace(proof, groups=(*proof.groups, *signed(zip(free_a, order), sign)))
        if holds(pair, guess):
            return guess
    return proof


def negated(pair: Pair) -> str:
    """The parameters of a gate with whose signs changed both are the same, or nothing: 1 -
    sigmoid(v) is sigmoid(-v)."""
    for e in pair.a.equations:
        names = sorted({n.name for n in walk(e.value) if isinstance(n, Ref)} & set(pair.shared()))
        turned = Proof(False, tuple(signed(zip(names, names), -1)))
        if (
            isinstance(e.value, Call)
            and e.value.function in FUNCTIONS
            and FUNCTIONS[e.value.function].mirror == 1
            and names
            and not any(free_parameters(pair, turned))
            and holds(pair, turned)
        ):
            return ", ".join(names)
    return ""


def _transferred(pair: Pair, case: Case, proof: Proof, seed: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of both. What has no counterpart is 0, or random where a seed is given."""
    sizes, rng = _all_sizes(pair.b, case.sizes), np.random.default_rng(seed)
    full = {n: full_shape(shape, sizes) for n, shape in pair.b.parameters.items()}
    free_a, free_b = free_parameters(pair, proof)
    a = {n: np.zeros_like(v) if n in free_a and seed is None else v for n, v in case.params.items()}
    b: dict[str, Any] = {
        n: np.round(rng.uniform(-1, 1, s), 2) if n in free_b and seed is not None else np.zeros(s)
        for n, s in full.items()
    }
    b |= {n: a[n].copy() for n in pair.shared()}
    for left, right, sign in proof.groups:
        total = sign * sum(_view(a[leaf.parameter], leaf, sizes) for leaf in left)
        for leaf in right:
            _view(b[leaf.parameter], leaf, sizes)[...] = total if leaf is right[0] else 0.0
    for left, right, _ in proof.groups:  # one of several of a shared name stays what it is
        if len(right) > 1 and len(left) > 1:
            for leaf in right:
                _view(b[leaf.parameter], leaf, sizes)[...] = next(
                    (_view(a[o.parameter], o, sizes) for o in left if o == replace(leaf, side="a")), 0.0
                )
    return a, b


def _view(array: Any, leaf: Leaf, sizes: Mapping[str, int]) -> Any:
    """The piece of a parameter's array that a leaf is, which may be cut along several axes: a
    view."""
    view = Piece(leaf.parameter, leaf.index).of(array, sizes)
    for axis, cut in enumerate(leaf.cuts):
        view = Piece(leaf.parameter, None, axis, *cut).of(view, sizes) if cut else view
    return view


def _all_sizes(spec: Spec, known: Mapping[str, int]) -> dict[str, int]:
    """Of those that nothing tells, 2."""
    sizes = with_default_sizes(spec.sizes, known)
    return dict.fromkeys(sorted(sizes_in(spec.shapes.values()) - set(sizes)), 2) | sizes


def errors_at(
    pair: Pair, case: Case, proof: Proof, numbers: reference.Numbers, seed: int | None = None
) -> tuple[float, Difference | None]:
    """The largest difference of two runs, beside the largest value, and the first that is one."""
    params_a, params_b = _transferred(pair, case, proof, seed)
    roles = {kind: pair.roles(kind) for kind in ("input", "state", "output")}
    run_a = reference.forward(pair.graph_a, params_a, case.inputs, case.states, sizes=case.sizes, numbers=numbers)
    inputs = {n: case.inputs[m] for n, m in roles["input"].items()}
    states = {n: case.states[m] for n, m in roles["state"].items()}
    run_b = reference.forward(
        pair.graph_b, params_b, inputs, states, sizes=_all_sizes(pair.b, case.sizes), numbers=numbers
    )
    largest, first = 0.0, None
    for step in range(STEPS):
        for kind, values_a, values_b in (
            ("output", run_a.outputs, run_b.outputs),
            ("state", run_a.states, run_b.states),
        ):
            for theirs, ours in roles[kind].items():
                a, b = values_a[ours][step, 0], values_b[theirs][step, 0]
                error = _distance(a, b)
                largest = max(largest, error)
                if error > ROUNDED and first is None:
                    given = _plains(params_a) | {n: _plain(v) for n, v in params_b.items() if n not in params_a}
                    first = Difference(
                        kind,
                        ours,
                        step,
                        _plain(a),
                        _plain(b),
                        dict(case.sizes),
                        _plains(case.inputs),
                        _plains(case.states),
                        given,
                        *_equation(pair, run_a, run_b, step, ours),
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
    roles = {m: n for n, m in pair.roles("state").items()}
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
