"""Cells with regularisers as plain NumPy loops: written from the papers, sharing nothing with the
engine.

A step takes parameters, inputs and noise of this step, and the states before it; noise that a cell
has not is neutral (`get` of its neutral value), so that one step serves every transform. Complex
numbers go through, for derivatives by a complex step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

Array = np.ndarray
Values = Mapping[str, Array]
LIMIT = 0.4  # of the clips


def sigmoid(v: Array) -> Array:
    return 1 / (1 + np.exp(-v))


def clip(v: Array) -> Array:
    return np.where(np.real(v) > LIMIT, LIMIT, np.where(np.real(v) < -LIMIT, -LIMIT, v))


def _matrix(p: Values, m: Values, name: str) -> Array:
    """A recurrent matrix under DropConnect, to be multiplied from the right: [K, H]."""
    return (p[name] * m.get(f"mask_{name}", 1.0)).T


def _kept(m: Values, name: str, old: Array, new: Array) -> Array:
    """Noise, then zoneout, of a state."""
    noisy = new + m.get(f"noise_{name}", 0.0)
    keep = m.get(f"keep_{name}", 0.0)
    return keep * old + (1 - keep) * noisy


def _gates(p: Values, m: Values, names: str, x: Array, h: Array) -> dict[str, Array]:
    return {k: x @ p[f"W_{k}"].T + h @ _matrix(p, m, f"U_{k}") + p[f"b_{k}"] for k in names}


def lstm(p: Values, m: Values, s: Values, clipped: bool) -> dict[str, Array]:
    """h sees the cell before zoneout (Krueger et al. 2017, equation 3); a clipped cell is what h
    sees and what is carried."""
    h, c = s["h"], s["c"]
    a = _gates(p, m, "ifgo", m["x"] * m.get("mask_x", 1.0), h * m.get("mask_h", 1.0))
    new = sigmoid(a["f"]) * c + sigmoid(a["i"]) * (m.get("mask_g", 1.0) * np.tanh(a["g"]))
    new = (clip(new) if clipped else new) + m.get("noise_c", 0.0)
    out = sigmoid(a["o"]) * np.tanh(new)
    if "W_hr" in p:
        out = out @ p["W_hr"].T
        out = clip(out) if clipped else out
    keep = m.get("keep_c", 0.0)
    return {"h": _kept(m, "h", h, out), "c": keep * c + (1 - keep) * new}


def gru(p: Values, m: Values, s: Values, clipped: bool) -> dict[str, Array]:
    x, h = m["x"] * m.get("mask_x", 1.0), s["h"]
    seen = h * m.get("mask_h", 1.0)
    r, z = (sigmoid(x @ p[f"W_{k}"].T + seen @ _matrix(p, m, f"U_{k}") + p[f"b_{k}"]) for k in "rz")
    n = np.tanh(x @ p["W_n"].T + p["b_n"] + r * (seen @ _matrix(p, m, "U_n") + p["c_n"])) * m.get("mask_n", 1.0)
    new = (1 - z) * n + z * h
    return {"h": _kept(m, "h", h, clip(new) if clipped else new)}


def gru_reset_before(p: Values, m: Values, s: Values, clipped: bool) -> dict[str, Array]:
    x, h = m["x"] * m.get("mask_x", 1.0), s["h"]
    seen = h * m.get("mask_h", 1.0)
    r, z = (sigmoid(x @ p[f"W_{k}"].T + seen @ _matrix(p, m, f"U_{k}") + p[f"b_{k}"]) for k in "rz")
    n = np.tanh(x @ p["W_n"].T + (r * seen) @ _matrix(p, m, "U_n") + p["b_n"]) * m.get("mask_n", 1.0)
    new = (1 - z) * n + z * h
    return {"h": _kept(m, "h", h, clip(new) if clipped else new)}


def rnn(p: Values, m: Values, s: Values, clipped: bool) -> dict[str, Array]:
    new = np.tanh(
        m["x"] * m.get("mask_x", 1.0) @ p["W"].T + s["h"] * m.get("mask_h", 1.0) @ _matrix(p, m, "U") + p["b"]
    )
    return {"h": _kept(m, "h", s["h"], clip(new) if clipped else new)}


def elman_two_layer(p: Values, m: Values, s: Values, clipped: bool) -> dict[str, Array]:
    """Two layers in one step: the second sees the first before zoneout, the output layer sees what
    was kept."""
    one = np.tanh(
        m["x"] * m.get("mask_x", 1.0) @ p["U1"].T + s["h1"] * m.get("mask_h1", 1.0) @ _matrix(p, m, "W1") + p["b1"]
    )
    one = (clip(one) if clipped else one) + m.get("noise_h1", 0.0)
    two = np.tanh(one @ p["U2"].T + s["h2"] * m.get("mask_h2", 1.0) @ _matrix(p, m, "W2") + p["b2"]) + m.get(
        "noise_h2", 0.0
    )
    kept = {
        n: m.get(f"keep_{n}", 0.0) * s[n] + (1 - m.get(f"keep_{n}", 0.0)) * v for n, v in (("h1", one), ("h2", two))
    }
    return kept | {"y": np.tanh(kept["h2"] @ p["V"].T + p["b3"])}


STEPS: dict[str, Callable[..., dict[str, Array]]] = {
    "lstm": lstm,
    "lstm_projected": lstm,
    "gru": gru,
    "gru_reset_before": gru_reset_before,
    "rnn": rnn,
    "elman_two_layer": elman_two_layer,
}


def run(
    name: str, params: Values, inputs: Values, states: Values, clipped: bool = False
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Everything a step gives, [T, B, ...], and the states after the last. params and inputs have
    the noise among them."""
    state, history = dict(states), []
    masks = {n: a for n, a in params.items() if n.startswith("mask_")}
    for t in range(inputs["x"].shape[0]):
        values = STEPS[name](params, masks | {n: a[t] for n, a in inputs.items()}, state, clipped)
        state = {n: values[n] for n in state}
        history.append(values)
    return {n: np.stack([v[n] for v in history]) for n in history[0]}, state
