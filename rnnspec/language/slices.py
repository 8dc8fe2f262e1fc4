"""Pieces of parameters: R[2] of an inner loop, rows or columns of a matrix. No SymPy: kernels from
the cache read them too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rnnspec.language.sizes import canonical_size, evaluate_size
from rnnspec.language.spec import Shape


@dataclass(frozen=True)
class Piece:
    """A piece of a parameter, which a graph reads as a parameter of its own: entry `index` (from 0)
    along the first axis where it is not None, and of that `length` rows (axis 0) or columns (axis
    1) from `first` on, or all where `length` is empty.
    """

    parameter: str
    index: int | None = None
    axis: int = 0
    first: str = "0"
    length: str = ""

    def shape(self, whole: Shape) -> Shape:
        left = whole if self.index is None else whole[1:]
        return left[: self.axis] + (self.length,) + left[self.axis + 1 :] if self.length else left

    def to_text(self) -> str:
        """The piece as text, R[2] or W[:, D:D + H]: numbers count from 1, as in the language;
        ranges are those of NumPy."""
        end = (
            self.length if self.first == "0" else canonical_size(f"{self.first} + {self.length}") if self.length else ""
        )
        cut = f"[{':, ' * self.axis}{self.first}:{end}]" if self.length else ""
        return self.parameter + ("" if self.index is None else f"[{self.index + 1}]") + cut

    def of(self, whole: Any, sizes: Mapping[str, int]) -> Any:
        """The piece of a parameter's array, or of its gradient's: a view, so that it can be added
        to."""
        left = whole if self.index is None else whole[self.index, ...]  # of a vector too a view, not a number
        if not self.length:
            return left
        first = evaluate_size(self.first, sizes)
        return left[(slice(None),) * self.axis + (slice(first, first + evaluate_size(self.length, sizes)),)]
