"""What a model for ONNX is made of, as plain data: layers of cells with their weights, and what
stands before and after them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.brief import brief_repr
from rnnspec.engine.compile import compile
from rnnspec.errors import UnsupportedError
from rnnspec.language.sizes import full_shape
from rnnspec.language.spec import STEP, Spec
from rnnspec.layers.recurrent import Recurrent

Arrays = Mapping[str, Array]
Full = tuple[int, ...]
Definition = Callable[[Arrays, Arrays, Array | None], dict[str, Array]]


@dataclass(frozen=True)
class Cell:
    """One direction of a layer. suffix: of the names of its weights; initial: the states before the
    first step, where they are weights; places: state -> which of `Net.states` holds it, and at
    which place of axis 0."""

    spec: Spec
    params: Arrays
    sizes: Mapping[str, int]
    suffix: str
    reverse: bool
    initial: Arrays
    places: Mapping[str, tuple[str, int]]

    __repr__ = brief_repr


@dataclass(frozen=True)
class Level:
    """A layer. merge: how two directions become one output; residual: whether it adds what it
    reads; emitted: its outputs; main: the input that the layer below gives."""

    cells: tuple[Cell, ...]
    merge: str
    residual: bool
    emitted: tuple[str, ...]
    main: str


@dataclass(frozen=True)
class Head:
    """y @ weight.T + bias of all outputs side by side; weight: [C, F]. last: only of a row's last
    step, and of the first in the columns [F] that `reverse` tells."""

    weight: Array
    bias: Array
    last: bool = False
    reverse: Array | None = None


@dataclass(frozen=True)
class Net:
    """inputs: what the model reads, name -> shape of a step, and states, [places, B, ...], with the
    counts of steps under "t". outputs: what the last layer gives, name -> shape of a step. table:
    [symbols, features], where the main input is a symbol; map: weight and bias of what comes before
    the layers. definition: outputs and final states of inputs, states and lengths, by our kernels,
    where the steps come first; the states are those before the first step, as far as they are
    given."""

    name: str
    title: str
    levels: tuple[Level, ...]
    dtype: np.dtype
    inputs: Mapping[str, Full]
    states: Mapping[str, Full]
    outputs: Mapping[str, Full]
    definition: Definition = field(repr=False)
    batch_first: bool = False
    table: Array | None = None
    map: tuple[Array, Array] | None = None
    head: Head | None = None

    __repr__ = brief_repr


def cell_net(spec: Spec, params: Arrays, sizes: Mapping[str, int], dtype: str, name: str) -> Net:
    """A cell with its parameters, [places] of states 1."""
    kernel = compile(spec, dtype=dtype)
    held = kernel.pack({n: np.asarray(a, dtype) for n, a in params.items()}).held
    states = {s: (1, *full_shape(shape, sizes)) for s, shape in kernel.states.items()}
    states |= {STEP: (1,)} if spec.counts else {}
    cell = Cell(spec, held, sizes, "", False, {}, {s: (s, 0) for s in states})
    outputs = {o: full_shape(spec.shapes[o], sizes) for o in spec.outputs}

    def definition(inputs: Arrays, before: Arrays, lengths: Array | None) -> dict[str, Array]:
        run = kernel.infer(held, dict(inputs), {s: a[0] for s, a in before.items()}, lengths)
        return {**run.outputs, **{f"final_{s}": a[None] for s, a in run.final.items() if s in states}}

    level = Level((cell,), "concat", False, spec.outputs, next(iter(spec.streams), ""))
    inputs = {n: full_shape(shape, sizes) for n, shape in spec.inputs.items() if n not in spec.noise}
    return Net(name, f"{spec!r}", (level,), np.dtype(dtype), inputs, states, outputs, definition)


def layer_net(layer: Recurrent, name: str) -> Net:
    """The layers of a `Recurrent`, with its weights as they are now.

    Raises UnsupportedError for layers that record values beside their outputs."""
    layers = layer.stack.description
    if layers.steps:
        raise UnsupportedError(
            f"the layer records {', '.join(layers.steps)} (return_all_states), which is not exported: make it without."
        )
    views, levels = layer.stack.weights(layer.weights), []
    for depth, single in enumerate(layers.layers):
        cells = []
        for d, direction in enumerate(layers.directions):
            place = layers.place(depth, d)
            numbers = list(layers.states)
            places = {s: (numbers[number], at) for s, (number, at) in layers.state_places[place].items()}
            places |= {STEP: (STEP, place)} if layers.counts else {}
            params = single.kernel.pack(views.cells[place]).held
            initial = views.initial[place]
            cells.append(
                Cell(single.spec, params, single.sizes, layers.suffix(depth, d), direction.reverse, initial, places)
            )
        residual = layers.residual and depth > 0
        levels.append(Level(tuple(cells), layers.merge, residual, layers.emitted[depth], single.main))

    def definition(inputs: Arrays, before: Arrays, lengths: Array | None) -> dict[str, Array]:
        given = tuple(before.get(s) for s in layers.carried) if before else None
        turned = {n: np.swapaxes(a, 0, 1) if layer.batch_first else a for n, a in inputs.items()}
        y, after = layer.infer(turned, given[0] if given and len(given) == 1 else given, lengths)
        ys = y if isinstance(y, tuple) else (y,)
        ends = after if isinstance(after, tuple) else (after,)
        found = {n: np.swapaxes(a, 0, 1) if layer.batch_first else a for n, a in zip(layers.outputs, ys)}
        return found | {f"final_{s}": a for s, a in zip(layers.carried, ends)}

    return Net(
        name, f"{layer!r}", tuple(levels), layers.dtype, dict(layers.inputs), dict(layers.carried),
        dict(layers.outputs), definition, layer.batch_first,
    )  # fmt: skip
