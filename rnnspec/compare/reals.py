"""Real numbers to any number of digits, for the reference: those of mpmath, with an infinity where
mpmath raises.

In: nothing. Out: a `Numbers`. 1 / 0 is infinite and 0 / 0 no number, as in IEEE arithmetic; nothing
overflows and nothing vanishes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from mpmath.ctx_mp import MPContext
from numpy import ndarray as Array

from rnnspec.backends.numbers import Numbers
from rnnspec.language.functions import PRIMITIVES

BEYOND = 4000  # powers of two
SHORT = ("log", "log1p", "sqrt")  # functions of larger numbers; the others need a digit for each power


class BeyondError(ArithmeticError):
    """A function of a number that is too large to be worked out, as in exp(exp(exp(10)))."""


@dataclass(frozen=True, eq=False)
class Reals(Numbers):
    """Numbers of a context of their own, so that no setting of a caller's mpmath changes them. They
    are made of floats, whole numbers and Fractions."""

    context: Any = None

    def array(self, value: object) -> Array:
        kind = self.context.mpf

        def number(v: Any) -> Any:
            if isinstance(v, Fraction):
                return kind(v.numerator) / v.denominator
            return v if isinstance(v, kind) else kind(float(v))

        with np.errstate(all="ignore"):
            made = np.frompyfunc(number, 1, 1)(np.asarray(value, dtype=object))
        return np.asarray(made, dtype=object)  # of one number NumPy makes no array


@lru_cache(maxsize=4)
def reals(digits: int) -> Reals:
    """Numbers of that many digits."""
    context = MPContext()
    context.dps = digits
    _divide_by_zero(context)
    missing = {"sigmoid": lambda v: 1 / (1 + context.exp(-v)), "log1p": lambda v: context.log(1 + v)}
    functions = {
        name: _real(context, getattr(context, name, None) or missing[name], name not in SHORT) for name in PRIMITIVES
    }
    return Reals(object, lambda q: context.mpf(int(q.p)) / int(q.q), functions, context=context)


def _real(context: Any, function: Callable[[Any], Any], bounded: bool) -> Callable[[Any], Any]:
    """The function of each element; no number where its value is not real. bounded: arguments are
    at most 2**4000."""

    def real(v: Any) -> Any:
        if bounded and context.isfinite(v) and v and context.mag(v) > BEYOND:
            raise BeyondError("a function of a number beyond 2**4000")
        result = function(v)
        return result if isinstance(result, context.mpf) else context.nan

    return np.frompyfunc(real, 1, 1)


def _divide_by_zero(context: Any) -> None:
    """Division by 0 in a context gives what it gives in IEEE arithmetic, with 0 taken as +0."""
    kind = context.mpf

    def quotient(a: Any, b: Any) -> Any:
        if not isinstance(b, Array) and b == 0:
            return context.nan if a == 0 or a != a else context.inf if a > 0 else -context.inf
        return divide(a, b)

    def power(a: Any, b: Any) -> Any:
        return context.inf if a == 0 and b < 0 else raised(a, b)

    divide, raised = kind.__truediv__, kind.__pow__
    kind.__truediv__ = quotient
    kind.__rtruediv__ = lambda a, b: quotient(context.convert(b), a)
    kind.__pow__ = power
