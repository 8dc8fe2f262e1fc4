"""The derivatives of a Kernel: gradients of a run, and directions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.pins import Pins
from rnnspec.engine import arrays as checked
from rnnspec.engine.apart import named_in
from rnnspec.engine.call import Call, Cell, gradients
from rnnspec.engine.directions import Directions, curved, diagonal, directions
from rnnspec.engine.noise import Seed
from rnnspec.engine.results import Ggn, Gradients, Hvp, Jvp, Linear, RowGradients, Run
from rnnspec.engine.spans import Pieces
from rnnspec.engine.weights import Weights
from rnnspec.errors import UnsupportedError

Curvature = Callable[[Jvp], tuple[Mapping[str, Any], Mapping[str, Any]]]


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
        pieces: Pieces | None = None,
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

        All else is as for `forward`; kinks are as for `backward`. A GPU runs one
        direction after another, and gives NumPy arrays.
        """
        call = self.call(params, inputs, states, lengths, noise=noise, steps=steps, rows=rows)
        return self.run_jvp(call, self._directions(call, tangent_params, tangent_inputs, tangent_states))

    def _directions(self, call: Call, *given: Mapping[str, Any] | None) -> Directions:
        """The directions of a call, checked."""
        return directions(self.cell, call, *map(self._hosted, given))

    def _hosted(self, given: Any) -> Any:
        """Arrays by name where the host can read them; whatever is no mapping as it is."""
        return given

    def hvp(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
        lengths: Any = None,
        *,
        outputs: Mapping[str, Any] | None = None,
        final: Mapping[str, Any] | None = None,
        tangent_params: Mapping[str, Any] | None = None,
        tangent_inputs: Mapping[str, Any] | None = None,
        tangent_states: Mapping[str, Any] | None = None,
        tangent_outputs: Mapping[str, Any] | None = None,
        tangent_final: Mapping[str, Any] | None = None,
        noise: Seed | str | None = None,
        pieces: Pieces | None = None,
        steps: int | None = None,
        rows: int | None = None,
    ) -> Hvp:
        """Runs a sequence, its gradients, and the derivatives of both along a direction: Hessians
        times vectors.

        outputs, final: the gradients of the outputs [T, B, ...] and of the final states [B, ...],
            as for `backward`.
        tangent_params, tangent_inputs, tangent_states: the direction, or K of them, as for `jvp`.
        tangent_outputs, tangent_final: how outputs and final move along it: of a loss L(y) they
            are its Hessian times `jvp`'s directions of y; zero where left out, as for a loss that
            is linear in y.

        The tangent of the gradient J.T u is (dJ.T v) u + J.T du. At a kink it is that of the branch
        taken; a function whose derivative is meant to be another than that of its value
        (`straight_through`) is differentiated by that one again, and `stop_gradient` has none. All
        else is as for `forward`. A GPU runs one direction after another, and gives NumPy arrays.
        """
        call = self.call(params, inputs, states, lengths, noise=noise, pieces=pieces, steps=steps, rows=rows)
        moved = (tangent_params, tangent_inputs, tangent_states, tangent_outputs, tangent_final)
        starts = call.rows if pieces is None else len(pieces)
        told = self._hosted(outputs), self._hosted(final)
        dy, dfinal = gradients(self.cell, call.sizes, *told, (call.steps, call.rows), starts)
        with Pins([*dy.values(), *dfinal.values()]):
            linear = self.run_linear(call, along := self._directions(call, *moved))
            own, of_direction = linear.backward(dy, dfinal, along)
        return Hvp(**vars(linear.run), gradients=own, tangent_gradients=of_direction)

    @abstractmethod
    def run_linear(self, call: Call, along: Directions) -> Linear:
        """The first half of `hvp`, of arguments that are ready; see `run_forward`. What flows back
        and its directions are given to the second half."""

    def ggn(
        self,
        params: Mapping[str, Any] | Weights,
        inputs: Mapping[str, Any],
        states: Mapping[str, Any] | None = None,
        lengths: Any = None,
        *,
        curvature: Mapping[str, Any] | Curvature,
        tangent_params: Mapping[str, Any] | None = None,
        tangent_inputs: Mapping[str, Any] | None = None,
        tangent_states: Mapping[str, Any] | None = None,
        noise: Seed | str | None = None,
        steps: int | None = None,
        rows: int | None = None,
    ) -> Ggn:
        """Runs a sequence and multiplies a direction by its Gauss-Newton matrix, J.T C J v
        (Schraudolph 2002), C being the Hessian of a loss by outputs and final states.

        curvature: name of an output -> the diagonal of C, [T, B, ...]; or a function that is given
            the Jvp, whose `tangent_outputs` and `tangent_final` are J v, and gives C J v: two
            dicts, of outputs and of final states, in their shapes.
        tangent_params, tangent_inputs, tangent_states: the direction, or K of them, as for `jvp`.

        All else is as for `jvp`.
        """
        call = self.call(params, inputs, states, lengths, noise=noise, steps=steps, rows=rows)
        along = self._directions(call, tangent_params, tangent_inputs, tangent_states)
        by_output = {} if callable(curvature) else diagonal(self.cell, call, self._hosted(curvature))
        # what lies past a row's end may be NaN or infinite: times 0 there, and not read
        with Pins(by_output.values()), np.errstate(invalid="ignore"):
            run = self.run_jvp(call, along)
            outputs, final = {n: a * run.tangent_outputs[n] for n, a in by_output.items()}, dict[str, Any]()
        if callable(curvature):
            outputs, final = curved(curvature(run))
        back = self._directions(call, None, None, None, outputs, final)
        return Ggn(**vars(run), products=self.run_vjp(call, back))

    @abstractmethod
    def run_vjp(self, call: Call, along: Directions) -> Gradients:
        """The gradients from each column of those of outputs and final states in `along`, [K, ...]:
        J.T u for each of them, in one run."""

    @abstractmethod
    def run_jvp(self, call: Call, along: Directions) -> Jvp:
        """`jvp` of arguments that are ready; see `run_forward`."""

    def backward(
        self,
        run: Run,
        outputs: Mapping[str, Any] | None = None,
        *,
        final: Mapping[str, Any] | None = None,
        out: Mapping[str, Array] | None = None,
        per_row: bool = False,
    ) -> Gradients:
        """Gradients from those of the outputs [T, B, ...] and of the final states [B, ...]; what is
        left out counts as zero.

        The tape is read, not consumed. Gradients are sums over batch and time. Of a run of pieces
        those of states are [R, ...]. out: for gradients of inputs, as for `forward`. per_row: have
        gradients of parameters for every row of the batch, [B, ...], which are sums over time
        alone: of a loss that is a sum of one for each row, those of each. Raises UnsupportedError
        for that on a GPU.
        """
        self._check_backward(run, outputs, final, out)
        if not per_row:
            return self._backward(run, outputs, final, out)
        rows, grad = self._backward_rows(run, outputs, final, out)
        return Gradients(rows.gradients(0, run.rows), grad.inputs, grad.states)

    def row_norms(
        self,
        run: Run,
        outputs: Mapping[str, Any] | None = None,
        *,
        final: Mapping[str, Any] | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Gradients:
        """`backward`, with squared norms of each row's gradients in place of gradients of
        parameters: name -> float64 [B], the sum of squares of what `per_row=True` has there.

        The gradients themselves are made for a few rows at a time, and not kept. A sum of gradients
        that are weighed by row, as private training clips them, is a `backward` from `outputs` and
        `final` that are weighed so. Arguments and errors are those of `backward`.
        """
        self._check_backward(run, outputs, final, out)
        rows, grad = self._backward_rows(run, outputs, final, out)
        return Gradients(rows.squared_norms(run.rows), grad.inputs, grad.states)

    def _check_backward(
        self,
        run: Run,
        outputs: Mapping[str, Any] | None,
        final: Mapping[str, Any] | None,
        out: Mapping[str, Array] | None,
    ) -> None:
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

    @abstractmethod
    def _backward(
        self,
        run: Run,
        outputs: Mapping[str, Any] | None,
        final: Mapping[str, Any] | None,
        out: Mapping[str, Array] | None,
    ) -> Gradients:
        """`backward` of a run of this kernel; the other arguments are the caller's, unchecked."""

    def _backward_rows(
        self,
        run: Run,
        outputs: Mapping[str, Any] | None,
        final: Mapping[str, Any] | None,
        out: Mapping[str, Array] | None,
    ) -> tuple[RowGradients, Gradients]:
        """`_backward`, with what gradients of rows are made of in place of gradients of
        parameters."""
        raise UnsupportedError(f"{self!r} has no gradients by row: compile the cell with backend='cpu'.")
