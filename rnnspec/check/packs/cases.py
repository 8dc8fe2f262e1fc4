"""The cases of a conformance pack: what each tries, and its arrays.

In: a Spec and a seed. Out: arrays by name, what is given exact in float32, what is expected at
DIGITS digits and rounded to float64.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import reference
from rnnspec.backends.numbers import FLOAT64, Numbers, mpmath_numbers, rounded_at_random
from rnnspec.check.sampling import Case, NoSampleError, Shapes, decided_by, draw, switches
from rnnspec.check.tolerances import PACK, PACK_DRAWS, PACK_MARGIN, PACK_STEADY, ROUNDING
from rnnspec.language.layouts import pack, pack_gradients
from rnnspec.language.spec import Spec
from rnnspec.symbolic.adjoint import adjoint
from rnnspec.symbolic.build import build
from rnnspec.symbolic.graph import Graph

DIGITS = 50
GAINS = (1.0, 1.0, 0.5, 0.25)  # of parameters and states: what grows at one may be steady at the next
ATTEMPTS = 10  # at each of them


@dataclass(frozen=True)
class CasePlan:
    """What a case tries. tags: what an engine must be able to do for it, beyond what the whole pack
    asks for."""

    name: str
    shapes: Shapes
    tags: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()


PLANS = (
    CasePlan("plain", Shapes(5, 3, (3, 4, 2))),
    CasePlan("initial_states", Shapes(4, 2, (2, 5, 3)), ("initial-states",)),
    CasePlan("one_step", Shapes(1, 2, (3, 4, 2)), ("initial-states",)),
    CasePlan("one_unit", Shapes(3, 1, (1,)), ("initial-states",)),
    CasePlan("lengths", Shapes(6, 4, (3, 4, 2)), ("lengths",), (6, 1, 4, 3)),
    CasePlan("empty_row", Shapes(4, 3, (2, 3, 5)), ("initial-states", "lengths", "empty-rows"), (4, 0, 2)),
    # more than the 16 numbers of the widest vectors, in every direction, and no multiple of them
    CasePlan("wide", Shapes(2, 18, (17, 19, 18)), ("initial-states",)),
    CasePlan("long", Shapes(200, 2, (2, 3, 2)), ("initial-states",)),
)


@dataclass(frozen=True)
class CaseMaker:
    """Makes the cases of a cell. graph, reverse: of a step and of its adjoint; checked: graph with
    one more value for each comparison (`sampling.switches`), None where nothing is compared."""

    spec: Spec
    seed: int
    graph: Graph
    reverse: Graph
    checked: Graph | None

    @classmethod
    def of(cls, spec: Spec, seed: int) -> CaseMaker:
        """The maker of a cell's cases."""
        graph = build(spec)
        return cls(spec, seed, graph, adjoint(graph, spec.no_gradient), switches(graph, spec.no_gradient))

    def case(self, plan: CasePlan) -> Case:
        """Arrays of a case, exact in float32, whose comparisons are all decided by more than the
        margin, or are of zeros, and which rounding to float32 leaves where it is. Raises
        NoSampleError."""
        offset = int.from_bytes(hashlib.sha256(plan.name.encode()).digest()[:3], "big")
        reason = ""
        for attempt in range(ATTEMPTS * len(GAINS)):
            try:
                case = self._drawn(plan, self.seed + offset + attempt, GAINS[attempt // ATTEMPTS])
            except NoSampleError as error:
                reason = str(error)
                continue
            reason = self._unfit(case)
            if not reason:
                return case
        raise NoSampleError(f"{reason}, at each of the {ATTEMPTS * len(GAINS)} points that were drawn")

    def _drawn(self, plan: CasePlan, seed: int, gain: float) -> Case:
        case = draw(self.spec, self.graph, plan.shapes, seed, "float32", PACK_MARGIN, gain)
        case = case.map(lambda a: a.astype(np.float64))
        if "initial-states" not in plan.tags:
            case = replace(case, states={n: np.zeros_like(a) for n, a in case.states.items()})
        if not plan.lengths:
            return case
        lengths = np.array(plan.lengths)
        alive = np.arange(case.steps)[:, None] < lengths
        cut = {n: a * alive.reshape(alive.shape + (1,) * (a.ndim - 2)) for n, a in case.d_outputs.items()}
        return replace(case, lengths=lengths, d_outputs=cut)

    def _unfit(self, case: Case) -> str:
        """Why a case would say nothing of an implementation in float32; empty if it would."""
        if self.checked is not None:
            run = _forward(self.checked, case)
            if not all(((gap > PACK_MARGIN) | (gap == 0)).all() for gap in decided_by(run, self.graph, case)):
                return f"a comparison lies within {PACK_MARGIN:g} of where it changes sides"
        with np.errstate(all="ignore"):  # what is not finite is not steady
            return self._unsteady(case)

    def _unsteady(self, case: Case) -> str:
        right = self._expected(case, FLOAT64)
        for seed in range(PACK_DRAWS):
            moved = self._expected(case, rounded_at_random(ROUNDING["float32"], seed))
            for gradient in (False, True):
                names = [n for n in right if n.startswith("gradients/") == gradient]
                scale = max((abs(right[n]).max(initial=0) for n in names), default=0) or 1.0
                off = max((abs(moved[n] - right[n]).max(initial=0) for n in names), default=0)
                if not off <= PACK_STEADY * PACK["float32"][0] * scale:  # NaN is not, either
                    return (
                        f"rounding to float32 moves what is expected by more than {PACK_STEADY:.2g} of what is allowed"
                    )
        return ""

    def _expected(self, case: Case, numbers: Numbers) -> dict[str, Array]:
        """What is expected, in these numbers; gradients of parameters by the cell's own names."""
        run = _forward(self.graph, case, numbers=numbers)
        given = (case.params, case.inputs, run, case.d_outputs, case.d_final, case.lengths)
        back = reference.backward(self.reverse, *given, sizes=case.sizes, numbers=numbers)
        groups: Mapping[str, Mapping[str, Array]] = {
            "outputs": run.outputs,
            "steps": run.states,
            "final": run.final,
            "gradients/params": {n: back.params[n] for n in self.spec.trained},
            "gradients/inputs": back.inputs,
            "gradients/states": back.states,
        }
        return {f"{group}/{n}": a for group, arrays in groups.items() for n, a in arrays.items()}

    def arrays(self, case: Case) -> dict[str, Array]:
        """Everything of a case: "given/params/W" and so on, "expected/outputs/h" and so on."""
        import mpmath

        with mpmath.workdps(DIGITS):
            found = {n: _rounded(a) for n, a in self._expected(case, mpmath_numbers()).items()}
        given: dict[str, Array] = {
            f"{g}/{n}": a for g in ("params", "inputs", "d_outputs", "d_final") for n, a in getattr(case, g).items()
        }
        if any(a.any() for a in case.states.values()):
            given |= {f"states/{n}": a for n, a in case.states.items()}
        if case.lengths is not None:
            given["lengths"] = case.lengths
        sums = {n: found[f"gradients/params/{n}"] for n in self.spec.trained}
        for layout in self.spec.layouts:
            given |= {f"packed/{layout}/{n}": a for n, a in pack(self.spec, layout, case.params).items()}
            found |= {f"gradients/{layout}/{n}": a for n, a in pack_gradients(self.spec, layout, sums).items()}
        return {f"given/{n}": a for n, a in given.items()} | {f"expected/{n}": a for n, a in found.items()}


def _forward(graph: Graph, case: Case, **numbers: Any) -> reference.Trajectory:
    given = (case.params, case.inputs, case.states, case.lengths)
    return reference.forward(graph, *given, sizes=case.sizes, lead=case.lead, **numbers)


def _rounded(array: Any) -> Array:
    """To the nearest float64: each is printed with 17 digits, which are enough to tell it."""
    return np.asarray(np.frompyfunc(float, 1, 1)(np.asarray(array, dtype=object)), dtype=np.float64)
