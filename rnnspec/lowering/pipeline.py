"""The line from a spec to programs, in order. Nothing here imports SymPy before it is asked for
something: who finds a kernel's text on disk (backends/cpu/emit/texts.py) needs no graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from rnnspec.language.load import digest
from rnnspec.language.spec import Spec
from rnnspec.storage.locks import making

if TYPE_CHECKING:
    from rnnspec.lowering.program import Program
    from rnnspec.symbolic.graph import Graph


MODES = ("forward", "backward", "infer")


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
def stages(spec: Spec) -> Stages:
    """Spec -> Graph -> adjoint -> Programs."""
    from rnnspec.lowering.schedule import schedule
    from rnnspec.lowering.tape import cut
    from rnnspec.symbolic.adjoint import adjoint
    from rnnspec.symbolic.once import split_once
    from rnnspec.symbolic.simplify import split_sums

    graph, reverse = graphs(spec)
    split = split_once(graph)
    back = split_sums(adjoint(split.step, spec.no_gradient)) if split.once.outputs else reverse
    saved, reading_tape = cut(split.step, back)
    forward = schedule(split.step, saved=saved)
    return Stages(graph, reverse, split.once, forward, schedule(reading_tape, tape=forward), schedule(split.step))


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
