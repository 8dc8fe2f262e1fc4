"""Reads the assembly that LLVM writes, for x86-64 and aarch64: functions, their innermost loops.

A loop is what lies on a way from a block back to itself, as compilers define natural loops; where a
way around it calls nothing, blocks that call (a C library's sine, for arguments that are too large)
are not part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LABEL = re.compile(r"^([.\w$]+):")
LOCAL = re.compile(r"^\.?L")
X86_JUMP, ARM_JUMP = re.compile(r"^j\w+$"), re.compile(r"^(b|b\.\w+|cbn?z|tbn?z)$")
LEAVES = frozenset(("ret", "retq", "br", "ud2", "brk"))  # and jumps whose place is in a register
CALLS = frozenset(("call", "callq", "bl", "blr"))


@dataclass(frozen=True)
class Block:
    """Instructions without the jumps to and from the middle of them; next: where it goes on."""

    label: str
    lines: tuple[str, ...]
    next: tuple[str, ...]

    @property
    def calls(self) -> bool:
        return any(operation(line) in CALLS for line in self.lines)


@dataclass(frozen=True)
class Loop:
    """An innermost loop. lines: its instructions; frame: registers that point into the stack."""

    function: str
    lines: tuple[str, ...]
    frame: tuple[str, ...]

    @property
    def stack(self) -> tuple[str, ...]:
        """The instructions that read or write the stack."""
        place = re.compile("|".join(rf"\([^)]*{re.escape(r)}\b|\[{re.escape(r)}\b" for r in self.frame))
        return tuple(line for line in self.lines if place.search(line) and operation(line)[:3] != "lea")

    @property
    def calls(self) -> tuple[str, ...]:
        return tuple(line for line in self.lines if operation(line) in CALLS)

    @property
    def multiply_adds(self) -> int:
        """Vector multiply-adds; a product and a sum count as one where there is no such thing."""
        fused = sum(re.match(r"vfn?madd\w+p[sd]|fmla", operation(line)) is not None for line in self.lines)
        return fused or sum(re.match(r"v?mulp[sd]", operation(line)) is not None for line in self.lines)

    @property
    def loads(self) -> int:
        """Reads of memory that vectors or factors are made from; a pair counts as two."""
        return sum(map(_reads, self.lines))


def operation(line: str) -> str:
    return line.split(None, 1)[0]


def _reads(line: str) -> int:
    name = operation(line)
    if name.startswith(("ldr", "ld1", "ldur")):
        return int(bool(re.search(r"\s[qdsv]\d", line) or "{" in line))
    if name.startswith("ldp"):
        return 2 * int(bool(re.search(r"\s[qds]\d", line)))
    vectors = re.search(r"%[xyz]mm\d+", line) is not None
    *sources, dest = [part.strip() for part in re.split(r",(?![^(]*\))", line.split(None, 1)[-1])]
    return int(vectors and any("(" in part for part in sources) and "(" not in dest)


def functions(text: str) -> dict[str, list[str]]:
    """The lines of every function, labels and instructions, without comments and directives."""
    found: dict[str, list[str]] = {}
    name = ""
    for raw in text.split("\n"):
        line = re.sub(r"\s*(##? |//|;).*$", "", raw).strip() if not raw.lstrip().startswith("#") else ""
        label = LABEL.match(line)
        if label and not LOCAL.match(label[1]):
            name = label[1].removeprefix("_") if label[1].startswith("__") else label[1]
            found[name] = []
        elif name and line and (label or not line.startswith(".")):
            found[name].append(line)
    return {name: lines for name, lines in found.items() if any(not LABEL.match(line) for line in lines)}


def blocks(lines: list[str]) -> dict[str, Block]:
    """The blocks of a function, the first first."""
    pieces: list[tuple[str, list[str]]] = [("entry", [])]
    for line in lines:
        label = LABEL.match(line)
        if label:
            pieces.append((label[1], []))
            continue
        pieces[-1][1].append(line)
        if _jumps(line):
            pieces.append((f"{pieces[-1][0]}+", []))
    found = {}
    for i, (label, body) in enumerate(pieces):
        last = operation(body[-1]) if body else ""
        ends = last in LEAVES or last in ("jmp", "b")
        to = [_place(line) for line in body if _jumps(line) and last not in LEAVES]
        after = [pieces[i + 1][0]] if i + 1 < len(pieces) and not ends else []
        found[label] = Block(label, tuple(body), (*to, *after))
    return found


def _jumps(line: str) -> bool:
    name = operation(line)
    return bool(X86_JUMP.match(name) or ARM_JUMP.match(name)) and "*" not in line


def _place(line: str) -> str:
    return re.split(r"[\s,]+", line)[-1]


def dominators(found: dict[str, Block]) -> dict[str, set[str]]:
    """Of each block that can be reached: those that every way to it passes."""
    start = next(iter(found))
    before: dict[str, set[str]] = {}
    todo, reached = [start], {start}
    while todo:
        for to in found[todo.pop()].next:
            if to in found and to not in reached:
                reached.add(to)
                todo.append(to)
    for label in reached:
        for to in found[label].next:
            before.setdefault(to, set()).add(label)
    known = {label: set(reached) for label in reached} | {start: {start}}
    changed = True
    while changed:
        changed = False
        for label in [b for b in found if b in reached and b != start]:
            new = {label} | set.intersection(*(known[b] for b in before[label]))
            changed, known[label] = changed or new != known[label], new
    return known


def loops(name: str, lines: list[str]) -> Iterator[Loop]:
    """The innermost loops of a function."""
    found = blocks(lines)
    known = dominators(found)
    bodies: dict[str, set[str]] = {}
    for label in known:
        for head in found[label].next:
            if head in known[label]:
                bodies.setdefault(head, set()).update(_body(found, known, head, label))
    frame = ("%rsp", "sp", *(("%rbp",) if "movq\t%rsp, %rbp" in lines else ()), *(("x29",) if _framed(lines) else ()))
    for head, body in bodies.items():
        if any(other != head and other in body for other in bodies):
            continue
        quiet = {label for label in body if not found[label].calls}
        kept = _around(found, head, quiet) or body
        yield Loop(name, tuple(line for label in found if label in kept for line in found[label].lines), frame)


def _framed(lines: list[str]) -> bool:
    return any(re.match(r"(mov|add)\s+x29, sp", line) for line in lines)


def _body(found: dict[str, Block], known: dict[str, set[str]], head: str, tail: str) -> set[str]:
    """The natural loop of a jump back from `tail` to `head`."""
    body, todo = {head, tail}, [tail] if tail != head else []
    while todo:
        label = todo.pop()
        for other in known:
            if label in found[other].next and other not in body:
                body.add(other)
                todo.append(other)
    return body


def _around(found: dict[str, Block], head: str, among: set[str]) -> set[str]:
    """The blocks on a way from `head` back to it through `among` alone, if there is one."""
    if head not in among:
        return set()
    ahead, back = _reach(found, head, among), {head}
    while True:
        more = {b for b in ahead if b not in back and any(to in back for to in found[b].next)}
        if not more:
            break
        back |= more
    closes = any(head in found[b].next for b in ahead & back)
    return ahead & back if closes else set()


def _reach(found: dict[str, Block], start: str, among: set[str]) -> set[str]:
    reached, todo = {start}, [start]
    while todo:
        for to in found[todo.pop()].next:
            if to in among and to not in reached:
                reached.add(to)
                todo.append(to)
    return reached
