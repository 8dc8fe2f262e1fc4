"""What a loop kernel (kernel.py) has beside where several blocks share the units of a tile of rows
(tier 2).

Blocks come in groups, one group to a tile. What a stage computes of a whole tile, each block leaves
in the exchange, in global memory; then the blocks of the group wait for each other, and each
fetches all of it into its shared memory. Fetching at once, and two copies of the exchange, for
steps of even and odd number, make one barrier enough: who writes a copy again has waited since it
was read.

The barrier is a counter of the group. The first thread of a block adds one and polls until all
have; fences order what the block wrote before, and what it reads after. Polling ends after
`patience` turns: the flag, counter 0, is raised, and the launcher makes an error of it.
"""

from __future__ import annotations

from rnnspec.backends.cuda.loop.facts import VECTOR_BYTES
from rnnspec.backends.cuda.loop.text import LoopText

APART = 16  # distance of counters: each has 128 bytes of its own
AT_ONCE = 4  # vectors that a thread asks for before it puts them down


def grid_header(work: LoopText) -> None:
    """Which tile and which units a block has."""
    u, blocks = work.u, work.u(work.shape.blocks)
    work.header("tile0")
    work.line(f"group, part = uint64(cuda.blockIdx.x) // {blocks}, uint64(cuda.blockIdx.x) % {blocks}")
    work.line(f"row0 = (tile0 + group) * {u(work.shape.rows)}")
    for size in dict.fromkeys([*(s.size for s in work.program.loop), *(s.size for s in work.facts.inside)]):
        work.line(f"{work.first(size)} = part * {u(work.own(size))}")
    if work.shape.exchange:
        work.header("exchange", "counters", "patience")
        work.line(f"block = (tile0 + group + {u(1)}) * {u(APART)}  # its counter")
        work.line(f"expected = {u(0)}")
        work.line("turns = patience")


def enter_whole(work: LoopText) -> None:
    """The whole tiles of the states before the first step."""
    u = work.u
    for state in work.facts.inside:
        key, size = f"state {state.name}", work.size(state.size)
        if not work.facts.tiles[key].whole:
            continue
        given = work.argument(f"start {state.name}", f"{state.name}_start")
        work.line("e = thread")
        work.line(f"while e < {u(work.shape.rows * work.number(state.size))}:")
        work.line(f"    row, item = e // {size}, e % {size}")
        work.line("    total = real(0.0)")
        work.line("    if row0 + row < n:")
        work.line(f"        total = {given}[order[row0 + row] * {size} + item]")
        work.line(f"    {work.tile(key, 'row', 'item', '')} = total")
        work.line(f"    e += {u(work.shape.threads)}")


def exchange_line(work: LoopText) -> None:
    """Where this step's copy of the group's exchange lies."""
    if work.shape.exchange:
        work.line(f"swap = (group * {work.u(2)} + (s & {work.u(1)})) * {work.u(work.shape.exchange)}")


def exchanged(work: LoopText, number: int) -> None:
    """After a stage that published: a barrier of the group, then all of it is fetched."""
    _barrier(work)
    vector = VECTOR_BYTES // (4 if work.dtype == "float32" else 8)
    pieces = []  # tile, its first vector for each thread, and how many threads have one
    for key in work.facts.published(number):
        vectors = work.shape.rows * work.shape.strides[key] // vector
        pieces += [(key, start, vectors - start) for start in range(0, vectors, work.shape.threads)]
    for first in range(0, len(pieces), AT_ONCE):
        _fetch(work, pieces[first : first + AT_ONCE], vector)
    work.line("cuda.syncthreads()")


def _barrier(work: LoopText) -> None:
    u = work.u
    work.line("cuda.syncthreads()")
    with work.block(f"if thread == {u(0)}:"):
        work.line("cuda.threadfence()")
        work.line("arrive(counters, block)")
        work.line(f"expected += {u(work.shape.blocks)}")
        work.line(f"waited = {u(0)}")
        work.line("while arrived(counters, block) < expected and waited < turns:")
        work.line(f"    waited += {u(1)}")
        work.line("if waited >= turns:  # once is enough: what is computed from here on is thrown away")
        work.line(f"    arrive(counters, {u(0)})")
        work.line(f"    turns = {u(1)}")
        work.line("cuda.threadfence()")
    work.line("cuda.syncthreads()")


def _fetch(work: LoopText, pieces: list[tuple[str, int, int]], vector: int) -> None:
    """Some vectors of each thread. Those of threads that have none are not put down."""
    u, found = work.u, []
    for number, (key, start, left) in enumerate(pieces):
        names = [work.name(f"fetched {number} {i}", f"fetched_{number}_{i}") for i in range(vector)]
        place = f"(thread + {u(start)}) * {u(vector)}"
        if left < work.shape.threads:
            place = f"(thread if thread < {u(left)} else {u(0)}) * {u(vector)} + {u(start * vector)}"
        work.line(f"{', '.join(names)} = fresh(exchange, swap + {u(work.shape.exchanged[key])} + {place})")
        found.append(names)
    for (key, start, left), names in zip(pieces, found):
        with work.block(f"if thread < {u(left)}:" if left < work.shape.threads else ""):
            copy = f"{work.copies(key)[1]} + " if key.startswith("state ") else ""
            work.line(f"e = {copy}(thread + {u(start)}) * {u(vector)} + {u(work.shape.tiles[key])}")
            for i, name in enumerate(names):
                work.line(f"sh[e + {u(i)}] = {name}")
