"""Weights of an exported program in a file of their own: the bytes of the file, and the C that
looks at them before a number is used.

The file is a header of 64 bytes and the struct NAME_weights as it lies in memory, so that a program
reads it where it is, in flash or mapped. The header: `RNNSPECW`; 0x01020304, the version and the
bits of a number as whole numbers of 4 bytes, and 4 bytes of 0; 16 bytes that tell this cell of
these sizes from all others; the bytes of the struct as a whole number of 8 bytes; 12 of 0; and the
CRC-32 of all other bytes of the file as a whole number of 4 bytes.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.c.numbers import Real

MAGIC, VERSION, HEADER = b"RNNSPECW", 2, 64

# what NAME_init returns, in order
ERRORS = {
    "OK": "the weights are those of this cell",
    "NO_WEIGHTS": "none were given, and the program has none in it",
    "TOO_SHORT": "shorter than a header",
    "FOREIGN": "not a file of weights",
    "BYTE_ORDER": "written for a machine with the other order of bytes",
    "VERSION": "of another version of the file",
    "TYPE": "numbers of the other type",
    "OTHER_CELL": "of another cell, or of other sizes",
    "LENGTH": "cut, or something lies behind it",
    "UNALIGNED": "not at an address where a number may be",
    "DAMAGED": "some byte is another than was written",
}


def layout(title: Sequence[str], numbers: Mapping[str, Array], real: Real) -> bytes:
    """16 bytes that tell what the weights are for. title: what the cell is, line by line."""
    told = [real.name, str(real.lanes), *title, *(f"{name} {array.size}" for name, array in numbers.items())]
    return hashlib.sha256("\n".join(told).encode()).digest()[:16]


def contents(numbers: Mapping[str, Array], layout: bytes, real: Real) -> bytes:
    """The bytes of the file, for machines that have the low byte of a number first."""
    body = b"".join(np.ascontiguousarray(a, np.dtype(real.name).newbyteorder("<")).tobytes() for a in numbers.values())
    bits = np.dtype(real.name).itemsize * 8
    head = MAGIC + struct.pack("<4I16sQ12x", 0x01020304, VERSION, bits, 0, layout, len(body))
    return head + struct.pack("<I", zlib.crc32(body, zlib.crc32(head))) + body


def _remainder(bits: int) -> int:
    """What four bits become by division by the polynomial of CRC-32, low bit first."""
    for _ in range(4):
        bits = bits >> 1 ^ 0xEDB88320 * (bits & 1)
    return bits


def declared(name: str) -> Iterator[str]:
    """What the header says of NAME_init."""
    upper = name.upper()
    yield f"#define {upper}_WEIGHTS_BYTES ({HEADER} + sizeof({name}_weights)) /* of a file of them */"
    yield f"/* What {name}_init says of weights. */"
    yield "enum {"
    yield from (f"    {upper}_{error}, /* {about} */" for error, about in ERRORS.items())
    yield "};"


def checked(name: str, layout: bytes, real: Real) -> Iterator[str]:
    """The C function `weights_in`: the weights that a file holds, if all is as it must be."""
    upper = name.upper()
    yield "/* The weights of a file, and what is wrong with it. */"
    yield f"static int weights_in(const unsigned char *file, size_t bytes, const {name}_weights **weights)"
    yield "{"
    yield f"    static const unsigned char cell[16] = {{{', '.join(map(str, layout))}}};"
    yield "    /* of the CRC-32 (IEEE 802.3), four bits at a time */"
    table = [f"{_remainder(n):#x}u" for n in range(16)]
    yield from (
        "    static const uint32_t table[16] = {",
        f"        {', '.join(table[:8])},",
        f"        {', '.join(table[8:])},",
        "    };",
    )
    yield from ("    uint32_t words[4], sum, total = 0xffffffffu;", "    uint64_t length;")
    yield from (f"    if (bytes < {HEADER})", f"        return {upper}_TOO_SHORT;")
    yield from (f'    if (memcmp(file, "{MAGIC.decode()}", 8))', f"        return {upper}_FOREIGN;")
    yield "    memcpy(words, file + 8, sizeof(words));"
    wrong = {"words[0] != 0x01020304u": "BYTE_ORDER", f"words[1] != {VERSION}": "VERSION"}
    wrong |= {"words[2] != 8 * sizeof(real)": "TYPE", "memcmp(file + 24, cell, 16)": "OTHER_CELL"}
    for condition, error in wrong.items():
        yield from (f"    if ({condition})", f"        return {upper}_{error};")
    yield from ("    memcpy(&length, file + 40, sizeof(length));", "    memcpy(&sum, file + 60, sizeof(sum));")
    yield f"    if (length != sizeof(**weights) || bytes != {HEADER} + sizeof(**weights))"
    yield f"        return {upper}_LENGTH;"
    yield from ("    if ((uintptr_t)file % sizeof(real))", f"        return {upper}_UNALIGNED;")
    yield "    for (size_t i = 0; i < bytes; i = i == 59 ? 64 : i + 1) {"
    yield from ("        total ^= file[i];", "        total = total >> 4 ^ table[total & 15];")
    yield from ("        total = total >> 4 ^ table[total & 15];", "    }", "    if (sum != ~total)")
    yield f"        return {upper}_DAMAGED;"
    yield f"    *weights = (const {name}_weights *)(const void *)(file + {HEADER});"
    yield from (f"    return {upper}_OK;", "}", "")


def beginning(name: str, apart: bool) -> Iterator[str]:
    """The C function `begun` of a program with a `main`: it begins `model` with the weights that
    are in the program, or with those of a file."""
    if apart:
        yield f"static union {{ double first; unsigned char bytes[{name.upper()}_WEIGHTS_BYTES + 1]; }} weights;"
    yield from (f"static {name} model;", "", "static int begun(const char *path)", "{")
    if apart:
        yield '    FILE *file = fopen(path, "rb");'
        yield "    const size_t bytes = file ? fread(weights.bytes, 1, sizeof(weights.bytes), file) : 0;"
        yield f"    const int wrong = {name}_init(&model, weights.bytes, bytes);"
        yield from ("    if (file)", "        fclose(file);", "    if (wrong)")
        yield f'        fprintf(stderr, "%s can\'t be used: error %d of {name}.h\\n", path, wrong);'
        yield "    return wrong;"
    else:
        yield from ("    (void)path;", f"    return {name}_init(&model, NULL, 0);")
    yield from ("}", "")
