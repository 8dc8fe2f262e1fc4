"""What layers of cells are: their kernels, sizes, directions and names, as plain data made once.

In: the arguments of a Stack. Out: `Layers`, which the passes (forward, backward, tapes) take. No
weights, no calls.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from rnnspec.engine.compile import compile
from rnnspec.engine.frozen import Frozen
from rnnspec.engine.kernel import Kernel
from rnnspec.language.load import load
from rnnspec.language.spec import STEP, Spec
from rnnspec.language.syntax.faults import did_you_mean
from rnnspec.layers.layer import Full, Layer
from rnnspec.layers.runs import Direction
from rnnspec.layers.sizes import check_projection, check_sizes, check_whole, layer_sizes
from rnnspec.storage.locks import once_only

Cell = str | os.PathLike[str] | Spec
MERGES = ("concat", "sum", "mean", "product")


@dataclass(frozen=True, eq=False)
class Layers:
    """What the layers are. The arguments of `describe_layers` are kept under their names, checked.

    layers: a Layer for each; directions: of each layer; recorded, emitted: the names of the values
    that each layer records, and of the outputs it gives. inputs: what the caller feeds, name ->
    shape of a step; required: those of them that have no default; clashing: those that layers read
    in different shapes, name -> what is wrong, which therefore can't be given. Of states and steps
    a shape is known when the cells are compiled, so `states` is asked for late.
    """

    layers: tuple[Layer, ...]
    directions: tuple[Direction, ...]
    input_size: int
    hidden_size: int
    dropout: float
    merge: str
    share_directions: bool
    residual: bool
    learn_initial: bool
    recorded: tuple[tuple[str, ...], ...]
    emitted: tuple[tuple[str, ...], ...]
    dtype: np.dtype
    memory: str
    inputs: Mapping[str, Full]
    required: frozenset[str]
    clashing: Mapping[str, str]

    @property
    def num_layers(self) -> int:
        """The number of layers."""
        return len(self.layers)

    @once_only
    def places(self) -> tuple[tuple[int, int], ...]:
        """Every (layer, direction), in the order of states and weights."""
        return tuple((depth, d) for depth in range(self.num_layers) for d in range(len(self.directions)))

    def place(self, depth: int, direction: int) -> int:
        """The number of a direction of a layer among `places`."""
        return depth * len(self.directions) + direction

    def suffix(self, depth: int, direction: int) -> str:
        """The end of names: _l0, _l0_reverse, _l1, ..."""
        return f"_l{depth}{self.directions[direction].suffix}"

    def weight_suffix(self, depth: int, direction: int) -> str:
        """The end of the names of a direction's weights: the first one's where directions share."""
        return self.suffix(depth, 0 if self.share_directions else direction)

    @once_only
    def shapes(self) -> dict[str, Full]:
        """Every weight, name -> shape, in torch's order."""
        shapes: dict[str, Full] = {}
        for depth, direction in self.places:
            layer, end = self.layers[depth], self.suffix(depth, direction)
            named = {} if self.share_directions and direction else {f"{n}{end}": s for n, s in layer.shapes.items()}
            if self.learn_initial:
                named |= {f"initial_{n}{end}": s for n, s in layer.states.items()}
            if twice := named.keys() & shapes.keys():
                raise ValueError(
                    f"two weights would be called {', '.join(sorted(twice))}: rename a parameter of"
                    f" {layer.spec.name!r}."
                )
            shapes |= named
        return Frozen(shapes)

    @once_only
    def fixed(self) -> frozenset[str]:
        """The weights that are constants of their cells: no gradient, and not to be trained."""
        return frozenset(
            f"{n}{self.suffix(depth, d)}"
            for depth, d in self.places
            if not (self.share_directions and d)
            for n in self.layers[depth].fixed
        )

    @once_only
    def states(self) -> dict[str, Full]:
        """What is carried, name -> shape for one row, axis 0 layers and directions ([L * D, ...]).

        Of layers with different states there is one name for each layer, as h_l0, with axis 0 the
        directions.
        """
        first = self.layers[0].states
        if all(layer.states == first and list(layer.states) == list(first) for layer in self.layers):
            return Frozen({name: (len(self.places), *shape) for name, shape in first.items()})
        return Frozen(
            {
                f"{name}_l{depth}": (len(self.directions), *shape)
                for depth, layer in enumerate(self.layers)
                for name, shape in layer.states.items()
            }
        )

    @property
    def counts(self) -> bool:
        """Whether the cell of any layer counts its steps."""
        return any(layer.spec.counts for layer in self.layers)

    @once_only
    def carried(self) -> dict[str, Full]:
        """What a state of the caller's is made of: `states`, and after them, where a layer counts
        its steps, the count of every layer and direction, `t` [L * D]."""
        return self.states | ({STEP: (len(self.places),)} if self.counts else {})

    @once_only
    def state_places(self) -> tuple[dict[str, tuple[int, int]], ...]:
        """For each of `places`, by the name of a state: which of `states` holds it, and at which
        place of axis 0."""
        numbers = {name: number for number, name in enumerate(self.states)}
        return tuple(
            {
                name: (numbers[name], place) if name in numbers else (numbers[f"{name}_l{depth}"], d)
                for name in self.layers[depth].states
            }
            for place, (depth, d) in enumerate(self.places)
        )

    @once_only
    def outputs(self) -> dict[str, Full]:
        """What the last layer emits, name -> shape of a step, the directions merged."""
        shapes = self.layers[-1].outputs
        return Frozen({o: _merged(shapes[o], len(self.directions), self.merge) for o in self.emitted[-1]})

    @once_only
    def steps(self) -> dict[str, Full]:
        """The recorded values, name -> shape of a step."""
        return Frozen(
            {
                f"{name}{self.suffix(depth, d)}": self.layers[depth].outputs[name]
                for depth, d in self.places
                for name in self.recorded[depth]
            }
        )


def describe_layers(
    cell: Cell | Sequence[Cell],
    input_size: int,
    hidden_size: int,
    num_layers: int | None = None,
    bias: bool = True,
    dropout: float = 0.0,
    bidirectional: bool = False,
    proj_size: int = 0,
    *,
    merge: str = "concat",
    share_directions: bool = False,
    residual: bool = False,
    go_backwards: bool = False,
    learn_initial: bool = False,
    return_all_states: bool | Sequence[str] = False,
    dtype: str = "float32",
    backend: str = "cpu",
    threads: int | None = None,
    memory: str = "full",
    sizes: Mapping[str, int] | None = None,
    **settings: object,
) -> Layers:
    """The Layers of these arguments, which are those of `Recurrent`, explained there, without
    batch_first and seed. Raises ValueError or TypeError for those out of range or at odds with one
    another."""
    check_whole("input_size", input_size)
    check_whole("hidden_size", hidden_size)
    flags = {"bias": bias, "bidirectional": bidirectional, "share_directions": share_directions}
    flags |= {"residual": residual, "go_backwards": go_backwards, "learn_initial": learn_initial}
    for name, flag in flags.items():
        if not isinstance(flag, bool | np.bool_):
            raise TypeError(f"{name} must be True or False, got {flag!r}.")
    specs = _specs(cell, num_layers, settings)
    _check_options(len(specs), dropout, merge, flags)
    recorded = _recorded(return_all_states, specs)
    kernels = _kernels(specs, recorded, partial(compile, dtype=dtype, backend=backend, threads=threads, memory=memory))
    check_sizes({} if sizes is None else sizes, specs)
    check_projection(proj_size, hidden_size, specs)
    flags = {name: bool(flag) for name, flag in flags.items()}
    layers = _layers(specs, kernels, (input_size, hidden_size, proj_size), sizes or {}, merge, flags)
    emitted = [spec.outputs for spec in specs]
    return _described(layers, (input_size, hidden_size), dropout, merge, flags, recorded, emitted)


def _described(
    layers: list[Layer],
    widths: tuple[int, int],
    dropout: float,
    merge: str,
    flags: Mapping[str, bool],
    recorded: list[tuple[str, ...]],
    emitted: list[tuple[str, ...]],
) -> Layers:
    directions = (Direction("", flags["go_backwards"]), Direction("_reverse", True))
    inputs, required, clashing = _inputs(layers)
    return Layers(
        layers=tuple(layers),
        directions=directions[: 1 + flags["bidirectional"]],
        input_size=widths[0],
        hidden_size=widths[1],
        dropout=dropout,
        merge=merge,
        share_directions=flags["share_directions"],
        residual=flags["residual"],
        learn_initial=flags["learn_initial"],
        recorded=tuple(recorded),
        emitted=tuple(emitted),
        dtype=layers[0].kernel.dtype,
        memory=layers[0].kernel.memory,
        inputs=inputs,
        required=required,
        clashing=clashing,
    )


def _layers(
    specs: Sequence[Spec],
    kernels: Sequence[Kernel],
    widths: tuple[int, int, int],
    sizes: Mapping[str, int],
    merge: str,
    flags: Mapping[str, bool],
) -> list[Layer]:
    """A Layer for each kernel. widths: input_size, hidden_size, proj_size."""
    (input_size, hidden_size, proj_size), layers, directions = widths, list[Layer](), 1 + flags["bidirectional"]
    below: Full = (input_size,)
    for depth, (spec, kernel) in enumerate(zip(specs, kernels)):
        if not spec.streams:
            raise ValueError(
                f"the cell {spec.name!r} has no input, so a layer of it has nothing to read that would tell its steps:"
                " use rnnspec.compile(cell), whose calls take steps= and rows=, or its stream."
            )
        if len(below) > 1 or (depth and len(below) != len(next(iter(spec.streams.values())))):
            raise ValueError(
                f"layer {depth - 1} gives arrays of shape {below} a step, which the cell {spec.name!r} can't read."
            )
        known = layer_sizes(spec, below[0] if below else 1, hidden_size, proj_size, sizes, depth)
        layers.append(Layer(kernel, known, flags["bias"]))
        above = _merged(next(iter(layers[-1].outputs.values())), directions, merge)
        if flags["residual"] and depth and below != above:
            raise ValueError(
                f"residual: layer {depth} reads {below[0]} features and gives {above[0]}, so they can't be added."
            )
        below = above
    return layers


def _inputs(layers: Sequence[Layer]) -> tuple[dict[str, Full], frozenset[str], dict[str, str]]:
    """`Layers.inputs`, `required` and `clashing`. An input that has a default may be read in
    different shapes: then it can't be given."""
    inputs: dict[str, Full] = {}
    required, clashing = set[str](), dict[str, str]()
    for depth, layer in enumerate(layers):
        for name in (*([] if depth else [layer.main]), *layer.others):
            shape = layer.full(layer.spec.inputs[name])
            if name not in layer.spec.defaults:
                required.add(name)
            if inputs.setdefault(name, shape) != shape:
                clashing[name] = (
                    f"input {name!r} has shape {inputs[name]} a step, but layer {depth} reads it as {shape}"
                )
                if name in required:
                    raise ValueError(f"{clashing[name]}.")
    return Frozen(inputs), frozenset(required), Frozen(clashing)


def _merged(shape: Full, directions: int, merge: str) -> Full:
    """The shape of an output of a layer, from that of one direction."""
    if directions == 1 or merge != "concat":
        return shape
    if len(shape) != 1:
        raise ValueError(
            f"merge='concat' joins vectors, and the output of this cell has shape {shape} a step: choose 'sum',"
            " 'mean' or 'product'."
        )
    return (2 * shape[0],)


def _specs(cell: Cell | Sequence[Cell], num_layers: int | None, settings: Mapping[str, Any]) -> list[Spec]:
    """The spec of every layer."""
    if num_layers is not None:
        check_whole("num_layers", num_layers)
    if isinstance(cell, str | os.PathLike | Spec):
        if isinstance(cell, Spec) and settings:
            raise TypeError(
                f"choices and constants ({', '.join(settings)}) are given to rnnspec.load, which made this Spec."
            )
        return [cell if isinstance(cell, Spec) else load(cell, **settings)] * (num_layers or 1)
    if not isinstance(cell, Sequence) or not cell or not all(isinstance(c, str | os.PathLike | Spec) for c in cell):
        raise TypeError(
            f"cell must be a name, a path, a Spec, or a list of these, one for each layer; got {type(cell).__name__}."
        )
    if settings:
        raise TypeError(
            f"choices and constants ({', '.join(settings)}) of a list of cells: give Specs, as rnnspec.load('rnn',"
            " phi='relu') makes them."
        )
    if num_layers not in (None, len(cell)):
        raise ValueError(f"num_layers is {num_layers}, but there is a list of {len(cell)} cells.")
    return [c if isinstance(c, Spec) else load(c) for c in cell]


def check_dropout(dropout: object) -> None:
    """Raises ValueError unless this is a probability."""
    if (
        isinstance(dropout, bool | np.bool_)
        or not isinstance(dropout, int | float | np.floating)
        or not 0.0 <= dropout <= 1.0
    ):
        raise ValueError(f"dropout must be a probability between 0 and 1, got {dropout!r}.")


def check_dropout_of(depth: int, dropout: float) -> None:
    """Raises ValueError unless this is a probability; warns where there are no layers between which
    it could act. depth: the number of layers."""
    check_dropout(dropout)
    if dropout and depth == 1:
        warnings.warn(f"dropout={dropout} acts between layers, and there is only one: it does nothing.", stacklevel=6)


def _check_options(depth: int, dropout: float, merge: str, flags: Mapping[str, bool]) -> None:
    check_dropout_of(depth, dropout)
    if merge not in MERGES:
        raise ValueError(f"merge must be one of {', '.join(map(repr, MERGES))}; got {merge!r}.")
    if not flags["bidirectional"]:
        if merge != "concat":
            raise ValueError(f"merge={merge!r} joins two directions, and there is one: it needs bidirectional=True.")
        if flags["share_directions"]:
            raise ValueError("share_directions gives two directions one set of weights: it needs bidirectional=True.")
    elif flags["go_backwards"]:
        raise ValueError("go_backwards is for layers of one direction; bidirectional=True has the reverse one already.")
    if flags["residual"] and depth == 1:
        raise ValueError("residual adds to what a layer gives what the layer below gave: it needs two layers or more.")


def _recorded(asked: bool | Sequence[str], specs: Sequence[Spec]) -> list[tuple[str, ...]]:
    """The values that each layer records."""
    if isinstance(asked, bool | np.bool_):
        return [tuple(spec.states) if asked else () for spec in specs]
    if isinstance(asked, str) or not isinstance(asked, Iterable) or not all(isinstance(name, str) for name in asked):
        raise TypeError(
            "return_all_states must be True, False or a list of names of states and intermediate values, got"
            f" {asked!r}."
        )
    timed = [{e.target for e in spec.equations if e.timed} for spec in specs]
    for name in asked:
        if not any(name in known for known in timed):
            known = sorted(set().union(*timed))
            raise ValueError(
                f"return_all_states: no cell here computes {name!r} at each step.{did_you_mean(name, known)} There are:"
                f" {', '.join(known)}."
            )
    return [tuple(n for n in dict.fromkeys(asked) if n in known) for known in timed]


def _kernels(
    specs: Sequence[Spec], recorded: Sequence[tuple[str, ...]], make: Callable[[Spec], Kernel]
) -> list[Kernel]:
    """The kernel of every layer; layers of one cell share theirs."""
    compiled: list[tuple[Spec, Kernel]] = []
    kernels = []
    for spec, names in zip(specs, recorded):
        more = tuple(n for n in names if n not in spec.outputs)
        full = replace(spec, outputs=spec.outputs + more) if more else spec
        kernel = next((k for s, k in compiled if s is full or s == full), None)
        if kernel is None:
            kernel = make(full)
            compiled.append((full, kernel))
        kernels.append(kernel)
    return kernels
