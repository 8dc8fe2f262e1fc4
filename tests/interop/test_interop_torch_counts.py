"""rnnspec.interop.torch carries the count of steps: the state that one call gives is the next
one's, and gradients go through it as through any state."""

from __future__ import annotations

import pytest
from counting import BOTH, COUNTING, NAMES
from tolerances import HAND, assert_close

import rnnspec
from rnnspec import DtypeError, ShapeError

torch = pytest.importorskip("torch")

from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402

from rnnspec.interop import torch_ops as _torch_ops  # noqa: E402
from rnnspec.interop.torch import Recurrent  # noqa: E402

X = torch.randn(7, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def layer_of(name, **more):
    torch.manual_seed(1)
    return Recurrent(rnnspec.loads(name) if "\n" in name else name, 4, 4, dtype=torch.float64, **more)


def grads(layer, y, state):
    loss = (y**2).sum() + sum((s**2).sum() for s in state if s.is_floating_point())
    return torch.autograd.grad(loss, list(layer.parameters()), allow_unused=True)


@pytest.mark.parametrize("name", COUNTING, **NAMES)
def test_the_state_of_one_call_goes_on_in_the_next(name):
    layer = layer_of(name, num_layers=2)
    feed = (lambda x: {"x": x}) if "time" in dict(layer.config.inputs) else (lambda x: x)
    y, last = layer(feed(X))
    first, state = layer(feed(X[:3]))
    rest, end = layer(feed(X[3:]), state)
    assert state[-1].dtype == torch.int64 and state[-1].tolist() == [[3] * 3] * 2
    assert torch.equal(end[-1], last[-1]) and not end[-1].requires_grad
    assert_close(torch.cat([first, rest]).detach().numpy(), y.detach().numpy(), HAND["float64"])
    if list(layer.parameters()):
        for a, b in zip(grads(layer, torch.cat([first, rest]), end), grads(layer, y, last)):
            assert (a is None and b is None) or torch.allclose(a, b, rtol=1e-10, atol=1e-10)
    with torch.no_grad():
        assert_close(layer(feed(X[3:]), state)[0].numpy(), rest.detach().numpy(), HAND["float64"])


def test_counts_beside_packed_rows_resets_and_no_batch():
    layer, given = layer_of(BOTH), {"x": X}
    state = (torch.zeros(1, 3, 4, dtype=torch.float64), torch.tensor([[4, 0, 9]]))
    y, (_, t) = layer(given, state, lengths=[5, 7, 2])
    packed, (_, same) = layer(pack_padded_sequence(X, [5, 7, 2], enforce_sorted=False), state)
    assert torch.equal(pad_packed_sequence(packed)[0], y) and torch.equal(t, same)
    assert t.tolist() == [[9, 7, 11]]
    resets = torch.zeros(7, 3, dtype=torch.bool)
    resets[3, 1] = True
    y, (_, t) = layer(given, state, resets=resets)
    assert t.tolist() == [[11, 4, 16]]
    assert torch.equal(y[3:, 1], layer({"x": X[3:, 1]})[0])
    assert torch.equal(layer({"x": X[:, 0]}, tuple(s[:, 0] for s in state))[0], layer(given, state)[0][:, 0])


def test_gradients_of_a_state_beside_its_count():
    layer, h = layer_of(BOTH), torch.zeros(1, 3, 4, dtype=torch.float64, requires_grad=True)
    x = X.clone().requires_grad_()

    def call(x, h):
        y, (h, _) = layer({"x": x}, (h, torch.tensor([[4, 0, 9]])))
        return y, h

    assert torch.autograd.gradcheck(call, (x, h))
    dx, dh = torch.func.grad(lambda x, h: call(x, h)[0].sum(), argnums=(0, 1))(X, h.detach())
    right = torch.autograd.grad(call(x, h)[0].sum(), (x, h))
    assert torch.equal(dx, right[0]) and torch.equal(dh, right[1])


def test_the_count_is_traced():
    layer = layer_of(BOTH).eval()
    config, state = layer.config, (torch.zeros(1, 3, 4, dtype=torch.float64), torch.tensor([[4, 0, 9]]))
    arguments = (config.text, [], [X.clone().requires_grad_()], list(state), 1, 3, None, None, None, 1)
    for operator in (torch.ops.rnnspec.forward, torch.ops.rnnspec.infer):
        tests = ("test_schema", "test_faketensor") if operator is torch.ops.rnnspec.infer else ("test_schema",)
        torch.library.opcheck(operator, arguments, test_utils=tests)
    with torch.no_grad():
        program = torch.export.export(layer, ({"x": X}, state))
        y, (_, t) = program.module()({"x": X}, state)
    assert torch.equal(y, layer({"x": X}, state)[0]) and t.tolist() == [[11, 7, 16]]
    meta = layer_of(BOTH, device="meta")({"x": X.to("meta")})[1]
    assert meta[1].shape == (1, 3) and meta[1].dtype == torch.int64
    assert _torch_ops.values(_torch_ops.stack_of(config.text, "float64", None).description) == 3


def test_what_is_no_count_is_refused_and_cells_that_do_not_count_stay():
    layer, h = layer_of(BOTH), torch.zeros(1, 3, 4, dtype=torch.float64)
    with pytest.raises(ShapeError, match=r"tuple of 2 tensors \(h, t\)"):
        layer({"x": X}, h)
    with pytest.raises(DtypeError, match="'t' counts the steps"):
        layer({"x": X}, (h, torch.zeros(1, 3)))
    with pytest.raises(ShapeError, match=r"shape \(3,\), expected \(1, 3\)"):
        layer({"x": X}, (h, torch.zeros(3, dtype=torch.int64)))
    (h, c), single = layer_of("lstm")(X)[1], layer_of("gru")(X)[1]
    assert h.shape == c.shape == single.shape == (1, 3, 4)
