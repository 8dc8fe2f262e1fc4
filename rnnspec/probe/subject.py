"""What is probed: a cell, its weights and an input sequence, all in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rnnspec.arrays import with_defaults
from rnnspec.initialise import initialise
from rnnspec.language.layouts import unpack
from rnnspec.language.load import load
from rnnspec.language.sizes import full_shape, sizes_in, unit_size, with_default_sizes
from rnnspec.language.spec import Spec
from rnnspec.noise import mean
from rnnspec.train import checkpoint
from rnnspec.train.errors import TrainError
from rnnspec.train.fit import data_input, fitted
from rnnspec.train.layers import keeping, layer_maker
from rnnspec.train.model import SequenceModel
from rnnspec.train.tasks import load_task

Array = np.ndarray


@dataclass(frozen=True)
class Subject:
    """name: what the figures call it. params by the cell's own names, inputs: name -> [T, B, ...]."""

    name: str
    spec: Spec
    sizes: Mapping[str, int]
    params: Mapping[str, Array]
    inputs: Mapping[str, Array]


def initial(
    cell: str, *, hidden: int = 32, inputs: int = 16, steps: int = 100, rows: int = 4, seed: int = 0, retain: int = 0,
    sizes: Mapping[str, int] | None = None, choices: Mapping[str, Any] | None = None,
) -> Subject:  # fmt: skip
    """A cell at its initial weights, on inputs from a normal distribution (those with a default in the file have that).

    Sizes that neither `hidden` nor `inputs` tell are those given, else their defaults, else `hidden`.
    """
    spec = load(cell, **(choices or {}))
    spec = keeping(spec, retain) if retain else spec
    known = _sizes(spec, hidden, inputs, sizes or {})
    params = initialise(spec, known, seed, np.dtype(np.float64))
    rng = np.random.default_rng([seed, 7])
    drawn = {name: rng.standard_normal((steps, rows, *full_shape(shape, known))) for name, shape in spec.streams.items() if name not in spec.defaults}
    return _complete(Path(cell).stem, spec, known, params, drawn)


def of_run(folder: str | Path, *, steps: int = 100, rows: int = 4) -> Subject:
    """The trained layer of a run, on the first steps of a batch of its own data (through its embedding, where it has one).

    At most `rows` rows and `steps` steps, and no more steps than the shortest of those rows has: padding is not data.
    """
    saved = checkpoint.load(Path(folder) / "weights.npz")
    config = saved.config
    if config.layers > 1 or config.bidirectional:
        built = f"{config.layers} layer{'s' * (config.layers > 1)}{' in two directions' * config.bidirectional}"
        raise TrainError(f"{folder} has {built}; a run with one layer in one direction can be probed")
    spec = load(config.cell, **config.choices)
    problem = load_task(config.task).make(config, saved.memory)
    if problem.digest != saved.meta["data_sha256"]:
        raise TrainError(f"the data of {folder} is not what it was trained on")
    model = problem.model(layer_maker(spec, config))
    if not isinstance(model, SequenceModel):
        raise TrainError(f"{folder} is of the task {config.task}, whose model has two layers; probe a run of another task")
    checkpoint.fill(model.params, saved)
    batch, _ = problem.next({})
    if batch.lengths is not None:
        steps = min(steps, int(batch.lengths[:rows].min()))
    x = np.asarray(model.features(batch.x), np.float64)[:steps, :rows]
    params = own_parameters(spec, model.layer.params)
    known = _sizes(spec, config.hidden, x.shape[-1], fitted(spec, config.hidden, x.shape[-1], config.sizes)[1])
    return _complete(f"{Path(config.cell).stem}, trained on {config.task}", spec, known, params, {data_input(spec): x})


def _complete(name: str, spec: Spec, sizes: Mapping[str, int], params: Mapping[str, Array], given: Mapping[str, Array]) -> Subject:
    """With inputs that have a default, and noise at its mean, as in an evaluation."""
    steps, rows = next(iter(given.values())).shape[:2]
    expected = mean(spec, sizes, steps, rows, np.float64)
    inputs = dict(given) | {n: a for n, a in expected.items() if n in spec.inputs}
    whole = with_defaults(spec, inputs, (steps, rows), sizes, np.dtype(np.float64))
    return Subject(name, spec, sizes, dict(params) | {n: a for n, a in expected.items() if n in spec.parameters}, whole)


def own_parameters(spec: Spec, weights: Mapping[str, Array]) -> dict[str, Array]:
    """A layer's weights by the cell's own names, float64; the layer may have them packed as torch does."""
    blocks = {name.removesuffix("_l0"): np.asarray(array, np.float64) for name, array in weights.items()}
    layout = next((name for name in spec.layouts if name.startswith("torch.")), None)
    return blocks if layout is None or set(blocks) == set(spec.trained) else dict(unpack(spec, layout, blocks))


def _sizes(spec: Spec, hidden: int, inputs: int, given: Mapping[str, int]) -> dict[str, int]:
    """Every size: as given, units and inputs as they say, else the default, else as large as the units."""
    units, first = unit_size(spec), next((shape[0] for shape in spec.inputs.values() if shape), "")
    known = dict(given) | ({units: hidden} if units and units not in given else {})
    if first.isidentifier():
        known.setdefault(first, inputs)
    known = with_default_sizes(spec.sizes, known)
    return known | dict.fromkeys(sorted(sizes_in(spec.shapes.values()) - set(known)), hidden)
