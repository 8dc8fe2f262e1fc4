"""Cells whose form is their point: all are run at several sizes against the reference."""

from __future__ import annotations

from cells import LINEAR
from tiny import cell

FORMS = {
    "two outputs, one of them an intermediate": cell(
        "g[t] = tanh(W @ x[t] + U @ h[t-1])\nh[t] = 0.5 * h[t-1] + g[t]",
        inputs="{x: D}",
        states="{h: H}",
        parameters="{W: [H, D], U: [H, H]}",
        outputs="[h, g]",
    ),
    "everything a number": LINEAR,
    "a number as input, parameter and state beside vectors": cell(
        "a[t] = exp(-dt[t] * k) * a[t-1] + s * dt[t]\nh[t] = tanh(a[t] * h[t-1] + dt[t] * (W @ x[t]) + s)",
        inputs="{x: D, dt: []}",
        states="{h: H, a: []}",
        parameters="{W: [H, D], k: [], s: []}",
        outputs="[h, a]",
    ),
    "the number of the step": cell("h[t] = tanh(h[t-1] + x[t] * t) + t / 10", inputs="{x: H}", states="{h: H}"),
    "an input, an intermediate and a state one step before": cell(
        "g[t] = tanh(W @ x[t] + V @ x[t-1] + U @ h[t-1])\nh[t] = g[t] + 0.5 * g[t-1] * h[t-1]",
        inputs="{x: D}",
        states="{h: H}",
        parameters="{W: [H, D], V: [H, D], U: [H, H]}",
    ),
    "several inputs, one without a gradient": cell(
        "h[t] = m[t] * tanh(W @ x[t] + V @ z[t] + U @ h[t-1]) + (1 - m[t]) * h[t-1]",
        inputs="{x: D, z: E, m: []}",
        states="{h: H}",
        parameters="{W: [H, D], V: [H, E], U: [H, H]}",
        no_gradient="[m]",
    ),
    "two states of other sizes": cell(
        "s[t] = tanh(A @ h[t-1] + W @ x[t])\nh[t] = tanh(C @ s[t] + r * h[t-1])",
        inputs="{x: D}",
        states="{h: H, s: P}",
        parameters="{A: [P, H], W: [P, D], C: [H, P], r: [H]}",
        outputs="[s]",
    ),
    "transposed matrices and one used twice": cell(
        "g[t] = h[t-1] @ U + W @ x[t]\nh[t] = tanh(U @ g[t] + U @ h[t-1])",
        inputs="{x: D}",
        states="{h: H}",
        parameters="{W: [H, D], U: [H, H]}",
    ),
    "a state that is not read before it is written": cell(
        "h[t] = tanh(W @ x[t])", inputs="{x: D}", states="{h: H}", parameters="{W: [H, D]}"
    ),
    "a state that is a copy of the input": cell("p[t] = x[t]\nh[t] = p[t-1]", inputs="{x: H}", states="{h: H, p: H}"),
    "an output that is a state's old value": cell(
        "o[t] = h[t-1]\nh[t] = tanh(x[t] + h[t-1])", inputs="{x: H}", states="{h: H}", outputs="[o, h]"
    ),
    "a chain of products in one step": cell(
        "a[t] = tanh(W @ x[t] + U @ h[t-1])\nb[t] = tanh(V @ a[t])\nh[t] = h[t-1] + X @ b[t]",
        inputs="{x: D}",
        states="{h: H}",
        parameters="{W: [H, D], U: [H, H], V: [H, H], X: [H, H]}",
    ),
}
FORMS["a size that is a sum"] = cell(
    "g[t] = tanh(V @ x[t] + e)\nh[t] = tanh(W @ g[t] + k * h[t-1])",
    inputs="{x: D}",
    states="{h: D + E}",
    parameters="{W: [D + E, E], V: [E, D], k: [D + E], e: [E]}",
)
