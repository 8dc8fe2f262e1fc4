"""Cells as dynamical systems: where a trained network stays, how fast neighbours part, and how that
changes with what it reads.

A cell under held inputs is a map of all its states together, s -> F(s); its Jacobians are the
kernel's, exact and for many states at once. Any map is a cell without parameters.
"""

from rnnspec.dynamics.branch import Branch, Special, continue_fixed_point
from rnnspec.dynamics.figure import draw
from rnnspec.dynamics.points import Points, cycles, fixed_points, slow_points
from rnnspec.dynamics.portrait import Portrait
from rnnspec.dynamics.similarity import Similarity, compare
from rnnspec.dynamics.spectrum import Lyapunov, kaplan_yorke, lyapunov

__all__ = [
    "Branch",
    "Lyapunov",
    "Points",
    "Portrait",
    "Similarity",
    "Special",
    "compare",
    "continue_fixed_point",
    "cycles",
    "draw",
    "fixed_points",
    "kaplan_yorke",
    "lyapunov",
    "slow_points",
]
