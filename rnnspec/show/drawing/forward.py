"""The data flow of one step, as textbooks draw it.

In: a Spec. Out: marks. A gate, or another function, is a circle with its name, into which go the
lines of what it weighs, the weights at its edge; what is multiplied or added element by element is
a circle with the sign. What has no such form (choices, powers, functions along features) is a box
with its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rnnspec.language.features import FEATURES
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.roles import SIGMOIDS
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.tree import Binary, Call, Equation, Expr, Ref, Unary, children, to_text, walk
from rnnspec.show.drawing.marks import Kind, Line, Mark, text_lines, wrapped

ROOM, EDGE = 26, 13  # letters in a line of a box, and of an edge
LARGE, LINES = 100, 10  # names and signs of an equation that is drawn as one box; lines of a box
GLYPHS = {r"\sigma": "σ"}
SIGNS = {"+": "+", "-": "−", "*": "×", "/": "÷"}


@dataclass(frozen=True)
class Flow:
    """A part of an equation on its way into a mark: what it reads, and what stands at the edge.
    signs: how many values flow, each by one line; a Flow without reads is a number or a parameter.
    weighed: whether it is a sum of weighed values, which a gate takes in as it is.
    """

    reads: tuple[tuple[str, Line], ...] = ()
    edge: tuple[str, ...] = ()
    weighed: bool = False

    @property
    def flows(self) -> bool:
        return any(line != "once" for _, line in self.reads)


def step(spec: Spec) -> dict[str, Mark]:
    """The marks of a step by key, each after what it reads.

    Keys are "h[t-1]" and "x[t]" for what stands before, names of equations, and "to h", "out h" for
    what it leaves.
    """
    work = _Work(spec)
    for equation in spec.equations:
        work.equation(equation)
    for name in dict.fromkeys([*spec.states, *spec.outputs]):
        ways = [
            w for w, there in (("to the next step", name in spec.states), ("output", name in spec.outputs)) if there
        ]
        source = name if name in work.marks else work.source(Ref(name, 0))
        work.marks[f"leaves {name}"] = Mark("output", (f"{name}: {', '.join(ways)}",), reads={source: "thin"})
    return work.marks


@dataclass
class _Work:
    spec: Spec
    marks: dict[str, Mark] = field(default_factory=dict)
    number: int = 0

    def equation(self, equation: Equation) -> None:
        target = equation.target
        if not equation.timed:
            text = text_lines(f"{target} = {to_text(equation.value)}", ROOM)
            once = {r.name for r in walk(equation.value) if isinstance(r, Ref) and r.name in self.marks}
            self.marks[target] = Mark("once", tuple(text), reads=dict.fromkeys(sorted(once), "once"))
            return
        before = set(self.marks)
        large = sum(1 for _ in walk(equation.value)) > LARGE
        flow = self.box(equation.value) if large else self.flow(equation.value)
        key = flow.reads[0][0] if len(flow.reads) == 1 and not flow.edge else ""
        if not key.startswith("#") or key in before or flow.reads[0][1] != "thin":
            key = self.node(flow)
        mark = self.marks.pop(key)
        mark.name = target
        self.marks[target] = mark
        for other in self.marks.values():
            if key in other.reads:
                other.reads[target] = other.reads.pop(key)

    def add(self, mark: Mark) -> Flow:
        self.number += 1
        key = f"#{self.number}"
        self.marks[key] = mark
        return Flow(((key, "thin"),))

    def node(self, flow: Flow) -> str:
        """The mark of a flow that no other mark takes in: a sum of weighed values, a copy."""
        if not flow.weighed:
            mark = Mark("operation", ("=",), "", flow.edge, dict(flow.reads))
        elif len([r for r in flow.reads if r[1] != "once"]) == 1 and len(flow.edge) == 1:
            matrix = any(line == "matrix" for _, line in flow.reads)
            mark = Mark("operation", ("·" if matrix else "×",), "", flow.edge, dict(flow.reads))
        else:
            mark = Mark("operation", ("+",), "", self.edge(flow.edge), dict(flow.reads))
        return self.add(mark).reads[0][0]

    @staticmethod
    def edge(names: Sequence[str]) -> tuple[str, ...]:
        return wrapped(list(names), EDGE)

    def source(self, ref: Ref) -> str:
        """What stands before the step, or the mark of an equation."""
        if ref.name in self.marks and not ref.time:
            return ref.name
        key = f"{ref.name}[t{ref.time or ''}]"
        if key not in self.marks:
            self.marks[key] = Mark("input" if ref.name in self.spec.inputs and not ref.time else "state", (key,))
        return key

    def flow(self, expr: Expr) -> Flow:
        match expr:
            case Ref(name) if name in self.spec.parameters or name not in self.spec.shapes or expr.time is None:
                reads: tuple[tuple[str, Line], ...] = ((name, "once"),) if name in self.marks else ()
                return Flow(reads, (to_text(expr),))
            case Ref():
                return Flow(((self.source(expr), "thin"),))
            case Binary("@" | "*", left, right):
                return self.product(expr, left, right)
            case Binary("+" | "-", _, _):
                return self.sum(expr)
            case Binary("/", left, right):
                return self.operation("÷", [self.flow(left), self.ending(self.flow(right), "divisor")], expr)
            case Unary("-", arg):
                inner = self.flow(arg)
                return self.operation("−", [inner], expr) if inner.flows else self.constant(expr, [inner])
            case Call(function, args) if function in FUNCTIONS and len(args) == 1:
                return self.function(expr, function, self.flow(args[0]))
            case Call(function, args) if function in FEATURES and self.is_short(function, args):
                return self.along_features(expr, function)
        return self.box(expr)

    def product(self, expr: Expr, left: Expr, right: Expr) -> Flow:
        """A value by a parameter is weighed; two values meet in a circle."""
        matrix = isinstance(expr, Binary) and expr.op == "@"
        a, b = self.flow(left), self.flow(right)
        if not (a.flows or b.flows):
            return self.constant(expr, [a, b])
        if a.flows and b.flows:
            return self.operation("·" if matrix else "×", [a, b], expr)
        value, weight = (b, a) if b.flows else (a, b)
        lone = [r for r in value.reads if r[1] != "once"]
        if value.weighed or len(lone) > 1:
            value = Flow(((self.node(value), "thin"),))
        reads: list[tuple[str, Line]] = [(key, "matrix" if matrix else line) for key, line in value.reads]
        return Flow((*reads, *weight.reads), weight.edge, True)

    def sum(self, expr: Expr) -> Flow:
        """Terms of a sum: those that are weighed come together, and a gate may take them in."""
        terms, minus = self.terms(expr)
        flows = [self.flow(t) for t in terms]
        if not any(f.flows for f in flows):
            return self.constant(expr, flows)
        if not any(minus):
            if all(f.weighed or not f.flows for f in flows):
                return Flow(tuple(r for f in flows for r in f.reads), tuple(e for f in flows for e in f.edge), True)
            return self.operation("+", flows, expr)
        if len(flows) == 2 and not flows[0].flows:  # 1 - z
            known = to_text(terms[0])
            sign, edge = (f"{known}−", ()) if len(known) < 4 else ("−", (f"from {known}",))
            return self.add(Mark("operation", (sign,), "", edge, dict([*self.drawn(flows[1]).reads, *flows[0].reads])))
        if len(flows) == 2:  # the sign says what is done with a number or a parameter
            return self.operation("−", [flows[0], self.ending(flows[1], "minus")], expr)
        signed = [
            (self.ending(f, "minus") if f.flows else Flow(f.reads, tuple(f"−{e}" for e in f.edge))) if m else f
            for f, m in zip(flows, minus)
        ]
        return self.operation("±", signed, expr)

    def ending(self, flow: Flow, line: Line) -> Flow:
        """A flow whose line says what is done with it; a number or a parameter as it is."""
        if not flow.flows:
            return flow
        drawn = self.drawn(flow)
        return Flow(tuple((key, line if way == "thin" else way) for key, way in drawn.reads), drawn.edge)

    def terms(self, expr: Expr) -> tuple[list[Expr], list[bool]]:
        if isinstance(expr, Binary) and expr.op in "+-":
            left, minus = self.terms(expr.left)
            return [*left, expr.right], [*minus, expr.op == "-"]
        return [expr], [False]

    def drawn(self, flow: Flow) -> Flow:
        """A flow that is a line: what is weighed gets a mark of its own."""
        return Flow(((self.node(flow), "thin"),)) if flow.weighed else flow

    def operation(self, sign: str, flows: Sequence[Flow], expr: Expr) -> Flow:
        """A circle with a sign; what is a number or a parameter stands at its edge."""
        if not any(f.flows for f in flows):
            return self.constant(expr, flows)
        if sign == "+":
            weighed = [f for f in flows if f.weighed]
            several = len(weighed) > 1 or any(not f.flows for f in flows)
            merged = Flow(
                tuple(r for f in flows if f.weighed or not f.flows for r in f.reads),
                tuple(e for f in flows if f.weighed or not f.flows for e in f.edge),
                True,
            )
            flows = [*([merged] if weighed else []), *(f for f in flows if not f.weighed and (f.flows or not weighed))]
            flows = [self.drawn(f) if several or f.weighed else f for f in flows]
        else:
            flows = [self.drawn(f) for f in flows]
        return self.add(
            Mark("operation", (sign,), "", self.edge([e for f in flows for e in f.edge]), self.reads(flows))
        )

    def reads(self, flows: Sequence[Flow]) -> dict[str, Line]:
        """The lines of flows into one mark: a value that is read more than once has a line for each
        time, or r * r would look like a function of one value."""
        reads: dict[str, Line] = {}
        for flow in flows:
            for key, line in dict(flow.reads).items():
                again = key in reads and line != "once"
                reads[self.add(Mark("", reads={key: line})).reads[0][0] if again else key] = line
        return reads

    def function(self, expr: Expr, function: str, inner: Flow) -> Flow:
        if not inner.flows:
            return self.constant(expr, [inner])
        label = GLYPHS.get(FUNCTIONS[function].latex, function)
        kind: Kind = "gate" if function in SIGMOIDS else "function"
        return self.add(Mark(kind, (label,), "", self.edge(inner.edge), dict(inner.reads)))

    @staticmethod
    def is_short(function: str, args: tuple[Expr, ...]) -> bool:
        """Whether a circle with its name says all of a function along features."""
        return all(isinstance(a, Ref) and FEATURES[function].kind(n) == "operand" for n, a in enumerate(args))

    def along_features(self, expr: Expr, function: str) -> Flow:
        flows = [self.flow(a) for a in children(expr)]
        if not any(f.flows for f in flows):
            return self.constant(expr, flows)
        edge = self.edge([e for f in flows for e in f.edge])
        return self.add(Mark("operation", (function,), "", edge, self.reads(flows)))

    def constant(self, expr: Expr, parts: Sequence[Flow]) -> Flow:
        """What no value flows into: a text at the edge."""
        return Flow(tuple(r for f in parts for r in f.reads), (to_text(expr),))

    def box(self, expr: Expr) -> Flow:
        """An expression as text, with a line from each value in it."""
        reads: dict[str, Line] = {}
        for ref in walk(expr):
            if isinstance(ref, Ref) and ref.name in self.spec.shapes and ref.name not in self.spec.parameters:
                reads[self.source(ref) if ref.time is not None else ref.name] = (
                    "thin" if ref.time is not None else "once"
                )
        if not any(line != "once" for line in reads.values()):
            return Flow(tuple(reads.items()), (to_text(expr),))
        lines = text_lines(to_text(expr), ROOM)
        lines = lines if len(lines) <= LINES else [*lines[: LINES - 1], "…"]
        return self.add(Mark("box", tuple(lines), "", (), reads))
