"""Folders whose files are run as code: nobody else may be able to put a file there, now or between
a look and a use.

In: a path. Out: a `Folder`, held open, that reads and writes by its descriptor; or an `Untrusted`
that names what others can write to. Nothing is repaired: what was open to others may hold what they
left there. As ssh does, it looks at every folder from the root on (a sticky one, such as /tmp, will
do) and follows no link on the way; and at the owner, the mode and the number of names of each file.

Windows has no descriptors of folders, and a user's own folders are private there: paths are used.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from rnnspec.storage import atomic, guarded

DAY = 86400.0
BY_DESCRIPTOR = os.name != "nt" and {os.open, os.mkdir, os.rename, os.unlink} <= os.supports_dir_fd
# O_PATH, where there is one, asks for no right to list: /home may be 0711
_FOLDER = sum(getattr(os, flag, 0) for flag in ("O_PATH", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC"))
_FILE = guarded.OPEN | getattr(os, "O_NOFOLLOW", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_CLOEXEC"))
_LINK = (errno.ELOOP, errno.EMLINK, errno.ENOTDIR)  # what systems say of one that is not followed


class Untrusted(PermissionError):
    """A folder or a file that others can write to, or could."""

    def __init__(self, path: str, reason: str):
        super().__init__(errno.EPERM, reason, path)


class Folder:
    """A folder that is held open, or (number None) just its path."""

    def __init__(self, path: Path, number: int | None):
        self.path, self.number = path, number

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none. Raises Untrusted for one that others could
        have written."""
        if self.number is None:
            with suppress(OSError, guarded.Refused):
                content = guarded.read(self.path / name)
                if time.time() - (self.path / name).stat().st_mtime > DAY:
                    os.utime(self.path / name)
                return content
            return None
        try:
            number = os.open(name, _FILE, dir_fd=self.number)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _LINK:  # of which there is none of ours
                raise Untrusted(str(self.path / name), "it is a link") from None
            return None
        with open(number, "rb") as file:
            status = os.fstat(number)
            _check(status, str(self.path / name))
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                raise Untrusted(str(self.path / name), "it is no file of its own")
            if time.time() - status.st_mtime > DAY:  # as young as its last use: see `cache.prune`
                with suppress(OSError):
                    os.utime(number)
            return file.read()

    def write(self, name: str, content: bytes) -> None:
        """Puts a file there as a whole, for its owner alone. Raises OSError; Untrusted where others
        could have written the one that is there."""
        if self.number is None:
            atomic.write(self.path / name, content, durable=False)
            return
        with suppress(FileNotFoundError):
            _check(os.stat(name, dir_fd=self.number, follow_symlinks=False), str(self.path / name))
        temporary = f".{name}.{os.urandom(8).hex()}.{os.getpid()}.tmp"
        try:
            number = os.open(temporary, _NEW, 0o600, dir_fd=self.number)
            with open(number, "wb") as file:
                file.write(content)
            os.replace(temporary, name, src_dir_fd=self.number, dst_dir_fd=self.number)
        finally:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self.number)

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        with suppress(OSError):
            if self.number is None:
                os.unlink(self.path / name)
            else:
                os.unlink(name, dir_fd=self.number)


@contextmanager
def opened(path: Path, *, make: bool = True) -> Iterator[Folder]:
    """A folder that nobody else can write to. make: it and what is above it is made if need be, for
    its owner alone. Raises Untrusted, or another OSError."""
    if not BY_DESCRIPTOR:
        if make:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield Folder(path, None)
        return
    try:
        number = _walk(os.fspath(path), make)
    except OSError as error:
        if error.errno not in _LINK:
            raise
        # no folder, or a link on the way: then where it leads
        number = _walk(os.path.realpath(path), make)
    try:
        yield Folder(path, number)
    finally:
        os.close(number)


def _walk(path: str, make: bool) -> int:
    """The descriptor of a folder, every one on the way looked at. path: absolute."""
    names, at = path.split(os.sep)[1:], os.sep
    number = os.open(at, _FOLDER)
    try:
        status = os.fstat(number)
        _check(status, at)
        for name in names:
            at = os.path.join(at, name)
            try:
                below = _open(number, name, make)
            except OSError as error:
                error.filename = at
                raise
            os.close(number)
            number = below
            status = os.fstat(number)
            _check(status, at)
        if status.st_mode & stat.S_ISVTX and status.st_mode & 0o022:  # sticky: others can make files in it
            raise Untrusted(at, "other users can write to it")
    except BaseException:
        os.close(number)
        raise
    return number


def _open(above: int, name: str, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=above)
    return os.open(name, _FOLDER, dir_fd=above)


def _check(status: os.stat_result, path: str) -> None:
    """Raises Untrusted for what another user than root owns or can write to."""
    if status.st_uid not in (0, os.geteuid()):
        raise Untrusted(path, "another user owns it")
    shared = status.st_mode & (0o002 if status.st_gid == own_group(os.geteuid()) else 0o022)
    if shared and not (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
        raise Untrusted(path, "other users can write to it")


@lru_cache(maxsize=4)
def own_group(user: int) -> int | None:
    """The group that has this user alone, as many systems give to each: what it may write to, its
    user may."""
    try:
        import grp
        import pwd

        entry = pwd.getpwuid(user)
        group = grp.getgrgid(entry.pw_gid)
    except (ImportError, KeyError):
        return None
    alone = group.gr_name == entry.pw_name and not set(group.gr_mem) - {entry.pw_name}
    return entry.pw_gid if alone else None
