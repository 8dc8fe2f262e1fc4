"""The cells by hand, once for a loop in PyTorch and for lax.scan: weights concatenated, the input
product before the loop.

A weight block is the transpose of its parameters standing one under another, so that rows multiply
it from the left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Operations:
    """What a library calls them. affine(a, h, U) = a + h @ U; split(a, n) cuts the last axis into n
    parts."""

    sigmoid: Callable[[Any], Any]
    tanh: Callable[[Any], Any]
    relu: Callable[[Any], Any]
    affine: Callable[[Any, Any, Any], Any]
    split: Callable[[Any, int], tuple[Any, ...]]


@dataclass(frozen=True)
class Equations:
    """blocks: the parameters of each weight block; W and b make the input product a = x @ W + b,
    [B, gates * H].

    step(ops, weights, states, a) gives the states after the step, h first; `states` of them there
    are.
    """

    blocks: Mapping[str, tuple[str, ...]]
    states: int
    step: Callable[[Operations, Mapping[str, Any], tuple[Any, ...], Any], tuple[Any, ...]]

    def weights(self, params: Mapping[str, Array]) -> dict[str, Array]:
        return {
            block: np.ascontiguousarray(np.concatenate([params[n] for n in names]).T)
            for block, names in self.blocks.items()
        }

    def gradients(self, blocks: Mapping[str, Array]) -> dict[str, Array]:
        """By parameter, from those of the blocks."""
        return {
            n: part
            for block, names in self.blocks.items()
            for n, part in zip(names, np.split(blocks[block].T, len(names)))
        }


def lstm(ops, w, states, a):
    h, c = states
    a = ops.affine(a, h, w["U"])
    width = c.shape[-1]
    i, f, o = ops.split(ops.sigmoid(a[:, : 3 * width]), 3)
    c = f * c + i * ops.tanh(a[:, 3 * width :])
    return o * ops.tanh(c), c


def lstm_peephole(ops, w, states, a):
    h, c = states
    i, f, o, g = ops.split(ops.affine(a, h, w["U"]), 4)
    i, f = ops.sigmoid(i + w["p_i"] * c), ops.sigmoid(f + w["p_f"] * c)
    c = f * c + i * ops.tanh(g)
    return ops.sigmoid(o + w["p_o"] * c) * ops.tanh(c), c


def gru(ops, w, states, a):
    (h,) = states
    u = h @ w["U"]
    width = h.shape[-1]
    r, z = ops.split(ops.sigmoid(a[:, : 2 * width] + u[:, : 2 * width]), 2)
    n = ops.tanh(a[:, 2 * width :] + r * (u[:, 2 * width :] + w["c"]))
    return (n + z * (h - n),)


def gru_reset_before(ops, w, states, a):
    (h,) = states
    width = h.shape[-1]
    r, z = ops.split(ops.sigmoid(ops.affine(a[:, : 2 * width], h, w["U"])), 2)
    n = ops.tanh(ops.affine(a[:, 2 * width :], r * h, w["U_n"]))
    return (n + z * (h - n),)


def mgu(ops, w, states, a):
    (h,) = states
    width = h.shape[-1]
    f = ops.sigmoid(ops.affine(a[:, :width], h, w["U"]))
    n = ops.tanh(ops.affine(a[:, width:], f * h, w["U_n"]))
    return (h + f * (n - h),)


def rnn(ops, w, states, a):
    return (ops.tanh(ops.affine(a, states[0], w["U"])),)


def indrnn(ops, w, states, a):
    return (ops.relu(a + w["u"] * states[0]),)


def _gates(names: str, *recurrent: str, **more: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Blocks W and b of all the gates, one U of each of the groups in `recurrent`."""
    blocks = {"W": tuple(f"W_{g}" for g in names), "b": tuple(f"b_{g}" for g in names)}
    for block, group in zip(("U", "U_n"), recurrent):
        blocks[block] = tuple(f"U_{g}" for g in group)
    return blocks | more


CELLS = {
    "lstm": Equations(_gates("ifog", "ifog"), 2, lstm),
    "lstm_peephole": Equations(_gates("ifog", "ifog", p_i=("p_i",), p_f=("p_f",), p_o=("p_o",)), 2, lstm_peephole),
    "gru": Equations(_gates("rzn", "rzn", c=("c_n",)), 1, gru),
    "gru_reset_before": Equations(_gates("rzn", "rz", "n"), 1, gru_reset_before),
    "mgu": Equations(_gates("fn", "f", "n"), 1, mgu),
    "rnn": Equations({"W": ("W",), "U": ("U",), "b": ("b",)}, 1, rnn),
    "indrnn": Equations({"W": ("W",), "u": ("u",), "b": ("b",)}, 1, indrnn),
}
