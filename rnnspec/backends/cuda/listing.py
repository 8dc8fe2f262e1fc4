"""What `rnnspec show --stage cuda` prints: which tier runs a program at some sizes, and the texts
of its kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from rnnspec.backends.cuda.choice import DEVICES, TIERS, choose
from rnnspec.backends.cuda.emit.stage import has_work, stage_source
from rnnspec.backends.cuda.loop.facts import Facts
from rnnspec.backends.cuda.loop.kernel import loop_source
from rnnspec.lowering.program import Program

SHOWN = (16, 32, 64, 112, 128, 256, 1024)  # sizes of the table
SMALL = 16  # the size at which texts are shown
ROWS = 1024


def listing(program: Program, sizes: Callable[[int], Mapping[str, int]], dtype: str = "float32") -> str:
    """sizes: the value of every size where the free ones have this value."""
    facts, item = Facts(program), 4 if dtype == "float32" else 8
    lines = [f"tier {tier}: {about}" for tier, about in TIERS.items()]
    for number in SHOWN:
        for name, device in DEVICES.items():
            choice = choose(facts, sizes(number), item, ROWS, *device)
            how = (
                ""
                if choice.shape is None
                else f", {choice.shape.rows} rows to {_blocks(choice.shape.blocks)} of {choice.shape.threads} threads"
            )
            lines.append(f"sizes {number}, {ROWS} rows, {name}: tier {choice.tier} ({choice.why}{how})")
    texts = []
    for tier in (1, 2):
        with contextlib.suppress(ValueError):  # where a tier can't run a cell at all, the table says so
            shape = choose(facts, sizes(SMALL), item, ROWS, *DEVICES["sm_90"], tier).shape
            assert shape is not None
            texts.append(loop_source(program, facts, shape, sizes(SMALL), dtype).text)
    texts += [
        stage_source(program, stage, dtype).text for stage in (*program.before, *program.after) if has_work(stage)
    ]
    return "\n\n".join(["\n".join(lines), *texts])


def _blocks(count: int) -> str:
    return "a block" if count == 1 else f"{count} blocks"
