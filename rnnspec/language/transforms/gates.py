"""Gates taken out, coupled, and shown the cell state."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from rnnspec.errors import RnnspecError
from rnnspec.language.rewrite import line, shape_text
from rnnspec.language.roles import SIGMOIDS, gate_names
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.faults import did_you_mean, listed
from rnnspec.language.syntax.tree import Binary, Call, Equation, Expr, Number, Ref, Unary, walk
from rnnspec.language.transforms.change import Change, made, of_spec, sum_of, terms_of, within_step
from rnnspec.language.transforms.operands import cell_states


@of_spec
def gates(spec: Spec) -> list[str]:
    """The gates that are no states: values between 0 and 1 that something is multiplied by."""
    return [name for name in gate_names(spec) if name not in spec.states]


@of_spec
def drop_gate(spec: Spec, gate: str) -> Spec:
    """The cell with the gate always open: `i[t] = 1`. What only the gate used is gone."""
    return made(
        spec,
        f"no_{gate}",
        f"without the gate {gate}",
        {gate: line(replace(gate_of(spec, gate), value=Number(Fraction(1))))},
    )


@of_spec
def couple_gates(spec: Spec, gate: str, other: str) -> Spec:
    """The cell with one gate made from another: `f[t] = 1 - i[t]` for couple_gates(spec, "f",
    "i")."""
    own, others = gate_of(spec, gate), gate_of(spec, other)
    if gate == other:
        raise RnnspecError(
            f"couple_gates: '{gate}' can't be coupled to itself. Give two gates of '{spec.name}':"
            f" {listed(gates(spec))}."
        )
    if spec.shapes[gate] != spec.shapes[other]:
        raise RnnspecError(
            f"couple_gates: '{gate}' is {shape_text(spec.shapes[gate])} and '{other}' {shape_text(spec.shapes[other])}:"
            " they need one shape."
        )
    if gate in within_step(spec, other):
        raise RnnspecError(
            f"couple_gates: '{other}' of '{spec.name}' is computed from '{gate}', so '{gate}' can't be computed"
            " from it."
        )
    value = Binary("-", Number(Fraction(1)), Ref(other, 0 if others.timed else None))
    return made(
        spec,
        f"coupled_{gate}_{other}",
        f"with {gate} = 1 - {other}",
        {gate: line(replace(own, value=value, timed=others.timed))},
    )


@of_spec
def peepholes(spec: Spec, on: bool = True) -> Spec:
    """The cell whose gates see the cell state, each through a vector of weights: the old one, or
    the new one where it is known by then. on=False: without them."""
    cells = cell_states(spec)
    if not cells:
        raise RnnspecError(
            f"peepholes: '{spec.name}' has no cell state: every state ({listed(spec.states)}) is read by a product with"
            " a matrix already."
        )
    return _with_peepholes(spec, cells) if on else _without_peepholes(spec, cells)


# --- gates ---


def gate_of(spec: Spec, gate: str) -> Equation:
    """The gate's equation."""
    known = gates(spec)
    if gate not in known:
        what = (
            "a state"
            if gate in spec.states
            else "nothing between 0 and 1 that something is multiplied by"
            if gate in spec.shapes
            else "no value of it"
        )
        raise RnnspecError(
            f"'{gate}' is {what} in '{spec.name}', so it is no gate.{did_you_mean(gate, known)} Its gates:"
            f" {listed(known)}."
        )
    return next(e for e in spec.equations if e.target == gate)


def _squashed(spec: Spec) -> list[Equation]:
    """The equations of the gates that are sigmoids of something, every step."""
    return [
        e
        for e in spec.equations
        if e.target in gates(spec) and e.timed and isinstance(e.value, Call) and e.value.function in SIGMOIDS
    ]


def _with_peepholes(spec: Spec, cells: list[str]) -> Spec:
    work, squashed = Change(spec), _squashed(spec)
    for equation in spec.equations:
        if equation not in squashed:
            continue
        assert isinstance(equation.value, Call)
        fitting = [c for c in cells if spec.states[c] == spec.shapes[equation.target]]
        seen = {n.name for n in walk(equation.value) if isinstance(n, Ref)}
        if not fitting or fitting[0] in seen:
            continue
        cell, gate = fitting[0], equation.target
        time = -1 if gate in within_step(spec, cell) else 0
        weight = work.new(f"p_{gate}", spec.states[cell])
        inside, *rest = equation.value.args
        seeing = Binary("+", inside, Binary("*", Ref(weight), Ref(cell, time)))
        work.equations[gate] = line(replace(equation, value=replace(equation.value, args=(seeing, *rest))))
    if not work.equations:
        raise RnnspecError(
            f"peepholes: no gate of '{spec.name}' ({listed(gates(spec))}) has the shape of a cell state"
            f" ({listed(cells)}) that it does not see already. Give on=False to take peepholes out."
        )
    return work.made("peepholes", "with peephole connections")


def _without_peepholes(spec: Spec, cells: list[str]) -> Spec:
    work = Change(spec)

    def is_peephole(term: Expr) -> bool:
        term = term.arg if isinstance(term, Unary) else term
        names = [n.name for n in walk(term) if isinstance(n, Ref)]
        return (
            isinstance(term, Binary)
            and term.op == "*"
            and len(names) == 2
            and any(n in cells for n in names)
            and any(n in spec.parameters for n in names)
        )

    for equation in _squashed(spec):
        if isinstance(equation.value, Call):
            inside, *rest = equation.value.args
            terms = terms_of(inside)
            kept = [t for t in terms if not is_peephole(t)]
            if kept and len(kept) < len(terms):
                work.equations[equation.target] = line(
                    replace(equation, value=replace(equation.value, args=(sum_of(kept), *rest)))
                )
    if not work.equations:
        raise RnnspecError(
            f"peepholes: no gate of '{spec.name}' ({listed(gates(spec))}) adds weights times a cell state "
            f"({listed(cells)}): there are none to take out."
        )
    return work.made("no_peepholes", "without peephole connections")
