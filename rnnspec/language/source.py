"""Where a cell is from: a paper by its parts, or a text. To a line, to data, to BibTeX.

In: what the key `source` of a file says. Nothing is looked up.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

OTHERS = "others"  # the last of the authors, for "et al."
SHAPES = {
    "doi": (re.compile(r"10\.\d{4,9}/\S+", re.ASCII), "10.1162/neco.1997.9.8.1735"),
    "arxiv": (re.compile(r"\d{4}\.\d{4,5}(v\d+)?|[a-z-]+(\.[A-Z]{2})?/\d{7}", re.ASCII), "1406.1078"),
}
"""How a number looks that is given as such, and one that does."""
_SPECIAL = str.maketrans({c: f"\\{c}" for c in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}"})


@dataclass(frozen=True)
class Source:
    """authors: surnames, or whole names; the last may be "others". venue: the journal or the
    conference, by its name alone; volume, number, pages: where in it. note: which part of the paper
    is meant, and in whose form; a source that is given as one text is that alone."""

    authors: tuple[str, ...] = ()
    title: str = ""
    venue: str = ""
    volume: str = ""
    number: str = ""
    pages: str = ""
    year: int | None = None
    doi: str = ""
    arxiv: str = ""
    note: str = ""

    def __bool__(self) -> bool:
        return self != Source()

    def to_text(self) -> str:
        """ "Gers, Schmidhuber & Cummins 2000, Learning to Forget (Neural Computation 12), note"."""
        *first, last = self.authors or ("",)
        if last == OTHERS:
            who = f"{', '.join(first)} et al."
        else:
            who = f"{', '.join(first)} & {last}" if first else last
        numbers = [self._place(), self.doi and f"doi {self.doi}", self.arxiv and f"arXiv {self.arxiv}"]
        where = ", ".join(filter(None, numbers))
        head = " ".join(filter(None, [who, "" if self.year is None else str(self.year)]))
        paper = ", ".join(filter(None, [head, self.title]))
        return ", ".join(filter(None, [" ".join(filter(None, [paper, where and f"({where})"])), self.note]))

    def _place(self) -> str:
        """ "Electronics 13(16), 3204"."""
        volume = self.volume + (f"({self.number})" if self.number else "")
        return ", ".join(filter(None, [" ".join(filter(None, [self.venue, volume])), self.pages]))

    def given(self) -> dict[str, object]:
        """What is given, by its key in a file."""
        values = {name: value for name, value in asdict(self).items() if value not in ("", None, ())}
        return {n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}

    def to_dict(self) -> dict[str, object]:
        """For JSON: what is given, and `text`, all of it in a line."""
        return self.given() | {"text": self.to_text()}

    def to_bibtex(self, name: str, title: str) -> str:
        """An entry for a bibliography. name, title: the cell's, for a source that is no paper; the
        note is told only there, since it is about the cell."""
        paper = bool(self.authors or self.title)
        return bibtex(
            "article" if self.venue else "misc",
            self.key(name),
            {
                "author": " and ".join(escaped(a) for a in self.authors),
                "title": f"{{{escaped(self.title or title)}}}",
                "journal": escaped(self.venue),
                "volume": escaped(self.volume),
                "number": escaped(self.number),
                "pages": escaped(self.pages),
                "year": "" if self.year is None else str(self.year),
                "doi": self.doi,
                "eprint": self.arxiv,
                "archivePrefix": self.arxiv and "arXiv",
                "note": "" if paper else escaped(self.note),
            },
        )

    def key(self, name: str) -> str:
        """ "gers2000learning", or what the cell is called where the source has no authors."""
        if not self.authors or self.year is None:
            return f"rnnspec_{name}"
        words = [w for w in map(_plain, re.split(r"[\s-]", self.title)) if w not in ("a", "an", "the", "on", "")]
        return f"{_plain(self.authors[0])}{self.year}{(words or [name])[0]}"


KEYS = tuple(f.name for f in fields(Source))


def _plain(text: str) -> str:
    """Lower letters and digits of ASCII."""
    return re.sub("[^a-z0-9]", "", unicodedata.normalize("NFKD", text).lower())


def escaped(text: str) -> str:
    """A text as LaTeX takes it."""
    return text.translate(_SPECIAL)


def bibtex(kind: str, key: str, values: Mapping[str, str]) -> str:
    """An entry of BibTeX, of what is not empty."""
    lines = [f"  {name} = {{{value}}}" for name, value in values.items() if value]
    return f"@{kind}{{{key},\n" + ",\n".join(lines) + "\n}"
