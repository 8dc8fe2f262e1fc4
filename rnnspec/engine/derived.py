"""What kernels read that is not a parameter as the caller has it: pieces of parameters, and values
computed once per sequence.

Both look like parameters to a kernel. On the way in a piece is a view and a value is computed by
the reference backend, in float64; on the way out their gradients, summed over batch and time by the
kernel, are carried on to the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.language.lift import Lifted
from rnnspec.language.sizes import full_shape
from rnnspec.language.slices import Piece
from rnnspec.storage.locks import making


class Derived:
    """The pieces of parameters and the values computed once per sequence (`once`) that the kernels
    of a cell read, by what their layouts name."""

    def __init__(self, lifted: Lifted, dtype: np.dtype, layouts: list[Mapping[str, Any]]):
        self.spec, self.dtype = lifted.spec, dtype
        self.constants = {name: np.asarray(value, dtype) for name, value in lifted.values.items()}
        self.pieces = {
            name: Piece(*piece)
            for layout in layouts
            for name, piece in layout["pieces"].items()
            if name not in _directions(layout)
        }
        read = {name for layout in layouts for name in _read(layout)}
        self.once = tuple(sorted(read - set(self.pieces) - set(self.spec.parameters)))

    def values(self, params: Mapping[str, Array], sizes: Mapping[str, int]) -> Mapping[str, Array]:
        """Everything that kernels read as a parameter."""
        if not self.pieces and not self.once and not self.constants:
            return params
        params = {**params, **self.constants}
        found = dict(params) | {name: piece.of(params[piece.parameter], sizes) for name, piece in self.pieces.items()}
        if self.once:
            with making:
                from rnnspec.backends import reference
                from rnnspec.lowering.pipeline import once

            made = reference.once(once(self.spec)[0], params, sizes)
            found |= {name: np.asarray(made[name], self.dtype) for name in self.once}
        return found

    def gradients(
        self, sums: Mapping[str, Array], params: Mapping[str, Array], sizes: Mapping[str, int]
    ) -> dict[str, Array]:
        """The gradients of all parameters, from what a backward kernel summed."""
        whole = {}
        for name, shape in self.spec.trained.items():
            alone = sums.get(name) if f"{name} flat" not in sums else None
            whole[name] = _total(sums, name, full_shape(shape, sizes), self.dtype) if alone is None else alone
        for name, piece in self.pieces.items():
            if piece.parameter in whole:
                part = piece.of(whole[piece.parameter], sizes)
                part += _total(sums, name, part.shape, self.dtype)
        if self.once:
            with making:
                from rnnspec.backends import reference
                from rnnspec.lowering.pipeline import once

            graph, reverse = once(self.spec)
            given = {}
            for name in graph.outputs:
                given[name] = _total(sums, name, full_shape(graph.shapes[graph.outputs[name]], sizes), self.dtype)
            more = reference.once_gradients(reverse, {**params, **self.constants}, given, sizes)
            whole |= {name: (whole[name] + array).astype(self.dtype) for name, array in more.items() if name in whole}
        return whole


def _total(sums: Mapping[str, Array], name: str, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """What was summed under a name: from outer products, and of a matrix read element by element as
    one long row."""
    found = [sums[key].reshape(shape) for key in (name, f"{name} flat") if key in sums]
    return sum(found[1:], found[0]) if found else np.zeros(shape, dtype)


def _read(layout: Mapping[str, Any]) -> set[str]:
    """The names that a kernel reads as parameters, or sums the gradients of."""
    matrices = {name for panel in layout["panels"] for terms in panel["matrices"] for name, _ in terms}
    summed = {name.removesuffix(" flat") for name in layout["gradients"]}
    read = matrices | {n for names in layout["biases"].values() for n in names} | set(layout["vectors"]) | summed
    return read - set(_directions(layout))


def _directions(layout: Mapping[str, Any]) -> tuple[str, ...]:
    """The directions of parameters that a tangent's kernel reads beside them (directions.py)."""
    return tuple(layout.get("columns", {}).get("parameters", ()))
