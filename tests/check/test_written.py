"""What is written is what is computed: kernels and graphs against the file's own operations, to the
bit, and the walk over the syntax trees that `check` compares them with."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from tiny import cell

import rnnspec
from rnnspec.backends import reference
from rnnspec.backends.numbers import COMPLEX128
from rnnspec.check.properties.written import kept_as_written
from rnnspec.check.run import Subjects, variants
from rnnspec.check.sampling import Shapes, draw
from rnnspec.check.subject import subject
from rnnspec.check.written import run_as_written
from rnnspec.language.load import load, loads
from rnnspec.symbolic import expressions, operations
from rnnspec.symbolic.build import build

# what is written -> the same in NumPy; f is the dtype
FORMS = {
    "3 * (x[t] - h[t-1])": lambda x, h, f: f(3) * (x - h),
    "(x[t] - h[t-1]) / 3": lambda x, h, f: (x - h) / f(3),
    "(x[t] - h[t-1]) * 0.1": lambda x, h, f: (x - h) * f(0.1),
    "1e30 * (x[t] - h[t-1])": lambda x, h, f: f(1e30) * (x - h),
    "(x[t] + 1e10) - 1e10": lambda x, h, f: (x + f(1e10)) - f(1e10),
    "x[t] + (1e10 - h[t-1])": lambda x, h, f: x + (f(1e10) - h),
    "x[t] * h[t-1] - x[t] * h[t-1]": lambda x, h, f: x * h - x * h,
    "x[t] * 1e20 * 1e20": lambda x, h, f: x * f(1e20) * f(1e20),
    "x[t] * 1e200 * 1e200 * 0": lambda x, h, f: x * f(1e200) * f(1e200) * f(0),
    "0 * x[t] + h[t-1]": lambda x, h, f: f(0) * x + h,
    "x[t] - x[t]": lambda x, h, f: x - x,
    "x[t] / x[t]": lambda x, h, f: x / x,
    "(x[t] ** 0.5) ** 2": lambda x, h, f: np.sqrt(x) * np.sqrt(x),
    "(x[t] ** 2) ** 0.5": lambda x, h, f: np.sqrt(x * x),
    "where(x[t] - x[t] == 0, 1, 2)": lambda x, h, f: np.where(x - x == 0, f(1), f(2)),
    "where(x[t] == x[t], 1, 2)": lambda x, h, f: np.where(x == x, f(1), f(2)),
    "1 / (x[t] + 0)": lambda x, h, f: f(1) / (x + f(0)),
    "1 / (0 - x[t])": lambda x, h, f: f(1) / (f(0) - x),
    "1 / -x[t]": lambda x, h, f: f(1) / -x,
    "-(x[t] - h[t-1])": lambda x, h, f: -(x - h),
    "x[t] / h[t-1] / h[t-1]": lambda x, h, f: x / h / h,
    "x[t] / (h[t-1] / x[t])": lambda x, h, f: x / (h / x),
    "2 * x[t] + 3 * x[t]": lambda x, h, f: f(2) * x + f(3) * x,
    "x[t] ** 2 / x[t]": lambda x, h, f: x * x / x,
}


def forms_cell() -> str:
    names = [f"y{n}" for n in range(len(FORMS))]
    equations = [f"{name}[t] = {form}" for name, form in zip(names, FORMS)]
    return cell("\n  ".join([*equations, "h[t] = x[t]"]), outputs=f"[{', '.join(names)}]")


def hard(dtype: type, ulp: float) -> tuple[np.ndarray, np.ndarray]:
    pool = np.array([0, -0.0, 1, 1 + ulp, 1 - ulp / 2, -1, 0.1, 3, 1e10, -1e10, 1e-10, np.inf, -np.inf, np.nan], dtype)
    x, h = np.meshgrid(pool, pool)
    return x.ravel(), h.ravel()


def assert_same_bits(found: np.ndarray, wanted: np.ndarray, form: str) -> None:
    """Equal values, zeros of the same sign too; every NaN is like every other."""
    wanted = np.broadcast_to(wanted, found.shape)
    np.testing.assert_array_equal(found, wanted, form)
    number = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(wanted[number]), form)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_compute_what_is_written_to_the_bit(dtype):
    kernel, f = rnnspec.compile(loads(forms_cell()), dtype=dtype, threads=1), np.dtype(dtype).type
    x, h = hard(f, float(np.finfo(dtype).eps))
    run = kernel.infer({}, {"x": x[None]}, {"h": h})
    with np.errstate(all="ignore"):
        for name, (form, wanted) in zip(run.outputs, FORMS.items()):
            assert_same_bits(run.outputs[name][0], wanted(x, h, f), form)


def test_the_walk_computes_what_is_written_to_the_bit():
    spec = loads(forms_cell())
    x, h = hard(np.float64, 2.0**-52)
    plain = loads(cell("h[t] = x[t]"))
    case = draw(plain, build(plain), Shapes(1, len(x), (1,)), 0)
    case.inputs["x"][:], case.states["h"][:] = x, h
    run = run_as_written(spec, case)
    with np.errstate(all="ignore"):
        for name, (form, wanted) in zip(run.outputs, FORMS.items()):
            assert_same_bits(run.outputs[name][0], wanted(x, h, np.float64), form)


# --- the property sees a rewriting


def distributed(a, b):
    """3 * (x - h) as 3 * x - 3 * h: SymPy's product of a number and a sum."""
    if a.is_Number and isinstance(b, operations.subtract):
        return operations.multiply(a, b.args[0]) - operations.multiply(a, b.args[1])
    return operations.multiply(a, b)


def cancelled(a, b):
    return operations.divide(a, b) if a != b else operations.sympy.S.One


REWRITINGS = {
    "a number multiplied into a difference": ("multiply", distributed, "3 * (x[t] - h[t-1])"),
    "0 times anything": ("multiply", lambda a, b: a if a == 0 else operations.multiply(a, b), "0 * x[t] + h[t-1]"),
    "x / x": ("divide", cancelled, "x[t] / x[t] + h[t-1]"),
    "x - x": (
        "subtract",
        lambda a, b: operations.subtract(a, b) if a != b else operations.sympy.S.Zero,
        "h[t-1] + (x[t] - x[t])",
    ),
    "terms in another order": (
        "add",
        lambda a, b: (
            operations.add(*sorted((a, b), key=str))
            if not isinstance(a, operations.add)
            else operations.add(a.args[0], operations.add(a.args[1], b))
        ),
        "x[t] + h[t-1] + 1e10",
    ),
}


@pytest.mark.parametrize("what", REWRITINGS)
def test_the_property_fails_where_an_equation_is_rewritten(what, monkeypatch):
    name, rewriting, equation = REWRITINGS[what]
    text = cell(f"h[t] = {equation}")
    assert kept_as_written(subject(loads(text))).passed
    original = expressions.binary

    def binary(op, a, b):
        wanted = {"*": "multiply", "/": "divide", "-": "subtract", "+": "add"}.get(op)
        return rewriting(a, b) if wanted == name else original(op, a, b)

    monkeypatch.setattr("rnnspec.symbolic.build.binary", binary)
    assert not kept_as_written(subject(loads(text))).passed


@pytest.mark.parametrize("name", ["lstm", "gru_concat", "slstm", "ei_rnn", "rhn", "lmu", "skip_rnn", "mlstm_matrix"])
def test_shipped_cells_are_computed_as_written(name):
    for variant in variants(name):
        outcome = kept_as_written(partial(Subjects(variant, 0), "reference")())
        assert outcome.passed, (variant.name, outcome)


def test_gradients_of_what_cancels_are_zeros_under_their_names():
    spec = loads(cell("h[t] = h[t-1] + (x[t] - x[t]) + 0 * y[t]", inputs="{x: [], y: []}"))
    kernel = rnnspec.compile(spec, dtype="float64", threads=1)
    run = kernel.forward({}, {"x": np.ones((2, 3)), "y": np.ones((2, 3))})
    gradients = kernel.backward(run, {"h": np.ones((2, 3))}).inputs
    assert {n: a.tolist() for n, a in gradients.items()} == {n: np.zeros((2, 3)).tolist() for n in ("x", "y")}


def test_a_constant_of_zero_leaves_every_gradient_its_name():
    kernel = rnnspec.compile(load("leaky_rnn", alpha=0), threads=1)
    params = kernel.init(D=2, H=3, seed=0)
    run = kernel.forward(params, {"x": np.ones((2, 1, 2), np.float32)})
    grad = kernel.backward(run, {"h": np.ones((2, 1, 3), np.float32)})
    assert set(grad.params) == set(params) and not grad.inputs["x"].any()


@pytest.mark.parametrize("exponent", ["-1.5", "-2", "-0.5", "0.75", "-3"])
def test_the_reference_has_powers_as_they_are_written(exponent):
    """To the bit: 1 / v**1.5 is not exp(-1.5 * log(v)), which shows where something cancels."""
    spec = loads(cell(f"h[t] = (1 + x[t] * x[t]) ** {exponent} - 1"))
    case = draw(spec, build(spec), Shapes(1, 400, (1,)), 0)
    run = reference.forward(build(spec), case.params, case.inputs, case.states, sizes=case.sizes, lead=case.lead)
    np.testing.assert_array_equal(run.outputs["h"], run_as_written(spec, case).outputs["h"])


def test_a_complex_step_takes_the_sides_that_numbers_take():
    """NumPy's 3 / 10 of complex numbers is more than 0.3, and a comparison would choose the other
    branch than that of the value."""
    spec = loads(cell("h[t] = where(t / 10 > 0.3, 5, 2) * x[t] + h[t-1] * where(1 / (t + 1) ** 2 >= 1 / 49, 1, 3)"))
    graph, x, step = build(spec), np.linspace(-1, 1, 60)[:, None], 1e-200
    real = reference.forward(graph, {}, {"x": x}, {}, sizes={})
    both = reference.forward(graph, {}, {"x": x + 1j * step}, {}, sizes={}, numbers=COMPLEX128)
    np.testing.assert_array_equal(both.outputs["h"].real, real.outputs["h"])
    ones = reference.forward(graph, {}, {"x": np.ones_like(x)}, {}, sizes={}).outputs["h"]
    np.testing.assert_allclose(both.outputs["h"].imag / step, ones, rtol=1e-13)
