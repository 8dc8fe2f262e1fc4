"""Weights obey their constraints exactly: from the start, and after every update."""

from __future__ import annotations

import numpy as np
import pytest
from constrained_cells import EVERY, not_obeyed
from tiny import cell

import rnnspec
from rnnspec.check.run import check_cells
from rnnspec.engine import constrain
from rnnspec.engine.constrain import begun, broken, projected, spectral_radius
from rnnspec.engine.initialise import initialise
from rnnspec.language.constraints import Constraint
from rnnspec.language.load import load, loads
from rnnspec.train.optimise import Adam

SQUARE = np.array([[0.5, -0.25, 0.0], [-1.0, 2.0, -3.0], [0.1, 0.2, -0.3]])


def one(text: str, value: np.ndarray = SQUARE, **given: np.ndarray) -> np.ndarray:
    kind, _, args = text.partition("(")
    parts = [a.strip() for a in args.rstrip(")").split(",")] if args else []
    held = Constraint(kind, tuple(a if a in given else float(a) for a in parts))
    return projected((held,), "U", value, given)


def test_projections_worked_by_hand():
    np.testing.assert_array_equal(one("nonnegative"), [[0.5, 0, 0], [0, 2, 0], [0.1, 0.2, 0]])
    np.testing.assert_array_equal(one("no_self"), [[0, -0.25, 0], [-1, 0, -3], [0.1, 0.2, 0]])
    np.testing.assert_array_equal(one("bounded(-1, 1)"), np.clip(SQUARE, -1, 1))
    np.testing.assert_array_equal(one("mask(M)", M=np.eye(3)), np.diag([0.5, 2, -0.3]))
    signs = one("sign(d)", d=np.array([2.0, -0.5, 0.0]))
    np.testing.assert_array_equal(signs, [[0.5, -0.25, 0], [0, 0, 0], [0.1, 0, 0]])
    np.testing.assert_array_equal(one("dale(0.6)"), [[0.5, 0, 0], [0, 2, -3], [0.1, 0.2, -0.3]])
    np.testing.assert_allclose(one("norm(1)")[1], SQUARE[1] / np.sqrt(14), rtol=1e-15)
    np.testing.assert_array_equal(one("norm(1)")[[0, 2]], SQUARE[[0, 2]])
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    np.testing.assert_allclose(one("orthogonal", 3 * turn), turn, atol=1e-15)
    np.testing.assert_allclose(one("spectral_radius(1)", 4 * turn), turn, rtol=1e-14)
    kept = one("density(0.67)") != 0
    assert (kept.sum(axis=1) <= 2).all()
    deep = np.stack([SQUARE, 3 * SQUARE])
    np.testing.assert_array_equal(one("spectral_radius(1)", deep)[0], one("spectral_radius(1)", SQUARE))
    assert one("norm(1)", np.zeros((0, 3))).shape == (0, 3)
    assert one("orthogonal", np.zeros((0, 0))).shape == (0, 0)


def test_a_limit_that_float32_does_not_have_is_rounded_inwards():
    value = one("bounded(-0.1, 0.1)", np.array([1.0, -1.0], np.float32))
    assert (np.float64(value) <= 0.1).all() and (np.float64(value) >= -0.1).all()
    assert (abs(np.float64(value)) > 0.1 - 1e-8).all()


def test_numbers_that_are_not_finite_stay_and_nothing_fails():
    value = np.array([[np.nan, 1.0], [2.0, np.inf]])
    for text in ("norm(1)", "spectral_radius(1)", "orthogonal"):
        np.testing.assert_array_equal(one(text, value), value)
    np.testing.assert_array_equal(one("bounded(0, 1)", value), [[np.nan, 1], [1, 1]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_initial_values_obey_are_balanced_and_have_the_radius_asked_for(dtype):
    spec = loads(EVERY)
    for size in (1, 2, 7, 16):
        params = initialise(spec, {"D": 3, "H": size}, 5, np.dtype(dtype))
        assert not_obeyed(spec, params) == []
        for name, radius in {"S": 0.9, "K": 0.5, "C": 0.8}.items():
            found = spectral_radius(params[name])
            assert found == pytest.approx(radius, rel=1e-2) or (size < 3 and found == 0)
        for name in ("B", "C"):
            row = params[name].astype(np.float64)
            both = (row > 0).any(axis=1) & (row < 0).any(axis=1)
            assert abs(row.sum(axis=1))[both].max(initial=0) < 1e-6
    assert len(np.unique(params["P"])) > 200  # folded, and not all at a limit
    other = initialise(spec, {"D": 3, "H": 16}, 5, np.dtype("float64"))
    assert all(np.allclose(params[n], other[n], atol=1e-6) for n in params)


def test_every_constraint_holds_after_each_of_1000_updates_with_adam():
    spec = loads(EVERY)
    layer = rnnspec.Recurrent(spec, 3, 5, seed=1)
    optimiser, rng = Adam(0.05), np.random.default_rng(0)
    state, held = optimiser.init(layer.params), {n: a.copy() for n, a in layer.fixed.items()}
    x, moved = rng.normal(size=(4, 2, 3)).astype(np.float32), 0
    for step in range(1000):
        if step % 50 == 0:
            y, _ = layer(x)
            layer.backward(rng.normal(size=y.shape).astype(np.float32))
        grads = {n: g + rng.normal(size=g.shape).astype(np.float32) for n, g in layer.grads.items()}
        optimiser.step(layer.params, grads, state)
        params = {n.removesuffix("_l0"): a for n, a in layer.weights.items()}
        moved += len(not_obeyed(spec, params)) > 0
        layer.constrain()
        assert not_obeyed(spec, params) == [], step
    assert moved > 900  # most updates broke something
    assert all((layer.fixed[n] == a).all() for n, a in held.items())


def test_what_breaks_a_constraint_is_seen_by_check(monkeypatch):
    spec = loads(cell("h[t] = tanh(W @ x[t] + U @ h[t-1])", inputs="{x: D}", states="{h: H}",
                      parameters="{W: [H, D], U: [H, H]}", constrain="{U: [norm(0.5), no_self]}"))  # fmt: skip
    (found,) = check_cells([spec], properties=["constraints"]).cells[0].results
    assert found.passed and not found.skipped
    monkeypatch.setitem(constrain.SCALED, "norm", lambda value, c: value * np.float32(0.999))
    (found,) = check_cells([spec], properties=["constraints"]).cells[0].results
    assert not found.passed
    (skipped,) = check_cells([load("lstm")], properties=["constraints"]).cells[0].results
    assert skipped.skipped


def test_a_kernels_weights_are_made_to_obey_and_others_are_left():
    kernel = rnnspec.compile(loads(EVERY))
    params = kernel.init(D=3, H=5)
    assert all(kernel.constrain(params)[n] is params[n] for n in params)
    bad = {**params, "A": params["A"] + 1, "M": np.eye(5, dtype=np.float32)}
    kept = kernel.constrain(bad)
    assert not_obeyed(kernel.spec, kept) == [] and kept["B"] is bad["B"] and (kept["A"] != bad["A"]).any()
    with pytest.raises(rnnspec.ShapeError, match="V"):
        kernel.constrain({n: a for n, a in params.items() if n != "V"})
    held = kernel.spec.constraints["A"]
    assert broken(held, "A", bad["A"], bad) == "mask(M)" and broken(held, "A", kept["A"], kept) == ""


def test_dale_rnn_is_ei_rnn():
    """With R the old (abs(R) * M) @ diag(d): the same numbers, and the old gradient of R is the new
    one times what is multiplied into it."""
    old, new = (rnnspec.compile(load(name), dtype="float64") for name in ("ei_rnn", "dale_rnn"))
    rng = np.random.default_rng(2)
    p = old.init(D=3, H=10, seed=4)
    p |= {"M": np.float64(rng.random((10, 10)) < 0.6) * (1 - np.eye(10)), "d": np.where(np.arange(10) < 8, 1.0, -4.0)}
    whole = np.abs(p["R"]) * p["M"] * p["d"]
    q = {"W": p["W"], "b": p["b"], "R": whole}
    inputs, d_y = {"x": rng.normal(size=(6, 4, 3))}, rng.normal(size=(6, 4, 10))
    runs = [k.forward(w, inputs, noise=3) for k, w in ((old, p), (new, q))]
    np.testing.assert_array_equal(runs[0].outputs["y"], runs[1].outputs["y"])
    grads = [k.backward(r, {"y": d_y}) for k, r in zip((old, new), runs)]
    for name in ("W", "b"):
        np.testing.assert_allclose(grads[0].params[name], grads[1].params[name], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(
        grads[0].params["R"], grads[1].params["R"] * p["M"] * p["d"] * np.sign(p["R"]), rtol=1e-12, atol=1e-13
    )
    held = new.spec.constraints["R"][:-1]  # without the spectral radius, the old one is one that obeys
    assert broken(held, "R", whole, q) == ""
    assert begun(held, "R", whole, q).shape == (10, 10)
