"""Figures of a run: all that was measured is in them, inside its axes, in the format asked for."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rnnspec.train import plots
from rnnspec.train.loop import History
from rnnspec.train.problem import Metric, Predictions
from rnnspec.train.tasks import adding, forecast, load_task

STRINGS = Metric("strings", "of the strings right", less=False)


def history(scores: list[float | None]) -> History:
    return History([3.0, 2.0, 1.0, 0.5], [{"step": n, "strings": score} for n, score in enumerate(scores)])


def test_every_held_out_score_is_shown_and_0_is_one() -> None:
    assert plots.held_out(history([0.0, None, 0.0, 0.03, float("nan")]), STRINGS) == [(0, 0.0), (2, 0.0), (3, 0.03)]


def test_scores_are_read_as_words() -> None:
    assert plots.score_text(0.126, STRINGS) == "13 % of the strings right"
    assert (
        plots.score_text(0.003, STRINGS) == "0.3 % of the strings right"
        and plots.score_text(1.0, STRINGS)[:5] == "100 %"
    )
    assert plots.score_text(0.0312, Metric("error", "mean squared error")) == "0.031 mean squared error"


def test_labels_lie_inside_their_axes_and_steps_are_whole() -> None:
    problem = SimpleNamespace(metric=STRINGS, loss_unit="nats", baseline=None)
    figure = plots.loss_figure(history([0.0, 0.0, 0.01, 0.03]), problem, "lstm, 12 units")
    figure.canvas.draw()
    upper, lower = figure.axes
    (label,) = lower.texts
    box, frame = label.get_window_extent(), lower.get_window_extent()
    assert label.get_text() == "3 %" and frame.x0 <= box.x0 and box.x1 <= frame.x1
    assert frame.y0 <= box.y0 and box.y1 <= frame.y1
    assert all(float(tick).is_integer() for tick in lower.get_xticks())
    points = next(line for line in lower.lines if line.get_marker() == "o")
    assert list(points.get_ydata()) == [0.0, 0.0, 0.01, 0.03]
    for axes in (upper, lower):  # names of axes are not longer than the axes
        assert axes.yaxis.label.get_window_extent().height <= axes.get_window_extent().height


def test_no_loss_is_cut_off_without_a_word() -> None:
    """The curve of `adding` began above its axes; what is far above the rest is cut, and told."""
    problem = load_task("adding").make(load_task("adding").config("gru"), {})
    for losses, told in (([1.6, 1.3, 0.9, 0.5, 0.2, 0.17, 0.17], False), ([1.0] * 60 + [9.0, 0.9], True)):
        run = History(losses, [{"step": 0, problem.metric.name: 1.0}])
        axes = plots.loss_figure(run, problem, "gru").axes[0]
        assert (axes.get_ylim()[1] < max(losses)) == told
        assert any(text.get_text() == "cut off: losses up to 9.000" for text in axes.texts) == told


def test_a_long_label_has_lines() -> None:
    problem = load_task("forecast").make(load_task("forecast").config("gru"), {})
    run = History([1.0, 0.5], [{"step": 0, problem.metric.name: 1.0}])
    figure = plots.loss_figure(run, problem, "gru")
    figure.canvas.draw()
    for axes in figure.axes:
        label, box = axes.yaxis.label.get_window_extent(), axes.get_window_extent()
        assert box.y0 - 10 <= label.y0 and label.y1 <= box.y1 + 10


def test_predictions_are_drawn_in_the_format_of_the_extension(tmp_path) -> None:
    values = np.linspace(0, 2, 20)
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    for kind, begin in begins.items():
        for over_steps in (False, True) if kind == "svg" else (False,):
            plots.prediction(tmp_path / f"p.{kind}", Predictions(values, values + 0.1, "sum", over_steps), "mini")
        assert (tmp_path / f"p.{kind}").read_bytes()[: len(begin)] == begin
    with pytest.raises(ValueError, match="png, svg or pdf"):
        plots.prediction(tmp_path / "p.gif", Predictions(values, values, "sum"), "mini")


@pytest.mark.parametrize("task", [adding, forecast])
def test_tasks_of_numbers_say_what_was_predicted(task) -> None:
    """A model that is right lies on the diagonal."""
    config = task.TASK.config("rnn", length=8, batch=2)
    problem = task.make(config, {})
    right = {"adding": lambda x: (x[..., 0] * x[..., 1]).sum(axis=0)[:, None], "forecast": lambda x: x[..., :1]}
    model = SimpleNamespace(outputs=lambda x: (right[config.task](x), None))
    found = problem.predictions(model)
    assert found.true.shape == found.predicted.shape and found.true.ndim == 1
    if config.task == "adding":
        np.testing.assert_allclose(found.predicted, found.true, rtol=1e-6)
    else:  # what stays is right some steps later
        np.testing.assert_allclose(found.predicted[problem.horizon :], found.true[: -problem.horizon], rtol=1e-6)
        assert found.over_steps and len(found.true) <= forecast.DRAWN
