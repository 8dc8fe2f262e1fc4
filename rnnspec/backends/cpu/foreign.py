"""What machine code asks of the process that it is loaded into: functions of the C library.

In: an object file, of Linux, macOS or Windows (ELF, Mach-O, COFF; 64 bits, little-endian). Out: the
functions that it calls and does not have, and for LLVM where they are. LLVM ends the process when
it can't find one, so every name is looked at before; the calls that LLVM itself has put in (on
macOS `bzero` for memset, on Linux `sincos` for a sine beside a cosine) are in no module's text.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

import llvmlite.binding as llvm

# memory, and for sin and cos of large arguments the C library's
EXTERNAL = frozenset(("memcpy", "memset", "memmove", "sin", "cos", "sinf", "cosf"))
# what LLVM makes of them where the C library has it (glibc; macOS), and stack probes (Windows)
INSTEAD = frozenset(("sincos", "sincosf", "bzero", "__bzero", "__sincos_stret", "__sincosf_stret", "__chkstk"))
MARKS = frozenset(("_fltused",))  # a name that tells Windows' linker something: nothing has its address
# where the C library is, None: in the process itself; tried in this order
LIBRARIES: dict[str, tuple[str | None, ...]] = {
    "win32": ("ucrtbase.dll", "vcruntime140.dll", "ntdll.dll"),
    "darwin": (None, "/usr/lib/libSystem.B.dylib"),
}
ELSEWHERE: tuple[str | None, ...] = (None, "libm.so.6")


def undefined(content: bytes) -> frozenset[str]:
    """The functions that an object file calls and does not have, as C names them. Raises
    NotImplementedError for another kind of file than those above."""
    if content[:6] == b"\x7fELF\x02\x01":
        return frozenset(_elf(content))
    if content[:4] == struct.pack("<I", 0xFEEDFACF):
        return frozenset(_mach_o(content))
    if content[:2] in (b"\x64\x86", b"\x64\xaa"):  # x86-64, ARM64
        return frozenset(_coff(content)) - MARKS
    raise NotImplementedError(
        f"kernels can't be loaded on this machine: its object files begin with {content[:6].hex()}, and only those of "
        "64-bit Linux, macOS and Windows on x86 and ARM are known"
    )


def _elf(content: bytes) -> Iterator[str]:
    (start,) = struct.unpack_from("<Q", content, 0x28)
    size, count = struct.unpack_from("<HH", content, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", content, start + size * i) for i in range(count)]
    for _, kind, _, _, at, length, names, *_ in sections:
        if kind != 2:  # SHT_SYMTAB; `names` is the section with its texts
            continue
        for name, _, _, section, _, _ in struct.iter_unpack("<IBBHQQ", content[at : at + length]):
            if name and not section:
                yield _text(content, sections[names][4] + name)


def _mach_o(content: bytes) -> Iterator[str]:
    (count,) = struct.unpack_from("<I", content, 16)
    at = 32
    for _ in range(count):
        command, size = struct.unpack_from("<II", content, at)
        if command == 2:  # LC_SYMTAB
            first, symbols, names, _ = struct.unpack_from("<IIII", content, at + 8)
            for name, kind, _, _, _ in struct.iter_unpack("<IBBHQ", content[first : first + 16 * symbols]):
                if kind & 0x0F == 1:  # of elsewhere (N_UNDF, N_EXT)
                    yield _text(content, names + name).removeprefix("_")
        at += size


def _coff(content: bytes) -> Iterator[str]:
    first, count = struct.unpack_from("<II", content, 8)
    index = 0
    while index < count:
        at = first + 18 * index
        value, section, _, kind, more = struct.unpack_from("<IhHBB", content, at + 8)
        if kind == 2 and not section and not value:  # IMAGE_SYM_CLASS_EXTERNAL
            zeros, name = struct.unpack_from("<II", content, at)
            yield _text(content, at, 8) if zeros else _text(content, first + 18 * count + name)
        index += 1 + more


def _text(content: bytes, at: int, most: int | None = None) -> str:
    end = content.find(b"\0", at, None if most is None else at + most)
    return content[at : end if end >= 0 else at + (most or 0)].decode()


def refuse_others(names: Iterable[str]) -> None:
    """Raises NotImplementedError for functions that kernels may not call."""
    if foreign := sorted(set(names) - EXTERNAL - INSTEAD):
        raise NotImplementedError(f"kernels can't call {', '.join(foreign)}")


def find(names: Iterable[str]) -> None:
    """Sees to it that LLVM finds functions. It looks in the process (since its first engine); where
    that may not do (Windows, a Python without the mathematics library) it is told where they are.

    Raises NotImplementedError, which names those that are nowhere.
    """
    missing = [name for name in sorted(names) if not _found(name)]
    if missing:
        tried = ", ".join(library or "the process" for library in _places())
        raise NotImplementedError(
            f"kernels need {', '.join(missing)} of the C library, and there is none in {tried} ({sys.platform})"
        )


def _found(name: str) -> bool:
    if llvm.address_of_symbol(name):
        return True
    for place in _places():
        with suppress(OSError, AttributeError):  # no such library; none of that name in it
            if address := ctypes.cast(getattr(ctypes.CDLL(place), name), ctypes.c_void_p).value:
                llvm.add_symbol(name, address)
                return True
    return False


def _places() -> tuple[str | None, ...]:
    known = LIBRARIES.get(sys.platform, ELSEWHERE)
    last = None if sys.platform == "win32" else ctypes.util.find_library("m")
    return known if last is None or last in known else (*known, last)
