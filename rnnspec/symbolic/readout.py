"""The outputs of a step as functions of the states after it, and the adjoint of that.

In: the forward Graph of a cell. Out: a Graph without states, in which the states after the step,
and those before it where outputs read them beside, are inputs. So what a loss does to the states
comes apart from what parameters do to the outputs themselves: rules that learn step by step
(rnnspec.engine.online) carry the first on by the influence of parameters on states.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import sympy

from rnnspec.symbolic.adjoint import adjoint, gradient_of
from rnnspec.symbolic.graph import Graph, Node, Pointwise, Read
from rnnspec.symbolic.influence import influenced
from rnnspec.symbolic.simplify import drop_dead, split_sums


def after_step(state: str) -> str:
    """The name of the input that holds a state's value after the step."""
    return f"{state} after the step"


def before_step(state: str) -> str:
    """The name of the input that holds a state's value before the step."""
    return f"{state} before the step"


@dataclass(frozen=True)
class Readout:
    """graph: the adjoint of the outputs: from their gradients those of the states after and before
    the step, as outputs, and of the parameters, as sums. states: those that parameters reach.
    direct: the outputs that are a state after the step, and which."""

    graph: Graph
    states: tuple[str, ...]
    direct: Mapping[str, str]

    @property
    def is_direct(self) -> bool:
        """Whether gradients of outputs are those of states as they are."""
        read = {source.removeprefix(gradient_of("")) for source in self.graph.reads("input")}
        return not self.graph.sums and read <= set(self.direct)


def readout(step: Graph, constants: Collection[str]) -> Readout:
    """The Readout of a step. constants: the parameters that get no gradient."""
    states = influenced(step, constants)[0]
    first: dict[str, str] = {}
    for state in states:
        first.setdefault(step.states[state], state)
    nodes: dict[str, Node] = {}
    for name, node in step.nodes.items():
        if isinstance(node, Read) and node.kind == "state":
            node = Read("input", before_step(node.source))
        nodes[name] = Read("input", after_step(first[name])) if name in first else node
    graph = drop_dead(replace(step, name=f"{step.name} readout", nodes=nodes, states={}))
    moving = {f(state) for f in (after_step, before_step) for state in states}
    still = [source for source in graph.reads("input") if source not in moving]
    found = split_sums(adjoint(graph, (*constants, *still)))
    kept = {s: n for s, n in found.outputs.items() if found.nodes[n] != Pointwise(sympy.S.Zero)}
    sums = {s: group for s, group in found.sums.items() if group}
    found = drop_dead(replace(found, outputs=kept, sums=sums))
    found.verify()
    return Readout(found, states, {o: first[n] for o, n in step.outputs.items() if n in first})
