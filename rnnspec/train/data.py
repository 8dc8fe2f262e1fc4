"""Text to character ids, and ids to the streams that truncated backpropagation reads.

In: a UTF-8 file, or nothing for the default corpus. Out: `Corpus`, plain arrays and a `Vocabulary`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rnnspec.backends.brief import brief_repr
from rnnspec.train.errors import TrainError
from rnnspec.train.tables import decoded, line_ends, read_bytes
from rnnspec.train.tales import mixed

CHARACTERS = 465_000  # of the default text, and the rest of its last tale
UNKNOWN = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Vocabulary:
    """The characters a model knows: `characters[i]` has the id i.

    Id 0 is the unknown symbol U+FFFD, which stands for every character that the training part
    doesn't have. It is a class like any other: text that holds it costs what the model gives for
    it, so nothing is left out of the held-out loss. `sample` never writes it.
    """

    characters: str

    @classmethod
    def of(cls, text: str) -> Vocabulary:
        """The unknown symbol, then the characters of the text in the order of their code points."""
        return cls(UNKNOWN + "".join(sorted(set(text) - {UNKNOWN})))

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """Ids, int64 [N]: one for each character, 0 for the unknown."""
        known = _code_points(self.characters[1:])
        codes = _code_points(text)
        if not known.size:
            return np.zeros(codes.shape, np.int64)
        at = np.minimum(np.searchsorted(known, codes), known.size - 1)
        return np.where(known[at] == codes, at + 1, 0)

    def decode(self, ids: np.ndarray) -> str:
        return "".join(self.characters[i] for i in ids)


@dataclass(frozen=True)
class Corpus:
    """A text in two parts: `train` and the last tenth, `held_out`, as ids under a vocabulary made
    from the first part only."""

    name: str
    digest: str
    vocabulary: Vocabulary
    train: np.ndarray  # [N]
    held_out: np.ndarray  # [M]

    __repr__ = brief_repr

    @property
    def unigram_bits(self) -> float:
        """Entropy of the held-out characters without their order: no model that ignores context can
        be below it."""
        return unigram_entropy(self.held_out)

    @property
    def unknown(self) -> int:
        """How many held-out characters the training part doesn't have."""
        return int((self.held_out == 0).sum())


@dataclass(frozen=True)
class Streams:
    """B contiguous pieces of a text, read side by side: row b goes on in one chunk where it ended
    in the one before.

    labels[t, b] is the character after inputs[t, b]; both [L, B].
    """

    inputs: np.ndarray
    labels: np.ndarray

    __repr__ = brief_repr

    @property
    def length(self) -> int:
        return self.inputs.shape[0]

    def chunk(self, start: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels of steps start .. start + steps: both [T, B], T smaller at the end."""
        return self.inputs[start : start + steps], self.labels[start : start + steps]


def make_corpus(text: str, name: str, vocabulary: Vocabulary | None = None) -> Corpus:
    """Holds out the last tenth of the text; `vocabulary` is that of a run being resumed."""
    cut = len(text) - len(text) // 10
    vocabulary = vocabulary or Vocabulary.of(text[:cut])
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Corpus(name, digest, vocabulary, vocabulary.encode(text[:cut]), vocabulary.encode(text[cut:]))


def make_streams(ids: np.ndarray, rows: int) -> Streams:
    """Cuts ids [N] into `rows` pieces of (N - 1) // rows steps; fewer than `rows` characters at the
    end are left out."""
    length = (len(ids) - 1) // rows
    if length < 1:
        raise TrainError(f"{len(ids)} characters are too few for {rows} streams")
    cut = ids[: rows * length + 1]
    inputs, labels = (np.ascontiguousarray(part.reshape(rows, length).T) for part in (cut[:-1], cut[1:]))
    return Streams(inputs, labels)


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file (a byte order mark is dropped, line ends become \\n); TrainError
    says what is wrong."""
    return line_ends(decoded(read_bytes(path), path))


def default_text() -> str:
    """Some 465,000 characters of tales made by rules (see rnnspec.train.tales), the same with every
    Python."""
    return mixed(CHARACTERS)[0]


def unigram_entropy(ids: np.ndarray) -> float:
    """-sum p log2 p over the frequencies of the ids, in bits per character; 0 for an empty
    array."""
    if not ids.size:
        return 0.0
    p = np.bincount(ids.reshape(-1)) / ids.size
    p = p[p > 0]
    return abs(float(-(p * np.log2(p)).sum()))


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
