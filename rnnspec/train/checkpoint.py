"""A run on disk: one `.npz` file that holds plain arrays and a JSON text, never a pickle.

`save` is atomic: the file is written under another name and renamed, so what stands under its name
is always whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rnnspec.backends.brief import brief_repr
from rnnspec.errors import RnnspecError
from rnnspec.storage import archives, atomic, guarded
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.loop import Best, History, TrainingRun
from rnnspec.train.model import Model, ModelPlan
from rnnspec.train.saved import config_of, plan_of

FORMAT = 4
FIXED = (
    "choices",
    "sizes",
    "options",
    "hidden",
    "embed",
    "layers",
    "dropout",
    "bidirectional",
    "batch",
    "length",
    "optimiser",
    "retain",
    "seed",
)
"""The parts of a TrainingConfig that a resumed run can't change."""


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds. `arrays` are named model/... (trained weights and fixed ones),
    optimiser/..., best/... and state/0, state/1, ...; of weights alone, model/... only. plan: of
    the model, None for one that only its task can make."""

    path: Path
    config: TrainingConfig
    meta: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]
    plan: ModelPlan | None = None

    __repr__ = brief_repr

    @property
    def memory(self) -> Mapping[str, Any]:
        """What the problem must be given back."""
        return self.meta["memory"]

    def group(self, name: str) -> dict[str, np.ndarray]:
        return {key.partition("/")[2]: array for key, array in self.arrays.items() if key.startswith(f"{name}/")}


def save(path: str | Path, run: TrainingRun, *, weights_only: bool = False) -> None:
    """Writes weights, optimiser, carried state, place in the data, configuration and history;
    atomic. weights_only: without the optimiser's state and the carried one; no run goes on from
    that."""
    state = None if weights_only else run.state
    states = () if state is None else state if isinstance(state, tuple) else (state,)
    best = None if weights_only else run.best
    meta = {
        "format": FORMAT,
        "config": asdict(run.config),
        "memory": dict(run.problem.memory),
        "data_sha256": run.problem.digest,
        "cursor": run.cursor,
        "state": "none" if state is None else "tuple" if isinstance(state, tuple) else "array",
        "best": None if best is None else {"step": best.step, "value": best.value},
        "model": None if run.model.plan is None else asdict(run.model.plan),
        "weights_only": weights_only,
        **{name: getattr(run, name) for name in COUNTS},
        "history": asdict(run.history),
    }
    arrays = {
        **{f"model/{name}": array for name, array in weights_of(run.model).items()},
        **{f"optimiser/{name}": array for name, array in run.optimiser.items() if not weights_only},
        **{f"best/{name}": array for name, array in (best.params if best else {}).items()},
        **{f"state/{i}": array for i, array in enumerate(states)},
    }
    text = np.frombuffer(json.dumps(meta | {"arrays": list(arrays)}).encode(), np.uint8)
    atomic.write(path, lambda file: np.savez(file, meta=text, **arrays))  # type: ignore[arg-type]


COUNTS = ("step", "seconds", "skipped", "tokens")


def load(path: str | Path) -> Checkpoint:
    """Reads a file that `save` wrote. TrainError if there is none, or it is damaged, foreign or of
    a later format."""
    path = Path(path)
    with told(path):
        arrays = archives.arrays(path)
        if "meta" not in arrays or arrays["meta"].dtype != np.uint8:
            raise ValueError("it says nothing about a run")
        meta = guarded.parsed(path, arrays.pop("meta").tobytes())
        if meta["format"] != FORMAT:
            raise TrainError(f"{path} has format {meta['format']}; this version reads {FORMAT}")
        config = config_of(meta, arrays)
        return Checkpoint(path, config, meta, arrays, plan_of(meta, arrays))


@contextmanager
def told(path: Path) -> Iterator[None]:
    """What is made of a file that may be damaged, or somebody else's: whatever that stumbles over
    is a TrainError about the file."""
    try:
        yield
    except (RnnspecError, MemoryError):
        raise
    except FileNotFoundError:
        raise TrainError(f"no checkpoint {path}") from None
    except Exception as error:
        reason = error.reason if isinstance(error, guarded.Refused) else f"{type(error).__name__}: {str(error)[:200]}"
        raise TrainError(f"{path} is not a checkpoint of rnnspec, or it is damaged ({reason})") from error


def restore(run: TrainingRun, saved: Checkpoint) -> None:
    """Sets a fresh run, made for the same cell, sizes and data, to where the saved one stood.

    TrainError names every difference; the run is changed only if there is none.
    """
    if saved.meta["weights_only"]:
        raise TrainError(
            f"{saved.path} has weights alone (--weights-only), so that the run can't go on where it stood. A new run"
            f" starts from them: --from {saved.path.parent}"
        )
    differences = compare(saved, run)
    if differences:
        raise TrainError(f"{saved.path} doesn't fit this run:\n" + "\n".join(f"  {line}" for line in differences))
    _check_progress(saved, run)
    fill(weights_of(run.model), saved)
    for name, array in run.optimiser.items():
        array[...] = saved.arrays[f"optimiser/{name}"]
    meta = saved.meta
    states = tuple(saved.group("state").values())
    run.state = {"none": None, "array": states[0] if states else None, "tuple": states}[meta["state"]]
    run.cursor = dict(meta["cursor"])
    for name in COUNTS:
        setattr(run, name, meta[name])
    run.best = Best(**meta["best"], params=saved.group("best")) if meta["best"] else None
    run.history = History(**meta["history"])


def _check_progress(saved: Checkpoint, run: TrainingRun) -> None:
    """TrainError where the best weights are not of this model, or a snapshot has no score, or there
    is no batch where the run stood."""
    meta, best = saved.meta, saved.group("best")
    wanted = {name: array for name, array in run.model.params.items() if meta["best"]}
    lines = _misfits(wanted, best)
    metric = run.problem.metric.name
    lines += [
        f"the snapshot of step {s['step']} has no {metric}" for s in meta["history"]["snapshots"] if metric not in s
    ]
    if lines:
        raise TrainError(f"{saved.path} doesn't fit this run:\n" + "\n".join(f"  {line}" for line in lines[:20]))
    with told(saved.path):
        run.problem.next(dict(meta["cursor"]))


def take(model: Model, saved: Checkpoint) -> None:
    """The saved weights into a new model, whatever it was trained for. TrainError names every array
    that doesn't fit; nothing else is checked."""
    wanted = {f"model/{name}": array for name, array in weights_of(model).items()}
    lines = _misfits(wanted, {name: array for name, array in saved.arrays.items() if name.startswith("model/")})
    if lines:
        raise TrainError(
            f"the weights of {saved.path} don't fit this run:\n" + "\n".join(f"  {line}" for line in lines)
        )
    fill(weights_of(model), saved)


def weights_of(model: Model) -> dict[str, np.ndarray]:
    """All weights of a model, trained and fixed."""
    return {**model.params, **model.fixed}


def fill(params: Mapping[str, np.ndarray], saved: Checkpoint) -> None:
    """The saved weights into arrays of the same names."""
    for name, array in params.items():
        array[...] = saved.arrays[f"model/{name}"]


def compare(saved: Checkpoint, run: TrainingRun) -> list[str]:
    """What keeps the saved run from being resumed as this one, one line each."""
    was, wanted = saved.config, run.config
    lines = [
        f"{name} is {_text(getattr(wanted, name))}; the run was trained with {_text(getattr(was, name))}"
        for name in FIXED
        if getattr(was, name) != getattr(wanted, name)
    ]
    if (was.task_digest or was.task) != (wanted.task_digest or wanted.task):
        changed = was.task_digest and wanted.task_digest
        lines.append(
            f"the task {wanted.task} is not the one it was trained on ({was.task})"
            + (": the file was changed" if changed else "")
        )
    if was.digest != wanted.digest:
        new = [equation for equation in wanted.equations if equation not in was.equations]
        lines.append(
            f"the cell {wanted.cell} is not the {was.cell} it was trained with"
            + (f": {new[0]!r} was not there" if new else "")
        )
    if saved.meta["data_sha256"] != run.problem.digest:
        default = "the default data, perhaps of another version of Python"
        lines.append(
            f"the {'text' if was.task == 'text' else 'data'} is not the one it was trained on ({was.data or default})"
        )
    return lines or compare_arrays(saved, run)


def compare_arrays(saved: Checkpoint, run: TrainingRun) -> list[str]:
    """Which arrays don't fit, one line each: possible only if the file was changed or another
    version made it."""
    wanted = {f"model/{k}": v for k, v in weights_of(run.model).items()} | {
        f"optimiser/{k}": v for k, v in run.optimiser.items()
    }
    return _misfits(
        wanted, {name: array for name, array in saved.arrays.items() if not name.startswith(("state/", "best/"))}
    )


def _misfits(wanted: Mapping[str, np.ndarray], saved: Mapping[str, np.ndarray]) -> list[str]:
    lines = [f"{name} is missing" for name in wanted if name not in saved]
    for name, found in saved.items():
        array = wanted.get(name)
        if array is None:
            lines.append(f"{name} has no place in this model")
        elif (found.shape, found.dtype) != (array.shape, array.dtype):
            lines.append(
                f"{name} is {found.dtype} {list(found.shape)}; this model has {array.dtype} {list(array.shape)}"
            )
    return lines


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={v}" for k, v in value.items()) or "none"
    return str(value)
