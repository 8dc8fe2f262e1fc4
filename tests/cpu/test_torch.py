"""The cells that torch.nn has too: the same numbers and gradients as PyTorch's, from the same
weights."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from cells import DTYPES
from tolerances import TORCH, assert_close

from rnnspec import Recurrent

torch = pytest.importorskip("torch")

# cell, its choices, torch's layer and what it is given
LAYERS = {
    "lstm": ("lstm", {}, torch.nn.LSTM, {}),
    "gru": ("gru", {}, torch.nn.GRU, {}),
    "rnn tanh": ("rnn", {}, torch.nn.RNN, {}),
    "rnn relu": ("rnn", {"phi": "relu"}, torch.nn.RNN, {"nonlinearity": "relu"}),
    "lstm projected": ("lstm_projected", {}, torch.nn.LSTM, {"proj_size": 3}),
}
# T, B, D, H: odd ones, one, and whole vectors
SIZES = [(5, 3, 2, 5), (1, 1, 1, 4), (7, 2, 17, 33), (4, 8, 16, 16)]


def pair(which: str, dtype: str, d: int, h: int, **more: Any) -> tuple[Recurrent, Any]:
    """Our layer and torch's with the same weights."""
    cell, settings, kind, given = LAYERS[which]
    torch.manual_seed(d * 100 + h)
    theirs = kind(d, h, dtype=getattr(torch, dtype), **given, **more)
    ours = Recurrent(cell, d, h, dtype=dtype, proj_size=given.get("proj_size", 0), **settings, **more)
    ours.load_state_dict({n: p.detach().numpy() for n, p in theirs.state_dict().items()})
    return ours, theirs


def states(ours: Recurrent, batch: int | None, seed: int) -> tuple[np.ndarray, ...]:
    rng, rows = np.random.default_rng(seed), () if batch is None else (batch,)
    return tuple(
        rng.normal(size=(first, *rows, *rest)).astype(ours.stack.dtype) for first, *rest in ours.stack.states.values()
    )


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def run_torch(
    theirs: Any, x: Any, state: Any, lengths: list[int] | None, batch_first: bool, alone: bool
) -> tuple[Any, Any]:
    """y and the final states of torch's layer. Rows of different lengths go in packed, or each
    alone."""
    state = state[0] if state and len(state) == 1 else state
    if lengths is None:
        return theirs(x, state)
    total = x.shape[1 if batch_first else 0]
    if not alone:
        y, final = theirs(torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False), state)
        return torch.nn.utils.rnn.pad_packed_sequence(y, batch_first, total_length=total)[0], final
    ys, finals = [], []
    for row, n in enumerate(lengths):
        own = state if state is None else tuple(s[:, row] for s in state) if isinstance(state, tuple) else state[:, row]
        y, final = theirs((x[row] if batch_first else x[:, row])[:n], own)
        ys.append(torch.nn.functional.pad(y, (0, 0, 0, total - n)))
        finals.append(as_tuple(final))
    return torch.stack(ys, 0 if batch_first else 1), tuple(torch.stack(parts, 1) for parts in zip(*finals))


def compare(
    ours: Recurrent,
    theirs: Any,
    x: np.ndarray,
    state: tuple[np.ndarray, ...] | None,
    lengths: list[int] | None = None,
    alone: bool = False,
) -> None:
    """Values, and the gradients of a random loss of all outputs and final states."""
    tolerance, rng = TORCH[ours.stack.dtype.name], np.random.default_rng(5)
    theirs.zero_grad()
    x_t = torch.tensor(x, requires_grad=True)
    state_t = None if state is None else tuple(torch.tensor(s, requires_grad=True) for s in state)
    y_t, final_t = run_torch(theirs, x_t, state_t, lengths, ours.batch_first, alone)
    final_t = as_tuple(final_t)
    dy = rng.normal(size=tuple(y_t.shape)).astype(x.dtype)
    dfinal = tuple(rng.normal(size=tuple(s.shape)).astype(x.dtype) for s in final_t)
    ((y_t * torch.tensor(dy)).sum() + sum((s * torch.tensor(d)).sum() for s, d in zip(final_t, dfinal))).backward()

    x = x.copy()
    for row, n in enumerate(lengths or ()):
        (x[row] if ours.batch_first else x[:, row])[n:] = np.nan
    y, final = ours(x, None if state is None else state if len(state) > 1 else state[0], lengths)
    dx, dstate = ours.backward(dy, dfinal if len(dfinal) > 1 else dfinal[0])
    assert_close(y, y_t.detach().numpy(), tolerance, "y")
    for mine, other in zip(as_tuple(final), final_t):
        assert_close(mine, other.detach().numpy(), tolerance, "final")
    assert_close(dx, x_t.grad.numpy(), tolerance, "dx")
    assert_close(ours.grads, {n: p.grad.numpy() for n, p in theirs.named_parameters()}, tolerance, "gradient")
    for mine, other in zip(as_tuple(dstate), state_t or ()):
        assert_close(mine, other.grad.numpy(), tolerance, "state gradient")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("which", LAYERS)
def test_values_and_gradients(which, dtype):
    for steps, batch, d, h in SIZES:
        ours, theirs = pair(which, dtype, d, h)
        x = np.random.default_rng(1).normal(size=(steps, batch, d)).astype(dtype)
        compare(ours, theirs, x, states(ours, batch, 2))
        compare(ours, theirs, x, None)


# layers, directions, biases, order of axes; rows (None: no batch axis), lengths, each row alone
# (else packed), initial states given
GRID = [
    point
    for point in itertools.product(
        (1, 2, 3),
        (False, True),
        (True, False),
        (False, True),
        (3, None),
        (None, [2, 4, 1]),
        (False, True),
        (False, True),
    )
    if (point[5] or not point[6]) and not (point[5] and point[4] is None)
]


def walk(which: str, dtype: str, points: list[Any]) -> None:
    rng = np.random.default_rng(1)
    for layers, bidirectional, bias, batch_first, rows, lengths, alone, given in points:
        ours, theirs = pair(
            which, dtype, 2, 5, num_layers=layers, bidirectional=bidirectional, bias=bias, batch_first=batch_first
        )
        x = rng.normal(size=(4, 2) if rows is None else (rows, 4, 2) if batch_first else (4, rows, 2)).astype(dtype)
        compare(ours, theirs, x, states(ours, rows, 2) if given else None, lengths, alone)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("which", LAYERS)
def test_a_part_of_the_grid(which, dtype):
    walk(which, dtype, GRID[DTYPES.index(dtype) :: 29])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("which", LAYERS)
def test_the_whole_grid(which, dtype):
    walk(which, dtype, GRID)


@pytest.mark.parametrize("which", LAYERS)
def test_names_and_shapes_of_weights(which):
    for bias, layers, bidirectional in itertools.product((True, False), (1, 2), (False, True)):
        ours, theirs = pair(which, "float32", 4, 6, bias=bias, num_layers=layers, bidirectional=bidirectional)
        assert [(n, a.shape) for n, a in ours.state_dict().items()] == [
            (n, tuple(p.shape)) for n, p in theirs.state_dict().items()
        ]
        theirs.load_state_dict({n: torch.tensor(a) for n, a in ours.state_dict().items()})


def test_unbatched_and_broadcast_gradients():
    ours, theirs = pair("lstm", "float64", 3, 5)
    x = np.random.default_rng(1).normal(size=(6, 3))
    y, (h, c) = ours(x)
    y_t, (h_t, c_t) = theirs(torch.tensor(x))
    for mine, other in ((y, y_t), (h, h_t), (c, c_t)):
        assert_close(mine, other.detach().numpy(), TORCH["float64"])
    y_t.sum().backward()
    ours.backward(np.broadcast_to(1.0, y.shape))
    assert_close(ours.grads, {n: p.grad.numpy() for n, p in theirs.named_parameters()}, TORCH["float64"])


def test_H24_relu_at_0_has_torchs_derivative():
    ours, theirs = pair("rnn relu", "float64", 2, 3)
    for name, p in theirs.named_parameters():
        torch.nn.init.zeros_(p)
        ours.params[name][...] = 0
    compare(ours, theirs, np.zeros((3, 2, 2)), None)
    assert all((g == 0).all() for g in ours.grads.values())
