"""The simple operators of ONNX in NumPy: what stands around the recurrent nodes of a model.

In: a node's arrays, None for those it leaves out, its attributes and the opset. Out: its arrays.
What an array would take is known before there is memory for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.interop.onnx_cells import NodeError

MOST = 2**31  # elements of one value
Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class Arguments:
    """What a node is run with."""

    arrays: Sequence[Any]
    attributes: Attributes
    opset: int
    outputs: int

    def __getitem__(self, number: int) -> Any:
        return self.arrays[number] if number < len(self.arrays) else None

    def value(self, name: str, number: int, default: Any = None) -> Any:
        """What older opsets have as an attribute and later ones as an input."""
        if name in self.attributes:
            return self.attributes[name]
        given = self[number]
        return default if given is None else np.asarray(given).tolist()

    def axes(self, number: int = 1) -> tuple[int, ...] | None:
        axes = self.value("axes", number)
        return None if axes is None else tuple(int(a) for a in np.atleast_1d(axes))


def bounded(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that there may be an array of. Raises NodeError."""
    sizes = tuple(int(n) for n in shape)
    if any(n < 0 for n in sizes) or math.prod(sizes) > MOST:
        raise NodeError(f"an array of the shape {sizes} is more than a value of a model may have here.")
    return sizes


def _shape(a: Arguments) -> Array:
    return np.array(a[0].shape[a.attributes.get("start", 0) : a.attributes.get("end")], np.int64)


def _reshape(a: Arguments) -> Array:
    keep = not a.attributes.get("allowzero", 0)
    wanted = [a[0].shape[i] if n == 0 and keep else n for i, n in enumerate(a.value("shape", 1))]
    return np.reshape(a[0], wanted)


def _squeeze(a: Arguments) -> Array:
    return np.squeeze(a[0], a.axes())


def _unsqueeze(a: Arguments) -> Array:
    return np.expand_dims(a[0], a.axes() or ())


def _slice(a: Arguments) -> Array:
    starts, ends = a.value("starts", 1), a.value("ends", 2)
    axes, steps = a.value("axes", 3, list(range(len(starts)))), a.value("steps", 4, [1] * len(starts))
    cut = [slice(None)] * a[0].ndim
    for axis, start, end, step in zip(axes, starts, ends, steps):
        # an end before the first element, of a slice that runs backwards, is none of Python's
        last = None if step < 0 and end < -a[0].shape[axis] else end
        cut[axis] = slice(start, last, step)
    return a[0][tuple(cut)]


def _gather(a: Arguments) -> Array:
    axis = a.attributes.get("axis", 0)
    bounded((*a[0].shape[:axis], *a[1].shape, *a[0].shape[axis:][1:]))
    return np.take(a[0], a[1], axis)


def _gemm(a: Arguments) -> Array:
    left, right = (m.T if a.attributes.get(f) else m for m, f in ((a[0], "transA"), (a[1], "transB")))
    alpha, beta = (a[0].dtype.type(a.attributes.get(n, 1.0)) for n in ("alpha", "beta"))
    bounded((left.shape[0], right.shape[1]))
    product = alpha * (left @ right)
    return product if a[2] is None else product + beta * a[2]


def _expand(a: Arguments) -> Array:
    shape = np.broadcast_shapes(a[0].shape, tuple(a[1].tolist()))
    return np.broadcast_to(a[0], bounded(shape))


def _constant(a: Arguments) -> Array:
    for name, dtype in (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64)):
        if name in a.attributes:
            return np.array(a.attributes[name], dtype)
    return np.array(a.attributes["value_ints"], np.int64) if "value_ints" in a.attributes else a.attributes["value"]


def _filled(a: Arguments) -> Array:
    value = a.attributes.get("value", np.zeros(1, np.float32))
    return np.full(bounded(a[0].tolist()), value.reshape(()), value.dtype)


def _range(a: Arguments) -> Array:
    first, last, step = (v.reshape(()).item() for v in a.arrays)
    bounded([max(0, math.ceil((last - first) / step))])
    return np.arange(first, last, step).astype(a[0].dtype)


def _split(a: Arguments) -> tuple[Array, ...]:
    axis, sizes = a.attributes.get("axis", 0), a.value("split", 1)
    if sizes is None:
        each = -(-a[0].shape[axis] // a.outputs)
        return tuple(np.split(a[0], [each * n for n in range(1, a.outputs)], axis))
    if sum(sizes) != a[0].shape[axis] or min(sizes, default=0) < 0:
        raise NodeError(f"it splits {a[0].shape[axis]} elements into {sizes}.")
    return tuple(np.split(a[0], np.cumsum(sizes)[:-1], axis))


def _softmax(a: Arguments) -> Array:
    axis = a.attributes.get("axis", -1 if a.opset >= 13 else 1)
    axes = axis if a.opset >= 13 else tuple(range(axis % a[0].ndim, a[0].ndim))
    grown = np.exp(a[0] - a[0].max(axes, keepdims=True))
    return grown / grown.sum(axes, keepdims=True)


def _flatten(a: Arguments) -> Array:
    axis = a.attributes.get("axis", 1)
    return a[0].reshape(math.prod(a[0].shape[:axis]), -1)


def _reduced(function: Callable[..., Any]) -> Callable[[Arguments], Array]:
    def reduce(a: Arguments) -> Array:
        axes = a.axes() or None  # none given: all
        if axes is None and a.attributes.get("noop_with_empty_axes", 0):
            return a[0]
        return np.asarray(function(a[0], axis=axes, keepdims=bool(a.attributes.get("keepdims", 1))))

    return reduce


def _largest(array: Array, **how: Any) -> Array:
    kind = array.dtype
    least = False if kind.kind == "b" else -np.inf if kind.kind == "f" else np.iinfo(kind).min
    return np.asarray(np.max(array, initial=least, **how))


def _dropped(a: Arguments) -> Array:
    if a.outputs > 1 or (a[2] is not None and np.any(a[2])):
        raise NodeError("it draws: a model that trains is not read. Export it for inference.")
    return a[0]


def _sigmoid(a: Arguments) -> Array:
    e = np.exp(-np.abs(a[0]))
    return np.where(a[0] < 0, e, a[0].dtype.type(1)) / (1 + e)


def _divide(a: Arguments) -> Array:
    if a[0].dtype.kind in "iu":  # ONNX's integers are cut toward zero
        return (np.sign(a[0]) * np.sign(a[1]) * (np.abs(a[0]) // np.abs(a[1]))).astype(a[0].dtype)
    return a[0] / a[1]


def _clip(a: Arguments) -> Array:
    low, high = a.value("min", 1, -np.inf), a.value("max", 2, np.inf)
    return np.clip(a[0], low, high).astype(a[0].dtype)


def _leaky(a: Arguments) -> Array:
    return np.where(a[0] < 0, a[0].dtype.type(a.attributes.get("alpha", 0.01)) * a[0], a[0])


def _of(function: Callable[..., Any]) -> Callable[[Arguments], Array]:
    """A function of NumPy that works element by element."""

    def elementwise(a: Arguments) -> Array:
        bounded(np.broadcast_shapes(*(v.shape for v in a.arrays)))
        return np.asarray(function(*a.arrays))

    return elementwise


def _times(a: Arguments) -> Array:
    left, right = a[0].shape, a[1].shape
    bounded((*np.broadcast_shapes(left[:-2], right[:-2]), *left[-2:-1], *right[-1:][: len(right) - 1]))
    return np.asarray(np.matmul(a[0], a[1]))


def _concat(a: Arguments) -> Array:
    bounded([sum(v.size for v in a.arrays)])
    return np.concatenate(list(a.arrays), a.attributes["axis"])


SIMPLE: Mapping[str, Callable[[Arguments], Array | tuple[Array, ...]]] = {
    "Add": _of(np.add),
    "And": _of(np.logical_and),
    "Cast": lambda a: a[0].astype(a.attributes["to"]),
    "Clip": _clip,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Div": _divide,
    "Dropout": _dropped,
    "Equal": _of(np.equal),
    "Exp": _of(np.exp),
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gemm": _gemm,
    "Greater": _of(np.greater),
    "Identity": lambda a: a[0],
    "LeakyRelu": _leaky,
    "Less": _of(np.less),
    "Log": _of(np.log),
    "MatMul": _times,
    "Mul": _of(np.multiply),
    "Neg": _of(np.negative),
    "Not": _of(np.logical_not),
    "Or": _of(np.logical_or),
    "Range": _range,
    "ReduceMax": _reduced(_largest),
    "ReduceMean": _reduced(np.mean),
    "ReduceSum": _reduced(np.sum),
    "Relu": lambda a: np.maximum(a[0], a[0].dtype.type(0)),
    "Reshape": _reshape,
    "Shape": _shape,
    "Sigmoid": _sigmoid,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Sqrt": _of(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _of(np.subtract),
    "Tanh": _of(np.tanh),
    "Transpose": lambda a: np.transpose(a[0], a.attributes.get("perm")),
    "Unsqueeze": _unsqueeze,
    "Where": _of(np.where),
}
