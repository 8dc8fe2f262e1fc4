"""Arrays whose memory ends, or begins, at a page that nobody may touch: what reads or writes a byte
too far dies at once."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE


def guarded(array: np.ndarray, *, end: bool = True, writable: bool = True) -> np.ndarray:
    """A copy with a page without access right behind it (end), or right before it. writable:
    whether its own pages may be written to."""
    size = max(1, -(-array.nbytes // PAGE)) * PAGE
    pages = mmap.mmap(-1, size + 2 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    offset = PAGE + (size - array.nbytes if end else 0)
    copy = np.ndarray(array.shape, array.dtype, pages, offset)
    copy[...] = array
    for where, length, access in (
        (start, PAGE, 0),
        (start + PAGE + size, PAGE, 0),
        (start + PAGE, size, 1 + 2 * writable),
    ):
        assert ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(where), length, access) == 0
    if not writable:
        copy.flags.writeable = False
    return copy


def packed_field(array: np.ndarray) -> np.ndarray:
    """The same numbers as a field of a record array without padding: no number is aligned."""
    records = np.zeros(array.shape, np.dtype([("flag", np.int8), ("value", array.dtype)]))
    records["value"] = array
    return records["value"]
