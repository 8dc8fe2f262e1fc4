"""The influence of parameters on states as one product of two vectors, drawn at random so that it
is right in the mean: unbiased online recurrent optimisation.

Tallec & Ollivier 2017, "Unbiased online recurrent optimization", equations 7 to 9: P = s w' with s
of all states and w of all parameters goes over one step to

    s = r0 J s + r1 v,  w = w / r0 + v' M / r1,

J the Jacobian of the step, M what the parameters do in it, v of random signs, r0 and r1 chosen so
that both terms are of like size. Its mean over the signs is the exact influence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.call import Call, Named
from rnnspec.engine.dense import Flat, Stepped
from rnnspec.engine.directions import Directions, directions
from rnnspec.engine.results import Gradients, Jvp, Run
from rnnspec.engine.weights import Weights
from rnnspec.storage.locks import numpy_part

LEAST = 1e-7  # the paper's epsilon, beside norms


class Tangents(Stepped, Protocol):
    """What a kernel has that runs a step along a direction, and back."""

    def run_jvp(self, call: Call, along: Directions) -> Jvp: ...
    def run_forward(self, call: Call) -> Run: ...
    def backward(
        self,
        run: Run,
        outputs: Mapping[str, Any] | None = None,
        *,
        final: Mapping[str, Any] | None = None,
        per_row: bool = False,
    ) -> Gradients: ...


class RankOne:
    """The influence of all parameters on the states of some rows. seed: of the signs.
    of_states [B, S], of_params [B, P]: the two vectors."""

    def __init__(self, kernel: Tangents, flat: Flat, rows: int, seed: int):
        self.kernel, self.flat, self.rows, self.rng = kernel, flat, rows, numpy_part("random").default_rng(seed)
        dtype = kernel.cell.dtype
        self.of_states = np.zeros((rows, self.flat.states), dtype)
        self.of_params = np.zeros((rows, self.flat.numbers), dtype)
        self.before = self.of_states, self.of_params

    def use(self, weights: Weights) -> None:
        """Goes on with these weights."""
        self.weights = weights

    def step(self, inputs: Named, states: Named) -> None:
        """Takes in a step, from its inputs and the states before it, [B, ...]."""
        cell, flat = self.kernel.cell, self.flat
        if not (flat.states and flat.numbers):
            return
        call = self.kernel.call(self.weights, {n: a[None] for n, a in inputs.items()}, states, steps=1, rows=self.rows)
        along = directions(cell, call, None, None, flat.by_state(self.of_states))
        moved = flat.of_states(self.kernel.run_jvp(call, along).tangent_final)
        signs = self.rng.choice(np.array([-1, 1], cell.dtype), moved.shape)
        run = self.kernel.run_forward(call)
        own = flat.of_params(self.kernel.backward(run, final=flat.by_state(signs), per_row=True).params)
        first = np.sqrt(_norm(self.of_params) / (_norm(moved) + LEAST)) + LEAST
        second = np.sqrt(_norm(own) / (_norm(signs) + LEAST)) + LEAST
        self.before = self.of_states, self.of_params
        self.of_states = (first * moved + second * signs).astype(cell.dtype, copy=False)
        self.of_params = (self.of_params / first + own / second).astype(cell.dtype, copy=False)

    def gradients(self, after: Mapping[str, Array], before: Mapping[str, Array]) -> Named:
        """The gradients of parameters, summed over rows, from those of the states after the step
        and before it, [B, ...]; zero where left out."""
        found = np.zeros(self.flat.numbers, self.of_params.dtype)
        for flow, (states, params) in ((after, (self.of_states, self.of_params)), (before, self.before)):
            if flow:
                found += (self.flat.of_states(flow) * states).sum(1) @ params
        return self.flat.by_param(found)

    def reset(self, rows: Array | slice) -> None:
        """Some rows start again: nothing has an influence on them."""
        self.of_states[rows], self.of_params[rows] = 0, 0


def _norm(array: Array) -> Array:
    return np.sqrt(np.square(array).sum(1, keepdims=True))
