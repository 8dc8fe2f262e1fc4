"""Checks what the caller of a Stack gives: inputs, states, lengths, resets. Each array is looked at
once; the kernels take what comes out of here as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.arrays import as_resets, check_counts, check_lengths, own_view, views
from rnnspec.engine.spans import Pieces, cut
from rnnspec.errors import DtypeError, ShapeError
from rnnspec.language.spec import STEP
from rnnspec.language.syntax.faults import did_you_mean
from rnnspec.layers.description import Layers
from rnnspec.layers.runs import StackCall, StackWeights
from rnnspec.layers.views import refuse_several


def check_weights(layers: Layers, params: Mapping[str, Any], what: str, *, several: bool = False) -> dict[str, Array]:
    """The weights of layers as arrays. several: whether they may have an axis before their own.
    Raises ShapeError naming every missing, unexpected and misshapen one, DtypeError for another
    dtype."""
    if not isinstance(params, Mapping):
        raise DtypeError(f"{what} must be a dict of arrays by name; got {type(params).__name__}.")
    shapes = layers.shapes
    if (found := views(params, shapes, layers.dtype)) and all(a.shape == shapes[n] for n, a in found.items()):
        return found if list(found) == list(shapes) else {n: found[n] for n in shapes}
    wrong = [f"missing {n!r}" for n in shapes if n not in params]
    wrong += [f"unexpected {n!r}{did_you_mean(n, shapes)}" for n in params if n not in shapes]
    arrays = {n: own_view(f"weight {n!r}", params[n], layers.dtype) for n in shapes if n in params}
    wrong += [
        f"{n!r} has shape {a.shape}, expected {shapes[n]}"
        for n, a in arrays.items()
        if a.shape != shapes[n] and not (several and a.shape[1:] == shapes[n])
    ]
    if wrong:
        raise ShapeError(f"{what}: {'; '.join(wrong)}.")
    return arrays


def inputs_by_name(layers: Layers, x: Any) -> dict[str, Any]:
    """What a caller gives as x (an array, a tuple or a dict), by name; what has a default may be
    left out of a tuple too. Raises ShapeError for a number or a name that does not fit."""
    known = layers.inputs
    needed = [n for n in known if n in layers.required] or list(known)
    expected = list(known) if isinstance(x, tuple) and len(x) == len(known) else needed
    given = dict(x) if isinstance(x, Mapping) else dict(zip(expected, as_many(x, expected, "x")))
    if unknown := [n for n in given if n not in known]:
        raise ShapeError(f"unknown input {', '.join(map(repr, unknown))}. This cell has: {', '.join(known)}.")
    return given


def inputs_time_first(layers: Layers, x: Any, batch_first: bool) -> tuple[dict[str, Array], bool]:
    """Inputs by name, time first, and whether they came without a batch axis. batch_first: whether
    the caller gives them as [B, T, ...]."""
    known, given = layers.inputs, inputs_by_name(layers, x)
    arrays: dict[str, Array] = {}
    single: bool | None = None
    for name, array in given.items():
        shape = known[name]
        value = own_view(f"input {name!r}", array, layers.dtype)
        rank = len(shape) + 2
        if value.ndim not in (rank, rank - 1):
            raise ShapeError(
                f"input {name!r} must have {rank} axes ({'B, T' if batch_first else 'T, B'}, features), or"
                f" {rank - 1} for one row without a batch; got shape {value.shape}."
            )
        if single not in (None, value.ndim == rank - 1):
            raise ShapeError(f"some inputs have a batch axis and some have none: {name!r} has shape {value.shape}.")
        single = value.ndim == rank - 1
        if shape and value.shape[-1] != shape[-1]:
            raise ShapeError(
                f"input {name!r} has {value.shape[-1]} features, expected {shape[-1]}; its shape is {value.shape}."
            )
        arrays[name] = time_first(value, single, batch_first)
    return arrays, bool(single)


def time_first(array: Array, single: bool, batch_first: bool) -> Array:
    """An array of the caller's as [T, B, ...]. single: whether it came without rows."""
    return array[:, None] if single else np.swapaxes(array, 0, 1) if batch_first and array.ndim > 1 else array


def as_many(value: Any, names: list[str], what: str) -> tuple[Any, ...]:
    """The arrays of a tuple, or a single one; as many as there are names."""
    given = value if isinstance(value, tuple) else (value,)
    if len(given) != len(names):
        form = f"one array ({names[0]})" if len(names) == 1 else f"a tuple of {len(names)} arrays ({', '.join(names)})"
        raise ShapeError(f"{what} must be {form}; got {len(given)} array{'s' * (len(given) != 1)}.")
    return given


def check_inputs(layers: Layers, inputs: Mapping[str, Array], batch_first: bool = False) -> tuple[int, int]:
    """The steps and rows that inputs [T, B, ...] of the right shapes have in common. batch_first:
    whether the caller gave them as [B, T, ...], for messages.

    Raises ShapeError where one is missing, none is given, one can't be given, or they differ.
    """
    check_given(layers, inputs)
    if not inputs:
        raise ShapeError(
            "no input is given, so nothing tells the number of steps and rows. These layers read"
            f" {', '.join(layers.inputs)}."
        )
    leads = {n: a.shape[:2] for n, a in inputs.items()}
    check_leads(leads, batch_first)
    steps, rows = next(iter(leads.values()))
    return steps, rows


def check_leads(leads: Mapping[str, tuple[int, ...]], batch_first: bool) -> None:
    """Raises ShapeError unless all inputs have the same (T, B). batch_first: whether the caller
    gave them the other way round, as the message then says them."""
    if len(set(leads.values())) > 1:
        order, axes = ("rows and steps (B, T)", -1) if batch_first else ("steps and rows (T, B)", 1)
        each = ", ".join(f"{n} {lead[::axes]}" for n, lead in leads.items())
        raise ShapeError(f"inputs have different numbers of {order}: {each}.")


def check_given(layers: Layers, inputs: Mapping[str, Array]) -> None:
    """Raises ShapeError where an input is missing, or one is given that can't be."""
    if missing := [n for n in layers.inputs if n in layers.required and n not in inputs]:
        raise ShapeError(
            f"missing input {', '.join(map(repr, missing))}. These layers read {', '.join(layers.inputs)}."
        )
    if clashing := [why for n, why in layers.clashing.items() if n in inputs]:
        raise ShapeError(f"{'; '.join(clashing)}: leave it out, and it has its default in every layer.")


def check_forwards(layers: Layers, what: str) -> None:
    """Raises ValueError where a direction runs from the end. what: can't be had then."""
    if any(d.reverse for d in layers.directions):
        raise ValueError(
            f"{what}: a direction that runs from the end needs the whole sequence; use one that runs forwards."
        )


def check_window(layers: Layers, steps: Any) -> int:
    """The steps of a window, as `windows` takes them. Raises ValueError for what is no number of
    steps, and where a direction runs from the end."""
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(f"steps of a window must be a whole number of at least 1, got {steps!r}.")
    check_forwards(layers, "windows")
    return int(steps)


def check_steps(
    layers: Layers, what: str, given: Any, known: Mapping[str, tuple[int, ...]], lead: tuple[int | None, ...]
) -> dict[str, Array]:
    """Arrays [T, B, ...] by name; one alone may come without its name. None stands for those that
    are left out.

    layers: have the dtype, and the input that is meant where one comes without its name; what: the
    kind of array, for messages; given: an array, or name -> array; known: name -> shape of a step;
    lead: T and B, None where any will do. Raises ShapeError and DtypeError.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        alone = [n for n in known if what != "input" or n in layers.required] or list(known)
        if len(alone) != 1:
            raise ShapeError(
                f"there are {len(known)} arrays of the kind {what}: give a dict by name ({', '.join(known)})."
            )
        given = {alone[0]: given}
    if unknown := [n for n in given if n not in known]:
        raise ShapeError(f"unknown {what} {', '.join(map(repr, unknown))}. There are: {', '.join(known) or 'none'}.")
    arrays = {n: own_view(f"{what} {n!r}", a, layers.dtype) for n, a in given.items() if a is not None}
    for name, array in arrays.items():
        shape = (*lead, *known[name])
        if array.ndim != len(shape) or any(s not in (None, n) for s, n in zip(shape, array.shape)):
            sizes = ", ".join("TB"[axis] if size is None else str(size) for axis, size in enumerate(shape))
            raise ShapeError(f"{what} {name!r} must have shape ({sizes}), got {array.shape}.")
    return arrays


def check_carried(layers: Layers, state: Any, rows: int | None) -> tuple[tuple[Array | None, ...], Array | None]:
    """A state of the caller's: the arrays of `Layers.states`, None where they are left out, and
    the count of steps, int64 [L * D, B], where layers count: 0 where it is left out.

    rows: B, or None for arrays without a batch axis, which get one. Raises ShapeError, DtypeError,
    and ValueError for a count.
    """
    if not layers.counts:
        return check_states(layers, state, rows, "state"), None
    *given, count = _parts(state, list(layers.carried), "state")
    places = (*layers.carried[STEP], *(() if rows is None else (rows,)))
    counts = check_counts(count, places)
    return check_states(layers, tuple(given), rows, "state"), counts[:, None] if rows is None else counts


def _parts(state: Any, names: list[str], what: str) -> tuple[Any, ...]:
    """The arrays of a state, as many as there are names; None where it is left out."""
    if state is None:
        return (None,) * len(names)
    given = state if isinstance(state, tuple | list) else (state,)
    if isinstance(state, Mapping) or len(given) != len(names):
        form = f"one array ({names[0]})" if len(names) == 1 else f"a tuple of {len(names)} arrays ({', '.join(names)})"
        form += ", t the steps that were taken before (None: 0)" if STEP in names else ""
        got = "a dict" if isinstance(state, Mapping) else f"{len(given)} array{'s' * (len(given) != 1)}"
        raise ShapeError(f"{what} must be {form}; got {got}.")
    return tuple(given)


def check_states(layers: Layers, state: Any, rows: int | None, what: str) -> tuple[Array | None, ...]:
    """The arrays of a state, or of its gradient, one for each of `Layers.states`, None where it is
    left out.

    rows: B, or None for arrays without a batch axis, which get one; what: they are, for messages.
    Raises ShapeError and DtypeError.
    """
    arrays: list[Array | None] = []
    for (name, (first, *rest)), value in zip(layers.states.items(), _parts(state, list(layers.states), what)):
        array = None if value is None else own_view(f"{what} {name!r}", value, layers.dtype)
        expected = (first, *(() if rows is None else (rows,)), *rest)
        if array is not None and array.shape != expected:
            raise ShapeError(f"{what} {name!r} must have shape {expected}, got {array.shape}.")
        arrays.append(array if array is None or rows is not None else array[:, None])
    return tuple(arrays)


def flowing(
    layers: Layers,
    run: Any,
    dy: Any,
    dstate: Any,
    dsteps: Mapping[str, Any] | None,
    single: bool,
    batch_first: bool,
) -> tuple[dict[str, Array], tuple[Array | None, ...], dict[str, Array]]:
    """Gradients of outputs, of final states and of recorded values, checked and time first. run:
    has `steps_taken` and `rows`; dy, dstate, dsteps: as of `Recurrent.backward`; single,
    batch_first: as of `time_first`. Raises ShapeError and DtypeError."""

    def turned(what: str, value: Any) -> Array:
        array = own_view(what, value, layers.dtype)
        if array.ndim < 2 - single:
            raise ShapeError(f"{what} has shape {array.shape}, which lacks axes of steps and rows.")
        return time_first(array, single, batch_first)

    names, lead = list(layers.outputs), (run.steps_taken, run.rows)
    given = {} if dy is None else dict(zip(names, as_many(dy, names, "dy")))
    arrays = {n: turned(f"gradient of output {n!r}", a) for n, a in given.items() if a is not None}
    outputs = check_steps(layers, "gradient of output", arrays, layers.outputs, lead)
    arrays = {n: turned(f"gradient of {n!r}", a) for n, a in (dsteps or {}).items()}
    steps = check_steps(layers, "gradient of step value", arrays, layers.steps, lead)
    return outputs, check_states(layers, dstate, None if single else run.rows, "dstate"), steps


def check_resets(resets: Any, steps: int, rows: int, batch_first: bool = False) -> Array | None:
    """Resets as booleans [T, B]; None where there are none. batch_first: whether the caller gave
    them as [B, T], for messages."""
    if resets is None:
        return None
    array = as_resets(resets)
    check_resets_shape(array.shape, steps, rows, batch_first)
    return array if array.any() else None


def check_resets_shape(shape: tuple[int, ...], steps: int, rows: int, batch_first: bool) -> None:
    """Raises ShapeError unless resets have the shape [T, B]. batch_first: as of `check_resets`."""
    if shape != (steps, rows):
        form = f"({rows}, {steps}) = [B, T]" if batch_first else f"({steps}, {rows}) = [T, B]"
        raise ShapeError(f"resets must have shape {form}, got {shape[::-1] if batch_first else shape}.")


def check_rows(
    layers: Layers, lengths: Any, resets: Any, steps: int, rows: int, batch_first: bool = False
) -> tuple[Array | None, dict[bool, Pieces | None]]:
    """Lengths as int64 [B] (None: every row takes all steps), and by direction (False forward, True
    reverse) the parts of rows that run alone, None where rows run as they are.

    layers: have the directions. lengths: [B] integers, None for all steps. resets: [T, B]
    booleans, None for none. steps, rows: T and B. batch_first: as of `check_resets`. Raises
    ShapeError, DtypeError, ValueError.
    """
    ends, restarts = check_lengths(lengths, steps, rows), check_resets(resets, steps, rows, batch_first)
    pieces: dict[bool, Pieces | None] = {}
    for reverse in {d.reverse for d in layers.directions}:
        split = restarts is not None or (reverse and ends is not None)
        pieces[reverse] = cut(steps, rows, ends, restarts, reverse) if split else None
    return ends, pieces


def as_lengths(lengths: Any, single: bool) -> Any:
    """Lengths as a Stack takes them: of one row without a batch axis a plain number will do."""
    return [lengths] if single and isinstance(lengths, int | np.integer) and not isinstance(lengths, bool) else lengths


def check_call(layers: Layers, call: object) -> None:
    """Raises TypeError for what is no StackCall, and as `check_packed` for one of other layers."""
    if not isinstance(call, StackCall):
        raise TypeError(
            "directions are those of a call: give jvp and hvp what call(params, x, ...) of these layers gave; got"
            f" {type(call).__name__}."
        )
    refuse_several(call.weights, "a derivative along a direction")
    if call.weights.layers is not layers:
        check_packed(layers, call.weights)


def check_packed(layers: Layers, weights: StackWeights) -> None:
    """Raises unless weights that were packed for other layers, or come from a file, are those of
    layers of these cells and sizes: kernels trust what they are told."""
    if len(weights.cells) != len(layers.places):
        raise ShapeError(f"these weights are of {len(weights.cells)} cells, and the layers have {len(layers.places)}.")
    wrong: list[str] = []
    for (depth, d), cell, initial in zip(layers.places, weights.cells, weights.initial):
        layer, end = layers.layers[depth], layers.suffix(depth, d)
        shapes = {n: layer.full(s) for n, s in layer.spec.parameters.items()}
        shapes |= {f"initial_{n}": s for n, s in layer.states.items()} if layers.learn_initial else {}
        arrays = {**layer.kernel.pack(cell).held, **{f"initial_{n}": a for n, a in initial.items()}}
        wrong += [f"missing {n + end!r}" for n in shapes if n not in arrays]
        wrong += [
            f"{n + end!r} has shape {arrays[n].shape}, expected {shape}"
            for n, shape in shapes.items()
            if n in arrays and arrays[n].shape != shape
        ]
    if wrong:
        raise ShapeError(f"packed weights: {'; '.join(wrong)}.")
