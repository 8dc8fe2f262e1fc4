"""The functions of the language in CUDA kernels, run in the interpreter, against numbers of higher
precision.

The interpreter rounds what a GPU only approximates (ex2.approx, rcp.approx), so this shows what the
formulas around them are worth.
"""

from __future__ import annotations

import numpy as np
import pytest
from cuda_sources import faults, ptx_of, stage_kernels
from emulated import assert_clean, gpu, needs_compiler
from function_samples import DTYPES, SPECIAL, errors, samples
from tiny import cell

import rnnspec
from rnnspec.backends.cpu.runtime.vector_math import PRIMITIVES
from rnnspec.lowering.pipeline import stages

needs_compiler()
# units in the last place. exp to tanh are NVIDIA's (its table, CUDA C++ programming guide: 2 at
# most, double erf too), sigmoid is a quotient
# of it, sin and cos of float32 are ours, with the bound of the CPU's
ULP = {"sigmoid": 3.0, "erf": 2.5, "sin": 1.1, "cos": 1.1, "sqrt": 0.5} | dict.fromkeys(
    ("exp", "expm1", "log", "log1p", "tanh"), 2.0
)
WRITTEN = ("exp", "log", "tanh", "sin", "cos", "erf", "expm1", "log1p", "sqrt", "sigmoid")
CALLS = (
    "sin",
    "cos",
)  # in float64 NVIDIA's, which call a function for large arguments, and the interpreter knows no calls
STEP = {"f32": 29, "f64": 3}  # of so many sampled numbers one is tried


def spec_of(name: str) -> rnnspec.Spec:
    return rnnspec.loads(
        cell(
            f"y[t] = {name}(x[t])\nh[t] = 0.5 * h[t-1]",
            name=name,
            inputs="{x: H}",
            states="{h: H}",
            parameters="{}",
            outputs="[y]",
        )
    )


def run(name: str, x: np.ndarray) -> np.ndarray:
    with gpu() as library:
        kernel = rnnspec.compile(spec_of(name), dtype=x.dtype.name, backend="cuda")
        found = kernel.infer({}, {"x": x.reshape(1, -1, 1)}).outputs["y"].reshape(-1)
        assert_clean(library)
    return found


def test_every_primitive_is_tried():
    assert set(WRITTEN) == set(PRIMITIVES) == set(ULP)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        *(("f32", n) for n in WRITTEN),
        *(pytest.param("f64", n, marks=pytest.mark.slow) for n in WRITTEN if n not in CALLS),
    ],
)
def test_last_place(key, name):
    x = samples(key, name)[:: STEP[key]]
    if name == "sigmoid":
        x = x[x > np.log(np.finfo(DTYPES[key]).tiny)]  # 1 / (1 + exp(-v)) is 0 where it should be subnormal
    special, want = np.array([*SPECIAL[name], (np.nan, np.nan)], DTYPES[key]).T
    found = run(name, np.concatenate([x, special]))
    np.testing.assert_array_equal(found[len(x) :], want)
    np.testing.assert_array_equal(np.signbit(found[len(x) :])[want == 0], np.signbit(want)[want == 0])
    error = errors(key, name, x, found[: len(x)])
    worst = int(error.argmax())
    assert error[worst] <= ULP[name], f"{name}({x[worst]!r}) is wrong by {error[worst]:.2f} units"


@pytest.mark.parametrize("name", WRITTEN)
def test_float32_functions_need_no_float64_and_no_local_memory(name):
    made = stages(spec_of(name))
    texts = [ptx_of(source) for program in (made.infer, made.backward) for source in stage_kernels(program, "float32")]
    assert texts and not [fault for text in texts for fault in faults(text, "float32")]
