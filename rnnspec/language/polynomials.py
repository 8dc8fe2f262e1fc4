"""Polynomials as text of the language, for functions of the table that have no other form."""

from __future__ import annotations

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
