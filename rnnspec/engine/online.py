"""A stream that learns: gradients step by step, without a tape. `kernel.online` makes one.

In: a kernel, and inputs step by step. Out: after any step the gradient of a loss at that step
through all steps before it, from the influence of the parameters on the states, which is carried
along. What is kept does not grow with the steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine import arrays as checked
from rnnspec.engine.call import Named
from rnnspec.engine.carried import Carried, as_matrix
from rnnspec.engine.derived import Derived
from rnnspec.engine.frozen import Frozen, Sizes
from rnnspec.engine.groups import refuse_groups
from rnnspec.engine.rank_one import Tangents
from rnnspec.engine.rules import RULES, by_units
from rnnspec.engine.stream import NOTHING, States, Stepper, Stream, all_sizes, some_rows, whole_rows
from rnnspec.engine.units import Extras, Units
from rnnspec.engine.weights import Weights
from rnnspec.errors import ShapeError
from rnnspec.language.lift import Lifted
from rnnspec.language.sizes import evaluate_size
from rnnspec.language.spec import STEP, Shape
from rnnspec.storage.locks import making

MOST_NUMBERS = 1 << 24  # of an influence that is kept as whole matrices, unless the caller says more


class Learner(Tangents, Protocol):
    """What a kernel has that learns step by step."""

    lifted: Lifted

    @property
    def derived(self) -> Derived: ...
    def pack(self, params: Mapping[str, Any] | Weights, /) -> Weights: ...
    def refresh(self, stepper: Any, weights: Weights) -> None: ...
    def layout(self, mode: str) -> Mapping[str, Any]: ...
    def stepper(
        self, weights: Weights, rows: int, sizes: Sizes, mode: str = "infer", beside: Mapping[str, Array] = {}
    ) -> Stepper: ...
    def run_readout(
        self, weights: Weights, rows: int, sizes: Sizes, given: Named, counts: Array | None
    ) -> tuple[Named, Named]:
        """What flows back from the outputs of a step to the states after and before it, [B,
        width] by name, and sums of gradients (rnnspec/symbolic/readout.py)."""


class Online:
    """The states of some rows, moved on by one step at a time, and the influence of the parameters
    on them: made by `kernel.online(params, rule=..., rows=B)`. One thread at a time may use it.

    rule: its name. by_units: whether the influence has one number for each element of a parameter
    and state of its unit; else it is a matrix of all numbers of states by all of parameters.
    outputs: as of a Stream.
    """

    def __init__(self, kernel: Learner, weights: Weights, rule: str, rows: int, sizes: Sizes, limit: int, seed: int):
        self.kernel, self.rule, self.rows, self.sizes = kernel, rule, rows, sizes
        self._weights, spec = weights, kernel.lifted.spec
        self._carried: Units | Carried
        with making:
            from rnnspec.lowering.pipeline import readout
            from rnnspec.symbolic.readout import before_step

            read = readout(spec)
        self._reached, self._direct = read.states, read.direct
        self._readout = () if read.is_direct else tuple(read.graph.reads("input"))
        self._start(limit, seed)
        self._keeps = not isinstance(self._carried, Units) or any(
            before_step(s) in self._readout for s in kernel.cell.states
        )
        self.outputs = Frozen({name: self.stream.outputs[name] for name in kernel.cell.spec.outputs})
        self._before: Named = {}
        self._counts, self._stepped = np.zeros(rows, np.int64), False

    def _start(self, limit: int, seed: int) -> None:
        kernel, weights, rows, sizes = self.kernel, self._weights, self.rows, self.sizes
        spec, mode, beside = kernel.lifted.spec, "infer", dict[str, Array]()
        found = by_units(spec, self.rule)
        if isinstance(found, str):
            self._carried = as_matrix(kernel, self.rule, self._reached, sizes, rows, (limit, seed, found))
        else:
            mode = RULES[self.rule].mode
            layout = kernel.layout(mode)["outputs"]
            widths = {name: evaluate_size(layout[name], sizes) for name in found.extras()}
            extras = Extras.of(widths, rows, kernel.cell.dtype)
            self._carried = Units(found, RULES[self.rule].reach or 0, kernel.cell.states, extras, sizes)
            beside = extras.now
        self._use(weights)
        self.stream = Stream(kernel, kernel.cell, rows, sizes, kernel.stepper(weights, rows, sizes, mode, beside), None)

    def _use(self, weights: Weights) -> None:
        """Goes on with these weights."""
        self._weights = weights
        if not isinstance(self._carried, Units):
            self._carried.use(weights)
        elif self._carried.found.own:
            self._carried.use(self.kernel.derived.values(weights.held, self.sizes))

    def __repr__(self) -> str:
        return f"Online({self.kernel.cell.spec.name}, rule={self.rule!r}, rows={self.rows}, t={self.t})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("an Online stream can't be copied or pickled: keep its states, and start another.")

    @property
    def by_units(self) -> bool:
        return isinstance(self._carried, Units)

    @property
    def t(self) -> int:
        """How many steps were taken since the start, or the last `reset` of all rows."""
        return self.stream.t

    @property
    def states(self) -> States:
        """The states before the next step, as of a Stream. What is written to them counts as given
        from outside: the influence stays as it is."""
        return self.stream.states

    def step(self, inputs: Mapping[str, Array] = NOTHING) -> dict[str, Array]:
        """One step, as of a Stream, which takes the influence along. Returns `outputs`."""
        carried, stream = self._carried, self.stream
        before, counts = dict(stream.states.own) if self._keeps else {}, stream.counts
        stream.step(inputs)
        self._before, self._counts, self._stepped = before, counts, True
        if isinstance(carried, Units):
            carried.step()
        else:
            carried.step(stream.stepper.inputs, before)
        return self.outputs

    def learn(self, d_outputs: Mapping[str, Any]) -> Named:
        """The gradient of a loss at the last step, through all steps since the start: name -> array
        of each trained parameter's shape, the sum over rows.

        d_outputs: name -> [B, ...], the gradient of the loss by the outputs of the step, zero where
        left out. May be called for any step, for some, or several times for one; the sum of those
        of all steps is the gradient of a loss that is their sum. Raises ShapeError, DtypeError.
        """
        if not self._stepped:
            raise ValueError("learn gives the gradient of a loss at the last step: call step(inputs) before.")
        cell, sizes = self.kernel.cell, self.sizes
        given = checked.named("gradient of output", d_outputs, self._shapes(), cell.dtype, required=False)
        for name, array in given.items():
            if array.shape != (full := (self.rows, *sizes.full(cell.spec.shapes[name]))):
                raise ShapeError(f"the gradient of output '{name}' has shape {array.shape}, expected {full}.")
        after, before, sums = self._flow({n: np.array(a) for n, a in given.items()})
        held, derived = self._weights.held, self.kernel.derived
        if not isinstance(self._carried, Units):
            direct = derived.gradients(sums, held, sizes)
            return {n: a + direct[n] for n, a in self._carried.gradients(after, before).items()}
        for name, array in self._carried.gradients(after, before):
            sums[name] = sums[name] + array if name in sums else array
        return derived.gradients(sums, held, sizes)

    def _flow(self, given: Named) -> tuple[Named, Named, Named]:
        """The gradients of the states after the last step and before it, [B, width], and of what
        parameters do to outputs themselves, from those of outputs."""
        if not self._readout:
            after: Named = {}
            for output, array in given.items():
                state = self._direct[output]
                after[state] = after[state] + array if state in after else array
            return after, {}, {}
        with making:
            from rnnspec.symbolic.adjoint import gradient_of
            from rnnspec.symbolic.readout import after_step, before_step
        cell, rows = self.kernel.cell, self.rows
        read: Named = {**self.stream.stepper.inputs}
        for name, shape in self._shapes().items():
            read[gradient_of(name)] = given.get(name, np.zeros((rows, *self.sizes.full(shape)), cell.dtype))
        read |= {after_step(n): a for n, a in self.stream.stepper.states().items()}
        read |= {before_step(n): a.reshape(rows, -1) for n, a in self._before.items() if n != STEP}
        counts = self._counts if cell.spec.counts else None
        found, sums = self.kernel.run_readout(self._weights, rows, self.sizes, read, counts)
        flows = [{n: found[f(n)] for n in self._reached if f(n) in found} for f in (after_step, before_step)]
        return flows[0], flows[1], sums

    def _shapes(self) -> dict[str, Shape]:
        spec = self.kernel.cell.spec
        return {name: spec.shapes[name] for name in spec.outputs}

    def refresh(self, params: Mapping[str, Any] | Weights) -> None:
        """Goes on with other parameters, of the same shapes: these are read now. The states, and
        the influence so far, stay as they are. Raises ShapeError and DtypeError."""
        weights = self.kernel.pack(params)
        self.stream.refresh(weights)
        self._use(weights)

    def reset(self, states: Mapping[str, Any] | None = None, *, rows: Any = None) -> None:
        """Starts again from these states, on which the parameters have no influence. Arguments and
        errors are those of `Stream.reset`."""
        self.stream.reset(states, rows=rows)
        self._stepped = False
        self._carried.reset(slice(None) if rows is None else some_rows(rows, self.rows))


def online(
    kernel: Learner,
    params: Mapping[str, Any] | Weights,
    states: Mapping[str, Any] | None,
    rule: str,
    rows: int,
    limit: int | None,
    seed: int,
    sizes: Mapping[str, int],
) -> Online:
    """`Kernel.online`."""
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(map(repr, RULES))}; got {rule!r}.")
    count, weights = whole_rows(rows), kernel.pack(params)
    refuse_groups(weights.groups, f"online learning of '{kernel.cell.spec.name}'", "learn with the rows of each group")
    whole = Sizes(all_sizes(kernel.cell, weights.held, sizes))
    made = Online(kernel, weights, rule, count, whole, MOST_NUMBERS if limit is None else limit, seed)
    if states is not None:
        made.reset(states)
    return made
