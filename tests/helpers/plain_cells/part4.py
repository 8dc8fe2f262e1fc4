"""Plain NumPy versions of cells, from the papers' equations: each takes params, inputs [T, B, ...],
states [B, ...] and constants, and gives outputs [T, B, ...] and final states. Nothing of rnnspec is
used; test_plain_cells.py compares."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

Array = np.ndarray
Arrays = Mapping[str, Array]
Step = Callable[
    [dict[str, Array], dict[str, Array]], dict[str, Array]
]  # inputs of the step, states before it -> everything after it


def over_time(step: Step, inputs: Arrays, states: Arrays, *outputs: str) -> tuple[dict[str, Array], dict[str, Array]]:
    state, emitted = dict(states), {o: [] for o in outputs}
    for t in range(len(next(iter(inputs.values())))):
        made = step({n: a[t] for n, a in inputs.items()}, state)
        state = {n: made[n] for n in states}
        for o in outputs:
            emitted[o].append(made[o])
    return {o: np.stack(a) for o, a in emitted.items()}, state


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def relu(v):
    return np.maximum(v, 0)


def affine(p, gate, x, h, W="W_", U="U_", b="b_"):
    """W x + U h + b of rows of x and h."""
    return x @ p[W + gate].T + h @ p[U + gate].T + p[b + gate]


def lstm_cell(p, x, h, c, tag=""):
    i, f, g, o = (affine(p, gate + tag, x, h) for gate in "ifgo")
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_cell(p, x, h):
    r, z = sigmoid(affine(p, "r", x, h)), sigmoid(affine(p, "z", x, h))
    n = np.tanh(x @ p["W_n"].T + p["b_n"] + r * (h @ p["U_n"].T + p["c_n"]))
    return n + z * (h - n)


def t_lstm(p, inputs, states, constants):
    def step(now, s):
        short = np.tanh(s["c"] @ p["W_d"].T + p["b_d"])
        adjusted = s["c"] - short + short / np.log(np.e + now["delta"])[:, None]
        h, c = lstm_cell(p, now["x"], s["h"], adjusted)
        return {"h": h, "c": c}

    return over_time(step, inputs, states, "h")


def _slstm(p, inputs, states, floor):
    def step(now, s):
        z, i, f, o = (affine(p, gate, now["x"], s["h"], U="R_") for gate in "zifo")
        log_f = -np.log(1 + np.exp(-f)) + s["m"]
        m = np.where(s["n"] == 0, i, np.maximum(i, log_f))
        c = np.exp(log_f - m) * s["c"] + np.exp(i - m) * np.tanh(z)
        n = np.exp(log_f - m) * s["n"] + np.exp(i - m)
        n = np.maximum(n, floor)
        return {"h": sigmoid(o) * c / n, "c": c, "n": n, "m": m}

    return over_time(step, inputs, states, "h")


def slstm(p, inputs, states, constants):
    return _slstm(p, inputs, states, -np.inf)


def slstm_floored(p, inputs, states, constants):
    return _slstm(p, inputs, states, 1.0)


def mlstm_matrix(p, inputs, states, constants):
    def step(now, s):
        x, size = now["x"], s["n"].shape[-1]
        q, k, v = x @ p["W_q"].T + p["b_q"], x @ p["W_k"].T / np.sqrt(size) + p["b_k"], x @ p["W_v"].T + p["b_v"]
        log_i, log_f = x @ p["w_i"] + p["b_i"], -np.log(1 + np.exp(-(x @ p["w_f"] + p["b_f"])))
        m = np.maximum(log_f + s["m"], log_i)
        i, f = np.exp(log_i - m)[:, None], np.exp(log_f + s["m"] - m)[:, None]
        C = f[:, :, None] * s["C"] + i[:, :, None] * v[:, :, None] * k[:, None, :]
        n = f * s["n"] + i * k
        below = np.maximum(np.abs((n * q).sum(1)), np.exp(-m))
        h = sigmoid(x @ p["W_o"].T + p["b_o"]) * np.einsum("bij,bj->bi", C, q) / below[:, None]
        return {"h": h, "C": C, "n": n, "m": m}

    return over_time(step, inputs, states, "h")


def mi_rnn(p, inputs, states, constants):
    def step(now, s):
        a, b = now["x"] @ p["W"].T, s["h"] @ p["U"].T
        return {"h": np.tanh(p["alpha"] * a * b + p["beta_1"] * b + p["beta_2"] * a + p["b"])}

    return over_time(step, inputs, states, "h")


def mi_lstm(p, inputs, states, constants):
    def step(now, s):
        def integrated(n):
            a, b = now["x"] @ p[f"W_{n}"].T, s["h"] @ p[f"U_{n}"].T
            return p[f"alpha_{n}"] * a * b + p[f"beta1_{n}"] * b + p[f"beta2_{n}"] * a + p[f"b_{n}"]

        c = sigmoid(integrated("f")) * s["c"] + sigmoid(integrated("i")) * np.tanh(integrated("g"))
        return {"h": sigmoid(integrated("o")) * np.tanh(c), "c": c}

    return over_time(step, inputs, states, "h")


def multiplicative_rnn(p, inputs, states, constants):
    def step(now, s):
        m = (now["x"] @ p["W_m"].T) * (s["h"] @ p["R_m"].T)
        return {"h": np.tanh(now["x"] @ p["W"].T + m @ p["U"].T + p["b"])}

    return over_time(step, inputs, states, "h")


def fast_slow_rnn(p, inputs, states, constants):
    def step(now, s):
        first, c = lstm_cell(p, now["x"], s["h"], s["c"], "1")
        slow, cs = lstm_cell(p, first, s["s"], s["cs"], "_s")
        second, c = lstm_cell(p, slow, first, c, "2")
        return {"h": second, "s": slow, "c": c, "cs": cs}

    return over_time(step, inputs, states, "h")


def delta_rnn(p, inputs, states, constants):
    def step(now, s):
        a, b = now["x"] @ p["W"].T, s["h"] @ p["U"].T
        d1, d2 = p["alpha"] * b * a, p["beta_1"] * b + p["beta_2"] * a
        z, r = np.tanh(d1 + d2 + p["b"]), sigmoid(a + p["b_r"])
        return {"h": np.tanh((1 - r) * z + r * s["h"])}

    return over_time(step, inputs, states, "h")


def leaky_esn(p, inputs, states, constants):
    def step(now, s):
        return {"h": (1 - constants["a"]) * s["h"] + constants["a"] * np.tanh(now["x"] @ p["W"].T + s["h"] @ p["R"].T)}

    return over_time(step, inputs, states, "h")


def modrelu(z, b):
    return z / np.abs(z) * relu(np.abs(z) + b)


def modrelu_rnn(p, inputs, states, constants):
    def step(now, s):
        return {"h": modrelu(now["x"] @ p["W"].T + s["h"] @ p["U"].T, p["b"])}

    return over_time(step, inputs, states, "h")


def goru(p, inputs, states, constants):
    def step(now, s):
        r, z = (sigmoid(affine(p, gate, now["x"], s["h"])) for gate in "rz")
        n = modrelu(now["x"] @ p["W_n"].T + r * (s["h"] @ p["Q"].T), p["b_n"])
        return {"h": z * s["h"] + (1 - z) * n}

    return over_time(step, inputs, states, "h")


def fast_weights(p, inputs, states, constants):
    def step(now, s):
        A = constants["decay"] * s["A"] + constants["eta"] * s["h"][:, :, None] * s["h"][:, None, :]
        boundary = s["h"] @ p["R"].T + now["x"] @ p["W"].T
        h = np.tanh(boundary)
        for _ in range(2):
            inner = boundary + np.einsum("bij,bj->bi", A, h)
            inner = (inner - inner.mean(1, keepdims=True)) / np.sqrt(inner.var(1, keepdims=True) + constants["eps"])
            h = np.tanh(p["g"] * inner + p["b"])
        return {"h": h, "A": A}

    return over_time(step, inputs, states, "h")


def statistical_ru(p, inputs, states, constants):
    scales = (0.0, 0.25, 0.5, 0.9, 0.99)
    names = [f"mu_{k}" for k in range(1, 6)]

    def step(now, s):
        r = relu(np.hstack([s[n] for n in names]) @ p["W_r"].T + p["b_r"])
        phi = relu(r @ p["W_phi"].T + now["x"] @ p["W_x"].T + p["b_phi"])
        mu = {n: scale * s[n] + (1 - scale) * phi for n, scale in zip(names, scales)}
        return mu | {"o": relu(np.hstack(list(mu.values())) @ p["W_o"].T + p["b_o"])}

    return over_time(step, inputs, states, "o")


def dend_plrnn(p, inputs, states, constants):
    def step(now, s):
        phi = sum(alpha * relu(s["z"] + theta) for alpha, theta in zip(p["alpha"], p["theta"]))
        across = phi @ (p["W"] - np.diag(np.diag(p["W"]))).T
        return {"z": p["a"] * s["z"] + across + p["h_0"] + now["x"] @ p["C"].T}

    return over_time(step, inputs, states, "z")


def dend_plrnn_clipped(p, inputs, states, constants):
    def step(now, s):
        phi = sum(alpha * (relu(s["z"] + theta) - relu(s["z"])) for alpha, theta in zip(p["alpha"], p["theta"]))
        across = phi @ (p["W"] - np.diag(np.diag(p["W"]))).T
        return {"z": p["a"] * s["z"] + across + p["h_0"] + now["x"] @ p["C"].T}

    return over_time(step, inputs, states, "z")


def _diagonal(p, gates):
    """Parameters of the cell with full matrices, of which only the diagonal is not zero."""
    return {n: a for n, a in p.items() if n[0] != "u"} | {f"U_{g}": np.diag(p[f"u_{g}"]) for g in gates}


def indy_lstm(p, inputs, states, constants):
    full = _diagonal(p, "ifgo")
    return over_time(lambda now, s: dict(zip("hc", lstm_cell(full, now["x"], s["h"], s["c"]))), inputs, states, "h")


def indy_gru(p, inputs, states, constants):
    full = _diagonal(p, "rzn")
    return over_time(lambda now, s: {"h": gru_cell(full, now["x"], s["h"])}, inputs, states, "h")


def lif(p, inputs, states, constants):
    def step(now, s):
        v = constants["alpha"] * s["v"] + now["x"] @ p["W"].T + s["s"] @ p["R"].T - constants["v_th"] * s["s"]
        return {"v": v, "s": np.heaviside(v - constants["v_th"], 0.0)}

    return over_time(step, inputs, states, "s")


def alif(p, inputs, states, constants):
    def step(now, s):
        v = constants["alpha"] * s["v"] + now["x"] @ p["W"].T + s["s"] @ p["R"].T - constants["v_th"] * s["s"]
        a = constants["rho"] * s["a"] + s["s"]
        return {"v": v, "a": a, "s": np.heaviside(v - (constants["v_th"] + constants["beta"] * a), 0.0)}

    return over_time(step, inputs, states, "s")


def skip_rnn(p, inputs, states, constants):
    def step(now, s):
        chance = s["e"] + 1
        u = np.round(chance)[:, None]
        h = u * gru_cell(p, now["x"], s["h"]) + (1 - u) * s["h"]
        change = sigmoid(h @ p["w_p"] + p["b_p"])
        u = u[:, 0]
        return {"h": h, "u": u, "e": u * change + (1 - u) * (chance + np.minimum(change, 1 - chance)) - 1}

    return over_time(step, inputs, states, "h", "u")


def zoneout_lstm(p, inputs, states, constants):
    def step(now, s):
        h, c = lstm_cell(p, now["x"], s["h"], s["c"])
        return {"h": (s["h"] - h) * now["keep_h"] + h, "c": (s["c"] - c) * now["keep_c"] + c}

    return over_time(step, inputs, states, "h")


def zoneout_gru(p, inputs, states, constants):
    def step(now, s):
        h = gru_cell(p, now["x"], s["h"])
        return {"h": (s["h"] - h) * now["keep_h"] + h}

    return over_time(step, inputs, states, "h")


def variational_dropout_lstm(p, inputs, states, constants):
    def step(now, s):
        h, c = lstm_cell(p, now["x"] * now["mask_x"], s["h"] * now["mask_h"], s["c"])
        return {"h": h, "c": c}

    return over_time(step, inputs, states, "h")


def jordan_rnn(p, inputs, states, constants):
    def step(now, s):
        h = np.tanh(now["x"] @ p["W"].T + s["y"] @ p["U"].T + p["b"])
        return {"y": sigmoid(h @ p["V"].T + p["c"])}

    return over_time(step, inputs, states, "y")


def elman_two_layer(p, inputs, states, constants):
    def step(now, s):
        h1 = np.tanh(now["x"] @ p["U1"].T + s["h1"] @ p["W1"].T + p["b1"])
        h2 = np.tanh(h1 @ p["U2"].T + s["h2"] @ p["W2"].T + p["b2"])
        return {"h1": h1, "h2": h2, "y": np.tanh(h2 @ p["V"].T + p["b3"])}

    return over_time(step, inputs, states, "y", "h2")


def leaky_rnn(p, inputs, states, constants):
    def step(now, s):
        new = np.tanh(now["x"] @ p["W"].T + s["h"] @ p["U"].T + p["b"])
        return {"h": s["h"] + constants["alpha"] * (new - s["h"])}

    return over_time(step, inputs, states, "h")


def gru_leaky(p, inputs, states, constants):
    def step(now, s):
        return {"h": s["h"] + constants["alpha"] * (gru_cell(p, now["x"], s["h"]) - s["h"])}

    return over_time(step, inputs, states, "h")


def highway_lstm(p, inputs, states, constants):
    def step(now, s):
        x, h, c = now["x"], s["h"], s["c"]
        i, f = (sigmoid(affine(p, gate, x, h) + p[f"p_{gate}"] * c) for gate in "if")
        depth = sigmoid(x @ p["W_d"].T + p["b_d"] + p["p_d"] * c + p["q_d"] * now["below"])
        c = depth * now["below"] + f * c + i * np.tanh(affine(p, "g", x, h))
        return {"h": sigmoid(affine(p, "o", x, h) + p["p_o"] * c) * np.tanh(c), "c": c}

    return over_time(step, inputs, states, "h", "c")


CELLS = {
    f.__name__: f
    for f in (
        t_lstm,
        slstm,
        slstm_floored,
        mlstm_matrix,
        mi_rnn,
        mi_lstm,
        multiplicative_rnn,
        fast_slow_rnn,
        delta_rnn,
        leaky_esn,
        modrelu_rnn,
        goru,
        fast_weights,
        statistical_ru,
        dend_plrnn,
        dend_plrnn_clipped,
        indy_lstm,
        indy_gru,
        lif,
        alif,
        skip_rnn,
        zoneout_lstm,
        zoneout_gru,
        variational_dropout_lstm,
        jordan_rnn,
        elman_two_layer,
        leaky_rnn,
        gru_leaky,
        highway_lstm,
    )
}
