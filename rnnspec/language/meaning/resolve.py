"""Names and times: what each name in the equations means, with constants, choices and the file's
own functions put in.

In: a Document, the values of its constants and choices. Out: equations over inputs, states,
parameters and intermediates that call functions of the table only. Not here: shapes and order, see
`shapes.py` and `check.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from rnnspec.language.features import FEATURES
from rnnspec.language.functions import FUNCTIONS, INTERNAL
from rnnspec.language.meaning.constants import MAX_EXPONENT, constant, settled
from rnnspec.language.meaning.definitions import check_cycles, written_size
from rnnspec.language.meaning.scope import TIMED, Scope, with_article
from rnnspec.language.meaning.unroll import NotWholeError, Round, whole
from rnnspec.language.reading.document import Document
from rnnspec.language.sizes import SizeError, size_names, size_of
from rnnspec.language.syntax import habits
from rnnspec.language.syntax.faults import Faults, did_you_mean, listed
from rnnspec.language.syntax.parse import MAX_DELAY
from rnnspec.language.syntax.tokens import MAX_NESTING
from rnnspec.language.syntax.tree import Binary, Call, Equation, Expr, Number, Place, Ref, Unary, walk

MAX_NODES = 8_000  # of all equations together, functions inlined
UNKNOWN = Call("", ())  # stands where a fault was noted already; its arguments are still checked, nothing is made of it


class _TooLargeError(Exception):
    """Ends the reading of one equation, the fault being noted."""


@dataclass(frozen=True)
class _Tree:
    """A resolved expression, weighed: nodes, nesting, and the highest power in it ((x**8)**8 has
    64)."""

    expr: Expr
    size: int = 1
    depth: int = 1
    power: Fraction = Fraction(1)


def resolve(document: Document, scope: Scope, faults: Faults) -> list[Equation]:
    """The equations in the order of the file, resolved. What is at fault in one is noted and reads
    as UNKNOWN."""
    if check_cycles(document, faults):
        return []
    resolver, resolved, nodes = _Resolver(scope, document, faults), [], 0
    for item in scope.unrolled.rounds:
        try:
            tree = resolver.equation(item)
        except _TooLargeError:
            tree = _Tree(UNKNOWN)
        nodes += tree.size
        if nodes > MAX_NODES or resolver.work > 2 * MAX_NODES:
            faults.add(_EXPANDED, item.equation.at)
            return []
        resolved.append(replace(item.equation, target=item.target, value=tree.expr, index=None, loop=None))
    return resolved


_EXPANDED = (
    f"with the functions written out and the loops unrolled, the equations are larger than {MAX_NODES} names, numbers"
    " and operators."
)


def is_known(expr: Expr) -> bool:
    """Whether no part of an expression stands for a fault that was noted."""
    return not any(isinstance(node, Call) and not node.function for node in walk(expr))


class _Resolver:
    """Rewrites one expression after another; `work` bounds the time that inlining may take."""

    def __init__(self, scope: Scope, document: Document, faults: Faults):
        self.scope, self.document, self.faults = scope, document, faults
        self.work = 0
        self.target = ""  # of the equation
        self.function = ""  # the one that is inlined, if any
        self.fixed: Place | None = None  # inside an inlined function: where the call stands
        self.args: Mapping[str, _Tree] | None = None
        self.values: Mapping[str, int] = {}  # of the loop's variable
        self.timed_target = True

    def equation(self, item: Round) -> _Tree:
        self.target, self.function, self.fixed, self.args = item.equation.target, "", None, None
        self.values, self.timed_target = item.values, item.equation.timed
        return self.tree(item.equation.value)

    def fault(self, message: str, at: Place, *parts: _Tree) -> _Tree:
        self.faults.add(message, at)
        return self.made(replace(UNKNOWN, args=tuple(p.expr for p in parts), at=at), *parts)

    def at(self, expr: Expr) -> Place:
        return self.fixed or expr.at

    @property
    def within(self) -> str:
        """What is being read, as messages call it."""
        return f"the function '{self.function}'" if self.function else f"the equation for '{self.target}'"

    def blame(self, at: Place) -> Place:
        """Where a fault is shown: what is wrong in a function's body, at the function's
        definition."""
        return self.document.functions[self.function].at if self.function else at

    def made(self, expr: Expr, *parts: _Tree, power: Fraction = Fraction(1), own: int = 1) -> _Tree:
        size, depth = own + sum(p.size for p in parts), 1 + max((p.depth for p in parts), default=0)
        if size > MAX_NODES or self.work > 2 * MAX_NODES or depth > MAX_NESTING + 1:
            message = (
                _EXPANDED
                if depth <= MAX_NESTING + 1
                else f"with the functions written out, this is nested deeper than {MAX_NESTING}."
            )
            self.faults.add(message, expr.at)
            raise _TooLargeError
        return _Tree(expr, size, depth, max([power, *(p.power for p in parts)]))

    def tree(self, expr: Expr) -> _Tree:
        self.work += 1
        at = self.at(expr)
        match expr:
            case Number():
                return _Tree(replace(expr, at=at))
            case Ref():
                return self.read(expr)
            case Unary(op, arg):
                inner = self.tree(arg)
                return self.made(Unary(op, inner.expr, at), inner)
            case Binary("**", left, right):
                return self.power(self.tree(left), self.tree(right), at)
            case Binary(op, left, right):
                a, b = self.tree(left), self.tree(right)
                if (
                    op == "+" and self.values and Number(Fraction(0)) in (a.expr, b.expr)
                ):  # what where(k == 1, W @ x[t], 0) leaves
                    return b if a.expr == Number(Fraction(0)) else a
                return self.made(Binary(op, a.expr, b.expr, at), a, b)
            case Call("where", (condition, a, b)):
                return self.where(condition, a, b, expr.at)
            case Call(function, args):
                return self.call(function, [self.tree(a) for a in args], expr.at)
        raise TypeError(f"not an expression: {expr!r}")

    def where(self, condition: Expr, a: Expr, b: Expr, at: Place) -> _Tree:
        """A condition on the loop's variable is settled here: the other side is not even read,
        since R[k-1] may not be there."""
        decided = self.tree(condition)
        if any(isinstance(n, Ref) and n.name in self.values for n in walk(condition)):
            answer = settled(decided.expr)
            if answer is not None:
                return self.tree(a if answer else b)
        return self.call("where", [decided, self.tree(a), self.tree(b)], at)

    def power(self, base: _Tree, exponent: _Tree, at: Place) -> _Tree:
        if not is_known(base.expr) or not is_known(exponent.expr):
            return self.made(replace(UNKNOWN, args=(base.expr, exponent.expr)), base, exponent)
        value = constant(exponent.expr)
        if value is None:
            return self.fault(
                "an exponent is a number or a constant. Write exp(e * log(v)) for v ** e with another e.",
                self.blame(at),
                base,
                exponent,
            )
        power = max(abs(value), Fraction(1)) * base.power
        if power > MAX_EXPONENT:
            text = f"{float(value):g}" if abs(value) < 1e300 else "a huge number"
            inside = (
                f" on top of the powers inside it makes {float(power):g}, which"
                if base.power > 1 and abs(value) <= MAX_EXPONENT
                else ""
            )
            return self.fault(
                f"the exponent {text}{inside} is over {MAX_EXPONENT}, the most that is offered.", self.blame(at), base
            )
        return self.made(Binary("**", base.expr, Number(value, exponent.expr.at), at), base, power=power)

    # names

    def read(self, ref: Ref) -> _Tree:
        name, at = ref.name, self.fixed or ref.at
        here, kind, plain = self.blame(ref.at), self.scope.kinds.get(name, ""), ref.time is None and ref.index is None
        if self.args is not None and name in self.args:
            return (
                self.args[name]
                if plain
                else self.fault(f"'{name}' is an argument of {self.within} and carries no time.", here)
            )
        if name in self.scope.broken:
            return _Tree(UNKNOWN)
        if name in self.values:
            return (
                _Tree(Number(Fraction(self.values[name]), at))
                if plain
                else self.fault(f"'{name}' counts rounds. Write {name}.", here)
            )
        if name == "t":
            if not plain:
                return self.fault("'t' is the step's number itself. Write t.", here)
            return (
                _Tree(Ref("t", None, at))
                if self.timed_target
                else self.fault(f"{self.within} has no time, so it can't read t.", here)
            )
        if name in self.scope.unrolled.families:
            return self.member(ref, kind, at)
        if kind in TIMED:
            return self.timed(ref, kind)
        if kind in ("parameter", "constant", "size", "once"):
            return self.still(ref, kind, at)
        if kind in ("function", "choice") or name in FUNCTIONS or name in FEATURES or name == "where":
            return self.fault(f"'{name}' is a function. Write {name}(...) with what it is applied to.", here)
        return self.unknown(name, ref.time, here)

    def whole(self, expr: Expr) -> int:
        return whole(expr, {**self.scope.constants, **self.values}, self.scope.named("size"))

    def still(self, ref: Ref, kind: str, at: Place) -> _Tree:
        """What carries no time: a parameter or one of its slices, a constant, a size, a value
        computed once."""
        name, here = ref.name, self.blame(ref.at)
        if ref.time is not None:
            return self.fault(f"'{name}' is {with_article(kind)} and carries no time. Write {name}.", here)
        if kind == "parameter":
            return self.parameter(ref, at)
        if ref.index is not None:
            return self.fault(f"'{name}' is {with_article(kind)} and has no slices. Write {name}.", here)
        return _Tree(Number(self.scope.constants[name], at, name) if kind == "constant" else Ref(name, None, at))

    def parameter(self, ref: Ref, at: Place) -> _Tree:
        name, here, shape = ref.name, self.blame(ref.at), self.document.parameters[ref.name].value
        shown = f"'{name}' is {'[' + ', '.join(shape) + ']' if shape else 'one number'}"
        if ref.index is None:
            return (
                self.fault(f"{shown}. Write {name}[k] for one of its matrices.", here)
                if len(shape) > 2
                else _Tree(Ref(name, None, at))
            )
        if not shape or not shape[0].isdigit():
            advice = f"Give its first axis a number, under sizes: {{{shape[0]}: 3}}." if shape else f"Write {name}."
            return self.fault(f"{shown}: it has no slices that could be counted. {advice}", here)
        try:
            index = self.whole(ref.index)
            if not 1 <= index <= int(shape[0]):
                raise NotWholeError(f"{index} is not from 1 to {shape[0]}")
        except NotWholeError as error:
            return self.fault(f"the index of '{name}': {error}.", here)
        return _Tree(Ref(name, None, at, Number(Fraction(index))))

    def member(self, ref: Ref, kind: str, at: Place) -> _Tree:
        """s[t, k]: the value of one round."""
        name, here, family = ref.name, self.blame(ref.at), self.scope.unrolled.families[ref.name]
        form = f"{name}[t, k]" if kind == "intermediate" else f"{name}[k]"
        if ref.index is None or (ref.time is None) != (kind == "once"):
            return self.fault(f"'{name}' has one value a round. Write {form}.", here)
        try:
            index = self.whole(ref.index)
        except NotWholeError as error:
            return self.fault(f"the second index of '{name}': {error}.", here)
        if index not in family:
            defined = listed(sorted(str(k) for k in family)) if len(family) < 6 else f"{min(family)} to {max(family)}"
            return self.fault(f"'{name}' has no round {index}. It is defined for {defined}.", here)
        flat = replace(ref, name=family[index], index=None)
        return self.timed(flat, kind) if kind == "intermediate" else _Tree(replace(flat, at=at))

    def timed(self, ref: Ref, kind: str) -> _Tree:
        name, at, time = ref.name, ref.at, ref.time
        if self.args is not None:
            known = "its arguments, parameters and constants"
            return self.fault(
                f"{self.within} reads '{name}', {with_article(kind)}: a function reads {known} only.", self.blame(at)
            )
        if time is None:
            choice = (
                f"Write {name}[t]."
                if kind == "input"
                else f"Write {name}[t-1] for the previous step or {name}[t] for this one."
            )
            return self.fault(f"'{name}' is used without a time. {choice}", at)
        if not self.timed_target:
            return self.fault(
                f"{self.within} has no time, so it can't read {name}, which changes with it. Write"
                f" {self.target}[t] = ...",
                at,
            )
        if ref.index is not None:
            return self.fault(f"'{name}' has one value a step and takes no second index. Write {name}[t].", at)
        if ref.delay is not None:
            try:
                time = -self.whole(ref.delay)
                if not 0 <= -time <= MAX_DELAY:
                    raise NotWholeError(f"{-time} is not from 0 to {MAX_DELAY}")
            except NotWholeError as error:
                return self.fault(f"the number of steps back of '{name}': {error}.", at)
        return _Tree(Ref(name, time, at))

    def unknown(self, name: str, time: int | None, at: Place) -> _Tree:
        timed = self.scope.named(*TIMED)
        fixed = [*self.values, *self.scope.named("parameter", "constant", "once")]
        known = list(self.args or ()) + fixed if self.args is not None else (timed if time is not None else fixed)
        meant = habits.of_step(name, timed) if self.args is None and time is None else None
        near = did_you_mean(name, [*known, *timed, *fixed] if self.args is None else known)
        advice = (
            f" Write {meant[1]} for the value of that step."
            if meant
            else near
            or (
                " Define it by an equation, or declare it."
                if time is not None
                else " Declare it under parameters or constants."
            )
        )
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
        elif name in FUNCTIONS and name not in INTERNAL:
            wanted = FUNCTIONS[name].args
        elif name in FEATURES:
            return self.feature(name, args, here)
        else:
            return self.no_function(name, args, here)
        if len(args) != len(wanted):
            takes = f"{len(wanted)} argument{'s' * (len(wanted) != 1)}: {name}({', '.join(wanted)})"
            return self.fault(f"'{name}' takes {takes}, not {len(args)}.", here, *args)
        if name in self.scope.functions:
            return self.inline(name, args, at)
        return self.made(Call(name, tuple(a.expr for a in args), self.fixed or at), *args, own=written_size(name))

    def feature(self, name: str, args: list[_Tree], here: Place) -> _Tree:
        wanted = FEATURES[name].args
        if len(args) != len(wanted) and not ("..." in wanted and args):
            many = "one argument or more" if "..." in wanted else f"{len(wanted)} argument{'s' * (len(wanted) != 1)}"
            return self.fault(
                f"'{name}' takes {many}: {name}({', '.join(wanted).lower()}), not {len(args)}.", here, *args
            )
        for argument, tree in zip(wanted, args):
            if argument.isupper() and is_known(tree.expr):
                try:
                    unknown = sorted(size_names(size_of(tree.expr)) - set(self.scope.named("size")))
                    problem = f"{unknown[0]} is none" if unknown else ""
                except SizeError as error:
                    problem = str(error)
                if problem:
                    return self.fault(
                        f"'{argument.lower()}' in {name}({', '.join(wanted).lower()}) must be a size: {problem}.",
                        here,
                        *args,
                    )
        return self.made(Call(name, tuple(a.expr for a in args), self.fixed or here), *args, own=written_size(name))

    def inline(self, name: str, args: list[_Tree], at: Place) -> _Tree:
        before = self.function, self.fixed, self.args, self.values
        self.function, self.fixed, self.values = name, self.fixed or at, {}
        self.args = dict(zip(self.scope.functions[name].args, args))
        tree = self.tree(self.scope.functions[name].body)
        self.function, self.fixed, self.args, self.values = before
        return tree

    def no_function(self, name: str, args: list[_Tree], at: Place) -> _Tree:
        kind = self.scope.kinds.get(name, "")
        if kind in (*TIMED, "parameter", "constant", "once"):
            return self.fault(
                f"'{name}' is {with_article(kind)}, not a function. Write '*' or '@' for a product.", at, *args
            )
        known = [
            *self.scope.named("choice", "function"),
            *(f for f in FUNCTIONS if f not in INTERNAL),
            *FEATURES,
            "where",
        ]
        near = habits.of_call(name) or did_you_mean(name, known)
        return self.fault(
            f"unknown function '{name}' in {self.within}.{near} Known here: {listed(known, 50)}.", at, *args
        )
