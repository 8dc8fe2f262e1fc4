"""A sequence that arrives step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine import arrays as checked
from rnnspec.engine.noise import mean
from rnnspec.errors import ShapeError
from rnnspec.language.sizes import check_size_value, full_shape, sizes_in, with_default_sizes

if TYPE_CHECKING:
    from rnnspec.engine.kernel import Kernel
    from rnnspec.engine.weights import Weights


INTERRUPTED = -1  # in place of the step's number


class Stream:
    """The states of some rows, moved on by one step at a time: made by `kernel.stream(params,
    rows=B)`.

    A step plans, packs and allocates nothing. outputs: name -> [B, ...], the same arrays after
    every step, so copy what must outlive the next one. One thread at a time may use a stream;
    different streams do not meet.
    """

    def __init__(
        self, kernel: Kernel, weights: Weights, rows: int, sizes: Mapping[str, int], states: Mapping[str, Any] | None
    ):
        self.kernel, self.weights, self.rows = kernel, weights, rows
        spec, self.sizes = kernel.spec, _sizes(kernel, weights, sizes)
        self._inputs = {
            n: np.zeros((rows, *full_shape(shape, self.sizes)), kernel.dtype) for n, shape in spec.inputs.items()
        }
        self._mean = {
            n: a[0]
            for n, a in mean(
                spec, self.sizes, 1, rows, kernel.dtype, [n for n in spec.noise if n in spec.inputs]
            ).items()
        }
        self.outputs = {
            o: np.zeros((rows, *full_shape(spec.shapes[o], self.sizes)), kernel.dtype) for o in spec.outputs
        }
        self._t: int = 0
        self._bind()
        self.reset(states)

    def _bind(self) -> None:
        """Plans, packs and allocates."""
        from rnnspec.backends.cpu.launch.execute import Bound

        plan = self.kernel._new_plans(("infer",), self.sizes, 1, self.rows, None)[0]
        self._bound = Bound(plan)
        self._bound.use(self.kernel._packed("infer", self.sizes, self.weights), None)
        self._bound.point(*({n: _steps(a) for n, a in group.items()} for group in (self._inputs, self.outputs)))
        self._clocks = [block.chunks for block in plan.blocks]

    def __repr__(self) -> str:
        return f"Stream({self.kernel.spec.name}, rows={self.rows}, t={self.t})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a Stream can't be copied or pickled: keep stream.states, and start another with kernel.stream(weights,"
            " states, rows=...)."
        )

    def step(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One step. inputs: name -> [B, ...]; those with a default may be left out, and noise,
        which is what is expected of it then. Returns `outputs`."""
        t, self._t = self._t, INTERRUPTED
        if t == INTERRUPTED:
            raise RuntimeError(
                "a step of this stream was interrupted, and its states are lost: call reset(states), or start another"
                " stream."
            )
        try:
            self._take(inputs, t)
        except Exception:  # refused before anything was computed
            self._t = t
            raise
        self._t = t + 1
        return self.outputs

    def _take(self, inputs: Mapping[str, Array], t: int) -> None:
        own, defaults = self._inputs, self.kernel.spec.defaults
        if self._mean and isinstance(inputs, Mapping):
            inputs = self._mean | {n: a for n, a in inputs.items() if a is not None}
        given = inputs if type(inputs) is dict and inputs.keys() == own.keys() else self._checked(inputs)
        for name, array in own.items():
            value = given.get(name)
            if value is None and name in defaults:
                plain = defaults[name]
                array[...] = t if plain is None else plain
                continue
            if type(value) is not np.ndarray or value.shape != array.shape or value.dtype != array.dtype:
                value = self._checked(inputs)[name]
            array[...] = value
        self._run(t)

    def _run(self, t: int) -> None:
        """Step t, from `_inputs` to `outputs`."""
        for chunks in self._clocks:
            chunks[:, 0] = t
        self._bound.run()

    def _current(self) -> dict[str, Array]:
        """The states, [B, width]."""
        return self._bound.states()

    @property
    def t(self) -> int:
        """How many steps were taken since the start or the last `reset`."""
        return self._t

    @property
    def states(self) -> dict[str, Array]:
        """Copies of the states now, name -> [B, ...]."""
        return {
            s: a.reshape(self.rows, *full_shape(self.kernel.states[s], self.sizes)) for s, a in self._current().items()
        }

    def reset(self, states: Mapping[str, Any] | None = None) -> None:
        """Back to step 0, from these states, zero where left out."""
        given = checked.named("state", states, self.kernel.states, self.kernel.dtype, required=False)
        kernel, lead = self.kernel, (str(self.rows),)
        checked.infer_sizes(
            kernel.spec,
            [(f"state '{n}'", lead + kernel._sized(kernel.states[n], self.sizes), a.shape) for n, a in given.items()],
        )
        self._restart(given)

    def _restart(self, states: Mapping[str, Array]) -> None:
        self._bound.load(states)
        self._t = 0

    def _checked(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """The inputs as arrays that fit, or the error that says what does not."""
        kernel = self.kernel
        arrays = checked.named(
            "input", inputs, kernel.spec.inputs, kernel.dtype, required=True, optional=kernel.spec.defaults
        )
        lead = (str(self.rows),)
        checked.infer_sizes(
            kernel.spec,
            [
                (f"input '{n}'", lead + kernel._sized(kernel.spec.inputs[n], self.sizes), a.shape)
                for n, a in arrays.items()
            ],
        )
        return arrays


def _steps(array: Array) -> Array:
    """One step [B, ...] as all steps of a sequence [T, B, ...], for whatever T."""
    flat = array if array.ndim < 3 else array.reshape(array.shape[0], -1)
    return np.lib.stride_tricks.as_strided(flat[None], strides=(0, *flat.strides))


def _sizes(kernel: Kernel, weights: Weights, given: Mapping[str, int]) -> dict[str, int]:
    """The value of every size, from the shapes of the weights and from those given by name."""
    spec = kernel.spec
    sizes = kernel._sizes_of(weights.params, {}, {}, ("T", "B"))
    names = sizes_in(spec.shapes.values())
    for name, value in given.items():
        if name not in names:
            raise ShapeError(
                f"'{spec.name}' has no size {name!r}. Its sizes are: {', '.join(sorted(names)) or 'none'}; rows= is the"
                " number of rows."
            )
        check_size_value(name, value)
        if sizes.setdefault(name, value) != value:
            raise ShapeError(f"size {name} is {value} here, but {sizes[name]} by the shapes of the weights.")
    sizes = with_default_sizes(spec.sizes, sizes)
    if missing := sorted(names - set(sizes)):
        raise ShapeError(
            f"the parameters of '{spec.name}' do not tell the size{'s' * (len(missing) > 1)} {', '.join(missing)}: "
            f"give {', '.join(f'{n}=...' for n in missing)}."
        )
    return sizes
