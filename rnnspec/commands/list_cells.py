"""`rnnspec list`: the cells that come with rnnspec."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import Sequence

from rnnspec.language.load import load, spec_names
from rnnspec.language.sizes import SizeError, evaluate_size
from rnnspec.language.spec import Spec

SIZE = 128


def run(args: argparse.Namespace) -> int:
    rows = [row(load(name)) for name in spec_names()]
    if args.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(table(rows, width))
    return 0


def row(spec: Spec) -> dict:
    return {
        "name": spec.name,
        "title": spec.title,
        "states": list(spec.states),
        "parameters": count_parameters(spec),
        "outputs": list(spec.outputs),
    }


def count_parameters(spec: Spec, size: int = SIZE) -> int | None:
    """How many numbers a layer trains if D, H and every size without a default are `size`; None if a default can't be evaluated."""
    sizes = {name: size for name, s in spec.sizes.items() if s.default is None or name in ("D", "H")}
    waiting = {name: s.default for name, s in spec.sizes.items() if s.default is not None and name not in sizes}
    while waiting:
        ready = {}
        for name, text in waiting.items():
            try:
                ready[name] = evaluate_size(text, sizes)
            except SizeError:
                continue
        if not ready:
            break
        sizes |= ready
        waiting = {name: text for name, text in waiting.items() if name not in ready}
    try:
        return sum(math.prod(evaluate_size(axis, sizes) for axis in shape) for shape in spec.parameters.values())
    except SizeError:
        return None


def table(rows: Sequence[dict], width: int | None) -> str:
    """Aligned columns; titles are cut to fit `width` (None: not cut)."""
    head = ("name", "states", f"parameters at {SIZE}", "outputs", "title")
    cells = [
        (r["name"], ", ".join(r["states"]), "?" if r["parameters"] is None else f"{r['parameters']:,}", ", ".join(r["outputs"]), r["title"])
        for r in rows
    ]
    widths = [max(len(line[i]) for line in (head, *cells)) for i in range(4)]
    lines = []
    for name, states, parameters, outputs, title in (head, *cells):
        line = f"{name:{widths[0]}}  {states:{widths[1]}}  {parameters:>{widths[2]}}  {outputs:{widths[3]}}  {title}"
        lines.append(line if width is None or len(line) <= width else line[: max(width - 1, 20)] + "…")
    return "\n".join(lines)
