"""`rnnspec check --accuracy`: errors against 50 digits, of cells and of the elementwise
functions."""

from __future__ import annotations

import json
import math

import mpmath
import numpy as np
import pytest
from tiny import cell

from rnnspec.check.accuracy import functions
from rnnspec.check.accuracy.cells import distances, measure, measure_cells, spacing
from rnnspec.check.accuracy.functions import GOAL, SPECIAL, arguments, exact, held_to, measure_functions, ulps
from rnnspec.check.subject import subject, with_kernel
from rnnspec.commands.cli import main
from rnnspec.engine.kernel import Kernel
from rnnspec.language.functions import FUNCTIONS, INTERNAL
from rnnspec.language.load import load, loads


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_units_in_the_last_place(dtype):
    values = np.array(
        [1.0, 1.5, 2.0, 1000.1, 1e-3, float(np.finfo(dtype).smallest_subnormal), float(np.finfo(dtype).max) / 4]
    )
    assert spacing(values, dtype).tolist() == [float(np.spacing(np.asarray(v, dtype))) for v in values.tolist()]
    assert spacing(np.zeros(1), dtype)[0] == float(np.finfo(dtype).smallest_subnormal)


def test_distances_are_exact():
    assert distances(np.array([0.1]), np.array([mpmath.mpf("0.1")], object))[0] == 0
    with mpmath.workdps(50):
        gap = distances(np.array([0.1]), np.array([mpmath.mpf(1) / 10], object))[0]
    assert gap == pytest.approx(5.5511151231257827e-18, rel=1e-12)


def test_the_errors_of_a_cell():
    found = {m.dtype: m for m in measure_cells(["rnn"]).measurements}
    for dtype, unit in (("float32", 2.0**-24), ("float64", 2.0**-53)):
        m = found[dtype]
        for errors in (m.values, m.gradients):
            assert 0 < errors.ulp[1] < 4 and errors.ulp[0] >= errors.ulp[1] and errors.count > 100
            assert unit / 8 < errors.of_largest[0] < 20 * unit and errors.relative[1] < 8 * unit
    text = measure_cells(["rnn"], dtypes=("float64",)).to_text().splitlines()
    assert len(text) == 3 and text[1].startswith("rnn                     float64  values")


def test_an_error_shows(monkeypatch):
    known = with_kernel(subject(load("rnn")), "float64")
    right, plain = measure(known), Kernel.forward

    def off(self, params, inputs, states=None, lengths=None, **given):
        run = plain(self, params, inputs, states, lengths, **given)
        run.outputs["h"] *= 1 + 1e-12
        return run

    monkeypatch.setattr(Kernel, "forward", off)
    wrong = measure(known)
    assert wrong.values.ulp[1] > 1000 > right.values.ulp[1] and wrong.values.relative[1] == pytest.approx(
        1e-12, rel=1e-2
    )
    assert wrong.values.where == "output h" and wrong.gradients == right.gradients


def test_what_can_not_be_measured_says_why():
    spec = loads(cell("h[t] = x[t] / 0.0000001**40 / 0.0000001**40 * h[t-1] / 0.0000001**40", name="huge"))
    report = measure_cells([spec], dtypes=("float64",))
    assert "no point found" in report.measurements[0].skipped and "skipped: no point" in report.to_text()


# --- functions ---


@pytest.fixture(scope="module")
def report():
    return measure_functions(samples=40)


def test_every_function_is_measured(report):
    assert {(f.name, f.dtype) for f in report.functions} == {
        (n, d) for n in set(FUNCTIONS) - INTERNAL for d in ("float32", "float64")
    }
    assert all(row.limits for row in FUNCTIONS.values() if not row.internal) and len(SPECIAL) == 5


def test_the_six_functions_are_within_four_units(report):
    held = [f for f in report.functions if f.name in held_to()]
    assert len(held) == 12 and report.passed
    for f in held:
        assert f.ulp[0] <= GOAL and f.subnormal <= GOAL and not f.special, f
        assert f.ulp[1] < 0.5 and f.count > 100, f


# What the others have, stated: 1 + erf(v) and sigmoid(v) of very negative v have few digits left,
# slope * v + 1/2 cancels near its zero.
STATED = {"gelu": math.inf, "silu": 400.0, "hard_sigmoid": 40.0}


def test_the_others_are_as_accurate_as_stated(report):
    for f in report.functions:
        assert f.ulp[0] <= STATED.get(f.name, GOAL), f
    odd = {(f.name, s) for f in report.functions for s in f.special}
    assert odd == {
        ("softsign", "-inf gives nan, limit -1"),
        ("softsign", "inf gives nan, limit 1"),
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arguments_are_everywhere(dtype):
    x, info = arguments(dtype, 300), np.finfo(dtype)
    assert x.dtype == dtype and np.isfinite(x).all()
    assert (np.abs(x) < info.smallest_normal).sum() > 10 and np.abs(x).max() > info.max / 1e4 and (x < 0).any()


def test_overflow_and_nan_count(report):
    info = np.finfo("float32")
    beyond, last = mpmath.mpf(2) ** 128, mpmath.mpf(float(info.max))
    found = np.array([np.inf, info.max, np.inf, np.nan, -np.inf, 1.0], "float32")
    errors, small = ulps(
        found, np.array([beyond, beyond, last, mpmath.mpf(1), beyond, mpmath.mpf(1)], object), "float32"
    )
    assert errors.tolist() == [0, math.inf, math.inf, math.inf, math.inf, 0] and not small.any()


def test_errors_of_subnormals_are_not_rounded_away():
    """The difference itself is below the smallest float64."""
    least = np.finfo("float64").smallest_subnormal
    errors, small = ulps(np.array([least]), np.array([mpmath.mpf(float(least)) * 1.4], object), "float64")
    assert errors[0] == pytest.approx(0.4) and small.all()


def test_the_definition_keeps_its_digits():
    """1 + erf(v) would have none left; the form of the tail has those of its coefficients."""
    with mpmath.workdps(60):
        value = exact("gelu", np.array([-37.0]))[0]
        wanted = mpmath.mpf(-37) / 2 * mpmath.erfc(mpmath.mpf(37) / mpmath.sqrt(2))
        assert abs(value / wanted - 1) < 1e-15


def test_a_wrong_function_fails():
    def wrong_erf(dtype, values):
        results = functions.run_kernel(dtype, values)
        return results | {"erf": results["erf"] * (1 + 8 * np.finfo(dtype).eps)}

    found = measure_functions(("float64",), samples=10, run=wrong_erf)
    assert not found.passed and [f.name for f in found.functions if not f.passed] == ["erf"]
    assert "erf" in next(line for line in found.to_text().splitlines() if line.endswith("FAILED"))
    assert json.loads(found.to_json())["passed"] is False


def test_the_commands(monkeypatch, capsys):
    assert main(["check", "rnn", "--accuracy", "--json"]) == 0
    assert [m["dtype"] for m in json.loads(capsys.readouterr().out)["cells"]] == ["float32", "float64"]
    monkeypatch.setattr(functions.measure_functions, "__defaults__", (("float64",), 10, None, None, None))
    assert main(["check", "--accuracy", "--functions"]) == 0
    assert "at most 4 units: exp, log, erf, tanh, sigmoid, softplus" in capsys.readouterr().out
