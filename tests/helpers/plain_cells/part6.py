"""Plain versions of cells with linear recurrences and matrices for states, from the equations of
their papers and packages, for NumPy and torch (either.py). Nothing of rnnspec is used."""

from __future__ import annotations

from either import (
    cat,
    cos,
    einsum,
    exp,
    fixed,
    log,
    outer,
    over_time,
    sigmoid,
    silu,
    sin,
    sqrt,
    stacked,
    tanh,
    times,
    total,
    unit,
    where,
)


def mingru_rotation(p, inputs, states, constants):
    def step(now, s):
        def line(n):
            return now["x"] @ p[f"W_{n}"].T + p[f"b_{n}"]

        angle, d = line("theta"), tanh(line("d"))
        new = [sigmoid(line(f"z{n}")) * line(f"n{n}") for n in "uv"]
        u = cos(angle) * s["u"] - d * sin(angle) * s["v"] + new[0]
        v = sin(angle) * s["u"] + d * cos(angle) * s["v"] + new[1]
        return {"u": u, "v": v, "h": cat(u, v)}

    return over_time(step, inputs, states, "h")


def elu_plus_one(v):
    return where(v > 0, v + 1, exp(where(v > 0, 0 * v, v)))


def linear_attention(p, inputs, states, constants):
    def step(now, s):
        q, k, v = (now["x"] @ p[f"W_{n}"].T for n in "qkv")
        q, k = elu_plus_one(q), elu_plus_one(k)
        S, z = s["S"] + outer(v, k), s["z"] + k
        return {"S": S, "z": z, "h": times(S, q) / (total(z * q) + constants["eps"])}

    return over_time(step, inputs, states, "h")


def _delta_rule(S, k, v, beta):
    """S (I - beta k k^T) + beta v k^T, in that form."""
    removed = einsum("bij,bj,bk->bik", S, k, k)
    return S - beta[:, :, None] * removed + beta[:, :, None] * outer(v, k)


def _deltanet(p, inputs, states, constants, decay):
    def step(now, s):
        x = now["x"]
        q, k, v = (silu(x @ p[f"W_{n}"].T) for n in "qkv")
        q, k = q / sqrt(total(q * q) + 1e-6), k / sqrt(total(k * k) + 1e-6)
        beta = constants["beta_max"] * sigmoid(x @ p["w_beta"])[:, None]
        S = _delta_rule(s["S"] * decay(x), k, v, beta)
        return {"S": S, "h": times(S, q / q.shape[-1] ** 0.5)}

    return over_time(step, inputs, states, "h")


def deltanet(p, inputs, states, constants):
    return _deltanet(p, inputs, states, constants, lambda x: 1)


def gated_deltanet(p, inputs, states, constants):
    def decay(x):
        step_size = log(1 + exp(x @ p["w_alpha"] + p["dt_bias"]))
        return exp(-exp(p["a_log"]) * step_size)[:, None, None]

    return _deltanet(p, inputs, states, constants, decay)


def fast_weight_programmer(p, inputs, states, constants):
    def step(now, s):
        q, k = (elu_plus_one(now["x"] @ p[f"W_{n}"].T) for n in "qk")
        q, k = q / (total(q) + constants["eps"]), k / (total(k) + constants["eps"])
        beta = sigmoid(now["x"] @ p["w_beta"])[:, None]
        S = _delta_rule(s["S"], k, now["x"] @ p["W_v"].T, beta)
        return {"S": S, "h": times(S, q)}

    return over_time(step, inputs, states, "h")


def retention(p, inputs, states, constants):
    """The parallel form: every key against every query, both turned by their time."""
    x, theta, gamma = inputs["x"], fixed(p["theta"]), constants["gamma"]

    def turned(u, v, angle):
        return u * cos(angle) - v * sin(angle), u * sin(angle) + v * cos(angle)

    def at(n, kind):
        return turned(x[n] @ p[f"W_{kind}_re"].T, x[n] @ p[f"W_{kind}_im"].T, n * theta)

    def memory(n):
        """What the state holds after step n, in coordinates that do not turn."""
        past = turned(states["S_re"], states["S_im"], theta)
        held = [gamma ** (n + 1) * part for part in past]
        for m in range(n + 1):
            real, imaginary = at(m, "k")
            v = gamma ** (n - m) * (x[m] @ p["W_v"].T)
            held = [held[0] + outer(v, real), held[1] - outer(v, imaginary)]
        return held

    rows = []
    for n in range(len(x)):
        (real, imaginary), (q, r) = memory(n), at(n, "q")
        rows.append((times(real, q) - times(imaginary, r)) / (2 * theta.shape[0]) ** 0.5)
    final = dict(zip(("S_re", "S_im"), turned(*memory(len(x) - 1), (len(x) - 1) * theta)))
    return {"h": stacked(rows)}, final


def hgrn(p, inputs, states, constants):
    def step(now, s):
        x = now["x"]
        f = constants["lower"] + (1 - constants["lower"]) * sigmoid(x @ p["W_f"].T + p["b_f"])
        turned = (
            cos(p["theta"]) * s["u"] - sin(p["theta"]) * s["v"],
            sin(p["theta"]) * s["u"] + cos(p["theta"]) * s["v"],
        )
        u, v = (f * old + (1 - f) * silu(x @ p[f"W_{n}"].T + p[f"b_{n}"]) for n, old in zip(("re", "im"), turned))
        return {"u": u, "v": v, "h": sigmoid(x @ p["W_g"].T + p["b_g"]) * cat(u, v)}

    return over_time(step, inputs, states, "h")


def gla(p, inputs, states, constants):
    def step(now, s):
        q, k, v = (now["x"] @ p[f"W_{n}"].T for n in "qkv")
        alpha = sigmoid(now["x"] @ p["W_1"].T @ p["W_2"].T + p["b"]) ** (1 / constants["tau"])
        S = s["S"] * alpha[:, None, :] + outer(v, k)
        return {"S": S, "h": times(S, q) / q.shape[-1] ** 0.5}

    return over_time(step, inputs, states, "h")


def hgrn2(p, inputs, states, constants):
    def step(now, s):
        f = constants["lower"] + (1 - constants["lower"]) * sigmoid(now["x"] @ p["W_f"].T)
        S = s["S"] * f[:, None, :] + outer(now["x"] @ p["W_v"].T, 1 - f)
        return {"S": S, "h": times(S, silu(now["x"] @ p["W_q"].T))}

    return over_time(step, inputs, states, "h")


def rwkv4(p, inputs, states, constants):
    """The sums themselves, without the exponent m that keeps them in range."""

    def step(now, s):
        r, k, v = ((p[f"mu_{n}"] * now["x"] + (1 - p[f"mu_{n}"]) * s["x"]) @ p[f"W_{n}"].T for n in "rkv")
        above, below = exp(s["m"]) * s["p"], exp(s["m"]) * s["q"]
        own = exp(p["u"] + k)
        h = sigmoid(r) * (above + own * v) / (below + own)
        decay = exp(-exp(p["w"]))
        above, below = decay * above + exp(k) * v, decay * below + exp(k)
        m = where(s["m"] - exp(p["w"]) > k, s["m"] - exp(p["w"]), k)
        return {"x": now["x"], "h": h, "m": m, "p": above * exp(-m), "q": below * exp(-m)}

    return over_time(step, inputs, states, "h")


def rwkv6(p, inputs, states, constants):
    def step(now, s):
        y = now["x"] + p["mu"] * (s["x"] - now["x"])
        r, k, v = (y @ p[f"W_{n}"].T for n in "rkv")
        w = exp(-exp(p["b"] + tanh(y @ p["W_1"].T) @ p["W_2"].T))
        kv = outer(v, k)
        return {"x": now["x"], "h": times(s["S"] + p["u"] * kv, r), "S": s["S"] * w[:, None, :] + kv}

    return over_time(step, inputs, states, "h")


def rwkv7(p, inputs, states, constants):
    def step(now, s):
        y = now["x"] + p["mu"] * (s["x"] - now["x"])
        r, k, v = (y @ p[f"W_{n}"].T for n in "rkv")
        w, a = exp(-0.606531 * sigmoid(y @ p["W_w"].T + p["b_w"])), sigmoid(y @ p["W_a"].T + p["b_a"])
        removed, written = unit(p["xi"] * k), k * (1 + (a - 1) * p["alpha"])
        turned = einsum("bij,bj,bk->bik", s["S"], -removed, removed * a)
        S = s["S"] * w[:, None, :] + turned + outer(v, written)
        return {"x": now["x"], "S": S, "h": times(S, r)}

    return over_time(step, inputs, states, "h")


def _discretised(p, dt):
    """exp(dt A), and (exp(dt A) - 1) / A, as pairs."""
    real, imaginary = -exp(p["a_log"]), p["a_im"]
    size = exp(dt * real)
    a, b = size * cos(dt * imaginary), size * sin(dt * imaginary)
    length = real * real + imaginary * imaginary
    return (a, b), (((a - 1) * real + b * imaginary) / length, (b * real - (a - 1) * imaginary) / length)


def _product(a, b):
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def s4d(p, inputs, states, constants):
    kept, scale = _discretised(p, exp(p["dt_log"])[:, None])
    out = _product((p["C_re"], p["C_im"]), scale)

    def step(now, s):
        u, v = _product(kept, (s["u"], s["v"]))
        u = u + now["x"][:, :, None]
        return {"u": u, "v": v, "y": 2 * _product(out, (u, v))[0].sum(-1) + p["d"] * now["x"]}

    return over_time(step, inputs, states, "y")


def s5(p, inputs, states, constants):
    kept, scale = _discretised(p, exp(p["dt_log"]))

    def step(now, s):
        new = _product(scale, (now["x"] @ p["B_re"].T, now["x"] @ p["B_im"].T))
        u, v = (old + added for old, added in zip(_product(kept, (s["u"], s["v"])), new))
        return {"u": u, "v": v, "y": 2 * (u @ p["C_re"].T - v @ p["C_im"].T) + p["d"] * now["x"]}

    return over_time(step, inputs, states, "y")


CELLS = {
    f.__name__: f
    for f in (
        mingru_rotation,
        linear_attention,
        deltanet,
        gated_deltanet,
        fast_weight_programmer,
        retention,
        gla,
        hgrn,
        hgrn2,
        rwkv4,
        rwkv6,
        rwkv7,
        s4d,
        s5,
    )
}
TORCH = tuple(CELLS)  # whose gradients torch is asked for
