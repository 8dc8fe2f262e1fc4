"""Dicts that are handed out and stay as they are: sizes, shapes and arrays that kernels rely on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn, TypeVar

from rnnspec.language.sizes import full_shape
from rnnspec.language.spec import Shape

K = TypeVar("K")
V = TypeVar("V")


class Frozen(dict[K, V]):
    """A dict that can't be changed; `dict(frozen)` is a copy that can. It pickles, and copies, as
    itself. refusal: what is said to who tries."""

    refusal: ClassVar[str] = "this dict can't be changed, for kernels rely on it: change a copy, dict(...)."

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(self.refusal)

    __setitem__ = __delitem__ = __ior__ = _refuse  # type: ignore[assignment]
    pop = popitem = clear = update = setdefault = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


class Sizes(Frozen[str, int]):
    """The value of every size of a cell, and what follows from it alone and is asked for in every
    call. items_key: name and value of each, to look up by."""

    __slots__ = ("_shapes", "items_key")

    def __init__(self, values: Mapping[str, int]):
        super().__init__(values)
        self.items_key = tuple(values.items())
        self._shapes: dict[Shape, tuple[int, ...]] = {}

    def full(self, shape: Shape) -> tuple[int, ...]:
        """A declared shape in numbers. Raises SizeError, as `full_shape` does."""
        found = self._shapes.get(shape)
        if found is None:
            found = self._shapes[shape] = full_shape(shape, self)
        return found
