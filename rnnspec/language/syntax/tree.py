"""The syntax tree of equations: frozen nodes with their places, walks over them, and the text that
gives the same tree again."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction


@dataclass(frozen=True)
class Place:
    """Where something stands in the file, from 1."""

    line: int = 0
    column: int = 0
    width: int = 1
    file: str = ""


@dataclass(frozen=True)
class Number:
    """A number as written, or the value of a `constant` of the file, by its name."""

    value: Fraction
    at: Place = field(default=Place(), compare=False)
    constant: str = field(default="", compare=False)


@dataclass(frozen=True)
class Ref:
    """A name. `time` is None as written without a time, 0 for [t], -1 for [t-1], ... The bare step
    number is Ref("t").

    `index`: the k of s[t, k] and of W[k]; in a resolved tree a Number from 1, and of parameters
    only. `delay`: the d of h[t-d] where d is no literal; None in a resolved tree. A resolved tree
    may name a size: that is a number.
    """

    name: str
    time: int | None = None
    at: Place = field(default=Place(), compare=False)
    index: Expr | None = None
    delay: Expr | None = None


@dataclass(frozen=True)
class Unary:
    op: str  # "-", "not" or "T"
    arg: Expr
    at: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Binary:
    op: str  # one of + - * / ** @ < <= > >= == != and or
    left: Expr
    right: Expr
    at: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Call:
    """A function of the tables in `functions.py`, or `where(condition, a, b)`."""

    function: str
    args: tuple[Expr, ...]
    at: Place = field(default=Place(), compare=False)


Expr = Number | Ref | Unary | Binary | Call


@dataclass(frozen=True)
class Loop:
    """`for name in first..last:` around an equation."""

    name: str
    first: Expr
    last: Expr
    at: Place = field(default=Place(), compare=False)


@dataclass(frozen=True)
class Equation:
    """`target[t] = value`; `text` is the source line without its comment. `timed`: false for
    `target = value`, computed once per sequence. `index`: the k of target[t, k]. `derivative`: it
    reads `d/dt target = value`. A resolved equation has neither index nor loop, one of a Spec is
    none of a derivative."""

    target: str
    value: Expr
    text: str
    at: Place = field(default=Place(), compare=False)
    timed: bool = True
    index: Expr | None = None
    loop: Loop | None = None
    derivative: bool = False


def children(expr: Expr) -> tuple[Expr, ...]:
    """The parts of an expression, from left to right; those of a name are its index and delay."""
    match expr:
        case Unary(_, arg):
            return (arg,)
        case Binary(_, left, right):
            return (left, right)
        case Call(_, args):
            return args
        case Ref():
            return tuple(e for e in (expr.index, expr.delay) if e is not None)
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node of a tree, parents first, from left to right."""
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(children(node))


def with_parts(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with its parts changed; names and numbers have none (an index or a delay
    stays)."""
    match expr:
        case Unary(_, arg):
            return replace(expr, arg=change(arg))
        case Binary(_, left, right):
            return replace(expr, left=change(left), right=change(right))
        case Call(_, args):
            return replace(expr, args=tuple(change(a) for a in args))
    return expr


def located(expr: Expr, at: Place) -> Expr:
    """The expression, whose parts that stand in no file stand at this place."""
    own = expr.at if expr.at.file else at
    match expr:
        case Ref():
            index, delay = (part and located(part, at) for part in (expr.index, expr.delay))
            return replace(expr, at=own, index=index, delay=delay)
    return replace(with_parts(expr, lambda part: located(part, at)), at=own)


def names_in(expr: Expr) -> set[str]:
    """Every name that an expression mentions, those of the functions that it calls too."""
    nodes = [node for node in walk(expr) if isinstance(node, Ref | Call)]
    return {node.name if isinstance(node, Ref) else node.function for node in nodes}


def names_in_equation(equation: Equation) -> set[str]:
    """Every name that an equation mentions: in its value, its index and the bounds of its loop."""
    parts = [equation.value, equation.index, *((equation.loop.first, equation.loop.last) if equation.loop else ())]
    return set().union(*(names_in(part) for part in parts if part is not None))


def fresh(wanted: str, taken: Container[str]) -> str:
    """`wanted`, or with underscores behind it until nobody else has it; with a number where that
    would be many."""
    for underscores in range(17):
        if (name := wanted + "_" * underscores) not in taken:
            return name
    low, high = 1, 2  # the number before one that is free: doubled, then halved
    while f"{wanted}_{high}" in taken:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if f"{wanted}_{middle}" in taken else (low, middle)
    return f"{wanted}_{high}"


_LEVELS = {
    "or": 1,
    "and": 2,
    "<": 4,
    "<=": 4,
    ">": 4,
    ">=": 4,
    "==": 4,
    "!=": 4,
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "@": 6,
    "**": 8,
}


def to_text(expr: Expr) -> str:
    """The expression as one would write it: reading it again gives the same tree."""
    return _written(expr)[0]


def _written(expr: Expr) -> tuple[str, int]:
    """Text and how tightly it binds."""
    match expr:
        case Number(value):
            exact = value.denominator == 1 or Fraction(repr(float(value))) == value
            return (
                (str(value) if value.denominator == 1 else repr(float(value)), 9)
                if exact
                else (f"{value.numerator} / {value.denominator}", 6)
            )
        case Ref(name, time):
            delay = "" if expr.delay is None else f"-{_inside(expr.delay, 6)}"
            inside = [] if time is None else [f"t{time or ''}{delay}"]
            inside += [] if expr.index is None else [to_text(expr.index)]
            return (f"{name}[{', '.join(inside)}]" if inside else name), 9
        case Unary("T", arg):
            return f"{_inside(arg, 9)}.T", 9
        case Unary(op, arg):
            level = 7 if op == "-" else 3
            return ("-" if op == "-" else "not ") + _inside(arg, level), level
        case Binary(op, left, right):
            level = _LEVELS[op]
            comparison = level == 4  # a < b < c means something else than (a < b) < c
            power = op == "**"
            return (
                f"{_inside(left, level + (comparison or power))} {op} {_inside(right, level if power else level + 1)}",
                level,
            )
        case Call(function, args):
            return f"{function}({', '.join(to_text(a) for a in args)})", 9
    raise TypeError(f"not an expression: {expr!r}")


def _inside(expr: Expr, level: int) -> str:
    text, own = _written(expr)
    return text if own >= level else f"({text})"
