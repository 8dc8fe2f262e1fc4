"""A program in C that checks an exported one on whatever machine it runs: inputs, and what the
equations give for them in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.numbers import FLOAT64, Numbers
from rnnspec.check.properties.conditioning import rounding_spread
from rnnspec.check.sampling import NoSampleError
from rnnspec.check.tolerances import FREEDOM, KERNEL
from rnnspec.export.parts import Model
from rnnspec.export.text import PER_LINE, CProgram
from rnnspec.export.weights import beginning

STEPS, DRAWS = 24, 40


@dataclass(frozen=True)
class Case:
    """symbols: [T], None for a model that reads numbers alone; inputs, outputs: name -> [T, n];
    allowed: output -> the largest error."""

    symbols: Array | None
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    allowed: Mapping[str, float]


def selftest(program: CProgram, seed: int = 0) -> str:
    """The text of NAME_selftest.c: it runs NAME over some steps, prints the largest error of every
    output, and returns 1 if one is above what the tolerance of the kernels allows, 2 if weights are
    missing, else 0. Weights that are apart are read from the file that its argument names, and
    NAME.weights if it has none.

    Raises NoSampleError where rounding alone moves the outputs of every draw by more than that.
    """
    return "\n".join(_text(program, case_of(program, seed))) + "\n"


def case_of(program: CProgram, seed: int) -> Case:
    """Inputs for which rounding alone stays below the tolerance."""
    model, dtype = program.model, program.real.name
    for attempt in range(DRAWS):
        rng = np.random.default_rng([seed, attempt])
        low = 0.1 if attempt % 4 == 3 else -1.0
        table = model.table
        symbols = None if table is None else rng.integers(0, len(table), STEPS)
        inputs = {n: rng.uniform(low, 1.0, (STEPS, count)).astype(dtype) for n, count in program.inputs.items()}
        with np.errstate(all="ignore"):
            expected = run(model, symbols, inputs, FLOAT64)
            if not all(np.isfinite(a).all() for a in expected.values()):
                continue
            spread = rounding_spread(partial(run, model, symbols, inputs), expected, dtype)
        scale = max([float(np.abs(a).max(initial=0.0)) for a in expected.values()], default=0.0)
        allowed = {n: max(KERNEL[dtype] * scale, FREEDOM * s) for n, s in spread.items()}
        if all(FREEDOM * s <= 10 * KERNEL[dtype] * scale for s in spread.values()):
            return Case(symbols, inputs, expected, allowed)
    raise NoSampleError(f"no inputs found in {DRAWS} draws at which {program.name} is not moved by rounding alone")


def run(model: Model, symbols: Array | None, inputs: Mapping[str, Array], numbers: Numbers) -> dict[str, Array]:
    """The outputs [T, n] of a model, by its definition."""
    exact = {n: np.asarray(a, np.float64)[:, None] for n, a in inputs.items()}
    main = None if symbols is None or model.table is None else np.asarray(model.table, np.float64)[symbols][:, None]
    outputs: Mapping[str, Array] = {}
    for part in model.parts:
        given = {n: main if n == part.main and main is not None else exact[n] for n in part.made.inputs}
        outputs = part.definition(given, part.initial, numbers)
        first = next(iter(outputs))
        below, main = main, outputs[first].reshape(STEPS, 1, -1)
        if part.added and below is not None:
            main = main + below
            outputs = {**outputs, first: main}
    return {n: np.asarray(a).reshape(STEPS, -1) for n, a in outputs.items()}


def _text(program: CProgram, case: Case) -> Iterator[str]:
    name, word = program.name, program.real.word
    yield f"/* Checks {name}.c: {STEPS} steps beside what the equations give in float64. */"
    yield from (f'#include "{name}.h"', "", "#include <math.h>", "#include <stdio.h>", "")
    if case.symbols is not None:
        yield f"static const size_t symbols[] = {{{', '.join(map(str, case.symbols.tolist()))}}};"
    for n, array in case.inputs.items():
        yield from constants(f"static const {word} {n}_in", [program.real.constant(v) for v in array.ravel().tolist()])
    for n, array in case.outputs.items():
        yield from constants(f"static const double {n}_right", [repr(float(v)) for v in array.ravel()])
        yield f"static {word} {n}_found[{array.size}];"
    yield from beginning(name, program.apart)
    yield from comparing(word)
    yield from ("int main(int count, char **given)", "{", "    int failed = 0;")
    given = [] if case.symbols is None else ["symbols"]
    given += [f"{n}_in" for n in case.inputs] + [f"{n}_found" for n in case.outputs]
    yield from (f'    if (begun(count > 1 ? given[1] : "{name}.weights"))', "        return 2;")
    yield f"    {name}_block(&model, {STEPS}, {', '.join(given)});"
    for n, array in case.outputs.items():
        yield f'    failed |= compare("{n}", {n}_found, {n}_right, {array.size}, {case.allowed[n]!r});'
    yield from ("    return failed;", "}")


def comparing(word: str) -> Iterator[str]:
    """The C function `compare`, which prints the largest error of an array."""
    yield f"static int compare(const char *name, const {word} *found, const double *right, int n, double most)"
    yield from ("{", "    double error = 0, gap;", "    for (int i = 0; i < n; i++) {")
    yield "        gap = fabs((double)found[i] - right[i]);"
    yield "        error = gap <= error ? error : gap; /* NaN too */"
    yield "    }"
    yield '    printf("%s: largest error %.2g, %.2g allowed\\n", name, error, most);'
    yield from ("    return !(error <= most);", "}", "")


def constants(head: str, numbers: list[str]) -> Iterator[str]:
    yield f"{head}[] = {{"
    for start in range(0, len(numbers), PER_LINE):
        yield f"    {', '.join(numbers[start : start + PER_LINE])},"
    yield "};"
