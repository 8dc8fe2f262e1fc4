"""Plain NumPy cells, written from the papers' equations: a second implementation, which knows
nothing of rnnspec.

Each is `NAME(params, inputs, states, constants) -> outputs, final`; inputs and outputs are arrays
[T, B, ...], states and final states [B, ...]. All of it also runs on complex numbers (kinks are
decided by the real part), for derivatives by complex steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

Array = np.ndarray
Arrays = dict[str, Array]
Given = Mapping[str, Array]
Plain = Callable[[Given, Given, Given, Mapping[str, float]], tuple[Arrays, Arrays]]


def sigmoid(v: Array) -> Array:
    return 1 / (1 + np.exp(-v))


def relu(v: Array) -> Array:
    return np.where(v.real > 0, v, 0)


def normed(v: Array, eps: float) -> Array:
    centred = v - v.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + eps)


def _affine(p: Given, gate: str, x: Array, h: Array | None = None, matrices: str = "WU") -> Array:
    """W x + U h + b of one gate, for rows; leaves out what the gate does not have."""
    W, U = (f"{m}_{gate}" for m in matrices)
    total = x @ p[W].T
    if h is not None and U in p:
        total = total + h @ p[U].T
    return total + p[f"b_{gate}"] if f"b_{gate}" in p else total


def _run(
    step: Callable[[int, Array, Arrays], tuple[Array, Arrays]], x: Array, states: Given, output: str = "h"
) -> tuple[Arrays, Arrays]:
    state, found = dict(states), []
    for t in range(len(x)):
        out, state = step(t, x[t], state)
        found.append(out)
    return {output: np.stack(found)}, state


def _nas(product: bool) -> Plain:
    act = (sigmoid, relu, sigmoid, relu, np.tanh, sigmoid, np.tanh, sigmoid)

    def cell(p: Given, inputs: Given, states: Given, constants: Mapping[str, float]) -> tuple[Arrays, Arrays]:
        def step(t, x, s):
            first = []
            for k in range(8):
                seen, recalled = x @ p[f"W_{k}"].T, s["h"] @ p[f"R_{k}"].T + p[f"b_{k}"]
                first.append(act[k](seen * recalled if product and k == 3 else seen + recalled))
            second = [
                np.tanh(first[0] * first[1]),
                np.tanh(first[2] + first[3]),
                np.tanh(first[4] * first[5]),
                sigmoid(first[6] + first[7]),
            ]
            c = np.tanh(second[0] + s["c"]) * second[1]
            h = np.tanh(c * np.tanh(second[2] + second[3]))
            return h, {"h": h, "c": c}

        return _run(step, inputs["x"], states)

    return cell


nas, nas_additive = _nas(product=True), _nas(product=False)


def plrnn(p, inputs, states, constants):
    W = p["W"].copy()
    np.fill_diagonal(W, 0)

    def step(t, x, s):
        h = p["a"] * s["h"] + relu(s["h"]) @ W.T + x @ p["C"].T + p["b"]
        return h, {"h": h}

    return _run(step, inputs["x"], states)


def ran(p, inputs, states, constants):
    def step(t, x, s):
        i, f = sigmoid(_affine(p, "i", x, s["h"])), sigmoid(_affine(p, "f", x, s["h"]))
        c = i * (x @ p["W_c"].T + p["b_c"]) + f * s["c"]
        return np.tanh(c), {"h": np.tanh(c), "c": c}

    return _run(step, inputs["x"], states)


def residual_lstm(p, inputs, states, constants):
    def step(t, x, s):
        i, f = (sigmoid(_affine(p, n, x, s["h"]) + p[f"p_{n}"] * s["c"]) for n in "if")
        c = f * s["c"] + i * np.tanh(_affine(p, "g", x, s["h"]))
        o = sigmoid(_affine(p, "o", x, s["h"]) + p["p_o"] * c)
        h = o * (np.tanh(c) @ p["W_p"].T + x @ p["W_r"].T)
        return h, {"h": h, "c": c}

    return _run(step, inputs["x"], states)


def _highway(p: Given, x: Array, h: Array, carry: bool) -> Array:
    for depth in range(len(p["R_h"])):

        def gate(name, h=h, depth=depth):
            return (x @ p[f"W_{name}"].T if depth == 0 else 0) + h @ p[f"R_{name}"][depth].T + p[f"b_{name}"][depth]

        transform = sigmoid(gate("t"))
        h = np.tanh(gate("h")) * transform + h * (sigmoid(gate("c")) if carry else 1 - transform)
    return h


def _rhn(p, inputs, states, carry):
    def step(t, x, s):
        h = _highway(p, x, s["h"], carry)
        return h, {"h": h}

    return _run(step, inputs["x"], states)


def rhn(p, inputs, states, constants):
    return _rhn(p, inputs, states, False)


def rhn_uncoupled(p, inputs, states, constants):
    return _rhn(p, inputs, states, True)


def scrn(p, inputs, states, constants):
    alpha = constants.get("alpha", 0.95)

    def step(t, x, s):
        context = (1 - alpha) * (x @ p["W_s"].T) + alpha * s["s"]
        h = sigmoid(context @ p["P"].T + x @ p["W_h"].T + s["h"] @ p["R"].T)
        return h @ p["U"].T + context @ p["V"].T, {"h": h, "s": context}

    return _run(step, inputs["x"], states, "y")


def sgrn(p, inputs, states, constants):
    def step(t, x, s):
        Wx = x @ p["W"].T
        f = sigmoid(Wx + s["h"] @ p["R"].T + p["b"])
        h = np.tanh((1 - f) * Wx + f * s["h"])
        return h, {"h": h}

    return _run(step, inputs["x"], states)


def _sgu(p, inputs, states, constants, out):
    slope = constants.get("slope", 0.2)

    def step(t, x, s):
        x_g = x @ p["W_g"].T + p["b_x"]
        z_g = np.tanh((x_g * s["h"]) @ p["U_g"].T + p["b_g"])
        line = slope * _affine(p, "z", x, s["h"]) + 0.5
        z = np.where(line.real < 0, 0, np.where(line.real > 1, 1, line))
        h = (1 - z) * s["h"] + z * out(z_g * s["h"])
        return h, {"h": h}

    return _run(step, inputs["x"], states)


def sgu(p, inputs, states, constants):
    return _sgu(p, inputs, states, constants, lambda v: np.log(1 + np.exp(v)))


def dsgu(p, inputs, states, constants):
    return _sgu(p, inputs, states, constants, lambda v: sigmoid(v @ p["W_o"].T))


def shuffling_rnn(p, inputs, states, constants):
    b_g = np.append(p["b_first"], p["b_rest"])

    def step(t, x, s):
        drive = (relu(x @ p["W_1"].T + p["b_1"]) @ p["W_2"].T + p["b_2"]) * sigmoid(x @ p["W_g"].T + b_g)
        h = relu(np.roll(s["h"], 1, axis=-1) + drive)
        return h, {"h": h}

    return _run(step, inputs["x"], states)


def star(p, inputs, states, constants):
    def step(t, x, s):
        z, k = np.tanh(_affine(p, "z", x)), sigmoid(_affine(p, "k", x, s["h"], "WR"))
        h = np.tanh((1 - k) * s["h"] + k * z)
        return h, {"h": h}

    return _run(step, inputs["x"], states)


def surnn(p, inputs, states, constants):
    def step(t, x, s):
        a = p["b_g"] + (p["alpha"] * np.sin(p["omega"][:, None] * t + p["phi"])).sum(axis=0)
        g = np.where(a.real > 0, 1, 0) + (
            sigmoid(a) - sigmoid(a.real)
        )  # the value of the step, the derivative of the logistic
        h = s["h"] + g * (np.tanh(x @ p["W"].T + s["h"] @ p["U"].T + p["b"]) - s["h"])
        return h, {"h": h}

    return _run(step, inputs["x"], states)


def tau_gru(p, inputs, states, constants):
    delay = int(constants.get("d", 2))
    x, now = inputs["x"], states["h"]
    before = [states.get(f"h_{k}", np.zeros_like(now)) for k in range(delay - 1, 0, -1)] + [now]  # the oldest first
    for t in range(len(x)):
        h = before[-1]
        u, g, a = (
            act(x[t] @ p[f"U_{k}"].T + h @ p[f"W_{k}"].T + p[f"b_{k}"])
            for act, k in ((np.tanh, 1), (sigmoid, 3), (sigmoid, 4))
        )
        z = np.tanh(x[t] @ p["U_2"].T + before[-delay] @ p["W_2"].T + p["b_2"])
        before.append((1 - g) * h + g * (u + a * z))
    final = {"h": before[-1]} | {f"h_{k}": before[-1 - k] for k in range(1, delay)}
    return {"h": np.stack(before[delay:])}, final


def trnn(p, inputs, states, constants):
    def step(t, x, s):
        f = sigmoid(x @ p["V"].T + p["b_f"])
        h = f * s["h"] + (1 - f) * (x @ p["W"].T + p["b_z"])
        return h, {"h": h}

    return _run(step, inputs["x"], states)


def _typed(p, x, before):
    z, f, o = (_affine(p, n, x, before, "WV") for n in "zfo")
    return z, sigmoid(f), np.tanh(o)


def tgru(p, inputs, states, constants):
    def step(t, x, s):
        z, f, o = _typed(p, x, s["x"])
        h = f * s["h"] + z * o
        return h, {"h": h, "x": x}

    return _run(step, inputs["x"], {"x": np.zeros_like(inputs["x"][0]), **states})


def tlstm(p, inputs, states, constants):
    def step(t, x, s):
        z, f, o = _typed(p, x, s["x"])
        c = f * s["c"] + (1 - f) * z
        return c * o, {"c": c, "x": x}

    return _run(step, inputs["x"], {"x": np.zeros_like(inputs["x"][0]), **states})


def wmclstm(p, inputs, states, constants):
    def step(t, x, s):
        i, f = (sigmoid(_affine(p, n, x, s["h"]) + np.tanh(s["c"] @ p[f"V_{n}"].T)) for n in "if")
        c = f * s["c"] + i * np.tanh(_affine(p, "g", x, s["h"]))
        h = sigmoid(_affine(p, "o", x, s["h"]) + np.tanh(c @ p["V_o"].T)) * np.tanh(c)
        return h, {"h": h, "c": c}

    return _run(step, inputs["x"], states)


def elstm(p, inputs, states, constants):
    def step(t, x, s):
        f = sigmoid(_affine(p, "f", x) + p["w_f"] * s["c"])
        z = np.tanh(_affine(p, "z", x) + p["w_z"] * s["c"])
        c = f * s["c"] + (1 - f) * z
        return sigmoid(_affine(p, "o", x) + c @ p["W_c"].T) * c, {"c": c}

    return _run(step, inputs["x"], states)


def irnn(p, inputs, states, constants):
    def step(t, x, s):
        h = relu(x @ p["W"].T + s["h"] @ p["U"].T + p["b"])
        return h, {"h": h}

    return _run(step, inputs["x"], states)


def lstm_cifg_input(p, inputs, states, constants):
    def step(t, x, s):
        f, g, o = (act(_affine(p, n, x, s["h"])) for act, n in ((sigmoid, "f"), (np.tanh, "g"), (sigmoid, "o")))
        c = f * s["c"] + (1 - f) * g
        h = o * np.tanh(c)
        return h, {"h": h, "c": c}

    return _run(step, inputs["x"], states)


def ln_lstm_haste(p, inputs, states, constants):
    eps = constants.get("eps", 1e-5)

    def step(t, x, s):
        v = normed(x @ p["W"].T, eps) * p["g_x"] + normed(s["h"] @ p["U"].T, eps) * p["g_h"] + p["b"]
        i, g, f, o = np.split(v, 4, axis=-1)
        c = sigmoid(f) * s["c"] + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(normed(c, eps) * p["g_c"] + p["b_c"])
        return h, {"h": h, "c": c}

    return _run(step, inputs["x"], states)


def _ln_lstm_normalised(p, inputs, states, eps):
    def step(t, x, s):
        v = (
            (normed(x @ p["W"].T, eps) * p["g_x"] + p["b_x"])
            + (normed(s["h"] @ p["U"].T, eps) * p["g_h"] + p["b_h"])
            + p.get("b", 0)
        )
        i, f, g, o = np.split(v, 4, axis=-1)
        c = normed(sigmoid(f) * s["c"] + sigmoid(i) * np.tanh(g), eps) * p["g_c"] + p["b_c"]
        h = sigmoid(o) * np.tanh(c)
        return h, {"h": h, "c": c}

    return _run(step, inputs["x"], states)


def ln_lstm_tfa(p, inputs, states, constants):
    return _ln_lstm_normalised(p, inputs, states, constants.get("eps", 1e-3))


def ln_lstm_torch(p, inputs, states, constants):
    return _ln_lstm_normalised(p, inputs, states, constants.get("eps", 1e-5))


def ln_gru(p, inputs, states, constants):
    eps = constants.get("eps", 1e-5)

    def step(t, x, s):
        x_z, x_r, x_n = np.split(normed(x @ p["W"].T, eps) * p["g_x"] + p["b"], 3, axis=-1)
        h_z, h_r, h_n = np.split(normed(s["h"] @ p["U"].T, eps) * p["g_h"] + p["b_h"], 3, axis=-1)
        z, r = sigmoid(h_z + x_z), sigmoid(h_r + x_r)
        h = z * s["h"] + (1 - z) * np.tanh(r * h_n + x_n)
        return h, {"h": h}

    return _run(step, inputs["x"], states)


def ln_indrnn(p, inputs, states, constants):
    eps = constants.get("eps", 1e-5)

    def step(t, x, s):
        h = np.tanh(normed(x @ p["W"].T, eps) * p["g"] + p["b"] + s["h"] * p["u"])
        return h, {"h": h}

    return _run(step, inputs["x"], states)


CELLS: dict[str, Plain] = {
    "nas": nas,
    "nas_additive": nas_additive,
    "plrnn": plrnn,
    "ran": ran,
    "residual_lstm": residual_lstm,
    "rhn": rhn,
    "rhn_uncoupled": rhn_uncoupled,
    "scrn": scrn,
    "sgrn": sgrn,
    "sgu": sgu,
    "dsgu": dsgu,
    "shuffling_rnn": shuffling_rnn,
    "star": star,
    "surnn": surnn,
    "tau_gru": tau_gru,
    "trnn": trnn,
    "tgru": tgru,
    "tlstm": tlstm,
    "wmclstm": wmclstm,
    "elstm": elstm,
    "irnn": irnn,
    "lstm_cifg_input": lstm_cifg_input,
    "ln_lstm_haste": ln_lstm_haste,
    "ln_lstm_tfa": ln_lstm_tfa,
    "ln_lstm_torch": ln_lstm_torch,
    "ln_gru": ln_gru,
    "ln_indrnn": ln_indrnn,
}
