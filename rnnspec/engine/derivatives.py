"""The derivatives of a Kernel: gradients of a run, and directions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from numpy import ndarray as Array

from rnnspec.engine import arrays as checked
from rnnspec.engine.apart import named_in
from rnnspec.engine.call import Call, Cell
from rnnspec.engine.directions import Directions, directions
from rnnspec.engine.noise import Seed
from rnnspec.engine.results import Gradients, Jvp, Run
from rnnspec.engine.weights import Weights
from rnnspec.errors import UnsupportedError


class Derivatives(ABC):
    """What a Kernel (kernel.py) has of derivatives; the abstract method and property are its
    own."""

    @property
    @abstractmethod
    def cell(self) -> Cell: ...

    @abstractmethod
    def call(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
        lengths: Any = None,
        *,
        noise: Seed | str | None = None,
        steps: int | None = None,
        rows: int | None = None,
    ) -> Call: ...

    def jvp(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
        lengths: Any = None,
        *,
        tangent_params: Mapping[str, Any] | None = None,
        tangent_inputs: Mapping[str, Any] | None = None,
        tangent_states: Mapping[str, Any] | None = None,
        noise: Seed | str | None = None,
        steps: int | None = None,
        rows: int | None = None,
    ) -> Jvp:
        """Runs a sequence, and its derivative along a direction of parameters, inputs and initial
        states (forward mode): J v, for `backward`'s J.T u.

        tangent_params, tangent_inputs, tangent_states: name -> the direction, of the shape of what
            it is a direction of; zero where left out. With an axis of K before, of all of them,
            they are K directions at once (jax.vmap's order), and so are the results.

        All else is as for `forward`; kinks are as for `backward`. Raises UnsupportedError on a GPU.
        """
        call = self.call(params, inputs, states, lengths, noise=noise, steps=steps, rows=rows)
        return self.run_jvp(call, directions(self.cell, call, tangent_params, tangent_inputs, tangent_states))

    def run_jvp(self, call: Call, along: Directions) -> Jvp:
        """`jvp` of arguments that are ready; see `run_forward`."""
        raise UnsupportedError(f"{self!r} has no jvp: compile the cell with backend='cpu'.")

    def backward(
        self,
        run: Run,
        outputs: Mapping[str, Any] | None = None,
        *,
        final: Mapping[str, Any] | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Gradients:
        """Gradients from those of the outputs [T, B, ...] and of the final states [B, ...]; what is
        left out counts as zero.

        The tape is read, not consumed. Gradients are sums over batch and time. Of a run of pieces
        those of states are [R, ...]. out: for gradients of inputs, as for `forward`.
        """
        if not isinstance(run, Run):
            raise TypeError(
                "backward needs the Run that kernel.forward(...) returned (infer keeps no tape); got"
                f" {type(run).__name__}."
            )
        if run.owner is not self:
            raise ValueError("this run was made by another kernel; call that kernel's backward.")
        if out:
            given = {"the gradient of output": outputs, "the gradient of final state": final}
            checked.check_apart(out, {**named_in(given), **run.saved.read_again})
        return self._backward(run, outputs, final, out)

    @abstractmethod
    def _backward(
        self,
        run: Run,
        outputs: Mapping[str, Any] | None,
        final: Mapping[str, Any] | None,
        out: Mapping[str, Array] | None,
    ) -> Gradients:
        """`backward` of a run of this kernel; the other arguments are the caller's, unchecked."""
