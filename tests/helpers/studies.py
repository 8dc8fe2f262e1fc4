"""What the tests of studies share: a study of trivial trials, and what its storage says of it."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

from rnnspec.study.document import read_study
from rnnspec.study.drive import about_of
from rnnspec.study.store import open_storage

TOP = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(TOP), "OPENBLAS_NUM_THREADS": "1"}
TRIVIAL = """study: 1
name: trivial
cells: rnn
tasks: {task: adding, length: 4, batch: 2, hidden: 2, steps: 2, every: 1}
"""
COMMAND = (sys.executable, "-m", "rnnspec", "study")


def written(folder: Path, more: str = "seeds: 4\n", text: str = TRIVIAL) -> Path:
    path = folder / "s.yaml"
    path.write_text(text + more)
    return path


def trials(folder: Path):
    """All trials of a study that nobody runs now, by their group."""
    import optuna

    storage = open_storage(folder, about_of(folder)["storage"])
    names = [s.study_name for s in optuna.get_all_study_summaries(storage)]
    return {name: optuna.load_study(study_name=name, storage=storage).trials for name in names}


def check_complete(path: Path, folder: Path) -> dict:
    """That a study's trials all ended, each once, each with a whole run folder that has its number;
    the scores by point and seed."""
    study, scores = read_study(path), {}
    for group in study.groups:
        found = trials(folder)[f"{study.name}: {group.name}"]
        assert Counter(t.state.name for t in found) == {"COMPLETE": study.count(group)}
        for trial in found:
            key = (group.name, json.dumps(trial.user_attrs["point"]), trial.user_attrs["seed"])
            assert key not in scores
            place = folder / "runs" / group.cell / group.task / str(trial.number)
            metrics = json.loads((place / "metrics.json").read_text())
            assert metrics["final"]["finished"] and metrics["final"]["score"] == trial.value
            assert metrics["config"]["seed"] == trial.user_attrs["seed"]
            assert not [p for p in place.iterdir() if p.name.endswith(".tmp")]
            scores[key] = trial.value
    return scores
