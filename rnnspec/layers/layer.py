"""One cell as a layer: its sizes, what its weights are called and how they lie in them, and what it
reads. No weights, no calls.

A Layer knows nothing of directions or of other layers: the suffixes of names (`_l0_reverse`) are
the Stack's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.frozen import Frozen, Sizes
from rnnspec.engine.initialise import initialise
from rnnspec.engine.kernel import Kernel
from rnnspec.language.meaning.extras import ZERO
from rnnspec.language.roles import bias_names
from rnnspec.language.spec import Shape
from rnnspec.storage.locks import once_only

Full = tuple[int, ...]


@dataclass(frozen=True)
class Slot:
    """Where a parameter lies: rows first to last (not included) of an array of the layer's. whole:
    it is all of it, as it stands; shape: of the parameter, where its rows have another, else
    None."""

    array: str
    first: int
    last: int
    whole: bool
    shape: Full | None

    def of(self, arrays: Mapping[str, Array]) -> Array:
        """The parameter, in the arrays by name."""
        if self.whole:
            return arrays[self.array]
        rows = arrays[self.array][self.first : self.last]
        return rows if self.shape is None else rows.reshape(self.shape)


class Layer:
    """kernel: of the cell; sizes: the value of every size; bias: whether it has biases.

    shapes: the layer's weights, name -> shape; by torch's names where the cell has a torch layout,
    else by the cell's own. states, outputs: name -> shape of one row. main: the input that a layer
    below gives; others: the inputs that only the caller can give; noise of the cell is neither.
    fixed: the weights that are not trained.
    """

    def __init__(self, kernel: Kernel, sizes: Mapping[str, int], bias: bool):
        self.kernel, self.sizes, self.bias = kernel, Sizes(sizes), bias
        spec = self.spec = kernel.spec
        self.layout = next(
            (
                blocks
                for name, blocks in spec.layouts.items()
                if name.startswith("torch.") and all(b.isidentifier() for b in blocks)
            ),
            None,
        )
        self.absent = () if bias else bias_names(spec)
        self.slots, self.shapes = self._slots()
        self.fixed = frozenset(s.array for name in spec.fixed for s in self.slots[name])
        self.main, *self.others = list(spec.streams) or [""]
        self.outputs = Frozen({o: self.full(spec.shapes[o]) for o in spec.outputs})

    @once_only
    def states(self) -> dict[str, Full]:
        """The states, asked for late: what a cell carries from step to step is known when it is
        compiled."""
        return Frozen({name: self.full(shape) for name, shape in self.kernel.states.items()})

    def full(self, shape: Shape) -> Full:
        """A declared shape as numbers."""
        return self.sizes.full(shape)

    def _slots(self) -> tuple[dict[str, list[Slot]], dict[str, Full]]:
        """Where each parameter lies (in two places it is their sum), and the shapes of the arrays
        that hold them."""
        parameters = {n: self.full(s) for n, s in self.spec.weights.items()}
        slots: dict[str, list[Slot]] = {name: [] for name in parameters}
        shapes: dict[str, Full] = {}
        for block, names in (self.layout or {name: (name,) for name in parameters}).items():
            if set(names) <= {*self.absent, ZERO}:
                continue
            like = parameters[next(n for n in names if n != ZERO)]
            row = 0
            for name in names:
                shape = parameters.get(name, like)
                count = shape[0] if shape else 1
                if name != ZERO:
                    whole = len(names) == 1 and (self.layout is None or bool(shape))
                    same = shape == (count, *like[1:])
                    slots[name].append(Slot(block, row, row + count, whole, None if same else shape))
                row += count
            shapes[block] = like if self.layout is None else (row, *like[1:])
        return Frozen(slots), Frozen(shapes)

    def parameters(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The cell's parameters, from the layer's weights by name: views, but for sums of two."""
        parameters = {}
        for name, slots in self.slots.items():
            if len(slots) == 1:
                parameters[name] = slots[0].of(arrays)
                continue
            parts = [slot.of(arrays) for slot in slots]
            empty = None if parts else np.zeros(self.full(self.spec.parameters[name]), self.kernel.dtype)
            parameters[name] = sum(parts[1:], parts[0]) if empty is None else empty
        return parameters

    def weights(self, values: Mapping[str, Array], *, gradients: bool = False) -> dict[str, Array]:
        """The layer's weights from the cell's parameters. Of one in two places the first has it
        all; of its gradient both have. What is fixed has no gradient."""
        if gradients and self.stacked is not None:
            return {
                array: values[names[0]].copy() if len(names) == 1 else np.concatenate([values[n] for n in names])
                for array, names in self.stacked.items()
            }
        # what no parameter fills stays zero
        names = [n for n in self.shapes if not (gradients and n in self.fixed)]
        weights = {name: np.zeros(self.shapes[name], self.kernel.dtype) for name in names}
        for name, slots in self.slots.items():
            if gradients and name in self.spec.fixed:
                continue
            for number, slot in enumerate(slots if gradients else slots[:1]):
                if slot.whole:  # two biases must not be one array: whoever scales gradients in place would do so twice
                    weights[slot.array] = values[name].copy() if number else values[name]
                else:
                    rows = values[name].reshape((slot.last - slot.first, *values[name].shape[1:]))
                    weights[slot.array][slot.first : slot.last] = rows
        return weights

    @once_only
    def stacked(self) -> Mapping[str, tuple[str, ...]] | None:
        """The parameters that stand one under another in each array; None where anything else
        does, or is fixed."""
        found: dict[str, list[tuple[int, int, str]]] = {array: [] for array in self.shapes}
        for name, slots in self.slots.items():
            for slot in slots:
                found[slot.array].append((slot.first, slot.last, name))
                if slot.shape is not None or len(self.full(self.spec.parameters[name])) != len(self.shapes[slot.array]):
                    return None
        for array, places in found.items():
            ends = [0, *(last for _, last, _ in sorted(places))]
            if [first for first, _, _ in sorted(places)] != ends[:-1] or self.shapes[array][:1] != (ends[-1],):
                return None
        return None if self.fixed else {array: tuple(n for *_, n in sorted(places)) for array, places in found.items()}

    def init(self, seed: int) -> dict[str, Array]:
        """Initial weights, as the spec's `init` says."""
        return self.weights(initialise(self.spec, self.sizes, seed, self.kernel.dtype))


def shown_cells(layers: Sequence[Layer]) -> tuple[list[str], dict[str, str | float]]:
    """What a repr tells of the cells of layers: their names, and the choices and constants that are
    not as their files have them. Where layers are of different cells, or choose differently, these
    stand by the names, as "rnn phi=relu".
    """
    specs = [layer.spec for layer in layers]
    first = specs[0]
    if all((s.name, s.settings) == (first.name, first.settings) for s in specs):
        return [s.name for s in specs], first.settings
    return [s.label for s in specs], {}
