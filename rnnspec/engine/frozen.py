"""Dicts that are handed out and stay as they are: sizes, shapes and arrays that kernels rely on."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Frozen(dict[K, V]):
    """A dict that can't be changed; `dict(frozen)` is a copy that can. It pickles, and copies, as
    itself."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("this dict can't be changed, for kernels rely on it: change a copy, dict(...).")

    __setitem__ = __delitem__ = __ior__ = _refuse  # type: ignore[assignment]
    pop = popitem = clear = update = setdefault = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return Frozen, (dict(self),)
