"""The line from a spec to programs, in order. Nothing here imports SymPy before it is asked for
something: who finds a kernel's text on disk (backends/cpu/emit/texts.py) needs no graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from rnnspec.language.load import digest
from rnnspec.language.spec import Spec
from rnnspec.storage.locks import making

if TYPE_CHECKING:
    from rnnspec.lowering.program import Program
    from rnnspec.symbolic.graph import Graph
    from rnnspec.symbolic.influence import Influence
    from rnnspec.symbolic.once import Split
    from rnnspec.symbolic.readout import Readout
    from rnnspec.symbolic.structure import Jacobian


MODES = ("forward", "backward", "infer")
# what a program with directions has them of, and the kinds of reads that have none there: what is
# not varied costs nothing
STILL: Mapping[str, tuple[str, ...]] = {
    "": (),
    "_params": ("input",),
    "_inputs": ("parameter",),
    "_states": ("input", "parameter"),
}
# of the step and its tangent, without a tape
JVP = {f"jvp{of}": still for of, still in STILL.items()}
# of the step and its tangent, with a tape, and of the tangent of the adjoint, which reads it
HVP = {(f"jvp{of}_taped", f"hvp{of}"): still for of, still in STILL.items()}
BY_ROW = "backward_rows"  # the backward program that leaves the sums over a row's steps to its caller
VJP = "vjp"  # of the adjoint for each column of what flows into it; it reads the tape of "forward"
# of the step with all that an update of the influence of parameters on states needs, and of its
# outputs' adjoint by the states after it; what is done with paths from unit to unit (influence.py)
INFLUENCE: Mapping[str, str] = {"influence": "every", "influence_own": "own", "influence_cut": "none"}
READOUT = "readout"
ONLINE = (*INFLUENCE, READOUT)
ALL_MODES = (*MODES, BY_ROW, *JVP, *(mode for pair in HVP for mode in pair), VJP, *ONLINE)


def made_together(mode: str) -> tuple[str, ...]:
    """The modes whose programs are made with that of a mode: those that share a tape."""
    pairs = {mode: pair for pair in HVP for mode in pair}
    return MODES if mode in MODES else pairs.get(mode, (mode,))


@dataclass(frozen=True)
class Stages:
    """Every representation of a cell. forward keeps a tape, infer none; backward reads the tape of
    forward. The programs are those of the step, which reads what `once` computes for a whole
    sequence as if it were parameters."""

    graph: Graph
    adjoint: Graph
    once: Graph
    forward: Program
    backward: Program
    infer: Program


@making
def graphs(spec: Spec) -> tuple[Graph, Graph]:
    """Spec -> Graph, and its adjoint."""
    return _graphs(Keyed(spec, digest(spec)))


@lru_cache(maxsize=16)
def _graphs(keyed: Keyed) -> tuple[Graph, Graph]:
    from rnnspec.symbolic.adjoint import adjoint
    from rnnspec.symbolic.build import build
    from rnnspec.symbolic.simplify import split_sums

    graph = build(keyed.spec)
    return graph, split_sums(adjoint(graph, keyed.spec.no_gradient))


@making
def stages(spec: Spec, *, fused: bool = False) -> Stages:
    """Spec -> Graph -> adjoint -> Programs. fused: for a backend that computes pairs where they are
    summed (pairs.py)."""
    from rnnspec.lowering.schedule import schedule
    from rnnspec.lowering.tape import cut

    graph, reverse = graphs(spec)
    split, back = _step_and_adjoint(spec)
    saved, reading_tape = cut(split.step, back, fused=fused)
    forward = schedule(split.step, saved=saved, fused=fused)
    backward = schedule(reading_tape, tape=forward, fused=fused)
    return Stages(graph, reverse, split.once, forward, backward, schedule(split.step, fused=fused))


@making
def programs(spec: Spec, modes: tuple[str, ...], *, fused: bool = False) -> Mapping[str, Program]:
    """The programs of modes that are made together. fused: as `stages` has it; programs with
    columns have all their matrices in memory."""
    if modes == MODES:
        made = stages(spec, fused=fused)
        return {mode: getattr(made, mode) for mode in modes}
    if modes in HVP:
        return dict(zip(modes, _hvp(spec, HVP[modes]), strict=True))
    if modes == (BY_ROW,):
        return {BY_ROW: _by_row(spec, fused)}
    if modes[0] in ONLINE:
        return {mode: _online(spec, mode) for mode in modes}
    return {mode: _vjp(spec, fused) if mode == VJP else _jvp(spec, mode) for mode in modes}


def _by_row(spec: Spec, fused: bool) -> Program:
    from rnnspec.lowering.by_row import by_row

    return by_row(stages(spec, fused=fused).backward)


def _jvp(spec: Spec, mode: str) -> Program:
    """Spec -> Graph -> tangent -> Program."""
    from rnnspec.lowering.schedule import schedule
    from rnnspec.symbolic.once import split_once
    from rnnspec.symbolic.simplify import split_sums
    from rnnspec.symbolic.tangent import tangent

    split = split_once(graphs(spec)[0])
    return schedule(split_sums(tangent(split.step, _constants(spec, split), JVP[mode])))


def _constants(spec: Spec, split: Split) -> set[str]:
    """What a step reads that has no direction."""
    from rnnspec.symbolic.derive import varying

    return {*spec.no_gradient, *(set(split.once.outputs) - varying(split.once, spec.no_gradient))}


def _hvp(spec: Spec, still: tuple[str, ...]) -> tuple[Program, Program]:
    """Spec -> Graph -> adjoint -> tangents of both -> Programs."""
    from rnnspec.lowering.schedule import schedule
    from rnnspec.lowering.tape import cut
    from rnnspec.symbolic.second import second

    split, back = _step_and_adjoint(spec)
    ahead, reverse = second(split.step, back, _constants(spec, split), still)
    saved, reading_tape = cut(ahead, reverse)
    forward = schedule(ahead, saved=saved)
    return forward, schedule(reading_tape, tape=forward)


def _vjp(spec: Spec, fused: bool) -> Program:
    """Spec -> Graph -> adjoint, for each column -> Program. fused: whether the tape is that of a
    program with pairs."""
    from rnnspec.lowering.schedule import schedule
    from rnnspec.lowering.tape import cut, cut_at
    from rnnspec.symbolic.second import second

    split, back = _step_and_adjoint(spec)
    saved, _ = cut(split.step, back, fused=fused)
    still = ("input", "parameter", "history")
    reverse = second(split.step, back, _constants(spec, split), still, alone=True)[1]
    return schedule(cut_at(split.step, reverse, saved), tape=schedule(split.step, saved=saved, fused=fused))


def _online(spec: Spec, mode: str) -> Program:
    from rnnspec.lowering.schedule import schedule

    return schedule(readout(spec).graph if mode == READOUT else influence(spec, mode).graph)


@making
def influence(spec: Spec, mode: str) -> Influence:
    """The influence of a step's parameters on its states. Raises UnsupportedError where it does not
    stay with single units."""
    return _influence(Keyed(spec, digest(spec)), mode)


@lru_cache(maxsize=16)
def _influence(keyed: Keyed, mode: str) -> Influence:
    from rnnspec.symbolic.influence import influence
    from rnnspec.symbolic.once import split_once

    split = split_once(_graphs(keyed)[0])
    return influence(split.step, _constants(keyed.spec, split), INFLUENCE[mode])


@making
def readout(spec: Spec) -> Readout:
    """The adjoint of a step's outputs by the states after it."""
    return _readout(Keyed(spec, digest(spec)))


@lru_cache(maxsize=16)
def _readout(keyed: Keyed) -> Readout:
    from rnnspec.symbolic.once import split_once
    from rnnspec.symbolic.readout import readout

    split = split_once(_graphs(keyed)[0])
    return readout(split.step, _constants(keyed.spec, split))


def _step_and_adjoint(spec: Spec) -> tuple[Split, Graph]:
    """The step, what is computed once per sequence apart, and its adjoint."""
    from rnnspec.symbolic.adjoint import adjoint
    from rnnspec.symbolic.once import split_once
    from rnnspec.symbolic.simplify import split_sums

    graph, reverse = graphs(spec)
    split = split_once(graph)
    return split, split_sums(adjoint(split.step, spec.no_gradient)) if split.once.outputs else reverse


@making
def jacobian(spec: Spec) -> Jacobian:
    """The structure of the Jacobian of a step."""
    from rnnspec.symbolic.structure import structure

    return structure(graphs(spec)[0])


@lru_cache(maxsize=256)
def _once_tangent(keyed: Keyed) -> Graph:
    from rnnspec.symbolic.tangent import tangent

    return tangent(_once(keyed)[0], keyed.spec.no_gradient)


@making
def once_tangent(spec: Spec) -> Graph:
    """The tangent of what is computed once per sequence."""
    return _once_tangent(Keyed(spec, digest(spec)))


@lru_cache(maxsize=256)
def _once_second(keyed: Keyed) -> Graph:
    from rnnspec.symbolic.second import second

    return second(*_once(keyed), keyed.spec.no_gradient)[1]


@making
def once_second(spec: Spec) -> Graph:
    """The tangent of the adjoint of what is computed once per sequence."""
    return _once_second(Keyed(spec, digest(spec)))


@lru_cache(maxsize=256)
def _once(keyed: Keyed) -> tuple[Graph, Graph]:
    from rnnspec.symbolic.adjoint import adjoint
    from rnnspec.symbolic.build import build
    from rnnspec.symbolic.once import split_once

    graph = split_once(build(keyed.spec)).once
    return graph, adjoint(graph, keyed.spec.no_gradient)


@making
def once(spec: Spec) -> tuple[Graph, Graph]:
    """What is computed once per sequence, and its adjoint."""
    return _once(Keyed(spec, digest(spec)))


@dataclass(frozen=True)
class Keyed:
    """A spec that hashes by its digest."""

    spec: Spec
    digest: str

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and self.digest == other.digest
