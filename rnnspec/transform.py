"""Cells made from cells: each function takes a Spec and gives a new one, which loads, shows, checks and compiles like any other.

    rnnspec.transform.drop_gate(rnnspec.load("lstm"), "i")      # without the input gate
    rnnspec.transform.layer_norm(rnnspec.load("gru"))

The new cell's name says what was done; its parameters keep their names where they keep their part. RnnspecError says why a cell can't be
transformed so. `rnnspec.transform.to_yaml(spec)` is the file of the result.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from rnnspec.errors import RnnspecError, SpecError
from rnnspec.language.equations import Binary, Call, Equation, Expr, Number, Ref, Unary, to_text, walk
from rnnspec.language.faults import did_you_mean, listed
from rnnspec.language.functions import FEATURES
from rnnspec.language.rewrite import line, rewrite, to_yaml
from rnnspec.language.shapes import shape_of
from rnnspec.language.spec import Shape, Spec

__all__ = ["couple_gates", "diagonal_recurrence", "drop_gate", "gates", "layer_norm", "leak", "low_rank_recurrence", "multiplicative_integration",
           "peepholes", "to_yaml"]

GATES = frozenset({"sigmoid", "hard_sigmoid"})


def gates(spec: Spec) -> list[str]:
    """The intermediates that are a sigmoid of something."""
    return [e.target for e in spec.equations if isinstance(e.value, Call) and e.value.function in GATES and e.target not in spec.states]


def drop_gate(spec: Spec, gate: str) -> Spec:
    """The cell with the gate always open: `i[t] = 1`. What only the gate used is gone."""
    return _made(spec, f"no_{gate}", f"without the gate {gate}", {gate: line(replace(_gate(spec, gate), value=Number(Fraction(1))))})


def couple_gates(spec: Spec, gate: str, other: str) -> Spec:
    """The cell with one gate made from another: `f[t] = 1 - i[t]` for couple_gates(spec, "f", "i")."""
    own, others = _gate(spec, gate), _gate(spec, other)
    if gate == other:
        raise RnnspecError(f"couple_gates: '{gate}' can't be coupled to itself. Give two gates of '{spec.name}': {listed(gates(spec))}.")
    if spec.shapes[gate] != spec.shapes[other]:
        raise RnnspecError(f"couple_gates: '{gate}' is {_shown(spec.shapes[gate])} and '{other}' {_shown(spec.shapes[other])}: they need one shape.")
    if gate in _within_step(spec, other):
        raise RnnspecError(f"couple_gates: '{other}' of '{spec.name}' is computed from '{gate}', so '{gate}' can't be computed from it.")
    value = Binary("-", Number(Fraction(1)), Ref(other, 0 if others.timed else None))
    return _made(spec, f"coupled_{gate}_{other}", f"with {gate} = 1 - {other}", {gate: line(replace(own, value=value, timed=others.timed))})


def peepholes(spec: Spec, on: bool = True) -> Spec:
    """The cell whose gates see the cell state, each through a vector of weights: the old one, or the new one where it is known by then.
    on=False: without them."""
    cells = [s for s in spec.states if s not in _multiplied(spec)]
    if not cells:
        raise RnnspecError(f"peepholes: '{spec.name}' has no cell state: every state ({listed(spec.states)}) is read by a product with a matrix already.")
    return _with_peepholes(spec, cells) if on else _without_peepholes(spec, cells)


def diagonal_recurrence(spec: Spec) -> Spec:
    """The cell with a vector in place of every square matrix that multiplies what comes from the step before: `U @ h[t-1]` becomes `u * h[t-1]`."""
    work = _Change(spec)

    def change(matrix: str, product: Binary, vector: Expr) -> Expr:
        shape = spec.parameters[matrix]
        if shape[0] != shape[1]:
            raise RnnspecError(f"diagonal_recurrence: {matrix} of '{spec.name}' is {_shown(shape)}, in {to_text(product)}; only a square matrix has a "
                               f"diagonal. Where it multiplies a concatenation, write one product for each part.")
        return Binary("*", Ref(work.new(matrix.lower() if matrix.lower() != matrix else f"{matrix}_diagonal", shape[:1], matrix)), vector)

    work.products("diagonal_recurrence", change)
    return work.made("diagonal", "with a diagonal recurrence")


def low_rank_recurrence(spec: Spec, rank: int) -> Spec:
    """The cell with every recurrent matrix as a product of two: `U @ h[t-1]` becomes `U_left @ (U_right @ h[t-1])`, U_right [rank, H]."""
    if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank < 10**6:
        raise RnnspecError(f"low_rank_recurrence: the rank must be a whole number from 1, not {rank!r}.")
    work = _Change(spec)

    def change(matrix: str, product: Binary, vector: Expr) -> Expr:
        rows, columns = spec.parameters[matrix] if product.right is vector else spec.parameters[matrix][::-1]
        left = Ref(work.new(f"{matrix}_left", (rows, str(rank)), f"{matrix} left"))
        return Binary("@", left, Binary("@", Ref(work.new(f"{matrix}_right", (str(rank), columns), f"{matrix} right")), vector))

    work.products("low_rank_recurrence", change)
    return work.made(f"rank_{rank}", f"with recurrent matrices of rank {rank}")


def multiplicative_integration(spec: Spec) -> Spec:
    """The cell with `(W @ x[t]) * (U @ h[t-1]) + b` in place of every sum `W @ x[t] + U @ h[t-1] + b` (Wu et al. 2016)."""
    work = _Change(spec)
    recurrent = _recurrent(spec)

    def change(equation: Equation, terms: list[Expr]) -> Expr | None:
        inner = [t for t in terms if _products(t, spec)]
        right = [t for t in inner if any(_depends(p, recurrent) for p in _products(t, spec))]
        left = [t for t in inner if t not in right]
        if not left or not right:
            return None
        return _sum([Binary("*", _sum(left), _sum(right)), *(t for t in terms if t not in inner)])

    work.sums(change)
    if not work.equations:
        raise RnnspecError(f"multiplicative_integration: '{spec.name}' adds no product with an input to a product with a state, like W @ x[t] + U @ h[t-1].")
    return work.made("multiplicative", "with multiplicative integration")


def layer_norm(spec: Spec, eps: float = 1e-5) -> Spec:
    """The cell with every sum of products normalised before its activation: `W @ x[t] + U @ h[t-1] + b` becomes
    `layer_norm(W @ x[t] + U @ h[t-1], eps) * gain + b` (Ba, Kiros & Hinton 2016, equation 4), gains of ones at the start."""
    if not 0 < eps < 1:
        raise RnnspecError(f"layer_norm: eps must lie between 0 and 1, not {eps!r}.")
    work = _Change(spec)

    def change(equation: Equation, terms: list[Expr]) -> Expr | None:
        inner = [t for t in terms if _products(t, spec)]
        shape = shape_of(_sum(inner), spec.shapes, spec.sizes) if inner else ()
        if len(shape) != 1:
            return None
        gain = work.new(f"gain_{equation.target}", shape, f"{equation.target} {to_text(_sum(inner))}", "ones")
        scaled = Binary("*", Call("layer_norm", (_sum(inner), Number(Fraction(repr(float(eps)))))), Ref(gain))
        return _sum([scaled, *(t for t in terms if t not in inner)])

    work.sums(change)
    if not work.equations:
        raise RnnspecError(f"layer_norm: '{spec.name}' has no vector that a matrix of parameters was multiplied into, like W @ x[t] + b.")
    return work.made("layer_norm", "with layer normalisation")


def leak(spec: Spec, alpha: float, state: str | None = None) -> Spec:
    """The cell whose state goes only part of the way: `h[t] = (1 - alpha) * h[t-1] + alpha * (what it was)`. state: which, where several
    could be meant; else the only one that is emitted."""
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha <= 1:
        raise RnnspecError(f"leak: alpha must be a number above 0 and up to 1, not {alpha!r}.")
    known = [state] if state else [s for s in spec.states if s in spec.outputs] if len(spec.states) > 1 else list(spec.states)
    if len(known) != 1 or known[0] not in spec.states:
        raise RnnspecError(f"leak: say which state of '{spec.name}' leaks, with state=...: {listed(spec.states)}.{did_you_mean(state or '', spec.states)}")
    work, name = _Change(spec), known[0]
    equation = next(e for e in spec.equations if e.target == name)
    new, constant = work.name(f"{name}_new"), work.name("alpha")
    equations = {new: line(replace(equation, target=new)), name: f"{name}[t] = (1 - {constant}) * {name}[t-1] + {constant} * {new}[t]"}
    return _made(spec, "leaky", f"with a leak of {float(alpha):g}", equations, extra=f"constants: {{{constant}: {float(alpha)!r}}}")


# --- gates -----------------------------------------------------------------------------------------------------------


def _gate(spec: Spec, gate: str) -> Equation:
    """The gate's equation."""
    known = gates(spec)
    if gate not in known:
        what = "a state" if gate in spec.states else "no sigmoid of something" if gate in spec.shapes else "no value of it"
        raise RnnspecError(f"'{gate}' is {what} in '{spec.name}', so it is no gate.{did_you_mean(gate, known)} Its gates: {listed(known)}.")
    return next(e for e in spec.equations if e.target == gate)


def _with_peepholes(spec: Spec, cells: list[str]) -> Spec:
    work = _Change(spec)
    for equation in spec.equations:
        if equation.target not in gates(spec) or not isinstance(equation.value, Call):
            continue
        fitting = [c for c in cells if spec.states[c] == spec.shapes[equation.target]]
        seen = {n.name for n in walk(equation.value) if isinstance(n, Ref)}
        if not fitting or fitting[0] in seen:
            continue
        cell, gate = fitting[0], equation.target
        time = -1 if gate in _within_step(spec, cell) else 0
        weight = work.new(f"p_{gate}", spec.states[cell])
        inside, *rest = equation.value.args
        seeing = Binary("+", inside, Binary("*", Ref(weight), Ref(cell, time)))
        work.equations[gate] = replace(equation, value=replace(equation.value, args=(seeing, *rest)))
    if not work.equations:
        raise RnnspecError(f"peepholes: no gate of '{spec.name}' ({listed(gates(spec))}) has the shape of a cell state ({listed(cells)}) "
                           "that it does not see already. Give on=False to take peepholes out.")
    return work.made("peepholes", "with peephole connections")


def _without_peepholes(spec: Spec, cells: list[str]) -> Spec:
    work = _Change(spec)

    def is_peephole(term: Expr) -> bool:
        names = [n.name for n in walk(term) if isinstance(n, Ref)]
        return isinstance(term, Binary) and term.op == "*" and len(names) == 2 and any(n in cells for n in names) and any(n in spec.parameters for n in names)

    for equation in spec.equations:
        if equation.target in gates(spec) and isinstance(equation.value, Call):
            inside, *rest = equation.value.args
            terms = _terms(inside)
            kept = [t for t in terms if not is_peephole(t)]
            if kept and len(kept) < len(terms):
                work.equations[equation.target] = replace(equation, value=replace(equation.value, args=(_sum(kept), *rest)))
    if not work.equations:
        raise RnnspecError(f"peepholes: no gate of '{spec.name}' ({listed(gates(spec))}) adds weights times a cell state "
                           f"({listed(cells)}): there are none to take out.")
    return work.made("no_peepholes", "without peephole connections")


# --- what depends on what --------------------------------------------------------------------------------------------


def _within_step(spec: Spec, target: str) -> set[str]:
    """What a value is computed from in the same step."""
    reads = {e.target: {n.name for n in walk(e.value) if isinstance(n, Ref) and n.time == 0} for e in spec.equations}
    found: set[str] = set()
    waiting = list(reads.get(target, ()))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += reads.get(name, ())
    return found


def _recurrent(spec: Spec) -> set[str]:
    """The names whose value at [t] depends on an earlier step."""
    found: set[str] = set()
    for e in spec.equations:
        if _depends(e.value, found):
            found.add(e.target)
    return found


def _depends(expr: Expr, recurrent: set[str]) -> bool:
    return any(isinstance(n, Ref) and n.time is not None and (n.time < 0 or n.name in recurrent) for n in walk(expr))


def _multiplied(spec: Spec) -> set[str]:
    """The names in the vectors of all products with matrices of parameters."""
    return {n.name for e in spec.equations for p in walk(e.value) if (pair := _factors(p, spec)) for n in walk(pair[1]) if isinstance(n, Ref)}


def _factors(expr: Expr, spec: Spec) -> tuple[str, Expr] | None:
    """The parameter and the other factor of W @ v, or v @ W."""
    if not isinstance(expr, Binary) or expr.op != "@":
        return None
    for matrix, vector in ((expr.left, expr.right), (expr.right, expr.left)):
        if isinstance(matrix, Ref) and len(spec.parameters.get(matrix.name, ())) == 2:
            return matrix.name, vector
    return None


def _products(expr: Expr, spec: Spec) -> list[Expr]:
    """The vectors of the products with parameters in an expression, but for those inside an activation."""
    match expr:
        case Binary("@", left, right):
            matrices = [m for m in (left, right) if all(n.time is None for n in walk(m) if isinstance(n, Ref))]
            return [right if matrices[0] is left else left] if matrices else []
        case Binary("+" | "-" | "*" | "/", left, right):
            return _products(left, spec) + _products(right, spec)
        case Unary(_, arg):
            return _products(arg, spec)
    return []


def _shown(shape: Shape) -> str:
    return f"[{', '.join(shape)}]"


# --- sums ------------------------------------------------------------------------------------------------------------


def _terms(expr: Expr) -> list[Expr]:
    match expr:
        case Binary("+", left, right):
            return _terms(left) + _terms(right)
        case Binary("-", left, right):
            return _terms(left) + [Unary("-", t) for t in _terms(right)]
    return [expr]


def _sum(terms: list[Expr]) -> Expr:
    whole = terms[0]
    for term in terms[1:]:
        whole = Binary("-", whole, term.arg) if isinstance(term, Unary) and term.op == "-" else Binary("+", whole, term)
    return whole


def _parts(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with its parts changed."""
    match expr:
        case Unary(_, arg):
            return replace(expr, arg=change(arg))
        case Binary(_, left, right):
            return replace(expr, left=change(left), right=change(right))
        case Call(function, args) if function not in FEATURES or function in ("layer_norm", "softmax"):
            return replace(expr, args=tuple(change(a) for a in args))
    return expr


@dataclass
class _Change:
    """The equations, parameters and initialisers that are new."""

    spec: Spec
    equations: dict[str, Equation] = field(default_factory=dict)
    parameters: dict[str, Shape] = field(default_factory=dict)
    init: dict[str, str] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)

    def name(self, wanted: str) -> str:
        while wanted in self.spec.shapes or wanted in self.spec.sizes or wanted in self.parameters:
            wanted += "_"
        return wanted

    def new(self, wanted: str, shape: Shape, once: str = "", init: str = "") -> str:
        """A new parameter; the same again for the same `once`."""
        if once in self.known:
            return self.known[once]
        name = self.name(wanted)
        self.parameters[name] = shape
        if init:
            self.init[name] = init
        if once:
            self.known[once] = name
        return name

    def products(self, caller: str, change: Callable[[str, Binary, Expr], Expr]) -> None:
        """Every product of a parameter with something that depends on an earlier step, changed."""
        recurrent = _recurrent(self.spec)

        def visit(expr: Expr) -> Expr:
            pair = _factors(expr, self.spec)
            if pair and isinstance(expr, Binary) and _depends(pair[1], recurrent):
                return change(pair[0], expr, visit(pair[1]) if not isinstance(pair[1], Ref) else pair[1])
            return _parts(expr, visit)

        self.visited(visit)
        if not self.equations:
            raise RnnspecError(f"{caller}: '{self.spec.name}' multiplies nothing that comes from the step before by a matrix of parameters.")

    def sums(self, change: Callable[[Equation, list[Expr]], Expr | None]) -> None:
        """Every outermost sum with a product with a matrix in it, changed."""
        for equation in self.spec.equations:

            def visit(expr: Expr, equation: Equation = equation) -> Expr:
                terms = _terms(expr)
                if any(_products(t, self.spec) for t in terms):
                    return change(equation, terms) or expr
                return _parts(expr, visit)

            self.visited(visit, (equation,))

    def visited(self, visit: Callable[[Expr], Expr], equations: tuple[Equation, ...] | None = None) -> None:
        for equation in self.spec.equations if equations is None else equations:
            value = visit(equation.value)
            if equation.timed and value != equation.value:
                self.equations[equation.target] = replace(equation, value=value)

    def made(self, suffix: str, words: str) -> Spec:
        return _made(self.spec, suffix, words, {n: line(e) for n, e in self.equations.items()}, self.parameters, self.init)


def _made(spec: Spec, suffix: str, words: str, equations: Mapping[str, str], parameters: Mapping[str, Shape] | None = None,
          init: Mapping[str, str] | None = None, extra: str = "") -> Spec:
    name = f"{spec.name}_{suffix}"
    try:
        return rewrite(spec, name, f"{spec.title}, {words}", equations, parameters, init, extra)
    except SpecError as error:
        raise RnnspecError(f"'{spec.name}' can't be made {words}: {error.errors[0].message}") from error
