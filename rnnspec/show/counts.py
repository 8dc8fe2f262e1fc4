"""How many numbers a cell trains, and what a step of it takes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rnnspec.errors import UnsupportedError
from rnnspec.language.features import FEATURES
from rnnspec.language.load import digest
from rnnspec.language.meaning.shapes import shape_of
from rnnspec.language.roles import gate_names
from rnnspec.language.sizes import SizeError, canonical_size, full_shape, sizes_in, with_default_sizes
from rnnspec.language.spec import Shape, Size, Spec
from rnnspec.language.syntax.tree import Binary, Call, Expr, Number, Ref, Unary, children

SIZE, OTHER = 128, 8


def known_sizes(spec: Spec, size: int = SIZE) -> dict[str, int]:
    """The sizes that a cell is counted at: D and H are `size`, others what their default says, or
    8. SizeError where a default has no value."""
    free = {
        n: size if n in ("D", "H") else OTHER
        for n, s in all_sizes(spec).items()
        if n in ("D", "H") or s.default is None
    }
    return with_default_sizes(spec.sizes, free)


def parameter_count(spec: Spec, sizes: Mapping[str, int]) -> int:
    """How many numbers a cell trains at these sizes; sizes with a default may be left out. Does not
    depend on T or B.

    Raises SizeError, naming the sizes that are missing.
    """
    known = with_default_sizes(spec.sizes, sizes)
    return sum(math.prod(full_shape(shape, known)) for shape in spec.trained.values())


def parameter_formula(spec: Spec) -> str:
    """The number of parameters in the sizes: "4*D*H + 4*H*H + 4*H"."""
    total = "0"
    for shape in spec.trained.values():
        count = "*".join(f"({axis})" for axis in shape) or "1"
        total = canonical_size(f"{total} + {count}")
    return total


def size_names_of(spec: Spec) -> list[str]:
    return list(dict.fromkeys([*sizes_in(spec.shapes.values()), *spec.sizes]))


def all_sizes(spec: Spec) -> dict[str, Size]:
    return {n: spec.sizes.get(n, Size()) for n in size_names_of(spec)}


# numbers


def counts(spec: Spec, size: int = SIZE) -> dict[str, int | None]:
    """How many numbers a layer trains and what a step of it takes, at `known_sizes`; None if one of
    these can't be evaluated."""
    found: dict[str, int | None] = {"parameters": None, "flop": None}
    with suppress(SizeError):
        sizes = known_sizes(spec, size)
        found["parameters"] = parameter_count(spec, sizes)
        found["flop"] = count_operations(spec, sizes)
    return found


def count_operations(spec: Spec, sizes: Mapping[str, int]) -> int:
    """Floating-point operations of a step of one row: two for each entry of a matrix in a product,
    one for each element of another operation or function. What is computed once per sequence is not
    counted. SizeError where a size is not known."""
    return sum(_operations(e.value, spec, sizes) for e in spec.equations if e.timed)


def _count(shape: Shape, sizes: Mapping[str, int]) -> int:
    return math.prod(full_shape(shape, sizes))


def _operations(expr: Expr, spec: Spec, sizes: Mapping[str, int]) -> int:
    def shape(part: Expr) -> Shape:
        return shape_of(part, spec.shapes, spec.sizes)

    row = FEATURES.get(expr.function) if isinstance(expr, Call) else None
    parts = [p for at, p in enumerate(children(expr)) if row is None or row.kind(at) != "size"]
    inner = sum(_operations(part, spec, sizes) for part in parts)
    match expr:
        case Number() | Ref():
            return 0
        case Unary("T", _):
            return inner
        case Binary("@", left, right):
            return inner + 2 * _product(shape(left), shape(right), sizes)
        case Call(_, (first, *_)) if row is not None:
            return inner if row.moves else inner + max(_count(shape(a), sizes) for a in (expr, first))
    return inner + _count(shape(expr), sizes)


def _product(left: Shape, right: Shape, sizes: Mapping[str, int]) -> int:
    return _count(left, sizes) * _count(right[1:], sizes) if len(left) == 2 else _count(right, sizes)


def recurrent_stages(spec: Spec) -> int | None:
    """Products that wait for one another in a step, 0 for an elementwise recurrence; None where
    there are no kernels. Kept on disk."""

    def made() -> str:
        from rnnspec.lowering.pipeline import stages

        try:
            return str(stages(spec).forward.recurrent_stages())
        except UnsupportedError:
            return "none"

    known = _kept(spec, "stages", made)
    return int(known) if known.isdigit() else None


def jacobian_text(spec: Spec) -> dict[str, dict[str, str]]:
    """The structure of a step's Jacobian in words: state after the step -> state before it. Kept on
    disk."""

    def made() -> str:
        from rnnspec.lowering.pipeline import jacobian

        told = jacobian(spec)
        return json.dumps({a: {b: s.to_text() for b, s in row.items()} for a, row in told.items()})

    found: dict[str, dict[str, str]] = json.loads(_kept(spec, "jacobian", made))
    return found


def row(spec: Spec, stats: bool = False) -> dict[str, Any]:
    """The cell's row; "stages" and "jacobian" only with `stats`, since it is built for them."""
    return {
        "name": spec.name,
        "title": spec.title,
        "year": spec.source.year,
        "states": list(spec.states),
        "gates": gate_names(spec),
        **counts(spec),
        **({"stages": recurrent_stages(spec), "jacobian": jacobian_text(spec)} if stats else {}),
        "libraries": sorted(spec.layouts),
        "outputs": list(spec.outputs),
        "source": spec.source.to_dict(),
    }


def _kept(spec: Spec, what: str, make: Callable[[], str]) -> str:
    """What was made of a spec, kept on disk for as long as nothing changes it is made by."""
    from rnnspec.backends.cpu.emit.texts import generator_digest
    from rnnspec.storage.texts import recall, remember

    key = f"{digest(spec)[:16]}{generator_digest()[:16]}"
    known = recall(f"{spec.name}_{what}", key)
    if known is None:
        known = make()
        remember(f"{spec.name}_{what}", key, known)
    return known
