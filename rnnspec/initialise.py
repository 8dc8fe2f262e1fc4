"""Initial values of parameters, as the spec's `init` says; uniform_hidden (PyTorch's) where it says nothing."""
from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rnnspec.language.sizes import evaluate_size
from rnnspec.language.spec import Init, Spec

Array = np.ndarray


def initialise(spec: Spec, sizes: Mapping[str, int], seed: int, dtype: np.dtype) -> dict[str, Array]:
    """All parameters of a cell that are trained, [shape of each] in `dtype`. The same seed gives the same values, whatever the dtype.

    Each parameter has its own stream, drawn by its place, so that adding one does not change those before it.
    """
    hidden = _hidden(spec, sizes)
    streams = np.random.SeedSequence(seed).spawn(len(spec.trained))
    values = {}
    for (name, shape), stream in zip(spec.trained.items(), streams):
        full = tuple(evaluate_size(s, sizes) for s in shape)
        init = spec.init.get(name, Init("uniform_hidden"))
        values[name] = _values(init, full, hidden, np.random.Generator(np.random.PCG64(stream)), name).astype(dtype)
    return values


def _hidden(spec: Spec, sizes: Mapping[str, int]) -> int:
    """The hidden size: H where the cell has it, else that of its first vector state."""
    if "H" in sizes:
        return max(1, sizes["H"])
    return max([1, *(evaluate_size(shape[0], sizes) for shape in spec.states.values() if shape)][:2])


def _values(init: Init, shape: tuple[int, ...], hidden: int, rng: np.random.Generator, name: str) -> Array:
    args = init.args
    match init.kind:
        case "uniform_hidden":
            bound = 1 / math.sqrt(hidden)
            return rng.uniform(-bound, bound, shape)
        case "glorot_uniform":
            bound = math.sqrt(6 / max(1, sum(shape) if len(shape) > 1 else 2 * math.prod(shape)))
            return rng.uniform(-bound, bound, shape)
        case "orthogonal":
            return _orthogonal(shape, rng, name) * (args[0] if args else 1.0)
        case "identity":
            if len(shape) != 2:
                raise ValueError(f"init 'identity' is for matrices; {name} has shape {shape}.")
            return np.eye(*shape)
        case "constant":
            return np.full(shape, args[0])
        case "uniform":
            return rng.uniform(args[0], args[1], shape)
        case "normal":
            return rng.normal(0.0, args[0], shape)
        case "chrono":  # Tallec & Ollivier 2018: b_f = log(uniform(1, Tmax - 1))
            return np.log(rng.uniform(1.0, max(1.0, args[0] - 1.0), shape))
    raise ValueError(f"unknown initialiser {init.kind!r} for {name}")


def _orthogonal(shape: tuple[int, ...], rng: np.random.Generator, name: str) -> Array:
    """Rows or columns orthonormal, uniformly distributed (QR of a normal matrix, its signs settled by R's diagonal)."""
    if len(shape) != 2:
        raise ValueError(f"init 'orthogonal' is for matrices; {name} has shape {shape}.")
    tall = rng.normal(size=(max(shape), min(shape)))
    q, r = np.linalg.qr(tall)
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    return q if shape[0] >= shape[1] else q.T
