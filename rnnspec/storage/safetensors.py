"""Arrays in files of the safetensors format: eight bytes that tell the length of a header, a header
of JSON that tells each array's dtype, shape and place, and their bytes. Nothing in one is executed.

In: a path, and how much is too much. Out: arrays. What is wrong with a file is a `Refused`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.storage import atomic
from rnnspec.storage.guarded import MOST_BYTES, Refused, parsed, read

MOST_HEADER = 100_000_000  # bytes, as of the format
DTYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"},
    **{"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"},
}


def arrays(path: str | os.PathLike[str], most: int = MOST_BYTES) -> dict[str, Array]:
    """The arrays of a file, by name. Every byte of it belongs to one array, as the format asks."""
    content = read(path, most)
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or not 2 <= length <= min(MOST_HEADER, len(content) - 8):
        raise Refused(path, "it is no file of safetensors, or its end is missing")
    header = parsed(path, content[8 : 8 + length])
    if not isinstance(header, dict):
        raise Refused(path, "its header is no JSON object")
    body, found, places = memoryview(content)[8 + length :], dict[str, Array](), []
    for name, about in header.items():
        if name != "__metadata__":
            dtype, shape, (first, last) = _told(path, name, about)
            if not first <= last <= len(body) or math.prod(shape) * dtype.itemsize != last - first:
                raise Refused(path, f"the array {name[:60]!a} is not where its header says")
            places.append((first, last))
            found[name] = np.frombuffer(body[first:last], dtype).reshape(shape).astype(dtype.newbyteorder("="))
    ends = [0, *(last for _, last in sorted(places))]
    if [first for first, _ in sorted(places)] != ends[:-1] or ends[-1] != len(body):
        raise Refused(path, "its arrays overlap, or leave bytes between them")
    return found


def _told(path: str | os.PathLike[str], name: str, about: Any) -> tuple[np.dtype, tuple[int, ...], tuple[int, int]]:
    """dtype, shape and place of an array, by the header."""
    try:
        dtype, shape, place = about["dtype"], about["shape"], about["data_offsets"]
        whole = [*shape, *place]
        right = len(place) == 2 and all(type(n) is int and 0 <= n < 2**62 for n in whole) and len(shape) <= 32
    except (TypeError, KeyError):
        right = False
    if not right:
        raise Refused(path, f"its header tells no array of {name[:60]!a}")
    if dtype not in DTYPES:
        raise Refused(path, f"the array {name[:60]!a} is of {str(dtype)[:20]!a}; known are {', '.join(DTYPES)}")
    return np.dtype(DTYPES[dtype]), tuple(shape), (place[0], place[1])


def write(path: str | os.PathLike[str], named: Mapping[str, Array]) -> None:
    """Writes a file as a whole. Raises ValueError for arrays that the format has no dtype for."""
    kinds = {np.dtype(text): name for name, text in DTYPES.items()}
    header, start = dict[str, Any](), 0
    # the widest first, so that every array lies where its dtype wants it
    ordered = sorted(named.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    for name, array in ordered:
        if array.dtype.newbyteorder("<") not in kinds:
            raise ValueError(f"safetensors has no dtype for {array.dtype}, of '{name}'.")
        end = start + array.nbytes
        header[name] = {
            "dtype": kinds[array.dtype.newbyteorder("<")],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    body = [np.ascontiguousarray(a, a.dtype.newbyteorder("<")).tobytes() for _, a in ordered]
    atomic.write(path, b"".join([len(text).to_bytes(8, "little"), text, *body]))
