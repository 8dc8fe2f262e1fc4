"""What a run is asked for, as plain data: what is not given is the task's, or a resumed run's.

In: a mapping, or the arguments of a command line. Out: a `Request`, whose values each are of a kind
that their name allows. What they mean together is for `setup` to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from rnnspec.backends.brief import brief_repr
from rnnspec.language.syntax.faults import did_you_mean, listed
from rnnspec.show.figure import FORMATS
from rnnspec.train.errors import TrainError
from rnnspec.train.saved import CONFIG, NONNEGATIVE, POSITIVE, UP_TO_INF, Test

PLAIN = (
    *("hidden", "embed", "layers", "dropout", "bidirectional", "batch", "length", "optimiser", "lr", "momentum"),
    *("decay", "schedule", "clip", "clip_value", "retain", "patience", "every", "seed"),
)
"""Parts of a request that are fields of TrainingConfig as they are."""


@dataclass(frozen=True)
class Request:
    """A run as it is asked for; None is not given. The fields of PLAIN are those of TrainingConfig.

    cell: a name, or the path of a YAML file. task: a name, or the path of a Python file.
    options: the task's own settings, texts or numbers. choices, sizes: of the cell, by name.
    data: the path of the task's data.
    steps, epochs, seconds: how long it takes.
    threads: of the kernels. sample, temperature: of what is written at the end.
    figures: the format of the plots. weights_only: what is kept once it has ended.
    resume: the folder of a run to go on with. start: that of one whose weights it starts from.
    """

    cell: str | None = None
    task: str | None = None
    data: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    choices: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    hidden: int | None = None
    embed: int | None = None
    layers: int | None = None
    dropout: float | None = None
    bidirectional: bool | None = None
    batch: int | None = None
    length: int | None = None
    optimiser: str | None = None
    lr: float | None = None
    momentum: float | None = None
    decay: float | None = None
    schedule: str | None = None
    clip: float | None = None
    clip_value: float | None = None
    retain: int | None = None
    patience: int | None = None
    every: int | None = None
    seed: int | None = None
    steps: int | None = None
    epochs: int | None = None
    seconds: float | None = None
    threads: int | None = None
    weights_only: bool | None = None
    figures: str | None = None
    sample: int | None = None
    temperature: float | None = None
    resume: str | None = None
    start: str | None = None

    __repr__ = brief_repr


NOT_PLAIN_DATA = ("resume", "start")  # of a command line: a run goes on in the folder that it is given
KINDS: Mapping[str, Test] = {
    **{f.name: CONFIG[f.name] for f in fields(Request) if f.name in CONFIG},
    "epochs": CONFIG["hidden"],
    "threads": CONFIG["hidden"],
    "sample": CONFIG["retain"],
    "temperature": NONNEGATIVE,
    "weights_only": CONFIG["bidirectional"],
    "figures": lambda v: v in FORMATS,
}
"""What each part of a request may be, where it is given."""
NAMES = tuple(f.name for f in fields(Request) if f.name not in NOT_PLAIN_DATA)
_WORDS = (
    (CONFIG["hidden"], "a whole number from 1"),
    (CONFIG["retain"], "a whole number from 0"),
    (POSITIVE, "a number above 0"),
    (NONNEGATIVE, "a number from 0"),
    (UP_TO_INF, "a number above 0, or inf"),
    (CONFIG["bidirectional"], "true or false"),
)
_EXPECTED: Mapping[str, str] = {
    "dropout": "a number from 0 to 1",
    "steps": "a whole number from 0",
    "seconds": "a number above 0",
    "seed": "a whole number from 0",
    "figures": " or ".join(FORMATS),
    "choices": "a mapping from names to texts or numbers",
    "sizes": "a mapping from names to whole numbers from 1",
    "options": "a mapping from names to texts or numbers",
}


def expected(name: str) -> str:
    """What a part of a request may be, in words."""
    told = next((words for test, words in _WORDS if KINDS[name] is test), "a text")
    return _EXPECTED.get(name, told)


def trouble(name: str, value: Any) -> str:
    """What is wrong with a part of a request; "" where nothing is."""
    if name not in NAMES:
        return f"there is no {name!r} in a run.{did_you_mean(name, NAMES)} It has {listed(NAMES, 99)}"
    return "" if KINDS[name](value) else f"{name} must be {expected(name)}, not {value!r}"


def request_of(config: Mapping[str, Any]) -> Request:
    """The request that plain data are; NumPy's numbers are numbers, and None is not given.
    TrainError tells all that is wrong."""
    given = {name: plain(value) for name, value in config.items() if value is not None}
    if faults := [text for name, value in given.items() if (text := trouble(name, value))]:
        raise TrainError("\n".join(faults))
    return Request(**given)


def plain(value: Any) -> Any:
    """A value with Python's numbers in the place of NumPy's."""
    match value:
        case np.generic():
            return value.item()
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
    return value
