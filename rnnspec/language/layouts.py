"""How other libraries pack the parameters: between {"W_i": ...} and {"weight_ih": ...}.

A layout says, block by block, which parameters stand one under another (along the first axis):

    torch.LSTM: {weight_ih: [W_i, W_f, W_g, W_o], ...}

- A block called `kernel.T` is the transpose: Keras' `kernel` is [D, 4*H].
- Blocks called `bias[0]`, `bias[1]` are the rows of one array `bias`: Keras' GRU.
- A parameter that stands in two places is their sum (PyTorch's two biases): unpacking adds; packing
  puts the whole into the first place and zeros into the others; its gradient goes to both.
- `0` is a part that the library has and does not use: zeros when packing, not read when unpacking.

Arrays are NumPy's, or anything that NumPy takes; what comes out are new arrays of the parameters'
dtype.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rnnspec.errors import RnnspecError, ShapeError
from rnnspec.language.meaning.extras import ZERO
from rnnspec.language.sizes import SizeError, evaluate_size, full_shape, size_names
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.faults import did_you_mean, listed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

    Array = np.ndarray

_ROW = re.compile(r"(.+)\[([0-9]+)\]")


def pack(spec: Spec, layout: str, params: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """The library's arrays, by the library's names, from one array per parameter. Raises
    ShapeError, naming all that is wrong."""
    return _packed(spec, layout, params, repeat=False)


def pack_gradients(spec: Spec, layout: str, gradients: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """The gradients of the library's arrays from those of the parameters: a place of a sum has the
    gradient of the sum. None of what is fixed."""
    return _packed(spec, layout, gradients, repeat=True)


def unpack(spec: Spec, layout: str, blocks: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """One array per parameter from the library's arrays. Raises ShapeError, naming all that is
    wrong.

    The shapes follow from the arrays themselves: no size need be given.
    """
    import numpy as np

    places = _blocks(spec, layout)
    arrays = _taken_apart(places, {name: np.asarray(value) for name, value in blocks.items()}, layout)
    sizes = _sizes(spec, places, arrays)
    wrong: list[str] = []
    found: dict[str, Array] = {}
    for block, names in places.items():
        array = arrays[block]
        lengths = [_length(spec, name, names, sizes) for name in names]
        rows = sum(n for n in lengths if n is not None)
        if None in lengths or array.ndim == 0 or array.shape[0] != rows:
            wrong.append(f"'{block}' has the shape {array.shape}, and {', '.join(names)} can't be cut from it")
            continue
        start = 0
        for name, length in zip(names, lengths):
            part, start = array[start : start + (length or 0)], start + (length or 0)
            if name == ZERO:
                continue
            wanted = full_shape(spec.parameters[name], sizes)
            part = part.reshape(wanted) if not wanted and part.size == 1 else part
            if part.shape != wanted:
                wrong.append(f"'{name}' in '{block}' would have the shape {part.shape}, not {wanted}")
            else:
                found[name] = found[name] + part if name in found else np.array(part)
    if wrong:
        raise ShapeError(f"layout '{layout}' of '{spec.name}': {'; '.join(wrong)}.")
    return {name: found[name] for name in spec.weights}


def blocks_of(spec: Spec, layout: str) -> list[str]:
    """The names of the library's arrays, in the layout's order."""
    return list(dict.fromkeys(_library_name(block)[0] for block in _blocks(spec, layout)))


def _blocks(spec: Spec, layout: str) -> Mapping[str, tuple[str, ...]]:
    if layout not in spec.layouts:
        near = did_you_mean(layout, spec.layouts)
        raise RnnspecError(f"the cell '{spec.name}' has no layout '{layout}'.{near} It has: {listed(spec.layouts)}.")
    return spec.layouts[layout]


def _packed(spec: Spec, layout: str, params: Mapping[str, ArrayLike], repeat: bool) -> dict[str, Array]:
    import numpy as np

    places = _blocks(spec, layout)
    arrays = {name: np.asarray(value) for name, value in params.items()}
    _check_parameters(spec, layout, arrays, spec.trained if repeat else spec.weights)
    given: set[str] = set()
    parts: dict[str, Array] = {}
    for block, names in places.items():
        if repeat and any(n in spec.fixed for n in names):
            continue
        like = arrays[next(n for n in names if n != ZERO)]
        pieces = []
        for name in names:
            array = (
                np.zeros_like(like)
                if name == ZERO
                else arrays[name]
                if repeat or name not in given
                else np.zeros_like(arrays[name])
            )
            given.add(name)
            pieces.append(np.atleast_1d(array))
        parts[block] = np.concatenate(pieces)
    return _put_together(parts)


def _check_parameters(spec: Spec, layout: str, arrays: Mapping[str, Array], needed: Iterable[str]) -> None:
    wrong = [f"'{name}' is missing" for name in needed if name not in arrays]
    wrong += [
        f"'{name}' is no parameter of it{_hint(name, spec.parameters)}"
        for name in arrays
        if name not in spec.parameters
    ]
    sizes: dict[str, int] = {}
    for name, shape in spec.parameters.items():
        if name in arrays and arrays[name].ndim == len(shape):
            for size, number in zip(shape, arrays[name].shape):
                sizes.setdefault(size, number)
    for name, shape in spec.parameters.items():
        if name not in arrays:
            continue
        try:
            wanted = full_shape(shape, sizes)
        except SizeError:
            wanted = None
        if arrays[name].shape != wanted:
            text = ", ".join(shape)
            wrong.append(
                f"'{name}' [{text}] has the shape {arrays[name].shape}"
                + (f", not {wanted}" if wanted is not None else "")
            )
    if wrong:
        raise ShapeError(f"layout '{layout}' of '{spec.name}': {'; '.join(wrong)}.")


def _hint(name: str, known: Iterable[str]) -> str:
    near = did_you_mean(name, known).strip()
    return f" ({near})" if near else ""


def _library_name(block: str) -> tuple[str, int | None]:
    """The library's array that a block is, and which row of it: `kernel.T` is kernel, `bias[1]` row
    1 of bias."""
    row = _ROW.fullmatch(block)
    return (row[1], int(row[2])) if row else (block.removesuffix(".T"), None)


def _put_together(parts: Mapping[str, Array]) -> dict[str, Array]:
    import numpy as np

    rows: dict[str, dict[int, Array]] = {}
    found: dict[str, Array] = {}
    for block, array in parts.items():
        name, row = _library_name(block)
        if row is not None:
            rows.setdefault(name, {})[row] = array
        found[name] = np.ascontiguousarray(array.T) if block.endswith(".T") else array
    return found | {name: np.stack([by_row[k] for k in sorted(by_row)]) for name, by_row in rows.items()}


def _taken_apart(places: Mapping[str, tuple[str, ...]], arrays: Mapping[str, Array], layout: str) -> dict[str, Array]:
    """The array of each block; what is missing, unknown or has too few rows is listed in one
    error."""
    known = [_library_name(block)[0] for block in places]
    wrong = [f"'{name}' is missing" for name in dict.fromkeys(known) if name not in arrays]
    wrong += [f"'{name}' is unknown{_hint(name, known)}" for name in arrays if name not in known]
    found: dict[str, Array] = {}
    for block in places:
        name, row = _library_name(block)
        if name in arrays and row is not None and (arrays[name].ndim == 0 or len(arrays[name]) <= row):
            wrong.append(f"'{name}' has the shape {arrays[name].shape} and no row {row}")
        elif name in arrays:
            found[block] = arrays[name] if row is None else arrays[name][row]
            found[block] = found[block].T if block.endswith(".T") else found[block]
    if wrong:
        raise ShapeError(f"layout '{layout}': {'; '.join(wrong)}. It has: {listed(dict.fromkeys(known))}.")
    return found


def _sizes(spec: Spec, places: Mapping[str, tuple[str, ...]], arrays: Mapping[str, Array]) -> dict[str, int]:
    """What the arrays tell about the sizes: the last axis at once, the first where all parts have
    one length."""
    sizes: dict[str, int] = {}
    for block, names in places.items():
        shapes = [spec.parameters[n] for n in names if n != ZERO]
        array = arrays[block]
        if array.ndim == 2 and len(shapes[0]) == 2:
            sizes.setdefault(shapes[0][1], array.shape[1])
        firsts = {shape[0] for shape in shapes if shape}
        if len(firsts) == 1 and array.ndim and array.shape[0] % len(names) == 0:
            sizes.setdefault(firsts.pop(), array.shape[0] // len(names))
    return sizes


def _length(spec: Spec, name: str, names: tuple[str, ...], sizes: Mapping[str, int]) -> int | None:
    """How many rows a part has; None where the sizes do not tell."""
    shape = spec.parameters[next(n for n in names if n != ZERO) if name == ZERO else name]
    if not shape:
        return 1
    return evaluate_size(shape[0], sizes) if shape[0] in sizes or size_names(shape[0]) <= set(sizes) else None
