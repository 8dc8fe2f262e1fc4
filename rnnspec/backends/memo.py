"""Results that are looked up again while there are not too many of them."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(dict[K, V]):
    """A dict that is emptied when it holds more than `most` entries.

    Other threads may empty it at any time, so look up with `get`, and go on with what `keep`
    returns.
    """

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def keep(self, key: K, value: V) -> V:
        """The value itself, to be found under this key for a while."""
        if len(self) > self.most:
            self.clear()
        self[key] = value
        return value
