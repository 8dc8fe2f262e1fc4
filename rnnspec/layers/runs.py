"""What the passes of a Stack give and keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from numpy import ndarray as Array

from rnnspec.engine.results import Run, Taped
from rnnspec.engine.spans import Pieces
from rnnspec.engine.weights import Weights

Named = dict[str, Array]


@dataclass(frozen=True)
class Direction:
    """suffix: of the names of its weights; reverse: whether it runs from the last step to the
    first."""

    suffix: str
    reverse: bool


@dataclass
class LayerRun:
    """What a layer keeps for its backward pass. runs: of each direction; parts: its outputs in each
    direction, where merge='product' needs them; given: the states that the caller gave; mask: what
    its input was multiplied by (dropout), or None; main: its input, where it comes from a layer
    below and memory="low" reads it again."""

    runs: list[Run | Taped] = field(default_factory=list)
    parts: list[Named] = field(default_factory=list)
    given: list[frozenset[str]] = field(default_factory=list)
    mask: Array | None = None
    main: Array | None = None


@dataclass(frozen=True)
class StackRun:
    """outputs: name -> [T, B, ...]; final: the states after the last step, one array for each of
    `Stack.states`, [L * D, B, ...]; steps: recorded values, name -> [T, B, ...], at the step they
    belong to in either direction. kept: the tapes, layer by layer; none of `infer`. given: the
    inputs that were, and were not left at their defaults. pieces: by direction, False forward, True
    reverse.
    """

    outputs: Named
    final: tuple[Array, ...]
    steps: Named
    steps_taken: int
    rows: int
    given: tuple[str, ...]
    kept: tuple[LayerRun, ...] = field(repr=False)
    pieces: Mapping[bool, Pieces | None] = field(repr=False)

    @property
    def tape_bytes(self) -> int:
        """What the tapes take, beside outputs and weights."""
        return sum(run.tape_bytes for layer in self.kept for run in layer.runs)


@dataclass(frozen=True)
class StackGradients:
    """params: by name, summed over batch and time; inputs: name -> [T, B, ...]; states: as they
    went in."""

    params: dict[str, Array]
    inputs: dict[str, Array]
    states: tuple[Array, ...]


@dataclass(frozen=True)
class StackWeights:
    """Weights packed for the kernels, for many calls: made by `Stack.pack`, and goes where params
    go."""

    cells: tuple[Mapping[str, Array] | Weights, ...]
    initial: tuple[Mapping[str, Array], ...]
