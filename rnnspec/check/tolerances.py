"""Every tolerance of `rnnspec check`, with its reason. Errors of values are relative to the largest
value of the run, errors of gradients to its largest gradient."""

from __future__ import annotations

REFERENCE = "reference"

LEAST = 1e-3
"""What derivatives of random specs are measured by that are smaller still: nothing there is of that
size but by cancellation."""

KERNEL = {"float64": 1e-9, "float32": 2e-6}
"""Kernel against the float64 reference, values and gradients. Rounding is 1e-16 and 6e-8 an
operation; sums here have a few hundred terms, and sampled weights are scaled by 1/sqrt(size), so
that errors do not grow from step to step."""

ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24}
"""One rounding, relative: half a unit in the last place."""

DRAWS = 8
FREEDOM = 4.0
"""Where terms cancel, no arithmetic of that precision holds a tolerance. So where an error is above
its tolerance, the definition is run DRAWS times with every value rounded at random, and the error
may be FREEDOM times what that did: a kernel sums in another order and rounds inside of what is one
value of the definition. At most points that is less than the tolerance and changes nothing."""

ILL_CONDITIONED = 50.0
"""But never above so many tolerances: a wrong formula is not excused by a bad point (float32: 1e-4
of the largest value)."""

REDRAWS = 8
"""An error above that which rounding could have made says nothing of the formula: another point is
drawn, and if so many say nothing the property has failed."""

AS_WRITTEN = 2.0**-48
"""The graph against the equations as they stand, element by element in float64: sums of products
may be added in another order, constants are worked out exactly, and all else is the same."""

EXAMPLE = {REFERENCE: 1e-12, **KERNEL}
"""Values worked by hand are written with 16 digits."""

COMPLEX_STEP = 1e-12
"""A complex step has no truncation error and no cancellation: what is left is float64 rounding over
some hundred operations."""

DOT_PRODUCT = 1e-12
"""<ybar, J v> and <J^T ybar, v> are the same sum in another order."""

SYMMETRY = 1e-12
"""u'Hv and v'Hu are one number in two orders: float64 rounding over twice the operations of a
gradient."""

FIFTY_DIGITS = 1e-12
STEP_50 = 1e-15
"""Second differences in 50 digits with a step of 1e-15: truncation 1e-30, rounding 1e-50 / 1e-30 =
1e-20. What is left is the float64 of the Hessian that is compared with them."""

RANK = 1e-12
"""Singular values beyond the rank that a structure claims, relative to the largest: float64
rounding over a product of two thin matrices."""

DIFFERENCES = 1e-6
"""Central differences in float64 with a step of 1e-5: truncation near 1e-10, rounding 1e-16 / 1e-5
= 1e-11, times the ratio of the values to the derivative along a random direction. What that
rounding hides, FREEDOM roundings of the loss over the step, is no error: a chain of forty tanh that
saturate has gradients of 1e-15."""
STEP = 1e-5

REORDERED = {"float64": 1e-12, "float32": 1e-6}
"""Sums of the same terms in another order: chained gradients of a split sequence, gradients of
parameters under other thread counts. Sums have some hundred terms of either sign, a rounding error
grows by the root of that."""

REORDERED_LONG = {"float64": 4e-12, "float32": 4e-6}
"""Sums of some thousand terms in another order."""

ONLINE = {"float64": 1e-12, "float32": 1e-4}
"""Gradients carried forward step by step against those carried back: the same products of
Jacobians, multiplied from the other end. float32 rounds the influence itself at every step, 6e-8 of
its largest number, which may be some hundred times the gradient that is made of it."""

BALANCED = 1e-5
"""Sums of a row's excitation and inhibition in float32, whose numbers are rounded apart: 6e-8 each,
some tens of them."""

SPECTRAL_RADIUS = 1e-2
"""What is asked of initial values; float32 rounding of a matrix moves its eigenvalues by 1e-6."""

NEAREST = 1e-5
"""An inner product that is never above 0, relative to the norms of its factors: float32 rounding of
the projected value, which has an error of its own size and not of what was taken away."""

EXACT = 0.0
"""Bit for bit: each row's arithmetic depends on nothing but that row."""

KINK_DERIVATIVE = 1e-3
"""Derivatives are checked at points where every comparison is decided by at least this much: far
beyond any step taken."""

KINK_COMPARISON = 2e-6
"""float32 and float64 are compared where no comparison can fall the other way by float32 rounding
of values near 1."""

LARGE = 1e4
"""Inputs that saturate every gate, and whose square and cube are still numbers of float32."""

PACK = {
    "float64": (
        1e-11,
        (
            "rounding is 1.1e-16 an operation, and no case lets it grow by more than float32's tolerance has room for;"
            " sigmoid, tanh and exp may be good to some 1e-14 only"
        ),
    ),
    "float32": (
        1e-5,
        (
            "rounding is 6e-8 an operation, over the same sums and steps; sigmoid and tanh by polynomials or tables may"
            " be good to some 1e-6 only"
        ),
    ),
}
"""What conformance packs allow other implementations: relative to the largest value of a case, for
gradients to its largest gradient."""

PACK_STEADY, PACK_DRAWS = 1 / 3, 2
"""Every value of a case's definition rounded at random to float32, so many times, moves nothing by
more than this part of what is allowed: the rest is for sums in another order, and for functions."""

PACK_MARGIN = 1e-4
"""No comparison (a kink of relu, a clip) falls within this of where it changes sides, so that
float32 falls on the same side."""
