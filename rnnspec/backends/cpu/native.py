"""Emitted texts and the runtime as C functions: machine code from the cache, or made by the front
end and LLVM and kept there. Nothing is compiled before it is called for: a kernel's LAYOUT is read
from its text.
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
        self._code: machine.MachineCode | None = None

    @property
    def kernel(self) -> Callable[[int], None]:
        """kernel(address of its table); it runs without the GIL."""
        if self._function is None:
            self._code = _machine_code(
                self.name, self.text, ("kernel",), lambda: compiled(self.name, self.text, ("kernel",))
            )
            self._function = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self._code.addresses[0])
        return self._function


def _layout(text: str) -> Mapping[str, Any]:
    start = text.index("LAYOUT = ") + len("LAYOUT = ")
    found: Mapping[str, Any] = ast.literal_eval(text[start : text.index("\n\ndef ", start)])
    return found


@lru_cache(maxsize=1024)
def load_text(name: str, text: str) -> CpuText:
    """A CpuText, the same one whenever this process asks for the same text."""
    return CpuText(name, text)


def addresses(name: str, key: str, functions: Sequence[str], make: Callable[[], bytes]) -> Sequence[int]:
    """Addresses of functions of an object file that is kept on disk, or else made; they stay in
    memory.

    name: a few words for people; key: what the file depends on, beside the sources of this package.
    """
    code = _machine_code(name, key, functions, make)
    _LASTING.add(key)
    return code.addresses


def _machine_code(name: str, key: str, functions: Sequence[str], make: Callable[[], bytes]) -> machine.MachineCode:
    with making, _LOCKS.setdefault(key, Lock()):
        if key not in _LOADED:
            with uncollected():
                _LOADED[key] = machine.load(name, cached(name, key, make), functions)
        return _LOADED[key]


def loaded() -> tuple[machine.MachineCode, ...]:
    """The machine code of kernels that this process has in memory."""
    return tuple(code for key, code in list(_LOADED.items()) if key not in _LASTING)


def unload() -> None:
    """Forgets the machine code of all kernels: it leaves memory when the last kernel that runs it
    does. A kernel made later reads it from the cache again."""
    load_text.cache_clear()
    for key in [key for key in list(_LOADED) if key not in _LASTING]:
        _LOADED.pop(key, None)


def compiled(name: str, text: str, functions: Sequence[str], finished: Sequence[str] = ()) -> bytes:
    """The object file of a text whose `functions` become C functions `void f(int64, ...)`;
    finished: see machine.py."""
    from rnnspec.backends.cpu.frontend import lower

    names = vars(import_source(name, text))
    return machine.object_file([lower(text, names, functions)], functions, finished)


_LOADED: dict[str, machine.MachineCode] = {}
_LASTING: set[str] = set()  # keys of what is never unloaded: whoever has an address may call it
_LOCKS: dict[str, Lock] = {}
