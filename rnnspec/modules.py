"""Imports generated Python source as a real module whose compiled functions are kept on disk.

In: a name and the text. Out: the module, registered in `sys.modules` as `rnnspec_generated.<name>_<digest of the text>`.

The text needs nothing special: `from numba import njit` and `@njit(...)` on top-level functions, without `cache=` and
without a signature (a signature compiles at once, before the cache below is in place; that works, uncached). Every
jitted function at the top level gets a `KernelCache`. Numba's own cache is not used: it raises where there is no file or
no space left, on truncated files, and two processes that compile two signatures at once may read each other's code.

What lies in `cache_folder()`:
    <name>_<digest>.py           the text, for people, tracebacks and debuggers; what runs is always the text in memory
    <name>_<digest>.<key>.kernel one function for one signature: sha256 of the rest, then Numba's pickled machine code
The folder's name holds the versions of Python, Numba, llvmlite, the CPU and a digest of the runtime that generated code
calls (rnnspec/backends); a file's name holds the digest of all else it depends on. So nothing is ever stale. Files are
written under another name and moved, and a file that isn't whole is deleted and made again.

A folder that can't be made, isn't ours, is full or read-only costs speed only: one `CacheWarning`, then all in memory.
"""
from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.resources
import importlib.util
import linecache
import os
import pickle
import re
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from functools import lru_cache
from importlib.abc import ExecutionLoader
from pathlib import Path
from types import ModuleType

import llvmlite
import llvmlite.binding
import numba
from numba.core import config
from numba.core.caching import _Cache
from numba.core.codegen import get_host_cpu_features
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

PACKAGE = "rnnspec_generated"
DAY = 86400.0
KEPT_DAYS = 90
KEPT_BYTES = 500 * 2**20
OURS = re.compile(r"py\d+\.\d+-numba[^/]+-[0-9a-f]{16}")       # the folders that pruning and clear() may touch
SUFFIXES = (".py", ".kernel", ".tmp")
# options of Numba's, from its environment variables, that change machine code
NUMBA_OPTIONS = ("OPT", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "USING_SVML", "FULL_TRACEBACKS",
                 "ENABLE_AVX", "ERROR_MODEL")


class CacheWarning(UserWarning):
    """Compiled kernels can't be kept on disk; everything works, and is compiled again in the next process."""


def import_source(name: str, text: str) -> ModuleType:
    """The module made from `text`; the same module whenever this process asks for the same name and text.

    name: a few words for people, part of the file's name; text: a whole Python module. Raises what the text raises.
    """
    stem = f"{re.sub(r'[^0-9A-Za-z_]', '_', name)[:80]}_{_digest(text.encode())}"
    full_name = f"{PACKAGE}.{stem}"
    with _LOCKS.setdefault(stem, threading.RLock()):
        if full_name in sys.modules:
            return sys.modules[full_name]
        folder = cache_folder()
        path = folder / f"{stem}.py" if folder else None
        on_disk = path is not None and _keep_source(path, text.encode())
        module = _execute(full_name, text, str(path) if on_disk else f"<{full_name}>")
        if folder:
            for value in list(vars(module).values()):
                if isinstance(value, Dispatcher) and value.py_func.__module__ == full_name:
                    value._cache = KernelCache(value.py_func, folder / stem)
            _prune(folder.parent)
        return module


def cache_folder() -> Path | None:
    """The folder of this Python, Numba and CPU, made if need be; None, after a `CacheWarning`, where there can be none.

    Under $RNNSPEC_CACHE_DIR, else the user's cache folder of the platform.
    """
    base = _base_folder()
    if base is None:
        _warn("there is no home directory")
        return None
    folder = base / _environment()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(folder)
    except OSError as error:
        _warn(str(error))
        return None
    return folder


def clear() -> int:
    """Deletes what is kept on disk, for all versions; returns how many files that were."""
    base = _base_folder()
    removed = [_remove(path) for path in _our_files(base)] if base else []
    if base:
        _remove_empty_folders(base)
    return sum(removed)


class KernelCache(_Cache):
    """The compiled signatures of one function, one file each. Never raises: a failure means compiling."""

    def __init__(self, function, prefix: Path):
        self._prefix = prefix                  # folder / stem, the stem being the digest of the text
        self._function = f"{function.__qualname__}:{function.__code__.co_firstlineno}"
        self._enabled = True

    @property
    def cache_path(self) -> str:
        return str(self._prefix.parent)

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        for path in self._prefix.parent.glob(f"{self._prefix.name}.*.kernel"):
            _remove(path)

    def load_overload(self, sig, target_context) -> CompileResult | None:
        target_context.refresh()
        path = self._path(sig, target_context.codegen())
        if not self._enabled or not path.exists():
            return None
        with contextlib.suppress(Exception):   # whatever a damaged or foreign pickle raises
            data = path.read_bytes()
            if hashlib.sha256(data[32:]).digest() == data[:32]:
                stored, payload = pickle.loads(data[32:])
                if stored == sig:              # types are in the key by their text, which need not be unique
                    _mark_used(path)
                    return CompileResult._rebuild(target_context, *payload)
        _remove(path)
        return None

    def save_overload(self, sig, data: CompileResult) -> None:
        if not self._enabled or data.library.has_dynamic_globals or any(not lifted.can_cache for lifted in data.lifted):
            return
        try:
            content = dumps((sig, data._reduce()))
            _write(self._path(sig, data.codegen), hashlib.sha256(content).digest() + content)
        except Exception as error:             # no space left, read-only, or something that can't be pickled
            _warn(str(error))

    def _path(self, sig, codegen) -> Path:
        key = repr((self._function, str(sig), codegen.magic_tuple()))
        return self._prefix.parent / f"{self._prefix.name}.{_digest(key.encode())}.kernel"


class _TextLoader(ExecutionLoader):
    def __init__(self, text: str, filename: str):
        self.text, self.filename = text, filename

    def get_source(self, fullname: str) -> str:
        return self.text

    def get_filename(self, fullname: str) -> str:
        return self.filename

    def is_package(self, fullname: str) -> bool:
        return False


def _execute(full_name: str, text: str, filename: str) -> ModuleType:
    # linecache reads no file called <...>, but keeps what it is given: tracebacks and Numba's errors show the lines
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    if PACKAGE not in sys.modules:
        package = ModuleType(PACKAGE, "Generated by rnnspec")
        package.__path__ = []
        sys.modules.setdefault(PACKAGE, package)
    spec = importlib.util.spec_from_file_location(full_name, filename, loader=_TextLoader(text, filename))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full_name] = module            # before it runs: what Numba unpickles imports it by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[full_name]
        raise
    return module


def _keep_source(path: Path, content: bytes) -> bool:
    try:
        if path.exists() and path.read_bytes() == content:
            _mark_used(path)
        else:
            _write(path, content)
    except OSError as error:
        _warn(str(error))
        return False
    return True


def _write(path: Path, content: bytes) -> None:
    """All of the content or nothing, whoever else writes the same file at the same time."""
    temporary = path.with_name(f"{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException as error:
        _remove(temporary)
        # Windows refuses to replace a file that another process has open: then that process has it, and so have we
        if not (os.name == "nt" and isinstance(error, PermissionError) and path.exists()):
            raise


def _base_folder() -> Path | None:
    if chosen := os.environ.get("RNNSPEC_CACHE_DIR"):
        return Path(os.path.expanduser(chosen)).absolute()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).absolute() / "rnnspec"
    try:
        home = Path.home()
    except RuntimeError:                       # no HOME, and the user isn't in the system's list
        return None
    match sys.platform:
        case "darwin":
            return home / "Library" / "Caches" / "rnnspec"
        case "win32":
            return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "rnnspec" / "Cache"
        case _:
            return home / ".cache" / "rnnspec"


def _environment() -> str:
    cpu = config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    features = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
    options = [(option, getattr(config, option, None)) for option in NUMBA_OPTIONS]
    version = f"py{sys.version_info[0]}.{sys.version_info[1]}-numba{numba.__version__}-llvmlite{llvmlite.__version__}"
    key = repr((sys.implementation.cache_tag, getattr(sys, "abiflags", ""), cpu, features, options, _runtime_digest()))
    return f"{version}-{re.sub(r'[^0-9A-Za-z_.]', '_', cpu)}-{_digest(key.encode())}"


@lru_cache(maxsize=1)
def _runtime_digest() -> str:
    """Of the sources that generated code calls and that end up in its machine code."""
    def sources(folder) -> Iterator[bytes]:
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
            if entry.name.endswith(".py"):
                yield entry.name.encode() + b"\0" + entry.read_bytes()
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from sources(entry)

    return _digest(b"\0".join(sources(importlib.resources.files("rnnspec.backends"))))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _check_owner(folder: Path) -> None:
    """What is in the folder is run as code, so nobody else may be able to write there."""
    if os.name == "nt":                        # the user's own folders are private there
        return
    status = folder.stat(follow_symlinks=False)
    if status.st_uid == os.getuid() and status.st_mode & 0o022:
        folder.chmod(0o700)
    elif status.st_uid not in (0, os.getuid()) or status.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "other users can write to it", str(folder))


def _mark_used(path: Path) -> None:
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > DAY:
            os.utime(path)


def _remove(path: Path) -> bool:
    with contextlib.suppress(OSError):
        path.unlink()
        return True
    return False


def _our_files(base: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [path for folder in base.iterdir() if OURS.fullmatch(folder.name) and folder.is_dir() and not folder.is_symlink()
                for path in folder.iterdir() if path.suffix in SUFFIXES]
    return []


def _remove_empty_folders(base: Path) -> None:
    with contextlib.suppress(OSError):
        for folder in base.iterdir():
            if OURS.fullmatch(folder.name):
                with contextlib.suppress(OSError):
                    folder.rmdir()             # fails unless empty


def _prune(base: Path, now: float | None = None) -> None:
    """Once a day: deletes what was not used for KEPT_DAYS, then the longest unused beyond KEPT_BYTES."""
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


def _warn(reason: str) -> None:
    if not _WARNED.is_set():
        _WARNED.set()
        warnings.warn(f"compiled kernels are not kept on disk: {reason}; set RNNSPEC_CACHE_DIR to a folder of your own to keep them",
                      CacheWarning, stacklevel=3)


_LOCKS: dict[str, threading.RLock] = {}        # one per module being made
_WARNED = threading.Event()
if hasattr(os, "register_at_fork"):            # a lock held by another thread stays locked in a forked child
    os.register_at_fork(after_in_child=_LOCKS.clear)
