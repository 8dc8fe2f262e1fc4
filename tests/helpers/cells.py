"""What the engine's tests share: small cells of the list of known faults, compiled kernels, and
random arrays to run them on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from tiny import cell

import rnnspec
from rnnspec.backends import reference
from rnnspec.engine.kernel import Kernel
from rnnspec.engine.results import Gradients, Run
from rnnspec.language.sizes import full_shape, with_default_sizes
from rnnspec.language.spec import STEP, Spec
from rnnspec.lowering.pipeline import Stages, stages

Array = np.ndarray
DTYPES = ("float32", "float64")
PRIMES = (3, 5, 2, 7, 11, 13)
# cells that between them have every form of stage, state and product: tests that compile run over
# these, tests/cpu/test_all_cells.py over all
CORE = (
    "gru",
    "gru_reset_before",
    "indrnn",
    "lstm",
    "lstm_1997",
    "lstm_cifg",
    "lstm_peephole",
    "lstm_projected",
    "mgu",
    "rnn",
)

LINEAR = cell("h[t] = w * x[t] + u * h[t-1]", name="linear", parameters="{w: [], u: []}")
LINEAR_ROWS = cell(
    "h[t] = w * x[t] + u * h[t-1]", name="linear_rows", inputs="{x: H}", states="{h: H}", parameters="{w: [H], u: [H]}"
)


def spec_of(name: str, **settings: Any) -> Spec:
    """The Spec of a cell's name, or of a YAML text."""
    return rnnspec.loads(name, **settings) if "\n" in name else rnnspec.load(name, **settings)


@cache
def kernel(name: str, dtype: str = "float64", threads: int | None = None, **settings: Any) -> Kernel:
    """The kernel of a cell's name or text: one in this process, so that no test compiles what
    another has compiled."""
    return rnnspec.compile(spec_of(name, **settings), dtype=dtype, threads=threads)


@cache
def reference_stages(name: str, **settings: Any) -> Stages:
    return stages(spec_of(name, **settings))


def whole_sizes(spec: Spec, **given: int) -> dict[str, int]:
    """Every size of a cell: as given, as its default says, or a prime."""
    free = [n for n, size in spec.sizes.items() if size.default is None and n not in given]
    return with_default_sizes(spec.sizes, dict(zip(free, PRIMES)) | given)


@dataclass
class Case:
    """Arguments of one call."""

    kernel: Kernel
    sizes: dict[str, int]
    params: dict[str, Array]
    inputs: dict[str, Array]
    states: dict[str, Array]
    lengths: Array | None
    dy: dict[str, Array] = field(default_factory=dict)
    dfinal: dict[str, Array] = field(default_factory=dict)

    def forward(self, **changed: Any) -> Run:
        args = {"params": self.params, "inputs": self.inputs, "states": self.states, "lengths": self.lengths} | changed
        return self.kernel.forward(**args)

    def backward(self, run: Run | None = None) -> Gradients:
        return self.kernel.backward(self.forward() if run is None else run, self.dy, final=self.dfinal)

    def loss(self, **changed: Any) -> float:
        """The scalar whose gradients are `backward()`."""
        run = self.forward(**changed)
        parts = [(g, run.outputs[o]) for o, g in self.dy.items()] + [(g, run.final[s]) for s, g in self.dfinal.items()]
        return float(sum(np.vdot(g, value) for g, value in parts))

    def changed(
        self, array: Callable[[Array], Array] = lambda a: a, name: Callable[[str], str] = lambda n: n, **fields: Any
    ) -> Case:
        """The same call on other arrays, or under other names, or with other fields."""
        groups = ("params", "inputs", "states", "dy", "dfinal")
        return replace(self, **{k: {name(n): array(a) for n, a in getattr(self, k).items()} for k in groups} | fields)


def case(of: Kernel, steps: int, rows: int, seed: int = 0, lengths: Any = None, **given: int) -> Case:
    """A random call: parameters near their initial values, inputs and states of about 1."""
    spec, rng = of.spec, np.random.default_rng(seed)
    sizes = whole_sizes(spec, **given)

    def draw(*shape: int) -> Array:
        return rng.uniform(-1, 1, shape).astype(of.dtype)

    params = {n: p + 0.1 * draw(*p.shape) for n, p in of.init(seed=seed, **sizes).items()}
    params = {n: np.asarray(p, of.dtype) for n, p in params.items()}
    inputs = {n: draw(steps, rows, *full_shape(shape, sizes)) for n, shape in spec.inputs.items()}
    states = {n: draw(rows, *full_shape(shape, sizes)) for n, shape in of.states.items()}
    dy = {n: draw(steps, rows, *full_shape(spec.shapes[n], sizes)) for n in spec.outputs}
    dfinal = {n: draw(rows, *full_shape(shape, sizes)) for n, shape in of.states.items()}
    if lengths is not None:
        lengths = np.asarray(lengths)
    return Case(of, sizes, params, inputs, states, lengths, dy, dfinal)


@dataclass(frozen=True)
class Expected:
    """What the float64 reference says of a Case."""

    outputs: Mapping[str, Array]
    final: Mapping[str, Array]
    params: Mapping[str, Array]
    inputs: Mapping[str, Array]
    states: Mapping[str, Array]


def expected(of: Case, name: str, **settings: Any) -> Expected:
    """The reference on a case of the kernel of this name or text."""
    made = reference_stages(name, **settings)

    def double(arrays: Mapping[str, Array]) -> dict[str, Array]:
        return {n: np.asarray(a, np.float64) for n, a in arrays.items()}

    params, inputs = double(of.params), double(of.inputs)
    run = reference.forward(made.graph, params, inputs, double(of.states), of.lengths, sizes=of.sizes)
    dy = {o: g * _alive(of, g) for o, g in double(of.dy).items()}
    back = reference.backward(made.adjoint, params, inputs, run, dy, double(of.dfinal), of.lengths, sizes=of.sizes)
    return Expected(run.outputs, run.final | counts_after(of), back.params, back.inputs, back.states)


def counts_after(of: Case) -> dict[str, Array]:
    """What the count of steps is after a case, of a cell that has one; the reference has none."""
    steps, rows = next(iter(of.inputs.values())).shape[:2]
    taken = np.full(rows, steps) if of.lengths is None else of.lengths
    return {STEP: of.states.get(STEP, 0) + taken} if of.kernel.spec.counts else {}


def _alive(of: Case, array: Array) -> Array:
    steps, rows = array.shape[:2]
    lengths = np.full(rows, steps) if of.lengths is None else of.lengths
    return (np.arange(steps)[:, None] < lengths[None]).reshape((steps, rows) + (1,) * (array.ndim - 2))


def run_scalar(
    name: str, x: Any, dtype: str = "float64", states: Mapping[str, Any] | None = None, **params: float
) -> tuple[Kernel, Run]:
    """One row of a cell of numbers over the steps x [T], or rows of it with x [T, B]."""
    of = kernel(name, dtype)
    x = np.asarray(x, dtype)
    x = x[:, None] if x.ndim == 1 else x
    given = {n: np.asarray(v, dtype) for n, v in params.items()}
    before = {n: np.broadcast_to(np.asarray(v, dtype), x.shape[1:]) for n, v in (states or {}).items()}
    return of, of.forward(given, {"x": x}, before)


def ones(run: Run, *outputs: str) -> dict[str, Array]:
    """Output gradients of 1: the loss is the sum of the outputs."""
    return {o: np.ones_like(run.outputs[o]) for o in outputs or run.outputs}


_GRAPHS: dict[str, Any] = {}


def reference_run(
    spec: Spec,
    params: Mapping[str, Any],
    inputs: Mapping[str, Any],
    states: Mapping[str, Any] | None = None,
    lengths: Any = None,
) -> Any:
    """The reference on plain arrays, in float64: sizes follow from the arrays."""
    from rnnspec.engine.arrays import infer_sizes
    from rnnspec.language.load import digest
    from rnnspec.symbolic.build import build

    if (key := digest(spec)) not in _GRAPHS:
        _GRAPHS[key] = build(spec)
    dims = [("", spec.parameters[n], np.shape(a)) for n, a in params.items()] + [
        ("", ("T", "B", *spec.inputs[n]), np.shape(a)) for n, a in inputs.items()
    ]
    return reference.forward(_GRAPHS[key], params, inputs, states, lengths, sizes=infer_sizes(spec, dims))
