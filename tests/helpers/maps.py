"""Maps of the literature as cells: without parameters, or with the one that they are known by."""

from __future__ import annotations

import numpy as np
from tiny import cell

# Henon 1976, a = 1.4, b = 0.3
HENON = cell(
    "x[t] = 1 - 1.4 * x[t-1] * x[t-1] + y[t-1]\ny[t] = 0.3 * x[t-1]",
    name="henon",
    inputs="{}",
    states="{x: [], y: []}",
    outputs="[x, y]",
)
# May 1976
LOGISTIC = cell(
    "x[t] = r * x[t-1] * (1 - x[t-1])",
    name="logistic",
    inputs="{}",
    states="{x: []}",
    outputs="[x]",
    parameters="{r: []}",
)
LINEAR_MAP = cell("h[t] = A @ h[t-1]", name="linear_map", inputs="{}", states="{h: H}", parameters="{A: [H, H]}")
TANH_OF_ONE = cell(
    "h[t] = tanh(w * h[t-1] + b)", name="tanh_of_one", inputs="{}", states="{h: []}", parameters="{w: [], b: []}"
)
DT = 0.01  # of Lorenz' step


def lorenz() -> str:
    """Lorenz 1963 (sigma = 10, rho = 28, beta = 8/3), a step of 0.01 by the rule of Runge and
    Kutta."""
    slopes = {
        "x": "10 * ({y} - {x})",
        "y": "{x} * (28 - {z}) - {y}",
        "z": "{x} * {y} - 8 / 3 * {z}",
    }
    lines, at = [], {v: f"{v}[t-1]" for v in slopes}
    for stage, part in enumerate((0.5, 0.5, 1.0, 0.0), 1):
        lines += [f"k{stage}{v}[t] = {text.format(**at)}" for v, text in slopes.items()]
        if part:
            lines += [f"p{stage}{v}[t] = {v}[t-1] + {part * DT} * k{stage}{v}[t]" for v in slopes]
            at = {v: f"p{stage}{v}[t]" for v in slopes}
    lines += [f"{v}[t] = {v}[t-1] + {DT} / 6 * (k1{v}[t] + 2 * k2{v}[t] + 2 * k3{v}[t] + k4{v}[t])" for v in slopes]
    return cell("\n".join(lines), name="lorenz", inputs="{}", states="{x: [], y: [], z: []}", outputs="[x, y, z]")


def flip_flop() -> tuple[dict[str, np.ndarray], str]:
    """Three bits that a pulse sets and that stay as they are without one (the task of Sussillo &
    Barak 2013), made by hand: h' = tanh(2 h + 3 x) for each."""
    params = {"w": np.array(2.0), "v": np.array(3.0)}
    text = cell(
        "h[t] = tanh(w * h[t-1] + v * x[t])",
        name="flip_flop",
        inputs="{x: H}",
        states="{h: H}",
        parameters="{w: [], v: []}",
    )
    return params, text
