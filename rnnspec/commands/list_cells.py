"""`rnnspec list`: the cells that come with rnnspec, as a table or JSON; a word filters, a column sorts."""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rnnspec.errors import RnnspecError, UnsupportedError
from rnnspec.language.equations import Binary, Call, Expr, Number, Ref, Unary
from rnnspec.language.faults import did_you_mean, listed
from rnnspec.language.functions import FEATURES
from rnnspec.language.gates import gate_names
from rnnspec.language.load import digest, load, spec_names
from rnnspec.language.shapes import shape_of
from rnnspec.language.sizes import SizeError, full_shape
from rnnspec.language.spec import Shape, Spec
from rnnspec.show import SIZE, known_sizes, parameter_count

COLUMNS: Mapping[str, Callable[[Any], str]] = {
    "name": str,
    "year": lambda year: str(year or ""),
    "states": ", ".join,
    "gates": ", ".join,
    "parameters": lambda count: "?" if count is None else f"{count:,}",
    "flop": lambda count: "?" if count is None else f"{count:,}",
    "stages": lambda count: "-" if count is None else str(count),
    "libraries": ", ".join,
    "title": str,
}
NUMBERS = ("year", "parameters", "flop", "stages")


def run(args: argparse.Namespace) -> int:
    if args.sort not in (None, *COLUMNS):
        raise RnnspecError(f"there is no column '{args.sort}'.{did_you_mean(args.sort, COLUMNS)} The columns are: {listed(COLUMNS)}.")
    specs = [spec for spec in map(load, spec_names()) if matches(spec, args.word)]
    rows = [row(spec, args.stats or args.sort == "stages") for spec in specs]
    if args.sort:
        rows.sort(key=lambda r: _order(r[args.sort]))
    if args.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    elif not rows:
        print(f"rnnspec list: no cell has '{args.word}' in its name, title, source or notes. `rnnspec list` has all {len(spec_names())}.", file=sys.stderr)
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print(table(rows, width))
    return 0


def matches(spec: Spec, word: str | None) -> bool:
    """Whether every part of `word` stands in the cell's name, title, source or notes."""
    text = " ".join((spec.name, spec.title, spec.source, spec.notes)).lower()
    return all(part in text for part in (word or "").lower().split())


def row(spec: Spec, stats: bool = False) -> dict[str, Any]:
    """The cell's row; "stages" only with `stats`, since it is built for it."""
    year = re.search(r"\b(1[89]|20)\d\d\b", spec.source)
    return {
        "name": spec.name,
        "title": spec.title,
        "year": int(year[0]) if year else None,
        "states": list(spec.states),
        "gates": gate_names(spec),
        **counts(spec),
        **({"stages": recurrent_stages(spec)} if stats else {}),
        "libraries": sorted(spec.layouts),
        "outputs": list(spec.outputs),
    }


def _order(value: Any) -> tuple[bool, Any]:
    """Lists by how many they hold; what is unknown stands last."""
    return value is None, len(value) if isinstance(value, list) else value or 0 if not isinstance(value, str) else value


# numbers


def counts(spec: Spec, size: int = SIZE) -> dict[str, int | None]:
    """How many numbers a layer trains and what a step of it takes, at `known_sizes`; None if one of these can't be evaluated."""
    found: dict[str, int | None] = {"parameters": None, "flop": None}
    with suppress(SizeError):
        sizes = known_sizes(spec, size)
        found["parameters"] = parameter_count(spec, sizes)
        found["flop"] = count_operations(spec, sizes)
    return found


def count_operations(spec: Spec, sizes: Mapping[str, int]) -> int:
    """Floating-point operations of a step of one row: two for each entry of a matrix in a product, one for each element of another
    operation or function. What is computed once per sequence is not counted. SizeError where a size is not known."""
    return sum(_operations(e.value, spec, sizes) for e in spec.equations if e.timed)


def _count(shape: Shape, sizes: Mapping[str, int]) -> int:
    return math.prod(full_shape(shape, sizes))


def _operations(expr: Expr, spec: Spec, sizes: Mapping[str, int]) -> int:
    def shape(part: Expr) -> Shape:
        return shape_of(part, spec.shapes, spec.sizes)

    match expr:
        case Number() | Ref():
            return 0
        case Unary(op, arg):
            return _operations(arg, spec, sizes) + (0 if op == "T" else _count(shape(arg), sizes))
        case Binary("@", left, right):
            return _operations(left, spec, sizes) + _operations(right, spec, sizes) + 2 * _product(shape(left), shape(right), sizes)
        case Binary(_, left, right):
            return _operations(left, spec, sizes) + _operations(right, spec, sizes) + _count(shape(expr), sizes)
        case Call("part", (vector, *_)):
            return _operations(vector, spec, sizes)
        case Call("eye", _):
            return 0
        case Call(function, args):
            inner = sum(_operations(a, spec, sizes) for a in args)
            own = max(_count(shape(a), sizes) for a in (expr, args[0])) if function in FEATURES else _count(shape(expr), sizes)
            return inner + (0 if function in ("concat", "diag") else own)
    raise TypeError(f"not an expression: {expr!r}")


def _product(left: Shape, right: Shape, sizes: Mapping[str, int]) -> int:
    return _count(left, sizes) * _count(right[1:], sizes) if len(left) == 2 else _count(right, sizes)


def recurrent_stages(spec: Spec) -> int | None:
    """Products that wait for one another in a step, 0 for an elementwise recurrence; None where there are no kernels. Kept on disk."""
    from rnnspec.pipeline import generator_digest, stages
    from rnnspec.texts import recall, remember

    key = f"{digest(spec)[:16]}{generator_digest()[:16]}"
    known = recall(f"{spec.name}_stages", key)
    if known is None:
        try:
            known = str(stages(spec).forward.recurrent_stages())
        except UnsupportedError:
            known = "none"
        remember(f"{spec.name}_stages", key, known)
    return int(known) if known.isdigit() else None


# text


def table(rows: Sequence[dict[str, Any]], width: int | None) -> str:
    """Aligned columns; titles are cut to fit `width` (None: not cut)."""
    columns = [c for c in COLUMNS if c in rows[0]]
    heads = {"parameters": f"parameters at {SIZE}", "flop": "FLOP a step", "stages": "recurrent stages"}
    cells = [[heads.get(c, c) for c in columns], *([COLUMNS[c](r[c]) for c in columns] for r in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    lines = []
    for parts in cells:
        padded = [f"{text:>{w}}" if c in NUMBERS else f"{text:{w}}" for text, w, c in zip(parts, widths, columns)]
        line = "  ".join([*padded[:-1], parts[-1]])
        lines.append(line if width is None or len(line) <= width else line[: max(width - 1, 20)] + "…")
    return "\n".join(lines)
