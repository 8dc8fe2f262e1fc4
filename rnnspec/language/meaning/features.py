"""The shapes that functions along the feature axis take and give, and what is wrong where they do
not fit.

In: a call and the shapes of its arguments. Out: the shape of its value, or what to tell. The
functions are rows of `features.FEATURES`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rnnspec.language.sizes import SizeError, canonical_size, remainder, size_of
from rnnspec.language.spec import Shape
from rnnspec.language.syntax.tree import Expr, to_text


class FeatureError(ValueError):
    """The arguments do not fit; the message says why."""


def shown(shape: Shape) -> str:
    return f"[{', '.join(shape)}]" if shape else "one number"


def described(expr: Expr, shape: Shape) -> str:
    text = to_text(expr)
    return f"{text if len(text) <= 40 else text[:37] + '...'} is {shown(shape)}"


def feature_shape(name: str, args: Sequence[Expr], shapes: Sequence[Shape]) -> Shape:
    """The shape of `name(args)`. Sizes among the arguments have the shape (). Raises
    FeatureError."""
    match name:
        case "sum" | "mean" | "max" | "norm":
            if not shapes[0]:
                raise FeatureError(f"'{name}' takes a vector or a matrix, and {described(args[0], shapes[0])}.")
            return ()
        case "softmax" | "cumsum" | "cumax":
            return _vector(name, args[0], shapes[0])
        case "layer_norm":
            if shapes[1]:
                raise FeatureError(f"the eps of layer_norm(v, eps) is one number, and {described(args[1], shapes[1])}.")
            return _vector(name, args[0], shapes[0])
        case "dot":
            if _vector(name, args[0], shapes[0]) != _vector(name, args[1], shapes[1]):
                raise FeatureError(
                    f"'dot' takes two vectors of one size, and {described(args[0], shapes[0])},"
                    f" {described(args[1], shapes[1])}."
                )
            return ()
        case "outer":
            return _vector(name, args[0], shapes[0]) + _vector(name, args[1], shapes[1])
        case "diag":
            return 2 * _vector(name, args[0], shapes[0])
        case "ones":
            return (_positive(size_of(args[0]), "ones(size)"),)
        case "eye":
            return 2 * (_positive(size_of(args[0]), "eye(size)"),)
        case "concat":
            return _joined(args, shapes)
        case "part":
            return _part(args, _vector(name, args[0], shapes[0]))
    raise TypeError(f"no feature function: {name}")


def _vector(name: str, arg: Expr, shape: Shape) -> Shape:
    if len(shape) != 1:
        product = " Write '@' for the product of a matrix and a vector." if name == "dot" and len(shape) == 2 else ""
        raise FeatureError(f"'{name}' takes a vector, and {described(arg, shape)}.{product}")
    return shape


def _positive(size: str, where: str) -> str:
    if size == "0":
        raise FeatureError(f"a size of 0 in {where}: sizes start at 1.")
    return size


def _joined(args: Sequence[Expr], shapes: Sequence[Shape]) -> Shape:
    for arg, shape in zip(args, shapes):
        if len(shape) > 1:
            raise FeatureError(f"'concat' takes vectors and numbers, and {described(arg, shape)}.")
    try:
        return (canonical_size(" + ".join(f"({shape[0]})" if shape else "1" for shape in shapes)),)
    except SizeError as error:
        raise FeatureError(f"the vectors of concat have no size that could be written: {error}.") from None


def _part(args: Sequence[Expr], shape: Shape) -> Shape:
    first, length = size_of(args[1]), _positive(size_of(args[2]), "part(v, first, length)")
    try:
        remainder(shape[0], first, length)
    except SizeError:
        raise FeatureError(
            f"the part of {length} elements from {first} on may not lie within {to_text(args[0])[:40]}, which is"
            f" {shown(shape)}. Declare the vector as long as its parts: [{first} + {length}].".replace("[0 + ", "[")
        ) from None
    return (length,)
