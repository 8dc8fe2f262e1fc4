"""What a step in C has for learning: the forward step writes its tape, and the step of the adjoint
adds to the gradients of parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rnnspec.backends.c.text import CText
from rnnspec.language.slices import Piece
from rnnspec.lowering.program import Program, Stage

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Learning:
    """What a step needs to learn. tape: buffer of the forward program -> the identifier of its
    numbers in the tape of a step; shapes: of whole parameters; gradients: parameter -> the
    identifier of its gradient."""

    tape: Mapping[str, str]
    shapes: Shapes
    gradients: Mapping[str, str]


@dataclass(frozen=True)
class Spread:
    """Where the numbers of a parameter, or of a piece of one, lie in that parameter's array: from
    `first` on, `strides` apart along each axis of `shape`."""

    parameter: str
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def index(self, *names: str) -> str:
        """The text of the index of an element."""
        terms = [n if s == 1 else f"{n} * {s}" for n, s in zip(names, self.strides, strict=True)]
        return " + ".join([str(self.first)] * bool(self.first) + terms) or "0"


def spread(name: str, pieces: Mapping[str, Piece], shapes: Shapes, sizes: Mapping[str, int]) -> Spread:
    """shapes: of whole parameters."""
    piece = pieces.get(name)
    parameter = piece.parameter if piece else name
    places = np.arange(int(np.prod(shapes[parameter], dtype=np.int64))).reshape(shapes[parameter])
    view = piece.of(places, sizes) if piece else places
    first = int(view.flat[0]) if view.size else 0
    return Spread(parameter, first, view.shape, tuple(s // places.itemsize for s in view.strides))


def saved_values(program: Program) -> dict[str, str]:
    """The values of each step that are kept for the adjoint, beside the states: value -> buffer."""
    buffers = program.buffers
    return {
        value: place.buffer
        for value, place in program.places.items()
        if buffers[place.buffer].saved and buffers[place.buffer].kind == "rows"
    }


def before(text: CText) -> None:
    """The states before a step, to the tape."""
    if text.tape and not text.program.reverse:
        text.line("t->step = s->t;")
        for state in text.program.states:
            count = text.number(state.size)
            source = f"s->state.{text.member('state', state.name)}"
            _copy(text, f"t->{text.tape[state.buffer]}", source, count)


def after(text: CText) -> None:
    """What a step computed, to the tape: states after it stand where the next step has those before
    it."""
    if text.tape and not text.program.reverse:
        for value, buffer in saved_values(text.program).items():
            _copy(text, f"t->{text.tape[buffer]}", text.array(value), text.count(value))
        for state in text.program.states:
            value = text.graph.states[state.name]
            _copy(text, f"t[1].{text.tape[state.buffer]}", text.array(value), text.number(state.size))


def _copy(text: CText, target: str, source: str, count: int) -> None:
    if count:
        text.line(f"memcpy({target}, {source}, {count} * sizeof(real));")


def sums(text: CText, stage: Stage, learning: Learning) -> None:
    """Gradients that a stage's values are summed in."""
    for parameter, value in stage.sums:
        place = spread(parameter, text.graph.pieces, learning.shapes, text.sizes)
        text.line(f"/* d {parameter} += {value} */")
        _add(text, learning, place, text.element(value, _flat(place)))


def outers(text: CText, learning: Learning) -> None:
    """Gradients of matrices: sums of outer products."""
    for outer in text.program.outers:
        place = spread(outer.parameter, text.graph.pieces, learning.shapes, text.sizes)
        left, right = text.element(outer.left, "i"), text.element(outer.right, "j")
        zero = {None: "", "left": left, "right": right}[text.program.kept(outer)]
        text.line(f"/* d {outer.parameter} += {outer.left} {outer.right}^T */")
        _add(text, learning, place, f"{left} * {right}", zero)


def _flat(place: Spread) -> str:
    match place.shape:
        case ():
            return "0"
        case (_,):
            return "i"
        case (_, width):
            return f"i * {width} + j"
    raise TypeError(f"{place.parameter} has {len(place.shape)} axes")


def _add(text: CText, learning: Learning, place: Spread, value: str, zero: str = "") -> None:
    """A sum over the elements of a gradient. zero: a factor that leaves the other out where it is
    0."""
    axes = "ij"[: len(place.shape)]
    with _loops(text, list(zip(axes, place.shape, strict=True))):
        if zero:
            text.line(f"if ({zero} != 0)")
        target = f"gradients->{learning.gradients[place.parameter]}[{place.index(*axes)}]"
        text.line(f"{'    ' * bool(zero)}{target} += {value};")


@contextlib.contextmanager
def _loops(text: CText, axes: list[tuple[str, int]]) -> Iterator[None]:
    """Loops around what is written in here, one within the other."""
    for index, size in axes:
        text.line(f"for (int {index} = 0; {index} < {size}; {index}++) {{")
        text.indent += 1
    yield
    for _ in axes:
        text.indent -= 1
        text.line("}")
