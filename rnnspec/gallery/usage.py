"""How a cell is used, as text that runs: from a shell, as a layer in NumPy, and as one in PyTorch.

In: a Spec. Out: text.
"""

from __future__ import annotations

from collections.abc import Mapping

from rnnspec.gallery.known import sizes_of
from rnnspec.language.sizes import full_shape, sizes_in, unit_size
from rnnspec.language.spec import Spec

LEAD = {"T": 50, "B": 4}


def shell(spec: Spec) -> str:
    return "\n".join(
        f"rnnspec {command}"
        for command in (f"show {spec.name}", f"check {spec.name}", f"probe {spec.name}", f"train {spec.name}")
    )


def layer(spec: Spec) -> str:
    """A layer in NumPy, of initial weights, on numbers drawn at random."""
    inputs = _inputs(spec, "np.random.default_rng(0).normal(size={}).astype(np.float32)")
    lines = ["import numpy as np", "import rnnspec", "", _sizes(spec), _made(spec, "rnnspec.Recurrent"), *inputs]
    lines.append(f"y, state = layer({'x' if spec.streams else 'np.zeros((T, B, 0), np.float32)'})")
    if len(spec.outputs) == 1:
        lines.append("layer.backward(np.ones_like(y))  # gradients: layer.grads")
    return "\n".join(lines)


def torch(spec: Spec) -> str:
    """The same as a module of PyTorch."""
    lines = ["import torch", "from rnnspec.interop.torch import Recurrent", "", _sizes(spec), _made(spec, "Recurrent")]
    lines += _inputs(spec, "torch.randn{}")
    lines.append(f"y, state = layer({'x' if spec.streams else 'torch.zeros(T, B, 0)'})")
    if len(spec.outputs) == 1:
        lines.append("y.sum().backward()")
    return "\n".join(lines)


def layer_arguments(spec: Spec) -> tuple[int, int, dict[str, int]]:
    """input_size, hidden_size and `sizes` of a layer of the cell."""
    known = sizes_of(spec)
    first = next(iter(spec.streams.values()), ())
    units = unit_size(spec)
    told = {first[0] if first else "", units or ""}
    more = {n: v for n, v in known.items() if n not in told and n in sizes_in(spec.shapes.values())}
    more = {n: v for n, v in more.items() if n not in spec.sizes or spec.sizes[n].default is None}
    width = full_shape(first, known)[0] if first else 1 if spec.streams else 0
    return width, known[units] if units else width, more


def _sizes(spec: Spec) -> str:
    width, hidden, more = layer_arguments(spec)
    known = {**LEAD, "D": width, "H": hidden, **more}
    return f"{', '.join(known)} = {', '.join(map(str, known.values()))}"


def _made(spec: Spec, maker: str) -> str:
    more = layer_arguments(spec)[2]
    sizes = f", sizes={{{', '.join(f'{n!r}: {n}' for n in more)}}}" if more else ""
    return f'layer = {maker}("{spec.name}", D, H{sizes})'


def _inputs(spec: Spec, drawn: str) -> list[str]:
    """x, or all inputs that must be given, by name."""
    known = sizes_of(spec)
    needed = {n: s for n, s in spec.streams.items() if n not in spec.defaults} or dict(list(spec.streams.items())[:1])

    def text(shape: tuple[str, ...], values: Mapping[str, int]) -> str:
        width = layer_arguments(spec)[0]
        full = full_shape(shape, values)
        return drawn.format(f"({', '.join(['T', 'B', *('D' if n == width else str(n) for n in full)])})")

    if not needed:
        return []
    if len(needed) == 1 and list(needed) == list(spec.streams)[:1]:
        return [f"x = {text(next(iter(needed.values())), known)}"]
    return ["x = {", *(f'    "{name}": {text(shape, known)},' for name, shape in needed.items()), "}"]
