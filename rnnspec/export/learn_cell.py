"""What a cell that learns in C is made of: its parameters, and the steps forward and backward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.brief import brief_repr
from rnnspec.backends.c.learn import Learning
from rnnspec.backends.c.step import Step, step
from rnnspec.backends.c.words import KEYWORDS, MACROS
from rnnspec.errors import UnsupportedError
from rnnspec.language.sizes import evaluate_size, full_shape
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.tree import fresh
from rnnspec.lowering.pipeline import graphs
from rnnspec.lowering.program import Program
from rnnspec.lowering.schedule import schedule
from rnnspec.lowering.tape import cut


@dataclass(frozen=True, repr=False)
class LearningCell:
    """A cell that learns. params: name -> numbers, [...]; members: parameter -> the identifier of
    its numbers and of their gradient; tape: buffer -> identifier and numbers,
    of one step; forward, backward: the steps."""

    name: str
    spec: Spec
    params: Mapping[str, Array]
    sizes: Mapping[str, int]
    dtype: str
    members: Mapping[str, str]
    tape: Mapping[str, tuple[str, int]]
    programs: tuple[Program, Program]
    forward: Step
    backward: Step

    __repr__ = brief_repr


def learning_cell(
    spec: Spec, params: Mapping[str, Array], sizes: Mapping[str, int], dtype: str, name: str
) -> LearningCell:
    """See `rnnspec.export.learner`."""
    if spec.noise:
        raise UnsupportedError(
            f"{spec.name} has noise ({', '.join(spec.noise)}), which a cell that learns would have to draw, and C draws"
            " none: set it to 0 by a choice or constant of the cell if it has one, or learn with rnnspec."
        )
    for size, value in sizes.items():
        if value < 1:
            raise ValueError(f"size {size} is {value}: C has no arrays without elements. Give at least 1.")
    graph, adjoint = graphs(spec)
    saved, reading = cut(graph, adjoint)
    forward = schedule(graph, saved=saved)
    backward = schedule(reading, tape=forward)
    shapes = {p: full_shape(spec.shapes[p], sizes) for p in spec.parameters}
    kept = {n: np.asarray(params[n], dtype) for n in spec.parameters}
    tape = _tape(forward, sizes)
    members = _members(kept)
    learning = Learning({b: identifier for b, (identifier, _) in tape.items()}, shapes, members)
    ahead, back = (step(program, dtype, sizes, (), learning) for program in (forward, backward))
    return LearningCell(name, spec, kept, dict(sizes), dtype, members, tape, (forward, backward), ahead, back)


def _members(params: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in params:
        found[name] = fresh(name, {*found.values(), *KEYWORDS, *MACROS})
    return found


def _tape(forward: Program, sizes: Mapping[str, int]) -> dict[str, tuple[str, int]]:
    """buffer -> the identifier of its numbers in the tape of a step, and how many there are."""
    found: dict[str, tuple[str, int]] = {}
    for buffer in forward.buffers.values():
        if buffer.saved:
            taken = {identifier for identifier, _ in found.values()} | KEYWORDS | MACROS | {"step"}
            spelled = "".join(c if c.isalnum() or c == "_" else "_" for c in buffer.name)
            found[buffer.name] = fresh(spelled, taken), evaluate_size(buffer.size, sizes)
    return found
