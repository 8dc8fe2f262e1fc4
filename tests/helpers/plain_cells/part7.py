"""Plain versions of spiking neurons, and of cells from dynamics, from the equations of their papers
and packages, for NumPy and torch (either.py). Nothing of rnnspec is used."""

from __future__ import annotations

from either import cat, exp, fixed, log, over_time, relu, sigmoid, spike, tanh, where


def atan(u):
    return 1 / (1 + (3.141592653589793 * u) ** 2)


def super_spike(u):
    return 1 / (abs(u) + 1) ** 2


def steep(u):
    return 4 * sigmoid(4 * u) * (1 - sigmoid(4 * u))


def fired(v, threshold):
    """1 where the potential is above the threshold, without a gradient."""
    return where(v > threshold, 0 * fixed(v) + 1, 0 * fixed(v))


def lif_synaptic(p, inputs, states, constants):
    alpha, beta, threshold = (constants[n] for n in ("alpha", "beta", "v_th"))

    def step(now, s):
        i = alpha * s["i"] + now["x"] @ p["W"].T + p["b"] + s["s"] @ p["R"].T
        v = beta * s["v"] + i - fired(s["v"], threshold) * threshold
        return {"i": i, "v": v, "s": spike(v - threshold, atan)}

    return over_time(step, inputs, states, "s")


def lif_alpha(p, inputs, states, constants):
    alpha, beta, threshold = (constants[n] for n in ("alpha", "beta", "v_th"))

    def step(now, s):
        reset, new = fired(s["v"], threshold), now["x"] @ p["W"].T + p["b"]
        e, i = alpha * s["e"] + new, beta * s["i"] - new
        log_alpha, log_beta = (log(0 * p["b"] + n) for n in (alpha, beta))
        v = (log_alpha / (log_beta - log_alpha) + 1) * (e + i)
        e, i, v = (a - reset * a for a in (e, i, v))
        return {"e": e, "i": i, "v": v, "s": spike(v - threshold, atan)}

    return over_time(step, inputs, states, "s")


def spiking_lstm(p, inputs, states, constants):
    def step(now, s):
        i, f, g, o = (now["x"] @ p[f"W_{n}"].T + s["h"] @ p[f"U_{n}"].T + p[f"b_{n}"] for n in "ifgo")
        c = sigmoid(f) * s["c"] + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)
        return {"h": h, "c": c, "s": spike(h - constants["v_th"], atan)}

    return over_time(step, inputs, states, "s")


def lif_current(p, inputs, states, constants):
    k = constants

    def step(now, s):
        current = s["i"] + now["x"] @ p["W"].T + s["s"] @ p["R"].T
        v = s["v"] + k["mem"] * (k["v_leak"] - s["v"] + current)
        z = spike(v - k["v_th"], super_spike)
        return {"s": z, "v": v + fixed(z) * (k["v_reset"] - v), "i": (1 - k["syn"]) * current}

    return over_time(step, inputs, states, "s")


def adex(p, inputs, states, constants):
    k = constants

    def step(now, s):
        current = s["i"] + now["x"] @ p["W"].T + s["s"] @ p["R"].T
        upswing = k["delta_T"] * exp((s["v"] - k["v_th"]) / k["delta_T"])
        v = s["v"] + k["mem"] * (k["v_leak"] - s["v"] + upswing + current - s["a"])
        z = spike(v - k["v_th"], super_spike)
        a = (1 - k["ada"]) * s["a"] + k["ada"] * k["coupling"] * (s["v"] - k["v_leak"]) + k["jump"] * z
        return {"s": z, "v": v + z * (k["v_reset"] - v), "i": (1 - k["syn"]) * current, "a": a}

    return over_time(step, inputs, states, "s")


def izhikevich(p, inputs, states, constants):
    k = constants

    def step(now, s):
        current = now["x"] @ p["W"].T + s["s"] @ p["R"].T
        v = s["v"] + k["step"] * (0.04 * s["v"] ** 2 + 5 * s["v"] + 140 - s["u"] + current)
        u = s["u"] + k["step"] * k["a"] * (k["b"] * s["v"] - s["u"])
        z = spike(v - k["v_th"], super_spike)
        return {"s": z, "v": v + z * (-k["c"] - v), "u": u + z * k["d"]}

    return over_time(step, inputs, states, "s")


def _hard_reset(v, threshold, reset):
    z = spike(v - threshold, steep)
    return {"s": z, "v": v + z * (reset - v)}


def plif(p, inputs, states, constants):
    def step(now, s):
        leak = s["v"] - constants["v_reset"]
        v = s["v"] + (now["x"] @ p["W"].T + p["b"] - leak) / (1 + exp(-p["w"]))
        return _hard_reset(v, constants["v_th"], constants["v_reset"])

    return over_time(step, inputs, states, "s")


def nonlinear_lif(p, inputs, states, constants):
    k = constants

    def step(now, s):
        drive = k["a_0"] * (s["v"] - k["v_rest"]) * (s["v"] - k["v_c"])
        return _hard_reset(s["v"] + (now["x"] @ p["W"].T + p["b"] + drive) / k["tau"], k["v_th"], -k["v_low"])

    return over_time(step, inputs, states, "s")


def gated_lipschitz_rnn(p, inputs, states, constants):
    def constrained(M, gamma):
        skew = constants["beta"] * (M - M.T) + (1 - constants["beta"]) * (M + M.T)
        return lambda h: h @ skew.T - gamma * h

    A, B = (constrained(p[f"M_{n}"], constants[f"gamma_{n}"]) for n in "AB")

    def step(now, s):
        gate = sigmoid(B(s["h"]) + now["x"] @ p["W_g"].T + p["b_g"])
        change = A(s["h"]) + tanh(B(s["h"]) + now["x"] @ p["W"].T + p["b"])
        return {"h": s["h"] + constants["epsilon"] * gate * change}

    return over_time(step, inputs, states, "h")


def orthogonal_rnn(p, inputs, states, constants):
    def step(now, s):
        h = s["h"]
        for u in p["u"]:
            unit = u / (u * u).sum() ** 0.5
            h = h - 2 * (h @ unit)[:, None] * unit
        return {"h": tanh(h + now["x"] @ p["W"].T + p["b"])}

    return over_time(step, inputs, states, "h")


def es2n(p, inputs, states, constants):
    W, R, O, b = (fixed(p[n]) for n in ("W", "R", "O", "b"))
    beta, rho = constants["beta"], constants["rho"]

    def step(now, s):
        new = tanh(now["x"] @ W.T + rho * (s["h"] @ R.T) + b)
        return {"h": beta * new + (1 - beta) * (s["h"] @ O.T)}

    return over_time(step, inputs, states, "h")


def softplus(v):
    return log(1 + exp(v))


def ltc(p, inputs, states, constants):
    def synapses(before, suffix):
        """Conductances, and what they drive, summed over the neurons that they come from."""
        w, sigma, mu, E = (p[n + suffix] for n in ("w", "sigma", "mu", "E"))
        conductance = softplus(w) * sigmoid(sigma * (before[:, :, None] - mu))
        return conductance.sum(1), (conductance * E).sum(1)

    def step(now, s):
        rounds, v = 3, s["v"]
        below_in, above_in = synapses(now["x"] * p["w_x"] + p["b_x"], "_in")
        capacity, leak = softplus(p["c"]) / (fixed(now["dt"])[:, None] / rounds), softplus(p["g"])
        for _ in range(rounds):
            below, above = synapses(v, "")
            v = (capacity * v + leak * p["v_leak"] + above + above_in) / (
                capacity + leak + below + below_in + constants["eps"]
            )
        return {"v": v, "h": v * p["w_y"] + p["b_y"]}

    return over_time(step, inputs, states, "h")


def rits(p, inputs, states, constants):
    def line(v, n):
        return v @ p[f"W_{n}"].T + p[f"b_{n}"]

    def step(now, s):
        x, m, delta = now["x"], fixed(now["m"]), fixed(now["delta"])
        h = s["h"] * exp(-relu(line(delta, "d")))
        x_h = line(h, "r")
        x_c = m * x + (1 - m) * x_h
        z_h = line(x_c, "z") - x_c * p["W_z"].diagonal()
        alpha = sigmoid(line(cat(exp(-relu(delta * p["w_x"] + p["b_x"])), m), "a"))
        c_c = m * x + (1 - m) * (alpha * z_h + (1 - alpha) * x_h)
        i, f, g, o = (line(cat(c_c, m), n) + h @ p[f"U_{n}"].T for n in "ifgo")
        c = sigmoid(f) * s["c"] + sigmoid(i) * tanh(g)
        return {"y": c_c, "h": sigmoid(o) * tanh(c), "c": c}

    return over_time(step, inputs, states, "y", "h")


def sru_v1(p, inputs, states, constants):
    def step(now, s):
        f, r = (sigmoid(now["x"] @ p[f"W_{n}"].T + p[f"b_{n}"]) for n in "fr")
        c = f * s["c"] + (1 - f) * (now["x"] @ p["W"].T)
        return {"c": c, "h": r * tanh(c) + (1 - r) * (now["x"] @ p["V"].T)}

    return over_time(step, inputs, states, "h")


CELLS = {
    f.__name__: f
    for f in (
        lif_synaptic,
        lif_alpha,
        spiking_lstm,
        lif_current,
        adex,
        izhikevich,
        plif,
        nonlinear_lif,
        gated_lipschitz_rnn,
        orthogonal_rnn,
        es2n,
        ltc,
        rits,
        sru_v1,
    )
}
TORCH = tuple(CELLS)  # whose gradients torch is asked for
