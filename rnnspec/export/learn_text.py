"""The texts of a cell that learns in C: a file of C99, and its header."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rnnspec.backends.c.learn import Spread, spread
from rnnspec.backends.c.numbers import REALS
from rnnspec.backends.c.preamble import preamble
from rnnspec.backends.c.step import Step
from rnnspec.backends.c.text import PackedPanel
from rnnspec.export.learn_cell import LearningCell
from rnnspec.export.text import MARK, array_lines, cell_struct, plain, struct
from rnnspec.language.load import digest
from rnnspec.language.syntax.tree import to_text
from rnnspec.symbolic.adjoint import gradient_of

GRADIENT = gradient_of("")
PACK = """\
/* Adds numbers of a parameter to where a panel's loop reads them: block of units after block, in
   each a row for the starts and one for every element of the operands. */
static void pack(real *panel, int block, int rows, int count, int row, int n, const real *from, int units, int inner,
                 int next_unit, int next)
{
    for (int i = 0; i < units; i++)
        for (int k = 0; k < inner; k++)
            panel[((i / block * rows + row + k) * count + n) * block + i % block] += from[i * next_unit + k * next];
}
"""


class LearnerText:
    """The texts of a cell that learns."""

    def __init__(self, cell: LearningCell):
        self.made, self.name, self.real = cell, cell.name, REALS[cell.dtype]
        forward, backward = cell.forward, cell.backward
        self.inputs = {plain(n): count for n, (_, count) in forward.inputs.items()}
        self.outputs = {plain(n): count for n, (_, count) in forward.outputs.items()}
        self.upstream = {n: count for n, (_, count) in backward.inputs.items() if n.startswith(GRADIENT)}
        self.back = {n: count for n, (_, count) in backward.outputs.items()}

    def about(self) -> Iterator[str]:
        spec = self.made.spec
        sizes = ", ".join(f"{n} = {v}" for n, v in self.made.sizes.items())
        yield f"{spec.name}, {sizes}, from spec {digest(spec)[:16]}, forward and backward:"
        yield from (f"    {e.target} = {to_text(e.value)}" for e in spec.equations)

    # --- the header

    def header(self) -> Iterator[str]:
        name, word, made = self.name, self.real.word, self.made
        guard = f"{name.upper()}_INCLUDED"
        yield from (f"/* {next(self.about()).rstrip(':')}. {MARK} */", f"#ifndef {guard}", f"#define {guard}", "")
        yield from ("#include <stddef.h>", "", "#ifdef __cplusplus", 'extern "C" {', "#endif", "")
        yield "/* Parameters in the rows of the equations; gradients of them have the same struct. */"
        numbers = {made.members[n]: a.size for n, a in made.params.items() if a.size}
        yield from struct(f"{name}_params", [f"{word} {n}[{c}]" for n, c in numbers.items()] or [f"{word} none[1]"])
        yield f"#define {name.upper()}_NUMBERS {sum(numbers.values())} /* of them */"
        yield f"extern const {name}_params {name}_initial;"
        yield from (
            "",
            "/* What one step leaves for its backward step; a sequence needs one more than it has steps. */",
        )
        members = [f"{word} {identifier}[{count}]" for identifier, count in made.tape.values() if count]
        yield from struct(f"{name}_tape", ["unsigned long step", *members])
        yield f"#define {name.upper()}_TAPE(steps) ((steps) + 1)"
        yield from ("", "/* States and scratch, and of the backward step the gradients of states. */")
        for kind, one in (("forward", made.forward), ("backward", made.backward)):
            yield from cell_struct(f"{name}_{kind}_cell", one)
            packed = [f"{word} {n}[{c}]" for n, c in _packed(one).items()] or [f"{word} none[1]"]
            yield from struct(f"{name}_{kind}_weights", packed)
        kinds = ("forward", "backward")
        cells = [f"{name}_{k}_cell {k}" for k in kinds] + [f"{name}_{k}_weights {k}_weights" for k in kinds]
        yield from struct(name, cells)
        yield from ("", *self._functions(), "", "#ifdef __cplusplus", "}", "#endif", "", "#endif")

    def _functions(self) -> Iterator[str]:
        name = self.name
        yield "/* Begins, with these parameters and states that are zero. */"
        yield f"void {name}_init({name} *s, const {name}_params *params);"
        yield "/* Takes parameters that have changed; states stay. */"
        yield f"void {name}_use({name} *s, const {name}_params *params);"
        yield "/* States as they are before the first step. */"
        yield f"void {name}_reset({name} *s);"
        yield "/* Steps on from the states that there are. Arrays have those of a step, step after step:"
        yield f"   reads {_told(self.inputs)}, writes {_told(self.outputs)} and the tape. */"
        yield f"void {self.signature('forward')};"
        yield "/* The same steps backwards, with the parameters that forward had: reads the tape and the gradients of"
        yield "   outputs, adds to those of parameters, and writes those of inputs where it is not given NULL."
        yield "   s->backward.state then has those of the states before the first of the steps. */"
        yield f"void {self.signature('backward')};"

    def signature(self, kind: str) -> str:
        name, word = self.name, self.real.word
        if kind == "forward":
            given = [f"const {word} *{n}" for n in self.inputs] + [f"{name}_tape *tape"]
            given += [f"{word} *{n}_out" for n in self.outputs]
        else:
            given = [f"const {name}_tape *tape", *(f"const {word} *{_upstream(n)}" for n in self.upstream)]
            given += [f"{name}_params *gradients", *(f"{word} *{_downstream(n)}" for n in self.back)]
        return f"{name}_{kind}({name} *s, size_t steps, {', '.join(given)})"

    # --- the source

    def source(self) -> Iterator[str]:
        name, made = self.name, self.made
        lines = [f"   {line}".replace("*/", "* /") for line in self.about()]
        yield from (f"/* {MARK}", "", *lines, "*/", f'#include "{name}.h"', "")
        wide = any(panel.wide for _, one in self._steps() for panel in one.panels)
        yield from preamble(self.real, made.forward.functions | made.backward.functions, wide)
        yield from ("", f"const {name}_params {name}_initial = {{")
        arrays = {made.members[n]: a for n, a in made.params.items() if a.size} or {"none": np.zeros(1)}
        for identifier, array in arrays.items():
            yield from array_lines(self.real, identifier, array)
        yield from ("};", "")
        yield from (*self._step("forward", made.forward), "", *self._step("backward", made.backward), "")
        if any(panel.numbers for _, one in self._steps() for panel in one.panels):
            yield PACK
        yield from self._use()
        yield from (f"void {name}_reset({name} *s)", "{", "    s->forward.t = 0;")
        if made.forward.states:
            yield "    memset(&s->forward.state, 0, sizeof(s->forward.state));"
        yield from ("}", "", f"void {name}_init({name} *s, const {name}_params *params)", "{")
        yield from ("    memset(s, 0, sizeof(*s));", f"    {name}_use(s, params);", "}", "")
        yield from (*self._forward(), "", *self._backward())

    def _step(self, kind: str, one: Step) -> Iterator[str]:
        name, ahead = self.name, kind == "forward"
        given = [f"{name}_{kind}_cell *s", f"const {name}_{kind}_weights *w"]
        given += [f"{name}_tape *t"] if ahead else [f"const {name}_tape *t", f"{name}_params *gradients"]
        given += [f"const real *{identifier}" for identifier, _ in one.inputs.values()]
        given += [f"real *{identifier}" for identifier, _ in one.outputs.values()]
        yield from (f"static void {kind}_step({', '.join(given)})", "{")
        for pointer in ("w",) if ahead else ("s", "w", "t", "gradients"):
            if not any(f"{pointer}->" in line or f"{pointer}[1]" in line for line in one.body):
                yield f"    (void){pointer};"
        for identifier, _ in one.inputs.values():
            if not any(identifier in line for line in one.body):
                yield f"    (void){identifier};"
        yield from (*one.body, "}")

    def _use(self) -> Iterator[str]:
        name = self.name
        yield from (f"void {name}_use({name} *s, const {name}_params *params)", "{")
        used = [line for k, one in self._steps() for line in self._packing(f"s->{k}_weights", one)]
        yield from used or ["    (void)s;", "    (void)params;"]
        yield from ("}", "")

    def _steps(self) -> tuple[tuple[str, Step], ...]:
        return ("forward", self.made.forward), ("backward", self.made.backward)

    def _packing(self, weights: str, one: Step) -> Iterator[str]:
        for panel in one.panels:
            if panel.numbers:
                yield from self._panel(f"{weights}.{panel.name}", panel)
        for source, (identifier, count) in one.vectors.items():
            place = self._spread(source)
            if count:
                yield f"    memset({weights}.{identifier}, 0, sizeof({weights}.{identifier}));"
                yield self._pack(f"{weights}.{identifier}", place)

    def _panel(self, target: str, panel: PackedPanel) -> Iterator[str]:
        yield f"    memset({target}, 0, sizeof({target}));"
        block, rows, count = panel.units, panel.starts + sum(panel.inner), len(panel.accumulations)
        for n, (biases, terms) in enumerate(panel.accumulations):
            for bias in biases or ():
                place = self._spread(bias)
                stride = place.strides[0] if place.strides else 1
                yield self._call(target, (block, rows, count, 0, n), place, (panel.size, 1, stride, 0))
            row = int(panel.starts)
            for (matrix, transposed), inner in zip(terms, panel.inner, strict=True):
                place = self._spread(matrix)
                strides = place.strides[::-1] if transposed else place.strides
                if inner:
                    yield self._call(target, (block, rows, count, row, n), place, (panel.size, inner, *strides))
                row += inner

    def _pack(self, target: str, place: Spread) -> str:
        """A parameter that is read element by element, copied."""
        height, width = {0: (1, 1), 1: (1, *place.shape), 2: place.shape}[len(place.shape)]
        down, right = {0: (0, 0), 1: (0, *place.strides), 2: place.strides}[len(place.shape)]
        source = f"params->{self.made.members[place.parameter]}[{place.first} + i * {down} + k * {right}]"
        return (
            f"    for (int i = 0; i < {height}; i++)\n        for (int k = 0; k < {width}; k++)\n"
            f"            {target}[i * {width} + k] = {source};"
        )

    def _call(self, target: str, where: tuple[int, ...], place: Spread, shape: tuple[int, ...]) -> str:
        source = f"params->{self.made.members[place.parameter]} + {place.first}"
        return f"    pack({target}, {', '.join(map(str, where))}, {source}, {', '.join(map(str, shape))});"

    def _spread(self, source: str) -> Spread:
        pieces = {**self.made.programs[0].graph.pieces, **self.made.programs[1].graph.pieces}
        return spread(source, pieces, {n: a.shape for n, a in self.made.params.items()}, self.made.sizes)

    def _forward(self) -> Iterator[str]:
        yield from (f"void {self.signature('forward')}", "{", "    for (size_t n = 0; n < steps; n++)")
        given = ["&s->forward", "&s->forward_weights", "tape + n"]
        given += [f"{plain(n)} + n * {count}" for n, (_, count) in self.made.forward.inputs.items()]
        given += [f"{plain(n)}_out + n * {count}" for n, (_, count) in self.made.forward.outputs.items()]
        yield from (f"        forward_step({', '.join(given)});", "}")

    def _backward(self) -> Iterator[str]:
        backward, word = self.made.backward, self.real.word
        yield from (f"void {self.signature('backward')}", "{")
        for n, count in self.back.items():
            yield f"    {word} {_downstream(n)}_none[{count}];"
        if backward.states:
            yield "    memset(&s->backward.state, 0, sizeof(s->backward.state));"
        yield "    for (size_t n = steps; n-- > 0;)"
        given = ["&s->backward", "&s->backward_weights", "tape + n", "gradients"]
        given += [f"{_upstream(n)} + n * {count}" for n, (_, count) in backward.inputs.items()]
        for n, count in self.back.items():
            given.append(f"{_downstream(n)} ? {_downstream(n)} + n * {count} : {_downstream(n)}_none")
        yield from (f"        backward_step({', '.join(given)});", "}")


def _packed(one: Step) -> dict[str, int]:
    found = {panel.name: panel.numbers for panel in one.panels}
    found |= dict(one.vectors.values())
    return {n: count for n, count in found.items() if count}


def _upstream(source: str) -> str:
    return f"d_{source.removeprefix(GRADIENT)}"


def _downstream(name: str) -> str:
    return f"d_{name}"


def _told(arrays: Mapping[str, int]) -> str:
    return ", ".join(f"{n} [{count}]" for n, count in arrays.items())
