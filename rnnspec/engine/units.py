"""The influence of parameters on states where it stays with single units
(rnnspec/symbolic/influence.py): one number for each parameter's element and each state of its unit.

In: what the step's kernel gives beside its outputs, the diagonals of Jacobians J and the slopes and
operands of which the parameters' own part M is made. Out: gradients. Steps are gathered, and the
influence is brought up to date once for all of them: over n steps it goes from P to

    J_n ... J_1 P + sum over k of J_n ... J_{k+1} M_k,

whose sum is a product of matrices, for every M is an outer product. A gradient before that is one
through the steps gathered, back to the influence before them. Both are exact. (The recursion over
blocks of steps is Schmidhuber's, 1992, "A fixed size storage O(n^3) time complexity learning
algorithm for fully recurrent continually running networks".)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.call import Named
from rnnspec.engine.frozen import Sizes
from rnnspec.language.spec import Shape

if TYPE_CHECKING:
    from rnnspec.symbolic.influence import Influence, Term

GATHERED = 32  # steps; so often the influence is read and written once


@dataclass(frozen=True)
class Extras:
    """What a step's kernel gives beside its outputs, and what it gave in the steps gathered.

    now: name -> [B, width], views of one array, for the kernel to write to; past: name ->
    [GATHERED, B, width]. flat, ring: all of them. rows: B.
    """

    now: Named
    past: Named
    flat: Array
    ring: Array
    rows: int

    @classmethod
    def of(cls, widths: Mapping[str, int], rows: int, dtype: np.dtype) -> Extras:
        """widths: of each."""
        ends = np.cumsum([0, *(rows * w for w in widths.values())])
        flat, ring = np.zeros(ends[-1], dtype), np.zeros((GATHERED, ends[-1]), dtype)
        parts = list(zip(widths.items(), ends[:-1], ends[1:]))
        now = {name: flat[a:b].reshape(rows, w) for (name, w), a, b in parts}
        past = {name: ring[:, a:b].reshape(GATHERED, rows, w) for (name, w), a, b in parts}
        return cls(now, past, flat, ring, rows)

    def gather(self, place: int) -> None:
        """Keeps what there is now."""
        self.ring[place] = self.flat


@dataclass(frozen=True)
class Group:
    """Terms of parameters that multiply the same operand, and what they do to the states of their
    units. influence: [B, terms, H, states, D], D being 1 where parameters are read element by
    element. slopes: for each term, the output for each state, "" where it is 0."""

    terms: tuple[Term, ...]
    operand: str
    slopes: tuple[tuple[str, ...], ...]
    influence: Array


@dataclass
class Layer:
    """Some states, of one shape, and the parameters of which the influence on these is kept.
    jacobians: of the steps
    gathered, [GATHERED, B, states, states, H]."""

    states: tuple[str, ...]
    jacobians: Array
    groups: list[Group] = field(default_factory=list)


class Units:
    """The influence of all parameters on the states of some rows. reach: within how many steps a
    state has to be reached for the influence on it to be kept, 0: at any time. shapes: of states;
    extras: what the step's kernel gives."""

    def __init__(self, found: Influence, reach: int, shapes: Mapping[str, Shape], extras: Extras, sizes: Sizes):
        self.found, self.extras, self.shapes, self.sizes = found, extras, shapes, sizes
        self.rows, self.dtype = extras.rows, extras.flat.dtype
        self.gathered = 0
        self.diagonals: Named = {}
        kept = {term: self._reached(term, reach) for term in found.terms if term.slopes}
        self.layers = [
            self._layer(states, [t for t in kept if kept[t] == states]) for states in dict.fromkeys(kept.values())
        ]

    def _reached(self, term: Term, steps: int) -> tuple[str, ...]:
        """The states that a term reaches within so many steps; 0: at any time."""
        states = set(term.slopes)
        for _ in range(steps - 1 if steps else len(self.found.states)):
            states |= {after for after in self.found.states if not states.isdisjoint(self._read(after))}
        return tuple(s for s in self.found.states if s in states)

    def _read(self, after: str) -> set[str]:
        """The states before a step that a state after it depends on."""
        loops = [own.operands for own in self.found.own if after in own.slopes]
        return set(self.found.jacobian[after]).union(*loops)

    def _layer(self, states: tuple[str, ...], own: Sequence[Term]) -> Layer:
        width, count = int(np.prod(self.sizes.full(self.shapes[states[0]]), dtype=np.int64)), len(states)
        layer = Layer(states, np.zeros((GATHERED, self.rows, count, count, width), self.dtype))
        for operand in dict.fromkeys(t.operand for t in own):
            terms = tuple(t for t in own if t.operand == operand)
            slopes = tuple(tuple(t.slopes.get(s, "") for s in states) for t in terms)
            inner = self.extras.now[operand].shape[1] if operand else 1
            influence = np.zeros((self.rows, len(terms), width, count, inner), self.dtype)
            layer.groups.append(Group(terms, operand, slopes, influence))
        return layer

    # --- steps

    def use(self, values: Mapping[str, Array]) -> None:
        """Takes the weights of units to themselves from matrices by name."""
        self.diagonals = {own.matrix: values[own.matrix].diagonal().copy() for own in self.found.own}

    def step(self) -> None:
        """Takes in the step that the kernel has made. The last one is always among those gathered,
        for gradients of the states before it."""
        if self.gathered == GATHERED:
            self.settle()
        now = self.extras.now
        for layer in self.layers:
            place = layer.jacobians[self.gathered]
            for a, after in enumerate(layer.states):
                row = self.found.jacobian[after]
                for b, before in enumerate(layer.states):
                    if before in row:
                        place[:, a, b] = now[row[before]]
                    for own in self.found.own:
                        if after in own.slopes and before in own.operands:
                            along = now[own.operands[before]] * self.diagonals[own.matrix]
                            place[:, a, b] += now[own.slopes[after]] * along
        self.extras.gather(self.gathered)
        self.gathered += 1

    def settle(self) -> None:
        """Brings the influence up to date."""
        for layer in self.layers:
            through = self._through(layer)
            for group in layer.groups:
                _settle(group, through, self._slopes(group), self._operand(group))
            if self.found.own:  # to which is added
                layer.jacobians[...] = 0
        self.gathered = 0

    def _through(self, layer: Layer) -> Array:
        """The Jacobians from each of the steps gathered to the last, and from before the first:
        [1 + steps, B, states, states, H]."""
        count = len(layer.states)
        found = np.zeros((self.gathered + 1, *layer.jacobians.shape[1:]), self.dtype)
        found[-1, :, range(count), range(count)] = 1
        for k in range(self.gathered - 1, -1, -1):
            found[k] = (found[k + 1][:, :, :, None] * layer.jacobians[k][:, None]).sum(2)
        return found

    def _slopes(self, group: Group) -> Array:
        """[steps, B, terms, states, H]"""
        past, steps = self.extras.past, self.gathered
        some = next(past[s] for names in group.slopes for s in names if s)[:steps]
        zero = np.zeros_like(some)
        return np.stack([np.stack([past[s][:steps] if s else zero for s in names], 2) for names in group.slopes], 2)

    def _operand(self, group: Group) -> Array:
        """[steps, B, D]"""
        if not group.operand:
            return np.ones((self.gathered, self.rows, 1), self.dtype)
        return self.extras.past[group.operand][: self.gathered]

    # --- gradients

    def gradients(self, after: Mapping[str, Array], before: Mapping[str, Array]) -> list[tuple[str, Array]]:
        """The gradient of each Term's parameter, summed over rows. after, before: the gradients of
        states after the last step and before it, [B, H]; zero where left out."""
        found = []
        for layer in self.layers:
            flow = self._back(layer, after, before)
            for group in layer.groups:
                found += self._of_group(group, flow)
        return found

    def _back(self, layer: Layer, after: Mapping[str, Array], before: Mapping[str, Array]) -> Array:
        """The gradients of states after each of the steps gathered, and before the first, [1 +
        steps, B, states, H]: as of the gradient through them."""
        shape = layer.jacobians.shape
        flow = np.zeros((self.gathered + 1, shape[1], shape[2], shape[4]), self.dtype)
        for number, state in enumerate(layer.states):
            if state in after:
                flow[-1, :, number] = after[state].reshape(shape[1], shape[4])
        for k in range(self.gathered - 1, -1, -1):
            flow[k] = (flow[k + 1][:, :, None] * layer.jacobians[k]).sum(1)
            if k == self.gathered - 1:
                for number, state in enumerate(layer.states):
                    if state in before:
                        flow[k, :, number] += before[state].reshape(shape[1], shape[4])
        return flow

    def _of_group(self, group: Group, flow: Array) -> list[tuple[str, Array]]:
        terms, width, inner = len(group.terms), flow.shape[3], group.influence.shape[-1]
        own = (flow[1:, :, None] * self._slopes(group)).sum(3).reshape(-1, terms * width)
        made = (own.T @ self._operand(group).reshape(-1, inner)).reshape(terms, width, inner)
        first = np.moveaxis(flow[0], 1, 2)[:, None, :, None]  # [B, 1, H, 1, states]
        for row in range(self.rows):
            made += _product(first[row], group.influence[row])[:, :, 0]
        return [(t.parameter, self._shaped(t, a)) for t, a in zip(group.terms, made)]

    def _shaped(self, term: Term, array: Array) -> Array:
        """A gradient in the shape that the step reads its parameter in."""
        graph = self.found.graph
        axes = len(graph.shapes[graph.reads("parameter")[term.parameter]])
        if axes == 2:
            return array.T if term.transposed else array
        return array[:, 0] if axes else np.asarray(array.sum(), array.dtype)

    # --- rows

    def reset(self, rows: Array | slice) -> None:
        """Some rows start again: nothing has an influence on them."""
        for extra in self.extras.past.values():
            extra[:, rows] = 0
        for layer in self.layers:
            layer.jacobians[:, rows] = 0
            for group in layer.groups:
                group.influence[rows] = 0


def _settle(group: Group, through: Array, slopes: Array, operand: Array) -> None:
    """P of a group after the steps gathered. through: [1 + steps, B, states, states, H]; slopes:
    [steps, B, terms, states, H]; operand: [steps, B, D]."""
    steps, rows, terms, states, width = slopes.shape
    along = (through[1:, :, None] * slopes[:, :, :, None]).sum(4)  # [steps, B, terms, states, H]
    along = along.transpose(1, 2, 4, 3, 0).reshape(rows, terms * width * states, steps)
    whole = np.moveaxis(through[0], 3, 1)[:, None]  # [B, 1, H, states, states]
    for row in range(rows):
        influence = group.influence[row]
        moved = _product(whole[row], influence)
        np.matmul(along[row], operand[:, row], out=influence.reshape(terms * width * states, -1))
        influence += moved


def _product(left: Array, right: Array) -> Array:
    """left @ right, for small matrices; where these are single numbers a product of numbers."""
    if left.shape[-1] == 1:
        return left * right
    if right.shape[-1] == 1:
        return (left * np.swapaxes(right, -1, -2)).sum(-1, keepdims=True)
    return left @ right
