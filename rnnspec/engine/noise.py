"""Values of the noise that a cell declares: `draw` for training, `mean` for evaluation.

In: a Spec, sizes, the number of steps and rows, a seed. Out: arrays by name, to be given to a
kernel among its inputs and parameters. A row's values depend on the seed, the noise's name and the
row's number alone: not on the number of threads, of other rows, of steps behind it, nor on the
dtype. `kernel.forward(..., noise=seed)` calls this.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.language.draws import KINDS, Draw
from rnnspec.language.sizes import full_shape
from rnnspec.language.spec import Spec
from rnnspec.storage.locks import numpy_part

Seed = int | tuple[int, ...]


def draw(
    spec: Spec,
    sizes: Mapping[str, int],
    steps: int,
    rows: int,
    seed: Seed,
    dtype: Any = np.float32,
    first_row: int = 0,
    names: Iterable[str] | None = None,
    sequence: Seed | None = None,
) -> dict[str, Array]:
    """The noise of one call, drawn: name -> array in `dtype`, as a kernel takes it.

    An input drawn per step is [T, B, ...], one per sequence is [T, B, ...] with one value for all
    steps (its stride along time is 0), a parameter has its own shape.

    spec: of the cell that declares the noise.
    sizes: the value of every size.
    steps, rows: T and B.
    seed: a whole number, or several, like (seed, step of training, layer).
    first_row: the number of the first row, so that parts of a batch get what the whole batch gets.
    names: only these; None for all.
    sequence: the seed of what is drawn once a sequence, None for `seed`: the windows of a sequence
    have one in common, and a seed each.

    From Philox 4x64-10 (Salmon et al. 2011, Parallel Random Numbers: As Easy as 1, 2, 3), keyed by
    seed and name, a row's place in its counter. Raises ValueError for a seed or first_row that is
    none, KeyError for a name that is no noise of the cell.
    """
    found = {}
    for n in spec.noise if names is None else names:
        how, full = spec.noise[n], full_shape(spec.shapes[n], sizes)
        own = seed if sequence is None or how.per != "sequence" else sequence
        found[n] = draw_one(how, n, _lead(spec, n, steps, rows), full, own, dtype, first_row)
    return found


def draw_one(
    how: Draw,
    name: str,
    lead: tuple[int, ...],
    full: tuple[int, ...],
    seed: Seed,
    dtype: Any = np.float32,
    first_row: int = 0,
) -> Array:
    """One array of noise, [*lead, *full], of a cell or of none.

    how: what it is drawn from, and per what. name: decides with the seed what is drawn. lead: (T,
    B), or () where it is drawn per call. full: the shape of one value. seed, dtype, first_row: as
    for `draw`.
    """
    numbers = seeds(seed)
    if isinstance(first_row, bool) or not isinstance(first_row, int | np.integer) or not 0 <= first_row < 2**62:
        raise ValueError(f"first_row must be a whole number of at least 0, got {first_row!r}.")
    key = int.from_bytes(hashlib.blake2b(repr((*numbers, name)).encode(), digest_size=16).digest(), "little")
    return _drawn(how, lead, full, key, int(first_row), np.dtype(dtype))


def mean(
    spec: Spec,
    sizes: Mapping[str, int],
    steps: int,
    rows: int,
    dtype: Any = np.float32,
    names: Iterable[str] | None = None,
) -> dict[str, Array]:
    """What is expected of the noise, in the shapes of `draw`: what stands in its place when the
    cell is evaluated. Read-only. spec, sizes, steps, rows, dtype, names: as for `draw`."""
    return {
        n: np.broadcast_to(
            np.asarray(spec.noise[n].mean, dtype), _lead(spec, n, steps, rows) + full_shape(spec.shapes[n], sizes)
        )
        for n in (spec.noise if names is None else names)
    }


def seeds(seed: Any) -> tuple[int, ...]:
    """The numbers of a seed, checked; ValueError for what is none."""
    given = tuple(seed) if isinstance(seed, tuple | list) else (seed,)
    if not given or any(isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0 for n in given):
        raise ValueError(f"a seed of noise is a whole number of at least 0, or a tuple of such; got {seed!r}.")
    return tuple(int(n) for n in given)


def _lead(spec: Spec, name: str, steps: int, rows: int) -> tuple[int, ...]:
    return () if name in spec.parameters else (steps, rows)


def _drawn(how: Draw, lead: tuple[int, ...], full: tuple[int, ...], key: int, first: int, dtype: np.dtype) -> Array:
    match how.per:
        case "call":
            return _rows(how, (1, *full), key, 0, dtype)[0]
        case "sequence":
            return np.broadcast_to(_rows(how, (lead[1], *full), key, first, dtype), lead + full)
        case "step":
            return _rows(how, (lead[1], lead[0], *full), key, first, dtype).swapaxes(0, 1)
    raise ValueError(f"noise is not drawn per {how.per!r}.")


def _rows(how: Draw, shape: tuple[int, ...], key: int, first: int, dtype: np.dtype) -> Array:
    """An array whose rows (its first axis) are numbered from `first`."""
    kind, each = KINDS[how.kind], int(np.prod(shape[1:], dtype=np.int64))
    if kind.chance is not None and kind.value is not None:
        hits = _hits(kind.chance(how.argument), shape[0], each, key, first)
        return np.multiply(hits, dtype.type(kind.value(how.argument)), dtype=dtype).reshape(shape)
    if how.kind != "normal":
        raise ValueError(f"noise can't be drawn by {how.kind!r}.")
    values = np.empty((shape[0], each), np.float32)
    for out, stream in zip(
        values, _streams(key, first, shape[0], 0)
    ):  # of any dtype the same values: float32 ones, which cost a third
        numpy_part("random").Generator(stream).standard_normal(out=out, dtype=np.float32)
    return (values * np.float32(how.argument)).astype(dtype, copy=False).reshape(shape)


def _hits(chance: float, rows: int, each: int, key: int, first: int) -> Array:
    """[rows, each] of True with this chance: a byte decides, and where it ties (1 of 256) 32 bits
    more, so that the chance is right to 2**-40."""
    whole = int(chance * 256)
    random = np.empty((rows, -(-each // 8)), np.uint64)
    for row, drawn in enumerate(words(key, first, [random.shape[1]] * rows, 0)):
        random[row] = drawn
    bytes_ = random.astype("<u8", copy=False).view(np.uint8)[:, :each]
    hits = bytes_ < whole
    rest = int((chance * 256 - whole) * 2**32)
    if rest:
        ties = bytes_ == whole
        counts = ties.sum(axis=1).tolist()
        more = [
            drawn.astype("<u8", copy=False).view(np.uint32)[:n]
            for n, drawn in zip(counts, words(key, first, [-(-n // 2) for n in counts], 1))
        ]
        hits[ties] = np.concatenate([np.zeros(0, np.uint32), *more]) < rest
    return hits


def words(key: int, first: int, counts: list[int], lane: int) -> Iterable[Array]:
    """Draws so many random 64-bit words for each row in turn: uint64 [count].

    key, lane: what tells one stream of numbers from another; first: the number of the first row.
    """
    for count, stream in zip(counts, _streams(key, first, len(counts), lane)):
        yield stream.random_raw(count)


def _streams(key: int, first: int, rows: int, lane: int) -> Iterable[np.random.Philox]:
    """A generator that stands at the start of each row in turn: one and the same, since making one
    costs ten times as much as moving it."""
    stream = numpy_part("random").Philox(key=key)
    start = stream.state
    for row in range(first, first + rows):
        start["state"]["counter"][:] = (0, 0, row, lane)
        stream.state = start
        yield stream
