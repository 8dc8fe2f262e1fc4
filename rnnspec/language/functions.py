"""The functions of the spec language: one row each, and nothing else says anything of them.

A row either is *primitive* (every backend has its own code under the row's name) or has a `value`
written in the spec language itself, from which every backend derives its code. Derivatives are text
in the spec language over the arguments and `y`, the function's own value, so that the cheaper of
the two can be used: tanh' = 1 - y*y. Adding a function that others can express is one row here, of
which name, arguments, derivatives and value are enough: parsing, differentiation, both targets, the
reference, equations as LaTeX, the checks and the tests take it from the table.

What is code stays where it belongs, under the names of the rows: machine code of the primitives in
`backends/cpu/runtime/vector_math.py`. tests/language/test_functions.py fails where it misses a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from rnnspec.language.function_rows import AB, INF, MILLS, NAN, ODD, Function, V, horner, scale_text

_ROWS = (
    # primitives: code of each backend
    Function(
        "exp",
        V,
        ("y",),
        bounded=False,
        latex=r"\exp",
        limits=(0.0, 1.0, 1.0, INF),
        accurate=True,
        about="e to the power v",
    ),
    Function("expm1", V, ("y + 1",), bounded=False, limits=(-1.0, -0.0, 0.0, INF), about="exp(v) - 1, exact near 0"),
    Function(
        "log",
        V,
        ("1 / v",),
        interval=(0.1, 4.0),
        bounded=False,
        latex=r"\log",
        limits=(NAN, -INF, -INF, INF),
        accurate=True,
        about="natural logarithm",
    ),
    Function(
        "log1p",
        V,
        ("1 / (1 + v)",),
        interval=(-0.8, 4.0),
        bounded=False,
        limits=(NAN, -0.0, 0.0, INF),
        about="log(1 + v), exact near 0",
    ),
    Function(
        "sqrt", V, ("0.5 / y",), interval=(0.1, 4.0), bounded=False, limits=(NAN, -0.0, 0.0, INF), about="square root"
    ),
    Function("sin", V, ("cos(v)",), mirror=0, latex=r"\sin", limits=(NAN, -0.0, 0.0, NAN), about="sine of v radians"),
    Function("cos", V, ("-sin(v)",), latex=r"\cos", limits=(NAN, 1.0, 1.0, NAN), about="cosine of v radians"),
    Function(
        "erf",
        V,
        ("1.1283791670955126 * exp(-v * v)",),
        mirror=0,
        limits=(-1.0, -0.0, 0.0, 1.0),
        accurate=True,
        about="error function; the factor is 2 / sqrt(pi)",
    ),
    Function(
        "tanh",
        V,
        ("1 - y * y",),
        mirror=0,
        range=(-1.0, 1.0),
        latex=r"\tanh",
        limits=(-1.0, -0.0, 0.0, 1.0),
        accurate=True,
        about="hyperbolic tangent",
    ),
    Function(
        "sigmoid",
        V,
        ("y * (1 - y)",),
        mirror=1,
        range=(0.0, 1.0),
        latex=r"\sigma",
        limits=(0.0, 0.5, 0.5, 1.0),
        accurate=True,
        about="1 / (1 + exp(-v)), exact for every v",
    ),
    # Written in the language. NaN comes out as NaN: it takes the last branch of every `where`.
    Function("identity", V, ("1",), "v", limits=ODD, about="v itself"),
    Function(
        "relu",
        V,
        ("where(y <= 0, 0, 1)",),
        "where(v < 0, 0, v)",
        kinks=(0.0,),
        limits=(0.0, -0.0, 0.0, INF),
        about="max(v, 0); relu'(0) = 0",
    ),
    Function(
        "leaky_relu",
        ("v", "slope"),
        ("where(v > 0, 1, slope)", "where(v > 0, 0, v)"),
        "where(v < 0, slope * v, v)",
        kinks=(0.0,),
        limits=ODD,
        others=("0.1",),
        about="v, or slope * v below 0; the derivative at 0 is slope",
    ),
    Function(
        "elu",
        V,
        ("where(v > 0, 1, y + 1)",),
        "where(v > 0, v, expm1(v))",
        limits=(-1.0, -0.0, 0.0, INF),
        about="v, or exp(v) - 1 below 0",
    ),
    Function(
        "selu",
        V,
        ("where(v > 0, 1.0507009873554805, y + 1.7580993408473766)",),
        "where(v > 0, 1.0507009873554805 * v, 1.7580993408473766 * expm1(v))",
        kinks=(0.0,),
        limits=(-1.7580993408473766, -0.0, 0.0, INF),
        about="scaled elu (Klambauer et al. 2017); the constants are lambda and lambda * alpha",
    ),
    Function(
        "gelu",
        V,
        (
            "where(v < -1.5, 0.3989422804014327 * exp(-0.5 * v * v) * (mills(-maximum(v, -40)) + maximum(v, -40)),"
            " 0.5 * (1 + erf(0.7071067811865476 * v)) + 0.3989422804014327 * v * exp(-0.5 * v * v))",
        ),
        # 1 + erf(v) keeps nothing of its digits for v far below 0
        "where(v < -1.5, 0.3989422804014327 * exp(-0.5 * v * v) * (maximum(v, -40) * mills(-maximum(v, -40))),"
        " 0.5 * v * (1 + erf(0.7071067811865476 * v)))",
        limits=(-0.0, -0.0, 0.0, INF),
        extra_digits=400,  # 1 + erf(v) of a value near the smallest number
        about="v times the normal distribution function of v",
    ),
    Function(
        "silu",
        V,
        ("where(v < -60, (1 + maximum(v, -2e3)) * exp(0.5 * v) * exp(0.5 * v), sigmoid(v) * (1 + v * sigmoid(-v)))",),
        # sigmoid(v) has fewer digits than the product where it is below all normal numbers
        "where(v < -60, maximum(v, -2e3) * exp(0.5 * v) * exp(0.5 * v), v * sigmoid(v))",
        limits=(-0.0, -0.0, 0.0, INF),
        about="v * sigmoid(v), also called swish",
    ),
    Function(
        "softplus",
        V,
        ("sigmoid(v)",),
        "where(v < 0, 0, v) + log1p(exp(-abs(v)))",
        limits=(0.0, math.log(2), math.log(2), INF),
        accurate=True,
        about="log(1 + exp(v)), without overflow",
    ),
    Function(
        "softsign",
        V,
        ("1 / (1 + abs(v)) / (1 + abs(v))",),
        "v / (1 + abs(v))",
        range=(-1.0, 1.0),
        limits=(-1.0, -0.0, 0.0, 1.0),
        about="v / (1 + |v|)",
    ),
    Function(
        "log_sigmoid",
        V,
        ("sigmoid(-v)",),
        "where(v < 0, v, 0) - log1p(exp(-abs(v)))",
        limits=(-INF, -math.log(2), -math.log(2), 0.0),
        about="log(sigmoid(v)), without overflow",
    ),
    Function(
        "hard_sigmoid",
        ("v", "slope"),
        ("where(y <= 0 or y >= 1, 0, slope)", "where(y <= 0 or y >= 1, 0, v)"),
        "where(slope * v + 0.5 < 0, 0, where(slope * v + 0.5 > 1, 1, slope * v + 0.5))",
        range=(0.0, 1.0),
        limits=(0.0, 0.5, 0.5, 1.0),
        others=("0.2",),
        about="slope * v + 1/2 cut to [0, 1]; slope is 1/6 in PyTorch and Keras 3, 0.2 in ONNX and Keras 2",
    ),
    Function(
        "hard_tanh",
        V,
        ("where(v <= -1 or v >= 1, 0, 1)",),
        "where(v < -1, -1, where(v > 1, 1, v))",
        kinks=(-1.0, 1.0),
        range=(-1.0, 1.0),
        limits=(-1.0, -0.0, 0.0, 1.0),
        about="v cut to [-1, 1]",
    ),
    Function(
        "abs",
        V,
        ("sign(v)",),
        "where(v < 0, -v, where(v > 0, v, v * v))",
        kinks=(0.0,),
        limits=(INF, 0.0, 0.0, INF),
        about="|v|; abs'(0) = 0",
    ),
    Function(
        "sign",
        V,
        ("0",),
        "where(v > 0, 1, where(v < 0, -1, v))",
        kinks=(0.0,),
        limits=(-1.0, -0.0, 0.0, 1.0),
        about="-1, 0 or 1; its derivative is 0 everywhere",
    ),
    Function(
        "minimum",
        AB,
        ("where(a < b, 1, where(a > b, 0, 0.5))", "where(a < b, 0, where(a > b, 1, 0.5))"),
        "where(a < b, a, where(b < a, b, where(a == b, a, a + b)))",
        latex=r"\min",
        limits=(-INF, -0.0, 0.0, 0.3),
        others=("0.3",),
        about="the smaller; a tie shares the derivative, as in PyTorch",
    ),
    Function(
        "maximum",
        AB,
        ("where(a > b, 1, where(a < b, 0, 0.5))", "where(a > b, 0, where(a < b, 1, 0.5))"),
        "where(a > b, a, where(b > a, b, where(a == b, a, a + b)))",
        latex=r"\max",
        limits=(0.3, 0.3, 0.3, INF),
        others=("0.3",),
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
        limits=(-0.5, -0.0, 0.0, 0.7),
        others=("-0.5", "0.7"),
        about="v cut to [low, high]; clip' = 1 on the closed interval",
    ),
    Function(
        "rsqrt",
        V,
        ("-0.5 * y * y * y",),
        "1 / sqrt(v)",
        interval=(0.1, 4.0),
        bounded=False,
        limits=(NAN, -INF, INF, 0.0),
        about="1 / sqrt(v)",
    ),
    Function("square", V, ("2 * v",), "v * v", bounded=False, limits=(INF, 0.0, 0.0, INF), about="v * v"),
    Function(
        "reciprocal",
        V,
        ("-y * y",),
        "1 / v",
        interval=(0.3, 3.0),
        bounded=False,
        limits=(-0.0, -INF, INF, 0.0),
        about="1 / v",
    ),
    Function("stop_gradient", V, ("0",), "v", surrogate=True, limits=ODD, about="v, through which no gradient flows"),
    Function(
        "straight_through",
        ("value", "via"),
        ("0", "1"),
        "value",
        surrogate=True,
        limits=ODD,
        others=("0.5",),
        about="the value of the first, the derivative of the second",
    ),
    Function(
        "mills",
        V,
        ("v * y - 1",),
        f"({horner(MILLS, '(1 - 8 / (v + 4))')}) / (v + 4)",
        interval=(1.4, 14.0),
        internal=True,
        about="the normal distribution's tail from v on, over its density at v (Mills 1926); for v of 1.4 and more",
    ),
    Function(
        "shifted",
        ("v", "by"),
        ("1", "0"),
        "v - by",
        surrogate=True,
        internal=True,
        neutral="v",
        about="v - by inside something that `by` does not change (softmax): nothing flows to it",
    ),
    Function(
        "scale",
        V,
        ("0",),
        scale_text("v"),
        internal=True,
        neutral="1",
        about="what numbers up to v are multiplied by to be squared and added: 1 for ordinary ones",
    ),
    Function(
        "rescaled",
        ("v", "by"),
        ("by", "0"),
        "v * by",
        surrogate=True,
        internal=True,
        neutral="v",
        about="v * by inside something that `by` does not change (norm, layer_norm)",
    ),
    Function(
        "unscaled",
        ("v", "by"),
        ("1 / by", "0"),
        "v / by",
        surrogate=True,
        internal=True,
        neutral="v",
        about="v / by, which takes back `rescaled`",
    ),
    Function(
        "mean_of",
        ("total", "low", "largest", "count"),
        ("1 / count", "0", "0", "0"),
        "where(largest < 8.673617379884035e-19, total / count, low / count * 1073741824.0)",
        surrogate=True,
        internal=True,
        neutral="total / count",
        about="the mean, by the sum of the numbers over 2**30 unless all are tiny: it does not overflow",
    ),
)

FUNCTIONS: Mapping[str, Function] = MappingProxyType({row.name: row for row in _ROWS})

PRIMITIVES = tuple(name for name, row in FUNCTIONS.items() if row.primitive)
INTERNAL = frozenset(name for name, row in FUNCTIONS.items() if row.internal)
