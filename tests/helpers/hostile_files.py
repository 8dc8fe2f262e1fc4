"""Files as somebody else may have made them: damaged, foreign or made to harm, by a number, the
same each time."""

from __future__ import annotations

import copy
import io
import json
import math
import os
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 7, 10**6, 10**9, 10**12, 2**63, 2**64, -(2**70), 0.5, -0.5, 1e308, 1e-320),
    *(math.nan, math.inf, -math.inf, "", "x", "\0", "\x1b[31m", "../../x", "/dev/zero", "/", "9" * 50, "\ud800"),
    *([], {}, [[]], {"": {}}, ["a", "a"], [None], [1e308], {"start": -1}, {"index": 10**9}, {"step": 1}),
    *("lstm", "none", "array", "tuple"),
)


def changed(draw: random.Random, value: Any) -> Any:
    """JSON with one of its parts, at any depth, replaced, lost or new."""
    value = copy.deepcopy(value)
    inner = value
    while True:
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        key = draw.choice(keys) if keys else None
        if key is not None and isinstance(inner[key], dict | list) and inner[key] and draw.random() < 0.7:
            inner = inner[key]
            continue
        break
    match draw.randrange(6):
        case 0 if key is not None:
            del inner[key]
        case 1 if isinstance(inner, dict):
            inner[draw.choice(("new", "step", "cell", "", "a" * 1000))] = draw.choice(VALUES)
        case 1 | 2 if isinstance(inner, list):
            inner.append(draw.choice(VALUES))
        case _ if key is not None:
            inner[key] = copy.deepcopy(draw.choice(VALUES))
    return value


def _flip(draw: random.Random, content: bytes) -> bytes:
    damaged = bytearray(content)
    for _ in range(draw.choice((1, 1, 3, 40))):
        damaged[draw.randrange(len(damaged))] = draw.randrange(256)
    return bytes(damaged)


def _flip_in_directory(draw: random.Random, content: bytes) -> bytes:
    """An encrypted member, another method or version, another sum or size, another name."""
    damaged, at = bytearray(content), content.rfind(b"PK\x01\x02")
    if at < 0:
        return content[: len(content) // 2]
    start, length = draw.choice(((6, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (42, 4), (46, 4)))
    damaged[at + start : at + start + length] = draw.choice((b"\xff" * length, b"\0" * length, b"\x01\0\0\0"[:length]))
    return bytes(damaged)


def archive(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        for name, content in members:
            made.writestr(name, content)
    return file.getvalue()


def header(shape: str, descr: str = "'<f4'", rest: str = "") -> bytes:
    """The start of an .npy file that says it has this shape."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, {rest}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def bombs(name: str) -> tuple[bytes, ...]:
    """Archives that a reader must not unpack."""
    return (
        archive([(f"{name}.npy", header("(500000000,)") + bytes(10**8))], zipfile.ZIP_DEFLATED),
        archive([(f"{name}.npy", header("(1000000000000,)"))]),
        archive([(f"{name}.npy", header("(-1,)") + bytes(16))]),
        archive([(f"{name}.npy", header("(" * 900 + "1" + ")" * 900))]),
        archive([(f"{name}.npy", header("(2,)", "'|O'") + b"\x80\x04K\x01.")]),
        archive([(f"{name}.npy", header("(1,)", "[('a', '<f4')]") + bytes(4))]),
        archive([(f"{name}.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\x7f")]),
        archive([(f"{name}.npy", header("(1,)") + bytes(4))], zipfile.ZIP_LZMA),
        archive([(f"{name}.npy", header("(1,)") + bytes(4))], zipfile.ZIP_BZIP2),
        archive([(f"../{name}.npy", header("(1,)") + bytes(4)), ("/x.npy", header("(1,)") + bytes(4))]),
        header("(3,)") + bytes(12),
        b"",
        b"PK\x05\x06" + bytes(8) + b"\xff" * 10,
    )


EMPTY = b"PK\x05\x06" + bytes(18), archive([("meta.npy", header("(1, 1000000000000, 0)"))])
SMALL_BOMBS = (*bombs("meta")[1:], *EMPTY)


def damaged(draw: random.Random, content: bytes) -> bytes:
    """The content of an archive, damaged somewhere."""
    match draw.randrange(6):
        case 0:
            return content[: draw.randrange(len(content))]
        case 1:
            return _flip(draw, content)
        case 2 | 3:
            return _flip_in_directory(draw, content)
        case 4:
            return content + content[: draw.randrange(200)]
        case _:
            return draw.choice(SMALL_BOMBS)


def changed_arrays(draw: random.Random, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays with one of them lost, new, or of another shape, type or value."""
    arrays = dict(arrays)
    name = draw.choice(list(arrays))
    array = arrays[name]
    match draw.randrange(7):
        case 0:
            del arrays[name]
        case 1:
            arrays[draw.choice(("x", "model/x", "state/0", "best/x", "expected/outputs/x", "../x", ""))] = array
        case 2:
            arrays[name] = array.reshape(-1)[: draw.choice((0, 1, 5))]
        case 3:
            arrays[name] = array.astype(draw.choice((np.float16, np.complex64, np.int8, np.bool_, "S3", np.float64)))
        case 4:
            arrays[name] = array[None]
        case 5 if array.dtype.kind == "f":
            arrays[name] = np.full_like(array, draw.choice((np.nan, np.inf, 1e38)))
        case _:
            arrays[name] = np.zeros((0, 3), array.dtype)
    return arrays


def odd_file(draw: random.Random, path: Path) -> None:
    """Something that is no file in its place."""
    path.unlink(missing_ok=True)
    match draw.randrange(4):
        case 0 if hasattr(os, "mkfifo"):
            os.mkfifo(path)
        case 1:
            path.symlink_to("/dev/zero")
        case 2:
            path.symlink_to(path.name)
        case _:
            path.mkdir()


def spoil(
    draw: random.Random, path: Path, of_json: Callable[[Any], Any] | None = None, into: str | None = None
) -> None:
    """Damages an archive of arrays, or the JSON that one of its arrays (`into`) has as bytes."""
    kind = draw.randrange(10)
    if kind == 0:
        odd_file(draw, path)
    elif kind <= 2:
        path.write_bytes(damaged(draw, path.read_bytes()))
    else:
        with np.load(path) as file:
            arrays = dict(file)
        if into is not None and of_json is not None and kind <= 8:
            text = json.dumps(of_json(json.loads(arrays[into].tobytes())))
            arrays[into] = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
        else:
            arrays = changed_arrays(draw, arrays)
        np.savez(path, **arrays)
