"""Fixed parameters are buffers of a PyTorch module."""

from __future__ import annotations

import io

import pytest

torch = pytest.importorskip("torch")

from rnnspec.interop.torch import Recurrent  # noqa: E402


@pytest.mark.parametrize("name", ["ei_rnn", "leaky_esn"])
def test_it_is_a_buffer_that_no_optimiser_moves(name):
    layer = Recurrent(name, 3, 4).double()
    held = {f"{n}_l0" for n in layer.config.fixed} or set(layer.config.fixed)
    held = set(layer.config.fixed)
    assert set(dict(layer.named_buffers())) == held and not held & set(dict(layer.named_parameters()))
    assert held <= set(layer.state_dict()) and not any(t is getattr(layer, n) for n in held for t in layer.all_weights)
    before = {n: getattr(layer, n).clone() for n in held}
    head = torch.nn.Linear(layer.hidden_size, 1).double()
    steps = torch.optim.AdamW([*layer.parameters(), *head.parameters()], lr=0.1, weight_decay=0.5)
    x = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    for _ in range(2):
        steps.zero_grad()
        head(layer(x)[0]).square().sum().backward()
        steps.step()
    assert all((getattr(layer, n) == a).all() and getattr(layer, n).grad is None for n, a in before.items())
    assert x.grad is not None and all((p.grad != 0).any() for p in layer.parameters())
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = Recurrent(name, 3, 4).double()
    other.load_state_dict(torch.load(file))
    assert (other.eval()(x)[0] == layer.eval()(x)[0]).all()


def test_gradients_under_transforms_leave_it_out():
    layer = Recurrent("ei_rnn", 3, 4).double().eval()
    params, held = dict(layer.named_parameters()), dict(layer.named_buffers())
    x = torch.randn(5, 2, 3, dtype=torch.float64)

    def loss(weights):
        return torch.func.functional_call(layer, {**weights, **held}, (x,))[0].square().sum()

    mapped = torch.func.grad(loss)({n: p.detach() for n, p in params.items()})
    direct = dict(zip(params, torch.autograd.grad(loss(params), list(params.values()))))
    assert all((mapped[n] == direct[n]).all() for n in params)
