"""rnnspec.interop.torch: a module in place of torch.nn.LSTM, with the same numbers, gradients,
names, shapes, and clear errors where something is off."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from cells import LINEAR, LINEAR_ROWS
from tiny import cell
from tolerances import HAND, TORCH, assert_close, assert_same

import rnnspec
from rnnspec import BackendUnavailable, DtypeError, ShapeError, UnsupportedError

torch = pytest.importorskip("torch")

from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence  # noqa: E402

from rnnspec.interop.torch import Recurrent, describe, recurrent  # noqa: E402

# our cell and its options, torch's layer and what it is given
LAYERS = {
    "lstm": ("lstm", {}, torch.nn.LSTM, {}),
    "gru": ("gru", {}, torch.nn.GRU, {}),
    "rnn relu": ("rnn", {"phi": "relu"}, torch.nn.RNN, {"nonlinearity": "relu"}),
    "lstm projected": ("lstm_projected", {"proj_size": 3}, torch.nn.LSTM, {"proj_size": 3}),
}
BOTH = {"num_layers": 2, "bidirectional": True}
DOUBLE = {"dtype": torch.float64}


def pair(which: str = "lstm", d: int = 3, h: int = 5, **more: Any) -> tuple[Any, Any]:
    """Our layer and torch's with the same weights."""
    name, own, kind, given = LAYERS[which]
    torch.manual_seed(1)
    theirs = kind(d, h, **given, **more)
    ours = Recurrent(name, d, h, **own, **more)
    assert str(ours.load_state_dict(theirs.state_dict())) == "<All keys matched successfully>"
    return ours, theirs


def leaves(value: Any) -> list[Any]:
    """All tensors of results, those of packed sequences too."""
    if isinstance(value, PackedSequence):
        return [value.data]
    return (
        [t for v in (value.values() if isinstance(value, dict) else value) for t in leaves(v)]
        if isinstance(value, tuple | dict)
        else [value]
    )


def loss(results: Any) -> Any:
    """A number that depends on every result, each of them otherwise."""
    return sum(((i + 1.5) * t * t + t).sum() for i, t in enumerate(leaves(results)))


def both(
    ours: Any, theirs: Any, x: Any, *args: Any, tolerance: float = TORCH["float64"], given: Any = lambda x: x
) -> None:
    """The same results, and gradients of x, states and weights. given: what the layer is called
    with, from x."""
    found = []
    for layer in (ours, theirs):
        inputs = [t.detach().clone().requires_grad_() for t in (x, *leaves(tuple(args)))]
        state = () if not args else (tuple(inputs[1:]) if len(inputs) > 2 else inputs[1],)
        results = layer(given(inputs[0]), *state)
        wanted = [*inputs, *(p for _, p in sorted(layer.named_parameters()))]
        found.append((results, torch.autograd.grad(loss(results), wanted)))
    (mine, grads), (other, theirs_) = found
    for a, b in zip(leaves(mine), leaves(other), strict=True):
        assert a.dtype == b.dtype
        assert_close(a.detach(), b.detach(), tolerance)
    for a, b in zip(grads, theirs_, strict=True):
        assert_close(a, b, tolerance, "gradient")
    if isinstance(mine[0], PackedSequence):
        for a, b in zip(mine[0][1:], other[0][1:], strict=True):
            assert a is b is None or torch.equal(a, b)


def normal(*shape: int, seed: int = 0, dtype: Any = torch.float64) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def states_for(theirs: Any, rows: int | None) -> tuple[Any, ...]:
    lead = theirs.num_layers * (1 + theirs.bidirectional)
    widths = [theirs.proj_size or theirs.hidden_size] + [theirs.hidden_size] * isinstance(theirs, torch.nn.LSTM)
    return tuple(normal(lead, *(() if rows is None else (rows,)), w, seed=i) for i, w in enumerate(widths))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("which", LAYERS)
def test_the_same_as_torch(which, batch_first):
    for more in ({}, BOTH, {"bias": False, **BOTH}):
        ours, theirs = pair(which, batch_first=batch_first, **more, **DOUBLE)
        both(ours, theirs, normal(4, 6, 3))
        both(ours, theirs, normal(4, 6, 3), *[states_for(theirs, 4 if batch_first else 6)])
        both(ours, theirs, normal(6, 3), *[states_for(theirs, None)])
        assert str(theirs.load_state_dict(ours.state_dict())) == "<All keys matched successfully>"


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("which", LAYERS)
def test_packed_sequences(which, enforce_sorted):
    lengths = [7, 5, 5, 1] if enforce_sorted else [3, 7, 1, 7]
    for batch_first in (False, True):
        ours, theirs = pair(which, batch_first=batch_first, **BOTH, **DOUBLE)
        x = normal(4, 7, 3) if batch_first else normal(7, 4, 3)

        def packed(x: Any, batch_first: bool = batch_first) -> Any:
            return pack_padded_sequence(x, lengths, batch_first, enforce_sorted)

        both(ours, theirs, x, given=packed)
        both(ours, theirs, x, states_for(theirs, 4), given=packed)
        y, final = ours(x, None, lengths)  # the same as lengths
        padded, final_packed = ours(packed(x))
        assert_same(pad_packed_sequence(padded, batch_first)[0].detach().numpy(), y.detach().numpy())
        for a, b in zip(leaves(final), leaves(final_packed)):
            assert_same(a.detach().numpy(), b.detach().numpy())


def test_float32():
    ours, theirs = pair("lstm", 17, 33, **BOTH)
    both(ours, theirs, normal(9, 4, 17, dtype=torch.float32), tolerance=TORCH["float32"])


def numpy_twin(layer: Any, **options: Any) -> rnnspec.Recurrent:
    """rnnspec.Recurrent with the weights of a module."""
    twin = rnnspec.Recurrent(**options, dtype="float64")
    twin.load_state_dict({n: p.detach().numpy() for n, p in layer.named_parameters()})
    return twin


OPTIONS = {
    "sum": {"merge": "sum"},
    "mean": {"merge": "mean", "return_all_states": True},
    "product": {"merge": "product", "return_all_states": ["f", "c"]},
    "shared": {"share_directions": True},
    "initial": {"learn_initial": True, "merge": "sum", "residual": True},
    "low": {"memory": "low"},
    "low product": {"memory": "low", "merge": "product"},
}


@pytest.mark.parametrize("which", OPTIONS)
def test_options_of_recurrent_are_those_of_the_numpy_layer(which):
    options = {"cell": "lstm", "input_size": 3, "hidden_size": 4, **BOTH, **OPTIONS[which]}
    layer = Recurrent(**options, **DOUBLE)
    twin = numpy_twin(layer, **options)
    x, state = normal(5, 3, 3).requires_grad_(), (normal(4, 3, 4, seed=1).requires_grad_(), None)
    resets = torch.zeros(5, 3, dtype=torch.bool)
    resets[2, 1] = True
    for lengths, again in ((None, None), ([5, 0, 3], None), (torch.tensor([4, 5, 1], dtype=torch.uint8), resets)):
        results = layer(x, state, lengths, resets=again)
        right = twin(x.detach().numpy(), (state[0].detach().numpy(), None), lengths, resets=again)
        for a, b in zip(leaves(results), leaves(right), strict=True):
            assert_same(a.detach().numpy(), b)
        layer.zero_grad()
        weights = [normal(*t.shape, seed=i) for i, t in enumerate(leaves(results))]
        total = sum((w * t).sum() for w, t in zip(weights, leaves(results)))
        dx, dh, *dweights = torch.autograd.grad(total, [x, state[0], *layer.parameters()])
        named = dict(zip(right[2], (w.numpy() for w in weights[3:]))) if len(right) > 2 else None
        right_dx, right_dstate = twin.backward(weights[0].numpy(), tuple(w.numpy() for w in weights[1:3]), named)
        assert_same(dx.numpy(), right_dx)
        assert_same(dh.numpy(), right_dstate[0])
        for (name, _), g in zip(layer.named_parameters(), dweights, strict=True):
            assert_same(g.numpy(), twin.grads[name])


def test_any_cell_with_its_own_names_and_several_inputs():
    text = cell(
        "h[t] = m[t] * tanh(W @ x[t] + V @ z[t] + U @ h[t-1]) + (1 - m[t]) * h[t-1]\ng[t] = 2 * h[t]",
        inputs="{x: D, z: E, m: []}",
        states="{h: H}",
        parameters="{W: [H, D], V: [H, E], U: [H, H]}",
        no_gradient="[m]",
        outputs="[h, g]",
    )
    spec = rnnspec.loads(text)
    layer = Recurrent(spec, 3, 4, sizes={"E": 2}, batch_first=True, **DOUBLE)
    assert [n for n, _ in layer.named_parameters()] == ["W_l0", "V_l0", "U_l0"]
    twin = numpy_twin(layer, cell=spec, input_size=3, hidden_size=4, sizes={"E": 2}, batch_first=True)
    inputs = {
        "x": normal(2, 5, 3).requires_grad_(),
        "z": normal(2, 5, 2).requires_grad_(),
        "m": normal(2, 5).requires_grad_(),
    }
    results = layer(inputs)
    for a, b in zip(leaves(results), leaves(twin({n: t.detach().numpy() for n, t in inputs.items()})), strict=True):
        assert_same(a.detach().numpy(), b)
    (results[0][0].sum() + results[0][1].sum()).backward()
    dx, _ = twin.backward((np.ones((2, 5, 4)), np.ones((2, 5, 4))))
    assert_same(inputs["z"].grad.numpy(), dx["z"])
    assert inputs["m"].grad is None
    assert_same(layer.W_l0.grad.numpy(), twin.grads["W_l0"])
    for wrong in (inputs["x"], {"x": inputs["x"]}, (inputs["x"],) * 2):
        with pytest.raises(ShapeError, match="dict or a tuple of 3 tensors"):
            layer(wrong)
    with pytest.raises(ShapeError, match=r"rows and steps \(B, T\): x \(2, 5\), z \(2, 5\), m \(5, 2\)"):
        layer({**inputs, "m": inputs["m"].mT})
    with pytest.raises(ShapeError, match=r"\(2, 5\) = \[B, T\], got \(5, 2\)"):
        layer(inputs, resets=torch.zeros(5, 2, dtype=torch.bool))
    with pytest.raises(UnsupportedError, match="padded"):
        layer(pack_padded_sequence(inputs["x"], [5, 2], batch_first=True))


def test_cells_of_plain_numbers():
    layer = Recurrent(rnnspec.loads(LINEAR), 1, 1, bidirectional=True, merge="sum", **DOUBLE)
    assert {n: tuple(p.shape) for n, p in layer.named_parameters()} == {
        f"{n}_l0{d}": () for d in ("", "_reverse") for n in ("w", "u")
    }
    x = normal(4, 3).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, *w: torch.func.functional_call(layer, dict(zip([n for n, _ in layer.named_parameters()], w)), (x,)),
        [x, *layer.parameters()],
    )
    assert layer(x[:, 0])[0].shape == (4,)  # one row without a batch
    arguments = (layer.config.text, [p.detach() for p in layer.parameters()], [x.detach()], [], 1, 0, None, None, None)
    kept = torch.ops.rnnspec.forward(*arguments, 1)[2:]
    found = torch.ops.rnnspec.backward(*arguments, kept, [torch.ones_like(x)], 1)
    assert [tuple(t.shape) for t in found] == [()] * 4 + [(4, 3)]  # autograd would take (1,) for () without a word


def test_inputs_that_have_a_default_may_be_left_out():
    text = cell(
        "h[t] = tanh(W @ x[t] + k * dt[t] * h[t-1])",
        inputs="{x: D, dt: []}",
        states="{h: H}",
        parameters="{W: [H, D], k: [H]}",
        defaults="{dt: 1}",
    )
    layer, x = Recurrent(rnnspec.loads(text), 3, 4, batch_first=True, **DOUBLE), normal(2, 5, 3).requires_grad_()
    ones = torch.ones(2, 5, dtype=torch.float64, requires_grad=True)
    right = layer({"dt": ones, "x": x})
    for given in (x, {"x": x}, (x, ones)):
        found = layer(given)
        assert_same(found[0].detach().numpy(), right[0].detach().numpy())
        assert torch.equal(*(torch.autograd.grad(r[0].sum(), x, retain_graph=True)[0] for r in (found, right)))
    assert torch.autograd.grad(right[0].sum(), ones)[0].shape == (2, 5)
    packed, _ = layer(pack_padded_sequence(x, [5, 5], batch_first=True))
    assert_same(pad_packed_sequence(packed, True)[0].detach().numpy(), right[0].detach().numpy())
    with pytest.raises(ShapeError, match="input must be one tensor"):
        layer({"dt": ones})


def test_a_list_of_cells():
    layer = Recurrent(["lstm", "gru"], 3, 4, bidirectional=True, **DOUBLE)
    twin = numpy_twin(layer, cell=["lstm", "gru"], input_size=3, hidden_size=4, bidirectional=True)
    x = normal(5, 2, 3)
    for a, b in zip(leaves(layer(x)), leaves(twin(x.numpy())), strict=True):
        assert_same(a.detach().numpy(), b)


def test_the_functional_form():
    layer = Recurrent("lstm", 3, 4, **BOTH, **DOUBLE)
    config, x = describe("lstm", 3, 4, **BOTH), normal(5, 2, 3)
    assert config == layer.config and hash(config) == hash(pickle.loads(pickle.dumps(config)))
    weights = dict(layer.named_parameters())
    for a, b in zip(leaves(recurrent(config, weights, x)), leaves(layer(x)), strict=True):
        assert_same(a.detach().numpy(), b.detach().numpy())
    assert {n: tuple(t.shape) for n, t in config.init(0, torch.float64).items()} == dict(config.weights)
    with pytest.raises(
        ShapeError,
        match=r"missing 'weight_ih_l0'; unexpected 'weight_ih'; 'bias_ih_l0' has shape \(3,\), expected \(16,\)",
    ):
        recurrent(
            config,
            {
                "weight_ih" if n == "weight_ih_l0" else n: torch.zeros(3) if n == "bias_ih_l0" else t
                for n, t in weights.items()
            },
            x,
        )
    with pytest.raises(TypeError, match="dtype"):
        describe("lstm", 3, 4, dtype="float64")


# --- tensors in and out ---


def test_strides_views_and_expanded_tensors_are_read_in_place():
    ours, _ = pair(**BOTH, **DOUBLE)
    x, h = normal(6, 4, 3), normal(4, 4, 5)
    right = leaves(ours(x, (h, h)))
    wide = normal(4, 12, 7)
    wide[:, ::2, 1:4] = x.transpose(0, 1)
    for view in (x.flip(0).flip(0), wide[:, ::2, 1:4].transpose(0, 1), x.transpose(0, 2).contiguous().transpose(0, 2)):
        for a, b in zip(leaves(ours(view, (h.mT.contiguous().mT, h))), right, strict=True):
            assert_same(a.detach().numpy(), b.detach().numpy())
    same = x[:, :1].expand(-1, 4, -1)  # stride 0
    assert_same(ours(same)[0][:, 0].detach().numpy(), ours(x[:, :1])[0][:, 0].detach().numpy())
    x.requires_grad_()
    right = torch.autograd.grad(ours(x)[0], x, torch.ones(6, 4, 10).double())[0]
    for dy in (
        torch.ones(()).double().expand(6, 4, 10),
        torch.ones(10, 4, 6).double().transpose(0, 2),
    ):  # H21: of stride 0, and turned round
        assert_same(torch.autograd.grad(ours(x)[0], x, dy)[0].numpy(), right.numpy())


def test_nothing_is_written_to_and_nothing_copied():
    ours, _ = pair(**DOUBLE)
    x, before = normal(6, 4, 3), normal(6, 4, 3)
    ours(x)[0].sum().backward()
    assert torch.equal(x, before)


def test_without_gradients_no_tape_is_kept():
    ours, _ = pair(**DOUBLE)
    x = normal(6, 4, 3)
    calls = []
    with _Recorder(calls):
        ours(x)
        with torch.no_grad():
            y, _ = ours(x)
        with torch.inference_mode():
            z, _ = ours(x)
        ours.requires_grad_(False)
        ours(x)
        ours(x.clone().requires_grad_())
    assert calls == ["forward", "infer", "infer", "infer", "forward"]
    assert not y.requires_grad and z.is_inference() and torch.equal(y, z)


class _Recorder(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes the operators of ours that run."""

    def __init__(self, calls: list[str]):
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "rnnspec":
            self.calls.append(func._opname)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("wanted", [["weight_hh_l0"], ["weight_ih_l0", "bias_hh_l0"]])
def test_only_what_requires_gradients_gets_them(wanted):
    ours, _ = pair(**DOUBLE)
    x = normal(4, 2, 3)
    right = dict(
        zip([n for n, _ in ours.named_parameters()], torch.autograd.grad(loss(ours(x)), list(ours.parameters())))
    )
    for name, p in ours.named_parameters():
        p.requires_grad_(name in wanted)
    loss(ours(x)).backward()
    for name, p in ours.named_parameters():
        assert p.grad is None if name not in wanted else torch.equal(p.grad, right[name])


def test_H20_gradients_through_the_final_state_alone_and_through_both():
    layer = Recurrent(rnnspec.loads(LINEAR_ROWS), 1, 1, **DOUBLE)
    with torch.no_grad():
        layer.w_l0.fill_(1)
        layer.u_l0.fill_(0.5)
    for what, last, first in (
        (lambda y, h: h, 1, 0.25),
        (lambda y, h: h + y[-1], 2, 0.5),
        (lambda y, h: y[-1], 1, 0.25),
    ):
        x = torch.ones(3, 1, 1, dtype=torch.float64, requires_grad=True)
        what(*layer(x)).sum().backward()
        assert_close(x.grad[[2, 0]].flatten(), np.array([last, first]), HAND["float64"])


def test_hooks_see_values_and_gradients():
    ours, _ = pair(**DOUBLE)
    seen = []
    ours.register_forward_hook(lambda m, args, results: seen.append(results[0].shape))
    ours.register_full_backward_hook(lambda m, gin, gout: seen.append(gout[0].shape))
    ours.weight_hh_l0.register_hook(lambda g: g * 0)
    x = normal(4, 2, 3).requires_grad_()
    y, _ = ours(x)
    y.register_hook(lambda g: seen.append("y"))
    y.sum().backward()
    assert [tuple(s) for s in seen if s != "y"] == [(4, 2, 5)] * 2 and "y" in seen
    assert (ours.weight_hh_l0.grad == 0).all() and (x.grad != 0).any()


def test_T_and_B_of_zero_and_rows_of_no_length():
    """H13, H14"""
    ours, _ = pair(**BOTH, **DOUBLE)
    for shape in ((0, 2, 3), (5, 0, 3)):
        x, h = normal(*shape).requires_grad_(), normal(4, shape[1], 5, seed=2).requires_grad_()
        y, (h_n, _) = ours(x, (h, h))
        assert y.shape == (*shape[:2], 10)
        if shape[0] == 0:
            assert torch.equal(h_n, h)
        ours.zero_grad()
        (y.sum() + h_n.sum()).backward()
        assert x.grad.shape == shape and all((p.grad == 0).all() for p in ours.parameters())
        assert (h.grad == 1).all() or not shape[1]
    x, h = normal(4, 2, 3).requires_grad_(), torch.full((4, 2, 5), 7.0, dtype=torch.float64, requires_grad=True)
    y, (h_n, c_n) = ours(x, (h, h), [4, 0])
    assert (y[:, 1] == 0).all() and (h_n[:2, 1] == 7).all() and (c_n[:, 1] == 7).all()
    h_n[:, 1].sum().backward()
    assert (x.grad == 0).all() and (h.grad[:, 1] == 1).all()


@pytest.mark.parametrize("rows", [1, 2])
def test_one_step_backwards(rows):
    """Its gradient is an array that NumPy calls contiguous, with a negative stride along its one
    step: torch refused it."""
    back, on = Recurrent("gru", 3, 4, go_backwards=True, **DOUBLE), Recurrent("gru", 3, 4, **DOUBLE)
    back.load_state_dict(on.state_dict())
    x = normal(1, rows, 3).requires_grad_()
    a, b = (torch.autograd.grad(layer(x)[0].square().sum(), [x, *layer.parameters()]) for layer in (back, on))
    assert all(torch.equal(*pair) for pair in zip(a, b))


def test_H16_what_lies_in_the_padding_does_not_matter():
    ours, _ = pair(**BOTH, **DOUBLE)
    found = []
    for pad in (0.0, float("nan"), float("inf")):
        x = normal(5, 2, 3)
        x[2:, 1] = pad
        x.requires_grad_()
        ours.zero_grad()
        y, _ = ours(x, None, [5, 2])
        y.sum().backward()
        assert (x.grad[2:, 1] == 0).all()
        found.append([y.detach(), x.grad, *(p.grad.clone() for p in ours.parameters())])
    for other in found[1:]:
        for a, b in zip(found[0], other):
            assert_same(a.numpy(), b.numpy())


def test_the_number_of_threads_is_torchs_and_changes_nothing():
    ours, _ = pair("lstm", 64, 64)
    x = normal(40, 16, 64, dtype=torch.float32).requires_grad_()
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            y, _ = ours(x)
            torch.set_num_threads(3 - threads)  # backward reads the tape as it was written
            found.append([y.detach(), torch.autograd.grad(y.sum(), x)[0]])
    finally:
        torch.set_num_threads(before)
    for a, b in zip(*found):
        assert_same(a.numpy(), b.numpy())


# --- what autograd keeps ---


def test_backward_runs_as_often_as_asked_and_tapes_are_freed():
    from rnnspec.backends.cpu.launch.memory import POOL

    ours, _ = pair("lstm", 32, 64, **DOUBLE)
    x = normal(60, 8, 32).requires_grad_()
    y, _ = ours(x)
    first = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
    for _ in range(3):
        ours(x)  # runs of its own, dropped without a backward
    assert torch.equal(torch.autograd.grad(y.sum(), x, retain_graph=True)[0], first)
    kept = [t for t in y.grad_fn.saved_tensors if t is not None and t.dtype == torch.uint8]
    where = [t.data_ptr() for t in kept]
    assert len(where) == 1
    del y, kept
    assert any(0 <= where[0] - p.__array_interface__["data"][0] < p.size for p in POOL.idle.values())


def test_saved_tensors_may_be_moved_and_checkpoints_taken():
    ours, _ = pair(**BOTH, **DOUBLE)
    x = normal(6, 2, 3).requires_grad_()
    right = torch.autograd.grad(ours(x)[0].sum(), x)[0]
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t.clone()):
        y, _ = ours(x)
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], right)
    y, _ = torch.utils.checkpoint.checkpoint(ours, x, use_reentrant=False)
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], right)


def test_a_weight_changed_before_backward_is_noticed():
    ours, _ = pair(**DOUBLE)
    y, _ = ours(normal(6, 2, 3))
    with torch.no_grad():
        ours.weight_hh_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("bidirectional", [False, True])
def test_arrays_of_lengths_and_resets_may_be_used_again_before_backward(bidirectional):
    """Their memory was shared, so that backward cut the rows elsewhere, and said nothing."""
    layer, x = Recurrent("lstm", 3, 4, bidirectional=bidirectional, **DOUBLE), normal(5, 2, 3).requires_grad_()
    lengths, resets = np.array([5, 3]), np.array([[0, 0], [0, 1], [0, 0], [1, 0], [0, 0]], bool)

    def gradients(change: bool) -> Any:
        found = []
        for given in ({"lengths": lengths.copy()}, {"resets": resets.copy()}):
            y = layer(x, **given)[0]
            for array in given.values() if change else ():
                array[:] = array[::-1].copy()
            found.append(torch.autograd.grad(y.square().sum(), x)[0])
        return found

    assert all(torch.equal(a, b) for a, b in zip(gradients(True), gradients(False)))


def test_H82_weights_changed_in_place_or_loaded_are_used_at_once():
    layer, x = Recurrent(rnnspec.loads(LINEAR_ROWS), 1, 1, **DOUBLE), torch.ones(1, 1, 1, dtype=torch.float64)
    changes = [
        lambda: layer.w_l0.data.fill_(2),
        lambda: layer.w_l0.data.mul_(2),
        lambda: layer.load_state_dict({n: torch.full_like(p, 8) for n, p in layer.state_dict().items()}),
        lambda: setattr(layer, "w_l0", torch.nn.Parameter(torch.full((1,), 16.0, dtype=torch.float64))),
    ]
    for expected, change in zip((2, 4, 8, 16), changes):
        change()
        assert layer(x)[0].item() == expected
        with torch.no_grad():
            assert layer(x)[0].item() == expected


# --- the module ---


def test_copies_pickles_and_files():
    layer, x = Recurrent("lstm", 3, 4, **BOTH, dropout=0.3, merge="sum", **DOUBLE).eval(), normal(5, 2, 3)
    right = layer(x)[0].detach()
    layer(x)[0].sum().backward()
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(file, weights_only=False)):
        assert torch.equal(other(x)[0], right)
        assert (
            repr(other)
            == repr(layer)
            == "Recurrent('lstm', 3, 4, num_layers=2, dropout=0.3, bidirectional=True, merge='sum')"
        )
        other.weight_hh_l0.data.zero_()
    assert torch.equal(layer(x)[0], right)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    fresh = Recurrent("lstm", 3, 4, **BOTH, merge="sum", **DOUBLE)
    fresh.load_state_dict(torch.load(file))
    assert torch.equal(fresh(x)[0], right)


def test_dtypes_of_the_module():
    layer, x = Recurrent("lstm", 3, 4), normal(5, 2, 3)
    assert layer.weight_hh_l0.dtype == torch.float32
    with pytest.raises(
        DtypeError,
        match=r"input 'x' has dtype torch.float64, but weight 'weight_ih_l0' has torch.float32.*nothing is cast",
    ):
        layer(x)
    layer.to(torch.float64)
    theirs = torch.nn.LSTM(3, 4, dtype=torch.float64)
    theirs.load_state_dict(layer.state_dict())
    assert_close(layer(x)[0].detach(), theirs(x)[0].detach(), TORCH["float64"])
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert Recurrent("lstm", 3, 4).weight_hh_l0.dtype == torch.float64
    finally:
        torch.set_default_dtype(default)


def test_initial_weights_follow_torchs_generator_and_bounds():
    torch.manual_seed(3)
    first, second = Recurrent("lstm", 30, 25), Recurrent("lstm", 30, 25)
    torch.manual_seed(3)
    again = Recurrent("lstm", 30, 25)
    assert torch.equal(first.weight_ih_l0, again.weight_ih_l0) and not torch.equal(
        first.weight_ih_l0, second.weight_ih_l0
    )
    assert 0.19 < first.weight_ih_l0.abs().max() <= 0.2  # 1 / sqrt(H)
    second.reset_parameters()
    assert not torch.equal(second.weight_hh_l0, again.weight_hh_l0)


def test_attributes_of_nn_lstm():
    layer, theirs = pair(**BOTH)
    for name in (
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "proj_size",
    ):
        assert getattr(layer, name) == getattr(theirs, name)
    assert [[tuple(p.shape) for p in group] for group in layer.all_weights] == [
        [tuple(p.shape) for p in group] for group in theirs.all_weights
    ]
    layer.flatten_parameters()


def test_H79_dropout():
    layer, x = Recurrent("lstm", 3, 4, num_layers=2, dropout=0.5, **DOUBLE), normal(20, 3, 3)
    torch.manual_seed(0)
    a, b = layer(x)[0], layer(x)[0]
    torch.manual_seed(0)
    assert torch.equal(layer(x)[0], a) and not torch.equal(a, b)
    with torch.no_grad():
        torch.manual_seed(0)
        assert torch.equal(layer(x)[0], a)
    layer.eval()
    before = torch.get_rng_state()
    assert torch.equal(layer(x)[0], layer(x)[0]) and torch.equal(torch.get_rng_state(), before)
    loss(layer(x)).backward()  # fine tuning in evaluation mode
    assert all((p.grad != 0).any() for p in layer.parameters())
    with pytest.warns(UserWarning, match="only one"):
        single = Recurrent("lstm", 3, 4, dropout=0.5, **DOUBLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(single(x)[0], single(x)[0])


def test_noise_of_cells_is_drawn_by_torchs_generator():
    text = cell(
        "h[t] = tanh(m[t] * x[t] + 0.5 * h[t-1])", inputs="{x: H, m: H}", states="{h: H}", noise="{m: dropout(0.5)}"
    )
    layer, x = Recurrent(rnnspec.loads(text), 3, 3, dtype=torch.float64), normal(6, 2, 3).requires_grad_()
    torch.manual_seed(0)
    a, b = layer(x)[0], layer(x)[0]
    torch.manual_seed(0)
    assert torch.equal(layer(x)[0], a) and not torch.equal(a, b)
    dropped = torch.autograd.grad(layer(x)[0].sum(), x)[0] == 0
    assert 0 < dropped.sum() < dropped.numel()
    layer.eval()
    assert (torch.autograd.grad(layer(x)[0].sum(), x)[0] != 0).all()


# --- errors ---


def messages(call: Any) -> str:
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((normal(5, 2, 7),), ["input 'x'", "(5, 2, 7)", "3 features"]),
        ((normal(3),), ["input 'x'", "3 axes"]),
        ((normal(1, 5, 2, 3),), ["(1, 5, 2, 3)"]),
        ((np.zeros((5, 2, 3)),), ["input 'x' must be a tensor", "ndarray", "rnnspec.Recurrent"]),
        ((normal(5, 2, 3), (normal(1, 3, 4), normal(1, 2, 4))), ["state 'h'", "(1, 2, 4)", "(1, 3, 4)"]),
        ((normal(5, 2, 3), (normal(2, 4), normal(1, 2, 4))), ["state 'h'", "(1, 2, 4)", "(2, 4)"]),
        ((normal(5, 2, 3), (normal(1, 2, 4), normal(1, 2, 5))), ["state 'c'", "(1, 2, 4)", "(1, 2, 5)"]),
        ((normal(5, 3), (normal(1, 1, 4), normal(1, 1, 4))), ["state 'h' must have shape (1, 4), got (1, 1, 4)"]),
        ((normal(5, 2, 3), normal(1, 2, 4)), ["state must be", "tuple of 2 tensors (h, c)"]),
        ((normal(5, 2, 3), None, [4, 6]), ["lengths[1] is 6", "between 0 and 5"]),
        ((normal(5, 2, 3), None, [4, -1]), ["lengths[1] is -1"]),
        ((normal(5, 2, 3), None, [4]), ["lengths", "(2,)", "(1,)"]),
        ((normal(5, 2, 3), None, [4.0, 2.5]), ["lengths must be integers"]),
        ((normal(5, 2, 3), None, [[4, 2]]), ["lengths", "(2,)", "(1, 2)"]),
    ],
)
def test_H15_H75_H80_what_does_not_fit_is_named(args, words):
    layer = Recurrent("lstm", 3, 4, **DOUBLE)
    for mode in (torch.enable_grad, torch.no_grad):
        with mode():
            said = messages(lambda: layer(*args))
        assert all(w in said for w in words), said


@pytest.mark.parametrize("shape", [(1, 5, 4), (1, 2, 4), (1, 4), (2, 3, 4)])
def test_H75_states_of_another_batch_are_refused_beside_packed_rows(shape):
    """Sorting them took the first rows of a state of too many."""
    for lengths in ([4, 2, 1], [2, 4, 1]):
        packed = pack_padded_sequence(normal(4, 3, 3), lengths, enforce_sorted=lengths[0] == 4)
        said = messages(lambda packed=packed: Recurrent("gru", 3, 4, **DOUBLE)(packed, normal(*shape)))
        assert "state 'h' must have shape (1, 3, 4)" in said and str(shape) in said


def test_H31_other_dtypes_and_autocast():
    layer = Recurrent("lstm", 3, 4)
    for dtype in (torch.float16, torch.bfloat16, torch.int64):
        assert "torch.float32 and torch.float64" in messages(
            lambda dtype=dtype: layer(torch.zeros(5, 2, 3, dtype=dtype))
        )
        if dtype.is_floating_point:
            assert "torch.float32 and torch.float64" in messages(
                lambda dtype=dtype: copy.deepcopy(layer).to(dtype)(torch.zeros(5, 2, 3, dtype=dtype))
            )
            assert "torch.float32 and torch.float64" in messages(
                lambda dtype=dtype: Recurrent("lstm", 3, 4, dtype=dtype)
            )
    x = torch.zeros(5, 2, 3)
    assert "state 'h' has dtype torch.float64" in messages(
        lambda: layer(x, (torch.zeros(1, 2, 4).double(), torch.zeros(1, 2, 4)))
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(torch.nn.Linear(3, 3)(x))[0].dtype == layer(x)[0].dtype == torch.bfloat16
    assert "dense" in messages(lambda: layer(x.to_sparse()))


def test_devices_without_kernels_and_mixed_ones():
    layer = Recurrent("lstm", 3, 4, device="meta")
    assert layer(torch.zeros(5, 2, 3, device="meta"))[0].shape == (5, 2, 4)  # shapes without values
    with pytest.raises(BackendUnavailable, match="input 'x' is on cpu, but weight 'weight_ih_l0' on meta"):
        layer(torch.zeros(5, 2, 3))

    class Elsewhere(torch.Tensor):
        device = torch.device("cuda", 0)

    config = describe("lstm", 3, 4)
    weights = {n: t.as_subclass(Elsewhere) for n, t in config.init().items()}
    with pytest.raises(BackendUnavailable, match=r"cuda:0.*kernels for cpu alone"):
        recurrent(config, weights, torch.zeros(5, 2, 3).as_subclass(Elsewhere))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"hidden_size": 0}, ValueError, "hidden_size.*0"),
        ({"hidden_size": 2.5}, TypeError, "hidden_size.*2.5"),
        ({"num_layers": 0}, ValueError, "num_layers"),
        ({"proj_size": 2, "cell": "gru"}, ValueError, "proj_size"),
        ({"cell": "lstn"}, ValueError, "lstn.*lstm"),
        ({"dropout": 1.5}, ValueError, "dropout.*1.5"),
        ({"dropout": True}, ValueError, "dropout"),
        ({"batch_first": 1}, TypeError, "batch_first"),
        ({"threads": 0}, ValueError, "threads"),
        ({"phi": "relu"}, ValueError, "phi"),
        ({"merge": "max"}, ValueError, "merge"),
        ({"memory": "little"}, ValueError, "memory"),
    ],
)
def test_H81_arguments_are_checked_at_once(change, error, words):
    with pytest.raises(error, match=words):
        Recurrent(**{"cell": "lstm", "input_size": 3, "hidden_size": 4} | change)


@pytest.mark.parametrize("grad", [True, False])
def test_the_threads_of_a_module_are_those_of_its_stack(grad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from rnnspec.interop import torch_ops as _torch_ops

    seen: list[int] = []
    made = _torch_ops.stack_of
    monkeypatch.setattr(
        _torch_ops, "stack_of", lambda config, dtype, threads: seen.append(threads) or made(config, dtype, threads)
    )
    with torch.set_grad_enabled(grad):
        Recurrent("lstm", 3, 5, threads=3, **DOUBLE)(torch.ones(2, 1, 3, **DOUBLE))
        Recurrent("lstm", 3, 5, **DOUBLE)(torch.ones(2, 1, 3, **DOUBLE))
    assert [n for n in seen if n is not None] == [3, torch.get_num_threads()]


@pytest.mark.parametrize("make", [Recurrent, describe])
def test_another_backend_than_the_cpu_is_refused(make):
    """It was accepted, and every call failed."""
    for backend in ("cuda", "auto", "tpu"):
        with pytest.raises(UnsupportedError, match=f"backend='{backend}'.*kernels for the CPU alone"):
            make("lstm", 3, 4, backend=backend)
    own = make("lstm", 3, 4, backend="cpu")
    assert getattr(own, "config", own) == describe("lstm", 3, 4)
