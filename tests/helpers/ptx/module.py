"""PTX text -> instructions. Covers what NVVM emits for our kernels; anything else is an error,
never skipped."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

TYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "s32": np.int32,
    "u32": np.uint32,
    "b32": np.uint32,
    "s64": np.int64,
    "u64": np.uint64,
    "b64": np.uint64,
    "s16": np.int16,
    "u16": np.uint16,
    "b16": np.uint16,
    "b8": np.uint8,
    "u8": np.uint8,
    "s8": np.int8,
    "pred": np.bool_,
}


class PtxError(Exception):
    """What a GPU would not do, or not the same way every time; or an instruction that the
    interpreter does not know."""


@dataclass(frozen=True)
class Instruction:
    """guard: the predicate register it is subject to, and whether that must be false; opcode: its
    parts; operands: their texts."""

    guard: tuple[str, bool] | None
    opcode: tuple[str, ...]
    operands: tuple[str, ...]
    text: str


@dataclass
class Module:
    entry: str
    parameters: tuple[tuple[str, str], ...]  # type, name
    threads: int  # .maxntid
    registers: dict[str, type]  # by name, or by prefix for numbered ones
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)  # names of the dynamic shared array
    local: dict[str, tuple[int, int]] = field(default_factory=dict)  # name -> offset, bytes
    constants: dict[str, bytes] = field(default_factory=dict)  # arrays with initial values

    @cached_property
    def mentions(self) -> Counter[str]:
        """How often each register is named."""
        return Counter(name for i in self.instructions for name in re.findall(r"%\w+", i.text))

    @property
    def local_bytes(self) -> int:
        return max((offset + size for offset, size in self.local.values()), default=0)


def parse(text: str) -> Module:
    """The one kernel of a PTX text."""
    text = re.sub(r"//[^\n]*", "", text)
    if static := re.search(r"\.shared\s+\.align\s+\d+\s+\.b8\s+[\w$]+\[\d+\]", text):
        raise PtxError(f"static shared memory: {static[0]}")
    found = re.search(r"\.entry\s+([\w$]+)\s*\((.*?)\)(.*?)\{(.*)\n\}", text, re.S)
    if found is None:
        raise PtxError("no kernel")
    entry, parameters, attributes, body = found.groups()
    threads = re.search(r"\.maxntid\s+(\d+)", attributes)
    if threads is None:
        raise PtxError("no launch bounds")
    module = Module(entry, tuple(re.findall(r"\.param\s+\.(\w+)\s+([\w$]+)", parameters)), int(threads[1]), {})
    module.shared = set(re.findall(r"\.extern\s+\.shared\s+\.align\s+\d+\s+\.b8\s+([\w$]+)\[\]", text))
    for name, size, values in re.findall(
        r"\.(?:global|const)\s+\.align\s+\d+\s+\.b8\s+([\w$]+)\[(\d+)\]\s*=\s*\{([^}]*)\}", text
    ):
        module.constants[name] = bytes(int(v) for v in values.split(",")).ljust(
            int(size), b"\0"
        )  # zeros at the end are left out
    _body(module, body)
    return module


def _body(module: Module, body: str) -> None:
    for statement in body.split(";"):
        line = re.sub(r"\s+", " ", statement).strip()
        while True:
            line = line.lstrip("{} ")
            label = re.match(r"([$\w]+):\s*(.*)", line)
            if label is None:
                break
            module.labels[label[1]] = len(module.instructions)
            line = label[2]
        if not line:
            continue
        if line.startswith("."):
            _directive(module, line)
            continue
        match = re.match(r"(?:@(!?)(%\w+)\s+)?([\w.:]+)\s*(.*)", line, re.S)
        if match is None:
            raise PtxError(f"can't read {line!r}")
        operands = tuple(s.strip() for s in re.split(r",(?![^{\[]*[}\]])", match[4])) if match[4] else ()
        guard = (match[2], bool(match[1])) if match[2] else None
        module.instructions.append(Instruction(guard, tuple(match[3].split(".")), operands, line))


def _directive(module: Module, line: str) -> None:
    if numbered := re.match(r"\.reg\s+\.(\w+)\s+(%\w+)<\d+>", line):
        module.registers[numbered[2]] = TYPES[numbered[1]]
    elif named := re.match(r"\.reg\s+\.(\w+)\s+(.*)", line):
        for name in named[2].split(","):
            module.registers[name.strip()] = TYPES[named[1]]
    elif depot := re.match(r"\.local\s+\.align\s+\d+\s+\.b8\s+([\w$]+)\[(\d+)\]", line):
        module.local[depot[1]] = (-(-module.local_bytes // 16) * 16, int(depot[2]))
    elif not line.startswith(".pragma"):
        raise PtxError(f"can't read {line!r}")
