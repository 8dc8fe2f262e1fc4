"""Files of data: CSV rows, lines, and `.npy` arrays. Whatever is wrong is said with the file and
the row."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rnnspec.storage import archives, guarded
from rnnspec.train.errors import TrainError

LONGEST = 1_000_000  # characters of one field or line: a longer one is a file of another kind, not a row


def read_bytes(path: str | Path) -> bytes:
    """The content of a file that isn't empty."""
    try:
        content = guarded.read(path)
    except FileNotFoundError:
        raise TrainError(f"no file {path}") from None
    except guarded.Refused as error:
        if Path(path).is_dir():
            raise TrainError(f"{path} is a folder; one file is wanted") from None
        raise TrainError(f"can't read {path}: {error.reason}") from None
    except OSError as error:
        raise TrainError(f"can't read {path}: {error.strerror}") from None
    if not content.strip():
        raise TrainError(f"{path} is empty")
    return content


ARRAYS = {b"\x93NUMPY": "a NumPy array (.npy)", b"PK\3\4": "a zip archive, as .npz is"}  # by their first bytes


def kind_of(content: bytes) -> str:
    """What a file of arrays is, by its first bytes; "" for anything else."""
    return next((kind for start, kind in ARRAYS.items() if content.startswith(start)), "")


def decoded(content: bytes, path: str | Path) -> str:
    """UTF-8 text without a byte order mark; the error names the line."""
    if kind := kind_of(content):
        raise TrainError(
            f"{path} is {kind}, and a text is wanted here. Arrays are data of other tasks: --task supervised takes"
            " sequences x with targets y (.npz), forecast a series (.npy), adding rows of numbers (.npy)"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        start = error.start + (3 if content.startswith(b"\xef\xbb\xbf") else 0)
        line = content.count(b"\n", 0, start) + 1
        raise TrainError(
            f"{path}, row {line}: not UTF-8: byte 0x{content[start]:02x} at position {start} of the file. "
            "Convert it: iconv -f latin1 -t utf-8 OLD > NEW"
        ) from None


def line_ends(text: str) -> str:
    """All of them as \\n. Only what every editor takes for a line end counts as one, and not, as in
    str.splitlines, a form feed or U+2028."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def read_lines(path: str | Path) -> tuple[list[tuple[int, str]], str]:
    """(row, line) for every line that isn't blank, rows counted from 1, and the digest of the
    file."""
    content = read_bytes(path)
    lines = [(row, line) for row, line in enumerate(line_ends(decoded(content, path)).split("\n"), 1) if line.strip()]
    for row, line in lines:
        if len(line) > LONGEST:
            raise TrainError(
                f"{path}, row {row}: a line of {len(line):,} characters; at most {LONGEST:,} make sense here"
            )
    return lines, digest(content)


def read_csv(
    path: str | Path, columns: int | None = None, delimiter: str = ","
) -> tuple[list[tuple[int, list[str]]], str]:
    """(row, fields) of every row that isn't blank, and the digest of the file. Rows are counted in
    lines, from 1.

    columns: how many every row must have; None: as many as the first.
    """
    content = read_bytes(path)
    found = []
    for row, fields in _csv_rows(decoded(content, path), path, delimiter):
        columns = len(fields) if columns is None else columns
        if len(fields) != columns:
            raise TrainError(
                f"{path}, row {row}: {len(fields)} column{'s' * (len(fields) != 1)}, expected {columns}:"
                f" {shortened(fields)}"
            )
        found.append((row, fields))
    return found, digest(content)


def _csv_rows(text: str, path: str | Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    before = csv.field_size_limit(LONGEST)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        row = 1
        try:
            for fields in reader:
                if fields:
                    yield row, fields
                row = reader.line_num + 1
        except csv.Error as error:
            about = f"a field of more than {LONGEST:,} characters" if "limit" in str(error) else str(error)
            raise TrainError(f"{path}, row {row}: {about}") from None
    finally:
        csv.field_size_limit(before)


def shortened(fields: list[str]) -> str:
    text = delimiter_free(fields)
    return text if len(text) <= 60 else text[:57] + "..."


def delimiter_free(fields: list[str]) -> str:
    return " | ".join(fields)


def whole_number(text: str, path: str | Path, row: int, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise TrainError(f"{path}, row {row}: {what} must be a whole number, not {text[:40]!r}") from None


def read_numbers(path: str | Path) -> tuple[np.ndarray, list[str], str]:
    """A table of numbers, float64 [N, columns], the names of its columns, and the digest: a CSV
    file, its first row names or not, or `.npy`."""
    if str(path).endswith(".npy"):
        array, found = read_npy(path)
        if array.ndim not in (1, 2):
            raise TrainError(f"{path} has shape {list(array.shape)}; [N] or [N, columns] is wanted")
        table = array.reshape(len(array), -1)
        return table, [f"column {i}" for i in range(table.shape[1])], found
    rows, found = read_csv(path)
    names = [] if all(_number(field) is not None for field in rows[0][1]) else rows[0][1]
    body = rows[1:] if names else rows
    if not body:
        raise TrainError(f"{path} has a row of names and no numbers")
    table = np.empty((len(body), len(body[0][1])))
    for i, (row, fields) in enumerate(body):
        for j, text in enumerate(fields):
            value = _number(text)
            if value is None or not np.isfinite(value):
                raise TrainError(f"{path}, row {row}, column {j + 1}: {text[:40]!r} is not a finite number")
            table[i, j] = value
    return table, names or [f"column {i}" for i in range(table.shape[1])], found


def read_npy(path: str | Path) -> tuple[np.ndarray, str]:
    """An array of finite numbers, float64, and the digest of its file; never a pickle."""
    content = read_bytes(path)
    if kind_of(content).endswith(".npz is"):
        raise TrainError(
            f"{path} is a zip archive, as .npz is, and one array is wanted here (.npy): np.save(FILE, array) writes it"
        )
    try:
        array = archives.array_in(path, content)
    except guarded.Refused as error:
        raise TrainError(f"{path} is not a .npy file of numbers: {error.reason}") from None
    if array.dtype.kind not in "iufb" or array.ndim == 0 or not array.size:
        raise TrainError(f"{path} must hold an array of numbers that isn't empty")
    array = array.astype(np.float64)
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        raise TrainError(
            f"{path}, row {int(bad[0][0])} (counted from 0): the element at {[int(i) for i in bad[0]]} is not a finite"
            " number"
        )
    return array, digest(content)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
