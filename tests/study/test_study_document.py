"""STUDY.yaml: what it means, and what is wrong with one, each fault at its place and all at
once."""

from __future__ import annotations

import random

import pytest
from studies import TOP

from rnnspec.errors import SpecError
from rnnspec.study.document import parse_study, read_study
from rnnspec.study.plan import Axis, Halving, grid

HEAD = "study: 1\ncells: rnn\ntasks: adding\n"


def faults(text, tmp_path):
    with pytest.raises(SpecError) as raised:
        parse_study(text, tmp_path / "s.yaml")
    return raised.value.errors


def parsed(text, tmp_path):
    return parse_study(text, tmp_path / "s.yaml")


def test_a_study_is_cells_times_tasks_times_points_times_seeds(tmp_path):
    text = """
study: 1
name: all
cells: [gru, {cell: rnn, name: rnn_relu, choices: {phi: relu}}]
tasks: [{task: adding, length: 20}, {task: copy, options: {items: [3, 5]}}]
settings: {hidden: [4, 8], lr: [0.01], steps: 10}
seeds: [3, 1]
"""
    study = parsed(text, tmp_path)
    assert [g.name for g in study.groups] == ["gru on adding", "gru on copy", "rnn_relu on adding", "rnn_relu on copy"]
    assert [study.count(g) for g in study.groups] == [4, 8, 4, 8] and study.total == 24
    last = study.groups[-1]
    points = list(grid(last))
    assert points[1] == {"hidden": 4, "lr": 0.01, "options.items": 5}
    assert last.config(points[1], 3) == {
        "cell": "rnn",
        "task": "copy",
        "threads": 1,
        "steps": 10,
        "choices": {"phi": "relu"},
        "hidden": 4,
        "lr": 0.01,
        "options": {"items": 5},
        "seed": 3,
    }


def test_an_empty_file_is_told_how_a_study_begins(tmp_path):
    with pytest.raises(SpecError, match="A study starts with 'study: 1'"):
        parsed("", tmp_path)


def test_ranges_are_of_the_kind_of_their_setting(tmp_path):
    text = HEAD + (
        "sampler: random\npoints: 7\nseeds: 2\npruner: {halving: {least: 20, factor: 3}}\n"
        "settings: {hidden: {low: 2, high: 64, log: true}, lr: {low: 1e-4, high: 1, log: true},"
        " dropout: {low: 0, high: 1, step: 0.25}, layers: 2}\n"
    )
    study = parsed(text, tmp_path)
    assert study.total == 14 and study.pruner == Halving(20, 3)
    assert study.groups[0].axes == (
        Axis("hidden", None, 2, 64, log=True, whole=True),
        Axis("lr", None, 1e-4, 1, log=True),
        Axis("dropout", None, 0, 1, step=0.25),
    )


def test_all_faults_are_told_at_their_places(tmp_path):
    text = """study: 2
cells: [nothere, gru, gru]
tasks:
  - adding
  - {tusk: copy}
settings:
  hiden: 4
  lr: [0.1, -1]
  hidden: {low: 4, high: 8}
  batch: 2.5
  lr: 3
seeds: [1, 1]
sampler: grit
points: 3
"""
    found = [(f.line, f.column, f.message) for f in faults(text, tmp_path)]
    expected = {
        (1, 8): "this version reads study: 1",
        (2, 9): "nothere",
        (2, 23): "there is a second cell called 'gru'",
        (5, 5): "'task' is missing",
        (7, 3): "settings has no 'hiden'. Did you mean 'hidden'?",
        (8, 13): "lr must be a number above 0, not -1",
        (9, 11): "a grid goes over lists",
        (10, 10): "batch must be a whole number from 1, not 2.5",
        (11, 3): "'lr' stands here a second time",
        (12, 8): "seeds are different whole numbers",
        (13, 10): "sampler is one of grid, random, tpe. Did you mean 'grid'?",
        (14, 9): "a grid has the points of its lists",
    }
    for place, message in expected.items():
        assert any((line, column) == place and message in told for line, column, told in found), (place, found)


@pytest.mark.parametrize(
    "text, place, message",
    [
        ("study: 1\ncells: nothere\ntasks: adding\n", (2, 8), "nothere"),
        ("study: 1\ncells: own.yaml\ntasks: adding\n", (2, 8), "own.yaml can't be read"),
        ("study: 1\ncells: rnn\ntasks: adin\n", (3, 8), "adin"),
        ("study: 1\ncells: rnn\ntasks: own.py\n", (3, 8), "own.py can't be read"),
        (HEAD + "settings: {embed: 4}\n", (3, 8), "--embed has no meaning for the task adding"),
        (HEAD + "settings: {options: {noise: 1}}\n", (3, 8), "no setting 'noise'"),
        (HEAD + "settings: {choices: {phi: nothing}}\n", (2, 8), "phi"),
        (HEAD + "settings: {seed: 3}\n", (4, 12), "settings has no 'seed'"),
        (HEAD + "sampler: tpe\n", (1, 1), "'points' is missing: how many tpe tries"),
        (HEAD + "sampler: tpe\npoints: 3\nsettings: {lr: {low: 1, high: 0.1}}\n", (6, 16), "low below high"),
        (HEAD + "sampler: tpe\npoints: 3\nsettings: {lr: {low: 0, high: 0.1}}\n", (6, 16), "above 0, not 0"),
        (HEAD + "settings: {hidden: [4, 4]}\n", (4, 20), "different values"),
        (HEAD + "seeds: 100001\n", (1, 1), "at most 100,000"),
        ("- study\n", (1, 1), "a study is a mapping"),
        ("study: !!python/object:os.system {}\n", (1, 8), "is not offered"),
    ],
)
def test_each_fault_has_its_place(text, place, message, tmp_path):
    found = faults(text, tmp_path)
    assert any((f.line, f.column) == place and message in f.message for f in found), found


def test_files_are_looked_for_beside_the_study_and_kept_by_their_digests(tmp_path, monkeypatch):
    from rnnspec.language.load import load
    from rnnspec.language.rewrite import to_yaml

    (tmp_path / "own.yaml").write_text(to_yaml(load("gru")).replace("name: gru", "name: own"))
    (tmp_path / "s.yaml").write_text("study: 1\ncells: own.yaml\ntasks: adding\n")
    study = read_study(tmp_path / "s.yaml")
    assert study.groups[0].cell == "own" and study.groups[0].fixed["cell"] == str(tmp_path / "own.yaml")
    assert list(study.digests) == [str(tmp_path / "own.yaml")] and study.name == "s"


def test_no_text_ends_in_a_traceback(tmp_path):
    """Lines lost, doubled, cut, and characters changed: a SpecError or a Study, nothing else."""
    draw = random.Random(0)
    whole = HEAD + "settings: {lr: [0.1, 1], hidden: {low: 1, high: 2}, sizes: {P: 3}}\nseeds: 2\npruner: halving\n"
    for _ in range(300):
        text = list(whole)
        for _ in range(draw.randrange(1, 6)):
            at = draw.randrange(len(text))
            text[at : at + draw.randrange(3)] = draw.choice(
                ("", "[", "}", ": ", "\n", "- ", "&a ", "*a", "9", "\0", "null")
            )
        try:
            parse_study("".join(text), tmp_path / "s.yaml")
        except SpecError as error:
            assert error.errors


@pytest.mark.parametrize("path", sorted((TOP / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_studies(path):
    assert read_study(path).total > 100
