"""The panels of a kernel: products side by side, none wider than the register tiles, and the
descriptors by which the runtime's `product` finds them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rnnspec.backends.cpu.emit.emission import Emission, Target, bias_field
from rnnspec.lowering.program import Accumulation, Panel, Stage
from rnnspec.lowering.signature import bias_sources, panel_signature
from rnnspec.symbolic.graph import size_of


def split(stage: Stage, target: Target) -> tuple[list[Panel], int]:
    """The panels of a stage, none wider than the tile, and how many unit blocks one group of them
    takes."""
    panels: list[Panel] = []
    for panel in stage.panels:
        gates = panel.accumulations
        pieces = -(-len(gates) // target.vectors)
        cuts = [len(gates) * i // pieces for i in range(pieces + 1)]
        panels += [Panel(gates[a:b]) for a, b in pairwise(cuts)]
    widest = max((len(p.accumulations) for p in panels), default=1)
    return panels, target.vectors // widest


def all_panels(work: Emission) -> Iterator[tuple[int, Panel, int]]:
    """The number, the panel and the unit blocks per group of every panel, those that are too wide
    split."""
    number = 0
    for stage in work.program.stages():
        panels, blocks = split(stage, work.target)
        for panel in panels:
            yield number, panel, blocks
            number += 1


def descriptor(work: Emission, number: int) -> str:
    """The variable with the address of a panel's descriptor."""
    return work.name(f"panel {number}", f"panel_{number}")


def describe_panels(work: Emission) -> None:
    """Fills in the descriptors that `product` reads (products.py says which field is which)."""
    for number, panel, blocks in all_panels(work):
        program, gates = work.program, panel.accumulations
        described = panel_signature(program, panel)
        desc, padded = f"pointer_int({descriptor(work, number)})", work.pad(described["size"])
        fields = work.get(
            f"panels {number}",
            f"panels {number}, stride",
            f"panels {number}, vectors",
            f"panels {number}, last vectors",
            f"panels {number}, last",
        )
        first = work.address(program.places[gates[0].value])
        work.line(f"put_all({desc}, 0, {len(panel.operands)}, {fields}, {first}, {padded}, {blocks} * lanes)")
        for j in range(len(gates) * blocks):
            work.line(f"put_all({desc}, {16 + 4 * j}, {_vector(work, gates, j, padded, first)})")
        for i, operand in enumerate(panel.operands):
            inner = size_of(program.graph, operand)
            width = work.name(f"size {inner}")
            work.line(
                f"put_all({desc}, {48 + 4 * i}, {work.address(program.places[operand])}, {work.pad(inner)}, {width})"
            )
        work.panels.append({"size": described["size"], "blocks": blocks, **described})


def _vector(work: Emission, gates: tuple[Accumulation, ...], j: int, padded: str, first: str) -> str:
    """Vector j of a group: its offset in C, where it starts from, and the distance between rows
    there."""
    block, gate = divmod(j, len(gates))
    acc = gates[gate]
    target = work.address(work.program.places[acc.value])
    offset = "0" if gate == 0 else f"({target} - {first}) // item"
    shift = f" + {block} * lanes" if block else ""
    start = target
    if acc.first:
        start = work.get(bias_field(bias_sources(work.program, acc))) if acc.biases else "zeros"
    return f"{offset}{shift}, {start}{shift + ' * item' if shift else ''}, {padded if not acc.first else 0}"
