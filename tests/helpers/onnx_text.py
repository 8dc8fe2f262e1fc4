"""The RNN, GRU and LSTM operators of ONNX in plain NumPy, float64, line by line from the operators'
text: what tests compare with.

Written from the text alone, not from our specs. `onnx.reference.ReferenceEvaluator` is no oracle
here: in onnx 1.23 it ignores sequence_lens, clip and input_forget, and knows few of the
activations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, helper

Array = np.ndarray
NAMES = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
ALPHA = {"LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "HardSigmoid": 0.2, "Elu": 1.0, "Affine": None, "ScaledTanh": None}
BETA = {"HardSigmoid": 0.5, "Affine": None, "ScaledTanh": None}
FUNCTIONS = {
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "Tanh": lambda x, a, b: np.tanh(x),
    "Sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "ThresholdedRelu": lambda x, a, b: np.where(x >= a, x, 0),
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a, b: np.minimum(np.maximum(a * x + b, 0), 1),
    "Elu": lambda x, a, b: np.where(x >= 0, x, a * (np.exp(x) - 1)),
    "Softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "Softplus": lambda x, a, b: np.log(1 + np.exp(x)),
}


def evaluate(node: NodeProto, arrays: dict[str, Array], clip_hidden: bool = True) -> dict[str, Array]:
    """Every output, Y, Y_h and Y_c, of a node whose inputs are called as in the operator's text.

    clip_hidden: the text clips the input of every activation; ONNX Runtime 1.32 does not clip that
    of h of LSTM."""
    known = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    given = {n: np.asarray(a, np.float64) for n, a in arrays.items()}
    directions = {b"forward": 1, b"reverse": 1, b"bidirectional": 2}[known.get("direction", b"forward")]
    first = known.get("layout", 0) == 1
    x = np.swapaxes(given["X"], 0, 1) if first else given["X"]
    steps, rows, hidden = *x.shape[:2], given["R"].shape[2]
    lengths = given.get("sequence_lens", np.full(rows, steps)).astype(int)
    functions = _functions(node.op_type, known, directions, clip_hidden)
    y, states = (
        np.zeros((steps, directions, rows, hidden)),
        {s: np.zeros((directions, rows, hidden)) for s in "hc"[: 1 + (node.op_type == "LSTM")]},
    )
    for d in range(directions):
        back = d == 1 or known.get("direction") == b"reverse"
        initial = {s: given.get(f"initial_{s}") for s in states}
        for row in range(rows):
            state = {
                s: np.zeros(hidden) if a is None else (a[row, d] if first else a[d, row]) for s, a in initial.items()
            }
            order = range(lengths[row])
            for t in reversed(order) if back else order:
                state = _step(
                    node.op_type,
                    known,
                    functions[d],
                    {n: a[d] for n, a in given.items() if n in "WRBP"},
                    x[t, row],
                    state,
                )
                y[t, d, row] = state["h"]
            for s in states:
                states[s][d, row] = state[s]
    if first:
        return {"Y": y.transpose(2, 0, 1, 3)} | {f"Y_{s}": a.swapaxes(0, 1) for s, a in states.items()}
    return {"Y": y} | {f"Y_{s}": a for s, a in states.items()}


def _functions(op: str, known: dict[str, Any], directions: int, clip_hidden: bool) -> list[list[Any]]:
    names = [n.decode() for n in known.get("activations", [])] or DEFAULTS[op] * directions
    alphas, betas = list(known.get("activation_alpha", [])), list(known.get("activation_beta", []))
    made = []
    for number, name in enumerate(names):
        clip = known.get("clip", np.inf) if clip_hidden or op != "LSTM" or number % 3 != 2 else np.inf
        alpha = (alphas.pop(0) if alphas else ALPHA[name]) if name in ALPHA else None
        beta = (betas.pop(0) if betas else BETA[name]) if name in BETA else None
        made.append(lambda v, f=FUNCTIONS[name], a=alpha, b=beta, most=clip: f(np.clip(v, -most, most), a, b))
    per = len(DEFAULTS[op])
    return [made[d * per : (d + 1) * per] for d in range(directions)]


def _step(
    op: str, known: dict[str, Any], functions: list[Any], w: dict[str, Array], x: Array, state: dict[str, Array]
) -> dict[str, Array]:
    hidden, gates, h = len(state["h"]), GATES[op], state["h"]
    bias = w.get("B", np.zeros(2 * gates * hidden))
    wx, rh = np.split(w["W"] @ x, gates), np.split(w["R"] @ h, gates)
    wb, rb = np.split(bias[: gates * hidden], gates), np.split(bias[gates * hidden :], gates)
    if op == "RNN":
        return {"h": functions[0](wx[0] + rh[0] + wb[0] + rb[0])}
    if op == "GRU":
        f, g = functions
        z, r = (f(wx[k] + rh[k] + wb[k] + rb[k]) for k in (0, 1))
        if known.get("linear_before_reset", 0) != 0:
            new = g(wx[2] + r * (rh[2] + rb[2]) + wb[2])
        else:
            new = g(wx[2] + np.split(w["R"], 3)[2] @ (r * h) + rb[2] + wb[2])
        return {"h": (1 - z) * new + z * h}
    f, g, k = functions
    pi, po, pf = np.split(w.get("P", np.zeros(3 * hidden)), 3)
    i = f(wx[0] + rh[0] + pi * state["c"] + wb[0] + rb[0])
    forget = 1 - i if known.get("input_forget", 0) else f(wx[2] + rh[2] + pf * state["c"] + wb[2] + rb[2])
    c = forget * state["c"] + i * g(wx[3] + rh[3] + wb[3] + rb[3])
    o = f(wx[1] + rh[1] + po * c + wb[1] + rb[1])
    return {"h": o * k(c), "c": c}


def node_of(op: str, names: tuple[str, ...] | None = None, **attributes: Any) -> NodeProto:
    """A node with these inputs (all that the operator has), called as in the text, and all
    outputs."""
    names = tuple(n for n in NAMES if op == "LSTM" or n not in ("initial_c", "P")) if names is None else names
    known = [n for n in NAMES if op == "LSTM" or n not in ("initial_c", "P")]
    inputs = [n if n in names else "" for n in known]
    while inputs and not inputs[-1]:
        inputs.pop()
    return helper.make_node(op, inputs, ["Y", "Y_h", "Y_c"][: 3 if op == "LSTM" else 2], **attributes)


def draw(
    node: NodeProto,
    steps: int,
    rows: int,
    d: int,
    hidden: int,
    dtype: str = "float64",
    lengths: Any = None,
    scale: float = 1.0,
    seed: int = 0,
) -> dict[str, Array]:
    """Random arrays for all the inputs that a node names."""
    known = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    dirs = 2 if known.get("direction") == b"bidirectional" else 1
    first, g, rng = known.get("layout", 0) == 1, GATES[node.op_type], np.random.default_rng(seed)
    state = (rows, dirs, hidden) if first else (dirs, rows, hidden)
    shapes = {
        "X": (rows, steps, d) if first else (steps, rows, d),
        "W": (dirs, g * hidden, d),
        "R": (dirs, g * hidden, hidden),
        "B": (dirs, 2 * g * hidden),
        "initial_h": state,
        "initial_c": state,
        "P": (dirs, 3 * hidden),
    }
    found = {n: (scale * rng.uniform(-1, 1, shapes[n])).astype(dtype) for n in node.input if n in shapes}
    if "sequence_lens" in node.input:
        found["sequence_lens"] = np.asarray(rng.integers(0, steps + 1, rows) if lengths is None else lengths, np.int32)
    return found
