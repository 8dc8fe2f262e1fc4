"""Weights of a cell in the files of other libraries: between their arrays and a `Recurrent`'s, by
the `layouts` of its spec.

In: arrays by flat name (interop/weight_files.py reads them). Out: a layer with these weights, or
such arrays. Nothing here knows a library: a layout is found by the names of its blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.arrays import infer_sizes
from rnnspec.errors import RnnspecError, ShapeError, visible
from rnnspec.language.layouts import blocks_of, pack, unpack
from rnnspec.language.sizes import SizeError, evaluate_size, full_shape, size_names, unit_size
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.faults import did_you_mean, listed
from rnnspec.layers.recurrent import Recurrent

OWN = "rnnspec"  # a layout of each parameter by its own name
_END = r"(?:_l(?P<layer>\d+)(?P<reverse>_reverse)?)?"
_NUMBERED = re.compile(r"(?P<prefix>.*/)?vars/(?P<number>\d+)")  # Keras 3: an array by its number in its layer
_WAY = re.compile(r"(?:^|(?<=[/._]))(?:forward|(?P<back>backward|reverse))(?=[_/.]|$)")  # of two directions


class WeightsError(RnnspecError, ValueError):
    """Arrays that are not those of the cell."""


@dataclass(frozen=True)
class Place:
    """One direction of a layer in a file. name: what stands before its arrays' names, and behind
    them; arrays: by the library's names; reverse: whether it is the backward one of two."""

    name: str
    layout: str
    arrays: Mapping[str, Array]
    reverse: bool


def places(spec: Spec, named: Mapping[str, Array], layout: str = "") -> list[Place]:
    """Every place in a file that has all arrays of a layout of the cell, in the order of the file's
    layers. layout: the only one that is looked for."""
    layouts = [*spec.layouts, OWN]
    if layout and layout not in layouts:
        near = did_you_mean(layout, layouts)
        raise WeightsError(f"the cell '{spec.name}' has no layout '{layout}'.{near} It has: {listed(layouts)}.")
    found: list[Place] = []
    for known in [layout] if layout else layouts:
        found += [p for p in _of_layout(spec, named, known) if p.name not in {f.name for f in found}]
    return sorted(found, key=lambda p: (_natural(_WAY.sub("", p.name)), p.reverse))


def _of_layout(spec: Spec, named: Mapping[str, Array], layout: str) -> Iterator[Place]:
    wanted, groups = _blocks(spec, layout), dict[tuple[str, str], dict[str, Array]]()
    for block in wanted:
        pattern = re.compile(rf"(?P<prefix>(?:.*[/.])?){re.escape(block)}{_END}")
        for name, array in named.items():
            match = pattern.fullmatch(name.replace(".", "/") if "/" in block else name)
            if match:
                end = name[match.end() - len(match[0]) + len(match["prefix"]) + len(block) :]
                groups.setdefault((match["prefix"].rstrip("/."), end), {})[block] = array
    for name, array in named.items():
        if match := _NUMBERED.fullmatch(name):
            at = int(match["number"])
            if at < len(wanted):
                prefix = (match["prefix"] or "").rstrip("/")
                groups.setdefault((prefix, "vars"), {})[wanted[at]] = array
    for (prefix, end), arrays in groups.items():
        if set(arrays) == set(wanted) and _fits(spec, layout, arrays):
            told = re.fullmatch(_END, "" if end == "vars" else end)
            reverse = bool(told and told["reverse"]) or any(way["back"] for way in _WAY.finditer(prefix))
            yield Place(prefix + ("" if end == "vars" else end), layout, arrays, reverse)


def _fits(spec: Spec, layout: str, arrays: Mapping[str, Array]) -> bool:
    try:
        _unpacked(spec, layout, arrays)
    except (ShapeError, SizeError):
        return False
    return True


def _blocks(spec: Spec, layout: str) -> list[str]:
    return list(spec.weights) if layout == OWN else blocks_of(spec, layout)


def _unpacked(spec: Spec, layout: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The cell's parameters from a place's arrays. Raises ShapeError, SizeError."""
    if layout != OWN:
        return unpack(spec, layout, arrays)
    sizes = _sizes(spec, arrays)
    wrong = [n for n, shape in spec.weights.items() if arrays[n].shape != full_shape(shape, sizes)]
    if wrong:
        raise ShapeError(f"{listed(wrong)} of '{spec.name}' do not have the shapes that the others tell.")
    return dict(arrays)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,9})", name)]


def layer_from(
    spec: Spec, named: Mapping[str, Array], layout: str = "", chosen: tuple[str, ...] = (), dtype: str = "float32"
) -> tuple[Recurrent, list[Place]]:
    """A layer with the weights of a file, and the places that they are from.

    spec: of the cell; named: the arrays of the file; layout: of the spec, found by its names where
    not given; chosen: the names of places, from the lowest layer up, all that there are where not
    given: those of two directions one after the other. Raises WeightsError where no place has all
    arrays of a layout, or layers do not fit upon one another.
    """
    found = places(spec, named, layout)
    if chosen:
        known = {p.name: p for p in found}
        if missing := [n for n in chosen if n not in known]:
            raise WeightsError(f"there is no {listed(map(visible, missing))}; there are: {_names(found)}.")
        found = [known[n] for n in chosen]
    if not found:
        layouts = [layout] if layout else [*spec.layouts, OWN]
        wanted = "; ".join(f"{n}: {', '.join(_blocks(spec, n))}" for n in layouts)
        raise WeightsError(
            f"no place in the file has all arrays of '{spec.name}' ({wanted}). It has: {_shapes(named)}."
        )
    params = [_unpacked(spec, p.layout, p.arrays) for p in found]
    directions = 2 if any(p.reverse for p in found) else 1
    if [p.reverse for p in found] != ([False, True] if directions == 2 else [False]) * (len(found) // directions):
        raise WeightsError(f"forward and backward places do not come in pairs: {_names(found)}. Choose with --place.")
    sizes = [_sizes(spec, p) for p in params]
    main, hidden = next(iter(spec.streams.values()))[0], unit_size(spec) or ""
    layer = Recurrent(
        spec,
        sizes[0].get(main, 1),
        sizes[0].get(hidden, 1),
        num_layers=len(found) // directions,
        bidirectional=directions == 2,
        sizes={n: v for n, v in sizes[0].items() if n not in (main, hidden)},
        dtype=dtype,
    )
    layer.load_state_dict(_weights_of(layer, found, params))
    return layer, found


def _weights_of(layer: Recurrent, found: list[Place], params: list[dict[str, Array]]) -> dict[str, Array]:
    """The weights by the layer's names. Raises WeightsError where one has the size of no layer at
    its place."""
    description, weights = layer.stack.description, dict[str, Array]()
    for place, (depth, d), values in zip(found, description.places, params):
        single = description.layers[depth]
        for name, array in values.items():
            wanted = single.full(single.spec.parameters[name])
            if array.shape != wanted:
                raise WeightsError(
                    f"the layers of the file do not fit upon one another: {name} of {_names([place])} has the shape"
                    f" {array.shape}, and {wanted} would be one of layer {depth}. There are: {_names(found)}. Choose"
                    " with --place."
                )
        made = single.weights({n: np.asarray(a, layer.stack.dtype) for n, a in values.items()})
        weights |= {f"{n}{description.suffix(depth, d)}": np.array(a) for n, a in made.items()}
    return weights


def arrays_of(layer: Recurrent, layout: str) -> dict[str, Array]:
    """The weights of a layer in a layout of its cell, by flat name: `layers_0/...` for each layer,
    with two directions `layers_0/forward/...` and `layers_0/backward/...`."""
    description, views = layer.stack.description, layer.stack.weights(layer.weights)
    found: dict[str, Array] = {}
    for place, (depth, d) in enumerate(description.places):
        single = description.layers[depth]
        held = single.kernel.pack(views.cells[place]).params
        way = f"/{('forward', 'backward')[d]}" if len(description.directions) == 2 else ""
        blocks = pack(single.spec, layout, {n: held[n] for n in single.spec.weights})
        found |= {f"layers_{depth}{way}/{name}": array for name, array in blocks.items()}
    return found


def _sizes(spec: Spec, params: Mapping[str, Array]) -> dict[str, int]:
    told = [(name, spec.parameters[name], array.shape) for name, array in params.items()]
    sizes = infer_sizes(spec, told)
    for _, shape, numbers in told:
        for text, number in zip(shape, numbers):
            if len(unknown := size_names(text) - set(sizes)) == 1:  # the D of D + H
                (name,) = unknown
                least, next_one = (evaluate_size(text, {**sizes, name: n}) for n in (0, 1))
                if number >= least and next_one > least and (number - least) % (next_one - least) == 0:
                    sizes[name] = (number - least) // (next_one - least)
    return sizes


def _names(found: list[Place]) -> str:
    return listed([f"{visible(p.name) or '(the top)'}" for p in found]) or "none"


def _shapes(named: Mapping[str, Array]) -> str:
    shown = [f"{visible(n)} {list(a.shape)}" for n, a in list(named.items())[:12]]
    return ", ".join(shown) + (f" and {len(named) - 12} more" if len(named) > 12 else "") if shown else "no arrays"
