"""The panels of a kernel: products side by side, none wider than the register tiles, and the
descriptors by which the runtime's `product` finds them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rnnspec.backends.cpu.emit.emission import Emission, Target, bias_field
from rnnspec.backends.cpu.machine import descriptor_fields
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


def column_descriptor(work: Emission, number: int, panel: Panel) -> str:
    """The address of the descriptor of a column, of a panel whose matrices are others for each."""
    return f"{descriptor(work, number)} + column * {8 * descriptor_fields(len(panel.operands))}"


def describe_panels(work: Emission) -> None:
    """Fills in the descriptors that `product` reads (products.py says which field is which)."""
    for number, panel, blocks in all_panels(work):
        described = panel_signature(work.program, panel)
        if work.program.has_matrices_by_column(panel):
            described["by_column"] = True
        fields = work.get(
            f"panels {number}",
            f"panels {number}, stride",
            f"panels {number}, vectors",
            f"panels {number}, last vectors",
            f"panels {number}, last",
        )
        with work.columns("by_column" in described):
            _describe(work, number, panel, blocks, fields)
        work.panels.append({"size": described["size"], "blocks": blocks, **described})


def _describe(work: Emission, number: int, panel: Panel, blocks: int, fields: str) -> None:
    """Fills in the descriptor of a panel, or of one column of it. fields: what tells of its packed
    weights."""
    program, gates = work.program, panel.accumulations
    by_column = program.has_matrices_by_column(panel)
    desc = f"pointer_int({column_descriptor(work, number, panel) if by_column else descriptor(work, number)})"
    if by_column:
        packed = work.get(f"panels {number}")
        fields = fields.replace(packed, f"{packed} + column * {work.get(f'panels {number}, column')}", 1)
    first, row = _column(work, gates[0].value, by_column)
    work.line(f"put_all({desc}, 0, {len(panel.operands)}, {fields}, {first}, {row}, {blocks} * lanes)")
    for j in range(len(gates) * blocks):
        work.line(f"put_all({desc}, {16 + 4 * j}, {_vector(work, gates, j, by_column)})")
    for i, operand in enumerate(panel.operands):
        width = work.name(f"size {size_of(program.graph, operand)}")
        start, row = _column(work, operand, by_column)
        work.line(f"put_all({desc}, {48 + 4 * i}, {start}, {row}, {width})")


def _column(work: Emission, value: str, by_column: bool) -> tuple[str, str]:
    """Where the rows of a value begin and how far apart they lie; by_column: those of a column,
    where it has some. Else columns are rows, one after another."""
    place = work.program.places[value]
    padded = work.pad(size_of(work.graph, value))
    if not by_column or not work.program.is_columned(place):
        return work.address(place), padded
    return f"{work.address(place)} + column * {padded} * item", work.row(place)


def _vector(work: Emission, gates: tuple[Accumulation, ...], j: int, by_column: bool) -> str:
    """Vector j of a group: its offset in C, where it starts from, and the distance between rows
    there."""
    block, gate = divmod(j, len(gates))
    acc = gates[gate]
    first, target = (work.address(work.program.places[a.value]) for a in (gates[0], acc))
    offset = "0" if gate == 0 else f"({target} - {first}) // item"
    shift = f" + {block} * lanes" if block else ""
    start, row = _column(work, acc.value, by_column)
    if acc.first:
        start = work.get(bias_field(bias_sources(work.program, acc))) if acc.biases else "zeros"
    return f"{offset}{shift}, {start}{shift + ' * item' if shift else ''}, {row if not acc.first else 0}"
