"""`ltc` with a sparse wiring against the solver of its source, written here in plain NumPy: 16
inputs, 40 + 14 + 12 neurons, 300 steps; and against the ncps package, where that is installed."""

from __future__ import annotations

import numpy as np
import pytest
from cells import kernel

D, INTER, COMMAND, MOTOR, ROUNDS, STEPS = 16, 40, 14, 12, 6, 300
H = INTER + COMMAND + MOTOR
NEAR = 1e-5  # float32 after 300 steps that forget; asked for by the cell's users


def drawn(rng):
    """Weights in the ranges of Hasani et al. 2021, and which synapses there are: inputs to inter,
    inter to command, command to command and motor neurons (Lechner et al. 2020)."""
    inter, command = np.arange(INTER), np.arange(INTER, INTER + COMMAND)
    motor = np.arange(INTER + COMMAND, H)
    masks = np.zeros((H, H)), np.zeros((D, H))
    for mask, sources, targets, many in (
        (masks[1], np.arange(D), inter, 8),
        (masks[0], inter, command, 6),
        (masks[0], command, command, 3),
        (masks[0], command, motor, 5),
    ):
        for source in sources:
            mask[source, rng.choice(targets, many, replace=False)] = 1
    p = {"w_x": np.ones(D), "b_x": np.zeros(D), "w_y": np.ones(H), "b_y": np.zeros(H)}
    p |= {"g": rng.uniform(0.001, 1, H), "v_leak": rng.uniform(-0.2, 0.2, H), "c": rng.uniform(0.4, 0.6, H)}
    for suffix, shape in (("", (H, H)), ("_in", (D, H))):
        p |= {f"w{suffix}": rng.uniform(0.001, 1, shape), f"sigma{suffix}": rng.uniform(3, 8, shape)}
        p |= {f"mu{suffix}": rng.uniform(0.3, 0.8, shape), f"E{suffix}": rng.choice([-1.0, 1.0], shape)}
    return {n: np.asarray(a, np.float32) for n, a in p.items()}, masks


def solved(p, masks, x):
    """Equation 1 of the paper by its fused solver, `ROUNDS` rounds a step of length 1. x:
    [T, B, D]; returns [T, B, H]."""
    p, v, states = {n: a.astype(np.float64) for n, a in p.items()}, np.zeros((x.shape[1], H)), []

    def positive(a):
        return np.log1p(np.exp(a))

    def currents(before, mask, suffix):
        gate = 1 / (1 + np.exp(-p[f"sigma{suffix}"] * (before[:, :, None] - p[f"mu{suffix}"])))
        conductance = mask * positive(p[f"w{suffix}"]) * gate
        return (conductance * p[f"E{suffix}"]).sum(1), conductance.sum(1)

    capacity, leak = positive(p["c"]) * ROUNDS, positive(p["g"])
    for now in x.astype(np.float64):
        above_in, below_in = currents(now, masks[1], "_in")
        for _ in range(ROUNDS):
            above, below = currents(v, masks[0], "")
            v = (capacity * v + leak * p["v_leak"] + above + above_in) / (capacity + leak + below + below_in + 1e-8)
        states.append(v)
    return np.stack(states)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_wiring(rows):
    """A synapse that is not there has w = -inf: no conductance, and no gradient."""
    rng = np.random.default_rng(5)
    p, masks = drawn(rng)
    x = rng.standard_normal((STEPS, rows, D)).astype(np.float32)
    wired = {**p, **{n: np.where(m, p[n], np.float32(-np.inf)) for n, m in zip(("w", "w_in"), masks)}}
    k, inputs = kernel("ltc", "float32", L=ROUNDS), {"x": x, "dt": np.ones((STEPS, rows), np.float32)}
    right = solved(p, masks, x)
    run = k.forward(wired, inputs)
    assert np.abs(run.outputs["h"] - right).max() < NEAR
    assert np.abs(k.infer(wired, inputs).outputs["h"] - right).max() < NEAR
    if rows == 1:
        found = k.backward(run, {"h": np.ones_like(run.outputs["h"])}).params
        assert all(np.isfinite(a).all() for a in found.values())
        for n, mask in zip(("w", "w_in"), masks):
            assert (found[n][mask == 0] == 0).all() and (found[n][mask == 1] != 0).any()


def test_ncps_itself():
    pytest.importorskip("torch")
    pytest.importorskip("ncps")
    import torch

    from bench.ltc import calls, layer

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal((STEPS, 1, n)).astype(np.float32) for n in (D, MOTOR))
    for theirs, ours in calls(layer(), kernel("ltc", "float32", L=ROUNDS), x, dy).values():
        right, found = theirs(), ours()
        for name, array in right.items():
            assert np.abs(found[name] - array).max() < NEAR * max(1, np.abs(array).max()), name
