"""What is checked: one cell with its graphs and, for one dtype, its kernel. And running it, by
kernel and by reference."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import reference
from rnnspec.check.sampling import Case, Shapes, awkward, draw
from rnnspec.check.tolerances import REFERENCE
from rnnspec.engine.compile import compile
from rnnspec.engine.kernel import Kernel
from rnnspec.language.spec import Spec
from rnnspec.symbolic.adjoint import adjoint
from rnnspec.symbolic.build import build
from rnnspec.symbolic.graph import Graph
from rnnspec.symbolic.tangent import tangent

Values = dict[str, Array]  # "output h", "final h", "gradient of W", ...: the arrays of a run


@dataclass(frozen=True)
class Subject:
    """A cell under check. dtype: "reference" where no kernel is meant, and `kernel` is None
    then."""

    spec: Spec
    graph: Graph
    reverse: Graph
    forward_mode: Graph
    dtype: str = REFERENCE
    kernel: Kernel | None = None
    seed: int = 0
    origin: str = ""  # what `load` was given, as Python text; empty for a Spec that was made otherwise

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


def subject(spec: Spec, seed: int = 0, origin: str = "") -> Subject:
    """The cell with its adjoint and its tangent, for the properties that need no kernel."""
    graph = build(spec)
    return Subject(
        spec, graph, adjoint(graph, spec.no_gradient), tangent(graph, spec.no_gradient), seed=seed, origin=origin
    )


def with_kernel(known: Subject, dtype: str) -> Subject:
    return replace(known, dtype=dtype, kernel=compile(known.spec, dtype=dtype))


# --- runs
# ------------------------------------------------------------------------------------------------------------


def run_kernel(kernel: Kernel, case: Case) -> Values:
    """Outputs, final states and all gradients of a forward and a backward run."""
    run = kernel.forward(case.params, case.inputs, case.states, case.lengths)
    grad = kernel.backward(run, case.d_outputs, final=case.d_final)
    return collect(run, grad)


def run_reference(known: Subject, case: Case, numbers: reference.Numbers = reference.FLOAT64) -> Values:
    """The same by the definition, in float64 or other numbers."""
    run = reference.forward(
        known.graph, case.params, case.inputs, case.states, case.lengths, sizes=case.sizes, numbers=numbers
    )
    grad = reference.backward(
        known.reverse,
        case.params,
        case.inputs,
        run,
        case.d_outputs,
        case.d_final,
        case.lengths,
        sizes=case.sizes,
        numbers=numbers,
    )
    return without_noise(known.spec, collect(run, grad))


def without_noise(spec: Spec, values: Values) -> Values:
    """Without the zeros that the reference has for the gradients of parameters that are noise."""
    return {n: a for n, a in values.items() if n.removeprefix("gradient of ") not in spec.noise}


def collect(run: Any, grad: Any) -> Values:
    values = {"output": run.outputs, "final": run.final}
    groups = values | {"gradient of": grad.params, "gradient of input": grad.inputs, "gradient of initial": grad.states}
    return {f"{group} {name}": np.asarray(array) for group, arrays in groups.items() for name, array in arrays.items()}


# --- comparisons
# -----------------------------------------------------------------------------------------------------


def worst(
    found: Mapping[str, Array], expected: Mapping[str, Array], at_least: Mapping[str, float] = {}
) -> tuple[float, str]:
    """The largest difference of any array, and which array that is ("all arrays" if none differs).

    Values are measured by the largest value expected of any array, gradients by the largest
    gradient: one that cancels to nearly nothing carries the rounding errors of those that do not;
    an array that stands in `at_least` by no less than what stands there. Infinite where the names
    or shapes differ, or a NaN or infinity stands where none is expected (or the other way round):
    the name says what stands where then.
    """
    if set(found) != set(expected):
        return float("inf"), f"these are not in both: {', '.join(sorted(set(found) ^ set(expected)))}"
    scales = largest_values(expected)
    errors = {n: difference(found[n], expected[n], max(scales[kind_of(n)], at_least.get(n, 0.0))) for n in expected}
    name = max(errors, key=lambda n: errors[n], default="")
    if not (name and errors[name]):
        return 0.0, "all arrays"
    return errors[name], name if np.isfinite(errors[name]) else f"{name}{_odd_one(found[name], expected[name])}"


def _odd_one(found: Array, expected: Array) -> str:
    """What differs beyond all measure, in words."""
    if found.shape != expected.shape:
        return f" has shape {found.shape}, expected {expected.shape}"
    same = np.isfinite(found) & np.isfinite(expected) | (found == expected) | np.isnan(found) & np.isnan(expected)
    if same.all():
        same = found == expected
    where = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{list(where) if where else ''} is {found[where]:.9g}, expected {expected[where]:.9g}"


def largest_values(expected: Mapping[str, Array]) -> dict[str, float]:
    """The largest number of each kind of array."""
    return {
        kind: max((_size(a) for n, a in expected.items() if kind_of(n) == kind), default=0.0)
        for kind in map(kind_of, expected)
    }


def kind_of(name: str) -> str:
    return "gradient" if name.startswith("gradient") else "value"


def _size(array: Array) -> float:
    finite = array[np.isfinite(array)]
    return float(np.abs(finite).max()) if finite.size else 0.0


def difference(found: Array, expected: Array, scale: float) -> float:
    """The largest difference, relative to `scale`; 0 if nothing differs."""
    if found.shape != expected.shape or not np.array_equal(np.isnan(found), np.isnan(expected)):
        return float("inf")
    good, infinite = np.isfinite(expected), np.isinf(expected)
    if not np.array_equal(found[infinite], expected[infinite]):
        return float("inf")
    gap = (
        _size(found[good].astype(np.float64) - expected[good].astype(np.float64))
        if np.isfinite(found[good]).all()
        else float("inf")
    )
    if not gap:
        return 0.0
    return gap / scale if scale else float("inf")
