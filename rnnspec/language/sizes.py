"""Sizes of arrays: `D + H`, `4*H`, in one canonical text, so that equal expressions are equal
strings.

Sums and products of size names and whole numbers; nothing is ever evaluated as Python. A difference
can be evaluated, but no shape may be written as one.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, KeysView, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from rnnspec.errors import RnnspecError, SpecError
from rnnspec.language.syntax.parse import parse_expression
from rnnspec.language.syntax.tree import Binary, Expr, Number, Ref, Unary, walk

if TYPE_CHECKING:
    from rnnspec.language.spec import Shape, Size, Spec

_Terms = dict[tuple[str, ...], int]  # product of names, sorted -> how often: D*H + 2 is {("D", "H"): 1, (): 2}
_MOST = 10**9
_FORM = "a size is a name, a whole number from 1, or a sum or product of those: D, 3, D + H, 4*H"
_MINUS_ONE = Number(Fraction(-1))
_LONGEST = 200  # characters of a size, as it is written and as it is written out
_NO_WORDS = frozenset({"true", "false", "null", "~", "yes", "no", "on", "off", ".inf", ".nan", "inf", "nan"})


class SizeError(RnnspecError, ValueError):
    """The text is no size, or can't be evaluated; the message says why."""


def canonical_size(text: str) -> str:
    """`H + D` and `D + H*1` both give `D + H`. Raises SizeError."""
    if "-" in text:
        raise SizeError(_FORM)
    return _positive(dict(_terms(text)), _FORM)


def reads_as_size(text: str) -> bool:
    """Whether a text is meant as a number or an expression, and not as words: 012 and 2 * Q are,
    whether they are sizes or not. Of a single word only the names that there are can tell."""
    if text.lower() in _NO_WORDS or (text[:1] in "+-." and text[1:2].isnumeric()):
        return True
    if " " not in text and text[:1].isnumeric():  # 012, 0x10, 1_000
        return True
    try:
        parts = list(walk(parse_expression(text)))
    except SpecError:
        return False
    if not all(isinstance(part, Number | Ref | Binary | Unary) for part in parts):
        return False
    formula = ("+", "*", "**")  # while "hidden-units" and "rows/columns" are words
    return any(isinstance(p, Number | Unary) or (isinstance(p, Binary) and p.op in formula) for p in parts)


def size_of(expr: Expr) -> str:
    """The size that an expression of an equation stands for, like the D + H of part(v, 0, D + H).
    Raises SizeError."""
    return _positive(_collect(expr), "a size that may be below 0 is not offered")


def remainder(total: str, *parts: str) -> str:
    """total - parts, where that can't be below 0 whatever the sizes are. Raises SizeError where it
    may be."""
    left = dict(_terms(total))
    for part in parts:
        for names, count in _terms(part):
            left[names] = left.get(names, 0) - count
    return _positive(left, f"{' + '.join(parts)} may be more than {total}")


def substituted(text: str, values: Mapping[str, int]) -> str:
    """The size with numbers in place of some of its names."""
    found: _Terms = {}
    for names, count in _terms(text):
        for name in names:
            count *= values.get(name, 1)
        left = tuple(name for name in names if name not in values)
        found[left] = found.get(left, 0) + count
    return _positive(_bounded(found), _FORM)


def _positive(terms: _Terms, otherwise: str) -> str:
    if any(count < 0 for count in terms.values()):
        raise SizeError(otherwise)
    ordered = sorted(((n, c) for n, c in terms.items() if c), key=lambda term: (not term[0], term[0]))
    text = " + ".join(_term(names, count) for names, count in ordered) or "0"
    if len(text) > _LONGEST:
        raise SizeError(f"a size that has over {_LONGEST} characters when it is written out is not offered")
    return text


def size_names(text: str) -> frozenset[str]:
    """The names that occur in a size."""
    return frozenset(name for names, _ in _terms(text) for name in names)


def sizes_in(shapes: Iterable[Shape]) -> KeysView[str]:
    """The names that occur in some shapes, in the order of first use."""
    return dict.fromkeys(name for shape in shapes for size in shape for name in sorted(size_names(size))).keys()


def evaluate_size(text: str, env: Mapping[str, int]) -> int:
    """The number that a size expression stands for: `evaluate_size("D + H", {"D": 2, "H": 3})` is
    5.

    Raises SizeError, naming the sizes that `env` lacks.
    """
    if text in env:
        return env[text]
    missing = sorted(size_names(text) - set(env))
    if missing:
        raise SizeError(f"the size {text} needs {', '.join(missing)}, which nothing tells")
    total = 0
    for names, count in _terms(text):
        for name in names:
            count *= env[name]
        total += count
    return total


def full_shape(shape: Shape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape in numbers: `full_shape(("H", "D + H"), {"D": 2, "H": 3})` is (3, 5). Raises
    SizeError, as `evaluate_size` does."""
    return tuple(evaluate_size(size, sizes) for size in shape)


def with_default_sizes(declared: Mapping[str, Size], known: Mapping[str, int]) -> dict[str, int]:
    """The sizes known so far, and those whose defaults follow from them, directly or through
    another default."""
    sizes, count = dict(known), -1
    while len(sizes) > count:
        count = len(sizes)
        for name, size in declared.items():
            if name not in sizes and size.default is not None and size_names(size.default) <= set(sizes):
                sizes[name] = evaluate_size(size.default, sizes)
    return sizes


def check_size_value(name: str, value: object) -> None:
    """Raises ValueError unless the value can be a size: a whole number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 0:
        raise ValueError(f"size {name} must be a whole number of at least 0, got {value!r}.")


def unit_axis(spec: Spec) -> str | None:
    """The axis along which a cell's units lie: H where the cell has it, else the first axis of its
    first state for which that has a name, else that of its first vector state, such as N + 1. None
    for a cell of numbers."""
    if "H" in sizes_in(spec.shapes.values()):
        return "H"
    axes = [shape[0] for shape in spec.states.values() if shape]
    return next((axis for axis in axes if axis.isidentifier()), next(iter(axes), None))


def unit_size(spec: Spec) -> str | None:
    """The size of a cell that a layer's `hidden_size` means: that of its units, where it has a
    name."""
    axis = unit_axis(spec)
    return axis if axis is not None and axis.isidentifier() else None


def _term(names: tuple[str, ...], count: int) -> str:
    return "*".join([str(count)] * (count != 1 or not names) + list(names))


@lru_cache(maxsize=1024)
def _terms(text: str) -> tuple[tuple[tuple[str, ...], int], ...]:
    if len(text) > _LONGEST:
        raise SizeError(f"a size of over {_LONGEST} characters is not offered")
    try:
        terms = _collect(parse_expression(text))
    except SpecError as error:
        raise SizeError(f"'{text}' is not a size ({error.errors[0].message.rstrip('.')})") from None
    return tuple(sorted(((n, c) for n, c in terms.items() if c), key=lambda term: (not term[0], term[0])))


def _collect(expr: Expr) -> _Terms:
    match expr:
        case Number(value) if value.denominator == 1 and 0 <= value < _MOST:
            return {(): int(value)}
        case Ref(name, None):
            return {(name,): 1}
        case Binary("+", left, right):
            total = dict(_collect(left))
            for names, count in _collect(right).items():
                total[names] = total.get(names, 0) + count
            return _bounded(total)
        case Binary("-", left, right):
            return _collect(Binary("+", left, Binary("*", _MINUS_ONE, right)))
        case Number(value) if value.denominator == 1 and -_MOST < value < 0:
            return {(): int(value)}
        case Binary("*", left, right):
            product: _Terms = {}
            for a, m in _collect(left).items():
                for b, n in _collect(right).items():
                    names = tuple(sorted(a + b))
                    product[names] = product.get(names, 0) + m * n
            return _bounded(product)
    raise SizeError(_FORM)


def _bounded(terms: _Terms) -> _Terms:
    if len(terms) > 32 or any(len(names) > 8 or abs(count) > _MOST for names, count in terms.items()):
        raise SizeError("the size has too many terms")
    return terms
