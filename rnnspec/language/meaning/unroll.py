"""What is settled when a cell is built: inner loops are unrolled, and sizes that decide about loops
become constants.

In: a Document. Out: each definition once per round, under a flat name (s[t, 2] is s_2[t]). The
values of an index, of a loop's bounds and of a number of steps back are whole numbers made of loop
variables and constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from rnnspec.errors import RnnspecError
from rnnspec.language.reading.document import RESERVED, Document, Entry
from rnnspec.language.sizes import SizeError, canonical_size, size_names, substituted
from rnnspec.language.spec import Shape
from rnnspec.language.syntax.faults import Faults, bad_name, listed
from rnnspec.language.syntax.tree import (
    Binary,
    Equation,
    Expr,
    Number,
    Place,
    Ref,
    Unary,
    fresh,
    to_text,
    walk,
    with_parts,
)

MAX_ROUNDS = 64
MAX_UNROLLED = 1000  # equations, after unrolling
MAX_INDEX = 1000
SHAPED = ("inputs", "states", "parameters")


class NotWholeError(RnnspecError):
    """An index, a bound or a number of steps back is no whole number that is known when the cell is
    built."""


@dataclass(frozen=True)
class Round:
    """One definition in one round of its loop: under which name, and the values of the loop's
    variable."""

    target: str
    equation: Equation
    values: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Unrolled:
    """families: indexed name -> its indices -> the flat names."""

    rounds: tuple[Round, ...] = ()
    families: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


def whole(expr: Expr, values: Mapping[str, Fraction | int], sizes: Iterable[str] = ()) -> int:
    """The whole number that an expression of names in `values` stands for. Raises NotWholeError."""
    value = _value(expr, values, sizes)
    if value.denominator != 1:
        raise NotWholeError(f"{to_text(expr)[:60]} is {float(value):g}, which is no whole number")
    return int(value)


def _value(expr: Expr, values: Mapping[str, Fraction | int], sizes: Iterable[str]) -> Fraction:
    match expr:
        case Number(value):
            return value
        case Ref(name, None) if name in values and expr.index is None:
            return Fraction(values[name])
        case Ref(name, None) if name in sizes:
            raise NotWholeError(
                f"'{name}' is a size that only arrays tell. Give it a number under sizes: {{{name}: 3}}"
            )
        case Unary("-", arg):
            return -_value(arg, values, sizes)
        case Binary("+" | "-" | "*" as op, left, right):
            a, b = _value(left, values, sizes), _value(right, values, sizes)
            result = a + b if op == "+" else a - b if op == "-" else a * b
            if abs(result) > 10**6:
                raise NotWholeError(f"{to_text(expr)[:60]} is too large")
            return result
    known = f" (here {listed(values)})" if values else ""
    raise NotWholeError(f"{to_text(expr)[:60]} is not made of whole numbers, loop variables and constants{known}")


# --- sizes that become constants ---


def settle(document: Document) -> Document:
    """The sizes with a number (`sizes: {L: 3}`) that bounds of loops, indices, steps back or slices
    of parameters need, as constants."""
    needed = {node.name for part in _settled_parts(document) for node in walk(part) if isinstance(node, Ref)}
    for ref in (n for e in _every(document) for n in walk(e.value) if isinstance(n, Ref) and n.index is not None):
        shape = document.parameters[ref.name].value if ref.name in document.parameters else ()
        needed |= size_names(shape[0]) if shape else set()
    constants, sizes = dict(document.constants), dict(document.sizes)
    for name in sorted(needed & set(sizes) - set(constants)):
        size = sizes[name].value
        text = size.default if size.default is not None else size.meaning
        if text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text):
            constants[name] = Entry(Fraction(text), sizes.pop(name).at)
    return replace(document, constants=constants, sizes=sizes)


def _every(document: Document) -> Iterator[Equation]:
    for group in document.equations.values():
        yield from group


def _settled_parts(document: Document) -> Iterator[Expr]:
    """The expressions whose values must be known when the cell is built."""
    for equation in _every(document):
        if equation.loop is not None:
            yield equation.loop.first
            yield equation.loop.last
        refs = [n for n in walk(equation.value) if isinstance(n, Ref)]
        yield from (e for e in (equation.index, *(p for r in refs for p in (r.index, r.delay))) if e is not None)


def with_numbers(document: Document, constants: Mapping[str, Fraction], faults: Faults) -> tuple[Document, set[str]]:
    """The document with the values of constants in its shapes, and the constants that stand
    there."""
    numbers = {n: int(v) for n, v in constants.items() if v.denominator == 1 and v > 0}
    used: set[str] = set()

    def shape(entry: Entry[Shape]) -> Entry[Shape]:
        sizes = []
        for size in entry.value:
            names = size_names(size) & set(constants)
            used.update(names)
            for name in sorted(names - set(numbers)):
                faults.add(
                    f"'{name}' stands in a shape and must be a whole number from 1, not {float(constants[name]):g}.",
                    document.constants[name].at,
                )
            try:
                sizes.append(substituted(size, numbers) if names else size)
            except SizeError as error:
                faults.add(f"{error}.", entry.at)
                sizes.append("1")
        return replace(entry, value=tuple(sizes))

    shaped: dict[str, Any] = {
        section: {n: shape(e) for n, e in getattr(document, section).items()} for section in SHAPED
    }
    sizes = dict(document.sizes)
    for name, entry in sizes.items():  # `P: 2 * L` with a constant L
        text = entry.value.default if entry.value.default is not None else entry.value.meaning
        try:
            names = size_names(canonical_size(text)) & set(numbers)
            default = substituted(text, numbers)
        except SizeError:  # words, or a fault that is told with the sizes
            continue
        if names:
            used |= names
            meaning = entry.value.meaning if entry.value.default is not None else ""
            sizes[name] = replace(entry, value=replace(entry.value, meaning=meaning, default=default))
    return replace(document, sizes=sizes, **shaped), used


# --- loops ---


def unroll(document: Document, kinds: Mapping[str, str], constants: Mapping[str, Fraction], faults: Faults) -> Unrolled:
    """Every definition of every round, in the order of the file; a fault ends the reading of a
    definition, not of the others."""
    return _Unroller(document, kinds, constants, faults).all()


class _Unroller:
    def __init__(self, document: Document, kinds: Mapping[str, str], constants: Mapping[str, Fraction], faults: Faults):
        self.document, self.kinds, self.constants, self.faults = document, kinds, constants, faults
        self.sizes = [name for name, kind in kinds.items() if kind == "size"]
        self.taken = set(kinds) | set(document.broken) | RESERVED
        self.families: dict[str, dict[int, str]] = {}
        self.rounds: list[Round] = []

    def all(self) -> Unrolled:
        for group in self.document.equations.values():
            for equation in group:
                self.definition(equation)
                if len(self.rounds) > MAX_UNROLLED:
                    self.faults.add(
                        f"unrolled, the loops have over {MAX_UNROLLED} equations. Use fewer rounds or fewer equations.",
                        equation.at,
                    )
                    return Unrolled()
        return Unrolled(tuple(self.rounds), self.families)

    def definition(self, equation: Equation) -> None:
        name = equation.target
        if equation.index is None:
            self.rounds.append(Round(name, equation))
            return
        family = self.families.setdefault(name, {})
        if self.kinds.get(name) == "state":
            self.faults.add(
                f"the state '{name}' has one value a step and takes no second index. Write {name}[t] = ...", equation.at
            )
            return
        variable = equation.loop.name if equation.loop else ""
        for number in self.range(equation):
            values = {variable: number} if variable else {}
            try:
                index = whole(equation.index, {**self.constants, **values}, self.sizes)
                if not 0 <= index <= MAX_INDEX:
                    raise NotWholeError(f"the index {index} is not from 0 to {MAX_INDEX}")
            except NotWholeError as error:
                self.faults.add(f"the second index of '{name}': {error}.", _place(equation.index, equation.at))
                return
            if index in family:
                shown = f"{name}[t, {index}]" if equation.timed else f"{name}[{index}]"
                before = next(r.equation.at.line for r in self.rounds if r.target == family[index])
                self.faults.add(
                    f"{shown} is defined twice: here and on line {before}. Its index must change from round to round.",
                    equation.at,
                )
                return
            family[index] = flat = fresh(f"{name}_{index}", self.taken)
            self.taken.add(flat)
            self.rounds.append(Round(flat, equation, values))

    def range(self, equation: Equation) -> range:
        """The values of the loop's variable; one round where there is no loop."""
        loop = equation.loop
        if loop is None:
            return range(1)
        problem = bad_name(loop.name) or (f"'{loop.name}' is reserved." if loop.name in RESERVED else "")
        if loop.name in self.kinds:
            problem = f"'{loop.name}' is declared as something else. Choose another name for the loop's variable."
        try:
            first, last = (whole(e, self.constants, self.sizes) for e in (loop.first, loop.last))
            if not problem and last - first + 1 > MAX_ROUNDS:
                problem = (
                    f"the loop from {first} to {last} has {last - first + 1} rounds; {MAX_ROUNDS} is the most that is"
                    " offered."
                )
            if not problem and last < first - 1:
                problem = f"the loop from {first} to {last} ends before it starts."
        except NotWholeError as error:
            problem = problem or f"a bound of the loop: {error}."
        if problem:
            self.faults.add(problem, loop.at)
            return range(0)
        return range(first, last + 1)


def _place(expr: Expr, otherwise: Place) -> Place:
    return expr.at if expr.at.line else otherwise


# --- steps back ---


def lower_taps(equations: list[Equation], taken: set[str], faults: Faults) -> list[Equation]:
    """h[t-3] as a value that is carried: h_1[t] = h[t-1], h_2[t] = h_1[t-1], and h[t-3] reads
    h_2[t-1]."""
    deepest: dict[str, Ref] = {}
    for node in (n for e in equations for n in walk(e.value) if isinstance(n, Ref)):
        known = deepest.get(node.name)
        if (node.time or 0) < min(-1, known.time or 0 if known else 0):
            deepest[node.name] = node
    if sum(-(ref.time or 0) for ref in deepest.values()) > MAX_UNROLLED:
        faults.add(
            f"the steps back of these equations need over {MAX_UNROLLED} values carried from step to step.",
            next(iter(deepest.values())).at,
        )
        return equations
    chain: dict[tuple[str, int], str] = {}
    made: list[Equation] = []
    taken = set(taken)
    for name, ref in deepest.items():
        before = name
        for steps in range(1, -(ref.time or 0)):
            late = fresh(f"{name}_{steps}", taken)
            taken.add(late)
            made.append(Equation(late, Ref(before, -1, ref.at), f"{late}[t] = {before}[t-1]", ref.at))
            chain[name, -steps - 1] = before = late
    return made + [replace(e, value=_shorter(e.value, chain)) for e in equations] if made else equations


def _shorter(expr: Expr, chain: Mapping[tuple[str, int], str]) -> Expr:
    if isinstance(expr, Ref) and expr.time is not None and (expr.name, expr.time) in chain:
        return replace(expr, name=chain[expr.name, expr.time], time=-1)
    return with_parts(expr, lambda part: _shorter(part, chain))
