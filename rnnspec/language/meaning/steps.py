"""The steps of a method, written as equations.

In: equations of a step and the flows among them, d/dt v = f, each with its method, step size and
start. Out: the equations with the slopes of every stage, the points at which they are taken, and v
after the step:

    k1_v[t] = f(v[t-1])                              the slope of the first stage
    v_k2[t] = v[t-1] + dt[t] * k1_v[t] / 2           the point of the second
    g_k2[t] = ...                                    what f reads there and depends on v
    v_3[t] = ...                                     v after the third of several substeps

Flows of one step size and one tableau are integrated together. What does not depend on them is
computed once. Numbers are put together exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from math import lcm

from rnnspec.language.meaning.slope import ZERO, SlopeError, own_slope, plus, size_of_tree, times
from rnnspec.language.meaning.unroll import MAX_UNROLLED
from rnnspec.language.methods import METHODS, Method
from rnnspec.language.spec import STEP, Integration
from rnnspec.language.syntax.faults import listed
from rnnspec.language.syntax.parse import parse_expression
from rnnspec.language.syntax.tree import (
    Binary,
    Equation,
    Expr,
    Number,
    Place,
    Ref,
    fresh,
    located,
    to_text,
    walk,
    with_parts,
)

MAX_NODES = 8_000  # names, numbers and operators of all equations together
OWN = 8  # of one slope, point and sum beside f, about


class StepsError(Exception):
    """The steps can't be written; says why, and where."""

    def __init__(self, message: str, at: Place):
        super().__init__(message)
        self.at = at


@dataclass(frozen=True)
class Flow:
    """One differential equation: d/dt name = value. sized: whether the file says its step size."""

    equation: Equation
    method: Method
    dt: Expr
    substeps: int
    start: Expr
    sized: bool = True

    @property
    def name(self) -> str:
        return self.equation.target

    @property
    def together(self) -> tuple[object, ...]:
        """What flows that are integrated together have in common."""
        return self.dt, self.substeps, self.method.stages

    def shown(self) -> Integration:
        return Integration(self.equation.text, self.method.name, to_text(self.dt), self.substeps, to_text(self.start))


def depending(equations: Iterable[Equation], names: Collection[str]) -> set[str]:
    """The intermediates that are computed from the values of `names` of the same step; those that
    are integrated themselves are none."""
    found = set(names)
    waiting = [e for e in equations if e.timed and not e.derivative]
    while more := {e.target for e in waiting if e.target not in found and _reads(e.value) & found}:
        found |= more
    return found - set(names)


def held(expr: Expr, names: Collection[str]) -> Expr:
    """The expression, which reads the values of `names` from the step before."""
    return _renamed(expr, {name: Ref(name, -1) for name in names})


def _reads(expr: Expr) -> set[str]:
    return {n.name for n in walk(expr) if isinstance(n, Ref) and n.time == 0}


def _renamed(expr: Expr, names: Mapping[str, Expr]) -> Expr:
    """The expression with other values in the place of these of this step, at their places."""
    if isinstance(expr, Ref):
        return replace(names[expr.name], at=expr.at) if expr.time == 0 and expr.name in names else expr
    return with_parts(expr, lambda part: _renamed(part, names))


def steps(
    equations: Sequence[Equation], flows: Sequence[Flow], taken: Collection[str], outputs: Collection[str]
) -> list[Equation]:
    """The equations, without a derivative. taken: names that new equations can't have; outputs: the
    names of what is emitted. Raises StepsError."""
    groups: dict[tuple[object, ...], list[Flow]] = {}
    for flow in flows:
        groups.setdefault(flow.together, []).append(flow)
    made, used = [e for e in equations if not e.derivative], set(taken)
    plans = [_Group(group, made) for group in groups.values()]
    _check_size(made, plans)
    inner: set[str] = set()
    for plan in plans:
        made += plan.written(used)
        inner |= set(plan.inner)
    return _without_unread(made, inner - set(outputs))


def _check_size(equations: Sequence[Equation], plans: Sequence[_Group]) -> None:
    count = len(equations) + sum(plan.count for plan in plans)
    nodes = sum(size_of_tree(e.value) for e in equations) + sum(plan.nodes for plan in plans)
    for number, most, what in ((count, MAX_UNROLLED, "equations"), (nodes, MAX_NODES, "names, numbers and operators")):
        if number > most:
            largest = max(plans, key=lambda plan: plan.nodes).flows[0]
            raise StepsError(
                f"integrated ({largest.method.name}, substeps: {largest.substeps}), the equations have {number} {what};"
                f" at most {most} are offered. Use fewer substeps, a method of fewer stages, or shorter equations.",
                largest.equation.at,
            )


def _without_unread(equations: list[Equation], inner: set[str]) -> list[Equation]:
    """Without those of `inner` that only slopes had read: their place is taken by those of the
    stages."""
    while True:
        read = {n.name for e in equations for n in walk(e.value) if isinstance(n, Ref)}
        kept = [e for e in equations if e.target not in inner or e.target in read]
        if len(kept) == len(equations):
            return kept
        equations = kept


@dataclass
class _Group:
    """Flows that are integrated together, and the equations `inner` that their slopes read and that
    depend on them."""

    flows: list[Flow]
    equations: Sequence[Equation]
    inner: dict[str, Equation] = field(default_factory=dict)
    slopes: dict[str, Expr] = field(default_factory=dict)  # by their own value, of those whose method asks for it

    def __post_init__(self) -> None:
        names = depending(self.equations, {flow.name for flow in self.flows})
        within = {e.target: e for e in self.equations if e.target in names}
        found, waiting = set[str](), [flow.equation.value for flow in self.flows]
        while waiting:
            new = _reads(waiting.pop()) & set(within) - found
            found |= new
            waiting += [within[name].value for name in new]
        self.inner = {name: e for name, e in within.items() if name in found}  # in the order of the file
        values = {name: e.value for name, e in self.inner.items()}
        self.slopes = {f.name: _slope_of(f, values) for f in self.flows if f.method.gain}

    @property
    def stages(self) -> tuple[tuple[Fraction, ...], ...]:
        return self.flows[0].method.stages

    @property
    def substeps(self) -> int:
        return self.flows[0].substeps

    @property
    def count(self) -> int:
        """How many equations are made of the flows, at most."""
        once = 2 * len(self.flows) + len(self.inner)
        return self.substeps * (len(self.stages) * once + 2 * len(self.flows)) + 2 * len(self.flows)

    @property
    def nodes(self) -> int:
        """How many names, numbers and operators they have, about."""
        values = [f.equation.value for f in self.flows] + [e.value for e in self.inner.values()]
        once = sum(map(size_of_tree, [*values, *self.slopes.values()]))
        return self.substeps * len(self.stages) * (once + OWN * len(self.stages) * len(self.flows))

    def written(self, taken: set[str]) -> list[Equation]:
        """All equations of these flows. taken: names that there are; the new ones are added."""
        return _Writer(self, taken).all()


def _slope_of(flow: Flow, values: Mapping[str, Expr]) -> Expr:
    plain = listed([row.name for row in METHODS.values() if not row.gain])
    try:
        slope = own_slope(flow.equation.value, flow.name, values)
    except SlopeError as error:
        raise StepsError(f"{flow.method.name} of d/dt {flow.name}: {error}. Use {plain}.", flow.equation.at) from None
    if slope == ZERO:
        raise StepsError(
            f"{flow.method.name} takes part of the change of '{flow.name}' to be c * {flow.name}, and here nothing is:"
            f" {flow.name}[t] stands behind '@' or a function along features only, or nowhere. Use {plain}.",
            flow.equation.at,
        )
    return slope


class _Writer:
    """Writes the equations of one group."""

    def __init__(self, group: _Group, taken: set[str]):
        self.group, self.taken, self.made = group, taken, list[Equation]()
        self.step = self.step_size()
        self.gains: dict[str, Expr] = {}  # those that are the same in every substep

    def all(self) -> list[Equation]:
        values: dict[str, Expr] = {}
        for flow in self.group.flows:
            plain = isinstance(flow.start, Ref)
            values[flow.name] = flow.start if plain else self.new(f"{flow.name}_start", flow.start, flow.equation)
        for number in range(1, self.group.substeps + 1):
            last = number == self.group.substeps
            values = self.substep(values, "" if self.group.substeps == 1 else f"_{number}", last)
        return self.made

    def new(self, wanted: str, value: Expr, of: Equation) -> Ref:
        """A value under a name of its own; what is made of parameters and numbers alone is computed
        once per sequence."""
        timed = any(isinstance(n, Ref) and (n.time is not None or n.name == STEP) for n in walk(value))
        name = fresh(wanted, self.taken)
        self.taken.add(name)
        self.made.append(replace(of, target=name, value=located(value, of.at), timed=timed, derivative=False))
        return Ref(name, 0 if timed else None, of.at)

    def step_size(self) -> Expr:
        """The step size of a substep: a number, or a name that it is computed under."""
        flow = self.group.flows[0]
        if isinstance(flow.dt, Number) and not flow.dt.constant:
            return Number(flow.dt.value / flow.substeps, flow.dt.at)
        whole = flow.dt if flow.substeps == 1 else Binary("/", flow.dt, Number(Fraction(flow.substeps)), flow.dt.at)
        if isinstance(whole, Ref | Number):
            return whole
        return self.new("step", whole, flow.equation)

    def substep(self, values: dict[str, Expr], suffix: str, last: bool) -> dict[str, Expr]:
        """The values after one substep, from those before it."""
        slopes: list[dict[str, Expr]] = []
        points = values
        for stage, weights in enumerate(self.group.stages, 1):
            if any(weights):
                points = {
                    f.name: self.new(
                        f"{f.name}_k{stage}{suffix}",
                        Binary("+", values[f.name], self.change(weights, [k[f.name] for k in slopes])),
                        f.equation,
                    )
                    for f in self.group.flows
                }
            there = self.inner_at(points, f"_k{stage}{suffix}")
            slopes.append(
                {
                    f.name: self.new(f"k{stage}_{f.name}{suffix}", _renamed(f.equation.value, there), f.equation)
                    for f in self.group.flows
                }
            )
        after: dict[str, Expr] = {}
        for flow in self.group.flows:
            change = self.change(flow.method.weights, [k[flow.name] for k in slopes])
            if flow.method.gain:
                change = times(self.gain(flow, there, suffix), change)
            value = Binary("+", values[flow.name], change)
            if last:
                self.made.append(replace(flow.equation, value=located(value, flow.equation.at), derivative=False))
                after[flow.name] = Ref(flow.name, 0)
            else:
                after[flow.name] = self.new(f"{flow.name}{suffix}", value, flow.equation)
        return after

    def inner_at(self, points: Mapping[str, Expr], suffix: str) -> dict[str, Expr]:
        """What slopes read at these points: the flows' values, and what depends on them."""
        names = {name: fresh(f"{name}{suffix}", self.taken) for name in self.group.inner}
        self.taken.update(names.values())
        there = {**points, **{name: Ref(new, 0) for name, new in names.items()}}
        for name, equation in self.group.inner.items():
            value = _renamed(equation.value, there)
            self.made.append(replace(equation, target=names[name], value=value))
        return there

    def gain(self, flow: Flow, there: Mapping[str, Expr], suffix: str) -> Expr:
        """What the change of an Euler step is multiplied by."""
        slope = self.group.slopes[flow.name]
        varies = bool(_reads(slope) & set(there))
        if not varies and flow.name in self.gains:
            return self.gains[flow.name]
        suffix, slope = suffix if varies else "", _renamed(slope, there)
        if not isinstance(slope, Number | Ref):
            slope = self.new(f"c_{flow.name}{suffix}", slope, flow.equation)
        gain = _put_in(parse_expression(flow.method.gain), self.scaled(Fraction(1), slope))
        self.gains[flow.name] = self.new(f"gain_{flow.name}{suffix}", gain, flow.equation)
        return self.gains[flow.name]

    def change(self, weights: Sequence[Fraction], slopes: Sequence[Expr]) -> Expr:
        """h * (w_1 * k_1 + ...): whole numbers inside, their common divisor outside."""
        below = lcm(*(w.denominator for w in weights if w))
        terms = [times(Number(w * below), k) for w, k in zip(weights, slopes) if w]
        return self.scaled(Fraction(1, below), reduce(plus, terms))

    def scaled(self, by: Fraction, expr: Expr) -> Expr:
        """The step size times `by` times an expression."""
        if isinstance(self.step, Number) and not self.step.constant:
            factor = self.step.value * by
            if Fraction(repr(float(factor))) == factor:
                return times(Number(factor), expr)
            product = times(Number(Fraction(factor.numerator)), expr)
        else:
            factor = by
            product = times(times(self.step, Number(Fraction(by.numerator))), expr)
        return product if factor.denominator == 1 else Binary("/", product, Number(Fraction(factor.denominator)))


def _put_in(expr: Expr, z: Expr) -> Expr:
    return z if isinstance(expr, Ref) else with_parts(expr, lambda part: _put_in(part, z))
