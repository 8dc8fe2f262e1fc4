"""`rnnspec convert`: weights between the files of other libraries and a layer's."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rnnspec.commands.export_layer import refuse
from rnnspec.commands.output import say
from rnnspec.errors import RnnspecError
from rnnspec.interop import weight_files
from rnnspec.interop.weights import Place, arrays_of, layer_from, places
from rnnspec.language.load import load
from rnnspec.language.spec import Spec
from rnnspec.layers.recurrent import Recurrent


def run(args: argparse.Namespace) -> int:
    spec = load(args.cell, **dict(args.choice))
    try:
        named = weight_files.read(args.source)
        if args.target == "-":
            refuse(args, ("place", "to_layout", "dtype"), "OUT is -, which lists all places and writes nothing")
            return _listed(args, places(spec, named, args.layout or ""))
        layer, found = layer_from(spec, named, args.layout or "", tuple(args.place), args.dtype or _dtype(named))
        layout = args.to_layout or _layout_for(spec, args.target)
        weight_files.write(args.target, arrays_of(layer, layout) if layout else layer.weights)
    except (ValueError, TypeError) as error:
        raise error if isinstance(error, RnnspecError) else RnnspecError(str(error)) from error
    if args.json:
        about = {"file": args.target, "layout": layout or None, "layer": repr(layer), "places": _about(found)}
        say(json.dumps(about, indent=2))
        return 0
    for place in found:
        say(f"{place.name or '(the top)'}: {place.layout}")
    say(f"{args.target}: {layer!r}{f', as {layout}' if layout else ''}")
    if not layout and Path(args.target).suffix == ".npz":
        say(f"read it with {_call(layer)}.load({args.target!r})")
    return 0


def _listed(args: argparse.Namespace, found: list[Place]) -> int:
    if args.json:
        say(json.dumps(_about(found), indent=2))
    else:
        for place in found:
            shapes = ", ".join(f"{n} {list(a.shape)}" for n, a in place.arrays.items())
            say(f"{place.name or '(the top)'}: {place.layout}{', backward' if place.reverse else ''}: {shapes}")
        if not found:
            say(f"no place in {args.source} has the weights of {args.cell}")
    return 0 if found else 1


def _about(found: list[Place]) -> list[dict[str, Any]]:
    return [
        {
            "name": place.name,
            "layout": place.layout,
            "backward": place.reverse,
            "arrays": {n: list(a.shape) for n, a in place.arrays.items()},
        }
        for place in found
    ]


def _layout_for(spec: Spec, target: str) -> str:
    """The layout that a file of this ending has; none for a layer's own names."""
    if Path(target).suffix.lower() != ".msgpack":
        return ""
    known = next((n for n in spec.layouts if n.startswith("flax.")), "")
    if not known:
        raise RnnspecError(f"the cell '{spec.name}' has no layout of flax: give one with --to-layout, or write .npz.")
    return known


def _dtype(named: Any) -> str:
    return "float64" if any(a.dtype.name == "float64" for a in named.values()) else "float32"


def _call(layer: Recurrent) -> str:
    given = repr(layer).removesuffix(")").split("(", 1)[1]
    return f"rnnspec.Recurrent({given})"
