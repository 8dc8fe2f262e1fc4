"""What an exported program is made of: the steps of layers and of linear maps, one after the other,
each with its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import reference
from rnnspec.backends.c.step import Step, step
from rnnspec.backends.numbers import Numbers
from rnnspec.engine import noise
from rnnspec.errors import UnsupportedError
from rnnspec.export.values import arrays, sources
from rnnspec.language.load import digest
from rnnspec.language.sizes import full_shape
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.tree import fresh, to_text
from rnnspec.layers.recurrent import Recurrent
from rnnspec.lowering.pipeline import stages
from rnnspec.lowering.schedule import schedule
from rnnspec.symbolic.build import build
from rnnspec.symbolic.graph import Graph, Pointwise, Product, Read
from rnnspec.symbolic.operations import symbol, total

Arrays = Mapping[str, Array]
Definition = Callable[[Arrays, Arrays, Numbers], Arrays]


@dataclass(frozen=True)
class Part:
    """One step of a program. name: of its functions, behind the program's; made: its text; weights:
    identifier -> numbers; about: lines that say what it is; main: the input that the part before it
    gives; definition: the outputs
    [T, 1, ...] of inputs [T, 1, ...], and states before the first step [1, ...], by the reference;
    initial: state -> numbers before the first step, where they are not zero; added: whether
    what it reads is added to what it gives."""

    name: str
    made: Step
    weights: Mapping[str, Array]
    about: tuple[str, ...]
    main: str
    definition: Definition
    initial: Mapping[str, Array] = field(default_factory=dict)
    added: bool = False

    @property
    def initial_members(self) -> dict[str, str]:
        """state -> the identifier, among the weights, of its numbers before the first step."""
        found: dict[str, str] = {}
        for state in self.initial:
            found[state] = fresh(f"initial_{self.made.states[state][0]}", {*self.weights, *found.values()})
        return found

    @property
    def numbers(self) -> dict[str, Array]:
        """identifier -> numbers of all weights that the program keeps; one 0 where it has none, as
        C has no struct without members."""
        initial = {
            member: np.asarray(self.initial[s], self.made.real.name) for s, member in self.initial_members.items()
        }
        found = {n: a for n, a in {**self.weights, **initial}.items() if a.size}
        return found or {"none": np.zeros(1, self.made.real.name)}


@dataclass(frozen=True)
class Model:
    """Parts in order. table: [symbols, features] of a model that reads symbols, None for one that
    reads numbers."""

    title: str
    parts: tuple[Part, ...]
    table: Array | None = None


def cell_part(name: str, spec: Spec, params: Mapping[str, Array], sizes: Mapping[str, int], dtype: str) -> Part:
    """A cell with its parameters. Noise is what is expected of it, as in `infer`."""
    for size, value in sizes.items():
        if value < 1:
            raise ValueError(f"size {size} is {value}: C has no arrays without elements. Give at least 1.")
    program = stages(spec).infer
    expected = {n: a[(0, 0) if n in spec.inputs else ...] for n, a in noise.mean(spec, sizes, 1, 1, np.float64).items()}
    made = step(program, dtype, sizes, [n for n in spec.noise if n in spec.inputs])
    params = {**params, **{n: a for n, a in expected.items() if n in spec.parameters}}
    read = {**sources(spec, program.graph, params, sizes), **expected}
    about = (
        f"{spec.name}, {', '.join(f'{n} = {v}' for n, v in sizes.items())}, from spec {digest(spec)[:16]}:",
        *(f"    {equation.target} = {to_text(equation.value)}" for equation in spec.equations),
    )
    graph, exact = build(spec), {n: np.asarray(a, np.float64) for n, a in params.items()}

    def definition(inputs: Arrays, states: Arrays, numbers: Numbers) -> Arrays:
        lead = len(next(iter(inputs.values()))), 1
        drawn = {n: np.broadcast_to(a, (*lead, *a.shape)) for n, a in expected.items() if n in spec.inputs}
        given = {n: a.reshape(*lead, *full_shape(spec.shapes[n], sizes)) for n, a in inputs.items() if n in spec.inputs}
        before = {n: a.reshape(1, *full_shape(graph.shapes[graph.states[n]], sizes)) for n, a in states.items()}
        run = reference.forward(graph, exact, {**given, **drawn}, before, sizes=sizes, numbers=numbers, lead=lead)
        return run.outputs

    return Part(name, made, arrays(made, read), about, next(iter(spec.streams), ""), definition)


def linear_part(name: str, weight: Array, bias: Array, dtype: str) -> Part:
    """y = weight @ x + bias. weight: [C, D], bias: [C]."""
    nodes = {
        "x": Read("input", "x"),
        "W": Read("parameter", "W"),
        "b": Read("parameter", "b"),
        "W_x": Product("W", "x"),
        "y": Pointwise(total(symbol("W_x"), symbol("b"))),
    }
    shapes = {"x": ("D",), "W": ("C", "D"), "b": ("C",), "W_x": ("C",), "y": ("C",)}
    program = schedule(Graph("linear", nodes, shapes, {}, {"y": "y"}))  # type: ignore[arg-type]
    made = step(program, dtype, {"D": weight.shape[1], "C": weight.shape[0]})
    about = (f"linear map of {weight.shape[1]} numbers to {weight.shape[0]}:", "    y = W @ x + b")
    read = {"W": np.asarray(weight, np.float64), "b": np.asarray(bias, np.float64)}

    def definition(inputs: Arrays, states: Arrays, numbers: Numbers) -> Arrays:
        return {"y": inputs["x"] @ read["W"].T + read["b"]}

    return Part(name, made, arrays(made, read), about, "x", definition)


def layer_parts(layer: Recurrent) -> list[Part]:
    """The layers of a `Recurrent`, with its weights as they are now.

    Raises UnsupportedError for layers that read a sequence from its end, which no step can."""
    layers = layer.stack.description
    if any(direction.reverse for direction in layers.directions):
        raise UnsupportedError(
            "a layer that runs from the last step to the first needs the whole sequence, and a step has one input at a"
            " time: export layers with bidirectional=False and go_backwards=False."
        )
    views = layer.stack.weights({**layer.params, **layer.fixed})
    parts = []
    for depth, single in enumerate(layers.layers):
        params = single.kernel.pack(views.cells[depth]).held
        part = cell_part(f"l{depth}", single.spec, params, single.sizes, layers.dtype.name)
        initial = {n: np.asarray(a).ravel() for n, a in views.initial[depth].items()}
        parts.append(replace(part, initial=initial, added=layers.residual and depth > 0))
    return parts
