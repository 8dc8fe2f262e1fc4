"""Arrays of numbers from files that others may have written: `.npz` archives and `.npy`, of a size
that is known before there is memory for them; never an object that was pickled.

In: a path, and how much is too much. Out: arrays. What is wrong with a file is a `Refused`.
"""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
from typing import IO

import numpy as np
from numpy import ndarray as Array

from rnnspec.storage.guarded import MOST_BYTES, Refused, opened, read, told

MOST_MEMBERS = 100_000
DIRECTORY = 32 * 2**20  # bytes of an archive's list of members
UNPACKED, RATIO = 64 * 2**20, 50  # an archive may hold so many bytes, or so many times its own size
STEP = 2**20


def array(path: str | os.PathLike[str], most: int = MOST_BYTES) -> Array:
    """The array of numbers in an .npy file."""
    return array_in(path, read(path, most))


def array_in(path: str | os.PathLike[str], content: bytes) -> Array:
    """The array that the content of an .npy file is; path: of the file that it is from."""
    with told(path):
        return _array(path, io.BytesIO(content), len(content))


def arrays(path: str | os.PathLike[str], most: int = MOST_BYTES) -> dict[str, Array]:
    """The arrays of numbers in an .npz file, by name. most: bytes of the file and, unpacked, of all
    arrays together, which may also not be RATIO times the file beyond UNPACKED."""
    with opened(path, most) as file, told(path):
        size = os.fstat(file.fileno()).st_size
        if file.read(6) == b"\x93NUMPY":
            raise Refused(path, "it holds one array, without a name")
        _check_directory(path, file, size)
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            _check_members(path, members, min(most, max(UNPACKED, RATIO * size)))
            found = {}
            for member in members:
                name = member.filename.removesuffix(".npy")
                with archive.open(member) as stream:
                    try:
                        found[name] = _array(path, stream, member.file_size)
                    except Refused as error:
                        raise Refused(path, f"{error.reason} (its array {name[:60]!a})") from None
            return found


def member(path: str | os.PathLike[str], name: str, most: int = MOST_BYTES) -> bytes:
    """The content of one member of a zip archive, of a size that may be in a file of its size."""
    with opened(path, most) as file, told(path):
        size = os.fstat(file.fileno()).st_size
        _check_directory(path, file, size)
        with zipfile.ZipFile(file) as archive:
            members = [m for m in archive.infolist() if m.filename == name]
            if len(members) != 1:
                raise Refused(path, f"it has no member {name!a}, or several")
            _check_members(path, members, min(most, max(UNPACKED, RATIO * size)))
            return archive.read(members[0])


def _check_directory(path: str | os.PathLike[str], file: IO[bytes], size: int) -> None:
    """zipfile reads the whole list of members at once, so its length is looked at first."""
    file.seek(max(0, size - 22 - 2**16 - 20))
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or at + 22 > len(tail):
        raise Refused(path, "it is no archive (.npz and the like), or its end is missing")
    length = struct.unpack_from("<L", tail, at + 12)[0]
    if at >= 20 and tail[at - 20 : at - 16] == b"PK\6\7":
        file.seek(min(size, struct.unpack_from("<Q", tail, at - 12)[0]))
        length = struct.unpack_from("<Q", file.read(56).ljust(56, b"\0"), 40)[0]
    if length > DIRECTORY:
        raise Refused(path, f"its list of members has {length:,} bytes, and at most {DIRECTORY:,} make sense here")
    file.seek(0)


def _check_members(path: str | os.PathLike[str], members: list[zipfile.ZipInfo], most: int) -> None:
    names = [member.filename for member in members]
    if len(names) > MOST_MEMBERS:
        raise Refused(path, f"it has {len(names):,} members, and at most {MOST_MEMBERS:,} make sense here")
    if len({name.removesuffix(".npy") for name in names}) < len(names):
        raise Refused(path, "two of its arrays have one name")
    for member in members:
        name = member.filename
        if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/") or member.is_dir():
            raise Refused(path, f"an array can't be called {name[:60]!a}")
        if member.flag_bits & 1:
            raise Refused(path, f"its member {name[:60]!a} is encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise Refused(path, f"its member {name[:60]!a} is packed in a way that NumPy does not use")
    if (total := sum(member.file_size for member in members)) > most:
        raise Refused(path, f"its arrays would have {total:,} bytes, and at most {most:,} make sense here")


def _array(path: str | os.PathLike[str], stream: IO[bytes], size: int) -> Array:
    """The array of an .npy stream of `size` bytes: its header must tell of as many as there are
    before there is memory for them."""
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise Refused(path, f"it has arrays of the format {version[0]}.{version[1]}, and 1.0 and 2.0 are known")
    header = io.BytesIO(stream.read(2 if version == (1, 0) else 4))
    (length,) = struct.unpack("<H" if version == (1, 0) else "<L", header.getvalue())
    if length > 10_000:
        raise Refused(path, f"a header of {length:,} bytes is none of an array of numbers")
    header = io.BytesIO(header.getvalue() + stream.read(length))
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read_header(header)
    if dtype.kind not in "biufc" or dtype.itemsize == 0:
        raise Refused(path, f"it holds values of {str(dtype)[:60]}, and numbers are wanted")
    if any(isinstance(n, bool) or not 0 <= n < 2**62 for n in shape):
        raise Refused(path, f"an array can't have the shape {str(shape)[:60]}")
    told, there = math.prod(shape) * dtype.itemsize, size - 6 - 2 - len(header.getvalue())
    if told != there:
        raise Refused(path, f"an array of the shape {str(shape)[:60]} has {told:,} bytes, and {there:,} are there")
    made = np.empty(told, np.uint8)
    for start in range(0, told, STEP):
        part = stream.read(min(STEP, told - start))
        made[start : start + len(part)] = np.frombuffer(part, np.uint8)
        if len(part) < min(STEP, told - start):
            raise Refused(path, "it ends within an array")
    stream.read(1)  # at its end the sum of a member is looked at
    found = made.view(dtype)
    return found.reshape(shape[::-1]).T if by_columns else found.reshape(shape)
