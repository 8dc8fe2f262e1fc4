"""What kernels read that is not a parameter as the caller has it: pieces of parameters, and values
computed once per sequence.

Both look like parameters to a kernel. On the way in a piece is a view and a value is computed by
the reference backend, in float64; on the way out their gradients, summed over batch and time by the
kernel, are carried on to the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.arrays import row_sum
from rnnspec.engine.groups import Groups
from rnnspec.language.lift import Lifted
from rnnspec.language.sizes import full_shape
from rnnspec.language.slices import Piece
from rnnspec.language.spec import TANGENT, tangent_of
from rnnspec.storage.locks import making

if TYPE_CHECKING:
    from rnnspec.symbolic.graph import Graph


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

    def values(
        self, params: Mapping[str, Array], sizes: Mapping[str, int], groups: Groups | None = None
    ) -> Mapping[str, Array]:
        """Everything that kernels read as a parameter; groups: of weights by row, then it is
        [G, ...], but for parameters that are the same for all rows."""
        if groups is not None and (self.pieces or self.once or self.constants):
            each = [self.values(groups.of(params, g), sizes) for g in range(groups.count)]
            return {n: params[n] if n in params else np.stack([e[n] for e in each]) for n in each[0]}
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
        self,
        sums: Mapping[str, Array],
        params: Mapping[str, Array],
        sizes: Mapping[str, int],
        groups: Groups | None = None,
    ) -> dict[str, Array]:
        """The gradients of all parameters, from what a backward kernel summed; groups: of weights
        by row, then sums are [G, ...], and so are gradients of what has these."""
        if groups is not None:
            each = self.gradients_of_rows(sums, lambda g: groups.of(params, g), sizes, groups.count)
            return {n: a if n in groups.names else row_sum(a) for n, a in each.items()}
        whole = self._direct(sums, sizes)
        if self.once:
            with making:
                from rnnspec.backends import reference
                from rnnspec.lowering.pipeline import once

            graph, reverse = once(self.spec)
            more = reference.once_gradients(
                reverse, {**params, **self.constants}, self._of_once(graph, sums, sizes), sizes
            )
            whole |= {name: (whole[name] + array).astype(self.dtype) for name, array in more.items() if name in whole}
        return whole

    def gradient_directions(
        self,
        sums: Mapping[str, Array],
        params: Mapping[str, Array],
        along: Mapping[str, Array],
        sizes: Mapping[str, int],
        columns: int,
        groups: Groups | None = None,
    ) -> dict[str, Array]:
        """The directions [K, ...] of the gradients of all parameters, from what the kernel of an
        adjoint's tangent summed.

        params: [...]; along: their directions [K, ...], zero where left out; columns: K; groups: of
        weights by row, then sums are [G, ...], and directions [K, G, ...] of what has these.
        """
        if groups is not None:
            each = []
            for g in range(groups.count):
                own = {n: a[g] for n, a in sums.items()}
                each.append(self.gradient_directions(own, groups.of(params, g), groups.along(along, g), sizes, columns))
            stacked = {n: np.stack([found[n] for found in each]) for n in each[0]}
            return {n: np.moveaxis(a, 0, 1) if n in groups.names else row_sum(a) for n, a in stacked.items()}
        moved = {n.removeprefix(TANGENT): array for n, array in sums.items() if n.startswith(TANGENT)}
        found: dict[str, list[Array]] = {name: [] for name in self.spec.trained}
        for k in range(columns):
            whole = self._direct(own := {n: array[k] for n, array in moved.items()}, sizes)
            if self.once:
                given = (params, {n: a[k] for n, a in along.items()}, sums, own, sizes)
                whole |= {n: (whole[n] + a).astype(self.dtype) for n, a in self._once_along(*given).items()}
            for name, array in whole.items():
                found[name].append(array)
        shapes = {name: full_shape(shape, sizes) for name, shape in self.spec.trained.items()}
        return {
            name: np.stack(arrays) if arrays else np.zeros((0, *shapes[name]), self.dtype)
            for name, arrays in found.items()
        }

    def _once_along(
        self,
        params: Mapping[str, Array],
        along: Mapping[str, Array],
        sums: Mapping[str, Array],
        moved: Mapping[str, Array],
        sizes: Mapping[str, int],
    ) -> dict[str, Array]:
        """What the gradients of the values computed once per sequence, and their direction `moved`,
        add to the direction of the parameters' gradients."""
        with making:
            from rnnspec.backends import reference
            from rnnspec.lowering.pipeline import once, once_second

        graph, reverse = once(self.spec)[0], once_second(self.spec)
        still = {n: np.zeros(full_shape(shape, sizes), self.dtype) for n, shape in self.spec.parameters.items()}
        held = {**params, **self.constants, **{tangent_of(n): a for n, a in {**still, **along}.items()}}
        directions = self._of_once(graph, moved, sizes)
        found = reference.once_gradients(reverse, held, self._of_once(graph, sums, sizes), sizes, along=directions)
        return {n.removeprefix(TANGENT): a for n, a in found.items() if n.removeprefix(TANGENT) in self.spec.trained}

    def _of_once(self, graph: Graph, sums: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
        """The gradients of the values computed once per sequence, zero where none were summed."""
        shapes = {name: full_shape(graph.shapes[node], sizes) for name, node in graph.outputs.items()}
        return {name: _total(sums, name, shape, self.dtype) for name, shape in shapes.items()}

    def _direct(self, sums: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
        """The gradients of all parameters, without what values computed once per sequence add."""
        whole = {}
        for name, shape in self.spec.trained.items():
            alone = sums.get(name) if f"{name} flat" not in sums else None
            whole[name] = _total(sums, name, full_shape(shape, sizes), self.dtype) if alone is None else alone
        for name, piece in self.pieces.items():
            if piece.parameter in whole:
                part = piece.of(whole[piece.parameter], sizes)
                part += _total(sums, name, part.shape, self.dtype)
        return whole

    def gradients_of_rows(
        self,
        sums: Mapping[str, Array],
        params: Callable[[int], Mapping[str, Array]],
        sizes: Mapping[str, int],
        rows: int,
    ) -> dict[str, Array]:
        """`gradients`, of sums [B, ...] for each row; rows: B; params: those of a row."""
        if not self.pieces and not self.once and all(n in sums and f"{n} flat" not in sums for n in self.spec.trained):
            return {n: sums[n] for n in self.spec.trained}
        each = [self.gradients({n: a[row] for n, a in sums.items()}, params(row), sizes) for row in range(rows)]
        return {
            n: np.stack([g[n] for g in each]) if each else np.zeros((0, *full_shape(shape, sizes)), self.dtype)
            for n, shape in self.spec.trained.items()
        }


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
    return read - _directions(layout)


def _directions(layout: Mapping[str, Any]) -> set[str]:
    """The directions of parameters that a kernel reads beside them (directions.py), and of
    gradients that it sums."""
    columns = layout.get("columns", {})
    summed = [name.removesuffix(" flat") for name in columns.get("gradients", ())]
    return {*columns.get("parameters", ()), *summed}
