"""The tasks of neuroscience and of dynamical systems: cases worked by hand, figures, and that small
networks learn them (slow)."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from train_parts import task_config

import rnnspec
from rnnspec.train import TrainError, layer_maker, load_task, start_run, train
from rnnspec.train import trial_plots as plots
from rnnspec.train.problem import Trajectories
from rnnspec.train.tasks import flipflop, forecast


def problem_of(name, **changed):
    return load_task(name).make(task_config(name, **changed), {})


def test_streams_of_a_perceptual_decision_have_the_means_of_the_coherence():
    problem = problem_of("perceptual", length=4, options={"noise": 0.0, "delay": 2})
    trials = problem.make(np.random.default_rng(0), 400)
    x, target = trials.batch.x, trials.batch.target
    assert x.shape == (11, 400, 3) and target.shape == (11, 400)
    row = int(np.flatnonzero(trials.strength == -0.512)[0])
    np.testing.assert_allclose(x[:, row, 1], [0, 0, *[0.244] * 4, 0, 0, 0, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(x[2:6, row, 2], 0.756, rtol=1e-6)
    assert x[:, row, 0].tolist() == [1] * 8 + [0] * 3 and target[:, row].tolist() == [0] * 8 + [2] * 3
    right = trials.strength > 0
    assert (target[-1, right] == 1).all() and (target[-1, trials.strength < 0] == 2).all()
    assert set(np.abs(trials.strength)) == {0, 0.064, 0.128, 0.256, 0.512}
    coin = target[-1, trials.strength == 0]
    assert 0 < (coin == 1).mean() < 1 and not trials.decided[trials.strength == 0].any() and problem.chance == 0.5


def test_the_cue_says_which_coherence_decides():
    problem = problem_of("context", length=3, options={"noise": 0.0})
    trials = problem.make(np.random.default_rng(1), 300)
    x, target = trials.batch.x, trials.batch.target
    assert x.shape == (8, 300, 7) and (x[:5, :, 5:].sum(axis=-1) == 1).all() and (x[5:, :, 5:] == 0).all()
    motion, colour = x[3, :, 1] - x[3, :, 2], x[3, :, 3] - x[3, :, 4]
    decides = np.where(x[0, :, 5] == 1, motion, colour)
    np.testing.assert_allclose(decides, trials.strength, atol=1e-6)
    clear = abs(decides) > 1e-3
    assert (target[-1, clear] == np.where(decides[clear] > 0, 1, 2)).all()
    assert (motion * colour < -1e-3).any()  # the two contradict in some


def test_half_of_the_tests_match_their_samples():
    problem = problem_of("match", length=4, options={"noise": 0.0, "stimuli": 3})
    batch = problem.make(np.random.default_rng(2), 500).batch
    assert batch.x.shape == (15, 500, 4) and (batch.x[5:9, :, 1:] == 0).all()
    sample, test = batch.x[2:5, :, 1:].argmax(axis=-1), batch.x[9:12, :, 1:].argmax(axis=-1)
    assert (sample == sample[0]).all() and (test == test[0]).all()
    assert (batch.target[-3:] == np.where(sample[0] == test[0], 1, 2)).all() and (batch.target[:-3] == 0).all()
    assert 0.4 < (batch.target[-1] == 1).mean() < 0.6


def test_a_flip_flop_holds_the_last_pulse():
    pulses = np.array([[0, 1], [-1, 0], [0, 0], [0, -1], [1, 0]], np.float32)[:, None]
    assert flipflop.held(pulses)[:, 0].tolist() == [[0, 1], [-1, 1], [-1, 1], [-1, -1], [1, -1]]
    problem = problem_of("flipflop", length=200)
    batch, _ = problem.next({})
    assert batch.x.shape == (200, 32, 3) and abs((batch.x != 0).mean() - 0.1) < 0.01
    assert set(np.unique(batch.target)) <= {-1, 0, 1} and 0.9 < problem.baseline[1] < 1


def test_the_lorenz_series_is_that_of_the_equations():
    series = forecast.lorenz(400, 3)
    assert (
        series.shape == (400, 3) and abs(series[:, 0]).max() < 25 and 0 < series[:, 2].min() < series[:, 2].max() < 55
    )

    def slope(s):
        return np.array([10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]])

    exact, step = [series[0].astype(np.float64)], 5e-5  # of the midpoint rule: far finer than the series
    for _ in range(10):
        at = exact[-1]
        for _ in range(1000):
            middle = at + step / 2 * slope(at)
            at = at + step * slope(middle)
        exact.append(at)
    np.testing.assert_allclose(series[:11], exact, atol=1e-2)
    problem = problem_of("forecast", options={"series": "lorenz"})
    assert problem.names == ["x", "y", "z"] and "Lorenz" in problem.summary()
    with pytest.raises(TrainError, match="series must be mackey_glass or lorenz; got 'rossler'"):
        problem_of("forecast", options={"series": "rossler"})


@pytest.mark.parametrize(
    "name, changed, message",
    [
        ("perceptual", {"length": 0}, "a trial needs a stimulus"),
        ("perceptual", {"options": {"noise": -1.0}}, "a noise of at least 0"),
        ("context", {"options": {"delay": -1}}, "a delay"),
        ("match", {"options": {"stimuli": 1}}, "stimuli must be at least 2"),
        ("match", {"length": -1}, "--length must be at least 0"),
        ("flipflop", {"options": {"pulses": 0.0}}, "pulses above 0"),
    ],
)
def test_settings_that_make_no_task_are_refused(name, changed, message):
    with pytest.raises(TrainError, match=message):
        problem_of(name, **changed)


class Said:
    """A model that says what it is told, at every step."""

    def __init__(self, logits):
        self.logits = logits

    def outputs(self, x):
        return self.logits, None


def test_scores_and_the_psychometric_curve_of_known_choices():
    problem = problem_of("perceptual", length=3)
    strength, target = problem.trials.strength, problem.test.target
    logits = np.zeros((*target.shape, 3), np.float32)
    logits[..., 0] = 1
    logits[-3:, :, 0] = -1
    logits[-3:, :, 1] = np.where(strength > -0.1, 1, -1)  # biased to the right
    found = problem.score(Said(logits), quick=False)
    wrong = (strength == -0.064).sum() / (strength != 0).sum()
    assert found["accuracy"] == pytest.approx(1 - wrong) and found["fixates"] == 1
    curves = problem.psychometric(Said(logits)).curves
    strengths, shares = curves["all trials"]
    assert strengths.tolist() == [-0.512, -0.256, -0.128, -0.064, 0, 0.064, 0.128, 0.256, 0.512]
    assert shares.tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1]


def test_principal_components_are_those_of_all_paths():
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0][:2]
    flat = {"a": rng.normal(size=(6, 2)) * (3, 1), "b": rng.normal(size=(4, 2)) * (3, 1) + 2}
    found = Trajectories.of({n: a @ turn for n, a in flat.items()})
    assert sum(found.explained) == pytest.approx(1) and found.explained[0] > found.explained[1]
    middle = np.concatenate(list(flat.values())).mean(axis=0)
    for name, way in found.paths.items():
        np.testing.assert_allclose(np.linalg.norm(way, axis=1), np.linalg.norm(flat[name] - middle, axis=1))
    one = Trajectories.of({"a": np.ones((3, 1))})
    assert one.paths["a"].shape == (3, 2) and one.explained == (0, 0)


def test_figures_of_a_short_run_are_drawn(tmp_path):
    config = task_config("context", cell="gru", length=4, hidden=8, steps=2)
    problem = load_task("context").make(config, {})
    model = problem.model(layer_maker(rnnspec.load("gru"), config, 1))
    plots.psychometric(tmp_path / "p.svg", problem.psychometric(model), "title")
    ways = problem.trajectories(model)
    assert set(ways.paths) == {f"{c}, {g}" for c in ("right", "left") for g in problem.groups}
    plots.trajectories(tmp_path / "t.svg", ways, "title")
    assert "motion decides" in (tmp_path / "p.svg").read_text() and (tmp_path / "t.svg").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, changed, level",
    [
        ("perceptual", {}, 0.8),
        ("context", {}, 0.8),
        ("match", {}, 0.9),
        ("flipflop", {}, 0.1),
    ],
)
def test_a_small_network_learns_it(name, changed, level):
    config = task_config(name, cell="gru", **{"hidden": 32, **changed})
    problem = load_task(name).make(config, {})
    run = start_run(config, problem, problem.model(layer_maker(rnnspec.load("gru"), config, 1)))
    list(train(run))
    score = problem.score(run.model, quick=False)[problem.metric.name]
    assert problem.metric.better(score, level), score


@pytest.mark.slow
def test_a_network_of_dales_law_learns_a_decision():
    config = task_config("perceptual", cell="dale_rnn", hidden=50)
    problem = load_task("perceptual").make(config, {})
    spec = rnnspec.load("dale_rnn")
    run = start_run(config, problem, problem.model(layer_maker(spec, config, 1)))
    for _ in train(run):
        R = run.model.params["layer.R_l0"]
        assert (R[:, :40] >= 0).all() and (R[:, 40:] <= 0).all() and (R.diagonal() == 0).all()
    assert problem.score(run.model, quick=False)["accuracy"] > 0.7


@pytest.mark.parametrize("name", ["", "os:path", "../x", "a b", "x" * 200])
def test_a_name_of_neurogym_is_a_name_and_no_module(name):
    with pytest.raises(TrainError, match="names no environment"):
        load_task(f"neurogym:{name}")


def test_neurogym_is_asked_for_where_it_is_needed_and_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "neurogym.envs.registration", None)
    task = load_task("neurogym:PerceptualDecisionMaking")
    config = task.config("gru")
    assert (
        config.task == "neurogym:PerceptualDecisionMaking" and config.task_name == "neurogym-PerceptualDecisionMaking"
    )
    with pytest.raises(TrainError, match="which is not installed here: pip install neurogym"):
        task.make(config, {})


RNG = np.random.RandomState(0)


class Environment:
    """What the task reads of an environment: trials of three steps, an action at the last."""

    observation_space = SimpleNamespace(shape=(2,))
    action_space = SimpleNamespace(n=3)

    def seed(self, seed):
        self.rng = np.random.RandomState(seed)

    def reset(self, seed):
        pass

    def new_trial(self):
        side = self.rng.randint(2)
        self.ob = np.zeros((3, 2))
        self.ob[:, side] = 1
        self.gt = np.array([0, 0, 1 + side])


def test_trials_of_an_environment_follow_one_another(monkeypatch):
    registration = SimpleNamespace(all_envs=lambda: ["Two-v0", "Three-v0"], make=lambda name, dt: made(name, dt))
    made = lambda name, dt: SimpleNamespace(unwrapped=Environment())  # noqa: E731
    monkeypatch.setitem(sys.modules, "neurogym.envs.registration", registration)
    problem = problem_of("neurogym:Two", length=7)
    batch, _ = problem.next({})
    again, _ = problem.next({})
    assert batch.x.shape == (7, 16, 2) and (batch.x == again.x).all() and (batch.target == again.target).all()
    assert (batch.target[[0, 1, 3, 4, 6]] == 0).all()
    for t in (2, 5):
        assert (batch.target[t] == 1 + batch.x[t].argmax(axis=-1)).all()
    assert 0.4 < problem.chance < 0.6 and problem.name == "Two"
    with pytest.raises(TrainError, match="Did you mean 'Three-v0'"):
        problem_of("neurogym:Thre")
    monkeypatch.setattr(Environment, "seed", lambda self, seed: setattr(self, "rng", getattr(self, "rng", None) or RNG))
    with pytest.raises(TrainError, match="makes other trials of the same seed"):
        problem_of("neurogym:Two", length=7)
    monkeypatch.setattr(Environment, "action_space", SimpleNamespace(n=2))
    with pytest.raises(TrainError, match="asks for actions beyond its 2"):
        problem_of("neurogym:Two", length=7)
    monkeypatch.setattr(Environment, "new_trial", lambda self: None)
    with pytest.raises(TrainError, match="gives no trials that can be learned from"):
        problem_of("neurogym:Two", length=7)


def test_an_environment_of_neurogym_itself_is_trained_on():
    pytest.importorskip("neurogym")
    config = task_config("neurogym:PerceptualDecisionMaking", cell="gru", length=30, hidden=8, steps=3)
    problem = load_task(config.task).make(config, {})
    run = start_run(config, problem, problem.model(layer_maker(rnnspec.load("gru"), config, 1)))
    list(train(run))
    assert problem.width == 3 and problem.actions == 3 and np.isfinite(run.history.loss).all()
    assert (problem.next({})[0].x == problem.next({})[0].x).all()
