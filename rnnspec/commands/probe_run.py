"""The trained layer of a run, on the first steps of its own data: what `rnnspec probe --run` looks
at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy import ndarray as Array

from rnnspec.language.layouts import unpack
from rnnspec.language.load import load
from rnnspec.language.spec import Spec
from rnnspec.probe.subject import ProbeSubject, complete, known_sizes
from rnnspec.train import checkpoint
from rnnspec.train.errors import TrainError
from rnnspec.train.layers import layer_maker
from rnnspec.train.model import SequenceModel
from rnnspec.train.sizes import data_input, fitted
from rnnspec.train.tasks import load_task


def of_run(folder: str | Path, *, steps: int = 100, rows: int = 4) -> ProbeSubject:
    """The trained layer of a run, on the first steps of a batch of its own data (through its
    embedding, where it has one).

    At most `rows` rows and `steps` steps, and no more steps than the shortest of those rows has:
    padding is not data.
    """
    saved = checkpoint.load(Path(folder) / "weights.npz")
    config = saved.config
    if config.layers > 1 or config.bidirectional:
        built = f"{config.layers} layer{'s' * (config.layers > 1)}{' in two directions' * config.bidirectional}"
        raise TrainError(f"{folder} has {built}; a run with one layer in one direction can be probed")
    if config.task_digest:
        raise TrainError(
            f"{folder} was trained on the task of a file, {config.task}, whose Python is not run here; a run on a task"
            " that comes with rnnspec can be probed"
        )
    spec = load(config.cell, **config.choices)
    with checkpoint.told(saved.path):
        problem = load_task(config.task).make(config, saved.memory)
    if problem.digest != saved.meta["data_sha256"]:
        raise TrainError(f"the data of {folder} is not what it was trained on")
    model = problem.model(layer_maker(spec, config))
    if not isinstance(model, SequenceModel):
        raise TrainError(
            f"{folder} is of the task {config.task}, whose model has two layers; probe a run of another task"
        )
    checkpoint.take(model, saved)
    batch, _ = problem.next({})
    if batch.lengths is not None:
        steps = min(steps, int(batch.lengths[:rows].min()))
    x, *others = (
        np.asarray(array, np.float64)[:steps, :rows] for array in (model.features(batch.x), *batch.inputs.values())
    )
    params = own_parameters(spec, {**model.layer.params, **model.layer.fixed})
    known = known_sizes(spec, config.hidden, x.shape[-1], fitted(spec, config.hidden, x.shape[-1], config.sizes)[1])
    name = f"{Path(config.cell).stem}, trained on {config.task}"
    return complete(
        name,
        spec,
        known,
        params,
        {data_input(spec): x, **dict(zip(batch.inputs, others, strict=True))},
        (x.shape[0], x.shape[1]),
    )


def own_parameters(spec: Spec, weights: Mapping[str, Array]) -> dict[str, Array]:
    """A layer's weights by the cell's own names, float64; the layer may have them packed as torch
    does."""
    blocks = {name.removesuffix("_l0"): np.asarray(array, np.float64) for name, array in weights.items()}
    layout = next((name for name in spec.layouts if name.startswith("torch.")), None)
    return blocks if layout is None or set(blocks) == set(spec.weights) else dict(unpack(spec, layout, blocks))
