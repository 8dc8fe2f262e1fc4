"""What PyTorch tests of torch.nn.RNN, LSTM and GRU, with our layer in their place: beside
test_interop_torch.py, which compares values and gradients.

Each row of the tables says what PyTorch's own tests (test/test_nn.py, test/test_modules.py,
test/nn/) ask of these modules; none of their text is here. What they ask and is not here:

- second derivatives (gradgrad): the backward pass is a kernel, and an error says so;
- the words of error messages: ours say more. The kinds of errors are the same;
- an error for sequences of length 0: here the state comes out as it went in;
- proj_size=0 given to a GRU or RNN is an error there; here any other number is;
- cuDNN's weight buffers, devices other than the CPU, and modules spread over several;
- RNNCell, LSTMCell, GRUCell: `rnnspec.Stream` and `step` have other conventions;
- scripting (torch.jit.script): an error names what works;
- float16 and bfloat16 weights outside of torch.autocast: an error says what to do.
"""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections import OrderedDict
from typing import Any

import pytest
from tiny import cell
from tolerances import TORCH, assert_close

import rnnspec
from rnnspec import DtypeError, ShapeError, UnsupportedError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.nn.utils import parametrizations, parametrize, prune  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence  # noqa: E402

from rnnspec.interop.torch import Recurrent  # noqa: E402


def make(kind: str, *args: Any, **options: Any) -> Any:
    """Our layer for torch's."""
    name = "lstm_projected" if options.get("proj_size") and kind == "LSTM" else kind.lower()
    return Recurrent(name, *args, **options)


KINDS = ("RNN", "LSTM", "GRU")
OF_ALL = pytest.mark.parametrize("kind", KINDS)


def normal(*shape: int, seed: int = 0, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def states(layer: Any, rows: int | None, **dtype: Any) -> Any:
    found = [
        normal(lead, *(() if rows is None else (rows,)), *rest, **dtype) for _, (lead, *rest) in layer.config.states
    ]
    return found[0] if len(found) == 1 else tuple(found)


def first(results: Any) -> Any:
    return results[0]


# --- how they are made

ARGUMENTS = {
    "sizes": ((3, 4), {}),
    "layers": ((3, 4, 2), {"dropout": 0.3}),
    "bias": ((3, 4, 2), {"bias": False}),
    "batch": ((3, 4), {"num_layers": 2, "batch_first": True, "bidirectional": True}),
    "dtype": ((3, 4), {"dtype": torch.float64, "device": "cpu"}),
    "meta": ((3, 4), {"device": "meta"}),
}


@OF_ALL
@pytest.mark.parametrize("which", ARGUMENTS)
def test_the_same_arguments_give_the_same_module(kind, which):
    """Weights by name, shape, dtype, device and value under a seed; attributes; what is printed."""
    args, options = ARGUMENTS[which]
    torch.manual_seed(3)
    ours = make(kind, *args, **options)
    torch.manual_seed(3)
    theirs = getattr(nn, kind)(*args, **options)
    for (name, p), (other, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert (name, p.shape, p.dtype, p.device) == (other, q.shape, q.dtype, q.device)
        assert p.is_meta or torch.equal(p, q)
    for name in (*theirs.__constants__, *(["nonlinearity"] if kind == "RNN" else [])):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours._all_weights == theirs._all_weights
    assert ours._flat_weights_names == theirs._flat_weights_names
    assert all(a.shape == b.shape for a, b in zip(ours._flat_weights, theirs._flat_weights, strict=True))
    assert set(theirs.__dict__) - {"_flat_weight_refs", "_weights_have_changed"} <= set(dir(ours))
    if which != "meta":
        torch.manual_seed(4)
        ours.reset_parameters()
        torch.manual_seed(4)
        theirs.reset_parameters()
        assert all(torch.equal(p, q) for p, q in zip(ours.parameters(), theirs.parameters()))


def test_arguments_by_position():
    """All of torch.nn.LSTM's, device and dtype too; nonlinearity, which torch.nn.RNN has in fourth
    place."""
    layer = Recurrent("lstm", 3, 4, 2, False, True, 0.1, True, 0, "cpu", torch.float64)
    assert layer.weight_ih_l1_reverse.dtype == torch.float64 and layer.batch_first and not layer.bias
    for ours in (
        Recurrent("rnn", 3, 4, 2, "relu", False, True),
        Recurrent("rnn", 3, 4, 2, nonlinearity="relu", bias=False, batch_first=True),
    ):
        theirs = nn.RNN(3, 4, 2, "relu", False, True)
        assert ours.mode == theirs.mode == "RNN_RELU" and ours.nonlinearity == "relu" and not ours.bias
        theirs.load_state_dict(ours.state_dict())
        assert_close(ours(normal(2, 5, 3))[0].detach(), theirs(normal(2, 5, 3))[0].detach(), TORCH["float32"])
    spec = rnnspec.load("rnn", phi="relu")
    assert Recurrent(spec, 3, 4).nonlinearity == "relu" and Recurrent("mgu", 3, 4).mode == "mgu"
    assert not hasattr(Recurrent("lstm", 3, 4), "nonlinearity")
    with pytest.raises(TypeError, match="twice"):
        Recurrent("rnn", 3, 4, 1, "relu", nonlinearity="tanh")


WRONG = [
    ("LSTM", (3, 0), {}, ValueError),
    ("LSTM", (3, 4, 0), {}, ValueError),
    ("GRU", (0, 4), {}, ValueError),
    ("GRU", (-1, 4), {}, ValueError),
    ("GRU", (3.0, 4), {}, TypeError),
    ("GRU", ("10", 4), {}, TypeError),
    ("RNN", (3, 4.0), {}, TypeError),
    ("RNN", (3, 4), {"bias": 0}, TypeError),
    ("RNN", (3, 4), {"batch_first": "False"}, TypeError),
    ("RNN", (3, 4), {"nonlinearity": "garbage"}, ValueError),
    ("RNN", (3, 4, 1, "garbage"), {}, ValueError),
    ("LSTM", (3, 4), {"nonlinearity": "relu"}, ValueError),
    ("GRU", (3, 4), {"dropout": 1.5}, ValueError),
    ("GRU", (3, 4), {"dropout": True}, ValueError),
    ("LSTM", (3, 4), {"proj_size": -1}, ValueError),
    ("LSTM", (3, 4), {"proj_size": 4}, ValueError),
    ("GRU", (3, 4), {"proj_size": 2}, ValueError),
    ("RNN", (3, 4), {"proj_size": 2}, ValueError),
]


@pytest.mark.parametrize(("kind", "args", "options", "error"), WRONG)
def test_wrong_arguments(kind, args, options, error):
    with pytest.raises(error):
        make(kind, *args, **options)


def test_what_is_settled_can_not_be_assigned():
    """It was taken, and ignored."""
    layer = Recurrent("lstm", 3, 4, 2)
    for name, value in {"hidden_size": 5, "merge": "sum", "num_layers": 3, "mode": "GRU", "memory": "low"}.items():
        with pytest.raises(AttributeError, match=f"{name} is settled"):
            setattr(layer, name, value)
    layer.own, layer.batch_first = 1, True
    assert layer(normal(2, 5, 3))[0].shape == (2, 5, 4)


# --- what they are called with

SHAPES = {  # input, states: those of a layer 3 -> 4, two layers, T 5, B 2
    "another width": ((5, 2, 7), None),
    "one axis": ((3,), None),
    "four axes": ((1, 5, 2, 3), None),
    "another batch": ((5, 2, 3), (2, 3, 4)),
    "another depth": ((5, 2, 3), (1, 2, 4)),
    "another size": ((5, 2, 3), (2, 2, 5)),
    "a state of one row": ((5, 2, 3), (2, 4)),
    "a state of a batch": ((5, 3), (2, 1, 4)),
}


@OF_ALL
@pytest.mark.parametrize("which", SHAPES)
def test_wrong_shapes_are_runtime_and_value_errors(kind, which):
    """Torch raises one for some and the other for others, and programs catch either."""
    layer = make(kind, 3, 4, 2)
    x, h = SHAPES[which]
    hx = None if h is None else (normal(*h),) * 2 if kind == "LSTM" else normal(*h)
    for error in (RuntimeError, ValueError, ShapeError):
        with pytest.raises(error):
            layer(normal(*x), hx)


@OF_ALL
def test_wrong_dtypes(kind):
    for error in (ValueError, RuntimeError, TypeError):
        with pytest.raises(error, match=r"torch.float64.*torch.float32"):
            make(kind, 3, 4)(normal(5, 2, 3, dtype=torch.float64))


@OF_ALL
def test_its_own_checks(kind):
    layer, x = make(kind, 3, 4, 2, bidirectional=True), normal(5, 2, 3)
    hx = states(layer, 2)
    assert layer.get_expected_hidden_size(x, None) == (4, 2, 4)
    layer.check_forward_args(x, hx, None)
    packed = pack_padded_sequence(x, [5, 3])
    layer.check_forward_args(packed.data, hx, packed.batch_sizes)
    layer.check_hidden_size(states(layer, 2)[0] if kind == "LSTM" else hx, (4, 2, 4))
    order = torch.tensor([1, 0])
    moved = layer.permute_hidden(hx, order)
    assert torch.equal(first(moved) if kind == "LSTM" else moved, (hx[0] if kind == "LSTM" else hx)[:, order])
    assert layer.permute_hidden(hx, None) is hx
    if kind == "LSTM":
        assert layer.get_expected_cell_size(x, None) == (4, 2, 4)
        with pytest.raises(RuntimeError, match="states"):
            layer.check_forward_args(x, hx[0], None)
    with pytest.raises(RuntimeError, match="Expected state h"):
        layer.check_forward_args(normal(5, 3, 3), hx, None)
    for wrong, error in ((normal(5, 2, 7), ShapeError), (normal(5, 3), ShapeError), (x.double(), DtypeError)):
        with pytest.raises(error):
            layer.check_input(wrong, None)


@OF_ALL
def test_packed_sequences_of_unequal_lengths(kind):
    """Each row as if it were alone; hx too, in the caller's order, and gradients."""
    layer = make(kind, 3, 4, 2, bidirectional=True, dtype=torch.float64)
    lengths, x = [3, 5, 1], normal(5, 3, 3, dtype=torch.float64).requires_grad_()
    hx = states(layer, 3, dtype=torch.float64)
    pick = lambda s, i: tuple(t[:, i : i + 1] for t in s) if isinstance(s, tuple) else s[:, i : i + 1]  # noqa: E731
    y, final = layer(pack_sequence([x[:n, i] for i, n in enumerate(lengths)], enforce_sorted=False), hx)
    padded, found = pad_packed_sequence(y)
    assert found.tolist() == lengths
    alone = [layer(x[:n, i : i + 1], pick(hx, i)) for i, n in enumerate(lengths)]
    for i, (n, (row, last)) in enumerate(zip(lengths, alone)):
        assert torch.equal(padded[:n, i : i + 1], row) and (padded[n:, i] == 0).all()
        for a, b in zip(pick(final, i) if kind == "LSTM" else [pick(final, i)], last if kind == "LSTM" else [last]):
            assert torch.equal(a, b)
    together = torch.autograd.grad(padded.square().sum(), [x, *layer.parameters()])
    apart = torch.autograd.grad(sum(row.square().sum() for row, _ in alone), [x, *layer.parameters()])
    for a, b in zip(together, apart, strict=True):
        assert_close(a, b, TORCH["float64"])


@OF_ALL
def test_no_batch_axis_and_strides(kind):
    """One row alone, and arrays that are not contiguous: the same numbers."""
    for batch_first in (False, True):
        layer = make(kind, 3, 4, 2, batch_first=batch_first, dtype=torch.float64)
        x, axis = normal(5, 3, dtype=torch.float64), 0 if batch_first else 1
        hx = states(layer, None, dtype=torch.float64)
        batch = tuple(s.unsqueeze(1) for s in hx) if kind == "LSTM" else hx.unsqueeze(1)
        assert torch.equal(layer(x, hx)[0], layer(x.unsqueeze(axis), batch)[0].squeeze(axis))
        wide = normal(5, 2, 6, dtype=torch.float64)
        for view in (wide[..., ::2], wide.mT.contiguous().mT[..., ::2]):
            leaf = view.detach().requires_grad_()
            ours = torch.autograd.grad(layer(leaf)[0].square().sum(), [leaf, *layer.parameters()])
            other = view.contiguous().requires_grad_()
            right = torch.autograd.grad(layer(other)[0].square().sum(), [other, *layer.parameters()])
            assert all(torch.equal(a, b) for a, b in zip(ours, right, strict=True))


# --- dropout


@OF_ALL
@pytest.mark.parametrize("p", [0, 0.276, 0.731, 1])
@pytest.mark.parametrize("train", [True, False])
def test_dropout_between_layers(kind, p, train):
    """With weights of one and no bias each unit of the second layer is a sum of what was kept."""
    layer = make(kind, 10, 1000, 2, bias=False, dropout=p, **({"nonlinearity": "relu"} if kind == "RNN" else {}))
    layer.train(train)
    torch.manual_seed(0)
    y = layer(torch.ones(1, 1, 10))[0]
    again = make(kind, 10, 1000, 2, bias=False, **({"nonlinearity": "relu"} if kind == "RNN" else {}))
    again.load_state_dict(layer.state_dict())
    below = make(kind, 10, 1000, 1, bias=False, **({"nonlinearity": "relu"} if kind == "RNN" else {}))
    below.load_state_dict({n: w for n, w in layer.state_dict().items() if n.endswith("_l0")})
    without = again(torch.ones(1, 1, 10))[0]
    if not train or p == 0:
        assert torch.equal(y, without)
    elif p == 1:
        assert (y == 0).all()
    else:
        assert not torch.equal(y, without)


@OF_ALL
def test_dropout_is_assigned(kind):
    """The module above draws what the number says at the time of the call."""
    layer, x = make(kind, 3, 4, 2, dropout=0.5), normal(50, 4, 3)
    torch.manual_seed(0)
    half = layer(x)[0]
    layer.dropout = 0.0
    assert layer.dropout == 0 and torch.equal(layer(x)[0], layer.eval()(x)[0])
    layer.train().dropout = 0.5
    torch.manual_seed(0)
    assert torch.equal(layer(x)[0], half)
    layer.dropout = 1
    assert torch.equal(layer(x)[0][:, 0], layer(x)[0][:, 1])  # nothing of x reaches the second layer
    for wrong in (1.5, -0.1, True, "much"):
        with pytest.raises(ValueError, match="dropout must be a probability"):
            layer.dropout = wrong
    single = make(kind, 3, 4)
    single.dropout = 0.5
    assert torch.equal(single(x)[0], single(x)[0])
    assert "dropout=0.5" in repr(single)


# --- weights


def reparametrized(how: str) -> Any:
    layer = Recurrent("lstm", 3, 4, 2)
    match how:
        case "weight_norm":
            return parametrizations.weight_norm(layer, "weight_hh_l0")
        case "old weight_norm":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return nn.utils.weight_norm(layer, "weight_hh_l0")
        case "spectral_norm":
            return parametrizations.spectral_norm(layer, "weight_hh_l0")
        case "orthogonal":
            return parametrizations.orthogonal(layer, "weight_hh_l0")
        case "pruned":
            return prune.l1_unstructured(layer, "weight_hh_l0", amount=20)
        case "dropped":  # as fastai's WeightDropout does
            raw = layer.weight_hh_l0
            del layer._parameters["weight_hh_l0"]
            layer.register_parameter("weight_hh_l0_raw", nn.Parameter(raw.detach()))
            layer.register_forward_pre_hook(lambda m, _: setattr(m, "weight_hh_l0", m.weight_hh_l0_raw * 0.5))
            return layer
    raise ValueError(how)


@pytest.mark.parametrize("how", ["weight_norm", "old weight_norm", "spectral_norm", "orthogonal", "pruned", "dropped"])
def test_weights_that_are_made_of_others(how):
    layer, x = reparametrized(how), normal(5, 2, 3)
    assert "weight_hh_l0" not in dict(layer.named_parameters())
    torch.manual_seed(0)
    y = layer(x)[0]
    plain = Recurrent("lstm", 3, 4, 2)
    plain.load_state_dict({n: getattr(layer.eval(), n) for n, _ in plain.named_parameters()})
    assert torch.equal(y, plain(x)[0]) or how == "spectral_norm"  # which iterates once more in training
    y.square().sum().backward()
    own = [n for n, p in layer.named_parameters() if "hh_l0" in n]
    assert own and all(p.grad is not None and (p.grad != 0).any() for n, p in layer.named_parameters() if n in own)
    other = reparametrized(how)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.eval()(x)[0], layer(x)[0])
    if how != "dropped":
        layer.reset_parameters()
    if how == "weight_norm":
        copied = copy.deepcopy(layer)
        assert torch.equal(copied(x)[0], layer(x)[0])
        y = layer(x)[0]
        parametrize.remove_parametrizations(layer, "weight_hh_l0")
        assert torch.equal(layer(x)[0], y)


def test_own_initial_values_reach_what_a_weight_is_made_of():
    layer = parametrizations.weight_norm(Recurrent("mgu", 3, 4), "U_f_l0")
    before = layer.U_f_l0.detach().clone()
    layer.reset_parameters()
    assert not torch.equal(before, layer.U_f_l0)


def test_tied_and_replaced_weights():
    layer, x = Recurrent("lstm", 4, 4, 2), normal(5, 2, 4)
    layer.weight_hh_l1 = layer.weight_hh_l0
    assert len(list(layer.parameters())) == 7
    layer(x)[0].sum().backward()
    tied = layer.weight_hh_l0.grad.clone()
    free = Recurrent("lstm", 4, 4, 2)
    free.load_state_dict(layer.state_dict())
    free(x)[0].sum().backward()
    assert_close(tied, free.weight_hh_l0.grad + free.weight_hh_l1.grad, TORCH["float32"])
    layer._flat_weights = layer._flat_weights  # as some programs do
    new = nn.Parameter(layer.bias_hh_l0.detach() + 1)
    layer._flat_weights = [
        new if n == "bias_hh_l0" else w for n, w in zip(layer._flat_weights_names, layer._flat_weights)
    ]
    assert layer.bias_hh_l0 is new and layer.all_weights[0][3] is new


DICTS = {
    "strict": lambda s: s,
    "no metadata": dict,  # as PyTorch wrote them before 0.4
    "older version": lambda s: _versioned(s, None),
    "of a file": lambda s: _through_a_file(s),
    "float64": lambda s: OrderedDict((n, w.double()) for n, w in s.items()),
}


def _versioned(state: Any, version: Any) -> Any:
    for entry in state._metadata.values():
        entry.pop("version", None)
    return state


def _through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@OF_ALL
@pytest.mark.parametrize("which", DICTS)
def test_state_dicts_go_both_ways(kind, which):
    ours, theirs, x = make(kind, 3, 4, 2), getattr(nn, kind)(3, 4, 2), normal(5, 2, 3)
    assert str(ours.load_state_dict(DICTS[which](theirs.state_dict()))) == "<All keys matched successfully>"
    assert_close(ours(x)[0].detach(), theirs(x)[0].detach(), TORCH["float32"])
    other = getattr(nn, kind)(3, 4, 2)
    other.load_state_dict(DICTS[which](ours.state_dict()))
    assert all(torch.equal(p, q) for p, q in zip(other.parameters(), theirs.parameters(), strict=True))
    empty = make(kind, 3, 4, 2, device="meta")
    empty.load_state_dict(theirs.state_dict(), assign=True)
    assert torch.equal(empty(x)[0], ours(x)[0])
    with pytest.raises(RuntimeError, match="Missing key"):
        ours.load_state_dict({n: w for n, w in theirs.state_dict().items() if n != "weight_hh_l1"})
    with pytest.raises(RuntimeError, match="size mismatch"):
        ours.load_state_dict(getattr(nn, kind)(3, 5, 2).state_dict())


@OF_ALL
def test_what_every_module_does(kind):
    """Copies, pickles, moves, modes, gradients kept for a second backward pass."""
    layer, x = make(kind, 3, 4, 2), normal(5, 2, 3)
    right = layer(x)[0].detach()
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), copy.copy(layer)):
        assert torch.equal(other(x)[0], right) and repr(other) == repr(layer)
    assert_close(copy.deepcopy(layer).double()(x.double())[0].detach(), right, TORCH["float32"])
    moved = make(kind, 3, 4, 2, device="meta").to_empty(device="cpu")
    moved.load_state_dict(layer.state_dict())
    assert torch.equal(moved(x)[0], right)
    assert all(p.is_shared() for p in copy.deepcopy(layer).share_memory().parameters())
    y = layer(x)[0]
    y.sum().backward(retain_graph=True)
    once = [p.grad.clone() for p in layer.parameters()]
    y.sum().backward()
    assert all(torch.equal(p.grad, 2 * g) for p, g in zip(layer.parameters(), once))
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()
    vector = nn.utils.parameters_to_vector(layer.parameters())
    nn.utils.vector_to_parameters(vector * 0, layer.parameters())
    assert (layer(x)[0] == 0).all()
    layer.flatten_parameters()
    assert not layer.eval().training and layer.requires_grad_(False)(x)[0].grad_fn is None


# --- what takes programs apart


def test_jit_trace(tmp_path):
    """Of any T and B, and in eval mode without a tape, as torch.export."""
    layer, x = Recurrent("lstm", 3, 4, 2, batch_first=True), normal(2, 5, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        traced, quiet = torch.jit.trace(layer, (x,)), torch.jit.trace(layer.eval(), (x,))
    other = normal(3, 7, 3)
    for program in (traced, quiet):
        program.save(str(tmp_path / "program.pt"))
        again = torch.jit.load(str(tmp_path / "program.pt"))
        for a in (program, again):
            assert torch.equal(a(other)[0], layer(other)[0])
    traced(x)[0].square().sum().backward()
    found = layer.weight_hh_l0.grad.clone()
    layer.zero_grad()
    layer(x)[0].square().sum().backward()
    assert torch.equal(found, layer.weight_hh_l0.grad)
    with pytest.raises(UnsupportedError, match=r"torch.jit.trace"):
        torch.jit.script(nn.Sequential(layer))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = Recurrent("lstm", 3, 4, 2), nn.Linear(4, 2)

    def forward(self, x: Any, h: Any) -> Any:
        y, (h_n, _) = self.layer(x, (h, h))
        return self.out(y), h_n


def test_symbolic_trace():
    """The layer is one node, as modules of torch.nn are."""
    model, x, h = Tagger(), normal(5, 2, 3), normal(2, 2, 4)
    graph = torch.fx.symbolic_trace(model)
    assert [n.target for n in graph.graph.nodes if n.op == "call_module"] == ["layer", "out"]
    for a, b in zip(graph(x, h), model(x, h), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(UnsupportedError, match="Sequential"):
        torch.fx.symbolic_trace(model.layer)


@pytest.mark.parametrize("name", ["lstm", "mgu"])
def test_fake_tensors(name):
    """Shapes without values, of weights too; forward, backward, lengths."""
    with FakeTensorMode():
        layer = Recurrent(name, 3, 4, 2, bidirectional=True, dropout=0.5)
        x = torch.randn(5, 2, 3)
        for given in (None, [5, 3], torch.tensor([5, 3])):
            y, _ = layer(x, None, given)
            assert y.shape == (5, 2, 8)
            y.sum().backward()
            assert all(p.grad.shape == p.shape for p in layer.parameters())
        with torch.no_grad():
            assert layer.eval()(x)[0].shape == (5, 2, 8)
    outside = Recurrent(name, 3, 4)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert outside(torch.randn(5, 2, 3))[0].shape == (5, 2, 4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    """Computed in float32, given in autocast's dtype; float64 is as it is, as torch has it."""
    layer, linear, x = Recurrent("lstm", 3, 4, 2), nn.Linear(3, 3), normal(5, 2, 3).requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        low = linear(x)
        y, (h, c) = layer(low)
        again = layer(low, (h, c))[0]
        packed = layer(pack_padded_sequence(low.transpose(0, 1), [5, 5], batch_first=True))[0]
        double = Recurrent("gru", 3, 4, dtype=torch.float64)(normal(5, 2, 3, dtype=torch.float64))[0]
        with torch.autocast("cpu", enabled=False):
            assert layer(low.float())[0].dtype == torch.float32
    assert {t.dtype for t in (low, y, h, c, again, packed.data)} == {dtype} and double.dtype == torch.float64
    assert torch.equal(y, layer(low.float())[0].to(dtype))
    y.float().sum().backward()
    assert layer.weight_hh_l0.grad.dtype == x.grad.dtype == torch.float32
    with pytest.raises(DtypeError, match=r"\.float\(\)"):
        layer(low)


def test_exports_without_operators_say_what_to_do():
    with warnings.catch_warnings(), pytest.raises(UnsupportedError, match=r"torch.nn.LSTM.*load_state_dict"):
        warnings.simplefilter("ignore")
        torch.onnx.export(Recurrent("lstm", 3, 4).eval(), (normal(5, 2, 3),), io.BytesIO(), dynamo=False)


# --- PyTorch's database of modules, where its tests can be imported


@OF_ALL
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_module_database(kind, dtype):
    pytest.importorskip("expecttest", reason="torch.testing._internal needs it")
    common = pytest.importorskip("torch.testing._internal.common_modules")
    info = next(i for i in common.module_db if i.module_cls is getattr(nn, kind))
    for training in (True, False):
        samples = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
        assert len(samples) >= 16
        for sample in samples:
            made, given = sample.constructor_input, sample.forward_input
            found = []
            for maker in (lambda *a, **k: make(kind, *a, **k), info.module_cls):
                torch.manual_seed(0)
                layer = maker(*made.args, **made.kwargs, dtype=dtype, device="cpu").train(training)
                results = layer(*given.args, **given.kwargs)
                if maker is not info.module_cls:
                    right = sample.reference_fn(layer, *given.args, **given.kwargs)
                    torch.testing.assert_close(results, right)
                tensors = [t for t in torch.utils._pytree.tree_leaves((given.args, given.kwargs)) if t.requires_grad]
                total = sum(t.square().sum() for t in torch.utils._pytree.tree_leaves(results))
                found.append(
                    [
                        *torch.utils._pytree.tree_leaves(results),
                        *torch.autograd.grad(total, [*tensors, *layer.parameters()]),
                    ]
                )
            for a, b in zip(*found, strict=True):
                assert_close(a.detach(), b.detach(), TORCH[str(dtype).removeprefix("torch.")])
    for error in info.module_error_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=True):
        sample = error.module_error_input
        with pytest.raises(error.error_type):
            layer = make(kind, *sample.constructor_input.args, **sample.constructor_input.kwargs)
            layer(*sample.forward_input.args, **sample.forward_input.kwargs)


def test_cells_of_ones_own_have_all_this_too():
    """Nothing of it is for the three alone."""
    spec = rnnspec.loads(
        cell(
            "h[t] = tanh(W @ x[t] + U @ h[t-1] + b)",
            inputs="{x: D}",
            states="{h: H}",
            parameters="{W: [H, D], U: [H, H], b: [H]}",
        )
    )
    layer, x = Recurrent(spec, 3, 4, 2, dropout=0.5), normal(5, 2, 3)
    assert layer.mode == spec.name and layer.get_expected_hidden_size(x, None) == (2, 2, 4)
    layer.dropout = 0.0
    assert torch.equal(layer(x)[0], layer.eval()(x)[0])
    traced = torch.jit.trace(layer, (x,))
    assert torch.equal(traced(x)[0], layer(x)[0])
