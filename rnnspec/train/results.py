"""What a run leaves in its folder: weights, a line of metrics for every step, a summary, and
plots."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rnnspec.backends.cpu.machine import brand
from rnnspec.show.figure import FORMATS
from rnnspec.storage import atomic, guarded
from rnnspec.storage.version import version_of
from rnnspec.train import checkpoint, plots, trial_plots
from rnnspec.train.errors import Full, TrainError
from rnnspec.train.loop import TEMPERATURE, TrainingReport, TrainingRun, exhausted, fraction, scores_of
from rnnspec.train.model import Model

WEIGHTS, METRICS, LOG = "weights.npz", "metrics.json", "metrics.jsonl"
LOSS, CONFUSION, PREDICTION = "loss", "confusion", "prediction"
PSYCHOMETRIC, TRAJECTORIES = "psychometric", "trajectories"
PLOTS = tuple(
    f"{name}.{kind}" for name in (LOSS, CONFUSION, PREDICTION, PSYCHOMETRIC, TRAJECTORIES) for kind in FORMATS
)
RECENT = 50
FILES = (WEIGHTS, METRICS, LOG, *PLOTS)  # all that a run may leave


class MetricsLog:
    """A JSON line for every report: step, loss, norm, rate, tokens, seconds, and at snapshots the
    scores.

    Opened for a run that goes on at `step`, it keeps the lines up to there: those behind it are of
    steps that will be taken again.
    """

    def __init__(self, path: Path, step: int):
        self.path = path
        try:
            kept = _until(path, step) if path.exists() else b""
            atomic.write(path, kept)
            self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115, closed by __exit__
        except guarded.Refused as error:
            raise TrainError(f"can't go on with {path}: {error.reason}") from None
        except OSError as error:
            raise Full(f"can't write {path}: {error.strerror}") from None

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with suppress(OSError) if kind is not None else full(self.path):  # what it holds back is written here
            self._file.close()
        if kind is not None and not self.path.stat().st_size:  # nothing was done: nothing is left of it
            self.path.unlink()

    def write(self, report: TrainingReport) -> None:
        line = {
            "step": report.step,
            "loss": report.loss,
            "norm": report.norm,
            "rate": report.rate,
            "tokens": report.tokens,
            "seconds": report.seconds,
        }
        more = {**(report.scores or {}), **({"trouble": report.trouble} if report.trouble else {})}
        with full(self.path):
            self._file.write(json.dumps(finite(line | more)) + "\n")
            self._file.flush()


@contextmanager
def full(path: Path) -> Iterator[None]:
    """What can't be written there is a `Full`."""
    try:
        yield
    except OSError as error:
        raise Full(f"can't write {path}: {error.strerror or error}") from None


def _until(path: Path, step: int) -> bytes:
    """The whole lines of steps up to `step`; a line that a killed writer left half is dropped."""
    kept = []
    for line in guarded.read(path).splitlines(keepends=True):
        try:
            if not line.endswith(b"\n") or json.loads(line)["step"] > step:
                break
        except (ValueError, KeyError, TypeError, RecursionError):
            break
        kept.append(line)
    return b"".join(kept)


@dataclass(frozen=True)
class Ending:
    """How a run is written down at its end. threads: of the kernels, None for the usual number.
    characters, temperature: of the sample. figures: their format, of FORMATS, None for no plots.
    retained: the biases that `retain` set, None where it asked for nothing. weights_only: a run
    that has ended keeps its weights without the optimiser's state."""

    threads: int | None = None
    characters: int = 400
    temperature: float = TEMPERATURE
    figures: str | None = FORMATS[0]
    retained: tuple[str, ...] | None = None
    weights_only: bool = False


def write_results(
    run: TrainingRun, folder: Path | None, first: tuple[float, int], compiled: float, end: Ending
) -> dict[str, Any]:
    """Scores all the held-out data, writes the files, and returns what `metrics.json` has, with the
    numbers that JSON lacks.

    run: as it stands at its end. folder: where the files go, None for nowhere. first: seconds and
    tokens when this session began. compiled: the seconds that compiling took. Raises Full.
    """
    with full(folder) if folder is not None else nullcontext():
        if folder is not None:
            checkpoint.save(folder / WEIGHTS, run)
        final = summary_of(run, first, compiled, end)
        snapshots = run.history.snapshots
        if not snapshots or snapshots[-1]["step"] != run.step:
            snapshots.append({"step": run.step, **final["scores"], "sample": final["sample"][:60]})
            if folder is not None:
                checkpoint.save(folder / WEIGHTS, run)
        metrics = describe(run, end) | {"final": final}
        if folder is not None:
            _write(run, folder, metrics, end)
    return metrics


def _write(run: TrainingRun, folder: Path, metrics: dict[str, Any], end: Ending) -> None:
    """The plots, the summary, and last of all the weights alone, where they are asked for: until
    then a run that is killed can be resumed."""
    final = metrics["final"]
    drawn = draw(run, folder, final["scores"], end.figures) if end.figures else []
    final["files"] = [METRICS, LOG, *drawn, WEIGHTS]
    text = json.dumps(finite(metrics), indent=1, ensure_ascii=False, allow_nan=False)
    atomic.write(folder / METRICS, text.encode("utf-8", "replace"))
    if final["weights_only"]:
        checkpoint.save(folder / WEIGHTS, run, weights_only=True)


def summary_of(run: TrainingRun, first: tuple[float, int], compiled: float, end: Ending) -> dict[str, Any]:
    """How a run ended: the score that decides under "score", whatever its task calls it, and all of
    them by name under "scores"."""
    scores = scores_of(run, quick=False)
    recent = [loss for loss in run.history.loss[-RECENT:] if math.isfinite(loss)]
    seconds = run.seconds - first[0]
    finished = fraction(run) >= 1 or exhausted(run)
    return {
        "step": run.step,
        "finished": finished,
        "score": scores[run.problem.metric.name],
        "scores": scores,
        "not_finite": [name for name, score in scores.items() if not math.isfinite(score)],
        "training_loss": sum(recent) / len(recent) if recent else None,
        "seconds": run.seconds,
        "compile_seconds": compiled,
        "tokens_per_second": (run.tokens - first[1]) / seconds if seconds else None,
        "skipped_steps": run.skipped,
        "sample": run.problem.sample(run.model, end.characters, end.temperature),
        "weights_only": end.weights_only and finished,
    }


def describe(run: TrainingRun, end: Ending) -> dict[str, Any]:
    """What was trained on what, and where."""
    metric, config = run.problem.metric, asdict(run.config)
    del config["cell_text"]  # the equations are there
    parameters, fixed = counted(run.model)
    return {
        "rnnspec": version_of("rnnspec"),
        "config": config,
        "metric": {"name": metric.name, "unit": metric.unit, "better": metric.direction},
        "parameters": {"trained": parameters, "fixed": fixed},
        "retain": {"steps": run.config.retain, "set": list(end.retained or ())},
        "environment": environment(end.threads),
        "data": run.problem.about(),
        "loss_unit": run.problem.loss_unit,
        "baseline": dict([run.problem.baseline]) if run.problem.baseline else {},
        "history": asdict(run.history),
    }


def counted(model: Model) -> tuple[int, int]:
    """How many numbers are trained, and how many are fixed beside them."""
    parameters, fixed = (sum(array.size for array in group.values()) for group in (model.params, model.fixed))
    return parameters, fixed


def written(step: int, folder: Path) -> dict[str, Any] | None:
    """What `metrics.json` of a folder has, if it is the end of a run that stands at this step, with
    all the files that it names: an end may have been written in part, or the files may be those of
    an earlier one. Else None."""
    try:
        metrics = json.loads(guarded.read(folder / METRICS))
        final = metrics["final"]
        there = all(name in FILES and (folder / name).is_file() for name in final["files"])
        return dict(metrics) if final["finished"] and final["step"] == step and there else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def draw(run: TrainingRun, folder: Path, scores: dict[str, float], kind: str = FORMATS[0]) -> list[str]:
    """The plots; returns their names."""
    metric = run.problem.metric
    name = f"{Path(run.config.cell).stem}, {run.config.hidden} units"
    title = f"{name}: {plots.score_text(scores[metric.name], metric)} (held out)"
    loss, matrix, beside = (f"{base}.{kind}" for base in (LOSS, CONFUSION, PREDICTION))
    plots.loss_curve(folder / loss, run.history, run.problem, title)
    drawn = [loss]
    if (confusion := run.problem.confusion(run.model)) is not None:
        plots.confusion_matrix(folder / matrix, *confusion, title)
        drawn.append(matrix)
    if (found := run.problem.predictions(run.model)) is not None:
        plots.prediction(folder / beside, found, title)
        drawn.append(beside)
    if (curves := run.problem.psychometric(run.model)) is not None:
        drawn.append(f"{PSYCHOMETRIC}.{kind}")
        trial_plots.psychometric(folder / drawn[-1], curves, title)
    if (ways := run.problem.trajectories(run.model)) is not None:
        drawn.append(f"{TRAJECTORIES}.{kind}")
        trial_plots.trajectories(folder / drawn[-1], ways, title)
    for other in PLOTS:  # of an earlier end, in another format
        if other not in drawn:
            (folder / other).unlink(missing_ok=True)
    return drawn


def environment(threads: int | None) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": platform.platform(),
        "machine": platform.machine(),
        "processor": brand(),
        "cores": os.cpu_count(),
        "threads": threads,
    }


def finite(value: Any) -> Any:
    """JSON has no NaN: null instead."""
    match value:
        case float() | np.floating():
            return float(value) if math.isfinite(value) else None
        case dict():
            return {key: finite(v) for key, v in value.items()}
        case list() | tuple():
            return [finite(v) for v in value]
        case _:
            return value
