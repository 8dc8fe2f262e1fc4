"""Emitted texts and the runtime as C functions: machine code from the cache, or made by Numba's
front end and LLVM and kept there.

A process that finds all its machine code imports no Numba. Nothing is compiled before it is called
for: a kernel's LAYOUT is read from its text.
"""

from __future__ import annotations

import ast
import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from rnnspec.backends.cpu import machine
from rnnspec.storage.cache import cached, uncollected
from rnnspec.storage.locks import Lock, making
from rnnspec.storage.sources import import_source


class CpuText:
    """An emitted text (see emit/kernel.py): its `LAYOUT`, and its function `kernel`, compiled when
    first asked for."""

    def __init__(self, name: str, text: str):
        self.name, self.text = name, text
        self.LAYOUT: Mapping[str, Any] = _layout(text)
        self._function: Callable[[int], None] | None = None

    @property
    def kernel(self) -> Callable[[int], None]:
        """kernel(address of its table); it runs without the GIL."""
        if self._function is None:
            (address,) = addresses(
                self.name, self.text, ("kernel",), lambda: compiled(self.name, self.text, ("kernel",))
            )
            self._function = ctypes.CFUNCTYPE(None, ctypes.c_int64)(address)
        return self._function


def _layout(text: str) -> Mapping[str, Any]:
    start = text.index("LAYOUT = ") + len("LAYOUT = ")
    found: Mapping[str, Any] = ast.literal_eval(text[start : text.index("\n@njit", start)])
    return found


@lru_cache(maxsize=1024)
def load_text(name: str, text: str) -> CpuText:
    """A CpuText, the same one whenever this process asks for the same text."""
    return CpuText(name, text)


def addresses(name: str, key: str, functions: Sequence[str], make: Callable[[], bytes]) -> Sequence[int]:
    """Addresses of functions of an object file that is kept on disk, or else made.

    name: a few words for people; key: what the file depends on, beside the sources of this package.
    """
    with making, _LOCKS.setdefault(key, Lock()):
        if key not in _LOADED:
            with uncollected():
                _LOADED[key] = machine.load(cached(name, key, make), functions)
        return _LOADED[key]


def compiled(name: str, text: str, functions: Sequence[str], finished: Sequence[str] = ()) -> bytes:
    """The object file of a text whose jitted `functions` become C functions `void f(int64, ...)`;
    finished: see machine.py."""
    from rnnspec.backends.cpu.frontend import lower

    module = import_source(name, text)
    return machine.object_file(lower({f: getattr(module, f).py_func for f in functions}), functions, finished)


_LOADED: dict[str, Sequence[int]] = {}
_LOCKS: dict[str, Lock] = {}
