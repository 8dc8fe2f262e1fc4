"""What the methods of a Spec show: its page, LaTeX, drawings and HTML, under the names that
`language.views.Views` has."""

from __future__ import annotations

from rnnspec.show.drawing.svg import svg
from rnnspec.show.html.notebook import html
from rnnspec.show.page import show as text
from rnnspec.show.tex.document import latex

__all__ = ["html", "latex", "svg", "text"]
