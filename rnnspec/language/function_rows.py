"""What a row of the table of functions is, and the texts of rows that have no short form."""

from __future__ import annotations

import math
from dataclasses import dataclass

INF, NAN = math.inf, math.nan


@dataclass(frozen=True)
class Function:
    """One elementwise function.

    value: text over `args`, or None for a primitive.
    derivatives: one text per argument, over `args` and `y`; "0" where nothing flows back.
    interval: where tests sample every argument (inside the domain, away from overflow of float32).
    kinks: points of the first argument at which the derivative jumps; the text says which side
        holds.
    bounded: the derivatives are finite for every argument, infinite ones included; if not, an
        adjoint of exactly 0 is kept 0 by a select, since 0 * inf is NaN.
    surrogate: the derivatives are meant to be others than those of the value.
    internal: of the graph only; a spec can't name it.
    neutral: of an internal one, what it may be taken for, since the whole does not change by it.
    mirror: of a primitive, m where f(-v) is m - f(v) for every v: 0 if it is odd. Of the others
        their value shows it.
    range: of a function that squashes, the ends that it comes near; one from 0 to 1 makes gates.
    latex: how it is written: what stands before the brackets, or a format of the arguments as that
        of a Feature; "" for its name in upright letters.
    binding: how tightly what the format makes binds.
    limits: the limit at -inf, the values at -0.0 and 0.0, the limit at inf, which checks compare;
        None where they are not stated. NaN gives NaN.
    others: what the arguments after the first are where the function alone is measured, as text.
    accurate: checks hold it to few units in the last place everywhere; of others they show the
        errors.
    extra_digits: digits that may cancel in the definition.
    """

    name: str
    args: tuple[str, ...]
    derivatives: tuple[str, ...]
    value: str | None = None
    interval: tuple[float, float] = (-3.0, 3.0)
    kinks: tuple[float, ...] = ()
    bounded: bool = True
    surrogate: bool = False
    internal: bool = False
    neutral: str = ""
    mirror: int | None = None
    range: tuple[float, float] | None = None
    latex: str = ""
    binding: int = 3
    limits: tuple[float, float, float, float] | None = None
    others: tuple[str, ...] = ()
    accurate: bool = False
    extra_digits: int = 20
    about: str = ""

    @property
    def primitive(self) -> bool:
        return self.value is None

    def call(self, first: str) -> str:
        """A call with `first` as the first argument and, behind it, what the others are where the
        function is measured."""
        unsaid = ("0.3",) * (len(self.args) - 1 - len(self.others))
        return f"{self.name}({', '.join([first, *self.others, *unsaid])})"


V = ("v",)
AB = ("a", "b")
ODD = (-INF, -0.0, 0.0, INF)  # the limits of what is like v itself

# Mills' ratio times (v + 4), by u = (v - 4) / (v + 4), highest power first, for v of 1.4 and more:
# a Chebyshev fit in mpmath with 40 digits; the largest error of the fit is 1.1e-17
MILLS = (
    9.694898714446178e-08,
    -1.8207544563800943e-07,
    -4.6517093404071055e-07,
    6.827898542957106e-07,
    2.6015689371459917e-06,
    -1.5862627277428102e-06,
    -1.4852016787562217e-05,
    1.7996853961027424e-06,
    8.809696871354827e-05,
    -4.7839535768416835e-06,
    -0.0005792693724207768,
    0.0003342446971416513,
    0.004087855676841709,
    -0.008722295279575763,
    -0.018900450860917833,
    0.15139176231262133,
    -0.4675409629983669,
    0.9704095548675861,
    -1.523770910819983,
    1.8932190633084853,
)


def horner(coefficients: tuple[float, ...], u: str) -> str:
    """A polynomial as text of the language."""
    text = repr(coefficients[0])
    for coefficient in coefficients[1:]:
        text = f"({text}) * {u} {'-' if coefficient < 0 else '+'} {abs(coefficient)!r}"
    return text


# exprel' = sum of v**k / (k! (k + 2)), highest power first: to v = 1, what is left out is 1e-18
EXPREL_SLOPE = tuple(1 / (math.factorial(k) * (k + 2)) for k in reversed(range(18)))

EXPREL = Function(
    "exprel",
    V,
    (f"where(abs(v) < 1, {horner(EXPREL_SLOPE, 'v')}, where(v > 80, y * (1 - 1 / v), (exp(v) - y) / v))",),
    # exp(v) alone overflows before the quotient does; below 1e-8, 1 + v / 2 is all that float64 has
    "where(abs(v) < 1e-8, 1 + 0.5 * v, where(v > 80, exp(0.5 * v) / minimum(v, 2e3) * exp(0.5 * v), expm1(v) / v))",
    bounded=False,
    limits=(0.0, 1.0, 1.0, INF),
    latex=r"\operatorname{exprel}",
    about="(exp(v) - 1) / v, exact near 0, where it is 1",
)

# beyond which power of two a number is multiplied by which, so that it is some 2**-40 to 2**40;
# float32 has no numbers beyond 2**300 or below 2**-300
SCALES = ((">", 300, -650), (">", 90, -100), (">", 40, -60), ("<", -300, 650), ("<", -90, 110), ("<", -40, 60))


def scale_text(v: str) -> str:
    """The power of two that brings v near 1, 1 for ordinary v."""
    text = "1"
    for sign, limit, factor in reversed(SCALES):
        text = f"where({v} {sign} {2.0**limit!r}, {2.0**factor!r}, {text})"
    return text
