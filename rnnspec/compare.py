"""Whether two cells are the same function of inputs, states and parameters: `rnnspec diff`.

In: two Specs. Out: a Comparison. First by their normal forms, then by running both in the reference with numbers of 50 digits.
Parameters of one name and shape are one; others are matched where the mathematics tells: b_ih + b_hh against b, pieces of a matrix that
multiplies concat(x, h) against two matrices, other names, other signs. Values are compared, not derivatives: see `notes` where those may differ.
"""
from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice, permutations, product
from typing import Any

import mpmath
import numpy as np
import sympy

from rnnspec.backends import reference
from rnnspec.check.sampling import Case, NoSampleError, Shapes, draw
from rnnspec.errors import RnnspecError
from rnnspec.language.equations import Call, Ref, walk
from rnnspec.language.load import load, loads
from rnnspec.language.pieces import Piece
from rnnspec.language.rewrite import line, to_yaml
from rnnspec.language.sizes import full_shape, sizes_in, with_default_sizes
from rnnspec.language.spec import Shape, Spec
from rnnspec.symbolic.build import build
from rnnspec.symbolic.expressions import Value
from rnnspec.symbolic.graph import Graph, Pointwise
from rnnspec.symbolic.match import Bound, Matcher
from rnnspec.symbolic.normal import OPAQUE, Leaf, Table, normal_forms

SIZES = ((1, 1, 1), (2, 2, 2), (2, 3, 1), (3, 2, 4))
SCALES = (1.0, 1.0, 4.0)  # of the numbers drawn, at each of the sizes: a cell that spikes does so at large ones
STEPS = 2
ORDERS = 24  # in which parameters of other names are tried
DIGITS = 50
EXACT, ROUNDED = 1e-30, 1e-14  # numbers that the equations fold, like sqrt(2), are rounded to float64
SHOWN = 24  # numbers of an array that are printed


@dataclass(frozen=True)
class Difference:
    """The first value that differs: of which output or state, at which step (from 0), on what, and the first equation that does."""

    kind: str
    name: str
    step: int
    a: Any
    b: Any
    sizes: dict[str, int]
    inputs: dict[str, Any]
    states: dict[str, Any]
    parameters: dict[str, Any]
    equation: str = ""
    text_a: str = ""
    text_b: str = ""


@dataclass(frozen=True)
class Comparison:
    """The verdict. how: "symbolically", "numerically" or, where the declarations differ already, "by declaration". mapping: parameters
    that are matched beyond their names. largest: the largest difference found, beside the largest value; points: how many were tried."""

    a: str
    b: str
    same: bool
    how: str
    reason: str
    mapping: tuple[str, ...] = ()
    points: int = 0
    largest: float | None = None
    difference: Difference | None = None
    notes: tuple[str, ...] = ()

    def to_text(self) -> str:
        lines = [f"{'same' if self.same else 'different'}: {self.reason}"]
        lines += [f"  {line}" for line in self.mapping]
        if self.difference:
            lines += _difference_lines(self, self.difference)
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN and no infinity: None stands for them."""
        return {key: _json(value) for key, value in asdict(self).items()}


def diff(a: Spec | str | os.PathLike[str], b: Spec | str | os.PathLike[str]) -> Comparison:
    """Compares two cells: Specs, names or paths. `.same` is the verdict, `.to_text()` says how it was shown or where they differ.

    Raises RnnspecError where they can't be compared: no point was found at which the values of the first are finite.
    """
    first, second = (s if isinstance(s, Spec) else load(s) for s in (a, b))
    second, sizes = _with_sizes_of(first, second)
    pair = _Pair(first, second, build(first), build(second))
    found = _compared(pair)
    return replace(found, notes=(*sizes, *found.notes))


def _compared(pair: _Pair) -> Comparison:
    first, second = pair.a, pair.b
    declared = pair.declared()
    if declared:
        return Comparison(first.name, second.name, False, "by declaration", f"{declared}.")
    proof = _by_names(pair)
    if not proof.proved:  # parameters of one name are one only where both cells call all of them alike
        proof = _prove(pair, frozenset(pair.shared()))
    if proof.proved:
        how = "symbolically: the normal forms of all states and outputs are equal" + _with(pair, proof)
        return replace(_verdict(pair, True, "symbolically", how, proof), notes=_notes(pair))
    found = _run(pair, _guessed(pair, proof))
    if not found.same and pair.shared():
        renamed = _prove(pair, frozenset())
        if renamed.proved:
            found = replace(found, notes=(*found.notes, f"they are the same with other parameters' names: {', '.join(renamed.mapping)}"))
        elif negated := _negated(pair):
            found = replace(found, notes=(*found.notes, f"they are the same with the signs of {negated} changed in one of them"))
    return found


def _with_sizes_of(a: Spec, b: Spec) -> tuple[Spec, tuple[str, ...]]:
    """b with the names of a's sizes, where inputs and states tell which is which."""
    names: dict[str, str] = {}
    for ours, theirs in ((a.inputs, b.inputs), (a.states, b.states)):
        for name, shape in theirs.items():
            for size, other in zip(shape, ours.get(name, ())):
                if size != other and size.isidentifier() and other.isidentifier():
                    names.setdefault(size, other)
    if not names or len(set(names.values())) < len(names):
        return b, ()
    words = re.compile(rf"\b({'|'.join(names)})\b")
    try:
        renamed = loads(words.sub(lambda m: names[m[0]], to_yaml(b)))
    except RnnspecError:  # the name is taken by something else
        return b, ()
    return replace(renamed, name=b.name), (f"sizes of '{b.name}': " + ", ".join(f"{n} is {m}" for n, m in names.items()),)


# --- declarations ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pair:
    a: Spec
    b: Spec
    graph_a: Graph
    graph_b: Graph

    def groups(self) -> dict[str, tuple[dict[str, Shape], dict[str, Shape]]]:
        def of(spec: Spec, graph: Graph) -> dict[str, dict[str, Shape]]:
            states = {s: graph.shapes[n] for s, n in graph.states.items()}
            outputs = {o: graph.shapes[n] for o, n in graph.outputs.items()}
            return {"input": dict(spec.inputs), "state": states, "output": outputs}

        left, right = of(self.a, self.graph_a), of(self.b, self.graph_b)
        return {kind: (left[kind], right[kind]) for kind in left}

    def roles(self, kind: str) -> dict[str, str]:
        """name in b -> name in a: the same, or the next that is left."""
        left, right = self.groups()[kind]
        rest = [n for n in left if n not in right]
        return {n: n if n in left else rest.pop(0) for n in right if n in left or rest}

    def declared(self) -> str:
        """What differs in the declarations of inputs, states and outputs, or nothing."""
        wrong = []
        for kind, (left, right) in self.groups().items():
            roles = self.roles(kind)
            wrong += [f"'{self.a.name}' has the {kind} {n}{_shown(left[n])}, '{self.b.name}' has none for it"
                      for n in left if n not in roles.values()]
            wrong += [f"'{self.b.name}' has the {kind} {n}{_shown(right[n])}, '{self.a.name}' has none for it" for n in right if n not in roles]
            wrong += [f"the {kind} {n} is {_shown(left[m])} in '{self.a.name}' and {_shown(right[n])} in '{self.b.name}'"
                      for n, m in roles.items() if left[m] != right[n]]
        return "; ".join(wrong)

    def shared(self) -> list[str]:
        return [n for n, shape in self.a.parameters.items() if self.b.parameters.get(n) == shape]


def _shown(shape: Shape) -> str:
    return f" [{', '.join(shape)}]" if shape else ""


def _notes(pair: _Pair) -> tuple[str, ...]:
    def special(graph: Graph) -> set[str]:
        return {type(part).__name__ for node in graph.nodes.values() if isinstance(node, Pointwise) for part in sympy.preorder_traversal(node.expr)} & OPAQUE

    kinds = sorted((special(pair.graph_a) | special(pair.graph_b)) - {"shifted"})
    notes = [f"{' and '.join(kinds)}: the values were compared, the gradients may differ"] if kinds else []
    for theirs, ours in (pair.roles("input") | {n: n for n in pair.b.parameters}).items():
        a, b = (f"{spec.noise[n].to_text()} in" if n in spec.noise else "no noise in" for spec, n in ((pair.a, ours), (pair.b, theirs)))
        notes += [f"{ours} was compared as a value: it is {a} '{pair.a.name}' and {b} '{pair.b.name}'"] if a != b else []
    return tuple(notes)


# --- symbolically ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Proof:
    """groups: parameters of a whose sum is that of parameters of b, or (-1) its negative."""

    proved: bool
    groups: tuple[tuple[tuple[Leaf, ...], tuple[Leaf, ...], int], ...] = ()

    @property
    def mapping(self) -> tuple[str, ...]:
        texts = [(" + ".join(map(Leaf.to_text, a)), "-" * (sign < 0) + " + ".join(map(Leaf.to_text, b))) for a, b, sign in self.groups]
        return tuple(f"{left} = {right}" for left, right in texts if left != right)


def _by_names(pair: _Pair) -> _Proof:
    """With each parameter that of the same name: their normal forms are then the same expressions, and nothing need be found."""
    names = pair.shared()
    if not len(names) == len(pair.a.parameters) == len(pair.b.parameters):
        return _Proof(False)
    left, right = _forms(pair, Table(), "a")
    proved = all(left[a] == right[b] for a, b in _results(pair))
    return _Proof(proved, tuple(((Leaf("a", n),), (Leaf("b", n),), 1) for n in sorted(names)))


def _forms(pair: _Pair, table: Table, side: str) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
    """The normal forms of both graphs by node; side: that of the parameters of b."""
    roles = {kind: pair.roles(kind) for kind in ("input", "state")}
    return (normal_forms(pair.graph_a, table, lambda n: Leaf("a", n), lambda kind, n: n),
            normal_forms(pair.graph_b, table, lambda n: Leaf(side, n), lambda kind, n: roles.get(kind, {}).get(n, n)))


def _prove(pair: _Pair, shared: frozenset[str]) -> _Proof:
    table = Table()
    left, right = _forms(pair, table, "b")
    matcher, bound, proved = Matcher(table, shared), Bound(), True
    for a, b in _results(pair):
        found = matcher.match(left[a], right[b], bound)
        bound, proved = (bound, False) if found is None else (found, proved)
    if not proved:  # what agrees in part tells about parameters all the same
        for e in pair.a.equations:
            found = matcher.match(left[e.target], right[e.target], bound) if e.target in left and e.target in right else None
            bound = found or bound
    groups = []
    for sides in dict.fromkeys(bound.groups.values()):
        a_side, b_side = (tuple(sorted((table.atoms[n].args[0] for n in side), key=Leaf.to_text)) for side in sides)
        groups.append((a_side, b_side, 1))
    proof = _Proof(proved, tuple(sorted(groups, key=lambda g: g[0][0].to_text())))
    return replace(proof, proved=proved and _holds(pair, proof))


def _results(pair: _Pair) -> Iterator[tuple[str, str]]:
    for kind, left, right in (("output", pair.graph_a.outputs, pair.graph_b.outputs), ("state", pair.graph_a.states, pair.graph_b.states)):
        for theirs, ours in pair.roles(kind).items():
            yield left[ours], right[theirs]


def _holds(pair: _Pair, proof: _Proof) -> bool:
    """Whether both give one value where they are run: pieces that were matched may overlap."""
    for seed, sizes in enumerate(((2, 3, 1), (1, 2, 2))):
        try:
            case = _point(pair, sizes, seed)
        except NoSampleError:
            continue
        if not _errors(pair, case, proof, reference.FLOAT64)[0] < 1e-9:
            return False
    return True


# --- numerically -----------------------------------------------------------------------------------------------------


def _point(pair: _Pair, sizes: tuple[int, ...], seed: int, scale: float = 1.0) -> Case:
    """Numbers of few digits, where the values of a are finite there."""
    case = draw(pair.a, pair.graph_a, Shapes(STEPS, 1, sizes), seed)
    short = case.map(lambda a: np.round(scale * a, 2))
    run = reference.forward(pair.graph_a, short.params, short.inputs, short.states, sizes=short.sizes)
    return short if all(np.isfinite(v).all() for v in (*run.outputs.values(), *run.final.values())) else case


def _free(pair: _Pair, proof: _Proof) -> tuple[list[str], list[str]]:
    """The parameters of each that nothing in the other stands for."""
    shared = set(pair.shared())
    bound = [{leaf.parameter for group in proof.groups for leaf in (group[0], group[1])[k]} | shared for k in (0, 1)]
    return [n for n in pair.a.parameters if n not in bound[0]], [n for n in pair.b.parameters if n not in bound[1]]


def _guessed(pair: _Pair, proof: _Proof) -> _Proof:
    """With the parameters that are left matched in the first order, of those with fitting shapes, in which both give one value."""
    free_a, free_b = _free(pair, proof)
    shapes = [pair.a.parameters[n] for n in free_a]
    if len(free_a) != len(free_b) or not free_a:
        return proof
    fitting = (o for o in permutations(free_b) if [pair.b.parameters[n] for n in o] == shapes)
    for order, sign in product(islice(fitting, ORDERS) if len(free_b) <= 8 else (), (1, -1)):
        guess = replace(proof, groups=(*proof.groups, *_signed(zip(free_a, order), sign)))
        if _holds(pair, guess):
            return guess
    return proof


def _signed(names: Iterable[tuple[str, str]], sign: int) -> Iterator[tuple[tuple[Leaf, ...], tuple[Leaf, ...], int]]:
    return (((Leaf("a", n),), (Leaf("b", m),), sign) for n, m in names)


def _negated(pair: _Pair) -> str:
    """The parameters of a gate with whose signs changed both are the same, or nothing: 1 - sigmoid(v) is sigmoid(-v)."""
    for e in pair.a.equations:
        names = sorted({n.name for n in walk(e.value) if isinstance(n, Ref)} & set(pair.shared()))
        turned = _Proof(False, tuple(_signed(zip(names, names), -1)))
        if isinstance(e.value, Call) and e.value.function == "sigmoid" and names and not any(_free(pair, turned)) and _holds(pair, turned):
            return ", ".join(names)
    return ""


def _transferred(pair: _Pair, case: Case, proof: _Proof, seed: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of both. What has no counterpart is 0, or random where a seed is given."""
    sizes, rng = _all_sizes(pair.b, case.sizes), np.random.default_rng(seed)
    full = {n: full_shape(shape, sizes) for n, shape in pair.b.parameters.items()}
    free_a, free_b = _free(pair, proof)
    a = {n: np.zeros_like(v) if n in free_a and seed is None else v for n, v in case.params.items()}
    b: dict[str, Any] = {n: np.round(rng.uniform(-1, 1, s), 2) if n in free_b and seed is not None else np.zeros(s) for n, s in full.items()}
    b |= {n: a[n].copy() for n in pair.shared()}
    for left, right, sign in proof.groups:
        total = sign * sum(_view(a[leaf.parameter], leaf, sizes) for leaf in left)
        for leaf in right:
            _view(b[leaf.parameter], leaf, sizes)[...] = total if leaf is right[0] else 0.0
    for left, right, _ in proof.groups:  # one of several of a shared name stays what it is
        if len(right) > 1 and len(left) > 1:
            for leaf in right:
                _view(b[leaf.parameter], leaf, sizes)[...] = next((_view(a[o.parameter], o, sizes) for o in left if o == replace(leaf, side="a")), 0.0)
    return a, b


def _view(array: Any, leaf: Leaf, sizes: Mapping[str, int]) -> Any:
    """The piece of a parameter's array that a leaf is, which may be cut along several axes: a view."""
    view = Piece(leaf.parameter, leaf.index).of(array, sizes)
    for axis, cut in enumerate(leaf.cuts):
        view = Piece(leaf.parameter, None, axis, *cut).of(view, sizes) if cut else view
    return view


def _all_sizes(spec: Spec, known: Mapping[str, int]) -> dict[str, int]:
    """Of those that nothing tells, 2."""
    sizes = with_default_sizes(spec.sizes, known)
    return dict.fromkeys(sorted(sizes_in(spec.shapes.values()) - set(sizes)), 2) | sizes


def _errors(pair: _Pair, case: Case, proof: _Proof, numbers: reference.Numbers, seed: int | None = None) -> tuple[float, Difference | None]:
    """The largest difference of two runs, beside the largest value, and the first that is one."""
    params_a, params_b = _transferred(pair, case, proof, seed)
    roles = {kind: pair.roles(kind) for kind in ("input", "state", "output")}
    run_a = reference.forward(pair.graph_a, params_a, case.inputs, case.states, sizes=case.sizes, numbers=numbers)
    inputs = {n: case.inputs[m] for n, m in roles["input"].items()}
    states = {n: case.states[m] for n, m in roles["state"].items()}
    run_b = reference.forward(pair.graph_b, params_b, inputs, states, sizes=_all_sizes(pair.b, case.sizes), numbers=numbers)
    largest, first = 0.0, None
    for step in range(STEPS):
        for kind, values_a, values_b in (("output", run_a.outputs, run_b.outputs), ("state", run_a.states, run_b.states)):
            for theirs, ours in roles[kind].items():
                a, b = values_a[ours][step, 0], values_b[theirs][step, 0]
                error = _distance(a, b)
                largest = max(largest, error)
                if error > ROUNDED and first is None:
                    given = _plains(params_a) | {n: _plain(v) for n, v in params_b.items() if n not in params_a}
                    first = Difference(kind, ours, step, _plain(a), _plain(b), dict(case.sizes), _plains(case.inputs), _plains(case.states),
                                       given, *_equation(pair, run_a, run_b, step, ours))
    return largest, first


def _distance(a: Any, b: Any) -> float:
    """The largest difference, beside 1 or the value; infinite where only one of two values is a number."""
    worst = 0.0
    for x, y in zip(np.ravel(a), np.ravel(b)):
        if x == y or (x != x and y != y):
            continue
        error = float(abs(x - y) / max(1, abs(x), abs(y)))
        worst = max(worst, error if error == error else float("inf"))
    return worst


def _equation(pair: _Pair, run_a: reference.Trajectory, run_b: reference.Trajectory, step: int, name: str) -> tuple[str, str, str]:
    """The first equation, in the order in which a is computed, whose value differs at this step: its name and both texts."""
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


def _json(value: Any) -> Any:
    match value:
        case float():
            return value if np.isfinite(value) else None
        case list() | tuple():
            return [_json(v) for v in value]
        case dict():
            return {key: _json(v) for key, v in value.items()}
    return value


def _plain(array: Any) -> Any:
    return np.asarray(array).astype(np.float64).tolist()


def _plains(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {n: _plain(v) for n, v in arrays.items()}


def _run(pair: _Pair, proof: _Proof) -> Comparison:
    """The verdict by numbers. Parameters without a counterpart are 0 first, then random."""
    numbers, largest, points, free = reference.mpmath_numbers(), 0.0, 0, [n for names in _free(pair, proof) for n in names]
    for seed in [None, 1] if free else [None]:
        for number, (sizes, scale) in enumerate(product(SIZES, SCALES)):
            try:
                case = _point(pair, sizes, number, scale)
            except NoSampleError:
                continue
            try:
                with mpmath.workdps(DIGITS):
                    error, difference = _errors(pair, case, proof, numbers, seed)
            except (ZeroDivisionError, ValueError, OverflowError):  # mpmath has no infinity there, as in the side of a `where` not chosen
                error, difference = _errors(pair, case, proof, reference.FLOAT64, seed)
            largest, points = max(largest, error), points + 1
            if difference is not None:
                where = f"at {difference.kind} {difference.name}, step {difference.step}"
                extra = f" where {', '.join(free)}, which only one of them has, {'is' if len(free) == 1 else 'are'} "
                reason = where + (extra + ("0" if seed is None else "not 0; the same where 0") if free else "")
                return replace(_verdict(pair, False, "numerically", reason, proof), points=points, largest=error, difference=difference,
                               notes=_unmatched(pair, proof))
    if not points:
        raise RnnspecError(f"'{pair.a.name}' and '{pair.b.name}' can't be compared: no point was found at which the values of "
                           f"'{pair.a.name}' are finite. See that its equations stay finite for weights and inputs in [-1, 1].")
    close = "to 1e-30" if largest <= EXACT else f"to {largest:.1g}, not to 1e-30: numbers were rounded to float64"
    reason = f"numerically at {points} points of {STEPS} steps {close}" + _with(pair, proof)
    return replace(_verdict(pair, True, "numerically", reason, proof), points=points, largest=largest, notes=_notes(pair))


def _unmatched(pair: _Pair, proof: _Proof) -> tuple[str, ...]:
    left, right = _free(pair, proof)
    if not left or not right:
        return ()
    return (f"nothing was found in '{pair.b.name}' for {', '.join(left)} of '{pair.a.name}', nor for {', '.join(right)} the other way. "
            "Where one stands for another, give them one name and shape",)


def _with(pair: _Pair, proof: _Proof) -> str:
    return f", where the parameters of '{pair.a.name}' are those of '{pair.b.name}':" if proof.mapping else ""


def _verdict(pair: _Pair, same: bool, how: str, reason: str, proof: _Proof) -> Comparison:
    return Comparison(pair.a.name, pair.b.name, same, how, reason, proof.mapping)


# --- text ------------------------------------------------------------------------------------------------------------


def _difference_lines(found: Comparison, d: Difference) -> list[str]:
    wide = max(len(found.a), len(found.b))
    lines = [f"  {found.a:<{wide}}  {d.name} = {_short(d.a)}", f"  {found.b:<{wide}}  {d.name} = {_short(d.b)}"]
    if d.equation:
        lines += [f"first equation that differs: {d.equation}", f"  {found.a:<{wide}}  {d.text_a}", f"  {found.b:<{wide}}  {d.text_b}"]
    lines.append("on " + ", ".join(f"{n} = {v}" for n, v in d.sizes.items()))
    lines += [f"  {n} = {_short(v)}" for group in (d.inputs, d.states, d.parameters) for n, v in group.items()]
    return lines


def _short(value: Any) -> str:
    text = str(value)
    return text if text.count(",") < SHOWN else f"{text[:120]}... (all with --json)"
