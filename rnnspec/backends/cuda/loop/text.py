"""The text of a loop kernel (kernel.py): its constants, and the places of values in the block's
shared memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rnnspec.backends.cuda.emit.text import CudaText
from rnnspec.backends.cuda.loop.facts import Facts, Shape, own_units
from rnnspec.language.sizes import evaluate_size
from rnnspec.lowering.program import BufferPlace, Stage


@dataclass
class LoopText(CudaText):
    """The text of a loop kernel. shape: of the kernel for these sizes, which are constants in
    it."""

    facts: Facts = field(kw_only=True)
    shape: Shape = field(kw_only=True)
    sizes: Mapping[str, int] = field(kw_only=True)

    def size(self, expression: str) -> str:
        return self.u(self.number(expression))

    def number(self, expression: str) -> int:
        return evaluate_size(expression, self.sizes)

    @property
    def alone(self) -> bool:
        """Whether a block has all units of its rows."""
        return self.shape.blocks == 1

    def own(self, size: str) -> int:
        """The units of a size that a block has, at most."""
        return own_units(size, self.sizes, self.shape.blocks)

    def ragged(self, size: str) -> bool:
        """Whether some blocks have fewer."""
        return self.own(size) * self.shape.blocks > self.number(size)

    def first(self, size: str) -> str:
        """The variable with the first of them."""
        return self.name(f"first of {size}", f"first_{size}")

    def items(self, size: str) -> range:
        """The items that a thread has of a size."""
        return range(-(-self.shape.rows * self.own(size) // self.shape.threads))

    def whole(self, size: str, item: int) -> bool:
        """Whether every thread has this item."""
        return (item + 1) * self.shape.threads <= self.shape.rows * self.own(size) and not self.ragged(size)

    def of_item(self, what: str, size: str, item: int) -> str:
        """A variable of an item: its row in the tile "r", its unit "u" and its number "j" among
        those of the block, its row in the batch "b", its length, whether it is live, and where it
        lies in global memory: "row" and, with the unit, "at". In blocks that have not all units,
        "mine" is whether there is such an item."""
        what = "u" if what == "j" and self.alone else what
        return self.name(f"{what} of {size} {item}", f"{what}_{size}_{item}")

    def copy(self, key: str) -> int:
        """How far apart the two copies of a state's tile lie."""
        return self.shape.rows * self.shape.strides[key]

    def copies(self, key: str) -> tuple[str, str]:
        """The variables that say where in a state's tile lies what it was before the step, and what
        it is after."""
        now, then = (self.name(f"{which} {key}", f"{key.removeprefix('state ')}_{which}") for which in ("now", "then"))
        return now, then

    def tile(self, key: str, row: str | int, unit: str | int, copy: str, own: str = "") -> str:
        """The text of an element of a tile; what is known is folded into its place. key: of the
        tile; row, unit: numbers, or texts; copy: of a state, the variable that says which; own: the
        number of the unit among those of the block."""
        return f"sh[{self._tile(key, row, unit, copy, own)}]"

    def _tile(self, key: str, row: str | int, unit: str | int, copy: str, own: str = "") -> str:
        unit = unit if self.facts.tiles[key].whole or not own else own
        return self._place(self.shape.tiles[key], self.shape.strides[key], row, unit, copy)

    def _place(self, known: int, stride: int, row: str | int, unit: str | int, copy: str) -> str:
        terms = []
        if isinstance(row, int):
            known += row * stride
        else:
            terms.append(f"{row} * {self.u(stride)}")
        if isinstance(unit, int):
            known += unit
        else:
            terms.append(unit)
        return " + ".join([*([copy] if copy else []), *terms, self.u(known)])

    def outside(self, stage: Stage) -> list[str]:
        """The values that the pointwise work of a stage takes from elsewhere."""
        return [*stage.reads(self.graph), *(v for v, _ in self.facts.carried(stage))]

    def tile_of(self, name: str) -> int:
        """Where the tile of a value that lies in shared memory begins."""
        return self.shape.tiles[self.facts.key(name)]

    def in_global(self, name: str) -> bool:
        """Whether a value is read from global memory alone."""
        return (
            not self.program.is_read(name, "parameter", "step", "size")
            and name not in self.facts.made
            and self.facts.state_of(name) is None
        )

    def element(self, name: str, row: str | int, unit: str | int, own: str = "") -> str:
        """The text of an element of a value that lies in shared memory."""
        return f"sh[{self.place(name, row, unit, own)}]"

    def place(self, name: str, row: str | int, unit: str | int, own: str = "") -> str:
        """Where an element of a value that lies in shared memory is."""
        key, state = self.facts.key(name), self.facts.state_of(name)
        return self._tile(key, row, unit, self.copies(key)[state[1] == "then"] if state else "", own)

    def store(
        self,
        value: str,
        place: BufferPlace,
        at: tuple[str, str, str],
        text: str,
        live: str,
        published: Collection[str] = (),
    ) -> None:
        """Leaves an element of a value in shared memory, or, of a tile that is published, in the
        exchange, if anything reads it there; a state of a row that is not live stays what it was.

        value: its name; place: where it lies in buffers; at: row, unit, number of the unit in the
        block; text: of the element; live: of the condition that the row is live, "" where
        it does not matter; published: the keys of the tiles that are."""
        key = self.facts.key(value, place)
        if key not in self.facts.tiles:
            return
        row, unit, own = at
        now, then = (
            self.tile(key, row, unit, copy, own)
            for copy in (self.copies(key) if place.buffer in self.facts.states else ("", ""))
        )
        if key in published:
            then = f"exchange[{self._place(self.shape.exchanged[key], self.shape.strides[key], row, unit, 'swap')}]"
        self.line(
            f"{then} = {f'select({live}, {text}, {now})' if live and place.buffer in self.facts.states else text}"
        )
