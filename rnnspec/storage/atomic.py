"""Files that are whole or not there: written beside their place, then renamed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

ROOMLESS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of an OSError: there is no room for more


def write(
    path: str | os.PathLike[str], content: bytes | Callable[[IO[bytes]], object], *, durable: bool = True
) -> None:
    """Writes a file as a whole: beside its place first, then renamed; on any error `path` is as it
    was.

    content: the bytes, or what writes them to the binary file that it is given.
    durable: the file must be there afterwards, and outlive a loss of power. With False it is a copy
        of what can be made again, the same under this name whoever writes it: nothing waits for the
        disk, and where Windows refuses to replace a file that another process has open, that file
        will do.

    Raises OSError, and what `content` raises.
    """
    path = Path(path)
    temporary = _beside(path)
    try:
        _fill(temporary, content, durable)
        _rename(temporary, path, durable)
    finally:
        _remove(temporary)


def write_all(files: Mapping[Path, bytes]) -> tuple[Path, ...]:
    """Writes several files that belong together and returns their paths: all of them, or, if one
    can't be written, none, and what was there before is there again. (A process that is killed
    between two renames leaves some: each whole.) Raises OSError."""
    beside = {path: (_beside(path), _beside(path)) for path in files}
    begun: list[Path] = []
    try:
        for path, content in files.items():
            _fill(beside[path][0], content, durable=True)
        try:
            for path, (new, old) in beside.items():
                _second_name(path, old)
                begun.append(path)
                _rename(new, path, durable=True)
        except BaseException:
            for path in begun:
                old = beside[path][1]
                os.replace(old, path) if old.exists() else path.unlink(missing_ok=True)
            raise
    finally:
        for temporaries in beside.values():
            for temporary in temporaries:
                _remove(temporary)
    return tuple(files)


def _beside(path: Path) -> Path:
    """Where a file is written before it is renamed: another name in each thread; `sweep` reads the
    process."""
    if path.is_dir():  # "." too, which has no name to put anything beside
        raise IsADirectoryError(errno.EISDIR, "it is a folder, and a file was to be written", str(path))
    return path.with_name(f".{path.name}.{os.urandom(8).hex()}.{os.getpid()}.tmp")


def _fill(temporary: Path, content: bytes | Callable[[IO[bytes]], object], durable: bool) -> None:
    with open(temporary, "xb") as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            content(file)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def _second_name(path: Path, name: Path) -> None:
    """The file that is there now, if there is one, under another name too."""
    with suppress(FileNotFoundError):
        try:
            os.link(path, name, follow_symlinks=False)
        except FileNotFoundError:
            raise
        except (OSError, NotImplementedError):  # a file system without hard links
            shutil.copy2(path, name, follow_symlinks=False)


def _remove(temporary: Path) -> None:
    with suppress(OSError):
        temporary.unlink(missing_ok=True)


def _rename(temporary: Path, path: Path, durable: bool) -> None:
    try:
        os.replace(temporary, path)
    except PermissionError:
        if durable or os.name != "nt" or not path.exists():
            raise
    if durable:
        sync_folder(path.parent)


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
    """Makes the names in a folder outlive a loss of power; where a folder can't be opened (Windows)
    the system decides."""
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
        if not alive(temporary.name.removesuffix(".tmp").rpartition(".")[2]):
            temporary.unlink(missing_ok=True)


def alive(process: str) -> bool:
    """Tells whether there may be a process of that number; one that was killed and that its parent
    has not asked for yet is none."""
    if os.name == "nt":  # there is no such probe: signal 0 is Ctrl+C, and goes to a whole group of processes
        return True
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except OSError:
        return True
    try:
        state = Path(f"/proc/{int(process)}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True  # no Linux, or a process that others may not look at
    return state not in "ZX"
