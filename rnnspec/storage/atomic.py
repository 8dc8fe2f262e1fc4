"""Files that are whole or not there: written beside their place, then renamed."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


def write_atomic(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """Calls write(file) on a temporary file beside `path` and renames it to `path`; on any error
    `path` is as it was."""
    path = Path(path)
    if path.is_dir():  # "." too, which has no name to put anything beside
        raise IsADirectoryError(errno.EISDIR, "it is a folder, and a file was to be written", str(path))
    temporary = path.with_name(f".{path.name}.{threading.get_ident()}.{os.getpid()}.tmp")  # its own in each thread too
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Holds a folder for this process, or gives False if another one does. The system lets go of it
    when a process ends, however it ends; where it has no such locks (Windows, some network drives)
    nobody is kept out."""
    try:
        import fcntl

        number = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        yield True
        return
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            pass
        yield True
    finally:
        os.close(number)


def sync_folder(folder: Path) -> None:
    """So that the new name outlives a loss of power; where a folder can't be opened (Windows) the
    system decides."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def sweep(path: str | Path) -> None:
    """Removes what writers of `path` that were killed have left beside it."""
    path = Path(path)
    for temporary in path.parent.glob(f".{path.name}.*.tmp"):
        if not _alive(temporary.name.removesuffix(".tmp").rpartition(".")[2]):
            temporary.unlink(missing_ok=True)


def _alive(process: str) -> bool:
    """Whether there may be a process of that number."""
    if os.name == "nt":  # there is no such probe: signal 0 is Ctrl+C, and goes to a whole group of processes
        return True
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except OSError:
        return True
    return True
