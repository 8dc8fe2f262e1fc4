"""Processors as kernels must know them: the vector registers, and the shapes of register tiles that
follow from their number and size.

In: what machine.py has found out by asking LLVM. Out: numbers. No LLVM here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

ITEMSIZE = {"float32": 4, "float64": 8}

# the most vectors side by side in a panel, and the most groups of units that a tile takes at once
VECTORS, GROUPS = 4, 4
MOST_ROWS = 8  # of a tile
# sums that must be under way at once: a multiply-add takes four cycles, and two start in each
CHAINS = 8
FEW_ROWS = 2  # so few that a tile needs several groups for that


def side_by_side(vectors: int, rows: int) -> int:
    """Groups of `vectors` vectors that a call of `product` is given, for a tile to take all of them
    at once: as many as make it VECTORS wide, or with few rows as many as it takes for CHAINS sums.
    More would only put off the work that follows."""
    if rows > FEW_ROWS:
        return max(1, VECTORS // vectors)
    return next((g for g in (1, 2, GROUPS) if rows * g * vectors >= CHAINS), GROUPS)


@dataclass(frozen=True)
class Processor:
    """A processor that code is made for.

    triple, name, features: as LLVM calls it; register_bytes: of a vector register; registers: how
    many; fma: multiply-add is one instruction.
    """

    triple: str
    name: str
    features: str
    register_bytes: int
    registers: int
    fma: bool

    @property
    def lanes(self) -> Mapping[str, int]:
        """Numbers in a vector, by dtype."""
        return MappingProxyType({name: self.register_bytes // size for name, size in ITEMSIZE.items()})

    def rows(self, width: int) -> int:
        """The most rows of a tile that is `width` vectors wide, 0 where there is no such tile.

        Every sum has a register, and so has every factor of the shorter side, rows or vectors;
        those of the longer side take turns in one more. Without multiply-add a product needs one
        too.
        """
        spare = self.registers - 1 - (not self.fma)
        return max((r for r in range(1, MOST_ROWS + 1) if r * width + min(r, width) <= spare), default=0)

    def groups(self, rows: int, vectors: int, most: int = GROUPS) -> int:
        """How many groups of units, a power of two up to `most`, a tile takes at once where there
        are `rows` rows and `vectors` vectors in a group: as many as make it VECTORS wide, for a
        narrow tile loads as often as it multiplies; with few rows, as many as it takes for CHAINS
        sums."""
        if rows > FEW_ROWS:
            full = max(1, VECTORS // vectors)
            return full if full <= most else 1
        groups = 1
        while 2 * groups <= min(most, GROUPS) and rows * groups * vectors < CHAINS:
            if rows > self.rows(2 * groups * vectors):
                break
            groups *= 2
        return groups

    @property
    def product_terms(self) -> int:
        """Terms of a panel that all rows pass before the next ones: as many as leave it in a first
        cache of 32 KB. With the widest vectors that would be so few that C is read too often: there
        it comes from the second, and at K = 4096 blocks of 128 or none at all cost a third."""
        return 192 if self.register_bytes == 32 else 512

    @property
    def outer_vectors(self) -> int:
        """The most vectors of the tiles of an outer product that has many: with 16 registers a
        panel, of BLOCK_K rows, is to leave room in the first cache."""
        return VECTORS if self.registers > 16 else 2

    def outer_sizes(self) -> list[tuple[int, int]]:
        """(rows, vectors) of every tile that outer products are put together from: panels of about
        equal width, and as many rows as the widest allows."""
        return sorted({(self.rows(v), w) for v in range(1, VECTORS + 1) for w in (v - 1, v) if w})

    def product_sizes(self) -> tuple[tuple[int, int, int], ...]:
        """(rows, vectors of a group, groups) of every tile that products are put together from."""
        return _product_sizes(self)


@cache
def _product_sizes(processor: Processor) -> tuple[tuple[int, int, int], ...]:
    return tuple(sorted(set(_sizes(processor))))


def _sizes(processor: Processor) -> Iterator[tuple[int, int, int]]:
    """As `product` (runtime/products.py) cuts rows and groups: rows in pieces of n or one less."""
    for vectors in range(1, VECTORS + 1):
        for most in range(1, GROUPS + 1):
            for rows in range(1, 2 * MOST_ROWS + 1):
                groups = processor.groups(rows, vectors, most)
                pieces = -(-rows // processor.rows(groups * vectors))
                yield from ((n, vectors, groups) for n in {rows // pieces, -(-rows // pieces)})
