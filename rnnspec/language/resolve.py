"""Names and times: what each name in the equations means, with constants, choices and the file's own functions put in.

In: a Document, the values of its constants and choices. Out: equations over inputs, states, parameters and
intermediates that call functions of the table only. Not here: shapes and order, see `shapes.py` and `check.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from rnnspec.language.equations import Binary, Call, Equation, Expr, Number, Place, Ref, Unary, walk
from rnnspec.language.faults import Faults, did_you_mean, listed
from rnnspec.language.functions import FUNCTIONS, NOT_YET
from rnnspec.language.reader import Definition, Document
from rnnspec.language.tokens import MAX_NESTING

MAX_NODES = 20_000  # of all equations together, functions inlined
MAX_EXPONENT = 64
UNKNOWN = Call("", ())  # stands where a fault was noted already; its arguments are still checked, nothing is made of it
_ARTICLES = {"input": "an input", "intermediate": "an intermediate value"}


class _TooLargeError(Exception):
    """Ends the reading of one equation, the fault being noted."""


@dataclass(frozen=True)
class _Tree:
    """A resolved expression, weighed: nodes, nesting, and the highest power in it ((x**8)**8 has 64)."""

    expr: Expr
    size: int = 1
    depth: int = 1
    power: Fraction = Fraction(1)


@dataclass(frozen=True)
class Scope:
    """What names mean. `kinds`: input, state, parameter, intermediate, constant, choice, function, size."""

    kinds: Mapping[str, str]
    constants: Mapping[str, Fraction]
    chosen: Mapping[str, str]
    functions: Mapping[str, Definition]
    broken: frozenset[str]

    def named(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.kinds.items() if kind in kinds]


def resolve(document: Document, scope: Scope, faults: Faults) -> list[Equation]:
    """The equations in the order of the file, resolved. What is at fault in one is noted and reads as UNKNOWN."""
    if _function_cycles(document, faults):
        return []
    resolver, resolved, nodes = _Resolver(scope, document, faults), [], 0
    for equation in document.equations.values():
        try:
            tree = resolver.equation(equation)
        except _TooLargeError:
            tree = _Tree(UNKNOWN)
        nodes += tree.size
        if nodes > MAX_NODES or resolver.work > 2 * MAX_NODES:
            faults.add(_EXPANDED, equation.at)
            return []
        resolved.append(replace(equation, value=tree.expr))
    return resolved


_EXPANDED = f"with the functions written out, the equations are larger than {MAX_NODES} names, numbers and operators."


def used_names(document: Document) -> frozenset[str]:
    """Every name that an equation, a function's body or a choice's list mentions."""
    bodies = [e.value for e in document.equations.values()] + [f.value.body for f in document.functions.values()]
    nodes = [node for body in bodies for node in walk(body)]
    options = [option for choice in document.choices.values() for option in choice.value]
    return frozenset([n.name for n in nodes if isinstance(n, Ref)] + [n.function for n in nodes if isinstance(n, Call)] + options)


_OPERATORS: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}


def with_article(kind: str) -> str:
    """'an input', 'a state'."""
    return _ARTICLES.get(kind, f"a {kind}")


def constant(expr: Expr) -> Fraction | None:
    """The value of an expression made of numbers only, else None."""
    match expr:
        case Number(value):
            return value
        case Unary("-", arg):
            inner = constant(arg)
            return None if inner is None else -inner
        case Binary("+" | "-" | "*" | "/" | "**" as op, left, right):
            a, b = constant(left), constant(right)
            if a is None or b is None or (op == "/" and b == 0) or (op == "**" and not _small_power(a, b)):
                return None
            return _OPERATORS[op](a, b)
    return None


def _small_power(base: Fraction, exponent: Fraction) -> bool:
    """Whether a power is exact and cheap to work out."""
    return exponent.denominator == 1 and abs(exponent) <= MAX_EXPONENT and base != 0 and max(abs(base.numerator), base.denominator) < 1000


def _function_cycles(document: Document, faults: Faults) -> bool:
    """Notes functions that call themselves, over others or over choices too."""
    calls = {name: [n.function for n in walk(entry.value.body) if isinstance(n, Call)] for name, entry in document.functions.items()}
    calls |= {name: list(entry.value) for name, entry in document.choices.items()}
    done: set[str] = set()
    for start in document.functions:
        path, waiting = [start], [iter(calls[start])]
        while waiting:
            callee = next(waiting[-1], None)
            if callee is None:
                done.add(path.pop())
                waiting.pop()
            elif callee in path:
                cycle = " -> ".join([*path[path.index(callee) :], callee])
                faults.add(f"functions can't call themselves: {cycle}.", document.functions[start].at)
                return True
            elif callee in calls and callee not in done:
                path.append(callee)
                waiting.append(iter(calls[callee]))
    return False


def is_known(expr: Expr) -> bool:
    """Whether no part of an expression stands for a fault that was noted."""
    return not any(isinstance(node, Call) and not node.function for node in walk(expr))


class _Resolver:
    """Rewrites one expression after another; `work` bounds the time that inlining may take."""

    def __init__(self, scope: Scope, document: Document, faults: Faults):
        self.scope, self.document, self.faults = scope, document, faults
        self.work = 0
        self.within = ""
        self.fixed: Place | None = None  # inside an inlined function: where the call stands
        self.args: Mapping[str, _Tree] | None = None

    def equation(self, equation: Equation) -> _Tree:
        self.within, self.fixed, self.args = f"the equation for '{equation.target}'", None, None
        return self.tree(equation.value)

    def fault(self, message: str, at: Place, *parts: _Tree) -> _Tree:
        self.faults.add(message, at)
        return self.made(replace(UNKNOWN, args=tuple(p.expr for p in parts), at=at), *parts)

    def at(self, expr: Expr) -> Place:
        return self.fixed or expr.at

    def blame(self, at: Place) -> Place:
        """Where a fault is shown: what is wrong in a function's body, at the function's definition."""
        if self.args is None:
            return at
        return self.document.functions[self.within.split("'")[1]].at

    def made(self, expr: Expr, *parts: _Tree, power: Fraction = Fraction(1)) -> _Tree:
        size, depth = 1 + sum(p.size for p in parts), 1 + max((p.depth for p in parts), default=0)
        if size > MAX_NODES or self.work > 2 * MAX_NODES or depth > MAX_NESTING + 1:
            message = (
                _EXPANDED if depth <= MAX_NESTING + 1 else f"with the functions written out, this is nested deeper than {MAX_NESTING}."
            )
            self.faults.add(message, expr.at)
            raise _TooLargeError
        return _Tree(expr, size, depth, max([power, *(p.power for p in parts)]))

    def tree(self, expr: Expr) -> _Tree:
        self.work += 1
        at = self.at(expr)
        match expr:
            case Number(value):
                return _Tree(Number(value, at))
            case Ref(name, time):
                return self.read(name, time, expr.at)
            case Unary(op, arg):
                inner = self.tree(arg)
                return self.made(Unary(op, inner.expr, at), inner)
            case Binary("**", left, right):
                return self.power(self.tree(left), self.tree(right), at)
            case Binary(op, left, right):
                a, b = self.tree(left), self.tree(right)
                return self.made(Binary(op, a.expr, b.expr, at), a, b)
            case Call(function, args):
                return self.call(function, [self.tree(a) for a in args], expr.at)
        raise TypeError(f"not an expression: {expr!r}")

    def power(self, base: _Tree, exponent: _Tree, at: Place) -> _Tree:
        if not is_known(base.expr) or not is_known(exponent.expr):
            return self.made(replace(UNKNOWN, args=(base.expr, exponent.expr)), base, exponent)
        value = constant(exponent.expr)
        if value is None:
            return self.fault(
                "an exponent is a number or a constant. Write exp(e * log(v)) for v ** e with another e.", self.blame(at), base, exponent
            )
        power = max(abs(value), Fraction(1)) * base.power
        if power > MAX_EXPONENT:
            text = f"{float(value):g}" if abs(value) < 1e300 else "a huge number"
            inside = (
                f" on top of the powers inside it makes {float(power):g}, which" if base.power > 1 and abs(value) <= MAX_EXPONENT else ""
            )
            return self.fault(f"the exponent {text}{inside} is over {MAX_EXPONENT}, the most that is offered.", self.blame(at), base)
        return self.made(Binary("**", base.expr, Number(value, exponent.expr.at), at), base, power=power)

    # names

    def read(self, name: str, time: int | None, at: Place) -> _Tree:
        here, kind = self.blame(at), self.scope.kinds.get(name, "")
        if self.args is not None and name in self.args:
            return self.args[name] if time is None else self.fault(f"'{name}' is an argument of {self.within} and carries no time.", here)
        if name in self.scope.broken:
            return _Tree(UNKNOWN)
        if name == "t":
            return (
                _Tree(Ref("t", None, self.fixed or at)) if time is None else self.fault("'t' is the step's number itself. Write t.", here)
            )
        if kind in ("input", "state", "intermediate"):
            return self.timed(name, time, kind, at)
        if kind in ("parameter", "constant"):
            if time is not None:
                return self.fault(f"'{name}' is a {kind} and carries no time. Write {name}.", here)
            return _Tree(Ref(name, None, self.fixed or at) if kind == "parameter" else Number(self.scope.constants[name], self.fixed or at))
        if kind == "size":
            return self.fault(f"'{name}' is a size. Sizes stand in shapes; their use in equations is not supported yet.", here)
        if kind in ("function", "choice") or name in FUNCTIONS or name in NOT_YET or name == "where":
            return self.fault(f"'{name}' is a function. Write {name}(...) with what it is applied to.", here)
        return self.unknown(name, time, here)

    def timed(self, name: str, time: int | None, kind: str, at: Place) -> _Tree:
        if self.args is not None:
            known = "its arguments, parameters and constants"
            return self.fault(f"{self.within} reads '{name}', {with_article(kind)}: a function reads {known} only.", self.blame(at))
        if time is None:
            choice = f"Write {name}[t]." if kind == "input" else f"Write {name}[t-1] for the previous step or {name}[t] for this one."
            return self.fault(f"'{name}' is used without a time. {choice}", at)
        return _Tree(Ref(name, time, at))

    def unknown(self, name: str, time: int | None, at: Place) -> _Tree:
        timed = self.scope.named("input", "state", "intermediate")
        fixed = self.scope.named("parameter", "constant")
        known = list(self.args or ()) + fixed if self.args is not None else (timed if time is not None else fixed)
        near = did_you_mean(name, [*known, *timed, *fixed] if self.args is None else known)
        advice = near or (" Define it by an equation, or declare it." if time is not None else " Declare it under parameters or constants.")
        return self.fault(f"unknown name '{name}' in {self.within}. Known here: {listed(known)}.{advice}", at)

    # calls

    def call(self, name: str, args: list[_Tree], at: Place) -> _Tree:
        name = self.scope.chosen.get(name, name)
        here = self.blame(at)
        if name in self.scope.broken:
            return self.made(replace(UNKNOWN, args=tuple(a.expr for a in args)), *args)
        wanted: tuple[str, ...]
        if name == "where":
            wanted = ("condition", "a", "b")
        elif name in self.scope.functions:
            wanted = self.scope.functions[name].args
        elif name in FUNCTIONS:
            wanted = FUNCTIONS[name].args
        else:
            return self.no_function(name, args, here)
        if len(args) != len(wanted):
            takes = f"{len(wanted)} argument{'s' * (len(wanted) != 1)}: {name}({', '.join(wanted)})"
            return self.fault(f"'{name}' takes {takes}, not {len(args)}.", here, *args)
        if name in self.scope.functions:
            return self.inline(name, args, at)
        return self.made(Call(name, tuple(a.expr for a in args), self.fixed or at), *args)

    def inline(self, name: str, args: list[_Tree], at: Place) -> _Tree:
        before = self.within, self.fixed, self.args
        self.within, self.fixed = f"the function '{name}'", self.fixed or at
        self.args = dict(zip(self.scope.functions[name].args, args))
        tree = self.tree(self.scope.functions[name].body)
        self.within, self.fixed, self.args = before
        return tree

    def no_function(self, name: str, args: list[_Tree], at: Place) -> _Tree:
        kind = self.scope.kinds.get(name, "")
        if name in NOT_YET:
            return self.fault(f"the function '{name}' is not supported yet.", at, *args)
        if kind in ("input", "state", "parameter", "intermediate", "constant"):
            return self.fault(f"'{name}' is {with_article(kind)}, not a function. Write '*' or '@' for a product.", at, *args)
        known = [*self.scope.named("choice", "function"), *FUNCTIONS, "where"]
        near = did_you_mean(name, known)
        return self.fault(f"unknown function '{name}' in {self.within}.{near} Known here: {listed(known, 50)}.", at, *args)


def check_choices(document: Document, faults: Faults) -> None:
    """Each option of a choice is a function, all of as many arguments."""
    known: Callable[[str], int | None] = lambda n: (  # noqa: E731
        len(document.functions[n].value.args) if n in document.functions else len(FUNCTIONS[n].args) if n in FUNCTIONS else None
    )
    for name, entry in document.choices.items():
        for option in entry.value:
            if option in NOT_YET:
                faults.add(f"the function '{option}' is not supported yet.", entry.at)
            elif known(option) is None:
                near = did_you_mean(option, [*document.functions, *FUNCTIONS])
                faults.add(f"the choice '{name}' lists '{option[:60]}', which is not a function.{near}", entry.at)
        counts = {known(option) for option in entry.value} - {None}
        if len(counts) > 1:
            faults.add(f"the options of the choice '{name}' take different numbers of arguments.", entry.at)
