"""Tasks in a Python file of the user's: they run by the interface of the built-in ones; a file that
is wrong is told with its line, and none is run that the user has not named."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rnnspec.train
from rnnspec.commands.cli import main
from rnnspec.train import TrainError, find_task, load_run, load_task, task_in

DOCUMENT = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", DOCUMENT, re.DOTALL)
TASK = next(text for kind, text in BLOCKS if kind == "python" and "TASK = Task(" in text)
SMALL = ("--hidden", "6", "--length", "8", "--steps", "12", "--every", "6", "--batch", "8", "--threads", "1")

OWN_CLASS = "class OwnModel(SequenceModel):\n    plan = property(lambda self: None, lambda *_: None)\n\n\n"
OWN_MODEL = TASK.replace("return SequenceModel(", "return OwnModel(")
OWN_MODEL = OWN_MODEL.replace("class Pulses(Drawn)", f"{OWN_CLASS}class Pulses(Drawn)")


def test_the_task_of_the_documents_learns_and_leads_somewhere(command):
    Path("my_task.py").write_text(TASK)
    code, out, err = command("gru", "--task", "my_task.py", "--threads", "1", "--set", "noise=0.05")
    assert code == 0 and "my_task     two pulses in 40 steps; 500 held-out sequences" in err
    metrics = json.loads(Path("runs/gru-my_task/metrics.json").read_text())
    assert metrics["final"]["score"] > 0.95 and metrics["config"]["task"] == os.path.abspath("my_task.py")
    assert metrics["config"]["options"] == {"noise": 0.05} and "of the sequences right" in out
    assert sorted(p.name for p in Path().iterdir()) == ["my_task.py", "runs"]  # no __pycache__
    run = load_run("runs/gru-my_task")
    assert run.task is None and run.vocabulary is None and "my_task" in repr(run)
    problem = task_in("my_task.py").make(run.config, run.memory)
    found = run.predict(problem.test.x.swapaxes(0, 1))
    assert (found == problem.test.target).mean() == pytest.approx(metrics["final"]["score"])
    assert load_run("runs/gru-my_task", task="my_task.py").task.name == "my_task"


def test_a_run_goes_on_where_it_stood_with_the_file_named_again(command):
    Path("my_task.py").write_text(TASK)
    argv = ("rnn", "--task", "my_task.py", *SMALL, "--schedule", "constant")
    assert command(*argv, "--out", "whole")[0] == 0
    assert command(*argv, "--steps", "7", "--out", "part")[0] == 0
    code, _, err = command("--resume", "part", "--steps", "12")
    assert code == 2 and "whose Python is run only if you name it: --task" in err and "my_task.py" in err
    Path("elsewhere").mkdir()
    Path("my_task.py").rename("elsewhere/my_task.py")
    code, _, err = command("--resume", "part", "--steps", "12", "--task", "my_task.py")
    assert code == 2 and "no file" in err and "my_task.py" in err
    assert command("--resume", "part", "--steps", "12", "--task", "elsewhere/my_task.py", "--threads", "1")[0] == 0
    whole, part = (np.load(f"{name}/weights.npz") for name in ("whole", "part"))
    assert all(np.array_equal(whole[n], part[n]) for n in whole.files if n != "meta")
    Path("elsewhere/my_task.py").write_text(TASK + "\n# changed\n")
    code, _, err = command("--resume", "part", "--steps", "20", "--task", "elsewhere/my_task.py")
    assert code == 2 and "is another file, or was changed since" in err and "--from" in err
    with pytest.raises(TrainError, match="the file was changed since, or is another"):
        load_run("part", task="elsewhere/my_task.py")
    assert load_run("part").predict(np.zeros((2, 8, 2))).shape == (2,)  # it needs no file
    code, _, err = command("--from", "part", "--task", "elsewhere/my_task.py", "--steps", "2", "--out", "next")
    assert code == 0
    code, _, err = command("--resume", "part", "--task", "adding")
    assert code == 2 and "another task starts from its weights" in err


def test_no_file_is_run_because_a_run_folder_names_it(command, tmp_path):
    Path("my_task.py").write_text(TASK)
    assert command("rnn", "--task", "my_task.py", *SMALL, "--out", "run")[0] == 0
    Path("my_task.py").write_text("import pathlib\npathlib.Path('harm').touch()\n" + TASK)
    load_run("run")
    assert command("--resume", "run", "--steps", "20")[0] == 2
    assert command("--from", "run", "--steps", "20")[0] == 2
    assert main(["probe", "--run", "run"]) == 2
    assert not Path("harm").exists()


def test_a_model_of_ones_own_needs_its_file(command):
    Path("my_task.py").write_text(OWN_MODEL)
    assert command("rnn", "--task", "my_task.py", *SMALL, "--out", "run")[0] == 0
    with pytest.raises(TrainError, match=r"a model of its task's own.*load_run\('run', task="):
        load_run("run")
    run = load_run("run", task="my_task.py")
    assert type(run.model).__name__ == "OwnModel" and run.layer.batch_first
    assert run.predict(np.zeros((2, 8, 2))).shape == (2,)


def test_a_task_remembers_what_it_wants(command):
    """Any JSON; what turns symbols into ids comes from it."""
    text = TASK.replace("    def draw(", "    memory = {'levels': [1, {'a': None}]}\n\n    def draw(", 1)
    text = text.replace("    make=make,", "    make=make,\n    vocabulary=lambda memory: memory['levels'],")
    Path("my_task.py").write_text(text)
    assert command("rnn", "--task", "my_task.py", *SMALL, "--out", "run")[0] == 0
    assert load_run("run").memory == {"levels": [1, {"a": None}]}
    assert load_run("run", task="my_task.py").vocabulary == [1, {"a": None}]


def test_its_folder_can_be_imported_from(command):
    Path("helper_of_tasks.py").write_text("STEPS = 8\n")
    Path("my_task.py").write_text(TASK.replace("import numpy", "from helper_of_tasks import STEPS\nimport numpy"))
    before = list(sys.path)
    try:
        assert find_task("my_task.py").file.endswith("my_task.py")
    finally:
        sys.path[:] = before


def changed(old: str, new: str) -> str:
    assert old in TASK
    return TASK.replace(old, new)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "my_task.py is empty"),
        ("x = 1\n", "a task is a `TASK = rnnspec.train.Task(...)` at the top of its file; it has none"),
        ("TASK = {'name': 'x'}\n", "there it is dict"),
        ("x = (\n", "my_task.py, line 1: "),
        ("import numpy\nprint(absent)\n", "my_task.py, line 2: NameError: name 'absent'"),
        ("import absent_module\n", "my_task.py, line 1: ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "my_task.py, line 1: SystemExit: 3"),
        (changed('"hidden": 32', '"hiden": 32'), "defaults of TASK has 'hiden', which is none of batch, bidirectional"),
        (changed('fields=("length",)', 'fields=("lenght",)'), "fields of TASK has 'lenght'"),
        (changed("    metric = ", "    metrik = "), "what make gives has no metric: TrainingProblem has them"),
        (changed("    def score", "    def scores"), "what make gives has no score"),
        (changed("return Pulses(config)", "return None"), "what make gives has no loss_unit, loss_scale, metric"),
        (changed("    def draw(", "    digest = 3\n\n    def draw("), "digest must be a text, not int"),
        (changed("    def draw(", "    memory = {'a': (1, 2)}\n\n    def draw("), "memory must be the same once"),
        (changed("    def draw(", "    memory = {'a': {1}}\n\n    def draw("), "not JSON serializable"),
        (changed("return Batch(x.astype(np.float32), first)", "return x, first"), "next must give an rnnspec.train.B"),
        (changed("rng.integers(0, 2, count)", "rng.integers(0, 2, count, absent=1)"), "my_task.py, line 17: TypeError"),
        (changed("if config.length < 2", "if config.length < 99"), "rnnspec train: --length must be at least 2"),
        (changed('{"accuracy": float(', '{"right": float('), "gives no score 'accuracy', by which"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_told_with_its_line(text, message, command):
    Path("my_task.py").write_text(text)
    code, _, err = command("rnn", "--task", "my_task.py", *SMALL)
    assert code == 2 and message in err and "Traceback" not in err


OUTPUTS, ABOUT = "logits, _ = model.outputs(self.test.x)", '        return {"steps": self'
FAILING = "        self.calls += 1 / (self.calls < 6)\n        steps, rows = "


@pytest.mark.parametrize(
    "old, new, message, trained",
    [
        (OUTPUTS, "logits = absent", "line 27: NameError: name 'absent'", False),
        (OUTPUTS, "raise NotImplementedError", "line 27: NotImplementedError in score", False),
        (OUTPUTS, "model.outputs(self.test.x[..., :1])", "line 27: ShapeError: ", False),
        (OUTPUTS, "raise SystemExit(3)", "line 27: SystemExit: 3", False),
        ("return SequenceModel(make", "return SequenceModel(absent=make", "line 24: TypeError: ", False),
        ('return f"two pulses in {self', 'return f"two pulses in {absent', "line 34: NameError: name 'absent'", False),
        ("    def draw(self", "    def drew(self", "Pulses has no method draw(rng, count), which Drawn calls", False),
        (ABOUT, ABOUT.replace("self", "absent"), "line 31: NameError: name 'absent'", True),
        ("        self.test = ", "        self.calls = 0\n        self.test = ", "line 17: ZeroDivisionError: ", True),
    ],
)
def test_what_a_task_raises_while_it_runs_is_told_with_its_line(old, new, message, trained, command):
    """And no run folder is left where nothing was trained."""
    text = changed(old, new)
    if "calls" in new:  # in a batch of the training, not when it is set up
        text = text.replace("        steps, rows = ", FAILING)
    Path("my_task.py").write_text(text)
    code, _, err = command("rnn", "--task", "my_task.py", *SMALL)
    assert code == 2 and message in err and f"{Path('my_task.py').absolute()}" in err and "Traceback" not in err
    assert trained == bool(list(Path().glob("runs/*")))


BATCH = "Batch(x.astype(np.float32), first)"


@pytest.mark.parametrize(
    "new, message",
    [
        ("Batch(x.astype(np.int64), first)", "input 'x' has dtype int64"),
        ("Batch(x.astype(np.float32)[..., :1], first)", "input 'x' has 1 features, expected 2"),
        ("Batch(x.astype(np.float32), first + 5)", "label 5 at [0] is out of range"),
        ("Batch(x.astype(np.float32), first[:-1])", "one label for each place is wanted"),
        ("Batch(x.astype(np.float32), first, lengths=np.full(count, 99))", "lengths[0] is 99"),
    ],
)
def test_a_batch_that_nothing_can_be_made_of_is_told_with_the_line_of_its_maker(new, message, command):
    """It came from inside rnnspec, and named no file."""
    Path("my_task.py").write_text(changed(BATCH, new))
    line = 1 + TASK[: TASK.index("    def draw(")].count("\n")
    code, _, err = command("rnn", "--task", "my_task.py", *SMALL)
    assert code == 2 and f"{Path('my_task.py').absolute()}, line {line}: a batch that `draw` gives" in err
    assert message in err and not list(Path().glob("runs/*"))


def test_a_batch_of_later_too(command):
    Path("my_task.py").write_text(
        changed("        self.test = ", "        self.calls = 0\n        self.test = ")
        .replace("        steps, rows = ", "        self.calls += 1\n        steps, rows = ")
        .replace(BATCH, "Batch(x.astype(np.float32), first + (self.calls > 6))")
    )
    code, _, err = command("rnn", "--task", "my_task.py", *SMALL)
    assert code == 2 and "my_task.py, line 15: a batch that `draw` gives can't be trained on: label 2" in err


def test_what_rnnspec_raises_by_mistake_is_not_said_to_be_the_tasks(command, monkeypatch):
    Path("my_task.py").write_text(TASK)
    monkeypatch.setattr("rnnspec.train.loop.clip_global_norm", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        command("rnn", "--task", "my_task.py", *SMALL)
    assert Path("runs/rnn-my_task/weights.npz").exists()  # as it was before the first step


def test_a_task_that_is_neither_a_name_nor_a_file(command):
    code, _, err = command("rnn", "--task", "absent.py")
    assert code == 2 and "no file" in err and "absent.py" in err
    with pytest.raises(TrainError, match=r"or a Python file of your own, like my_task\.py"):
        load_task("my_task")
    Path("folder.py").mkdir()
    code, _, err = command("rnn", "--task", "folder.py")
    assert code == 2 and "is a folder" in err


@pytest.mark.slow
def test_the_documents_examples_run(tmp_path):
    """Those of the page, in its order, in one folder; the longest task with fewer steps."""
    environment = {**os.environ, "PYTHONPATH": str(Path(rnnspec.__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"}
    (tmp_path / "my_task.py").write_text(TASK)
    for kind, text in BLOCKS:
        if text is TASK:
            continue
        text = text.replace("rnnspec train", f"{sys.executable} -m rnnspec train")
        start = [sys.executable, "-c"] if kind == "python" else ["sh", "-ec"]
        done = subprocess.run(
            [*start, text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, text + done.stderr
    assert json.loads((tmp_path / "runs/noisy/metrics.json").read_text())["final"]["step"] == 800


def test_help_says_how_it_is_written(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "a Python file of your own with a TASK, like my_task.py (help(rnnspec.train.Task), docs/tasks.md)" in text
    assert "--task supervised --data recordings.npz" in text and "--weights-only" in text
    for name in ("Task", "TrainingProblem", "Batch", "Drawn", "Stored"):
        assert getattr(rnnspec.train, name).__doc__
