"""Tables as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Rows = Sequence[Sequence[str]]


def text(head: Sequence[str], rows: Rows) -> str:
    """Aligned columns: the first to the left, numbers to the right."""
    widths = [max(len(r[k]) for r in [head, *rows]) for k in range(len(head))]
    left = [k == 0 or any(r[k] and not _number(r[k]) for r in rows) for k in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(c.ljust(w) if to_left else c.rjust(w) for c, w, to_left in zip(cells, widths, left)).rstrip()

    return "\n".join([line(head), "  ".join("-" * w for w in widths), *map(line, rows)])


def markdown(head: Sequence[str], rows: Rows) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |" for cells in lines)


def table(head: Sequence[str], rows: Rows, as_markdown: bool) -> str:
    return markdown(head, rows) if as_markdown else text(head, rows)


def milliseconds(seconds: float) -> str:
    """Three digits; below a millisecond four decimals."""
    value = seconds * 1e3
    return (
        f"{value:.0f}"
        if value >= 1000
        else f"{value:.4f}"
        if value < 1
        else f"{value:.3g}"
        if value < 100
        else f"{value:.0f}"
    )


def groups(rows: Iterable[dict[str, Any]], *fields: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Rows by the values of fields, in the order of first appearance."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[f] for f in fields), []).append(row)
    return found


def _number(cell: str) -> bool:
    return cell.strip("-+.%x e0123456789") == ""
