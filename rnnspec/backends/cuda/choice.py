"""Which kernels run a program's loop, for given sizes and a given device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rnnspec.backends.cuda.loop.facts import MOST_THREADS, WARP, Facts, Shape, columns, inner, layout, weight_registers
from rnnspec.language.sizes import evaluate_size

REGISTERS = 65536  # of a processor, and so of a block
MOST_REGISTERS = 255  # of a thread
# what a thread needs beside its weights and sums, alone in a tile and not (see
# tests/helpers/cuda_budgets.py)
OTHER_REGISTERS, GRID_REGISTERS = 44, 72
ROWS = (4, 2, 1)
GRID_ROWS = (8, 4, 2, 1)  # where several blocks share them
# processors of an A100 and an H100, and bytes of shared memory that a block may have
DEVICES = {"sm_80": (108, 166912), "sm_90": (132, 232448)}
TIERS = {
    1: "one block for each tile of rows runs the whole loop",
    2: "several blocks share the units of a tile of rows, and wait for each other at every stage",
    3: "a launch for each stage of each step",
}
# What a step takes, in cycles, to compare shapes by: guesses from published figures, not measured
BARRIER = 2500  # of a grid, with what is fetched after it
FETCHED = 64  # bytes a cycle
SCHEDULERS = 4  # warps of which a processor issues an instruction in each cycle


@dataclass(frozen=True)
class TierChoice:
    """tier: see TIERS. shape: of the loop kernel, in tiers 1 and 2. why: in words."""

    tier: Literal[1, 2, 3]
    shape: Shape | None
    why: str


def choose(
    facts: Facts,
    sizes: Mapping[str, int],
    item: int,
    rows: int,
    processors: int,
    shared: int,
    tier: int | None = None,
    together: int | None = None,
) -> TierChoice:
    """The tier, and in tiers 1 and 2 the shape of the loop kernel, that a program gets.

    facts: of the program.
    sizes: of the spec, by name.
    item: bytes of a number.
    rows: of the batch.
    processors, shared: of the device: how many, and bytes of shared memory that a block may have.
    tier: what it has to be.
    together: how many blocks may wait for each other, if not one for each processor.

    Raises ValueError where the tier that was asked for can't run these sizes.
    """
    if tier == 3:
        return TierChoice(3, None, "asked for")
    whys: list[str] = []
    for number in (1, 2) if tier is None else (tier,):
        if number == 1:
            shape, why = _block(facts, sizes, item, _rows_per_block(rows, processors), shared)
        else:
            shape, why = _grid(facts, sizes, item, rows, processors if together is None else together, shared)
        if shape is not None:
            return TierChoice(1 if number == 1 else 2, shape, "; ".join([*whys, why]))
        whys.append(why)
    if tier is not None:
        given = ", ".join(f"{n} = {v}" for n, v in sizes.items())
        raise ValueError(
            f"tier {tier} can't run '{facts.program.name}' at {given}: {whys[0]}. Use tier=3, which has no limits."
        )
    return TierChoice(3, None, "; ".join(dict.fromkeys(whys)))


def _rows_per_block(rows: int, processors: int) -> int:
    """How many rows a block has: as many as leave no processor without a block."""
    return next((n for n in ROWS if rows >= n * processors), 1)


def _has_empty_size(facts: Facts, sizes: Mapping[str, int]) -> bool:
    return any(evaluate_size(s, sizes) == 0 for s in {*facts.program.sizes(), *(t.size for t in facts.tiles.values())})


def _fits_registers(facts: Facts, sizes: Mapping[str, int], item: int, shape: Shape) -> bool:
    """Whether weights may lie in registers. A processor gives them out to four warps at a time,
    eight to a thread."""
    others = OTHER_REGISTERS if shape.blocks == 1 else GRID_REGISTERS
    needed = item // 4 * (weight_registers(facts, sizes, shape) + shape.rows) + others
    threads = -(-shape.threads // (4 * WARP)) * 4 * WARP
    return needed <= min(MOST_REGISTERS, REGISTERS // threads // 8 * 8)


def _block(facts: Facts, sizes: Mapping[str, int], item: int, most: int, shared: int) -> tuple[Shape | None, str]:
    if _has_empty_size(facts, sizes):
        return None, "a size is 0"
    smallest = 0
    for rows in (n for n in ROWS if n <= most):
        shape = layout(facts, sizes, item, rows, "registers")
        smallest = shape.shared * item
        if _fits_registers(facts, sizes, item, shape) and smallest <= shared:
            return shape, "weights fit registers"
        shape = layout(facts, sizes, item, rows, "shared")
        if shape.shared * item <= shared:
            return shape, "weights fit shared memory"
        smallest = shape.shared * item
    return None, f"a block would need {smallest:,} bytes of shared memory, and has {shared:,}"


# --- several blocks to a tile


def _grid(
    facts: Facts, sizes: Mapping[str, int], item: int, rows: int, processors: int, shared: int
) -> tuple[Shape | None, str]:
    """The shape that is thought to take the least time. All blocks of a launch run at once, one to
    a processor."""
    if _has_empty_size(facts, sizes):
        return None, "a size is 0"
    if processors < 2:
        return None, "the device runs no blocks that wait for each other"
    best, least, smallest = None, 0.0, 0
    for shape in _shapes(facts, sizes, item, rows, processors):
        if shape.weights == "registers" and not _fits_registers(facts, sizes, item, shape):
            continue
        need = shape.shared * item
        smallest = min(smallest or need, need)
        if need > shared:
            continue
        tiles = -(-rows // shape.rows)
        time = -(-tiles // (processors // shape.blocks)) * _cycles(facts, sizes, item, shape)
        if best is None or time < least:
            best, least = shape, time
    if best is None:
        return None, f"each of several blocks would need {smallest:,} bytes of shared memory, and has {shared:,}"
    return (
        best,
        f"weights of {best.blocks} blocks fit {'registers' if best.weights == 'registers' else 'shared memory'}",
    )


def _shapes(facts: Facts, sizes: Mapping[str, int], item: int, rows: int, processors: int) -> Iterator[Shape]:
    """With powers of two, and three and five times those, as the units of a block, of the largest
    size."""
    largest = max((evaluate_size(s.size, sizes) for s in facts.program.loop if not s.rowwise), default=1)
    units = sorted(n << k for n in (1, 3, 5) for k in range(largest.bit_length()))
    counts = [b for b in dict.fromkeys(-(-largest // n) for n in units) if 2 <= b <= processors] or [2]
    for count in (n for n in GRID_ROWS if n < 2 * max(1, rows)):
        for blocks in counts:
            yield layout(facts, sizes, item, count, "registers", blocks)
            yield layout(facts, sizes, item, count, "registers", blocks, MOST_THREADS)
            yield layout(facts, sizes, item, count, "shared", blocks)


def _cycles(facts: Facts, sizes: Mapping[str, int], item: int, shape: Shape) -> float:
    total, warps = 0.0, shape.threads // WARP
    for number, stage in enumerate(facts.program.loop):
        if published := facts.published(number):
            total += BARRIER + sum(shape.rows * shape.strides[key] for key in published) * item / FETCHED
        for index, panel in enumerate(stage.panels):
            share = shape.shares[number, index]
            turns = -(-columns(panel, stage, sizes, shape.blocks) * share // shape.threads)
            # a multiply-add and a part of a load for each row, and the weight
            each = shape.rows * (1 + item / 16) + (shape.weights == "shared")
            total += turns * inner(facts, panel, sizes) / share * each * (item // 4) * warps / SCHEDULERS
    return total
