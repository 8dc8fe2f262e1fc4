"""The products of a loop kernel (loop.py): each thread sums whole columns, for all rows of the tile.

A column is a unit of one accumulation of a panel. Its weights are read once, before the first step, into the thread's registers or into
shared memory, there one row of all columns after another.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rnnspec.backends.cuda.loop_facts import columns
from rnnspec.backends.cuda.loop_text import LoopText
from rnnspec.lowering.program import Panel, Stage, Term
from rnnspec.lowering.schedule import size_of

UNROLLED = 8  # terms of one round, where weights lie in shared memory
Key = tuple[int, int]  # stage, panel


def _columns(work: LoopText, stage: Stage, panel: Panel) -> range:
    """The columns of a thread."""
    return range(-(-columns(panel, stage, work.sizes) // work.shape.threads))


@contextlib.contextmanager
def _guarded(work: LoopText, stage: Stage, panel: Panel, column: int) -> Iterator[None]:
    """For the threads that have this column."""
    left = columns(panel, stage, work.sizes) - column * work.shape.threads
    if left < work.shape.threads:
        work.line(f"if thread < {work.u(left)}:")
        work.indent += 1
    yield
    if left < work.shape.threads:
        work.indent -= 1


def _widths(work: LoopText, panel: Panel) -> list[int]:
    return [work.number(size_of(work.graph, o)) for o in panel.operands]


def _weight(work: LoopText, key: Key, column: int, k: int) -> str:
    return work.name(f"weight {key} {column} {k}", f"w{key[0]}_{key[1]}_{column}_{k}")


def load_weights(work: LoopText, stage: Stage, panel: Panel, key: Key) -> None:
    """Before the first step."""
    units, width = work.number(stage.size), columns(panel, stage, work.sizes)
    for column in _columns(work, stage, panel):
        done = 0
        for i, inner in enumerate(_widths(work, panel)):
            left = width - column * work.shape.threads
            work.line(f"e = thread + {work.u(column * work.shape.threads)}")
            if left < work.shape.threads:
                work.line(f"e = e if thread < {work.u(left)} else {work.u(0)}")
            strides = _source(work, [acc.terms[i] for acc in panel.accumulations], units, inner)
            if work.shape.weights == "registers":
                for k in range(inner):
                    work.line(f"{_weight(work, key, column, done + k)} = source[u * {strides[0]} + {work.u(k)} * {strides[1]}]")
            else:
                with _guarded(work, stage, panel, column):
                    work.line(f"k = {work.u(0)}")
                    work.line(f"while k < {work.u(inner)}:")
                    work.line(f"    sh[k * {work.u(width)} + {work.u(work.shape.matrices[key] + done * width)} + e] = source[u * {strides[0]} + k * {strides[1]}]")
                    work.line(f"    k += {work.u(1)}")
            done += inner


def _source(work: LoopText, terms: list[Term], units: int, inner: int) -> tuple[str, str]:
    """Lines that find the matrix of column `e` and its unit there; returns how far apart its units lie, and its terms."""
    work.line(f"piece = e // {work.u(units)}")
    work.line(f"u = e % {work.u(units)}")
    mixed = len({t.transposed for t in terms}) > 1
    for gate, term in enumerate(terms):
        by_unit, by_term = (1, units) if term.transposed else (inner, 1)
        inside = ""
        if gate:
            work.line(f"if piece == {work.u(gate)}:")
            inside = "    "
        work.line(f"{inside}source = {work.vector(term.matrix)}  # {term.matrix}{'.T' * term.transposed} @ {term.operand}")
        if mixed:
            work.line(f"{inside}low, high = {work.u(by_unit)}, {work.u(by_term)}")
    return ("low", "high") if mixed else (work.u(by_unit), work.u(by_term))


def product(work: LoopText, stage: Stage, panel: Panel, key: Key) -> None:
    """The sums of a step, left in shared memory."""
    width, rows = columns(panel, stage, work.sizes), range(work.shape.rows)
    sums = [work.name(f"sum {r}", f"sum_{r}") for r in rows]
    for column in _columns(work, stage, panel):
        with _guarded(work, stage, panel, column):
            for r in rows:
                work.line(f"{sums[r]} = real(0.0)")
            done = 0
            for operand, inner in zip(panel.operands, _widths(work, panel)):
                if work.shape.weights == "registers":
                    for k in range(inner):
                        for r in rows:
                            work.line(f"{sums[r]} = {sums[r]} + {_weight(work, key, column, done + k)} * {work.element(operand, r, k)}")
                else:
                    place = work.shape.matrices[key] + done * width + column * work.shape.threads
                    _rounds(work, operand, inner, (place, width), sums)
                done += inner
            for r in rows:
                work.line(f"sh[thread + {work.u(work.shape.products[key] + r * width + column * work.shape.threads)}] = {sums[r]}")


def _rounds(work: LoopText, operand: str, inner: int, where: tuple[int, int], sums: list[str]) -> None:
    """The terms of one operand, UNROLLED at a time, then those that are left. where: the column's weights in shared memory, and how far
    apart they lie."""
    place, width = where
    whole = inner // UNROLLED * UNROLLED
    if whole:
        work.line(f"k = {work.u(0)}")
        work.line(f"while k < {work.u(whole)}:")
        work.indent += 1
        for i in range(UNROLLED):
            work.line(f"total = sh[k * {work.u(width)} + thread + {work.u(place + i * width)}]")
            for r, running in enumerate(sums):
                work.line(f"{running} = {running} + total * {work.element(operand, r, f'k + {work.u(i)}')}")
        work.line(f"k += {work.u(UNROLLED)}")
        work.indent -= 1
    for k in range(whole, inner):
        work.line(f"total = sh[thread + {work.u(place + k * width)}]")
        for r, running in enumerate(sums):
            work.line(f"{running} = {running} + total * {work.element(operand, r, k)}")
