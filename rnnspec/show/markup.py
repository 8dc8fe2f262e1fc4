"""Markup of HTML, MathML and SVG: text of others goes in, and comes out as text.

Everything that stands in a page or a drawing is put together by `tag`, or escaped by `escaped`;
what is neither is a str and is escaped on its way in.
"""

from __future__ import annotations

import html

from rnnspec.errors import visible

VOID = frozenset({"br", "hr", "input", "link", "meta"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def escaped(text: object) -> Markup:
    """A text as it stands in an element or in an attribute's quotes. What a browser or XML would
    not show, such as a character that turns the direction of writing, stands as its escape."""
    return Markup(html.escape(visible(str(text)), quote=True))


def tag(name: str, /, *children: str | None, **attributes: object) -> Markup:
    """An element. children: a str is escaped, Markup is taken as it is, None is left out.
    attributes: `class_` is class, `aria_label` is aria-label; True has no value, None and False are
    left out."""
    told = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        told.append(f" {key}" if value is True else f' {key}="{escaped(value)}"')
    start = f"<{name}{''.join(told)}>"
    return Markup(start if name in VOID and not children else f"{start}{join(*children)}</{name}>")


def join(*children: str | None, between: str = "") -> Markup:
    """Children as one piece of markup."""
    parts = [c if isinstance(c, Markup) else escaped(c) for c in children if c is not None]
    return Markup(str(escaped(between)).join(parts))
