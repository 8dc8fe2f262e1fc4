"""A trained run as a model of ONNX: embedding or linear map, layers, head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy import ndarray as Array

from rnnspec.errors import UnsupportedError
from rnnspec.export.onnx_net import Head, Net, layer_net
from rnnspec.train.model import SequenceModel
from rnnspec.train.trained import TrainedRun, load_run


def run_net(folder: str | Path, name: str = "") -> Net:
    """The Net of a folder that `rnnspec train` wrote: what `rnnspec.export.onnx.onnx_model` makes
    of it reads symbols or numbers, [T, B] or [T, B, D], and gives `y`, logits or numbers, at every
    step, or [B, C] for a task that is about whole sequences.

    Raises UnsupportedError for models that are none of this kind, TrainError for what is no run.
    """
    run = load_run(folder)
    model = run.model
    if not isinstance(model, SequenceModel):
        raise UnsupportedError(
            f"{folder} is of the task {run.config.task_name}, whose model is not one layer with a head: export its"
            " layers, rnnspec.export.onnx(rnnspec.train.load_run(...).layers[0])."
        )
    net = layer_net(run.layer, name or run.spec.name)
    title = f"{run.spec.name} with {run.config.hidden} units, trained on {run.config.task_name}"
    parts = {"table": model.embed["weight"] if model.embed else None}
    mapped = (model.map["weight"], model.map["bias"]) if model.map else None
    reverse = _of_reverse(net) if model.two_ways else None
    head = Head(model.head["weight"], model.head["bias"], model.loss.over == "last", reverse)
    definition = _definition(run, model)
    return replace(
        net, title=title, batch_first=False, map=mapped, head=head, definition=definition, table=parts["table"]
    )


def _of_reverse(net: Net) -> Array:
    """Which columns of the outputs side by side the reverse direction made."""
    widths = [int(np.prod(shape, dtype=int)) for shape in net.outputs.values()]
    return np.concatenate([np.arange(width) >= width // 2 for width in widths])


def _definition(run: TrainedRun, model: SequenceModel):  # type: ignore[no-untyped-def]
    main = run.layer.stack.layers[0].main

    def definition(inputs: Mapping[str, Array], before: Mapping[str, Array], lengths: Array | None) -> dict[str, Array]:
        others = {n: a for n, a in inputs.items() if n != main}
        y, after = model.outputs(inputs[main], None, lengths, others)
        ends = after if isinstance(after, tuple) else (after,)
        return {"y": y} | {f"final_{s}": a for s, a in zip(run.layer.stack.description.carried, ends)}

    return definition
