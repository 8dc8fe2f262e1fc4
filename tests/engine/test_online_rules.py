"""Rules by which a stream learns, each beside its paper: SnAp's patterns, RFLO's leaky units,
e-prop's eligibility traces, UORO's mean; and the cells for which a rule is refused."""

from __future__ import annotations

import numpy as np
import pytest
from cells import Case, case, kernel
from test_online import assert_near, learned, started, summed

from rnnspec.engine.dense import Dense, Flat
from rnnspec.engine.frozen import Sizes
from rnnspec.engine.patterns import pattern
from rnnspec.errors import UnsupportedError

# Bellec et al. leave the gradient of the reset out, which the shipped cells have
LIF = """
rnnspec: 1
name: lif_of_eprop
extends: lif
equations: |
  v[t] = alpha * v[t-1] + W @ x[t] + R @ s[t-1] - v_th * stop_gradient(s[t-1])
"""
ALIF = LIF.replace("lif", "alif")
GAMMA, ALPHA, RHO, BETA = 0.3, 0.95, 0.995, 0.2


def test_snap1_by_units_is_the_masked_matrix():
    """What is derived of units is SnAp's definition: J P + M where M can be other than 0."""
    one = case(kernel("lstm"), 5, 1)
    flat = Flat(one.kernel.cell, ["h", "c"], Sizes(one.sizes))
    kept = pattern(one.kernel.lifted.spec, flat, Sizes(one.sizes), 1)
    whole, stream = Dense(one.kernel, flat, 1, kept), started(one, rule="snap1")
    whole.use(one.kernel.pack(one.params))
    assert stream.by_units and kept.sum() < 2 * flat.numbers
    for t in range(5):
        now = {"x": one.inputs["x"][t]}
        whole.step(now, dict(stream.states))
        stream.step(now)
        flow = {"h": one.dy["h"][t]}
        assert_near(stream.learn(flow), whole.gradients(flow, {}), f"step {t}")


def test_snap2_of_a_full_pattern_is_exact():
    """In two steps every unit of a simple network reaches every other."""
    one = case(kernel("rnn"), 6, 2)
    flat = Flat(one.kernel.cell, ["h"], Sizes(one.sizes))
    assert pattern(one.kernel.lifted.spec, flat, Sizes(one.sizes), 2).all()
    stream = started(one, rule="snap2")
    assert not stream.by_units
    assert_near(summed(learned(one, stream)), one.kernel.backward(one.forward(), one.dy).params)


@pytest.mark.parametrize("rule", ["rflo", "eprop"])
def test_a_leaky_network_as_in_murray(rule):
    """P_ij' = (1 - a) P_ij + a phi'(u_i) r_j, and the gradient is d_i P_ij. For leaky units e-prop
    is the same."""
    one = case(kernel("leaky_rnn"), 7, 1)
    found = learned(one, started(one, rule=rule))
    h, x, a = one.states["h"][0], one.inputs["x"][:, 0], 0.2
    trace = {"U": 0.0, "W": 0.0, "b": 0.0}
    for t in range(7):
        u = one.params["W"] @ x[t] + one.params["U"] @ h + one.params["b"]
        slope = a * (1 - np.tanh(u) ** 2)
        made = {"U": np.outer(slope, h), "W": np.outer(slope, x[t]), "b": slope}
        trace = {n: (1 - a) * trace[n] + made[n] for n in trace}
        h, d = (1 - a) * h + a * np.tanh(u), one.dy["h"][t, 0]
        assert_near(found[t], {n: (d * p.T).T for n, p in trace.items()}, f"step {t}")


def spiking(text: str) -> tuple[Case, list[dict[str, np.ndarray]]]:
    one = case(kernel(text), 12, 1, D=3, H=4)
    one.inputs["x"] *= 3
    return one, learned(one, started(one, rule="eprop"))


def traces(one: Case, beta: float) -> list[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Spikes and eligibility traces of each step, by the equations of Bellec et al. 2020: of LIF
    (22) and, with adaptation, of ALIF (24, 25)."""
    v, s, a = (one.states[n][0] if n in one.states else np.zeros(4) for n in ("v", "s", "a"))
    filtered, adapted, found = {"W": 0.0, "R": 0.0}, {"W": 0.0, "R": 0.0}, []
    for x in one.inputs["x"][:, 0]:
        psi_before = GAMMA * np.maximum(0, 1 - np.abs(v - 1 - beta * a)) if found else 0 * v
        v, z, a = ALPHA * v + one.params["W"] @ x + one.params["R"] @ s - s, s, RHO * a + s
        s = np.where(v - 1 - beta * a > 0, 1.0, 0.0)
        psi = GAMMA * np.maximum(0, 1 - np.abs(v - 1 - beta * a))
        before = psi_before[:, None]
        adapted = {n: before * filtered[n] + (RHO - before * beta) * adapted[n] for n in adapted}
        filtered = {n: ALPHA * filtered[n] + np.outer(np.ones(4), pre) for n, pre in {"W": x, "R": z}.items()}
        found.append((s, {n: psi[:, None] * (filtered[n] - beta * adapted[n]) for n in filtered}))
    return found


@pytest.mark.parametrize(("text", "beta"), [(LIF, 0.0), (ALIF, BETA)], ids=["LIF", "ALIF"])
def test_spiking_neurons_as_in_bellec(text, beta):
    """The gradient is the learning signal times psi_j times the filtered spikes, less beta times
    the trace of the adaptation."""
    one, found = spiking(text)
    expected = traces(one, beta)
    assert 0 < np.mean([s for s, _ in expected]) < 1
    for t, (_, trace) in enumerate(expected):
        assert_near(found[t], {n: one.dy["s"][t, 0][:, None] * p for n, p in trace.items()}, f"step {t}")


def test_cells_that_a_rule_is_not_for_are_refused():
    one = case(kernel("gru_reset_before"), 1, 1)
    with pytest.raises(UnsupportedError, match=r"Murray 2019.*a factor that is the same at every step.*'eprop'"):
        gru = kernel("gru")
        gru.online(gru.init(D=2, H=3), rule="rflo")
    with pytest.raises(UnsupportedError, match=r"Bellec et al. 2020.*takes what parameters do to one unit to all"):
        started(one, rule="eprop")


@pytest.mark.slow
def test_the_mean_of_uoro_is_exact():
    """10,000 draws: rows that see the same, each with signs of its own."""
    draws, blocks = 10_000, 100
    one = case(kernel("rnn"), 4, 1, D=2, H=3)
    exact = learned(one, started(one))[-1]
    stream = one.kernel.online(one.params, {"h": np.repeat(one.states["h"], draws, 0)}, rule="uoro", rows=draws)
    for x in one.inputs["x"]:
        stream.step({"x": np.repeat(x, draws, 0)})
    means = []
    for block in np.split(np.arange(draws), blocks):
        flow = np.zeros((draws, 3))
        flow[block] = one.dy["h"][-1, 0] / len(block)
        means.append(np.concatenate([a.ravel() for a in stream.learn({"h": flow}).values()]))
    truth = np.concatenate([exact[n].ravel() for n in one.kernel.spec.trained])
    error = np.std(means, axis=0, ddof=1) / np.sqrt(blocks)
    off = np.abs(np.mean(means, axis=0) - truth) / error
    assert off.max() < 4 and np.mean(off < 1) > 0.4  # of 18 numbers, 12 are expected within one
    assert np.all(error > 0)
