"""One cell as a layer: its sizes, what its weights are called and how they lie in them, and what it reads. No weights, no calls.

A Layer knows nothing of directions or of other layers: the suffixes of names (`_l0_reverse`) are the Stack's.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rnnspec.initialise import initialise
from rnnspec.kernel import Kernel
from rnnspec.language.biases import bias_names
from rnnspec.language.extras import ZERO
from rnnspec.language.sizes import evaluate_size, full_shape, size_names, sizes_in, unit_size, with_default_sizes
from rnnspec.language.spec import Shape, Spec

Array = np.ndarray
Full = tuple[int, ...]


@dataclass(frozen=True)
class Slot:
    """Where a parameter lies: rows first to last (not included) of an array of the layer's. whole: it is all of it, as it stands."""

    array: str
    first: int
    last: int
    whole: bool


class Layer:
    """kernel: of the cell; sizes: the value of every size; bias: whether it has biases.

    shapes: the layer's weights, name -> shape; by torch's names where the cell has a torch layout, else by the cell's own.
    states, outputs: name -> shape of one row. main: the input that a layer below gives; others: the inputs that only the caller can give;
    noise of the cell is neither.
    """

    def __init__(self, kernel: Kernel, sizes: Mapping[str, int], bias: bool):
        self.kernel, self.sizes, self.bias = kernel, dict(sizes), bias
        spec = self.spec = kernel.spec
        self.layout = next((blocks for name, blocks in spec.layouts.items() if name.startswith("torch.") and all(b.isidentifier() for b in blocks)), None)
        self.absent = () if bias else bias_names(spec)
        self.slots, self.shapes = self._slots()
        self.main, *self.others = list(spec.streams) or [""]
        self.outputs = {o: self.full(spec.shapes[o]) for o in spec.outputs}

    @cached_property
    def states(self) -> dict[str, Full]:
        """Asked for late: what a cell carries from step to step is known when it is compiled."""
        return {name: self.full(shape) for name, shape in self.kernel.states.items()}

    def full(self, shape: Shape) -> Full:
        return full_shape(shape, self.sizes)

    def _slots(self) -> tuple[dict[str, list[Slot]], dict[str, Full]]:
        """Where each parameter lies (in two places it is their sum), and the shapes of the arrays that hold them."""
        parameters = {n: self.full(s) for n, s in self.spec.trained.items()}
        slots: dict[str, list[Slot]] = {name: [] for name in parameters}
        shapes: dict[str, Full] = {}
        for block, names in (self.layout or {name: (name,) for name in parameters}).items():
            if set(names) <= {*self.absent, ZERO}:
                continue
            like = parameters[next(n for n in names if n != ZERO)]
            row = 0
            for name in names:
                own = parameters.get(name, like)
                count = own[0] if own else 1
                if name != ZERO:
                    slots[name].append(Slot(block, row, row + count, len(names) == 1 and (self.layout is None or bool(own))))
                row += count
            shapes[block] = like if self.layout is None else (row, *like[1:])
        return slots, shapes

    def parameters(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The cell's parameters, from the layer's weights by name: views, but for sums of two."""
        found = {}
        for name, slots in self.slots.items():
            shape = self.full(self.spec.parameters[name])
            parts = [arrays[s.array] if s.whole else arrays[s.array][s.first : s.last].reshape(shape) for s in slots]
            found[name] = sum(parts[1:], parts[0]) if parts else np.zeros(shape, self.kernel.dtype)
        return found

    def weights(self, values: Mapping[str, Array], *, gradients: bool = False) -> dict[str, Array]:
        """The layer's weights from the cell's parameters. Of one in two places the first has it all; of its gradient both have."""
        found = {name: np.zeros(shape, self.kernel.dtype) for name, shape in self.shapes.items()}  # what no parameter fills stays zero
        for name, slots in self.slots.items():
            for number, slot in enumerate(slots if gradients else slots[:1]):
                if slot.whole:  # two biases must not be one array: whoever scales gradients in place would do so twice
                    found[slot.array] = values[name].copy() if number else values[name]
                else:
                    found[slot.array][slot.first : slot.last] = values[name].reshape((slot.last - slot.first, *values[name].shape[1:]))
        return found

    def init(self, seed: int) -> dict[str, Array]:
        """Initial weights, as the spec's `init` says."""
        return self.weights(initialise(self.spec, self.sizes, seed, self.kernel.dtype))


def layer_sizes(spec: Spec, input_size: int, hidden_size: int, proj_size: int, more: Mapping[str, int], depth: int = 0) -> dict[str, int]:
    """The value of every size of a cell. more: those given by name; depth: its place in a stack, for messages."""
    known = sizes_in(spec.shapes.values())
    sizes = {name: value for name, value in more.items() if name in known}
    first = next(iter(spec.streams.values()), ())
    source = "input_size" if not depth else f"layer {depth - 1}, which layer {depth} reads,"
    if first and first[0].isidentifier():
        _tell(sizes, first[0], input_size, f"sizes[{first[0]!r}]", source)
    elif spec.streams and input_size != (evaluate_size(first[0], sizes) if first and size_names(first[0]) <= set(sizes) else 1 if not first else input_size):
        raise ValueError(f"{source} gives {input_size} features, but the cell {spec.name!r} reads {'one number' if not first else first[0]} a step.")
    hidden = unit_size(spec)
    if hidden is not None:
        _tell(sizes, hidden, hidden_size, source if first[:1] == (hidden,) else f"sizes[{hidden!r}]", "hidden_size")
    if proj_size and projects(spec):
        sizes["P"] = proj_size
    sizes = with_default_sizes(spec.sizes, sizes)
    missing = sorted(known - set(sizes))
    if missing:
        hint = "give proj_size, or sizes={'P': ...}" if missing == ["P"] else f"give sizes={{{', '.join(f'{m!r}: ...' for m in missing)}}}"
        many = "s" * (len(missing) > 1)
        raise ValueError(f"the cell {spec.name!r} has the size{many} {', '.join(missing)} that input_size and hidden_size do not tell: {hint}.")
    return sizes


def check_sizes(more: Mapping[str, int], specs: list[Spec]) -> None:
    """Sizes that are given by name exist in one of the cells, and are numbers."""
    if not isinstance(more, Mapping):
        raise TypeError(f"sizes must be a dict of whole numbers by size name, got {more!r}.")
    known = sizes_in(shape for spec in specs for shape in spec.shapes.values())
    for name, value in more.items():
        if name not in known:
            raise ValueError(f"the cell {', '.join(dict.fromkeys(repr(s.name) for s in specs))} has no size {name!r}; it has {', '.join(sorted(known))}.")
        whole(f"sizes[{name!r}]", value)


def projects(spec: Spec) -> bool:
    """Whether a cell has a projection: a parameter of the size P."""
    return "P" in sizes_in(spec.parameters.values())


def check_projection(proj_size: int, hidden_size: int, specs: list[Spec]) -> None:
    """Whether this projection, if any is asked for, is one of one of these cells."""
    if not proj_size:
        return
    if not any(projects(spec) for spec in specs):
        raise ValueError(f"proj_size: the cell {specs[0].name!r} has no projection (size P); 'lstm_projected' has one.")
    whole("proj_size", proj_size)
    if proj_size >= hidden_size:
        raise ValueError(f"proj_size must be smaller than hidden_size ({hidden_size}), got {proj_size}.")


def whole(name: str, value: object) -> None:
    """Raises unless the value is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}.")


def _tell(sizes: dict[str, int], name: str, value: int, before: str, now: str) -> None:
    if sizes.setdefault(name, value) != value:
        raise ValueError(f"the size {name} is {sizes[name]} by {before.rstrip(',')}, but {value} by {now.rstrip(',')}.")
