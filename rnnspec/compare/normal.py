"""Normal forms: the value of every node as a polynomial over atoms, so that equal mathematics tends
to be equal text.

An atom is what a polynomial does not look into: an input, a state, a parameter or a piece of one, a
function's value, a product with a matrix. Atoms are kept in a Table that several graphs share.
Products and sums along features are linear, and are written out term by term; a part of a product
is a product with rows of the matrix. What this does not see to be equal may still be equal.

Equal forms are equal functions of real numbers, wherever both are defined. x * (1 / x) is 1 but at
0: a form in which something with a pole or a domain was cancelled is `lossy`, and proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product as pairs
from typing import Any

import sympy

from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.sizes import SizeError, canonical_size, remainder
from rnnspec.language.spec import Shape
from rnnspec.symbolic.expressions import expand_row, neutral_form
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
    operands,
)
from rnnspec.symbolic.operations import Value, add, divide, multiply, negative, power, subtract, total

MAX_TERMS = 400  # of a polynomial; a longer one stays a product
MAX_WORK = 2_000  # terms multiplied with one another for one graph; what is beyond stays a product
MAX_BITS = 4000  # of a number; a product with a larger one stays a product
ELEMENTWISE = frozenset(FUNCTIONS) | {"power", "select", "times"}
PARTIAL = frozenset({"log", "log1p", "sqrt", "power"})  # operations that are not defined for all real numbers


@dataclass(frozen=True)
class Atom:
    """op: input, state, parameter, step or size, with texts as args; or an operation, over normal
    forms."""

    op: str
    args: tuple[Any, ...]
    shape: Shape


@dataclass(frozen=True)
class Leaf:
    """A parameter or a piece of it: entry `index` along the first axis, and of that `length` from
    `first` on, by axis."""

    side: str
    parameter: str
    index: int | None = None
    cuts: tuple[tuple[str, str] | None, ...] = ()

    def cut(self, axis: int, first: str, length: str) -> Leaf:
        cuts = list(self.cuts) + [None] * (axis + 1 - len(self.cuts))
        old = cuts[axis]
        cuts[axis] = (canonical_size(f"{old[0]} + {first}") if old else first, length)
        return Leaf(self.side, self.parameter, self.index, tuple(cuts))

    def to_text(self) -> str:
        ends = [
            f"{first}:{canonical_size(f'{first} + {length}')}" if cut else ":"
            for cut in self.cuts
            for first, length in [cut or ("", "")]
        ]
        return (
            self.parameter
            + ("" if self.index is None else f"[{self.index + 1}]")
            + (f"[{', '.join(ends)}]" if ends else "")
        )


_text = lru_cache(4096)(str)  # of forms, whose order it gives; one form is met many times


def terms(form: Value) -> list[tuple[Value, list[tuple[Value, Value]]]]:
    """The terms of a form: a number, and atoms with their powers."""
    found = []
    for term in sympy.Add.make_args(form):
        number, rest = term.as_coeff_Mul()
        found.append((number, [] if rest == 1 else [f.as_base_exp() for f in sympy.Mul.make_args(rest)]))
    return [] if form == 0 else found


def _bits(form: Value) -> int:
    """The length of the longest number that a form multiplies by."""
    numbers = [number for number, _ in terms(form)]
    return max((max(abs(n.p), n.q).bit_length() for n in numbers if n.is_Rational), default=0)


@dataclass
class Table:
    """Atoms by their symbols: equal atoms are one symbol."""

    atoms: dict[str, Atom] = field(default_factory=dict)
    known: dict[Atom, str] = field(default_factory=dict)
    domains: dict[str, frozenset[str]] = field(default_factory=dict)
    of_forms: dict[Value, frozenset[str]] = field(default_factory=dict)  # domains, again
    work: int = 0  # terms multiplied so far

    def atom(self, op: str, args: tuple[Any, ...], shape: Shape) -> Value:
        made = Atom(op, args, shape)
        name = self.known.setdefault(made, f"v{len(self.known)}")
        self.atoms[name] = made
        return sympy.Symbol(name, real=True)  # here algebra is wanted

    def of(self, atom: Value) -> Atom:
        return self.atoms[atom.name]

    def domain(self, form: Value) -> frozenset[str]:
        """What a form is not defined for all numbers by: its poles and the atoms of partial
        operations, those inside other atoms too."""
        if form not in self.of_forms:
            self.of_forms[form] = self._domain(form)
        return self.of_forms[form]

    def _domain(self, form: Value) -> frozenset[str]:
        found = set()
        for _, factors in terms(form):
            for factor, exponent in factors:
                found |= {f"pole of {s.name}" for s in factor.free_symbols if exponent < 0}
        return frozenset(found).union(*(self._domain_of(s.name) for s in form.free_symbols))

    def _domain_of(self, atom: str) -> frozenset[str]:
        if atom not in self.domains:
            known = self.atoms[atom]
            own = frozenset({atom}) if known.op in PARTIAL else frozenset()
            inside = (self.domain(a) for a in known.args if hasattr(a, "free_symbols"))
            self.domains[atom] = own.union(*inside)
        return self.domains[atom]

    # elementwise

    def multiply(self, a: Value, b: Value, shape: Shape) -> Value:
        if self.is_large(a, b):
            return self.atom("times", tuple(sorted((a, b), key=_text)), shape)
        return sympy.Add(*(x * y for x, y in pairs(sympy.Add.make_args(a), sympy.Add.make_args(b))))

    def is_large(self, a: Value, b: Value) -> bool:
        """Whether the product of two forms stays one. What is written out is counted."""
        count = len(sympy.Add.make_args(a)) * len(sympy.Add.make_args(b))
        if count > MAX_TERMS or self.work + count > MAX_WORK or _bits(a) + _bits(b) > MAX_BITS:
            return True
        self.work += count
        return False

    def power(self, base: Value, exponent: Value, shape: Shape) -> Value:
        if exponent.is_Integer and 0 < exponent <= 8:
            made = base
            for _ in range(int(exponent) - 1):
                made = self.multiply(made, base, shape)
            return made
        if exponent.is_Integer and not base.is_Add and base != 0:
            return base**exponent
        return self.atom("power", (base, exponent), shape)

    def function(self, name: str, args: tuple[Value, ...], shape: Shape) -> Value:
        """tanh(-v) is -tanh(v), sigmoid(-v) is 1 - sigmoid(v), where every term of v is negative;
        sqrt(v) is v**0.5."""
        if name == "sqrt":
            return self.power(args[0], sympy.Rational(1, 2), shape)
        mirror = FUNCTIONS[name].mirror if name in FUNCTIONS else None
        if mirror is not None and args[0] != 0 and all(number < 0 for number, _ in terms(args[0])):
            return mirror - self.atom(name, (-args[0],), shape)
        return self.atom(name, args, shape)

    # along features

    def transposed(self, form: Value) -> Value:
        """Element by element: each atom of two axes exchanges them."""
        changed = {}
        for atom in form.free_symbols:
            known = self.of(atom)
            if len(known.shape) == 2:
                changed[atom] = (
                    known.args[0] if known.op == "transpose" else self.atom("transpose", (atom,), known.shape[::-1])
                )
                changed[atom] = atom if known.op == "diag" else changed[atom]
        return form.xreplace(changed)

    def scalars(self, factors: list[tuple[Value, Value]]) -> tuple[Value, Value]:
        """The factors of a term that are single numbers, and the others."""
        inside = [(f, e) for f, e in factors if f.is_Symbol and self.of(f).shape != ()]
        outside = [(f, e) for f, e in factors if (f, e) not in inside]
        return sympy.Mul(*(f**e for f, e in outside)), sympy.Mul(*(f**e for f, e in inside))

    def times(self, matrix: Value, vector: Value, shape: Shape) -> Value:
        """matrix @ vector, written out over the terms of both."""
        if self.is_large(matrix, vector):
            return self.atom("product", (matrix, vector), shape)
        total = sympy.S.Zero
        for (a, left), (b, right) in pairs(terms(matrix), terms(vector)):
            (m_scale, m), (v_scale, v) = self.scalars(left), self.scalars(right)
            known = self.of(m) if m.is_Symbol else None
            made = (
                known.args[0] * v
                if known and known.op == "diag" and len(shape) == 1
                else self.atom("product", (m, v), shape)
            )
            total += a * b * m_scale * v_scale * made
        return sympy.expand(total)

    def total(self, form: Value, shape: Shape) -> Value:
        made = sympy.S.Zero
        for number, factors in terms(form):
            scale, rest = self.scalars(factors)
            made += number * scale * self.atom("sum", (rest, *shape), ())
        return sympy.expand(made)

    def part(self, form: Value, first: str, length: str) -> Value:
        """Elements of a vector: of a sum those of its terms, of W @ v the product with rows of
        W."""
        changed = {atom: self._part(atom, first, length) for atom in form.free_symbols if len(self.of(atom).shape) == 1}
        return form.xreplace(changed)

    def _part(self, atom: Value, first: str, length: str) -> Value:
        known, shape = self.of(atom), (length,)
        match known.op:
            case "parameter":
                return self.atom("parameter", (known.args[0].cut(0, first, length),), shape)
            case "product" if known.args[0].is_Symbol and self.of(known.args[0]).op == "parameter":
                matrix = self.of(known.args[0])
                rows = self.atom("parameter", (matrix.args[0].cut(0, first, length),), (length, *matrix.shape[1:]))
                return self.atom("product", (rows, known.args[1]), shape)
            case "concat":
                inside = self._within(known, first, length)
                return self.atom("part", (atom, first, length), shape) if inside is None else inside
            case op if op in ELEMENTWISE:
                return self.atom(
                    op, tuple(self.part(a, first, length) if a.free_symbols else a for a in known.args), shape
                )
        return self.atom("part", (atom, first, length), shape)

    def _within(self, concat: Atom, first: str, length: str) -> Value | None:
        """The argument of a concatenation that a part of it is."""
        start = "0"
        half = len(concat.args) // 2
        for form, size in zip(concat.args[:half], concat.args[half:]):
            if (start, size) == (first, length):
                return form
            try:
                remainder(first, start)
            except SizeError:
                return None
            start = canonical_size(f"{start} + {size}")
        return None


@dataclass(frozen=True)
class Forms:
    """node -> its normal form; lossy: something that is not defined everywhere was cancelled."""

    of: dict[str, Value]
    lossy: bool


def normal_forms(
    graph: Graph,
    table: Table,
    leaf: Callable[[str], Leaf],
    role: Callable[[str, str], str],
    negative: Container[str] = (),
) -> Forms:
    """The normal forms of a graph. `leaf` gives the parameter that the graph calls so, `role` the
    name of an input or state; parameters in `negative` are the negatives of their leaves."""
    table.work = 0
    work = _Normal(graph, table, leaf, role, negative)
    for name, node in graph.nodes.items():
        made = work.node(node, graph.shapes[name])
        if isinstance(node, Product | Reduce):
            work.compare(made, [work.forms[o] for o in operands(node)])
        work.forms[name] = made
    return Forms(work.forms, work.lossy)


@dataclass
class _Normal:
    graph: Graph
    table: Table
    leaf: Callable[[str], Leaf]
    role: Callable[[str, str], str]
    negative: Container[str]
    forms: dict[str, Value] = field(default_factory=dict)
    lossy: bool = False

    def compare(self, made: Value, parts: Iterable[Value]) -> None:
        """Notes where a form has lost what its parts are not defined everywhere by."""
        domain = self.table.domain(made)
        self.lossy = self.lossy or not all(self.table.domain(part) <= domain for part in parts)

    def node(self, node: Node, shape: Shape) -> Value:
        forms, table, shapes = self.forms, self.table, self.graph.shapes
        match node:
            case Read("parameter", source):
                piece = self.graph.pieces.get(source)
                made = table.atom("parameter", (self.parameter(source),), shape)
                return -made if (piece.parameter if piece else source) in self.negative else made
            case Read(kind, source):
                return table.atom(kind, (self.role(kind, source),), shape)
            case Pointwise(expr):
                return self.value(expr, shape)
            case Product(matrix, vector, transposed):
                return table.times(
                    table.transposed(forms[matrix]) if transposed else forms[matrix], forms[vector], shape
                )
            case Reduce("sum", arg):
                return table.total(forms[arg], shapes[arg])
            case Reduce(op, arg):
                return table.atom(op, (forms[arg], *shapes[arg]), shape)
            case CumSum(arg, reverse):
                return table.atom("cumsum", (forms[arg], str(reverse)), shape)
            case Concat(args):
                return table.atom("concat", (*(forms[a] for a in args), *(shapes[a][0] for a in args)), shape)
            case Part(arg, first, length):
                return table.part(forms[arg], first, length)
            case Outer(left, right):
                return table.atom("outer", (forms[left], forms[right]), shape)
            case Transpose(arg):
                return table.transposed(forms[arg])
            case Diag(arg):
                return table.atom("diag", (forms[arg],), shape)
        raise TypeError(f"not a node: {node!r}")

    def parameter(self, source: str) -> Leaf:
        piece = self.graph.pieces.get(source)
        if piece is None:
            return self.leaf(source)
        whole = self.leaf(piece.parameter)
        made = Leaf(whole.side, whole.parameter, piece.index)
        return made.cut(piece.axis, piece.first, piece.length) if piece.length else made

    def value(self, expr: Value, shape: Shape) -> Value:
        if expr.is_Symbol:
            return self.forms[expr.name]
        if expr.is_Number or not expr.args:
            return expr
        name = type(expr).__name__
        row = FUNCTIONS.get(name)
        if (neutral := neutral_form(expr)) is not None:
            return self.value(neutral, shape)
        if row is not None and not row.primitive:
            return self.value(expand_row(row, expr.args), shape)
        args = [self.value(a, shape) for a in expr.args]
        if isinstance(expr, divide):  # a product with a power, whose pole may cancel
            args[1] = self.table.power(args[1], sympy.S.NegativeOne, shape)
        made = self.operation(expr, name, args, shape)
        self.compare(made, args)
        return made

    def operation(self, expr: Value, name: str, args: list[Value], shape: Shape) -> Value:
        match expr:
            case power():
                return self.table.power(args[0], expr.args[1], shape)
            case add() | total():
                return sympy.Add(*args)
            case subtract():
                return args[0] - args[1]
            case negative():
                return -args[0]
            case multiply() | divide():
                return self.table.multiply(args[0], args[1], shape)
        return self.table.function(name, tuple(args), shape)
