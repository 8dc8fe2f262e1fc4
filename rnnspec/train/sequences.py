"""Sequences with targets from an `.npz` file of the user's: read, checked, and in the dtypes that
are trained on.

In: a path, the cell that is to read them, and what the user says of the targets. Out: `Sequences`,
plain arrays with the rows first, or a TrainError that names file, array and place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rnnspec.language.spec import Spec
from rnnspec.storage import archives, guarded
from rnnspec.train.errors import TrainError
from rnnspec.train.losses import IGNORE
from rnnspec.train.sizes import data_input

RESERVED = ("x", "y", "lengths", "mask", "held_out")
AUTO, TARGETS, PLACES = "auto", ("classes", "numbers"), ("end", "steps")
MOST_CLASSES = 1000
LARGEST = 1e18  # of a target: its error is squared in float32
HOW = "np.savez(FILE, x=x, y=y)"


@dataclass(frozen=True)
class Sequences:
    """N sequences of up to T steps. What lies behind a row's end is 0; targets that don't count are
    IGNORE (classes) or NaN (numbers)."""

    x: np.ndarray  # float32 [N, T, D]
    y: np.ndarray  # class numbers [N] or [N, T]; float32 [N, K] or [N, T, K]
    lengths: np.ndarray  # [N]
    inputs: Mapping[str, np.ndarray]  # the cell's other ones, float32 [N, T, ...]
    held_out: np.ndarray | None  # bool [N], where the file says which
    classes: tuple[int, ...] | None  # as they stand in the file, by their number here; None for numbers
    shape: str  # of y in the file: [N], [N, T], [N, K] or [N, T, K]
    dtype: str  # of y in the file
    digest: str

    @property
    def per_step(self) -> bool:
        return "T" in self.shape


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a file; TrainError says what is wrong with it."""
    try:
        return archives.arrays(path)
    except FileNotFoundError:
        raise TrainError(f"no file {path}") from None
    except guarded.Refused as error:
        hint = "; names of classes become numbers by np.unique(y, return_inverse=True)" if "of <U" in str(error) else ""
        raise TrainError(
            f"{path} is no .npz file as it is wanted here: {error.reason}. {HOW} writes one{hint}"
        ) from None
    except OSError as error:
        raise TrainError(f"can't read {path}: {error.strerror}") from None


def digest_of(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of names, dtypes, shapes and values: the same however a file is packed."""
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype.str} {array.shape} ".encode("utf-8", "surrogatepass"))
        found.update(np.ascontiguousarray(array).data if array.size else b"")
    return found.hexdigest()


def read_sequences(
    path: str, spec: Spec, *, target: str = AUTO, at: str = AUTO, without: Sequence[str] = (), classes: Any = None
) -> Sequences:
    """What a file holds, for this cell.

    target: "classes", "numbers", or "auto": what y's dtype says. at: "end" (a target a sequence),
    "steps", or "auto": what y's shape says. without: arrays to leave out. classes: those of the run
    that is gone on with; None for those of the file.
    """
    arrays = read_npz(path)
    digest = digest_of(arrays)
    for name in without:
        if arrays.pop(name, None) is None:
            raise TrainError(f"{path} has no array {name!r} to leave out; it has {', '.join(arrays)}")
    _check_names(path, arrays, spec)
    x, lengths = _numbers(path, "x", arrays["x"]), arrays.get("lengths")
    if x.ndim != 3 or not x.size:
        one = ". Of one feature a step: x[..., None]" if x.ndim == 2 and x.size else ""
        raise TrainError(f"{path}: x has shape {list(x.shape)}; [N, T, D] is wanted, N sequences of T steps{one}")
    y = _numbers(path, "y", arrays["y"])
    shape = _shape(path, x, y, at)
    ends = _lengths(path, x, lengths)
    mask = _flags(path, "mask", arrays.get("mask"), x.shape[:2], "[N, T]")
    if "T" in shape:
        counts = (np.arange(x.shape[1]) < ends[:, None]) & (True if mask is None else mask)
    else:
        ends, counts = _ends(path, ends, mask, lengths is not None), np.ones(len(x), bool)
    kind = _kind(path, y, target)
    found, labels = (
        _classes(path, y, counts, shape, classes) if kind == "classes" else (_targets(path, y, counts, shape), None)
    )
    inside = np.arange(x.shape[1]) < ends[:, None]
    read = {name: _inside(path, name, a, inside) for name, a in arrays.items() if name not in RESERVED[1:]}
    held_out = _held_out(path, arrays.get("held_out"), counts)
    return Sequences(read.pop("x"), found, ends, read, held_out, labels, shape, str(y.dtype), digest)


def _check_names(path: str, arrays: Mapping[str, np.ndarray], spec: Spec) -> None:
    """Every array has a meaning, and what is needed is there."""
    there, main = ", ".join(arrays) or "none", data_input(spec)
    for name in ("x", "y"):
        if name not in arrays:
            raise TrainError(f"{path} has no array {name!r} (it has {there}); {HOW} writes one")
    others = [name for name in spec.streams if name != main]
    for name in arrays:
        if name in others and name in RESERVED:
            raise TrainError(
                f"{path}: {name!r} is an input of {spec.name}, and has a meaning of its own in a file of sequences:"
                " give the cell's input another name"
            )
        if name not in others and name not in RESERVED:
            reads = f"beside {main} it reads {', '.join(others)}" if others else f"it reads {main} alone"
            raise TrainError(
                f"{path}: {spec.name} has no input for the array {name!r} ({reads}), which would be ignored. Known are"
                f" {', '.join(RESERVED)}, and the cell's other inputs; --set without={name} leaves it out"
            )
    for name in (n for n in others if n in arrays):
        axes = 2 + len(spec.inputs[name])
        array = _numbers(path, name, arrays[name])
        if array.ndim != axes or array.shape[:2] != arrays["x"].shape[:2]:
            wanted = ", ".join(["N", "T", *map(str, spec.inputs[name])])
            raise TrainError(
                f"{path}: {name} has shape {list(array.shape)}, beside x {list(arrays['x'].shape)}; [{wanted}] is"
                " wanted"
            )
        if name == "dt" and (place := _first(~(array > 0))):
            raise TrainError(f"{path}: dt{place} is {array[tuple(place)]:g}; the time of a step must be above 0")


def _numbers(path: str, name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "c":
        raise TrainError(f"{path}: {name} is {array.dtype}; real numbers are wanted: its real and imaginary parts, say")
    return array


def _first(bad: np.ndarray) -> list[int]:
    """The first place where it is true; [] where it is nowhere."""
    return [int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape)] if bad.any() else []


def _shape(path: str, x: np.ndarray, y: np.ndarray, at: str) -> str:
    """What the axes of y are."""
    rows, steps = x.shape[:2]
    there = {1: ("[N]",), 2: ("[N, T]", "[N, K]"), 3: ("[N, T, K]",)}.get(y.ndim, ())
    fits = [
        shape
        for shape in there
        if len(y) == rows and ("T" not in shape or y.shape[1] == steps) and y.size
        and at in (AUTO, "steps" if "T" in shape else "end")
    ]  # fmt: skip
    if not fits:
        asked = "" if at == AUTO else f", and --set at={at} asks for targets at {'the end' if at == 'end' else 'steps'}"
        raise TrainError(
            f"{path}: y has shape {list(y.shape)}, beside x {list(x.shape)}{asked}. Wanted is [N] or [N, K], a target"
            " a sequence, or [N, T] or [N, T, K], one a step"
        )
    return fits[0]


def _lengths(path: str, x: np.ndarray, lengths: np.ndarray | None) -> np.ndarray:
    rows, steps = x.shape[:2]
    if lengths is None:
        return np.full(rows, steps)
    if lengths.shape != (rows,) or lengths.dtype.kind not in "iu":
        raise TrainError(f"{path}: lengths are {lengths.dtype} {list(lengths.shape)}; integers [{rows}] are wanted")
    if place := _first((lengths < 1) | (lengths > steps)):
        raise TrainError(
            f"{path}: lengths{place} is {lengths[tuple(place)]}; it must be between 1 and {steps}, the steps of x"
        )
    return lengths.astype(np.int64)


def _flags(path: str, name: str, array: np.ndarray | None, shape: tuple[int, ...], axes: str) -> np.ndarray | None:
    """An array of yes and no."""
    if array is None:
        return None
    if array.shape != shape:
        raise TrainError(f"{path}: {name} has shape {list(array.shape)}; {axes} is wanted, {list(shape)}")
    if place := _first((array != 0) & (array != 1)):
        raise TrainError(f"{path}: {name}{place} is {array[tuple(place)]}; true and false, or 1 and 0, are wanted")
    return array != 0


def _ends(path: str, ends: np.ndarray, mask: np.ndarray | None, told: bool) -> np.ndarray:
    """Lengths, where there is a target a sequence: a mask says where its rows end."""
    if mask is None:
        return ends
    counted = mask.sum(axis=1)
    if place := _first(counted == 0):
        raise TrainError(f"{path}: mask is false at every step of row {place[0]}: nothing of it would be read")
    if place := _first(mask != (np.arange(mask.shape[1]) < counted[:, None])):
        raise TrainError(
            f"{path}: mask is true again behind mask{place}, which is false. With one target a sequence a mask says"
            " where a row ends; steps within a row can't be left out: take them out of x"
        )
    if told and (place := _first(counted != ends)):
        raise TrainError(
            f"{path}: mask ends row {place[0]} after {counted[place[0]]} steps, lengths after {ends[place[0]]}"
        )
    return counted.astype(np.int64)


def _kind(path: str, y: np.ndarray, target: str) -> str:
    if target != AUTO:
        return target
    return "numbers" if y.dtype.kind == "f" else "classes"


def _classes(
    path: str, y: np.ndarray, counts: np.ndarray, shape: str, known: Any
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Numbers of classes from 0, and what they stand for."""
    if "K" in shape:
        raise TrainError(
            f"{path}: y is {y.dtype} {list(y.shape)}; classes are [N], a sequence's, or [N, T], a step's. Of rows with"
            " one 1: y.argmax(axis=-1); if they are numbers: --set target=numbers"
        )
    used = y[counts]
    with np.errstate(invalid="ignore"):
        whole = used.astype(np.int64)
    if place := _first(whole != used):
        raise TrainError(f"{path}: y has {used[place[0]]}, which is no class: whole numbers are wanted")
    found = np.unique(whole)
    classes = np.array(known, np.int64) if known is not None else found
    if unknown := [int(c) for c in found if c not in classes]:
        raise TrainError(f"{path}: y has the class {unknown[0]}, which the run that is gone on with does not know")
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise TrainError(
            f"{path}: y is {y.dtype} with {len(classes):,} different value{'s' * (len(classes) != 1)}; 2 to"
            f" {MOST_CLASSES} classes make sense here. If they are numbers: --set target=numbers"
        )
    labels = np.full(y.shape, IGNORE, np.int64)
    labels[counts] = np.searchsorted(classes, whole)
    return labels, tuple(int(c) for c in classes)


def _targets(path: str, y: np.ndarray, counts: np.ndarray, shape: str) -> np.ndarray:
    """Numbers, with an axis of them: [N, K] or [N, T, K]."""
    values = y if "K" in shape else y[..., None]
    bad = ~(np.abs(values, dtype=np.float64) <= LARGEST) & counts[..., None]
    if place := _first(bad):
        place = place if "K" in shape else place[:-1]
        raise TrainError(
            f"{path}: y{place} is {y[tuple(place)]:g}; finite numbers up to {LARGEST:g} are wanted wherever a target"
            " counts (mask [N, T] and lengths [N] say where)"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(counts[..., None], values, np.nan).astype(np.float32)


def _inside(path: str, name: str, array: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """An input in float32, 0 behind the ends of rows."""
    within = inside.reshape(*inside.shape, *[1] * (array.ndim - 2))
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.where(within, array, 0).astype(np.float32)
    if place := _first(~np.isfinite(values)):
        raise TrainError(
            f"{path}: {name}{place} is {array[tuple(place)]:g}; finite numbers of float32 are wanted up to a row's end"
            " (lengths [N] says where that is)"
        )
    return values


def _held_out(path: str, array: np.ndarray | None, counts: np.ndarray) -> np.ndarray | None:
    held_out = _flags(path, "held_out", array, counts.shape[:1], "[N]")
    if held_out is None or 0 < held_out.sum() < len(held_out):
        return held_out
    raise TrainError(
        f"{path}: held_out is {'true' if held_out.all() else 'false'} for every row; some to train on and some to test"
        " on are wanted"
    )
