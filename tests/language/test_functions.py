"""The table of functions is all that knows a function by name: a new row is everywhere at once, and
code that stands elsewhere is there for every row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tiny import cell

from rnnspec.backends import numbers
from rnnspec.backends.cpu.runtime import vector_math
from rnnspec.backends.cuda.emit import text as cuda_text
from rnnspec.backends.cuda.emit.writer import WRITTEN_OUT
from rnnspec.language.features import FEATURES
from rnnspec.language.functions import FUNCTIONS, PRIMITIVES
from rnnspec.language.load import loads
from rnnspec.language.roles import SIGMOIDS, SQUASHING
from rnnspec.lowering.pipeline import stages
from rnnspec.show.page import show

# Rows as a person adds them, with no more than they have to say, before anything reads the table.
NEW_ROWS = """
import json, random
from types import MappingProxyType

from rnnspec.language import functions
from rnnspec.language.functions import Function

tanh = "tanh(log1p(exp(a)))"
new = (
    Function("mish", ("a",), (f"{tanh} + a * (1 - square({tanh})) * sigmoid(a)",), f"a * {tanh}"),
    Function("blend", ("u", "v", "w"), ("w", "1 - w", "u - v"), "w * u + (1 - w) * v"),
)
functions.FUNCTIONS = MappingProxyType({**functions.FUNCTIONS, **{row.name: row for row in new}})

import numpy as np

import rnnspec
from rnnspec.backends import reference
from rnnspec.symbolic.adjoint import adjoint
from rnnspec.symbolic.build import build
from rnnspec.symbolic.tangent import tangent

TEXT = '''
rnnspec: 1
name: new_rows
inputs: {x: D}
states: {h: H}
parameters: {W: [H, D], U: [H, H], b: H}
equations: |
  g[t] = mish(W @ x[t] + U @ h[t-1] + b)
  h[t] = blend(g[t], h[t-1], 0.5)
outputs: [h]
'''
spec = rnnspec.loads(TEXT)
"""

USES = {
    "check --functions": """
from rnnspec.check.accuracy.functions import measure_functions
report = measure_functions(samples=20, names=["mish", "blend"])
assert [(f.name, f.dtype) for f in report.functions] == [
    (n, d) for d in ("float32", "float64") for n in ("mish", "blend")
]
assert report.passed and "mish" in report.to_text() and json.loads(report.to_json())["passed"]
assert all(f.ulp[1] < 2 and not f.special for f in report.functions), report
assert {"mish", "blend", "tanh"} <= {f.name for f in measure_functions(("float64",), samples=2).functions}
""",
    "kernels": """
rng, sizes = np.random.default_rng(0), {"D": 3, "H": 5}
params = {"W": rng.uniform(-1, 1, (5, 3)), "U": rng.uniform(-1, 1, (5, 5)), "b": rng.uniform(-1, 1, 5)}
x, dy = rng.uniform(-2, 2, (4, 2, 3)), rng.uniform(-1, 1, (4, 2, 5))
graph = build(spec)
run = reference.forward(graph, params, {"x": x}, sizes=sizes)
right = reference.backward(adjoint(graph), params, {"x": x}, run, {"h": dy}, sizes=sizes)
for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-13)):
    kernel = rnnspec.compile(spec, dtype=dtype)
    cast = {n: v.astype(dtype) for n, v in params.items()}
    ours = kernel.forward(cast, {"x": x.astype(dtype)})
    gradients = kernel.backward(ours, {"h": dy.astype(dtype)})
    pairs = {"h": (ours.outputs["h"], run.outputs["h"]), "x": (gradients.inputs["x"], right.inputs["x"])}
    pairs |= {n: (gradients.params[n], right.params[n]) for n in params}
    for name, (found, expected) in pairs.items():
        np.testing.assert_allclose(found, expected, rtol=10 * tolerance, atol=10 * tolerance, err_msg=name)
""",
    "tangent": """
rng, sizes = np.random.default_rng(0), {"D": 3, "H": 5}
params = {"W": rng.uniform(-1, 1, (5, 3)), "U": rng.uniform(-1, 1, (5, 5)), "b": rng.uniform(-1, 1, 5)}
x, graph, step = rng.uniform(-2, 2, (4, 2, 3)), build(spec), 1e-6
up, down = (
    reference.forward(graph, params | {"b": params["b"] + s}, {"x": x}, sizes=sizes).outputs["h"] for s in (step, -step)
)
along = {f"tangent of {n}": np.full_like(v, n == "b") for n, v in params.items()}
inputs = {"x": x, "tangent of x": np.zeros_like(x)}
run = reference.forward(tangent(graph), params | along, inputs, sizes=sizes)
np.testing.assert_allclose(run.outputs["tangent of h"], (up - down) / (2 * step), atol=1e-8)
""",
    "show": """
from rnnspec.show.page import show
from rnnspec.show.stages import STAGES
assert all("new_rows" in show(spec, stage=stage) for stage in STAGES)
assert r"\\operatorname{mish}" in show(spec, latex=True) and "mish" in show(spec)
""",
    "diff": """
from rnnspec.compare.verdict import diff
written = TEXT.replace("name: new_rows", "name: written").replace("mish(", "a[t] * tanh(log1p(exp(a[t])))\\n  a[t] = (")
written = rnnspec.loads(written.replace("blend(g[t], h[t-1], 0.5)", "0.5 * g[t] + 0.5 * h[t-1]"))
assert (found := diff(spec, written)).same and found.how == "symbolically", found
assert not diff(spec, rnnspec.loads(TEXT.replace("mish", "silu"))).same
""",
    "probe": """
from rnnspec.probe.measure import probe
from rnnspec.probe.subject import complete
shapes = {"W": (5, 3), "U": (5, 5), "b": (5,)}
params = {n: np.random.default_rng(1).uniform(-1, 1, shape) for n, shape in shapes.items()}
found = probe(complete("new", spec, {"D": 3, "H": 5}, params, {"x": np.ones((6, 2, 3))}, (6, 2)))
assert found.gates == () and np.isfinite(found.norms).all()
""",
    "random specs": """
from rnnspec.check.random.run import check_text
from rnnspec.check.random.specs import random_spec
for name in ("mish", "blend"):
    texts = ((seed, random_spec(random.Random(seed), f"random_{seed}")) for seed in range(1000))
    seed, text = next((seed, text) for seed, text in texts if f"{name}(" in text)
    check_text(text, seed)
""",
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of its own: the table is no part of the keys of what is kept, its source is."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("use", USES)
def test_a_new_row_is_everywhere(use: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RNNSPEC_CACHE_DIR", str(cache))
    done = subprocess.run([sys.executable, "-c", NEW_ROWS + USES[use]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_what_follows_from_the_table() -> None:
    assert list(PRIMITIVES) == ["exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "erf", "tanh", "sigmoid"]
    assert sorted(SIGMOIDS) == ["hard_sigmoid", "sigmoid"] and sorted(SQUASHING - SIGMOIDS) == ["cumax"]
    assert {n for n, row in FUNCTIONS.items() if row.surrogate} == {
        "stop_gradient",
        "straight_through",
        "shifted",
        "unscaled",
        "rescaled",
        "mean_of",
    }
    assert FUNCTIONS["clip"].call("x[t]") == "clip(x[t], -0.5, 0.7)"


def test_every_primitive_has_code_in_every_backend() -> None:
    assert set(numbers.FLOAT64.primitives) == set(numbers.mpmath_numbers().primitives) == set(PRIMITIVES)
    assert set(vector_math.PRIMITIVES) == set(PRIMITIVES)
    assert set(cuda_text.FUNCTIONS) | WRITTEN_OUT == set(PRIMITIVES)
    assert {name for names in cuda_text.OWN.values() for name in names} <= set(cuda_text.FUNCTIONS)


@pytest.mark.parametrize("name", FEATURES)
def test_every_feature_has_a_shape_nodes_and_a_text(name: str) -> None:
    """Its row says what its arguments are; code by its name is in two rooms."""
    kinds = {"operand": "h[t-1]", "number": "0.1", "size": "H"}
    row = FEATURES[name]
    args = ["h[t-1]", "0", "H"] if name == "part" else [kinds[row.kind(k)] for k in range(len(row.args))]
    call = f"{name}({', '.join(args)})"
    value = call if name in ("sum", "mean", "max", "norm", "dot") else f"sum({call})"
    text = cell(f"h[t] = tanh(x[t] + h[t-1])\ny[t] = {value}", inputs="{x: H}", states="{h: H}", outputs="[y]")
    spec = loads(text)
    stages(spec)
    assert show(spec, latex=True) and show(spec)
