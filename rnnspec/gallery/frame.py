"""What all pages have: the head with their style, the colours, and leave to load nothing.

A page asks for nothing from anywhere: style and script stand in it, and its policy lets a browser
take these two, by their digests, and no others.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from pathlib import Path

from rnnspec.show.drawing.svg import COLOURS, EDGE, INK, QUIET
from rnnspec.show.markup import Markup, join, tag

LIGHT = {
    "paper": "#ffffff", "raised": "#f6f7f9", "line": "#d3d8e0", "ink": INK, "quiet": "#4b5563", "link": EDGE,
    "good": "#166534", "bad": "#b91c1c", "curve": "#1d4ed8",
}  # fmt: skip
DARK = {
    "paper": "#12161d", "raised": "#1b212b", "line": "#3a4453", "ink": "#e5e7eb", "quiet": "#aab3c0",
    "link": "#93c5fd", "good": "#86efac", "bad": "#fca5a5", "curve": "#60a5fa",
}  # fmt: skip
DARK_MARKS = {
    "input": "#1e3a5f", "state": "#14432a", "once": "#2b3340", "gate": "#5b4708", "function": "#443366",
    "operation": "#5b2242", "box": "#12161d", "gradient": "#12161d", "output": "#55400f",
}  # fmt: skip
FOLDER = Path(__file__).resolve().parent


@lru_cache(maxsize=1)
def style() -> str:
    """The style of all pages."""
    dark = [f"  {rule}" for rule in (_root(DARK), *_drawing(DARK_MARKS))]
    rules = [_root(LIGHT), *_drawing(COLOURS), "@media (prefers-color-scheme: dark) {", *dark, "}"]
    return "\n".join([*rules, (FOLDER / "page.css").read_text(encoding="utf-8")])


@lru_cache(maxsize=1)
def script() -> str:
    """The search of the index."""
    return (FOLDER / "search.js").read_text(encoding="utf-8")


def page(title: str, *body: str, scripted: bool = False, about: str = "") -> bytes:
    """A whole page. title: of the window; body: what stands in it; scripted: with the script of
    the index, at the end."""
    policy = f"default-src 'none'; img-src data:; style-src '{_digest(style())}'"
    policy += f"; script-src '{_digest(script())}'" if scripted else ""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=f"{policy}; base-uri 'none'; form-action 'none'"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="description", content=about) if about else None,
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Markup(style())),
    )
    end = tag("script", Markup(script())) if scripted else None
    whole = tag("html", Markup("\n"), head, Markup("\n"), tag("body", *body, end), Markup("\n"), lang="en")
    return f"<!doctype html>\n{whole}\n".encode()


def region(name: str, *children: str, class_: str = "") -> Markup:
    """What may be wider than the screen, and is scrolled by itself, by keyboard too."""
    return tag("div", *children, class_=f"wide {class_}".strip(), tabindex="0", role="region", aria_label=name)


def code(name: str, text: str) -> Markup:
    return region(name, tag("pre", tag("code", text)))


def sections(*parts: tuple[str, str, Markup | None]) -> tuple[Markup, Markup]:
    """Links to sections, and these; each of an anchor, a title and what is in it. What has nothing
    in it is left out."""
    there = [(anchor, title, inner) for anchor, title, inner in parts if inner]
    links = [tag("li", tag("a", title, href=f"#{anchor}")) for anchor, title, _ in there]
    found = [tag("section", tag("h2", title, id=anchor), inner) for anchor, title, inner in there]
    return tag("nav", tag("ul", *links), aria_label="On this page"), join(*found)


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _root(colours: dict[str, str]) -> str:
    return f":root {{ {' '.join(f'--{name}: {value};' for name, value in colours.items())} }}"


def _drawing(fills: dict[str, str]) -> list[str]:
    """The colours of a drawing, which has those of a page in light, by those of this page."""
    ways = {INK: "ink", QUIET: "quiet", EDGE: "link"}
    rules = [f'.drawing rect[fill="{COLOURS[kind]}"] {{ fill: {fill}; }}' for kind, fill in fills.items()]
    rules += [f'.drawing text[fill="{was}"] {{ fill: var(--{now}); }}' for was, now in ways.items()]
    return [*rules, *(f'.drawing [stroke="{was}"] {{ stroke: var(--{now}); }}' for was, now in ways.items())]
