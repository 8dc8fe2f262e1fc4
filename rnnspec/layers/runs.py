"""What the passes of a Stack take, give and keep, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy import ndarray as Array

from rnnspec.backends.brief import brief_repr
from rnnspec.backends.pins import Pins
from rnnspec.engine.frozen import Frozen
from rnnspec.engine.results import Run, Taped
from rnnspec.engine.spans import Pieces
from rnnspec.engine.weights import Idle, Weights

Named = dict[str, Array]


@dataclass(frozen=True)
class Direction:
    """suffix: of the names of its weights; reverse: whether it runs from the last step to the
    first."""

    suffix: str
    reverse: bool


@dataclass(frozen=True)
class StackWeights:
    """The weights of layers by place (layer by layer, in each direction): `cells` the parameters of
    each cell, `initial` its learned initial states.

    Those that `Stack.pack` makes are packed for the kernels, and go where params go. layers: the
    Layers that they were made for. groups: of weights by row, 0 where all rows have the same.
    compared: whether they were looked for among those of earlier calls.
    checked: whether `checked_weights` made them; others are checked in every call. idle: what
    single steps with packed weights work in.
    """

    cells: tuple[Mapping[str, Array] | Weights, ...]
    initial: tuple[Mapping[str, Array], ...]
    layers: object = field(repr=False, compare=False)
    groups: int = 0
    compared: bool = False
    checked: bool = field(init=False, default=False, repr=False, compare=False)
    idle: Idle = field(init=False, default_factory=Idle, repr=False, compare=False)

    __repr__ = brief_repr


def checked_weights(
    cells: tuple[Mapping[str, Array] | Weights, ...],
    initial: tuple[Mapping[str, Array], ...],
    layers: object,
    groups: int = 0,
    compared: bool = False,
) -> StackWeights:
    """The StackWeights of arrays that are known to fit the layers, in dicts that stay as they
    are."""
    held = tuple(c if isinstance(c, Weights) else Frozen(c) for c in cells)
    weights = StackWeights(held, tuple(Frozen(arrays) for arrays in initial), layers, groups, compared)
    object.__setattr__(weights, "checked", True)
    return weights


@dataclass(frozen=True)
class StackCall:
    """All that a pass over a sequence reads, checked: made by `Stack.call`.

    inputs: name -> [T, B, ...], those that the caller gave; state: the states before the first
    step, one array for each of `Layers.states`, [L * D, B, ...], or None; counts: the steps that
    were taken before, int64 [L * D, B], None where no layer counts; lengths: [B] int64, or
    None where every row takes all steps; pieces: by direction, False forward, True reverse; steps,
    rows: T and B; seed: of dropout and noise, None at evaluation; sequence: of noise that is drawn
    once a sequence, None for that of `seed`; pins: of the caller's arrays.
    """

    weights: StackWeights
    inputs: Named
    state: tuple[Array | None, ...]
    lengths: Array | None
    pieces: Mapping[bool, Pieces | None]
    steps: int
    rows: int
    seed: tuple[int, ...] | None
    counts: Array | None = None
    pins: Pins | None = field(default=None, repr=False, compare=False)
    sequence: tuple[int, ...] | None = None

    __repr__ = brief_repr


@dataclass
class LayerRun:
    """What a layer keeps for its backward pass. runs: of each direction; parts: its outputs in each
    direction, where merge='product' needs them; mask: what its input was multiplied by (dropout),
    or None; main: its input, where it comes from a layer below and memory="low" reads it again;
    pins: of those that lie in bytes of the caller's."""

    runs: list[Run | Taped] = field(default_factory=list)
    parts: list[Named] = field(default_factory=list)
    mask: Array | None = None
    main: Array | None = None
    pins: Pins | None = None

    __repr__ = brief_repr


@dataclass(frozen=True)
class StackRun:
    """outputs: name -> [T, B, ...]; final: the states after the last step, one array for each of
    `Stack.carried`, [L * D, B, ...]; steps: recorded values, name -> [T, B, ...], at the step they
    belong to in either direction. layers: the tapes, layer by layer; none of `infer`. inputs: the
    names of the inputs that were given; states: for each state whether it was. pieces: by
    direction, False forward, True reverse.
    """

    outputs: Named
    final: tuple[Array, ...]
    steps: Named
    steps_taken: int
    rows: int
    inputs: tuple[str, ...]
    states: tuple[bool, ...]
    layers: tuple[LayerRun, ...] = field(repr=False)
    pieces: Mapping[bool, Pieces | None] = field(repr=False)

    __repr__ = brief_repr

    @property
    def tape_bytes(self) -> int:
        """What the tapes take, beside outputs and weights."""
        return sum(run.tape_bytes for layer in self.layers for run in layer.runs)


@dataclass(frozen=True)
class StackGradients:
    """params: by name, summed over batch and time, none of what is fixed; inputs: name -> [T, B,
    ...]; states: as they went in."""

    params: dict[str, Array]
    inputs: dict[str, Array]
    states: tuple[Array, ...]

    __repr__ = brief_repr


@dataclass(frozen=True)
class Window:
    """Some steps of a long sequence. steps: which; y, state: what the layer gave (and recorded
    values, where it records some)."""

    steps: slice
    y: Any
    state: Any
    recorded: dict[str, Array]

    __repr__ = brief_repr


def pins_of(weights: StackWeights, inputs: Named, state: tuple[Array | None, ...]) -> Pins:
    """The pins of a StackCall of these arrays."""
    arrays = [a for cell in weights.cells if not isinstance(cell, Weights) for a in cell.values()]
    arrays += [a for initial in weights.initial for a in initial.values()]
    return Pins([*arrays, *inputs.values(), *(a for a in state if a is not None)])
