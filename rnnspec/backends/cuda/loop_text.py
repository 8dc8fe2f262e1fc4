"""The text of a loop kernel (loop.py): its constants, and the places of values in the block's shared memory."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rnnspec.backends.cuda.loop_facts import Facts, Shape
from rnnspec.backends.cuda.text import Text
from rnnspec.language.sizes import evaluate_size
from rnnspec.lowering.program import Place, Stage


@dataclass
class LoopText(Text):
    facts: Facts = field(kw_only=True)
    shape: Shape = field(kw_only=True)
    sizes: Mapping[str, int] = field(kw_only=True)

    def size(self, expression: str) -> str:
        return self.u(self.number(expression))

    def number(self, expression: str) -> int:
        return evaluate_size(expression, self.sizes)

    def items(self, size: str) -> range:
        """The items that a thread has of a size."""
        return range(-(-self.shape.rows * self.number(size) // self.shape.threads))

    def whole(self, size: str, item: int) -> bool:
        """Whether every thread has this item."""
        return (item + 1) * self.shape.threads <= self.shape.rows * self.number(size)

    def of_item(self, what: str, size: str, item: int) -> str:
        """A variable of an item: its row in the tile "r", its unit "u", its row in the batch "b", its length, whether it is live, and
        where it lies in global memory: "row" and, with the unit, "at"."""
        return self.name(f"{what} of {size} {item}", f"{what}_{size}_{item}")

    def copy(self, size: str) -> int:
        """How far apart the two copies of a state lie."""
        return self.shape.rows * self.shape.strides[size]

    def copies(self, key: str) -> tuple[str, str]:
        """The variables that say where in a state's tile lies what it was before the step, and what it is after."""
        now, then = (self.name(f"{which} {key}", f"{key.removeprefix('state ')}_{which}") for which in ("now", "then"))
        return now, then

    def tile(self, key: str, row: str | int, unit: str | int, copy: str) -> str:
        """The text of an element of a tile; what is known is folded into its place. copy: of a state, the variable that says which."""
        stride, known, terms = self.shape.strides[self.facts.tiles[key].size], self.shape.tiles[key], []
        if isinstance(row, int):
            known += row * stride
        else:
            terms.append(f"{row} * {self.u(stride)}")
        if isinstance(unit, int):
            known += unit
        else:
            terms.append(unit)
        return f"sh[{' + '.join([*([copy] if copy else []), *terms, self.u(known)])}]"

    def outside(self, stage: Stage) -> list[str]:
        return [*super().outside(stage), *(v for v, _ in self.facts.carried(stage))]

    def tile_of(self, name: str) -> int:
        """Where the tile of a value that lies in shared memory begins."""
        found = self.facts.state_of(name)
        return self.shape.tiles[f"state {found[0].name}" if found else f"value {name}"]

    def in_global(self, name: str) -> bool:
        """Whether a value is read from global memory alone."""
        return not self.is_read(name, "parameter", "step", "size") and name not in self.facts.made and self.facts.state_of(name) is None

    def element(self, name: str, row: str | int, unit: str | int) -> str:
        """The text of an element of a value that lies in shared memory."""
        if found := self.facts.state_of(name):
            state, which = found
            key = f"state {state.name}"
            return self.tile(key, row, unit, self.copies(key)[which == "then"])
        return self.tile(f"value {name}", row, unit, "")

    def store(self, value: str, place: Place, at: tuple[str, str], text: str, live: str) -> None:
        """Leaves an element of a value in shared memory, if anything reads it there; a state of a row that is not live stays what it was."""
        state = self.facts.states.get(place.buffer)
        if state:
            key = f"state {state.name}"
            now, then = (self.tile(key, *at, copy) for copy in self.copies(key))
            self.line(f"{then} = {f'select({live}, {text}, {now})' if live else text}")
        elif f"value {value}" in self.facts.tiles:
            self.line(f"{self.tile(f'value {value}', *at, '')} = {text}")
