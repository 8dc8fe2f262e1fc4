"""A trained run in Python: its model with its weights, from the files of its folder alone.

In: a run folder, which may be somebody else's. Out: a `TrainedRun`. Neither the data nor the cell's
file is read, and no Python that the folder names is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rnnspec.errors import SpecError
from rnnspec.language.load import digest, load, loads
from rnnspec.language.spec import Spec
from rnnspec.layers.recurrent import Recurrent
from rnnspec.storage import guarded
from rnnspec.train import checkpoint
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.layers import TimeFirst, layer_maker
from rnnspec.train.losses import length_mask
from rnnspec.train.model import EncoderDecoder, Model, ModelPlan, SequenceModel, build
from rnnspec.train.own_task import task_in
from rnnspec.train.problem import Task
from rnnspec.train.results import METRICS, WEIGHTS
from rnnspec.train.tasks import load_task

ROWS = 256  # that are predicted at once
MOST_METRICS = 2**28  # bytes


@dataclass(frozen=True, repr=False)
class TrainedRun:
    """What a run folder holds, ready to be used; `load_run` makes it.

    model: what was trained; its arrays have the steps first, [T, B, ...]. layers: its recurrent
    layers, `rnnspec.Recurrent` with the rows first (batch_first) and in evaluation (`eval`); one,
    or an encoder and a decoder. spec: of the cell. config: what the run was asked to do. metrics:
    metrics.json, {} where a run has not come to its end. memory: what the task keeps of its data.
    task: None for one of a file that was not given.
    """

    folder: Path
    config: TrainingConfig
    task: Task | None
    spec: Spec
    model: Model
    layers: tuple[Recurrent, ...]
    metrics: Mapping[str, Any]
    memory: Mapping[str, Any]

    @property
    def layer(self) -> Recurrent:
        """The recurrent layer that reads x [B, T, D]; of a translation the encoder."""
        return self.layers[0]

    @property
    def head(self) -> Mapping[str, np.ndarray]:
        """The linear layer above it: {"weight": [C, H], "bias": [C]}."""
        if not isinstance(self.model, SequenceModel | EncoderDecoder):
            raise TrainError(f"the model of {self.folder} is its task's own and has no head that is known: see .model")
        return self.model.head

    @property
    def vocabulary(self) -> Any:
        """What turns symbols into ids and back, with `encode` and `decode`; of a translation a pair
        of them, source and target. None where data are numbers."""
        if self.task is None:
            return None
        with checkpoint.told(self.folder / WEIGHTS):
            return self.task.vocabulary(self.memory)

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """What the task's classes stand for, by their number: `classes` of its memory, a list of as
        many names or numbers. None where it has none."""
        names, plan = self.memory.get("classes"), self.model.plan
        if not isinstance(names, list) or plan is None or len(names) != plan.classes:
            return None
        return tuple(names)

    def __repr__(self) -> str:
        config = self.config
        return f"TrainedRun({str(self.folder)!r}: {self.spec.name}, {config.hidden} units, {config.task_name})"

    def predict(
        self, x: Any, lengths: Any = None, inputs: Mapping[str, Any] | None = None, *, most: int = 100
    ) -> np.ndarray:
        """What the model says of sequences: arguments as of `outputs`.

        Classes, as they stand in the data or as ids of the vocabulary, [B] or [B, T]; numbers [B,
        K] or [B, T, K], without the last axis where targets of the file had none. Of a translation
        the ids that are written, [B, M], ended by the vocabulary's end; at most `most`. A sequence
        without a batch axis has none in the result. Behind a row's end the values mean nothing.
        Raises TrainError as `outputs` does, and where a class would be chosen among NaN.
        """
        if isinstance(self.model, EncoderDecoder):
            return self._written(self.model, x, lengths, most)
        found = self.outputs(x, lengths, inputs)
        if self._sequence_model().loss.kind == "squared_error":
            return found[..., 0] if self.memory.get("shape") in ("[N]", "[N, T]") else found
        _check_known(found, lengths)
        best = found.argmax(axis=-1)
        return best if self.classes is None else np.array(self.classes)[best]

    def outputs(self, x: Any, lengths: Any = None, inputs: Mapping[str, Any] | None = None) -> np.ndarray:
        """What the head gives, [B, T, C], or [B, C] where the model answers at the end of a
        sequence: logits of classes, or numbers.

        x: ids [B, T], or features [B, T, D], which are taken in the layer's dtype; the batch axis
        may be missing. lengths: [B] steps of each row. inputs: the cell's other ones, by name, [B,
        T, ...]; those that the model was trained with must be given. Raises TrainError for what
        doesn't fit the model.
        """
        model = self._sequence_model()
        given, single = self._rows(x)
        others = {name: self._as_input(name, array, single, given) for name, array in (inputs or {}).items()}
        self._check_inputs(others)
        ends = _lengths(lengths, given, single)
        parts = []
        for start in range(0, max(1, len(given)), ROWS):
            rows = slice(start, start + ROWS)
            beside = {name: array[rows].swapaxes(0, 1) for name, array in others.items()}
            found, _ = model.outputs(given[rows].swapaxes(0, 1), None, None if ends is None else ends[rows], beside)
            parts.append(found if model.loss.over == "last" else found.swapaxes(0, 1))
        whole = np.concatenate(parts)
        return whole[0] if single else whole

    def _sequence_model(self) -> SequenceModel:
        if isinstance(self.model, SequenceModel):
            return self.model
        other = "writes: predict(x)" if isinstance(self.model, EncoderDecoder) else "is its task's own: use .model"
        raise TrainError(f"the model of {self.folder} gives no outputs of its own, it {other}")

    def _written(self, model: EncoderDecoder, x: Any, lengths: Any, most: int) -> np.ndarray:
        given, single = self._rows(x)
        target = self.vocabulary[1]
        start, end = (int(i) for i in target.encode(("<start>", "<end>")))
        ids = model.greedy(given.T, _lengths(lengths, given, single), start, end, most).T
        return ids[0] if single else ids

    def _rows(self, x: Any) -> tuple[np.ndarray, bool]:
        """Ids or features with a batch axis, and whether they came without."""
        plan = self.model.plan
        array, axes = np.asarray(x), 2 if plan is not None and plan.symbols is not None else 3
        wanted = "ids [B, T]" if axes == 2 else "features [B, T, D]"
        if array.ndim not in (axes, axes - 1) or array.dtype.kind not in ("iu" if axes == 2 else "biuf"):
            raise TrainError(f"x is {array.dtype} {list(array.shape)}; {wanted} are wanted, or one row without B")
        single = array.ndim == axes - 1
        array = array[None] if single else array
        if not array.shape[1]:
            raise TrainError(f"x has shape {list(array.shape)}: it has no step")
        if axes == 2:
            return array, single
        width = self.layer.input_size if plan is None else plan.features or plan.width
        if array.shape[2] != width:
            raise TrainError(f"x has {array.shape[2]} features; the model was trained on {width}")
        return self._cast("x", array), single

    def _as_input(self, name: str, array: Any, single: bool, x: np.ndarray) -> np.ndarray:
        plan = self.model.plan
        others = [n for n in self.spec.streams if plan is None or n != plan.main]
        if name not in others:
            raise TrainError(f"{self.spec.name} has no further input {name!r}; it has {', '.join(others) or 'none'}")
        if plan is not None and not plan.main:
            raise TrainError(f"the model was trained on x alone, without {name}")
        array = np.asarray(array)[None] if single else np.asarray(array)
        axes = 2 + len(self.spec.inputs[name])
        if array.shape[:2] != x.shape[:2] or array.ndim != axes:
            sizes = ", ".join(["B", "T", *map(str, self.spec.inputs[name])])
            raise TrainError(f"{name} has shape {list(array.shape)}; [{sizes}] is wanted, B and T those of x")
        return self._cast(name, array)

    def _check_inputs(self, given: Mapping[str, np.ndarray]) -> None:
        """TrainError where an input that the model was trained with would be its default."""
        known = self.memory.get("inputs")
        trained = [name for name in known if name in self.spec.streams] if isinstance(known, list) else []
        if missing := [name for name in trained if name not in given]:
            wanted = ", ".join(f'"{name}": {name}' for name in trained)
            raise TrainError(
                f"the model was trained with {' and '.join(trained)} beside x, and {' and '.join(missing)}"
                f" {'is' if len(missing) == 1 else 'are'} not given: predict(x, inputs={{{wanted}}})"
            )

    def _cast(self, name: str, array: np.ndarray) -> np.ndarray:
        """In the dtype of the weights, as the data that was trained on."""
        if array.dtype.kind not in "biuf":
            raise TrainError(f"{name} is {array.dtype}; numbers are wanted")
        return array.astype(self.layer.stack.dtype, copy=False)


def _check_known(logits: np.ndarray, lengths: Any) -> None:
    """TrainError where a row, up to its end, has NaN for the logits: no class is the largest."""
    unknown = np.isnan(logits).any(axis=-1)
    if lengths is not None and unknown.ndim == 2:
        unknown &= np.arange(unknown.shape[1]) < np.asarray(lengths)[:, None]
    if unknown.any():
        rows = np.flatnonzero(unknown.reshape(len(unknown), -1).any(axis=1)) if unknown.ndim else [0]
        raise TrainError(
            f"NaN is what the model gives for {len(rows)} of the rows (the first: {rows[0]}), and NaN is no class:"
            " x or another input has NaN there. Of rows that end early give the lengths: predict(x, lengths)"
        )


def load_run(folder: str | Path, *, task: str | Path | Task | None = None, threads: int | None = None) -> TrainedRun:
    """The model of a trained run, from its folder.

        run = rnnspec.train.load_run("runs/lstm-supervised")
        run.predict(x)                        # x [B, T, D]: classes or numbers
        y, state = run.layer.infer(x)         # the outputs [B, T, H], and the state at the end

    folder: that `rnnspec train` wrote, or the weights.npz in it. task: for a run on a task of a
    file, that file, which is run; most models need none, only `vocabulary` and models of a class of
    one's own do. threads: of the kernels.

    Raises TrainError for what is no run, is damaged, or is not what it was trained with.
    """
    folder = Path(folder)
    folder = folder.parent if folder.suffix == ".npz" else folder
    if not (folder / WEIGHTS).exists():
        raise TrainError(f"{folder} holds no run: there is no {folder / WEIGHTS}")
    saved = checkpoint.load(folder / WEIGHTS)
    row, spec = _task(saved, task), _cell(saved)
    made: list[Recurrent] = []

    def make(*given: Any, **more: Any) -> TimeFirst:
        layer = layer_maker(spec, saved.config, threads)(*given, **more)
        layer.batch_first = True
        made.append(layer.train(False))
        return TimeFirst(layer)

    with checkpoint.told(saved.path):
        model = _model(saved, row, make)
        checkpoint.take(model, saved)
    return TrainedRun(folder, saved.config, row, spec, model, tuple(made), _metrics(folder), saved.memory)


def _model(saved: checkpoint.Checkpoint, task: Task | None, make: Any) -> Model:
    plan: ModelPlan | None = saved.plan
    if plan is not None:
        return build(plan, make)
    if task is None:
        raise TrainError(
            f"{saved.path.parent} has a model of its task's own, which only the task's file can make:"
            f" load_run({str(saved.path.parent)!r}, task={saved.config.task!r})"
        )
    return task.make(saved.config, saved.memory).model(make)


def _task(saved: checkpoint.Checkpoint, task: str | Path | Task | None) -> Task | None:
    config = saved.config
    row = task if isinstance(task, Task) else None if task is None else task_in(task)
    if row is None:  # what the folder says is no reason to run a file
        return None if config.task_digest else load_task(config.task)
    if (row.digest or row.name) != (config.task_digest or config.task):
        changed = ": the file was changed since, or is another" if config.task_digest else ""
        raise TrainError(
            f"{saved.path.parent} was not trained on {row.file or row.name}, but on {config.task}{changed}"
        )
    return row


def _cell(saved: checkpoint.Checkpoint) -> Spec:
    config = saved.config
    try:
        spec = loads(config.cell_text) if config.cell_text else load(config.cell, **config.choices)
    except (SpecError, OSError) as error:
        raise TrainError(f"{saved.path}: its cell can't be read: {error}") from error
    if config.digest and digest(spec) != config.digest:
        raise TrainError(f"{saved.path}: the cell in it is not the one that was trained: it is damaged")
    return spec


def _metrics(folder: Path) -> Mapping[str, Any]:
    try:
        found = guarded.values(folder / METRICS, MOST_METRICS)
    except FileNotFoundError:
        return {}
    except (OSError, guarded.Refused) as error:
        reason = error.reason if isinstance(error, guarded.Refused) else error.strerror
        raise TrainError(f"can't read {folder / METRICS}: {reason}") from None
    if not isinstance(found, dict):
        raise TrainError(f"{folder / METRICS} is no summary of a run: an object is wanted")
    return found


def _lengths(lengths: Any, x: np.ndarray, single: bool) -> np.ndarray | None:
    """Steps of each row, checked against x [B, T, ...]."""
    if lengths is None:
        return None
    given = np.atleast_1d(np.asarray(lengths)) if single else np.asarray(lengths)
    length_mask(given, x.shape[1], x.shape[0])
    return given
