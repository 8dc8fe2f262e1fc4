"""Initial values of parameters, as the spec's `init` says; uniform_hidden (PyTorch's) where it says
nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.constrain import constrained
from rnnspec.language.sizes import evaluate_size, full_shape, unit_axis
from rnnspec.language.spec import Init, Spec
from rnnspec.storage.locks import numpy_part


def initialise(spec: Spec, sizes: Mapping[str, int], seed: int, dtype: np.dtype) -> dict[str, Array]:
    """All weights of a cell, trained and fixed, [shape of each] in `dtype`. The same seed gives the
    same values, whatever the dtype.

    Each parameter has its own stream, drawn by its place, so that adding one does not change those
    before it; with `like`, another's. What the cell holds parameters to (`constrain`) they obey.
    Raises ValueError for a seed that is no whole number of at least 0.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0, got {seed!r}.")
    hidden = max(1, evaluate_size(unit_axis(spec) or "1", sizes))
    random = numpy_part("random")
    streams = dict(zip(spec.weights, random.SeedSequence(int(seed)).spawn(len(spec.weights))))
    values = {}
    for name, shape in spec.weights.items():
        init = spec.init.get(name, Init("uniform_hidden"))
        rng = random.Generator(random.PCG64(streams[init.like or name]))
        drawn = _values(init, full_shape(shape, sizes), hidden, rng, name)
        values[name] = drawn if spec.constraints else drawn.astype(dtype)
    if not spec.constraints:
        return values
    values |= constrained(spec, values, initial=True)
    values = {name: value.astype(dtype) for name, value in values.items()}
    return values | constrained(spec, values)


def _values(init: Init, shape: tuple[int, ...], hidden: int, rng: np.random.Generator, name: str) -> Array:
    args = init.args
    match init.kind:
        case "uniform_hidden":
            bound = 1 / math.sqrt(hidden)
            return rng.uniform(-bound, bound, shape)
        case "glorot_uniform":  # Glorot & Bengio 2010, equation 16; fan in and fan out of one matrix
            bound = math.sqrt(6 / max(1, sum(shape[-2:]) if len(shape) > 1 else 2 * math.prod(shape)))
            return rng.uniform(-bound, bound, shape)
        case "orthogonal":
            return _matrices(lambda rows, columns: _orthogonal(rows, columns, rng), init, shape, name)
        case "identity":
            return _matrices(np.eye, init, shape, name)
        case "constant":
            return np.full(shape, args[0])
        case "uniform":
            return rng.uniform(args[0], args[1], shape)
        case "normal":
            return rng.normal(0.0, args[0], shape)
        case (
            "chrono"
        ):  # Tallec & Ollivier 2018: b_f = log(uniform(1, Tmax - 1)); -Tmax gives minus that, for gates that write
            return np.asarray(
                math.copysign(1.0, args[0]) * np.log(rng.uniform(1.0, max(1.0, abs(args[0]) - 1.0), shape))
            )
    raise ValueError(f"unknown initialiser {init.kind!r} for {name}")


def _matrices(make: Callable[[int, int], Array], init: Init, shape: tuple[int, ...], name: str) -> Array:
    """A matrix times the gain of `init`, or one for each index of the first axis of three (a
    parameter of an inner loop)."""
    if len(shape) < 2:
        raise ValueError(f"init '{init.kind}' is for matrices; {name} has shape {shape}.")
    gain = init.args[0] if init.args else 1.0
    values = np.empty(shape)
    for index in np.ndindex(shape[:-2]):
        values[index] = gain * make(*shape[-2:])
    return values


def _orthogonal(rows: int, columns: int, rng: np.random.Generator) -> Array:
    """Rows or columns orthonormal, whichever are fewer; uniformly distributed (QR of a normal
    matrix, its signs settled by R's diagonal)."""
    q, r = numpy_part("linalg").qr(rng.normal(size=(max(rows, columns), min(rows, columns))))
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    return q if rows >= columns else q.T
