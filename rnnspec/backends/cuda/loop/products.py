"""The products of a loop kernel (kernel.py): each thread sums columns, for all rows of the tile.

A column is a unit of one accumulation of a panel. Where a block has threads to spare, several share
a column's terms, and their sums are added where they are read. Weights are read once, before the
first step, into the thread's registers or into shared memory, there one row of all columns after
another.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from rnnspec.backends.cuda.loop.facts import columns
from rnnspec.backends.cuda.loop.text import LoopText
from rnnspec.lowering.program import Panel, Stage
from rnnspec.symbolic.graph import size_of

UNROLLED = 8  # terms of one round, where weights lie in shared memory
Key = tuple[int, int]  # stage, panel


@dataclass(frozen=True)
class _Product:
    """A panel with its numbers. units: of the block; width: columns; share: threads to a column;
    cut: parts of an operand; terms: of a thread, of one operand."""

    work: LoopText
    stage: Stage
    panel: Panel
    key: Key

    @property
    def units(self) -> int:
        return self.work.own(self.stage.size)

    @property
    def width(self) -> int:
        return columns(self.panel, self.stage, self.work.sizes, self.work.shape.blocks)

    @property
    def share(self) -> int:
        return self.work.shape.shares[self.key]

    @property
    def cut(self) -> int:
        return max(1, self.share // len(self.panel.operands))

    @property
    def inner(self) -> list[int]:
        return [self.work.number(size_of(self.work.graph, o)) for o in self.panel.operands]

    @property
    def turns(self) -> range:
        """How often a thread goes through all of this: once for each of its columns."""
        return range(-(-self.width * self.share // self.work.shape.threads))

    @property
    def stores(self) -> bool:
        """Whether weights lie in shared memory."""
        return self.work.shape.weights == "shared"

    @property
    def matrices(self) -> int:
        """Where they do."""
        return self.work.shape.matrices[self.key]

    def offset(self, turn: int) -> int:
        return turn * self.work.shape.threads

    def guarded(self, turn: int) -> AbstractContextManager[None]:
        """A block for the threads that have something to do."""
        left = self.width * self.share - self.offset(turn)
        return self.work.block(f"if thread < {self.work.u(left)}:" if left < self.work.shape.threads else "")

    def weight(self, turn: int, k: int) -> str:
        return self.work.name(f"weight {self.key} {turn} {k}", f"w{self.key[0]}_{self.key[1]}_{turn}_{k}")

    def variable(self, what: str) -> str:
        return self.work.name(f"{what} of {self.key}", f"{what}{self.key[0]}_{self.key[1]}")


def load_weights(work: LoopText, stage: Stage, panel: Panel, key: Key) -> None:
    """Before the first step."""
    own = _Product(work, stage, panel, key)
    u = work.u
    for turn in own.turns:
        left = own.width * own.share - own.offset(turn)
        work.line(f"e = thread + {u(own.offset(turn))}")
        if left < work.shape.threads:
            work.line(f"e = e if thread < {u(left)} else {u(0)}")
        if own.share > 1:
            _shared_out(own)
            continue
        done = 0
        for i, inner in enumerate(own.inner):
            work.line(f"piece = e // {u(own.units)}")
            strides = _source(own, [(gate, i) for gate in range(len(panel.accumulations))], inner)
            _load(own, turn, (done, inner), strides)
            done += inner


def _shared_out(own: _Product) -> None:
    """The weights and the operand of a thread that has a share of a column."""
    work, u = own.work, own.work.u
    terms, operands = own.inner[0] // own.cut, len(own.panel.operands)
    work.line(
        f"piece = e % {u(own.width)} // {u(own.units)} * {u(operands)} + e // {u(own.width)} // {u(own.cut)}  # which"
        " matrix"
    )
    work.line(f"item = e // {u(own.width)} % {u(own.cut)} * {u(terms)}  # and the first of its terms")
    place = own.variable("operand")
    for i, operand in enumerate(own.panel.operands):
        text = f"{place} = {u(work.tile_of(operand))} + item"
        work.line(text if not i else f"if e // {u(own.width)} // {u(own.cut)} == {u(i)}:")
        if i:
            work.line(f"    {text}")
    pairs = [(gate, i) for gate in range(len(own.panel.accumulations)) for i in range(operands)]
    strides = _source(own, pairs, own.inner[0])
    if own.stores:
        start = own.variable("weights")
        work.line(
            f"{start} = {u(own.matrices)} + (e // {u(own.width)} * {u(terms)}) * {u(own.width)} + e % {u(own.width)}"
        )
        with own.guarded(0):
            work.line(f"k = {u(0)}")
            work.line(f"while k < {u(terms)}:")
            work.line(f"    sh[{start} + k * {u(own.width)}] = source[u * {strides[0]} + (item + k) * {strides[1]}]")
            work.line(f"    k += {u(1)}")
    else:
        for k in range(terms):
            work.line(f"{own.weight(0, k)} = source[u * {strides[0]} + (item + {u(k)}) * {strides[1]}]")


def _load(own: _Product, turn: int, span: tuple[int, int], strides: tuple[str, str]) -> None:
    work, u = own.work, own.work.u
    done, inner = span
    if not own.stores:
        for k in range(inner):
            work.line(f"{own.weight(turn, done + k)} = source[u * {strides[0]} + {u(k)} * {strides[1]}]")
        return
    with own.guarded(turn):
        work.line(f"k = {u(0)}")
        work.line(f"while k < {u(inner)}:")
        work.line(
            f"    sh[k * {u(own.width)} + {u(own.matrices + done * own.width)} + e] = source[u * {strides[0]} + k *"
            f" {strides[1]}]"
        )
        work.line(f"    k += {u(1)}")


def _source(own: _Product, pairs: list[tuple[int, int]], inner: int) -> tuple[str, str]:
    """Lines that find matrix number `piece` and, in it, the unit of column `e`; returns how far
    apart its units lie, and its terms."""
    work, u = own.work, own.work.u
    size, whole = own.stage.size, own.work.number(own.stage.size)
    work.line(f"u = e % {u(own.units)}" if work.alone else f"u = {work.first(size)} + e % {u(own.units)}")
    if work.ragged(size):
        work.line(f"u = u if u < {u(whole)} else {u(0)}")
    terms = [own.panel.accumulations[gate].terms[i] for gate, i in pairs]
    mixed = len({t.transposed for t in terms}) > 1
    by_unit = by_term = 1
    for number, term in enumerate(terms):
        by_unit, by_term = (1, whole) if term.transposed else (inner, 1)
        inside = "    " * bool(number)
        if number:
            work.line(f"if piece == {u(number)}:")
        work.line(
            f"{inside}source = {work.vector(term.matrix)}  # {term.matrix}{'.T' * term.transposed} @ {term.operand}"
        )
        if mixed:
            work.line(f"{inside}low, high = {u(by_unit)}, {u(by_term)}")
    return ("low", "high") if mixed else (u(by_unit), u(by_term))


def product(work: LoopText, stage: Stage, panel: Panel, key: Key) -> None:
    """The sums of a step, left in shared memory."""
    own, u = _Product(work, stage, panel, key), work.u
    rows = range(work.shape.rows)
    sums = [work.name(f"sum {r}", f"sum_{r}") for r in rows]
    for turn in own.turns:
        with own.guarded(turn):
            for r in rows:
                work.line(f"{sums[r]} = real(0.0)")
            if own.share > 1:
                _terms_shared_out(own, sums)
            else:
                _terms(own, turn, sums)
            for r in rows:
                work.line(
                    f"sh[thread + {u(work.shape.products[key] + r * own.width * own.share + own.offset(turn))}] ="
                    f" {sums[r]}"
                )


def product_sums(work: LoopText, stage: Stage, key: Key, gate: int, at: tuple[str, str]) -> list[str]:
    """The texts of what has to be added for an item of an accumulation.

    work: the text that is written; stage: whose panel it is; key: number of the stage in the loop,
    and of the panel in the stage; gate: number of the accumulation in the panel; at: the item's
    row, and the number of its unit in the block."""
    own = _Product(work, stage, stage.panels[key[1]], key)
    row, unit = at
    return [
        f"sh[{row} * {work.u(own.width * own.share)} +"
        f" {work.u(work.shape.products[key] + part * own.width + gate * own.units)} + {unit}]"
        for part in range(own.share)
    ]


def _terms_shared_out(own: _Product, sums: list[str]) -> None:
    work, u = own.work, own.work.u
    terms, operand = own.inner[0] // own.cut, own.panel.operands[0]
    place, state = own.variable("operand"), work.facts.state_of(operand)
    if state:
        now, then = work.copies(f"state {state[0].name}")
        place = f"{place} + {then if state[1] == 'then' else now}"
    for first in range(0, terms, UNROLLED if own.stores else terms):
        span = range(first, min(terms, first + UNROLLED) if own.stores else terms)
        weights = [own.weight(0, k) for k in span]
        if own.stores:
            weights = _stored(own, [f"{own.variable('weights')} + {u(k * own.width)}" for k in span])
        _add(own, operand, f"{place} + {u(first)}", sums, weights)


def _terms(own: _Product, turn: int, sums: list[str]) -> None:
    work, done = own.work, 0
    for operand, inner in zip(own.panel.operands, own.inner):
        if own.stores:
            _rounds(own, operand, inner, own.matrices + done * own.width + own.offset(turn), sums)
        else:
            _add(own, operand, work.place(operand, 0, 0), sums, [own.weight(turn, done + k) for k in range(inner)])
        done += inner


def _rounds(own: _Product, operand: str, inner: int, place: int, sums: list[str]) -> None:
    """The terms of one operand, UNROLLED at a time, then those that are left. place: of the
    weights, in shared memory."""
    work, u = own.work, own.work.u
    whole = inner // UNROLLED * UNROLLED
    if whole:
        work.line(f"k = {u(0)}")
        with work.block(f"while k < {u(whole)}:"):
            weights = _stored(
                own, [f"k * {u(own.width)} + thread + {u(place + i * own.width)}" for i in range(UNROLLED)]
            )
            _add(own, operand, work.place(operand, 0, "k"), sums, weights)
            work.line(f"k += {u(UNROLLED)}")
    if whole < inner:
        weights = _stored(own, [f"thread + {u(place + k * own.width)}" for k in range(whole, inner)])
        _add(own, operand, work.place(operand, 0, whole), sums, weights)


def _stored(own: _Product, places: list[str]) -> list[str]:
    """Some weights from shared memory."""
    names = [own.work.name(f"stored {i}", f"w_{i}") for i in range(len(places))]
    for name, place in zip(names, places):
        own.work.line(f"{name} = sh[{place}]")
    return names


def _add(own: _Product, operand: str, place: str, sums: list[str], weights: list[str]) -> None:
    """Adds to the sums of all rows. place: of the first row's first term."""
    work = own.work
    stride, together = work.u(work.shape.strides[work.facts.key(operand)]), ", ".join(sums)
    comma = "," * (len(sums) == 1)
    function = "add_kept_products" if work.program.is_kept(own.panel) else "add_products"
    work.line(f"{together}{comma} = {function}(sh, {place}, {stride}, ({together}{comma}), {', '.join(weights)})")
