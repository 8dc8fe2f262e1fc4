"""Arrays from the weight files of other libraries, by flat name, and into some of them.

| ending | what |
|---|---|
| `.npz` | NumPy's archive: what `layer.save` writes, or a flattened tree |
| `.safetensors` | the safetensors format |
| `.h5`, `.hdf5`, `.keras` | Keras (needs h5py); read only |
| `.msgpack` | a parameter tree of flax, of `flax.serialization.to_bytes` (needs msgpack) |
| `.pt`, `.pth` | a state dict of torch, read with weights_only (needs torch) |

A file may be somebody else's: its size is bounded, nothing that it holds is executed.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.errors import UnsupportedError, visible
from rnnspec.storage import archives, atomic, guarded, safetensors
from rnnspec.storage.guarded import Refused, told

MOST_ARRAYS, MOST_DEPTH = 20_000, 32
UNPACKED, RATIO = 64 * 2**20, 50  # bytes of all arrays of an HDF5 file, or so many times its size
Arrays = dict[str, Array]
PathLike = str | os.PathLike[str]


def read(path: PathLike) -> Arrays:
    """The arrays of a file, by its names, joined by / where they are nested. Raises Refused,
    OSError, UnsupportedError for another ending or where a package is missing."""
    return {name: array for name, array in _reader(path)(path).items() if array.dtype.kind in "biuf"}


def write(path: PathLike, named: Mapping[str, Array]) -> None:
    """Writes arrays by flat name, as a whole. Raises UnsupportedError for an ending that is only
    read."""
    ending = Path(path).suffix.lower()
    if ending not in WRITERS:
        raise UnsupportedError(
            f"{visible(str(path))}: what is written ends in {', '.join(WRITERS)}. Files of Keras have the names of a"
            " model's layers: set theirs with layer.set_weights([...]) of arrays of an .npz."
        )
    WRITERS[ending](path, named)


def _reader(path: PathLike) -> Callable[[PathLike], Arrays]:
    ending = Path(path).suffix.lower()
    if ending not in READERS:
        raise UnsupportedError(f"{visible(str(path))}: weights are read from files that end in {', '.join(READERS)}.")
    return READERS[ending]


def needed(package: str, path: PathLike) -> Any:
    """A package that the file needs. Raises UnsupportedError where it is not installed."""
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError as error:
        raise UnsupportedError(f"{visible(str(path))} needs the package {package}: pip install {package}") from error


# --- HDF5


def _keras(path: PathLike) -> Arrays:
    return _hdf5_in(path, archives.member(path, "model.weights.h5"))


def _hdf5(path: PathLike) -> Arrays:
    return _hdf5_in(path, guarded.read(path))


def _hdf5_in(path: PathLike, content: bytes) -> Arrays:
    h5py = needed("h5py", path)
    most, found = max(UNPACKED, RATIO * len(content)), Arrays()
    with told(path), h5py.File(io.BytesIO(content), "r") as file:
        for number, (name, data) in enumerate(_members(h5py, path, file, "", 0)):
            if number >= MOST_ARRAYS:  # groups may be linked to from many places, and those too
                raise Refused(path, f"it has over {MOST_ARRAYS:,} names, and fewer make sense here")
            if not isinstance(data, h5py.Dataset) or data.shape is None or data.dtype.kind not in "biuf":
                continue
            if data.is_virtual or data.external or data.compression not in (None, "gzip", "lzf"):
                raise Refused(path, f"its array {name[:60]!a} lies elsewhere, or is packed in a way that is not read")
            most -= math.prod(data.shape) * data.dtype.itemsize
            if most < 0:
                raise Refused(path, f"its arrays, with {name[:60]!a}, have more numbers than make sense here")
            found[name] = np.asarray(data[()])
    return found


def _members(h5py: Any, path: PathLike, group: Any, before: str, depth: int) -> Iterator[tuple[str, Any]]:
    """All that is in a group, by name; what only points elsewhere is refused."""
    if depth > MOST_DEPTH:
        raise Refused(path, "its groups are nested too deeply")
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise Refused(path, f"{name[:60]!a} points elsewhere, which is not followed")
        one, full = group[name], f"{before}/{name}" if before else name
        yield full, one
        if isinstance(one, h5py.Group):
            yield from _members(h5py, path, one, full, depth + 1)


# --- flax


def _flax(path: PathLike) -> Arrays:
    msgpack = needed("msgpack", path)
    content = guarded.read(path)

    def array(code: int, data: bytes) -> Any:
        if code != 1:  # of flax: an array as (shape, dtype, bytes)
            raise Refused(path, f"it has a value of the kind {code}, which is no array of flax")
        shape, dtype, numbers = msgpack.unpackb(data, raw=False)
        kind = np.dtype(dtype)
        if kind.kind not in "biuf" or math.prod(shape) * kind.itemsize != len(numbers):
            raise Refused(path, f"an array of {str(kind)[:20]}, shape {str(shape)[:40]}, is not what its bytes are")
        return np.frombuffer(numbers, kind).reshape(shape).copy()

    with told(path):
        tree = msgpack.unpackb(content, raw=False, ext_hook=array, strict_map_key=False)
        return dict(_flat(path, tree, "", 0))


def _flat(path: PathLike, tree: Any, before: str, depth: int) -> Iterator[tuple[str, Array]]:
    if depth > MOST_DEPTH:
        raise Refused(path, "its tree is nested too deeply")
    if isinstance(tree, Array):
        yield before, tree
    elif isinstance(tree, dict):
        for name, one in tree.items():
            yield from _flat(path, one, f"{before}/{name}" if before else str(name), depth + 1)


def _write_flax(path: PathLike, named: Mapping[str, Array]) -> None:
    msgpack = needed("msgpack", path)
    tree: dict[str, Any] = {}
    for name, array in named.items():
        *groups, last = name.split("/")
        inner = tree
        for group in groups:
            inner = inner.setdefault(group, {})
        packed = msgpack.packb((array.shape, array.dtype.name, array.tobytes()), use_bin_type=True)
        inner[last] = msgpack.ExtType(1, packed)
    atomic.write(path, msgpack.packb(tree, use_bin_type=True))


# --- torch


def _torch(path: PathLike) -> Arrays:
    torch = needed("torch", path)
    content = io.BytesIO(guarded.read(path))
    with told(path):
        held = torch.load(content, map_location="cpu", weights_only=True)
        if not isinstance(held, dict):
            raise Refused(path, f"it holds a {type(held).__name__}, and a state dict is wanted")
        arrays = {str(n): t for n, t in held.items() if isinstance(t, torch.Tensor) and not t.is_sparse}
        return {n: t.detach().numpy() for n, t in arrays.items() if t.dtype not in (torch.bfloat16,)}


def _write_torch(path: PathLike, named: Mapping[str, Array]) -> None:
    torch = needed("torch", path)
    held = {name: torch.from_numpy(np.array(array)) for name, array in named.items()}
    atomic.write(path, lambda file: torch.save(held, file))


def _write_npz(path: PathLike, named: Mapping[str, Array]) -> None:
    atomic.write(path, lambda file: np.savez(file, **named))  # type: ignore[arg-type]


READERS: Mapping[str, Callable[[PathLike], Arrays]] = {
    ".npz": archives.arrays,
    ".safetensors": safetensors.arrays,
    ".keras": _keras,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
    ".msgpack": _flax,
    ".pt": _torch,
    ".pth": _torch,
}
WRITERS: Mapping[str, Callable[[PathLike, Mapping[str, Array]], None]] = {
    ".npz": _write_npz,
    ".safetensors": safetensors.write,
    ".msgpack": _write_flax,
    ".pt": _write_torch,
    ".pth": _write_torch,
}
