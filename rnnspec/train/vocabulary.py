"""Words and symbols to ids."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rnnspec.storage.locks import once_only

UNKNOWN = "<unknown>"
_WORD = re.compile(r"[.,()!?']|[^\s.,()!?'\";:]+")


@dataclass(frozen=True)
class Symbols:
    """`names[i]` has the id i; names[0] is the unknown symbol, which stands for all others."""

    names: tuple[str, ...]

    @once_only
    def _ids(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def encode(self, words: Iterable[str]) -> np.ndarray:
        """Ids, int64 [N]."""
        ids = self._ids
        return np.array([ids.get(word, 0) for word in words], np.int64)

    def decode(self, ids: Iterable[int]) -> list[str]:
        return [self.names[i] for i in ids]


def words(text: str) -> list[str]:
    """Lower-case words, and . , ( ) ! ? ' as words of their own; double quotes, colons and
    semicolons only part them.

    These are the rules of torchtext's "basic_english" tokenizer, with which AG_NEWS has 43 words a
    text.
    """
    return _WORD.findall(text.lower())


def of_words(texts: Iterable[Sequence[str]], most: int, first: Sequence[str] = (UNKNOWN,)) -> Symbols:
    """`first`, then the most frequent words, equally frequent ones in the order of their letters:
    `most` names at most."""
    counts = Counter(word for text in texts for word in text)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    taken = set(first)
    return Symbols((*first, *[word for word in ranked if word not in taken][: max(0, most - len(first))]))
