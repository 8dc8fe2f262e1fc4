"""Plain NumPy step functions of the cells in tests/specs, and of some that moved from there to
specs: written from the papers, in another form than the YAML where that is easy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

Array = np.ndarray
Arrays = dict[str, Array]
Step = Callable[
    [Mapping[str, Array], Array, Arrays, list[Array], list[Arrays]], Arrays
]  # parameters, x, state before, all x, all states -> state


def sigmoid(v: Array) -> Array:
    return 1 / (1 + np.exp(-v))


def softmax(v: Array) -> Array:
    return np.exp(v) / np.exp(v).sum()


def normed(v: Array, eps: float = 1e-5) -> Array:
    return (v - v.mean()) / np.sqrt(v.var() + eps)


def ln_lstm_haste(p, x, s, xs, before):
    i, g, f, o = np.split(normed(p["W"] @ x) * p["g_x"] + normed(p["U"] @ s["h"]) * p["g_h"] + p["b"], 4)
    c = sigmoid(f) * s["c"] + sigmoid(i) * np.tanh(g)
    return {"h": sigmoid(o) * np.tanh(normed(c) * p["g_c"] + p["b_c"]), "c": c}


def rhn(p, x, s, xs, before):
    h = s["h"]
    for k, (R_h, R_t, b_h, b_t) in enumerate(zip(p["R_h"], p["R_t"], p["b_h"], p["b_t"])):
        a = np.tanh((p["W_h"] @ x if k == 0 else 0) + R_h @ h + b_h)
        g = sigmoid((p["W_t"] @ x if k == 0 else 0) + R_t @ h + b_t)
        h = a * g + h * (1 - g)
    return {"h": h}


def on_lstm(p, x, s, xs, before):
    def gate(n):
        return p[f"W_{n}"] @ x + p[f"U_{n}"] @ s["h"] + p[f"b_{n}"]

    master_f, master_i = np.cumsum(softmax(gate("m"))), 1 - np.cumsum(softmax(gate("n")))
    overlap = master_f * master_i
    f_hat = sigmoid(gate("f")) * overlap + (master_f - overlap)
    i_hat = sigmoid(gate("i")) * overlap + (master_i - overlap)
    c = f_hat * s["c"] + i_hat * np.tanh(gate("g"))
    return {"h": sigmoid(gate("o")) * np.tanh(c), "c": c}


def _lstm(p, x, h, c):
    i, f, g, o = (p[f"W_{n}"] @ x + (p[f"U_{n}"] @ h if f"U_{n}" in p else 0) + p[f"b_{n}"] for n in "ifgo")
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return {"h": sigmoid(o) * np.tanh(c), "c": c}


def mogrifier_lstm(p, x, s, xs, before):
    h = s["h"]
    for number in range(1, 6):
        if number % 2:
            x = 2 * sigmoid(p["Q"][number // 2] @ h) * x
        else:
            h = 2 * sigmoid(p["R"][number // 2 - 1] @ x) * h
    return _lstm(p, x, h, s["c"])


def lstm_concat(p, x, s, xs, before):
    return _lstm(p, np.concatenate([x, s["h"]]), s["h"], s["c"])


def lstm_two_biases(p, x, s, xs, before):
    return _lstm({**p, **{f"b_{k}": p[f"b_i{k}"] + p[f"b_h{k}"] for k in "ifgo"}}, x, s["h"], s["c"])


def antisymmetric_rnn(p, x, s, xs, before):
    A = p["R"] - p["R"].T - 0.15 * np.eye(len(p["R"]))
    return {"h": s["h"] + 0.1 * np.tanh(p["W"] @ x + A @ s["h"] + p["b"])}


def mlstm_matrix(p, x, s, xs, before):
    H = len(s["h"])
    q, k, v = p["W_q"] @ x + p["b_q"], p["W_k"] @ x / np.sqrt(H) + p["b_k"], p["W_v"] @ x + p["b_v"]
    i, f = p["w_i"] @ x + p["b_i"], np.log(sigmoid(p["w_f"] @ x + p["b_f"]))
    m = max(f + s["m"], i)
    i, f = np.exp(i - m), np.exp(f + s["m"] - m)
    C, n = f * s["C"] + i * np.outer(v, k), f * s["n"] + i * k
    h = sigmoid(p["W_o"] @ x + p["b_o"]) * (C @ q / max(abs(n @ q), np.exp(-m)))
    return {"h": h, "C": C, "n": n, "m": np.asarray(m)}


def fast_weights(p, x, s, xs, before):
    A = 0.95 * s["A"] + 0.5 * np.outer(s["h"], s["h"])
    z = p["W"] @ x + p["R"] @ s["h"]
    h = np.tanh(z)
    for _ in range(2):
        h = np.tanh(normed(z + A @ h) * p["g"] + p["b"])
    return {"h": h, "A": A}


def taps(p, x, s, xs, before):
    def at(history, back, like):
        return history[-back] if len(history) >= back else np.zeros_like(like)

    h_2 = before[-2]["h"] if len(before) >= 2 else np.zeros_like(s["h"])
    z_3 = before[-3]["z"] if len(before) >= 3 else np.zeros_like(s["h"])
    u = np.tanh(p["W_1"] @ s["h"] + p["U_1"] @ x)
    z = np.tanh(p["W_2"] @ h_2 + p["U_2"] @ x)
    g = sigmoid(p["W_3"] @ s["h"] + p["U_3"] @ x + p["V_3"] @ at(xs, 1, x))
    return {"h": (1 - g) * s["h"] + g * (u + z_3 * z), "z": z}


STEPS: dict[str, Step] = {
    f.__name__: f
    for f in (
        ln_lstm_haste,
        rhn,
        on_lstm,
        mogrifier_lstm,
        lstm_concat,
        antisymmetric_rnn,
        mlstm_matrix,
        fast_weights,
        taps,
        lstm_two_biases,
    )
}


def run(name: str, params: Mapping[str, Array], x: Array, states: Mapping[str, Array]) -> dict[str, Array]:
    """The states after every step [T, ...] of one row: x [T, D], states [...]."""
    state, before, found = {n: np.asarray(v) for n, v in states.items()}, [], []
    for t in range(len(x)):
        before.append(state)
        state = {**state, **STEPS[name](params, x[t], state, list(x[:t]), before)}
        found.append(state)
    return {n: np.stack([f[n] for f in found]) for n in states}
