"""Layers over a sequence that arrives step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.arrays import check_counts
from rnnspec.engine.stream import Stepping, some_rows, whole_rows
from rnnspec.language.spec import STEP
from rnnspec.layers.arguments import check_carried, check_forwards, check_given, check_steps, inputs_by_name
from rnnspec.layers.description import Layers
from rnnspec.layers.runs import Named, StackWeights
from rnnspec.layers.steps import Steps, complete


class StackStream(Stepping):
    """The states of all layers for some rows, moved on by one step at a time: made by
    `layer.stream(rows=B)` and `Stack.stream`.

    A step is evaluation: no dropout, of noise what is expected of it. Its numbers are those of the
    whole sequence, bit by bit. Weights are packed when the stream is made, and are those of then
    until `refresh`. states: by the names of `Stack.carried`, [L, B, ...] each; recorded: the values
    of the last step that `return_all_states` asks for, name -> [B, ...]. One thread at a time may
    use a stream.
    """

    def __init__(
        self,
        layers: Layers,
        pack: Callable[[Any], StackWeights],
        weights: Callable[[], Any],
        state: Any,
        rows: int,
    ):
        super().__init__()
        check_forwards(layers, "stream")
        self.layers, self.rows = layers, whole_rows(rows)
        self._pack, self._source = pack, weights
        # before anything that takes time: what the caller changes meanwhile is not seen
        before, counts = check_carried(layers, state, self.rows)
        before = tuple(None if array is None else array.copy() for array in before)
        counts = None if counts is None else counts.copy()
        self._weights = pack(weights())
        self._steps = Steps(layers, self._weights, self.rows)
        self._ahead = np.zeros((layers.num_layers, self.rows), np.int64)  # of each row's count, beside the stream's own
        self.recorded: Named = {}
        self._restart(before, counts, None)

    def __repr__(self) -> str:
        cells = ", ".join(layer.spec.name for layer in self.layers.layers)
        return f"StackStream({cells}, rows={self.rows}, t={self.t})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a stream of layers can't be copied or pickled: keep stream.state, and start another with"
            " layer.stream(state, rows=...)."
        )

    def step(self, x: Any) -> Any:
        """One step through all layers. x: [B, D], or as a call takes several inputs, a dict or a
        tuple; those with a default may be left out. Returns y [B, H], a tuple of several outputs,
        arrays of the caller's. Raises ShapeError and DtypeError, and nothing has changed then."""
        self._step(x)
        outputs = tuple([array.copy() for array in self._steps.outputs.values()])
        return outputs[0] if len(outputs) == 1 else outputs

    def _take(self, inputs: Any, t: int) -> None:
        layers = self.layers
        given = check_steps(layers, "input", inputs_by_name(layers, inputs), layers.inputs, (self.rows,))
        check_given(layers, given)
        self._steps.run(given, t)
        self.recorded, self._steps.recorded = self._steps.recorded, {}

    @property
    def state(self) -> Any:
        """The arrays of `states` as a call of the layer takes and gives a state: one array [L, B,
        H], or a tuple. What is written to them before the next step counts."""
        arrays = tuple(self.states.values())
        return arrays[0] if len(arrays) == 1 else arrays

    @property
    def counts(self) -> Array:
        """The number of each row's next step in each layer, int64 [L, B]: how many it has taken
        since its start or its last `reset`, beside those that its state came with."""
        self._check()
        if self._lent is not None and self.layers.counts:
            return self._lent.own[STEP].copy()
        return self._ahead + self._t

    def refresh(self, params: Any = None) -> None:
        """Goes on with the weights as they are now: those of the layer, or of the arrays that
        `Stack.stream` was given; or with others. The states stay as they are. Raises ShapeError and
        DtypeError for others that do not fit, and nothing has changed then."""
        self._check()
        weights = self._pack(self._source() if params is None else params)
        self._steps.refresh(weights)
        self._weights = weights

    def reset(self, state: Any = None, *, rows: Any = None) -> None:
        """Starts again from a state, as a call takes it; what is left out is as it is initially
        (zero, or the learned one), and the count of steps 0.

        rows: which rows do, the others go on: booleans [B], or the numbers of some rows [R]. Then
        the arrays of a state are [L, R, ...]. Raises ShapeError and DtypeError for arrays,
        ValueError for rows that there are not.
        """
        layers, which = self.layers, None if rows is None else some_rows(rows, self.rows)
        if which is not None:
            self._check()
        count = self.rows if which is None else len(which)
        self._restart(*check_carried(layers, state, count), which)

    def _restart(self, before: Any, counts: Array | None, which: Array | None) -> None:
        """Goes on from states and counts that were checked, of all rows or of some."""
        whole = complete(self.layers, self._weights, before, self.rows if which is None else len(which))
        if which is None:
            self._t, self._ahead = 0, np.zeros_like(self._ahead) if counts is None else counts
        else:
            if self._lent is not None:
                self._take_back(self._lent.own, self._t)
            some, whole = whole, self._steps.states()
            for array, part in zip(whole, some):
                array[:, which] = part
            self._ahead[:, which] = (0 if counts is None else counts) - self._t
        self._steps.load(whole, self._ahead)
        self._end_loan()

    def _copies(self) -> Named:
        named = dict(zip(self.layers.states, self._steps.states()))
        return named | ({STEP: self.counts} if self.layers.counts else {})

    def _take_back(self, states: Mapping[str, Array], t: int) -> None:
        if self.layers.counts:
            self._ahead = check_counts(states[STEP], self._ahead.shape) - t
        self._steps.load(tuple(states[name] for name in self.layers.states), self._ahead)
