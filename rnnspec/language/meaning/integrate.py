"""Differential equations -> equations of a step.

In: resolved equations, some of which read d/dt v = f, and what the file says under `integrate`.
Out: ordinary equations, in which each d/dt v has become its slopes, the points at which they are
taken, and v after the step. What is wrong is told in the words of the file, before anything is
expanded. How the steps of a method are written: `steps.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from rnnspec.language.meaning.order import in_order
from rnnspec.language.meaning.scope import Scope
from rnnspec.language.meaning.shapes import infer_shapes
from rnnspec.language.meaning.steps import Flow, StepsError, depending, held, steps
from rnnspec.language.meaning.unroll import NotWholeError, Round, Unrolled, whole
from rnnspec.language.methods import METHODS
from rnnspec.language.reading.document import RESERVED, Document, Entry
from rnnspec.language.spec import Integration, Shape
from rnnspec.language.syntax.faults import Faults, did_you_mean, listed
from rnnspec.language.syntax.tree import Binary, Equation, Expr, Number, Ref, to_text

MAX_SUBSTEPS = 64
SAMPLE = "integrate: {method: rk4, dt: 0.1}"


@dataclass(frozen=True)
class Integrated:
    """The equations of a step, and of what they were made, by name. told: something is wrong with
    them, their cycles are told and nothing was expanded."""

    equations: list[Equation]
    integration: Mapping[str, Integration] = field(default_factory=dict)
    told: bool = False


def with_settings(document: Document, kinds: Mapping[str, str], unrolled: Unrolled) -> Unrolled:
    """The rounds, and one more for each expression under `integrate`, so that its names are
    resolved like those of an equation. An input or intermediate without a time is its value of this
    step: in a mapping of YAML, x[t] needs quotes."""
    rounds = []
    for key, name, entry in _expressions(document):
        value = entry.value
        plain = isinstance(value, Ref) and value.time is value.index is None
        if isinstance(value, Ref) and plain and kinds.get(value.name) in ("input", "intermediate"):
            value = replace(value, time=0)
        target = name or next(iter(_derived(document)), key)
        rounds.append(Round(_setting(key, name), Equation(target, value, to_text(value), entry.at)))
    return replace(unrolled, rounds=(*unrolled.rounds, *rounds))


def _expressions(document: Document) -> list[tuple[str, str, Entry[Expr]]]:
    stated = document.integrate
    return [(k, n, e) for k, given in (("dt", stated.dt), ("start", stated.start)) for n, e in given.items()]


def _setting(key: str, name: str) -> str:
    return f"{key} of {name}"  # no name of a file has a blank


def _derived(document: Document) -> list[str]:
    return [name for name, group in document.equations.items() if group[0].derivative]


def integrated(document: Document, scope: Scope, resolved: Sequence[Equation], faults: Faults) -> Integrated:
    """The equations with every d/dt made into steps, those of `with_settings` left out."""
    equations = [e for e in resolved if " " not in e.target]
    settings = _Settings(document, scope, {e.target: e.value for e in resolved}, faults)
    settings.check(_derived(document))
    flows = [settings.flow(e) for e in equations if e.derivative]
    if not flows:
        return Integrated(equations)
    plain = _each_once(equations, flows)
    infer_shapes(plain, _declared(document), document.states, scope.named("size"), faults)
    in_order(_each_once(equations, flows, before=True), faults)
    if faults.found:
        return Integrated(plain, told=True)
    taken = {*scope.kinds, *RESERVED, *document.broken, *(r.target for r in scope.unrolled.rounds)}
    try:
        made = steps(equations, flows, taken, {e.value for e in document.outputs})
    except StepsError as error:
        faults.add(str(error), error.at)
        return Integrated(plain, told=True)
    return Integrated(made, {flow.name: flow.shown() for flow in flows})


def _declared(document: Document) -> dict[str, Shape]:
    sections = (document.inputs, document.states, document.parameters)
    return {name: e.value for section in sections for name, e in section.items()}


def _each_once(equations: list[Equation], flows: list[Flow], before: bool = False) -> list[Equation]:
    """The equations with one step of Euler's method for each d/dt: their shapes are those of all
    steps, and have the names of the file. before: what is integrated together is read from the step
    before; then their cycles are, too."""
    made = {}
    for flow in flows:
        together = {f.name for f in flows if f.together == flow.together}
        slope, at = flow.equation.value, flow.equation.at
        if before:
            slope = held(slope, together | depending(equations, together))
        change = Binary("*", flow.dt, slope, at) if flow.sized else slope
        made[flow.name] = replace(flow.equation, value=Binary("+", flow.start, change, at), derivative=False)
    return [made.get(e.target, e) for e in equations]


class _Settings:
    """What `integrate` says of each d/dt, and what is wrong with it."""

    def __init__(self, document: Document, scope: Scope, resolved: Mapping[str, Expr], faults: Faults):
        self.document, self.scope, self.resolved, self.faults = document, scope, resolved, faults
        self.stated = document.integrate

    def check(self, derived: list[str]) -> None:
        """Notes settings of names that no d/dt stands before, and a section without any."""
        for key, given in self.stated.settings().items():
            for name, entry in given.items():
                if name and name not in derived:
                    self.faults.add(
                        f"'{name[:40]}' stands under {key} of integrate, and no equation reads d/dt {name[:40]} = ..."
                        f"{did_you_mean(name, derived)} Known here: {listed(derived)}.",
                        entry.at,
                    )
        unread = self.document.problems or self.document.broken
        if not derived and not unread and any(self.stated.settings().values()):
            self.faults.add(
                "there is nothing to integrate: no equation reads d/dt v = ... Write one, or take integrate out.",
                self.document.key("integrate"),
            )

    def given(self, key: str, name: str) -> Entry[object] | None:
        setting = self.stated.settings()[key]
        return setting.get(name) or setting.get("")

    def flow(self, equation: Equation) -> Flow:
        """One differential equation with its settings; what is missing is noted, and taken as
        euler, 1."""
        name = equation.target
        method, dt = self.given("method", name), self.given("dt", name)
        for key, found in (("method", method), ("dt", dt)):
            if found is None and not self.document.problems:
                said = " for it" if self.stated.settings()[key] else ""
                self.faults.add(f"d/dt {name} needs a {key}{said}. Write {SAMPLE}.", equation.at)
        starts = _setting("start", name) in self.resolved
        if not starts and name not in self.document.states:
            self.faults.add(
                f"'{name}' has no value to start from: declare it under states, or say where integration begins:"
                f" integrate: {{..., start: {{{name}: 'h[t-1]'}}}}.",
                equation.at,
            )
        named = _setting("dt", name)
        size = self.resolved.get(named if named in self.resolved else _setting("dt", ""))
        return Flow(
            equation,
            METHODS[str(method.value) if method else "euler"],
            size if size is not None else Number(Fraction(1)),
            self.substeps(name),
            self.resolved[_setting("start", name)] if starts else Ref(name, -1, equation.at),
            sized=size is not None,
        )

    def substeps(self, name: str) -> int:
        entry = self.stated.substeps.get(name) or self.stated.substeps.get("")
        if entry is None:
            return 1
        try:
            number = whole(entry.value, self.scope.constants)
            if not 1 <= number <= MAX_SUBSTEPS:
                raise NotWholeError(f"{number} is not from 1 to {MAX_SUBSTEPS}")
            return number
        except NotWholeError as error:
            self.faults.add(f"substeps of integrate: {error}.", entry.at)
            return 1
