"""Plain versions of cells of continuous time, from the equations of their papers and packages, for
NumPy and torch (either.py). Nothing of rnnspec is used."""

from __future__ import annotations

from either import over_time, relu, sigmoid, spike, tanh


def of(p, gate, x, h):
    return x @ p[f"W_{gate}"].T + h @ p[f"U_{gate}"].T + p[f"b_{gate}"]


def field(p, h):
    """The layer of tanh that two of the cells have as their equation."""
    return tanh(h @ p["A_1"].T + p["a_1"]) @ p["A_2"].T + p["a_2"]


def ode_rnn(p, inputs, states, constants):
    def step(now, s):
        free = s["h"] + now["dt"][:, None] * field(p, s["h"])
        return {"h": tanh(now["x"] @ p["W"].T + free @ p["U"].T + p["b"])}

    return over_time(step, inputs, states, "h")


def gru_ode(p, inputs, states, constants):
    def slope(x, h):
        r, z = sigmoid(of(p, "r", x, h)), sigmoid(of(p, "z", x, h))
        return (1 - z) * (tanh(of(p, "n", x, r * h)) - h)

    def step(now, s):
        dt = now["dt"][:, None]
        return {"h": s["h"] + dt * slope(now["x"], s["h"] + 0.5 * dt * slope(now["x"], s["h"]))}

    return over_time(step, inputs, states, "h")


def lstm(p, x, h, c, forget=0.0):
    c = sigmoid(of(p, "f", x, h) + forget) * c + sigmoid(of(p, "i", x, h)) * tanh(of(p, "g", x, h))
    return sigmoid(of(p, "o", x, h)) * tanh(c), c


def ode_lstm(p, inputs, states, constants):
    def step(now, s):
        h, c = lstm(p, now["x"], s["h"], s["c"])
        for _ in range(3):
            h = h + now["dt"][:, None] / 3 * field(p, h)
        return {"h": h, "c": c}

    return over_time(step, inputs, states, "h")


def cfc_mixed(p, inputs, states, constants):
    def step(now, s):
        h, c = lstm(p, now["x"], s["h"], s["c"], 1.0)
        z = 1.7159 * tanh(0.666 * (now["x"] @ p["W"].T + h @ p["U"].T + p["b"]))
        first, second, a, b = (z @ p[f"A_{n}"].T + p[f"b_{n}"] for n in "12ab")
        gate = sigmoid(a * now["dt"][:, None] + b)
        return {"h": tanh(first) * (1 - gate) + gate * tanh(second), "c": c}

    return over_time(step, inputs, states, "h")


def lif_conductance(p, inputs, states, n):
    def step(now, s):
        g, k = (
            (s[name] + now["x"] @ relu(sign * p["W"]).T + s["s"] @ relu(sign * p["R"]).T) * (1 - n["dt"] * n[decay])
            for name, sign, decay in (("g", 1, "excite"), ("k", -1, "inhibit"))
        )
        pull = n["leak"] * (-n["rest"] - s["v"]) + g * (n["v_excite"] - s["v"]) + k * (-n["inhibitory"] - s["v"])
        u = s["v"] + n["dt"] * n["c_inv"] * pull
        fired = spike(u + n["threshold"], lambda v: 1 / (1 + n["alpha"] * abs(v)) ** 2)
        return {"v": (1 - fired) * u + fired * -n["reset"], "g": g, "k": k, "s": fired}

    return over_time(step, inputs, states, "s")


CELLS = {f.__name__: f for f in (ode_rnn, gru_ode, ode_lstm, cfc_mixed, lif_conductance)}
TORCH = tuple(CELLS)  # whose gradients torch is asked for
