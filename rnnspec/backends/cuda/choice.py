"""Which kernels run a program's loop, for given sizes and a given device."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rnnspec.backends.cuda.loop_facts import Facts, Shape, layout, weight_registers
from rnnspec.language.sizes import evaluate_size

REGISTERS = 65536  # of a processor, and so of a block
MOST_REGISTERS = 255  # of a thread
OTHER_REGISTERS = 44  # what a thread needs beside its weights and sums (the budget table in tests/ shows how it comes out)
ROWS = (4, 2, 1)
DEVICES = {"sm_80": (108, 166912), "sm_90": (132, 232448)}  # processors of an A100 and an H100, and bytes of shared memory that a block may have
TIERS = {1: "one block for each tile of rows runs the whole loop", 3: "a launch for each stage of each step"}


@dataclass(frozen=True)
class Choice:
    """tier: see TIERS. shape: of the loop kernel, in tier 1. why: in words."""

    tier: Literal[1, 3]
    shape: Shape | None
    why: str


def choose(facts: Facts, sizes: Mapping[str, int], item: int, rows: int, processors: int, shared: int, tier: int | None = None) -> Choice:
    """item: bytes of a number; rows: of the batch; processors, shared (bytes of a block): of the device; tier: what it has to be.

    Raises ValueError where the tier that was asked for can't run these sizes.
    """
    if tier == 3:
        return Choice(3, None, "asked for")
    shape, why = _block(facts, sizes, item, _rows_per_block(rows, processors), shared)
    if shape is None and tier == 1:
        given = ", ".join(f"{n} = {v}" for n, v in sizes.items())
        raise ValueError(f"tier 1 can't run '{facts.program.name}' at {given}: {why}. Use tier=3, which has no limits.")
    return Choice(3, None, why) if shape is None else Choice(1, shape, why)


def _rows_per_block(rows: int, processors: int) -> int:
    """As many as leave no processor without a block."""
    return next((n for n in ROWS if rows >= n * processors), 1)


def _block(facts: Facts, sizes: Mapping[str, int], item: int, most: int, shared: int) -> tuple[Shape | None, str]:
    program = facts.program
    if any(evaluate_size(s, sizes) == 0 for s in {*program.sizes(), *(t.size for t in facts.tiles.values())}):
        return None, "a size is 0"
    smallest = 0
    for rows in (n for n in ROWS if n <= most):
        shape = layout(facts, sizes, item, rows, "registers")
        words = item // 4
        registers = words * (weight_registers(facts, sizes, shape) + rows) + OTHER_REGISTERS
        smallest = shape.shared * item
        if registers <= min(MOST_REGISTERS, REGISTERS // shape.threads) and smallest <= shared:
            return shape, "weights fit registers"
        shape = layout(facts, sizes, item, rows, "shared")
        if shape.shared * item <= shared:
            return shape, "weights fit shared memory"
        smallest = shape.shared * item
    return None, f"a block would need {smallest:,} bytes of shared memory, and has {shared:,}"
