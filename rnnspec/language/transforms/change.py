"""What all transforms share: finding the products and sums of a cell, and what is new in the cell
that is made.

In: a Spec and the changed equations, parameters, inputs and noise. Out: a new Spec, read and
checked like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TypeVar, cast

from rnnspec.errors import RnnspecError, SpecError
from rnnspec.language.draws import KINDS
from rnnspec.language.meaning.shapes import shape_of
from rnnspec.language.rewrite import line, rewrite, shape_text
from rnnspec.language.spec import Shape, Spec
from rnnspec.language.syntax.faults import did_you_mean, listed
from rnnspec.language.syntax.tree import Binary, Equation, Expr, Ref, Unary, fresh, to_text, walk, with_parts
from rnnspec.language.transforms.operands import factors

F = TypeVar("F", bound=Callable[..., object])


def of_spec(function: F) -> F:
    """A transform that refuses what is no Spec, a name among it, and says what to give."""

    @wraps(function)
    def refusing(*args: object, **settings: object) -> object:
        spec = args[0] if args else settings.get("spec")
        if not isinstance(spec, Spec):
            given = f"rnnspec.load({spec!r})" if isinstance(spec, str) else "what rnnspec.load gives"
            raise TypeError(f"{function.__name__} takes a Spec, got {type(spec).__name__}: give {given}.")
        return function(*args, **settings)

    return cast(F, refusing)


# --- what depends on what ---


def within_step(spec: Spec, target: str) -> set[str]:
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


def recurrent_values(spec: Spec) -> set[str]:
    """The names whose value at [t] depends on an earlier step."""
    found: set[str] = set()
    for e in spec.equations:
        if depends(e.value, found):
            found.add(e.target)
    return found


def depends(expr: Expr, recurrent: set[str]) -> bool:
    return any(isinstance(n, Ref) and n.time is not None and (n.time < 0 or n.name in recurrent) for n in walk(expr))


def products_in(expr: Expr) -> list[Expr]:
    """The vectors of the products with parameters in an expression, but for those inside an
    activation."""
    match expr:
        case Binary("@"):
            pair = factors(expr)
            return [pair[1]] if pair else []
        case Binary("+" | "-" | "*" | "/", left, right):
            return products_in(left) + products_in(right)
        case Unary(_, arg):
            return products_in(arg)
    return []


# --- sums ---


def signed_terms(expr: Expr, sign: int = 1) -> Iterator[tuple[int, Expr]]:
    """The terms of a sum, each with 1 where it is added and -1 where it is subtracted."""
    match expr:
        case Binary("+" | "-" as op, left, right):
            yield from signed_terms(left, sign)
            yield from signed_terms(right, sign if op == "+" else -sign)
        case Unary("-", arg):
            yield from signed_terms(arg, -sign)
        case _:
            own, term = _sign(expr)
            yield own * sign, term


def _sign(expr: Expr) -> tuple[int, Expr]:
    """What is left of a product without the signs of its factors, and what these make together: `-a
    * b` is -1 and a * b."""
    match expr:
        case Unary("-", arg):
            sign, arg = _sign(arg)
            return -sign, arg
        case Binary("*" | "/", left, right):
            (own, left), (other, right) = _sign(left), _sign(right)
            return own * other, replace(expr, left=left, right=right)
    return 1, expr


def terms_of(expr: Expr) -> list[Expr]:
    """The terms of a sum, those that are subtracted as -term."""
    return [term if sign == 1 else Unary("-", term) for sign, term in signed_terms(expr)]


def sum_of(terms: list[Expr]) -> Expr:
    whole = terms[0]
    for term in terms[1:]:
        whole = Binary("-", whole, term.arg) if isinstance(term, Unary) and term.op == "-" else Binary("+", whole, term)
    return whole


def with_refs(expr: Expr, change: Callable[[Ref], Expr]) -> Expr:
    """The expression with every name that it reads changed."""
    return change(expr) if isinstance(expr, Ref) else with_parts(expr, lambda part: with_refs(part, change))


def numbers_by_name(
    caller: str, one: float | None, given: Mapping[str, float], known: Iterable[str], what: str, kind: str
) -> dict[str, float]:
    """`one` for every known name, or those that are given; each a number that noise of this kind
    takes. caller: the function's name in messages; what: that of a known thing."""
    known, row = list(known), KINDS[kind]
    if one is None and not given:
        raise RnnspecError(
            f"{caller}: say how much: one number for every {what}, or by name, like {caller}(spec,"
            f" {next(iter(known), 'h')}=0.1). Known here: {listed(known)}."
        )
    for name in given:
        if name not in known:
            raise RnnspecError(
                f"{caller}: '{name[:40]}' is no {what} here.{did_you_mean(name, known)} Known here: {listed(known)}."
            )
    wanted = dict(given) if one is None else dict.fromkeys(known, one) | dict(given)
    for name, number in wanted.items():
        if isinstance(number, bool) or not isinstance(number, int | float) or not row.allows(number):
            raise RnnspecError(f"{caller}: {number!r} for '{name}' is out of range. It is {row.argument}.")
    return {n: float(number) for n, number in wanted.items()}


@dataclass
class Change:
    """What is new: equations (target -> line) and declarations (key of the file -> name -> what it
    says)."""

    spec: Spec
    equations: dict[str, str] = field(default_factory=dict)
    declared: dict[str, dict[str, str]] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)

    def name(self, wanted: str) -> str:
        """The name, or one like it that the cell does not have."""
        taken = {
            *self.spec.shapes,
            *self.spec.sizes,
            *self.equations,
            *(n for group in self.declared.values() for n in group),
        }
        return fresh(wanted, taken)

    def declare(self, key: str, wanted: str, says: str) -> str:
        """A new name under a key of the file."""
        name = self.name(wanted)
        self.declared.setdefault(key, {})[name] = says
        return name

    def new(self, wanted: str, shape: Shape, once: str = "", init: str = "", of: str = "") -> str:
        """A new parameter; the same again for the same `once`. of: the one in whose place it
        stands; where that is fixed, so is this."""
        if once in self.known:
            return self.known[once]
        name = self.declare("parameters", wanted, shape_text(shape))
        if init:
            self.declared.setdefault("init", {})[name] = init
        if of in self.spec.fixed:
            self.declared.setdefault("fixed", {})[name] = ""
        if once:
            self.known[once] = name
        return name

    def products(self, caller: str, change: Callable[[str, Binary, Expr], Expr]) -> None:
        """Every product of a parameter with something that depends on an earlier step, changed. A
        product with what is computed from parameters, or with a part of one, is refused: a cell of
        which half is changed is not what was asked for."""
        recurrent = recurrent_values(self.spec)
        others: dict[str, str] = {}

        def visit(expr: Expr) -> Expr:
            pair = factors(expr)
            if pair and isinstance(expr, Binary) and depends(pair[1], recurrent):
                vector = visit(pair[1]) if not isinstance(pair[1], Ref) else pair[1]
                if isinstance(pair[0], Ref) and len(self.spec.parameters.get(pair[0].name, ())) == 2:
                    return change(pair[0].name, expr, vector)
                others[to_text(expr)] = shape_text(shape_of(pair[0], self.spec.shapes, self.spec.sizes))
                return expr
            return with_parts(expr, visit)

        self.visited(visit)
        if others:
            product, shape = next(iter(others.items()))
            raise RnnspecError(
                f"{caller}: '{self.spec.name}' multiplies what comes from the step before by matrices that are no whole"
                f" parameters: {listed(others)}. Only whole parameters can be exchanged: write the cell with a"
                f" parameter {shape} in place of the matrix of {product}, and so on."
            )
        if not self.equations:
            raise RnnspecError(
                f"{caller}: '{self.spec.name}' multiplies nothing that comes from the step before by a matrix of"
                " parameters."
            )

    def sums(self, change: Callable[[Equation, list[Expr]], Expr | None]) -> None:
        """Every outermost sum with a product with a matrix in it, changed."""
        for equation in self.spec.equations:

            def visit(expr: Expr, equation: Equation = equation) -> Expr:
                terms = terms_of(expr)
                if any(products_in(t) for t in terms):
                    return change(equation, terms) or expr
                return with_parts(expr, visit)

            self.visited(visit, (equation,))

    def visited(self, visit: Callable[[Expr], Expr], equations: Iterable[Equation] | None = None) -> None:
        """Every expression of the step, changed."""
        for equation in self.spec.equations if equations is None else equations:
            value = visit(equation.value)
            if equation.timed and value != equation.value:
                self.equations[equation.target] = line(replace(equation, value=value))

    def made(self, suffix: str, words: str) -> Spec:
        """The cell with all that, its name and title saying what was done."""
        return made(self.spec, suffix, words, self.equations, self.declared)


def made(
    spec: Spec,
    suffix: str,
    words: str,
    equations: Mapping[str, str],
    declared: Mapping[str, Mapping[str, str]] | None = None,
) -> Spec:
    name = f"{spec.name}_{suffix}"
    try:
        changed = rewrite(spec, name, f"{spec.title}, {words}", equations, declared or {})
    except SpecError as error:
        raise RnnspecError(f"'{spec.name}' can't be made {words}: {error.errors[0].message}") from error
    if lost := [n for n in spec.constraints if n not in changed.parameters]:
        raise RnnspecError(
            f"'{spec.name}' can't be made {words}: it holds {listed(lost)} to constraints, and they would be lost with"
            f" it. Take them out (constrain: {{{lost[0]}: []}}), or write the cell out."
        )
    return changed
