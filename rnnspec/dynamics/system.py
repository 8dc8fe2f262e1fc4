"""A cell under held inputs as a map s -> F(s), all its states in one vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.kernel import Kernel
from rnnspec.engine.results import Jvp
from rnnspec.engine.weights import Weights
from rnnspec.errors import RnnspecError, ShapeError, UnsupportedError
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.tree import Call, walk
from rnnspec.storage.locks import once_only

Named = dict[str, Array]


class System:
    """The map of one step: states before it to states after it, [B, N] each.

    kernel: of a cell whose step is a function of its states, without jumps that its derivative
        leaves out. params: as for `kernel.forward`. inputs: name -> [...], what every step reads,
        or a number; those with a default may be left out. states: name -> [B, ...], any, from which
        sizes are read. Noise is what is expected of it.

    parts: the numbers of each state in a vector, in the order of `kernel.states`; names: of every
    number, "h[3]". Vectors and Jacobians are float64, whatever the kernel's dtype is, which says
    how exact they are. Raises UnsupportedError for a cell that has no such map.
    """

    def __init__(
        self,
        kernel: Kernel,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any],
    ):
        check_autonomous(kernel.spec)
        self.kernel, self.weights = kernel, kernel.pack(params)
        self.inputs = {n: _held(a, kernel.dtype) for n, a in (inputs or {}).items()}
        rows = next((len(a) for a in states.values()), 1)
        sizes = kernel.call(self.weights, self.steps(1, rows), states, noise="mean", steps=1, rows=rows).sizes
        for kind, arrays in (("parameter", self.weights.params), ("input", self.inputs)):
            all_finite(kind, arrays)
        self.shapes = {n: sizes.full(shape) for n, shape in kernel.states.items()}
        self.parts = {n: int(np.prod(shape, dtype=np.int64)) for n, shape in self.shapes.items()}
        self.size = sum(self.parts.values())
        if not self.size:
            raise UnsupportedError(f"'{kernel.spec.name}' carries no states here, and so has no dynamics.")

    @once_only
    def names(self) -> tuple[str, ...]:
        return tuple(
            name + ("" if not shape else f"[{', '.join(map(str, at))}]")
            for name, shape in self.shapes.items()
            for at in np.ndindex(*shape)
        )

    @property
    def tolerance(self) -> float:
        """How near to F(s) a state has to be, in parts of 1 + max|s|, to be called a fixed point:
        eps ** 0.75, which is 1.8e-12 in float64 and 6.4e-6 in float32."""
        return float(np.finfo(self.kernel.dtype).eps ** 0.75)

    def steps(self, count: int, rows: int) -> Named:
        """The inputs of so many steps, [T, B, ...], all the same."""
        return {n: np.broadcast_to(a, (count, rows, *a.shape)) for n, a in self.inputs.items()}

    def joined(self, states: Mapping[str, Any]) -> Array:
        """Vectors [..., N] of states [..., each shape]; those left out are 0, but not all."""
        if not states:
            raise ShapeError(f"no state of '{self.kernel.spec.name}' is given. It has: {', '.join(self.shapes)}.")
        lead = next((np.shape(a)[: np.ndim(a) - len(self.shapes[n])] for n, a in states.items()), ())
        return np.concatenate(
            [
                np.asarray(states[n], np.float64).reshape(*lead, self.parts[n])
                if n in states
                else np.zeros((*lead, self.parts[n]))
                for n in self.shapes
            ],
            axis=-1,
        )

    def split(self, vectors: Array) -> Named:
        """The states of vectors [..., N], in the kernel's dtype."""
        ends = np.cumsum(list(self.parts.values()))[:-1]
        return {
            n: np.ascontiguousarray(part, self.kernel.dtype).reshape(*vectors.shape[:-1], *self.shapes[n])
            for n, part in zip(self.shapes, np.split(vectors, ends, axis=-1))
        }

    def after(self, vectors: Array, count: int = 1) -> Array:
        """The states [B, N] so many steps later."""
        rows = len(vectors)
        found = self.kernel.infer(
            self.weights, self.steps(count, rows), self.split(vectors), steps=count, rows=rows, noise="mean"
        )
        return self.joined(found.final)

    def orbit(self, vectors: Array, count: int) -> Array:
        """The states before each of so many steps, [T, B, N]."""
        found = [vectors]
        while len(found) < count:
            found.append(self.after(found[-1]))
        return np.stack(found[:count])

    def jacobian(self, vectors: Array) -> Array:
        """dF/ds at each vector, [B, N, N]."""
        rows = len(vectors)
        blocks = self.kernel.jacobian(
            self.weights, self.steps(1, rows), self.split(vectors), steps=1, rows=rows, noise="mean"
        )
        found = np.empty((rows, self.size, self.size))
        row = 0
        for after, count in self.parts.items():
            column = 0
            for before, width in self.parts.items():
                found[:, row : row + count, column : column + width] = blocks[after][before].reshape(rows, count, width)
                column += width
            row += count
        return found

    def along(
        self,
        vectors: Array,
        tangents: Array | None = None,
        inputs: Mapping[str, Array] | None = None,
        steps: int = 1,
        **directions: Mapping[str, Array],
    ) -> tuple[Array, Array]:
        """The states [B, N] after some steps, and how they move along tangents [K, B, N] of the
        states before, or along `tangent_params` and `tangent_inputs`, [K, B, N]; inputs: [T, B,
        ...], in place of those that are held."""
        rows = len(vectors)
        if tangents is not None:
            directions["tangent_states"] = self.split(tangents)
        found: Jvp = self.kernel.jvp(
            self.weights,
            self.steps(steps, rows) if inputs is None else inputs,
            self.split(vectors),
            steps=steps,
            rows=rows,
            noise="mean",
            **directions,
        )
        return self.joined(found.final), self.joined(found.tangent_final)


def check_autonomous(spec: Spec) -> None:
    """UnsupportedError for a cell whose step is not a function of states and inputs alone, or is
    not differentiated as it is."""
    if spec.counts:
        raise UnsupportedError(
            f"'{spec.name}' counts its steps, so that its map is another at every step (it is not autonomous): give"
            " the count a state of its own, or make it an input."
        )
    called = {node.function for e in spec.equations for node in walk(e.value) if isinstance(node, Call)}
    if jumps := sorted(n for n in called if n in FUNCTIONS and FUNCTIONS[n].surrogate and not FUNCTIONS[n].internal):
        raise UnsupportedError(
            f"'{spec.name}' calls {', '.join(jumps)}, whose derivative is meant to be another than that of its value:"
            " Jacobians of it are not those of its map, and say nothing of how it moves. Spiking cells are such; a"
            " rate model of the same neurons (ctrnn, leaky_rnn) is not."
        )


def all_finite(kind: str, arrays: Mapping[str, Any]) -> None:
    """RnnspecError where a given array holds a NaN or an infinity: there is no map then."""
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise RnnspecError(f"{kind} '{name}' is not finite: give numbers without NaN and infinities.")


def finite(vectors: Array, what: str) -> Array:
    """The vectors, or RnnspecError where one is not finite."""
    if not np.isfinite(vectors).all():
        raise RnnspecError(f"{what} is not finite: the states explode. Begin elsewhere, or take fewer steps.")
    return vectors


def _held(value: Any, dtype: np.dtype) -> Array:
    array = np.asarray(value, dtype) if isinstance(value, int | float) else np.asarray(value)
    if array.dtype == object:
        raise ShapeError(f"an input that is held must be an array or a number, not {type(value).__name__}.")
    return array
