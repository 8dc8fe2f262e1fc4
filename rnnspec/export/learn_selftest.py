"""A program in C that checks a cell that learns: outputs and gradients beside those of the
equations and their adjoint in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import reference
from rnnspec.backends.numbers import FLOAT64, Numbers
from rnnspec.check.properties.conditioning import rounding_spread
from rnnspec.check.sampling import NoSampleError
from rnnspec.check.tolerances import FREEDOM, KERNEL
from rnnspec.export.learn_cell import LearningCell
from rnnspec.export.learn_text import GRADIENT
from rnnspec.export.selftest import DRAWS, STEPS, comparing, constants
from rnnspec.export.text import plain
from rnnspec.language.sizes import full_shape
from rnnspec.lowering.pipeline import graphs

Arrays = Mapping[str, Array]


def selftest(learner: LearningCell, seed: int = 0) -> str:
    """The text of NAME_selftest.c: some steps forward and backward; it prints the largest error of
    every output, of the gradient of every parameter and input, and of the states before the first
    step, and returns 1 if one is above what the tolerance of the kernels allows, else 0. The states
    before the first step are zero, but where a cell is then always where a slope jumps.

    Raises NoSampleError where rounding alone moves those of every draw by more than that.
    """
    return "\n".join(_text(learner, *_case(learner, seed))) + "\n"


def _case(learner: LearningCell, seed: int) -> tuple[Arrays, Arrays, Arrays, Mapping[str, float]]:
    """What is read, inputs and gradients of outputs; the states before the first step, none where
    all are zero; what is expected, and the largest error of each."""
    dtype, forward = learner.dtype, learner.forward
    for attempt in range(DRAWS):
        rng = np.random.default_rng([seed, attempt])
        low = 0.1 if attempt % 4 == 3 else -1.0
        counts = {n: count for n, (_, count) in forward.inputs.items()}
        inputs = {n: rng.uniform(low, 1.0, (STEPS, count)).astype(dtype) for n, count in counts.items()}
        widths = {n: count for n, (_, count) in forward.outputs.items()}
        upstream = {f"d_{n}": rng.uniform(-1.0, 1.0, (STEPS, width)).astype(dtype) for n, width in widths.items()}
        held = {n: count for n, (_, count) in forward.states.items() if count and attempt >= DRAWS // 2}
        starts = {n: rng.uniform(low, 1.0, (1, count)).astype(dtype) for n, count in held.items()}
        definition = partial(_expected, learner, inputs, upstream, starts)
        with np.errstate(all="ignore"):
            expected = definition(FLOAT64)
            if not all(np.isfinite(a).all() for a in expected.values()):
                continue
            spread = rounding_spread(definition, expected, dtype)
        scales = {n: _scale(expected, n) for n in expected}
        allowed = {n: max(KERNEL[dtype] * scales[n], FREEDOM * s) for n, s in spread.items()}
        if all(FREEDOM * s <= 10 * KERNEL[dtype] * scales[n] for n, s in spread.items()):
            given = inputs | {f"{n}_above": a for n, a in upstream.items()}  # an input may be called d_h
            return given, starts, expected, allowed
    raise NoSampleError(f"no inputs found in {DRAWS} draws at which {learner.name} is not moved by rounding alone")


def _scale(arrays: Arrays, name: str) -> float:
    """The largest value among arrays of its kind: outputs; gradients of params, inputs, states."""
    kind = name.split(" ", 1)[0]
    return max(float(np.abs(a).max(initial=0.0)) for n, a in arrays.items() if n.split(" ", 1)[0] == kind)


def _expected(
    learner: LearningCell, inputs: Arrays, upstream: Arrays, starts: Arrays, numbers: Numbers
) -> dict[str, Array]:
    """Outputs and gradients by the definition, each flat."""
    spec, sizes = learner.spec, learner.sizes
    graph, adjoint = graphs(spec)
    params = {n: np.asarray(a, np.float64) for n, a in learner.params.items()}
    given = {n: a.astype(np.float64).reshape(STEPS, 1, *full_shape(spec.shapes[n], sizes)) for n, a in inputs.items()}
    states = {n: a.astype(np.float64).reshape(1, *full_shape(spec.shapes[n], sizes)) for n, a in starts.items()}
    run = reference.forward(graph, params, given, states, sizes=sizes, numbers=numbers, lead=(STEPS, 1))
    above = {o: upstream[f"d_{o}"].astype(np.float64).reshape(y.shape) for o, y in run.outputs.items()}
    back = reference.backward(adjoint, params, given, run, above, sizes=sizes, numbers=numbers)
    found = {f"output {n}": a for n, a in run.outputs.items()}
    found |= {f"params {n}": a for n, a in back.params.items() if a.size and n in learner.params}
    found |= {f"inputs {n}": back.inputs[n] for n in learner.backward.outputs}
    found |= {f"states {n}": back.states[n] for n, (_, count) in learner.backward.states.items() if count}
    return {n: np.asarray(a, np.float64).ravel() for n, a in found.items()}


def _text(
    learner: LearningCell, given: Arrays, starts: Arrays, expected: Arrays, allowed: Mapping[str, float]
) -> Iterator[str]:
    name, real = learner.name, learner.forward.real
    yield f"/* Checks {name}.c: {STEPS} steps and back, beside the equations and their adjoint in float64. */"
    yield from (f'#include "{name}.h"', "", "#include <math.h>", "#include <stdio.h>", "#include <string.h>", "")
    for n, array in [*given.items(), *((f"start_{s}", a) for s, a in starts.items())]:
        yield from constants(f"static const {real.word} {n}_in", [real.constant(v) for v in array.ravel().tolist()])
    right = {n: f"right_{i}" for i, n in enumerate(expected)}
    for n, array in expected.items():
        yield from constants(f"static const double {right[n]}", [repr(float(v)) for v in array])
    found = _found(learner, expected)
    for n, place in found.items():
        if n.startswith(("output ", "inputs ")):
            yield f"static {real.word} {place}[{expected[n].size}];"
    yield f"static {name}_tape tape[{name.upper()}_TAPE({STEPS})];"
    yield from (f"static {name}_params gradients;", f"static {name} model;", "", *comparing(real.word))
    yield from ("int main(void)", "{", "    int failed = 0;", f"    {name}_init(&model, &{name}_initial);")
    for n in starts:
        place = f"model.forward.state.{learner.forward.states[n][0]}"
        yield f"    memcpy({place}, start_{n}_in, sizeof start_{n}_in);"
    reads = [f"{n}_in" for n in learner.forward.inputs]
    ahead = [*reads, "tape", *(found[f"output {n}"] for n in learner.forward.outputs)]
    above = [f"d_{n.removeprefix(GRADIENT)}_above_in" for n in learner.backward.inputs if n.startswith(GRADIENT)]
    back = ["tape", *above, "&gradients", *(found[f"inputs {n}"] for n in learner.backward.outputs)]
    yield f"    {name}_forward(&model, {STEPS}, {', '.join(ahead)});"
    yield f"    {name}_backward(&model, {STEPS}, {', '.join(back)});"
    for n, array in expected.items():
        yield f'    failed |= compare("{n}", {found[n]}, {right[n]}, {array.size}, {allowed[n]!r});'
    yield from ("    return failed;", "}")


def _found(learner: LearningCell, expected: Arrays) -> dict[str, str]:
    """Where the program finds each of the arrays."""
    places = {}
    for i, n in enumerate(expected):
        kind, of = n.split(" ", 1)
        match kind:
            case "params":
                places[n] = f"gradients.{learner.members[of]}"
            case "states":
                places[n] = f"model.backward.state.{learner.backward.states[of][0]}"
            case _:
                places[n] = f"found_{i}_{plain(of)}"
    return places
