"""Source -> PTX, kept on disk by text, architecture and the versions of everything that makes it: a
kernel that was compiled once on a machine is read there, without importing the compiler. Kernels
that were assembled elsewhere lie in folders of their own (`prebuilt`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rnnspec.backends.cuda.compile.source import Source
from rnnspec.errors import BackendUnavailable
from rnnspec.storage import atomic, guarded
from rnnspec.storage.cache import cached, sources_digest, uncollected
from rnnspec.storage.locks import making
from rnnspec.storage.sources import import_source

COMPILERS = ("numba", "numba-cuda", "numpy", "nvidia-nvvm", "nvidia-cuda-nvcc", "cuda-toolkit")
ARCHITECTURES = ((9, 0), (8, 0))  # that code is made for and checked on; a device runs that of the last one before it


@lru_cache(maxsize=1)
def versions() -> str:
    found = []
    for package in COMPILERS:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def architecture(capability: tuple[int, int]) -> tuple[int, int]:
    """What to compile for, for a device of this compute capability."""
    return max((a for a in ARCHITECTURES if a <= capability), default=ARCHITECTURES[-1])


@making
def build(source: Source, target: tuple[int, int]) -> tuple[bytes, str]:
    """The PTX of a kernel for an architecture (or what `prebuilt` has of it), and the name of its
    entry. Raises BackendUnavailable where there is no compiler."""
    name = f"{source.name}_sm{target[0]}{target[1]}_{source.dtype}"
    content = _found(source, target)
    if content is None:
        try:
            content = cached(name, f"{_key(source)} {target} {versions()}", lambda: _compile(source, target, name))
        except BackendUnavailable as error:
            if not _FOLDERS:
                raise
            raise BackendUnavailable(
                f"{', '.join(map(str, _FOLDERS))}: no kernel of '{source.name}' for these sizes, this GPU, its number"
                f" of processors and this version of rnnspec ({_file(source, target)}), and it can't be compiled here:"
                f" {error}"
            ) from error
    entry, _, image = content.partition(b"\n")
    return image, entry.decode()


def _compile(source: Source, target: tuple[int, int], name: str) -> bytes:
    from rnnspec.backends.cuda.compile.shim import compile_ptx

    with uncollected():
        ptx, entry = compile_ptx(
            import_source(name, source.text).kernel, source.dtype, source.kinds, target, source.threads
        )
    return f"{entry}\n{ptx}".encode()


# --- kernels from elsewhere

_FOLDERS: list[Path] = []


def prebuilt(folders: Iterable[Path]) -> None:
    """Where `build` looks first from now on, instead of compiling. A folder's files are machine
    code that the GPU will run: use your own."""
    _FOLDERS[:] = folders


def store(folder: Path, source: Source, target: tuple[int, int], cubin: bytes, entry: str) -> Path:
    """Puts a kernel's cubin where `prebuilt` looks for it, and returns its path. folder: one of
    those; source: of the kernel; target: compute capability; entry: the kernel's name in it."""
    path, content = folder / _file(source, target), entry.encode() + b"\n" + cubin
    atomic.write(path, hashlib.sha256(content).digest() + content)
    return path


def _found(source: Source, target: tuple[int, int]) -> bytes | None:
    paths = [folder / _file(source, target) for folder in _FOLDERS]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return None
    try:
        content = guarded.read(path)
    except guarded.Refused as error:
        raise BackendUnavailable(f"{error}: copy or build it again, or delete it.") from None
    if hashlib.sha256(content[32:]).digest() != content[:32]:
        raise BackendUnavailable(f"{path} is damaged: copy or build it again, or delete it.")
    return content[32:]


def _file(source: Source, target: tuple[int, int]) -> str:
    digest = hashlib.sha256(_key(source).encode()).hexdigest()[:16]
    return f"{source.name}_sm{target[0]}{target[1]}_{source.dtype}_{digest}.cubin"


def _key(source: Source) -> str:
    """What a kernel depends on beside versions of others: its text, and what that calls of this
    package."""
    return f"{source.text}\n{source.kinds} {source.threads} {sources_digest('rnnspec.backends.cuda')}"
