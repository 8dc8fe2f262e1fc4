"""Reads files that others may have written: regular files only, of a size that is known before
anything is read, and whatever is wrong with one is a `Refused` that says so.

In: a path, and how much is too much. Out: bytes, text or values of JSON (`archives` reads arrays).
A file that is not there or can't be opened is an OSError, as ever.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

MOST_BYTES = 8 * 2**30  # of a file with arrays
KINDS = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))
OPEN = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY"))


class Refused(ValueError):
    """A file that is not what it should be: `path`, and the reason."""

    def __init__(self, path: str | os.PathLike[str], reason: str):
        super().__init__(path, reason)
        self.path, self.reason = os.fspath(path), reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@contextmanager
def opened(path: str | os.PathLike[str], most: int) -> Iterator[IO[bytes]]:
    """A regular file of at most `most` bytes, open for reading. What is none is not even opened: a
    FIFO would wait for a writer, and a device may do something."""
    _regular(path, os.stat(path), most)
    number = os.open(path, OPEN)
    with open(number, "rb") as file:
        _regular(path, os.fstat(number), most)  # it may be another one by now
        yield file


def _regular(path: str | os.PathLike[str], status: os.stat_result, most: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise Refused(path, "it is a directory")
    if not stat.S_ISREG(status.st_mode):
        kind = next((words for test, words in KINDS if test(status.st_mode)), "something else")
        raise Refused(path, f"it is no regular file, but {kind}")
    if status.st_size > most:
        raise Refused(path, f"it has {status.st_size:,} bytes, and at most {most:,} make sense here")


def read(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """The content of a file."""
    with opened(path, most) as file, told(path):
        content = file.read(os.fstat(file.fileno()).st_size + 1)
        while len(content) <= most and (more := file.read(65_536)):  # it says that it has none, or grows
            content += more
    if len(content) > most:
        raise Refused(path, f"it has over {most:,} bytes, and fewer make sense here")
    return content


def text(path: str | os.PathLike[str], most: int) -> str:
    """The content of a UTF-8 file."""
    try:
        return read(path, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(path, f"it is not UTF-8 (byte {error.start})") from None


def values(path: str | os.PathLike[str], most: int) -> Any:
    """What a file of JSON holds."""
    return parsed(path, text(path, most))


def parsed(path: str | os.PathLike[str], content: str | bytes) -> Any:
    """What a text of JSON holds; path: of the file that it is from."""
    try:
        return json.loads(content)
    except RecursionError:
        raise Refused(path, "its JSON is nested too deeply") from None
    except ValueError as error:
        raise Refused(path, f"it is no JSON ({error})") from None


@contextmanager
def told(path: str | os.PathLike[str]) -> Iterator[None]:
    """zipfile and NumPy's reader raise more than they say: BadZipFile, NotImplementedError,
    zlib.error, struct.error, TokenError, RecursionError, ..."""
    try:
        yield
    except (Refused, FileNotFoundError):
        raise
    except MemoryError:
        raise Refused(path, "there is not enough memory for it") from None
    except Exception as error:
        raise Refused(path, f"it is damaged, or of another kind ({type(error).__name__}: {str(error)[:200]})") from None
