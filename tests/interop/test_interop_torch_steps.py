"""rnnspec.interop.torch step by step: streams, windows, a Cell in the place of torch's, and calls
of one step past the dispatcher."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from counting import BOTH
from tiny import cell
from tolerances import HAND, assert_close

import rnnspec
from rnnspec import DtypeError, ShapeError, UnsupportedError

torch = pytest.importorskip("torch")

from torch.nn.utils.rnn import pack_sequence  # noqa: E402

from rnnspec.interop import torch_eager  # noqa: E402
from rnnspec.interop.torch import Cell, Recurrent  # noqa: E402

X = torch.randn(7, 3, 4, generator=torch.Generator().manual_seed(0))
MASKED = cell(
    "h[t] = 0.5 * mask[t] * h[t-1] + x[t]",
    name="masked",
    inputs="{x: H, mask: H}",
    states="{h: H}",
    noise="{mask: dropout(0.5) per sequence}",
)


def layer_of(name, **more):
    torch.manual_seed(1)
    return Recurrent(rnnspec.loads(name) if "\n" in str(name) else name, 4, 4, **more)


def many(value):
    return value if isinstance(value, tuple) else (value,)


def same(a, b):
    assert len(many(a)) == len(many(b)) and all(torch.equal(x, y) for x, y in zip(many(a), many(b)))


# --- streams


@pytest.mark.parametrize(
    "name, more",
    [("lstm", {"num_layers": 2, "return_all_states": True}), ("gru", {"batch_first": True}), (BOTH, {"num_layers": 2})],
    ids=["lstm", "gru", "count"],
)
@torch.no_grad()
def test_a_stream_is_a_sequence(name, more):
    layer = layer_of(name, **more)
    first = (lambda x: {"x": x}) if "time" in dict(layer.config.inputs) else (lambda x: x)
    turned = X.transpose(0, 1) if layer.batch_first else X
    hx = layer(first(turned))[1]
    y, last, *recorded = layer(first(turned), hx)
    stream = layer.stream(hx, rows=3)
    for t in range(7):
        same(stream.step(first(X[t])), y.transpose(0, 1)[t] if layer.batch_first else y[t])
        for n, a in recorded[0].items() if recorded else ():
            same(stream.recorded[n], a[t])
    same(stream.state, last)
    assert stream.t == 7 and list(stream.states) == [n for n, _ in layer.config.states]
    same(layer(first(turned), stream.state)[0], layer(first(turned), last)[0])
    single = layer.stream(rows=1)
    stream.reset()
    stream.step(first(X[0])), single.step(first(X[0, :1]))
    stream.reset(rows=torch.tensor([False, True, True]))
    found = stream.step(first(X[1]))
    assert stream.counts.tolist() == [[2, 1, 1]] * layer.num_layers
    torch.testing.assert_close(found[:1], single.step(first(X[1, :1])))
    alone = layer(first(turned[1:, 1:2] if layer.batch_first else X[1:2, 1:]))[0]
    torch.testing.assert_close(found[1:], alone.reshape(2, 4))


@torch.no_grad()
def test_states_are_tensors_that_can_be_written_to():
    layer = layer_of("lstm", num_layers=2)
    stream, y = layer.stream(rows=3), layer(X[:1])[0][0]
    stream.step(X[3])
    for state in stream.state:
        state[:, 1].zero_()
    found = stream.step(X[0])
    torch.testing.assert_close(found[1], y[1])
    assert not torch.equal(found[0], y[0])
    stream.states["h"] *= 0
    stream.states["c"][...] = 0
    torch.testing.assert_close(stream.step(X[0]), y)
    with pytest.raises(TypeError, match="changed in place"):
        stream.states["h"] = torch.zeros(2, 3, 4)


def test_an_optimisers_step_is_seen_after_refresh():
    layer = layer_of("gru")
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.5)
    with torch.no_grad():
        stream, old = layer.stream(rows=3), copy.deepcopy(layer).stream(rows=3)
        same(stream.step(X[0]), old.step(X[0]))
    layer(X)[0].square().sum().backward()
    optimiser.step()
    with torch.no_grad():
        same(stream.step(X[1]), old.step(X[1]))
        h = stream.state.clone()
        stream.refresh()
        same(stream.step(X[2]), layer(X[2:3], h)[0][0])
        layer.double()
        with pytest.raises(DtypeError, match="float64, but this stream has"):
            stream.refresh()


def test_what_a_stream_refuses():
    layer, other = layer_of("lstm"), torch.nn.Linear(4, 4)
    stream = layer.stream(rows=3)
    with pytest.raises(UnsupportedError, match=r"no gradient would reach 'weight_ih_l0' and 3 others: step it under"):
        stream.step(X[0])
    layer.requires_grad_(False)
    with pytest.raises(UnsupportedError, match="no gradient would reach 'x'"):
        stream.step(other(X[0]))
    stream.step(X[0])
    with pytest.raises(UnsupportedError, match="a program that is traced"):
        torch.jit.trace(lambda x: stream.step(x), X[0])
    with pytest.raises(UnsupportedError, match="a program that is traced"):
        torch.func.vmap(stream.step)(X)
    with pytest.raises(ShapeError, match=r"must have shape \(3, 4\), got \(7, 3, 4\)"):
        stream.step(X)
    with pytest.raises(DtypeError, match="but this stream has"):
        stream.step(X[0].double())
    with pytest.raises(DtypeError, match="must be a tensor; got ndarray"):
        stream.step(X[0].numpy())
    with pytest.raises(TypeError, match="can't be copied or pickled"):
        pickle.dumps(stream)
    for more in ({"bidirectional": True}, {"go_backwards": True}):
        with pytest.raises(ValueError, match="stream: a direction that runs from the end"):
            layer_of("lstm", **more).stream()
    noisy = layer_of("lstm", num_layers=2, dropout=0.5)
    with pytest.raises(ValueError, match="in training mode dropout or noise would act"):
        noisy.stream()
    noisy.eval().stream()
    assert stream.t == 1


@torch.no_grad()
def test_a_stream_runs_between_the_graphs_of_a_compiled_function():
    layer = layer_of("gru")
    stream = layer.stream(rows=3)
    step = torch.compile(lambda x: stream.step(x * 2) + 1, backend="eager")
    y = layer(2 * X)[0]
    for t in range(3):
        torch.testing.assert_close(step(X[t]), y[t] + 1)


@torch.no_grad()
def test_a_stream_under_autocast_gives_its_dtype():
    layer = layer_of("gru")
    stream = layer.stream(rows=3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = stream.step(X[0].bfloat16())
        assert y.dtype == torch.bfloat16
        same(y, layer(X[:1].bfloat16())[0][0])
    assert stream.state.dtype == torch.float32


# --- windows


@pytest.mark.parametrize("batch_first", [False, True])
def test_windows_are_the_whole_and_carry_no_gradient(batch_first):
    layer = layer_of("lstm", num_layers=2, batch_first=batch_first)
    turn = (lambda a: a.transpose(0, 1)) if batch_first else (lambda a: a)
    resets, lengths = torch.zeros(7, 3, dtype=torch.bool), torch.tensor([7, 4, 0])
    resets[[2, 5], [0, 1]] = True
    for more in ({}, {"lengths": lengths}, {"resets": turn(resets)}, {"lengths": [7, 4, 0], "resets": turn(resets)}):
        whole, last = layer(turn(X), None, more.get("lengths"), more.get("resets"))
        windows = list(layer.windows(turn(X), 3, **more))
        assert [w.steps for w in windows] == [slice(0, 3), slice(3, 6), slice(6, 7)]
        torch.testing.assert_close(torch.cat([turn(w.y) for w in windows]), turn(whole))
        torch.testing.assert_close(windows[-1].state, last)
    x = X.clone().requires_grad_()
    first, second, _ = layer.windows(turn(x), 3)
    (dx,) = torch.autograd.grad(second.y.sum() + second.state[1].sum(), x)
    assert not dx[:3].any() and dx[3:6].all() and not dx[6:].any()
    assert torch.autograd.grad(first.y.sum(), x)[0][:3].all()


def test_windows_train_as_numpys_do():
    layer = layer_of("gru", dtype=torch.float64)
    other = rnnspec.Recurrent("gru", 4, 4, dtype="float64")
    other.load_state_dict({n: t.numpy() for n, t in layer.state_dict().items()})
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    for ours, theirs in zip(layer.windows(X.double(), 2), other.windows(X.double().numpy(), 2)):
        assert_close(ours.y.detach().numpy(), theirs.y, HAND["float64"])
        optimiser.zero_grad()
        ours.y.square().sum().backward()
        optimiser.step()
        other.backward(2 * theirs.y)
        for name, array in other.params.items():
            array -= 0.1 * other.grads[name]
    assert_close({n: t.numpy() for n, t in layer.state_dict().items()}, other.params, 1e-10)


def test_what_is_drawn_once_a_sequence_is_the_same_in_all_windows():
    layer, ones = layer_of(MASKED), torch.ones(8, 3, 4)
    torch.manual_seed(5)
    whole = layer(ones)[0]
    torch.manual_seed(5)
    windows = [w.y for w in layer.windows(ones, 3)]
    torch.testing.assert_close(torch.cat(windows), whole)
    again = torch.cat([w.y for w in layer.windows(ones, 3)])
    assert not torch.equal(again, whole)
    layer.eval()
    torch.testing.assert_close(torch.cat([w.y for w in layer.windows(ones, 3)]), layer(ones)[0])
    counting = layer_of(BOTH, num_layers=2)
    torch.testing.assert_close(torch.cat([w.y for w in counting.windows({"x": X}, 3)]), counting({"x": X})[0])


def test_what_windows_refuse():
    for more, call, error, words in (
        ({"bidirectional": True}, lambda m: m.windows(X, 3), ValueError, "windows: a direction that runs from the end"),
        ({}, lambda m: m.windows(X, 0), ValueError, "steps of a window must be a whole number of at least 1"),
        ({}, lambda m: m.windows(pack_sequence([X[:, 0]]), 3), UnsupportedError, "give the padded tensor and lengths"),
        ({}, lambda m: m.windows(X, 3, lengths=[8, 1, 1]), ValueError, r"lengths\[0\] is 8"),
        ({}, lambda m: m.windows(X, 3, resets=torch.zeros(8, 3, dtype=torch.bool)), ShapeError, "resets must have"),
        ({}, lambda m: m.windows(X, 3, X), ShapeError, "state must be"),
    ):
        with pytest.raises(error, match=words):
            next(call(layer_of("lstm", **more)))


# --- Cell


@pytest.mark.parametrize(
    "name, peer, more",
    [
        ("lstm", torch.nn.LSTMCell, {}),
        ("gru", torch.nn.GRUCell, {"bias": False}),
        ("gru", torch.nn.GRUCell, {}),
        ("rnn", torch.nn.RNNCell, {"nonlinearity": "relu"}),
    ],
    ids=["lstm", "gru without bias", "gru", "rnn"],
)
def test_a_cell_is_torchs(name, peer, more):
    torch.manual_seed(2)
    theirs = peer(5, 4, **more)
    torch.manual_seed(2)
    ours, x = Cell(name, 5, 4, **more), torch.randn(6, 3, 5)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for a, b in zip(ours.parameters(), theirs.parameters()):
        same(a, b)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    assert (ours.input_size, ours.hidden_size, ours.bias) == (5, 4, theirs.bias)
    for rows in (slice(None), 0):  # a batch, and one row without
        found = wanted = None
        for t in range(6):
            found, wanted = ours(x[t, rows], found), theirs(x[t, rows], wanted)
            torch.testing.assert_close(found, wanted)
        sum(s.square().sum() for s in many(found)).backward()
        sum(s.square().sum() for s in many(wanted)).backward()
        for a, b in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        for _ in range(4):  # of which the last ones are of weights that were seen before
            torch.testing.assert_close(ours(x[0]), theirs(x[0]))
        ours.weight_ih.data.mul_(0.5), theirs.weight_ih.data.mul_(0.5)  # which no version counts
        torch.testing.assert_close(ours(x[0]), theirs(x[0]))
        same(pickle.loads(pickle.dumps(ours))(x[0]), ours(x[0]))
        same(copy.deepcopy(ours)(x[0]), ours(x[0]))


@pytest.mark.parametrize("name", ["indrnn", "mlstm_matrix", "lstm_projected", BOTH])
def test_a_cell_is_a_step_of_the_layer(name):
    spec = rnnspec.loads(name) if "\n" in name else name
    more = {"proj_size": 3} if name == "lstm_projected" else {}
    one, layer = Cell(spec, 4, 4, **more), Recurrent(spec, 4, 4, **more)
    for of_layer, own in zip(layer.config.weights, one.state_dict()):
        assert of_layer[0] == f"{own}_l0"
    layer.load_state_dict({f"{n}_l0": t for n, t in one.state_dict().items()})
    first = (lambda x: {"x": x}) if "time" in dict(layer.config.inputs) else (lambda x: x)
    last = layer(first(X))[1]
    state = None
    for t in range(7):
        state = one(first(X[t]), state)
    torch.testing.assert_close(tuple(s[None] for s in many(state)), many(last))


def test_a_cell_whose_output_is_no_state_gives_both():
    text = cell("h[t] = 0.5 * h[t-1] + x[t]\ny[t] = 2 * h[t]", inputs="{x: H}", states="{h: H}", outputs="[y]")
    one = Cell(rnnspec.loads(text), 4, 4)
    y, h = one(X[0])
    torch.testing.assert_close(h, X[0])
    torch.testing.assert_close(y, 2 * h)
    assert one(X[1], h)[1].shape == (3, 4)


def test_a_cell_in_programs():
    one, h = Cell("gru", 4, 4), torch.ones(3, 4)
    wanted = one(X[0], h)
    compiled = torch.compile(lambda x, h: one(x, h) * 1, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X[0], h), wanted)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(X[0], h), wanted)
    weights = dict(one.named_parameters())
    grads = torch.func.grad(lambda w: torch.func.functional_call(one, w, (X[0], h)).sum())(weights)
    found = torch.autograd.grad(one(X[0], h).sum(), list(weights.values()))
    for a, b in zip(grads.values(), found):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(torch.jit.trace(one.eval(), (X[0], h))(X[1], h), one(X[1], h))
    exported = torch.export.export(one, (X[0], h))
    torch.testing.assert_close(exported.module()(X[1], h), one(X[1], h))
    assert "Cell" in repr(one) and "'gru', 4, 4" in repr(one)


def test_the_repr_tells_what_was_chosen():
    assert repr(Cell("rnn", 4, 5, phi="relu")) == "Cell('rnn', 4, 5, phi='relu')"
    assert repr(Cell("rnn", 4, 5, phi="tanh")) == "Cell('rnn', 4, 5)"
    assert repr(Recurrent("rnn", 4, 5, nonlinearity="relu")) == "Recurrent('rnn', 4, 5, phi='relu')"
    both = [rnnspec.load("rnn", phi="relu"), "rnn"]
    assert repr(Recurrent(both, 4, 5)) == "Recurrent(['rnn phi=relu', 'rnn'], 4, 5)"


def test_what_a_cell_refuses():
    one = Cell("lstm", 4, 4)
    for call, error, words in (
        (lambda: one(X), ShapeError, r"a Cell takes one step, x \[B, 4\], or the same without B"),
        (lambda: one(X[0, :, :3]), ShapeError, "expected 4 features"),
        (lambda: one(X[0], X[0]), ShapeError, "tuple of 2 tensors"),
        (lambda: one(X[0], (X[:1], X[:1])), ShapeError, r"\(3, 4\), that of one layer, without an axis of layers"),
        (lambda: one(X[0].double()), DtypeError, "nothing is cast"),
        (lambda: Cell("lstm", 4, 4, num_layers=2), TypeError, "num_layers: a Cell is one step of one layer"),
        (lambda: Cell("lstm", 4, 4, bidirectional=True), TypeError, "Recurrent takes these"),
        (lambda: Cell(["lstm"], 4, 4), TypeError, "a Cell is of one cell"),
        (lambda: Cell(rnnspec.loads(MASKED), 4, 4)(X[0]), UnsupportedError, "'mask' of 'masked' is drawn once a seq"),
    ):
        with pytest.raises(error, match=words):
            call()
    same(Cell(rnnspec.loads(MASKED), 4, 4).eval()(X[0]), X[0])
    named = cell("h[t] = train * h[t-1] + x[t]", inputs="{x: H}", states="{h: H}", parameters="{train: [H]}")
    with pytest.raises(ValueError, match="'train' of the cell can't have its name"):
        Cell(rnnspec.loads(named), 4, 4)


# --- one step past the dispatcher


@pytest.fixture
def counted(monkeypatch):
    """How many calls went past the dispatcher."""
    calls, real = [], torch_eager.stepped
    monkeypatch.setattr(torch_eager, "stepped", lambda *args: calls.append(1) or real(*args))
    return calls


@torch.no_grad()
def test_a_call_of_one_step_goes_past_the_dispatcher_and_is_the_same(counted):
    deep = {"num_layers": 2, "return_all_states": ["c"]}
    for name, more in (("gru", {}), ("lstm", deep), ("lstm", {"batch_first": True})):
        layer = layer_of(name, **more)
        x = X[:, :1] if layer.batch_first else X[:1]
        hx = layer(x)[1]
        op = layer(x, hx)
        counted.clear()
        for _ in range(4):
            found = layer(x, hx)
        assert len(counted) >= 2
        same(many(found[0]), many(op[0]))
        same(found[1], op[1])
        for a, b in zip(found[2:], op[2:]):
            same(tuple(a.values()), tuple(b.values()))
        assert all(torch.is_tensor(t) and not t.requires_grad for t in many(found[1]))
        layer.weight_hh_l0.data.mul_(0.5)  # no version of the parameter counts this
        fresh = copy.deepcopy(layer)
        for _ in range(3):
            same(layer(x, hx)[0], fresh(x, hx)[0])
    one = layer_of("gru")
    for _ in range(4):
        same(one(X[:1, 0])[1], one(X[:1, :1])[1][:, 0])  # a row without a batch
    counted.clear()
    for own in (Cell("gru", 4, 4), Cell("lstm", 4, 4), Cell("phased_lstm", 4, 4)):
        for x in (X[0], X[0, 1]):
            state = own(x)
            with torch.enable_grad():
                wanted = own(x, state)  # by the operator
            for _ in range(3):
                torch.testing.assert_close(many(own(x, state)), tuple(t.detach() for t in many(wanted)))
    assert len(counted) > 12
    counted.clear()
    for x, hx in ((X[:1].double(), None), (X[:1, :, :3], None), (X[:1], X[:1, :2]), (X[:1], (X[:1], X[:1]))):
        with pytest.raises((ShapeError, DtypeError)):
            one(x, hx)
    one(X[:2]), one(X[:1], None, [1, 0, 1]), one(X[:1].expand(1, 3, 4).detach())
    assert len(counted) == 1  # the last


CHANGES = {
    "data": lambda p: p.data.mul_(0.5),
    "numpy": lambda p: p.detach().numpy().__imul__(0.5),
    "no_grad": lambda p: p.mul_(0.5),
    "other data": lambda p: setattr(p, "data", p.data * 0.5),
    "transposed": lambda p: setattr(p, "data", p.data.reshape(p.shape[::-1]).t() if p.dim() == 2 else p.data * 2),
    "one bit": lambda p: p.data.view(torch.int32).view(-1)[-1:].bitwise_xor_(1),
    "swapped": lambda p: torch.utils.swap_tensors(p, torch.nn.Parameter(p.detach() * 2)),
}


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("made", [lambda: Cell("gru", 4, 4), lambda: Recurrent("lstm", 4, 4)])
@torch.no_grad()
def test_a_step_sees_every_change_of_its_weights(made, how, counted):
    """Weights are known again by where they lie, and compared: nothing tells of most changes."""
    layer = made().eval()
    x = X[0] if isinstance(layer, Cell) else X[:1]
    hx = layer(x) if isinstance(layer, Cell) else layer(x)[1]
    for name, parameter in list(layer.named_parameters()):
        for _ in range(5):
            before = many(layer(x, hx)[0])
        assert counted, "past the dispatcher"
        CHANGES[how](parameter)
        counted.clear()
        for _ in range(5):
            found = many(layer(x, hx)[0])
            same(found, many(copy.deepcopy(layer)(x, hx)[0]))
        assert how in ("one bit", "transposed") or not all(torch.equal(a, b) for a, b in zip(found, before)), name


@torch.no_grad()
def test_a_weight_whose_memory_is_gone_is_told():
    layer = Cell("gru", 4, 4).eval()
    for _ in range(5):
        layer(X[0])
    storage = layer.weight_hh.untyped_storage()
    size = storage.nbytes()
    storage.resize_(0)
    with pytest.raises(ShapeError, match="it was resized"):
        layer(X[0])
    storage.resize_(size)


def test_whoever_wants_to_see_the_operator_does(counted):
    layer = layer_of("gru")
    with torch.no_grad():
        for _ in range(4):
            layer(X[:1])
        assert counted
        counted.clear()
        torch.compile(layer, fullgraph=True, backend="eager")(X[:1])
        assert not counted
        assert "rnnspec::infer" in str(torch.jit.trace(layer.eval(), X[:1]).inlined_graph)
        counted.clear()  # a trace is compared with a call
        torch.func.vmap(lambda x: layer(x)[0])(X[None, :1])
        with torch.profiler.profile() as profile:
            layer(X[:1])
        assert any("rnnspec::infer" in event.key for event in profile.key_averages())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert layer(X[:1])[0].dtype == torch.bfloat16
        torch.nn.utils.parametrize.register_parametrization(layer, "weight_hh_l0", torch.nn.Identity())
    assert not counted
    assert layer(X[:1])[0].requires_grad
    layer(X[:1])[0].sum().backward()
    assert not counted
    with torch.no_grad():
        for _ in range(4):
            layer(X[:1])  # parametrized: what the weights are now
        layer.parametrizations.weight_hh_l0.original.data.zero_()
        assert np.isfinite(layer(X[:1])[0].numpy()).all()
