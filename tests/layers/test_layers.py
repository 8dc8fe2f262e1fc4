"""Several layers and directions, and all that a layer can be asked for: against loops over rows and
steps, values and gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from plain_layers import Options, layers
from tolerances import DIFFERENCE_STEP, DIFFERENCES, REFERENCE, assert_close, assert_same

from rnnspec import Recurrent
from rnnspec.engine.spans import cut
from rnnspec.layers.forward import dropout_mask

Array = np.ndarray
LENGTHS = np.array([5, 7, 0, 1, 3])


class Call:
    """A random call of a layer, its loss, and the loss that the loops say: a random sum of all that
    comes out."""

    def __init__(
        self,
        o: Options,
        seed: int = 0,
        steps: int = 7,
        rows: int = 5,
        ragged: bool = False,
        resets: bool = False,
        given: bool = False,
        record: bool = False,
        dropout: float = 0.0,
        memory: str = "full",
        cell: str = "rnn",
    ):
        rng = np.random.default_rng(seed)
        self.o, self.dropout, self.record = o, dropout, record
        self.layer = Recurrent(
            cell, **asdict(o), dropout=dropout, dtype="float64", seed=seed, return_all_states=record, memory=memory
        )
        self.params = {n: rng.normal(size=p.shape) * 0.6 for n, p in self.layer.params.items()}
        self.layer.load_state_dict(self.params)
        self.x = rng.normal(size=(steps, rows, o.input_size))
        shape = next(iter(self.layer.stack.states.values()))
        self.state = rng.normal(size=(shape[0], rows, *shape[1:])) if given else None
        self.lengths = np.resize(LENGTHS, rows) % (steps + 1) if ragged else None
        self.resets = rng.random((steps, rows)) < 0.3 if resets else None
        y, final, recorded = self.plain()
        self.dy, self.dfinal = rng.normal(size=y.shape), rng.normal(size=final.shape)
        self.dsteps = {n: rng.normal(size=a.shape) for n, a in recorded.items()} if record else {}

    def plain(self, **changed: Any) -> tuple[Array, Array, dict[str, Array]]:
        given = {"params": self.params, "x": self.x, "state": self.state} | changed
        shape = (*self.x.shape[:2], self.layer.output_size)
        masks = (
            {
                depth: dropout_mask((3,), depth, shape, self.dropout, np.dtype("float64"))
                for depth in range(1, self.o.num_layers)
            }
            if self.dropout
            else None
        )
        return layers(self.o, given["params"], given["x"], given["state"], self.lengths, self.resets, masks)

    def loss(self, **changed: Any) -> float:
        y, final, recorded = self.plain(**changed)
        return float(
            np.vdot(self.dy, y)
            + np.vdot(self.dfinal, final)
            + sum(np.vdot(g, recorded[n]) for n, g in self.dsteps.items())
        )

    def check(self) -> None:
        y, final, recorded = self.plain()
        out = self.layer(self.x, self.state, self.lengths, resets=self.resets, seed=3)
        assert_close(out[0], y, REFERENCE["float64"], "y")
        assert_close(out[1], final, REFERENCE["float64"], "final")
        if self.record:
            assert_close(out[2], recorded, REFERENCE["float64"], "steps")
        dx, dstate = self.layer.backward(self.dy, self.dfinal, self.dsteps)
        assert {n: g.shape for n, g in self.layer.grads.items()} == {n: p.shape for n, p in self.params.items()}
        self.differences("x", {"": self.x}, {"": dx}, lambda moved: {"x": moved[""]})
        self.differences("weights", self.params, self.layer.grads, lambda moved: {"params": moved})
        if self.state is not None:
            self.differences("state", {"": self.state}, {"": dstate}, lambda moved: {"state": moved[""]})
        if not self.dropout:
            inferred = self.layer.infer(self.x, self.state, self.lengths, resets=self.resets)
            assert_same(inferred[0], out[0])
            assert_same(inferred[1], out[1])

    def differences(
        self,
        what: str,
        arrays: dict[str, Array],
        gradients: dict[str, Array],
        changed: Callable[[dict[str, Array]], dict],
    ) -> None:
        """The gradient along a random direction is the central difference of the loops' loss."""
        rng = np.random.default_rng(1)
        directions = {n: rng.normal(size=a.shape) for n, a in arrays.items()}
        ends = [
            self.loss(**changed({n: a + s * directions[n] for n, a in arrays.items()}))
            for s in (DIFFERENCE_STEP, -DIFFERENCE_STEP)
        ]
        along = sum(np.vdot(gradients[n], d) for n, d in directions.items())
        assert_close(along, (ends[0] - ends[1]) / (2 * DIFFERENCE_STEP), DIFFERENCES, f"gradient of {what}")


SHAPES = [
    Options(3, 4),
    Options(3, 4, go_backwards=True),
    Options(3, 4, bidirectional=True),
    Options(2, 3, num_layers=2, bidirectional=True),
    Options(3, 4, num_layers=3, residual=True),
    Options(4, 3, num_layers=2, bidirectional=True, share_directions=True, residual=True),
]
MORE = [
    Options(3, 4, num_layers=2, bidirectional=True, merge=m, share_directions=s)
    for m, s in (("sum", True), ("mean", False), ("product", False))
]


@pytest.mark.parametrize("o", [*SHAPES, *MORE], ids=str)
def test_layers_are_the_loops_and_their_gradient_is_the_derivative(o):
    for number, (ragged, resets, given, learned) in enumerate(itertools.product((False, True), repeat=4)):
        Call(
            replace(o, learn_initial=learned, bias=number % 3 > 0), number, ragged=ragged, resets=resets, given=given
        ).check()


def test_recorded_states_are_the_loops_and_take_gradients():
    for number, o in enumerate([*SHAPES, *MORE]):
        Call(
            o,
            number,
            ragged=number % 2 > 0,
            resets=number % 3 > 0,
            record=True,
            dropout=0.5 if o.num_layers > 1 else 0.0,
        ).check()


@pytest.mark.parametrize("memory", ["full", "low"])
def test_H23_backward_uses_the_mask_of_forward(memory):
    for number, o in enumerate(SHAPES[3:]):
        call = Call(o, number, dropout=0.5, ragged=number == 1, memory=memory)
        call.check()
        one = Call(o, number, steps=1, rows=1, dropout=0.5, memory=memory)
        one.layer(one.x, seed=3)
        one.layer.backward(one.dy)
        dropped = dropout_mask((3,), 1, (1, 1, one.layer.output_size), 0.5, np.dtype("float64"))[0, 0] == 0
        assert dropped.any() and not dropped.all()
        columns = one.layer.grads["weight_ih_l1"]
        assert (columns[:, dropped] == 0).all() and (columns[:, ~dropped] != 0).all()


@pytest.mark.parametrize("memory", ["full", "low"])
@pytest.mark.parametrize(("steps", "rows"), [(0, 2), (3, 0), (0, 0), (1, 1), (1, 3), (8, 1), (17, 9)])
def test_awkward_numbers_of_steps_and_rows(steps, rows, memory):
    for o in (SHAPES[3], replace(SHAPES[3], learn_initial=True)):
        for ragged, resets in itertools.product((False, True), repeat=2):
            Call(o, steps + rows, steps, rows, ragged=ragged, resets=resets, given=resets, memory=memory).check()


def test_any_strides_of_inputs_and_gradients():
    call = Call(SHAPES[3], 1, ragged=True, resets=True)
    right = call.layer(call.x, lengths=call.lengths, resets=call.resets)[0]
    dx = call.layer.backward(call.dy)[0]
    for change in (
        np.asfortranarray,
        lambda a: a[::-1].copy()[::-1],
        lambda a: np.repeat(a, 2, axis=1)[:, ::2],
        lambda a: np.repeat(a, 2, axis=2)[..., ::2],
    ):
        assert_same(
            call.layer(change(call.x), lengths=call.lengths, resets=change(call.resets[..., None])[..., 0])[0], right
        )
        assert_same(call.layer.backward(change(call.dy))[0], dx)


def test_pieces_are_every_step_once():
    rng = np.random.default_rng(0)
    for reverse, (steps, rows) in itertools.product((False, True), [(0, 3), (4, 0), (1, 1), (9, 6)]):
        lengths, resets = rng.integers(0, steps + 1, rows), rng.random((steps, rows)) < 0.4
        pieces = cut(steps, rows, lengths, resets, reverse)
        seen = np.zeros((steps, rows), int)
        for row, start, length in zip(pieces.row, pieces.start, pieces.length):
            seen[start - length + 1 : start + 1, row] += 1 if reverse else 0
            seen[start : start + length, row] += 0 if reverse else 1
        assert_same(seen, (np.arange(steps)[:, None] < lengths).astype(int))
        assert len(pieces) == rows + (resets & (np.arange(steps)[:, None] < lengths))[1:].sum()
