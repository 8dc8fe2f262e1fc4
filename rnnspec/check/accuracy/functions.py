"""How accurate the elementwise functions of the language are, in units in the last place, over all
that a number can be.

    print(measure_functions().to_text())

Each function runs in a kernel, as in a cell, against its definition in numbers of 50 digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import numbers, reference
from rnnspec.check.accuracy.cells import DIGITS, distances, spacing
from rnnspec.engine.compile import compile
from rnnspec.language.functions import FUNCTIONS, INTERNAL
from rnnspec.language.load import loads
from rnnspec.language.spec import Spec
from rnnspec.storage.jsontext import json_text
from rnnspec.symbolic.build import build

INF, NAN = math.inf, math.nan
SPECIAL = (-INF, -0.0, 0.0, INF, NAN)
GOAL = 4.0
"""Units in the last place that the rows of the table which are `accurate` err by at most."""


@dataclass(frozen=True)
class FunctionErrors:
    """ulp: the largest and the median error, in units in the last place; at: the argument of the
    largest. subnormal: the largest error where the value is subnormal. special: where zeros,
    infinities or NaN come out otherwise than stated ("-inf gives 0, expected nan").
    """

    name: str
    dtype: str
    ulp: tuple[float, float]
    at: float
    subnormal: float
    count: int
    special: tuple[str, ...]

    @property
    def passed(self) -> bool:
        right = not self.special and max(self.ulp[0], self.subnormal) <= GOAL
        return right or not FUNCTIONS[self.name].accurate


@dataclass(frozen=True)
class FunctionReport:
    functions: tuple[FunctionErrors, ...]

    @property
    def passed(self) -> bool:
        return all(f.passed for f in self.functions)

    def to_json(self) -> str:
        rows = [asdict(f) | {"passed": f.passed} for f in self.functions]
        return json_text(
            {"digits": DIGITS, "goal": GOAL, "held_to": held_to(), "passed": self.passed, "functions": rows}
        )

    def to_text(self) -> str:
        lines = [
            f"{'function':<18}{'dtype':<9}{'ULP, largest':>13}{'median':>8}{'subnormal':>11}  {'at':<16}zeros,"
            " infinities, NaN"
        ]
        for f in self.functions:
            mark = "" if f.passed else "  FAILED"
            lines.append(
                f"{f.name:<18}{f.dtype:<9}{f.ulp[0]:>13.2f}{f.ulp[1]:>8.2f}{f.subnormal:>11.2f} "
                f" {f.at:<16.9g}{'; '.join(f.special) or 'right'}{mark}"
            )
        return "\n".join([*lines, f"at most {GOAL:g} units: {', '.join(held_to())}"])


def held_to() -> list[str]:
    """The functions whose errors are at most GOAL units everywhere; what the others have is
    shown."""
    return [name for name, row in FUNCTIONS.items() if row.accurate]


def measure_functions(
    dtypes: Sequence[str] = ("float32", "float64"),
    samples: int = 300,
    progress: Callable[[str, int, int], None] | None = None,
    run: Callable[[str, dict[str, Array]], dict[str, Array]] | None = None,
    names: Sequence[str] | None = None,
) -> FunctionReport:
    """The errors of the elementwise functions of the table.

    dtypes: in which they are measured; samples: arguments of each of six kinds; progress:
    told what is measured, how many before it, of how many; run: what computes the functions,
    `run_kernel` if None; names: which functions, all that a spec can name if None.
    """
    run = run or run_kernel
    names = [n for n in FUNCTIONS if n not in INTERNAL] if names is None else list(names)
    found = []
    for number, dtype in enumerate(dtypes):
        values = {n: arguments(dtype, samples) for n in names}
        results = run(dtype, {n: np.concatenate([np.array(SPECIAL, dtype), v]) for n, v in values.items()})
        for which, name in enumerate(names):
            if progress is not None:
                progress(f"{name}, {dtype}", number * len(names) + which, len(names) * len(dtypes))
            found.append(_errors(name, dtype, values[name], results[name]))
    return FunctionReport(tuple(found))


def arguments(dtype: str, count: int, seed: int = 0) -> Array:
    """Numbers over the whole range: every exponent with both signs, subnormals, -20 to 20, about 0,
    about 1, and where exp ends."""
    rng, info = np.random.default_rng(seed), np.finfo(dtype)
    end = 1.1 * math.log(float(info.max))
    least, normal = math.log2(float(info.smallest_subnormal)), math.log2(float(info.smallest_normal))
    exponents = np.concatenate([rng.uniform(normal, info.maxexp - 1e-3, count), rng.uniform(least, normal, count)])
    drawn = np.concatenate(
        [
            rng.choice([-1.0, 1.0], 2 * count) * np.exp2(exponents),
            np.linspace(-20, 20, count),
            rng.uniform(-2, 2, count),
            1 + rng.uniform(-1, 1, count) * np.exp2(rng.uniform(-info.nmant, 0, count)),
            rng.uniform(-end, end, count),
        ]
    )
    return np.unique(drawn.astype(dtype))


def cell_of_functions(names: Sequence[str]) -> Spec:
    """One cell that computes every function of an input of its own."""
    inputs = ", ".join(f"x_{n}: D" for n in names)
    lines = "".join(f"  y_{n}[t] = {FUNCTIONS[n].call(f'x_{n}[t]')}\n" for n in names)
    return loads(
        f"rnnspec: 1\nname: all_functions\ninputs: {{{inputs}}}\nstates: {{h: D}}\nequations: |\n{lines}  h[t] = 0 *"
        f" h[t-1]\noutputs: [{', '.join(f'y_{n}' for n in names)}]\n"
    )


def run_kernel(dtype: str, values: dict[str, Array]) -> dict[str, Array]:
    """The results of functions, by name, of the arguments of each [n], from one kernel."""
    kernel = compile(cell_of_functions(list(values)), dtype=dtype)
    width = max(map(len, values.values()))
    inputs = {f"x_{n}": np.concatenate([v, np.zeros(width - len(v), dtype)])[None, None] for n, v in values.items()}
    outputs = kernel.infer({}, inputs).outputs
    return {n: outputs[f"y_{n}"][0, 0, : len(v)] for n, v in values.items()}


def _errors(name: str, dtype: str, x: Array, y: Array) -> FunctionErrors:
    special, y = tuple(_special(name, dtype, y[: len(SPECIAL)])), y[len(SPECIAL) :]
    expected = exact(name, x)
    undefined = np.array([bool(v != v) for v in expected])
    if not np.isnan(y[undefined]).all():
        special += ("a number where the function has none",)
    x, y, expected = x[~undefined], y[~undefined], expected[~undefined]
    errors, small = ulps(y, expected, dtype)
    summary = float(errors.max()), float(np.median(errors))
    return FunctionErrors(
        name, dtype, summary, float(x[errors.argmax()]), float(errors[small].max(initial=0.0)), len(x), special
    )


def _special(name: str, dtype: str, found: Array) -> Iterator[str]:
    stated = FUNCTIONS[name].limits or (None,) * 4
    for argument, value, limit in zip(SPECIAL, found.tolist(), (*stated, NAN)):
        if limit is not None and not _same(value, limit, dtype):
            yield f"{argument:g} gives {value:g}, limit {limit:g}"


def ulps(found: Array, expected: Array, dtype: str) -> tuple[Array, Array]:
    """Errors against mpmath numbers in units in the last place of those, and which of those are
    subnormal. Infinite where an infinity stands for a number that has not overflowed, a number for
    one that has, or NaN for a number."""
    import mpmath

    info = np.finfo(dtype)
    with mpmath.workdps(DIGITS):
        end = mpmath.mpf(float(info.max)) + float(spacing(np.asarray(float(info.max)), dtype)) / 2
        over = np.array([abs(v) >= end for v in expected], bool)
    finite, small = np.isfinite(found), np.array([0 < abs(v) < float(info.smallest_normal) for v in expected], bool)
    within = np.where(over, mpmath.mpf(0), expected)
    units = np.where(
        finite & ~over, distances(np.where(finite, found, 0), within, spacing(within.astype(np.float64), dtype)), INF
    )
    return np.where(over & np.isinf(found) & (np.sign(found) == np.where(expected > 0, 1, -1)), 0.0, units), small


def _same(found: float, expected: float, dtype: str) -> bool:
    wanted = float(np.asarray(expected, dtype))
    if wanted == 0:
        return found == 0 and math.copysign(1, found) == math.copysign(1, wanted)
    if not math.isfinite(wanted):
        return found == wanted or (math.isnan(wanted) and math.isnan(found))
    return bool(abs(found - wanted) <= 2 * float(spacing(np.asarray(wanted), dtype)))


def exact(name: str, x: Array) -> Array:
    """The function's definition at some numbers, as mpmath numbers that are right to 50 digits."""
    import mpmath

    graph = build(cell_of_functions([name]))
    with mpmath.workdps(FUNCTIONS[name].extra_digits + DIGITS):
        run = reference.forward(
            graph, {}, {f"x_{name}": x[None, None]}, sizes={"D": len(x)}, numbers=numbers.mpmath_numbers()
        )
    return run.outputs[f"y_{name}"][0, 0]
