"""The arguments of a kernel's call, checked and completed: a `Call`.

In: a `Cell` and what the caller gave. Out: arrays whose names, dtypes and shapes fit one another,
with noise and defaults among them, and the value of every size. Nothing is computed with the
arrays, nothing is copied that can be read as it is, and no backend is known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.memo import Memo
from rnnspec.backends.pins import References, pinned
from rnnspec.engine import arrays as checked
from rnnspec.engine.frozen import Sizes
from rnnspec.engine.groups import Groups, check_rows_of, first_of, groups_of, refuse_groups, told_of
from rnnspec.engine.noise import Seed, draw, mean
from rnnspec.engine.spans import Pieces, own_pieces
from rnnspec.engine.weights import Held, Weights
from rnnspec.errors import ShapeError
from rnnspec.language.sizes import sizes_in
from rnnspec.language.spec import STEP, Shape, Spec

Named = dict[str, Array]
Arrays = tuple[Mapping[str, Array], Mapping[str, Array], Mapping[str, Array]]  # parameters, inputs, states, by name
Extent = tuple[Sizes, int, int]  # the value of every size; steps; rows
Told = tuple[int | None, int | None]  # the steps and rows that a caller names
NOT_TOLD = {
    "T": "'{}' is given no input that tells the number of steps: give steps=.",
    "B": "'{}' is given no input that tells the number of rows: give rows=, or the states.",
}


@dataclass(frozen=True)
class Cell:
    """A cell as its calls are checked against it.

    states: every value that is carried from step to step, name -> shape. dtype: of all arrays.
    grouped: whether its kernel takes weights by row (groups.py).
    extents: what the shapes of earlier calls told, for they come again; fitting: those of gradients
    that fitted their run.
    """

    spec: Spec
    states: Mapping[str, Shape]
    dtype: np.dtype
    grouped: bool = False
    extents: Memo[tuple[Any, ...], Extent] = field(default_factory=lambda: Memo(256), compare=False, repr=False)
    fitting: Memo[tuple[Any, ...], bool] = field(default_factory=lambda: Memo(256), compare=False, repr=False)


class Call(NamedTuple):
    """The arguments of a call, ready for a kernel, which trusts them.

    params: name -> array of the parameter's shape, noise among them, or packed Weights; inputs:
    name -> [T, B, ...], every one; states: name -> [B, ...] before the first step, [R, ...] with
    pieces, zero where left out. Arrays are of the kernel's dtype; a GPU's kernel takes those on its
    device too. lengths: int64 [B], with pieces theirs [R], None where every row takes all steps.
    sizes: the value of every size of the cell. steps, rows: T and B. pieces: the parts of rows that
    run alone; the rows of inputs then lie one after another, step after step. counts: int64 [B],
    with pieces [R], how many steps each has taken before; None for a cell that does not count them.
    pins: of the caller's arrays. groups: of weights by row, then some of params are [G, ...].
    compared: whether params were looked for among those of earlier calls (recent.py).
    """

    params: Mapping[str, Any] | Weights
    inputs: Mapping[str, Any]
    states: Mapping[str, Any]
    lengths: Array | None
    sizes: Sizes
    steps: int
    rows: int
    pieces: Pieces | None = None
    counts: Array | None = None
    pins: References | None = None
    groups: Groups | None = None
    compared: bool = False

    def counted(self) -> Named:
        """The count after the last step, to be carried with the states; nothing for a cell that
        does not count."""
        if self.counts is None:
            return {}
        return {STEP: self.counts + (self.steps if self.lengths is None else self.lengths)}


def sequence(
    cell: Cell,
    params: Mapping[str, Any] | Weights,
    inputs: Mapping[str, Any],
    states: Mapping[str, Any] | None,
    lengths: Any,
    noise: Seed | str | None,
    pieces: Pieces | None,
    told: Told = (None, None),
) -> Call:
    """The Call of a run over steps, checked against the cell.

    params, inputs, states, lengths, noise, pieces: as `Kernel.forward` takes them; told: steps and
    rows, as it takes them.
    """
    pieces = None if pieces is None else own_pieces(pieces)
    arrays = given = named(cell, params, inputs, states)
    groups, arrays = _grouped(cell, params, arrays)
    starts = "B" if pieces is None else str(len(pieces))
    told = _told(told, arrays, lengths)
    if cell.spec.noise:
        arrays = with_noise(cell, arrays, noise, starts, told, packed=isinstance(params, Weights))
    with told_of(groups, given[0]):
        sizes, steps, rows = extent(cell, arrays, ("T", "B"), starts, told)
    check_rows_of(groups, rows)
    p, x, s = arrays
    p = p if groups is None else {**p, **given[0]}
    pins = _pins(params, (p, x, s))
    ends = ends_of_rows(lengths, pieces, steps, rows)
    counts = counts_of(cell, states, rows if pieces is None else len(pieces))
    if cell.spec.defaults:
        x = checked.with_defaults(cell.spec, x, (steps, rows), sizes, cell.dtype, counts, pieces)
    if pieces is not None:
        x = {name: checked.numbered(array) for name, array in x.items()}
    held = params if isinstance(params, Weights) else p
    return Call(held, x, s, ends, sizes, steps, rows, pieces, counts, pins, groups)


def single_step(
    cell: Cell,
    params: Mapping[str, Any] | Weights,
    inputs: Mapping[str, Any],
    states: Mapping[str, Any] | None,
    rows: int | None,
) -> Call:
    """The Call of one step alone: inputs are given as [B, ...], and noise is what is expected of
    it. rows: as the caller named them, or None."""
    spec = cell.spec
    given = named(cell, params, inputs, states)
    groups, arrays = _grouped(cell, params, given)
    told = _told((None, rows), arrays, None)
    if missing := _missing_noise(spec, arrays):
        expected = mean(spec, *_extent(cell, arrays, ("B",), "B", told), cell.dtype, missing)
        arrays = _joined(spec, arrays, {n: a if n in spec.parameters else a[0] for n, a in expected.items()})
    with told_of(groups, given[0]):
        sizes, steps, count = extent(cell, arrays, ("B",), "B", told)
    check_rows_of(groups, count)
    p, x, s = arrays
    p = p if groups is None else {**p, **given[0]}
    pins = _pins(params, (p, x, s))
    x, counts = {name: array[None] for name, array in x.items()}, counts_of(cell, states, count)
    if spec.defaults:
        x = checked.with_defaults(spec, x, (steps, count), sizes, cell.dtype, counts)
    held = params if isinstance(params, Weights) else p
    return Call(held, x, s, None, sizes, steps, count, counts=counts, pins=pins, groups=groups)


def _grouped(cell: Cell, params: Mapping[str, Any] | Weights, arrays: Arrays) -> tuple[Groups | None, Arrays]:
    """The groups of rows that have weights of their own, and arrays with the parameters of the
    first of them, whose shapes are those of all. Raises UnsupportedError for a cell whose kernels
    take none."""
    groups = params.groups if isinstance(params, Weights) else groups_of(arrays[0], cell.spec.parameters)
    if groups is None:
        return None, arrays
    if not cell.grouped:
        refuse_groups(groups, f"the kernel of '{cell.spec.name}'", "compile it with backend='cpu'")
    return groups, (first_of(arrays[0], groups), *arrays[1:])


def _pins(params: Mapping[str, Any] | Weights, arrays: Arrays) -> References:
    """Of all arrays but packed weights, which are copies."""
    p, x, s = arrays
    return pinned([*x.values(), *s.values(), *(() if isinstance(params, Weights) else p.values())])


def named(
    cell: Cell, params: Mapping[str, Any] | Weights, inputs: Mapping[str, Any], states: Mapping[str, Any] | None
) -> Arrays:
    """Parameters, inputs and states that were given, their names and dtypes checked. Noise and
    inputs with a default may be left out, and any state. The count of steps is not among them."""
    spec = cell.spec
    optional = {*spec.defaults, *spec.noise} if spec.noise else spec.defaults
    return (
        parameters(cell, params),
        checked.named("input", inputs, spec.inputs, cell.dtype, required=True, optional=optional),
        states_without_count(cell, states),
    )


def states_without_count(cell: Cell, states: Mapping[str, Any] | None) -> Named:
    """The states that were given, their names and dtypes checked, but for the count of steps."""
    if cell.spec.counts and isinstance(states, Mapping):
        states = {n: a for n, a in states.items() if n != STEP}
    return checked.named("state", states, cell.states, cell.dtype, required=False)


def counts_of(cell: Cell, states: Mapping[str, Any] | None, rows: int) -> Array | None:
    """The count of steps among states, int64 [rows], 0 where it is left out; None for a cell that
    does not count."""
    if not cell.spec.counts:
        return None
    return checked.check_counts(None if states is None else states.get(STEP), (rows,))


def parameters(cell: Cell, params: Mapping[str, Any] | Weights) -> Mapping[str, Array]:
    """The parameters that were given, by name; those that are noise may be left out."""
    spec = cell.spec
    if not isinstance(params, Weights):
        return checked.named("parameter", params, spec.parameters, cell.dtype, required=True, optional=spec.noise)
    if (params.spec is not spec and params.spec != spec) or params.dtype != cell.dtype:
        raise ValueError(
            f"these weights were packed for Kernel({params.spec.name}, {params.dtype}); give Kernel({spec.name},"
            f" {cell.dtype}) the parameters, or what its own `pack` makes of them."
        )
    return params.held


def parameters_with_noise(cell: Cell, params: Mapping[str, Any], noise: Seed | str) -> dict[str, Array]:
    """All parameters of a cell, with the noise among them that was not given."""
    arrays, spec = parameters(cell, params), cell.spec
    groups = groups_of(arrays, spec.parameters)
    sizes = sizes_of(cell, (first_of(arrays, groups), {}, {}), ("T", "B"), "B")
    missing = [n for n in spec.noise if n in spec.parameters and n not in arrays]
    return {**arrays, **_noise(cell, missing, noise, sizes, 0, 0)}


def with_noise(
    cell: Cell, arrays: Arrays, noise: Seed | str | None, starts: str, told: Told, *, packed: bool
) -> Arrays:
    """The arrays of a sequence, with the noise among them that was not given.

    cell: declares the noise. arrays: parameters, inputs and states that were given. noise: a seed,
    "mean", or None where nothing may be missing. starts: the axis of a state before its own. told:
    steps and rows that were named.
    packed: whether the parameters are Weights, which hold their noise already.
    """
    spec = cell.spec
    if packed and noise is not None and noise != "mean" and any(n in spec.parameters for n in spec.noise):
        raise ValueError(
            f"the noise of '{spec.name}' is in its parameters too, and packed weights hold it already: give the"
            " parameters themselves."
        )
    missing = _missing_noise(spec, arrays)
    if not missing:
        return arrays
    if noise is None:
        raise ShapeError(
            f"missing noise {', '.join(map(repr, missing))} of '{spec.name}'. Give a seed to draw it in"
            " training (noise=0, another one "
            f'for every call), noise="mean" for what is expected of it, or its arrays among inputs and params.'
        )
    return _joined(spec, arrays, _noise(cell, missing, noise, *_extent(cell, arrays, ("T", "B"), starts, told)))


def extent(cell: Cell, arrays: Arrays, lead: tuple[str, ...], starts: str, told: Told = (None, None)) -> Extent:
    """The value of every size, the steps (1 where `lead` has none) and the rows, as `sizes_of`
    finds them. told: those that were named; ShapeError where an array says otherwise, or where
    nothing tells them."""
    p, x, s = arrays
    key = (
        lead,
        starts,
        told,
        p.shapes if isinstance(p, Held) else tuple([p[name].shape for name in cell.spec.parameters]),
        *_named_shapes(x),
        None,
        *_named_shapes(s),
    )
    known = cell.extents.get(key)
    return cell.extents.keep(key, _extent(cell, arrays, lead, starts, told)) if known is None else known


def _named_shapes(arrays: Mapping[str, Array]) -> list[Any]:
    return [*arrays, *[array.shape for array in arrays.values()]]


def sizes_of(cell: Cell, arrays: Arrays, lead: tuple[str, ...], starts: str) -> dict[str, int]:
    """Sizes from the shapes of all arrays, T and B among them (no size of a cell is called so).

    lead: the axes of an input before its own; starts: the axis of a state before its own, a name or
    a number. Raises ShapeError with all shapes that do not fit.
    """
    spec, (params, inputs, states) = cell.spec, arrays
    dims = [(f"parameter '{n}'", spec.parameters[n], a.shape) for n, a in params.items()]
    dims += [(f"input '{n}'", lead + spec.inputs[n], a.shape) for n, a in inputs.items()]
    dims += [(f"state '{n}'", (starts, *cell.states[n]), a.shape) for n, a in states.items()]
    return checked.infer_sizes(spec, dims)


def ends_of_rows(lengths: Any, pieces: Pieces | None, steps: int, rows: int) -> Array | None:
    """How many steps each row takes, or each piece; None where all take all."""
    if pieces is None:
        return checked.check_lengths(lengths, steps, rows)
    if lengths is not None:
        raise TypeError("give lengths or pieces, not both: pieces have their own lengths.")
    pieces.check(steps, rows)
    return pieces.length


def gradients(
    cell: Cell,
    sizes: Sizes,
    outputs: Mapping[str, Any] | None,
    final: Mapping[str, Any] | None,
    lead: tuple[int, int],
    starts: int,
) -> tuple[Named, Named]:
    """The gradients of outputs and of final states that a backward run is given, their names,
    dtypes and shapes checked.

    cell: has their names, shapes and dtype; sizes: of the forward run; outputs: name -> [T, B,
    ...]; final: name -> [B, ...], [R, ...] with pieces; lead: (T, B); starts: how many states it
    began with, B or the number of its pieces.
    """
    spec, (steps, rows) = cell.spec, map(str, lead)
    of_outputs = {name: spec.shapes[name] for name in spec.outputs}
    dy = checked.named("output gradient", outputs, of_outputs, cell.dtype, required=False)
    dfinal = checked.named("final state gradient", final, cell.states, cell.dtype, required=False)
    key = (sizes.items_key, lead, starts, *_named_shapes(dy), None, *_named_shapes(dfinal))
    if cell.fitting.get(key):
        return dy, dfinal
    dims = [
        (f"the gradient of output '{n}'", (steps, rows, *checked.numbers(of_outputs[n], sizes)), a.shape)
        for n, a in dy.items()
    ]
    dims += [
        (f"the gradient of final state '{n}'", (str(starts), *checked.numbers(cell.states[n], sizes)), a.shape)
        for n, a in dfinal.items()
    ]
    checked.infer_sizes(spec, dims)
    cell.fitting.keep(key, True)
    return dy, dfinal


def _told(told: Told, arrays: Arrays, lengths: Any) -> Told:
    """The steps and rows that a caller named, as whole numbers. Where no input is given lengths
    tell the rows too."""
    if told == (None, None) and (lengths is None or arrays[1]):
        return told
    for word, number in zip(("steps", "rows"), told):
        if number is not None and (
            isinstance(number, bool) or not isinstance(number, int | np.integer) or not 0 <= number < 2**40
        ):
            raise ShapeError(f"{word} must be a whole number of at least 0, got {number!r}.")
    steps, rows = told
    if rows is None and lengths is not None and not arrays[1] and np.ndim(lengths) == 1:
        rows = len(lengths)
    return None if steps is None else int(steps), None if rows is None else int(rows)


def _extent(cell: Cell, arrays: Arrays, lead: tuple[str, ...], starts: str, told: Told = (None, None)) -> Extent:
    sizes = sizes_of(cell, arrays, lead, starts)
    for axis, word, number in zip(("T", "B"), ("steps", "rows"), told):
        if number is not None and sizes.setdefault(axis, number) != number:
            raise ShapeError(f"{word} is {number}, but the arrays that were given have {sizes[axis]}.")
    for axis in lead:
        if axis not in sizes:
            raise ShapeError(NOT_TOLD[axis].format(cell.spec.name))
    if missing := sorted(sizes_in([*cell.spec.shapes.values(), *cell.states.values()]) - set(sizes)):
        having = [n for n, shape in cell.states.items() if sizes_in([shape]) & set(missing)]
        raise ShapeError(
            f"the arrays that were given do not tell the size{'s' * (len(missing) > 1)} {', '.join(missing)} of"
            f" '{cell.spec.name}': give the state{'s' * (len(having) > 1)} {', '.join(having)} too, which may be zeros."
        )
    return Sizes({n: v for n, v in sizes.items() if n not in ("T", "B")}), sizes.get("T", 1), sizes["B"]


def _missing_noise(spec: Spec, arrays: Arrays) -> list[str]:
    params, inputs, _ = arrays
    return [name for name in spec.noise if name not in params and name not in inputs]


def _joined(spec: Spec, arrays: Arrays, noise: Named) -> Arrays:
    params, inputs, states = arrays
    return (
        {**params, **{n: a for n, a in noise.items() if n in spec.parameters}},
        {**inputs, **{n: a for n, a in noise.items() if n in spec.inputs}},
        states,
    )


def _noise(
    cell: Cell, names: list[str], noise: Seed | str, sizes: Mapping[str, int], steps: int, rows: int
) -> dict[str, Array]:
    if not isinstance(noise, str):
        return draw(cell.spec, sizes, steps, rows, noise, cell.dtype, names=names)
    if noise != "mean":
        raise ValueError(f'noise must be a seed (a whole number, or a tuple of them) or "mean", got {noise!r}.')
    return mean(cell.spec, sizes, steps, rows, cell.dtype, names)
