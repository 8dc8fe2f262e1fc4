"""The directions of a call, checked; and those of what kernels read in place of parameters.

In: a Cell, a Call, and what the caller gave. Out: arrays whose shapes fit those of the call, with
an axis of columns before them. No backend is known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.pins import References, pinned
from rnnspec.engine import arrays as checked
from rnnspec.engine.call import Call, Cell, Named
from rnnspec.engine.derived import Derived
from rnnspec.engine.frozen import Sizes
from rnnspec.engine.groups import Groups
from rnnspec.errors import ShapeError
from rnnspec.language.slices import Piece
from rnnspec.language.spec import TANGENT, Shape, tangent_of
from rnnspec.storage.locks import making


@dataclass(frozen=True)
class Directions:
    """params: name -> [K, ...]; inputs: name -> [K, T, B, ...]; states: name -> [K, B, ...];
    outputs, final: directions of their gradients, [K, T, B, ...] and [K, B, ...]; zero where left
    out. columns: K. single: whether the caller gave one direction, without an axis for it. pins: of
    the caller's arrays."""

    params: Named
    inputs: Named
    states: Named
    outputs: Named
    final: Named
    columns: int
    single: bool
    pins: References | None

    @property
    def moved(self) -> str:
        """What there are directions of, in the names of programs (STILL,
        rnnspec/lowering/pipeline.py)."""
        if self.params:
            return "" if self.inputs else "_params"
        return "_inputs" if self.inputs else "_states"

    @property
    def mode(self) -> str:
        """The program that has these directions, and no more."""
        return f"jvp{self.moved}"

    @property
    def taped_modes(self) -> tuple[str, str]:
        """The programs of the step, and of its adjoint, that have these directions."""
        return f"jvp{self.moved}_taped", f"hvp{self.moved}"

    def each(self) -> list[Directions]:
        """The directions one by one, each of one column; one that is zero where there are none."""
        groups = (self.params, self.inputs, self.states, self.outputs, self.final)
        found = []
        for k in range(max(1, self.columns)):
            own = [
                {n: a[k : k + 1] if len(a) else np.zeros((1, *a.shape[1:]), a.dtype) for n, a in g.items()}
                for g in groups
            ]
            params, inputs, states, outputs, final = own
            found.append(Directions(params, inputs, states, outputs, final, 1, False, self.pins))
        return found

    def given(self, array: Array, columned: bool) -> Array:
        """A result with an axis of columns where the caller gave one; columned: whether it has
        it."""
        if self.single:
            return array[0] if columned else array
        return array if columned else np.repeat(array[None], self.columns, axis=0)


def directions(
    cell: Cell,
    call: Call,
    params: Mapping[str, Any] | None,
    inputs: Mapping[str, Any] | None,
    states: Mapping[str, Any] | None,
    outputs: Mapping[str, Any] | None = None,
    final: Mapping[str, Any] | None = None,
) -> Directions:
    """The directions of a call.

    params, inputs, states: as `Kernel.jvp` takes them; outputs, final: those of their gradients, as
    `Kernel.hvp` takes them. Raises ShapeError and DtypeError for those
    that do not fit the call, and for those of what has no derivative.
    """
    spec, by_row = cell.spec, {} if call.groups is None else dict.fromkeys(call.groups.names, (call.groups.count,))
    still = [n for given in (params, inputs) if isinstance(given, Mapping) for n in given if n in spec.no_gradient]
    if still:
        raise ShapeError(
            f"{', '.join(map(repr, still))} of '{spec.name}' has no derivative (no_gradient), and so no direction:"
            " leave it out."
        )
    starts = call.rows if call.pieces is None else len(call.pieces)
    groups = (
        ("parameter", params, spec.parameters, ()),
        ("input", inputs, spec.inputs, (call.steps, call.rows)),
        ("state", states, cell.states, (starts,)),
        ("output gradient", outputs, {o: spec.shapes[o] for o in spec.outputs}, (call.steps, call.rows)),
        ("final state gradient", final, cell.states, (starts,)),
    )
    found = [
        checked.named(f"direction of {kind}", given, known, cell.dtype, required=False)
        for kind, given, known, _ in groups
    ]
    expected = [
        (
            f"the direction of {kind} '{n}'",
            (*(by_row.get(n, ()) if kind == "parameter" else lead), *call.sizes.full(known[n])),
            array,
        )
        for (kind, _, known, lead), group in zip(groups, found)
        for n, array in group.items()
    ]
    columns = _columns(expected)
    single, pins = columns is None, pinned([a for group in found for a in group.values()])
    if single:
        found = [{n: a[None] for n, a in group.items()} for group in found]
    of_params, of_inputs, of_states, of_outputs, of_final = found
    given = 1 if columns is None else columns
    return Directions(of_params, of_inputs, of_states, of_outputs, of_final, given, single, pins)


def diagonal(cell: Cell, call: Call, curvature: Mapping[str, Any]) -> Named:
    """A diagonal Hessian by outputs, name -> [T, B, ...], checked. Raises ShapeError and
    DtypeError."""
    shapes = {o: cell.spec.shapes[o] for o in cell.spec.outputs}
    if curvature is None:
        raise TypeError(
            f"curvature says what the Hessian of the loss by the outputs is: a dict of diagonals by name"
            f" ({', '.join(shapes)}), or a function of the Jvp; got None."
        )
    given = checked.named("curvature of output", curvature, shapes, cell.dtype, required=False)
    for name, array in given.items():
        if array.shape != (full := (call.steps, call.rows, *call.sizes.full(shapes[name]))):
            raise ShapeError(f"the curvature of output '{name}' has shape {array.shape}, expected {full}.")
    return given


def curved(found: Any) -> tuple[Named, Named]:
    """What a function gave as the curvature times a direction: of outputs, and of final states.
    Raises TypeError where these are not two dicts."""
    if not (isinstance(found, tuple | list) and len(found) == 2 and all(isinstance(f, Mapping) for f in found)):
        kinds = ", ".join(type(f).__name__ for f in found) if isinstance(found, tuple) else type(found).__name__
        raise TypeError(
            "a curvature that is a function must give two dicts by name, of outputs and of final states, one of them"
            f" empty where it has none: return {{...}}, {{}}; it gave {kinds}."
        )
    return dict(found[0]), dict(found[1])


def _columns(expected: list[tuple[str, tuple[int, ...], Array]]) -> int | None:
    """How many directions arrays hold; None where none has an axis for it. Raises ShapeError where
    they do not fit what they are directions of, or one another."""
    told = {what: array.shape[0] for what, shape, array in expected if array.ndim == len(shape) + 1}
    columns = next(iter(told.values()), None)
    lead = () if columns is None else (columns,)
    wrong = [
        f"{what} has shape {array.shape}, expected {(*lead, *shape)}"
        for what, shape, array in expected
        if array.shape != (*lead, *shape)
    ]
    if not wrong:
        return columns
    first = next(iter(told), "")
    hint = f" ({first} has an axis of {columns} directions before its own, and so have all)" if told else ""
    raise ShapeError("; ".join(wrong) + hint + ".")


def parameter_directions(
    derived: Derived,
    layout: Mapping[str, Any],
    params: Mapping[str, Array],
    along: Directions,
    sizes: Sizes,
    groups: Groups | None = None,
) -> Named:
    """What a kernel reads of the directions of parameters: [K, ...] of each parameter, of pieces of
    one, and of what is computed of them once per sequence.

    derived, layout: the kernel's; params: [...], all; along: of the call; sizes: of every size;
    groups: of weights by row, then all of it is [K, G, ...].
    """
    if groups is not None:
        each = [
            parameter_directions(
                derived, layout, groups.of(params, g), replace(along, params=groups.along(along.params, g)), sizes
            )
            for g in range(groups.count)
        ]
        return {n: np.stack([found[n] for found in each], axis=1) for n in each[0]}
    spec, pieces, columns = derived.spec, layout["pieces"], along.columns

    def whole(name: str, shape: Shape) -> Array:
        given = along.params.get(name)
        return np.broadcast_to(derived.dtype.type(0), (columns, *sizes.full(shape))) if given is None else given

    names = [n.removeprefix(TANGENT) for n in layout.get("columns", {}).get("parameters", ())]
    found: Named = {}
    for name in names:
        if name in spec.parameters:
            found[name] = whole(name, spec.parameters[name])
        elif tangent_of(name) in pieces:
            piece = Piece(*pieces[tangent_of(name)])
            parameter = piece.parameter.removeprefix(TANGENT)
            last = np.moveaxis(whole(parameter, spec.parameters[parameter]), 0, -1)
            found[name] = np.moveaxis(piece.of(last, sizes), -1, 0)
    if once := [n for n in names if n not in found]:
        found |= _once(derived, once, params, {n: whole(n, s) for n, s in spec.parameters.items()}, sizes, columns)
    return {tangent_of(n): array for n, array in found.items()}


def _once(
    derived: Derived,
    names: list[str],
    params: Mapping[str, Array],
    along: Mapping[str, Array],
    sizes: Sizes,
    columns: int,
) -> Named:
    """The directions of what is computed once per sequence, by the reference, in float64."""
    with making:
        from rnnspec.backends import reference
        from rnnspec.lowering.pipeline import once_tangent

    graph, held = once_tangent(derived.spec), {**params, **derived.constants}
    made = [
        reference.once(graph, {**held, **{tangent_of(n): a[k] for n, a in along.items()}}, sizes)
        for k in range(columns)
    ]
    return {
        n: np.stack([np.asarray(m[tangent_of(n)], derived.dtype) for m in made])
        if made
        else np.zeros((0, *sizes.full(graph.shapes[graph.outputs[tangent_of(n)]])), derived.dtype)
        for n in names
    }
