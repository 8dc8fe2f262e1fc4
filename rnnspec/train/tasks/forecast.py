"""Time series: the next value at every step (n to n), or the value some steps after a window (n to
1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnspec.train import tables
from rnnspec.train.batches import Batch, Shuffled, in_order
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.losses import Loss
from rnnspec.train.model import SequenceModel
from rnnspec.train.problem import MakeLayer, Metric, Predictions, Task
from rnnspec.train.tasks.shared import EVALUATION, Stored

TESTED = 0.2
DRAWN = 300  # forecasts that are drawn beside what is true
ROUNDED = 16 * np.finfo(np.float64).eps  # relative to a column's largest number: a few roundings of it
MADE = 3000
EVERY = 0.05  # units of time between two values of a Lorenz series
TAU, BETA, GAMMA, POWER = 17, 0.2, 0.1, 10  # Mackey & Glass 1977: mildly chaotic at this delay


class ForecastProblem(Stored):
    """A table [N, columns], standardised by the mean and deviation of its first four fifths;
    windows of the last fifth are held out."""

    loss_unit = "squared error, in variances"
    metric = Metric("error", "root mean squared, in deviations")

    def __init__(self, config: TrainingConfig, series: np.ndarray, names: list[str], digest: str):
        self.config, self.names, self.digest = config, names, digest
        self.every, self.horizon = config.options["to"] == "every", int(config.options["horizon"])
        self.cut = len(series) - round(TESTED * len(series))
        reach = config.length + self.horizon
        if self.cut < reach or len(series) - self.cut < reach:
            raise TrainError(
                f"{config.data or 'the series'} has {len(series):,} rows; windows of {config.length} and a horizon of"
                f" {self.horizon} need {int(reach / TESTED) + 1:,}. Give a longer series or a smaller --length"
            )
        self.values = standardised(series, self.cut, names, config.data or "the series")
        self.train = np.arange(self.cut - reach + 1)
        self.test = np.arange(self.cut, len(series) - reach + 1)
        self.order = Shuffled(np.full(len(self.train), config.length), config.batch, config.seed)
        batch = self.batch(self.test)
        last = batch.x if self.every else batch.x[-1]
        self.naive = float(np.sqrt(np.mean(squares(batch.target, last))))
        self.baseline = ("the value stays", self.naive**2)

    def about(self) -> dict[str, Any]:
        return {
            "file": self.config.data,
            "columns": self.names,
            "rows": len(self.values),
            "held_out": len(self.values) - self.cut,
            "error_if_it_stays": self.naive,
        }

    def summary(self) -> str:
        made = "a Lorenz series" if len(self.names) == 3 else "a Mackey-Glass series"
        name = self.config.data or made
        what = "at every step" if self.every else "at the end"
        return (
            f"{name}: {len(self.values):,} rows of {len(self.names)}, the last {len(self.values) - self.cut:,} held"
            f" out; {self.horizon} steps ahead {what} of {self.config.length}; an error of {self.naive:.3f} if the"
            " value stays"
        )

    def model(self, make_layer: MakeLayer) -> SequenceModel:
        width = len(self.names)
        loss = Loss("squared_error", "average" if self.every else "last")
        return SequenceModel(make_layer(width), width, features=width, loss=loss, seed=self.config.seed)

    def score(self, model: SequenceModel, quick: bool) -> dict[str, float]:
        total = 0.0
        for places in in_order(len(self.test), EVALUATION):
            batch = self.batch(self.test[places])
            errors = squares(model.outputs(batch.x)[0], batch.target)
            total += float(np.sum(np.mean(errors, axis=(0, -1) if self.every else -1)))
        return {"error": (total / len(self.test)) ** 0.5}

    def predictions(self, model: SequenceModel) -> Predictions:
        """Of the first column: what is forecast at the end of each held-out window, the first
        DRAWN of them."""
        true: list[np.ndarray] = []
        predicted: list[np.ndarray] = []
        for places in in_order(min(DRAWN, len(self.test)), EVALUATION):
            batch = self.batch(self.test[places])
            outputs, _ = model.outputs(batch.x)
            for found, values in ((true, batch.target), (predicted, outputs)):
                found.append((values[-1] if self.every else values)[:, 0])
        unit = f"{self.names[0]}, in deviations"
        axis = f"held-out step, forecast {self.horizon} steps ahead"
        return Predictions(np.concatenate(true), np.concatenate(predicted), unit, True, axis)

    def batch(self, rows: np.ndarray) -> Batch:
        """Windows by their first row."""
        steps = np.arange(self.config.length)[:, None] + rows
        ahead = steps + self.horizon
        return Batch(self.values[steps], self.values[ahead if self.every else ahead[-1]])


def standardised(series: np.ndarray, cut: int, names: list[str], source: str) -> np.ndarray:
    """The table with a mean of 0 and a deviation of 1 in its first `cut` rows, float32 [N,
    columns].

    Everything is relative to the largest number of a column there, so that neither an offset nor a
    size costs digits. TrainError for a column that does not change in those rows, or by no more
    than its numbers are rounded, and for a number that is too large for float32 then.
    """
    _, exponents = np.frexp(np.abs(series[:cut]).max(axis=0))
    halves = np.ldexp(series, -(exponents // 2))  # in two steps: one power of two could be infinite
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        units = np.ldexp(halves, -(exponents - exponents // 2))
        shifted = units - units[0]
        values = ((shifted - shifted[:cut].mean(axis=0)) / shifted[:cut].std(axis=0)).astype(np.float32)
    for name, column, change in zip(names, series[:cut].T, np.ptp(units[:cut], axis=0)):
        if change <= ROUNDED:  # of numbers around 1; what is left is no signal, but how they were written or computed
            low, high = column.min(), column.max()
            how = "doesn't change" if low == high else f"is {low:.17g} to {high:.17g}: it changes by rounding alone"
            raise TrainError(f"{source}: {column_text(name)} {how} in its first {cut:,} rows: nothing to forecast")
    for row, column in np.argwhere(~np.isfinite(values))[:1].tolist():
        raise TrainError(
            f"{source}, row {row} of numbers (counted from 0): {series[row, column]:g} in"
            f" {column_text(names[column])} is too large for float32 once it has a mean of 0"
            " and a deviation of 1 in the rows to train on"
        )
    return values


def squares(values: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """(y - target)**2 in float64: of a forecast far off the square is no number of float32."""
    return np.square(np.subtract(values, targets, dtype=np.float64))


def mackey_glass(count: int, seed: int) -> np.ndarray:
    """x' = beta x(t - tau) / (1 + x(t - tau)**n) - gamma x, one Euler step of 1 after another from
    random values: [count]."""
    rng = np.random.default_rng([seed, 8])
    x = list(1.2 + 0.2 * (rng.random(TAU + 1) - 0.5))
    for _ in range(count + 300):
        x.append(x[-1] + BETA * x[-1 - TAU] / (1 + x[-1 - TAU] ** POWER) - GAMMA * x[-1])
    return np.array(x[-count:])


def lorenz(count: int, seed: int) -> np.ndarray:
    """x' = 10 (y - x), y' = x (28 - z) - y, z' = x y - 8/3 z (Lorenz 1963), a value every EVERY
    units of time, by Runge-Kutta steps of a fifth of that, from random values: [count, 3]."""
    s, h, found = np.random.default_rng([seed, 8]).normal(size=3) + (0.0, 0.0, 25.0), EVERY / 5, []

    def slope(s: np.ndarray) -> np.ndarray:
        x, y, z = s
        return np.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    for _ in range(count + 200):
        for _ in range(5):
            a = slope(s)
            b = slope(s + h / 2 * a)
            c = slope(s + h / 2 * b)
            s = s + h / 6 * (a + 2 * b + 2 * c + slope(s + h * c))
        found.append(s)
    return np.array(found[-count:])


def make(config: TrainingConfig, memory: Mapping[str, Any]) -> ForecastProblem:
    if config.options["to"] not in ("every", "last") or int(config.options["horizon"]) < 1:
        raise TrainError(
            f"to must be every or last, and horizon at least 1; got {config.options['to']!r} and"
            f" {config.options['horizon']}"
        )
    if config.data is None:
        match config.options["series"]:
            case "mackey_glass":
                return ForecastProblem(config, mackey_glass(MADE, config.seed)[:, None], ["x"], "made")
            case "lorenz":
                return ForecastProblem(config, lorenz(MADE, config.seed), ["x", "y", "z"], "made")
        raise TrainError(f"series must be mackey_glass or lorenz; got {config.options['series']!r}")
    return ForecastProblem(config, *tables.read_numbers(config.data))


TASK = Task(
    name="forecast",
    shape="n to n, or n to 1",
    about="values of a time series some steps ahead; scored by the root mean squared error in deviations",
    data=(
        "a CSV file or .npy array of numbers, a step a row, all columns forecast; the last fifth is held out (default:"
        " a Mackey-Glass series)"
    ),
    make=make,
    defaults={"hidden": 32, "length": 64, "batch": 32, "steps": 1000, "lr": 5e-3, "clip": 1.0},
    fields=("length",),
    length="steps of a window",
    of_made=("series",),
    options={"to": "every", "horizon": 6, "series": "mackey_glass"},
    about_options={
        "to": "every: forecast at every step of a window; last: at its end only",
        "horizon": "steps ahead",
        "series": "mackey_glass, or lorenz (three columns)",
    },
)


def column_text(name: str) -> str:
    """A column in a message: by its number where it has no name of its own."""
    return name if name.startswith("column ") else f"the column {name}"
