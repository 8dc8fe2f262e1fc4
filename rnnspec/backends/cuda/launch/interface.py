"""Where arrays of other libraries lie on the GPU: by `__cuda_array_interface__`, or else by DLPack.
Nothing is copied.

Both say the same of an array: address, shape, strides, kind of number. The answer is in the words
of the former (version 3), with strides always and, under "keep", what must live as long as the
array is used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from rnnspec.errors import UnsupportedError

CUDA = 2  # kDLCUDA, from dlpack.h
KINDS = {0: "i", 1: "u", 2: "f", 5: "c"}  # DLDataTypeCode


class Tensor(ctypes.Structure):
    """What a DLPack capsule points to: DLTensor, from dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def on_device(value: Any) -> bool:
    """Whether an array says that it lies on a GPU."""
    if isinstance(value, np.ndarray):
        return False
    value = _detached(value)
    if hasattr(value, "__cuda_array_interface__"):
        return True
    return hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] == CUDA


def interface(value: Any) -> dict[str, Any]:
    """Where an array that is `on_device` lies, in the words of `__cuda_array_interface__`."""
    value = _detached(value)
    if not hasattr(value, "__cuda_array_interface__"):
        return _from_dlpack(value)
    found = dict(value.__cuda_array_interface__)
    shape, dtype = tuple(found["shape"]), np.dtype(found["typestr"])
    found["strides"] = tuple(found.get("strides") or packed_strides(shape, dtype.itemsize))
    return found | {"shape": shape, "keep": value}


def shadows(arrays: Any, on_host: str = "") -> Any:
    """A mapping of arrays with empty ones, of their shapes and dtypes, in place of those on a GPU;
    whatever is no mapping as it is. on_host: the name of one whose numbers are read here; raises
    UnsupportedError where it lies on a GPU."""
    if not isinstance(arrays, Mapping):
        return arrays
    if on_device(arrays.get(on_host)):
        raise UnsupportedError(f"{on_host!r} is read on the host: give NumPy integers, as a run's `final` has them.")
    return {name: _shadow(interface(a)) if on_device(a) else a for name, a in arrays.items()}


def _shadow(told: Mapping[str, Any]) -> np.ndarray:
    return np.broadcast_to(np.zeros((), np.dtype(told["typestr"])), told["shape"])


def _detached(value: Any) -> Any:
    """torch gives no address of what requires a gradient, and raises where it is asked whether it
    has one."""
    return value.detach() if hasattr(value, "detach") else value


def packed_strides(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    """The strides in bytes of an array whose numbers lie one after another."""
    return tuple(item * prod(shape[i + 1 :]) for i in range(len(shape)))


def _from_dlpack(value: Any) -> dict[str, Any]:
    """The capsule is kept, not consumed: its own destructor gives the array back."""
    capsule = value.__dlpack__(stream=1)  # 1: CUDA's default stream
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = ctypes.cast(pointer(capsule, b"dltensor"), ctypes.POINTER(Tensor)).contents
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    item = tensor.bits // 8
    strides = (
        tuple(tensor.strides[i] * item for i in range(tensor.ndim)) if tensor.strides else packed_strides(shape, item)
    )
    kind = KINDS.get(tensor.code, "V")
    return {
        "shape": shape,
        "typestr": f"<{kind}{item}",
        "data": ((tensor.data or 0) + tensor.byte_offset, False),
        "strides": strides,
        "stream": 1,
        "version": 3,
        "keep": capsule,
    }
