"""Plain NumPy versions of cells, written from the papers' equations: a second implementation that
knows nothing of rnnspec.

Each is `cell(params, inputs, states, constants) -> outputs, final` over arrays [T, B, ...]; all are
analytic where the cell is, so that complex arguments (a complex step) go through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

Array = np.ndarray
Arrays = Mapping[str, Array]
Numbers = Mapping[str, float]
Result = tuple[dict[str, Array], dict[str, Array]]
Cell = Callable[[Arrays, Arrays, Arrays, Numbers], Result]


def sigmoid(v: Array) -> Array:
    return 1 / (1 + np.exp(-v))


def relu(v: Array) -> Array:
    return np.where(np.real(v) > 0, v, 0 * v)


def linear(v: Array, W: Array) -> Array:
    """W v for every row of v."""
    return np.einsum("hd,bd->bh", W, v)


def affine(p: Arrays, gate: str, x: Array, h: Array) -> Array:
    """W x + U h + b of one gate."""
    return linear(x, p[f"W_{gate}"]) + linear(h, p[f"U_{gate}"]) + p[f"b_{gate}"]


def one_state(p: Arrays, inputs: Arrays, states: Arrays, step: Callable[[Array, Array], Array]) -> Result:
    """A cell whose only state is its output h."""
    h, found = states["h"], []
    for x in inputs["x"]:
        h = step(x, h)
        found.append(h)
    return {"h": np.stack(found)}, {"h": h}


def antisymmetric_rnn(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    skew = p["R"] - p["R"].T - constants["gamma"] * np.eye(len(p["R"]))

    def step(x, h):
        return h + constants["epsilon"] * np.tanh(linear(x, p["W"]) + linear(h, skew) + p["b"])

    return one_state(p, inputs, states, step)


def gated_antisymmetric_rnn(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    skew = p["R"] - p["R"].T - constants["gamma"] * np.eye(len(p["R"]))

    def step(x, h):
        recurrent = linear(h, skew)
        gate = sigmoid(linear(x, p["W_z"]) + recurrent + p["b_z"])
        return h + constants["epsilon"] * gate * np.tanh(linear(x, p["W_h"]) + recurrent + p["b_h"])

    return one_state(p, inputs, states, step)


def atr(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    def step(x, h):
        mine, past = linear(x, p["W"]) + p["b"], linear(h, p["U"])
        return sigmoid(mine + past) * mine + sigmoid(mine - past) * h

    return one_state(p, inputs, states, step)


def brc(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    def step(x, h):
        a = np.tanh(linear(x, p["W_a"]) + p["u_a"] * h + p["b_a"]) + 1
        c = sigmoid(linear(x, p["W_c"]) + p["u_c"] * h + p["b_c"])
        return c * h + (1 - c) * np.tanh(linear(x, p["W_h"]) + a * h)

    return one_state(p, inputs, states, step)


def nbrc(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    def step(x, h):
        a, c = np.tanh(affine(p, "a", x, h)) + 1, sigmoid(affine(p, "c", x, h))
        return c * h + (1 - c) * np.tanh(linear(x, p["W_h"]) + a * h)

    return one_state(p, inputs, states, step)


def cfn(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    def step(x, h):
        return sigmoid(affine(p, "theta", x, h)) * np.tanh(h) + sigmoid(affine(p, "eta", x, h)) * np.tanh(
            linear(x, p["W"])
        )

    return one_state(p, inputs, states, step)


def _oscillators(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers, implicit: bool) -> Result:
    dt, damping = constants["dt"], constants["epsilon"]
    y, z, found = states["h"], states["z"], []
    for x in inputs["x"]:
        force = np.tanh(linear(y, p["U"]) + linear(z, p["U_z"]) + linear(x, p["W"]) + p["b"]) - constants["gamma"] * y
        z = (z + dt * force) / (1 + dt * damping) if implicit else z + dt * (force - damping * z)
        y = y + dt * z
        found.append(y)
    return {"h": np.stack(found)}, {"h": y, "z": z}


def cornn(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    return _oscillators(p, inputs, states, constants, implicit=False)


def cornn_implicit(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    return _oscillators(p, inputs, states, constants, implicit=True)


def unicornn(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    pace = constants["dt"] * sigmoid(p["c"])
    y, z, found = states["h"], states["z"], []
    for x in inputs["x"]:
        z = z - pace * (np.tanh(p["u"] * y + linear(x, p["W"]) + p["b"]) + constants["alpha"] * y)
        y = y + pace * z
        found.append(y)
    return {"h": np.stack(found)}, {"h": y, "z": z}


def lem(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    y, z, found = states["h"], states["z"], []
    for x in inputs["x"]:
        fast = constants["dt"] * sigmoid(affine(p, "2", x, y))
        slow = constants["dt"] * sigmoid(affine(p, "1", x, y))
        z = z - fast * z + fast * np.tanh(affine(p, "z", x, y))
        y = y - slow * y + slow * np.tanh(affine(p, "h", x, z))
        found.append(y)
    return {"h": np.stack(found)}, {"h": y, "z": z}


def fast_rnn(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    def step(x, h):
        return sigmoid(p["alpha"]) * np.tanh(linear(x, p["W"]) + linear(h, p["U"]) + p["b"]) + sigmoid(p["beta"]) * h

    return one_state(p, inputs, states, step)


def fastgrnn(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    def step(x, h):
        both = linear(x, p["W"]) + linear(h, p["U"])
        z = sigmoid(both + p["b_z"])
        return (sigmoid(p["zeta"]) * (1 - z) + sigmoid(p["nu"])) * np.tanh(both + p["b_h"]) + z * h

    return one_state(p, inputs, states, step)


def fastgrnn_lowrank(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    return fastgrnn({**p, "W": p["W_1"] @ p["W_2"], "U": p["U_1"] @ p["U_2"]}, inputs, states, constants)


def intersection_rnn(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    h, found = states["h"], []
    for x in inputs["x"]:
        y_in, h_in = relu(affine(p, "yin", x, h)), np.tanh(affine(p, "hin", x, h))
        g_y, g_h = sigmoid(affine(p, "gy", x, h)), sigmoid(affine(p, "gh", x, h))
        found.append(g_y * x + (1 - g_y) * y_in)
        h = g_h * h + (1 - g_h) * h_in
    return {"y": np.stack(found)}, {"h": h}


def ugrnn(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    def step(x, h):
        g = sigmoid(affine(p, "g", x, h))
        return g * h + (1 - g) * np.tanh(affine(p, "c", x, h))

    return one_state(p, inputs, states, step)


def janet(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    def step(x, h):
        s = affine(p, "f", x, h)
        return sigmoid(s) * h + sigmoid(constants["beta"] - s) * np.tanh(affine(p, "c", x, h))

    return one_state(p, inputs, states, step)


def lightru(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    def step(x, h):
        f = sigmoid(affine(p, "f", x, h))
        return h + f * (np.tanh(linear(x, p["W_h"])) - h)

    return one_state(p, inputs, states, step)


def ligru(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    def step(x, h):
        z = sigmoid(affine(p, "z", x, h))
        return z * h + (1 - z) * relu(affine(p, "h", x, h))

    return one_state(p, inputs, states, step)


def lipschitz_rnn(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    beta, epsilon = constants["beta"], constants["epsilon"]

    def matrix(M, gamma):  # beta (M - M') + (1 - beta)(M + M') = M + (1 - 2 beta) M'
        return M + (1 - 2 * beta) * M.T - gamma * np.eye(len(M))

    A, B = matrix(p["M_A"], constants["gamma_A"]), matrix(p["M_B"], constants["gamma_B"])

    def step(x, h):
        return h + epsilon * (linear(h, A) + np.tanh(linear(h, B) + linear(x, p["W"]) + p["b"]))

    return one_state(p, inputs, states, step)


def mclstm(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    v, c, found = states["v"], states["c"], []
    for x in inputs["x"]:
        f, i, o, m = (sigmoid(affine(p, n, x, v)) for n in "fiom")
        c = f * c + i * np.tanh(affine(p, "n", x, v))
        v = m * np.tanh(c)
        found.append(o * np.tanh(c))
    return {"h": np.stack(found)}, {"v": v, "c": c}


def _minimal_gate(p: Arrays, inputs: Arrays, states: Arrays, gate: Callable[[Array, Array], Array]) -> Result:
    def step(x, h):
        f = sigmoid(gate(x, h))
        return h + f * (np.tanh(linear(x, p["W_n"]) + linear(f * h, p["U_n"]) + p["b_n"]) - h)

    return one_state(p, inputs, states, step)


def mgu1(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    return _minimal_gate(p, inputs, states, lambda x, h: linear(h, p["U_f"]) + p["b_f"])


def mgu2(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    return _minimal_gate(p, inputs, states, lambda x, h: linear(h, p["U_f"]))


def mgu3(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    return _minimal_gate(p, inputs, states, lambda x, h: p["b_f"])


def minimal_rnn(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    def step(x, h):
        z = np.tanh(linear(x, p["W"]) + p["b"])
        u = sigmoid(linear(h, p["U_h"]) + linear(z, p["U_z"]) + p["b_u"])
        return u * h + (1 - u) * z

    return one_state(p, inputs, states, step)


def miru1(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    keep = constants["lam"]

    def step(x, h):
        r = sigmoid(affine(p, "r", x, h))
        return keep * h + (1 - keep) * np.tanh(linear(x, p["W_h"]) + linear(r * h, p["U_h"]) + p["b_h"])

    return one_state(p, inputs, states, step)


def miru2(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    keep = constants["lam"]

    def step(x, h):
        return keep * h + (1 - keep) * np.tanh(linear(x, p["W_h"]) + linear(p["theta"] * h, p["U_h"]) + p["b_h"])

    return one_state(p, inputs, states, step)


def multiplicative_lstm(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    h, c, found = states["h"], states["c"], []
    for x in inputs["x"]:
        m = linear(x, p["W_m"]) * linear(h, p["U_m"])
        i, f, o, g = (affine(p, n, x, m) for n in "ifog")
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        found.append(h)
    return {"h": np.stack(found)}, {"h": h, "c": c}


def multiplicative_lstm_paper(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    h, c, found = states["h"], states["c"], []
    for x in inputs["x"]:
        m = linear(x, p["W_m"]) * linear(h, p["U_m"])
        i, f, o, g = (affine(p, n, x, m) for n in "ifog")
        c = sigmoid(f) * c + sigmoid(i) * g
        h = np.tanh(sigmoid(o) * c)
        found.append(h)
    return {"h": np.stack(found)}, {"h": h, "c": c}


def _mutant(p: Arrays, inputs: Arrays, states: Arrays, z_of: Callable, r_of: Callable, x_of: Callable) -> Result:
    def step(x, h):
        z, r = sigmoid(z_of(x, h)), sigmoid(r_of(x, h))
        return np.tanh(linear(r * h, p["U_h"]) + x_of(x) + p["b_h"]) * z + h * (1 - z)

    return one_state(p, inputs, states, step)


def mut1(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    return _mutant(
        p,
        inputs,
        states,
        lambda x, h: linear(x, p["W_z"]) + p["b_z"],
        lambda x, h: affine(p, "r", x, h),
        lambda x: np.tanh(linear(x, p["W_h"])),
    )


def mut1_raw(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    return _mutant(
        p, inputs, states, lambda x, h: linear(x, p["W_z"]) + p["b_z"], lambda x, h: affine(p, "r", x, h), np.tanh
    )


def mut2(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    return _mutant(
        p,
        inputs,
        states,
        lambda x, h: affine(p, "z", x, h),
        lambda x, h: x + linear(h, p["U_r"]) + p["b_r"],
        lambda x: linear(x, p["W_h"]),
    )


def mut3(p: Arrays, inputs: Arrays, states: Arrays, constants: Numbers) -> Result:
    return _mutant(
        p,
        inputs,
        states,
        lambda x, h: affine(p, "z", x, np.tanh(h)),
        lambda x, h: affine(p, "r", x, h),
        lambda x: linear(x, p["W_h"]),
    )


CELLS: dict[str, Cell] = {
    cell.__name__: cell
    for cell in (
        antisymmetric_rnn,
        gated_antisymmetric_rnn,
        atr,
        brc,
        nbrc,
        cfn,
        cornn,
        cornn_implicit,
        unicornn,
        lem,
        fast_rnn,
        fastgrnn,
        fastgrnn_lowrank,
        intersection_rnn,
        ugrnn,
        janet,
        lightru,
        ligru,
        lipschitz_rnn,
        mclstm,
        mgu1,
        mgu2,
        mgu3,
        minimal_rnn,
        miru1,
        miru2,
        multiplicative_lstm,
        multiplicative_lstm_paper,
        mut1,
        mut1_raw,
        mut2,
        mut3,
    )
}
