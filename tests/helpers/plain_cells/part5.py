"""Plain versions of cells from the equations of their papers and packages, for NumPy and torch
(either.py). Nothing of rnnspec is used."""

from __future__ import annotations

from either import cat, normed, over_time, relu, sigmoid, tanh, total, where


def linear(p, x, gate="", W="W_", b="b_"):
    return x @ p[W + gate].T + p[b + gate]


def affine(p, x, h, gate):
    return x @ p[f"W_{gate}"].T + h @ p[f"U_{gate}"].T + p[f"b_{gate}"]


def sligru(p, inputs, states, constants):
    def step(now, s):
        count = s["h"].shape[-1]
        recurrent = normed(cat(s["h"] @ p["U_h"].T, s["h"] @ p["U_z"].T), constants["eps"])
        candidate = relu(linear(p, now["x"], "h") + recurrent[:, :count])
        keep = sigmoid(linear(p, now["x"], "z") + recurrent[:, count:])
        return {"h": keep * s["h"] + (1 - keep) * candidate}

    return over_time(step, inputs, states, "h")


def augmented_lstm(p, inputs, states, constants):
    def step(now, s):
        x, h = now["x"], s["h"]
        i, f, o, r = (sigmoid(affine(p, x, h, gate)) for gate in "ifor")
        c = i * tanh(affine(p, x, h, "g")) + f * s["c"]
        return {"h": r * o * tanh(c) + (1 - r) * (x @ p["V"].T + p["b_v"]), "c": c}

    return over_time(step, inputs, states, "h")


def focused_lstm(p, inputs, states, constants):
    def step(now, s):
        i, o = (sigmoid(s["h"] @ p[f"U_{gate}"].T + p[f"b_{gate}"]) for gate in "io")
        c = s["c"] + i * tanh(linear(p, now["x"], "g"))
        return {"h": o * tanh(c), "c": c}

    return over_time(step, inputs, states, "h")


def lightweight_lstm(p, inputs, states, constants):
    def step(now, s):
        c = s["c"] + sigmoid(s["h"] @ p["U_i"].T + p["b_i"]) * tanh(linear(p, now["x"], "g"))
        return {"h": tanh(c), "c": c}

    return over_time(step, inputs, states, "h")


def ln_lstm_basic(p, inputs, states, constants):
    def step(now, s):
        def gate(n):
            both = now["x"] @ p[f"W_{n}"].T + s["h"] @ p[f"U_{n}"].T
            return normed(both, constants["eps"]) * p[f"g_{n}"] + p[f"b_{n}"]

        c = s["c"] * sigmoid(gate("f") + constants["forget_bias"]) + sigmoid(gate("i")) * tanh(gate("j"))
        c = normed(c, constants["eps"]) * p["g_c"] + p["b_c"]
        return {"h": tanh(c) * sigmoid(gate("o")), "c": c}

    return over_time(step, inputs, states, "h")


def ln_rnn(p, inputs, states, constants):
    def step(now, s):
        return {"h": tanh(normed(now["x"] @ p["W"].T + s["h"] @ p["U"].T, constants["eps"]) * p["g"] + p["b"])}

    return over_time(step, inputs, states, "h")


def ea_lstm(p, inputs, states, constants):
    def step(now, s):
        f, o = (sigmoid(affine(p, now["x"], s["h"], gate)) for gate in "fo")
        i = sigmoid(linear(p, now["x_s"], "i"))
        c = f * s["c"] + i * tanh(affine(p, now["x"], s["h"], "g"))
        return {"h": o * tanh(c), "c": c}

    return over_time(step, inputs, states, "h")


def mass_lstm(p, inputs, states, constants):
    def step(now, s):
        mass, c = now["m"], s["c"]
        seen = cat(mass[:, None], now["a"], c / (total(abs(c)) + constants["eps"]))
        i = sigmoid(linear(p, seen, "i"))
        i, o = i / total(i), sigmoid(linear(p, seen, "o"))
        new = mass[:, None] * i
        for k, (W, b) in enumerate(zip(p["W_r"], p["b_r"])):
            row = relu(seen @ W.T + b)
            length = total(row)
            new = new + c[:, k : k + 1] * row / where(length < 1e-12, 0 * length + 1e-12, length)
        return {"h": o * new, "c": (1 - o) * new}

    return over_time(step, inputs, states, "h")


def mingru_signed(p, inputs, states, constants):
    def step(now, s):
        z = sigmoid(linear(p, now["x"], "z"))
        return {"h": tanh(linear(p, now["x"], "s")) * s["h"] + z * linear(p, now["x"], "n")}

    return over_time(step, inputs, states, "h")


def cerebral_lstm(p, inputs, states, constants):
    def step(now, s):
        halves = {}
        for half in "ul":
            i, f, g, o = (affine(p, now["x"], s["h"], half + gate) for gate in "ifgo")
            memory = sigmoid(f) * s[half] + sigmoid(i) * tanh(g)
            halves[half] = memory, sigmoid(o) * tanh(memory)
        return {"h": halves["u"][1] + halves["l"][1], "u": halves["u"][0], "l": halves["l"][0]}

    return over_time(step, inputs, states, "h")


def comfi_fastgrnn(p, inputs, states, constants):
    def step(now, s):
        both = now["x"] @ p["W"].T + s["h"] @ p["U"].T
        z, new = sigmoid(both + p["b_z"]), tanh(both + p["b_h"])
        h = z * s["h"] + (sigmoid(p["zeta"]) * (1 - z) + sigmoid(p["nu"])) * new
        gamma = p["gamma"].clip(0, 1)
        return {"h": gamma * h + (1 - gamma) * p["lam"]}

    return over_time(step, inputs, states, "h")


CELLS = {
    f.__name__: f
    for f in (
        sligru,
        augmented_lstm,
        focused_lstm,
        lightweight_lstm,
        ln_lstm_basic,
        ln_rnn,
        ea_lstm,
        mass_lstm,
        mingru_signed,
        cerebral_lstm,
        comfi_fastgrnn,
    )
}
TORCH = tuple(CELLS)  # whose gradients torch is asked for
