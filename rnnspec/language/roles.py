"""Which values are gates: derived from the equations, never declared."""

from __future__ import annotations

from collections.abc import Iterator

from rnnspec.language.features import FEATURES
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.tree import Binary, Call, Expr, Number, Ref, Unary, children, walk

GATE = (0.0, 1.0)
SIGMOIDS = frozenset(name for name, row in FUNCTIONS.items() if row.range == GATE)
SQUASHING = SIGMOIDS | frozenset(name for name, row in FEATURES.items() if row.range == GATE)
"""Functions whose value lies between 0 and 1; the first ones element by element."""


def gate_names(spec: Spec) -> list[str]:
    """The values between 0 and 1, one minus such a value, or a number times one, that something is
    multiplied by: f in f[t] * c[t-1], z in (1 - z[t]) * n[t].

    A gate may be a state as well (one that other gates see a step later)."""
    squashed = [e.target for e in spec.equations if _squashed(e.value)]
    factors = {
        name
        for e in spec.equations
        for node in walk(e.value)
        if isinstance(node, Binary) and node.op == "*"
        for side in (node.left, node.right)
        for name in _plain(side)
    }
    return [name for name in squashed if name in factors]


def _squashed(expr: Expr) -> bool:
    match expr:
        case Call(function, _):
            return function in SQUASHING
        case Binary("*", Number(), other) | Binary("*", other, Number()):
            return _squashed(other)
        case Binary("-", Number(one), other) if one == 1:
            return _squashed(other)
    return False


def _plain(expr: Expr) -> Iterator[str]:
    """The names in sums of names and numbers, such as 1 - z[t]."""
    match expr:
        case Ref(name):
            yield name
        case Unary() | Binary("+" | "-" | "*"):
            for part in children(expr):
                yield from _plain(part)


def bias_names(spec: Spec) -> tuple[str, ...]:
    """The parameters that are vectors where they are read and occur only as a term of a sum: b [H],
    and b [L, H] read as b[k] in an inner loop. None that is fixed: it is no weight to be left
    out."""
    uses: dict[str, int] = {}
    terms: dict[str, int] = {}
    for equation in spec.equations:
        for node in walk(equation.value):
            if isinstance(node, Ref) and node.name in spec.parameters:
                uses[node.name] = uses.get(node.name, 0) + 1
            elif isinstance(node, Binary) and node.op in ("+", "-"):
                for side in (node.left, node.right):
                    inner = side.arg if isinstance(side, Unary) else side
                    if isinstance(inner, Ref) and len(spec.parameters.get(inner.name, ())) == 1 + (
                        inner.index is not None
                    ):
                        terms[inner.name] = terms.get(inner.name, 0) + 1
    return tuple(n for n in spec.parameters if n in terms and uses[n] == terms[n] and n not in spec.fixed)
