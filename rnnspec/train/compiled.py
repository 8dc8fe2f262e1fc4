"""Compiled passes over parameters and gradients (rnnspec.backends.cpu.runtime.training), for
float32 and float64.

Arrays of any layout: what doesn't lie in order is copied, and copied back. Results don't depend on
the number of threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np

from rnnspec.backends.cpu.launch.pool import run_blocks
from rnnspec.backends.cpu.runtime.addresses import steps
from rnnspec.backends.pins import Pins
from rnnspec.train.errors import TrainError

DTYPES = ("float32", "float64")
PIECE = 2**15  # elements that a thread takes at a time
MOST_TERMS = 256  # that are added one after another
SPARE = 64  # elements: four vectors of 16


def adam(arrays: Sequence[tuple[np.ndarray, ...]], numbers: Sequence[float], threads: int) -> None:
    """One step in place. arrays: parameter, gradient and both moments, all of one shape, for each
    parameter.

    numbers: 1 - b1, b2, 1 - b2, and the eps, rate and factor of the weights before the step that
    follow from its number (see optimise.Adam). threads: at least 1. Whatever doesn't fit is an
    error before anything is changed.
    """
    arrays = [tuple(a.view() for a in four) for four in arrays]  # whose shape and dtype nobody else changes
    check(arrays)
    if threads < 1:
        raise TrainError(f"threads must be at least 1; got {threads}")
    for name in dict.fromkeys([_name(p.dtype) for p, *_ in arrays]):
        dtype = np.dtype(name)
        own = [four for four in arrays if four[0].dtype == dtype]
        flat = [(_flat(p), np.asarray(_apart(g, (p, m, v)), dtype), _flat(m), _flat(v)) for p, g, m, v in own]
        with Pins(array for four in flat for array in four):
            _adam(name, flat, np.array(numbers, dtype), threads)
        for (p, _, m, v), (p_flat, _, m_flat, v_flat) in zip(own, flat, strict=True):
            for array, found in ((p, p_flat), (m, m_flat), (v, v_flat)):
                if not np.may_share_memory(array, found):
                    array[...] = found.reshape(array.shape)


def check(arrays: Sequence[tuple[np.ndarray, ...]]) -> None:
    """Raises TrainError unless an optimiser can change every parameter element by element. arrays:
    each parameter with its gradient and its moments."""
    for p, g, *moments in arrays:
        if any(a.shape != p.shape for a in (g, *moments)):
            raise TrainError(
                f"a parameter of shape {p.shape} has a gradient of {g.shape} and moments of"
                f" {', '.join(str(m.shape) for m in moments)}"
            )
        if g.dtype.kind not in "fiu":
            raise TrainError(f"a gradient holds numbers; got dtype {g.dtype}")
        if any(m.dtype != p.dtype for m in moments):
            raise TrainError(
                f"a parameter of {p.dtype} has moments of {', '.join(str(m.dtype) for m in moments)}; `init` makes them"
            )
        if not all(a.flags.writeable for a in (p, *moments)):
            raise ValueError("a parameter or a moment is read-only")
        if any(n > 1 and not step for a in (p, *moments) for n, step in zip(a.shape, a.strides)):
            raise TrainError("a parameter or a moment has one memory for several of its numbers: give it a copy")


def _adam(dtype: str, flat: Sequence[tuple[np.ndarray, ...]], numbers: np.ndarray, threads: int) -> None:
    pieces = [piece for four in flat for piece in _pieces(four)]
    threads = min(threads, len(pieces)) if sum(piece[-1] for piece in pieces) >= 4 * PIECE else 1
    spare = np.empty((threads, SPARE), dtype)
    tables = []
    for i in range(threads):
        own = pieces[i::threads]
        tables.append(
            np.array(
                [len(own), numbers.ctypes.data, spare[i].ctypes.data, *(field for piece in own for field in piece)],
                np.int64,
            )
        )
    run_blocks(_function(dtype, "adam", 1), [table.ctypes.data for table in tables], (flat, numbers, spare, tables))


def _pieces(arrays: Sequence[np.ndarray]) -> Iterator[tuple[int, ...]]:
    """Addresses in every array, and how many elements, piece by piece."""
    addresses, size, item = [a.ctypes.data for a in arrays], arrays[0].size, arrays[0].itemsize
    for start in range(0, size, PIECE):
        yield (*[address + start * item for address in addresses], min(PIECE, size - start))


def sum_of_squares(array: np.ndarray) -> float:
    """The sum of array**2, in float64."""
    flat, result = _flat(array.view()), np.empty((), np.float64)
    with Pins([flat]):
        _function(_name(flat.dtype), "squares", 3)(result.ctypes.data, flat.ctypes.data, flat.size)
    return float(result)


def add_rows(table: np.ndarray, ids: np.ndarray, rows: np.ndarray) -> None:
    """table[ids[r]] += rows[r], r after r, in place. table [V, E], in order; ids [R] in [0, V);
    rows [R, E].

    Up to `MOST_TERMS` rows for each id are added up as they are; of more, what each addition loses
    is kept. Errors stay below `MOST_TERMS` half units in the last place of the sum of the sizes,
    however many rows there are.
    """
    table, ids, rows = table.view(), np.array(ids, order="C"), rows.view()  # what is checked is what is used
    if table.ndim != 2 or rows.shape != (ids.size, table.shape[1]) or not table.flags.carray:
        raise ValueError(
            f"rows of shape {rows.shape} for {ids.size} ids and a table of shape {table.shape}, which must lie in order"
            " and be writeable"
        )
    check_ids(ids, len(table))
    if rows.dtype.kind != "f":
        raise TrainError(f"rows hold floating-point numbers; got dtype {rows.dtype}")
    ids, rows = ids.astype(np.int64, copy=False), np.asarray(_apart(rows, (table,)), table.dtype)
    most = ids.size if ids.size <= MOST_TERMS else int(np.bincount(ids).max())
    lost = np.zeros_like(table) if most > MOST_TERMS else None
    with Pins([table, rows]):
        _function(_name(table.dtype), "scatter_add", 6)(
            table.ctypes.data,
            ids.ctypes.data,
            rows.ctypes.data,
            ids.size,
            table.shape[1],
            0 if lost is None else lost.ctypes.data,
        )


def check_ids(ids: np.ndarray, count: int) -> None:
    """IndexError unless all ids lie in [0, count), and TrainError unless they are integers."""
    if ids.size and ids.dtype.kind not in "iu":
        raise TrainError(f"ids must be integers; got dtype {ids.dtype}")
    if ids.size and (ids.min() < 0 or ids.max() >= count):
        raise IndexError(f"ids must lie in [0, {count}); got {ids.min()} to {ids.max()}")


def _flat(array: np.ndarray) -> np.ndarray:
    """One after another and aligned; a copy only where the array isn't."""
    return np.require(array, requirements=["C", "A"]).reshape(-1)


def _apart(array: np.ndarray, written: Sequence[np.ndarray]) -> np.ndarray:
    """`_flat` of what is read; a copy where what is written lies in the same memory."""
    return _flat(array.copy() if any(np.may_share_memory(array, other) for other in written) else array)


def _name(dtype: np.dtype) -> str:
    if dtype.name not in DTYPES or not dtype.isnative:
        raise TrainError(f"training has float32 and float64, and not {dtype}: convert the parameters with astype")
    return dtype.name


@cache
def _function(dtype: str, name: str, arguments: int) -> Callable[..., None]:
    """A C function of the runtime; it runs without the GIL."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * arguments)(getattr(steps(dtype), name))
