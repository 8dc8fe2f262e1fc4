"""What the tests of the training part share: a layer in a dozen lines, a small run, and central
differences."""

from __future__ import annotations

import numpy as np

from rnnspec.train import TrainingConfig, load_task, make_corpus, start_run
from rnnspec.train.tasks.text import TextProblem

TEXT = "the quick brown fox jumps over the lazy dog; " * 120
GRADIENT_TOLERANCE = 1e-7  # central differences in float64 with a step of 1e-6


class MiniLayer:
    """h[t] = tanh(x[t] @ W.T + h[t-1] @ U.T), in a dozen lines: the loop is what is tested."""

    def __init__(self, cell, input_size, hidden_size, dtype="float32", threads=None, seed=0, sizes=None, **choices):
        rng = np.random.default_rng(seed)
        self.input_size, self.output_size = input_size, hidden_size
        shapes = {"W": (hidden_size, input_size), "U": (hidden_size, hidden_size)}
        self.params = {name: (0.3 * rng.standard_normal(shape)).astype(dtype) for name, shape in shapes.items()}
        self.grads = {}
        self.fixed = {}

    def __call__(self, x, state=None, lengths=None):
        y, state = self.infer(x, state)
        return y, state

    def infer(self, x, state=None, lengths=None):
        assert lengths is None
        h = self.h0 = np.zeros((x.shape[1], self.output_size), x.dtype) if state is None else state[0]
        self.x, self.y = x, np.empty((*x.shape[:2], self.output_size), x.dtype)
        for t in range(len(x)):
            h = self.y[t] = np.tanh(x[t] @ self.params["W"].T + h @ self.params["U"].T)
        return self.y, h[None].copy()

    def constrain(self):
        pass

    def backward(self, dy, dstate=None):
        d_h, d_x = np.zeros_like(self.h0), np.empty_like(self.x)
        self.grads = {name: np.zeros_like(p) for name, p in self.params.items()}
        for t in reversed(range(len(dy))):
            d_a = (dy[t] + d_h) * (1 - self.y[t] ** 2)
            self.grads["W"] += d_a.T @ self.x[t]
            self.grads["U"] += d_a.T @ (self.y[t - 1] if t else self.h0)
            d_x[t], d_h = d_a @ self.params["W"], d_a @ self.params["U"]
        return d_x, d_h[None]


def mini_config(**changed):
    return TrainingConfig(**{"cell": "mini", "hidden": 12, "embed": 6, "steps": 30, "batch": 4, "length": 8} | changed)


def mini_run(config=None, text=TEXT, layer=MiniLayer):
    """A text run over MiniLayer."""
    config = config or mini_config()
    problem = TextProblem(config, make_corpus(text, "test"))
    return start_run(
        config, problem, problem.model(lambda width, seed=0: layer("mini", width, config.hidden, seed=config.seed))
    )


def task_config(name, cell="mini", **changed):
    """A configuration of a task: its defaults, with changes; `options` adds to the task's."""
    return load_task(name).config(cell, **changed)


def numeric(f, array):
    """Central differences of f() with respect to every element of the array."""
    gradient = np.empty_like(array)
    for i in np.ndindex(array.shape):
        kept = array[i]
        array[i] = kept + 1e-6
        above = f()
        array[i] = kept - 1e-6
        gradient[i] = (above - f()) / 2e-6
        array[i] = kept
    return gradient
