r"""How a cell's names are written: `W_i` is W_{i}, `h` at "t-1" is h_{t-1}, `alpha` is \alpha.

No two names of a cell are written alike; parts of equations and gradients that have no name in the
file get letters that no name of it begins with.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from dataclasses import dataclass, field

from rnnspec.language.sizes import canonical_size

_SMALL = (
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "mu",
    "nu",
    "xi",
    "pi",
    "rho",
    "sigma",
    "tau",
    "upsilon",
    "phi",
    "chi",
    "psi",
    "omega",
)
_LARGE = ("Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega")
GREEK = frozenset(_SMALL + _LARGE)
AUXILIARY = (*"asqepyvukzmrlj", *string.ascii_letters)  # letters for parts of equations, the first that is free
GRADIENTS = ("delta", "epsilon", "eta", "zeta", *_SMALL)  # for gradients that are of no value


def _head(text: str) -> str:
    return text if len(text) == 1 else f"\\{text}" if text in GREEK else f"\\mathrm{{{_escaped(text)}}}"


def _escaped(text: str) -> str:
    return text.replace("_", r"\_")


def split_name(text: str) -> tuple[str, tuple[str, ...]]:
    """A name as its letter and what stands below it: `beta1_f` is beta, 1 and f."""
    base, *below = [part for part in text.split("_") if part] or [text]
    counted = re.fullmatch(r"([A-Za-z]+?)(\d+)", base)
    if counted and (len(counted.group(1)) == 1 or counted.group(1) in GREEK):
        base, below = counted.group(1), [counted.group(2), *below]
    return base, tuple(below)


def symbol(head: str, below: Iterable[str] = (), time: str = "", bar: bool = False, above: str = "") -> str:
    r"""A letter with what stands over, below and above it: \bar{h}_{t-1}^{\leftarrow}."""
    base = head if not bar else f"\\bar{{{head}}}" if not head.startswith(r"\mathrm") else f"\\overline{{{head}}}"
    parts = ", ".join([*below, *([time] if time else [])])
    return base + (f"_{{{parts}}}" if parts else "") + (f"^{{{above}}}" if above else "")


@dataclass
class Names:
    """The symbols of a cell. taken: its names. known: name -> head and what stands below."""

    taken: Iterable[str]
    known: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.taken = list(dict.fromkeys(self.taken))
        seen: set[tuple[str, tuple[str, ...]]] = set()
        for text in self.taken:
            base, below = split_name(text)
            made = _head(base), tuple(p if p.isdigit() else _head(p) for p in below)
            if made in seen:  # b1 beside b_1
                made = f"\\mathrm{{{_escaped(text)}}}", ()
            seen.add(made)
            self.known[text] = made
        self.heads = {head for head, _ in self.known.values()}
        free = [h for h in map(_head, (*AUXILIARY, *_SMALL)) if h not in self.heads | {"t"}]
        self.part = free[0]
        self.gradient = next(h for h in map(_head, (*GRADIENTS, "Delta")) if h not in self.heads | {self.part})

    def write(self, name: str, time: str = "", bar: bool = False, above: str = "", more: Iterable[str] = ()) -> str:
        """A name of the cell. more: further things below it."""
        head, below = self.known[name]
        return symbol(head, (*below, *more), time, bar, above)

    def of_part(self, owner: str, number: int, time: str = "", bar: bool = False) -> str:
        """The part of that number of an equation: its first is written without it."""
        head, below = self.known[owner]
        return symbol(self.part, (head, *below), time, bar, f"({number})" if number > 1 else "")

    def size(self, text: str) -> str:
        """A size expression: 3*H is 3 \\, H."""
        tex = re.sub(r"[A-Za-z_]\w*", lambda m: self.known[m.group()] and self.write(m.group()), text)
        return tex.replace(" // ", " / ").replace("**", "^").replace(" * ", r" \, ").replace("*", r" \, ")

    def span(self, first: str, length: str) -> str:
        """The elements from the first on: H : 2 H."""
        return f"{self.size(first)} : {self.size(canonical_size(f'{first} + {length}'))}"
