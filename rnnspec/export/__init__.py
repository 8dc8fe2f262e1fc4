"""Cells and layers as programs that need no Python: `c` makes one file of C99 and its header."""

from rnnspec.export.c import CSource, c

__all__ = ["CSource", "c"]
