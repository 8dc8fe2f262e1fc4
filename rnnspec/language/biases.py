"""Which parameters are biases: derived from the equations, never declared."""
from __future__ import annotations

from rnnspec.language.equations import Binary, Ref, Unary, walk
from rnnspec.language.spec import Spec


def bias_names(spec: Spec) -> tuple[str, ...]:
    """The parameters that are vectors where they are read and occur only as a term of a sum: b [H], and b [L, H] read as b[k] in an inner loop."""
    uses: dict[str, int] = {}
    terms: dict[str, int] = {}
    for equation in spec.equations:
        for node in walk(equation.value):
            if isinstance(node, Ref) and node.name in spec.parameters:
                uses[node.name] = uses.get(node.name, 0) + 1
            elif isinstance(node, Binary) and node.op in ("+", "-"):
                for side in (node.left, node.right):
                    inner = side.arg if isinstance(side, Unary) else side
                    if isinstance(inner, Ref) and len(spec.parameters.get(inner.name, ())) == 1 + (inner.index is not None):
                        terms[inner.name] = terms.get(inner.name, 0) + 1
    return tuple(n for n in spec.parameters if n in terms and uses[n] == terms[n])
