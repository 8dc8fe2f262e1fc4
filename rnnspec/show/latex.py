r"""A cell's equations and its gradients as a LaTeX align environment.

In: a Spec, its Graph and its adjoint. Out: text for amsmath. Products are written side by side,
products element by element with \odot; \bar v is the gradient of v.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rnnspec.language.features import FEATURES
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.meaning.shapes import shape_of
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.tree import Binary, Call, Equation, Expr, Number, Ref, Unary, to_text
from rnnspec.symbolic.adjoint import gradient_of
from rnnspec.symbolic.expressions import FUNCTION_CLASSES
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
from rnnspec.symbolic.operations import HALF, add, multiply, negative, power, subtract, total

TRANSPOSED = r"^{\top}"
LEGEND = (
    r"% \bar v: gradient of v; \bar h^{\leftarrow}: what flows from step t+1 into h_t; "
    r"\bar h^{\downarrow}: the gradient of the output h"
)
MAX_INLINE = 2000  # characters of a value without an equation, where it is put in
GREEK = frozenset(
    [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
        "pi",
        "rho",
        "sigma",
        "tau",
        "phi",
        "chi",
        "psi",
        "omega",
    ]
)
RELATIONS = {"<": "<", "<=": r"\le", ">": ">", ">=": r"\ge", "==": "=", "!=": r"\ne", "and": r"\land", "or": r"\lor"}
_CONDITIONS = {"less": "<", "less_equal": r"\le", "equal": "=", "unequal": r"\ne", "both": r"\land", "either": r"\lor"}


class TexPiece(NamedTuple):
    """A part of a formula. binding: how tightly it binds: 0 conditions, 1 sums, 2 products, 3
    names; wide: whether it has a feature axis."""

    text: str
    binding: int
    wide: bool

    def __format__(self, binding: str) -> str:
        """The text, in brackets unless it binds as tightly as is asked for: {v:2}."""
        return _inside(self, int(binding or 0))


def align(spec: Spec, graph: Graph, reverse: Graph) -> str:
    """The align environment: forward equations, then those of the adjoint."""
    rows = [f"{name(e.target, _time(e))} &= {_forward(e.value, spec).text}" for e in spec.equations]
    rows += _Adjoint(spec, graph, reverse).rows()
    return LEGEND + "\n\\begin{align*}\n" + " \\\\\n".join(f"  {row}" for row in rows) + "\n\\end{align*}"


def name(text: str, time: str = "", bar: bool = False) -> str:
    r"""`W_i` is W_{i}; `h` at "t-1" is h_{t-1}; `c_n` at "t" is c_{n, t}; `alpha` is \alpha."""
    base, _, below = text.partition("_")
    if not base or not base.replace("_", ""):
        base, below = text, ""
    head = base if len(base) == 1 else f"\\{base}" if base in GREEK else f"\\mathrm{{{_escaped(base)}}}"
    parts = [p for p in (_escaped(below) if len(below) < 2 else f"\\mathrm{{{_escaped(below)}}}", time) if p]
    return (f"\\bar{{{head}}}" if bar else head) + (f"_{{{', '.join(parts)}}}" if parts else "")


def _escaped(text: str) -> str:
    return text.strip("_").replace("_", "\\_")


def _time(equation: Equation) -> str:
    return "t" if equation.timed else ""


def _inside(piece: TexPiece, binding: int) -> str:
    return piece.text if piece.binding >= binding else f"\\left({piece.text}\\right)"


def _call(function: str, args: Sequence[TexPiece]) -> TexPiece:
    """A function by its name, or by what its row says."""
    row = FUNCTIONS.get(function)
    head = (row.latex if row is not None else "") or f"\\operatorname{{{_escaped(function)}}}"
    return TexPiece(f"{head}\\left({', '.join(a.text for a in args)}\\right)", 3, any(a.wide for a in args))


def _feature(function: str, args: Sequence[TexPiece], wide: bool) -> TexPiece:
    """A function along features, in the form that its row gives. wide: whether its value has a
    feature axis."""
    row = FEATURES[function]
    if not row.latex:
        return _call(function, args)
    named = dict(zip(row.args, args)) | {"all": TexPiece(";\\, ".join(a.text for a in args), 3, wide)}
    return TexPiece(row.latex.format(**named), row.binding, wide)


def _cases(condition: TexPiece, a: TexPiece, b: TexPiece) -> TexPiece:
    text = f"\\begin{{cases}} {a.text} & \\text{{if }} {condition.text} \\\\ {b.text} & \\text{{else}} \\end{{cases}}"
    return TexPiece(text, 3, condition.wide or a.wide or b.wide)


def _joined(factors: list[TexPiece]) -> TexPiece:
    """Factors side by side; between two that have a feature axis stands the sign of the elementwise
    product."""
    text, wide = _inside(factors[0], 2), factors[0].wide
    for factor in factors[1:]:
        text += (r" \odot " if wide and factor.wide else " \\, ") + _inside(factor, 3 if factor.binding != 2 else 2)
        wide = wide or factor.wide
    return TexPiece(text, 2, wide)


# --- equations of the language ---


def _forward(expr: Expr, spec: Spec) -> TexPiece:
    match expr:
        case Number():
            return TexPiece(to_text(expr), 3 if expr.value >= 0 and expr.value.denominator == 1 else 2, False)
        case Ref(source, None) if source not in spec.shapes:  # t, or a size
            return TexPiece(name(source), 3, False)
        case Ref(source, time):
            below = to_text(expr.index) if expr.index is not None else "" if time is None else f"t{time or ''}"
            return TexPiece(name(source, below), 3, bool(spec.shapes[source]))
        case Unary("T", arg):
            inner = _forward(arg, spec)
            return TexPiece(_inside(inner, 3) + TRANSPOSED, 3, inner.wide)
        case Unary(op, arg):
            inner = _forward(arg, spec)
            return TexPiece(("-" + _inside(inner, 2) if op == "-" else r"\lnot " + _inside(inner, 3)), 1, inner.wide)
        case Binary(op, left, right):
            return _binary(op, _forward(left, spec), _forward(right, spec))
        case Call("where", (condition, a, b)):
            return _cases(_forward(condition, spec), _forward(a, spec), _forward(b, spec))
        case Call(function, args):
            pieces = [_forward(a, spec) for a in args]
            if function in FEATURES:
                return _feature(function, pieces, bool(shape_of(expr, spec.shapes, spec.sizes)))
            return _call(function, pieces)
    raise TypeError(f"not an expression: {expr!r}")


def _binary(op: str, a: TexPiece, b: TexPiece) -> TexPiece:
    wide = a.wide or b.wide
    match op:
        case "+" | "-":
            return TexPiece(f"{a:1} {op} {_inside(b, 1 if op == '+' else 2)}", 1, wide)
        case "*":
            return _joined([a, b])
        case "@":
            return TexPiece(f"{a:3} {b:3}", 2, True)
        case "/":
            return TexPiece(f"\\frac{{{a.text}}}{{{b.text}}}", 2, wide)
        case "**":
            return TexPiece(f"{a:3}^{{{b.text}}}", 2, wide)
    return TexPiece(f"{a:1} {RELATIONS[op]} {b:1}", 0, wide)


# --- the adjoint ---


def _once(graph: Graph) -> set[str]:
    """The nodes that depend on parameters and sizes alone."""
    found: set[str] = set()
    for node, own in graph.nodes.items():
        read = own.kind in ("parameter", "size") if isinstance(own, Read) else found.issuperset(operands(own))
        if read:
            found.add(node)
    return found


class _Adjoint:
    """Pieces of an adjoint's nodes. Forward values without an equation, unless that would be long,
    and products that are read once are put in where they are read."""

    def __init__(self, spec: Spec, graph: Graph, reverse: Graph):
        self.spec, self.graph, self.reverse = spec, graph, reverse
        self.uses = reverse.uses()
        self.once = {e.target for e in spec.equations if not e.timed} | (_once(graph) - set(spec.shapes))
        self.states = {node: state for state, node in reverse.reads("state").items()}  # what comes from behind
        before = graph.reads("state")
        self.before = {f"d_{before[state]}": state for state in graph.states if state in before}
        self.outputs = {gradient_of(output): output for output in graph.outputs}
        self.written: dict[str, TexPiece] = {}  # forward values without an equation
        for node, own in graph.nodes.items():
            if node not in spec.shapes and not isinstance(own, Read):
                self.written[node] = self.node(own)

    def rows(self) -> list[str]:
        nodes, results = self.reverse.nodes, set(self.reverse.results())
        rows = [
            f"{self.left(n)} &= {self.node(node).text}"
            for n, node in nodes.items()
            if n not in self.graph.nodes
            and not isinstance(node, Read)
            and not (isinstance(node, Outer) and n in results)
            and not (self.inlined(n) and n not in results)
            and n not in self.reverse.outputs.values()
        ]
        rows += [
            f"{name(source, 't', True)} &= {self.left(n) if isinstance(nodes[n], Read) else self.node(nodes[n]).text}"
            for source, n in self.reverse.outputs.items()
        ]
        rows += [
            f"{name(s, 't-1', True)}^{{\\leftarrow}} &= {self.left(n)}"
            for s, n in self.reverse.states.items()
            if self.before.get(n) != s
        ]
        rows += [
            f"{self.source(p, True)} &= \\sum_{{t, b}} {' + '.join(self.summand(n) for n in group) or '0'}"
            for p, group in self.reverse.sums.items()
        ]
        return [f"{self.value(n).text} &= {self.written[n].text}" for n in self.long()] + rows

    def long(self) -> list[str]:
        """The forward values without an equation that the rows read, and are too long to be put
        in."""
        wanted = {o for n, node in self.reverse.nodes.items() if n not in self.graph.nodes for o in operands(node)}
        for node in reversed(list(self.written)):
            if node in wanted:
                wanted.update(operands(self.graph.nodes[node]))
        return [n for n, piece in self.written.items() if n in wanted and len(piece.text) > MAX_INLINE]

    def source(self, parameter: str, bar: bool = False) -> str:
        """A parameter, or a piece of one: its number, or its range of rows or columns, stands
        below."""
        piece = self.graph.pieces.get(parameter)
        if piece is None:
            return name(parameter, "", bar)
        index = [] if piece.index is None else [str(piece.index + 1)]
        cut = (
            [":"] * piece.axis + [f"{piece.first} : {piece.first} + {piece.length}".replace("0 : 0 + ", "0 : ")]
            if piece.length
            else []
        )
        return name(piece.parameter, ", ".join([*index, *cut]), bar)

    def inlined(self, node: str) -> bool:
        readers = self.uses[node]
        return (
            isinstance(self.reverse.nodes[node], Product | Outer)
            and len(readers) == 1
            and isinstance(self.reverse.nodes[readers[0]], Pointwise)
        )

    def left(self, node: str) -> str:
        """The name of an adjoint node; what flows to the step before, and comes from the step
        behind, has an arrow."""
        if node in self.states or node in self.before:
            state, time = (self.states[node], "t") if node in self.states else (self.before[node], "t-1")
            return name(state, time, True) + r"^{\leftarrow}"
        if isinstance(read := self.reverse.nodes[node], Read):
            return name(self.outputs[read.source], "t", True) + r"^{\downarrow}"
        return name(node.removeprefix("d_"), "t", True)  # all others are named after what they are gradients of

    def summand(self, node: str) -> str:
        made = self.reverse.nodes[node]
        if isinstance(made, Outer):
            return f"{self.value(made.left):2} \\, {self.value(made.right):3}{TRANSPOSED}"
        return self.value(node).text

    def value(self, node: str) -> TexPiece:
        """What stands where a node is read."""
        if node not in self.graph.nodes:
            if self.inlined(node):
                return self.node(self.reverse.nodes[node])
            return TexPiece(self.left(node), 3, bool(self.reverse.shapes[node]))
        wide, own = bool(self.graph.shapes[node]), self.graph.nodes[node]
        if isinstance(own, Read):
            if own.source in self.graph.pieces:
                return TexPiece(self.source(own.source), 3, wide)
            if own.kind == "size":
                return TexPiece(own.source, 3, False)
            time = {"parameter": "", "state": "t-1"}.get(own.kind, "t")
            return TexPiece(("t" if own.kind == "step" else name(own.source, time)), 3, wide)
        if node not in self.spec.shapes and len(self.written[node].text) <= MAX_INLINE:
            return self.written[node]
        return TexPiece(name(node, "" if node in self.once else "t"), 3, wide)

    def node(self, node: Node) -> TexPiece:
        match node:
            case Pointwise(expr):
                return self.expression(expr)
            case Product(matrix, vector, transposed):
                return TexPiece(f"{self.value(matrix):3}{TRANSPOSED * transposed} {self.value(vector):3}", 2, True)
            case Reduce(op, arg):
                return _feature(op, [self.value(arg)], False)
            case Outer(left, right):
                return _feature("outer", [self.value(left), self.value(right)], True)
            case Part(arg, first, length):
                return _call("part", [self.value(arg), TexPiece(first, 3, False), TexPiece(length, 3, False)])
            case CumSum(arg, reverse):
                return _call("cumsum_from_end" if reverse else "cumsum", [self.value(arg)])
            case Diag(arg):
                return _call("diag", [self.value(arg)])
            case Transpose(arg):
                return TexPiece(_inside(self.value(arg), 3) + TRANSPOSED, 3, True)
            case Concat(args):
                return _feature("concat", [self.value(a) for a in args], True)
        raise TypeError(f"not a node: {node!r}")

    def expression(self, expr: Any) -> TexPiece:
        kind = type(expr).__name__
        if expr.is_Symbol:
            return self.value(expr.name)
        if expr.is_Number:
            return TexPiece((str(expr) if expr.is_Integer else repr(float(expr))), 3 if expr >= 0 else 1, False)
        if isinstance(expr, total | add | subtract):
            return self.sum(expr)
        if isinstance(expr, multiply):
            return self.product(expr)
        if isinstance(expr, power):
            return self.power(expr)
        pieces = [self.expression(a) for a in expr.args]
        if kind in _CONDITIONS:
            a, b = pieces
            return TexPiece(f"{a:1} {_CONDITIONS[kind]} {b:1}", 0, a.wide or b.wide)
        if kind == "opposite":
            return TexPiece(rf"\lnot {pieces[0]:3}", 1, pieces[0].wide)
        if kind == "select":
            return _cases(*pieces)
        if kind == "negative":
            return TexPiece(f"-{pieces[0]:2}", 1, pieces[0].wide)
        if kind == "divide":
            return TexPiece(f"\\frac{{{pieces[0].text}}}{{{pieces[1].text}}}", 2, pieces[0].wide or pieces[1].wide)
        if kind in FUNCTION_CLASSES:
            return _call(kind, pieces)
        raise TypeError(f"no LaTeX for {kind}")

    def sum(self, expr: Any) -> TexPiece:
        """Terms as they stand; those of a `total`, whose order is free, with what is subtracted
        last."""
        terms = (
            [(t, False) for t in expr.args] if not isinstance(expr, subtract) else list(zip(expr.args, (False, True)))
        )
        signed = [(t.args[0], not minus) if isinstance(t, negative) else (t, minus) for t, minus in terms]
        if isinstance(expr, total):
            signed.sort(key=lambda term: term[1])
        text, wide = "", False
        for number, (term, minus) in enumerate(signed):
            piece = self.expression(term)
            text += (" - " if minus else " + " if number else "") + _inside(piece, 2 if minus else 1)
            wide = wide or piece.wide
        return TexPiece(text.strip(), 1, wide)

    def product(self, expr: Any) -> TexPiece:
        """Factors side by side, those of products in it too: their order does not matter to a
        reader."""
        factors, waiting = [], [expr]
        while waiting:
            factor = waiting.pop(0)
            if isinstance(factor, multiply):
                waiting = [*factor.args, *waiting]
            else:
                factors.append(self.expression(factor))
        return _joined(factors)

    def power(self, expr: Any) -> TexPiece:
        base, exponent = self.expression(expr.args[0]), expr.args[1]
        if exponent == HALF:
            return TexPiece(f"\\sqrt{{{base.text}}}", 3, base.wide)
        if exponent < 0:
            below = self.expression(power(expr.args[0], -exponent))
            return TexPiece(f"\\frac{{1}}{{{below.text}}}", 2, base.wide)
        return TexPiece(f"{base:3}^{{{self.expression(exponent).text}}}", 2, base.wide)
