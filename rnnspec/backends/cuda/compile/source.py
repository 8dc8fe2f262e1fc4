"""The text of a kernel for a GPU, with what compiling it needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """A kernel's text, and what it takes to compile and launch it: the keys of its arguments and
    their kinds (shim.py), its threads, and how many numbers of shared memory a block needs."""

    name: str
    dtype: str
    text: str
    arguments: tuple[str, ...]
    kinds: tuple[str, ...]
    threads: int
    shared: int
