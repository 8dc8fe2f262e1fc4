"""What is checked: one cell with its graphs and, for one dtype, its kernel; and its runs, by that
kernel and by the reference."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnspec.backends import numbers, reference
from rnnspec.check.kinds import ArrayKind, Values
from rnnspec.check.sampling import Case, Shapes, awkward, draw
from rnnspec.check.tolerances import REFERENCE
from rnnspec.engine.compile import compile
from rnnspec.engine.kernel import Kernel
from rnnspec.language.spec import Spec
from rnnspec.storage.locks import once_only
from rnnspec.symbolic.adjoint import adjoint
from rnnspec.symbolic.build import build
from rnnspec.symbolic.graph import Graph
from rnnspec.symbolic.second import second
from rnnspec.symbolic.tangent import tangent

Origin = tuple[str, Mapping[str, object]]  # the arguments of `load`: a name or path, and settings


@dataclass(frozen=True)
class Subject:
    """A cell under check.

    dtype: "reference" where no kernel is meant, and `kernel` is None then. origin: what `load` was
    given, None for a Spec that was made otherwise.
    """

    spec: Spec
    graph: Graph
    reverse: Graph
    forward_mode: Graph
    dtype: str = REFERENCE
    kernel: Kernel | None = None
    seed: int = 0
    origin: Origin | None = None

    @once_only
    def second_order(self) -> tuple[Graph, Graph]:
        """The step with its directions, and the adjoint with its own."""
        return second(self.graph, self.reverse, self.spec.no_gradient)

    def draw(self, shapes: Shapes, what: str, margin: float = 0.0) -> Case:
        """Arrays for one property, in this subject's dtype; the same for the same seed and
        property."""
        dtype = "float64" if self.dtype == REFERENCE else self.dtype
        return draw(self.spec, self.graph, shapes, self.seed + zlib.crc32(what.encode()), dtype, margin)

    def compiled(self) -> Kernel:
        assert self.kernel is not None, "this property needs a kernel"
        return self.kernel

    def lanes(self) -> int:
        """How many numbers of this dtype a vector register of this machine holds."""
        from rnnspec.backends.cpu.machine import host

        return int(host().lanes[self.dtype])

    def shapes(self) -> tuple[Shapes, ...]:
        return awkward(self.lanes())


def subject(spec: Spec, seed: int = 0, origin: Origin | None = None) -> Subject:
    """The cell with its adjoint and its tangent, for the properties that need no kernel."""
    graph = build(spec)
    return Subject(
        spec, graph, adjoint(graph, spec.no_gradient), tangent(graph, spec.no_gradient), seed=seed, origin=origin
    )


def with_kernel(known: Subject, dtype: str) -> Subject:
    return replace(known, dtype=dtype, kernel=compile(known.spec, dtype=dtype))


def run_kernel(kernel: Kernel, case: Case) -> Values:
    """Outputs, final states and all gradients of a forward and a backward run."""
    run = kernel.forward(case.params, case.inputs, case.states, case.lengths, **case.extent)
    grad = kernel.backward(run, case.d_outputs, final=case.d_final)
    return collect(run, grad)


def run_reference(known: Subject, case: Case, numbers: numbers.Numbers = numbers.FLOAT64) -> Values:
    """Outputs, final states and all gradients by the definition, in float64 or other numbers."""
    shared: dict[str, Any] = {"lengths": case.lengths, "sizes": case.sizes, "numbers": numbers}
    run = reference.forward(known.graph, case.params, case.inputs, case.states, lead=case.lead, **shared)
    grad = reference.backward(known.reverse, case.params, case.inputs, run, case.d_outputs, case.d_final, **shared)
    return of_trained(known.spec, collect(run, grad))


def of_trained(spec: Spec, values: Values) -> Values:
    """The values without the zeros that the reference has for the gradients of parameters that are
    noise or fixed."""
    gradients = values[ArrayKind.PARAM_GRADIENT]
    return {**values, ArrayKind.PARAM_GRADIENT: {n: a for n, a in gradients.items() if n in spec.trained}}


def collect(run: Any, grad: Any) -> Values:
    """The arrays of a run and of its gradients, of a kernel or of the reference."""
    kinds = {
        ArrayKind.OUTPUT: run.outputs,
        ArrayKind.FINAL: {n: run.final[n] for n in grad.states},  # a count of steps is no number of the cell's
        ArrayKind.PARAM_GRADIENT: grad.params,
        ArrayKind.INPUT_GRADIENT: grad.inputs,
        ArrayKind.STATE_GRADIENT: grad.states,
    }
    return {kind: {n: np.asarray(a) for n, a in arrays.items()} for kind, arrays in kinds.items()}
