"""Functions for plain versions of cells that work on NumPy arrays and on torch tensors alike, so
that one text gives the values, by NumPy, and the gradients, by torch's autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = Any  # np.ndarray or torch.Tensor
Arrays = Mapping[str, Array]
Step = Callable[[dict[str, Array], dict[str, Array]], dict[str, Array]]  # inputs of a step, states before -> after


def _of(v: Array) -> Any:
    """The library of an array."""
    if isinstance(v, np.ndarray | np.generic):
        return np
    import torch

    return torch


def over_time(step: Step, inputs: Arrays, states: Arrays, *outputs: str) -> tuple[dict[str, Array], dict[str, Array]]:
    """Outputs [T, B, ...] and final states of a step that is repeated."""
    state, emitted = dict(states), {o: [] for o in outputs}
    for t in range(len(next(iter(inputs.values())))):
        made = step({n: a[t] for n, a in inputs.items()} | {"step": t}, state)
        state = {n: made[n] for n in states}
        for o in outputs:
            emitted[o].append(made[o])
    return {o: stacked(a) for o, a in emitted.items()}, state


def exp(v):
    return _of(v).exp(v)


def log(v):
    return _of(v).log(v)


def tanh(v):
    return _of(v).tanh(v)


def sin(v):
    return _of(v).sin(v)


def cos(v):
    return _of(v).cos(v)


def sqrt(v):
    return _of(v).sqrt(v)


def where(condition, a, b):
    return _of(condition).where(condition, a, b)


def einsum(rule, *arrays):
    return _of(arrays[0]).einsum(rule, *arrays)


def stacked(arrays):
    return _of(arrays[0]).stack(arrays)


def cat(*arrays):
    """Vectors of rows side by side."""
    library = _of(arrays[0])
    return library.concatenate(arrays, -1) if library is np else library.cat(arrays, -1)


def sigmoid(v):
    return 1 / (1 + exp(-v))


def silu(v):
    return v * sigmoid(v)


def relu(v):
    return where(v > 0, v, 0 * v)


def total(v):
    """Sums of rows, as [B, 1]."""
    return v.sum(-1)[..., None]


def softmax(v):
    return exp(v) / total(exp(v))


def normed(v, eps):
    """Rows with mean 0 and variance 1."""
    centred = v - v.mean(-1)[..., None]
    return centred / sqrt((centred * centred).mean(-1)[..., None] + eps)


def unit(v, eps=0.0):
    """Rows of length 1."""
    return v / (sqrt(total(v * v)) + eps)


def outer(u, v):
    return u[:, :, None] * v[:, None, :]


def times(matrix, vector):
    """A matrix of each row with its vector."""
    return einsum("bij,bj->bi", matrix, vector)


def fixed(v):
    """The value, without a gradient."""
    return v if _of(v) is np else v.detach()


def spike(u, slope):
    """1 where u > 0, else 0, with `slope(u)` for its derivative."""
    if _of(u) is np:
        return (u > 0) * 1.0
    through = slope(u).detach() * u
    return (u > 0).to(u.dtype) + (through - through.detach())
