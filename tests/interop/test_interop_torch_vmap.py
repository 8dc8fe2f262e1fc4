"""rnnspec.interop.torch under torch.func.vmap, what is made of it, and batched gradients: the same
as one entry after the other."""

from __future__ import annotations

from typing import Any

import pytest
from tolerances import TORCH, assert_close

from rnnspec import UnsupportedError

torch = pytest.importorskip("torch")

from torch.func import functional_call, grad, jacrev, vmap  # noqa: E402

from rnnspec.interop.torch import Recurrent  # noqa: E402

DOUBLE = {"dtype": torch.float64}


def normal(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def squares(layer: Any) -> Any:
    return lambda weights, x: (functional_call(layer, weights, (x,))[0] ** 2).sum()


def weights_of(layer: Any) -> dict[str, Any]:
    return {n: p.detach() for n, p in layer.named_parameters()}


@pytest.mark.parametrize("axis", [0, 2])
def test_over_inputs_and_states(axis):
    layer, x, h = Recurrent("lstm", 3, 4, 2, bidirectional=True, **DOUBLE), normal(3, 5, 2, 3), normal(3, 4, 2, 4)
    mapped = x.movedim(0, axis)
    y, (h_n, _) = vmap(lambda x, h: layer(x, (h, None)), (axis, 0))(mapped, h)
    right = [layer(a, (b, None)) for a, b in zip(x, h)]
    assert torch.equal(y, torch.stack([r[0] for r in right]))
    assert torch.equal(h_n, torch.stack([r[1][0] for r in right]))
    found = torch.autograd.grad(y.square().sum(), list(layer.parameters()))
    wanted = torch.autograd.grad(sum(r[0].square().sum() for r in right), list(layer.parameters()))
    for a, b in zip(found, wanted, strict=True):
        assert_close(a, b, TORCH["float64"])
    with torch.no_grad():
        assert torch.equal(vmap(lambda x, h: layer(x, (h, None))[0], (axis, 0))(mapped, h), y)
    twice = vmap(vmap(lambda x: layer(x)[0]))(torch.stack([x, x]))
    assert torch.equal(twice[0], twice[1]) and torch.equal(twice[0], vmap(lambda x: layer(x)[0])(x))


def test_gradients_of_each_entry():
    """Of shared weights and of an ensemble's; and the gradient through vmap."""
    layer, x = Recurrent("gru", 3, 4, **DOUBLE), normal(3, 5, 2, 3)
    f, weights = squares(layer), weights_of(layer)
    right = [grad(f)(weights, a) for a in x]
    many = {n: torch.stack([w] * 3) for n, w in weights.items()}
    for found in (vmap(grad(f), (None, 0))(weights, x), vmap(grad(f))(many, x)):
        for name in weights:
            assert_close(found[name], torch.stack([r[name] for r in right]), TORCH["float64"])
    through = grad(lambda weights: vmap(lambda x: f(weights, x))(x).sum())(weights)
    for name in weights:
        assert_close(through[name], sum(r[name] for r in right), TORCH["float64"])


def plain_and_ours(kind: str) -> tuple[Any, Any]:
    ours = Recurrent(kind, 3, 4, 2, bidirectional=True, **DOUBLE)
    plain = getattr(torch.nn, kind.upper())(3, 4, 2, bidirectional=True, **DOUBLE)
    plain.load_state_dict(ours.state_dict())
    return plain, ours


def gradients(layer: Any, weights: Any, x: Any) -> dict[str, Any]:
    """By plain autograd."""
    own = {n: w.detach().clone().requires_grad_() for n, w in weights.items()}
    return dict(zip(own, torch.autograd.grad(squares(layer)(own, x), list(own.values())), strict=True))


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often an operator ran once for each entry."""
    from rnnspec.interop import torch_vmap

    each, found = torch_vmap.each_entry, list[int]()
    monkeypatch.setattr(torch_vmap, "each_entry", lambda *args: found.append(1) or each(*args))
    return found


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_entries_are_rows_of_one_call_and_as_torchs_own_layers(kind, loops):
    """Over data, over weights, over both, within one another, with one row and with several; none
    of it runs entry after entry."""
    plain, ours = plain_and_ours(kind)
    f, weights, x = squares(ours), weights_of(ours), normal(3, 5, 2, 3)
    single, many = x[:, :, 0], {n: torch.stack([w, 1.1 * w, 0.9 * w]) for n, w in weights.items()}
    some = dict(many, bias_hh_l0=weights["bias_hh_l0"])
    axes = {n: None if n == "bias_hh_l0" else 0 for n in some}

    def entry(i: int, of: Any = many) -> Any:
        return {n: w[i] if of[n].dim() > weights[n].dim() else w for n, w in of.items()}

    cases = [
        (vmap(grad(f), (None, 0))(weights, x), [gradients(plain, weights, a) for a in x]),
        (vmap(grad(f), (None, 0))(weights, single), [gradients(plain, weights, a) for a in x[:, :, :1]]),
        (vmap(grad(f))(many, x), [gradients(plain, entry(i), x[i]) for i in range(3)]),
        (vmap(grad(f), (axes, None))(some, x[0]), [gradients(plain, entry(i, some), x[0]) for i in range(3)]),
    ]
    for outer, inner in (((0, None), (None, 0)), ((None, 0), (0, None))):
        found = vmap(vmap(grad(f), inner), outer)(many, x)
        found = found if outer == (0, None) else {n: a.transpose(0, 1) for n, a in found.items()}
        right = [[gradients(plain, entry(i), a) for a in x] for i in range(3)]
        cases += [({n: a[i] for n, a in found.items()}, right[i]) for i in range(3)]
    for found, right in cases:
        for name in weights:
            assert_close(found[name], torch.stack([r[name] for r in right]), TORCH["float64"])
    one = vmap(vmap(grad(f), (None, 0)), (0, None))({n: w[:1] for n, w in many.items()}, x)
    also = vmap(vmap(grad(f), (0, None)), (None, 0))({n: w[:1] for n, w in many.items()}, x)
    for name in weights:
        assert one[name].shape == (1, 3, *weights[name].shape)
        assert_close(one[name][0], also[name][:, 0], TORCH["float64"])
    assert not loops


def test_a_penalty_on_the_gradient_of_each_entry():
    """The gradient of gradients by row: entry after entry, for a pass over rows has no further
    derivative."""
    plain, ours = plain_and_ours("lstm")
    x, weights = normal(2, 3, 1, 3), weights_of(ours)

    def penalty(weights: Any) -> Any:
        return sum((a**2).sum() for a in vmap(grad(squares(ours)), (None, 0))(weights, x).values())

    own = {n: w.clone().requires_grad_() for n, w in weights.items()}
    total = 0
    for entry in x:
        first = torch.autograd.grad(squares(plain)(own, entry), list(own.values()), create_graph=True)
        total = total + sum((a**2).sum() for a in first)
    right = dict(zip(own, torch.autograd.grad(total, list(own.values())), strict=True))
    for name, found in grad(penalty)(weights).items():
        assert_close(found, right[name], TORCH["float64"])


def test_jacobians_and_batched_gradients():
    """torch.func.jacrev, is_grads_batched and jacobian(vectorize=True): a loop over rows of the
    identity."""
    layer, x = Recurrent("lstm", 3, 4, **DOUBLE), normal(3, 1, 3).requires_grad_()
    y = layer(x)[0].flatten()
    rows = torch.eye(len(y), **DOUBLE)
    right = torch.stack([torch.autograd.grad(y, x, row, retain_graph=True)[0] for row in rows])
    (found,) = torch.autograd.grad(y, x, rows, is_grads_batched=True, retain_graph=True)
    assert torch.equal(found, right)
    assert torch.equal(jacrev(lambda x: layer(x)[0].flatten())(x).detach(), right)
    call = torch.autograd.functional.jacobian(lambda x: layer(x)[0].flatten(), x, vectorize=True)
    assert torch.equal(call, right)
    state = layer(x)[1]  # of several results, one batched and one not
    both = torch.autograd.grad(
        [*state], layer.weight_hh_l0, [torch.ones(2, 1, 1, 4, **DOUBLE)] * 2, is_grads_batched=True
    )
    assert torch.equal(both[0][0], both[0][1]) and both[0].shape == (2, 16, 4)


def test_batched_directions_and_second_gradients():
    """The batches of torch.autograd.functional and of is_grads_batched reach jvp and hvp too."""
    layer, x = Recurrent("lstm", 3, 4, **DOUBLE), normal(3, 1, 3).requires_grad_()
    functional = torch.autograd.functional
    right = functional.jacobian(lambda x: layer(x)[0], x)
    found = functional.jacobian(lambda x: layer(x)[0], x, vectorize=True, strategy="forward-mode")
    assert_close(found, right, TORCH["float64"])

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (layer(x)[0] ** 2).sum()

    right = functional.hessian(loss, x)
    assert_close(functional.hessian(loss, x, vectorize=True), right, TORCH["float64"])
    ahead = functional.hessian(loss, x, vectorize=True, outer_jacobian_strategy="forward-mode")
    assert_close(ahead, right, TORCH["float64"])
    (slope,) = torch.autograd.grad(loss(x), x, create_graph=True)
    rows = torch.eye(x.numel(), **DOUBLE).view(-1, *x.shape)
    (found,) = torch.autograd.grad(slope, x, rows, is_grads_batched=True)
    assert_close(found.view(right.shape), right, TORCH["float64"])


def test_random_numbers_are_those_of_torchs_rule():
    layer, x = Recurrent("lstm", 3, 4, 2, dropout=0.5, **DOUBLE), torch.stack([normal(5, 2, 3)] * 2)
    same = vmap(lambda x: layer(x)[0], randomness="same")(x)
    other = vmap(lambda x: layer(x)[0], randomness="different")(x)
    assert torch.equal(same[0], same[1]) and not torch.equal(other[0], other[1])
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(layer)(x)


def test_what_has_no_common_size_says_so():
    layer, x = Recurrent("lstm", 3, 4, **DOUBLE), normal(2, 5, 2, 3)
    lengths = torch.tensor([[5, 3], [2, 0]])
    assert vmap(lambda x: layer(x, None, lengths[0])[0])(x).shape == (2, 5, 2, 4)
    found = vmap(lambda x, lengths: layer(x, None, lengths)[0])(x, lengths)
    assert torch.equal(found, torch.stack([layer(a, None, n)[0] for a, n in zip(x, lengths)]))
    noisy = Recurrent("lstm", 3, 4, 2, dropout=0.5, **DOUBLE)  # each entry draws its own
    with pytest.raises(UnsupportedError, match="differ in size"):
        vmap(lambda x, lengths: noisy(x, None, lengths)[0], randomness="different")(x, lengths)


def test_no_entries_give_none():
    layer = Recurrent("lstm", 3, 4, 2, **DOUBLE)
    y, (h, c) = vmap(layer)(normal(0, 5, 2, 3))
    assert (y.shape, h.shape, c.shape) == ((0, 5, 2, 4), (0, 2, 2, 4), (0, 2, 2, 4))
    weights = {n: p.detach() for n, p in layer.named_parameters()}
    slopes = vmap(grad(lambda w, x: functional_call(layer, w, (x,))[0].sum()), (None, 0))(weights, normal(0, 5, 2, 3))
    assert all(slopes[n].shape == (0, *w.shape) for n, w in weights.items())


@pytest.mark.slow
@pytest.mark.parametrize("call", ["vmap", "grad", "both"])
def test_within_a_compiled_function(call):
    torch._dynamo.reset()
    layer, x = Recurrent("gru", 3, 4, **DOUBLE), normal(2, 5, 2, 3)
    f, weights = squares(layer), weights_of(layer)
    function = {
        "vmap": lambda: vmap(lambda x: f(weights, x))(x),
        "grad": lambda: grad(f)(weights, x[0])["weight_hh_l0"],
        "both": lambda: vmap(grad(f), (None, 0))(weights, x)["weight_hh_l0"],
    }[call]
    assert_close(torch.compile(function, backend="aot_eager")().detach(), function().detach(), TORCH["float64"])
