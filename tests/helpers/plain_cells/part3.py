"""Cells in plain NumPy, a second time from the papers' equations: variants of the LSTM and the GRU,
and cells beyond them. Nothing of rnnspec is used.

Each is NAME(params, inputs, states, constants) -> outputs, final: inputs and outputs [T, B, ...],
states and final [B, ...], batches of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

Array = np.ndarray
Arrays = Mapping[str, Array]
Found = tuple[dict[str, Array], dict[str, Array]]
Step = Callable[
    [dict[str, Array], dict[str, Array]], dict[str, Array]
]  # inputs of a step, state before -> state after and what goes out


def sigmoid(v: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * v))


def relu(v: Array) -> Array:
    return np.where(v > 0, v, 0.0)


def loop(step: Step, inputs: Arrays, states: Arrays, outputs: tuple[str, ...] = ("h",)) -> Found:
    """The steps one after another; `step` gives the new states and the outputs by name."""
    state, rows = dict(states), []
    for t in range(len(next(iter(inputs.values())))):
        now = step({n: v[t] for n, v in inputs.items()}, state)
        state = {n: now[n] for n in states}
        rows.append([now[o] for o in outputs])
    return {o: np.stack([row[k] for row in rows]) for k, o in enumerate(outputs)}, state


def affine(p: Arrays, gate: str, x: Array, h: Array) -> Array:
    """W x + U h + b of one gate, for rows; what the cell does not have is left out."""
    total = x @ p[f"W_{gate}"].T + h @ p[f"U_{gate}"].T
    return total + p[f"b_{gate}"] if f"b_{gate}" in p else total


# --- LSTM ---


def odyssey(variant: str) -> Callable[..., Found]:
    """The vanilla LSTM of Greff et al. with one thing changed."""

    def cell(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
        def peep(gate: str, c: Array) -> Array:
            return 0.0 if variant == "np" else p[f"p_{gate}"] * c

        def gates(to: str, s: Arrays) -> Array:
            return sum(s[a] @ p[f"R_{a}{to}"].T for a in "ifo") if variant == "fgr" else 0.0

        def step(a: Arrays, s: Arrays) -> dict[str, Array]:
            x, y, c = a["x"], s["h"], s["c"]
            z = affine(p, "g", x, y)
            z = z if variant == "niaf" else np.tanh(z)
            i = np.ones_like(z) if variant == "nig" else sigmoid(affine(p, "i", x, y) + peep("i", c) + gates("i", s))
            if variant in ("nfg", "cifg"):
                f = np.ones_like(z) if variant == "nfg" else 1 - i
            else:
                f = sigmoid(affine(p, "f", x, y) + peep("f", c) + gates("f", s))
            c = z * i + c * f
            o = np.ones_like(z) if variant == "nog" else sigmoid(affine(p, "o", x, y) + peep("o", c) + gates("o", s))
            return {"h": (c if variant == "noaf" else np.tanh(c)) * o, "c": c, "i": i, "f": f, "o": o}

        return loop(step, inputs, states)

    return cell


def tensorflow_lstm(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    """tf.nn.rnn_cell.LSTMCell with the options that the parameters show."""
    limit = constants["cell_clip"]

    def step(a: Arrays, s: Arrays) -> dict[str, Array]:
        i, f, g, o = (affine(p, n, a["x"], s["h"]) for n in "ifgo")
        if "p_i" in p:
            i, f = i + p["p_i"] * s["c"], f + p["p_f"] * s["c"]
        c = np.clip(sigmoid(f + constants["forget_bias"]) * s["c"] + sigmoid(i) * np.tanh(g), -limit, limit)
        h = sigmoid(o + p["p_o"] * c if "p_o" in p else o) * np.tanh(c)
        if "W_hr" in p:
            h = np.clip(h @ p["W_hr"].T, -constants["proj_clip"], constants["proj_clip"])
        return {"h": h, "c": c}

    return loop(step, inputs, states)


def lstm_two_biases(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    def step(a: Arrays, s: Arrays) -> dict[str, Array]:
        i, f, g, o = (affine(p, n, a["x"], s["h"]) + p[f"d_{n}"] for n in "ifgo")
        c = sigmoid(f) * s["c"] + sigmoid(i) * np.tanh(g)
        return {"h": sigmoid(o) * np.tanh(c), "c": c}

    return loop(step, inputs, states)


def lstm_concat(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    def step(a: Arrays, s: Arrays) -> dict[str, Array]:
        both = np.concatenate([a["x"], s["h"]], axis=1)
        i, f, g, o = (both @ p[f"W_{n}"].T + p[f"b_{n}"] for n in "ifgo")
        c = sigmoid(f) * s["c"] + sigmoid(i) * np.tanh(g)
        return {"h": sigmoid(o) * np.tanh(c), "c": c}

    return loop(step, inputs, states)


def on_lstm(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    def cumsoftmax(v: Array) -> Array:
        e = np.exp(v - v.max(axis=1, keepdims=True))
        return np.cumsum(e / e.sum(axis=1, keepdims=True), axis=1)

    def step(a: Arrays, s: Arrays) -> dict[str, Array]:
        f, i, o, g, m, n = (affine(p, k, a["x"], s["h"]) for k in "fiogmn")
        master_f, master_i = cumsoftmax(m), 1 - cumsoftmax(n)
        omega = master_f * master_i
        c = (sigmoid(f) * omega + (master_f - omega)) * s["c"] + (sigmoid(i) * omega + (master_i - omega)) * np.tanh(g)
        return {"h": sigmoid(o) * np.tanh(c), "c": c}

    return loop(step, inputs, states)


def mogrifier_lstm(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    rounds = len(p["Q"]) + len(p["R"])

    def step(a: Arrays, s: Arrays) -> dict[str, Array]:
        x, h = a["x"], s["h"]
        for number in range(1, rounds + 1):
            if number % 2:
                x = 2 * sigmoid(h @ p["Q"][(number - 1) // 2].T) * x
            else:
                h = 2 * sigmoid(x @ p["R"][number // 2 - 1].T) * h
        i, f, g, o = (affine(p, n, x, h) for n in "ifgo")
        c = sigmoid(f) * s["c"] + sigmoid(i) * np.tanh(g)
        return {"h": sigmoid(o) * np.tanh(c), "c": c}

    return loop(step, inputs, states)


def nested_lstm(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    def step(a: Arrays, s: Arrays) -> dict[str, Array]:
        i, f, g, o = (affine(p, n, a["x"], s["h"]) for n in "ifgo")
        inner_x, inner_h = sigmoid(i) * np.tanh(g), sigmoid(f) * s["c"]
        i, f, g, out = (inner_x @ p[f"V_{n}"].T + inner_h @ p[f"R_{n}"].T + p[f"d_{n}"] for n in "ifgo")
        m = sigmoid(f) * s["m"] + sigmoid(i) * np.tanh(g)
        c = sigmoid(out) * np.tanh(m)
        return {"h": sigmoid(o) * np.tanh(c), "c": c, "m": m}

    return loop(step, inputs, states)


def phased_lstm(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    def step(a: Arrays, s: Arrays) -> dict[str, Array]:
        tau = np.exp(p["l"])
        phase = np.mod(a["time"][:, None] - p["s"], tau) / tau
        rise, fall = 2 * phase / p["r"], 2 - 2 * phase / p["r"]
        k = np.select([phase < p["r"] / 2, phase < p["r"]], [rise, fall], constants["alpha"] * phase)
        h, c = s["h"], s["c"]
        i = sigmoid(affine(p, "i", a["x"], h) + p["p_i"] * c)
        f = sigmoid(affine(p, "f", a["x"], h) + p["p_f"] * c)
        proposed = f * c + i * np.tanh(affine(p, "g", a["x"], h))
        out = sigmoid(affine(p, "o", a["x"], h) + p["p_o"] * proposed) * np.tanh(proposed)
        return {"h": k * out + (1 - k) * h, "c": k * proposed + (1 - k) * c}

    return loop(step, inputs, states)


# --- GRU ---


def gru(reset_after: bool, z_keeps: bool) -> Callable[..., Found]:
    def cell(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
        def step(a: Arrays, s: Arrays) -> dict[str, Array]:
            x, h = a["x"], s["h"]
            r, z = sigmoid(affine(p, "r", x, h)), sigmoid(affine(p, "z", x, h))
            recurrent = r * (h @ p["U_n"].T + p["c_n"]) if reset_after else (r * h) @ p["U_n"].T
            n = np.tanh(x @ p["W_n"].T + recurrent + p["b_n"])
            return {"h": z * h + (1 - z) * n if z_keeps else z * n + (1 - z) * h}

        return loop(step, inputs, states)

    return cell


def gru_concat(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    def step(a: Arrays, s: Arrays) -> dict[str, Array]:
        def applied(gate: str, h: Array) -> Array:
            return np.hstack([h, a["x"]]) @ p[f"W_{gate}"].T + p[f"b_{gate}"]

        r, z = sigmoid(applied("r", s["h"])), sigmoid(applied("z", s["h"]))
        return {"h": z * s["h"] + (1 - z) * np.tanh(applied("n", r * s["h"]))}

    return loop(step, inputs, states)


def gru_d(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    def step(a: Arrays, s: Arrays) -> dict[str, Array]:
        decay_x = np.exp(-relu(p["w_x"] * a["delta"] + p["b_x"]))
        decay_h = np.exp(-relu(a["delta"] @ p["W_h"].T + p["b_h"]))
        x = np.where(a["m"] == 1, a["x"], decay_x * a["x_last"] + (1 - decay_x) * p["x_mean"])
        h = decay_h * s["h"]
        r, z = (sigmoid(affine(p, n, x, h) + a["m"] @ p[f"V_{n}"].T) for n in "rz")
        n = np.tanh(affine(p, "n", x, r * h) + a["m"] @ p["V_n"].T)
        return {"h": (1 - z) * h + z * n}

    return loop(step, inputs, states)


# --- elementwise recurrences ---


def sru(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    def step(a: Arrays, s: Arrays) -> dict[str, Array]:
        f, r = (sigmoid(a["x"] @ p[f"W_{n}"].T + p[f"v_{n}"] * s["c"] + p[f"b_{n}"]) for n in "fr")
        c = f * s["c"] + (1 - f) * (a["x"] @ p["W"].T)
        return {"c": c, "h": r * c + (1 - r) * a["x"] * constants["alpha"]}

    return loop(step, inputs, states)


def qrnn(pooling: str) -> Callable[..., Found]:
    def cell(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
        x = inputs["x"]
        first = states.get("x", np.zeros_like(x[0]))
        before = np.concatenate([first[None], x[:-1]])
        conv = {n: x @ p[f"W_{n}"].T + before @ p[f"V_{n}"].T for n in "zfoi" if f"W_{n}" in p}
        c, found = states["h" if pooling == "f" else "c"], []
        for t in range(len(x)):
            f = sigmoid(conv["f"][t])
            c = f * c + (sigmoid(conv["i"][t]) if pooling == "ifo" else 1 - f) * np.tanh(conv["z"][t])
            found.append(c if pooling == "f" else sigmoid(conv["o"][t]) * c)
        return {"h": np.stack(found)}, {"h" if pooling == "f" else "c": c, "x": x[-1]}

    return cell


def positive(v: Array) -> Array:
    return np.where(v >= 0, v + 0.5, sigmoid(v))


def mingru(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    def step(a: Arrays, s: Arrays) -> dict[str, Array]:
        z = sigmoid(a["x"] @ p["W_z"].T)
        return {"h": (1 - z) * s["h"] + z * positive(a["x"] @ p["W_n"].T)}

    return loop(step, inputs, states)


def minlstm(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    def step(a: Arrays, s: Arrays) -> dict[str, Array]:
        f, i = sigmoid(a["x"] @ p["W_f"].T), sigmoid(a["x"] @ p["W_i"].T)
        return {"h": f / (f + i) * s["h"] + i / (f + i) * positive(a["x"] @ p["W_n"].T)}

    return loop(step, inputs, states)


def lru(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    """In complex numbers, as the paper has it."""
    lam = np.exp(-np.exp(p["nu"]) + 1j * np.exp(p["theta"]))
    B, C, h, found = p["B_re"] + 1j * p["B_im"], p["C_re"] + 1j * p["C_im"], states["u"] + 1j * states["v"], []
    for x in inputs["x"]:
        h = lam * h + np.exp(p["gamma"]) * (x @ B.T)
        found.append((h @ C.T).real + p["d"] * x)
    return {"y": np.stack(found)}, {"u": h.real, "v": h.imag}


def rg_lru(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    def step(a: Arrays, s: Arrays) -> dict[str, Array]:
        r, i = (sigmoid(a["x"] @ p[f"W_{n}"].T + p[f"b_{n}"]) for n in "ri")
        decay = sigmoid(p["l"]) ** (constants["power"] * r)
        return {"h": decay * s["h"] + np.sqrt(1 - decay**2) * (i * a["x"])}

    return loop(step, inputs, states)


# --- groups, memories and rate networks ---


def clockwork_rnn(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    """As one network: a block-triangular matrix, whose rows take part when their group is due. All
    rows of the batch are in phase."""
    H, zero = len(p["b_f"]), np.zeros_like(p["R_ff"])
    R = np.block([[p["R_ff"], p["R_fm"], p["R_fs"]], [zero, p["R_mm"], p["R_ms"]], [zero, zero, p["R_ss"]]])
    W, b = np.concatenate([p["W_f"], p["W_m"], p["W_s"]]), np.concatenate([p["b_f"], p["b_m"], p["b_s"]])
    periods = np.repeat([1, int(constants["P_m"]), int(constants["P_s"])], H)
    assert not states["p"].any() and not states["q"].any()
    h, found = np.concatenate([states["f"], states["m"], states["s"]], axis=1), []
    for t, x in enumerate(inputs["x"]):
        h = np.where(t % periods == 0, np.tanh(x @ W.T + h @ R.T + b), h)
        found.append(h)
    steps = len(found)
    last = {"p": np.full(len(h), steps % constants["P_m"]), "q": np.full(len(h), steps % constants["P_s"])}
    return {"h": np.stack(found)}, dict(zip("fms", np.split(h, 3, axis=1))) | last


def lmu(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    def step(a: Arrays, s: Arrays) -> dict[str, Array]:
        u = a["x"] @ p["e_x"] + s["h"] @ p["e_h"] + s["m"] @ p["e_m"]
        m = s["m"] @ p["A"].T + np.outer(u, p["B"])
        return {"m": m, "h": np.tanh(a["x"] @ p["W_x"].T + s["h"] @ p["W_h"].T + m @ p["W_m"].T)}

    return loop(step, inputs, states)


def ctrnn(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    """With phi = relu; Dale's law where there are signs."""
    alpha, R = constants["alpha"], p["R"]
    if "d" in p:
        R = np.abs(R) * p["M"] * p["d"]  # d along the columns: the sign of the unit that sends

    def step(a: Arrays, s: Arrays) -> dict[str, Array]:
        drive = relu(s["h"]) @ R.T + a["x"] @ p["W"].T + p["b"]
        h = s["h"] + alpha * (drive - s["h"]) + np.sqrt(2 * alpha) * constants["sigma"] * a["xi"]
        return {"h": h, "y": relu(h)}

    return loop(step, inputs, states, ("y",))


def low_rank_rnn(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
    J = p["M"] @ p["N"].T / len(p["M"])

    def step(a: Arrays, s: Arrays) -> dict[str, Array]:
        return {"h": s["h"] + constants["alpha"] * (np.tanh(s["h"]) @ J.T + a["x"] @ p["W"].T - s["h"])}

    return loop(step, inputs, states)


def cfc(mode: str) -> Callable[..., Found]:
    def cell(p: Arrays, inputs: Arrays, states: Arrays, constants: Mapping[str, float]) -> Found:
        both = np.concatenate([p["W"], p["U"]], axis=1)

        def step(a: Arrays, s: Arrays) -> dict[str, Array]:
            dt = a["dt"][:, None]
            z = 1.7159 * np.tanh(0.666 * (np.concatenate([a["x"], s["h"]], axis=1) @ both.T + p["b"]))
            first = z @ p["A_1"].T + p["b_1"]
            if mode == "pure":
                return {"h": -p["a"] * np.exp(-dt * (np.abs(p["w"]) + np.abs(first))) * first + p["a"]}
            first, second = np.tanh(first), np.tanh(z @ p["A_2"].T + p["b_2"])
            gate = sigmoid((z @ p["A_a"].T + p["b_a"]) * dt + z @ p["A_b"].T + p["b_b"])
            return {"h": first + gate * second if mode == "no_gate" else first + gate * (second - first)}

        return loop(step, inputs, states)

    return cell


CELLS: dict[str, Callable[..., Found]] = {
    "lstm_vanilla": odyssey("v"),
    "lstm_nig": odyssey("nig"),
    "lstm_nfg": odyssey("nfg"),
    "lstm_nog": odyssey("nog"),
    "lstm_niaf": odyssey("niaf"),
    "lstm_noaf": odyssey("noaf"),
    "lstm_cifg_peephole": odyssey("cifg"),
    "lstm_np": odyssey("np"),
    "lstm_fgr": odyssey("fgr"),
    "lstm_tf": tensorflow_lstm,
    "lstm_tf_peephole": tensorflow_lstm,
    "lstm_tf_projected": tensorflow_lstm,
    "lstm_tf_full": tensorflow_lstm,
    "lstm_two_biases": lstm_two_biases,
    "lstm_concat": lstm_concat,
    "on_lstm": on_lstm,
    "mogrifier_lstm": mogrifier_lstm,
    "nested_lstm": nested_lstm,
    "phased_lstm": phased_lstm,
    "gru_concat": gru_concat,
    "gru_other_polarity": gru(True, False),
    "gru_reset_before_other_polarity": gru(False, False),
    "gru_d": gru_d,
    "sru": sru,
    "qrnn": qrnn("fo"),
    "qrnn_f": qrnn("f"),
    "qrnn_ifo": qrnn("ifo"),
    "mingru": mingru,
    "minlstm": minlstm,
    "lru": lru,
    "rg_lru": rg_lru,
    "clockwork_rnn": clockwork_rnn,
    "lmu": lmu,
    "ctrnn": ctrnn,
    "ei_rnn": ctrnn,
    "dale_rnn": ctrnn,
    "low_rank_rnn": low_rank_rnn,
    "cfc": cfc("cfc"),
    "cfc_no_gate": cfc("no_gate"),
    "cfc_pure": cfc("pure"),
}
