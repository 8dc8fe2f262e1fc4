"""Where a Spec, and what is made of it, finds what it shows of itself.

Pages, LaTeX and drawings are made of graphs and programs, floors above the language, which does not
import them. The face of the package, which Python runs before any module in it, says where they
are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rnnspec.storage.locks import making


class Views(Protocol):
    """What can be shown of a Spec; the module `show/views.py` has it."""

    def text(self, spec: Any, stage: str | None) -> str:
        """The page of a cell, or one of its stages."""

    def latex(self, spec: Any, part: str, constants: str) -> str:
        """Its equations and gradients as LaTeX."""

    def svg(self, spec: Any, view: str) -> str:
        """A drawing of it."""

    def html(self, thing: Any, about: str = "") -> str:
        """What a notebook shows of it, of a Graph or of a Program; about: a line more."""


class _Place:
    find: Callable[[], Views]


def place(find: Callable[[], Views]) -> None:
    """Says what imports the views: called once, by the package's face."""
    _Place.find = staticmethod(find)


def views() -> Views:
    """The views, imported when first asked for."""
    with making:
        return _Place.find()


class InNotebooks:
    """What notebooks show as HTML: equations, drawing and costs of a Spec; the parts and the text
    of a Graph or a Program."""

    def _repr_html_(self) -> str:
        return views().html(self)
