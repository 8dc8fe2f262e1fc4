"""What a run folder says, checked before anything is made of it: a folder may be somebody else's.

In: the JSON of a checkpoint and its arrays. Out: its TrainingConfig, or a ValueError that names the
value. Whether the run fits the cell and the data is for `checkpoint` to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rnnspec.train.config import TrainingConfig
from rnnspec.train.losses import REDUCTIONS, Loss
from rnnspec.train.model import KINDS, ModelPlan

LARGE = 2**31  # of whole numbers, as on the command line
MOST_VALUES = 2**28  # of a batch: a sequence of each row, or its features
Test = Callable[[Any], bool]


def _whole(least: int, most: int = LARGE) -> Test:
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and least <= v < most


def _number(good: Callable[[float], bool]) -> Test:
    return lambda v: (isinstance(v, float) or _whole(-(2**63), 2**63)(v)) and abs(v) <= math.inf and good(v)


def _mapping(value: Test) -> Test:
    return lambda v: isinstance(v, dict) and all(value(item) for item in v.values())


def _or_none(test: Test) -> Test:
    return lambda v: v is None or test(v)


def _list(test: Test) -> Test:
    return lambda v: isinstance(v, list) and all(test(item) for item in v)


def _text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _any_number(value: Any) -> bool:
    return _number(lambda _: True)(value) or (isinstance(value, float) and math.isnan(value))


def _snapshot(value: Any) -> bool:
    scores = {k: v for k, v in value.items() if k != "sample"} if isinstance(value, dict) else None
    return SCORES(scores) and _whole(0, 2**62)(value.get("step")) and isinstance(value.get("sample", ""), str)


POSITIVE, NONNEGATIVE = _number(lambda v: 0 < v < math.inf), _number(lambda v: 0 <= v < math.inf)
UP_TO_INF = _number(lambda v: v > 0)
CONFIG: Mapping[str, Test] = {
    "cell": lambda v: _text(v) and bool(v),
    "task": _text,
    "choices": _mapping(lambda v: _text(v) or _number(math.isfinite)(v)),
    "sizes": _mapping(_whole(1)),
    "options": _mapping(lambda v: isinstance(v, bool) or _text(v) or _number(lambda n: abs(n) <= 1e7)(v)),
    "data": _or_none(_text),
    **dict.fromkeys(("hidden", "embed", "layers", "batch", "length", "every"), _whole(1)),
    "dropout": _number(lambda v: 0 <= v <= 1),
    "bidirectional": lambda v: isinstance(v, bool),
    "steps": _or_none(_whole(0)),
    "seconds": _or_none(POSITIVE),
    "optimiser": _text,
    "lr": POSITIVE,
    "momentum": NONNEGATIVE,
    "decay": NONNEGATIVE,
    "schedule": _text,
    "clip": UP_TO_INF,
    "clip_value": UP_TO_INF,
    "retain": _whole(0),
    "patience": _whole(0),
    "seed": _whole(0, 2**64),
    "equations": _list(_text),
    "digest": _text,
    "cell_text": lambda v: isinstance(v, str),  # what it says is for `loads` to judge
    "task_digest": _text,
}
"""What each field of a TrainingConfig may be: what the command line lets through."""

SHAPES = ("[N]", "[N, T]", "[N, K]", "[N, T, K]")  # of targets, in a file of the user's
NAMES = _list(lambda v: isinstance(v, str))
MEMORY: Mapping[str, Test] = {
    "vocabulary": lambda v: isinstance(v, str),  # a text may hold any character
    "words": NAMES,
    "symbols": NAMES,
    "source": NAMES,
    "target": NAMES,
    "classes": _list(lambda v: isinstance(v, str) or _whole(-(2**63), 2**64)(v)),
    "shape": lambda v: v in SHAPES,
    "inputs": NAMES,
}
SCORES = _mapping(_or_none(_any_number))
META: Mapping[str, Test] = {
    "memory": lambda v: isinstance(v, dict),
    "data_sha256": _text,
    "cursor": _mapping(_whole(0, 2**62)),
    "state": lambda v: v in ("none", "tuple", "array"),
    "best": _or_none(
        lambda v: (
            isinstance(v, dict)
            and set(v) == {"step", "value"}
            and _whole(0, 2**62)(v["step"])
            and _any_number(v["value"])
        )
    ),
    **dict.fromkeys(("step", "skipped", "tokens"), _whole(0, 2**62)),
    "seconds": NONNEGATIVE,
    "history": lambda v: (
        isinstance(v, dict)
        and set(v) == {"loss", "snapshots"}
        and _list(_any_number)(v["loss"])
        and _list(_snapshot)(v["snapshots"])
    ),
    "arrays": NAMES,
    "model": lambda v: v is None or isinstance(v, dict),
    "weights_only": lambda v: isinstance(v, bool),
}
"""What each part of a checkpoint may be, beside its format and its configuration."""


_OF_PLAN = _whole(1)
PLAN: Mapping[str, Test] = {
    "kind": lambda v: v in KINDS,
    "width": _OF_PLAN,
    "classes": _OF_PLAN,
    "symbols": _or_none(_OF_PLAN),
    "features": _or_none(_OF_PLAN),
    "loss": lambda v: (
        isinstance(v, dict)
        and set(v) == {"kind", "over", "smoothing"}
        and v["kind"] in ("cross_entropy", "squared_error")
        and v["over"] in tuple(REDUCTIONS)
        and _number(lambda n: 0 <= n <= 1)(v["smoothing"])
    ),
    "two_ways": lambda v: isinstance(v, bool),
    "main": _text,
}
"""What each field of a ModelPlan may be."""


def plan_of(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> ModelPlan | None:
    """What the model of a saved run is made of; None for one that only its task can make."""
    plan = meta["model"]
    if plan is None:
        return None
    if set(plan) != set(PLAN):
        raise ValueError(f"its model is described by {', '.join(sorted(map(str, plan)))}"[:100])
    for name, test in PLAN.items():
        _check(f"model {name}", plan[name], test)
    there = sum(array.size for name, array in arrays.items() if name.startswith("model/"))
    mapped = plan["features"] if plan["features"] != plan["width"] else 0
    for what in ("width", "classes", "symbols", "features"):
        if (plan[what] or 0) > there:
            raise ValueError(f"model {what} is {plan[what]}, and it has {there} weights")
    if ((plan["symbols"] or 0) + (mapped or 0)) * plan["width"] > there:  # nothing is made that no array speaks of
        raise ValueError(f"its embedding would have more weights than the {there} that there are")
    names = meta["memory"].get("classes", ()) if not meta["config"].get("task_digest") else ()
    if names and len(names) != plan["classes"]:
        raise ValueError(f"it has {plan['classes']} classes and {len(names)} names of them")
    return ModelPlan(**{**plan, "loss": Loss(**plan["loss"])})


def config_of(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> TrainingConfig:
    """The configuration of a saved run whose every part is what it should be."""
    for name, test in META.items():
        _check(name, meta[name], test)
    config = meta["config"]
    if unknown := [name for name in config if name not in CONFIG]:
        raise ValueError(f"there is no setting {unknown[0]!r}"[:100])
    for name, value in config.items():
        _check(name, value, CONFIG[name])
    for name in {*arrays, *meta["arrays"]}:
        if name not in meta["arrays"] or name not in arrays:  # a damaged list of members ends early, or names others
            raise ValueError(f"the array {name!r} is lost"[:100])
    if not config.get("task_digest"):  # what a task of the user's remembers is for that to judge
        for name, value in meta["memory"].items():
            _check(f"memory {name}", value, MEMORY.get(name, lambda _: False))
    found = TrainingConfig(**{**config, "equations": tuple(config.get("equations", ()))})
    _check_sizes(found, {name: a for name, a in arrays.items() if name.startswith("model/")})
    if (meta["state"] == "none") == any(name.startswith("state/") for name in arrays):
        raise ValueError(f"its carried state is {meta['state']!r}, and its arrays say otherwise")
    for name, array in arrays.items():
        if array.dtype.kind not in "iuf":
            raise ValueError(f"the array {name!r} is {array.dtype}"[:100])
    return found


def _check(name: str, value: Any, test: Test) -> None:
    if not test(value):
        raise ValueError(f"{name} can't be {str(value)[:60]!r}")


def _check_sizes(config: TrainingConfig, model: Mapping[str, np.ndarray]) -> None:
    """Nothing is made of a size that no array of the model speaks of: it could take all memory
    there is."""
    longest = max((max(array.shape, default=1) for array in model.values()), default=0)
    for name in ("hidden", *(f"sizes {n}" for n in config.sizes)):
        value = config.sizes[name[6:]] if name.startswith("sizes ") else config.hidden
        if value > longest:
            raise ValueError(f"{name} is {value}, and the longest axis of its weights {longest}")
    if config.layers > len(model):
        raise ValueError(f"layers is {config.layers}, and it has {len(model)} weights")
    if config.batch * config.length > MOST_VALUES:
        raise ValueError(f"batch is {config.batch}, length {config.length}: too much for any machine")
