"""The functions of the spec language: one row each, and nothing about a function stands anywhere
else.

A row either is *primitive* (every backend has its own code under the row's name) or has a `value`
written in the spec language itself, from which every backend derives its code. Derivatives are text
in the spec language over the arguments and `y`, the function's own value, so that the cheaper of
the two can be used: tanh' = 1 - y*y. Adding a function that others can express is one row here:
parsing, differentiation, both targets, the reference and the tests take it from the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True)
class Function:
    """One elementwise function.

    value: text over `args`, or None for a primitive.
    derivatives: one text per argument, over `args` and `y`; "0" where nothing flows back.
    interval: where tests sample every argument (inside the domain, away from overflow of float32).
    kinks: points of the first argument at which the derivative jumps; the text says which side holds.
    bounded: the derivatives are finite for every argument, infinite ones included; if not, an adjoint of exactly 0 is
        kept 0 by a select, since 0 * inf is NaN.
    """

    name: str
    args: tuple[str, ...]
    derivatives: tuple[str, ...]
    value: str | None = None
    interval: tuple[float, float] = (-3.0, 3.0)
    kinks: tuple[float, ...] = ()
    bounded: bool = True
    about: str = ""

    @property
    def primitive(self) -> bool:
        return self.value is None


V = ("v",)
AB = ("a", "b")

_ROWS = (
    # primitives: each backend has code of its own for these ten
    Function("exp", V, ("y",), bounded=False, about="e to the power v"),
    Function("expm1", V, ("y + 1",), bounded=False, about="exp(v) - 1, exact near 0"),
    Function("log", V, ("1 / v",), interval=(0.1, 4.0), bounded=False, about="natural logarithm"),
    Function("log1p", V, ("1 / (1 + v)",), interval=(-0.8, 4.0), bounded=False, about="log(1 + v), exact near 0"),
    Function("sqrt", V, ("0.5 / y",), interval=(0.1, 4.0), bounded=False, about="square root"),
    Function("sin", V, ("cos(v)",), about="sine of v radians"),
    Function("cos", V, ("-sin(v)",), about="cosine of v radians"),
    Function("erf", V, ("1.1283791670955126 * exp(-v * v)",), about="error function; the factor is 2 / sqrt(pi)"),
    Function("tanh", V, ("1 - y * y",), about="hyperbolic tangent"),
    Function("sigmoid", V, ("y * (1 - y)",), about="1 / (1 + exp(-v)), exact for every v"),
    # Written in the language. NaN must come out as NaN, and let a gradient through: comparisons are
    # false for it, so it
    # takes the last branch.
    Function("identity", V, ("1",), "v", about="v itself"),
    Function("relu", V, ("where(y <= 0, 0, 1)",), "where(v < 0, 0, v)", kinks=(0.0,), about="max(v, 0); relu'(0) = 0"),
    Function(
        "leaky_relu",
        ("v", "slope"),
        ("where(v > 0, 1, slope)", "where(v > 0, 0, v)"),
        "where(v < 0, slope * v, v)",
        kinks=(0.0,),
        about="v, or slope * v below 0; the derivative at 0 is slope",
    ),
    Function("elu", V, ("where(v > 0, 1, y + 1)",), "where(v > 0, v, expm1(v))", about="v, or exp(v) - 1 below 0"),
    Function(
        "selu",
        V,
        ("where(v > 0, 1.0507009873554805, y + 1.7580993408473766)",),
        "where(v > 0, 1.0507009873554805 * v, 1.7580993408473766 * expm1(v))",
        kinks=(0.0,),
        about="scaled elu (Klambauer et al. 2017); the constants are lambda and lambda * alpha",
    ),
    Function(
        "gelu",
        V,
        ("0.5 * (1 + erf(0.7071067811865476 * v)) + 0.3989422804014327 * v * exp(-0.5 * v * v)",),
        "0.5 * v * (1 + erf(0.7071067811865476 * v))",
        about="v times the normal distribution function of v",
    ),
    Function(
        "silu",
        V,
        ("sigmoid(v) * (1 + v * (1 - sigmoid(v)))",),
        "v * sigmoid(v)",
        about="v * sigmoid(v), also called swish",
    ),
    Function(
        "softplus",
        V,
        ("sigmoid(v)",),
        "where(v < 0, 0, v) + log1p(exp(-abs(v)))",
        about="log(1 + exp(v)), without overflow",
    ),
    Function("softsign", V, ("1 / ((1 + abs(v)) * (1 + abs(v)))",), "v / (1 + abs(v))", about="v / (1 + |v|)"),
    Function(
        "log_sigmoid",
        V,
        ("sigmoid(-v)",),
        "where(v < 0, v, 0 * v) - log1p(exp(-abs(v)))",
        about="log(sigmoid(v)), without overflow",
    ),
    Function(
        "hard_sigmoid",
        ("v", "slope"),
        ("where(y <= 0 or y >= 1, 0, slope)", "where(y <= 0 or y >= 1, 0, v)"),
        "where(slope * v + 0.5 < 0, 0, where(slope * v + 0.5 > 1, 1, slope * v + 0.5))",
        about="slope * v + 1/2 cut to [0, 1]; slope is 1/6 in PyTorch and Keras 3, 0.2 in ONNX and Keras 2",
    ),
    Function(
        "hard_tanh",
        V,
        ("where(v <= -1 or v >= 1, 0, 1)",),
        "where(v < -1, -1, where(v > 1, 1, v))",
        kinks=(-1.0, 1.0),
        about="v cut to [-1, 1]",
    ),
    Function(
        "abs", V, ("sign(v)",), "where(v < 0, -v, where(v > 0, v, v * v))", kinks=(0.0,), about="|v|; abs'(0) = 0"
    ),
    Function(
        "sign",
        V,
        ("0",),
        "where(v > 0, 1, where(v < 0, -1, v))",
        kinks=(0.0,),
        about="-1, 0 or 1; its derivative is 0 everywhere",
    ),
    Function(
        "minimum",
        AB,
        ("where(a < b, 1, where(a > b, 0, 0.5))", "where(a < b, 0, where(a > b, 1, 0.5))"),
        "where(a < b, a, where(b < a, b, 0.5 * a + 0.5 * b))",
        about="the smaller; a tie shares the derivative, as in PyTorch",
    ),
    Function(
        "maximum",
        AB,
        ("where(a > b, 1, where(a < b, 0, 0.5))", "where(a > b, 0, where(a < b, 1, 0.5))"),
        "where(a > b, a, where(b > a, b, 0.5 * a + 0.5 * b))",
        about="the larger; a tie shares the derivative, as in PyTorch",
    ),
    Function(
        "clip",
        ("v", "low", "high"),
        (
            "where(v < low, 0, where(v > high, 0, 1))",
            "where(v < low, 1, 0)",
            "where(v < low, 0, where(v > high, 1, 0))",
        ),
        "where(v < low, low, where(v > high, high, v))",
        about="v cut to [low, high]; clip' = 1 on the closed interval",
    ),
    Function("rsqrt", V, ("-0.5 * y * y * y",), "1 / sqrt(v)", interval=(0.1, 4.0), bounded=False, about="1 / sqrt(v)"),
    Function("square", V, ("2 * v",), "v * v", bounded=False, about="v * v"),
    Function("reciprocal", V, ("-y * y",), "1 / v", interval=(0.3, 3.0), bounded=False, about="1 / v"),
    Function("stop_gradient", V, ("0",), "v", about="v, through which no gradient flows"),
    Function(
        "straight_through",
        ("value", "via"),
        ("0", "1"),
        "value",
        about="the value of the first, the derivative of the second",
    ),
    Function(
        "shifted",
        ("v", "by"),
        ("1", "0"),
        "v - by",
        about="v - by inside something that `by` does not change (softmax): nothing flows to it",
    ),
)

FUNCTIONS: Mapping[str, Function] = MappingProxyType({row.name: row for row in _ROWS})

INTERNAL = frozenset({"shifted"})  # of the graph; a spec can't name them


@dataclass(frozen=True)
class Feature:
    """One function that looks along the feature axis or changes the shape. `args` that are in
    capitals are sizes; the graph nodes that it becomes are in `symbolic/features.py`, the shapes
    that it takes and gives in `language/features.py`."""

    name: str
    args: tuple[str, ...]
    about: str
    numbers: tuple[str, ...] = ()

    def kind(self, position: int) -> Literal["operand", "number", "size"]:
        """What the argument at a position is; all after the last are like it (`concat(a, b, ...)`)."""
        name = self.args[min(position, len(self.args) - 1)]
        return "size" if name.isupper() else "number" if name in self.numbers else "operand"


FEATURES: Mapping[str, Feature] = MappingProxyType(
    {
        row.name: row
        for row in (
            Feature("sum", V, "sum of all elements"),
            Feature("mean", V, "mean of all elements"),
            Feature("max", V, "largest element; a tie shares the derivative"),
            Feature("dot", ("u", "v"), "sum of u * v"),
            Feature("norm", V, "square root of the sum of squares; its derivative at 0 is 0"),
            Feature("softmax", V, "exp(v) / sum(exp(v)), without overflow"),
            Feature("cumsum", V, "running sum, from the first element"),
            Feature("cumax", V, "cumsum(softmax(v))"),
            Feature("layer_norm", ("v", "eps"), "(v - mean(v)) / sqrt(mean((v - mean(v))**2) + eps)", ("eps",)),
            Feature("concat", ("a", "b", "..."), "one vector after another; a number is one element"),
            Feature("part", ("v", "FIRST", "LENGTH"), "LENGTH elements from the FIRST on, counted from 0"),
            Feature("outer", ("u", "v"), "the matrix of all products u_i * v_j"),
            Feature("diag", V, "the square matrix with v on its diagonal"),
            Feature("eye", ("SIZE",), "the identity matrix"),
        )
    }
)
