"""Checks the caller's arrays against a spec: dtypes, shapes, sizes, lengths. Says everything that
is wrong in one message."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.spans import Pieces
from rnnspec.errors import DtypeError, ShapeError
from rnnspec.language.sizes import evaluate_size, full_shape, size_names, sizes_in, with_default_sizes
from rnnspec.language.spec import STEP, Shape, Spec
from rnnspec.storage.locks import numpy_part

MOST_STEPS = 2**53  # beyond it float64 has no number for every step


def named(
    kind: str,
    given: Mapping[str, Any] | None,
    known: Mapping[str, Shape],
    dtype: np.dtype,
    *,
    required: bool,
    optional: Collection[str] = (),
) -> dict[str, Array]:
    """The arrays of a mapping, their names and dtypes checked.

    kind: what they are, for messages. given: name -> array; None stands for an empty one, and an
    array that is None counts as left out. known: the names there are. dtype: of every array,
    nothing is cast. required: all but the `optional` ones must be there.
    """
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise DtypeError(f"{kind}s must be a dict of arrays by name ({', '.join(known)}); got {type(given).__name__}.")
    if (found := views(given, known, dtype)) is not None:
        return found
    unknown = [n for n in given if n not in known]
    if unknown:
        raise ShapeError(
            f"unknown {kind} {', '.join(map(repr, unknown))}. This cell has: {', '.join(known) or 'none'}."
        )
    missing = [n for n in known if given.get(n) is None and n not in optional]
    if required and missing:
        raise ShapeError(f"missing {kind} {', '.join(map(repr, missing))}. This cell has: {', '.join(known)}.")
    return {n: own_view(f"{kind} '{n}'", a, dtype) for n, a in given.items() if a is not None}


def views(given: Mapping[str, Any], known: Mapping[str, object], dtype: np.dtype) -> dict[str, Array] | None:
    """`own_view` of all arrays, where every name is given and none needs a closer look: most calls
    are so, and pay for no more."""
    if given.keys() != known.keys():
        return None
    found = {}
    for name, array in given.items():
        if type(array) is not np.ndarray:
            return None
        found[name] = mine = array.view()  # before it is looked at
        if mine.dtype is not dtype or not mine.flags.aligned:
            return None
    return found


def with_defaults(
    spec: Spec,
    inputs: Mapping[str, Array],
    lead: tuple[int, int],
    sizes: Mapping[str, int],
    dtype: np.dtype,
    counts: Array | None = None,
    pieces: Pieces | None = None,
) -> dict[str, Array]:
    """All inputs [T, B, ...], those that were not given as the spec's `defaults` have them.

    inputs: those that were given. lead: (T, B). sizes: the value of every size. dtype: of the
    arrays that are made. counts: int64 [B], the number of each row's first step, of each piece's
    with pieces; None: all 0.
    """
    found = {}
    for name, shape in spec.inputs.items():
        array = inputs.get(name)
        if array is None:
            value = spec.defaults[name]
            full = (*lead, *full_shape(shape, sizes))
            plain = np.asarray(value if value is not None else _step_numbers(lead, counts, pieces), dtype)
            array = np.broadcast_to(plain.reshape(*plain.shape, *(1,) * (len(full) - 2)) if plain.ndim else plain, full)
        found[name] = array
    return found


def _step_numbers(lead: tuple[int, int], counts: Array | None, pieces: Pieces | None) -> Array:
    """The number of each step in its row, [T, B] or [T, 1]; in a piece steps are counted from its
    first one, in whichever direction it runs."""
    steps = np.arange(lead[0])[:, None]
    if pieces is None:
        return steps if counts is None or not counts.any() else steps + counts
    numbers = np.zeros(lead, np.int64)
    which = np.repeat(np.arange(len(pieces)), pieces.length)
    within = np.arange(len(which)) - (np.cumsum(pieces.length) - pieces.length)[which]
    first = pieces.start - pieces.length + 1 if pieces.reverse else pieces.start
    numbers[first[which] + within, pieces.row[which]] = within + (0 if counts is None else counts[which])
    return numbers


def check_counts(given: Any, shape: tuple[int, ...], what: str = f"state '{STEP}'") -> Array:
    """How many steps each row has taken before, as int64 of this shape; zeros where nothing is
    given, and a single number is that of every row. Raises DtypeError, ShapeError, and ValueError
    for a number out of range."""
    if given is None:
        return np.zeros(shape, np.int64)
    try:
        array = np.array(given)  # a copy: what is checked is what is used
    except Exception as error:
        raise DtypeError(f"{what} counts steps, and can't be read as whole numbers: {error}") from error
    if array.dtype.kind not in "iu":
        raise DtypeError(
            f"{what} counts the steps that each row has taken, in integers; got dtype {array.dtype}. A call gives it"
            " back with the states after its last step."
        )
    if array.ndim and array.shape != shape:
        raise ShapeError(f"{what} has shape {array.shape}, expected {shape}: the steps that each row has taken.")
    if array.size and (int(array.min()) < 0 or int(array.max()) > MOST_STEPS):
        worst = array.min() if array.min() < 0 else array.max()
        raise ValueError(f"{what} counts steps, from 0 to 2**53; got {worst}.")
    return np.array(np.broadcast_to(array, shape), np.int64)


def as_array(what: str, value: Any, dtype: np.dtype) -> Array:
    """The value as an array of exactly this dtype; nothing is cast."""
    if (
        type(value) is np.ndarray and value.dtype is dtype and value.flags.aligned
    ):  # dtypes of the machine's own order exist once
        return value
    if isinstance(value, numpy_part("ma").MaskedArray):
        raise DtypeError(
            f"{what} is a masked array, and a kernel would read through its mask. Give .filled(...), or `lengths` for"
            " padding."
        )
    if value is None or isinstance(value, Mapping):
        raise DtypeError(f"{what} must be an array of {dtype}; got {'None' if value is None else 'a dict'}.")
    try:
        array = np.asarray(value)
    except Exception as error:  # whatever a ragged list or another library's tensor raises
        raise DtypeError(f"{what} can't be read as an array of {dtype}: {error}") from error
    if array.dtype != dtype or not array.dtype.isnative:
        hint = "" if array.dtype in (np.float32, np.float64) else " (kernels are made for float32 and float64)"
        raise DtypeError(
            f"{what} has dtype {array.dtype}, the kernel {dtype}{hint}. Convert it with .astype({str(dtype)!r}), "
            "or compile the cell for its dtype."
        )
    return array if array.flags.aligned else array.copy()


def own_view(what: str, value: Any, dtype: np.dtype) -> Array:
    """`as_array`, under an array object of ours: whoever gives his own another shape while a call
    runs, or between two, does not move what a kernel reads."""
    if type(value) is np.ndarray:
        return as_array(what, value.view(), dtype)  # its dtype can be assigned too: ours is what is looked at
    return as_array(what, as_array(what, value, dtype).view(), dtype)


def ready(
    shapes: Mapping[str, tuple[int, ...]],
    given: Mapping[str, Array] | None,
    dtype: np.dtype,
    *,
    zero: bool = True,
    numbered: bool = False,
) -> dict[str, Array]:
    """Arrays to write to, one for each name: those given, checked, or new ones.

    shapes: name -> shape. given: name -> a writable array of that shape and dtype. zero: whether
    they start as zeros; numbered: whether their rows have to lie as `numbered` has them.
    """
    if unknown := [n for n in given or {} if n not in shapes]:
        raise ShapeError(
            f"out: nothing is written under the name {', '.join(map(repr, unknown))}; there are {', '.join(shapes)}."
        )
    found = {}
    for name, shape in shapes.items():
        array = (given or {}).get(name)
        if array is None:
            found[name] = (np.zeros if zero else np.empty)(shape, dtype)
            continue
        array = array.view() if type(array) is np.ndarray else array  # whose shape nobody else changes
        if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape or not array.flags.writeable:
            raise ShapeError(f"out {name!r} must be a writable array of shape {shape} and dtype {dtype}.")
        if not _is_regular(array):
            raise ShapeError(
                f"out {name!r} must have each number at a place of its own that is a multiple of its size, as NumPy"
                " allocates them; a field of a packed record array has not, nor has a broadcast array. Give an array"
                " of its own, and copy from it."
            )
        if len(shape) > 3 and not array[:1, :1].flags.c_contiguous:
            raise ShapeError(f"out {name!r} must have the numbers of a step and row one after another in memory.")
        if numbered and not _is_numbered(array):
            raise ShapeError(f"out {name!r} must have its rows, step after step, one after another in memory.")
        found[name] = array
    if zero:
        for name in given or {}:
            if name in found:
                found[name][...] = 0
    return found


def as_given(found: Mapping[str, Array], given: Mapping[str, Array] | None) -> dict[str, Array]:
    """What `ready` made, those that were given as the objects that they are."""
    return {name: given.get(name, array) for name, array in found.items()} if given else dict(found)


def check_apart(out: Mapping[str, Any], read: Mapping[str, Any]) -> None:
    """Raises ShapeError where an array that is to be written shares memory with another one, or
    with one that is read.

    out: name -> array, by the caller. read: what it is called -> array; those that are no NumPy
    arrays lie elsewhere.
    """
    written = [(f"out {name!r}", array) for name, array in out.items() if isinstance(array, np.ndarray)]
    others = [(what, array) for what, array in read.items() if isinstance(array, np.ndarray)]
    for i, (what, array) in enumerate(written):
        for other, beside in (*written[:i], *others):
            if np.may_share_memory(array, beside) and _meet(array, beside):
                raise ShapeError(
                    f"{what} shares memory with {other}, which it would overwrite: give it memory of its own."
                )


def _meet(a: Array, b: Array) -> bool:
    """Whether two arrays have an element in common; true where that is hard to tell."""
    try:
        return bool(np.shares_memory(a, b, max_work=10_000))  # type: ignore[arg-type]
    except RuntimeError:  # TooHardError, whose home differs among versions of NumPy
        return True


def _is_regular(array: Array) -> bool:
    """Whether every number lies at a multiple of its size, and no two at one place: so it is of all
    arrays that NumPy makes and of their slices and transposes."""
    if array.size == 0:
        return True
    if not array.flags.aligned or array.__array_interface__["data"][0] % array.itemsize:
        return False
    span = array.itemsize
    for stride, count in sorted((abs(s), n) for s, n in zip(array.strides, array.shape) if n > 1):
        if stride < span or stride % array.itemsize:
            return False
        span = stride * (count - 1) + span
    return True


def numbered(array: Array) -> Array:
    """An array [T, B, ...] whose rows, step after step, can be counted through: step t of row b is
    number t * B + b."""
    return array if _is_numbered(array) else np.ascontiguousarray(array)


def _is_numbered(array: Array) -> bool:
    return min(array.shape[:2]) <= 1 or array.strides[0] == array.shape[1] * array.strides[1]


def infer_sizes(spec: Spec, dims: list[tuple[str, Shape, tuple[int, ...]]]) -> dict[str, int]:
    """The value of every size, from (what, declared shape, actual shape) of the arrays. Raises
    ShapeError with all mismatches."""
    votes: dict[str, dict[int, list[str]]] = {}
    for what, shape, actual in dims:
        for name, length in zip(shape, actual):
            if name.isidentifier() and len(shape) == len(actual):
                votes.setdefault(name, {}).setdefault(length, []).append(what)
    most = {
        name: max(found, key=lambda n: len(found[n])) for name, found in votes.items()
    }  # so that the odd one out is named
    sizes, told = dict(most), {name: votes[name][length][0] for name, length in most.items()}
    sizes = with_default_sizes(spec.sizes, sizes)
    wrong = []
    for what, shape, actual in dims:
        expected = tuple(evaluate_size(s, sizes) if size_names(s) <= set(sizes) else None for s in shape)
        if len(shape) != len(actual) or any(e is not None and e != a for e, a in zip(expected, actual)):
            meaning = "" if all(s.isdigit() for s in shape) else f" = [{', '.join(shape)}]"
            wrong.append(
                f"{what} has shape {_shown(actual)}, expected {_shown(expected)}{meaning}{_because(shape, sizes, told)}"
            )
    if wrong:
        raise ShapeError("; ".join(wrong) + ".")
    return sizes


def numbers(shape: Shape, sizes: Mapping[str, int]) -> Shape:
    """A declared shape with the value of every size in its place, as `infer_sizes` takes it."""
    return tuple(str(n) for n in full_shape(shape, sizes))


def _shown(shape: tuple[int | None, ...]) -> str:
    return "(" + ", ".join("?" if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"


def _because(shape: Shape, sizes: Mapping[str, int], told: Mapping[str, str]) -> str:
    names = sorted(n for n in sizes_in([shape]) if n in told)
    return f" ({', '.join(f'{n} = {sizes[n]} from {told[n]}' for n in names)})" if names else ""


def check_lengths(lengths: Any, steps: int, rows: int) -> Array | None:
    """Lengths as int64 [B], or None where every row takes every step."""
    if lengths is None:
        return None
    try:
        array = np.array(lengths)  # a copy: what is checked is what is used
    except Exception as error:
        raise ValueError(f"lengths must be {rows} integers: {error}") from error
    if array.shape != (rows,):
        raise ValueError(
            f"lengths must have shape ({rows},), one number of steps for each row of the batch; got {array.shape}."
        )
    if rows == 0:
        return None
    if array.dtype.kind not in "iu":
        found = ", ".join(sorted({type(n).__name__ for n in array.tolist()}))
        raise ValueError(f"lengths must be integers that fit 64 bits; got {found} (dtype {array.dtype}).")
    for row, n in enumerate(array.tolist()):
        if not 0 <= n <= steps:
            raise ValueError(f"lengths[{row}] is {n}, but a row takes between 0 and {steps} steps.")
    whole = array.astype(np.int64, copy=False)
    return None if (whole == steps).all() else whole


def as_resets(resets: Any) -> Array:
    """Resets as an array of booleans of our own, of whatever shape they have."""
    try:
        array = np.array(resets)
    except ValueError as error:  # a ragged list
        raise ShapeError(f"resets must be an array of booleans [T, B]: {error}") from None
    if array.dtype != np.bool_:
        raise DtypeError(
            f"resets must be booleans, true before each step at which a row restarts; got dtype {array.dtype}."
        )
    return array


LEAF = 16  # rows that are added up one after another


def row_sum(rows: Array) -> Array:
    """The sum of rows [N, ...] over the first axis: of `LEAF` at a time, then of those sums. Errors
    stay below LEAF / 2 * log(N) / log(LEAF) units in the last place of the sum of the sizes."""
    if len(rows) <= LEAF:
        return rows.sum(axis=0)
    whole = len(rows) // LEAF
    sums = rows[: whole * LEAF].reshape(LEAF, whole, *rows.shape[1:]).sum(axis=0)
    return row_sum(sums) + rows[whole * LEAF :].sum(axis=0)


def outer_sum(left: Array, right: Array, most: int = 2**12) -> Array:
    """left.T @ right of rows [N, ...], N halved until it is at most `most`: a product adds up the
    terms of a piece of N after another."""
    if len(left) <= most:
        return left.T @ right
    middle = len(left) // 2
    return outer_sum(left[:middle], right[:middle], most) + outer_sum(left[middle:], right[middle:], most)
