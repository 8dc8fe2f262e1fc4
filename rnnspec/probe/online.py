"""How near rules that learn as a stream runs come to the gradient: their angle to that of a
backward pass, step by step.

In: a ProbeSubject and rules. Out: cosines over time, and a figure of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.brief import brief_repr
from rnnspec.engine.compile import compile
from rnnspec.engine.kernel import Kernel
from rnnspec.engine.results import Run
from rnnspec.errors import UnsupportedError
from rnnspec.probe.figure import paths_of, style
from rnnspec.probe.subject import ProbeSubject
from rnnspec.show.figure import QUIET, dress, new_figure, save, whole_numbers


@dataclass(frozen=True)
class Alignment:
    """cosine, length [T]: of the gradient that a rule gives of a loss v . y[t] at each step, with
    that of a backward pass through all steps before; length in parts of that one's. NaN where a
    gradient is 0."""

    name: str
    rule: str
    cosine: Array
    length: Array

    __repr__ = brief_repr

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "rule": self.rule, "cosine": self.cosine.tolist(), "length": self.length.tolist()}


def alignments(subject: ProbeSubject, rules: Sequence[str], seed: int = 0) -> tuple[list[Alignment], dict[str, str]]:
    """The Alignment of each rule, by float64 kernels, and why there is none of others. Gradients
    are of parameters, summed over rows; seed: of v, and of what a rule draws."""
    kernel, (steps, rows) = compile(subject.spec, dtype="float64"), subject.lead
    rng = np.random.default_rng([seed, 9])
    shapes = {o: subject.spec.shapes[o] for o in subject.spec.outputs}
    run = kernel.forward(subject.params, subject.inputs, steps=steps, rows=rows)
    flow = {o: rng.standard_normal(run.outputs[o].shape[1:]) for o in shapes}
    exact = _backward(kernel, run, flow)
    found, refused = [], {}
    for rule in rules:
        try:
            made = _forward(kernel, subject, rule, flow, seed)
        except UnsupportedError as error:
            refused[rule] = str(error)
            continue
        lengths = np.linalg.norm(made, axis=1), np.linalg.norm(exact, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            cosine = (made * exact).sum(1) / (lengths[0] * lengths[1])
            found.append(Alignment(subject.name, rule, cosine, lengths[0] / lengths[1]))
    return found, refused


def _backward(kernel: Kernel, run: Run, flow: Mapping[str, Array]) -> Array:
    """[T, P]: the gradient of the loss at each step."""
    found = []
    for t in range(run.steps):
        at = {o: np.zeros_like(run.outputs[o]) for o in flow}
        for output, array in flow.items():
            at[output][t] = array
        found.append(_flat(kernel.backward(run, at).params))
    return np.stack(found)


def _forward(kernel: Kernel, subject: ProbeSubject, rule: str, flow: Mapping[str, Array], seed: int) -> Array:
    settings: dict[str, Any] = {"rule": rule, "rows": subject.lead[1], "seed": seed, **subject.sizes}
    stream, found = kernel.online(subject.params, **settings), []
    for t in range(subject.lead[0]):
        stream.step({n: a[t] for n, a in subject.inputs.items()})
        found.append(_flat(stream.learn(flow)))
    return np.stack(found)


def _flat(params: Mapping[str, Array]) -> Array:
    return np.concatenate([np.zeros(0), *(params[n].ravel() for n in sorted(params))])


def draw_alignments(found: Sequence[Alignment], base: str | Path) -> list[Path]:
    """Writes base.png and base.svg, or the one file that an extension names: the cosine of each
    rule over the steps, all cells in one. Returns the paths."""
    figure = new_figure((9.0, 4.6))
    axes = figure.add_subplot()
    for i, one in enumerate(found):
        axes.plot(np.arange(1, len(one.cosine) + 1), one.cosine, **style(i), linewidth=1.8, label=_label(one))
    axes.axhline(0, color=QUIET, linewidth=0.8)
    axes.set_ylim(-1.05, 1.05)
    whole_numbers(axes.xaxis)
    dress(axes, "gradients step by step, beside those of a backward pass", "step t", "cosine of the angle between them")
    paths = paths_of(base)
    for path in paths:
        save(figure, path)
    return paths


def _label(one: Alignment) -> str:
    return f"{one.name}, {one.rule}"
