"""Keeps compiled machine code on disk, and knows the folder where all that is kept lies.

What lies in `cache_folder()`:
    <name>_<digest of the text>.py      a generated text (`sources`), for people, tracebacks and
                                        debuggers; what runs is always the text in memory
    <name>_<digest of the key>.kernel   machine code: sha256 of the key and the rest, then the
                                        content, an object file or PTX
    text_<name>_<digest>.py             an emitted text (`texts`), under what it was made from

The folder's name holds the versions of Python, Numba, llvmlite, the CPU and a digest of the runtime
that generated code of the CPU calls (rnnspec/backends/cpu; keys of another backend hold its own
`sources_digest`); a file's name holds the digest of all else it depends on. So nothing is ever
stale. Files are written beside their place and renamed, and a file that isn't whole is deleted and
made again.

Numba's own cache is not used: it raises where there is no file or no space left, on truncated
files, and two processes that compile two signatures at once may read each other's code; and reading
from it means importing Numba.

What lies there is run as code. So a folder in which others can put files, or a file of theirs, is
not used (`trusted`), and never repaired. That, or a folder that can't be made, is full or
read-only, costs speed only: one `CacheWarning`, then all in memory.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib.resources
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import llvmlite
import llvmlite.binding

from rnnspec.storage.trusted import DAY, Folder, opened

KEPT_DAYS = 90
KEPT_BYTES = 500 * 2**20
OURS = re.compile(r"py\d+\.\d+-numba[^/]+-[0-9a-f]{16}")  # the folders that prune() and clear() may touch
SUFFIXES = (".py", ".kernel", ".tmp")


class CacheWarning(UserWarning):
    """Compiled kernels can't be kept on disk; everything works, and is compiled again in the next
    process."""


def cached(name: str, key: str, make: Callable[[], bytes]) -> bytes:
    """Returns what `make()` gives, from disk if it has been made before. Raises what `make` raises,
    and nothing else.

    name: a few words for people; key: all that the content depends on, but for what the folder's
    name holds.
    """
    file = f"{file_stem(name, key)}.kernel"
    found = kept(file, lambda data: data[:32] == _seal(key, data[32:]))
    if found is not None:
        return found[32:]
    content = make()
    if keep(file, _seal(key, content) + content) and (base := _base_folder()):
        prune(base)
    return content


def kept(file: str, whole: Callable[[bytes], bool]) -> bytes | None:
    """The content of a file of the cache folder, None where there is none that can be trusted. One
    that is not `whole` is removed."""
    try:
        with _opened() as folder:
            content = folder.read(file)
            if content is not None and whole(content):
                return content
            if content is not None:
                folder.remove(file)
    except OSError as error:
        warn_uncached(str(error))
    return None


def keep(file: str, content: bytes) -> bool:
    """Puts a file into the cache folder and tells whether it is there: it may be that there is no
    space left, or no folder to be trusted."""
    try:
        with _opened() as folder:
            folder.write(file, content)
    except OSError as error:
        warn_uncached(str(error))
        return False
    return True


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Runs its block without the garbage collector, which would go through all of SymPy's and
    Numba's objects again and again, a quarter of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _seal(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + content).digest()


def file_stem(name: str, key: str) -> str:
    """The name of a file, without its ending: a few words for people, and the digest of its key."""
    return f"{re.sub(r'[^0-9A-Za-z_]', '_', name)[:80]}_{_digest(key.encode())}"


def cpu() -> tuple[str, str]:
    """Name and features of the CPU that code is made for, in LLVM's words: this one, or what
    NUMBA_CPU_NAME, NUMBA_CPU_FEATURES and NUMBA_ENABLE_AVX say, as with Numba."""
    name = os.environ.get("NUMBA_CPU_NAME") or llvmlite.binding.get_host_cpu_name()
    chosen = os.environ.get("NUMBA_CPU_FEATURES", "" if name == "generic" else None)
    if chosen is not None:
        return name, chosen
    features = llvmlite.binding.get_host_cpu_features()
    if os.environ.get("NUMBA_ENABLE_AVX") == "0":
        features.update({feature: False for feature in features if feature.startswith("avx")})
    return name, features.flatten()


def cache_folder() -> Path | None:
    """The folder of this Python, Numba and CPU, made if need be; None, after a `CacheWarning`,
    where there can be none.

    Under $RNNSPEC_CACHE_DIR, else the user's cache folder of the platform.
    """
    try:
        with _opened() as folder:
            return folder.path
    except OSError as error:
        warn_uncached(str(error))
        return None


@contextlib.contextmanager
def _opened() -> Iterator[Folder]:
    base = _base_folder()
    if base is None:
        raise OSError("there is no home directory")
    with opened(base / _environment()) as folder:
        yield folder


@dataclass(frozen=True)
class Contents:
    """What is kept on disk, of all versions. folder: where, None where there can be no place.
    trouble: why nothing is kept there, "" where it is."""

    folder: Path | None
    files: int
    size: int  # in bytes
    trouble: str


def contents() -> Contents:
    """What the cache holds, and whether this process may use it; it makes no folder."""
    base = _base_folder()
    trouble = "" if base else "there is no home directory"
    try:
        if base is not None and base.exists():
            with opened(base, make=False):
                pass
    except OSError as error:
        trouble = str(error)
    if base is not None and not trouble:
        above = next(p for p in (base, *base.parents) if p.exists())
        trouble = "" if above.is_dir() and os.access(above, os.W_OK) else f"'{above}' can't be written to"
    sizes = []
    for path in _our_files(base) if base else ():
        with contextlib.suppress(OSError):  # gone meanwhile
            sizes.append(path.stat().st_size)
    return Contents(base, len(sizes), sum(sizes), trouble)


def clear() -> int:
    """Deletes what is kept on disk, for all versions; returns how many files that were. Nothing
    where others can write: a folder of theirs could lead elsewhere."""
    base = _base_folder()
    if base is None or not base.is_dir():
        return 0
    try:
        with opened(base, make=False):
            removed = sum(_remove(path) for path in _our_files(base))
            _remove_empty_folders(base)
    except OSError as error:
        warn_uncached(str(error))
        return 0
    return removed


def _base_folder() -> Path | None:
    if chosen := os.environ.get("RNNSPEC_CACHE_DIR"):
        return Path(os.path.expanduser(chosen)).absolute()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).absolute() / "rnnspec"
    try:
        home = Path.home()
    except RuntimeError:  # no HOME, and the user isn't in the system's list
        return None
    match sys.platform:
        case "darwin":
            return home / "Library" / "Caches" / "rnnspec"
        case "win32":
            return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "rnnspec" / "Cache"
        case _:
            return home / ".cache" / "rnnspec"


def _environment() -> str:
    name, features = cpu()
    versions = f"py{sys.version_info[0]}.{sys.version_info[1]}-numba{_numba()}-llvmlite{llvmlite.__version__}"
    key = repr((sys.implementation.cache_tag, getattr(sys, "abiflags", ""), name, features, runtime_digest()))
    return f"{versions}-{re.sub(r'[^0-9A-Za-z_.]', '_', name)}-{_digest(key.encode())}"


@lru_cache(maxsize=1)
def _numba() -> str:
    return version("numba")  # from a file


def runtime_digest() -> str:
    """The digest of the sources that generated code of the CPU calls: they end up in its machine
    code."""
    return sources_digest("rnnspec.backends.cpu", "rnnspec.backends.polynomials", "rnnspec.backends.primitives")


@lru_cache
def sources_digest(*names: str) -> str:
    """The digest of the sources of modules and of packages, with the packages in them."""

    def sources(entry) -> Iterator[bytes]:
        if entry.name.endswith(".py"):
            yield entry.name.encode() + b"\0" + entry.read_bytes()
        elif entry.is_dir() and entry.name != "__pycache__":
            for inner in sorted(entry.iterdir(), key=lambda inner: inner.name):
                yield from sources(inner)

    texts: list[bytes] = []
    for name in names:
        package, _, module = name.rpartition(".")
        folder = importlib.resources.files(package)
        texts += sources(folder / module if (folder / module).is_dir() else folder / f"{module}.py")
    return _digest(b"\0".join(texts))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _remove(path: Path) -> bool:
    with contextlib.suppress(OSError):
        path.unlink()
        return True
    return False


def _our_files(base: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [
            path
            for folder in base.iterdir()
            if OURS.fullmatch(folder.name) and folder.is_dir() and not folder.is_symlink()
            for path in folder.iterdir()
            if path.suffix in SUFFIXES
        ]
    return []


def _remove_empty_folders(base: Path) -> None:
    with contextlib.suppress(OSError):
        for folder in base.iterdir():
            if OURS.fullmatch(folder.name):
                with contextlib.suppress(OSError):
                    folder.rmdir()  # fails unless empty


def prune(base: Path, now: float | None = None) -> None:
    """Deletes, once a day, what was not used for KEPT_DAYS, then the longest unused beyond
    KEPT_BYTES.

    base: the folder that holds those of all versions; now: the time in seconds, else the clock's.
    """
    now = time.time() if now is None else now
    with contextlib.suppress(OSError):
        stamp = base / ".pruned"
        if stamp.exists() and now - stamp.stat().st_mtime < DAY:
            return
        stamp.touch()
        total = 0
        statuses = [(path, path.stat()) for path in _our_files(base)]
        for path, status in sorted(statuses, key=lambda pair: -pair[1].st_mtime):
            total += status.st_size
            age = now - status.st_mtime
            if age > KEPT_DAYS * DAY or total > KEPT_BYTES or (path.suffix == ".tmp" and age > DAY):
                _remove(path)
        _remove_empty_folders(base)


def warn_uncached(reason: str) -> None:
    """Gives a process its one `CacheWarning`."""
    if not WARNED:
        WARNED.append(reason)
        warnings.warn(
            f"compiled kernels are not kept on disk: {reason}; set RNNSPEC_CACHE_DIR to a folder of your own, which"
            " nobody else can write to, to keep them",
            CacheWarning,
            stacklevel=3,
        )


WARNED: list[str] = []  # the one warning of a process
