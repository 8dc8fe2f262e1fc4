"""Clipping of gradients by their global norm, or value by value."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rnnspec.train.compiled import sum_of_squares
from rnnspec.train.errors import TrainError


def global_norm(grads: Mapping[str, np.ndarray]) -> float:
    """||g|| = sqrt of the sum of g**2 over all arrays, in float64; inf or NaN if a gradient holds
    one."""
    with np.errstate(over="ignore"):
        norm = math.sqrt(sum(sum_of_squares(g) for g in grads.values()))
    if norm == math.inf and all(np.isfinite(g).all() for g in grads.values()):
        largest = max(float(np.abs(g).max()) for g in grads.values() if g.size)
        norm = largest * math.sqrt(sum(sum_of_squares(g / largest) for g in grads.values()))  # squares over 1e308
    return norm


def clip_global_norm(grads: Mapping[str, np.ndarray], theta: float, *, error_if_nonfinite: bool = False) -> float:
    """Scales the gradients in place, g = min(theta / ||g||, 1) * g, and returns the norm they had.

    Pascanu, Mikolov & Bengio 2013, algorithm 1; no epsilon is added, so zero gradients stay zero
    for theta = 0 too. If the norm is inf or NaN, no scale is right: the gradients are left as they
    are and the norm is returned, and the caller must skip the step (`train` does, and counts it);
    with `error_if_nonfinite` a TrainError is raised instead. (torch.nn.utils.clip_grad_norm_
    multiplies, which turns inf to NaN and the finite gradients to 0 or NaN.)
    """
    if not theta >= 0:
        raise TrainError(f"the largest norm must be 0 or more; got {theta}")
    norm = global_norm(grads)
    if not math.isfinite(norm):
        if error_if_nonfinite:
            raise TrainError(
                f"the global norm of the gradients is {norm}: not finite in {', '.join(not_finite(grads))}"
            )
        return norm
    if norm > theta:
        for g in grads.values():
            g *= g.dtype.type(theta / norm)
    return norm


def clip_value(grads: Mapping[str, np.ndarray], bound: float) -> None:
    """Every element to [-bound, bound], in place; NaN stays NaN, so that it shows in the norm."""
    if not bound >= 0:
        raise TrainError(f"the largest value must be 0 or more; got {bound}")
    for g in grads.values():
        np.clip(g, -bound, bound, out=g)


def not_finite(grads: Mapping[str, np.ndarray]) -> list[str]:
    """The names of the gradients that hold an inf or a NaN."""
    return [name for name, g in grads.items() if not np.isfinite(g).all()]
