"""Which of ONNX's own recurrent operators a cell is: RNN, GRU or LSTM with some attributes, where
`diff` proves it the same function.

The candidates are the cells that `interop` reads such nodes as. No cell is known by its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from numpy import ndarray as Array

from rnnspec.compare.pair import Match, Pair
from rnnspec.compare.verdict import parameters_alike
from rnnspec.interop.onnx_cells import ACTIVATIONS, OPERATORS, Form, forms_of
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.layouts import pack
from rnnspec.language.load import digest, load
from rnnspec.language.sizes import evaluate_size
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.parse import parse_expression
from rnnspec.language.syntax.tree import Call, Expr, walk
from rnnspec.lowering.pipeline import Keyed


@dataclass(frozen=True)
class Native:
    """A cell as an operator. attributes: of the node; states: the cell's state -> the operator's
    letter, h or c; matches: which parameters of the operator's cell are which of ours; sizes: our
    cell's parameters -> shapes in the names of the operator's sizes."""

    form: Form
    attributes: Mapping[str, object]
    states: Mapping[str, str]
    matches: tuple[Match, ...]
    shapes: Mapping[str, tuple[str, ...]]

    def arrays(self, params: Mapping[str, Array]) -> dict[str, Array]:
        """W, R, B and P of the node, for one direction, from the parameters of our cell."""
        sizes: dict[str, int] = {}
        for name, shape in self.shapes.items():
            sizes |= {size: n for size, n in zip(shape, np.shape(params[name])) if size.isidentifier()}
        spec, found = self.form.spec(), dict[str, Array]()
        for match in self.matches:
            total = sum(_piece(params[leaf.parameter], leaf.index, leaf.cuts, sizes) for leaf in match.b)
            first, *rest = match.a
            found[first.parameter] = np.asarray(match.sign * total)
            # of a sum of two the first has it all
            found |= {leaf.parameter: np.zeros_like(found[first.parameter]) for leaf in rest}
        blocks = pack(spec, f"onnx.{self.form.op}", found)
        return {name: array[None] for name, array in blocks.items()}


def native(spec: Spec) -> Native | None:
    """The operator that a cell is, None where it is proved to be none of them."""
    return _native(Keyed(spec, digest(spec)))


@lru_cache(maxsize=256)
def _native(keyed: Keyed) -> Native | None:
    spec = keyed.spec
    if len(spec.inputs) != 1 or spec.noise or spec.counts:
        return None
    for form, attributes in _candidates(spec):
        proof, pair = parameters_alike(form.spec(), spec)
        if proof.proved and all(leaf.index is None and not leaf.cuts for m in proof.matches for leaf in m.a):
            return Native(form, attributes, _letters(form, pair), proof.matches, pair.b.parameters)
    return None


def _letters(form: Form, pair: Pair) -> dict[str, str]:
    return {ours: OPERATORS[form.op].states[theirs] for ours, theirs in pair.roles["state"].items()}


def _candidates(spec: Spec) -> Iterator[tuple[Form, dict[str, object]]]:
    """Operators with as many states, under all settings and activations that come down to as many
    primitive functions of each kind as the cell has: others are not proved equal, and normal forms
    of many selects take long."""
    used = Counter[str]()
    for equation in spec.equations:
        used += primitives(equation.value)
    for op, own in OPERATORS.items():
        if len(own.states) != len(spec.states):
            continue
        usual = tuple(own.activations.values())
        known = [n for n, p in _activations().items() if not p - used]
        roles = {cell: _roles(op, cell) for cell in own.cells.values()}
        for names in sorted(product(known, repeat=len(usual)), key=lambda n: n != usual):
            chosen = dict(zip(own.activations, names))
            for key, cell in own.cells.items():
                if sum((_activations()[chosen[role]] for role in roles[cell]), Counter[str]()) == used:
                    flags: dict[str, object] = {n: v for n, v in key if n != "P"}
                    attributes = flags | ({} if names == usual else {"activations": list(names)})
                    yield forms_of(op, attributes, bool(dict(key).get("P")))[0], attributes


def _roles(op: str, cell: str) -> list[str]:
    """The role of every activation in the equations of an operator's cell."""
    roles = OPERATORS[op].roles
    return [roles[e.target] for e in load(cell).equations if e.target in roles and primitives(e.value)]


@lru_cache(maxsize=1)
def _activations() -> dict[str, Counter[str]]:
    """The activations that need no alpha or beta of the node, and the primitives they are made
    of."""
    found = {}
    for name, row in ACTIVATIONS.items():
        values = {"alpha": row.alpha, "beta": row.beta}
        if not any(f"{{{key}}}" in row.text and value is None for key, value in values.items()):
            found[name] = primitives(parse_expression(row.text.format(**values)))
    return found


def primitives(expr: Expr) -> Counter[str]:
    """How often each primitive function stands in an expression that is written out, `where` among
    them."""
    found = Counter[str]()
    for part in walk(expr):
        if isinstance(part, Call):
            row = FUNCTIONS.get(part.function)
            found += Counter([part.function]) if row is None or row.value is None else _written(row.value)
    return found


@lru_cache(maxsize=256)
def _written(text: str) -> Counter[str]:
    return primitives(parse_expression(text))


def _piece(whole: Array, index: int | None, cuts: tuple, sizes: Mapping[str, int]) -> Array:  # type: ignore[type-arg]
    found = np.asarray(whole, np.float64)
    found = found if index is None else found[index]
    for axis, cut in enumerate(cuts):
        if cut is not None:
            first = evaluate_size(cut[0], sizes)
            found = np.take(found, range(first, first + evaluate_size(cut[1], sizes)), axis)
    return found
